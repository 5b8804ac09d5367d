"""How a thread waits in the queue of a group: the steps of a session, and sleeps between them.

Tasks of asyncio take the same steps (``aio.tasks``). Invariants: as of ``waiting.wait``; a sleep
ends when time alone may have brought something.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from logstore.engine.groups.deliver import Delivered
from logstore.engine.lane.loading import native_or_none
from logstore.engine.runtime import background
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.waiters import owner_of
from logstore.engine.waiting.session import GroupRead, Moved, WaitSession
from logstore.engine.waiting.wait import left_of, over, wait_streams

_BECAME: dict[str, int] = {} if native_or_none is None else native_or_none.outcomes()


def wait_again(
    engine: Engine,
    stream: bytes,
    group: bytes,
    consumer: bytes,
    most: int,
    making: tuple[Callable[..., tuple[list[Any], bytes]], tuple[Any, ...]],
    most_s: float | None,
) -> list[Any] | None:
    """Wait as a thread that was served before, and read new entries only, in one call of compiled
    code: the delivery that it was handed, or [] at its deadline.

    None: a session goes on, with the place in the queue if one is kept. For at most a slice, so
    that whoever waits for longer is looked after by that.
    """
    lane, waits, owner = engine.lane, engine.wake.waits, owner_of(consumer)
    key = waits.plain.get((stream, group), 0)
    saved = None if lane is None or not key else waits.saved.take_bare(key, owner)
    if lane is None or saved is None:
        return None
    deadline = None if most_s is None else time.monotonic() + most_s
    number, tickets = saved.number, waits.waiters.tickets
    most_ns = int(max(0.0, left_of(deadline)) * 1e9)
    found: list[Any] | None
    try:
        became, ticket, word, found, time_ms = lane.wait(
            stream, key, consumer, most, making, tickets, number, saved.ticket, saved.consumer,
            most_ns,
        )  # fmt: skip
    except BaseException:
        waits.waiters.wake_first(key)  # its record is given back
        raise
    if became == _BECAME["TAKEN"]:
        waits.saved.keep_bare(key, owner, number, ticket, saved.consumer, time_ms)
    elif became == _BECAME["REJECTED"]:
        waits.saved.keep_bare(key, owner, number, ticket, saved.consumer, saved.served_ms)
    elif became == _BECAME["RESTED"]:
        waits.saved.keep(key, owner, number, ticket)
        if over(deadline):
            if waits.waiters.load(number) != word:
                waits.waiters.wake_first(key)
            return []
    return found


def read_group(
    read: GroupRead,
    deadline: float | None,
    alive: Callable[[], object],
    owner: tuple[object, bytes] | None = None,
) -> list[Delivered]:
    """What a read of a group gives, in the order of its queue; [] at the deadline.

    Args:
        read: the read.
        deadline: of ``time.monotonic``; None: none.
        alive: raises when waiting is over; asked when it begins to wait, and about every 150 ms.
        owner: keeps its place in the queue over time-outs: somebody, and its consumer; by default
            the thread.
    """
    owner = owner or owner_of(read.consumer)
    shown = False
    while not over(deadline):
        session = read.session(owner)
        if session is None:
            break  # the group is gone: reading says so
        try:
            found = _in_turn(read, session, deadline, alive)
        except Moved:
            session.leave()
            continue
        except BaseException:
            session.leave()
            raise
        if found or found is None:
            return found or []
        shown = True  # what it was handed was deleted since
    return read.last(shown=shown)


def _in_turn(
    read: GroupRead, session: WaitSession, deadline: float | None, alive: Callable[[], object]
) -> list[Delivered] | None:
    engine = read.engine
    found = session.begin()
    if found:
        return found
    ticket = session.ticket
    if ticket is None:  # more waiters than records: without order
        return wait_streams(
            engine, [read.stream], session.out_of_turn, deadline, alive, session.pause_s
        )
    while True:
        found = session.step(alive)
        if found is not None:
            return found
        left_s = left_of(deadline)
        if left_s <= 0:
            return session.give_up()
        left_s = background.sleep_within(engine, left_s)
        pause_s = session.pause_s()
        if pause_s is not None:
            left_s = min(left_s, pause_s)
        if ticket.sleep(session.seen, left_s):
            engine.metrics.count("wakeups")
        else:
            engine.notice_drops()
