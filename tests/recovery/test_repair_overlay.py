"""Prevents a damaged store from being read otherwise than with what was put right beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.errors import (
    CorruptionError,
    DamagedStoreError,
    FileSystemError,
    NotAStoreError,
    OptionError,
)
from logstore.fs import LOCAL, FileSystem
from logstore.log import chain, file_names, segment, storefile
from logstore.options import StoreLimits
from logstore.recovery import create
from logstore.recovery.check import check
from logstore.recovery.repaired_view import Repaired, RepairedView
from logstore.recovery.salvage.run import salvage
from tests.corruption import frames
from tests.recovery import small_store

X, Y = [1, 4, 5, 6, 7, 8, 10], list(range(1, 11))


def test_files_that_are_others(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_bytes(name.encode() * 100)
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_bytes(b"elsewhere")
    fs = RepairedView(LOCAL)
    fs.hidden.add(tmp_path / "a")
    fs.moved[tmp_path / "new"] = other / "a"
    fs.heads[tmp_path / "b"] = b"HEAD"
    assert fs.names(tmp_path) == ["b", "c", "d", "new", "other"]
    assert fs.names(other) == ["a"]
    assert [fs.exists(tmp_path / name) for name in ("a", "b", "new", "none")] == [
        False, True, True, False,
    ]  # fmt: skip
    with pytest.raises(FileNotFoundError):
        fs.open(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        fs.stat(tmp_path / "a")
    assert fs.stat(tmp_path / "new") == LOCAL.stat(other / "a")
    assert fs.stat(tmp_path / "b") == LOCAL.stat(tmp_path / "b")
    file = fs.open(tmp_path / "new")
    assert file.pread(100, 0) == b"elsewhere"
    file.close()
    file = fs.open(tmp_path / "b")
    wanted = b"HEAD" + b"b" * 96
    for offset in (0, 1, 3, 4, 5, 99, 100):
        for size in (0, 1, 3, 4, 5, 100, 200):
            assert file.pread(size, offset) == wanted[offset : offset + size]
    assert file.size_bytes() == 100
    file.close()
    file = fs.open(tmp_path / "c")
    assert file.pread(4, 0) == b"cccc"
    file.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two main segments, the second with entries of stream z; no index, no hints."""
    path = tmp_path / "store"
    small_store.make(path)
    last = frames.everything(path)[-1]
    end = fmt.position(1, last.end_offset)
    head = segment.SegmentHead(fmt.Role.MAIN, 2, frames.uuid(path), end, last.commit, 5)
    segment.create(LOCAL, path, head).close()
    with logstore.open(path, background=False, encoding=None) as store:
        for ms in range(20, 24):
            store.stream("z").add({b"n": b"%d" % ms}, f"{ms}-{ms}")
    shutil.rmtree(path / "index")
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    return path


ALL = {b"x": X, b"y": Y, b"z": [20, 21, 22, 23]}


def _repaired(path: Path, tmp_path: Path) -> Repaired:
    home = tmp_path / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    return Repaired(LOCAL, path, home)


def test_a_sound_store_needs_nothing(path: Path, tmp_path: Path) -> None:
    found = _repaired(path, tmp_path)
    assert found.damage == []
    assert (found.fs.heads, found.fs.moved, found.fs.hidden) == ({}, {}, set())
    assert found.content == storefile.read(LOCAL, path)


@pytest.mark.parametrize("numbers", [(1,), (2,), (1, 2)])
def test_a_header_is_made_anew_from_what_is_around_it(
    numbers: tuple[int, ...], path: Path, tmp_path: Path
) -> None:
    true = chain.heads(LOCAL, path, frames.uuid(path))
    for number in numbers:
        frames.flip(frames.file(path, number), 20)
    found = _repaired(path, tmp_path)
    assert [each[:3] for each in found.damage] == [(number, 0, 64) for number in numbers]
    heads = chain.heads(found.fs, path, found.content.uuid)
    for number in (1, 2):
        head, size = heads[number]
        assert head._replace(created_ms=0) == true[number][0]._replace(created_ms=0)
        assert size == true[number][1]
        assert head.created_ms == (0 if number in numbers else true[number][0].created_ms)
    assert not found.fs.moved
    report = salvage(path, tmp_path / "new")
    assert small_store.held(tmp_path / "new") == ALL
    assert [each[:3] for each in report.damage] == [(number, 0, 64) for number in numbers]
    assert report.gone == []


def test_a_segment_without_a_frame_is_left_out(path: Path, tmp_path: Path) -> None:
    file = frames.file(path, 1)
    size = file.stat().st_size
    file.write_bytes(bytes(size))
    found = _repaired(path, tmp_path)
    assert found.fs.hidden == {file}
    assert [each[:3] for each in found.damage] == [(1, 0, size)]
    assert found.damage[0].why.endswith("nor a frame")
    assert file_names.segments(found.fs, path) == [2]
    frames.flip(frames.file(path, 2), 20)  # what comes behind it is looked at all the same
    assert [each[:3] for each in _repaired(path, tmp_path).damage] == [(1, 0, size), (2, 0, 64)]
    frames.file(path, 2).write_bytes(bytes(300))
    with pytest.raises((CorruptionError, DamagedStoreError)):
        _repaired(path, tmp_path)


def test_a_damaged_active_segment_gets_an_end(path: Path, tmp_path: Path) -> None:
    """As if another one began behind its last whole commit."""
    log = frames.of(path, 2)
    small_store.cut(path, log[1])
    found = _repaired(path, tmp_path)
    head, size = chain.heads(found.fs, path, found.content.uuid)[3]
    assert size == fmt.SEGMENT_HEAD_BYTES
    assert head == segment.SegmentHead(
        fmt.Role.MAIN, 3, found.content.uuid, fmt.position(2, log[-1].end_offset), log[-1].commit,
        chain.heads(LOCAL, path, found.content.uuid)[2][0].created_ms,
    )  # fmt: skip
    assert not file_names.segment(path, 3).exists()
    small_store.cut(path, log[1])
    small_store.cut(path, log[-1])  # nothing valid is behind it: a torn tail, as far as is known
    assert not _repaired(path, tmp_path).fs.moved


def test_a_marker_that_is_lost_or_damaged_is_made_anew(path: Path, tmp_path: Path) -> None:
    content = storefile.read(LOCAL, path)
    (path / file_names.STORE).unlink()
    found = _repaired(path, tmp_path)
    assert found.content == storefile.StoreFile(content.uuid, StoreLimits(), 0)
    assert storefile.read(found.fs, path) == found.content
    assert [each[:3] for each in found.damage] == [(0, 0, 0)]
    assert "its limits are the defaults now" in found.damage[0].why
    report = salvage(path, tmp_path / "new")
    assert small_store.held(tmp_path / "new") == ALL
    assert [each[:3] for each in report.damage] == [(0, 0, 0)]
    frames.flip(frames.file(path, 1), 20)  # of one header the store's identity is left
    assert _repaired(path, tmp_path).content.uuid == content.uuid
    frames.flip(frames.file(path, 2), 20)
    with pytest.raises(NotAStoreError):
        _repaired(path, tmp_path)


def test_with_a_hint_damage_is_told_once(path: Path) -> None:
    """The hint of a damaged segment fits what is left of it."""
    with logstore.open(path, background=False):
        pass
    shutil.rmtree(path / "index")
    assert file_names.hint(path, 1).exists()
    assert check(path).damage == []
    log = frames.of(path, 1)
    small_store.cut(path, log[5])
    assert [each[:3] for each in check(path).damage] == [(1, log[5].offset, log[5].end_offset)]
    small_store.cut(path, log[5])
    frames.flip(file_names.hint(path, 1), 200)
    (found,) = check(path).damage
    assert found[:3] == (1, 0, 0)
    assert "the hint does not fit" in found.why


def test_where_names_cannot_be_made_durable_no_store_is_made(tmp_path: Path) -> None:
    """But where the directory above may not be opened, somebody else made it, before."""

    class Refused(FileSystem):
        def __init__(self, cause: OSError) -> None:
            self.cause = cause

        def sync_directory(self, path: Path) -> None:
            if path == tmp_path:
                raise FileSystemError("cannot be synced") from self.cause
            super().sync_directory(path)

    place = tmp_path / "store"
    place.mkdir()
    with pytest.raises(FileSystemError, match="cannot be synced"):
        create.create_store(Refused(OSError(5, "EIO")), place, StoreLimits(), 1)
    assert not (place / file_names.STORE).exists()
    create.create_store(Refused(PermissionError(13, "EACCES")), place, StoreLimits(), 1)
    assert (place / file_names.STORE).exists()


def test_no_store_is_made_with_limits_that_cannot_be(tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.mkdir()
    with pytest.raises(OptionError):
        create.create_store(LOCAL, place, StoreLimits(segment_bytes=1), 1)
    assert list(place.iterdir()) == []
