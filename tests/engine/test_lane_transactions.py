"""Prevents a transaction of plain adds, results or acks beside the pipeline that does otherwise
than one through it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.commit import log_tail
from logstore.engine.lane.lane_loading import native_or_none
from logstore.log import log_reader
from tests import seeds
from tests.engine.lane_log import counts, frames_of, made, told_by, told_by_log, told_ids
from tests.support.inside import committer_of, engine_of, follow, lane_commits
from tests.support.log_limit import room_for
from tests.support.processes import ForkedInTurns

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("by_lane")
ROW = {"temp": "12.5", "hum": 51}
STEPS_MAX = 64
Store = logstore.Store[bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with two streams, of which the lane knows."""
    with logstore.open(tmp_path / "store", background=False) as opened:
        for name in "ab":
            for _ in range(2):
                opened.stream(name).add(ROW)
        assert lane_commits(opened)
        yield opened


def all_of(store: Store) -> dict[str, list[Any]]:
    """All entries, once the index has them."""
    follow(store)
    return {
        name: [(entry.id, dict(entry.fields)) for entry in store.stream(name).range()]
        for name in "ab"
    }


def pair(store: Store) -> tuple[Any, ...]:
    """A transaction of two adds to one stream and one to the other."""
    with store.transaction() as transaction:
        return tuple(transaction.stream(name).add({"n": name}) for name in "aba")


def test_plain_adds_of_a_transaction_are_one_commit_of_the_lane(store: Store) -> None:
    before, engine = all_of(store), engine_of(store)
    store.stream("a").add(ROW)  # the lane takes over
    store.stream("b").add(ROW)
    lane_commits(store)
    log = engine.wake.log()
    added = pair(store)
    assert lane_commits(store) == 1
    assert engine.wake.log().commit == log.commit + 1
    assert [type(one.id) for one in added] == [logstore.StreamID] * 3
    assert added[0].id < added[2].id
    assert added[0].result == added[0].id
    after = all_of(store)
    assert after["a"][len(before["a"]) + 1 :] == [(added[at].id, {b"n": b"a"}) for at in (0, 2)]
    assert after["b"][len(before["b"]) + 1 :] == [(added[1].id, {b"n": b"b"})]
    # Its frames, as the pipeline lays them out.
    end, at = engine.wake.log(), log.applied
    for ordinal in range(3):
        segment, offset = fmt.position_parts(at)
        frame = log_reader.read_frame(
            engine.active_file(segment), engine.seed, segment, offset, end.applied & fmt.OFFSET_MAX
        )
        assert (frame.kind, frame.ordinal) == (fmt.Kind.APPEND, ordinal)
        assert frame.last is (ordinal == 2)
        assert frame.commit == log.commit + 1
        assert (end.last_frame == at) is frame.last
        at = fmt.position(segment, frame.end_offset)
    assert end.last_crc == frame.crc
    assert at == end.applied


@pytest.mark.parametrize(
    "more",
    [
        lambda transaction: transaction.stream("a").add(ROW, max_entries=1000, references="acked"),
        lambda transaction: transaction.stream("a").add(ROW, ttl=60),
        lambda transaction: transaction.stream("a").add(ROW, producer="p", idempotent_id="1"),
        lambda transaction: transaction.stream("a").add(list(ROW.items())),
        lambda transaction: transaction.stream("a").add({"temp": "x" * 5000}),
        lambda transaction: transaction.stream("a").add_many([ROW]),
        lambda transaction: [transaction.stream("a").add(ROW) for _ in range(STEPS_MAX)][-1],
        lambda transaction: transaction.stream("a").set_id("99999999999999-9"),
        lambda transaction: transaction.create("other"),
    ],
)
def test_other_transactions_go_through_the_pipeline(
    store: Store, more: Callable[[Any], Any]
) -> None:
    """Each step in its place, whichever of them is not plain."""
    lane_commits(store)
    with store.transaction() as transaction:
        first = transaction.stream("a").add({"at": "first"})
        outcome = more(transaction)
        last = transaction.stream("b").add({"at": "last"})
    assert lane_commits(store) == 0
    assert outcome._done
    there = all_of(store)
    assert (first.id, {b"at": b"first"}) in there["a"]
    assert there["b"][-1] == (last.id, {b"at": b"last"})
    assert [id for id, _ in there["a"]] == sorted({id for id, _ in there["a"]})


def test_a_transaction_with_sync_always_is_durable(store: Store) -> None:
    lane_commits(store)
    with store.transaction(sync="always") as transaction:
        transaction.stream("a").add(ROW)
    assert lane_commits(store) == 0
    assert engine_of(store).wake.durable_upto == engine_of(store).wake.applied


def test_arguments_are_taken_at_the_call(store: Store) -> None:
    store.stream("a").add(ROW)
    fields: dict[str, Any] = {"n": "as it was"}
    with store.transaction() as transaction:
        one = transaction.stream("a").add(fields)
        fields["n"] = "changed"
        with pytest.raises(logstore.EntryTypeError):
            transaction.stream("a").add({"n": object()})  # type: ignore[dict-item]
        with pytest.raises(logstore.UsageError):
            one.id  # noqa: B018
    assert all_of(store)["a"][-1] == (one.id, {b"n": b"as it was"})
    with pytest.raises(logstore.UsageError):
        transaction.stream("a").add(ROW)


def test_an_exception_in_the_block_commits_nothing(store: Store) -> None:
    before = all_of(store)
    with suppress(ZeroDivisionError), store.transaction() as transaction:
        transaction.stream("a").add(ROW)
        raise ZeroDivisionError
    assert all_of(store) == before


def test_nodes_roll_where_the_pipeline_rolls_them(tmp_path: Path) -> None:
    """Entries that one commit adds to a node count for whether the next one has room in it."""
    told = []
    for laned in (True, False):
        path = tmp_path / str(laned)
        with logstore.open(path, background=False, node_max_entries=7) as store:
            if not laned:
                engine_of(store)._close_lane()
            for _ in range(12):
                with store.transaction() as transaction:
                    for number in range(4):
                        transaction.stream("s").add({"n": number})
            assert bool(lane_commits(store) if laned else 0) is laned
            follow(store)
            told.append(store.stream("s").info().radix_tree_keys)
    assert told[0] == told[1]


def test_an_append_that_fails_leaves_nothing_of_a_transaction(store: Store) -> None:
    """Also where the first of its frames is there as a whole."""
    engine = engine_of(store)
    for room in (0, 40, 90, 150):
        pair(store)
        assert lane_commits(store) >= 1
        before = all_of(store)
        store.stream("a").add(ROW)
        store.stream("b").add(ROW)
        with room_for(engine, room), pytest.raises(logstore.Error):
            pair(store)
        assert not engine.wake.in_progress
        assert not engine.lock.held
        assert [len(rows) for rows in all_of(store).values()] == [
            len(rows) + 1 for rows in before.values()
        ]


def test_a_sync_that_fails_is_told_of_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "END_LOOK_NS", 1 << 60)  # or it is seen that this is no segment
    with logstore.open(tmp_path / "store", background=False, sync="always") as store:
        for name in "abab":
            store.stream(name).add(ROW)
        pair(store)
        engine, active = engine_of(store), engine_of(store).active
        assert active is not None
        applied, kept, null = (
            engine.wake.applied,
            os.dup(active.fd),
            os.open("/dev/null", os.O_RDWR),
        )
        os.dup2(null, active.fd)
        try:
            with pytest.raises(logstore.CommittedError, match="making it durable failed"):
                pair(store)
        finally:
            os.dup2(kept, active.fd)
            os.close(kept)
            os.close(null)
        assert engine.wake.applied == applied
        with pytest.raises(logstore.StoreFailedError):
            pair(store)


def test_a_transaction_inside_of_a_call_is_refused(store: Store) -> None:
    calls = committer_of(store).calls
    calls.now = True
    try:
        with pytest.raises(logstore.ReentryError):
            pair(store)
    finally:
        calls.now = False


def test_processes_take_in_each_others_transactions(tmp_path: Path, store: Store) -> None:
    """Each goes on in its lane behind a commit of the other one that has some frames."""

    def play(turns: Iterator[None]) -> None:
        with logstore.open(tmp_path / "store", background=False) as theirs:
            laned = 0
            for _ in turns:
                pair(theirs)
                laned += lane_commits(theirs)
            assert laned > 60

    child = ForkedInTurns(play)
    before, laned = all_of(store), 0
    for _ in range(100):
        pair(store)
        laned += lane_commits(store)
        child.turn()
    child.join()
    assert laned > 60
    after = all_of(store)
    assert len(after["a"]) == len(before["a"]) + 400
    assert len(after["b"]) == len(before["b"]) + 200


SEED = seeds.seed()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Store]:
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
        except logstore.NotOwnerError:
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


def test_a_job_and_its_result_are_one_commit_of_the_lane(jobs: Store, tmp_path: Path) -> None:
    one, other = taken(jobs)
    commit = engine_of(jobs).wake.log().commit
    with jobs.transaction() as transaction:
        first = transaction.stream(b"x").add({b"r": b"of one"})
        acked = transaction.ack(one, other)
        second = transaction.stream(b"y").add({b"r": b"of both"})
        with pytest.raises(logstore.UsageError):
            acked.result  # noqa: B018
    assert lane_commits(jobs) == 1
    assert engine_of(jobs).wake.log().commit == commit + 1
    assert (acked.result, first.id.ms > 1, second.id >= first.id) == (2, True, True)
    assert one.settled
    assert other.settled
    kinds = [frame[2] for frame in frames_of(jobs)[-4:]]
    assert kinds == [fmt.Kind.APPEND, fmt.Kind.ACK, fmt.Kind.ACK, fmt.Kind.APPEND]
    assert told_by(jobs) == told_by_log(tmp_path / "store", tmp_path / "copy")
    assert results(jobs)[b"y"][-1] == {b"r": b"of both"}


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
        lambda _, delivery: delivery.group.claim(b"d", delivery.id, min_idle=0),
        lambda _, delivery: delivery.group.claim(b"c", delivery.id, min_idle=0),
        lambda _, delivery: delivery.nack(),
        again,
        lambda store, _: store.stream(b"s").group(b"g").destroy(),
    ],
)
def test_a_fenced_ack_leaves_nothing_of_the_transaction(
    jobs: Store, before: Callable[[Store, Any], object]
) -> None:
    one, other = taken(jobs)
    before(jobs, one)
    pending = told_ids(jobs, b"g") if jobs.stream(b"s").group(b"g").exists() else []
    for _ in range(2):  # also once the lane knows it as it is now
        for name in (b"x", b"y"):
            jobs.stream(name).add({b"r": 1})
        there = results(jobs)
        with pytest.raises(logstore.NotOwnerError):
            finish(jobs, b"no", other, one)
        assert results(jobs) == there
        if pending:
            assert told_ids(jobs, b"g") == pending
    assert not one.settled or pending


def test_a_second_ack_in_a_transaction_is_refused(jobs: Store) -> None:
    one, _ = taken(jobs)
    with pytest.raises(logstore.NotOwnerError):
        finish(jobs, b"no", one, one)
    assert one.id in told_ids(jobs, b"g")
    assert {b"r": b"no"} not in results(jobs)[b"x"]


def test_acks_alone_and_none_are_transactions(jobs: Store, tmp_path: Path) -> None:
    one, other = taken(jobs)
    with jobs.transaction() as transaction:
        acked, none = transaction.ack(one), transaction.ack()
    assert (acked.result, none.result) == (1, 0)
    taken(jobs)
    with jobs.transaction() as transaction:
        acked = transaction.ack(other)
    assert acked.result == 1
    assert lane_commits(jobs) == 1
    assert told_by(jobs) == told_by_log(tmp_path / "store", tmp_path / "copy")


def test_an_append_that_fails_leaves_neither_result_nor_ack(jobs: Store, tmp_path: Path) -> None:
    """Also where the first of the frames is there as a whole."""
    engine = engine_of(jobs)
    for room in (0, 40, 80, 120):
        one, _ = taken(jobs)
        before, there = told_by(jobs), results(jobs)
        jobs.stream(b"x").add({b"r": 2})
        with room_for(engine, room), pytest.raises(logstore.Error):
            finish(jobs, b"no", one)
        assert not engine.wake.in_progress
        assert told_by(jobs) == before
        assert len(results(jobs)[b"x"]) == len(there[b"x"]) + 1
        finish(jobs, b"yes", one)
        assert told_by(jobs) == told_by_log(tmp_path / "store", tmp_path / "copy")
