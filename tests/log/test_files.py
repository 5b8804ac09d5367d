"""Prevents a segment, a hint or a pin of another store, place or time from being believed, and a
file with an odd name from being taken for one of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import format as fmt
from logstore.errors import CorruptFrameError, SnapshotExpiredError
from logstore.fs import FileSystem
from logstore.log import hint, names, pinfile, segment
from logstore.log.pinfile import Pin
from logstore.log.segment import SegmentHead

UUID = bytes(range(16))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The directories of a store, without more."""
    for folder in (names.LOG, names.CHECKPOINTS, names.PINS):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    return tmp_path


def test_only_numbers_are_segments(store: Path) -> None:
    suffix = names.segment(store, 1).name.partition(".")[2]
    ours = [names.segment(store, number).name for number in (7, 12)]
    odd = (f"9.{suffix}", f"{'²' * 20}.{suffix}", f"x.{suffix}", f".{suffix}", "9.other", "8")
    for name in (*ours, *odd):
        (store / names.LOG / name).touch()
    assert names.segments(FileSystem(), store) == [7, 12]


def test_a_header_is_of_one_number_and_one_store(store: Path) -> None:
    fs = FileSystem()
    head = SegmentHead(fmt.Role.MAIN, 3, UUID, 5, 6, 7)
    segment.create(fs, store, head).close()
    file = fs.open(names.segment(store, 3), write=True)
    assert segment.read_head(file, 3, UUID) == head
    with pytest.raises(CorruptFrameError, match="another store or place"):
        segment.read_head(file, 4, UUID)
    with pytest.raises(CorruptFrameError, match="another store or place"):
        segment.read_head(file, 3, UUID[::-1])
    for at in range(fmt.SEGMENT_HEAD_BYTES):
        good = file.pread(1, at)
        file.pwrite(bytes([good[0] ^ 1]), at)
        with pytest.raises(CorruptFrameError):
            segment.read_head(file, 3, UUID)
        file.pwrite(good, at)
    file.truncate(fmt.SEGMENT_HEAD_BYTES - 1)
    with pytest.raises(CorruptFrameError, match="no segment header"):
        segment.read_head(file, 3, UUID)
    file.close()


def test_a_pin_holds_until_its_time(store: Path) -> None:
    fs = FileSystem()
    pin = Pin(pinfile.new_id(), frozenset({3, 1}), 1000, 500, 77)
    pinfile.write(fs, store, pin)
    assert pinfile.read(fs, store, pin.id) == pin
    assert pinfile.check(fs, store, pin.id, 999) == pin
    with pytest.raises(SnapshotExpiredError, match="ran out"):
        pinfile.check(fs, store, pin.id, 1000)
    with pytest.raises(SnapshotExpiredError, match="given back"):
        pinfile.check(fs, store, pinfile.new_id(), 0)
    whole = pinfile.path(store, pin.id).read_bytes()
    for cut in (0, fmt.PIN_HEAD.size - 1, fmt.PIN_HEAD.size, len(whole) - 1):
        pinfile.path(store, pin.id).write_bytes(whole[:cut])
        assert pinfile.read(fs, store, pin.id) is None
    other = pinfile.new_id()
    pinfile.path(store, other).write_bytes(whole)  # one pin under another's name
    assert pinfile.read(fs, store, other) is None


def test_a_hint_is_written_by_one_at_a_time(store: Path) -> None:
    """Who finds the temporary file in another's hands leaves it alone."""
    fs = FileSystem()
    path = names.hint(store, 5)
    temporary = path.with_name(path.name + names.TEMPORARY)
    other = fs.open(temporary, write=True, create=True)
    assert other.try_lock(exclusive=False)
    hint._write_alone(fs, path, b"ours")
    assert not path.exists()
    other.close()
    hint._write_alone(fs, path, b"ours")
    assert path.read_bytes() == b"ours"
    assert not temporary.exists()
