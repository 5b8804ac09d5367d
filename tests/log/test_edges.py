"""Prevents the parts of the log from going wrong at their edges: bytes that end too early, what a
crash left under a temporary name, an error that says nothing of its place.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.compaction import segment_rewrite
from logstore.engine.runtime import maintenance_locks
from logstore.errors import CorruptFrameError, CorruptionError, FormatVersionError, NotAStoreError
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.log import chain, file_names, frame, hint, log_reader, segment, storefile
from logstore.log.segment import SegmentHead
from logstore.log.segment_writer import CommitBuffer
from logstore.log.storefile import StoreFile
from logstore.options import StoreLimits
from tests.support.inside import committer_of, engine_of, roll
from tests.support.watched_files import DurableOrder, FileOperation, WatchedFileSystem

UUID = bytes(range(16))
HEAD = SegmentHead(fmt.Role.MAIN, 3, UUID, 5, 6, 7)


def test_bytes_that_end_in_a_head_are_no_frame() -> None:
    for size in range(fmt.FRAME_HEAD_BYTES):
        with pytest.raises(CorruptFrameError, match="cut off") as caught:
            log_reader.parse(bytes(size), 0, 0, 4, 5)
        assert (caught.value.segment, caught.value.offset) == (4, 5)
    with pytest.raises(CorruptFrameError, match="no frame mark"):
        log_reader.parse(bytes(fmt.FRAME_HEAD_BYTES), 0, 0, 4, 5)


def test_an_error_names_its_place_if_it_has_one() -> None:
    for kind in (Kind.NODE, Kind.CREATE, Kind.ADOPT, Kind.SEAL):
        with pytest.raises(CorruptFrameError) as caught:
            frame.decode(kind, b"\0", segment=7, offset=9)
        assert (caught.value.segment, caught.value.offset) == (7, 9)
        with pytest.raises(CorruptFrameError) as caught:
            frame.decode(kind, b"\0")
        assert (caught.value.segment, caught.value.offset) == (0, 0)


def test_a_temporary_file_is_written_over(tmp_path: Path) -> None:
    (tmp_path / file_names.LOG).mkdir()
    place = file_names.segment(tmp_path, 3)
    place.with_name(place.name + file_names.TEMPORARY).write_bytes(b"x" * 500)
    told = DurableOrder()
    file = segment.create(told, tmp_path, HEAD)
    assert file.path == place  # what an error of it names
    file.close()
    assert place.read_bytes() == segment.pack_head(HEAD)
    temporary = place.name + file_names.TEMPORARY
    assert told.done == [("sync", temporary), ("rename", place.name), ("directory", file_names.LOG)]
    assert [each.name for each in (tmp_path / file_names.LOG).iterdir()] == [place.name]


class SyncFails(WatchedFileSystem):
    """A file system whose files cannot be synced."""

    def before(self, operation: FileOperation) -> None:
        if operation.kind == "sync":
            raise OSError(5, "fails")


def test_after_a_failed_sync_the_next_try_begins_anew(tmp_path: Path) -> None:
    (tmp_path / file_names.LOG).mkdir()
    with pytest.raises(OSError, match="fails"):
        segment.create(SyncFails(), tmp_path, HEAD)
    assert list((tmp_path / file_names.LOG).iterdir()) == []


def test_half_a_hint_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, background=False, segment_bytes=64 << 10) as store:
        store.stream("s").add({"v": b"x" * 60_000})
        store.stream("s").add({"v": b"x" * 60_000})
        engine = store._engine()
        link = chain.main_links(engine.fs, path, engine.uuid)[0]
        place = file_names.hint(path, 1)
        temporary = place.with_name(place.name + file_names.TEMPORARY)
        temporary.write_bytes(b"x" * 5000)
        hint.write(engine.fs, path, engine.uuid, engine.seed, link)
        assert not temporary.exists()
        assert place.stat().st_size < 5000
        found = hint.read(engine.fs, path, engine.uuid, link)
        assert found is not None
        assert len(found) == 4
        # Of a compacted segment it says so.
        assert fmt.HINT_HEAD.unpack_from(place.read_bytes())[4] == fmt.Role.MAIN


def test_a_hint_tells_which_segment_is_missing_behind_its_own(tmp_path: Path) -> None:
    """As the seal says it: the number between may be that of a compacted segment."""
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("s").add({"v": b"one"})
        segment_rewrite.begin(engine_of(store), committer_of(store)).abandon()
        roll(store)
        engine = engine_of(store)
        maintenance_locks.write_missing_hints(engine)
        fs, uuid = engine.fs, engine.uuid
        before, last = [link.number for link in chain.main_links(fs, path, uuid)]
        assert (before, last) == (1, 3)
        assert hint.lost_successor(fs, path, uuid, before) == 0
    file_names.segment(path, last).unlink()
    assert hint.lost_successor(LOCAL, path, uuid, before) == last
    file_names.hint(path, before).unlink()
    assert hint.lost_successor(LOCAL, path, uuid, before) == 0


def test_the_marker_of_a_store_is_whole_or_refused(tmp_path: Path) -> None:
    content = StoreFile(UUID, StoreLimits(), 77)
    place = tmp_path / file_names.STORE
    with pytest.raises(NotAStoreError, match="no file STORE"):
        storefile.read(LOCAL, tmp_path)
    with pytest.raises(NotAStoreError, match="no such directory"):
        storefile.read(LOCAL, tmp_path / "elsewhere")
    data = storefile.pack(content)
    place.write_bytes(data)
    assert storefile.read(LOCAL, tmp_path) == content
    for at in range(len(data)):
        place.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        if at == len(fmt.STORE_MAGIC):  # the version: the one before is read, too
            assert storefile.read(LOCAL, tmp_path) == content._replace(version=2)
        else:
            with pytest.raises((NotAStoreError, CorruptionError, FormatVersionError)):
                storefile.read(LOCAL, tmp_path)
        place.write_bytes(data[:at])
        with pytest.raises((NotAStoreError, CorruptionError)):
            storefile.read(LOCAL, tmp_path)
    place.write_bytes(data[: fmt.STORE_HEAD.size])
    with pytest.raises(CorruptionError, match="damaged"):
        storefile.read(LOCAL, tmp_path)
    later = data[:8] + (fmt.FORMAT_VERSION + 1).to_bytes(2, "little") + data[10:]
    place.write_bytes(later)
    with pytest.raises(FormatVersionError):
        storefile.read(LOCAL, tmp_path)
    place.write_bytes(data + b"\0")
    with pytest.raises(CorruptionError, match="damaged"):
        storefile.read(LOCAL, tmp_path)
    older = content._replace(version=fmt.OLDEST_VERSION)
    assert storefile.upgrade(LOCAL, tmp_path, older) == content
    assert storefile.read(LOCAL, tmp_path) == content


def test_a_damaged_head_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / file_names.LOG).mkdir()
    file = segment.create(LOCAL, tmp_path, HEAD)
    file.pwrite(b"x", 20)
    with pytest.raises(CorruptFrameError) as caught:
        segment.read_head(file, 3, UUID)
    assert (caught.value.segment, caught.value.offset) == (3, 0)
    file.close()


def test_a_commit_of_nothing_ends_where_it_begins() -> None:
    buffer = CommitBuffer(3 << 32 | 64, 12)
    assert (buffer.start, buffer.end, buffer.last_start) == (buffer.start,) * 3
    assert (buffer.number, buffer.last_crc) == (12, 0)
    assert buffer.encode(1, 2) == b""
    assert buffer.frame_at(buffer.start) is None
