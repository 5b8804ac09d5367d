"""Prevents a group's waiters that are served out of turn, or not at all when one of them dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.shm.pace import PACE
from logstore.engine.waiting.session import Tried
from tests.engine.procs import Forked
from tests.support.inside import engine_of
from tests.waiting.crowd import LONG_S, SOON_S, take

KEY = 77
WAITERS = 10


def pop(store: Store[Any], who: object) -> str | None:
    """Take the first entry of ``work`` and note who did: what a read of a group stands for."""
    for entry in store.stream("work").read("0", count=1):
        if store.stream("work").delete(entry.id):
            store.stream("done").add({"by": str(who)})
            return str(entry.id)
    return None


def serve(
    store: Store[Any], who: object, timeout: float, once: Callable[[], Any] | None = None
) -> Any:
    """Wait in the queue for one entry."""
    try_once = once or partial(pop, store, who)
    return take(store, KEY, lambda: Tried(try_once()), time.monotonic() + timeout, owner=who)


def waiting(store: Store[Any]) -> list[int]:
    """The processes in the queue, in order."""
    return [row.pid for row in engine_of(store).wake.waits.slots.waiting(KEY)]


def eventually(condition: Callable[[], bool], seconds: float = SOON_S) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def done(store: Store[Any]) -> list[str]:
    """Who was served, in order."""
    return [entry.fields["by"].decode() for entry in store.stream("done")]


@contextmanager
def waiter(store: Store[Any], who: object, once: Callable[[], Any] | None = None) -> Iterator[int]:
    """A process at the end of the queue; its pid."""

    def work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            assert serve(theirs, who, LONG_S, once)

    with Forked(work) as child:
        eventually(lambda: child.pid in waiting(store))
        yield child.pid


def test_ten_processes_are_served_in_the_order_they_came(store: Store[Any]) -> None:
    store.create("work")
    with ExitStack() as stack:
        for who in range(WAITERS):
            stack.enter_context(waiter(store, who))
        for n in range(WAITERS // 2):
            store.stream("work").add({"n": n})
            eventually(lambda n=n: len(done(store)) == n + 1)  # type: ignore[misc]
        store.stream("work").add_many({"n": n} for n in range(WAITERS // 2, WAITERS))
    assert done(store) == [str(who) for who in range(WAITERS)]
    assert waiting(store) == []


@pytest.mark.usefixtures("patient")
def test_entries_that_come_at_once_wake_one_after_the_other(store: Store[Any]) -> None:
    """The wake-up is passed on by the served: none of them waits for its slice."""
    with ExitStack() as stack:
        for who in range(5):
            stack.enter_context(waiter(store, who))
        store.stream("work").add_many({"n": n} for n in range(5))
        eventually(lambda: len(done(store)) == 5)
    assert done(store) == ["0", "1", "2", "3", "4"]


@pytest.mark.usefixtures("own_pace")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_cannot_take_its_turn_stands_in_nobodys_way(store: Store[Any], how: int) -> None:
    if how == signal.SIGKILL:
        PACE.stale_ms = 900_000  # seen to be dead, and not merely to have done nothing

    def wait() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            serve(theirs, "first", LONG_S)

    first = Forked(wait)
    eventually(lambda: waiting(store) == [first.pid])
    with waiter(store, "second"):
        os.kill(first.pid, how)
        store.stream("work").add({"a": "b"})
        eventually(lambda: done(store) == ["second"])
    first.kill()


@pytest.mark.usefixtures("own_pace")
def test_a_wake_up_that_died_with_the_woken_is_not_lost(store: Store[Any]) -> None:
    """The next one looks once a slice, and sees that the first is dead."""
    PACE.stale_ms = 900_000

    def die_at_work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:

            def once() -> None:
                if theirs.stream("work").first is not None:
                    os.kill(os.getpid(), signal.SIGKILL)

            serve(theirs, "first", LONG_S, once)

    first = Forked(die_at_work)
    eventually(lambda: waiting(store) == [first.pid])
    with waiter(store, "second"):
        store.stream("work").add({"a": "b"})
        os.waitpid(first.pid, 0)
        eventually(lambda: done(store) == ["second"])


def test_slots_of_the_dead_are_used_again(store: Store[Any], monkeypatch: Any) -> None:
    """Once they did not stir for a while."""
    monkeypatch.setattr(PACE, "stale_ms", 100)
    for _ in range(3):

        def wait() -> None:
            with logstore.open(store.path, sync="os", background=False) as theirs:
                serve(theirs, "x", LONG_S)

        child = Forked(wait)
        eventually(lambda child=child: child.pid in waiting(store))  # type: ignore[misc]
        child.kill()
        time.sleep(0.3)
    assert engine_of(store).wake.waits.slots._used() == 1


def test_a_place_is_kept_over_time_outs(store: Store[Any]) -> None:
    """The first to come times out and waits again: it still stands before the second."""
    assert serve(store, "first", 0.05) is None
    found: list[str] = []

    def wait(who: str) -> None:
        if serve(store, who, LONG_S):
            found.append(who)

    threads = []
    for who in ("second", "first"):
        threads.append(threading.Thread(target=wait, args=(who,)))
        threads[-1].start()
        eventually(lambda: len(waiting(store)) == len(threads))
    for n in (1, 2):
        store.stream("work").add({"n": n})
        eventually(lambda n=n: len(done(store)) == n)  # type: ignore[misc]
    for thread in threads:
        thread.join(60)
    assert done(store) == ["first", "second"]


@pytest.mark.usefixtures("patient")
def test_one_that_is_between_two_calls_is_passed_over(store: Store[Any]) -> None:
    assert serve(store, "first", 0.05) is None
    timer = threading.Timer(0.1, lambda: store.stream("work").add({"a": "b"}))
    timer.start()
    began = time.monotonic()
    assert serve(store, "second", LONG_S)
    assert time.monotonic() - began < SOON_S
    timer.join()


@pytest.mark.usefixtures("patient")
def test_an_error_passes_the_turn_on(store: Store[Any]) -> None:
    def refuse() -> None:
        if store.stream("work").first is not None:
            raise logstore.UsageError("mine")

    def wait() -> None:
        with pytest.raises(logstore.UsageError, match="mine"):
            serve(store, "first", LONG_S, refuse)

    first = threading.Thread(target=wait)
    first.start()
    eventually(lambda: len(waiting(store)) == 1)
    with waiter(store, "second"):
        store.stream("work").add({"a": "b"})
        first.join(SOON_S)
        eventually(lambda: done(store) == ["second"])


@pytest.mark.usefixtures("patient")
def test_a_time_out_is_neither_early_nor_late(store: Store[Any]) -> None:
    for timeout in (0.0, 0.07, 0.25):
        began = time.monotonic()
        assert serve(store, "me", timeout) is None
        assert timeout <= time.monotonic() - began < SOON_S


def test_closing_the_store_gives_the_places_back(store: Store[Any], tmp_path: Path) -> None:
    def wait() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            assert serve(theirs, "x", 0.05) is None

    with Forked(wait):
        pass
    slots = engine_of(store).wake.waits.slots
    assert all(slots.row(slot).state == 0 for slot in range(slots._used()))


def test_many_threads_and_none_is_left_waiting(store: Store[Any]) -> None:
    """Every entry is taken, once, while waiters come and go."""
    count, taken = 200, []

    def work(who: int) -> None:
        while len(taken) < count:
            found = serve(store, who, 0.3)
            if found:
                taken.append(found)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for n in range(count):
        store.stream("work").add({"n": n})
        if n % 5 == 0:
            time.sleep(0.002)
    for thread in threads:
        thread.join(60)
    assert len(taken) == len(set(taken)) == count
