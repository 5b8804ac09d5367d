"""Prevents payloads and files of the newest servers from being refused, or from being trusted.

No server that writes them was at hand: RDB version 81 of Valkey 9.2, and its envelope ``VCS``, are
built here after its published layout (its sources' page about the envelope; valkey#3531, #3798).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import xxhash
import zstandard

import logstore
from logstore.api.store import Store
from logstore.errors import InvalidPayloadError, UsageError
from logstore.rdb import codes, envelope, file_reader
from logstore.rdb.codes import crc64
from logstore.rdb.file_reader import FileReader
from logstore.transfer import Report, export_file, import_file
from tests.store.conftest import OpenStore

# XADD s 1-1 a b; XGROUP CREATE s g 0: nodes, what is counted, one group.
VALUE = (
    b"\x01"  # one node: its key, its listpack
    b"\x10" + (1).to_bytes(8, "big") + (1).to_bytes(8, "big") +
    b"\x1d" + bytes.fromhex("1d0000000a00 0101 0001 0101 816102 0001 0201 0001 0001 816202 0401 ff")
    + b"\x01\x01\x01"  # length, last ID
    b"\x01\x01\x00\x00\x01"  # first ID, largest deleted ID, entries added
    b"\x01\x01g\x00\x00\x00\x00\x00"  # one group at 0-0, nothing read, pending, no consumer
)  # fmt: skip
FILE = b"VALKEY081\xfa\x0avalkey-ver\x059.2.0\xfe\x00\xfb\x01\x00\x15\x01s" + VALUE + b"\xff"


def payload(version: int, kind: int = 21) -> bytes:
    """As DUMP writes it."""
    body = bytes((kind,)) + VALUE + version.to_bytes(2, "little")
    return body + crc64(body).to_bytes(8, "little")


def told(store: Store[bytes], name: str) -> tuple[list[Any], list[bytes]]:
    stream = store.stream(name)
    return ([(entry.id, dict(entry)) for entry in stream.range()],
            [group.name for group in stream.groups()])  # fmt: skip


HELD: tuple[list[Any], list[bytes]] = ([((1, 1), {b"a": b"b"})], [b"g"])


# -- versions -------------------------------------------------------------------------------------
@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was logged of versions, that nobody warned of before."""
    codes.warn_of.cache_clear()
    caplog.set_level(logging.WARNING, "logstore.rdb")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_payload_of_valkey_9_2_is_known(
    store: Store[bytes], warned: Callable[[], list[str]]
) -> None:
    """RDB version 81 was refused, so that nothing could be taken over from it."""
    store.restore("s", payload(81))
    assert told(store, "s") == HELD
    assert warned() == []


@pytest.mark.parametrize(("version", "known"), [
    (16, "15 of Redis 8.10"), (79, "15 of Redis 8.10"), (82, "81 of Valkey 9.2"),
    (65535, "81 of Valkey 9.2"),
])  # fmt: skip
def test_a_newer_version_is_taken_with_a_warning(
    store: Store[bytes], warned: Callable[[], list[str]], version: int, known: str
) -> None:
    """The type says what the bytes are; a version that is not known yet was refused."""
    for name in ("s", "t"):
        store.restore(name, payload(version))
        assert told(store, name) == HELD
    (text,) = warned()
    assert text.startswith(f"RDB version {version} is newer than {known}")


def test_a_type_that_is_not_known_is_refused_in_any_version(store: Store[bytes]) -> None:
    for version, kind in ((16, 28), (82, 26), (81, 27), (81, 23)):
        with pytest.raises(InvalidPayloadError, match=f"type {kind}"):
            store.restore("s", payload(version, kind))


@pytest.mark.parametrize("head", [b"VALKEY081", b"VALKEY082", b"REDIS0016"])
def test_a_file_of_a_newer_version_is_imported(
    store: Store[bytes], tmp_path: Path, head: bytes
) -> None:
    path = tmp_path / "dump.rdb"
    data = head + FILE[9:]
    path.write_bytes(data + crc64(data).to_bytes(8, "little"))
    report = import_file(store, path)
    assert told(store, "s") == HELD
    newer = [note for note in report.notes if "newer than" in note]
    assert len(newer) == (head != b"VALKEY081")


# -- envelopes ------------------------------------------------------------------------------------
def xxh(data: bytes) -> bytes:
    return xxhash.xxh32(data).intdigest().to_bytes(4, "little")


def lz4_by_hand(data: bytes) -> bytes:
    """A frame as its format says, of one block that is not compressed: linked blocks of 64 KiB with
    checksums, as Valkey writes them with rdbchecksum yes."""
    flags = bytes((0b01_0_1_0_1_00, 0x40))
    block = (len(data) | 1 << 31).to_bytes(4, "little") + data + xxh(data)
    return b"\x04\x22\x4d\x18" + flags + xxh(flags)[1:2] + block + bytes(4) + xxh(data)


def lz4_frame(data: bytes, *, checksums: bool = True) -> bytes:
    made: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True,
        content_checksum=checksums, block_checksum=checksums, store_size=False,
    )  # fmt: skip
    return made


def zstd_frame(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return stream.compress(data) + stream.flush()


DESCRIPTOR = 7 + 4  # of a frame, behind the envelope's head and the frame's magic number
LZ4_HEAD, ZSTD_HEAD = b"VCS\x01\x01\x00\x01", b"VCS\x01\x02\x00\x01"
PLAIN = FILE + bytes(8)  # in an envelope the checksum of the file is 0
ENVELOPES = {
    "LZ4 by hand": LZ4_HEAD + lz4_by_hand(PLAIN),
    "LZ4": LZ4_HEAD + lz4_frame(PLAIN),
    "LZ4 without checksums": LZ4_HEAD + lz4_frame(PLAIN, checksums=False),
    "LZ4 with the file's own checksum":
        LZ4_HEAD + lz4_frame(FILE + crc64(FILE).to_bytes(8, "little")),
    "Zstandard": ZSTD_HEAD + zstd_frame(PLAIN),
}  # fmt: skip
# The same, in bytes that nothing here makes: LZ4 as above, by hand; Zstandard by its own command.
GOLDEN_LZ4 = bytes.fromhex(
    "5643530101000104224d185440ae6c00008056414c4b4559303831fa0a76616c6b65792d76657205"
    "392e322e30fe00fb01001501730110000000000000000100000000000000011d1d0000000a000101"
    "0001010181610200010201000100018162020401ff01010101010000010101670000000000ff0000"
    "000000000000b49b6b0300000000b49b6b03"
)
GOLDEN_ZSTD = bytes.fromhex(
    "5643530102000128b52ffd0458cd02008245131eb0a9352026499224394e81bb600bcfab6421295d"
    "10499cb97ca5d94ca614aaaa8d8f5f6f668ee3ed7ef6b0f7fb2235a5ddc093056ef1b254411d0092"
    "e60694068930872a04c36a24140b04230410006110dec01e9e5fb09422"
)


def imported(store: Store[bytes], path: Path, data: bytes) -> Report:
    path.write_bytes(data)
    return import_file(store, path)


@pytest.mark.parametrize("name", [*ENVELOPES, "golden LZ4", "golden Zstandard"])
def test_a_file_in_an_envelope_is_imported(store: Store[bytes], tmp_path: Path, name: str) -> None:
    """Files that Valkey 9.2 writes with rdbcompression lz4 were no RDB files here."""
    golden = {"golden LZ4": GOLDEN_LZ4, "golden Zstandard": GOLDEN_ZSTD}
    report = imported(store, tmp_path / "dump.rdb", (ENVELOPES | golden)[name])
    assert told(store, "s") == HELD
    assert (report.streams, report.notes) == (1, [])
    assert file_reader.verify(pieces((ENVELOPES | golden)[name], 3)) == 1


def pieces(data: bytes, size: int) -> Callable[[int], bytes]:
    """What gives data so many bytes at a time."""
    parts = iter([data[at : at + size] for at in range(0, len(data), size)])
    return lambda _size: next(parts, b"")


def test_a_large_file_goes_through_in_pieces(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    stream = store.stream("s")
    stream.add_many({"n": at, "text": f"{at * 7919 % 1013:04}" * 200} for at in range(4000))
    export_file(store, tmp_path / "plain.rdb")
    data = (tmp_path / "plain.rdb").read_bytes()
    assert len(data) > 1 << 21
    for head, pack in ((LZ4_HEAD, lz4_frame), (ZSTD_HEAD, zstd_frame)):
        with logstore.open(tmp_path / f"to{head[4]}") as to:
            imported(to, tmp_path / f"{head[4]}.rdb", head + pack(data))
            assert list(to.stream("s").range()) == list(stream.range())


@pytest.mark.parametrize("name", ["LZ4", "LZ4 by hand", "Zstandard"])
def test_a_damaged_envelope_imports_nothing(store: Store[bytes], tmp_path: Path, name: str) -> None:
    whole = ENVELOPES[name]
    for size in range(3, len(whole)):
        with pytest.raises(InvalidPayloadError):
            imported(store, tmp_path / "cut.rdb", whole[:size])
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 0x20
        try:
            imported(store, tmp_path / "changed.rdb", bytes(changed))
        except InvalidPayloadError:
            continue
        assert at in (
            DESCRIPTOR,
            DESCRIPTOR + 1,
        )  # a hint of sizes in it may change nothing of what is inside
        assert name == "Zstandard"
        assert told(store, "s") == HELD
        store.drop("s")
    with pytest.raises(InvalidPayloadError, match="behind its end"):
        imported(store, tmp_path / "more.rdb", whole + b"x")
    assert store.streams() == []


@pytest.mark.parametrize("head", [
    b"VCS\x02\x01\x00\x01", b"VCS\x01\x00\x00\x01", b"VCS\x01\x03\x00\x01", b"VCS\x01\x01\x01\x01",
    b"VCS\x01\x01\x00\x02", b"VCS\x01\x01\x00\x00",
])  # fmt: skip
def test_an_envelope_that_is_not_known_is_refused(
    store: Store[bytes], tmp_path: Path, head: bytes
) -> None:
    with pytest.raises(InvalidPayloadError, match=f"the head {head.hex(' ')} is not known"):
        imported(store, tmp_path / "dump.rdb", head + lz4_frame(PLAIN))


@pytest.mark.parametrize(("head", "pack"), [(LZ4_HEAD, lz4_frame), (ZSTD_HEAD, zstd_frame)])
def test_a_bomb_is_refused_before_it_takes_memory(
    monkeypatch: pytest.MonkeyPatch, head: bytes, pack: Callable[[bytes], bytes]
) -> None:
    """Few bytes may say that they are very many."""
    monkeypatch.setattr(envelope, "FREE_BYTES", 1 << 20)
    monkeypatch.setattr(envelope, "RATIO_MAX", 20)
    fill = envelope.opened(pieces(head + pack(bytes(100 << 20)), 1 << 16))
    sizes: list[int] = []
    with pytest.raises(InvalidPayloadError, match="over 20 times as many"):
        sizes.extend(iter(lambda: len(fill(0)), 0))
    assert max(sizes, default=0) <= 16 << 20
    assert sum(sizes) < 40 << 20


@pytest.mark.parametrize(("name", "module", "package"), [
    ("LZ4", "lz4.frame", "lz4"), ("Zstandard", "zstandard", "zstandard"),
])  # fmt: skip
def test_a_package_that_is_missing_is_named(
    store: Store[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    name: str, module: str, package: str,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"{package}.* is not installed: pip install .*\[rdb\]"):
        imported(store, tmp_path / "dump.rdb", ENVELOPES[name])
    assert store.streams() == []


def test_a_reader_tells_what_is_newer() -> None:
    assert FileReader(pieces(ENVELOPES["LZ4"], 50)).newer is None
    found = FileReader(pieces(b"VALKEY090" + FILE[9:] + bytes(8), 50))
    assert found.newer is not None
    assert found.newer.startswith("RDB version 90 is newer than 81 of Valkey 9.2")
