"""Prevents a task that sleeps through an entry, holds a thread while it waits, or loses one."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import aio
from logstore.api import worker
from tests.support.processes import Forked
from tests.support.waits import eventually_async
from tests.waiting.crowd import LONG_S, SOON_S

Work = Callable[[aio.AsyncStore], Awaitable[None]]


def go(path: Path, work: Work) -> None:
    """Run it with an open store, in a loop of its own."""

    async def main() -> None:
        async with aio.open(path / "store", sync="os", background=False) as store:
            async with asyncio.timeout(LONG_S):
                await work(store)

    asyncio.run(main())


def watchers() -> int:
    """How many stores of this process are watched."""
    return sum(each.name == "logstore-aio-watch" for each in threading.enumerate())


def test_the_names_of_the_plain_faces(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore) -> None:
        stream = store.stream("a")
        await stream.add({"n": 1}, "1-0")
        assert len(await stream.add_many([{"n": each} for each in range(600)])) == 600
        assert (found := await stream.get("1-0")) is not None
        assert found.fields is not None
        assert len([each async for each in stream.range()]) == 601
        assert len([each async for each in stream.range(count=300, reverse=True)]) == 300
        async with store.transaction() as tx:
            added = tx.stream("b").add({"a": "b"}, "7-0")
        assert added.id == (7, 0)
        with suppress(ZeroDivisionError):
            async with store.transaction() as tx:
                tx.drop("b")
                raise ZeroDivisionError
        assert await store.streams() == [b"a", b"b"]
        assert await stream.delete("1-0") == 1
        assert await stream.trim(max_entries=10, approximate=False) == 590
        assert (await stream.info()).length == 10
        assert (await store.read({"b": "0", "c": "0"})).keys() == {b"b"}
        assert await store.drop("b")
        await store.sync()

    go(tmp_path, work)


@pytest.mark.usefixtures("patient")
def test_an_add_of_a_thread_wakes_it_at_once(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore) -> None:
        plain = store._store.stream("a")
        for at in range(1, 21):
            timer = threading.Timer(0.02, plain.add, ({"n": at}, f"{at}-0"))
            timer.start()
            began = time.monotonic()
            found = await store.stream("a").read(f"{at - 1}-1" if at > 1 else "0", timeout=LONG_S)
            assert [each.id.ms for each in found] == [at]
            assert time.monotonic() - began < SOON_S
            timer.join()

    go(tmp_path, work)


def test_an_add_of_another_process_wakes_it(tmp_path: Path) -> None:
    asleep, wake = os.pipe()

    def add() -> None:
        with logstore.open(tmp_path / "store", sync="os", background=False) as theirs:
            os.read(asleep, 1)
            time.sleep(0.1)
            theirs.stream("a").add({"a": "b"}, "5-0")

    async def work(store: aio.AsyncStore) -> None:
        reading = asyncio.create_task(store.read({"a": "$", "b": "$"}, timeout=LONG_S))
        await eventually_async(lambda: store._store.metrics()["waits"] == 1)
        os.write(wake, b"x")
        found = await reading
        assert [each.id.ms for each in found[b"a"]] == [5]

    with logstore.open(tmp_path / "store", sync="os", background=False):
        pass
    with Forked(add):
        go(tmp_path, work)


def test_a_reader_without_the_right_to_write(tmp_path: Path) -> None:
    async def main() -> None:
        with logstore.open(tmp_path / "store", sync="os", background=False) as writer:
            writer.stream("a").add({"a": "b"}, "1-0")
            async with aio.open(tmp_path / "store", readonly=True) as store:
                waiting = asyncio.create_task(store.stream("a").read("1-0", timeout=LONG_S))
                await asyncio.sleep(0.2)
                writer.stream("a").add({"a": "b"}, "2-0")
                assert [each.id.ms for each in await waiting] == [2]

    asyncio.run(main())


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("timeout", [0.05, 0.23])
def test_a_time_out_is_neither_early_nor_late(tmp_path: Path, timeout: float) -> None:
    async def work(store: aio.AsyncStore) -> None:
        stream = store.stream("a")
        group = await stream.group("g", "0")

        async def follow() -> list[Any]:
            return [each async for each in stream.follow(timeout=timeout)]

        for read in (
            lambda: stream.read(timeout=timeout),
            lambda: store.read({"a": "0", "b": "$"}, timeout=timeout),
            lambda: group.read("c", timeout=timeout),
            lambda: group.read("c", timeout=timeout, min_idle=100),
            follow,
        ):
            began = time.monotonic()
            assert not await read()
            assert timeout <= time.monotonic() - began < SOON_S

    go(tmp_path, work)


def test_many_waiters_need_few_threads_and_the_watcher_ends(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore) -> None:
        tasks = [
            asyncio.create_task(store.stream(f"s{n}").read(timeout=LONG_S)) for n in range(200)
        ]
        await eventually_async(lambda: watchers() == 1)
        await asyncio.sleep(0.5)
        ours = [each for each in threading.enumerate() if each.name.startswith("logstore-aio")]
        assert 0 < len(ours) <= aio.store.THREADS + 1
        assert threading.active_count() < 20  # asyncio's own threads among them
        assert watchers() == 1
        for each in range(200):
            await store.stream(f"s{each}").add({"a": "b"})
        assert all(await asyncio.gather(*tasks))
        await eventually_async(lambda: watchers() == 0)

    go(tmp_path, work)


def test_a_cancelled_waiter_loses_nothing(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore) -> None:
        stream = store.stream("a")
        group = await stream.group("g", "0")
        got: list[int] = []
        for at in range(1, 31):
            task = asyncio.create_task(group.read("c", timeout=LONG_S))
            await asyncio.sleep(0.01)
            adding = asyncio.create_task(stream.add({"a": "b"}, f"{at}-0"))
            await asyncio.sleep(0.0003 * (at % 10))
            task.cancel()
            for each in (await asyncio.gather(task, return_exceptions=True))[:1]:
                got += [] if isinstance(each, BaseException) else [one.id.ms for one in each]
            await adding
        await asyncio.sleep(0.1)
        await group.read("c")
        assert [each.id.ms for each in await group.backlog("c")] == [*range(1, 31)]
        assert sorted(set(got)) == sorted(got)
        await eventually_async(lambda: not store._watcher._queued)

    go(tmp_path, work)


def test_two_tasks_of_a_group_get_every_entry_once(tmp_path: Path) -> None:
    got: list[int] = []

    async def work(store: aio.AsyncStore) -> None:
        stream = store.stream("a")
        group = await stream.group("g", "0")

        async def consume(name: str) -> None:
            while len(got) < 100:
                found = await group.read(name, count=2, timeout=1)
                got.extend(each.id.ms for each in found)
                await group.ack(*(each.id for each in found))

        tasks = [asyncio.create_task(consume(name)) for name in ("c", "d")]
        for at in range(1, 101):
            await stream.add({"a": "b"}, f"{at}-0")
        await asyncio.gather(*tasks)
        assert (await group.pending()).count == 0

    go(tmp_path, work)
    assert sorted(got) == [*range(1, 101)]


def test_tasks_are_served_in_the_order_they_came(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore) -> None:
        stream, served = store.stream("a"), []
        group = await stream.group("g", "0")

        async def one(number: int) -> None:
            (found,) = await group.read("c", count=1, timeout=LONG_S)
            served.append((found.id.ms, number))

        tasks = []
        for number in range(1, 11):
            tasks.append(asyncio.create_task(one(number)))
            await eventually_async(lambda: store._store.metrics()["waits"] == len(tasks))
        for at in range(1, 11):
            await stream.add({"a": "b"}, f"{at}-0")
        await asyncio.gather(*tasks)
        assert sorted(served) == [(at, at) for at in range(1, 11)]

    go(tmp_path, work)


def test_an_idle_entry_passes_a_task_without_min_idle(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore) -> None:
        stream = store.stream("a")
        group = await stream.group("g", "0")
        await stream.add({"a": "b"}, "1-0")
        await group.read("dead")
        new = asyncio.create_task(group.read("c", timeout=LONG_S))
        await asyncio.sleep(0.05)
        (taken,) = await group.read("d", timeout=LONG_S, min_idle=0.3)
        assert (taken.id.ms, taken.delivery_count) == (1, 2)
        new.cancel()

    go(tmp_path, work)


def test_waiting_writes_nothing(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore) -> None:
        group = await store.stream("a").group("g", "0")
        tasks = [
            asyncio.create_task(group.read(f"c{idle}", timeout=1, min_idle=idle))
            for idle in (None, 100)
        ]
        await eventually_async(lambda: store._store.metrics()["waits"] == len(tasks))
        before = store._store.metrics()["commits"]
        await asyncio.gather(*tasks)
        assert store._store.metrics()["commits"] == before

    go(tmp_path, work)


def test_closing_ends_waiters(tmp_path: Path) -> None:
    async def main() -> None:
        store = await aio.open(tmp_path / "store", sync="os", background=False)
        group = await store.stream("a").group("g", "0")
        tasks = [
            asyncio.create_task(each)
            for each in (
                store.stream("a").read(timeout=None),
                store.read({"a": "$", "b": "$"}, timeout=LONG_S),
                group.read("c", timeout=None),
                group.read("d", timeout=None),
                group.consume("e", print),
            )
        ]
        await asyncio.sleep(0.2)
        await store.close()
        for task in tasks:
            with pytest.raises(logstore.ClosedError):
                await asyncio.wait_for(task, 60)
        with pytest.raises(logstore.ClosedError):
            await store.streams()
        await eventually_async(lambda: watchers() == 0)

    asyncio.run(main())


@pytest.mark.parametrize("plain", [True, False])
def test_a_worker_handles_retries_and_buries(tmp_path: Path, plain: bool) -> None:
    seen: list[int] = []

    def handle(delivery: Any) -> None:
        seen.append(delivery.id.ms)
        if delivery.id.ms == 2:
            raise ValueError("never")

    async def later(delivery: Any) -> None:
        await asyncio.sleep(0)
        handle(delivery)

    async def work(store: aio.AsyncStore) -> None:
        stream, stop = store.stream("a"), asyncio.Event()
        group = await stream.group("g", "0")
        await stream.add_many([(f"{at}-0", {"a": "b"}) for at in (1, 2, 3)])
        task = asyncio.create_task(
            group.consume(
                "c", handle if plain else later, max_deliveries=3, dead_letter="dead", stop=stop
            )
        )
        await store.stream("dead").read("0", timeout=LONG_S)
        await stream.add({"a": "b"}, "4-0")
        while 4 not in seen:
            await asyncio.sleep(0.01)
        stop.set()
        assert await asyncio.wait_for(task, 60) == 3
        assert sorted(seen) == [1, 2, 2, 2, 3, 4]
        assert (await group.pending()).count == 0

    go(tmp_path, work)


@pytest.mark.parametrize("idle_s", [None, 60])
def test_an_idle_worker_is_stopped_before_its_round_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle_s: int | None
) -> None:
    monkeypatch.setattr(worker, "ROUND_S", 600.0)

    async def work(store: aio.AsyncStore) -> None:
        stop = asyncio.Event()
        group = await store.stream("a").group("g", "0")
        task = asyncio.create_task(group.consume("c", print, min_idle=idle_s, stop=stop))
        await asyncio.sleep(0.3)
        assert not task.done()
        stop.set()
        assert await asyncio.wait_for(task, 60) == 0

    go(tmp_path, work)
