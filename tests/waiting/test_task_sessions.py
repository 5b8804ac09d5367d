"""Prevents tasks that are served out of turn, and places that nobody gives back.

One queue for tasks, threads and processes. Waiters here sleep until they are woken, but where a
test says that they look by themselves.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import aio
from logstore.aio.wait import Tasks, Watcher
from logstore.api.store import Store
from logstore.engine.shm import waiters
from logstore.engine.shm.waiters import PACE
from tests.support.inside import engine_of
from tests.support.waits import eventually, eventually_async
from tests.waiting import crowd
from tests.waiting.tasks import go, group, steps_end, task, used

IDLE_S = 0.5


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("at_once", [True, False])
def test_tasks_threads_and_processes_stand_in_one_queue(tmp_path: Path, at_once: bool) -> None:
    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        first = await task(store, "task 1")
        child = await asyncio.to_thread(crowd.reader, plain, "process")
        second = await task(store, "task 2")
        thread = threading.Thread(
            target=crowd.group_of(plain).read,
            args=("thread",),
            kwargs={"count": 1, "timeout": crowd.LONG_S},
        )
        thread.start()
        await eventually_async(lambda: len(crowd.queue(plain)) == 4)
        third = await task(store, "task 3")
        if at_once:
            plain.stream("work").add_many({"n": n} for n in range(5))
        for n in range(0 if at_once else 5):
            plain.stream("work").add({"n": n})
            await eventually_async(lambda n=n: len(crowd.owners(plain)) == n + 1)  # type: ignore[misc]
        found = await asyncio.gather(first, second, third)
        assert [int(each.fields[b"n"]) for (each,) in found] == [0, 2, 4]
        await asyncio.to_thread(child.join)
        await asyncio.to_thread(thread.join)
        assert crowd.owners(plain) == ["task 1", "process", "task 2", "thread", "task 3"]
        assert used(plain) == []

    go(tmp_path, work)


@pytest.mark.usefixtures("patient", "left_to_readers")
def test_a_woken_task_that_fails_wakes_the_next(tmp_path: Path) -> None:
    """Its wake-up comes without a commit, and to a thread that sleeps on no record of its own."""

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        def once() -> None:
            time.sleep(0.3)  # the watching thread has seen the commit, and sleeps again
            raise logstore.UsageError("mine")

        def fail() -> None:
            with suppress(logstore.UsageError):
                crowd.take(plain, "first", None, once)

        first = threading.Thread(target=fail)
        first.start()
        await eventually_async(lambda: len(crowd.queue(plain)) == 1)
        second = await task(store, "second")
        plain.stream("work").add({"a": "b"})
        assert await asyncio.wait_for(second, 60)
        await asyncio.to_thread(first.join)
        assert used(plain) == []

    go(tmp_path, work)


@pytest.mark.usefixtures("own_pace")
def test_a_long_waiting_task_keeps_its_turn(tmp_path: Path) -> None:
    """Longer than a waiter may go without stirring: the watching thread stirs for its tasks."""
    PACE.set(0.4)  # it may be kept off a busy processor for a second

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        first, second = await task(store, "first"), await task(store, "second")
        child = await asyncio.to_thread(crowd.reader, plain, "process")
        await asyncio.sleep(PACE.stale_ms / 1000 + 0.4)
        plain.stream("work").add_many({"n": n} for n in range(3))
        found = await asyncio.wait_for(asyncio.gather(first, second), 60)
        assert [int(each.fields[b"n"]) for (each,) in found] == [0, 1]
        await asyncio.to_thread(child.join)

    go(tmp_path, work)


@pytest.mark.usefixtures("own_pace")
def test_a_dead_process_leaves_its_turn_to_the_task_behind_it(tmp_path: Path) -> None:
    PACE.stale_ms = 900_000  # it is seen to be dead, and not merely to have done nothing for long

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        child = await asyncio.to_thread(crowd.reader, plain, "process")
        first = await task(store, "first")
        crowd.stop(child.pid)
        plain.stream("work").add({"a": "b"})
        await asyncio.sleep(0.2)
        assert not first.done()
        child.kill()
        assert await asyncio.wait_for(first, 60)

    go(tmp_path, work)


@pytest.mark.parametrize("after_s", [0.0, 0.0005, 0.002, 0.005, 0.02])
def test_a_cancelled_task_gives_its_place_back(tmp_path: Path, after_s: float) -> None:
    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        work = await group(store)
        for _ in range(20):
            made = asyncio.create_task(work.read("c", timeout=crowd.LONG_S))
            await asyncio.sleep(after_s)
            made.cancel()
            await asyncio.gather(made, return_exceptions=True)
        await steps_end(store)
        assert not used(plain)
        assert not store._watcher._queued
        plain.stream("work").add({"a": "b"})
        assert await work.read("c", timeout=crowd.LONG_S)

    go(tmp_path, work)


def test_a_task_keeps_its_place_over_time_outs(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        work = await group(store)

        async def patiently() -> Any:
            while not (found := await work.read("first", count=1, timeout=0.05)):
                pass
            return found

        first = asyncio.create_task(patiently())
        await eventually_async(lambda: bool(crowd.queue(plain)))
        second = await task(store, "second")
        await asyncio.sleep(0.3)
        plain.stream("work").add_many({"n": n} for n in range(2))
        await asyncio.gather(first, second)
        assert sorted(crowd.owners(plain)) == ["first", "second"]
        assert used(plain) == []

    go(tmp_path, work)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[Store[Any]], None]:
    """Takes all waiter records of a store, of which there are four."""
    monkeypatch.setattr(waiters, "WAITERS_MAX", 4)

    def take_all(store: Store[Any]) -> None:
        with store._live().committer.locked():
            while engine_of(store).wake.waits.waiters.take_locked(5, 1):
                pass

    return take_all


@pytest.mark.usefixtures("patient")
def test_tasks_without_a_record_are_served_in_order_over_event_loops(
    store: Store[Any], full: Callable[[Store[Any]], None]
) -> None:
    """Each of them wakes the next when it leaves, in the loop of that one."""
    group = crowd.group_of(store)
    full(store)
    watcher, served = Watcher(store._engine), list[str]()

    def work(who: str) -> None:
        read = group._waiting(who.encode(), 1)
        tasks = Tasks(watcher, asyncio.to_thread)
        asyncio.run(tasks.read(read, (who, who.encode()), None, alive=store._engine))
        served.append(who)

    names = ["a", "b", "c"]
    threads = [threading.Thread(target=work, args=(who,), daemon=True) for who in names]
    for n, thread in enumerate(threads, 1):
        thread.start()
        eventually(lambda n=n: store.metrics()["waits"] == 2 * n)  # type: ignore[misc]
    store.stream("work").add_many({"n": n} for n in range(3))
    for thread in threads:
        thread.join(crowd.SOON_S)
    assert sorted(served) == crowd.owners(store) == names  # threads may end in another order
    watcher.close()
    watcher.join()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("who", ["thread", "task"])
def test_without_a_record_it_finds_what_time_alone_brings(
    tmp_path: Path, full: Callable[[Store[Any]], None], who: str
) -> None:
    """Also a task behind which others wait who would not take that."""

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        plain.stream("work").add({"n": 1})
        crowd.group_of(plain).read("crashed")
        full(plain)
        options: dict[str, Any] = {"timeout": crowd.LONG_S, "min_idle": IDLE_S}
        new_only = asyncio.create_task((await group(store)).read("new", timeout=crowd.LONG_S))
        await eventually_async(lambda: plain.metrics()["waits"] == 2)
        if who == "task":
            reading = (await group(store)).read("late", **options)
        else:
            reading = asyncio.to_thread(lambda: crowd.group_of(plain).read("late", **options))  # type: ignore[assignment]
        found = await asyncio.wait_for(reading, crowd.SOON_S)
        assert [each.fields for each in found] == [{b"n": b"1"}]
        assert not new_only.done()
        new_only.cancel()

    go(tmp_path, work)


def test_without_a_record_it_is_served_all_the_same(
    tmp_path: Path, full: Callable[[Store[Any]], None]
) -> None:
    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        full(plain)
        late = asyncio.create_task((await group(store)).read("late", timeout=crowd.LONG_S))
        await asyncio.sleep(0.1)
        plain.stream("work").add({"a": "b"})
        assert await asyncio.wait_for(late, 60)

    go(tmp_path, work)
