"""Prevents streams that come back from the store other than they went in, byte for byte."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.dump import export
from logstore.errors import OptionError
from logstore.ids import U64_MAX, ZERO_ID, StreamID
from logstore.rdb import codes, dump_payload
from logstore.rdb.rdb_reader import Reader
from logstore.rdb.stream_reader import info
from logstore.rdb.value import (
    GROUPS_AT_ONCE,
    ConsumerValue,
    GroupValue,
    PendingValue,
    PlainGroup,
    StreamInfoValue,
    StreamValue,
)
from logstore.recovery.check import check
from logstore.row_seal import digest
from tests.peers.dump import compressed_dump
from tests.peers.servers import Peer
from tests.rdb.bodies import body
from tests.rdb.workload import fill, full_info
from tests.store.conftest import OpenStore
from tests.support.inside import delete_index
from tests.tools.commands import invoke

SEEDS = range(40)


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_s_stream_comes_back_as_it_was(peer: Peer, store: Store[bytes], seed: int) -> None:
    fill(peer, "s", seed)
    payload = peer.command("DUMP", "s")
    back = store.restore("s", payload).dump()
    assert body(back) == body(payload)
    peer.command("RESTORE", "copy", 0, back)
    assert peer.command("DUMP", "copy") == payload
    assert full_info(peer, "copy") == full_info(peer, "s")


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS[:5])
def test_compressed_payloads_are_read(peer: Peer, store: Store[bytes], seed: int) -> None:
    fill(peer, "s", seed)
    plain = peer.command("DUMP", "s")
    packed = compressed_dump(peer, "s")
    assert len(packed) < len(plain)
    assert body(store.restore("s", packed).dump()) == body(plain)


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS[:8])
def test_both_go_on_alike(peer: Peer, store: Store[bytes], seed: int) -> None:
    """A node that only looks right would differ after the next add, delete or trim."""
    fill(peer, "s", seed)
    peer.command("CONFIG", "SET", "stream-node-max-entries", 5)  # as the store's
    stream = store.restore("s", peer.command("DUMP", "s"))
    try:
        top = stream.last_id.ms
        ids = [str(entry.id) for entry in stream.range()][::3]
        if ids:
            assert stream.delete(*ids) == peer.command("XDEL", "s", *ids)
        for at in range(1, 13):
            assert str(stream.add({"f": at}, id=(top + at, 0))).encode() == peer.command(
                "XADD", "s", f"{top + at}-0", "f", at
            )
        left = len(stream) - 4
        gone = stream.trim(max_entries=left, approximate=False)
        assert gone == peer.command("XTRIM", "s", "MAXLEN", "=", left)
        assert body(stream.dump()) == body(peer.command("DUMP", "s"))
    finally:
        peer.command("CONFIG", "SET", "stream-node-max-entries", 100)


@pytest.mark.peers
def test_a_restored_stream_survives_reopening_a_checkpoint_and_a_lost_index(
    peer: Peer, open_store: OpenStore
) -> None:
    fill(peer, "s", 7)
    fill(peer, "t", 8)
    wanted = {name: body(peer.command("DUMP", name)) for name in "st"}
    store = open_store()
    store.restore("s", peer.command("DUMP", "s"))
    store.checkpoint()
    store.restore("t", peer.command("DUMP", "s"))
    store.restore("t", peer.command("DUMP", "t"), replace=True)
    store.close()
    for _ in range(2):
        store = open_store()
        assert {name: body(store.stream(name).dump()) for name in "st"} == wanted
        store.close()
        delete_index(store.path)


@pytest.mark.peers
@pytest.mark.parametrize("kind", [codes.LISTPACKS, codes.LISTPACKS_2])
def test_older_types_are_read_as_servers_read_them(
    peer: Peer, store: Store[bytes], kind: int
) -> None:
    for seed in SEEDS[:6]:
        fill(peer, f"s{seed}", seed)
        old = dump_payload.encode(dump_payload.decode(peer.command("DUMP", f"s{seed}")), kind)
        peer.command("RESTORE", f"copy{seed}", 0, old)
        ours = store.restore(f"s{seed}", old).dump()
        assert body(ours) == body(peer.command("DUMP", f"copy{seed}"))


@pytest.mark.peers
def test_nacked_entries_go_to_a_consumer_without_a_name(peer: Peer, store: Store[bytes]) -> None:
    stream = store.stream("s")
    for _ in range(3):
        stream.add({"a": 1})
    group = stream.group("g", start="0")
    for each in group.read("alice")[:2]:
        each.nack()
    found = export.read(store._engine(), b"s")
    assert len(found.info.groups[0].nacked) == 2
    peer.command("RESTORE", "s", 0, stream.dump())
    ids = [str(entry.id).encode() for entry in stream.range()]
    assert peer.command("XPENDING", "s", "g")[3] == [[b"", b"2"], [b"alice", b"1"]]
    claimed = peer.command("XAUTOCLAIM", "s", "g", "bob", 1000, "0", "JUSTID")
    assert claimed[1][:2] == ids[:2]


@pytest.mark.peers
def test_the_checksum_is_that_of_the_servers() -> None:
    assert codes.crc64(b"123456789") == 0xE9C6D914C4B8D9CA
    assert codes.crc64(b"6789", codes.crc64(b"12345")) == 0xE9C6D914C4B8D9CA


@pytest.mark.peers
@pytest.mark.parametrize("size", [16377, 16378, 16379, 2097146])
def test_a_value_of_the_length_that_servers_dispute(
    redis_peer: Peer, valkey_peer: Peer, store: Store[bytes], size: int
) -> None:
    for peer in (redis_peer, valkey_peer):
        peer.command("XADD", "s", "1-1", "a", "b" * size)
        peer.command("XADD", "s", "1-2", "a", "c" * size, "d", "e")
        peer.command("XDEL", "s", "1-1")
    wanted = {"redis": redis_peer.command("DUMP", "s"), "valkey": valkey_peer.command("DUMP", "s")}
    for payload in wanted.values():
        stream = store.restore("s", payload, replace=True)
        assert body(stream.dump()) == body(payload)
        for other, peer in (("redis", redis_peer), ("valkey", valkey_peer)):
            given = stream.dump(peer=other)
            assert body(given) == body(wanted[other])
            peer.command("RESTORE", "copy", 0, given, "REPLACE")
    assert (len(set(map(body, wanted.values()))) == 2) == (size in {16378, 2097146})


@pytest.mark.peers
def test_another_peer_is_refused(store: Store[bytes]) -> None:
    store.stream("s").add({"a": 1})
    with pytest.raises(OptionError, match="peer"):
        store.stream("s").dump(peer="sqlite")  # type: ignore[arg-type]


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(6))
def test_a_stream_of_ours_is_the_same_on_a_server(
    peer: Peer, open_store: OpenStore, seed: int
) -> None:
    """Compacted, with sealed nodes that have tombstones, entries given back, and nodes reopened."""
    store = open_store(node_max_entries=(1, 5, 100)[seed % 3])
    rng = random.Random(seed)
    stream = store.stream("s")
    for round in range(6):
        stream.add_many({"f": at, "v": "x" * rng.randrange(90)} for at in range(rng.randrange(90)))
        stream.group(f"g{round}", start="0" if round % 2 else "$")
        for each in stream.groups():
            for delivery in stream.group(each.name).read("alice", count=rng.randrange(1, 30)):
                rng.choice((delivery.ack, delivery.nack, lambda: None, lambda: None))()
        ids = [entry.id for entry in stream.range()]
        gone = rng.sample(ids, len(ids) // rng.randrange(2, 6))
        if gone:
            stream.delete(*gone)
        if rng.random() < 0.4:
            stream.trim(max_entries=len(stream) * 2 // 3, approximate=rng.random() < 0.5)
        if rng.random() < 0.4:
            store.compact(threshold=0.3)
        payload = stream.dump()
        peer.command("RESTORE", "s", 0, payload, "REPLACE")
        assert body(peer.command("DUMP", "s")) == body(payload)
        info = dict(zip(*[iter(peer.command("XINFO", "STREAM", "s"))] * 2, strict=True))
        assert info[b"length"] == len(stream)
        assert info[b"radix-tree-keys"] == stream.info().radix_tree_keys
        assert [(entry.id, entry.pairs) for entry in stream.range()] == [
            (StreamID(*map(int, id.split(b"-"))), list(zip(flat[::2], flat[1::2], strict=True)))
            for id, flat in peer.command("XRANGE", "s", "-", "+")
        ]


COUNTS = (0, 1, 63, 64, (1 << 14) - 1, 1 << 14, (1 << 31), (1 << 32) - 1, 1 << 40, U64_MAX)


def length(count: int) -> bytes:
    """As servers write it, in as few bytes as it takes."""
    if count < 1 << 6:
        return bytes([count])
    if count < 1 << 14:
        return bytes([0x40 | count >> 8, count & 0xFF])
    if count < 1 << 32:
        return b"\x80" + count.to_bytes(4, "big")
    return b"\x81" + count.to_bytes(8, "big")


def names() -> list[bytes]:
    """Strings of every length that is short, some that are not, and numbers, as they are packed."""
    plain = [length(size) + bytes([size % 251]) * size for size in (*range(70), 300, 20_000)]
    numbers = [
        bytes([0xC0 + kind]) + value.to_bytes(1 << kind, "little", signed=True)
        for kind in range(3)
        for value in (2 + kind, -3 - kind, 127 - kind, -100 - kind)
    ]
    return plain + numbers + [b"\x06%06d" % at for at in range(GROUPS_AT_ONCE)]


def group(rng: random.Random, name: bytes, kind: int, at: int) -> bytes:
    """One of them, packed; every seventh one has consumers and an entry that is pending."""
    read = length(rng.choice(COUNTS)) if kind >= codes.LISTPACKS_2 else b""
    head = name + length(rng.choice(COUNTS)) + length(rng.choice(COUNTS)) + read
    nothing = b"\x00" if kind >= codes.LISTPACKS_5 else b""
    active = bytes(8) if kind >= codes.LISTPACKS_3 else b""
    if at % 7:
        return head + b"\x00\x00" + nothing
    id = bytes(15) + b"\x05"
    pending = b"\x01" + id + bytes(8) + b"\x02"
    consumers = b"\x02" + b"\x01c" + bytes(8) + active + b"\x01" + id
    return head + pending + consumers + b"\x01d" + bytes(8) + active + b"\x00" + nothing


@pytest.mark.parametrize("kind", codes.STREAMS)
def test_each_group_is_the_same_in_every_form(kind: int) -> None:
    """Lengths and names in all their encodings: those by one pattern are those byte by byte."""
    rng = random.Random(kind)
    packed = [group(rng, name, kind, at) for at, name in enumerate(names())]
    head = b"\x00\x05\x00" + (bytes(5) if kind >= codes.LISTPACKS_2 else b"")
    behind = b"\x01\x01" + bytes(3) if kind >= codes.LISTPACKS_4 else b""
    found = info(Reader(head + length(len(packed)) + b"".join(packed) + behind), kind, 0)
    assert found.packed is not None
    values = sorted(found.packed, key=lambda each: digest(each.name))
    assert len(values) == len(packed)
    plain = 0
    for value, fast in zip(values, found.packed.by_digest(), strict=True):
        if isinstance(fast, PlainGroup):
            plain += 1
            assert not value.consumers
            assert fast == (digest(value.name), value.name, *value.last, value.entries_read)
        else:
            assert fast == value
    assert plain > len(packed) // 2


def test_a_name_that_stands_twice_is_refused_among_many() -> None:
    groups = [GroupValue(b"%d" % at, ZERO_ID, 0) for at in range(GROUPS_AT_ONCE + 5)]
    groups[-1].name = groups[3].name
    payload = dump_payload.encode(
        StreamValue([], StreamInfoValue(0, StreamID(5, 0), ZERO_ID, ZERO_ID, 0, groups))
    )
    with pytest.raises(logstore.InvalidPayloadError, match="two groups have the same name"):
        dump_payload.decode(payload)


def test_restored_together_they_are_what_their_frames_say(tmp_path: Path) -> None:
    """The index has the rows that a rebuild from the log makes, and the payload comes back."""
    groups = []
    for at in range(4 * GROUPS_AT_ONCE):
        made = GroupValue(b"group-%d" % at, StreamID(at % 6, at % 3), at % 50 - 1)
        if at % 9 == 0:
            pending = PendingValue()
            pending.add(StreamID(5, 0).packed(), 1000 + at, 1 + at % 3, 1)
            made.consumers, made.pending = [ConsumerValue(b"c", 1000, 2000)], pending
        groups.append(made)
    groups.sort(key=lambda each: each.name)
    value = StreamValue([], StreamInfoValue(0, StreamID(5, 0), ZERO_ID, ZERO_ID, 9, groups))
    payload, path = dump_payload.encode(value), tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.restore(b"s", payload)
        assert store.stream(b"s").dump() == payload
        store.stream(b"s").group(b"group-1").set_id("3-0")  # frames behind find their group
        before = export.read(store._engine(), b"s").info
    assert not check(path).damage
    assert invoke("check", path).exit_code == 0
    for each in sorted((path / "index").rglob("*"), reverse=True):
        each.unlink() if each.is_file() else each.rmdir()
    with logstore.open(path, background=False) as store:
        assert export.read(store._engine(), b"s").info == before
