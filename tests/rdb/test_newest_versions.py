"""Prevents files and types of the newest servers from being refused, or from being trusted."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import lz4.frame
import pytest
import redis
import xxhash
import zstandard

import logstore
from logstore.api.store import Store
from logstore.engine.dump import export
from logstore.engine.dump.payloads import Peer
from logstore.errors import InvalidPayloadError, OptionError, UsageError
from logstore.ids import StreamID
from logstore.options import Profile
from logstore.rdb import codes, dump_payload, file_reader
from logstore.rdb.codes import crc64
from logstore.rdb.file_reader import FileReader
from logstore.rdb.rdb_writer import length, string
from logstore.rdb.value import Idempotence
from logstore.transfer import Report, Server, export_file, export_server, import_file
from tests.rdb.bodies import body, signed
from tests.store.conftest import OpenStore
from tests.support.inside import FixedClock, delete_index
from tests.wire.served import serving

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


def entries_and_groups(store: Store[bytes], name: str) -> tuple[list[Any], list[bytes]]:
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
    assert entries_and_groups(store, "s") == HELD
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
        assert entries_and_groups(store, name) == HELD
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
    assert entries_and_groups(store, "s") == HELD
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
    assert entries_and_groups(store, "s") == HELD
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
        assert entries_and_groups(store, "s") == HELD
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
    monkeypatch.setattr(file_reader, "FREE_BYTES", 1 << 20)
    monkeypatch.setattr(file_reader, "RATIO_MAX", 20)
    fill = file_reader.unwrapped(pieces(head + pack(bytes(100 << 20)), 1 << 16))
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


PLAIN_TYPES = Idempotence(
    60, 10, [(b"p", [(b"one", StreamID(5, 0)), (b"two", StreamID(6, 0))])], 7, 2
)


def stream(store: Store[bytes]) -> bytes:
    """A stream's value of type 21 with a group, four entries pending with alice and bob."""
    made = store.stream("from")
    for at in range(1, 9):
        made.add({"f": at}, id=(at, 0))
    group = made.group("g", start="0")
    group.read("alice", count=2)
    group.read("bob", count=2)
    return body(made.dump())


def tail(found: Idempotence) -> bytes:
    """What stands behind the groups from type 26 on."""
    parts = [length(found.duration_s), length(found.max_ids), length(len(found.producers))]
    for name, items in found.producers:
        parts += [string(name), length(len(items))]
        for own, id in items:
            parts += [string(own), length(id.ms), length(id.seq)]
    return b"".join([*parts, length(found.added), length(found.duplicates)])


def with_nacked(value: bytes, *given_back: bytes, line: tuple[bytes, ...] | None = None) -> bytes:
    """Type 27 of a value of type 21 with one group: entries of alice's are given back."""
    alice = value.rindex(b"\x05alice") + 6 + 16
    count, of_alice = value[alice], alice + 1
    assert count == 2
    rest = value[of_alice + 32 :]
    kept = [value[at : at + 16] for at in (of_alice, of_alice + 16)]
    kept = [id for id in kept if id not in given_back]
    nacked = given_back if line is None else line
    return b"".join([
        b"\x1b", value[1:alice], length(len(kept)), *kept, rest, length(len(nacked)), *nacked,
        tail(Idempotence(100, 100, [], 0, 0)),
    ])  # fmt: skip


def id_of(at: int) -> bytes:
    """An ID, packed."""
    return StreamID(at, 0).packed()


def test_idempotent_ids_round_trip(open_store: OpenStore, clock: FixedClock) -> None:
    clock.ms = 10_000
    store = open_store()
    made = store.restore("s", signed(b"\x1a" + stream(store)[1:] + tail(PLAIN_TYPES), 13))
    for _ in range(2):
        made = store.stream("s")
        assert made.settings.idempotent_duration_s == 60
        assert made.settings.idempotent_max_ids == 10
        assert made.add({"f": 1}, producer="p", idempotent_id="two") == (6, 0)
        assert len(made) == 8
        found = export.read(store._engine(), b"s").info.idempotence
        assert found is not None
        assert found.producers == PLAIN_TYPES.producers
        assert found.added == 7
        store.checkpoint()
        store.close()
        delete_index(store.path)
        store = open_store()
    assert store.stream("s").add({"f": 1}, producer="q", idempotent_id="two") == (10_000, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"duration_s": 0}, {"duration_s": 86_401}, {"max_ids": 0}, {"max_ids": 10_001},
        {"added": 1 << 63}, {"duplicates": 1 << 64 - 1}, {"producers": PLAIN_TYPES.producers * 2},
        {"producers": [(b"", [])]}, {"producers": [(b"p", [(b"", StreamID(1, 0))])]},
        {"producers": [(b"p", [(b"a", StreamID(1, 0)), (b"b", StreamID(1, 0))])]},
        {"producers": [(b"p", [(b"a", StreamID(1, 0)), (b"a", StreamID(2, 0))])]},
        {"producers": [(b"p", [(b"a", StreamID(9, 0))])]},
    ],
)  # fmt: skip
def test_forged_idempotence_is_refused(store: Store[bytes], change: dict[str, Any]) -> None:
    forged = Idempotence(*(
        change.get(name, getattr(PLAIN_TYPES, name)) for name in PLAIN_TYPES.__slots__
    ))  # fmt: skip
    value = stream(store)
    with pytest.raises(InvalidPayloadError):
        store.restore("s", signed(b"\x1a" + value[1:] + tail(forged), 13))
    assert store.streams() == [b"from"]


def test_nacked_entries_keep_their_order(store: Store[bytes]) -> None:
    value = stream(store)
    made = store.restore("s", signed(with_nacked(value, id_of(2), id_of(1)), 14))
    group = made.group("g")
    assert group.pending().consumers == {b"bob": 2}
    assert [each.id.ms for each in group.autoclaim("eve", min_idle=0, count=2).entries] == [2, 1]
    assert store.restore("t", signed(b"\x15" + value[1:])).group("g").pending().count == 4


@pytest.mark.parametrize("line", [(1,), (1, 2, 2), (2, 2), (1, 3), (1, 9), ()])
def test_a_line_that_does_not_fit_is_refused(store: Store[bytes], line: tuple[int, ...]) -> None:
    ids = tuple(map(id_of, line))
    with pytest.raises(InvalidPayloadError):
        dump_payload.decode(signed(with_nacked(stream(store), id_of(1), id_of(2), line=ids), 14))


def test_cut_off_at_every_byte(store: Store[bytes]) -> None:
    value = stream(store)
    for whole in (with_nacked(value, id_of(1)), b"\x1a" + value[1:] + tail(PLAIN_TYPES)):
        dump_payload.decode(signed(whole, 14))
        for size in range(1, len(whole)):
            with pytest.raises(InvalidPayloadError):
                dump_payload.decode(signed(whole[:size], 14))


def test_valkey_has_no_such_types(store: Store[bytes]) -> None:
    value = with_nacked(stream(store), id_of(1))
    with pytest.raises(InvalidPayloadError, match="type 27"):
        dump_payload.decode(signed(value, codes.VALKEY_VERSION))


def test_very_many_idempotent_ids_take_many_commits(store: Store[bytes]) -> None:
    """And are remembered as if they had come in one."""
    value = stream(store)
    plain = export.read(store._engine(), b"from")
    many = Idempotence(
        60, 10_000,
        [(b"p%d" % each, [(b"%d" % at, StreamID(0, 6000 * each + at + 1)) for at in range(6000)])
         for each in range(2)], 12_000, 3,
    )  # fmt: skip
    payload = signed(b"\x1a" + value[1:] + tail(many), 13)
    assert dump_payload.decode(payload).info.many
    store.restore("new", payload)
    found = export.read(store._engine(), b"new")
    assert found.info.idempotence == many
    assert found.nodes == plain.nodes
    assert b"new" in store.streams()
    assert len(store.streams()) == 2


# -- written --------------------------------------------------------------------------------------
NOTHING = Idempotence(100, 100, [], 0, 0)


def shop(store: Store[bytes]) -> bytes:
    """``s`` with what only the newer types hold: entries that were given back, idempotent IDs. Its
    value of type 27, built by hand after the documentation."""
    nodes, name, rest = stream(store).partition(b"\x01\x01g")  # one group
    for id in (id_of(1), id_of(2)):  # delivered at time 0, once, as XNACK leaves it
        rest = re.sub(re.escape(id) + b".{8}\x01", id + bytes(8) + b"\x01", rest, flags=re.DOTALL)
    value = with_nacked(nodes + name + rest, id_of(2), id_of(1))
    value = value[: -len(tail(NOTHING))] + tail(PLAIN_TYPES)
    store.restore("s", signed(value, 14))
    return value


def lost(store: Store[bytes], name: str) -> tuple[Any, list[int], bool]:
    """What types before them lose: idempotent IDs, in which order what was given back stands, and
    that nobody has it."""
    found = store.stream(name)
    idempotent = export.read(store._engine(), name.encode()).info.idempotence
    group = found.group("g")
    line = [entry.id.ms for entry in group.autoclaim("eve", min_idle=0, count=2).entries]
    return idempotent, line, b"" in {each.name for each in group.consumers()}


def test_types_26_and_27_are_written_as_documented(store: Store[bytes]) -> None:
    """Types 26 and 27 were read and never written, so that an export lost what they hold."""
    wanted = shop(store)
    made = store.stream("s")
    assert made.dump(peer="redis-8.8") == signed(wanted, 14)
    for peer, kind, version in (("redis-8.6", 26, 13), ("redis", 21, 11), ("valkey", 21, 11),
                                (None, 21, 11)):  # fmt: skip
        given: Any = peer
        payload = made.dump(peer=given)
        assert (payload[0], payload[-10:-8]) == (kind, version.to_bytes(2, "little"))
        assert payload.endswith(signed(payload[:-10], version)[-8:])
    store.restore("back", made.dump(peer="redis-8.8"))
    assert lost(store, "back") == (PLAIN_TYPES, [2, 1], False)
    store.restore("six", made.dump(peer="redis-8.6"))
    assert lost(store, "six") == (PLAIN_TYPES, [1, 2], True)


def test_a_type_is_no_newer_than_it_has_to_be(store: Store[bytes]) -> None:
    """So that as many servers as can take a payload."""
    value = stream(store)
    assert store.stream("from").dump(peer="redis-8.8") == signed(value, 11)
    store.restore("p", signed(b"\x1a" + value[1:] + tail(PLAIN_TYPES), 13))
    assert store.stream("p").dump(peer="redis-8.8") == signed(
        b"\x1a" + value[1:] + tail(PLAIN_TYPES), 13
    )
    store.restore("n", signed(with_nacked(value, id_of(1)), 14))
    assert store.stream("n").dump(peer="redis-8.6")[0] == 21
    with pytest.raises(OptionError, match=r"'redis-8\.6', 'redis-8\.8', 'valkey' or None"):
        store.stream("n").dump(peer="redis-9")  # type: ignore[arg-type]


def test_a_file_brings_back_what_a_newer_server_knows(store: Store[bytes], tmp_path: Path) -> None:
    wanted = shop(store)
    store.drop("from")
    for peer, head, found in (
        ("redis-8.8", b"REDIS0014", (PLAIN_TYPES, [2, 1], False)),
        ("redis-8.6", b"REDIS0013", (PLAIN_TYPES, [1, 2], True)),
        ("redis", b"REDIS0011", (None, [1, 2], True)),
    ):
        path, given = tmp_path / f"{peer}.rdb", cast("Peer", peer)
        export_file(store, path, peer=given)
        assert path.read_bytes().startswith(head)
        assert (b"\x1b\x01s" + wanted[1:] in path.read_bytes()) == (peer == "redis-8.8")
        with logstore.open(tmp_path / peer) as to:
            import_file(to, path)
            assert lost(to, "s") == found


@pytest.mark.parametrize(("profile", "kept"), [
    ("redis-8.10", (PLAIN_TYPES, [2, 1], False)), ("redis-8.2", (None, [1, 2], True)),
    ("valkey-9.2", (None, [1, 2], True)),
])  # fmt: skip
def test_a_server_gets_what_it_knows(
    store: Store[bytes], clock: FixedClock, tmp_path: Path, profile: Profile, kept: Any
) -> None:
    """By what its INFO tells; its DUMP has it, too."""
    shop(store)
    store.drop("from")
    with serving(tmp_path / "served", profile=profile, store={"clock": clock}) as served:
        with Server(f"redis://127.0.0.1:{served.port}/0") as server:
            export_server(store, server)
        with redis.Redis(port=served.port) as client:
            payload = client.dump("s")
            assert isinstance(payload, bytes)
            store.restore("there", payload)
            assert payload[0] == (27 if profile == "redis-8.10" else 21)
        assert lost(store, "there") == kept
        assert lost(served.service.store, "s") == kept


@pytest.mark.parametrize("knows", [True, False])
def test_a_large_stream_brings_it_by_commands(tmp_path: Path, knows: bool) -> None:
    """Where the server takes them; else the report says so."""
    profile: Profile = "redis-8.10" if knows else "redis-8.2"
    with (
        logstore.open(tmp_path / "here", encoding=None, background=False) as store,
        serving(tmp_path / "served", profile=profile) as served,
    ):
        stream = store.stream("t")
        ids = [stream.add({"n": 1}, producer=b"p", idempotent_id=own) for own in (b"1", b"2")]
        group = stream.group("g", start="0")
        assert len(group.read("c", count=2)) == 2
        assert group.nack(ids[0]) == 1
        with Server(f"redis://127.0.0.1:{served.port}/0") as server:
            report = export_server(store, server, dump_max_bytes=-1)
        there = served.service.store
        kept = export.read(there._engine(), b"t").info.idempotence
        group = there.stream("t").group("g")
        consumers = {each.name: each.pending for each in group.consumers()}
        assert len(list(group.pending_entries())) == 2
    assert consumers == ({b"c": 1} if knows else {b"c": 1, b"": 1})
    assert [kept.producers if kept else []] == (
        [[(b"p", [(b"1", ids[0]), (b"2", ids[1])])]] if knows else [[]]
    )
    assert any("idempotent IDs of b't' were not all carried" in note for note in report.notes) is (
        not knows
    )
