"""Prevents retention from dropping what is to be kept, keeping what is to go, or cutting nodes."""

from __future__ import annotations

import os
import random
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.recovery.check import check
from tests import seeds
from tests.retention.retained import ids_of, kept, nodes_of, opened
from tests.support.inside import START_MS, FixedClock

RULES: list[dict[str, int]] = [
    {"max_entries": 35},
    {"max_entries": 0},
    {"max_age_ms": 4_000},
    {"max_bytes": 1_500},
    {"max_bytes": 0},
    {"max_entries": 60, "max_age_ms": 6_000},
    {"max_entries": 90, "max_age_ms": 9_000, "max_bytes": 3_000},
]


def configure(store: logstore.Store[bytes], name: bytes, rule: dict[str, Any]) -> None:
    given = dict(rule)
    if "max_age_ms" in given:
        given["max_age"] = timedelta(milliseconds=given.pop("max_age_ms"))
    store.stream(name).configure(**given)


def filled(store: logstore.Store[bytes], name: bytes, clock: FixedClock, count: int = 105) -> None:
    """One entry a 100 ms."""
    for n in range(count):
        store.stream(name).add({"n": n, "pad": "x" * (n % 40)})
        clock.ms += 100


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_retention_keeps_the_entries_of_the_model(tmp_path: Path, rule: dict[str, int]) -> None:
    path, clock = tmp_path / "store", FixedClock()
    with opened(path, clock) as store:
        filled(store, b"s", clock)
        filled(store, b"free", clock, 30)
        before, free = nodes_of(store, b"s"), ids_of(store, b"free")
        configure(store, b"s", rule)
        expected = kept(before, clock.ms, **rule)
        assert expected != before, "there must be something to drop"
        info = store.stream("s").info()
        dropped = store.retain()
        assert nodes_of(store, b"s") == expected
        assert dropped == sum(len(node.ids) for node in before) - len(store.stream("s"))
        after = store.stream("s").info()
        assert after.length == sum(len(node.ids) for node in expected)
        assert after.last_generated_id == info.last_generated_id
        assert after.entries_added == info.entries_added
        assert after.max_deleted_entry_id == info.max_deleted_entry_id
        assert ids_of(store, b"free") == free
        assert store.retain() == 0
        assert store.metrics()["retained_entries"] == dropped
        last = after.as_dict()
    shutil.rmtree(path / "index")
    with opened(path, clock) as store:
        assert nodes_of(store, b"s") == expected
        assert store.stream("s").info().as_dict() == last
    assert check(path).damage == []


def test_random_histories_end_where_the_model_does(tmp_path: Path) -> None:
    """Adds, deletes, trims, changed settings, a clock that goes back, checkpoints, rebuilds."""
    seed = seeds.seed()
    print(f"LOGSTORE_SEED={seed}")
    chance, path, clock = random.Random(seed), tmp_path / "store", FixedClock()
    store = opened(path, clock)
    rules: dict[bytes, dict[str, int]] = {}
    try:
        for _ in range(150):
            name = b"s%d" % chance.randrange(3)
            stream = store.stream(name)
            clock.ms += chance.choice((0, 1, 50, 900, -3_000))
            rows = [
                {"n": n, "pad": "x" * chance.choice((0, 9, 90, 900))}
                for n in range(chance.choice((1, 1, 8, 40)))
            ]
            stream.add_many(rows, batch=chance.choice((1, 1000)))
            if chance.random() < 0.3:
                live = ids_of(store, name)
                stream.delete(*chance.sample(live, min(len(live), chance.choice((1, 20)))))
            if chance.random() < 0.1:
                stream.trim(max_entries=len(stream) // 2, approximate=False)
            if chance.random() < 0.3:
                rules[name] = {
                    "max_age_ms": chance.choice((500, 5_000)),
                    "max_entries": chance.choice((0, 7, 50)),
                    "max_bytes": chance.choice((0, 700, 5_000)),
                }
                for each in chance.sample(sorted(rules[name]), chance.randrange(3)):
                    del rules[name][each]
                cleared = {"max_age": None, "max_entries": None, "max_bytes": None}
                stream.configure(**cleared)
                configure(store, name, rules[name])
            expected = {}
            for each in map(bytes, store.streams()):
                expected[each] = kept(nodes_of(store, each), clock.ms, **rules.get(each, {}))
            store.retain()
            if chance.random() < 0.1:
                store.checkpoint()
            if chance.random() < 0.1:
                store.close()
                shutil.rmtree(path / "index")
                store = opened(path, clock)
            for each, left in expected.items():
                assert nodes_of(store, each) == left, each
                assert len(store.stream(each)) == sum(len(node.ids) for node in left)
    finally:
        store.close()
    assert check(path).damage == []


def test_a_clock_that_goes_back_drops_nothing(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path / "store", clock) as store:
        filled(store, b"s", clock)
        store.stream("s").configure(max_age=timedelta(seconds=20))
        clock.ms = START_MS - 10**9
        assert store.retain() == 0
        clock.ms = 5  # before there can have been such an age
        assert store.retain() == 0
        clock.ms = START_MS + 10**9
        assert store.retain() == 105
        assert "s" in store


def test_an_entry_larger_than_max_bytes_stays_while_it_is_the_last(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path / "store", clock) as store:
        stream = store.stream("s")
        stream.configure(max_bytes=1000)
        for _ in range(3):
            stream.add({"big": b"x" * 9000})  # a node of its own, sealed at once
            store.retain()
            assert len(stream) == 1
        stream.add({"small": 1})
        store.retain()
        assert [entry.fields for entry in stream] == [{b"small": b"1"}]


def test_nodes_without_limits_are_dropped_too(tmp_path: Path) -> None:
    """More entries in a node than one call of approximate trimming would take by default."""
    clock = FixedClock()
    options = {"node_max_entries": 0, "node_max_bytes": 200_000, "segment_bytes": 1 << 20}
    with opened(tmp_path / "store", clock, **options) as store:
        stream = store.stream("s")
        stream.add_many(({"n": n} for n in range(60_000)), batch=60_000)
        stream.configure(max_entries=1)
        first = nodes_of(store, b"s")
        assert len(first[0].ids) > 10_000
        store.retain()
        assert nodes_of(store, b"s") == first[-1:]


def test_dropped_entries_stay_pending(tmp_path: Path) -> None:
    """As XTRIM with KEEPREF, the default of the peers."""
    path, clock = tmp_path / "store", FixedClock()
    with opened(path, clock) as store:
        filled(store, b"s", clock, 50)
        group = store.stream("s").group("g", start="0")
        held = [delivery.id for delivery in group.read("a", count=25)]
        store.stream("s").configure(max_entries=10)
        assert store.retain() == 40
        assert [entry.id for entry in group.pending_entries(count=100)] == held
        assert [delivery.fields for delivery in group.backlog("a", count=100)] == [None] * 25
        assert len(group.read("b", count=100)) == 10
        assert group.ack(*held) == 25
    shutil.rmtree(path / "index")
    with opened(path, clock) as store:
        assert store.stream("s").group("g").pending().count == 10


def test_a_range_goes_on_while_its_stream_is_trimmed(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path / "store", clock) as store:
        stream = store.stream("s")
        ids = list(stream.add_many({"n": n} for n in range(3000)))
        walk = iter(stream.range())
        assert next(walk).id == ids[0]
        stream.configure(max_entries=500)
        assert store.retain() == 2500
        store.compact()
        rest = [entry.id for entry in walk]
        assert rest[-500:] == ids[-500:]
        assert rest == sorted(rest)
        assert [entry.id for entry in stream] == ids[-500:]


def test_a_damaged_node_does_not_keep_other_streams_from_it(tmp_path: Path) -> None:
    """The stream whose next node cannot be read is passed over, and told of, in the background."""
    from logstore.engine.features.retention import Retention

    path, clock = tmp_path / "store", FixedClock()
    with opened(path, clock) as store:
        for name in ("a", "b"):
            store.stream(name).add_many({"n": n, "pad": os.urandom(50)} for n in range(3000))
            store.stream(name).configure(max_entries=5)
        store.stream("a").configure(max_entries=2000)
        first_kept = list(store.stream("a"))[1005].fields[b"pad"]
    for file in sorted((path / "log").glob("*.log")):
        data = file.read_bytes()
        file.write_bytes(data.replace(first_kept, first_kept[::-1]))
    with opened(path, clock) as store:
        shared = store._live()
        retention = Retention(shared.engine, shared.committer)
        for _ in range(5):
            retention._next_s = 0.0
            retention.tick()
        assert len(store.stream("b")) == 10
        assert len(store.stream("a")) == 3000
