"""Prevents errors that come from outside of the tree, do not say what to do, or do not pickle."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import errors


def test_every_error_is_the_same_after_pickling() -> None:
    """A worker's error that cannot be unpickled hangs or breaks its pool."""
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    kinds = [each for each in found if issubclass(each, errors.Error)]
    made: list[Any] = [errors.InputLineError("no JSON", line_number=7)]
    made += [kind("why") for kind in kinds if kind is not errors.InputLineError]
    made.append(errors.LockTimeoutError("why", owner_pid=5))
    made.append(errors.CorruptFrameError("why", stream=b"s", segment=3, offset=4))
    assert len(made) > 20
    for error in made:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), vars(again), again.args) == (str(error), vars(error), error.args)


def test_a_file_is_no_place_for_a_store(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"precious")
    with pytest.raises(logstore.FileSystemError, match="give a directory, not a file"):
        logstore.open(file)
    with pytest.raises(logstore.FileSystemError, match="give a directory, not a file"):
        logstore.open(file, readonly=True)
    assert file.read_bytes() == b"precious"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a place where nobody can make folders")
def test_a_folder_that_cannot_be_made_is_an_error_of_ours() -> None:
    with pytest.raises(logstore.FileSystemError, match="creating /proc/store failed"):
        logstore.open("/proc/store")


def test_read_wants_an_id_for_each_stream(empty: Path) -> None:
    with logstore.open(empty) as store, pytest.raises(logstore.UsageError, match="name: id"):
        store.read(["s"])  # type: ignore[arg-type]


def test_a_backup_into_the_store_itself_is_refused(empty: Path) -> None:
    with logstore.open(empty) as store:
        store.stream("s").add({"a": "1"})
        with pytest.raises(logstore.OptionError, match="outside"):
            store.backup(empty / "backup")
    assert not (empty / "backup").exists()


def test_a_store_that_is_forgotten_at_exit_says_nothing(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules may be gone by then, and the store was closed before that."""
    store = logstore.open(empty)
    monkeypatch.setattr("logstore.api.opening.registry", None)
    store._opened.__del__()
    monkeypatch.undo()
    store.close()


def test_a_scan_without_pyarrow_says_what_to_install(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with logstore.open(empty) as store:
        store.stream("s").add({"a": "1"})
        with pytest.raises(logstore.UsageError, match="pip install 'logstore-streams"):
            store.stream("s").scan()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc here")
def test_a_place_where_nothing_can_be_made_is_told_once() -> None:
    with pytest.raises(logstore.FileSystemError) as caught:
        logstore.open("/proc/no-store")
    assert str(caught.value).count("creating /proc/no-store failed") == 1
