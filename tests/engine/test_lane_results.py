"""Prevents a transaction of results and acks beside the pipeline that does otherwise than there.

Judges: the same calls on a store without a lane, frame by frame, and the log alone.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.lane.loading import native_or_none
from tests import seeds
from tests.engine.lane_log import counts, frames_of, made, told_by, told_by_log, told_ids
from tests.support.inside import engine_of, follow, lane_commits

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("by_lane")

Store = logstore.Store[bytes]
SEED = seeds.seed()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with with_results(tmp_path / "store") as opened:
        yield opened


def with_results(path: Path, *, lane: bool = True) -> Store:
    """A store with jobs, two groups of them, and two streams of results that have an entry."""
    store = made(path, lane=lane)
    for name in (b"x", b"y"):
        store.stream(name).add({b"r": 0})
    return store


def results(store: Store) -> dict[bytes, list[Any]]:
    """The fields of all results."""
    follow(store)
    return {
        name: [dict(entry.fields) for entry in store.stream(name).range()] for name in (b"x", b"y")
    }


class Work:
    """The same transactions on two stores."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.random = store, random.Random(seed)
        self.held: list[Any] = []
        self.number = 0

    def step(self) -> object:
        choose = self.random
        name = choose.choice([b"g", b"g", b"h"])
        group = self.store.stream(b"s").group(name)
        if not self.held or choose.random() < 0.4:
            found = group.read(choose.choice([b"a", b"b"]), count=choose.choice([1, 1, 4]))
            self.held += found
            return [(entry.id, entry.fields) for entry in found]
        told: list[Any] = []
        try:
            with self.store.transaction() as transaction:
                for _ in range(choose.choice([1, 2, 2, 5, 17])):
                    if choose.random() < 0.5:
                        self.number += 1
                        out = transaction.stream(choose.choice([b"x", b"y"]))
                        told.append(out.add({b"r": self.number}))
                        continue
                    some = choose.sample(self.held, min(len(self.held), choose.choice([1, 1, 3])))
                    if choose.random() < 0.9:  # else it is acked again some time, and refused
                        self.held = [each for each in self.held if each not in some]
                    told.append(transaction.ack(*some))
        except logstore.NotOwner:
            return "not its own"
        return [one.result if isinstance(one.result, int) else "added" for one in told]


def test_transactions_are_the_frames_of_the_pipeline(tmp_path: Path) -> None:
    print(f"LOGSTORE_SEED={SEED}")
    with with_results(tmp_path / "one") as one, with_results(tmp_path / "two", lane=False) as two:
        ours, theirs, acks, refused = Work(one, SEED), Work(two, SEED), 0, 0
        for number in range(400):
            said = ours.step()
            assert said == theirs.step(), number
            refused += said == "not its own"
            acks += counts(one)[1]
            if not number % 80:
                assert told_by(one, times=False) == told_by(two, times=False), number
        assert acks > 100
        assert refused
        assert frames_of(one, ids=False) == frames_of(two, ids=False)
        assert told_by(one, times=False) == told_by(two, times=False)
        assert results(one) == results(two)
        assert told_by(one, times=False) == told_by(two, times=False)
        assert told_by(one) == told_by_log(tmp_path / "one", tmp_path / "copy")


def taken(store: Store, count: int = 3) -> list[Any]:
    """Deliveries, by reads and acks that leave the lane where it knows all of it."""
    group = store.stream(b"s").group(b"g")
    group.read(b"c", count=1)
    found = list(group.read(b"c", count=count))
    for name in (b"x", b"y"):
        store.stream(name).add({b"r": 1})
    group.ack(found.pop().id)
    lane_commits(store)
    return found


def test_a_job_and_its_result_are_one_commit_of_the_lane(store: Store, tmp_path: Path) -> None:
    one, other = taken(store)
    commit = engine_of(store).wake.log().commit
    with store.transaction() as transaction:
        first = transaction.stream(b"x").add({b"r": b"of one"})
        acked = transaction.ack(one, other)
        second = transaction.stream(b"y").add({b"r": b"of both"})
        with pytest.raises(logstore.UsageError):
            acked.result  # noqa: B018
    assert lane_commits(store) == 1
    assert engine_of(store).wake.log().commit == commit + 1
    assert (acked.result, first.id.ms > 1, second.id >= first.id) == (2, True, True)
    assert one.settled
    assert other.settled
    kinds = [frame[2] for frame in frames_of(store)[-4:]]
    assert kinds == [fmt.Kind.APPEND, fmt.Kind.ACK, fmt.Kind.ACK, fmt.Kind.APPEND]
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
    assert results(store)[b"y"][-1] == {b"r": b"of both"}


def finish(store: Store, result: bytes, *jobs: Any) -> None:
    """A result, and acks of jobs, one after the other."""
    with store.transaction() as transaction:
        transaction.stream(b"x").add({b"r": result})
        for job in jobs:
            transaction.ack(job)


def again(store: Store, delivery: Any) -> None:
    """It is delivered to its consumer once more."""
    delivery.group.backlog(b"c")


@pytest.mark.parametrize(
    "before",
    [
        lambda _, delivery: delivery.group.ack(delivery.id),
        lambda _, delivery: delivery.group.claim(b"d", [delivery.id], min_idle=0),
        lambda _, delivery: delivery.group.claim(b"c", [delivery.id], min_idle=0),
        lambda _, delivery: delivery.nack(),
        again,
        lambda store, _: store.stream(b"s").group(b"g").destroy(),
    ],
)
def test_what_is_no_longer_its_own_leaves_nothing(
    store: Store, before: Callable[[Store, Any], object]
) -> None:
    one, other = taken(store)
    before(store, one)
    pending = told_ids(store, b"g") if store.stream(b"s").group(b"g").exists() else []
    for _ in range(2):  # also once the lane knows it as it is now
        for name in (b"x", b"y"):
            store.stream(name).add({b"r": 1})
        there = results(store)
        with pytest.raises(logstore.NotOwner):
            finish(store, b"no", other, one)
        assert results(store) == there
        if pending:
            assert told_ids(store, b"g") == pending
    assert not one.settled or pending


def test_what_is_acked_twice_is_refused(store: Store) -> None:
    one, _ = taken(store)
    with pytest.raises(logstore.NotOwner):
        finish(store, b"no", one, one)
    assert one.id in told_ids(store, b"g")
    assert {b"r": b"no"} not in results(store)[b"x"]


def test_acks_alone_and_none_are_transactions(store: Store, tmp_path: Path) -> None:
    one, other = taken(store)
    with store.transaction() as transaction:
        acked, none = transaction.ack(one), transaction.ack()
    assert (acked.result, none.result) == (1, 0)
    taken(store)
    with store.transaction() as transaction:
        acked = transaction.ack(other)
    assert acked.result == 1
    assert lane_commits(store) == 1
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


def test_an_append_that_fails_leaves_neither_result_nor_ack(store: Store, tmp_path: Path) -> None:
    """Also where the first of the frames is there as a whole."""
    engine = engine_of(store)
    for room in (0, 40, 80, 120):
        one, _ = taken(store)
        before, there = told_by(store), results(store)
        store.stream(b"x").add({b"r": 2})
        end = engine.wake.applied & 0xFFFFFFFF
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (end + room, old[1]))
        try:
            with pytest.raises(logstore.Error):
                finish(store, b"no", one)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        assert not engine.wake.in_progress
        assert told_by(store) == before
        assert len(results(store)[b"x"]) == len(there[b"x"]) + 1
        finish(store, b"yes", one)
        assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
