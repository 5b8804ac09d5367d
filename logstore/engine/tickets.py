"""Reads of a group that wait: first come, first served, over threads and processes.

``serve`` is the whole loop of a thread. Who comes reads, or takes a ticket and sleeps; it tries
only when it may be its turn (``slots`` says whose that can be), knowing what those before it would
take. A writer wakes these. Who reads hands what it leaves to those that wait behind it, or before
it (``handover``); who was served wakes the next if entries are left all the same, and so does who
gives up, or fails, after it was woken.

Invariants: what was handed to one that waits is what it returns, also at its deadline, or when it
is to stop; an interrupt leaves it in its consumer's backlog. No sleep is longer than a slice, and
none longer than until time alone brings something.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from logstore.engine import dues
from logstore.engine.commit import Committer
from logstore.engine.core import Engine
from logstore.engine.slots import PLAIN
from logstore.engine.stay import Collect, Enter, Stay, Tried, Try
from logstore.engine.ticket import GroupTicket
from logstore.engine.waiting import left_of, wait_streams

T = TypeVar("T")


def serve(
    engine: Engine, committer: Committer, stream: bytes, key: int, try_once: Try[T],
    deadline: float | None, *, wish: int = PLAIN, owner: object = None,
    alive: Callable[[], object] | None = None, enter: Enter[T] | None = None,
    collect: Collect[T] | None = None,
) -> T | None:  # fmt: skip
    """What ``try_once`` finds when it is this caller's turn; None at the deadline.

    ``stream`` and ``key`` name the group (its stream's name, its number), ``wish`` is what it would
    take besides new entries (``slots``). ``owner`` keeps a place over time-outs: a consumer's
    handle, the thread if none is given. ``alive`` raises when waiting is over. ``enter`` is the
    first try and, if it is in vain, joins the queue; ``collect`` gives what others handed over
    meanwhile, which may be gone again (then it is empty). A deadline that has passed makes it one
    try, out of turn.
    """
    check = alive or engine.check_open
    whose = threading.get_ident() if owner is None else owner
    if _over(deadline):
        return try_once(()).found or None
    stay = Stay(
        engine, committer, stream, key, try_once, wish=wish, owner=whose, enter=enter,
        collect=collect,
    )  # fmt: skip
    try:
        found = stay.begin()
        if found:
            return found
        ticket = stay.ticket
        if ticket is None:  # more waiters than slots: without order
            return wait_streams(engine, [stream], lambda: try_once(()).found, deadline, check)
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
        if _over(deadline):
            return stay.give_up()
        if ticket.wait(stay.seen, _sleep_s(engine, deadline, stay.due_ms)):
            engine.metrics.count("wakeups")
        try:
            check()
        except Exception:
            if (had := stay.stop()) is not None:
                return had
            raise
        engine.notice_drops()


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _sleep_s(engine: Engine, deadline: float | None, due_ms: int | None) -> float:
    left_s = dues.within(engine, left_of(deadline))
    return left_s if due_ms is None else min(left_s, (due_ms - engine.clock.now_ms()) / 1000)


__all__ = ["Tried", "Try", "serve"]
