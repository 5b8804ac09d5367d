"""Prevents clients that are not logged in from filling the event loop, all at once or by and by."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from logstore.wire.server import turns
from logstore.wire.server.turns import ROUND_TURNS, Turns, Watch

COUNT = 100


class Clock:
    """A clock that goes on when it is told to."""

    now_s = 0.0

    def perf_counter(self) -> float:
        """The time."""
        return self.now_s


def paused(monkeypatch: pytest.MonkeyPatch, ask: Callable[[Turns], object]) -> float:
    """How long turns of half a millisecond in all were paused, as a part of what they took."""
    clock, pauses = Clock(), []
    monkeypatch.setattr(turns, "time", clock)
    took_s = [0.0]

    async def run() -> None:
        loop, turns = asyncio.get_running_loop(), Turns()
        done = asyncio.Event()

        def later(delay_s: float, call: Callable[..., object], *given: object) -> None:
            pauses.append(delay_s)
            clock.now_s += delay_s
            loop.call_soon(call, *given)

        def work() -> None:
            clock.now_s += 0.0005
            took_s[0] += 0.0005
            ask(turns)
            if took_s[0] < 0.1:
                turns.ask(work)
            else:
                done.set()

        monkeypatch.setattr(loop, "call_later", later)
        turns.ask(work)
        await done.wait()

    asyncio.run(run())
    return sum(pauses) / took_s[0]


def test_a_quarter_of_the_time_is_theirs_while_others_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of many short turns; half of it while nobody else asks for anything."""
    assert 2.8 < paused(monkeypatch, Turns.others_ask) < 3.2
    assert 0.9 < paused(monkeypatch, bool) < 1.1


def test_of_many_that_send_at_once_the_loop_hears_a_few_at_a_time() -> None:
    """Each is told once, and again when it is watched again; what is closed is not told."""
    told: list[int] = []

    async def run() -> None:
        watch = Watch(Turns())
        with ExitStack() as stack:
            pairs = [socket.socketpair() for _ in range(COUNT)]
            for number, (here, there) in enumerate(pairs):
                stack.enter_context(here)
                stack.enter_context(there)
                watch.watch(here, lambda number=number: told.append(number))  # type: ignore[misc]
                there.send(b"x")
            most = 0
            while len(told) < COUNT:
                before = len(told)
                await asyncio.sleep(0)  # once around the loop
                most = max(most, len(told) - before)
            assert 0 < most <= ROUND_TURNS
            assert sorted(told) == list(range(COUNT))
            told.clear()
            watch.forget(pairs[2][0])
            for number in (1, 2):
                pairs[number][0].close()
            watch.watch(pairs[3][0], lambda: told.append(3))
            while not told:
                await asyncio.sleep(0)
            assert told == [3]
        watch.close()

    asyncio.run(run())
