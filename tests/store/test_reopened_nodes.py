"""Prevents an entry that goes into another node than Redis puts it after the last node went.

When the last node is dropped, the one before it takes entries again, tombstones and all. Here that
happens at the next add. Also nodes without live entries (the peers' zombies).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.servers import Peer
from tests.store.look import everything, stream_nodes
from tests.store.mirror import Mirror

pytestmark = pytest.mark.peers
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


def test_into_a_full_node_nothing_goes(mirror: Mirror, redis_peer: Peer, valkey_peer: Peer) -> None:
    delete(mirror, 11, 12)
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror) == [1, 6, 13]
    judge(mirror, redis_peer, valkey_peer)


def test_into_a_node_with_tombstones_they_count(
    mirror: Mirror, redis_peer: Peer, valkey_peer: Peer
) -> None:
    delete(mirror, 7, 8)
    delete(mirror, 11, 12)
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror) == [1, 6, 13]
    judge(mirror, redis_peer, valkey_peer)


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


def test_two_nodes_back(tmp_path: Path, redis_peer: Peer, valkey_peer: Peer) -> None:
    mirror = Mirror(tmp_path / "store", (200, 0))
    for size in (5, 300, 300, 300):
        mirror.do_add(0, ("step", (1, 0)), [b"f", b"v" * size], {}, True)
    delete(mirror, 2, 3, 4)
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror) == [1]
    judge(mirror, redis_peer, valkey_peer)


def test_when_all_nodes_are_gone(mirror: Mirror, redis_peer: Peer, valkey_peer: Peer) -> None:
    mirror.do_trim(0, {"maxlen": 0})
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror) == [13]
    judge(mirror, redis_peer, valkey_peer)


def test_a_zombie_takes_entries(mirror: Mirror, redis_peer: Peer, valkey_peer: Peer) -> None:
    """Its last entry is a tombstone at or above the trim's ID, so the trim leaves the node."""
    delete(mirror, 12)
    mirror.do_trim(0, {"minid": ("known", 11)})
    assert (len(mirror.store.stream("s")), keys(mirror)) == (0, [11])
    mirror.do_add(0, ("step", (1, 0)), ROW, {}, True)
    assert keys(mirror) == [11]
    judge(mirror, redis_peer, valkey_peer)


def lowered(mirror: Mirror, last: str) -> None:
    """A zombie, and a last ID moved below its master ID."""
    delete(mirror, 12)
    mirror.do_trim(0, {"minid": ("known", 11)})
    mirror.do_set_id(0, ("raw", "20-0"), None, None)
    mirror.store.stream("s").set_id("20-0", max_deleted_id="1-0")
    mirror.expect(("XSETID", b"s", "20-0", "MAXDELETEDID", "1-0"), b"OK")
    mirror.do_set_id(0, ("raw", last), None, None)


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


def test_a_node_that_ends_above_the_next_one(mirror: Mirror) -> None:
    """Its last entries are tombstones above a lowered last ID; the node after it begins lower."""
    delete(mirror, 4, 5)
    mirror.store.stream("s").trim(maxlen=0)
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
