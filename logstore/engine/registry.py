"""One engine per store and process: shared by device and inode, counted, safe across fork.

Invariants: opening the same store twice shares one engine, and conflicting options raise; before a
fork the registry's lock is held, so that no child inherits it taken; in the child every inherited
engine is set aside: its lock files are closed, never unlocked, its environment is not touched.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from logstore.engine.commit import Committer
from logstore.engine.core import Engine
from logstore.engine.sync import Flusher
from logstore.errors import OptionError
from logstore.options import StoreOptions

Key = tuple[int, int, bool]


class Shared:
    """An engine with its committer and flusher, and how many handles use it."""

    def __init__(
        self, engine: Engine, close: Callable[[Engine], None], report: Any
    ) -> None:  # fmt: skip
        self.engine = engine
        self.report = report
        self.committer = Committer(engine)
        self.flusher = Flusher(engine, self.committer)
        self.close = close
        self.users_count = 0
        self.forked = False
        if engine.options.background and not engine.options.readonly:
            self.flusher.start()


_lock = threading.RLock()
_open: dict[Key, Shared] = {}
_set_aside: list[Shared] = []  # of a forked child: kept, so that no finaliser touches them


def acquire(
    key: Key | None, find: Callable[[], tuple[Key, Shared]], options: StoreOptions
) -> Shared:
    """The shared engine of a store, opened by ``find`` if need be."""
    with _lock:
        found = _open.get(key) if key is not None else None
        if found is None:
            key, found = find()
            _open[key] = found
        elif found.engine.options != options:
            raise OptionError(
                "this process has the store open with other options: give the same ones, or close "
                f"it first (open: {found.engine.options}, asked: {options})"
            )
        found.users_count += 1
        return found


def release(shared: Shared) -> None:
    """Give one use back; the last one closes the engine."""
    with _lock:
        if shared.forked:
            return
        shared.users_count -= 1
        if shared.users_count:
            return
        for key in [key for key, found in _open.items() if found is shared]:
            del _open[key]
        shared.flusher.stop()
        with shared.committer.mutex:
            shared.close(shared.engine)


def _before_fork() -> None:
    _lock.acquire()
    for shared in _open.values():
        shared.committer.mutex.acquire()


def _after_in_parent() -> None:
    for shared in _open.values():
        shared.committer.mutex.release()
    _lock.release()


def _after_in_child() -> None:
    for shared in _open.values():
        shared.committer.mutex.release()
        shared.forked = True
        shared.engine.closed = True
        shared.engine.lock.close()
        shared.engine.users.close()
        _set_aside.append(shared)
    _open.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
