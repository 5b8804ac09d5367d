"""Prevents reads of another state than one on a snapshot, and of one stream that is asked for
twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from logstore.engine.reading.reader_loading import native_or_none
from logstore.engine.snapshots import snapshot
from logstore.redis import Redis
from tests import seeds
from tests.peers.servers import Peer
from tests.wire.lines import Line, Reply
from tests.wire.served import Served, serving

ENTRIES = 700


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server with streams of very many nodes: a short read may have to go on."""
    options = {"sync": "os", "background": False, "node_max_entries": 2}
    with serving(tmp_path / "store", store=options) as found:
        for name in ("s", "t"):
            rows = [(f"{number + 1}-0", {"n": str(number)}) for number in range(ENTRIES)]
            found.service.store.stream(name).add_many(rows)
        yield found


@pytest.fixture
def line(served: Served) -> Iterator[Line]:
    """A client."""
    with Line(served.port) as found:
        yield found


def inside(line: Line, *words: str) -> Any:
    """What a command tells inside a transaction."""
    line("MULTI")
    line(*words)
    (told,) = line("EXEC")
    return told


READS = [
    ("XRANGE", "s", "100-0", "+", "COUNT", "10"),
    ("XREVRANGE", "s", "650-0", "-", "COUNT", "1"),
    ("XRANGE", "s", "690-0", "+"),
    ("XREVRANGE", "s", "+", "690-0"),
    ("XREAD", "COUNT", "3", "STREAMS", "s", "500-0"),
    ("XREAD", "STREAMS", "s", "699-0"),
    ("XLEN", "s"),
]


@pytest.mark.skipif(native_or_none is None, reason="the read core is not built")
@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_cached_nodes_are_read_without_a_snapshot(
    line: Line, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Also in another interval of the same nodes; what was not met takes one, in the loop."""
    expected = line(*words)
    assert inside(line, *words) == expected

    def refused(*_: object) -> object:
        raise AssertionError

    monkeypatch.setattr(snapshot, "_once", refused)
    assert line(*words) == expected


def test_reads_beside_changes_are_those_of_the_moment(served: Served, line: Line) -> None:
    """At random: adds, deletes, trims, drops, streams that expire; each told by the next read."""
    drawn = random.Random(seeds.seed())
    store, last = served.service.store, ENTRIES
    for _ in range(150):
        name = drawn.choice("st")
        at = drawn.randrange(1, last + 2)
        match drawn.randrange(8):
            case 0:
                line("XDEL", name, f"{at}-0")
            case 1:
                store.stream(name).delete_range(f"{at}-0", f"{at + drawn.randrange(40)}-0")
            case 2:
                line("XTRIM", name, "MAXLEN", "~", str(drawn.randrange(200, ENTRIES)))
            case 3:
                line("DEL", name)
                line("XADD", name, f"{last + 1}-0", "n", "anew")
                last += 1
            case 4:
                line("PEXPIRE", name, "1")
                time.sleep(0.003)  # it is gone for both
            case _:
                line("XADD", name, f"{last + 1}-0", "n", str(last))
                last += 1
        count = str(drawn.choice((1, 3, 70, 256, 257)))
        for words in (
            ("XRANGE", name, f"{at}-0", "+", "COUNT", count),
            ("XREVRANGE", name, f"{at}-0", "-", "COUNT", count),
            ("XRANGE", name, f"{last - 5}-0", "+"),
            ("XRANGE", name, f"{last - drawn.choice((30, 31, 32, 33))}-0", "+"),
            ("XRANGE", name, "-", "+"),
            ("XREAD", "COUNT", count, "STREAMS", name, f"{at}-0"),
            ("XLEN", name),
        ):
            assert line(*words) == inside(line, *words), words


def test_a_short_read_counts_what_it_told(served: Served, line: Line) -> None:
    before = served.service.store.metrics()["read_entries"]
    line("XRANGE", "s", "100-0", "+", "COUNT", "10")
    assert served.service.store.metrics()["read_entries"] == before + 10


TWICE = (
    "XREAD STREAMS k k 0 1-1",
    "XREADGROUP GROUP g c COUNT 1 STREAMS k k > >",  # in one commit
    "XREADGROUP GROUP g c STREAMS k l k > > >",  # in parts
    "XREADGROUP GROUP g c STREAMS k k 0 1-1",
    "XREADGROUP GROUP g d STREAMS k k 0 0",
    "MULTI|XREAD COUNT 1 STREAMS k k 0 0|XREADGROUP GROUP g c STREAMS k k 0 >|EXEC",
)


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_of_two_equal_names_are_told(peer: Peer, tmp_path: Path, protocol: int) -> None:
    """In RESP3 the entries of the first one were pending, and its consumer was not told of them."""
    profile = "redis-8.2" if peer.name == "redis" else "valkey-9"
    found: list[list[Reply]] = []
    with serving(tmp_path / "store", profile=profile) as served:
        for port in (served.port, peer.port):
            with Line(port) as line:
                line("HELLO", protocol)
                for id in ("1-1", "2-1", "3-1", "4-1"):
                    line("XADD", "k", id, "a", "b")
                line("XGROUP", "CREATE", "k", "g", "0")
                line("XGROUP", "CREATE", "l", "g", "0", "MKSTREAM")
                replies = [line(*words.split()) for read in TWICE for words in read.split("|")]
                assert line("XPENDING", "k", "g")[0] == 4
                line("XGROUP", "SETID", "k", "g", "0")
                last = "XREADGROUP GROUP g c COUNT 1 BLOCK 9 STREAMS k k > >"
                replies.append(line(*last.split()))
                found.append(replies)
    assert found[0] == found[1]


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_gets_the_same_without_a_network(
    redis_peer: Peer, tmp_path: Path, protocol: int
) -> None:
    """The client in the same process once differed from the one that talks to a server."""
    found = []
    with (
        Redis(tmp_path / "store", protocol=protocol) as ours,
        redis.Redis(port=redis_peer.port, protocol=protocol) as theirs,
    ):
        for client in (ours, theirs):
            for id in ("1-1", "2-1", "3-1"):
                client.xadd("k", {"a": "b"}, id)
            client.xgroup_create("k", "g", "0")
            ask = client.execute_command
            found.append([
                ask("XREAD", "STREAMS", "k", "k", "0", "1-1"),
                ask("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "k", "k", ">", ">"),
            ])  # fmt: skip
    assert found[0] == found[1]
