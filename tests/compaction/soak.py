"""Random operations on a store and on a plain model of it, also between the steps of a run."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logstore
from logstore.engine.commit.committer import Committer, Op
from logstore.ids import StreamID
from logstore.options import Sync
from tests.model.store import StoreModel
from tests.model.streams import following

LIMITS: tuple[dict[str, int], ...] = (
    {"node_max_entries": 4},
    {"node_max_bytes": 300},
    {},
    {"node_max_bytes": 0},
)


class Ticks:
    """A clock that goes on by one millisecond a look."""

    def __init__(self) -> None:
        self.ms = 1000

    def now_ms(self) -> int:
        """The next millisecond."""
        self.ms += 1
        return self.ms


class Soak:
    """A store and its model."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path = path
        self.chance = chance
        self.model = StoreModel(0)
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
        if change == self._add or name in self.model.streams:
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
        for at, row in zip(ids, rows, strict=True):
            self.model.add(name, tuple(row.items()), at)

    def _delete(self, name: bytes) -> None:
        ids = list(self.model.streams[name].entries)
        if self.chance.random() < 0.3:
            ids = ids[-20:]
        wanted = set(self.chance.sample(ids, min(len(ids), self.chance.choice((1, 5, 100)))))
        if wanted:
            assert self.store.stream(name).delete(*wanted) == len(wanted)
            self.model.delete(name, list(wanted))

    def _delete_range(self, name: bytes) -> None:
        entries = self.model.streams[name].entries
        if entries:
            low, high = sorted(self.chance.choices(list(entries), k=2))
            wanted = self.model.delete_range(name, low, high)
            assert self.store.stream(name).delete_range(low, high) == wanted

    def _trim(self, name: bytes) -> None:
        model, stream = self.model.streams[name], self.store.stream(name)
        if self.chance.random() < 0.5 or not model.entries:
            keep = self.chance.choice((0, self.chance.randrange(len(model.entries) + 1)))
            exact = len(model.entries) - keep
            approximate = self.chance.random() < 0.5
            count = stream.trim(max_entries=keep, approximate=approximate)
            assert count <= exact if approximate else count == exact
        else:
            min_id = self.chance.choice(list(model.entries))
            count = stream.trim(min_id=min_id, approximate=False)
            assert count == sum(each < min_id for each in model.entries)
        self.model.trim(name, len(model.entries) - count, None)

    def _set_id(self, name: bytes) -> None:
        model = self.model.streams[name]
        lowest = max([model.max_deleted, *model.entries])
        last = self.chance.choice((lowest, following(max(lowest, model.last))))
        self.store.stream(name).set_id(last)
        self.model.set_id(name, last, None, None)

    def _drop(self, name: bytes) -> None:
        assert self.store.drop(name)
        self.model.drop(name)
        if self.chance.random() < 0.6:
            self._add(name)

    def compare(self, store: logstore.Store[bytes]) -> dict[bytes, dict[str, Any]]:
        """All streams of a store against the model; their infos."""
        assert store.streams() == self.model.names()
        infos = {}
        for name, model in self.model.streams.items():
            stream = store.stream(name)
            assert {entry.id: tuple(entry.pairs) for entry in stream} == model.entries, name
            backwards = [entry.id for entry in stream.range(reverse=True)]
            assert backwards == list(reversed(model.entries)), name
            info = infos[name] = stream.info().as_dict()
            assert info["length"] == len(model.entries)
            assert info["entries-added"] == model.added
            assert StreamID(*stream.last_id) == model.last
            assert str(info["max-deleted-entry-id"]) == str(StreamID(*model.max_deleted))
            assert str(info["recorded-first-entry-id"]) == str(StreamID(*model.first))
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
