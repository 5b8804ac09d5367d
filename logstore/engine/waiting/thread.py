"""How a thread waits in the queue of a group: the steps of a session, and sleeps between them.

Tasks of asyncio take the same steps (``aio.wait``). Invariants: as of ``waiting.stream_wait``; a
sleep ends when time alone may have brought something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logstore.engine.groups.deliver import Delivered
from logstore.engine.shm.waiters import NEW_ONLY, SavedWaiter, owner_of
from logstore.engine.waiting.stream_wait import left_of, over, wait_streams
from logstore.engine.waiting.wait_session import GroupRead, Making, Moved, WaitSession


def kept_record(read: GroupRead, owner: tuple[object, bytes]) -> tuple[int, SavedWaiter] | None:
    """The group's number, and the waiter record that the owner kept when it was served, if it may
    wait again in compiled code: for new entries only, by their count."""
    waits = read.engine.wake.waits
    key = waits.plain.get((read.stream, read.group), 0)
    if read.engine.lane is None or not key or read.noack or read.capped:
        return None
    bare = None if read.asked_idle_ms is not None else waits.saved.take_bare(key, owner)
    return None if bare is None else (key, bare)


def read_group(
    read: GroupRead,
    deadline: float | None,
    alive: Callable[[], object],
    owner: tuple[object, bytes] | None = None,
    making: tuple[Making, list[Any]] | None = None,
) -> list[Delivered]:
    """What a read of a group gives, in the order of its queue; [] at the deadline.

    Args:
        read: the read.
        deadline: of ``time.monotonic``; None: none.
        alive: raises when waiting is over; asked when it begins to wait, and about every 150 ms.
        owner: keeps its place in the queue over time-outs: somebody, and its consumer; by default
            the thread.
        making: what makes deliveries in compiled code, and where these are put; then it gives [].
    """
    owner = owner or owner_of(read.consumer)
    shown = False
    kept = None if making is None else kept_record(read, owner)
    while kept is not None or not over(deadline):
        session = (
            read.session(owner) if kept is None else WaitSession(read, kept[0], NEW_ONLY, owner)
        )
        if session is None:
            break  # the group is gone: reading says so
        try:
            if kept is not None and making is not None:
                (_, bare), kept = kept, None
                if (made := session.again(bare, making[0], left_of(deadline))) is not None:
                    making[1].extend(made)
                    return []
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
        left_s = engine.sleep_within(left_s)
        pause_s = session.pause_s()
        if pause_s is not None:
            left_s = min(left_s, pause_s)
        if ticket.sleep(session.seen, left_s):
            engine.metrics.count("wakeups")
        else:
            engine.notice_drops()
