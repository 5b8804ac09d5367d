"""Prevents keys that expire, are renamed or copied otherwise than at the peers: short times,
RESTORE, WATCH, and clients that block."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.peers.servers import Peer
from tests.support.waits import eventually
from tests.wire.lines import Absent, Line
from tests.wire.served import serving

pytestmark = pytest.mark.peers
Opener = Callable[[], Line]
SHORT_MS = 120


@contextmanager
def both(path: Path, peer: Peer) -> Iterator[list[Opener]]:
    """What opens a connection to ours, and to the peer."""
    profile = "redis-8.2" if peer.name == "redis" else "valkey-9"
    with serving(path / "store", profile=profile) as served:
        yield [lambda: Line(served.port), lambda: Line(peer.port)]


def same(openers: list[Opener], script: Callable[[Opener], Any]) -> Any:
    """What a script tells; the same of both."""
    ours, theirs = (script(opener) for opener in openers)
    assert ours == theirs
    return ours


def gone(line: Line, key: str) -> None:
    """Wait until a key has expired."""
    eventually(lambda: line("TTL", key) == -2)


def test_an_expired_key_is_in_no_reply(tmp_path: Path, peer: Peer) -> None:
    def script(opener: Opener) -> Any:
        with opener() as line:
            line("XADD", "s", "5-0", "f", "v")
            line("XADD", "t", "5-0", "f", "v")
            line("XGROUP", "CREATE", "s", "g", "0")
            assert line("PEXPIRE", "s", SHORT_MS) == 1
            assert 0 < line("PTTL", "s") <= SHORT_MS
            told = [line("EXISTS", "s"), line("TTL", "t"), line("PERSIST", "t")]
            gone(line, "s")
            told += [
                line("PTTL", "s"), line("EXPIRETIME", "s"), line("PEXPIRETIME", "s"),
                line("EXISTS", "s", "t"), line("TYPE", "s"), line("KEYS", "*"), line("DBSIZE"),
                line("SCAN", 0, "COUNT", 100), line("XLEN", "s"), line("XRANGE", "s", "-", "+"),
                line("XINFO", "STREAM", "s"),
                line("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"),
                line("RENAME", "s", "u"), line("COPY", "s", "u"), line("DUMP", "s"),
                line("OBJECT", "ENCODING", "s"), line("DEL", "s"), line("PERSIST", "s"),
                line("EXPIRE", "s", 10), line("XDEL", "s", "5-0"),
                line("XADD", "s", "NOMKSTREAM", "*", "f", "v"),
                line("RENAMENX", "t", "s"), line("XADD", "t", "1-0", "f", "v"), line("PTTL", "t"),
                line("XRANGE", "s", "-", "+"), line("XINFO", "GROUPS", "s"),
            ]  # fmt: skip
            return told

    with both(tmp_path, peer) as openers:
        same(openers, script)


def test_a_new_stream_of_the_name_has_nothing_of_the_old(tmp_path: Path, peer: Peer) -> None:
    def script(opener: Opener) -> Any:
        with opener() as line:
            line("XADD", "s", "5-0", "f", "v")
            line("PEXPIRE", "s", SHORT_MS)
            gone(line, "s")
            told = [line("XADD", "s", "1-0", "f", "v"), line("TTL", "s"), line("XLEN", "s")]
            line("PEXPIRE", "s", SHORT_MS)
            gone(line, "s")
            line("MULTI")
            line("XADD", "s", "0-1", "f", "v")
            line("XINFO", "STREAM", "s")
            return [*told, line("EXEC")]

    with both(tmp_path, peer) as openers:
        same(openers, script)


def test_restore_with_a_time(tmp_path: Path, peer: Peer) -> None:
    far_ms = 4_000_000_000_000

    def script(opener: Opener) -> Any:
        with opener() as line:
            line("XADD", "s", "5-0", "f", "v")
            payload = line("DUMP", "s")
            told = [
                line("RESTORE", "a", 0, payload), line("PTTL", "a"),
                line("RESTORE", "b", 100_000, payload), line("TTL", "b"),
                line("RESTORE", "c", far_ms, payload, "ABSTTL"), line("PEXPIRETIME", "c"),
                line("RESTORE", "d", 1000, payload, "ABSTTL"), line("EXISTS", "d"),
                line("RESTORE", "c", 1000, payload, "ABSTTL"), line("EXISTS", "c"),
                line("RESTORE", "c", 1000, payload, "REPLACE", "ABSTTL"), line("EXISTS", "c"),
                line("RESTORE", "b", 0, payload, "REPLACE"), line("TTL", "b"),
                line("RESTORE", "e", -1, payload), line("RESTORE", "e", "x", payload),
                line("RESTORE", "e", 10, payload[:-1]), line("EXISTS", "e"),
                line("RESTORE", "f", SHORT_MS, payload), line("XLEN", "f"),
            ]  # fmt: skip
            gone(line, "f")
            return [*told, line("XLEN", "f")]

    with both(tmp_path, peer) as openers:
        same(openers, script)


def test_copies_and_names_keep_the_time(tmp_path: Path, peer: Peer) -> None:
    far_ms = 4_000_000_000_000

    def script(opener: Opener) -> Any:
        with opener() as line:
            for n in range(250):
                line("XADD", "s", f"{n + 1}-0", "f", n)
            line("XDEL", "s", "7-0", "120-0", "249-0")
            line("XGROUP", "CREATE", "s", "g", "0")
            line("XREADGROUP", "GROUP", "g", "alice", "COUNT", 40, "STREAMS", "s", ">")
            line("XREADGROUP", "GROUP", "g", "bob", "COUNT", 5, "STREAMS", "s", ">")
            line("XACK", "s", "g", "3-0")
            line("PEXPIREAT", "s", far_ms)
            line("XADD", "t", "1-0", "f", "v")
            line("EXPIRE", "t", 100)
            told = [
                line("COPY", "s", "t"),
                line("COPY", "s", "t", "REPLACE"),
                line("PEXPIRETIME", "t"),
            ]
            told += [line("DUMP", "s")[:-10], line("DUMP", "t")[:-10]]
            assert told[-1] == told[-2]
            line("XADD", "t", "251-0", "f", "v")
            told += [line("XLEN", "s"), line("XLEN", "t"), line("XPENDING", "t", "g")]
            line("XADD", "u", "1-0", "f", "v")
            line("EXPIRE", "u", 100)
            told += [line("RENAME", "t", "u"), line("PEXPIRETIME", "u"), line("XLEN", "u")]
            line("XADD", "v", "1-0", "f", "v")
            return [*told, line("RENAME", "v", "u"), line("TTL", "u"), sorted(line("KEYS", "*"))]

    with both(tmp_path, peer) as openers:
        ours, theirs = (script(opener) for opener in openers)
        # Consumers' times are of the moment, so the payloads differ in them.
        assert [each for each in ours if type(each) is not bytes] == [
            each for each in theirs if type(each) is not bytes
        ]


CHANGES = {
    "nothing": [], "renamed": [("RENAME", "s", "t")], "onto": [("RENAME", "o", "s")],
    "itself": [("RENAME", "s", "s")], "refused": [("RENAMENX", "o", "s")],
    "copied from": [("COPY", "s", "t")], "copied to": [("COPY", "o", "s", "REPLACE")],
    "expires": [("EXPIRE", "s", 100)], "refused to": [("EXPIRE", "s", 100, "XX")],
    "persists": [("PERSIST", "s")], "dropped": [("EXPIRE", "s", -1)],
    "away and back": [("RENAME", "s", "t"), ("RENAME", "t", "s")],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_watch_sees_it(tmp_path: Path, peer: Peer, change: str) -> None:
    def script(opener: Opener) -> Any:
        with opener() as line, opener() as other:
            line("XADD", "s", "1-0", "f", "v")
            line("XADD", "o", "2-0", "f", "v")
            line("WATCH", "s")
            told = [other(*words) for words in CHANGES[change]]
            line("MULTI")
            line("PING")
            return told, line("EXEC")

    with both(tmp_path, peer) as openers:
        same(openers, script)


def test_watch_sees_that_a_key_expired(tmp_path: Path, peer: Peer) -> None:
    def script(opener: Opener) -> Any:
        with opener() as line:
            line("XADD", "s", "1-0", "f", "v")
            line("PEXPIRE", "s", SHORT_MS)
            line("WATCH", "s")
            gone(line, "s")
            line("MULTI")
            line("PING")
            return line("EXEC")

    with both(tmp_path, peer) as openers:
        assert same(openers, script) == Absent()


BLOCKED = {
    "its group's stream is renamed": ([], [("RENAME", "s", "t")]),
    "its group's stream expires": ([], [("PEXPIRE", "s", SHORT_MS)]),
    "its group's stream is replaced": ([], [("RENAME", "o", "s")]),
    "its group's stream goes at once": ([], [("PEXPIRE", "s", -1)]),
}


@pytest.mark.parametrize("case", BLOCKED)
def test_a_blocked_reader_of_a_group_is_told(tmp_path: Path, peer: Peer, case: str) -> None:
    def script(opener: Opener) -> Any:
        with opener() as line, opener() as other:
            line("XADD", "o", "1-0", "f", "v")
            line("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
            return _blocked(line, other, BLOCKED[case][1], [
                "XREADGROUP", "GROUP", "g", "c", "BLOCK", 60000, "STREAMS", "s", ">",
            ])  # fmt: skip

    with both(tmp_path, peer) as openers:
        told, took_s = same(openers, script)
        assert took_s == "soon"
        assert told is not None


@pytest.mark.parametrize("how", [("RENAME", "o", "s"), ("COPY", "o", "s")])
def test_a_blocked_reader_is_served_what_comes_under_the_name(
    tmp_path: Path, peer: Peer, how: tuple[str, ...]
) -> None:
    def script(opener: Opener) -> Any:
        with opener() as line, opener() as other:
            line("XADD", "o", "1-0", "f", "v")
            return _blocked(line, other, [how], ["XREAD", "BLOCK", 60000, "STREAMS", "s", "$"])

    with both(tmp_path, peer) as openers:
        (told, soon) = same(openers, script)
        assert soon == "soon"
        assert told == [[b"s", [[b"1-0", [b"f", b"v"]]]]]


def _blocked(line: Line, other: Line, changes: Any, words: list[Any]) -> tuple[Any, str]:
    """The reply to a command that blocks while others change something; whether it came soon."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(line(*words)))
    started = time.monotonic()
    thread.start()
    while b"blocked_clients:1" not in other("INFO", "clients"):
        assert thread.is_alive()
        time.sleep(0.01)
    for change in changes:
        other(*change)
    thread.join(120)
    return found[0], "soon" if time.monotonic() - started < 30 else "late"
