"""Prevents a thread that shares a commit, and its sync, from being told what is not so, and entries
of several callers, committed together, that one of them would not have alone.
"""

from __future__ import annotations

import errno
import gc
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.opening import opened_of
from logstore.engine.lane.lane_loading import native_or_none
from logstore.recovery import compare
from logstore.recovery.check import check
from logstore.wire.server.held_adds import HELD_MAX_ADDS
from tests import seeds
from tests.support import preload
from tests.support.inside import engine_of, follow, lane_commits
from tests.support.log_limit import room_for
from tests.support.processes import Program, run_program
from tests.support.threads import run_all, running
from tests.support.waits import eventually

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("by_lane")
Store = logstore.Store[Any]
WAIT_S = 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with two streams, of which the lane knows."""
    with logstore.open(
        tmp_path / "store", background=False, sync="always", node_max_entries=8
    ) as opened:
        for name in "ab":
            opened.stream(name).add({"n": -1})
            opened.stream(name).add({"n": -1})
        assert lane_commits(opened)
        yield opened


class Disk:
    """The system below the lanes of this process: syncs wait, and calls fail, as a test says."""

    def __init__(self) -> None:
        self.syncs = 0
        self.free = threading.Semaphore(0)  # syncs that may go on
        self.fails: dict[str, int] = {}  # the error of each call of a name

    def asked(self, call: str, first: int, second: int, held: int) -> int:
        """What a call of the system gives: ``native.simulate``."""
        if call == "clock":
            return time.clock_gettime_ns(first)
        if call == "sleep":
            time.sleep(0.0005)
            return 0
        if call == "fdatasync":
            self.syncs += 1
            assert self.free.acquire(timeout=WAIT_S)
        return self.fails.get(call, 0)


@pytest.fixture
def disk(store: Store) -> Iterator[Disk]:
    """Below the store, from here on."""
    system = Disk()
    native_or_none.simulate(system.asked)
    try:
        yield system
    finally:
        system.free.release(1000)
        native_or_none.simulate(None)


class Threads:
    """Calls of threads, and what each gave."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self._threads: list[threading.Thread] = []

    def call(self, what: Callable[[], object]) -> None:
        """Let another thread call."""
        place = len(self.given)
        self.given.append(None)

        def run() -> None:
            try:
                self.given[place] = what()
            except BaseException as exc:  # noqa: BLE001  the test looks at it
                self.given[place] = exc

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def end(self) -> list[Any]:
        """What they gave."""
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        return self.given


def in_line(store: Store) -> int:
    """Calls in the line, with the one that leads."""
    lane = store._live().lane
    assert lane is not None
    return lane.waiting


@contextmanager
def behind_one(store: Store, disk: Disk, calls: list[Callable[[], object]]) -> Iterator[Threads]:
    """Threads with these calls, in this order in the line behind an add whose sync is waited for.
    The add is the first of them; who leaves the block lets the sync end."""
    threads = Threads()
    threads.call(lambda: store.stream("a").add({"n": "leads"}))
    eventually(lambda: disk.syncs == 1)
    for place, call in enumerate(calls):
        threads.call(call)
        eventually(lambda place=place: in_line(store) == place + 2)  # type: ignore[misc]
    yield threads
    disk.free.release()


def values(store: Store, name: str) -> list[bytes]:
    """The values of all entries of a stream, once the index has them."""
    follow(store)
    return [entry["n"] for entry in store.stream(name)]


def is_whole(store: Store) -> None:
    """Closed, nothing is wrong with what is on the disk."""
    native_or_none.simulate(None)
    store.close()
    found = check(Path(store.path))
    assert not found.damage, found.damage
    assert found.index == compare.AGREES


# -- one commit ------------------------------------------------------------------------------------
def test_waiting_threads_share_a_commit(store: Store, disk: Disk) -> None:
    engine = engine_of(store)
    before, n = engine.wake.log().commit, 5
    calls = [lambda at=at: store.stream("ab"[at % 2]).add({"n": at}) for at in range(n)]
    lane_commits(store)
    with behind_one(store, disk, calls) as threads:  # type: ignore[arg-type]
        assert engine.wake.log().commit == before  # not published before it is durable
    disk.free.release(10)
    ids = threads.end()
    assert engine.wake.log().commit == before + 2
    assert engine.wake.durable_upto == engine.wake.applied
    counts = store.metrics()
    assert counts["syncs"] >= 2
    assert lane_commits(store) == 0
    for place, name in enumerate("ab"):
        mine = {id: b"%d" % at for at, id in enumerate(ids[1:]) if at % 2 == place}
        found = {entry.id: entry["n"] for entry in store.stream(name)}
        assert mine.items() <= found.items()
    assert len(set(ids[1::2])) == 3
    is_whole(store)


def test_calls_of_all_kinds_come_in_their_order(store: Store, disk: Disk) -> None:
    """Nodes end amid them, streams begin, and a transaction stays whole."""

    def pair(at: int) -> None:
        with store.transaction() as transaction:
            transaction.stream("a").add({"n": at})
            transaction.stream("b").add({"n": at})

    a, b = store.stream("a"), store.stream("b")
    calls: list[Callable[[], object]] = [
        lambda: a.add({"n": 0}),
        lambda: pair(1),
        lambda: a.add_many([{"n": 2}, {"n": 3}, {"n": 4}]),
        lambda: store.stream("new").add({"n": 5}),
        lambda: b.add({"n": 6}, max_entries=1000),
        lambda: a.add_many([{"n": at} for at in range(7, 27)]),
        lambda: pair(27),
        lambda: a.add({"n": 28, "other": "names"}),
    ]
    with behind_one(store, disk, calls) as threads:
        disk.free.release(100)
    given = threads.end()
    assert not [one for one in given if isinstance(one, BaseException)]
    wanted = [b"leads", *(b"%d" % at for at in [0, 1, 2, 3, 4, *range(7, 27), 27, 28])]
    found = values(store, "a")[2:]
    assert sorted(found) == sorted(wanted)
    for batch in ([2, 3, 4], list(range(7, 27))):  # each was one commit
        texts = [b"%d" % at for at in batch]
        at = found.index(texts[0])
        assert found[at : at + len(texts)] == texts
    assert sorted(values(store, "b")[2:]) == sorted([b"1", b"6", b"27"])
    assert values(store, "new") == [b"5"]
    assert list(given[3]) == [entry.id for entry in a if entry["n"] in (b"2", b"3", b"4")]
    is_whole(store)


def test_more_threads_than_a_commit_takes(store: Store, disk: Disk) -> None:
    calls = [lambda at=at: store.stream("a").add({"n": at}, max_entries=10**6) for at in range(70)]
    with behind_one(store, disk, calls) as threads:  # type: ignore[arg-type]
        disk.free.release(1000)
    ids = threads.end()
    assert len(set(ids)) == 71
    assert sorted(values(store, "a")[3:]) == sorted(b"%d" % at for at in range(70))
    is_whole(store)


# -- what fails ------------------------------------------------------------------------------------
def test_an_append_that_fails_is_told_to_all(store: Store, disk: Disk) -> None:
    before = len(values(store, "a"))
    calls = [lambda: store.stream("a").add({"n": 1})] * 3
    with behind_one(store, disk, calls) as threads:  # type: ignore[arg-type]
        disk.fails["pwrite"] = errno.EIO
    given = threads.end()
    assert isinstance(given[0], logstore.StreamID)
    assert all(isinstance(one, logstore.FileSystemError) for one in given[1:]), given
    disk.fails.clear()
    disk.free.release(100)
    assert len(values(store, "a")) == before + 1
    store.stream("a").add({"n": 2})
    assert values(store, "a")[-1] == b"2"
    is_whole(store)


def test_a_sync_that_fails_is_told_to_all(store: Store, disk: Disk) -> None:
    engine = engine_of(store)
    calls = [lambda: store.stream("a").add({"n": 1})] * 3
    with behind_one(store, disk, calls) as threads:  # type: ignore[arg-type]
        pass
    eventually(lambda: disk.syncs == 2)
    applied, disk.fails["fdatasync"] = engine.wake.applied, errno.EIO
    disk.free.release(100)
    given = threads.end()
    assert isinstance(given[0], logstore.StreamID)
    for one in given[1:]:
        assert isinstance(one, logstore.CommittedError), given
        assert "making it durable failed" in str(one)
    assert engine.wake.applied == applied
    assert engine.wake.failed_at


# -- signals, forks, closes ------------------------------------------------------------------------
# Handlers run in the main thread wherever Python runs: below these is a library, and no simulator.
SCRIPT = """
import os, signal, sys, threading, time, logstore
from logstore.engine.lane import lane as lanes
from logstore.engine.runtime import identity
identity.LOOK_NS = 3600 * 10**9
store = logstore.open(sys.argv[1], sync="always", background=False)
a, b = store.stream("a"), store.stream("b")
for stream in (a, b, a, b): stream.add({"n": -1})
lane = store._live().lane
told, threads = [], []
def thread(what):
    def run():
        try: what()
        except BaseException as exc: told.append(exc)
    threads.append(threading.Thread(target=run)); threads[-1].start()
def signal_at(waiting, number, after_s=0.05):
    def send():
        while lane.waiting < waiting: time.sleep(0.001)
        time.sleep(after_s)
        os.kill(os.getpid(), number)
    thread(send)
def leads():  # and is in the midst of its sync
    thread(lambda: a.add({"n": "leads"}))
    while not lane.locked: time.sleep(0.001)
def two_in_line():  # who leads next stands behind who leads
    leads()
    thread(lambda: b.add({"n": 1}))
    while lane.waiting < 2: time.sleep(0.001)
def values(stream): return [entry["n"].decode() for entry in stream][2:]
def end():
    for each in threads: each.join()
    assert not told, told
    store.close()
"""
INTERRUPTED_IN_LINE = """
two_in_line()
signal_at(3, signal.SIGINT)
try:
    a.add({"n": "mine"})
    raise SystemExit("no interrupt came")
except logstore.CommittedInterrupt:
    raise SystemExit("it is said to count")
except KeyboardInterrupt:
    assert lane.waiting == 2
for each in threads: each.join()
found = values(a), values(b)
assert found == (["leads"], ["1"]), found
a.add({"n": 2})
end()
"""
INTERRUPTED_IN_COMMIT = """
before = store.metrics()["syncs"]
two_in_line()
def send():  # amid the second sync
    while store.metrics()["syncs"] == before: time.sleep(0.001)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
thread(send)
try:
    a.add({"n": "mine"})
    time.sleep(5)
    raise SystemExit("no interrupt came")
except KeyboardInterrupt:
    pass
for each in threads: each.join()
assert values(a) == ["leads", "mine"] and values(b) == ["1"], (values(a), values(b))
end()
"""
HANDLER_COMES_IN = """
said = []
def handler(*_):
    try: said.append(a.add({"n": "handler"}))
    except logstore.Error as exc: said.append(type(exc))
signal.signal(signal.SIGUSR1, handler)
leads()
signal_at(2, signal.SIGUSR1)
a.add({"n": "mine"})
for each in threads: each.join()
assert said == [logstore.ReentryError], said
assert values(a) == ["leads", "mine"]
end()
"""
FORKED_IN_LINE = """
children, parent = [], os.getpid()
signal.signal(signal.SIGUSR1, lambda *_: children.append(os.fork()))
leads()
signal_at(2, signal.SIGUSR1)
try:
    a.add({"n": "mine"})
finally:
    if os.getpid() != parent: os._exit(17)
code = os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])
assert code == 17, code
for each in threads: each.join()
assert values(a) == ["leads", "mine", "mine"], values(a)
end()
"""
FORKED_WHILE_LEADING = """
kids, parent, real = [], os.getpid(), lanes.IndexPort.load
signal.signal(signal.SIGUSR1, lambda *_: kids.append(os.fork()))
def load(self, name, number):
    if name == b"cold" and not kids: os.kill(parent, signal.SIGUSR1)
    return real(self, name, number)
lanes.IndexPort.load = load
leads()
def other():
    while lane.waiting < 2: time.sleep(0.001)
    b.add({"n": 1})
thread(other)
try:
    store.stream("cold").add({"n": "mine"})
finally:
    if os.getpid() != parent: os._exit(17)
assert os.waitstatus_to_exitcode(os.waitpid(kids[0], 0)[1]) == 17
for each in threads: each.join()
assert values(a) == ["leads"] and values(b) == ["1"]
end()
"""
HANDLER_RAISES_BEHIND_THE_COMMIT = """
class Late(Exception): pass
def handler(*_):
    time.sleep(1.0)
    raise Late
signal.signal(signal.SIGUSR1, handler)
two_in_line()
signal_at(3, signal.SIGUSR1)
try:
    a.add({"n": "mine"})
    raise SystemExit("nothing was raised")
except logstore.CommittedError as exc:
    assert isinstance(exc.__cause__, Late), exc.__cause__
for each in threads: each.join()
assert values(a) == ["leads", "mine"], values(a)
end()
"""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library below a process whose syncs take 0.3 s."""
    return preload.built(tmp_path_factory.mktemp("slow"), Path(__file__).with_name("slow_sync.c"))


@pytest.mark.parametrize(
    "script",
    [
        INTERRUPTED_IN_LINE, INTERRUPTED_IN_COMMIT, HANDLER_COMES_IN, FORKED_IN_LINE,
        FORKED_WHILE_LEADING, HANDLER_RAISES_BEHIND_THE_COMMIT,
    ],
    ids=[
        "interrupted in line", "interrupted in a commit", "a handler comes in", "forked in line",
        "forked while leading", "a handler raises behind the commit",
    ],
)  # fmt: skip
def test_signals_in_the_line(tmp_path: Path, slow: Path, script: str) -> None:
    path = tmp_path / "slow"
    env = {**os.environ, **preload.below(slow)}
    run_program(SCRIPT + script, path, env=env, timeout=WAIT_S)
    found = check(path)
    assert not found.damage, found.damage


def test_a_close_leaves_calls_in_the_line_whole(tmp_path: Path) -> None:
    path = tmp_path / "closed"
    for delay_s in (0.0, 0.002, 0.01):
        store = logstore.open(path, background=False, sync="always")
        told: list[list[Any]] = [[] for _ in range(6)]

        def work(mine: list[Any], store: Store = store) -> None:
            stream = store.stream("s")
            with suppress(logstore.ClosedError):
                while True:
                    mine.append(stream.add({"n": 1}))

        threads = [threading.Thread(target=work, args=(mine,)) for mine in told]
        with running(threads, WAIT_S):
            eventually(lambda: all(map(len, told)))  # noqa: B023  it is over before the next round
            time.sleep(delay_s)
            store.close()
        for thread in threads:
            assert not thread.is_alive()
        with logstore.open(path, background=False) as again:
            there = {entry.id for entry in again.stream("s")}
            assert {id for mine in told for id in mine} <= there


class CollectsAmidTheLead:
    """Below the lane: while the main thread leads, and has not the mutex yet, whatever is made may
    be what begins a collection, and a finaliser adds."""

    def __init__(self, stream: Any, lane: Any) -> None:
        self.stream, self.lane, self.told = stream, lane, list[object]()
        self.state = "away"
        self._kept: list[object] = []

    def asked(self, call: str, first: int, second: int, held: int) -> int:
        """``native.simulate``: a sleep of who leads is that for those who come again."""
        leads = threading.current_thread() is threading.main_thread() and self.lane.waiting
        if leads and call == "sleep" and self.state == "waits":
            gc.disable()
            self.state = "gathers"
            return 0
        later_ns = 0
        if leads and call == "clock" and self.state == "gathers":
            self.state, later_ns = "done", 10**9
            Finaliser(self)
            gc.set_threshold(1)
            self._kept.extend([(at,) for at in range(5000)])  # no tuple of this size is left
            gc.enable()
        if call == "sleep":
            time.sleep(0.0005)
        return time.clock_gettime_ns(first) + later_ns if call == "clock" else 0


class Finaliser:
    """Garbage that adds."""

    def __init__(self, system: CollectsAmidTheLead) -> None:
        self.system, self.me = system, self

    def __del__(self) -> None:
        self.system.told.append(self.system.stream.add({"n": "of a finaliser"}))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python collects between bytecodes alone")
def test_a_finaliser_amid_the_lead_does_not_wait_for_its_own_thread(store: Store) -> None:
    """To ask for the mutex a tuple is made."""
    system = CollectsAmidTheLead(store.stream("a"), store._live().lane)

    def others() -> None:
        for _ in range(20):
            store.stream("b").add({"n": 0})

    threshold = gc.get_threshold()
    native_or_none.simulate(system.asked)
    try:
        for _ in range(100):
            threads = [threading.Thread(target=others) for _ in range(3)]
            run_all(threads)
            system.state = "waits"
            store.stream("a").add({"n": "mine"})
            if system.state == "done":
                break
    finally:
        native_or_none.simulate(None)
        gc.enable()
        gc.set_threshold(*threshold)
    assert system.state == "done"
    assert [type(one) for one in system.told] == [logstore.StreamID]
    is_whole(store)


# -- at random -------------------------------------------------------------------------------------
@pytest.mark.parametrize("sync", ["always", "everysec"])
def test_threads_at_random(tmp_path: Path, sync: Any) -> None:
    """What each thread added is there, in its order, with the IDs that it was told."""
    with logstore.open(tmp_path / "s", background=False, sync=sync, node_max_entries=16) as store:
        told: list[list[tuple[str, Any, bytes]]] = [[] for _ in range(8)]

        def work(mine: list[tuple[str, Any, bytes]], number: int) -> None:
            rng = random.Random(number)
            for at in range(60):
                name, text = rng.choice("abcd"), b"%d-%d" % (number, at)
                stream = store.stream(name if rng.random() < 0.9 else f"{name}{at}")
                kind = rng.randrange(5)
                if kind == 0:
                    ids = list(stream.add_many([{"n": text + b"/%d" % j} for j in range(3)]))
                    mine += [(stream.name, id, text + b"/%d" % j) for j, id in enumerate(ids)]
                    continue
                if kind == 1:
                    with store.transaction() as transaction:
                        added = transaction.stream(stream.name).add({"n": text})
                    id = added.id
                elif kind == 2:
                    id = stream.add({"n": text}, sync="always")  # through the pipeline
                else:
                    id = stream.add({"n": text})
                mine.append((stream.name, id, text))

        threads = [
            threading.Thread(target=work, args=(mine, number)) for number, mine in enumerate(told)
        ]
        run_all(threads)
        everything = [one for mine in told for one in mine]
        found = {
            (name, entry.id, entry["n"])
            for name in {one[0] for one in everything}
            for entry in store.stream(name)
        }
        assert found == set(everything)
        for mine in told:  # of one stream a thread's IDs ascend
            for name in {one[0] for one in mine}:
                ids = [id for of, id, _ in mine if of == name]
                assert ids == sorted(ids)
        is_whole(store)


ADDING = """
import os, sys, threading, logstore
store = logstore.open(sys.argv[1], sync="always", background=False)
def work(number):
    stream = store.stream("s")
    for at in range(10**6):
        stream.add({"n": f"{number}-{at}"})
        os.write(1, f"{number}-{at}\\n".encode())
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
"""


@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.3])
def test_acknowledged_adds_of_a_killed_process_are_there(tmp_path: Path, after_s: float) -> None:
    path = tmp_path / "killed"
    process = Program(ADDING, path)
    first = process.answer()
    time.sleep(after_s)
    told = [first, *process.kill().split("\n")]
    told = [one for one in told[:-1] if one] if told[-1] else [one for one in told if one]
    with logstore.open(path, background=False) as store:
        there = [entry["n"].decode() for entry in store.stream("s")]
        assert set(told) <= set(there)
        for number in range(8):
            mine = [one for one in there if one.startswith(f"{number}-")]
            assert mine == [f"{number}-{at}" for at in range(len(mine))]
        is_whole(store)


STREAMS = 12
ODD: list[Any] = [{}, {b"n": object()}, {b"n": b"x" * (1 << 20)}]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Store]:
    """A store whose nodes are full soon."""
    with logstore.open(
        tmp_path / "store", background=False, encoding=None, node_max_entries=7
    ) as opened:
        yield opened


def add_each(store: Store, entries: list[Any]) -> list[logstore.StreamID]:
    """The IDs of those that were committed."""
    told: list[logstore.StreamID | None] = []
    opened_of(store).add_each_plain(entries, told)
    return [id for id in told if id is not None]


def test_shared_commits_hold_exactly_the_acknowledged_adds(small: Store) -> None:
    seed = seeds.seed()
    print(f"{seeds.GIVEN}={seed}")
    draw = random.Random(seed)
    expected: dict[bytes, list[Any]] = {b"s%d" % number: [] for number in range(STREAMS)}
    alone = all_in = 0
    for _ in range(200):
        entries = []
        for _ in range(draw.randrange(1, 64)):
            name = b"s%d" % min(draw.randrange(STREAMS), draw.randrange(STREAMS))
            fields: Any = {b"n": b"%d" % draw.randrange(1000), b"a": "\u00e9\u20ac"}
            if draw.random() < 0.01:
                fields = draw.choice(ODD)
            entries.append((name, fields, None))
        at = 0
        while at < len(entries):
            told = add_each(small, entries[at:])
            for (name, fields, _), id in zip(entries[at:], told, strict=False):
                expected[name].append((id, {b"n": fields[b"n"], b"a": "\u00e9\u20ac".encode()}))
            at += len(told)
            if at < len(entries):
                alone += 1
                name, fields, _ = entries[at]
                if fields not in ODD or fields is ODD[2]:
                    expected[name].append((small.stream(name).add(fields), encoded(fields)))
                at += 1
            else:
                all_in += 1
        if draw.random() < 0.2:
            follow(small)
    for name, rows in expected.items():
        assert [(entry.id, dict(entry.fields)) for entry in small.stream(name).range()] == rows
        assert [id for id, _ in rows] == sorted(id for id, _ in rows)
    assert lane_commits(small) < sum(map(len, expected.values())) / 3
    assert alone < all_in
    assert not check(small.path).damage


def encoded(fields: dict[bytes, Any]) -> dict[bytes, bytes]:
    """As it is read."""
    return {name: v.encode() if isinstance(v, str) else v for name, v in fields.items()}


def test_adds_committed_before_a_failure_are_told(small: Store) -> None:
    for name in (b"a", b"b", b"c"):
        small.stream(name).add({b"n": b"0"})
        small.stream(name).add({b"n": b"0"})
    assert lane_commits(small)
    entries: list[Any] = [(b"a", {b"n": b"1"}, None), (b"new", {b"n": b"2"}, None)]
    entries += [(b"b", {b"n": b"3" * 500}, None), (b"c", {b"n": b"4"}, None)]
    follow(small)
    told: list[logstore.StreamID | None] = []
    with room_for(engine_of(small), 400), pytest.raises(logstore.Error):
        opened_of(small).add_each_plain(entries, told)
    there = {name: [entry.id for entry in small.stream(name).range()] for name in small.streams()}
    assert told[0] is not None
    assert told[-1] is None  # of the commit that failed; what stands behind that was not tried
    for (name, _, _), id in zip_longest(entries, told):
        assert (id is not None) == (len(there.get(name, [])) % 2 == 1)
    assert not engine_of(small).lock.held


def test_none_and_too_many(small: Store) -> None:
    small.stream("other").add({"n": 1})
    assert add_each(small, []) == []
    assert HELD_MAX_ADDS == 64
    many: list[Any] = [(b"a", {b"n": b"1"}, None)] * 65
    assert add_each(small, many) == []
    assert len(add_each(small, many[:64])) == 64
    with pytest.raises((TypeError, ValueError)):
        add_each(small, [(b"a", {b"n": b"1"})])
    with pytest.raises(TypeError):
        add_each(small, [("a", {b"n": b"1"}, None)])
    assert len(small.stream(b"a")) == 64
