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
from logstore import StreamID
from logstore.ids import ZERO_ID
from logstore.recovery.check import check
from logstore.recovery.compare import AGREES
from tests.support.inside import FixedClock, roll

STREAMS, PRODUCERS, NAMES = ("a", "b"), (b"p", b"q"), (b"1", b"2", b"3", b"4")
streams, producers, names = map(st.sampled_from, (STREAMS, PRODUCERS, NAMES))


class Model:
    """One stream: its live entries, and what is known of each producer, oldest first."""

    def __init__(self) -> None:
        self.live: list[StreamID] = []
        self.last = self.max_deleted = ZERO_ID
        self.known: dict[bytes, dict[bytes, StreamID]] = {}
        self.duration_ms, self.max_ids = 100_000, 100
        self.added = self.duplicates = 0
        self.made = False  # whether it is there without ever having had an entry

    def given(self, now_ms: int) -> StreamID:
        """The ID of one more entry."""
        self.last = StreamID(now_ms, 0) if now_ms > self.last.ms else self.last.next()
        self.live.append(self.last)
        return self.last

    def add(self, producer: bytes, name: bytes, now_ms: int) -> StreamID:
        """The ID that an idempotent add gives."""
        mine = self.known.setdefault(producer, {})
        before = mine.get(name)
        if before is not None and before.ms > now_ms - self.duration_ms and before in self.live:
            self.duplicates += 1
            self.expire(now_ms)
            return before
        mine.pop(name, None)
        mine[name] = self.given(now_ms)
        self.added += 1
        self.expire(now_ms)
        while len(mine) > self.max_ids:
            del mine[next(iter(mine))]
        return mine[name]

    def expire(self, now_ms: int) -> None:
        """Forget what is over its time."""
        for mine in self.known.values():
            for name in [each for each, id in mine.items() if id.ms <= now_ms - self.duration_ms]:
                del mine[name]

    def gone(self, id: StreamID) -> None:
        """An entry was deleted."""
        self.live.remove(id)
        self.max_deleted = max(self.max_deleted, id)


class Idempotent(RuleBasedStateMachine):
    """The store beside the model."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp()) / "store"
        self.clock = FixedClock(1_700_000_000_000)
        self.models = {name: Model() for name in STREAMS}
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

    @rule(stream=streams, producer=producers, name=names)
    def add(self, stream: str, producer: bytes, name: bytes) -> None:
        wanted = self.models[stream].add(producer, name, self.clock.ms)
        given = self.store[stream].add({"n": name}, producer=producer, idempotent_id=name)
        assert given == wanted

    @rule(stream=streams, producer=producers, rows=st.lists(names, min_size=1, max_size=9),
          batch=st.integers(1, 9), in_transaction=st.booleans())  # fmt: skip
    def add_many(
        self, stream: str, producer: bytes, rows: list[bytes], batch: int, in_transaction: bool
    ) -> None:
        wanted = [self.models[stream].add(producer, name, self.clock.ms) for name in rows]
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
        assert self.store[stream].add({"n": "plain"}) == self.models[stream].given(self.clock.ms)

    @rule(stream=streams, place=st.integers(0, 8))
    def delete(self, stream: str, place: int) -> None:
        model = self.models[stream]
        if model.live:
            id = model.live[-1 - place % len(model.live)]
            assert self.store[stream].delete(id) == 1
            model.gone(id)

    @rule(stream=streams, keep=st.integers(0, 3))
    def trim(self, stream: str, keep: int) -> None:
        model = self.models[stream]
        self.store[stream].trim(maxlen=keep)
        del model.live[: max(0, len(model.live) - keep)]

    @rule(stream=streams, duration_s=st.sampled_from([1, 2, 100]), max_ids=st.integers(1, 4))
    def configure(self, stream: str, duration_s: int, max_ids: int) -> None:
        model = self.models[stream]
        self.store[stream].configure(
            idempotent_duration=duration_s, idempotent_max_ids=max_ids, max_entries=1000
        )
        if (model.duration_ms, model.max_ids) != (duration_s * 1000, max_ids):
            model.known.clear()
        model.duration_ms, model.max_ids = duration_s * 1000, max_ids
        model.made = True

    @rule(stream=streams)
    def lower_the_last_id(self, stream: str) -> None:
        model = self.models[stream]
        if stream in [name.decode() for name in self.store.streams()]:
            last = max([model.max_deleted, *model.live, StreamID(1, 1)])
            self.store[stream].set_id(last)
            model.last = last
            for mine in model.known.values():
                for name in [each for each, id in mine.items() if id > last]:
                    del mine[name]

    @rule(stream=streams)
    def drop(self, stream: str) -> None:
        self.store.drop(stream)
        self.models[stream] = Model()

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
        there = [name.decode() for name in self.store.streams()]
        for name, model in self.models.items():
            if name not in there:
                assert not model.made
                assert model.last == ZERO_ID
                continue
            stream = self.store[name]
            assert [entry.id for entry in stream] == model.live
            info = stream.info()
            assert (info.iids_added, info.iids_duplicates) == (model.added, model.duplicates)
            mine = [len(each) for each in model.known.values() if each]
            assert (info.pids_tracked, info.iids_tracked) == (len(mine), sum(mine))


TestIdempotent = Idempotent.TestCase
TestIdempotent.settings = settings(max_examples=40, stateful_step_count=40)
