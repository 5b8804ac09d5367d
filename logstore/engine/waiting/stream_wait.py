"""How a thread waits for new entries: try, then sleep until a commit touches one of the streams.

Invariants: nothing is held while a thread sleeps, no lock, no snapshot; no wake-up is lost (see
``shm.wait_words``); a sleep is never longer than a slice (``Pace``), so that an interrupt, a closed
store and a writer that died between publishing and waking are noticed; a time-out is never early.
The clock is the monotonic one, never the store's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.wait_words import EVERY, bucket_of
from logstore.engine.shm.waiters import PACE
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
