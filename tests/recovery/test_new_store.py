"""Prevents a store where there can be none, and one that a power cut takes while it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import format as fmt
from logstore import fsinfo
from logstore.errors import FileSystemError, NotAStoreError
from logstore.fs import LOCAL, FileSystem
from logstore.log import file_names
from logstore.options import StoreLimits
from logstore.recovery import create
from tests.support.watched_files import DurableOrder

LIMITS = StoreLimits()


def test_a_new_store_is_durable_from_the_outside_in(tmp_path: Path) -> None:
    """The directories above it, its own name, its folders, the first segment, and STORE last."""
    fs = DurableOrder()
    place = tmp_path / "a" / "b" / "store"
    create.make_place(fs, place)
    assert fs.done == [("directory", name) for name in (tmp_path.name, "a", "b")]
    fs.operations.clear()
    create.create_store(fs, place, LIMITS, 1)
    assert fs.done[0] == ("directory", "b")
    number = fs.done.index(("rename", file_names.segment(place, 1).name))
    store = fs.done.index(("rename", file_names.STORE))
    whole = [at for at, done in enumerate(fs.done) if done == ("directory", "store")]
    assert any(number < at < store for at in whole)
    assert whole[-1] > store
    assert ("directory", file_names.LOG) in fs.done[number:store]


def test_a_directory_that_may_become_a_store(tmp_path: Path) -> None:
    """Empty, or begun and left; not with other files, nor with a log that has frames."""
    fs = FileSystem()
    create.check_free(fs, tmp_path)
    for folder in create.FOLDERS:
        (tmp_path / folder).mkdir()
    (tmp_path / file_names.LOCK).touch()
    (tmp_path / f"x{file_names.TEMPORARY}").touch()
    first = file_names.segment(tmp_path, 1)
    first.write_bytes(bytes(fmt.SEGMENT_HEAD_BYTES))
    create.check_free(fs, tmp_path)
    first.write_bytes(bytes(fmt.SEGMENT_HEAD_BYTES + 1))
    with pytest.raises(NotAStoreError, match="other files"):
        create.check_free(fs, tmp_path)
    with pytest.raises(NotAStoreError, match="other files"):
        create.create_store(fs, tmp_path, LIMITS, 1)
    (tmp_path / file_names.STORE).touch()
    create.check_free(fs, tmp_path)  # it is one: whoever reads STORE judges it
    for name in (file_names.STORE, file_names.segment(tmp_path, 1)):
        (tmp_path / name).unlink()
    (tmp_path / "letter.txt").touch()
    with pytest.raises(NotAStoreError, match="other files"):
        create.check_free(fs, tmp_path)


def test_a_network_is_no_place_for_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a directory that is not there yet, the one above it that is."""
    asked: list[Path] = []
    kinds = {tmp_path: "ext4", tmp_path / "far": "nfs4"}
    (tmp_path / "far").mkdir()

    def kind(path: Path) -> str:
        asked.append(path)
        return kinds[path]

    monkeypatch.setattr(fsinfo, "mount_type", kind)
    assert "nfs4" in fsinfo.NETWORK_TYPES
    create.check_place(LOCAL, tmp_path / "a" / "b" / "c")
    create.check_place(LOCAL, tmp_path)
    assert asked == [tmp_path, tmp_path]
    for place in (tmp_path / "far", tmp_path / "far" / "store"):
        with pytest.raises(FileSystemError, match="network file system"):
            create.check_place(LOCAL, place)
    assert asked[2:] == [tmp_path / "far"] * 2
