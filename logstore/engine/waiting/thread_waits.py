"""How a thread waits for new entries: of streams, or in the queue of a group.

For streams it tries, then sleeps until a commit touches one of them. In a queue it takes the steps
of a session, and sleeps between them. Tasks of asyncio take the same steps (``aio.tasks``).

Invariants: nothing is held while a thread sleeps, no lock, no snapshot; no wake-up is lost (see
``shm.wait_words``); a sleep is never longer than a slice (``Pace``), so that an interrupt, a closed
store and a writer that died between publishing and waking are noticed; in a queue it ends when time
alone may have brought something; a time-out is never early. The clock is the monotonic one, never
the store's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from logstore.engine.groups.deliver import Delivered
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.wait_words import EVERY, bucket_of
from logstore.engine.shm.waiters import NEW_ONLY, PACE, SavedWaiter, owner_of
from logstore.engine.waiting.wait_session import GroupRead, GroupReplaced, Making, WaitSession
from logstore.log import file_names as files

T = TypeVar("T")
POLL_S = 0.01  # of a read-only store that nobody has open for writing
ANEW_SLICES = 5  # after so many a read-only store looks whether WAKE is another file


def wait_streams(
    engine: Engine,
    names: Sequence[bytes],
    try_once: Callable[[], T],
    deadline: float | None,
    alive: Callable[[], object] | None = None,
    pause_s: Callable[[], float | None] | None = None,
) -> T | None:
    """What ``try_once`` finds, tried again whenever one of the streams changed; None at the
    deadline (of ``time.monotonic``; None: none).

    ``alive`` raises when waiting is over, about every 150 ms; without it, for a closed store.
    ``pause_s`` is asked after each try, and says in how many seconds time alone may bring
    something (None: it brings nothing). A read-only store has nothing of that kind.
    """
    check = alive or engine.check_open
    if engine.follow is not None:
        return _poll(engine, try_once, deadline, check)
    wake, waits = engine.wake, engine.wake.waits
    buckets = sorted({bucket_of(name) for name in names})
    bucket = buckets[0] if len(buckets) == 1 else EVERY
    count, slept = engine.metrics.count, False
    while True:
        waits.announce(bucket)
        seen = waits.load(bucket)  # before the words of the streams: it is counted up behind them
        words = [waits.load(each) for each in buckets]
        applied = wake.applied
        found = try_once()
        if found:
            return found
        if over(deadline):
            return None
        if not slept:
            count("waits")
            slept = True
        in_s = None if pause_s is None else pause_s()
        again = None if in_s is None else time.monotonic() + in_s
        while not over(again):
            left_s = left_of(deadline)
            if again is not None:
                left_s = min(left_s, again - time.monotonic())
            waits.sleep(bucket, seen, engine.sleep_within(left_s))
            unchanged = waits.load(bucket) == seen
            check()
            engine.notice_drops()
            waits.announce(bucket)
            seen = waits.load(bucket)
            if [waits.load(each) for each in buckets] != words:
                break
            if unchanged and wake.applied != applied:
                break  # its writer died between publishing and counting up
            if over(deadline):
                return None
        else:
            continue  # it is time to look again, though nobody woke it
        count("wakeups")


def over(deadline: float | None) -> bool:
    """Whether it is reached; None: there is none."""
    return deadline is not None and time.monotonic() >= deadline


def left_of(deadline: float | None) -> float:
    """How long to sleep now."""
    slice_s = PACE.slice_s
    return slice_s if deadline is None else min(slice_s, deadline - time.monotonic())


def _poll(
    engine: Engine, try_once: Callable[[], T], deadline: float | None, check: Callable[[], object]
) -> T | None:
    """Waiting in a read-only store: watch what writers publish, look at the log now and then."""
    from logstore.engine.shm.readonly_watch import watching

    while True:
        with watching(engine.fs, engine.path / files.WAKE) as watch:
            found = try_once()
            if found:
                return found
            again = time.monotonic() + ANEW_SLICES * PACE.slice_s
            while True:
                if over(deadline):
                    return None
                left_s = max(0.0, min(left_of(deadline), PACE.slice_s))
                if watch is None:
                    time.sleep(min(POLL_S, left_s))
                news = watch is not None and watch.wait(left_s)
                check()
                if news or time.monotonic() >= again:
                    break
        engine.notice_drops()


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
        except GroupReplaced:
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
