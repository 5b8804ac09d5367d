"""Processes that wait for a group, for the tests: who stands in the queue, and who got what."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import logstore
from logstore.api.group import Group
from logstore.api.store import Store
from logstore.engine.shm import process_identity
from logstore.engine.shm.waiters import FREE, NO_ONE
from logstore.engine.waiting import wait_session
from tests.support.inside import engine_of
from tests.support.processes import Forked
from tests.support.waits import eventually

SOON_S = 60.0  # what is prompt takes milliseconds, on a busy machine some seconds: far below this
LONG_S = 300.0  # a time-out is a last look, too: it must not come before a test gives up


def group_of(store: Store[Any], name: str = "work") -> Group[Any]:
    """The group that all wait for."""
    return store.stream(name).group("g", start="0")


def queue(store: Store[Any], key: int | None = None) -> list[int]:
    """The living processes in the queue of the group, in order."""
    number = key if key is not None else key_of(store)
    waiting = engine_of(store).wake.waits.waiters.waiting(number)
    return [record.pid for record in waiting if record.alive()]


def takers(store: Store[Any]) -> list[int]:
    """The numbers of the records of those that wait and that something can be handed to."""
    waits = engine_of(store).wake.waits
    numbers = [record.number for record in waits.waiters.waiting(key_of(store))]
    return [each for each in numbers if waits.mailboxes.read(each).consumer != NO_ONE]


def used(store: Store[Any]) -> list[int]:
    """The numbers of the waiter records that somebody has."""
    waiters = engine_of(store).wake.waits.waiters
    return [number for number in range(waiters._used()) if waiters.record(number).state != FREE]


def key_of(store: Store[Any]) -> int:
    """The number of the group."""
    group = group_of(store)
    number = group._opened.view(
        lambda view: view.index.groups.number(view.record(b"work").number, b"g")  # type: ignore[union-attr]
    )
    assert number is not None
    return number


def take(
    store: Store[Any], who: str, timeout: float | None = LONG_S,
    once: Callable[[], object] | None = None, alive: Callable[[], object] | None = None,
) -> list[Any]:  # fmt: skip
    """Read one entry, in turn; ``once`` is called in the commit that reads it for itself."""
    read = store.stream("work").group("g")._waiting(who.encode(), 1)
    if once is not None:
        real = read.once

        def instead(txn: Any, takes_new: bool) -> Any:
            found = real(txn, takes_new=takes_new)
            if found and once is not None:
                once()
            return found

        read = read._replace(once=instead)
    deadline = None if timeout is None else time.monotonic() + timeout
    return wait_session.read_group(read, deadline, alive or store._engine)


def owners(store: Store[Any]) -> list[str]:
    """With whom the entries are pending, by ID; told without a commit, which might wake one."""
    return [(each.consumer or b"").decode() for each in group_of(store).pending_entries()]


def reader(store: Store[Any], who: str, times: int = 1, **options: Any) -> Forked:
    """A process that reads one entry after the other, and ends; it stands in the queue."""

    def work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            for _ in range(times):
                assert group_of(theirs).read(who, **{"count": 1, "timeout": LONG_S, **options})

    return queued(store, work)


def stop(pid: int) -> None:
    """SIGSTOP, and wait until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    start = process_identity.start_ticks(pid)
    eventually(lambda: process_identity.state_of(pid, start) == process_identity.STOPPED)


def queued(store: Store[Any], work: Callable[[], object]) -> Forked:
    """A process of this work, once it stands in the queue."""
    key = key_of(store)
    child = Forked(work)
    eventually(lambda: child.pid in queue(store, key))
    with store._live().committer.locked():  # it has given LOCK back: it may be stopped now
        return child
