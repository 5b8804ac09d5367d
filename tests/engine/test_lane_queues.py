"""Prevents a queue's work beside the pipeline that does otherwise than one through it.

With deletes, with readers that would wait, with any number of entries pending.

Judges: the same calls on a store without a lane, frame by frame, and the log alone.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.shm import wait_words, waiters
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.index import group_txn
from logstore.index.group_keys import PendingRun
from tests import seeds
from tests.engine.lane_log import (
    LANE_ONLY,
    Store,
    counts,
    frames_of,
    made,
    told_by,
    told_by_log,
    told_ids,
)
from tests.support.inside import engine_of, follow
from tests.support.processes import ForkedOnGo

pytestmark = LANE_ONLY
SEED = seeds.seed()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with made(tmp_path / "store") as opened:
        yield opened


def divided(store: Store) -> dict[bytes, list[tuple[bytes, int]]]:
    """How runs of pending entries are divided in the index: first IDs, and entries."""
    follow(store)

    def look(view: Snapshot) -> dict[bytes, list[tuple[bytes, int]]]:
        groups = view.index.groups
        return {
            group.name: [(run.first, len(run)) for run in groups.runs(group.number)]
            for group in groups.all_groups()
        }

    return snapshot.read(engine_of(store), look)  # type: ignore[no-any-return]


def test_numbers_of_waiters_are_those_of_python() -> None:
    layout = native_or_none.waiter_layout() | native_or_none.handover_layout()
    for name, value in layout.items():
        homes = (wait_words, waiters, waiters)
        assert value == next(vars(home)[name] for home in homes if name in vars(home)), name


# -- readers that would wait ---------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [1, 0.5, None, timedelta(seconds=1)])
def test_a_read_that_would_wait_need_not_where_entries_are_at_hand(
    store: Store, tmp_path: Path, timeout: Any
) -> None:
    group = store.stream(b"s").group(b"g")
    group.read(b"c", count=1)
    counts(store)
    for number in range(2, 40):
        (entry,) = group.read(b"c", count=1, timeout=timeout)
        assert (entry.id.ms, entry.fields) == (number, {b"n": b"%d" % number})
        assert entry.ack()
    assert counts(store) == (38, 38)
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", timedelta(seconds=-1)])
def test_an_invalid_duration_is_refused(store: Store, timeout: Any) -> None:
    group = store.stream(b"s").group(b"g")
    group.read(b"c", count=1)
    with pytest.raises(logstore.OptionError):
        group.read(b"c", count=1, timeout=timeout)


def test_a_read_that_would_wait_passes_nobody_in_the_queue(store: Store) -> None:
    group, waits = store.stream(b"s").group(b"g"), engine_of(store).wake.waits
    group.read(b"c", count=1)
    number = store._opened.view(
        lambda view: view.index.groups.number(view.record(b"s").number, b"g")  # type: ignore[union-attr]
    )
    waits.announce(wait_words.bucket_of(b"s"), group=True)
    taken = waits.waiters.take_locked(number, wait_words.bucket_of(b"s"))
    assert taken is not None
    counts(store)
    assert group.read(b"c", count=1, timeout=0.05) == []  # they are those of who came before
    assert counts(store) == (0, 0)
    assert [entry.id.ms for entry in group.read(b"c", count=1)] == [2]  # it asks for no place
    assert counts(store) == (1, 0)
    other = store.stream(b"s").group(b"h")
    other.read(b"c", count=1)
    counts(store)
    assert [entry.id.ms for entry in other.read(b"c", count=1, timeout=1)] == [2]
    assert counts(store) == (1, 0)  # one that waits for another group of the stream
    waits.waiters.free(*taken)
    assert [entry.id.ms for entry in group.read(b"c", count=1, timeout=1)] == [3]


def test_a_reader_with_a_kept_place_rejoins_without_a_commit(store: Store) -> None:
    group = store.stream(b"s").group(b"g")
    group.read(b"c")
    assert group.read(b"c", timeout=0.01) == []
    store.stream(b"s").add({b"n": 0})
    counts(store)
    assert len(group.read(b"c", timeout=1)) == 1
    assert counts(store) == (0, 0)
    waits = engine_of(store).wake.waits
    assert not waits.saved._kept
    store.stream(b"s").add({b"n": 0})
    assert len(group.read(b"c", timeout=1)) == 1
    group.ack(*told_ids(store, b"g"))


def test_reads_of_the_lane_give_idle_entries_first(store: Store) -> None:
    group = store.stream(b"s").group(b"g")
    first = group.read(b"c", count=2)
    counts(store)
    assert [entry.id.ms for entry in group.read(b"c", count=2, min_idle=3600)] == [3, 4]
    assert counts(store) == (2, 0)
    group.nack(first[1].id)
    time.sleep(0.002)  # what is idle equally long comes by its ID
    assert [entry.id.ms for entry in group.read(b"d", count=2, min_idle=3600)] == [2, 5]
    group.configure(min_idle=0.001)
    time.sleep(0.002)
    again = group.read(b"d", count=2, min_idle=3600, timeout=1)
    assert [entry.id.ms for entry in again] == [1, 3]
    with pytest.raises(logstore.OptionError):
        group.read(b"c", count=1, min_idle=-1)


def test_a_worker_takes_its_batches_in_the_lane(store: Store, tmp_path: Path) -> None:
    group = store.stream(b"s").group(b"g")
    group.read(b"w", count=1)
    seen: list[int] = []
    failed: set[int] = set()

    def handle(entry: Any) -> None:
        if entry.id.ms == 200 and entry.id.ms not in failed:
            failed.add(entry.id.ms)
            raise ZeroDivisionError
        seen.append(entry.id.ms)

    counts(store)
    assert group.consume(b"w", handle, timeout=0) == 450
    assert sorted(seen) == list(range(1, 451))
    delivered, acked = counts(store)
    assert delivered > 400
    assert acked > 400
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


# -- deletes --------------------------------------------------------------------------------------


class Shop:
    """The same calls on two stores: reads and acks between deletes and adds."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.random = store, random.Random(seed)
        self.stream, self.last = store.stream(b"s"), 450
        self.given: list[logstore.StreamID] = []

    def step(self) -> object:
        choose = self.random
        what = choose.choices(["read", "ack", "delete", "add", "trim"], [40, 40, 15, 8, 0.5])[0]
        group = self.stream.group(b"g")
        if what == "read":
            timeout = choose.choice([0, 0, 0.01])
            found = group.read(b"c", count=choose.choice([1, 1, 3, 30]), timeout=timeout)
            self.given += [entry.id for entry in found]
            return [(entry.id, entry.fields, entry.delivery_count) for entry in found]
        if what == "ack":
            some = choose.sample(self.given, min(len(self.given), choose.choice([1, 1, 2, 9])))
            self.given = [id for id in self.given if id not in some]
            return group.ack(*some) if some else 0
        if what == "delete":
            low = 1 if choose.random() < 0.2 else max(1, self.last - 300)
            return self.stream.delete(f"{choose.randrange(low, self.last + 1)}-1")
        if what == "trim":
            return self.stream.trim(min_id=f"{choose.randrange(1, self.last)}-1", approximate=False)
        for _ in range(40):
            self.last += 1
            self.stream.add({b"n": self.last}, f"{self.last}-1")
        return None


def test_reads_among_deletes_are_the_frames_of_the_pipeline(tmp_path: Path) -> None:
    print(f"LOGSTORE_SEED={SEED}")
    with made(tmp_path / "one") as one, made(tmp_path / "two", lane=False) as two:
        ours, theirs = Shop(one, SEED), Shop(two, SEED)
        lane, steps = 0, 0
        for number in range(300):
            assert ours.step() == theirs.step(), number
            told = [store.stream(b"s").group(b"g").info() for store in (one, two)]
            assert told[0].entries_read == told[1].entries_read, number
            assert told[0].lag == told[1].lag, number
            delivered, acked = counts(one)
            lane, steps = lane + bool(delivered), steps + bool(delivered or acked)
        assert lane > 30
        assert told_by(one, times=False) == told_by(two, times=False)
        assert frames_of(one) == frames_of(two)
        follow(one)
        assert told_by(one, times=False) == told_by(two, times=False)
        assert told_by(one) == told_by_log(tmp_path / "one", tmp_path / "copy")


def test_reads_behind_deletes_are_commits_of_the_lane(store: Store, tmp_path: Path) -> None:
    stream, group = store.stream(b"s"), store.stream(b"s").group(b"g")
    gone = set(random.Random(SEED).sample(range(3, 450), 60)) | {449}
    for number in gone:
        stream.delete(f"{number}-1")
    group.read(b"c", count=1)
    counts(store)
    there = [number for number in range(2, 451) if number not in gone]
    for number in there:
        (entry,) = group.read(b"c", count=1)
        assert (entry.id.ms, entry.fields) == (number, {b"n": b"%d" % number})
        assert entry.ack()
    delivered, acked = counts(store)
    assert delivered >= len(there) - 3
    assert acked >= len(there) - 3
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


# -- many runs of pending entries -----------------------------------------------------------------


class Heap:
    """The same calls on two stores: much is pending, and acked in any order."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.random = store, random.Random(seed)
        self.stream, self.last = store.stream(b"s"), 2001
        self.given: dict[bytes, list[logstore.StreamID]] = {b"g": [], b"h": []}

    def step(self) -> object:
        choose = self.random
        name = choose.choice([b"g", b"g", b"g", b"h"])
        group, given = self.stream.group(name), self.given[name]
        what = choose.choices(["read", "ack", "nack", "claim", "add"], [20, 60, 0.6, 0.6, 3])[0]
        if what == "read":
            count = choose.choice([1, 3, 50, 127, 128])
            found = group.read(choose.choice([b"a", b"b"]), count=count)
            given += [entry.id for entry in found]
            return [(entry.id, entry.fields) for entry in found]
        if what == "add":
            self.last += 300
            self.stream.add_many((f"{self.last + n}-1", {b"n": 0}) for n in range(300))
            return None
        some = choose.sample(given, min(len(given), choose.choice([1, 1, 1, 2, 7, 60])))
        if not some:
            return None
        if what == "nack":
            return group.nack(*some)
        if what == "claim":
            return [entry.id for entry in group.claim(b"a", *some, min_idle=0)]
        gone = set(some)
        self.given[name] = [id for id in given if id not in gone]
        return group.ack(*(some if choose.random() < 0.5 else sorted(some)), *some[:1])


@pytest.mark.parametrize("held_max", [None, 4])
def test_acks_in_any_order_among_many_are_the_frames_of_the_pipeline(
    tmp_path: Path, held_max: int | None
) -> None:
    print(f"LOGSTORE_SEED={SEED}")
    entries = 2000
    with (
        made(tmp_path / "one", entries=entries) as one,
        made(tmp_path / "two", lane=False, entries=entries) as two,
    ):
        lane = one._opened.live().lane
        assert lane is not None
        if held_max is not None:
            lane.held_max = held_max
        ours, theirs, acks = Heap(one, SEED), Heap(two, SEED), 0
        for number in range(400):
            assert ours.step() == theirs.step(), number
            acks += counts(one)[1]
            if not number % 80:
                assert told_by(one, times=False) == told_by(two, times=False), number
                assert told_by(one) == told_by_log(tmp_path / "one", tmp_path / "copy"), number
        assert acks > 300
        assert divided(one) == divided(two)
        assert told_by(one, times=False) == told_by(two, times=False)
        assert told_by(one) == told_by_log(tmp_path / "one", tmp_path / "copy")


def test_acks_among_thousands_stay_in_the_lane(store: Store, tmp_path: Path) -> None:
    """Also behind a commit of the pipeline, when nothing of the group is held any more."""
    stream, group = store.stream(b"s"), store.stream(b"s").group(b"g")
    stream.add_many({b"n": 0} for _ in range(2000))
    held = [entry.id for entry in group.read(b"c")]
    random.Random(SEED).shuffle(held)
    counts(store)
    for number, id in enumerate(held[:600]):
        assert group.ack(id) == 1
        if not number % 100:
            stream.delete(held[-1 - number])
    assert counts(store)[1] >= 580
    assert group.ack(*held[200:700]) == 100
    assert group.ack(*held[:500]) == 0
    assert counts(store)[1] == 100
    assert group.ack(*(str(id) for id in held[700:703])) == 3
    assert counts(store)[1] == 3
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
    follow(store)
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


def test_an_idle_entry_among_thousands_comes_first(store: Store) -> None:
    stream, group = store.stream(b"s"), store.stream(b"s").group(b"g")
    group.configure(min_idle=3600)
    stream.add_many({b"n": 0} for _ in range(1000))
    held = [entry.id for entry in group.read(b"c", count=600)]
    group.read(b"c", count=1)
    counts(store)
    assert group.ack(*held[100:200]) == 100
    assert [len(group.read(b"c", count=2)) for _ in range(20)] == [2] * 20
    assert counts(store) == (40, 100)
    group.nack(held[300])
    assert [entry.id for entry in group.read(b"c", count=1)] == [held[300]]
    assert counts(store) == (0, 0)


def test_processes_that_ack_in_turn_share_many_runs(store: Store, tmp_path: Path) -> None:
    """Each takes in what the other one did; the index follows in either of them, and divides the
    runs by what it knows."""
    stream, group = store.stream(b"s"), store.stream(b"s").group(b"g")
    choose = random.Random(SEED)
    print(f"LOGSTORE_SEED={SEED}")

    def work_on(group: Any, draw: random.Random, rounds: int) -> None:
        for _ in range(rounds):
            if draw.random() < 0.3:
                group.read(b"c", count=draw.choice([1, 20, 128]))
            pending = [entry.id for entry in group.pending_entries()]
            some = draw.sample(pending, min(len(pending), draw.choice([1, 1, 5, 90])))
            assert group.ack(*some) == len(some)

    for _ in range(8):
        seed = choose.random()

        def work(seed: float = seed) -> None:
            draw = random.Random(seed)
            # Not closed, for then the index would follow.
            other = logstore.open(tmp_path / "store", encoding=None, background=False)
            work_on(other.stream(b"s").group(b"g"), draw, draw.choice([2, 20, 50]))

        child = ForkedOnGo(work)
        stream.add_many({b"n": 0} for _ in range(300))
        work_on(group, choose, choose.choice([2, 20, 50]))
        child.go()
        work_on(group, choose, 3)
        assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
    follow(store)
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


def test_an_interval_is_written_over_however_it_was_divided(store: Store) -> None:
    """Judge: a mapping of IDs."""
    choose = random.Random(SEED)
    print(f"LOGSTORE_SEED={SEED}")
    group = 77
    there: dict[bytes, tuple[int, int]] = {}
    generation = engine_of(store).index()
    for _ in range(150):
        low, upper = sorted(choose.sample(range(400), 2))
        bounds = [logstore.StreamID(at, 0).packed() for at in (low, upper)]
        if choose.random() < 0.2:
            bounds[1] = group_txn.END
        fresh = sorted(
            choose.sample(range(low, upper), min(upper - low, choose.choice([0, 3, 60])))
        )
        run = PendingRun()
        for at in fresh:
            run.put([(at, 0, 10 + at % 5, 1)], 0, 1 + at % 2, group_txn.END, {})
        there = {id: told for id, told in there.items() if not bounds[0] <= id < bounds[1]}
        there |= {logstore.StreamID(at, 0).packed(): (1 + at % 2, 10 + at % 5) for at in fresh}
        with generation.env.begin(write=True) as txn:
            groups = group_txn.GroupTxn(generation, txn)
            if choose.random() < 0.5:
                groups.decoded = group_txn.DecodedRuns()
            groups.put_between(group, bounds[0], bounds[1], run if fresh else None)
        with generation.env.begin() as txn:
            groups = group_txn.GroupTxn(generation, txn)
            runs = list(groups.runs(group))
            rows = [row for run in runs for row in run.between(group_txn.FIRST, group_txn.LAST)]
            packed = [logstore.StreamID(*row[:2]).packed() for row in rows]
            assert packed == sorted(packed)
            assert dict(zip(packed, [row[2:4] for row in rows], strict=True)) == there
            assert sorted(groups.idle(group)) == sorted((run.oldest_ms, run.first) for run in runs)
            assert all(run.last < behind.first for run, behind in itertools.pairwise(runs))
