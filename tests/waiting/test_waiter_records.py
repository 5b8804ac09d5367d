"""Prevents records and places in the queue that two own, or that nobody gives back."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import aio
from logstore.aio.wait import Watcher
from logstore.api.store import Store
from logstore.engine.commit import durability
from logstore.engine.shm import futex, waiters
from logstore.engine.shm.wait_words import Waits, every_offset
from logstore.engine.shm.waiters import BARE_MAX, NEW_ONLY, PACE, WAITING, Mailboxes
from logstore.engine.waiting import probe
from logstore.engine.waiting import wait_queue as ticket
from logstore.engine.waiting.wait_queue import NONE, Ticket
from tests.support.inside import engine_of
from tests.support.processes import Forked
from tests.support.waits import eventually, eventually_async
from tests.waiting import crowd
from tests.waiting.crowd import LONG_S, SOON_S, group_of, key_of, owners, queue
from tests.waiting.readers import Reading, ReadsTwice, add
from tests.waiting.tasks import Held, go, group, task, used


def test_a_store_is_closed_while_somebody_makes_an_offer(tmp_path: Path) -> None:
    """What became of it cannot be asked any more: it is in the backlog, if anywhere."""
    raised: list[object] = []
    with logstore.open(tmp_path / "store", sync="os", background=False) as store:
        group = group_of(store)
        mailboxes, number = engine_of(store).wake.waits.mailboxes, key_of(store)

        def work() -> None:
            try:
                group.read("c", timeout=LONG_S)
            except logstore.Error as error:
                raised.append(error)

        waiting = threading.Thread(target=work)
        waiting.start()
        eventually(lambda: len(queue(store)) == 1)
        (record,) = engine_of(store).wake.waits.waiters.waiting(number)
    mailboxes.offer_locked(record.number, logstore.StreamID(1, 1), logstore.StreamID(1, 1), 5)
    waiting.join(SOON_S)
    assert [type(each) for each in raised] == [logstore.ClosedError]


def test_a_task_cancelled_at_its_deadline_keeps_no_freed_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task of the same identity would share a record with whom it was given to since."""

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        held = Held(monkeypatch, "give_up")
        late = asyncio.create_task((await group(store)).read("c", count=1, timeout=0.05))
        owner = id(late), b"c"
        await eventually_async(held.reached.is_set)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        held.goes_on.set()
        await eventually_async(lambda: not used(plain))
        other = await task(store, "other")
        engine = engine_of(plain)
        assert Ticket(engine, b"work", key_of(plain), 5, owner).waiter == NONE
        (record,) = engine.wake.waits.waiters.waiting(key_of(plain))
        assert record.min_idle_ms == NEW_ONLY  # the other's, as it was
        add(plain, 1)
        assert await asyncio.wait_for(other, 60)

    go(tmp_path, work)


def test_a_task_cancelled_when_served_does_not_free_anothers_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        held = Held(monkeypatch, "step", after=True)
        first = await task(store, "first")
        add(plain, 0)
        await eventually_async(held.reached.is_set)
        second = await task(store, "second")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        held.goes_on.set()
        await asyncio.sleep(0.1)
        assert len(queue(plain)) == 1
        add(plain, 1)
        assert await asyncio.wait_for(second, 60)
        assert owners(plain) == ["first", "second"]
        assert used(plain) == []

    go(tmp_path, work)


def test_all_tasks_are_cancelled_while_a_step_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the end of a program: the place that the step takes then is given back."""

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        held = Held(monkeypatch, "begin")
        reading = asyncio.create_task((await group(store)).read("c", timeout=LONG_S))
        await eventually_async(held.reached.is_set)
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        held.goes_on.set()
        await eventually_async(lambda: plain.metrics()["waits"] == 1)
        await eventually_async(lambda: not used(plain))

    go(tmp_path, work)


def test_the_loop_is_closed_while_a_step_runs(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    group_of(store)
    held = Held(monkeypatch, "begin")

    async def main() -> None:
        theirs = await aio.open(store.path, sync="os", background=False)
        reading = asyncio.create_task((await group(theirs)).read("c", timeout=LONG_S))
        await eventually_async(held.reached.is_set)
        reading.cancel()

    asyncio.run(main())
    held.goes_on.set()
    eventually(lambda: store.metrics()["waits"] == 1)
    eventually(lambda: not used(store))


def test_the_child_of_a_fork_gives_back_no_place_of_its_parent(store: Store[Any]) -> None:
    """It returns from the signal's handler into the read, finds the store closed, and leaves."""
    group = group_of(store)
    states: list[int] = []

    def fork(*_: Any) -> None:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            states.append(engine_of(store).wake.waits.waiters.record(0).state)

    before = signal.signal(signal.SIGALRM, fork)
    parent = os.getpid()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        assert group.read("c", timeout=0.6) == []
    except logstore.ClosedError:
        assert os.getpid() != parent
    finally:
        if os.getpid() != parent:
            os._exit(0)
        signal.signal(signal.SIGALRM, before)
    assert states == [WAITING]


def test_a_reader_interrupted_during_joining_is_offered_nothing(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for itself, nor for the consumer whose the record was."""
    group = group_of(store)
    former = Reading(store, "former", count=1)
    add(store, 0)
    former.wait()
    before = len(queue(store))

    def interrupted(self: Ticket, *_: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Ticket, "_stands", interrupted)
    monkeypatch.setattr(Ticket, "_resume", lambda _: None)
    monkeypatch.setattr(Ticket, "rejoin", lambda *_: False)
    with pytest.raises(KeyboardInterrupt):
        group.read("interrupted", count=1, timeout=LONG_S)
    assert len(queue(store)) == before + 1  # that is what is left of it, for a second
    add(store, 1, 2)
    assert [each.fields[b"n"] for each in group.read("c", count=2, timeout=SOON_S)] == [b"1", b"2"]


@pytest.mark.usefixtures("patient")
def test_the_watching_thread_sees_offers_behind_its_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks while a commit is published, and falls asleep when all was told."""
    given, call = Waits.given_locked, Watcher._call
    looked: list[float] = []

    def given_late(self: Any, waiters: Any) -> None:
        looked.append(time.monotonic())
        futex.wake(self._address + every_offset())
        time.sleep(0.3)
        given(self, waiters)

    def call_late(self: Any, engine: Any) -> None:
        call(self, engine)
        if looked:
            time.sleep(max(0.0, looked[0] + 0.6 - time.monotonic()))

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        first = await asyncio.to_thread(Reading, plain, "first", count=1)
        second = await task(store, "second")
        await eventually_async(lambda: plain.metrics()["waits"] == 2)
        await asyncio.sleep(0.1)
        monkeypatch.setattr(Waits, "given_locked", given_late)
        monkeypatch.setattr(Watcher, "_call", call_late)
        await asyncio.to_thread(add, plain, 0, 1)
        assert await asyncio.wait_for(second, 60)
        await asyncio.to_thread(first.wait)

    go(tmp_path, work)


def test_tasks_that_nobody_calls_are_left_asleep(tmp_path: Path) -> None:
    """However many groups they wait for: each look costs a thread's step."""

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        first, second = await task(store, "first"), await task(store, "second")
        await asyncio.sleep(0.3)
        before = plain.metrics()["wakeups"]
        await asyncio.sleep(0.5)
        assert plain.metrics()["wakeups"] == before
        add(plain, 0, 1)
        assert await asyncio.wait_for(asyncio.gather(first, second), 60)

    go(tmp_path, work)


def test_a_task_that_is_done_keeps_no_place(tmp_path: Path) -> None:
    """Nor do a thousand that came to a time-out once each."""

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        work = await group(store)
        tasks = [asyncio.create_task(work.read(f"c{n}", timeout=0.01)) for n in range(20)]
        assert await asyncio.gather(*tasks) == [[]] * 20
        await eventually_async(lambda: not used(plain))
        assert await work.read("c", timeout=0.01) == []
        assert await work.read("c", timeout=0.01) == []
        assert len(used(plain)) == 1  # it may come back

    go(tmp_path, work)


def taker_of(store: Store[Any], number: int) -> tuple[int, int]:
    """Which consumer takes what is put there, and how many at once."""
    mailbox = engine_of(store).wake.waits.mailboxes.read(number)
    return mailbox.consumer, mailbox.most


@pytest.mark.usefixtures("unhurried")
@pytest.mark.usefixtures("patient")
def test_a_task_cancelled_as_it_was_served_leaves_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would write into the mailbox of whoever has the record by then."""

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        held = Held(monkeypatch, "step", after=True)
        reads, again = await group(store), asyncio.Event()

        async def twice() -> list[Any]:
            try:
                await reads.read("a", count=1, timeout=crowd.LONG_S)
            except asyncio.CancelledError:
                await again.wait()
            return await reads.read("a", count=5, timeout=crowd.LONG_S)

        first = asyncio.create_task(twice())
        await eventually_async(lambda: len(crowd.queue(plain)) == 1)
        add(plain, 0)
        await eventually_async(held.reached.is_set)
        first.cancel()
        await asyncio.sleep(0.05)
        monkeypatch.undo()
        held.goes_on.set()
        await eventually_async(lambda: not crowd.used(plain))
        second = Reading(plain, "b", count=1)
        (record,) = engine_of(plain).wake.waits.waiters.waiting(crowd.key_of(plain))
        await eventually_async(lambda: taker_of(plain, record.number)[0] > 0)
        before = taker_of(plain, record.number)
        again.set()
        await eventually_async(lambda: len(crowd.queue(plain)) == 2)
        assert taker_of(plain, record.number) == before
        add(plain, 1, 2, 3)
        assert await asyncio.to_thread(second.wait) == [1]
        assert [int(each.fields[b"n"]) for each in await first] == [2, 3]
        assert crowd.owners(plain) == ["a", "b", "a", "a"]

    go(tmp_path, work)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.usefixtures("patient")
def test_interrupted_as_it_was_served_it_leaves_the_record_to_others(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, told = Ticket.served, threading.Event()
    got: dict[str, Any] = {}

    def cut_off(self: Ticket, found: list[Any]) -> None:
        served(self, found)
        monkeypatch.setattr(Ticket, "served", served)
        raise KeyboardInterrupt

    def read() -> None:
        with pytest.raises(KeyboardInterrupt):
            crowd.group_of(store).read("a", count=1, timeout=crowd.LONG_S)
        told.wait(crowd.SOON_S)
        got["a"] = crowd.group_of(store).read("a", count=5, timeout=crowd.LONG_S)

    monkeypatch.setattr(Ticket, "served", cut_off)
    thread = threading.Thread(target=read)
    thread.start()
    eventually(lambda: len(crowd.queue(store)) == 1)
    add(store, 0)
    eventually(lambda: Ticket.served is served and crowd.used(store) == [])
    assert engine_of(store).wake.waits.saved._bare == {}
    second = Reading(store, "b", count=1)
    eventually(lambda: len(crowd.takers(store)) == 1)
    told.set()
    eventually(lambda: len(crowd.takers(store)) == 2)
    add(store, 1, 2, 3)
    assert second.wait() == [1]
    thread.join(crowd.SOON_S)
    assert [int(each.fields[b"n"]) for each in got["a"]] == [2, 3]


@pytest.mark.usefixtures("unhurried")
@pytest.mark.usefixtures("patient", "by_session")
def test_interrupted_as_it_joins_it_does_not_wait_any_more(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that waits, with nobody behind it, would be handed entries."""
    fence = futex.fence

    def cut_off(address: int) -> None:
        monkeypatch.setattr(futex, "fence", fence)
        raise KeyboardInterrupt

    for n in range(3):
        timer = threading.Timer(0.05, add, [store, n])
        timer.start()
        assert crowd.group_of(store).read("a", count=1, timeout=crowd.LONG_S)
        timer.join()
        monkeypatch.setattr(futex, "fence", cut_off)
        with pytest.raises(KeyboardInterrupt):
            crowd.group_of(store).read("a", count=1, timeout=crowd.LONG_S)
        assert crowd.queue(store) == []
    assert crowd.used(store) == []
    waiting = Reading(store, "b", count=1)
    add(store, 10)
    assert waiting.wait() == [10]


@pytest.mark.usefixtures("unhurried")
@pytest.mark.usefixtures("patient")
def test_a_task_cancelled_at_its_deadline_keeps_the_record_of_its_next_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the first read is not through when the task reads again."""

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        reads, pass_on = await group(store), Ticket.pass_on
        reached, goes_on = threading.Event(), threading.Event()

        def slow(self: Ticket, seen: int | None = None) -> None:
            reached.set()
            goes_on.wait(crowd.SOON_S)
            pass_on(self, seen)

        async def twice() -> list[Any]:
            try:
                async with asyncio.timeout(0.3):
                    await reads.read("a", count=1, timeout=0.1)
            except TimeoutError:
                monkeypatch.setattr(Ticket, "pass_on", pass_on)
            return await reads.read("a", count=1, timeout=crowd.LONG_S)

        monkeypatch.setattr(Ticket, "pass_on", slow)
        first = asyncio.create_task(twice())
        await eventually_async(reached.is_set)
        await eventually_async(lambda: len(crowd.takers(plain)) == 1)
        (number,) = crowd.takers(plain)
        goes_on.set()
        await asyncio.sleep(0.1)
        assert crowd.takers(plain) == [number]
        second = await asyncio.to_thread(Reading, plain, "b", count=1)
        await eventually_async(lambda: len(crowd.takers(plain)) == 2)
        add(plain, 1, 2)
        assert [int(each.fields[b"n"]) for each in await first] == [1]
        assert await asyncio.to_thread(second.wait) == [2]
        assert crowd.owners(plain) == ["a", "b"]

    go(tmp_path, work)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("dead", [3, 12])
def test_the_dead_in_front_end_nothing(store: Store[Any], dead: int) -> None:
    """Not for longer than it takes to see that they do not stir."""
    crowd.group_of(store)
    waiters, key = engine_of(store).wake.waits.waiters, crowd.key_of(store)

    def die() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            for n in range(dead):
                threading.Thread(
                    target=crowd.group_of(theirs).read, args=(f"d{n}",),
                    kwargs={"count": 1, "timeout": crowd.LONG_S},
                ).start()  # fmt: skip
            time.sleep(crowd.LONG_S)

    child = Forked(die)
    eventually(lambda: len(waiters.waiting(key)) == dead)
    child.kill()
    before = store.metrics()["handed"]
    add(store, 0)  # is given to whoever comes
    assert crowd.group_of(store).read("lives", count=1)
    eventually(lambda: not any(record.alive() for record in waiters.waiting(key)))
    time.sleep(PACE.stale_ms / 1000)
    for n in (1, 2, 3):
        waiting = Reading(store, "lives", count=1)
        eventually(lambda: len([record for record in waiters.waiting(key) if record.alive()]) == 1)
        add(store, n)
        assert waiting.wait() == [n]
    assert store.metrics()["handed"] - before == 3


@pytest.mark.usefixtures("unhurried")
@pytest.mark.usefixtures("patient", "by_session")
def test_a_rejoining_reader_stays_marked_as_taking_entries(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An add in that moment would pass it by, and serve one behind it."""
    waiting, told = ReadsTwice(store, "c"), Mailboxes.set_taker
    times: list[int] = []

    def noted(self: Mailboxes, number: int, consumer: int, most: int) -> None:
        times.append(consumer)
        told(self, number, consumer, most)

    monkeypatch.setattr(Mailboxes, "set_taker", noted)
    metrics = store.metrics()["waits"]
    waiting.goes_on.set()
    eventually(lambda: store.metrics()["waits"] > metrics)
    assert len(times) == 1
    add(store, 1)
    assert waiting.wait() == [0, 1]


@pytest.mark.usefixtures("unhurried")
@pytest.mark.usefixtures("own_pace", "by_session")
def test_a_waiter_that_was_forgotten_while_it_came_looks_once_more(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped between saying that it waits and looking, for longer than that holds."""
    PACE.set(0.05)
    waiting, drained = ReadsTwice(store, "c"), probe.drained

    def slow(*args: Any) -> int:
        found = drained(*args)
        monkeypatch.setattr(probe, "drained", drained)
        time.sleep(PACE.announced_ms / 1000 + 0.1)
        adding = threading.Thread(target=add, args=(store, 1))
        adding.start()
        adding.join()
        PACE.set(60.0)  # only looking now finds it
        return found

    monkeypatch.setattr(probe, "drained", slow)
    waiting.goes_on.set()
    assert waiting.wait() == [0, 1]


@pytest.mark.usefixtures("unhurried")
def test_a_kept_record_is_freed_if_its_reader_does_not_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a process that waits for nothing any more."""
    monkeypatch.setattr(waiters, "KEPT_S", 0.1)
    monkeypatch.setattr(waiters, "SWEEP_S", 0.0)
    monkeypatch.setattr(durability, "READER_CHECK_POLLS", 1)
    with logstore.open(tmp_path / "store", sync="os") as store:
        crowd.group_of(store)
        for n in range(BARE_MAX + 1):
            waiting = Reading(store, f"c{n}", count=1)
            add(store, n)
            assert waiting.wait() == [n]
        assert crowd.group_of(store).read("late", timeout=0.01) == []
        eventually(lambda: crowd.used(store) == [])


@pytest.mark.usefixtures("unhurried")
@pytest.mark.usefixtures("patient")
def test_a_kept_place_follows_the_stream_to_its_new_name(store: Store[Any]) -> None:
    """Who adds looks for those who wait by the name."""
    crowd.group_of(store)
    came, told = threading.Event(), threading.Event()
    got: list[Any] = []

    def read() -> None:
        assert crowd.group_of(store).read("c", count=1, timeout=0.01) == []
        came.set()
        told.wait(crowd.SOON_S)
        renamed = store.stream("renamed").group("g", start="0")
        got.extend(renamed.read("c", count=1, timeout=crowd.LONG_S))

    thread = threading.Thread(target=read)
    thread.start()
    assert came.wait(crowd.SOON_S)
    key = crowd.key_of(store)
    store.rename("work", "renamed")
    told.set()
    eventually(lambda: len(engine_of(store).wake.waits.waiters.waiting(key)) == 1)
    (record,) = engine_of(store).wake.waits.waiters.waiting(key)
    assert record.bucket == ticket.bucket_of(b"renamed")
    store.stream("renamed").add({"n": 1})
    thread.join(crowd.SOON_S)
    assert len(got) == 1
