"""Random calls of a store while the collector runs at every object, and others come in between.

``python -m tests.collections.play FOLDER SEED STEPS INTRUDER``: a process of its own, so that it
may die, hang, or run under another allocator (``PYTHONMALLOC=debug``). INTRUDER: ``finaliser``
calls the store from inside a collection, in the thread of the call around it; ``thread`` lets
another thread make a call there; ``both``.

What is known without a model: each entry carries its seal; each is there exactly as it was added,
until it is deleted; a group gives each entry once; what is pending is what was given and not ended.
"""

from __future__ import annotations

import faulthandler
import queue
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logstore
from tests.collections import sealed
from tests.collections.collector import Collector
from tests.support.imports import import_all
from tests.support.inside import committer_of, delete_index, engine_of, lane_commits

NAMES = ("a", "b", "c")  # all but the last have a group; of the last one entries are deleted
# Nothing goes for them, but the add is another one.
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {"max_entries": 1 << 20}, {"min_id": "0-1"},
    {"max_entries": 1 << 20, "approximate": True},
)  # fmt: skip
NO_LONGER_S = 150
CHECKED_EVERY = 60


class Play:
    """The store, what must be in it, and the calls that change both."""

    def __init__(self, store: logstore.Store[Any], rng: random.Random) -> None:
        self.store, self.rng = store, rng
        self.there: dict[str, dict[Any, dict[bytes, bytes]]] = {name: {} for name in NAMES}
        self.given: dict[str, Counter[Any]] = {name: Counter() for name in NAMES}
        self.pending: dict[str, set[Any]] = {name: set() for name in NAMES}
        self.held: list[tuple[str, Any]] = []  # deliveries, of which some are pending still
        self.outcomes: Counter[str] = Counter()
        self.same = [sealed.any_entry(rng) for _ in range(3)]
        for name in NAMES[:-1]:
            store.stream(name).group("g", start="0")
        self.calls: list[Callable[[str], object]] = [
            *[self.add] * 12, self.add_at, *[self.transact] * 3, self.add_many,
            *[self.read_new] * 4, *[self.end] * 4, self.give_back, self.take_over, self.delete,
            self.look, self.look_up, self.scan,
        ]  # fmt: skip
        self.of_groups = {self.read_new, self.end, self.give_back, self.take_over}

    def step(self) -> None:
        """One call; refused if it is made inside of another one of the same thread."""
        call = self.rng.choice(self.calls)
        try:
            call(self.rng.choice(NAMES[:-1] if call in self.of_groups else NAMES))
        except logstore.ReentryError:
            self.outcomes["refused"] += 1
        else:
            self.outcomes[call.__name__] += 1

    def row(self) -> dict[Any, Any]:
        return self.rng.choice(self.same) if self.rng.random() < 0.4 else sealed.any_entry(self.rng)

    def add(self, name: str) -> None:
        row, options = self.row(), self.rng.choice(OPTIONS)
        self.there[name][self.store.stream(name).add(row, **options)] = sealed.as_read(row)

    def add_at(self, name: str) -> None:
        """With an ID of its own, which another one may be above meanwhile."""
        row, last = self.row(), max(self.there[name], default=logstore.StreamID(0, 0))
        try:
            id = self.store.stream(name).add(row, id=(last[0], last[1] + 1))
        except logstore.IDOrderError:
            return
        self.there[name][id] = sealed.as_read(row)

    def transact(self, name: str) -> None:
        rows = [(self.rng.choice(NAMES), self.row()) for _ in range(self.rng.randrange(1, 6))]
        held = [each for each in self.held if self.rng.random() < 0.1][:3]
        try:
            with self.store.transaction() as opened:
                made = [opened.stream(to).add(row) for to, row in rows]
                opened.ack(*[delivery for _, delivery in held])
        except logstore.NotOwnerError:  # it was acked, or another one has it: nothing happened
            held_ids = {delivery.id for _, delivery in held}
            self.held = [each for each in self.held if each[1].id not in held_ids]
            return
        for one, (to, row) in zip(made, rows, strict=True):
            self.there[to][one.id] = sealed.as_read(row)
        for of, delivery in held:
            self.pending[of].discard(delivery.id)

    def add_many(self, name: str) -> None:
        rows = [self.row() for _ in range(self.rng.randrange(1, 30))]
        for id, row in zip(self.store.stream(name).add_many(rows), rows, strict=True):
            self.there[name][id] = sealed.as_read(row)

    def read_new(self, name: str) -> None:
        deliveries = (
            self.store.stream(name)
            .group("g")
            .read("c", count=self.rng.randrange(1, 9), timeout=self.rng.choice((0, 0, 0.001)))
        )
        self.held += [(name, delivery) for delivery in deliveries]
        for delivery in deliveries:
            self.given[name][delivery.id] += delivery.delivery_count == 1
            self.pending[name].add(delivery.id)
            sealed.check(delivery.fields)

    def some_pending(self, name: str) -> list[Any]:
        pending = sorted(self.pending[name])
        return self.rng.sample(pending, min(len(pending), self.rng.randrange(1, 6)))

    def end(self, name: str) -> None:
        ids = self.some_pending(name)
        if self.rng.random() < 0.7:
            ids.sort()  # else it goes through the pipeline
        if ids:
            self.store.stream(name).group("g").ack(*ids)
            self.pending[name] -= set(ids)

    def give_back(self, name: str) -> None:
        if ids := self.some_pending(name):
            self.store.stream(name).group("g").nack(*ids)

    def take_over(self, name: str) -> None:
        if ids := self.some_pending(name):
            for delivery in self.store.stream(name).group("g").claim("d", *ids, min_idle=0):
                sealed.check(delivery.fields)

    def delete(self, _: str) -> None:
        name = NAMES[-1]
        if self.there[name]:
            id = self.rng.choice(list(self.there[name]))
            if self.store.stream(name).delete(id):
                self.there[name].pop(id, None)

    def look(self, name: str) -> None:
        where = {"temp": "7"} if self.rng.random() < 0.3 else None
        for entry in self.store.stream(name).range(
            where=where, reverse=self.rng.random() < 0.5, count=self.rng.randrange(1, 60)
        ):
            sealed.check(entry.fields)

    def look_up(self, name: str) -> None:
        for id in self.rng.sample(list(self.there[name]), min(3, len(self.there[name]))):
            entry = self.store.stream(name).get(id)
            if entry is not None:  # another thread may have deleted it meanwhile
                sealed.check(entry.fields)

    def scan(self, name: str) -> None:
        found = self.store.stream(name).scan(columns=["id", "pairs", "lat"]).to_arrow()
        for row in found.to_pylist():
            sealed.check({pair["field"]: pair["value"] for pair in row["pairs"]})

    def check(self) -> None:
        """All is as it must be. Nobody calls the store meanwhile."""
        for name in NAMES:
            stream = self.store.stream(name)
            found = {entry.id: dict(entry.fields) for entry in stream.range()}
            assert found == self.there[name], name
            if name == NAMES[-1]:
                continue
            assert not [id for id, count in self.given[name].items() if count > 1], name
            pending = {one.id for one in stream.group("g").pending_entries()}
            assert pending == self.pending[name], name


class Others:
    """Another thread, which makes one call whenever it is let."""

    def __init__(self, play: Play) -> None:
        self.play, self.errors = play, list[BaseException]()
        self.wanted: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()
        self.last: threading.Event | None = None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while (done := self.wanted.get()) is not None:
            try:
                self.play.step()
            except BaseException as exc:  # noqa: BLE001  raised by ``settle``
                self.errors.append(exc)
            done.set()

    def let(self) -> None:
        """One call, and back when it is done, or waits for what this thread has locked."""
        if self.last is not None and not self.last.is_set():
            return
        self.last = done = threading.Event()
        self.wanted.put(done)
        done.wait(0.001 if committer_of(self.play.store).busy else 20)

    def settle(self) -> None:
        """Until it does nothing."""
        if self.last is not None:
            assert self.last.wait(60), "a call of another thread does not end"
        if self.errors:
            raise self.errors[0]


def play(path: Path, seed: int, steps: int, intruder: str) -> str:
    """All of it; what was done, in a line.

    Modules are loaded before: a module that is needed while it is being loaded, by a finaliser of
    the same thread, is there in part only, in any package of Python.
    """
    import_all()
    rng = random.Random(seed)
    with logstore.open(path, background=False, node_max_entries=16) as store:
        made = Play(store, random.Random(seed + 1))
        others = Others(made)

        def intrude() -> None:
            kinds = ("finaliser", "thread") if intruder == "both" else (intruder,)
            if rng.choice(kinds) == "thread":
                others.let()
            else:
                made.step()

        with Collector(intrude) as collector:
            for number in range(1, steps + 1):
                if not collector.waits:
                    # The lane makes three or four objects an add, the pipeline a hundred.
                    collector.after(rng.choice([1, 2, 3, 4, 5, 6, rng.randrange(7, 150)]))
                made.step()
                if number % CHECKED_EVERY == 0 or number == steps:
                    collector.after(0)
                    others.settle()
                    made.check()
        others.wanted.put(None)
        laned = lane_commits(store)
        assert not engine_of(store).lock.held
        assert collector.done > steps // 20, "nobody came in between"
    delete_index(path)
    with logstore.open(path, background=False) as store:
        made.store = store
        made.check()  # what the frames alone say
    calls = ", ".join(f"{name} {count}" for name, count in sorted(made.outcomes.items()))
    return (
        f"{collector.count} collections, {collector.done} intrusions, {laned} in the lane: {calls}"
    )


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.dump_traceback_later(NO_LONGER_S, exit=True)
    print(play(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
