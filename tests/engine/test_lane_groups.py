"""Prevents a group's read or ack beside the pipeline that does otherwise than one through it.

Judges: the same calls on a store without a lane; and the log alone, a copy of the store without its
index, opened anew. What a reader sees while the index lags is compared with that, too.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.groups import admin
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.snapshots import snapshot
from logstore.engine.txn import pel
from logstore.index import group_keys, group_txn
from tests import seeds
from tests.engine.lane_log import LANE_ONLY, Store, counts, made, told_by, told_by_log
from tests.support.inside import engine_of, follow
from tests.support.log_limit import room_for
from tests.support.processes import ForkedOnGo

pytestmark = LANE_ONLY
SEED = seeds.seed()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with made(tmp_path / "store") as opened:
        yield opened


@pytest.mark.parametrize("what", ["another stream", "the stream", "the group"])
def test_a_group_is_the_lanes_again_behind_a_commit_of_the_pipeline(
    store: Store, what: str
) -> None:
    """Streams that it left as they were are kept by the lane, groups are learned anew."""
    stream = store.stream(b"s")
    group = stream.group(b"g")
    group.read(b"w", count=1)[0].ack()
    for number in range(2, 5):
        if what == "another stream":
            store.create(f"other {number}")
        elif what == "the stream":
            stream.add({b"n": 0}, f"{1000 + number}-1", sync="os")
        else:
            (given,) = group.read(b"w", count=1)
            given.nack(mode="silent")
            group.ack(given.id)
        counts(store)
        (given,) = group.read(b"w", count=1)
        given.ack()
        assert counts(store) == (1, 1)
    assert group.info().pending == 0
    assert given.id == ((4, 1) if what != "the group" else (7, 1))
    before = told_by(store)
    follow(store)
    assert told_by(store) == before


def test_numbers_of_groups_are_those_of_python() -> None:
    layout = native_or_none.group_layout()
    for name in list(layout):
        homes = (group_keys, admin, pel, group_txn)
        assert layout.pop(name) == next(vars(home)[name] for home in homes if name in vars(home))


def test_reads_and_acks_are_commits_of_the_lane(store: Store, tmp_path: Path) -> None:
    group = store.stream(b"s").group(b"g")
    assert group.read(b"c", count=1)[0].ack()
    counts(store)
    for number in range(2, 400):
        (entry,) = group.read(b"c", count=1)
        assert (entry.id, entry.fields, entry.delivery_count) == (
            logstore.StreamID(number, 1),
            {b"n": b"%d" % number},
            1,
        )
        assert entry.ack()
    delivered, acked = counts(store)
    assert delivered >= 380
    assert acked >= 380
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
    follow(store)
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


def test_reads_of_many_go_over_nodes(store: Store, tmp_path: Path) -> None:
    group = store.stream(b"s").group(b"g")
    group.read(b"c", count=1)
    counts(store)
    ids = [entry.id for entry in group.read(b"c", count=120)]
    assert ids == [logstore.StreamID(number, 1) for number in range(2, 122)]
    assert counts(store) == (120, 0)
    assert group.ack(*ids[10:90]) == 80
    assert group.ack(*ids[:20]) == 10
    assert counts(store) == (0, 90)
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


def test_a_stream_of_sealed_nodes_is_read_and_acked(store: Store, tmp_path: Path) -> None:
    """One that was restored, copied or published has no open node before somebody adds to it."""
    store.restore(b"r", store.stream(b"s").dump())
    stream = store.stream(b"r")
    records = snapshot.read(engine_of(store), lambda view: list(view.index.records()))
    assert {record.name: bool(record.open_version) for record in records}[b"r"] is False
    group = stream.group(b"k", start="0")
    (first,) = group.read(b"c", count=1)
    counts(store)
    seen = []
    for count, after in ((100, 0), (120, 3), (110, 0)):
        got = group.read(b"c", count=count)
        assert len(got) == count
        assert group.ack(*(entry.id for entry in got[after:])) == count - after
        seen += [(entry.id.ms, entry.fields) for entry in got]
    assert counts(store) == (330, 327)
    stream.delete("400-1")  # in a node that was not read yet
    seen += [(entry.id.ms, entry.fields) for entry in group.read(b"c", count=1)]
    counts(store)
    seen += [(entry.id.ms, entry.fields) for entry in group.read(b"c")]
    there = [number for number in range(2, 451) if number != 400]
    assert seen == [(number, {b"n": b"%d" % number}) for number in there]
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
    assert group.read(b"c", count=1) == []
    assert group.ack(first.id) == 1
    added = stream.add({b"n": 0})
    stream.add({b"n": 1})
    counts(store)
    assert [entry.id for entry in group.read(b"c", count=1)] == [added]
    group.read(b"c", count=1)
    assert counts(store)[0]
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


@pytest.mark.parametrize(
    "call",
    [
        lambda group: group.read(b"new", count=1),
        lambda group: group.read(b"c", count=1, noack=True),
        lambda group: group.read(b"c", count=1, min_idle=0),
        lambda group: group.read(b"c", count=1, max_bytes=10_000),
        lambda group: group.read(b"c", count=200),
        lambda group: group.ack("1-1", sync="always"),
        lambda group: group.ack(*(logstore.StreamID(number, 1) for number in range(600))),
    ],
)
def test_other_calls_go_through_the_pipeline(
    store: Store, tmp_path: Path, call: Callable[[Any], object]
) -> None:
    group = store.stream(b"s").group(b"g")
    group.read(b"c", count=3)
    group.read(b"c", count=1)
    counts(store)
    call(group)
    assert counts(store) == (0, 0)
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


def test_reads_of_idle_entries_go_through_the_pipeline(store: Store) -> None:
    group = store.stream(b"s").group(b"g")
    group.configure(min_idle=3600)
    first = group.read(b"c", count=2)
    assert [entry.id.ms for entry in group.read(b"c", count=2)] == [3, 4]
    assert counts(store)[0]
    group.nack(first[0].id)
    counts(store)
    assert [entry.id.ms for entry in group.read(b"c", count=1)] == [1]
    assert counts(store) == (0, 0)


class Script:
    """The same calls on two stores; what they say."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.random = store, random.Random(seed)
        self.stream = store.stream(b"s")
        self.last = 450
        self.given: dict[bytes, list[logstore.StreamID]] = {b"g": [], b"h": []}

    def step(self) -> object:  # noqa: PLR0911  (one a call)
        choose = self.random
        name = choose.choice([b"g", b"g", b"h"])
        group, given = self.stream.group(name), self.given[name]
        who = choose.choice([b"a", b"b"])
        what = choose.choices(
            ["read", "ack", "add", "nack", "claim", "delete", "noack", "backlog", "empty", "drop"],
            [40, 40, 6, 2, 2, 2, 1, 2, 3, 0.3],
        )[0]
        some = choose.sample(given, min(len(given), choose.choice([1, 1, 1, 2, 20])))
        if what == "read":
            found = group.read(who, count=choose.choice([1, 1, 1, 2, 5, 40, 130]))
            given += [entry.id for entry in found]
            return [(entry.id, entry.fields, entry.delivery_count) for entry in found]
        if what == "ack":
            done = group.ack(*(sorted(some) if choose.random() < 0.9 else some)) if some else 0
            if choose.random() < 0.8:
                self.given[name] = [id for id in given if id not in some]
            return done
        if what == "add":
            for _ in range(choose.choice([1, 1, 3])):
                self.last += 1
                self.stream.add({b"n": self.last}, f"{self.last}-1")
            return None
        if what == "nack" and some:
            return group.nack(*some)
        if what == "claim" and some:
            return [entry.id for entry in group.claim(who, *some, min_idle=0)]
        if what == "delete" and some:
            return self.stream.delete(some[0])
        if what == "noack":
            return [entry.id for entry in group.read(who, count=2, noack=True)]
        if what == "backlog":
            return [(entry.id, entry.delivery_count) for entry in group.backlog(who, count=3)]
        if what == "drop":
            return group.remove_consumer(who)
        return [entry.id for entry in group.read(who, count=3, min_idle=0)]


def test_groups_of_the_lane_do_what_the_pipeline_does(tmp_path: Path) -> None:
    seed = SEED
    print(f"LOGSTORE_SEED={seed}")
    with made(tmp_path / "one") as one, made(tmp_path / "two", lane=False) as two:
        ours, theirs = Script(one, seed), Script(two, seed)
        lane = 0
        for number in range(240):
            # What is idle is taken by time, then by ID, and the two stores have no clock in common:
            # two steps never fall into the same millisecond in one of them alone.
            time.sleep(0.002)
            assert ours.step() == theirs.step(), number
            if not number % 10:
                assert told_by(one, times=False) == told_by(two, times=False), number
            if not number % 60:
                assert told_by(one) == told_by_log(tmp_path / "one", tmp_path / "copy"), number
            lane += sum(counts(one))
        assert lane > 20
        assert told_by(one, times=False) == told_by(two, times=False)
        follow(one)
        assert told_by(one, times=False) == told_by(two, times=False)
        assert told_by(one) == told_by_log(tmp_path / "one", tmp_path / "copy")


def test_groups_of_several_streams_are_never_given_what_was_deleted(tmp_path: Path) -> None:
    """A sealed node of each stream is kept: deletes, trims and compactions of any process count."""
    print(f"LOGSTORE_SEED={SEED}")
    draw, streams = random.Random(SEED), [b"s%d" % number for number in range(4)]
    path = tmp_path / "store"
    live = {name: [logstore.StreamID(number, 1) for number in range(1, 451)] for name in streams}
    with logstore.open(path, encoding=None, background=False) as store:
        for name in streams:
            store.stream(name).add_many((id, {b"n": 1}) for id in live[name])
            store.stream(name).group(b"g", start="0").read(b"a", count=1)
            del live[name][:1]
        lane = 0
        for _ in range(12):
            name = draw.choice(streams)
            ahead = live[name][:60]
            gone = draw.sample(ahead, min(len(ahead), draw.choice([1, 5, 40])))
            trims = draw.random() < 0.2

            def work(name: bytes = name, gone: Any = gone, *, trims: bool = trims) -> None:
                other = logstore.open(path, encoding=None, background=False)
                other.stream(name).delete(*gone)
                if trims:
                    other.stream(name).trim(min_id=min(gone), approximate=False)

            child = ForkedOnGo(work)
            for _ in range(30):
                of = draw.choice(streams)
                lane += given_next(store, of, live[of])
                if draw.random() < 0.1 and live[of]:
                    mine = draw.choice(live[of][:20])
                    assert store.stream(of).delete(mine) == 1
                    live[of].remove(mine)
            child.go()
            least = min(gone)
            live[name] = [id for id in live[name] if id not in gone and not (trims and id < least)]
            if draw.random() < 0.3:
                store.compact(full=True)
        assert lane > 100


def given_next(store: Store, name: bytes, live: list[logstore.StreamID]) -> int:
    """Read one entry; it is the first one that is there. How many the lane delivered."""
    counts(store)
    given = [entry.id for entry in store.stream(name).group(b"g").read(b"a", count=1)]
    last = store.stream(name).group(b"g").info().last_delivered_id
    assert given == live[:1]
    assert not given or last == given[0]
    del live[:1]
    return counts(store)[0]


@pytest.mark.parametrize("knows", [False, True])
def test_processes_that_read_in_turn_share_a_group(
    store: Store, tmp_path: Path, *, knows: bool
) -> None:
    """Both add, read and ack; each takes in, or passes over, what the other one did."""
    stream, group = store.stream(b"s"), store.stream(b"s").group(b"g")
    choose = random.Random(SEED)
    print(f"LOGSTORE_SEED={SEED}")
    seen: list[logstore.StreamID] = []  # whole IDs: several are of one millisecond
    for _ in range(6):
        seed = choose.random()

        def work(seed: float = seed) -> None:
            draw = random.Random(seed)
            # Not closed, for then the index would follow.
            other = logstore.open(tmp_path / "store", encoding=None, background=False)
            theirs = other.stream(b"s").group(b"g" if knows else b"h")
            for _ in range(draw.choice([1, 5, 70])):
                for entry in theirs.read(b"other", count=draw.choice([1, 2])):
                    if draw.random() < 0.8:
                        entry.ack()
                if draw.random() < 0.3:
                    other.stream(b"s").add({b"n": 0})

        child = ForkedOnGo(work)
        for _ in range(choose.choice([1, 3, 30])):
            found = group.read(b"mine", count=1)
            seen += [entry.id for entry in found]
            for entry in found:
                if choose.random() < 0.8:
                    entry.ack()
            if choose.random() < 0.3:
                stream.add({b"n": 0})
        child.go()
        if not knows:
            stream.add({b"n": 0})
            stream.group(b"h").read(b"third", count=1)
            assert [id.ms for id in seen] == list(range(1, len(seen) + 1))
        assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
    assert len(set(seen)) == len(seen)


def test_owed_rows_that_another_process_wrote_are_not_written_twice(
    store: Store, tmp_path: Path
) -> None:
    """How runs are stored is not known any more to who owed them."""
    group = store.stream(b"s").group(b"g")
    group.read(b"c", count=1)
    entries = group.read(b"c", count=5)

    def work() -> None:
        other = logstore.open(tmp_path / "store", encoding=None, background=False)
        follow(other)

    children = [ForkedOnGo(work) for _ in range(3)]
    group.ack(entries[0].id)
    for child in children:
        group.ack(entries.pop(1).id)
        store.sync()  # the record cache has it, and the index not
        group.ack(group.read(b"c", count=1)[0].id)
        store.sync()
        child.go()
        group.nack(entries[-1].id)
        assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
        group.ack(*[entry.id for entry in group.read(b"c", count=3)])
        assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
    assert counts(store)[1] >= 6


def test_a_lane_that_skipped_commits_of_a_group_reads_it_anew(store: Store, tmp_path: Path) -> None:
    """An adder that knows nothing of a group takes in the adds of others, and not their reads; the
    index must follow before it reads of the group."""
    group = store.stream(b"s").group(b"g")
    ready, go = os.pipe(), os.pipe()

    def work() -> None:
        other = logstore.open(tmp_path / "store", encoding=None, background=False)
        stream, lane = other.stream(b"s"), other._opened.live().lane
        assert lane is not None
        stream.add({b"n": 0})
        stream.add({b"n": 0})
        lane.take_counts()
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        stream.add({b"n": 0})
        assert lane.take_counts()["commits"] == 1  # it passed over four commits of the group
        assert [entry.id.ms for entry in stream.group(b"g").read(b"c", count=1)] == [4]
        assert told_by(other) == told_by_log(tmp_path / "store", tmp_path / "copy")

    child = ForkedOnGo(work)
    group.read(b"c", count=1)
    os.write(child._go, b"x")
    os.read(ready[0], 1)
    store.stream(b"s").add({b"n": 0})  # here the cache has what the other one added
    group.read(b"c", count=1)
    counts(store)
    follow(store)
    group.ack(logstore.StreamID(1, 1))
    group.read(b"c", count=1)
    group.ack(logstore.StreamID(2, 1), logstore.StreamID(3, 1))
    assert counts(store) == (1, 3)
    os.write(go[1], b"x")
    child.join()
    assert [entry.id.ms for entry in group.read(b"c", count=1)] == [5]
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


@pytest.mark.parametrize("behind", ["nothing", "a read", "an ack", "of both groups"])
def test_a_group_that_the_index_has_is_looked_up_there(
    store: Store, tmp_path: Path, behind: str
) -> None:
    """Another process reads for a consumer that is not known here, and lets the index follow. The
    next read here is a commit of the lane all the same: else each process that comes through the
    pipeline drives the others there, too, since the pipeline lets the index follow."""
    group = store.stream(b"s").group(b"g")
    first, second, done = os.pipe(), os.pipe(), os.pipe()

    def work() -> None:
        other = logstore.open(tmp_path / "store", encoding=None, background=False)
        theirs = other.stream(b"s").group(b"g")
        theirs.read(b"other", count=1)
        os.write(done[1], b"x")
        os.read(first[0], 1)
        counts(other)
        (given,) = theirs.read(b"other", count=1)
        follow(other)
        if behind in ("a read", "of both groups"):
            given.ack()
            theirs.read(b"other", count=2)
        if behind == "of both groups":
            other.stream(b"s").group(b"h").read(b"mine", count=1)
        if behind == "an ack":
            given.ack()
        expected = {"nothing": (1, 0), "a read": (3, 1), "an ack": (1, 1), "of both groups": (4, 1)}
        assert counts(other) == expected[behind]
        os.write(done[1], b"x")
        os.read(second[0], 1)
        assert told_by(other) == told_by_log(tmp_path / "store", tmp_path / "theirs")
        theirs.read(b"other", count=1)[0].ack()
        assert told_by(other) == told_by_log(tmp_path / "store", tmp_path / "theirs")

    child = ForkedOnGo(work)
    group.read(b"mine", count=1)
    store.stream(b"s").group(b"h").read(b"mine", count=1)
    os.close(done[1])  # a child that fails is seen then
    os.write(child._go, b"x")
    assert os.read(done[0], 1)
    group.read(b"mine", count=1)  # through the pipeline: others' consumers are forgotten
    group.read(b"mine", count=1)[0].ack()
    counts(store)
    os.write(first[1], b"x")
    assert os.read(done[0], 1)
    (given,) = group.read(b"mine", count=1)
    given.ack()
    assert counts(store) == (1, 1)
    assert given.id.ms == (8 if behind in ("a read", "of both groups") else 6)
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
    os.write(second[1], b"x")
    child.join()
    store.create("other")
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


def test_a_group_of_the_same_name_is_not_taken_for_the_one_before(
    store: Store, tmp_path: Path
) -> None:
    """Its number by name is known here as it was; what another process read of the new one was
    passed over, and the index has not followed."""
    group, name = store.stream(b"s").group(b"g"), "theirs"
    go, done = os.pipe(), os.pipe()

    def work() -> None:
        other = logstore.open(tmp_path / "store", encoding=None, background=False)
        theirs = other.stream(b"s").group(b"g")
        theirs.destroy()
        theirs = other.stream(b"s").group(b"g", start="0")
        theirs.read(b"mine", count=1)
        theirs.read(name.encode(), count=1)
        os.write(done[1], b"x")
        os.read(go[0], 1)
        counts(other)
        theirs.read(name.encode(), count=4)
        assert counts(other) == (4, 0)
        os.write(done[1], b"x")
        os.read(go[0], 1)
        assert told_by(other) == told_by_log(tmp_path / "store", tmp_path / "theirs")

    child = ForkedOnGo(work)
    group.read(b"mine", count=1)
    os.close(done[1])
    os.write(child._go, b"x")
    assert os.read(done[0], 1)
    store.create("other")  # through the pipeline: the cache has nothing of groups, but numbers
    store.stream(b"s").add({b"n": 0})
    os.write(go[1], b"x")
    assert os.read(done[0], 1)
    store.stream(b"s").add({b"n": 0})  # passes over what the other one read
    assert group.ack(logstore.StreamID(6, 1)) == 1
    assert [each.id.ms for each in group.read(b"mine", count=2)] == [7, 8]
    assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")
    os.write(go[1], b"x")
    child.join()


def test_an_append_that_fails_delivers_and_acks_nothing(store: Store, tmp_path: Path) -> None:
    """The file may not grow, as on a full disk: some bytes of the frame may be there."""
    group, engine = store.stream(b"s").group(b"g"), engine_of(store)
    for room in (0, 1, 40, 60):
        (entry,) = group.read(b"c", count=1)
        group.read(b"c", count=1)
        counts(store)
        before = told_by(store)
        with room_for(engine, min(room, 30)), pytest.raises(logstore.Error):
            group.ack(entry.id)
        with room_for(engine, room), pytest.raises(logstore.Error):
            group.read(b"c", count=1)
        assert not engine.wake.in_progress
        assert not engine.lock.held
        assert told_by(store) == before
        assert entry.ack()
        assert told_by(store) == told_by_log(tmp_path / "store", tmp_path / "copy")


def test_a_nack_of_the_lane_wakes_a_waiting_reader(store: Store) -> None:
    group = store.stream(b"s").group(b"g")
    group.read(b"a")
    group.claim(b"b", "2-1", min_idle=0)
    group.claim(b"b", "1-1", min_idle=0)
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.extend(group.read(b"c", count=1, timeout=20, min_idle=60))
    )
    thread.start()
    while not engine_of(store).wake.waits.waiters.lowest():
        time.sleep(0.01)
    began = time.monotonic()
    assert group.nack("5-1") == 1
    lane = store._opened.live().lane
    assert lane is not None
    assert lane.take_counts()["nacks"] == 1
    thread.join()
    assert [each.id.ms for each in found] == [5]
    assert time.monotonic() - began < 5
