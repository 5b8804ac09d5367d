"""Reads of a group that wait: first come, first served, over threads and processes.

``take_turn`` is the whole loop of a thread. Who comes reads, or takes a ticket and sleeps; it tries
only when it may be its turn (``slots`` says whose that can be), knowing what those before it would
take. A writer wakes these. Who reads hands what it leaves to those that wait behind it, or before
it (``waiting.handoff``); who was served wakes the next if entries are left all the same, and so
does who gives up, or fails, after it was woken.

Invariants: what was handed to one that waits is what it returns, also at its deadline, or when it
is to stop; an interrupt leaves it in its consumer's backlog. No sleep is longer than a slice, and
none longer than until time alone brings something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from logstore.engine.runtime import background
from logstore.engine.runtime.engine import Engine
from logstore.engine.waiting.queue import GroupTicket
from logstore.engine.waiting.session import Stay
from logstore.engine.waiting.wait import left_of, over, wait_streams

T = TypeVar("T")


def take_turn(
    engine: Engine, stream: bytes, stay: Stay[T], deadline: float | None,
    alive: Callable[[], object] | None = None,
) -> T | None:  # fmt: skip
    """What a stay that has not begun finds when it is its turn; None at the deadline (of
    ``time.monotonic``; None: none).

    ``alive`` raises when waiting is over; without it, for a closed store.
    """
    check = alive or engine.check_open
    try:
        found = stay.begin()
        if found:
            return found
        ticket = stay.ticket
        if ticket is None:  # more waiters than slots: without order
            return wait_streams(engine, [stream], stay.out_of_turn, deadline, check)
        return _sleeping(engine, stay, ticket, deadline, check)
    except BaseException:
        stay.leave()
        raise


def _sleeping(
    engine: Engine, stay: Stay[T], ticket: GroupTicket, deadline: float | None,
    check: Callable[[], object],
) -> T | None:  # fmt: skip
    while True:
        found = stay.step()
        if found is not None:
            return found
        if over(deadline):
            return stay.give_up()
        if ticket.wait(stay.seen, _sleep_s(engine, deadline, stay.due_ms)):
            engine.metrics.count("wakeups")
        else:
            engine.notice_drops()
        try:
            check()
        except Exception:
            if (had := stay.stop()) is not None:
                return had
            raise


def _sleep_s(engine: Engine, deadline: float | None, due_ms: int | None) -> float:
    left_s = background.sleep_within(engine, left_of(deadline))
    return left_s if due_ms is None else min(left_s, (due_ms - engine.clock.now_ms()) / 1000)
