"""Prevents a group's waiters that are served out of turn, or not at all when one of them dies."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.shm import waiters
from logstore.engine.shm.waiters import FREE, PACE
from logstore.engine.waiting.wait_session import WaitSession
from tests.support.inside import engine_of
from tests.support.processes import Forked
from tests.support.threads import running
from tests.support.waits import eventually
from tests.waiting import crowd

WAITERS = 10
NAMES = [f"w{number}" for number in range(WAITERS)]


@pytest.mark.usefixtures("patient")
def test_processes_are_served_in_the_order_they_came(store: Store[Any]) -> None:
    crowd.group_of(store)
    with ExitStack() as stack:
        for who in NAMES:
            stack.enter_context(crowd.reader(store, who))
        for n in range(WAITERS // 2):
            store.stream("work").add({"n": n})
        store.stream("work").add_many({"n": n} for n in range(WAITERS // 2, WAITERS))
        eventually(lambda: len(crowd.owners(store)) == WAITERS)
    assert crowd.owners(store) == NAMES
    assert crowd.queue(store) == []


@pytest.mark.usefixtures("patient")
def test_threads_are_served_in_the_order_they_came(store: Store[Any]) -> None:
    group = crowd.group_of(store)
    key = crowd.key_of(store)
    threads = []
    for place, who in enumerate(NAMES):
        threads.append(
            threading.Thread(
                target=group.read, args=(who,), kwargs={"count": 1, "timeout": crowd.LONG_S}
            )
        )
        threads[-1].start()
        eventually(lambda place=place: len(crowd.queue(store, key)) == place + 1)  # type: ignore[misc]
    store.stream("work").add_many({"n": n} for n in range(WAITERS // 2))
    for n in range(WAITERS // 2, WAITERS):
        store.stream("work").add({"n": n})
    for thread in threads:
        thread.join(crowd.SOON_S)
    assert crowd.owners(store) == NAMES


@pytest.mark.usefixtures("patient")
def test_each_gets_its_turn_again_and_again(store: Store[Any]) -> None:
    """Ten that come back at once are served round and round; one that is killed is left out."""
    crowd.group_of(store)
    key, served = crowd.key_of(store), 0

    def serve_one(pid: int, *, comes_back: bool = True) -> None:
        nonlocal served
        served += 1
        store.stream("work").add({"n": served})
        eventually(lambda: len(crowd.owners(store)) == served)
        if comes_back:
            eventually(lambda: crowd.queue(store, key)[-1] == pid)
        else:
            eventually(lambda: pid not in crowd.queue(store, key))

    with ExitStack() as stack:
        lasting = [stack.enter_context(crowd.reader(store, who, 3)).pid for who in NAMES[:-1]]
        doomed = crowd.reader(store, NAMES[-1], 3)
        for pid in [*lasting, doomed.pid]:
            serve_one(pid)
        doomed.kill()
        for pid in lasting:
            serve_one(pid)
        for pid in lasting:
            serve_one(pid, comes_back=False)
    assert crowd.owners(store) == NAMES + 2 * NAMES[:-1]


@pytest.mark.usefixtures("patient")
def test_a_reader_killed_asleep_costs_nothing(store: Store[Any]) -> None:
    crowd.group_of(store)
    first = crowd.reader(store, "first")
    with crowd.reader(store, "second"):
        first.kill()
        store.stream("work").add({"a": "b"})
        eventually(lambda: crowd.owners(store) == ["second"])


@pytest.mark.usefixtures("left_to_readers")
def test_a_reader_killed_awake_costs_a_slice(store: Store[Any]) -> None:
    """The wake-up died with it: the next one finds that out by looking, in this test alone."""
    crowd.group_of(store)

    def die_at_work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            crowd.take(theirs, "first", once=lambda: os.kill(os.getpid(), signal.SIGKILL))

    PACE.stale_ms = 900_000  # it is seen to be dead, and not merely to have done nothing for long
    try:
        first = crowd.queued(store, die_at_work)
        with crowd.reader(store, "second"):
            store.stream("work").add({"a": "b"})
            os.waitpid(first.pid, 0)
            eventually(lambda: crowd.owners(store) == ["second"])
    finally:
        PACE.set(PACE.slice_s)


def test_a_dead_reader_leaves_new_entries_to_one_that_claims_too(store: Store[Any]) -> None:
    """The second looked for what it may take past the first, found nothing, and slept again."""
    crowd.group_of(store)
    PACE.stale_ms = 900_000
    try:
        first = crowd.reader(store, "first")
        with crowd.reader(store, "second", min_idle=3600):
            crowd.stop(first.pid)
            store.stream("work").add({"a": "b"})
            time.sleep(0.3)
            assert crowd.owners(store) == []
            first.kill()
            eventually(lambda: crowd.owners(store) == ["second"])
    finally:
        PACE.set(PACE.slice_s)


def test_a_reader_that_tries_by_itself_does_not_push_in(store: Store[Any]) -> None:
    """The first is stopped for some slices of the others: what is there stays there for it."""
    crowd.group_of(store)
    PACE.set(0.02)
    PACE.stale_ms = PACE.fresh_ms = 900_000
    try:
        with (
            crowd.reader(store, "first") as first,
            crowd.reader(store, "second"),
            crowd.reader(store, "third"),
        ):
            crowd.stop(first.pid)
            store.stream("work").add({"a": "b"})
            time.sleep(0.3)
            assert crowd.owners(store) == []
            os.kill(first.pid, signal.SIGCONT)
            eventually(lambda: crowd.owners(store) == ["first"])
            store.stream("work").add_many([{"a": "b"}] * 2)
        assert crowd.owners(store) == ["first", "second", "third"]
    finally:
        PACE.set(0.1)


def test_a_stopped_reader_gets_its_turn_after_live_ones(store: Store[Any]) -> None:
    crowd.group_of(store)
    with crowd.reader(store, "first") as first, crowd.reader(store, "second"):
        crowd.stop(first.pid)
        store.stream("work").add({"a": "b"})
        eventually(lambda: crowd.owners(store) == ["second"])
        os.kill(first.pid, signal.SIGCONT)
        store.stream("work").add({"a": "b"})
    assert crowd.owners(store) == ["second", "first"]


@pytest.mark.usefixtures("patient", "left_to_readers")
def test_a_woken_reader_that_gives_up_wakes_the_next(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd.group_of(store)
    key, timeout = crowd.key_of(store), 0.5
    attempt, tried = WaitSession._try, threading.Event()

    def late(self: Any, ahead: Any) -> Any:
        """Looks in vain; then, too late for it, an entry comes, and wakes it alone."""
        found = attempt(self, ahead)
        if self._read.consumer == b"first" and not tried.is_set():
            tried.set()
            eventually(lambda: len(crowd.queue(store, key)) == 2)
            store.stream("work").add({"a": "b"})
            time.sleep(timeout)
        return found

    monkeypatch.setattr(WaitSession, "_try", late)
    given: list[Any] = []
    first = threading.Thread(target=lambda: given.append(crowd.take(store, "first", timeout)))
    first.start()
    eventually(lambda: len(crowd.queue(store, key)) == 1)
    second = threading.Thread(
        target=crowd.group_of(store).read, args=("second",), kwargs={"timeout": crowd.LONG_S}
    )
    second.start()
    first.join(crowd.SOON_S)
    eventually(lambda: crowd.owners(store) == ["second"])
    second.join(crowd.SOON_S)
    assert tried.is_set()
    assert given == [[]]


@pytest.mark.usefixtures("patient", "left_to_readers")
@pytest.mark.parametrize("how", ["leaves some", "fails", "is interrupted"])
def test_a_reader_that_leaves_the_queue_wakes_the_next(store: Store[Any], how: str) -> None:
    """The second comes itself, so that nobody hands it anything."""
    group = crowd.group_of(store)
    key = crowd.key_of(store)
    stopped: list[bool] = []

    def alive() -> None:
        if stopped:
            raise KeyboardInterrupt

    def once() -> None:
        if how == "fails":
            raise logstore.UsageError(how)

    def work() -> None:
        with suppress(KeyboardInterrupt, logstore.UsageError):
            crowd.take(store, "first", None, once, alive if how == "is interrupted" else None)

    first = threading.Thread(target=work)
    first.start()
    eventually(lambda: len(crowd.queue(store, key)) == 1)
    second = threading.Thread(
        target=group.read, args=("second",), kwargs={"timeout": crowd.LONG_S, "min_idle": 3600}
    )
    second.start()
    eventually(lambda: len(crowd.queue(store, key)) == 2)
    stopped.append(True)
    store.stream("work").add_many([{"a": "b"}] * (2 if how == "leaves some" else 1))
    second.join(crowd.SOON_S)
    assert crowd.owners(store) == (["first", "second"] if how == "leaves some" else ["second"])
    first.join(crowd.SOON_S)


def test_readers_killed_at_random_lose_no_entry_and_no_turn(
    store: Store[Any], tmp_path: Path
) -> None:
    """Ten processes, one after the other killed and replaced; each entry goes to one of them, and
    again only by claim; each lives on its share.
    """
    crowd.group_of(store)
    count, chosen = 300, random.Random(7)

    def work(who: str) -> None:
        told = os.open(tmp_path / who, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        with logstore.open(store.path, sync="os", background=False) as theirs:
            group = crowd.group_of(theirs)
            while True:
                for each in group.read(who, count=1, timeout=None, min_idle=0.5):
                    os.write(told, b"%d %d\n" % (each.id.ms, each.delivery_count))
                    each.ack()

    steady, doomed = ([Forked(lambda n=n: work(f"w{n}")) for n in some] for some in (  # type: ignore[misc]
        range(WAITERS // 2), range(WAITERS // 2, WAITERS)
    ))  # fmt: skip
    try:
        for n in range(1, count + 1):
            store.stream("work").add({"n": n}, f"{n}-0")
            time.sleep(chosen.uniform(0, 0.006))
            if n % 30 == 0:
                doomed.pop(chosen.randrange(len(doomed))).kill()
                doomed.append(Forked(lambda n=n: work(f"x{n}")))  # type: ignore[misc]
        group = crowd.group_of(store)
        eventually(lambda: group.info().lag == 0 and group.pending().count == 0, 20)
    finally:
        for child in steady + doomed:
            child.kill()
    got = [
        (who.name, *map(int, line.split()))
        for who in tmp_path.glob("[wx][0-9]*")
        for line in who.read_text().splitlines()
    ]
    assert {id for _, id, _ in got} == set(range(1, count + 1))
    first = [id for _, id, deliveries in got if deliveries == 1]
    assert len(first) == len(set(first))
    assert not engine_of(store).wake.waits.waiters._used() > 2 * WAITERS
    for number in range(WAITERS // 2):  # these lived all the time
        share = sum(who == f"w{number}" for who, _, _ in got)
        assert count / WAITERS / 3 < share < 3 * count / WAITERS, got


@pytest.mark.usefixtures("patient")
def test_without_a_free_ticket_a_reader_is_served_out_of_order(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiters, "WAITERS_MAX", 4)
    group = crowd.group_of(store)
    table = engine_of(store).wake.waits.waiters
    with store._live().committer.locked():
        taken = [table.take_locked(5, 1) for _ in range(5)]
    assert taken[-1] is None
    timer = threading.Timer(0.2, lambda: store.stream("work").add({"a": "b"}))
    timer.start()
    began = time.monotonic()
    assert group.read("late", timeout=crowd.LONG_S)
    assert time.monotonic() - began < crowd.SOON_S
    timer.join()
    table.give_back()


FEW = 5
FEW_NAMES = [f"w{number}" for number in range(FEW)]


@pytest.mark.usefixtures("left_to_readers")
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("at_once", [True, False])
def test_each_wakes_the_one_behind_it(store: Store[Any], at_once: bool) -> None:
    """The wake-up is passed on by the served: none of them waits for its slice."""
    crowd.group_of(store)
    with ExitStack() as stack:
        for who in FEW_NAMES:
            stack.enter_context(crowd.reader(store, who))
        if at_once:
            store.stream("work").add_many({"n": n} for n in range(FEW))
        for n in range(0 if at_once else FEW):
            store.stream("work").add({"n": n})
        eventually(lambda: len(crowd.owners(store)) == FEW)
    assert crowd.owners(store) == FEW_NAMES
    assert crowd.queue(store) == []


@pytest.mark.usefixtures("left_to_readers")
@pytest.mark.usefixtures("own_pace")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_reader_that_cannot_take_its_turn_stands_in_nobodys_way(
    store: Store[Any], how: int
) -> None:
    crowd.group_of(store)
    if how == signal.SIGKILL:
        PACE.stale_ms = 900_000  # seen to be dead, and not merely to have done nothing
    first = crowd.reader(store, "first")
    with crowd.reader(store, "second"):
        with store._live().committer.locked():
            os.kill(first.pid, how)
        store.stream("work").add({"a": "b"})
        eventually(lambda: crowd.owners(store) == ["second"])
    first.kill()


@pytest.mark.usefixtures("left_to_readers")
@pytest.mark.usefixtures("own_pace")
def test_a_wake_up_that_died_with_the_woken_is_not_lost(store: Store[Any]) -> None:
    """The next one looks once a slice, and sees that the first is dead."""
    crowd.group_of(store)
    PACE.stale_ms = 900_000

    def die_at_work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            crowd.take(theirs, "first", once=lambda: os.kill(os.getpid(), signal.SIGKILL))

    first = crowd.queued(store, die_at_work)
    with crowd.reader(store, "second"):
        store.stream("work").add({"a": "b"})
        os.waitpid(first.pid, 0)
        eventually(lambda: crowd.owners(store) == ["second"])


@pytest.mark.usefixtures("left_to_readers")
def test_records_of_the_dead_are_used_again(store: Store[Any], monkeypatch: Any) -> None:
    """Once they did not stir for a while."""
    crowd.group_of(store)
    monkeypatch.setattr(PACE, "stale_ms", 100)
    for number in range(3):
        child = Forked(lambda number=number: _waits(store, f"w{number}"))  # type: ignore[misc]
        table, key = engine_of(store).wake.waits.waiters, crowd.key_of(store)
        eventually(lambda: child.pid in [each.pid for each in table.waiting(key)])  # noqa: B023
        child.kill()
        time.sleep(0.3)
    assert engine_of(store).wake.waits.waiters._used() == 1


def _waits(store: Store[Any], who: str, timeout: float = crowd.LONG_S) -> None:
    with logstore.open(store.path, sync="os", background=False) as theirs:
        assert crowd.take(theirs, who, timeout) == []


@pytest.mark.usefixtures("left_to_readers")
def test_a_place_is_kept_over_time_outs(store: Store[Any]) -> None:
    """The first to come times out and waits again: it still stands before the second."""
    crowd.group_of(store)
    second = threading.Thread(target=crowd.take, args=(store, "second"))

    def first() -> None:
        assert crowd.take(store, "first", 0.05) == []
        second.start()
        eventually(lambda: len(crowd.queue(store)) == 1)
        assert crowd.take(store, "first")

    thread = threading.Thread(target=first)
    thread.start()
    eventually(lambda: len(crowd.queue(store)) == 2)
    for n in (1, 2):
        store.stream("work").add({"n": n})
        eventually(lambda n=n: len(crowd.owners(store)) == n)  # type: ignore[misc]
    for each in (thread, second):
        each.join(crowd.SOON_S)
    assert crowd.owners(store) == ["first", "second"]


@pytest.mark.usefixtures("left_to_readers")
@pytest.mark.usefixtures("patient")
def test_a_reader_between_two_calls_is_passed_over(store: Store[Any]) -> None:
    crowd.group_of(store)
    assert crowd.take(store, "first", 0.05) == []
    timer = threading.Timer(0.1, lambda: store.stream("work").add({"a": "b"}))
    timer.start()
    began = time.monotonic()
    assert crowd.take(store, "second")
    assert time.monotonic() - began < crowd.SOON_S
    timer.join()


@pytest.mark.usefixtures("left_to_readers")
@pytest.mark.usefixtures("patient")
def test_a_time_out_is_neither_early_nor_late(store: Store[Any]) -> None:
    crowd.group_of(store)
    for timeout in (0.0, 0.07, 0.25):
        began = time.monotonic()
        assert crowd.take(store, "me", timeout) == []
        assert timeout <= time.monotonic() - began < crowd.SOON_S


@pytest.mark.usefixtures("left_to_readers")
def test_closing_the_store_gives_the_places_back(store: Store[Any]) -> None:
    crowd.group_of(store)
    with Forked(lambda: _waits(store, "x", 0.05)):
        pass
    assert crowd.used(store) == []
    table = engine_of(store).wake.waits.waiters
    assert table._used() == 1
    assert table.record(0).state == FREE


@pytest.mark.usefixtures("left_to_readers")
def test_many_waiting_threads_are_all_served(store: Store[Any]) -> None:
    """Every entry is read, once, while waiters come and go."""
    count = 200
    crowd.group_of(store)
    taken: list[Any] = []

    def work(who: str) -> None:
        while len(taken) < count:
            taken.extend(each.id for each in crowd.take(store, who, 0.3))

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(6)]
    with running(threads, crowd.SOON_S):
        for n in range(count):
            store.stream("work").add({"n": n})
            if n % 5 == 0:
                time.sleep(0.002)
    assert len(taken) == len(set(taken)) == count
