"""Prevents what kills and failing system calls have found: an empty hint when several processes
write one, files that nobody ever removes, an error without a type where LMDB makes its directory,
or where the place of a store is looked at.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import lmdb
import pytest

import logstore
from logstore.engine.runtime.engine import Engine
from logstore.fs import LOCAL
from logstore.log import chain, file_names, hint
from logstore.recovery.check import check
from tests.crash.kills import strace
from tests.crash.kills.strace import Hit
from tests.support.watched_files import FileOperation, WatchedFileSystem


class Killed(Exception):  # noqa: N818  it stands for a kill
    """The process is gone."""


class InterruptedRename(WatchedFileSystem):
    """What the one who writes first uses: another process comes in before its rename."""

    def __init__(self, come_in: Callable[[], None]) -> None:
        self._come_in = come_in

    def before(self, operation: FileOperation) -> None:
        """The other first."""
        if operation.kind == "rename":
            self._come_in()


class KilledAtWrite(WatchedFileSystem):
    """What the other one uses: its process is killed before it writes."""

    def before(self, operation: FileOperation) -> None:
        """Killed before the bytes are written."""
        if operation.kind == "write":
            raise Killed


def sealed(path: Path) -> tuple[Engine, chain.Link]:
    """A store that was closed, and a sealed segment of it."""
    with logstore.open(path, segment_bytes=64 * 1024, background=False) as store:
        for _ in range(3):
            store.stream("a").add({"v": b"x" * 40_000})
        engine = store._engine()
    return engine, chain.main_links(LOCAL, path, engine.uuid)[0]


def test_a_hint_that_two_write_is_whole_if_one_is_killed(tmp_path: Path) -> None:
    """The other one leaves the file alone that is about to get its name."""
    engine, link = sealed(tmp_path / "s")
    kept = hint.read(LOCAL, engine.path, engine.uuid, link)
    assert kept
    file_names.hint(engine.path, link.number).unlink()
    came: list[bool] = []

    def come_in() -> None:
        came.append(True)
        try:
            hint.write(KilledAtWrite(), engine.path, engine.uuid, engine.seed, link)
        except Killed:
            return

    hint.write(InterruptedRename(come_in), engine.path, engine.uuid, engine.seed, link)
    assert came
    assert hint.read(LOCAL, engine.path, engine.uuid, link) == kept
    assert check(engine.path).as_dict()["clean"]


def test_a_half_hint_of_a_dead_process_is_written_anew(tmp_path: Path) -> None:
    """Its temporary file is in nobody's way."""
    engine, link = sealed(tmp_path / "s")
    path = file_names.hint(engine.path, link.number)
    path.rename(path.with_name(path.name + file_names.TEMPORARY))
    with logstore.open(engine.path):
        pass
    assert hint.read(LOCAL, engine.path, engine.uuid, link)
    assert not path.with_name(path.name + file_names.TEMPORARY).exists()


def test_compaction_removes_what_dead_processes_left(tmp_path: Path) -> None:
    """Checkpoints without a name, and hints of segments that are gone; nothing else."""
    engine, link = sealed(tmp_path / "s")
    left = [
        file_names.checkpoint(engine.path, 1 << 32).with_suffix(".ckpt.tmp"),
        file_names.hint(engine.path, 1000),
        file_names.hint(engine.path, 1001).with_suffix(".hint.tmp"),
    ]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    with logstore.open(engine.path, background=False) as store:
        store.compact(threshold=1.0)
        assert not [path for path in left if path.exists()]
    assert file_names.hint(engine.path, link.number).exists()
    assert check(engine.path).as_dict()["clean"]


def test_a_directory_that_lmdb_cannot_make_is_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises what the system says, not an error of its own."""
    engine, _ = sealed(tmp_path / "s")
    (engine.path / "index").rename(tmp_path / "aside")

    def fails(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(lmdb, "open", fails)
        with pytest.raises(logstore.DiskFullError):
            logstore.open(engine.path)
    with logstore.open(engine.path) as store:
        assert len(store.stream("a")) == 3


def _opens(path: Path) -> None:
    with suppress(logstore.Error):
        logstore.open(path, background=False).close()


def test_a_look_that_fails_in_an_open_is_typed(tmp_path: Path) -> None:
    """Also at the place where the store is to be, before anything else is known of it."""
    if strace.STRACE is None:
        pytest.skip("strace is not installed: system calls cannot be made to fail")
    path = tmp_path / "store"
    logstore.open(path, background=False).close()
    try:
        looks = strace.run(lambda: _opens(path), tmp_path, Hit()).calls["newfstatat"]
    except strace.Refused as exc:
        pytest.skip(f"strace may not attach: {exc}")
    assert looks > 5
    hits = 0  # the interpreter's own looks are a few more or less from run to run
    for number in range(1, looks + 1):
        hit = Hit("newfstatat", number, "EIO")
        hits += bool(strace.run(lambda: _opens(path), tmp_path, hit).injected)
    # A failure may have had the index rebuilt, which is opened with a few looks less.
    after = strace.run(lambda: _opens(path), tmp_path, Hit()).calls["newfstatat"]
    assert hits > min(looks, after) - 5
