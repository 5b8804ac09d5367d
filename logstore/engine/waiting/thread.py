"""How a thread waits in the queue of a group: the steps of a session, and sleeps between them.

Tasks of asyncio take the same steps (``aio.tasks``). Invariants: as of ``waiting.wait``; a sleep
ends when time alone may have brought something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from logstore.engine.groups.deliver import Delivered
from logstore.engine.lane.loading import native_or_none
from logstore.engine.runtime import background
from logstore.engine.shm.waiters import NEW_ONLY, owner_of
from logstore.engine.waiting.session import GroupRead, Moved, WaitSession
from logstore.engine.waiting.wait import left_of, over, wait_streams

# What makes deliveries, as ``DeliveryMaker.first`` of the codec does, and its last argument.
Making: TypeAlias = tuple[Callable[..., tuple[list[Any], bytes]], tuple[Any, ...]]
_BECAME: dict[str, int] = {} if native_or_none is None else native_or_none.outcomes()


def wait_again(
    read: GroupRead, deadline: float | None, owner: tuple[object, bytes], making: Making
) -> tuple[list[Any] | None, WaitSession | None]:
    """Wait as a thread that was served before, and reads new entries only, in one call of compiled
    code: what it was handed, or the session that goes on at its place in the queue.

    Neither: it has to begin as one that comes for the first time. It sleeps for a slice at most, so
    that the session looks after whoever waits for longer.
    """
    lane, waits = read.engine.lane, read.engine.wake.waits
    key = waits.plain.get((read.stream, read.group), 0)
    if lane is None or not key or read.claim_idle_ms is not None or read.noack or read.capped:
        return None, None
    saved = waits.saved.take_bare(key, owner)
    if saved is None:
        return None, None
    number, consumer = saved.number, saved.consumer
    found: list[Any] | None
    try:
        became, ticket, word, found, time_ms = lane.wait(
            read.stream, key, read.consumer, read.limit, making, waits.waiters.tickets, number,
            saved.ticket, consumer, int(max(0.0, left_of(deadline)) * 1e9),
        )  # fmt: skip
    except BaseException:
        waits.waiters.wake_first(key)  # its record is given back
        raise
    if became == _BECAME["TAKEN"]:
        waits.saved.keep_bare(key, owner, number, ticket, consumer, time_ms)
        return found, None
    if became == _BECAME["NOT_OURS"]:
        return None, None
    session = WaitSession(read, key, NEW_ONLY, owner)
    session.stand(number, ticket, consumer, word, looked=became == _BECAME["WAITS"])
    return None, session


def read_group(
    read: GroupRead,
    deadline: float | None,
    alive: Callable[[], object],
    owner: tuple[object, bytes] | None = None,
    session: WaitSession | None = None,
) -> list[Delivered]:
    """What a read of a group gives, in the order of its queue; [] at the deadline.

    Args:
        read: the read.
        deadline: of ``time.monotonic``; None: none.
        alive: raises when waiting is over; asked when it begins to wait, and about every 150 ms.
        owner: keeps its place in the queue over time-outs: somebody, and its consumer; by default
            the thread.
        session: one that stands in the queue already.
    """
    owner = owner or owner_of(read.consumer)
    shown = False
    while session is not None or not over(deadline):
        session = session or read.session(owner)
        if session is None:
            break  # the group is gone: reading says so
        try:
            found = _in_turn(read, session, deadline, alive)
        except Moved:
            session.leave()
            session = None
            continue
        except BaseException:
            session.leave()
            raise
        if found or found is None:
            return found or []
        shown, session = True, None  # what it was handed was deleted since
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
