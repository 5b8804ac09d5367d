"""A process that does pieces of work when told to, and can be stopped in the midst of one.

Its answers come back as plain values: what it got, or which typed error refused it. Whatever else
is raised has its traceback in the answer. Invariants: the process is forked, and ended by its maker
alone; nobody waits for it without a time limit.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from logstore.engine import registry
from logstore.engine.runtime import maintenance_locks
from logstore.log import file_names
from logstore.recovery import check as checking
from tests.interleaving import stopping
from tests.interleaving.handle import StoreHandle, Work
from tests.interleaving.points import Point

PATIENCE_S = 60.0  # then it hangs
LOCK_S = 0.003  # how long those wait that meet a stopped one
Books = dict[str, dict[str, Work]]  # works by scene
_context = multiprocessing.get_context("fork")


class WorkResult(NamedTuple):
    """How a piece of work ended."""

    answer: Any = None
    refused: str = ""  # the name of the typed error
    message: str = ""
    owner: int | None = None  # a time-out names it
    broke: str = ""  # a traceback: no typed error


class Stopped(NamedTuple):
    """Where a process was stopped, and what it held there."""

    name: str
    held: bool  # LOCK
    cared: bool  # a maintenance lock


class Actor(AbstractContextManager["Actor"]):
    """One process, from its maker's side."""

    def __init__(
        self, path: Path, works: dict[str, Work], *, timeout_s: float = LOCK_S,
        books: Books | None = None,
    ) -> None:  # fmt: skip
        self._here, there = _context.Pipe()
        self.process = _context.Process(
            target=_serve, args=(there, path, works, books or {}, timeout_s), daemon=True
        )
        self.process.start()
        there.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self.process.pid is not None
        return self.process.pid

    def turn_to(self, path: Path, book: str) -> bool:
        """Another store, and other works; False if it still has one open: it is of no more use."""
        self._here.send(("turn to", (path, book)))
        done: bool = self.hear()
        return done

    def tell(self, name: str, point: Point | None = None) -> None:
        """Do a piece of work; stop at a point of it."""
        self._here.send((name, point))

    def hear(self, timeout_s: float = PATIENCE_S) -> Any:
        """A ``WorkResult`` or ``Stopped``; ``points`` then has the points that were passed."""
        assert self._here.poll(timeout_s), f"process {self.pid} hangs"
        return self._here.recv()

    def heard(self, timeout_s: float) -> bool:
        """Whether there is something to hear within that time."""
        return self._here.poll(timeout_s)

    def do(self, name: str) -> WorkResult:
        """Tell, and hear how it ended."""
        self.tell(name)
        assert self.heard(PATIENCE_S), f"{name} hangs"
        found = self.hear()
        assert isinstance(found, WorkResult), found
        return found

    def go(self) -> None:
        """It goes on from where it was stopped."""
        self._here.send(("go", None))

    def points(self) -> list[Point]:
        """What the last piece of work passed."""
        self._here.send(("points", None))
        found: list[Point] = self.hear()
        return found

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.join()
        self._here.close()

    def __exit__(self, *_: object) -> None:
        if self.process.is_alive():
            self.kill()


def _serve(
    pipe: Connection, path: Path, works: dict[str, Work], books: Books, timeout_s: float
) -> None:
    def stop(name: str) -> None:
        pipe.send(Stopped(name, stops.held, stops.cared))
        pipe.recv()

    gc.disable()  # it would write to every page that is shared with its maker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its maker kills it
    tempfile.tempdir = str(path.parent)  # private indexes of read-only handles
    stops = stopping.install(stop)
    # Those who meet a stopped process shall not wait for minutes.
    maintenance_locks.alone.__wrapped__.__defaults__ = (timeout_s, file_names.CHECKPOINTS)  # type: ignore[attr-defined]
    checking.LOCK_WAIT_S = timeout_s
    handle = StoreHandle(path, timeout_s)
    stops.home = path
    while True:
        name, point = pipe.recv()
        if name == "points":
            pipe.send(list(stops.seen))
            continue
        if name == "turn to":
            path, works = point[0], books[point[1]]
            tempfile.tempdir = str(path.parent)
            handle.leave()
            handle = StoreHandle(path, timeout_s)
            stops.home = path
            pipe.send(not registry._open)
            continue
        stops.arm(point)
        found = _did(partial(works[name].do, handle))
        stops.disarm()
        pipe.send(found)


def _did(work: Callable[[], Any]) -> WorkResult:
    try:
        return WorkResult(work())
    except logstore.Error as exc:
        owner = exc.owner_pid if isinstance(exc, logstore.LockTimeoutError) else None
        return WorkResult(refused=type(exc).__name__, message=str(exc), owner=owner)
    except BaseException:  # noqa: BLE001  it is told where somebody can see it
        return WorkResult(broke=traceback.format_exc())
