"""Prevents nodes that are split elsewhere, or entered again otherwise, than the servers do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logstore.api.store import Store
from logstore.engine.snapshots import snapshot
from logstore.engine.txn import nodes
from logstore.index.keys import OpenNode, StreamRecord
from tests.peers.dump import parse_dump
from tests.peers.servers import Peer
from tests.store.conftest import OpenStore
from tests.store.mirror import Mirror
from tests.store.whole_store import dump_payload, everything, stream_nodes
from tests.support.inside import delete_index, engine_of, roll


def open_node(store: Store[Any], name: bytes = b"s") -> tuple[StreamRecord, OpenNode | None]:
    """A stream's record and open node as the index has them."""

    def look(view: snapshot.Snapshot) -> tuple[StreamRecord, OpenNode | None]:
        record = view.record(name)
        assert record is not None
        return record, view.open_node(record.number) if record.open_version else None

    return snapshot.read(engine_of(store), look)


def test_without_limits_all_is_one_large_open_node(open_store: OpenStore) -> None:
    store = open_store(node_max_bytes=0, node_max_entries=0)
    stream = store.stream("s")
    for ms in range(1, 400):
        stream.add({"value": b"%07d" % ms * 100, "n": ms}, id=(ms, 0))
    record, node = open_node(store)
    assert (record.nodes, stream.info().radix_tree_keys) == (0, 1)
    assert node is not None
    assert node.runs
    assert node.lp is not None
    assert len(node.lp) < 100  # only the skeleton: it is not written again at each add
    assert len(node.pack()) < 20 * len(node.runs) + 200
    stream.delete("3", "399", "200")
    stream.add_many((((400 + n, 0), {"value": "x", "n": n}) for n in range(300)), batch=100)
    assert stream.delete_range("500", "600") == 101
    assert stream.trim(min_id="50", approximate=False) == 48
    before = everything(store)
    assert len(before[b"s"][1]) == 699 - 3 - 101 - 48
    assert [entry.id.ms for entry in stream.range("195", "205")] == [
        *range(195, 200),
        *range(201, 206),
    ]
    roll(store)
    stream.add({"value": "after", "n": 1}, id="800-0")
    before = everything(store)
    store.close()
    delete_index(store.path)
    store = open_store()
    assert everything(store) == before
    assert store.stream("s").add({"value": "y", "n": 2}, id="900-0") == (900, 0)
    assert store.stream("s").info().radix_tree_keys == 1


def test_an_entry_that_fills_a_node_never_enters_the_index(open_store: OpenStore) -> None:
    store = open_store(node_max_bytes=200)
    stream = store.stream("s")
    stream.add({"a": "small"}, id="1-0")
    stream.add({"a": b"x" * 300}, id="2-0")
    assert open_node(store)[1] is None
    stream.add({"a": "small"}, id="3-0")
    node = open_node(store)[1]
    assert node is not None
    stream.add_many([("4-0", {"a": b"x" * 300}), ("5-0", {"a": b"x" * 300})])
    assert open_node(store)[1] is None
    assert stream.info().radix_tree_keys == 5
    everything(store)


def test_nodes_of_one_entry(open_store: OpenStore) -> None:
    store = open_store(node_max_entries=1)
    stream = store.stream("s")
    stream.add_many(((ms, 0), {"n": ms}) for ms in range(1, 6))
    stream.add({"n": 6}, id="6-0")
    assert open_node(store)[1] is None
    assert stream.info().radix_tree_keys == 6
    assert stream.delete("6-0", "1-0") == 2
    assert stream.info().radix_tree_keys == 4
    everything(store)


@pytest.mark.peers
@pytest.mark.parametrize("inline", [65536, 250])
@pytest.mark.parametrize("most_bytes", [1300, 1301, 1302, 1321, 1322, 1323, 1324])
@pytest.mark.parametrize("removed", [False, True])
def test_counters_of_two_bytes_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: int, most_bytes: int, removed: bool,
    redis_peer: Peer, valkey_peer: Peer,
) -> None:  # fmt: skip
    """From 128 on a counter takes two bytes: one entry more or less fits into the node."""
    monkeypatch.setattr(nodes, "OPEN_INLINE_MAX_BYTES", inline)
    mirror = Mirror(tmp_path / "store", (most_bytes, 0))
    stream = mirror.store.stream("s")
    rows: list[list[bytes]] = [[b"f", b"1"]] * 150
    mirror.do_many(0, rows[:120], [(0, 0)] * 120, 50, {})
    if removed:
        mirror.do_delete(0, [("known", 5), ("known", 9)])
    for _ in range(40):
        mirror.do_add(0, ("step", (0, 0)), rows[0], {}, True)
    assert stream.info().radix_tree_keys >= 1
    mirror.do_nodes()
    mirror.store.close()
    mirror.judge(redis_peer)
    mirror.judge(valkey_peer)


@pytest.mark.peers
def test_large_nodes_are_the_servers(open_store: OpenStore, peer: Peer) -> None:
    store = open_store(node_max_bytes=150_000, node_max_entries=0)
    peer.command("CONFIG", "SET", "stream-node-max-bytes", 150_000)
    peer.command("CONFIG", "SET", "stream-node-max-entries", 0)
    stream = store.stream("s")
    for ms in range(1, 250):
        flat = [b"value", b"%d" % ms * 600, b"n", b"%d" % ms]
        stream.add([(b"value", flat[1]), (b"n", flat[3])], id=(ms, 0))
        peer.command("XADD", "s", f"{ms}-0", *flat)
        if ms % 50 == 0:
            assert stream.delete((ms - 10, 0)) == peer.command("XDEL", "s", f"{ms - 10}-0")
    assert stream_nodes(store, b"s") == parse_dump(peer.command("DUMP", "s"))[0]
    assert peer.command("RESTORE", "r", 0, dump_payload(store, b"s")) == b"OK"
    assert peer.command("XRANGE", "r", "-", "+") == peer.command("XRANGE", "s", "-", "+")


ROW = [b"f", b"v"]


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    """Nodes of up to five entries: 1-0 to 5-0, 6-0 to 10-0, 11-0 to 12-0."""
    made = Mirror(tmp_path / "store", (4096, 5))
    made.do_many(0, [ROW] * 12, [(1, 0)] * 12, 100, {})
    return made


def judge(mirror: Mirror, redis_peer: Peer, valkey_peer: Peer) -> None:
    """Both servers, also after the index was rebuilt."""
    mirror.do_nodes()
    mirror.do_reopen("roll, rebuild")
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    mirror.do_nodes()
    mirror.store.close()
    mirror.judge(redis_peer)
    mirror.judge(valkey_peer)


def keys(mirror: Mirror) -> list[int]:
    """The milliseconds of the nodes' master IDs."""
    return [int.from_bytes(key[:8], "big") for key, _ in stream_nodes(mirror.store, b"s")]


def delete(mirror: Mirror, *numbers: int) -> None:
    """Delete entries by their place."""
    mirror.do_delete(0, [("known", number - 1) for number in numbers])


@pytest.mark.peers
def test_into_a_full_node_nothing_goes(mirror: Mirror, redis_peer: Peer, valkey_peer: Peer) -> None:
    delete(mirror, 11, 12)
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror) == [1, 6, 13]
    judge(mirror, redis_peer, valkey_peer)


@pytest.mark.peers
def test_into_a_node_with_tombstones_they_count(
    mirror: Mirror, redis_peer: Peer, valkey_peer: Peer
) -> None:
    delete(mirror, 7, 8)
    delete(mirror, 11, 12)
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror) == [1, 6, 13]
    judge(mirror, redis_peer, valkey_peer)


@pytest.mark.peers
@pytest.mark.parametrize("bulk", [False, True])
def test_into_a_node_that_its_bytes_closed(
    tmp_path: Path, redis_peer: Peer, valkey_peer: Peer, bulk: bool
) -> None:
    """A large entry closed a node that has room for a small one."""
    mirror = Mirror(tmp_path / "store", (200, 0))
    for size in (5, 5, 300):
        mirror.do_add(0, ("step", (1, 0)), [b"f", b"v" * size], {}, True)
    delete(mirror, 1, 3)
    assert keys(mirror) == [1]
    if bulk:
        mirror.do_many(0, [ROW] * 30, [(1, 0)] * 30, 100, {})
    else:
        mirror.do_add(0, ("step", (1, 0)), [b"f", b"v" * 250], {}, True)
        mirror.do_nodes()
        delete(mirror, 4)
        for _ in range(3):
            mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror)[0] == 1
    assert len(mirror.store.stream("s")) == (31 if bulk else 4)
    judge(mirror, redis_peer, valkey_peer)


@pytest.mark.peers
def test_two_nodes_back(tmp_path: Path, redis_peer: Peer, valkey_peer: Peer) -> None:
    mirror = Mirror(tmp_path / "store", (200, 0))
    for size in (5, 300, 300, 300):
        mirror.do_add(0, ("step", (1, 0)), [b"f", b"v" * size], {}, True)
    delete(mirror, 2, 3, 4)
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror) == [1]
    judge(mirror, redis_peer, valkey_peer)


@pytest.mark.peers
def test_when_all_nodes_are_gone(mirror: Mirror, redis_peer: Peer, valkey_peer: Peer) -> None:
    mirror.do_trim(0, {"max_entries": 0})
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror) == [13]
    judge(mirror, redis_peer, valkey_peer)


@pytest.mark.peers
def test_a_zombie_takes_entries(mirror: Mirror, redis_peer: Peer, valkey_peer: Peer) -> None:
    """Its last entry is a tombstone at or above the trim's ID, so the trim leaves the node."""
    delete(mirror, 12)
    mirror.do_trim(0, {"min_id": ("known", 11)})
    assert (len(mirror.store.stream("s")), keys(mirror)) == (0, [11])
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror) == [11]
    judge(mirror, redis_peer, valkey_peer)


def lowered(mirror: Mirror, last: str) -> None:
    """A zombie, and a last ID moved below its master ID."""
    delete(mirror, 12)
    mirror.do_trim(0, {"min_id": ("known", 11)})
    mirror.do_set_id(0, ("raw", "20-0"), None, None)
    mirror.store.stream("s").set_id("20-0", max_deleted_id="1-0")
    mirror.expect(("XSETID", b"s", "20-0", "MAXDELETEDID", "1-0"), b"OK")
    mirror.do_set_id(0, ("raw", last), None, None)


@pytest.mark.peers
@pytest.mark.parametrize("last", ["10-0", "3-0"])
@pytest.mark.parametrize("bulk", [False, True])
def test_a_zombie_above_the_next_id_is_dropped(mirror: Mirror, last: str, bulk: bool) -> None:
    """Servers add to it, and behind it, entries below its master ID: a deliberate difference."""
    lowered(mirror, last)
    stream = mirror.store.stream("s")
    ms = int(last[:-2])
    rows = [((ms, seq), {"f": seq}) for seq in range(1, 10)]
    if bulk:
        stream.add_many(rows)
    else:
        for id, fields in rows:
            stream.add(fields, id=id)
    for _ in range(2):
        assert [entry.id for entry in stream] == [id for id, _ in rows]
        assert [entry.id.seq for entry in stream.range((ms, 4), (ms, 6), reverse=True)] == [6, 5, 4]
        assert all(id in stream for id, _ in rows)
        assert len(keys(mirror)) == 2
        everything(mirror.store)
        mirror.do_reopen("roll, rebuild")
        stream = mirror.store.stream("s")
    assert stream.delete((ms, 2), (ms, 7)) == 2
    mirror.store.close()


@pytest.mark.peers
def test_a_node_that_ends_above_the_next_one(mirror: Mirror) -> None:
    """Its last entries are tombstones above a lowered last ID; the node after it begins lower."""
    delete(mirror, 4, 5)
    mirror.store.stream("s").trim(max_entries=0, approximate=False)
    mirror.store.stream("s").set_id("90-0")
    mirror.store.stream("s").add_many([((90, seq), {"f": seq}) for seq in range(1, 6)])
    stream = mirror.store.stream("s")
    stream.delete((90, 4), (90, 5))
    stream.set_id("90-5", max_deleted_id="1-0")
    stream.set_id("90-3")
    stream.add_many([((90, 4), {"f": "new"}), ((90, 5), {"f": "newer"})])
    assert [entry.id.seq for entry in stream] == [1, 2, 3, 4, 5]
    assert stream.delete((90, 2), (90, 4), (90, 5)) == 3
    everything(mirror.store)
    mirror.store.close()
