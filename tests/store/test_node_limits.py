"""Prevents nodes that are split elsewhere than the servers split them: no limits, limits of one
entry, entries that fill a node, counters that grow wider, and large open nodes kept as runs.
"""

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
from tests.store.look import dump_payload, everything, stream_nodes
from tests.store.mirror import Mirror
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
    assert stream.trim(minid="50", approximate=False) == 48
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


def test_one_entry_a_node(open_store: OpenStore) -> None:
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
