"""Prevents places in the queue that two own, that nobody gives back, or that others are robbed of.

A place is given back by whoever fails, is cancelled, or is the child of a fork: maybe twice, and
maybe when it is another's already.
"""

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
from logstore.engine.shm import futex
from logstore.engine.shm.wait_words import Waits, every_offset
from logstore.engine.shm.waiters import NEW_ONLY, WAITING
from logstore.engine.waiting.queue import NONE, Ticket
from tests.support.inside import engine_of
from tests.waiting.crowd import LONG_S, SOON_S, eventually, group_of, key_of, owners, queue
from tests.waiting.readers import Reading, add
from tests.waiting.tasks import Held, go, group, task, until, used


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


def test_cancelled_at_its_deadline_it_keeps_no_place_that_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task of the same identity would share a record with whom it was given to since."""

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        held = Held(monkeypatch, "give_up")
        late = asyncio.create_task((await group(store)).read("c", count=1, timeout=0.05))
        owner = id(late), b"c"
        await until(held.reached.is_set)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        held.goes_on.set()
        await until(lambda: not used(plain))
        other = await task(store, "other")
        engine = engine_of(plain)
        assert Ticket(engine, b"work", key_of(plain), 5, owner).waiter == NONE
        (record,) = engine.wake.waits.waiters.waiting(key_of(plain))
        assert record.min_idle_ms == NEW_ONLY  # the other's, as it was
        add(plain, 1)
        assert await asyncio.wait_for(other, 60)

    go(tmp_path, work)


def test_cancelled_when_it_is_served_it_does_not_free_the_record_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        held = Held(monkeypatch, "step", after=True)
        first = await task(store, "first")
        add(plain, 0)
        await until(held.reached.is_set)
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
        await until(held.reached.is_set)
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        held.goes_on.set()
        await until(lambda: plain.metrics()["waits"] == 1)
        await until(lambda: not used(plain))

    go(tmp_path, work)


def test_the_loop_is_closed_while_a_step_runs(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    group_of(store)
    held = Held(monkeypatch, "begin")

    async def main() -> None:
        theirs = await aio.open(store.path, sync="os", background=False)
        reading = asyncio.create_task((await group(theirs)).read("c", timeout=LONG_S))
        await until(held.reached.is_set)
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


def test_who_is_interrupted_as_it_joins_is_handed_nothing(
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
def test_who_watches_sees_what_is_given_behind_its_look(
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
        await until(lambda: plain.metrics()["waits"] == 2)
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
        await until(lambda: not used(plain))
        assert await work.read("c", timeout=0.01) == []
        assert await work.read("c", timeout=0.01) == []
        assert len(used(plain)) == 1  # it may come back

    go(tmp_path, work)
