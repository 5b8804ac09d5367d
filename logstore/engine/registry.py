"""One engine per store and process: shared by device and inode, counted, safe across fork.

Invariants: opening the same store twice shares one engine, and conflicting options raise; before a
fork the registry's lock and every mutex are taken, and environments closed, so that no child
inherits them taken or open; in the child every inherited engine is set aside: its lock files are
closed, never unlocked. A handle that was forgotten is closed later, by another call or thread: its
finaliser may run anywhere, also in the middle of a commit, and takes no lock. Lock order: the
registry's lock, then what an engine has.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from logstore.engine.commit.committer import Committer
from logstore.engine.commit.durability import Flusher
from logstore.engine.lane.lane import open_lane
from logstore.engine.maintenance.background_work import Compact, DueWorker, MaintenanceThread
from logstore.engine.runtime.engine import Engine, log
from logstore.errors import Error, OptionError, ReentryError
from logstore.options import StoreOptions

if TYPE_CHECKING:
    from logstore.engine.apply.write_txn import WriteTxn
    from logstore.engine.shm.wait_words import Waits

Key = tuple[int, int, bool]


class SharedEngine:
    """An engine with its committer and flusher, and how many handles use it."""

    def __init__(
        self,
        engine: Engine,
        close: Callable[[Engine], None],
        report: Any,
        compacting: Callable[[Engine, Committer], Compact] | None = None,
    ) -> None:
        self.engine = engine
        self.report = report
        self.committer = Committer(engine)
        if not engine.options.readonly:
            engine.due_work = DueWorker(engine, self.committer)
            engine.hand_out = _hand_out
        self.lane = open_lane(engine, self.committer)
        self.flusher = Flusher(engine, self.committer, reap)
        compact = None if compacting is None else compacting(engine, self.committer)
        self.maintenance = MaintenanceThread(engine, self.committer, compact)
        self.close = close
        self.users_count = 0
        self.forked = False
        if engine.options.background and not engine.options.readonly:
            self.flusher.start()
            self.maintenance.start()

    def refuse_inside(self) -> None:
        """ReentryError inside one of the store's own calls: closing would wait for itself."""
        if self.committer.busy:
            raise ReentryError(
                "the store was closed from inside one of its own calls (a signal handler or a "
                "finaliser): do it outside"
            )


def _hand_out(txn: WriteTxn, waits: Waits) -> None:
    from logstore.engine.waiting import handoff  # (not loaded where nobody waits)

    handoff.hand_out(txn, waits)


_lock = threading.RLock()
_open: dict[Key, SharedEngine] = {}
_set_aside: list[SharedEngine] = []  # of a forked child: kept, so that no finaliser touches them
_forgotten: deque[SharedEngine] = deque()
_forking: list[Engine] = []


def acquire(
    key: Callable[[], Key | None],
    find: Callable[[], tuple[Key, SharedEngine]],
    options: StoreOptions,
) -> SharedEngine:
    """The shared engine of a store, opened by ``find`` if need be."""
    with _lock:
        reap()
        wanted = key()
        found = _open.get(wanted) if wanted is not None else None
        if found is None:
            made, found = find()
            _open[made] = found
        elif found.engine.options != options:
            raise OptionError(
                "this process has the store open with other options: "
                f"{_differences(found.engine.options, options)}; give the same, or close it first"
            )
        found.users_count += 1
        return found


def _differences(has: StoreOptions, asked: StoreOptions) -> str:
    """The options that differ, as ``open`` names them: what each is, and what was asked for."""
    names = {"lock_timeout_s": "lock_timeout", "compact_rate_bytes_s": "compact_rate"}
    return ", ".join(
        f"{names.get(option, option)} is {getattr(has, option)!r}, not {getattr(asked, option)!r}"
        for option in StoreOptions._fields
        if getattr(has, option) != getattr(asked, option)
    )


def release(shared: SharedEngine) -> None:
    """Give one use back; the last one closes the engine."""
    shared.refuse_inside()
    with _lock:
        if shared.forked:
            return
        shared.users_count -= 1
        if not shared.users_count:
            _close(shared)


def _close(shared: SharedEngine) -> None:
    for key in [key for key, other in _open.items() if other is shared]:
        del _open[key]
    try:
        shared.maintenance.stop()
        shared.flusher.stop()
    finally:
        with shared.engine.mutex:
            shared.close(shared.engine)


def forget(shared: SharedEngine) -> None:
    """A handle was forgotten without closing; for finalisers: takes no lock."""
    _forgotten.append(shared)


def reap() -> None:
    """Give back what was forgotten, unless the registry is in use: then the next one does.

    Never waits: it runs in flushers, and a flusher is joined under the registry's lock.
    """
    if not _forgotten or not _lock.acquire(blocking=False):
        return
    try:
        while _forgotten:
            forgotten = _forgotten.popleft()
            try:
                release(forgotten)
            except ReentryError:  # a finaliser inside of a call of that store: a later one does it
                _forgotten.append(forgotten)
                break
            except Error as exc:
                log.error("closing a store that nobody holds any more failed: %s", exc)
    finally:
        _lock.release()


def _at_exit() -> None:
    """Close what is still open, so that the next opener finds it clean."""
    reap()
    with _lock:
        for shared in list(_open.values()):
            try:
                _close(shared)
            except Error as exc:
                log.error("closing a store at exit failed: %s", exc)


def _before_fork() -> None:
    _lock.acquire()
    for shared in _open.values():
        engine = shared.engine
        engine.mutex.acquire()
        _forking.append(engine)
        # LMDB refuses a child that has inherited an environment, and closing it there would clear
        # this process's reader slots. Here it is opened again at the next use: after the fork, for
        # who opens it needs the mutex.
        if engine.gate.shut() and not engine.lock.held and engine.generation is not None:
            engine.generation.close()
            engine.generation = None


def _after_in_parent() -> None:
    for engine in _forking:
        engine.gate.reopen()
        engine.mutex.release()
    _forking.clear()
    _lock.release()


def _after_in_child() -> None:
    for engine in _forking:
        engine.mutex.release()
    _forking.clear()
    for shared in _open.values():
        shared.forked = True
        shared.engine.set_aside()
        _set_aside.append(shared)
    _open.clear()
    _forgotten.clear()
    _lock.release()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
