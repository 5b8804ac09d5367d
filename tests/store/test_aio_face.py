"""Prevents calls of `logstore.aio` that do other than their plain ones, or hold up the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import InvalidEntryError, OptionError, UsageError, aio

Work = Callable[[aio.AsyncStore[str]], Awaitable[None]]


def go(path: Path, work: Work) -> None:
    """Run it with an open store, in a loop of its own."""

    async def main() -> None:
        opened = aio.open(path / "store", sync="os", background=False, encoding="utf-8")
        async with opened as store, asyncio.timeout(120):
            await work(store)

    asyncio.run(main())


async def numbers(count: int, *, fails_at: int = -1) -> AsyncIterator[dict[str, str]]:
    """Rows that come one by one."""
    for number in range(count):
        if number % 3 == 0:
            await asyncio.sleep(0)
        if number == fails_at:
            raise ZeroDivisionError
        yield {"n": str(number)}


def test_attributes_of_an_async_stream(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore[str]) -> None:
        stream = store["s"]
        assert (await stream.len(), await stream.first(), await stream.last()) == (0, None, None)
        assert await stream.last_id() == (0, 0)
        await stream.add_many([(f"{ms}-0", {"n": str(ms)}) for ms in range(1, 601)])
        assert await stream.len() == 600
        first, last = await stream.first(), await stream.last()
        assert first is not None
        assert last is not None
        assert (first.id, last.id, await stream.last_id()) == ((1, 0), (600, 0), (600, 0))
        assert [each.id.ms async for each in stream] == [*range(1, 601)]
        assert await stream.contains("5-0")
        assert not await stream.contains("5-1")
        rows = 0
        async for batch in stream.scan("2", "500", batch_rows=100):
            rows += batch.num_rows
        assert rows == 499
        assert await stream.delete_range("1", "10") == 10
        assert await stream.delete_each("11-0", "1-0") == [1, -1]
        group = await stream.group("g", "0")
        assert [each.name for each in await stream.groups()] == ["g"]
        assert (await stream.info_full(2)).group_infos[0].name == "g"
        assert (await group.exists(), await (await stream.group("h")).exists()) == (True, False)
        await group.read("c", count=300)
        assert len([each async for each in group.pending_entries()]) == 300
        assert await group.remove_consumer("c") == 300
        await group.set_id("0")
        assert (await group.configure(max_deliveries=2, dead_letter="d")).dead_letter == "d"
        assert (await group.settings()).dead_letter == "d"
        assert (await stream.settings()).max_entries is None
        assert group.stream.name == "s"
        await stream.set_id("900-0")
        assert await stream.last_id() == (900, 0)

    go(tmp_path, work)


def test_methods_of_an_async_store(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore[str]) -> None:
        await store["a"].add({"n": "1"}, "1-0")
        copy = await store.restore("b", await store["a"].dump())
        assert await copy.len() == 1
        assert [name async for name in store] == ["a", "b"]
        assert (await store.len(), await store.contains("a")) == (2, True)
        assert not await store.contains("c")
        assert await store.checkpoint() > 0
        assert await store.retain() == 0
        assert (await store.compact(purge=True)) is not None
        await store.backup(tmp_path / "copy")
        assert (await store.ship(tmp_path / "shipped")).sent_bytes > 0
        assert store.durable_upto[0] >= 1
        assert (store.path, store.encoding) == (tmp_path / "store", "utf-8")
        assert isinstance(store.recovery, dict)

    go(tmp_path, work)
    with logstore.open(tmp_path / "copy", encoding="utf-8") as copied:
        assert list(copied) == ["a", "b"]


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 1050])
def test_rows_of_an_async_generator(tmp_path: Path, count: int) -> None:
    async def work(store: aio.AsyncStore[str]) -> None:
        before = store.metrics()["commits"]
        given = await store["s"].add_many(numbers(count), batch=100)
        assert len(given) == count
        assert store.metrics()["commits"] - before == -(-count // 100)
        assert [each.id async for each in store["s"]] == list(given)
        assert [each.fields["n"] async for each in store["s"]] == [str(n) for n in range(count)]

    go(tmp_path, work)


def test_an_async_generator_that_fails_or_mixes_rows(tmp_path: Path) -> None:
    async def mixed() -> AsyncIterator[Any]:
        for number in range(1, 9):
            yield (f"{number}-0", {"n": "1"}) if number < 7 else {"n": "1"}

    async def work(store: aio.AsyncStore[str]) -> None:
        with pytest.raises(ZeroDivisionError):
            await store["s"].add_many(numbers(250, fails_at=230), batch=100)
        assert await store["s"].len() == 200
        with pytest.raises(InvalidEntryError, match="row 6: give every row"):
            await store["m"].add_many(mixed(), batch=2)  # batches before it stay
        assert await store["m"].len() == 6
        for options in ({"batch": 0}, {"create": 1}, {"max_entries": -1}):
            with pytest.raises(OptionError):
                await store["s"].add_many(numbers(0), **options)  # type: ignore[arg-type]
        assert not await store["none"].add_many(numbers(5), create=False)
        once = [(await store["p"].add_many(numbers(5), producer="p", batch=2)) for _ in range(2)]
        assert list(once[0]) == list(once[1])

    go(tmp_path, work)
    with (
        logstore.open(tmp_path / "plain") as store,
        pytest.raises(TypeError, match=r"logstore\.aio"),
    ):
        store["s"].add_many(numbers(3))  # type: ignore[arg-type]


def test_a_slow_async_generator_holds_no_thread(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore[str]) -> None:
        gate = asyncio.Event()

        async def slow() -> AsyncIterator[dict[str, str]]:
            yield {"n": "1"}
            await gate.wait()
            yield {"n": "2"}

        tasks = [
            asyncio.create_task(store[f"s{place}"].add_many(slow(), batch=1))
            for place in range(4 * aio.store.THREADS)
        ]
        while await store.len() < len(tasks):
            await asyncio.sleep(0)
        assert await store["s0"].len() == 1  # a thread is free
        gate.set()
        assert [len(each) for each in await asyncio.gather(*tasks)] == [2] * len(tasks)

    go(tmp_path, work)


@pytest.mark.parametrize("plain", [False, True])
def test_handlers_run_at_once_as_many_as_allowed(tmp_path: Path, plain: bool) -> None:
    async def work(store: aio.AsyncStore[str]) -> None:
        stream = store["s"]
        group = await stream.group("g", "0")
        await stream.add_many([(f"{ms}-0", {"n": "1"}) for ms in range(1, 41)])
        running: list[int] = []
        most, done = 0, []

        def begin(ms: int) -> None:
            nonlocal most
            running.append(ms)
            most = max(most, len(running))

        def end(ms: int) -> None:
            running.remove(ms)
            done.append(ms)

        async def handle(delivery: Any) -> None:
            begin(delivery.id.ms)
            until = time.monotonic() + 20
            while most < 5 and time.monotonic() < until:  # until all of them are there
                await asyncio.sleep(0.001)
            end(delivery.id.ms)

        def called(delivery: Any) -> None:
            begin(delivery.id.ms)
            until = time.monotonic() + 20
            while most < 2 and time.monotonic() < until:
                time.sleep(0.001)
            end(delivery.id.ms)

        handler = called if plain else handle
        assert await group.consume("c", handler, timeout=0, batch=1, concurrency=5) == 40
        assert most == 5 if not plain else 2 <= most <= 5
        assert sorted(done) == [*range(1, 41)]
        assert (await group.pending()).count == 0

    go(tmp_path, work)


def test_failing_handlers_among_concurrent_ones(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore[str]) -> None:
        stream = store["s"]
        group = await stream.group("g", "0")
        await stream.add_many([(f"{ms}-0", {"n": "1"}) for ms in range(1, 31)])
        tried: list[int] = []

        async def handle(delivery: Any) -> None:
            tried.append(delivery.id.ms)
            await asyncio.sleep(0)
            if delivery.id.ms % 10 == 0:
                raise ValueError("never")

        done = await group.consume(
            "c", handler=handle, timeout=0, concurrency=8, max_deliveries=2, dead_letter="dead"
        )
        assert done == 27
        assert sorted(tried) == sorted([*range(1, 31), 10, 20, 30])
        assert await store["dead"].len() == 3
        assert (await group.pending()).count == 0

        await stream.add_many([(f"{ms}-0", {"n": "1"}) for ms in range(51, 71)])

        async def wrong(_: Any) -> Any:
            await asyncio.sleep(0)
            return (each for each in (1, 2))

        with pytest.raises(UsageError, match="a generator"):
            await group.consume("c", wrong, timeout=0, concurrency=4)
        assert (await group.pending()).count + 0 == len(
            [each async for each in group.pending_entries() if each.consumer is None]
        )
        for bad in (0, -1, 1.5, True, None, 2**64):
            with pytest.raises(OptionError, match="concurrency"):
                await group.consume("c", handle, concurrency=bad)  # type: ignore[arg-type]

    go(tmp_path, work)


def test_a_cancelled_consumer_leaves_entries_in_its_backlog(tmp_path: Path) -> None:
    async def work(store: aio.AsyncStore[str]) -> None:
        stream = store["s"]
        group = await stream.group("g", "0")
        await stream.add_many([(f"{ms}-0", {"n": "1"}) for ms in range(1, 9)])
        begun, ended = [], []

        async def handle(delivery: Any) -> None:
            begun.append(delivery.id.ms)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(delivery.id.ms)

        task = asyncio.create_task(group.consume("c", handle, concurrency=4))
        while len(begun) < 4:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(ended) == sorted(begun) == [1, 2, 3, 4]  # no handler is left running
        assert [each.id.ms for each in await group.backlog("c")] == [*range(1, 9)]

    go(tmp_path, work)
