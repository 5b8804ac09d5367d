"""Prevents a queue's work beside the pipeline that does otherwise than one through it.

With deletes, with readers that would wait, with any number of entries pending.

Judges: the same calls on a store without a lane, frame by frame, and the log alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.lane.loading import native_or_none
from logstore.engine.shm import wait_words, waiters
from logstore.log import groupframe, reader
from tests import seeds
from tests.engine.test_lane_groups import counts, made, told_by, told_by_log
from tests.support.inside import engine_of, follow, let_lag

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

Store = logstore.Store[bytes]
SEED = seeds.seed()


@pytest.fixture(autouse=True)
def _lag(monkeypatch: pytest.MonkeyPatch) -> None:
    let_lag(monkeypatch, 64, lane=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with made(tmp_path / "store") as opened:
        yield opened


def frames_of(store: Store) -> list[tuple[Any, ...]]:
    """All frames of the log, by commit: what they say, but for times of the two clocks."""
    engine, found = engine_of(store), []
    upto = engine.wake.applied
    number, end = fmt.position_parts(upto)
    source = engine.segments.source(number)
    scanned = reader.scan(source, engine.seed, number, fmt.SEGMENT_HEAD_BYTES, end)
    for frame in scanned:
        body = frame.body()
        if isinstance(body, groupframe.Deliver):
            body = body._replace(time_ms=0)
        elif isinstance(body, groupframe.Consumer):
            body = body._replace(seen_ms=0, active_ms=0)
        elif isinstance(body, groupframe.Claim):
            items = tuple((*item[:2], 0, item[3]) for item in body.items)
            body = body._replace(seen_ms=0, active_ms=0, items=items)
        found.append((frame.commit, frame.ordinal, frame.last, frame.kind, body))
    return found


def test_numbers_of_waiters_are_those_of_python() -> None:
    for name, value in native_or_none.waiter_layout().items():
        assert value == next(
            vars(home)[name] for home in (wait_words, waiters) if name in vars(home)
        )


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
def test_what_is_no_length_of_time_is_refused(store: Store, timeout: Any) -> None:
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


def test_who_kept_a_place_comes_back_to_it(store: Store) -> None:
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


def told_ids(store: Store, name: bytes) -> list[logstore.StreamID]:
    """The IDs that are pending in a group."""
    return [entry.id for entry in store.stream(b"s").group(name).pending_entries()]


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
            timeout = choose.choice([0, 0, 5])
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
            return self.stream.trim(minid=f"{choose.randrange(1, self.last)}-1")
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
        assert [each for each in frames_of(one) if each[3] != fmt.Kind.CONSUMER] == [
            each for each in frames_of(two) if each[3] != fmt.Kind.CONSUMER
        ]
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
