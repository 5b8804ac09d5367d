"""Prevents scheduled entries that a reopen, a rebuild or a checkpoint loses, doubles or reorders.

A store with a clock that is set by hand against a model of two lists a stream: what waits, and what
was added.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from logstore import ScheduleKey
from logstore.api.store import Store
from logstore.ids import StreamID
from logstore.recovery.check import check
from tests.schedules.due import opened, waiting
from tests.support.inside import FixedClock, delete_index, do_due_work

NAMES = ("a", "b")
BACK_MS, AHEAD_MS = 500, 2_000


class Machine(RuleBasedStateMachine):
    """Random operations, compared after each."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "store"
        self._clock = FixedClock()
        self._store: Store[Any] = opened(self._path, self._clock)
        self._number = 0
        self._waits: dict[str, dict[ScheduleKey, str]] = {}
        self._added: dict[str, list[tuple[StreamID, str]]] = {}
        self._gone: list[ScheduleKey] = []

    def teardown(self) -> None:
        """Close, check the store as ``logstore check`` does, and compare a last time."""
        self._store.stream("z").add({"n": "0"})  # a store that holds nothing has no index to check
        self._store.close()
        report = check(self._path)
        assert not report.damage
        assert report.index == "agrees with the log"
        delete_index(self._path)
        self._store = opened(self._path, self._clock)
        self.holds_what_the_model_says()
        self._store.close()
        self._folder.cleanup()

    def _make(self, name: str) -> None:
        self._waits.setdefault(name, {})
        self._added.setdefault(name, [])

    def _text(self) -> str:
        self._number += 1
        return str(self._number)

    def _took(self, name: str, text: str) -> None:
        """An entry was added now."""
        last = self._added[name][-1][0] if self._added[name] else StreamID(0, 0)
        now = StreamID(self._clock.ms, 0)
        self._added[name].append((now if now.ms > last.ms else last.next(), text))

    @rule(name=st.sampled_from(NAMES), ahead=st.integers(-BACK_MS, AHEAD_MS), at=st.booleans())
    def schedule(self, name: str, ahead: int, at: bool) -> None:
        """An entry for later, or for a time that has passed."""
        text = self._text()
        stream = self._store.stream(name)
        if at:
            key = stream.schedule({"n": text}, at=self._clock.ms + ahead)
        else:
            key = stream.schedule({"n": text}, after=max(0, ahead) / 1000)
        assert key is not None
        assert key.due_ms == self._clock.ms + (ahead if at else max(0, ahead))
        self._make(name)
        self._waits[name][key] = text

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 150), ahead=st.integers(0, AHEAD_MS))
    def schedule_many(self, name: str, count: int, ahead: int) -> None:
        """Some in one transaction: more than a batch, perhaps."""
        texts = [self._text() for _ in range(count)]
        due = self._clock.ms + ahead
        with self._store.transaction() as tx:
            made = [tx.stream(name).schedule({"n": text}, at=due) for text in texts]
        self._make(name)
        for pending, text in zip(made, texts, strict=True):
            assert pending.result is not None
            self._waits[name][pending.result] = text

    @rule(name=st.sampled_from(NAMES))
    def add(self, name: str) -> None:
        """A plain entry."""
        text = self._text()
        self._store.stream(name).add({"n": text})
        self._make(name)
        self._took(name, text)

    @rule(name=st.sampled_from(NAMES), place=st.integers(0, 1000))
    def cancel(self, name: str, place: int) -> None:
        """One that waits, or one that is gone."""
        keys = [*self._waits.get(name, {}), *self._gone]
        if keys:
            key = keys[place % len(keys)]
            there = self._waits.get(name, {}).pop(key, None) is not None
            assert self._store.stream(name).cancel(str(key)) == there
            self._gone.append(key)

    @rule(name=st.sampled_from(NAMES))
    def drop(self, name: str) -> None:
        """A stream with all that waits for it."""
        assert self._store.drop(name) == (name in self._added)
        self._gone += self._waits.pop(name, {})
        self._added.pop(name, None)

    @rule(by=st.integers(-BACK_MS, AHEAD_MS))
    def tick(self, by: int) -> None:
        """The clock goes on, or back; nobody is awake."""
        self._clock.ms += by

    @rule()
    def do_due_work(self) -> None:
        """Somebody wakes."""
        do_due_work(self._store)
        due = sorted(
            (key, name, text)
            for name, waits in self._waits.items()
            for key, text in waits.items()
            if key.due_ms <= self._clock.ms
        )
        for key, name, text in due:
            self._took(name, text)
            del self._waits[name][key]
            self._gone.append(key)

    @rule()
    def checkpoint(self) -> None:
        """A checkpoint, from which a later rebuild begins."""
        self._store.checkpoint()

    @rule()
    def compact(self) -> None:
        """Erasure: nothing of the log before is left, but for nodes."""
        self._store.compact(purge=True)

    @rule(lost=st.booleans())
    def reopen(self, lost: bool) -> None:
        """The store is closed and opened, perhaps without its index."""
        self._store.close()
        if lost:
            delete_index(self._path)
        self._store = opened(self._path, self._clock)

    @invariant()
    def holds_what_the_model_says(self) -> None:
        """Entries with IDs, what waits in order, counts, and the word that says when to wake."""
        for name in NAMES:
            stream = self._store.stream(name)
            found = [(entry.id, entry.fields["n"]) for entry in stream]
            assert found == self._added.get(name, [])
            waits = sorted(self._waits.get(name, {}).items())
            assert [(each.key, each.fields["n"]) for each in stream.scheduled()] == waits
            if name in self._added:
                assert stream.info().scheduled == len(waiting(stream)) == len(waits)
        keys = [key for waits in self._waits.values() for key in waits]
        assert self._store.info().scheduled == len(keys)
        assert self._store._engine().wake.next_due_ms == min(keys, default=(0,))[0]


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=15, stateful_step_count=25)
