"""Prevents a worker that acks entries whose handler was called, but whose work was never done."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from logstore import OptionError, UsageError, aio
from tests.groups.shop import shop

SEEN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_is_left_unawaited() -> Iterator[None]:
    """A RuntimeWarning of a coroutine that nobody awaited fails the test."""
    SEEN.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


async def handle(delivery: Any, more: int = 0) -> None:
    """Work that is done only if somebody awaits it."""
    await asyncio.sleep(0)
    SEEN.append(delivery.id.ms)


class Worker:
    """Its method, or the object itself, does the work."""

    async def __call__(self, delivery: Any) -> None:
        await handle(delivery)

    async def method(self, delivery: Any) -> None:
        """The same."""
        await handle(delivery)

    @staticmethod
    async def static(delivery: Any) -> None:
        """The same."""
        await handle(delivery)


@functools.wraps(handle)
def wrapped(delivery: Any) -> Any:
    """A decorator's function, which returns what the coroutine function does."""
    return handle(delivery)


def generator(delivery: Any) -> Iterator[int]:
    """Does nothing before somebody iterates."""
    SEEN.append(delivery)
    yield 1


async def async_generator(delivery: Any) -> AsyncIterator[int]:
    """The same."""
    SEEN.append(delivery)
    yield 1


COROUTINES: dict[str, Any] = {
    "async def": handle,
    "a partial": functools.partial(handle, more=1),
    "a partial of a partial": functools.partial(functools.partial(handle), more=1),
    "an object": Worker(),
    "a partial of an object": functools.partial(Worker()),
    "a method": Worker().method,
    "a static method": Worker.static,
    "wrapped": wrapped,
}
GENERATORS: dict[str, Any] = {
    "generator": generator,
    "async generator": async_generator,
    "partial": functools.partial(generator),
}
NO_FUNCTIONS: dict[str, Any] = {"None": None, "text": "print", "a coroutine's name": 5}


class Promise:
    """Awaitable, but no coroutine."""

    def __await__(self) -> Any:
        yield


RESULTS: dict[str, Callable[[Any], Any]] = {
    "a coroutine": lambda delivery: handle(delivery, 1),
    "a generator": lambda delivery: (generator(each) for each in [delivery]),
    "an async generator": lambda delivery: (each async for each in async_generator(delivery)),
    "an awaitable": lambda _: Promise(),
}


@pytest.mark.parametrize("handler", COROUTINES.values(), ids=COROUTINES)
def test_a_coroutine_function_is_refused_at_the_call(tmp_path: Path, handler: Any) -> None:
    with shop(tmp_path, 3) as (_, group, _):
        with pytest.raises(OptionError, match=r"handler is a coroutine.*logstore\.aio"):
            group.consume("a", handler, timeout=0)
        assert group.pending().count == 0
        assert [each.delivery_count for each in group.read("b")] == [1, 1, 1]


@pytest.mark.parametrize(
    "handler", [*GENERATORS.values(), *NO_FUNCTIONS.values()], ids=[*GENERATORS, *NO_FUNCTIONS]
)
def test_a_handler_that_takes_no_entry_is_refused_at_the_call(tmp_path: Path, handler: Any) -> None:
    with shop(tmp_path, 3) as (store, group, _):
        for options in ({}, {"max_deliveries": 1, "dead_letter": "dead"}):
            with pytest.raises(OptionError, match="handler"):
                group.consume("a", handler, timeout=0, **options)
        assert store.streams() == ["work"]
        assert len(group.read("b")) == 3


@pytest.mark.parametrize("handler", RESULTS.values(), ids=RESULTS)
@pytest.mark.parametrize("limit", [{}, {"max_deliveries": 1, "dead_letter": "dead"}], ids=str)
def test_work_that_nobody_does_is_not_acked(tmp_path: Path, handler: Any, limit: Any) -> None:
    """And costs no entry a delivery: the handler is wrong, not the entry."""
    with shop(tmp_path, 3) as (store, group, _):
        with pytest.raises(UsageError, match=r"handler returned .* not done.*logstore\.aio"):
            group.consume("a", handler, timeout=0, **limit)
        assert SEEN == []
        assert store.streams() == ["work"]
        left = list(group.pending_entries())
        assert [(each.consumer, each.delivery_count) for each in left] == [(None, 0)] * len(left)
        done: list[int] = []
        assert group.consume("b", lambda each: done.append(each.id.ms), timeout=0) == 3
        assert done == [1, 2, 3]


def test_a_future_that_still_runs_is_not_acked_and_one_that_is_done_is(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (_, group, _), ThreadPoolExecutor(1) as pool:
        gate = pool.submit(lambda: None)
        gate.result()
        assert group.consume("a", lambda _: gate, timeout=0) == 2
    with shop(tmp_path / "more", 2) as (_, group, _), ThreadPoolExecutor(1) as pool:
        begun: list[Any] = []

        def later(_: Any) -> Any:
            event = threading.Event()
            begun.append(event)
            return pool.submit(event.wait)

        with pytest.raises(UsageError, match="result"):
            group.consume("a", later, timeout=0)
        begun[0].set()
        assert group.info().pending == 2


def test_other_results_of_a_handler_are_ignored(tmp_path: Path) -> None:
    for place, result in enumerate((None, 1, "", [], object(), print)):
        with shop(tmp_path / str(place), 2) as (_, group, _):
            assert group.consume("a", lambda _, given=result: given, timeout=0) == 2


@pytest.mark.parametrize(
    "callback", [*COROUTINES.values(), *GENERATORS.values(), *NO_FUNCTIONS.values()],
    ids=[*COROUTINES, *GENERATORS, *NO_FUNCTIONS],
)  # fmt: skip
def test_callbacks_for_dead_letters_are_refused_alike(tmp_path: Path, callback: Any) -> None:
    with shop(tmp_path, 1) as (store, group, _):
        with pytest.raises(OptionError, match="the callback"):
            store.on_dead_letter(callback)
        if callback is not None:
            with pytest.raises(OptionError, match="on_dead"):
                group.consume("a", print, timeout=0, on_dead=callback)


@pytest.mark.parametrize("callback", RESULTS.values(), ids=RESULTS)
def test_a_callback_that_did_nothing_is_told_in_the_log(
    tmp_path: Path, callback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="logstore")
    with shop(tmp_path, 1) as (store, group, _):
        store.on_dead_letter(callback)
        group.configure(max_deliveries=1, dead_letter="dead")
        (given,) = group.read("a")
        given.nack()
        assert len(store.stream("dead")) == 1
    assert "a callback for dead letters failed at entry 1-0" in caplog.text
    assert "whose work is not done" in caplog.text


@pytest.mark.parametrize("stop", [True, "now", lambda: True], ids=["True", "text", "a function"])
def test_an_invalid_stop_is_refused(tmp_path: Path, stop: Any) -> None:
    with shop(tmp_path, 1) as (_, group, _), pytest.raises(OptionError, match="must be an Event"):
        group.consume("a", print, timeout=0, stop=stop)


def in_aio(path: Path, work: Callable[[aio.AsyncStore], Awaitable[None]]) -> None:
    """Run it with an open store."""

    async def main() -> None:
        async with aio.open(path / "store", sync="os", background=False) as store:
            await store.stream("work").add_many([(f"{at}-0", {"n": at}) for at in (1, 2, 3)])
            async with asyncio.timeout(60):
                await work(store)

    asyncio.run(main())


@pytest.mark.parametrize(
    "handler", [*COROUTINES.values(), RESULTS["a coroutine"]], ids=[*COROUTINES, "a lambda"]
)
def test_aio_awaits_every_awaitable_of_a_handler(tmp_path: Path, handler: Any) -> None:
    async def work(store: aio.AsyncStore) -> None:
        group = await store.stream("work").group("g", "0")
        assert await group.consume("a", handler, timeout=0) == 3
        assert (await group.pending()).count == 0

    in_aio(tmp_path, work)
    assert SEEN == [1, 2, 3]


@pytest.mark.parametrize(
    "handler", [*GENERATORS.values(), *NO_FUNCTIONS.values()], ids=[*GENERATORS, *NO_FUNCTIONS]
)
def test_aio_refuses_a_handler_that_takes_no_entry(tmp_path: Path, handler: Any) -> None:
    async def work(store: aio.AsyncStore) -> None:
        group = await store.stream("work").group("g", "0")
        with pytest.raises(OptionError, match="handler"):
            await group.consume("a", handler, timeout=0)
        with pytest.raises(OptionError, match="coroutine function"):
            await group.consume("a", print, timeout=0, on_dead=handle)  # it is called in a thread
        assert (await group.pending()).count == 0

    in_aio(tmp_path, work)


@pytest.mark.parametrize("name", ["a generator", "an async generator"])
def test_aio_does_not_ack_unawaited_work(tmp_path: Path, name: str) -> None:
    async def nested(delivery: Any) -> Any:
        return RESULTS[name](delivery)

    async def work(store: aio.AsyncStore) -> None:
        group = await store.stream("work").group("g", "0")
        for handler in (RESULTS[name], nested):
            with pytest.raises(UsageError, match="handler returned"):
                await group.consume("a", handler, timeout=0)
        assert (await group.pending()).count == 3
        assert await group.consume("b", handle, timeout=0) == 3

    in_aio(tmp_path, work)
    assert SEEN == [1, 2, 3]
