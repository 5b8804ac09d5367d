"""Which targets there are, their inputs, changes to inputs, and the codec that reads them.

Invariants: the same seed gives the same mutations. Knows no fuzzer and no test framework.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast

from logstore.api.entry import entry_maker
from logstore.codec import Codec, backend

TARGETS = (
    "acl", "batches", "files", "frames", "globs", "indexpages", "inline", "lines", "lzf", "nodes",
    "payloads", "replies", "requests", "rows", "storefiles",
)  # fmt: skip
GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "fuzz"
SIZE_MAX = 4096
# Lengths, counts and marks that decide something in one of the formats.
TELLING = (
    b"\x00", b"\x01", b"\x0f", b"\x10", b"\x15", b"\x7f", b"\x80", b"\x81", b"\xc0", b"\xc3",
    b"\xf0", b"\xf4", b"\xfe", b"\xff", b"\xff" * 8, b"\x81" + b"\xff" * 8, b"\x80\xff\xff\xff\xff",
    b"\x80\x00\x00\x00\x01", b"\r\n", b"*1\r\n", b"$-1\r\n", b"$0\r\n\r\n", b"9" * 10, b'"', b"'",
)  # fmt: skip


class Harness(Protocol):
    """A target's module."""

    SEEDS: Sequence[bytes]

    def one(self, data: bytes) -> None:
        """Raise if this input shows a defect."""


@contextmanager
def using(codec: Codec) -> Iterator[None]:
    """This codec is the one in use; what was made by another one is not kept."""
    chosen = backend._in_use
    backend._in_use = codec  # type: ignore[misc]
    entry_maker.cache_clear()
    try:
        yield
    finally:
        backend._in_use = chosen  # type: ignore[misc]
        entry_maker.cache_clear()


def harness(target: str) -> Harness:
    """The module of a target."""
    return cast(Harness, importlib.import_module(f"tests.fuzz.{target}"))


def inputs(target: str) -> list[bytes]:
    """The seeds, and what was found once."""
    kept = GOLDEN / f"{target}.hex"  # one a line
    lines = kept.read_text().splitlines() if kept.exists() else []
    return [*harness(target).SEEDS, *map(bytes.fromhex, lines)]


def mutations(inputs: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Changed inputs, one to four changes each."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(rng.choice(inputs))
        for _ in range(rng.randint(1, 4)):
            _change(data, rng, inputs)
        yield bytes(data[:SIZE_MAX])


def _change(data: bytearray, rng: random.Random, inputs: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    size = min(rng.choice((1, 1, 2, 4, 8, 16, 60)), len(data) - at)
    match rng.randrange(7):
        case 0 if size:
            data[at] ^= 1 << rng.randrange(8)
        case 1 if size:
            data[at] = rng.randrange(256)
        case 2:
            data[at : at + rng.choice((0, 1, size))] = rng.choice(TELLING)
        case 3:
            del data[at : at + size]
        case 4:
            data[at:at] = data[at : at + size]
        case 5:
            other = rng.choice(inputs)
            begin = rng.randint(0, len(other))
            data[at:] = other[begin:]
        case _:
            data[at:] = b""
