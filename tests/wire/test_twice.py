"""Prevents entries that nobody is told of: one stream asked for twice in one read."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from logstore.redis import Redis
from tests.peers.servers import Peer
from tests.wire.lines import Line, Reply
from tests.wire.served import serving

READS = (
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
                replies = [line(*words.split()) for read in READS for words in read.split("|")]
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
