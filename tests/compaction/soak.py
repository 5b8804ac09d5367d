"""Random operations on a store and on a plain model of it, also between the steps of a run."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import logstore
from logstore.engine.commit.committer import Committer, Op
from logstore.ids import ZERO_ID, StreamID
from logstore.options import Sync

LIMITS: tuple[dict[str, int], ...] = (
    {"node_max_entries": 4},
    {"node_max_bytes": 300},
    {},
    {"node_max_bytes": 0},
)
Pairs = list[tuple[bytes, bytes]]


class Ticks:
    """A clock that goes on by one millisecond a look."""

    def __init__(self) -> None:
        self.ms = 1000

    def now_ms(self) -> int:
        """The next millisecond."""
        self.ms += 1
        return self.ms


@dataclass
class Model:
    """What a stream must hold."""

    entries: dict[StreamID, Pairs] = field(default_factory=dict)
    last: StreamID = ZERO_ID
    added: int = 0
    max_deleted: StreamID = ZERO_ID

    def add(self, at: StreamID, pairs: Pairs) -> None:
        self.entries[at] = pairs
        self.last = at
        self.added += 1

    def forget(self, count: int) -> None:
        """The first entries were trimmed."""
        self.entries = dict(list(self.entries.items())[count:])


class Soak:
    """A store and its model."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path = path
        self.chance = chance
        self.models: dict[bytes, Model] = {}
        self.steps = 0
        self._clock = Ticks()
        self._limits = chance.choice(LIMITS)
        self.store = self.open()

    def open(self, path: Path | None = None) -> logstore.Store[bytes]:
        """The store, or a copy of it."""
        limits: dict[str, Any] = dict(self._limits)
        return logstore.open(
            path or self.path, sync="os", background=False, clock=self._clock,
            segment_bytes=1 << 16, **limits,
        )  # fmt: skip

    def step(self) -> None:
        """One operation on the store and on the model."""
        self.steps += 1
        name = b"s%d" % min(self.chance.randrange(6), self.chance.randrange(6))
        change = self.chance.choices(
            [self._add, self._delete, self._delete_range, self._trim, self._set_id, self._drop],
            [40, 14, 7, 14, 4, 2],
        )[0]
        if change == self._add or name in self.models:
            change(name)

    def _row(self) -> dict[bytes, bytes]:
        token = b"T~%016x~" % self.chance.getrandbits(64)
        row = {b"token": token, b"pad": b"x" * self.chance.choice((0, 5, 60, 400))}
        if self.chance.random() < 0.02:
            row[b"pad"] *= 200
        if self.chance.random() < 0.1:
            row[b"more"] = b"1"
        return row

    def _add(self, name: bytes) -> None:
        rows = [self._row() for _ in range(self.chance.choice((1, 1, 1, 3, 40, 150)))]
        ids = self.store.stream(name).add_many(rows, batch=self.chance.choice((1, 7, 1000)))
        model = self.models.setdefault(name, Model())
        for at, row in zip(ids, rows, strict=True):
            model.add(at, list(row.items()))

    def _gone(self, model: Model, ids: set[StreamID]) -> None:
        model.max_deleted = max([model.max_deleted, *ids])
        for each in ids:
            del model.entries[each]

    def _delete(self, name: bytes) -> None:
        model = self.models[name]
        ids = list(model.entries)
        if self.chance.random() < 0.3:
            ids = ids[-20:]
        wanted = set(self.chance.sample(ids, min(len(ids), self.chance.choice((1, 5, 100)))))
        if wanted:
            assert self.store.stream(name).delete(*wanted) == len(wanted)
            self._gone(model, wanted)

    def _delete_range(self, name: bytes) -> None:
        model = self.models[name]
        if model.entries:
            low, high = sorted(self.chance.choices(list(model.entries), k=2))
            wanted = {each for each in model.entries if low <= each <= high}
            assert self.store.stream(name).delete_range(low, high) == len(wanted)
            self._gone(model, wanted)

    def _trim(self, name: bytes) -> None:
        model, stream = self.models[name], self.store.stream(name)
        if self.chance.random() < 0.5 or not model.entries:
            keep = self.chance.choice((0, self.chance.randrange(len(model.entries) + 1)))
            exact = len(model.entries) - keep
            approximate = self.chance.random() < 0.5
            count = stream.trim(maxlen=keep, approximate=approximate)
            assert count <= exact if approximate else count == exact
        else:
            minid = self.chance.choice(list(model.entries))
            count = stream.trim(minid=minid)
            assert count == sum(each < minid for each in model.entries)
        model.forget(count)

    def _set_id(self, name: bytes) -> None:
        model = self.models[name]
        lowest = max([model.max_deleted, *model.entries])
        model.last = self.chance.choice((lowest, max(lowest, model.last).next()))
        self.store.stream(name).set_id(model.last)

    def _drop(self, name: bytes) -> None:
        assert self.store.drop(name)
        del self.models[name]
        if self.chance.random() < 0.6:
            self._add(name)

    def compare(self, store: logstore.Store[bytes]) -> dict[bytes, dict[str, Any]]:
        """All streams of a store against the model; their infos."""
        assert store.streams() == sorted(self.models)
        infos = {}
        for name, model in self.models.items():
            stream = store.stream(name)
            assert {entry.id: entry.pairs for entry in stream} == model.entries, name
            backwards = [entry.id for entry in stream.range(reverse=True)]
            assert backwards == list(reversed(model.entries)), name
            info = infos[name] = stream.info().as_dict()
            assert info["length"] == len(model.entries)
            assert info["entries-added"] == model.added
            assert StreamID(*stream.last_id) == model.last
            assert str(info["max-deleted-entry-id"]) == str(model.max_deleted)
            first = next(iter(model.entries), ZERO_ID)
            assert str(info["recorded-first-entry-id"]) == str(first)
        return infos


class Between(Committer):
    """A committer that lets others do something before each step under the lock."""

    def __init__(self, below: Committer, others: Callable[[], None]) -> None:
        self._below = below
        self._others = others

    def run(self, op: Op, sync: Sync | None = None) -> Any:
        """The operation, others' first."""
        self._others()
        return self._below.run(op, sync)

    def locked(self, *, follow: bool = True) -> Any:
        """The lock, others' operations first."""
        self._others()
        return self._below.locked(follow=follow)
