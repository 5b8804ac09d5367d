"""Prevents words for connections, and odd options of commands, that mean something else than with
the servers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from logstore.options import NAME_MAX_BYTES, Profile
from logstore.wire.resp.globs import Glob
from tests.peers.servers import Peer
from tests.wire.lines import Line
from tests.wire.served import SERVED_AS, Served, serving

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


def reply_or_error(client: redis.Redis, words: tuple[Any, ...]) -> Any:
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
            assert reply_or_error(here, words) == reply_or_error(redis_peer.client, words), words
        assert bystander.client_id() == before
        assert len(reply_or_error(here, ("CLIENT", "LIST", "TYPE", "normal"))) >= 2
        local = reply_or_error(here, ("CLIENT", "LIST")).split(b" laddr=")[1].split()[0]
        assert local == b"127.0.0.1:%d" % ours.port
        assert reply_or_error(here, ("CLIENT", "KILL", "ID", before, "LADDR", "127.0.0.1:1")) == 0
        assert reply_or_error(here, ("CLIENT", "KILL", "LADDR", local)) == 1
        assert bystander.ping()
        assert reply_or_error(here, ("CLIENT", "KILL", "TYPE", "normal")) == 1
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
        assert reply_or_error(here, words) == reply_or_error(peer, words)
        for begin in COUNTED:
            if begin[:2] == ("XREAD", "BLOCK") and number in (b"0", b"99999"):
                continue  # it waits
            if begin == ("XADD", "s", None, "f", "v") and number == b"99999":
                continue
            words = tuple(number if word is None else word for word in begin)
            words += () if None in begin else (number,)
            mine_told, there = reply_or_error(here, words), reply_or_error(peer, words)
            if begin[0] in EXPLAINED:
                assert isinstance(mine_told, str) == isinstance(there, str), (words, there)
            else:
                assert mine_told == there, words
        assert here.client_id() == mine


WORDS = """
XADD k LIMIT 0 1-1 f v
XADD k LIMIT 5 1-1 f v
XADD k LIMIT -1 1-1 f v
XADD k LIMIT x 1-1 f v
XADD k LIMIT 0 foo f v
XADD k LIMIT
XADD k NOMKSTREAM LIMIT 0 1-1 f v
XADD k LIMIT 5 LIMIT 0 1-1 f v
XADD k LIMIT 0 LIMIT 5 1-1 f v
XADD k MAXLEN ~ 5 LIMIT 0 1-1 f v
XADD k LIMIT 0 MAXLEN ~ 5 2-1 f v
XADD k LIMIT 0 MAXLEN 5 3-1 f v
XADD k MAXLEN = 5 LIMIT 0 3-1 f v
XADD k KEEPREF KEEPREF 10-1 f v
XADD k KEEPREF DELREF 10-1 f v
XADD k KEEPREF MAXLEN 5 DELREF 10-1 f v
XADD k ACKED 12-2 f v
XADD k DELREF MAXLEN 5 12-3 f v
XADD k KEEPREF
XADD k DELREF *
XADD k DELREF * f
XTRIM k LIMIT 0
XTRIM k LIMIT 5
XTRIM k LIMIT -1
XTRIM k LIMIT 0 MAXLEN 5
XTRIM k LIMIT 0 MAXLEN ~ 5 LIMIT 4
XTRIM k MAXLEN 5 LIMIT 0
XTRIM k MAXLEN 5 LIMIT 0 DELREF
XTRIM k MAXLEN ~ 5 LIMIT 0
XTRIM k MAXLEN 5 KEEPREF KEEPREF
XTRIM k MAXLEN 5 KEEPREF DELREF
XTRIM k KEEPREF DELREF
XTRIM k LIMIT 0 KEEPREF DELREF
XTRIM k DELREF MAXLEN 5
XTRIM k MAXLEN 5 ACKED
XTRIM k MAXLEN 5 FOO
XTRIM k DELREF
XTRIM none LIMIT 0
XTRIM none KEEPREF DELREF
XTRIM none MAXLEN 5
XLEN k
""".strip().splitlines()


def profile_of(peer: Peer) -> Profile:
    """Whose replies are compared; skips where the peer is another version."""
    for start, profile in {"Redis 8.2": "redis-8.2", "Valkey 9": "valkey-9"}.items():
        if peer.version.startswith(start):
            return profile  # type: ignore[return-value]
    pytest.skip(f"{peer.version} is none of those that the words are of")


def test_odd_options_are_answered_in_the_peers_words(peer: Peer, tmp_path: Path) -> None:
    profile = profile_of(peer)
    with (
        serving(tmp_path / "store", profile=profile) as served,
        Line(served.port) as ours,
        Line(peer.port) as theirs,
    ):
        theirs("FLUSHALL")
        for line in WORDS:
            assert ours(*line.split()) == theirs(*line.split()), line


@pytest.mark.parametrize("mode", ["KEEPREF", "DELREF", "ACKED"])
def test_references_with_a_rough_trim_are_as_the_profile_has_them(
    peer: Peer, tmp_path: Path, mode: str
) -> None:
    """Redis 8.2 trims nothing then; 8.6, by its documentation, one entry after the other."""
    profile = profile_of(peer)
    if profile == "valkey-9":
        pytest.skip("Valkey does not know the modes")
    found = []
    with (
        serving(tmp_path / "a", profile=profile) as same,
        serving(tmp_path / "b", profile="redis-8.10") as newest,
        Line(same.port) as ours,
        Line(newest.port) as later,
        Line(peer.port) as theirs,
    ):
        theirs("FLUSHALL")
        for line in (ours, theirs, later):
            for number in range(1, 251):
                line("XADD", "k", f"{number}-1", "f", "v")
            found.append([
                line("XTRIM", "k", "MAXLEN", "~", "120", mode), line("XLEN", "k"),
                line("XTRIM", "k", "MINID", "~", "150", mode), line("XLEN", "k"),
                line("XADD", "k", "MAXLEN", "~", "20", mode, "300-1", "f", "v"), line("XLEN", "k"),
            ])  # fmt: skip
    assert found[0] == found[1]
    rough = [100, 150, 0, 150, b"300-1", 51]
    assert found[2] == (rough if mode == "KEEPREF" else [130, 120, 19, 101, b"300-1", 20])


SEED = 20260726
ALPHABET = [bytes([byte]) for byte in b"abA-][^\\*?\x00\xff\x80z"]
STARS = b"a*" * 12 + b"b"


def test_patterns_fit_what_they_fit_in_the_servers(peer: Peer) -> None:
    """Prevents a name that KEYS finds there and not here, or the other way round."""
    print("seed", SEED)
    draw = random.Random(SEED)
    names = {b"", b"a", b"]", b"\\", b"ab", b"abab"}
    while len(names) < 300:
        names.add(b"".join(draw.choices(ALPHABET, k=draw.randint(1, 8))))
    for name in names:
        peer.command("XADD", name, "*", "f", "v")
    patterns = [
        b"",
        b"*",
        b"**",
        b"?*",
        b"[",
        b"[^",
        b"[^]",
        b"[]",
        b"[a",
        b"[a-",
        b"[\\",
        b"\\",
        b"[a-]",
    ]
    patterns += [b"".join(draw.choices(ALPHABET, k=draw.randint(1, 9))) for _ in range(4000)]
    found = peer.pipeline([("KEYS", pattern) for pattern in patterns])
    for pattern, there in zip(patterns, found, strict=True):
        glob = Glob(pattern)
        assert {each for each in names if glob.fits(each)} == set(there), pattern


def test_patterns_without_case_fit_as_config_get(peer: Peer) -> None:
    """Prevents a setting that CONFIG GET tells there and not here."""
    draw = random.Random(SEED)
    every = peer.command("CONFIG", "GET", "*")
    names = every if isinstance(every, dict) else dict(zip(every[::2], every[1::2], strict=True))
    letters = [b"m", b"M", b"-", b"a", b"X", b"*", b"*", b"?", b"[", b"]", b"^", b"\\", b"s"]
    patterns = [b"MAX*", b"[M-a]*", b"[m-A]*", b"[\\M]*", b"[!-^]*", b"[^a-z]*", b"*[A-X]"]
    patterns += [b"".join(draw.choices(letters, k=draw.randint(1, 7))) + b"*" for _ in range(2000)]
    for pattern, there in zip(
        patterns, peer.pipeline([("CONFIG", "GET", each) for each in patterns]), strict=True
    ):
        glob = Glob(pattern, nocase=True)
        assert {each for each in names if glob.fits(_bytes(each))} == set(there[::2]), pattern


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        (STARS, b"a" * 40, False),
        (STARS, b"a" * 40 + b"b", True),
        (b"*a?" * 5000 + b"b", b"a" * 60_000, False),
        (b"*" + b"a?" * 16_000 + b"b", b"a" * 65_000, False),
        (b"*" + b"[^b]" * 30_000 + b"b", b"a" * 65_000 + b"b", True),
        (b"*" + b"?" * 60_000 + b"*", b"a" * NAME_MAX_BYTES, True),
        (b"*" + b"ab" * 15_000 + b"c*", b"ab" * 32_000, False),
        (b"a" * 300_000, b"a" * NAME_MAX_BYTES, False),
        (b"[a-b]" * 200_000 + b"*", b"a" * NAME_MAX_BYTES, False),
        (b"*" * 1_000_000 + b"b", b"ab", True),
        (b"[" + b"a-b" * 300_000 + b"]*", b"ab", True),
        (b"\\a" * 30_000, b"a" * 30_000, True),
        (b"*" + b"\\a" * 30_000 + b"*b", b"a" * 60_000, False),
        (b"*[ab]" * 30_000, b"a" * 60_000, True),
    ],
    ids=range(14),
)  # fmt: skip
def test_long_patterns_end(pattern: bytes, name: bytes, fits: bool) -> None:
    """Prevents time that grows with more than pattern times name, which never ended before."""
    begun = time.process_time()
    assert Glob(pattern).fits(name) is fits
    print(f"{time.process_time() - begun:.3f} s")


@pytest.mark.parametrize(
    "words",
    [
        "XREADGROUP GROUP STREAMS c STREAMS k >", "XREADGROUP GROUP g STREAMS STREAMS k >",
        "XREADGROUP GROUP STREAMS STREAMS COUNT 1 NOACK STREAMS a b > >",
        "XREAD COUNT 1 STREAMS STREAMS 0", "XREAD BLOCK 5 STREAMS a b 0 0", "COPY a b", "DEL a b c",
        "XGROUP CREATE k g 0", "XINFO STREAM k", "MULTI",
    ],
)  # fmt: skip
def test_the_keys_of_a_command(words: str, peer: Peer, tmp_path: Path) -> None:
    """A group or a consumer may be called STREAMS."""
    with serving(tmp_path / "s", profile=SERVED_AS[peer.name]) as served:
        ours, theirs = Line(served.port), Line(peer.port)
        with ours, theirs:
            ask = ["COMMAND", "GETKEYS", *words.split()]
            assert ours(*ask) == theirs(*ask)
