"""Prevents words for connections, and commands, that mean something else than with the servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.peers.servers import Peer
from tests.wire.served import Served, serving

NUMBERS = [b"1" * 5000, b"0", b"-1", b"+1", b"1_0", b" 1", b"1 ", "١".encode(), b"", b"0x1", b"1.0",
           b"01", b"9223372036854775808", b"99999"]  # fmt: skip
ASKED: list[tuple[Any, ...]] = [
    ("CLIENT", "KILL", "TYPE", "nobody"), ("CLIENT", "KILL", "USER", "nobody"),
    ("CLIENT", "KILL", "TYPE", "pubsub"), ("CLIENT", "KILL", "TYPE", "replica"),
    ("CLIENT", "KILL", "USER", "default", "TYPE", "slave"), ("CLIENT", "KILL", "MAXAGE", "0"),
    ("CLIENT", "KILL", "MAXAGE", "x"), ("CLIENT", "KILL", "MAXAGE", "10000"),
    ("CLIENT", "KILL", "SKIPME", "maybe"), ("CLIENT", "KILL", "ID"), ("CLIENT", "KILL", "x"),
    ("CLIENT", "KILL", "LADDR", "127.0.0.1:1"), ("CLIENT", "KILL", "LADDR"),
    ("CLIENT", "KILL", "ID", "99999", "ID", "88888"), ("CLIENT", "LIST", "TYPE"),
    ("CLIENT", "LIST", "TYPE", "pubsub"), ("CLIENT", "LIST", "TYPE", "nobody"),
    ("CLIENT", "LIST", "TYPE", "normal", "x"), ("CLIENT", "LIST", "ID"), ("CLIENT", "LIST", "x"),
    ("X" * 300, "a" * 300, "b" * 300), (b"XX\x00YY", b"a\x00b", "c"), (b"\xff\xfe", b"\xff"),
    ("CLIENT", "y" * 300), ("XADD2", "a" * 60, "b" * 60, "c" * 60), ("XADD2", *["a"] * 100),
    ("CONFIG", "SET", "y" * 3), ("OBJECT", "z" * 300, "k"),
]  # fmt: skip
COUNTED = [
    ("CLIENT", "UNBLOCK"), ("CLIENT", "LIST", "ID"), ("XRANGE", "s", "-", "+", "COUNT"),
    ("SCAN", "0", "COUNT"), ("XREAD", "COUNT", None, "STREAMS", "s", "0"),
    ("XREAD", "BLOCK", None, "STREAMS", "t", "0"), ("SELECT",), ("SCAN",), ("XTRIM", "s", "MAXLEN"),
    ("XADD", "s", "MAXLEN", None, "5-5", "f", "v"),
    ("EXPIRE", "t"), ("XPENDING", "s", "g", "-", "+"),
    ("XCLAIM", "s", "g", "c", None, "1-1"), ("XAUTOCLAIM", "s", "g", "c", None, "0"),
    ("XADD", "s", None, "f", "v"), ("XDEL", "s"), ("XRANGE", "s", None, "+"), ("HELLO",),
    ("CONFIG", "SET", "stream-node-max-entries"), ("XSETID", "s"),
    ("MEMORY", "USAGE", "t", "SAMPLES"),
]  # fmt: skip
# Of these only errors are compared.
EXPLAINED = ("XADD", "XREAD", "CONFIG", "MEMORY", "XCLAIM", "HELLO", "SCAN")


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Served]:
    """A served store."""
    with serving(tmp_path / "store", profile="redis-8.2") as served:
        yield served


def told(client: redis.Redis, words: tuple[Any, ...]) -> Any:
    """The reply, or the words of the error."""
    client.response_callbacks.clear()
    try:
        return client.execute_command(*words)
    except redis.ResponseError as error:
        return str(error)


def test_words_of_client_and_unknown_commands(ours: Served, redis_peer: Peer) -> None:
    """Prevents that CLIENT KILL kills those it does not mean, and long words in errors."""
    with redis.Redis(port=ours.port) as here, redis.Redis(port=ours.port) as bystander:
        bystander.ping()
        before = bystander.client_id()
        for words in ASKED:
            assert told(here, words) == told(redis_peer.client, words), words
        assert bystander.client_id() == before
        assert len(told(here, ("CLIENT", "LIST", "TYPE", "normal"))) >= 2
        local = told(here, ("CLIENT", "LIST")).split(b" laddr=")[1].split()[0]
        assert local == b"127.0.0.1:%d" % ours.port
        assert told(here, ("CLIENT", "KILL", "ID", before, "LADDR", "127.0.0.1:1")) == 0
        assert told(here, ("CLIENT", "KILL", "LADDR", local)) == 1
        assert bystander.ping()
        assert told(here, ("CLIENT", "KILL", "TYPE", "normal")) == 1
        assert here.ping()
        assert bystander.client_id() != before


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_that_are_none(ours: Served, redis_peer: Peer, number: bytes) -> None:
    """Prevents that a number with thousands of digits, or digits of another script, ends a
    connection, or is taken."""
    peer = redis_peer.client
    with redis.Redis(port=ours.port) as here:
        for client in (here, peer):
            client.delete("s")
            client.xadd("s", {"f": "v"}, id="1-1")
            client.xgroup_create("s", "g", "0")
        mine = here.client_id()
        words = ("CLIENT", "KILL", "ID", number, "SKIPME", "yes")
        assert told(here, words) == told(peer, words)
        for begin in COUNTED:
            if begin[:2] == ("XREAD", "BLOCK") and number in (b"0", b"99999"):
                continue  # it waits
            if begin == ("XADD", "s", None, "f", "v") and number == b"99999":
                continue
            words = tuple(number if word is None else word for word in begin)
            words += () if None in begin else (number,)
            mine_told, there = told(here, words), told(peer, words)
            if begin[0] in EXPLAINED:
                assert isinstance(mine_told, str) == isinstance(there, str), (words, there)
            else:
                assert mine_told == there, words
        assert here.client_id() == mine
