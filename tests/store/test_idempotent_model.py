"""Prevents an idempotent add from being swallowed, repeated, or remembered wrongly."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import logstore
from logstore.recovery.check import check
from logstore.recovery.compare import AGREES
from tests.model.groups import ID
from tests.model.store import StoreModel
from tests.support.inside import FixedClock, roll

STREAMS, PRODUCERS, NAMES = ("a", "b"), (b"p", b"q"), (b"1", b"2", b"3", b"4")
streams, producers, names = map(st.sampled_from, (STREAMS, PRODUCERS, NAMES))


class Idempotent(RuleBasedStateMachine):
    """The store beside the model."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp()) / "store"
        self.clock = FixedClock(1_700_000_000_000)
        self.model = StoreModel(self.clock.ms)
        self.store = self.opened()

    def opened(self) -> logstore.Store[bytes]:
        return logstore.open(
            self.path, sync="os", background=False, clock=self.clock, node_max_entries=3
        )

    def teardown(self) -> None:
        self.store.close()
        report = check(self.path)
        shutil.rmtree(self.path.parent)
        assert not report.damage, report.damage
        assert report.index == AGREES or not report.commits

    @rule(ms=st.sampled_from([1, 400, 1000, 1001, 100_000]))
    def time_goes_by(self, ms: int) -> None:
        self.clock.ms += ms
        self.model.now = self.clock.ms

    @rule(stream=streams, producer=producers, name=names)
    def add(self, stream: str, producer: bytes, name: bytes) -> None:
        wanted = self.model.add_once(stream.encode(), ((b"n", name),), producer, name)
        given = self.store[stream].add({"n": name}, producer=producer, idempotent_id=name)
        assert given == wanted

    @rule(stream=streams, producer=producers, rows=st.lists(names, min_size=1, max_size=9),
          batch=st.integers(1, 9), in_transaction=st.booleans())  # fmt: skip
    def add_many(
        self, stream: str, producer: bytes, rows: list[bytes], batch: int, in_transaction: bool
    ) -> None:
        wanted = [
            self.model.add_once(stream.encode(), ((b"n", name),), producer, name) for name in rows
        ]
        given: Any
        if in_transaction:
            with self.store.transaction() as tx:
                into = tx.stream(stream)
                each = [into.add({"n": n}, producer=producer, idempotent_id=n) for n in rows]
            given = [one.id for one in each]
        else:
            named = [(name, {"n": name}) for name in rows]
            given = list(self.store[stream].add_many(named, producer=producer, batch=batch))
        assert given == wanted

    @rule(stream=streams)
    def add_plainly(self, stream: str) -> None:
        wanted = self.model.add(stream.encode(), ((b"n", b"plain"),))
        assert self.store[stream].add({"n": "plain"}) == wanted

    @rule(stream=streams, place=st.integers(0, 8))
    def delete(self, stream: str, place: int) -> None:
        live = self.live(stream)
        if live:
            id = live[-1 - place % len(live)]
            assert self.store[stream].delete(id) == 1
            self.model.delete(stream.encode(), [id])

    @rule(stream=streams, keep=st.integers(0, 3))
    def trim(self, stream: str, keep: int) -> None:
        self.store[stream].trim(max_entries=keep, approximate=False)
        self.model.trim(stream.encode(), keep, None)

    @rule(stream=streams, duration_s=st.sampled_from([1, 2, 100]), max_ids=st.integers(1, 4))
    def configure(self, stream: str, duration_s: int, max_ids: int) -> None:
        self.store[stream].configure(
            idempotent_duration=duration_s, idempotent_max_ids=max_ids, max_entries=1000
        )
        limits = {"idempotent_duration_s": duration_s, "idempotent_max_ids": max_ids}
        self.model.configure(stream.encode(), **limits)

    @rule(stream=streams)
    def lower_the_last_id(self, stream: str) -> None:
        model = self.model.seen(stream.encode())
        if model is not None:
            last = max([model.max_deleted, *model.entries, (1, 1)])
            self.store[stream].set_id(last)
            self.model.set_id(stream.encode(), last, None, None)

    @rule(stream=streams)
    def drop(self, stream: str) -> None:
        self.store.drop(stream)
        self.model.drop(stream.encode())

    @rule(lose_the_index=st.booleans())
    def reopen(self, lose_the_index: bool) -> None:
        self.store.close()
        if lose_the_index:
            shutil.rmtree(self.path / "index")
        self.store = self.opened()

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    @rule()
    def compact(self) -> None:
        roll(self.store)
        self.store.compact()

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        assert self.store.streams() == self.model.names()
        for name, model in self.model.streams.items():
            stream = self.store.stream(name)
            assert [entry.id for entry in stream] == list(model.entries)
            info = stream.info()
            told = (info.iids_added, info.iids_duplicates)
            assert told == (model.iids_added, model.iids_duplicates)
            known = model.remembered
            producers_known = {producer for producer, _, _ in known}
            assert (info.pids_tracked, info.iids_tracked) == (len(producers_known), len(known))

    def live(self, stream: str) -> list[ID]:
        """The IDs of a stream's entries."""
        found = self.model.seen(stream.encode())
        return [] if found is None else list(found.entries)


TestIdempotent = Idempotent.TestCase
TestIdempotent.settings = settings(max_examples=40, stateful_step_count=40)
