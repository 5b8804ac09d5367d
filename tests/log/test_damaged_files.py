"""Prevents a checkpoint, a hint or a pin from being believed when one byte of it is not as it was
written, or it follows another commit than the log holds; and from being named before it is whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.commit import log_tail
from logstore.engine.commit.committer import Committer
from logstore.errors import CorruptFrameError, FormatVersionError, SnapshotExpiredError
from logstore.fs import LOCAL, FileStat, FileSystem
from logstore.log import chain, checkpoint_file, file_names, hint, log_reader, pinfile
from logstore.log.checkpoint_file import CheckpointHead
from logstore.log.pinfile import Pin
from logstore.log.segment_writer import crc_seed
from tests.support.watched_files import DurableOrder

UUID = bytes(range(16))
HEAD = CheckpointHead(fmt.position(3, 700), 12, 600, 1234)
CHUNKS = [{"kind": "meta", "rows": []}, {"kind": "live", "rows": [[1, 2, b"x"]]}]


def _checkpoint(store: Path) -> Path:
    size = checkpoint_file.write(LOCAL, store, UUID, HEAD, CHUNKS)
    path = file_names.checkpoint(store, HEAD.position)
    assert path.stat().st_size == size
    return path


def test_a_checkpoint_is_whole_or_none(tmp_path: Path) -> None:
    path = _checkpoint(tmp_path)
    assert checkpoint_file.read(LOCAL, tmp_path, UUID, HEAD.position) == (HEAD, CHUNKS)
    whole = path.read_bytes()
    front = fmt.CHECKPOINT_HEAD.size
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        why = "head of .* is damaged" if at < front else "is damaged|is cut off"
        with pytest.raises(CorruptFrameError, match=why):
            checkpoint_file.read(LOCAL, tmp_path, UUID, HEAD.position)
        path.write_bytes(whole[:at])
        with pytest.raises(CorruptFrameError, match=r"is cut off|is damaged"):
            checkpoint_file.read(LOCAL, tmp_path, UUID, HEAD.position)
    path.write_bytes(whole + b"more")  # what was never written behind it does not matter
    assert checkpoint_file.read(LOCAL, tmp_path, UUID, HEAD.position) == (HEAD, CHUNKS)


def test_a_checkpoint_is_of_one_place_and_one_store(tmp_path: Path) -> None:
    path = _checkpoint(tmp_path)
    with pytest.raises(CorruptFrameError, match="another store or place"):
        checkpoint_file.read(LOCAL, tmp_path, UUID[::-1], HEAD.position)
    path.rename(file_names.checkpoint(tmp_path, HEAD.position + 1))
    with pytest.raises(CorruptFrameError, match="another store or place"):
        checkpoint_file.read(LOCAL, tmp_path, UUID, HEAD.position + 1)
    with pytest.raises(FileNotFoundError):
        checkpoint_file.read(LOCAL, tmp_path, UUID, HEAD.position)


def test_the_chunks_of_a_checkpoint_keep_their_order(tmp_path: Path) -> None:
    path = _checkpoint(tmp_path)
    data, at, parts = path.read_bytes(), fmt.CHECKPOINT_HEAD.size, []
    for _ in CHUNKS:
        size, _ = fmt.CHUNK_HEAD.unpack_from(data, at)
        parts.append(data[at : at + fmt.CHUNK_HEAD.size + size])
        at += len(parts[-1])
    assert at == len(data)
    path.write_bytes(data[: fmt.CHECKPOINT_HEAD.size] + parts[1] + parts[0])
    with pytest.raises(CorruptFrameError, match="chunk 0 of"):
        checkpoint_file.read(LOCAL, tmp_path, UUID, HEAD.position)


def test_a_checkpoint_counts_if_the_log_holds_its_commit(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", background=False) as store:
        store.stream("s").add({"n": 1})
        store.stream("s").add_many([{"n": 2}, {"n": 3}])
        store.checkpoint()
        engine = store._engine()
        (position,) = file_names.checkpoints(engine.fs, engine.path)
        head, _ = checkpoint_file.read(engine.fs, engine.path, engine.uuid, position)

        def fits(head: CheckpointHead) -> bool:
            return checkpoint_file.fits_log(engine.fs, engine.path, engine.uuid, head)

        assert fits(head)
        assert not fits(head._replace(commit=head.commit + 1))
        assert not fits(head._replace(last_crc=head.last_crc ^ 1))
        assert not fits(head._replace(position=head.position - 1))
        assert not fits(head._replace(last_frame_offset=head.last_frame_offset + 1))
        file = engine.fs.open(file_names.segment(engine.path, 1))
        found = list(
            log_reader.scan(file, engine.seed, 1, fmt.SEGMENT_HEAD_BYTES, file.size_bytes())
        )
        file.close()
        inner = next(each for each in found if not each.last)
        assert not fits(CheckpointHead(
            fmt.position(1, inner.end_offset), inner.commit, inner.offset, inner.crc
        ))  # fmt: skip
        # Without its segment only if the next one's header says that this was its end.
        assert not fits(head._replace(position=fmt.position(9, 100)))
        with Committer(engine).locked() as words:
            log_tail.roll_locked(engine, words)
        (link,) = chain.main_links(engine.fs, engine.path, engine.uuid, 2)
        file_names.segment(engine.path, 1).rename(tmp_path / "away")
        at_end = head._replace(position=link.previous_end, commit=link.previous_commit)
        assert fits(at_end)
        assert not fits(at_end._replace(commit=head.commit))
        assert not fits(head)
        (tmp_path / "away").rename(file_names.segment(engine.path, 1))


@pytest.fixture
def hinted(tmp_path: Path) -> Iterator[tuple[Path, bytes, chain.Link]]:
    """A sealed segment with its hint."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, segment_bytes=64 << 10) as store:
        store.stream("s").add_many([{"v": b"x" * 9000}] * 4)
        store.stream("s").add({"v": b"x" * 60_000})
        engine = store._engine()
        link = chain.main_links(engine.fs, path, engine.uuid)[0]
        hint.write(engine.fs, path, engine.uuid, engine.seed, link)
        yield path, engine.uuid, link


def test_a_hint_is_whole_or_none(hinted: tuple[Path, bytes, chain.Link]) -> None:
    path, uuid, link = hinted
    items = hint.read(LOCAL, path, uuid, link)
    assert items is not None
    file = LOCAL.open(file_names.segment(path, 1))
    scanned = log_reader.scan(file, crc_seed(uuid), 1, link.start_offset, link.end_offset)
    assert items == [hint.shortened(each)._replace(durable_upto=0) for each in scanned]
    file.close()
    place = file_names.hint(path, 1)
    whole = place.read_bytes()
    for at in range(len(whole)):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert hint.read(LOCAL, path, uuid, link) is None
    for at in range(0, len(whole), 7):
        place.write_bytes(whole[:at])
        assert hint.read(LOCAL, path, uuid, link) is None
    place.write_bytes(whole)
    assert hint.read(LOCAL, path, uuid[::-1], link) is None
    assert hint.read(LOCAL, path, uuid, link._replace(end_offset=link.end_offset - 1)) is None
    assert hint.read(LOCAL, path, uuid, link) == items


def test_a_hint_of_which_somebody_took_the_name_is_left_to_them(
    hinted: tuple[Path, bytes, chain.Link],
) -> None:
    """Between the opening of the temporary file and its lock it was renamed."""
    path, uuid, link = hinted
    place = file_names.hint(path, 1)
    place.unlink()

    class Renamed(FileSystem):
        def stat(self, path: Path) -> FileStat:
            if path.name.endswith(file_names.TEMPORARY):
                raise FileNotFoundError(path)
            return super().stat(path)

    class Another(FileSystem):
        def stat(self, path: Path) -> FileStat:
            found = super().stat(path)
            return found._replace(inode=found.inode + 1)

    for fs in (Renamed(), Another()):
        hint.write(fs, path, uuid, crc_seed(uuid), link)
        assert not place.exists()
    told = DurableOrder()
    hint.write(told, path, uuid, crc_seed(uuid), link)
    temporary = place.name + file_names.TEMPORARY
    assert told.done == [("sync", temporary), ("rename", place.name), ("directory", file_names.LOG)]
    assert hint.read(LOCAL, path, uuid, link) is not None


def test_a_pin_lives_on_when_half_of_its_time_is_over(tmp_path: Path) -> None:
    (tmp_path / file_names.PINS).mkdir()
    pin = Pin(pinfile.new_id(), frozenset({3, 1}), 1000, 500, 77)
    fs = DurableOrder()
    pinfile.write(fs, tmp_path, pin)
    synced, renamed, directory = fs.done
    assert synced[0] == "sync"
    assert synced[1].endswith(file_names.TEMPORARY)
    assert (renamed, directory) == (("rename", pin.id), ("directory", file_names.PINS))
    for now_ms, expires_ms in ((700, 1000), (749, 1000), (750, 1250), (760, 1250), (1001, 1501)):
        assert pinfile.renew(fs, tmp_path, pin.id, now_ms).expires_ms == expires_ms
        assert pinfile.read(fs, tmp_path, pin.id) == pin._replace(expires_ms=expires_ms)
    with pytest.raises(SnapshotExpiredError, match="ran out"):
        pinfile.check(fs, tmp_path, pin.id, 1501)
    place = pinfile.path(tmp_path, pin.id)
    whole = place.read_bytes()
    for at in range(len(whole)):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        if at != len(fmt.PIN_MAGIC):  # the version: the one before is read, too
            assert pinfile.read(fs, tmp_path, pin.id) is None
        place.write_bytes(whole[:at])
        assert pinfile.read(fs, tmp_path, pin.id) is None
    with pytest.raises(SnapshotExpiredError, match="given back"):
        pinfile.check(fs, tmp_path, pin.id, 0)
    other = pinfile.new_id()
    pinfile.path(tmp_path, other).write_bytes(whole)
    assert pinfile.read(fs, tmp_path, other) is None  # it names itself


def test_a_pin_that_an_erasure_took_while_it_was_written_is_none(tmp_path: Path) -> None:
    (tmp_path / file_names.PINS).mkdir()

    class Erased(FileSystem):
        def rename(self, source: Path, target: Path) -> None:
            source.unlink()
            super().rename(source, target)

    pin = Pin(pinfile.new_id(), None, 1000, 500, 77)
    with pytest.raises(SnapshotExpiredError, match=re.escape(pin.id)):
        pinfile.write(Erased(), tmp_path, pin)
    pinfile.write(LOCAL, tmp_path, pin)

    class Refused(FileSystem):
        def rename(self, source: Path, target: Path) -> None:
            raise FileNotFoundError(target)

    assert pinfile.read(LOCAL, tmp_path, pin.id) == pin
    with pytest.raises(SnapshotExpiredError):
        pinfile.renew(Refused(), tmp_path, pin.id, 999)


def test_files_of_a_later_format_are_refused(tmp_path: Path) -> None:
    """A checkpoint says so; a hint and a pin are as good as none."""
    path = _checkpoint(tmp_path)
    data = bytearray(path.read_bytes())
    data[8:10] = (fmt.FORMAT_VERSION + 1).to_bytes(2, "little")
    body = bytes(data[: fmt.CHECKPOINT_HEAD.size - 4])
    data[fmt.CHECKPOINT_HEAD.size - 4 : fmt.CHECKPOINT_HEAD.size] = checkpoint_file.crc32c(
        body
    ).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(FormatVersionError):
        checkpoint_file.read(LOCAL, tmp_path, UUID, HEAD.position)
