"""Prevents streams whose names and times differ after a replay, a checkpoint taken meanwhile, or a
death: random changes against a model."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.maintenance import checkpoint
from logstore.engine.snapshots import snapshot
from logstore.errors import StreamNotFoundError
from logstore.recovery import compare
from logstore.recovery.check import check
from tests.model.store import StoreModel
from tests.schedules.due import opened, values
from tests.support.dying import POINTS, killed_at
from tests.support.inside import FixedClock, delete_index, do_due_work

NAMES = ("a", "b", "c", "d")
FAR_MS = 1_000_000


class Held(NamedTuple):
    """What a stream holds, and when it expires."""

    texts: tuple[str, ...]
    expires_ms: int = 0


State = dict[str, Held]


class StoreBesideModel:
    """One store and its model."""

    def __init__(self, store: Store[Any], clock: FixedClock, chance: random.Random) -> None:
        self.store = store
        self.clock = clock
        self.chance = chance
        self.model = StoreModel(clock.ms)

    def name(self) -> str:
        """One of the names."""
        return self.chance.choice(NAMES)

    def step(self) -> None:
        """One change, in the store and in the model."""
        change = self.chance.choices(
            (self._add, self._rename, self._copy, self._drop, self._expire, self._persist,
             self._wait),
            (6, 6, 2, 1, 3, 1, 2),
        )[0]  # fmt: skip
        change()

    def _add(self) -> None:
        name, text = self.name(), str(self.chance.randrange(1 << 40))
        self.store.stream(name).add({"n": text})
        self.model.add(name.encode(), ((b"n", text.encode()),))

    def _rename(self) -> None:
        old, new, replace = self.name(), self.name(), self.chance.random() < 0.8
        if self.model.seen(old.encode()) is None:
            with pytest.raises(StreamNotFoundError):
                self.store.rename(old, new, replace=replace)
        else:
            done = self.store.rename(old, new, replace=replace)
            assert done == self.model.rename(old.encode(), new.encode(), replace=replace)

    def _copy(self) -> None:
        source, target = self.chance.sample(NAMES, 2)
        replace = self.chance.random() < 0.5
        if self.model.seen(source.encode()) is not None:
            done = self.store.copy(source, target, replace=replace)
            assert done == self.model.copy(source.encode(), target.encode(), replace=replace)

    def _drop(self) -> None:
        name = self.name()
        assert self.store.drop(name) == self.model.drop(name.encode())

    def _expire(self) -> None:
        name = self.name()
        at_ms = self.clock.ms + self.chance.choice((-5, 0, 1, 7, 30, FAR_MS))
        assert self.store.stream(name).expire(at=at_ms) == self.model.expire(name.encode(), at_ms)

    def _persist(self) -> None:
        name = self.name()
        assert self.store.stream(name).persist() == self.model.persist(name.encode())

    def _wait(self) -> None:
        self.clock.ms += self.chance.randrange(20)
        self.model.now = self.clock.ms
        if self.chance.random() < 0.5:
            do_due_work(self.store)

    def check(self) -> None:
        """The store is as the model says."""
        state = held(self.model)
        assert store_state(self.store) == state
        for name in NAMES:
            assert (name in self.store) == (name in state)


def held(model: StoreModel) -> State:
    """What a model holds, as ``store_state`` tells of a store."""
    found: State = {}
    for name in model.names():
        of = model.streams[name]
        texts = tuple(value.decode() for ((_, value),) in of.entries.values())
        found[name.decode()] = Held(texts, of.expires_ms)
    return found


def store_state(store: Store[Any]) -> State:
    """What a store holds."""
    found: State = {}
    for name in store.streams():
        stream = store.stream(name)
        at = stream.expires_at
        expires_ms = 0 if at is None else round(at.timestamp() * 1000)
        found[name] = Held(tuple(values(stream)), expires_ms)
        assert stream.info().length == len(stream) == len(found[name].texts)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_a_store_is_the_same_however_it_is_opened(tmp_path: Path, seed: int) -> None:
    chance, clock, path = random.Random(seed), FixedClock(), tmp_path / "s"
    model = StoreModel(clock.ms)
    for round_ in range(6):
        if chance.random() < 0.4 and round_:
            delete_index(path)
        with opened(path, clock) as store:
            run = StoreBesideModel(store, clock, chance)
            run.model = model
            run.check()
            for _ in range(25):
                run.step()
                run.check()
                if chance.random() < 0.04:
                    store.checkpoint()
        assert check(path).index == compare.AGREES
    with logstore.open(path, encoding="utf-8", readonly=True, clock=clock) as store:
        state = held(model)
        assert store_state(store) == state
        clock.ms += FAR_MS * 2
        assert store_state(store) == {
            name: each for name, each in state.items() if not each.expires_ms
        }


@pytest.mark.parametrize("seed", range(40))
def test_a_checkpoint_while_all_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Streams change their names between any two snapshots of it: each name is bound to the right
    one after a replay from its position."""
    chance, clock, path = random.Random(seed), FixedClock(), tmp_path / "s"
    with opened(path, clock) as store:
        run = StoreBesideModel(store, clock, chance)
        for _ in range(20):
            run.step()
        read, busy = snapshot.read, False

        def between(engine: Any, batch: Any, *given: Any) -> Any:
            nonlocal busy
            if not busy and getattr(batch, "func", None) is checkpoint._streams:
                busy = True
                for _ in range(chance.randrange(6)):
                    run.step()
                busy = False
            return read(engine, batch, *given)

        monkeypatch.setattr(checkpoint, "STREAMS_A_CHUNK", 1)
        monkeypatch.setattr(checkpoint.snapshot, "read", between)
        store.checkpoint()
        monkeypatch.undo()
        for _ in range(seed % 3):
            run.step()
        run.check()
    delete_index(path)
    with opened(path, clock) as store:
        assert store.recovery["rebuilt"]
        run.store = store
        run.check()
        for _ in range(20):
            run.step()
            run.check()
    assert check(path).index == compare.AGREES


def test_a_new_stream_gets_back_a_name_that_another_had_by_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that had the name when the checkpoint began is read first, under its old name; the
    replay gives it the name of the new one for a while."""
    clock, path = FixedClock(), tmp_path / "s"
    with opened(path, clock) as store:
        store.stream("n").add({"n": "old"})
        rows, pages = checkpoint._streams, 0

        def page(view: Any, after: int) -> Any:
            nonlocal pages
            pages += 1
            return rows(view, after)

        read = snapshot.read

        def between(engine: Any, batch: Any, *given: Any) -> Any:
            if pages == 1 and getattr(batch, "func", None) is page and "m" not in store:
                store.rename("n", "m")
                store.rename("m", "n")
                store.stream("m").add({"n": "new"})
            return read(engine, batch, *given)

        monkeypatch.setattr(checkpoint, "STREAMS_A_CHUNK", 1)
        monkeypatch.setattr(checkpoint, "_streams", page)
        monkeypatch.setattr(checkpoint.snapshot, "read", between)
        store.checkpoint()
        monkeypatch.undo()
        assert pages == 3
        expected = store_state(store)
    delete_index(path)
    with opened(path, clock) as store:
        assert store_state(store) == expected == {"n": Held(("old",)), "m": Held(("new",))}
    assert check(path).index == compare.AGREES


DEATHS: dict[str, Any] = {
    "rename": lambda store: store.rename("a", "b"),
    "copy": lambda store: store.copy("a", "b", replace=True),
    "expire": lambda store: store.stream("a").expire(at=5_000_000_000_000),
    "add to an expired one": lambda store: store.stream("x").add({"n": "new"}),
    "drop what expired": do_due_work,
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("what", DEATHS)
def test_a_killed_expiry_is_finished_by_the_next_writer(
    tmp_path: Path, what: str, point: str
) -> None:
    """Before the append nothing of it is there; behind it all of it."""
    clock, path = FixedClock(), tmp_path / "s"
    states: list[State] = []
    with opened(path, clock) as store:
        for name in ("a", "b", "x"):
            store.stream(name).add({"n": name})
        store.stream("x").expire(after=1)
        clock.ms += 2000
        states.append(store_state(store))

        killed_at(point, store, lambda: DEATHS[what](store))
        assert store._engine().wake.log().in_progress
        store.stream("other").add({"n": "1"})  # whoever comes next settles it
        store.drop("other")
        after = store_state(store)
        if point != "announced" and what == "drop what expired":
            assert store._engine().index().entries()["streams"] == 2
        if point == "announced":
            assert after == states[0]
        else:
            assert (after == states[0]) == (what == "drop what expired")
            if what == "rename":
                assert after == {"b": Held(("a",))}
            elif what == "copy":
                assert after == {"a": Held(("a",)), "b": Held(("a",))}
            elif what.startswith("add"):
                assert after["x"] == Held(("new",))
    delete_index(path)
    with opened(path, clock) as store:
        assert store_state(store) == after
    assert check(path).index == compare.AGREES


def test_a_backup_holds_names_and_times(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        store.stream("a").add({"n": "1"})
        store.checkpoint()
        store.rename("a", "b")
        store.stream("b").expire(after=10)
        store.backup(tmp_path / "copy")
        expected = store_state(store)
    with opened(tmp_path / "copy", clock) as store:
        assert store_state(store) == expected
        clock.ms += 10_000
        assert store_state(store) == {}


def test_check_sees_a_time_that_the_index_lost(tmp_path: Path) -> None:
    from logstore.features.ttl_rows import ExpiryRows
    from logstore.index.txn import IndexTxn

    path = tmp_path / "s"
    with opened(path, FixedClock()) as store:
        store.stream("a").add({"n": "1"})
        store.stream("a").expire(after=10)
        generation = store._engine().index()
        with generation.env.begin(write=True) as txn:
            index = IndexTxn(generation, txn)
            record = index.record_by_name(b"a")
            assert record is not None
            ExpiryRows(index).delete(record)
    assert [each.why for each in check(path).damage] == [
        "index: when streams expire differs: delete the index directory",
    ]
