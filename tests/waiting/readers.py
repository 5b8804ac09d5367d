"""Threads that read once, and what adds for them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import logstore
from logstore.api.store import Store
from logstore.engine.shm.commit_words import Wake
from logstore.engine.shm.wait_words import Waits
from tests.support.inside import engine_of
from tests.support.processes import Forked
from tests.support.waits import eventually
from tests.waiting import crowd


class Reading(threading.Thread):
    """A thread that reads once; it stands in the queue when it was made."""

    def __init__(self, store: Store[Any], who: str, **options: Any) -> None:
        super().__init__()
        self._group = crowd.group_of(store)
        self._who = who
        self._options = {"timeout": crowd.LONG_S, **options}
        self.got: list[int] | None = None
        before = store.metrics()["waits"]
        self.start()
        eventually(lambda: store.metrics()["waits"] > before)

    def run(self) -> None:
        """Read."""
        found = self._group.read(self._who, **self._options)
        self.got = [int(each.fields[b"n"]) for each in found]

    def wait(self) -> list[int]:
        """What it got."""
        self.join(crowd.SOON_S)
        assert self.got is not None
        return self.got


def add(store: Store[Any], *numbers: int, pad: str = "") -> None:
    """Add entries in one commit."""
    store.stream("work").add_many({"n": n, "pad": pad} for n in numbers)


def commits(store: Store[Any]) -> int:
    """Commits of all processes."""
    return engine_of(store).wake.log().commit


def _dies(when: Callable[[], None], store: Store[Any]) -> Forked:
    """A process that reads one entry, and is killed over it as ``when`` arranges."""

    def work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            when()
            crowd.group_of(theirs).read("dying", count=1, timeout=crowd.LONG_S)

    return crowd.queued(store, work)


def kill_self(*_: Any) -> None:
    """SIGKILL, whatever was to be called."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_handing_over(store: Store[Any], *, published: bool) -> Forked:
    """A process that waits, and is killed over what it hands to others when it is served."""

    def when() -> None:
        if published:
            Waits.given_locked = kill_self  # type: ignore[method-assign]
        else:
            begin = Wake.begin
            Wake.begin = lambda self, number: (  # type: ignore[method-assign, misc]
                kill_self()
                if any(self.waits.mailboxes.state(n) for n in range(4))
                else begin(self, number)
            )

    return _dies(when, store)


class ReadsTwice(threading.Thread):
    """A thread that waits, was served once when it was made, and waits again when it is told to."""

    def __init__(self, store: Store[Any], who: str) -> None:
        super().__init__()
        self._group = crowd.group_of(store)
        self._who = who
        self.once, self.goes_on = threading.Event(), threading.Event()
        self.got: list[int] = []
        self.start()
        eventually(lambda: len(crowd.takers(store)) == 1)
        add(store, 0)
        assert self.once.wait(crowd.SOON_S)

    def run(self) -> None:
        """Read twice."""
        for _ in range(2):
            found = self._group.read(self._who, count=1, timeout=crowd.LONG_S)
            self.got += [int(each.fields[b"n"]) for each in found]
            self.once.set()
            self.goes_on.wait(crowd.SOON_S)

    def wait(self) -> list[int]:
        """What it got."""
        self.join(crowd.SOON_S)
        return self.got


def reads_in_its_turn(store: Store[Any], again: Any, goes_on: Callable[[], None]) -> None:
    """Who was served once stands, when it waits again, behind who waits, and before who comes."""
    first = Reading(store, "first", count=1)
    goes_on()
    eventually(lambda: len(crowd.takers(store)) == 2)
    last = Reading(store, "last", count=1)
    add(store, 1)
    assert first.wait() == [1]
    add(store, 2)
    assert again.wait() == [0, 2]
    add(store, 3)
    assert last.wait() == [3]
