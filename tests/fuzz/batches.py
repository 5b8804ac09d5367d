"""Nodes as they stand in RDB, many at a time: both codecs take the same ones and tell the same.

An input is one byte of the last master ID before it, then keys and listpacks as RDB strings.
"""

from __future__ import annotations

from logstore.codec import Codec, native_or_none, pure
from tests.codec.batches import batch_facts, stored

CODECS: list[Codec] = [each for each in (pure, native_or_none) if each is not None]
SEEDS = [bytes((before,)) + stored(seed, 3)[0] for seed in range(4) for before in (0, 9)]


def one(data: bytes) -> None:
    """Both do the same with it."""
    before = data[0] if data else 0
    master, top = ((before, 1), (before, 2)) if before else (None, (0, 0))
    found = [batch_facts(codec, data[1:], master=master, top=top) for codec in CODECS]
    assert found[0] == found[-1]
