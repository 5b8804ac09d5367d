"""A writer of the kill test, and the model that tells what its streams must hold.

A writer does random operations on a stream of its own and on one that all share. Outside the store
it journals each operation before it (the intent) and after it (the acknowledgement, with the IDs).
"""

from __future__ import annotations

import json
import os
import random
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from logstore.options import Sync
from tests.crash import steps

SHARED = b"shared"
Tagged = tuple[str, str]  # ID and tag


def own(slot: int) -> bytes:
    """The stream that only this writer writes to."""
    return b"own-%d" % slot


def fields(tag: str) -> dict[str, bytes]:
    """What an entry with a tag holds: its bytes can be told from the tag alone."""
    rng = random.Random(zlib.crc32(tag.encode()))
    size = rng.choice((10, 100, 100, 400, 3000, 9000))
    return {"t": tag.encode(), "p": rng.randbytes(size)}


class Plan(NamedTuple):
    """How a writer works."""

    store: Path
    journal: Path
    step: Path
    slot: int
    first: int  # number of its first operation
    policy: Sync
    linger_at: steps.Step
    seed: int


def run(plan: Plan) -> None:
    """Write until killed."""
    watch = steps.watch(plan.step, plan.seed, plan.linger_at)
    watch.at(steps.Step.OPENING)
    store = logstore.open(plan.store, sync=plan.policy, lock_timeout=30)
    watch.opening = False
    watch.at(steps.Step.OUTSIDE)
    journal = os.open(plan.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    rng = random.Random(plan.seed)
    mine = store.stream(own(plan.slot))
    live = [str(entry.id) for entry in mine.range()]
    number = plan.first
    while True:
        number += 1
        step = intend(rng, plan.slot, number, live)
        os.write(journal, json.dumps(step).encode() + b"\n")
        ids = do(store, plan.slot, step)
        os.write(journal, json.dumps({"n": number, "ids": ids}).encode() + b"\n")
        live = [each for each, _ in after([(each, "") for each in live], step, ids)]


def intend(rng: random.Random, slot: int, number: int, live: list[str]) -> dict[str, Any]:
    """The next operation."""
    kind = rng.choice(("add", "add", "add_many", "tx", "tx", "shared", "delete", "trim"))
    step: dict[str, Any] = {"n": number, "op": kind}
    if kind in {"delete", "trim"} and len(live) < 10:
        kind = step["op"] = "add"
    if kind == "add":
        step["tags"] = [f"{slot}.{number}"]
    elif kind == "add_many":
        step["tags"] = [f"{slot}.{number}.{row}" for row in range(rng.randint(2, 40))]
        step["batch"] = rng.choice((5, 1000))
    elif kind == "tx":
        step["tags"] = [f"{slot}.{number}.{row}" for row in range(rng.randint(1, 3))]
        step["delete"] = rng.sample(live, min(len(live), rng.randint(0, 2)))
    elif kind == "shared":
        step["tags"] = []
    elif kind == "delete":
        step["delete"] = rng.sample(live, rng.randint(1, 4))
    elif kind == "trim":
        step["maxlen"] = len(live) * rng.randint(1, 3) // 4
    return step


def do(store: logstore.Store[bytes], slot: int, step: dict[str, Any]) -> list[str]:
    """Do it; the IDs given to the entries of the own stream."""
    mine, kind = store.stream(own(slot)), step["op"]
    if kind == "add":
        return [str(mine.add(fields(step["tags"][0])))]
    if kind == "add_many":
        rows = [fields(tag) for tag in step["tags"]]
        return [str(each) for each in mine.add_many(rows, batch=step["batch"])]
    if kind == "tx":
        with store.transaction() as tx:
            added = [tx.stream(own(slot)).add(fields(tag)) for tag in step["tags"]]
            if step["delete"]:
                tx.stream(own(slot)).delete(*step["delete"])
            tx.stream(SHARED).add(fields(f"{slot}.{step['n']}"))
        return [str(each.id) for each in added]
    if kind == "shared":
        store.stream(SHARED).add(fields(f"{slot}.{step['n']}"))
    elif kind == "delete":
        mine.delete(*step["delete"])
    elif kind == "trim":
        mine.trim(maxlen=step["maxlen"])
    return []


def after(entries: list[Tagged], step: dict[str, Any], ids: list[str]) -> list[Tagged]:
    """The own stream after an operation; the model."""
    if step["op"] == "trim":
        return entries[len(entries) - step["maxlen"] :]
    gone = set(step.get("delete", ()))
    kept = [entry for entry in entries if entry[0] not in gone]
    return kept + list(zip(ids, step.get("tags", ()), strict=True))


@dataclass
class Model:
    """What one writer's streams must hold, and the operation whose outcome is not known."""

    slot: int
    entries: list[Tagged] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    number: int = 0
    acknowledged: int = 0
    pending: dict[str, Any] | None = None

    def take_in(self, journal: Path) -> None:
        """Follow the journal of a writer that was killed."""
        if not journal.exists():
            return
        for line in journal.read_bytes().splitlines():
            found = json.loads(line)
            self.number = found["n"]
            if "op" in found:
                self.pending = found
                continue
            assert self.pending is not None
            assert self.pending["n"] == found["n"]
            self.entries = after(self.entries, self.pending, found["ids"])
            if self.pending["op"] in {"tx", "shared"}:
                self.shared.append(f"{self.slot}.{found['n']}")
            self.acknowledged += 1
            self.pending = None
        journal.unlink()

    def settle(self, store: logstore.Store[bytes]) -> None:
        """Compare with the store; the operation that was cut off happened whole or not at all."""
        found = read_tagged(store, own(self.slot))
        pending, self.pending = self.pending, None
        if pending is None:
            assert found == self.entries, difference(found, self.entries)
            return
        tag = f"{self.slot}.{pending['n']}"
        in_shared = pending["op"] in {"tx", "shared"} and any(
            entry.fields[b"t"] == tag.encode()
            for entry in store.stream(SHARED).range(count=3000, reverse=True)
        )
        if pending["op"] == "shared":
            assert found == self.entries, difference(found, self.entries)
        else:
            happened = self._happened(found, pending)
            if pending["op"] == "tx":
                assert happened == in_shared, f"half a transaction: {pending}"
        self.entries = found
        if in_shared:
            self.shared.append(tag)

    def _happened(self, found: list[Tagged], pending: dict[str, Any]) -> bool:
        if found == self.entries:
            return False
        tags = pending.get("tags", [])
        counts = [len(tags)]
        if pending["op"] == "add_many":  # a commit a batch: a prefix of whole batches may be there
            counts = [*range(pending["batch"], len(tags), pending["batch"]), len(tags)]
        for count in counts:
            given = [each for each, _ in found[len(found) - count :]]
            step = {**pending, "tags": tags[:count]}
            if found == after(self.entries, step, given):
                return True
        raise AssertionError(f"half of {pending}: {difference(found, self.entries)}")


def read_tagged(store: logstore.Store[bytes], name: bytes) -> list[Tagged]:
    """IDs and tags of a stream, every entry's bytes checked."""
    found: list[Tagged] = []
    for entry in store.stream(name).range():
        tag = entry.fields[b"t"].decode()
        assert entry.fields[b"p"] == fields(tag)["p"], f"entry {entry.id} is not what was added"
        found.append((str(entry.id), tag))
    assert found == sorted(found, key=lambda row: tuple(map(int, row[0].split("-"))))
    assert len(store.stream(name)) == len(found)
    return found


def difference(found: list[Tagged], expected: list[Tagged]) -> str:
    """What is missing and what is too much."""
    missing = [row for row in expected if row not in found]
    extra = [row for row in found if row not in expected]
    return f"missing {missing[:5]} ({len(missing)}), not expected {extra[:5]} ({len(extra)})"
