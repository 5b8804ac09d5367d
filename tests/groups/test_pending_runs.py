"""Pending entries in runs: the editor of runs against a dictionary, and what a rebuild gives."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import ack, admin, claim, deliver, group_rows
from logstore.engine.runtime.group_state import PendingSet
from logstore.engine.snapshots import snapshot
from logstore.engine.txn import nodes, pel
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.group_keys import RUN_MAX_ENTRIES, PendingRun
from logstore.index.group_txn import FIRST, LAST
from tests import seeds
from tests.groups.shop import shop

GROUP = 7
ids_of = st.builds(
    lambda start, step, count: list(range(start, start + step * count, step)),
    st.integers(0, 300), st.integers(1, 5), st.integers(1, 200),
)  # fmt: skip
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), ids_of, st.integers(0, 3)),
        st.tuples(st.just("extend"), ids_of, st.integers(1, 3)),
        st.tuples(st.just("remove"), ids_of, st.just(0)),
        st.tuples(st.just("leave"), st.just([0]), st.integers(1, 3)),
    ),
    max_size=12,
)


def packed(number: int) -> bytes:
    """The ID ``0-number``, as a run holds it."""
    return StreamID(0, number).packed()


def shape(state: WriteTxn) -> dict[int, tuple[int, int, int]]:
    """What the runs say, after their form was checked."""
    txn = state.groups.index
    found: dict[int, tuple[int, int, int]] = {}
    last = -1
    idle: list[tuple[int, bytes]] = []
    for run in txn.runs(GROUP):
        assert 0 < len(run) <= RUN_MAX_ENTRIES
        assert PendingRun.unpack(run.pack()).pack() == run.pack()
        idle.append((run.oldest_ms, run.first))
        for _, number, *rest in run.between(FIRST, LAST):
            assert number > last
            last = number
            found[number] = (rest[0], rest[1], rest[2])
    assert sorted(idle) == list(txn.idle(GROUP))
    return found


@settings(max_examples=150, deadline=None)
@given(steps)
def test_runs_hold_what_a_dictionary_would(script: list[Any]) -> None:
    """Prevents: an entry lost, doubled or out of place where runs are split, joined to or emptied;
    an idle index that differs from the runs; counts that differ from what changed."""
    import tempfile

    with tempfile.TemporaryDirectory() as place, logstore.open(Path(place) / "s") as store:

        def play(state: WriteTxn) -> None:
            model: dict[int, tuple[int, int, int]] = {}
            for time_ms, (what, numbers, consumer) in enumerate(script, 5):
                pending = PendingSet(state.groups.index, GROUP)
                before = [value[0] for value in model.values()]
                if what == "put":
                    pending.put([(0, n, time_ms, n) for n in numbers], consumer)
                    model.update({n: (consumer, time_ms, n) for n in numbers})
                elif what == "extend":
                    pending.extend(b"".join(map(packed, numbers)), consumer, time_ms, 1)
                    model.update(dict.fromkeys(numbers, (consumer, time_ms, 1)))
                elif what == "remove":
                    pending.remove(b"".join(map(packed, numbers)))
                    model = {n: v for n, v in model.items() if n not in numbers}
                else:
                    pending.remove_of(consumer)
                    model = {n: v for n, v in model.items() if v[0] != consumer}
                pending.flush()
                after = [value[0] for value in model.values()]
                for each in range(4):
                    changed = after.count(each) - before.count(each)
                    assert pending.changes.get(each, 0) == changed
                assert shape(state) == model
            oldest = sorted((v[1], n) for n, v in model.items())
            walked = [(w.time_ms, w.id.seq) for w in pel.by_idle(state.groups.index, GROUP, 8)]
            assert walked == [pair for pair in oldest if pair[0] <= 8]

        store._opened.commit(play, None)


def group_content(store: Any) -> Any:
    """All that is told of the group, but for times that pass."""
    engine = store._engine()

    def once(view: Any) -> Any:
        asked = group_rows.PendingRange(ZERO_ID, MAX_ID, 10**6, 1 << 50)
        rows = group_rows.detail(view, b"s", b"g", asked)
        consumers = group_rows.consumer_rows(view, b"s", b"g", 1 << 50)
        found = view.index.group(view.record(b"s").number, b"g")
        runs = [run.pack() for run in view.index.groups.runs(found.number)]
        return found, rows, consumers, group_rows.group_rows(view, b"s"), runs

    return snapshot.read(engine, once)


def random_step(chance: random.Random, store: Any) -> None:
    """One random operation on the group."""
    who = chance.choice([b"a", b"b", b"c"])
    count = chance.randint(1, 90)
    rows = group_content(store)[1]
    some = [row.id for row in chance.sample(rows, min(len(rows), count))]
    moves: list[Any] = [
        lambda t: deliver.read_new(t, b"s", b"g", who, count=count),
        lambda t: deliver.read_history(t, b"s", b"g", who, ZERO_ID, count=count),
        lambda t: ack.ack(t, b"s", b"g", some),
        lambda t: ack.nack(t, b"s", b"g", some[:7]),
        lambda t: claim.autoclaim(t, b"s", b"g", who, min_idle_ms=0, count=count),
        lambda t: admin.delete_consumer(t, b"s", b"g", who),
    ]
    weights = [8, 2, 3, 2, 2, 0.3]
    if some:
        moves.append(lambda t: claim.claim(t, b"s", b"g", who, some, min_idle_ms=0))
        weights.append(2)
    store._opened.commit(chance.choices(moves, weights)[0], None)


def test_a_rebuild_gives_the_groups_back(tmp_path: Path) -> None:
    """Prevents: a delivery, claim or ack that only the index knows; counts that drift when a
    checkpoint stands between frames; a checkpoint without groups."""
    seed = seeds.seed()
    print("seed", seed)
    chance = random.Random(seed)
    path = tmp_path / "s"
    with logstore.open(path) as store:
        store.stream("s").add_many([{"n": n} for n in range(3000)])
        store._opened.commit(lambda t: admin.create(t, b"s", b"g", ZERO_ID), None)
    for round_number in range(6):
        with logstore.open(path) as store:
            for _ in range(40):
                random_step(chance, store)
            if round_number % 2:
                store.checkpoint()
                for _ in range(10):
                    random_step(chance, store)
            expected = group_content(store)
        assert expected[0].pending == len(expected[1])
        if round_number != 4:
            shutil.rmtree(path / "index")
        with logstore.open(path) as store:
            assert group_content(store) == expected


def test_a_dropped_stream_takes_its_groups_along(tmp_path: Path) -> None:
    """Prevents: a stream made anew under the same name that meets the old one's groups."""
    path = tmp_path / "s"
    for again in range(2):
        with logstore.open(path) as store:
            store.stream("s").add({"a": 1})
            store._opened.commit(lambda t: admin.create(t, b"s", b"g", ZERO_ID), None)
            store._opened.commit(lambda t: deliver.read_new(t, b"s", b"g", b"a"), None)
            assert group_content(store)[0].pending == 1
            store.drop("s")
            engine = store._engine()
            left = snapshot.read(engine, lambda view: list(view.index.groups.all_groups()))
            assert left == []
            if again:
                store.checkpoint()
        shutil.rmtree(path / "index")
        with logstore.open(path) as store:
            engine = store._engine()
            left = snapshot.read(engine, lambda view: list(view.index.groups.all_groups()))
            assert left == []
            entries = engine.index().entries()
            assert entries["groups"] == 0


def test_pages_of_pending_entries_go_back(tmp_path: Path) -> None:
    """Prevents: rows of the idle index or of consumers that stay behind when all is acknowledged
    and everybody has left."""
    with logstore.open(tmp_path / "s") as store:
        store.stream("s").add_many([{"n": n} for n in range(1000)])
        store._opened.commit(lambda t: admin.create(t, b"s", b"g", ZERO_ID), None)
        given_out = store._opened.commit(lambda t: deliver.read_new(t, b"s", b"g", b"a"), None)
        store._opened.commit(lambda t: ack.ack(t, b"s", b"g", [e.id for e in given_out]), None)
        store._opened.commit(lambda t: admin.delete_consumer(t, b"s", b"g", b"a"), None)
        assert store._engine().index().entries()["groups"] == 2  # the record and the name


@pytest.mark.parametrize("timeout", [0, 30])
def test_trimmed_pending_entries_are_skipped_by_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    """It stays pending without end in a group without settings, and each read passes it."""
    looked = 0
    go = nodes.Lookup._go

    def counted(self: nodes.Lookup, id: StreamID) -> bool:
        nonlocal looked
        looked += 1
        return go(self, id)

    entries = 20 * RUN_MAX_ENTRIES
    with shop(tmp_path, entries) as (store, group, clock):
        group.read("gone")
        clock.ms += 1000
        work = store.stream("work")
        work.trim(max_entries=3, approximate=False)
        monkeypatch.setattr(nodes.Lookup, "_go", counted)
        taken = group.read("a", min_idle=1, timeout=timeout)
        assert [each.id.ms for each in taken] == [entries - 2, entries - 1, entries]
        assert looked <= 3 * RUN_MAX_ENTRIES
        work.trim(max_entries=0, approximate=False)
        clock.ms += 1000
        looked = 0
        assert group.read("b", min_idle=1, timeout=timeout and 0.01) == []
        assert not looked
        assert group.pending().count == entries
