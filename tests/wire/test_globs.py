"""Prevents patterns that block a process, or mean something else than with the servers."""

from __future__ import annotations

import random
import time

import pytest

from logstore.options import NAME_MAX_BYTES
from logstore.wire.resp.globs import Glob
from tests.peers.servers import Peer

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
