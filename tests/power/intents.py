"""What a writer does, and what its stream and its group hold after it; pure.

Every operation but a few has marks: entries of the stream ORDER, which all writers add to, so that
their IDs tell the order of all commits. IDs are pairs of numbers here.
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass, field
from typing import Any

ORDER = b"order"
GROUP, CONSUMER = "g", "c"
ID = tuple[int, int]
Op = dict[str, Any]
TAG = re.compile(rb"L(\d+)\.\d+\.\d+")


def fields(tag: str) -> dict[str, bytes]:
    """What an entry with a tag holds: its bytes can be told from the tag alone."""
    rng = random.Random(zlib.crc32(tag.encode()))
    size = rng.choice((10, 100, 100, 400, 3000, 9000))
    return {"t": tag.encode(), "p": rng.randbytes(size)}


def own(slot: int) -> bytes:
    """The stream that only this writer writes to."""
    return b"own-%d" % slot


def parse(text: str) -> ID:
    """An ID from its text."""
    ms, seq = text.split("-")
    return int(ms), int(seq)


@dataclass
class Owned:
    """A writer's own stream, and the one group of it."""

    entries: list[tuple[ID, str]] = field(default_factory=list)  # IDs and tags
    delivered: ID = (0, 0)
    pending: set[ID] = field(default_factory=set)

    def after(self, op: Op, ids: list[ID]) -> Owned:
        """After an operation which gave these IDs to the entries of the own stream."""
        gone = {parse(each) for each in op.get("delete", ())}
        entries = [row for row in self.entries if row[0] not in gone]
        entries += zip(ids, op.get("own", ()), strict=True)
        if "keep" in op:
            entries = entries[max(0, len(entries) - op["keep"]) :]
        taken = self.next_deliveries(op.get("count", 0))
        acked = {parse(each) for each in op.get("acks", ())}
        return Owned(
            entries, taken[-1] if taken else self.delivered, (self.pending | set(taken)) - acked
        )

    def next_deliveries(self, count: int) -> list[ID]:
        """What the group's next read gives."""
        if not count:
            return []
        return [id for id, _ in self.entries if id > self.delivered][:count]

    def as_json(self) -> list[Any]:
        """For a file."""
        return [self.entries, self.delivered, sorted(self.pending)]

    @staticmethod
    def from_json(found: list[Any]) -> Owned:
        """From a file."""
        entries, delivered, pending = found
        return Owned(
            [((id[0], id[1]), tag) for id, tag in entries],
            (delivered[0], delivered[1]),
            {(id[0], id[1]) for id in pending},
        )


KINDS = ("add", "add", "many", "tx", "tx", "tx", "deliver", "deliver", "ack", "ack", "trim")
# Adds, reads and acks that are commits of the lane; "put" and "done" have no mark.
OF_LANE = (*("add", "put", "put", "deliver", "deliver", "done", "done") * 4, "tx", "ack", "trim")


def intend(
    rng: random.Random, tag: str, now: Owned, sync_rate: float, kinds: tuple[str, ...] = KINDS
) -> Op:
    """The next operation; ``tag`` is unique, and names the life of the store."""
    kind = rng.choice(kinds)
    if rng.random() < sync_rate:
        return {"op": "sync"}
    acks = kind in {"ack", "done"}
    if (kind == "deliver" and not now.next_deliveries(1)) or (acks and not now.pending):
        kind = "tx" if kinds is KINDS else "put"
    op: Op = {"op": kind}
    if kind == "many":
        op["marks"] = [f"{tag}.{row}" for row in range(rng.randint(2, 40))]
    elif kind in {"add", "tx", "ack"}:
        op["marks"] = [tag]
    if kind == "tx":
        op["own"] = [f"{tag}.{row}" for row in range(rng.randint(0, 4))]
        live = [id for id, _ in now.entries]
        if len(live) > 10:
            picked = rng.sample(live, rng.randint(0, 3))
            op["delete"] = [f"{ms}-{seq}" for ms, seq in picked]
    elif kind == "put":
        op["own"] = [tag]
    elif kind in {"ack", "done"}:
        held = sorted(now.pending)
        op["acks"] = [f"{ms}-{seq}" for ms, seq in held[: rng.randint(1, 8)]]
    elif kind == "deliver":
        op["count"] = rng.randint(1, 10)
    elif kind == "trim":
        op["keep"] = max(5, len(now.entries) * rng.randint(2, 4) // 4)
    if "marks" in op and rng.random() < sync_rate:
        op["firm"] = True
    return op
