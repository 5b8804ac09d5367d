"""Prevents a file of another store, place or time from being believed, and work from failing where
segments go.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import msgpack
import pytest

import logstore
from logstore import format as fmt
from logstore.crc import crc32c
from logstore.errors import (
    CorruptFrameError,
    CorruptionError,
    NotAStoreError,
    SnapshotExpiredError,
)
from logstore.fs import LOCAL, FileSystem
from logstore.log import (
    chain,
    checkpoint_file,
    file_names,
    hint,
    pinfile,
    segment,
    shipfile,
    storefile,
    versioned,
    whole_file,
)
from logstore.log.chain import Link
from logstore.log.pinfile import Pin
from logstore.log.segment import SegmentHead
from logstore.log.shipfile import NEVER, ShipRecord
from logstore.recovery import index_validity

UUID = bytes(range(16))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The directories of a store, without more."""
    for folder in (file_names.LOG, file_names.CHECKPOINTS, file_names.PINS):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    return tmp_path


def test_only_numbers_are_segments(store: Path) -> None:
    suffix = file_names.segment(store, 1).name.partition(".")[2]
    ours = [file_names.segment(store, number).name for number in (7, 12)]
    odd = (f"9.{suffix}", f"{'²' * 20}.{suffix}", f"x.{suffix}", f".{suffix}", "9.other", "8")
    for name in (*ours, *odd):
        (store / file_names.LOG / name).touch()
    assert file_names.segments(FileSystem(), store) == [7, 12]


def test_the_path_of_a_log_has_its_number(store: Path) -> None:
    """By it a store that was shipped knows which of its files are segments."""
    log, beside = file_names.segment(store, 12), file_names.hint(store, 12)
    for path, number in (
        (str(log), 12), (log.name, 12), (f"log/{log.name}", 12), (str(beside), 0),
        (log.name + file_names.TEMPORARY, 0), ("STORE", 0), ("12", 0), ("x.log", 0), ("", 0),
        (str(file_names.checkpoint(store, 12)), 0), (f"{log.name}/STORE", 0),
    ):  # fmt: skip
        assert file_names.segment_number(path) == number, path


def test_a_header_is_of_one_number_and_one_store(store: Path) -> None:
    fs = FileSystem()
    head = SegmentHead(fmt.Role.MAIN, 3, UUID, 5, 6, 7)
    segment.create(fs, store, head).close()
    file = fs.open(file_names.segment(store, 3), write=True)
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
    with pytest.raises(NotAStoreError, match="executors need it"):
        pinfile.check(fs, store / "elsewhere", pin.id, 999)
    whole = pinfile.path(store, pin.id).read_bytes()
    for cut in (0, fmt.PIN_HEAD.size - 1, fmt.PIN_HEAD.size, len(whole) - 1):
        pinfile.path(store, pin.id).write_bytes(whole[:cut])
        assert pinfile.read(fs, store, pin.id) is None
    other = pinfile.new_id()
    pinfile.path(store, other).write_bytes(whole)  # one pin under another's name
    assert pinfile.read(fs, store, other) is None


SHIPPED = ShipRecord(fmt.position(7, 500), 1234, (9, 11), "s3://bucket/races", "ab" * 16)


def test_a_ship_covers_what_stands_before_its_position() -> None:
    """Retention drops what is covered: one byte more, and it drops what nobody was shipped."""
    for segment_number, offset, covered in (
        (7, 499, True), (7, 500, False), (7, 501, False), (8, 0, False), (6, 900, True),
        (9, 64, True), (10, 64, False), (11, 1 << 31, True), (12, 64, False),
    ):  # fmt: skip
        assert SHIPPED.covers(fmt.position(segment_number, offset)) == covered
    assert not SHIPPED.covers(0)  # it stands nowhere
    assert not any(map(NEVER.covers, (0, 1, fmt.position(1, 64))))


def test_a_record_of_ships_is_whole_or_says_never(store: Path) -> None:
    fs = FileSystem()
    assert shipfile.read(fs, store) == ShipRecord(0, 0, (), "", "")
    shipfile.write(fs, store, SHIPPED)
    assert shipfile.read(fs, store) == SHIPPED
    place = store / file_names.SHIPPED
    whole = place.read_bytes()
    for at in range(len(whole)):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert shipfile.read(fs, store) == NEVER
        place.write_bytes(whole[:at])
        assert shipfile.read(fs, store) == NEVER
    # That of a logstore that had no lines, and one whose content is of another kind.
    body = SHIPPED._asdict()
    del body["line"]
    place.write_bytes(versioned.sealed(msgpack.packb(body)))
    assert shipfile.read(fs, store) == SHIPPED._replace(line="")
    for name, other in (("position", "text"), ("compacted", 5), ("shipped_ms", None)):
        place.write_bytes(versioned.sealed(msgpack.packb({**body, name: other})))
        assert shipfile.read(fs, store) == NEVER


def test_lines_of_ships_have_names_of_their_own() -> None:
    names = {shipfile.new_line() for _ in range(100)}
    assert len(names) == 100
    assert {len(bytes.fromhex(name)) for name in names} == {16}


def test_a_hint_is_written_by_one_at_a_time(store: Path) -> None:
    """Who finds the temporary file in another's hands leaves it alone."""
    fs = FileSystem()
    path = file_names.hint(store, 5)
    temporary = path.with_name(path.name + file_names.TEMPORARY)
    other = fs.open(temporary, write=True, create=True)
    assert other.try_lock(exclusive=False)
    whole_file.write_alone(fs, path, b"ours")
    assert not path.exists()
    other.close()
    whole_file.write_alone(fs, path, b"ours")
    assert path.read_bytes() == b"ours"
    assert not temporary.exists()


def test_a_segment_that_goes_between_the_list_and_the_look_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 16, background=False) as store:
        store.stream("s").add_many([{"pad": "x" * 1000}] * 300, batch=10)
        uuid = store._engine().uuid
        links, heads = chain.main_links(LOCAL, path, uuid), chain.heads(LOCAL, path, uuid)
        listed = file_names.segments

        def listed_and_gone(fs: FileSystem, place: Path) -> list[int]:
            found = listed(fs, place)
            file_names.segment(place, found[0]).unlink(missing_ok=True)
            return found

        monkeypatch.setattr(file_names, "segments", listed_and_gone)
        assert len(links) > 2
        assert chain.main_links(LOCAL, path, uuid) == links[1:]
        monkeypatch.setattr(file_names, "segments", lambda *_: [99, *listed(LOCAL, path)])
        del heads[links[0].number]
        assert chain.heads(LOCAL, path, uuid) == heads
        assert chain.main_links(LOCAL, path, uuid) == links[1:]


OWN_UUID = bytes(16)
POSITION = 1 << 32 | 99
# A list, no map; text that is no UTF-8; a key that is a list; something behind the end; nothing.
ODD = (b"\x91\x01", b"\xa1\xff", b"\x81\x91\x01\x02", b"\x01\x02", b"\x81", b"\x80")


@pytest.mark.parametrize("body", ODD)
def test_files_with_other_content_are_refused(tmp_path: Path, body: bytes) -> None:
    head = fmt.STORE_HEAD.pack(fmt.STORE_MAGIC, fmt.FORMAT_VERSION, 0, len(body), crc32c(body))
    (tmp_path / file_names.STORE).write_bytes(head + body)
    with pytest.raises(CorruptionError, match="STORE does not hold"):
        storefile.read(LOCAL, tmp_path)
    (tmp_path / file_names.BOOT).write_bytes(crc32c(body).to_bytes(4, "little") + body)
    assert index_validity.read_marker(LOCAL, tmp_path) is None
    pin = "ab" * 16
    pinfile.path(tmp_path, pin).parent.mkdir()
    head = fmt.PIN_HEAD.pack(fmt.PIN_MAGIC, fmt.FORMAT_VERSION, crc32c(body))
    pinfile.path(tmp_path, pin).write_bytes(head + body)
    assert pinfile.read(LOCAL, tmp_path, pin) is None


@pytest.mark.parametrize("body", ODD[1:5])
def test_a_chunk_that_is_none(tmp_path: Path, body: bytes) -> None:
    front = fmt.CHECKPOINT_HEAD.pack(
        fmt.CHECKPOINT_MAGIC, fmt.FORMAT_VERSION, 0, OWN_UUID, POSITION, 1, 64, 9, 1, 0
    )[:-4]
    crc = crc32c(front)
    own = crc32c(body, crc32c(bytes(4), crc))
    path = file_names.checkpoint(tmp_path, POSITION)
    path.parent.mkdir()
    path.write_bytes(front + crc.to_bytes(4, "little") + fmt.CHUNK_HEAD.pack(len(body), own) + body)
    with pytest.raises(CorruptFrameError, match=r"chunk 0 of .* does not hold"):
        checkpoint_file.read(LOCAL, tmp_path, OWN_UUID, POSITION)


def test_packed_errors_name_the_place() -> None:
    assert versioned.unpack_map(b"\x81\xa1a\x01", "BOOT", ("a",)) == {"a": 1}
    with pytest.raises(CorruptionError, match="BOOT does not hold what belongs there"):
        versioned.unpack_map(b"\x80", "BOOT", ("a",))


@pytest.mark.parametrize("magic", [fmt.HINT_MAGIC, fmt.HINT_MAGIC_PLAIN], ids=["now", "plain"])
@pytest.mark.parametrize(
    ("count", "body"), [(1, bytes(31)), (0, b"x"), (2, bytes(60)), (1, bytes(29))]
)
def test_a_hint_whose_items_are_not_its_bytes_is_none(
    tmp_path: Path, count: int, body: bytes, magic: bytes
) -> None:
    if count == 2:
        body = fmt.HINT_ITEM.pack(64, 9, 1, 0, 5, 3, 1, 0) + bytes(30)  # the first one takes more
    if magic == fmt.HINT_MAGIC:
        body = zlib.compress(body)
    _refused_hint(tmp_path, magic, count, body)


@pytest.mark.parametrize("how", ["not compressed", "cut short", "more behind it"])
def test_a_hint_that_is_not_what_its_head_says_is_none(tmp_path: Path, how: str) -> None:
    packed = zlib.compress(bytes(30))
    body = {"not compressed": bytes(30), "cut short": packed[:-5], "more behind it": packed + b"x"}
    _refused_hint(tmp_path, fmt.HINT_MAGIC, 1, body[how])


def _refused_hint(tmp_path: Path, magic: bytes, count: int, body: bytes) -> None:
    front = fmt.HINT_HEAD.pack(
        magic, fmt.FORMAT_VERSION, 0, 1, 0, 900, count, len(body), OWN_UUID, 0
    )[:-4]
    path = file_names.hint(tmp_path, 1)
    path.parent.mkdir()
    path.write_bytes(front + crc32c(body, crc32c(front)).to_bytes(4, "little") + body)
    assert hint.read(LOCAL, tmp_path, OWN_UUID, Link(1, 64, 900, 900, 0)) is None
    assert hint.lost_successor(LOCAL, tmp_path, OWN_UUID, 1) == 0
