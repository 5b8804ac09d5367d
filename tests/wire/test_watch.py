"""WATCH: EXEC is refused behind the same changes as in the peers, and behind no other one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.servers import Peer
from tests.wire.lines import Line
from tests.wire.served import SERVED_AS, Served, serving

# Of a stream `k` of three entries, with a group `g` that has read two of them, and of no key `m`.
# Commands of one row are sent by another client, one after the other.
CHANGES = (
    "XADD k 9-1 a b", "XADD k MAXLEN 1 9-1 a b", "XADD k NOMKSTREAM 9-1 a b", "XDEL k 1-1",
    "XDEL k 7-7", "XTRIM k MAXLEN 1", "XTRIM k MAXLEN 9", "XSETID k 9-9", "XSETID k 3-1",
    "XGROUP CREATE k h 0", "XGROUP SETID k g 0", "XGROUP SETID k g 2-1", "XGROUP DESTROY k g",
    "XGROUP CREATECONSUMER k g d", "XGROUP CREATECONSUMER k g c", "XGROUP DELCONSUMER k g c",
    "XREADGROUP GROUP g c STREAMS k >", "XREADGROUP GROUP g new STREAMS k >",
    "XREADGROUP GROUP g c STREAMS k 0", "XREADGROUP GROUP g c NOACK STREAMS k >",
    "XACK k g 1-1", "XACK k g 7-7", "XCLAIM k g d 0 1-1", "XCLAIM k g d 0 1-1 JUSTID",
    "XAUTOCLAIM k g d 0 0", "XREAD STREAMS k 0", "XLEN k", "XPENDING k g", "DEL k", "UNLINK k",
    "DEL k|XADD k 1-1 a b", "XADD k 9-1 a b|XDEL k 9-1", "XDEL k 3-1|XADD k 4-1 a b|XSETID k 5-5",
    "DEL m", "XADD m NOMKSTREAM 1-1 a b", "XADD m 1-1 a b", "XADD m 1-1 a b|DEL m",
    "XGROUP CREATE m g 0 MKSTREAM", "XGROUP CREATE m g 0 MKSTREAM|DEL m",
    "XADD m 1-1 a b|XDEL m 1-1",
    "COPY k m", "COPY k m|DEL m", "RENAME k m", "RENAME k m|RENAME m k", "XADD other 1-1 a b",
    "FLUSHALL",
)  # fmt: skip
NOT_IN_VALKEY = ("XDELEX k IDS 1 1-1", "XACKDEL k g IDS 1 1-1", "XDELEX k IDS 1 7-7")


@pytest.fixture
def served(peer: Peer, tmp_path: Path) -> Iterator[Served]:
    """A server that is to answer as the peer does."""
    with serving(tmp_path / "s", profile=SERVED_AS[peer.name], allow_flush=True) as found:
        yield found


def refuses(port: int, change: str) -> bool:
    """Whether EXEC does nothing behind that."""
    with Line(port) as line, Line(port) as other:
        line("FLUSHALL")
        for n in (1, 2, 3):
            line("XADD", "k", f"{n}-1", "a", "b")
        line("XGROUP", "CREATE", "k", "g", "0")
        line("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "k", ">")
        line("WATCH", "k", "m")
        for words in change.split("|"):
            other(*words.split())
        line("MULTI")
        line("PING")
        return line("EXEC") != [b"PONG"]


def test_a_stream_made_and_dropped_is_taken_for_one_that_was_missing(served: Served) -> None:
    """It may have been any of them (docs/redis.md)."""
    assert refuses(served.port, "XADD other 1-1 a b|DEL other")
    assert not refuses(served.port, "DEL other")


def test_exec_is_refused_where_the_peers_refuse_it(peer: Peer, served: Served) -> None:
    changes = CHANGES if peer.name == "valkey" else CHANGES + NOT_IN_VALKEY
    wrong = {
        change: theirs
        for change in changes
        if (theirs := refuses(peer.port, change)) != refuses(served.port, change)
    }
    assert wrong == {}
