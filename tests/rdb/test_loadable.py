"""Prevents files that newer servers refuse to load, for what older ones keep and write.

A node without a live entry ("Stream listpack bad entry count", redis#15808, valkey#4381), and a
group that has read more than was added (redis#15488), each make a whole file unreadable.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import logstore
from logstore.api.store import Store
from logstore.options import Profile
from logstore.rdb.file_reader import FileReader
from logstore.transfer import Server, export_file, export_server
from tests.peers.dump import parse_dump
from tests.peers.servers import Peer
from tests.wire.lines import Line
from tests.wire.served import serving


def live(lp: bytes) -> int:
    """The live entries that a node tells of, which stand first: a number of 7 bits."""
    assert lp[6] < 128
    return lp[6]


def dead_node(store: Store[bytes], *, last: bool) -> None:
    """Stream ``s`` with a node without a live entry, that XDEL and an exact MINID left; unless it
    is the ``last`` one, behind it one of four."""
    stream = store.stream("s")
    for ms in range(1, 11 if last else 15):
        stream.add({"a": ms}, id=(ms, 1))
    stream.group("g").create("0")
    stream.delete((10, 1))
    stream.trim(min_id=(10, 1), approximate=False)


def dumped(store: Store[bytes], _path: Path) -> list[bytes]:
    return [lp for _, lp in parse_dump(store.stream("s").dump())[0]]


def in_file(store: Store[bytes], path: Path) -> list[bytes]:
    export_file(store, path / "dump.rdb")
    parts = iter([(path / "dump.rdb").read_bytes()])
    (nodes,) = [[*key.nodes()] for key in FileReader(lambda _: next(parts, b"")).streams()]
    return [lp for _, lp in nodes]


def copied(store: Store[bytes], _path: Path) -> list[bytes]:
    store.copy("s", "t", replace=True)
    assert store.stream("t").info().radix_tree_keys == len(dumped(store, _path))
    return [lp for _, lp in parse_dump(store.stream("t").dump())[0]]


def served(store: Store[bytes], path: Path) -> list[bytes]:
    with serving(path / "served", profile="valkey-9") as found:
        with Server(f"redis://127.0.0.1:{found.port}/0") as server:
            export_server(store, server)
        with redis.Redis(port=found.port) as client, client.pipeline() as pipe:
            alone = client.dump("s")
            inside = pipe.dump("s").execute()[0]
            assert alone == inside
            assert isinstance(alone, bytes)
            return [lp for _, lp in parse_dump(alone)[0]]


WAYS: list[Callable[[Store[bytes], Path], list[bytes]]] = [dumped, in_file, copied, served]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("node_max_entries", "last"), [(10, False), (10, True), (100, True)])
def test_no_node_without_a_live_entry_leaves(
    tmp_path: Path, way: Callable[..., list[bytes]], node_max_entries: int, last: bool
) -> None:
    """The store keeps it until compaction, as servers did; newer ones refuse the whole file."""
    with logstore.open(
        tmp_path / "store", node_max_entries=node_max_entries, background=False
    ) as store:
        dead_node(store, last=last)
        assert len(store.stream("s")) == (0 if last else 4)
        nodes = way(store, tmp_path)
        assert [live(lp) for lp in nodes] == ([] if last else [4])
        assert store.stream("s").info().radix_tree_keys == len(nodes) + 1


def test_a_server_takes_what_is_left(peer: Peer, tmp_path: Path) -> None:
    """With its counts, its group, and the IDs that go on."""
    with logstore.open(tmp_path / "store", background=False) as store:
        dead_node(store, last=True)
        told = store.stream("s").info()
        assert peer.command("RESTORE", "s", 0, store.stream("s").dump()) == b"OK"
        found = peer.command("XINFO", "STREAM", "s")
        facts = dict(zip(found[::2], found[1::2], strict=True))
        assert facts[b"length"] == facts[b"radix-tree-keys"] == 0
        assert facts[b"groups"] == 1
        assert facts[b"last-generated-id"] == b"10-1" == bytes(told.last_generated_id)
        assert facts[b"max-deleted-entry-id"] == b"10-1"
        assert facts[b"entries-added"] == 10
        assert peer.command("XADD", "s", "10-2", "a", "b") == b"10-2"


# -- entries read ---------------------------------------------------------------------------------
def lowered(line: Callable[..., Any]) -> None:
    """A group that has read ten entries, of a stream that says that two were added."""
    for ms in range(1, 11):
        line("XADD", "s", f"{ms}-1", "a", ms)
    line("XGROUP", "CREATE", "s", "g", "0")
    line("XGROUP", "CREATE", "s", "other", "3-1")
    line("XREADGROUP", "GROUP", "g", "c", "COUNT", 10, "STREAMS", "s", ">")
    line("XTRIM", "s", "MAXLEN", 2)
    assert line("XSETID", "s", "10-1", "ENTRIESADDED", 2) == b"OK"


def read_and_lag(line: Callable[..., Any]) -> list[tuple[Any, Any]]:
    rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in line("XINFO", "GROUPS", "s")]
    return [(row[b"entries-read"], row[b"lag"]) for row in rows]


@pytest.mark.parametrize(("profile", "told"), [
    ("redis-8.10", (2, 0)), ("redis-8.2", (10, -8)), ("valkey-9", (10, -8)),
])  # fmt: skip
def test_xsetid_lowers_what_groups_have_read(
    tmp_path: Path, profile: Profile, told: tuple[int, int]
) -> None:
    """Since Redis 8.10 (redis#15489); before, the lag was negative."""
    with serving(tmp_path / "store", profile=profile) as found, Line(found.port) as line:
        lowered(line)
        rows = read_and_lag(line)
        assert rows[0] == told
        assert rows[1][0] is None
        line("XADD", "s", "11-1", "a", "b")
        line("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
        assert read_and_lag(line)[0] == (told[0] + 1, told[1])


def test_the_peers_of_now_tell_a_negative_lag(peer: Peer) -> None:
    """Which is what ``--compat redis-8.2`` and ``valkey-9`` tell."""
    lowered(peer.command)
    assert read_and_lag(peer.command)[0] == (10, -8)


def test_no_export_says_that_more_was_read_than_added(peer: Peer, tmp_path: Path) -> None:
    with (
        serving(tmp_path / "store", profile="redis-8.2") as found,
        serving(tmp_path / "to", profile="redis-8.2") as target,
        Line(found.port) as line,
    ):
        lowered(line)
        store: Store[bytes] = found.service.store
        path = tmp_path / "dump.rdb"
        export_file(store, path)
        parts = iter([path.read_bytes()])
        infos = [key.info() for key in FileReader(lambda _: next(parts, b"")).streams()]
        assert [group.entries_read for group in infos[0].groups] == [2, -1]
        peer.command("RESTORE", "s", 0, line("DUMP", "s"))
        assert read_and_lag(peer.command)[0] == (2, 0)
        with Server(f"redis://127.0.0.1:{target.port}/0") as server, Line(target.port) as there:
            for most in (1 << 20, 0):  # by RESTORE, by commands
                there("DEL", "s")
                export_server(store, server, dump_max_bytes=most)
                assert read_and_lag(there)[0] == (2, 0)
        line("COPY", "s", "t")
        assert line("XINFO", "GROUPS", "t") == line("XINFO", "GROUPS", "s")  # as there
