"""Prevents a thread that waits again in compiled code from missing an entry, getting it twice,
getting past others, or keeping its waiter record for ever.

What the session does instead is in ``test_rejoining``; each case here sees to it that no session
had a part, or that it goes on where compiled code leaves off.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.group import making
from logstore.api.store import Store
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.shm.waiters import OFFERED, PACE
from logstore.engine.waiting import wait_session
from logstore.engine.waiting.wait_session import WaitSession
from tests.support.inside import engine_of, let_lag
from tests.support.processes import Forked
from tests.support.threads import running
from tests.support.waits import eventually
from tests.waiting import crowd
from tests.waiting.readers import Reading, reads_in_its_turn

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("patient", "unhurried")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store[Any]]:
    """Whoever was seen at all was seen lately, also for the lane."""
    let_lag(monkeypatch, 64, lane=True)
    with logstore.open(tmp_path / "store", sync="os", background=False) as opened:
        lane_of(opened).lately_ms = 600_000
        yield opened


def lane_of(store: Store[Any]) -> Any:
    lane = engine_of(store).lane
    assert lane is not None
    return lane


def add(store: Store[Any], *numbers: int) -> None:
    """A commit each."""
    for number in numbers:
        store.stream("work").add({"n": number})


class ReadsAgain(threading.Thread):
    """A thread that was served once when this is made, and reads once more when it is told to."""

    def __init__(self, store: Store[Any], who: str, **options: Any) -> None:
        super().__init__()
        self._store, self._who, self._options = store, who, {"timeout": crowd.LONG_S} | options
        self._once, self._goes_on = threading.Event(), threading.Event()
        self.sessions = 0
        self.got: list[int] = []
        self.failed: BaseException | None = None
        self.start()
        eventually(lambda: len(crowd.takers(store)) == 1)
        add(store, 0)
        assert self._once.wait(crowd.SOON_S)

    def run(self) -> None:
        """Read twice."""
        group = crowd.group_of(self._store)
        self.got += [int(each.fields["n"]) for each in group.read(self._who, timeout=crowd.LONG_S)]
        self._once.set()
        self._goes_on.wait(crowd.SOON_S)
        try:
            found = group.read(self._who, **self._options)
            self.got += [int(each.fields["n"]) for each in found]
        except BaseException as exc:  # noqa: BLE001  told to who waits for it
            self.failed = exc

    def begin(self) -> None:
        """Let it read; it stands in the queue when this returns."""
        self._goes_on.set()
        key, waits = crowd.key_of(self._store), engine_of(self._store).wake.waits
        eventually(lambda: any(each.pid == os.getpid() for each in waits.waiters.waiting(key)))

    def read(self) -> None:
        """Let it read, wherever that ends."""
        self._goes_on.set()

    def wait(self) -> list[int]:
        """What it got."""
        self.join(crowd.SOON_S)
        assert not self.is_alive()
        return self.got


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Who went through a session, which has the deadline of the whole call."""
    told: list[bytes] = []
    deadlines: dict[int, float | None] = {}
    read_group, in_turn = wait_session.read_group, wait_session._in_turn

    def reads(read: Any, deadline: float | None, *args: Any, **options: Any) -> Any:
        deadlines[threading.get_ident()] = deadline
        return read_group(read, deadline, *args, **options)

    def takes_turns(read: Any, session: Any, deadline: float | None, *args: Any) -> Any:
        assert deadline == deadlines[threading.get_ident()]
        told.append(read.consumer)
        return in_turn(read, session, deadline, *args)

    monkeypatch.setattr(wait_session, "read_group", reads)
    monkeypatch.setattr(wait_session, "_in_turn", takes_turns)
    return told


def behind_again(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Once, behind a wait in compiled code, before the session knows what became of it."""
    again = WaitSession.again

    def instead(self: WaitSession, *args: Any) -> Any:
        told = again(self, *args)
        monkeypatch.setattr(WaitSession, "again", again)
        work()
        return told

    monkeypatch.setattr(WaitSession, "again", instead)


def test_a_reader_that_waits_again_gets_what_is_added_while_it_sleeps(
    store: Store[Any], sessions: list[bytes]
) -> None:
    """And then once more, with the same record."""
    again = ReadsAgain(store, "c")
    before, records = store.metrics(), crowd.used(store)
    again.begin()
    add(store, 1)
    assert again.wait() == [0, 1]
    after = store.metrics()
    assert sessions == [b"c"]  # the first time
    told = {name: after[name] - before[name] for name in ("waits", "wakeups", "handed", "commits")}
    assert told == {"waits": 1, "wakeups": 1, "handed": 1, "commits": 1}
    assert after["read_entries"] - before["read_entries"] == 1
    assert crowd.owners(store) == ["c", "c"]
    assert crowd.used(store) == records
    (one, two) = crowd.group_of(store).pending_entries()
    assert (one.delivery_count, two.delivery_count) == (1, 1)


def test_a_reader_that_waits_again_reads_existing_entries(
    store: Store[Any], sessions: list[bytes]
) -> None:
    again = ReadsAgain(store, "c", count=1)
    add(store, 1, 2)
    again.read()
    assert again.wait() == [0, 1]
    assert sessions == [b"c"]
    assert crowd.owners(store) == ["c", "c"]


def test_a_reader_that_waits_again_stands_behind_those_who_wait(store: Store[Any]) -> None:
    again = ReadsAgain(store, "again")
    reads_in_its_turn(store, again, again.read)


def test_a_consumer_that_is_not_known_lately_comes_through_the_session(
    store: Store[Any], sessions: list[bytes]
) -> None:
    """That it was seen is to be written down. The record is used again."""
    again = ReadsAgain(store, "c")
    lane_of(store).lately_ms = 0
    records = crowd.used(store)
    again.begin()
    add(store, 1)
    assert again.wait() == [0, 1]
    assert sessions == [b"c", b"c"]
    assert crowd.used(store) == records


@pytest.mark.parametrize("timeout", [0.05, 0.4])
def test_at_its_deadline_it_keeps_its_place(
    store: Store[Any], sessions: list[bytes], timeout: float
) -> None:
    """Within a slice, or behind one, which does not count anew."""
    PACE.set(0.15)
    again = ReadsAgain(store, "c", timeout=timeout)
    began = time.monotonic()
    again.read()
    assert again.wait() == [0]
    assert timeout <= time.monotonic() - began < crowd.SOON_S
    assert sessions == [b"c", b"c"]
    waits = engine_of(store).wake.waits
    assert waits.saved.holds(crowd.key_of(store), (again.ident, b"c"))
    assert crowd.queue(store) == []


def test_a_session_keeps_its_place_over_slices(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never left the queue, and so nobody who came later gets past it."""
    PACE.set(0.1)
    again, key = ReadsAgain(store, "c"), crowd.key_of(store)
    waits, goes_on, stands = engine_of(store).wake.waits, threading.Event(), threading.Event()

    def slow() -> None:
        stands.set()
        assert goes_on.wait(crowd.SOON_S)

    behind_again(monkeypatch, slow)
    again.begin()
    before = [each.ticket for each in waits.waiters.waiting(key)]
    assert stands.wait(crowd.SOON_S)
    assert [each.ticket for each in waits.waiters.waiting(key)] == before
    later = Reading(store, "later", count=1)
    add(store, 1)
    goes_on.set()
    assert again.wait() == [0, 1]
    add(store, 2)
    assert later.wait() == [2]


@pytest.mark.parametrize("slice_s", [0.05, 900.0])
def test_several_entries_are_told_by_the_session(
    store: Store[Any], sessions: list[bytes], slice_s: float
) -> None:
    """A commit handed out two, in the midst of its slice or behind it."""
    PACE.set(slice_s)
    again = ReadsAgain(store, "c")
    again.begin()
    store.stream("work").add_many([{"n": 1}, {"n": 2}])
    assert again.wait() == [0, 1, 2]
    assert crowd.owners(store) == ["c", "c", "c"]
    assert sessions == [b"c", b"c"]


def test_an_offer_before_the_session_is_returned_after_configure(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it comes, before the session knows of it: the entries are its own already."""
    again = ReadsAgain(store, "c")
    behind_again(monkeypatch, lambda: crowd.group_of(store).configure(min_idle=3600))
    again.begin()
    store.stream("work").add_many([{"n": 1}, {"n": 2}])
    assert again.wait() == [0, 1, 2]
    assert crowd.owners(store) == ["c", "c", "c"]


def handed_at_a_kept_place(store: Store[Any]) -> tuple[WaitSession, logstore.StreamID]:
    """The session of one that gave up, was handed an entry at that moment, and comes again."""
    again = ReadsAgain(store, "c", timeout=0.05)
    again.read()
    assert again.wait() == [0]
    group, waits, owner = crowd.group_of(store), engine_of(store).wake.waits, (again.ident, b"c")
    saved = waits.saved._kept[crowd.key_of(store), owner]
    add(store, 1)
    (given,) = group.read("c", count=1)
    waits.mailboxes.offer_locked(saved.number, given.id, given.id, 1)
    waits.given_locked([saved.number])
    session = group._waiting(b"c", 0).session(owner)
    assert session is not None
    return session, given.id


def test_an_offer_at_a_kept_place_is_returned_after_configure(
    store: Store[Any],
) -> None:
    session, id = handed_at_a_kept_place(store)
    crowd.group_of(store).configure(min_idle=3600)
    assert [each.id for each in session.begin() or []] == [id]


def test_a_kept_place_is_given_back_if_what_is_there_cannot_be_read(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = handed_at_a_kept_place(store)

    def fails(*_: object) -> Any:
        raise logstore.FileSystemError("as of a disk")

    monkeypatch.setattr(WaitSession, "_collect", fails)
    with pytest.raises(logstore.FileSystemError):
        session.begin()
    session.leave()
    assert crowd.used(store) == []


@pytest.mark.parametrize("joined", [False, True])
def test_an_offer_before_the_reading_commit_is_returned_after_configure(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch, joined: bool
) -> None:
    """Behind its joining, before the commit that reads; in compiled code, or by the session."""
    again, joins = ReadsAgain(store, "c"), WaitSession._joins
    lane_of(store).lately_ms = 0
    if not joined:
        monkeypatch.setattr(wait_session, "kept_record", lambda *_: None)

    def other() -> None:
        store.stream("work").add_many([{"n": 1}, {"n": 2}])
        crowd.group_of(store).configure(min_idle=3600)

    def slow(self: WaitSession, ticket: Any) -> bool:
        found = joins(self, ticket)
        monkeypatch.setattr(WaitSession, "_joins", joins)
        adding = threading.Thread(target=other)
        adding.start()
        adding.join()
        return found and joined

    monkeypatch.setattr(WaitSession, "_joins", slow)
    again.read()
    assert again.wait() == [0, 1, 2]
    assert crowd.owners(store) == ["c", "c", "c"]


def test_an_interrupt_behind_the_wait_gives_the_record_back(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it stands in the queue: who comes behind it is handed what is added."""
    PACE.set(0.1)
    again = ReadsAgain(store, "c")

    def interrupt() -> None:
        raise KeyboardInterrupt

    behind_again(monkeypatch, interrupt)
    again.read()
    again.wait()
    assert isinstance(again.failed, KeyboardInterrupt)
    assert (crowd.used(store), crowd.queue(store)) == ([], [])
    other = Reading(store, "other", count=1)
    add(store, 1)
    assert other.wait() == [1]


def test_a_reader_that_kept_two_records_leaves_none_behind(store: Store[Any]) -> None:
    """A handler of signals reads as the consumer for which the call below it waits."""
    again = ReadsAgain(store, "c")
    again.begin()
    owner, group = (again.ident, b"c"), crowd.group_of(store)
    inner = group._waiting(b"c", 0).session(owner)
    assert inner is not None
    assert inner.begin() is None
    assert inner.give_up() is None  # it keeps its place
    add(store, 1)
    assert again.wait() == [0, 1]
    assert wait_session.read_group(
        group._waiting(b"c", 0), time.monotonic() + 0.05, store._engine, owner,
        making=(making(group), []),
    ) == []  # fmt: skip
    waits = engine_of(store).wake.waits
    assert waits.waiters.waiting(crowd.key_of(store)) == []
    kept = [
        each.number for held in (waits.saved._kept, waits.saved._bare) for each in held.values()
    ]
    assert sorted(kept) == crowd.used(store) == sorted(waits.waiters.tickets)


def test_an_entry_that_is_deleted_meanwhile_is_not_given(store: Store[Any]) -> None:
    """Neither is the next one in its place: the wait goes on."""
    again = ReadsAgain(store, "c")
    again.begin()
    stream = store.stream("work")
    stream.delete(stream.add({"n": 1}))
    add(store, 2)
    assert again.wait() in ([0, 2], [0, 1])  # it may have been quicker than the delete


def test_a_close_ends_it(store: Store[Any]) -> None:
    PACE.set(0.1)
    again = ReadsAgain(store, "c")
    again.begin()
    store.close()
    again.wait()
    assert isinstance(again.failed, logstore.ClosedError)


def test_an_interrupt_gives_the_record_back(store: Store[Any]) -> None:
    """In the main thread, of a process of its own; who stands behind it is woken."""
    path = store.path
    store.create("work")
    add(store, -1)
    ready, say = os.pipe()

    def work() -> None:
        with logstore.open(path, background=False) as own:
            lane_of(own).lately_ms = 600_000
            group = crowd.group_of(own)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            assert group.read("c")
            adding = threading.Timer(0.2, lambda: add(own, 1))
            adding.start()
            assert group.read("c", timeout=crowd.LONG_S)
            os.write(say, b"x")
            try:
                group.read("c", timeout=crowd.LONG_S)
            except KeyboardInterrupt:
                assert crowd.used(own) == []
                os.write(say, b"y")

    child = Forked(work)
    os.close(say)
    assert os.read(ready, 1) == b"x"
    eventually(lambda: len(crowd.takers(store)) == 1)
    os.kill(child.pid, signal.SIGINT)
    assert os.read(ready, 1) == b"y"
    os.close(ready)
    child.join()
    assert crowd.queue(store) == []


def test_a_killed_giver_is_settled_by_the_session(store: Store[Any], sessions: list[bytes]) -> None:
    """The mailbox says OFFERED, and nobody commits: the entry is read by a commit of its own."""
    again = ReadsAgain(store, "c")
    again.begin()
    waits = engine_of(store).wake.waits
    (record,) = waits.waiters.waiting(crowd.key_of(store))
    waits.mailboxes.offer_locked(record.number, logstore.StreamID(1, 1), logstore.StreamID(1, 1), 1)
    waits.waiters.count_up(record.number)
    waits.waiters.wake(record.number)
    eventually(lambda: sessions == [b"c", b"c"])
    eventually(lambda: waits.mailboxes.state(record.number) != OFFERED)
    add(store, 1)
    assert again.wait() == [0, 1]


def consume(store: Store[Any], who: str, over: Callable[[], bool]) -> Iterator[int]:
    """Read, tell and ack what comes, until it is over and nothing is left."""
    group = crowd.group_of(store)
    while True:
        last = over()
        found = group.read(who, count=3, timeout=0.3)
        for each in found:
            yield int(each.fields["n"])
            each.ack()
        if last and not found:
            return


def test_threads_that_wait_again_and_again_get_each_entry_once(store: Store[Any]) -> None:
    """More than there are cores, beside a producer that does not wait for them."""
    PACE.set(0.15)
    lane_of(store).lately_ms = 10
    group, over, count = crowd.group_of(store), threading.Event(), 1500
    got: list[list[int]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        got[number] += consume(store, f"c{number}", over.is_set)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    with running(threads, crowd.LONG_S):
        for number in range(count):
            add(store, number)
            if not number % 7:
                time.sleep(0.001)
        over.set()
    assert sorted(chain.from_iterable(got)) == list(range(count))
    assert all(each == sorted(each) for each in got)
    info = group.info()
    assert (info.pending, info.lag) == (0, 0)
    assert store.metrics()["handed"] > 0


def test_processes_that_wait_again_and_again_get_each_entry_once(
    store: Store[Any], tmp_path: Path
) -> None:
    """Each has its own lane; one is killed, and what it had is pending with it."""
    PACE.set(0.15)
    names, count = ("a", "b", "c", "killed"), 1200
    group, key = crowd.group_of(store), crowd.key_of(store)

    def work(name: str) -> None:
        with (
            logstore.open(store.path, background=False) as own,
            (tmp_path / name).open("w") as told,
        ):
            for number in consume(own, name, (tmp_path / "over").exists):
                print(number, file=told, flush=True)

    def told(name: str) -> list[int]:
        return [int(line) for line in (tmp_path / name).read_text().split()]

    children = [Forked(partial(work, name)) for name in names]
    eventually(lambda: len(crowd.queue(store, key)) == len(names))
    for number in range(count):
        add(store, number)
        if number == count // 2:
            children[-1].kill()
        if not number % 5:
            time.sleep(0.001)
    (tmp_path / "over").touch()
    for child in children[:-1]:
        child.join()
    left = list(group.pending_entries())
    assert {each.consumer for each in left} <= {b"killed"}
    assert group.info().lag == 0
    found = [store.stream("work").get(each.id) for each in left]
    held = {int(each.fields["n"]) for each in found if each is not None}
    done = sorted(number for name in names[:-1] for number in told(name))
    assert len(done) == len(set(done))
    assert not set(done) & (held | set(told("killed")))
    assert set(done) | held | set(told("killed")) == set(range(count))
