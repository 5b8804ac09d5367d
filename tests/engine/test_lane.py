"""Prevents an add beside the pipeline that does otherwise than one through it.

Of what kind an add and a moment must be; that the lane and the pipeline see each other's commits;
and what becomes of an add whose append or sync fails, which is interrupted, forked or closed over.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.clock import monotonic_ms
from logstore.engine.commit import log_tail
from logstore.engine.features import setting_changes
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.runtime import identity
from logstore.engine.shm import commit_words, wait_words
from logstore.engine.shm.writer_lock import PASSED_OVER_MAX
from logstore.log import file_names as names
from logstore.log import log_reader
from logstore.recovery.check import check
from tests.support.inside import (
    FixedClock,
    committer_of,
    engine_of,
    follow,
    lane_commits,
    roll,
)
from tests.support.log_limit import room_for
from tests.support.processes import Forked, ForkedInTurns, ForkedOnGo
from tests.support.threads import run_all

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("by_lane")

ROW = {"temp": "12.5", "hum": 51}
Store = logstore.Store[bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with one stream, of which the lane knows."""
    with logstore.open(tmp_path / "store", background=False) as opened:
        opened.stream("s").add({"first": 1})
        warm(opened)
        yield opened


def warm(store: Store) -> None:
    """An add through the pipeline, and one in the lane behind it."""
    stream = store.stream("s")
    stream.add(ROW, sync="os")
    stream.add(ROW)
    lane_commits(store)


def read(store: Store, name: str = "s") -> list[tuple[Any, dict[bytes, bytes]]]:
    """All entries of a stream, once the index has them."""
    follow(store)
    return [(entry.id, dict(entry.fields)) for entry in store.stream(name).range()]


def test_words_stand_where_other_processes_look_for_them() -> None:
    told = native_or_none.words()
    for name in list(told):
        module = commit_words if hasattr(commit_words, name) else wait_words
        value = getattr(module, name)
        assert told.pop(name) == (value() if callable(value) else value), name
    at = commit_words._LOG_OFFSET
    assert native_or_none.log_words() == tuple(range(at, at + 7 * 8, 8))
    assert len(commit_words.LogWords._fields) == 7


def test_plain_adds_are_commits_of_the_lane(store: Store) -> None:
    stream, before = store.stream("s"), len(read(store))
    ids = [stream.add({"temp": str(number), b"hum": number}) for number in range(50)]
    assert ids == sorted(set(ids))
    assert type(ids[0]) is logstore.StreamID
    assert lane_commits(store) >= 48
    assert [id for id, _ in read(store)[before:]] == ids


@pytest.mark.parametrize(
    "add",
    [
        lambda stream: stream.add(ROW, sync="always"),
        lambda stream: stream.add(ROW, producer="p", idempotent_id="1"),
        lambda stream: stream.add(ROW, ttl=60),
        lambda stream: stream.add(ROW, expected_last_id=stream.last_id),
        lambda stream: stream.add(ROW, max_entries=1000, references="acked"),
        lambda stream: stream.add({"temp": "x" * 70_000}),
        lambda stream: stream.add_many(iter([ROW])),
    ],
)
def test_other_adds_go_through_the_pipeline(store: Store, add: Callable[[Any], object]) -> None:
    before = len(read(store))
    warm(store)
    add(store.stream("s"))
    assert lane_commits(store) == 0
    assert len(read(store)) == before + 3
    store.stream("s").add(ROW)
    store.stream("s").add(ROW)
    assert len(read(store)) == before + 5


def test_a_process_that_waits_for_the_lock_is_passed_over_a_few_times_only(store: Store) -> None:
    stream, engine = store.stream("s"), engine_of(store)
    for number in range(1, 2 * PASSED_OVER_MAX + 3):
        engine.wake.announce_waiting()  # it was woken, found LOCK taken again, and says so again
        stream.add(ROW)
        turn = number in (PASSED_OVER_MAX + 1, 2 * PASSED_OVER_MAX + 2)
        assert lane_commits(store) == (not turn)  # the pipeline gives way


@pytest.mark.parametrize("encoding", ["cp500", "utf-8"])
def test_text_is_stored_in_the_encoding_of_the_store(tmp_path: Path, encoding: str) -> None:
    with logstore.open(tmp_path / "store", encoding=encoding, background=False) as store:
        stream = store.stream("s")
        ids = [stream.add({"a": str(number)}) for number in range(9)]
        assert lane_commits(store)  # type: ignore[arg-type]
        follow(store)
        assert [(entry.id, entry.fields["a"]) for entry in stream.range()] == [
            (id, str(number)) for number, id in enumerate(ids)
        ]


def test_there_is_no_lane_where_time_is_told_by_somebody_else(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", clock=FixedClock(5)) as store:
        assert store.stream("s").add(ROW) == (5, 0)
        assert store.stream("s").add(ROW) == (5, 1)
        assert store._live().lane is None


# -- moments that are not plain --------------------------------------------------------------------
def just_full(store: Store) -> None:
    engine_of(store).wake.full = True


def writer_died(store: Store) -> None:
    engine_of(store).wake.begin(engine_of(store).wake.log().commit + 1)


def index_moved(store: Store) -> None:
    with committer_of(store).locked():
        engine_of(store).rebuild_locked()


def segment_rolled(store: Store) -> None:
    roll(store)


def limits_changed(store: Store) -> None:
    setting_changes.limit_nodes(engine_of(store), committer_of(store), {"node_max_entries": 2})


def expires(store: Store) -> None:
    store.stream("s").expire(after=1000)


def renamed(store: Store) -> None:
    store.rename("s", "other")
    store.rename("other", "s")


@pytest.mark.parametrize(
    "change",
    [
        just_full, writer_died, index_moved, segment_rolled, limits_changed,
        expires, renamed,
    ],
)  # fmt: skip
def test_a_moment_that_is_not_plain_is_the_pipelines(
    store: Store, change: Callable[[Store], None]
) -> None:
    before = len(read(store))
    warm(store)
    change(store)
    lane_commits(store)
    store.stream("s").add(ROW)
    # A name that came back names the same stream: its handle may be made at once.
    # A node that is full by the new limits is sealed in the lane.
    assert lane_commits(store) == 0 or change in (renamed, limits_changed)
    assert len(read(store)) == before + 3
    assert not engine_of(store).wake.in_progress
    warm(store)
    assert len(read(store)) == before + 5


def test_a_lane_unused_for_long_leaves_the_add_to_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store might be gone, and another one have its name."""
    monkeypatch.setattr(identity, "LOOK_NS", 1)
    with logstore.open(tmp_path / "store", background=False) as store:
        warm(store)
        store.stream("s").add(ROW)
        assert lane_commits(store) == 0
        assert len(read(store)) == 3


def lock_of(store: Store) -> Path:
    return Path(str(engine_of(store).path)) / names.LOCK


def test_the_commit_of_another_process_is_waited_for(store: Store) -> None:
    """It is short: the add stays in the lane. On a busy machine it may be too long, once."""
    word = memoryview(engine_of(store).wake.memory)[commit_words._WAITING_OFFSET :]
    try:
        for _ in range(50):
            store.stream("s").add(ROW)  # who waited in vain does not wait again until LOCK was had
            lane_commits(store)
            with lock_of(store).open("r+b") as other:
                fcntl.flock(other, fcntl.LOCK_EX)
                thread = threading.Thread(target=lambda: store.stream("s").add(ROW))
                thread.start()
                while thread.is_alive() and not word[0]:  # it says that it waits
                    pass
            thread.join(20)
            assert not thread.is_alive()
            if lane_commits(store):
                return
    finally:
        word.release()
    pytest.fail("each went through the pipeline")


def test_after_a_vain_wait_the_lane_does_not_wait_for_lock(store: Store) -> None:
    """Until LOCK was had: it is held for something long, and others wait behind this thread."""
    lane, asked = engine_of(store).lane, list[str]()

    def system(call: str, first: int, *_: int) -> int:
        asked.append(call)
        if call == "clock":
            return time.monotonic_ns() if first else time.time_ns()
        return 0

    native_or_none.simulate(system)
    try:
        with lock_of(store).open("r+b") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            assert lane.add(b"s", ROW, []) is None
            assert "sleep" in asked
            asked.clear()
            assert lane.add(b"s", ROW, []) is None
            assert "flock" in asked
            assert "sleep" not in asked
        assert lane.add(b"s", ROW, []) is not None
        with lock_of(store).open("r+b") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            asked.clear()
            assert lane.add(b"s", ROW, []) is None
            assert "sleep" in asked
    finally:
        native_or_none.simulate(None)


def test_the_lane_leaves_waiting_for_lock_to_the_pipeline(store: Store) -> None:
    """It stands in the queue there, with its time-out."""
    with lock_of(store).open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: store.stream("s").add(ROW))
        thread.start()
        time.sleep(0.1)
        assert thread.is_alive()
        assert lane_commits(store) == 0
    thread.join(20)
    assert not thread.is_alive()


def test_the_index_lags_no_further_than_it_may(store: Store) -> None:
    stream, engine = store.stream("s"), engine_of(store)
    for _ in range(300):
        stream.add(ROW)
        behind = engine.wake.applied - engine.wake.indexed_upto
        assert behind <= 64 * 120 + 4096  # with a sealed node
    assert lane_commits(store) >= 280


def test_streams_share_the_lane(store: Store) -> None:
    rng = random.Random(5)
    expected: dict[str, list[Any]] = {f"s{number}": [] for number in range(7)}
    for _ in range(1500):
        name = rng.choice(list(expected))
        fields = {"n": str(rng.randrange(1000)), rng.choice("ab"): rng.randrange(1 << 40)}
        id = store.stream(name).add(fields)
        expected[name].append((id, {k.encode(): str(v).encode() for k, v in fields.items()}))
    assert lane_commits(store) > 1300
    for name, entries in expected.items():
        assert read(store, name) == entries


def test_counters_are_those_of_the_pipeline(tmp_path: Path) -> None:
    told = []
    for laned in (True, False):
        path = tmp_path / str(laned)
        with logstore.open(path, background=False, sync="always") as store:
            if not laned:
                engine_of(store)._close_lane()
            for number in range(120):
                store.stream("s").add({"n": number})
            with store.transaction() as transaction:
                for number in range(3):
                    transaction.stream("s").add({"n": number})
            counts = store.metrics()
            # Bytes of IDs depend on the time between them.
            told.append({name: counts[name] for name in counts if "_bytes" not in name})
            del told[-1]["sync_s"], told[-1]["sync_s_max"]
            assert counts["commit_bytes"] > counts["added_bytes"] > 120 * 6
            assert counts["sync_s"] >= counts["sync_s_max"] > 0
    assert told[0] == told[1]


# -- histories -------------------------------------------------------------------------------------
class History:
    """Adds in the lane with everything else between, and what is there then."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.rng = store, random.Random(seed)
        self.model: dict[str, dict[Any, dict[bytes, bytes]]] = {"a": {}, "b": {}}

    def step(self, number: int) -> None:
        """One operation: an add, but now and then."""
        name = self.rng.choice("ab")
        other = self.others().get(self.rng.randrange(60))
        if other is None or not self.model[name]:
            fields = {"n": str(number), self.rng.choice(["x", "y"]): "v" * self.rng.randrange(90)}
            id = self.store.stream(name).add(fields)
            self.model[name][id] = {k.encode(): v.encode() for k, v in fields.items()}
        else:
            other(name)

    def others(self) -> dict[int, Callable[[str], object]]:
        store = self.store
        return dict(
            enumerate(
                [
                    self.delete, self.trim, self.drop, self.read, self.check,
                    *[self.transaction] * 9, *[self.batch] * 9,
                    lambda _: store.checkpoint(), lambda _: roll(store), lambda _: store.compact(),
                ]
            )
        )  # fmt: skip

    def transaction(self, _: str) -> None:
        names = self.rng.choices("ab", k=self.rng.randrange(1, 6))
        rows = [
            {"n": "of many", self.rng.choice("xy"): "v" * self.rng.randrange(90)} for _ in names
        ]
        with self.store.transaction() as opened:
            added = [opened.stream(name).add(row) for name, row in zip(names, rows, strict=True)]
        for name, row, one in zip(names, rows, added, strict=True):
            self.model[name][one.id] = {k.encode(): v.encode() for k, v in row.items()}

    def batch(self, name: str) -> None:
        rows = [
            {"n": at, self.rng.choice("xy"): "v" * self.rng.randrange(90)}
            for at in range(self.rng.randrange(1, 20))
        ]
        for id, row in zip(self.store.stream(name).add_many(rows), rows, strict=True):
            self.model[name][id] = {k.encode(): str(v).encode() for k, v in row.items()}

    def delete(self, name: str) -> None:
        gone = self.rng.choice(list(self.model[name]))
        assert self.store.stream(name).delete(gone) == 1
        del self.model[name][gone]

    def trim(self, name: str) -> None:
        self.store.stream(name).trim(max_entries=50, approximate=False)
        self.model[name] = dict(list(self.model[name].items())[-50:])

    def drop(self, name: str) -> None:
        self.store.drop(name)
        self.model[name] = {}

    def read(self, name: str) -> None:
        for delivery in self.store.stream(name).group("g", start="0").read("c", count=3):
            delivery.ack()

    def check(self, *_: str) -> None:
        """All is there, in this process and in the index."""
        for name, held in self.model.items():
            there = [(entry.id, dict(entry.fields)) for entry in self.store.stream(name).range()]
            assert there == list(held.items())
            assert read(self.store, name) == there


def test_a_few_rows_are_one_frame_as_through_the_pipeline(store: Store) -> None:
    engine, stream = engine_of(store), store.stream("s")
    rows = [{"temp": "1", "hum": 2}, {"temp": "3"}, {b"temp": 4.5, "hum": "\xe9"}]
    frames = []
    for given in (rows, iter(rows)):  # what is no list goes through the pipeline
        warm(store)
        log = engine.wake.log()
        ids = stream.add_many(given)
        assert bool(lane_commits(store)) is (given is rows)
        assert len(ids) == 3
        assert [entry.id for entry in stream.range(ids[0])] == list(ids)
        segment, offset = fmt.position_parts(log.applied)
        end = engine.wake.applied & fmt.OFFSET_MAX
        file = engine.active_file(segment)
        frame = log_reader.read_frame(file, engine.seed, segment, offset, end)
        assert (frame.kind, frame.last) == (fmt.Kind.APPEND, True)
        assert frame.end_offset == end
        frames.append(frame)
    assert len({frame.end_offset - frame.offset for frame in frames}) == 1
    first, second = (dict(entry.fields) for entry in stream.range(reverse=True, count=2))
    assert first == {b"temp": b"4.5", b"hum": "\xe9".encode()}
    assert second == {b"temp": b"3"}


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [ROW] * 65,
        [("1-1", ROW)],
        [list(ROW.items())],
        [ROW, {}],
        [ROW, {"temp": object()}],
        [ROW, {"temp": "x" * 70_000}],
        [{"temp": "x" * 9_000}] * 8,
        (ROW,),
    ],
    ids=["none", "many", "IDs", "pairs", "empty", "type", "large", "large together", "a tuple"],
)
def test_other_batches_go_through_the_pipeline(store: Store, rows: Any) -> None:
    stream, before = store.stream("s"), len(read(store))
    lane_commits(store)
    count = 0
    with suppress(logstore.InvalidEntryError, logstore.EntryTypeError, logstore.IDOrderError):
        count = len(stream.add_many(rows))
    assert lane_commits(store) == 0
    assert len(read(store)) == before + count


def test_a_batch_that_is_no_batch_is_refused(store: Store) -> None:
    with pytest.raises(logstore.OptionError):
        store.stream("s").add_many([ROW], batch=10**9)


def test_a_batch_for_a_stream_with_a_codec_goes_through_it(store: Store) -> None:
    stream = store.stream("coded", codec="json")
    stream.add({"n": 1})
    stream.add({"n": 2})
    stream.add_many([{"n": [3]}, {"n": None}])
    assert [entry["n"] for entry in stream] == [1, 2, [3], None]


@pytest.mark.parametrize("seed", range(6))
def test_lane_and_pipeline_go_on_from_each_other(tmp_path: Path, seed: int) -> None:
    """What is there in the end is what was done, also for who opens it without an index."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, segment_bytes=1 << 16) as store:
        history = History(store, seed)
        for number in range(700):
            history.step(number)
        assert lane_commits(store) > 250
    for lost in (False, True):
        if lost:
            shutil.rmtree(path / "index")
        with logstore.open(path, background=False) as store:
            history.store = store
            history.check()


def adds(path: Path, count: int, names: str, report: Path) -> None:
    """A process that adds, and tells what it added."""
    with logstore.open(path, background=False) as store:
        ids = []
        for number in range(count):
            name = names[number % len(names)]
            ids.append((name, tuple(store.stream(name).add({"n": number, "pid": os.getpid()}))))
        report.write_text(repr((ids, lane_commits(store))))


@pytest.mark.parametrize("processes", [2, 8])
def test_processes_add_beside_each_other(tmp_path: Path, processes: int) -> None:
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        for name in "ab":
            store.stream(name).add({"n": 0})
    reports = [tmp_path / f"r{number}" for number in range(processes)]
    children = [
        Forked(lambda report=report, names=names: adds(path, 400, names, report))  # type: ignore[misc]
        for report, names in zip(reports, ["a", "ab", "b", "ba"] * 2, strict=False)
    ]
    for child in children:
        child.join()
    told = [eval(report.read_text()) for report in reports]
    assert sum(laned for _, laned in told) > 100
    with logstore.open(path, background=False) as store:
        for name in "ab":
            there = [tuple(id) for id, _ in read(store, name)]
            assert there == sorted(set(there))
            mine = [[id for each, id in ids if each == name] for ids, _ in told]
            assert all(ids == sorted(ids) for ids in mine)
            assert sorted(id for ids in mine for id in ids) == there[1:]


@pytest.mark.parametrize("name", ["s", "other"])
def test_nodes_that_another_process_begins_leave_the_lane_what_it_holds(
    tmp_path: Path, store: Store, name: str
) -> None:
    """Its stream is looked up again, alone: each add is of the lane, and nothing counts twice."""
    path = Path(str(engine_of(store).path))

    def play(turns: Iterator[None]) -> None:
        with logstore.open(path, background=False) as opened:
            opened.stream(name).add(ROW)
            for _ in turns:
                for _ in range(70):  # a node holds a hundred
                    opened.stream(name).add(ROW)

    store.stream("other").add(ROW)
    with ForkedInTurns(play) as other:
        warm(store)
        laned = added = 0
        for _ in range(20):
            other.turn()
            lane_commits(store)
            for each in ("s", "own", "other"):
                store.stream(each).add(ROW)
            laned += lane_commits(store)
            added += 3
            assert len(store.stream(name)) == len(read(store, name))
    assert laned >= added - 6
    before = {each: read(store, each) for each in ("s", "own", "other")}
    store.close()
    with logstore.open(path, background=False) as again:
        assert {each: read(again, each) for each in before} == before
        assert all(len(again.stream(each)) == len(rows) for each, rows in before.items())
    assert check(path).as_dict()["clean"]


def test_two_processes_in_turn_stay_in_their_lanes(tmp_path: Path, store: Store) -> None:
    """Each takes in from the log what the other one added."""
    path = Path(str(engine_of(store).path))

    def play(turns: Iterator[None]) -> None:
        with logstore.open(path, background=False) as theirs:
            warm(theirs)
            laned = 0
            for _ in turns:
                theirs.stream("s").add(ROW)
                laned += lane_commits(theirs)
            assert laned > 100

    child = ForkedInTurns(play)
    time.sleep(1.0)
    before, laned = len(read(store)), 0
    warm(store)
    for _ in range(150):
        store.stream("s").add(ROW)
        laned += lane_commits(store)
        child.turn()
    child.join()
    assert laned > 100
    assert len(read(store)) == before + 2 + 300


# -- failures --------------------------------------------------------------------------------------
def test_an_append_that_fails_did_not_happen(store: Store) -> None:
    """The file may not grow, as on a full disk: some bytes of the frame may be there."""
    stream, engine = store.stream("s"), engine_of(store)
    before = read(store)
    for room in (0, 1, 40, 70):
        warm(store)
        before = read(store)
        stream.add(ROW)
        with room_for(engine, room), pytest.raises(logstore.Error):
            stream.add(ROW)
        assert not engine.wake.in_progress
        assert not engine.lock.held
        assert len(read(store)) == len(before) + 1
        stream.add(ROW)
        assert len(read(store)) == len(before) + 2


def test_a_sync_that_fails_is_told_by_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk took the bytes, and does not say that they are durable, as /dev/null never does."""
    monkeypatch.setattr(log_tail, "END_LOOK_NS", 1 << 60)  # or it is seen that this is no segment
    with logstore.open(tmp_path / "store", background=False, sync="always") as store:
        stream, engine = store.stream("s"), engine_of(store)
        stream.add(ROW)
        stream.add(ROW)
        assert lane_commits(store)
        applied = engine.wake.applied
        active = engine.active
        assert active is not None
        kept, null = os.dup(active.fd), os.open("/dev/null", os.O_RDWR)
        os.dup2(null, active.fd)
        try:
            with pytest.raises(logstore.CommittedError, match="making it durable failed"):
                stream.add(ROW)
        finally:
            os.dup2(kept, active.fd)
            os.close(kept)
            os.close(null)
        assert engine.wake.applied == applied
        assert engine.wake.failed_at
        assert not engine.lock.held
        with pytest.raises(logstore.StoreFailedError):
            stream.add(ROW)


@pytest.mark.parametrize("sync", ["always", "everysec", "os"])
def test_the_promise_is_that_of_the_policy(tmp_path: Path, sync: Any) -> None:
    with logstore.open(tmp_path / "store", background=False, sync=sync) as store:
        stream, wake = store.stream("s"), engine_of(store).wake
        for _ in range(3):
            before_ms = monotonic_ms()
            stream.add(ROW)
        assert lane_commits(store)
        if sync == "always":
            assert wake.durable_upto == wake.applied
            assert not wake.oldest_unsynced_ms
        else:
            assert wake.durable_upto < wake.applied
            assert bool(wake.oldest_unsynced_ms) is (sync == "everysec")
            assert wake.oldest_unsynced_ms <= before_ms
        if sync == "everysec":
            store.sync()
            assert wake.durable_upto == wake.applied
            assert not wake.oldest_unsynced_ms


# -- threads, signals, forks -----------------------------------------------------------------------
def test_an_add_inside_of_a_call_is_refused(store: Store) -> None:
    calls = committer_of(store).calls
    calls.now = True
    try:
        with pytest.raises(logstore.ReentryError):
            store.stream("s").add(ROW)
    finally:
        calls.now = False
    assert lane_commits(store) == 0


class Adds:
    """Adds when it is collected, wherever that may be."""

    def __init__(self, stream: Any, outcomes: list[object]) -> None:
        self.stream, self.outcomes, self.me = stream, outcomes, self

    def __del__(self) -> None:
        try:
            self.outcomes.append(self.stream.add({"hum": 5, "temp": "of a finaliser"}))
        except logstore.Error as exc:
            self.outcomes.append(exc)


def test_adds_of_finalisers_and_handlers_leave_others_as_they_were(store: Store) -> None:
    """They come anywhere between two steps of an add of the same thread."""
    stream = store.stream("s")
    before, outcomes, ids = len(read(store)), list[object](), []
    threshold = gc.get_threshold()
    gc.set_threshold(1)

    def handle(*_: object) -> None:
        Adds(stream, outcomes).me = None  # type: ignore[assignment]

    old = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for number in range(1500):
            if number % 3 == 0:
                Adds(stream, outcomes)
            if number % 4:
                ids.append((stream.add({"temp": str(number), "hum": number}), number))
                continue
            new = [number + 10_000, number + 20_000]
            with store.transaction() as transaction:
                both = [transaction.stream("s").add({"temp": str(n), "hum": n}) for n in new]
            ids += [(one.id, n) for one, n in zip(both, new, strict=True)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        gc.set_threshold(*threshold)
    gc.collect()
    there = dict(read(store))
    for id, number in ids:
        assert there[id] == {b"temp": b"%d" % number, b"hum": b"%d" % number}
    added = [id for id in outcomes if isinstance(id, logstore.StreamID)]
    assert all(there[id][b"temp"] == b"of a finaliser" for id in added)
    assert len(there) == before + len(ids) + len(added)
    assert all(isinstance(one, logstore.StreamID | logstore.ReentryError) for one in outcomes)
    assert lane_commits(store) > 500


def test_an_interrupt_behind_a_commit_says_so(store: Store) -> None:
    """No handler runs until the commit is through."""
    stream = store.stream("s")
    told = committed = silent = 0
    before = len(read(store))

    def handle(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, handle)
    try:
        for _ in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00012)
                while True:
                    stream.add(ROW)
                    told += 1
            except logstore.CommittedError:
                committed += 1
            except KeyboardInterrupt:
                silent += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert not engine_of(store).lock.held
    # Behind the end of a call, or before its beginning, an interrupt is not the store's.
    assert told + committed <= len(read(store)) - before <= told + committed + silent
    assert committed
    stream.add(ROW)


@pytest.mark.parametrize("sync", ["always", "everysec"])
def test_threads_add_beside_each_other(tmp_path: Path, sync: Any) -> None:
    with logstore.open(tmp_path / "store", sync=sync) as store:
        added: list[list[Any]] = [[] for _ in range(6)]

        def work(mine: list[Any], number: int) -> None:
            stream = store.stream("ab"[number % 2])
            for each in range(150):
                fields = {"t": number, "n" if each % 5 else "m": each}
                if each % 4:
                    id = stream.add(fields)
                else:
                    with store.transaction() as transaction:
                        one = transaction.stream("ab"[number % 2]).add(fields)
                    id = one.id
                mine.append((id, {k.encode(): b"%d" % v for k, v in fields.items()}))

        threads = [
            threading.Thread(target=work, args=(mine, number)) for number, mine in enumerate(added)
        ]
        run_all(threads)
        assert lane_commits(store)
        for place, name in enumerate("ab"):
            mine = sorted((one for each in added[place::2] for one in each), key=lambda one: one[0])
            assert read(store, name) == mine


def test_a_close_leaves_adds_whole(tmp_path: Path) -> None:
    """A thread is in the midst of adds: each has happened, or raises."""
    path = tmp_path / "store"
    for delay in (0.0, 0.001, 0.004, 0.01):
        store = logstore.open(path, background=False)
        stream, ids = store.stream("s"), []
        started = threading.Event()

        def work(stream: Any = stream, ids: list[Any] = ids, started: Any = started) -> None:
            with suppress(logstore.ClosedError):
                while True:
                    ids.append(stream.add(ROW))
                    started.set()

        thread = threading.Thread(target=work)
        thread.start()
        started.wait(20)
        time.sleep(delay)
        store.close()
        thread.join(20)
        assert not thread.is_alive()
        with logstore.open(path, background=False) as again:
            assert again.recovery["index_trusted"]
            assert [id for id, _ in read(again)][-len(ids) :] == ids


def test_a_child_has_a_lane_of_its_own(store: Store) -> None:
    stream, before = store.stream("s"), len(read(store))
    warm(store)
    inherited = store._live().lane
    assert inherited is not None

    def work() -> None:
        assert inherited.add(b"s", dict(ROW), []) is None  # the parent's is closed here
        for _ in range(20):
            stream.add(ROW)
        assert store._live().lane is not inherited
        assert lane_commits(store) >= 15
        assert inherited.add(b"s", dict(ROW), []) is None

    child = ForkedOnGo(work)
    for _ in range(5):
        stream.add(ROW)
    child.go()  # to its end
    for _ in range(5):
        stream.add(ROW)
    assert store._live().lane is inherited
    assert lane_commits(store) >= 5
    assert len(read(store)) == before + 2 + 30


# -- who waits -------------------------------------------------------------------------------------
def test_readers_that_wait_are_woken(store: Store) -> None:
    got: list[Any] = []
    stream = store.stream("s")
    stream.group("g", start="$")
    warm(store)

    def wait_plain() -> None:
        got.extend(entry.id for entry in stream.read("$", timeout=20))

    for wait in (
        wait_plain,
        lambda: got.extend(d.id for d in stream.group("g").read("c", timeout=20)),
    ):
        follow(store)
        list(stream.group("g").read("other"))
        got.clear()
        thread = threading.Thread(target=wait)
        waits = store.metrics()["waits"]
        thread.start()
        while store.metrics()["waits"] == waits:  # the test's own limit ends this
            time.sleep(0.001)
        id = stream.add(ROW)
        follow(store)
        thread.join(20)
        assert got == [id]
