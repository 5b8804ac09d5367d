"""Random histories of a stream on a server: adds, deletes, trims, groups, pending entries."""

from __future__ import annotations

import random
from typing import Any

from tests.peers.servers import Peer

VALUES = (
    b"", b"0", b"-1", b"007", b"127", b"128", b"-4097", b"9223372036854775807", b"hello",
    b"\x00\xff" * 40, b"x" * 63, b"x" * 64, b"y" * 4096, "καλημέρα".encode(),
)  # fmt: skip
GROUPS = (b"g", b"123", b"-7", b"a group with a long name " * 3)
CONSUMERS = (b"alice", b"bob", b"42", b"70000")
Command = tuple[Any, ...]


def fill(peer: Peer, key: str, seed: int, steps: int = 60) -> None:
    """Let a server live through the history of a seed; commands that fail are part of it."""
    rng = random.Random(seed)
    entries = rng.choice((1, 3, 10, 100))
    peer.command("CONFIG", "SET", "stream-node-max-entries", entries)
    peer.command("CONFIG", "SET", "stream-node-max-bytes", rng.choice((128, 4096)))
    script: list[Command] = [("XADD", key, "1-1", "f", "v")]
    top = 1
    for _ in range(steps):
        top, commands = _step(rng, key, top)
        script += commands
    peer.pipeline(script)
    peer.command("CONFIG", "SET", "stream-node-max-entries", 100)
    peer.command("CONFIG", "SET", "stream-node-max-bytes", 4096)


def _step(rng: random.Random, key: str, top: int) -> tuple[int, list[Command]]:
    roll = rng.random()
    group, consumer = rng.choice(GROUPS), rng.choice(CONSUMERS)
    some = [f"{rng.randint(1, top)}-1" for _ in range(rng.randint(1, 6))]
    if roll < 0.45:
        fields = rng.choice(((b"f",), (b"f", b"g"), (b"g", b"f"), (b"", b"1", b"1")))
        rows: list[Command] = []
        for _ in range(rng.randint(1, 12)):
            top += rng.choice((1, 1, 1, 300))
            flat = [part for field in fields for part in (field, rng.choice(VALUES))]
            rows.append(("XADD", key, f"{top}-1", *flat))
        return top, rows
    one: Command
    if roll < 0.55:
        one = ("XDEL", key, *some)
    elif roll < 0.6:
        one = ("XTRIM", key, "MAXLEN", rng.choice("=~"), rng.randint(0, 60))
    elif roll < 0.65:
        one = ("XTRIM", key, "MINID", rng.choice("=~"), rng.randint(0, top))
    elif roll < 0.72:
        one = ("XGROUP", "CREATE", key, group, rng.choice(("0", "$", some[0])))
    elif roll < 0.84:
        count = rng.randint(1, 30)
        one = ("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", key, ">")
    elif roll < 0.9:
        one = ("XACK", key, group, *some)
    elif roll < 0.96:
        one = ("XCLAIM", key, group, consumer, 0, *some, "RETRYCOUNT", rng.randint(0, 99))
    elif roll < 0.98:
        one = ("XGROUP", "DELCONSUMER", key, group, consumer)
    else:
        # It rises: below what groups have read, no export says what a server says (test_loadable).
        one = ("XSETID", key, f"{top}-{rng.randint(1, 9)}", "ENTRIESADDED", 10_000 + top)
    return top, [one]


def full_info(peer: Peer, key: str) -> Any:
    """All that a server tells of a stream."""
    return peer.command("XINFO", "STREAM", key, "FULL", "COUNT", 0)
