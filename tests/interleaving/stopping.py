"""Stopping a process between two steps: every file operation and every step of a commit is a point.

What is put in place of the real file system, and around functions of the code under test, lives in
the process that is to be stopped, and only there. Invariants: nothing is changed in what is done;
only the thread that was armed is stopped, and only once; syncs are left out, nothing is cut here.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from logstore.api import opening
from logstore.engine.commit import log_tail, pipeline
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.commit_words import Wake
from logstore.engine.shm.writer_lock import WriterLock
from logstore.engine.snapshots import snapshot
from logstore.index.env import Generation
from logstore.log import file_names as names
from logstore.log.segment_writer import CommitBuffer
from logstore.recovery import replay
from tests.interleaving.points import Point, name_of
from tests.support.watched_files import SYNCS, FileOperation, WatchedFileSystem
from tests.support.wrapped_calls import around


class Stops:
    """The points of this process: written down, and one at which it stops."""

    def __init__(self, stop: Callable[[str], None]) -> None:
        self.seen: list[Point] = []
        self.home = Path()  # the store
        self.held = False  # its LOCK
        self.cared = False  # a maintenance lock
        self._stop = stop
        self._armed: Point | None = None
        self._thread = 0
        self._counts: Counter[str] = Counter()

    def arm(self, point: Point | None) -> None:
        """From now on points of this thread count; stop at this one."""
        self._armed, self._thread = point, threading.get_ident()
        self.seen.clear()
        self._counts.clear()

    def disarm(self) -> None:
        """Points do not count any more."""
        self._thread = 0

    def at(self, kind: str, path: Path | None = None) -> None:
        """The process is about to do this."""
        if self._thread != threading.get_ident():
            return
        name = name_of(sys._getframe(2), kind, path)
        self._counts[name] += 1
        point = Point(name, self._counts[name])
        self.seen.append(point)
        if point == self._armed:
            self._armed = None
            self._stop(name)


class StoppingFileSystem(WatchedFileSystem):
    """The real one, with a point before each operation."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops

    def before(self, operation: FileOperation) -> None:
        if operation.kind not in {"read", "allocate"}:
            self._stops.at(operation.kind.removesuffix("_tree"), operation.path)

    def after(self, operation: FileOperation) -> None:
        if operation.kind in {"lock", "unlock"} and self._is_maintenance_lock(operation.path):
            self._stops.cared = operation.kind == "lock"

    def leaves_out(self, operation: FileOperation) -> bool:
        """Syncs."""
        return operation.kind in SYNCS

    def halves(self, path: Path) -> bool:
        """A write to a segment."""
        return path.suffix == ".log"

    def _is_maintenance_lock(self, path: Path) -> bool:
        is_folder = path.parent == self._stops.home and path.is_dir()
        return is_folder and path.name != names.LOG  # which every opener holds


def install(stop: Callable[[str], None]) -> Stops:
    """Make this process stoppable; to be called once, in a process of its own."""
    made = Stops(stop)
    opening.FILES[0] = StoppingFileSystem(made)

    def mark(what: str) -> Callable[..., None]:
        return lambda *_: made.at(what)

    def holds(held: bool, what: str) -> Callable[..., None]:
        def note(of: WriterLock | Engine, *_: object) -> None:
            path = of.path if isinstance(of, Engine) else of.file.path.parent
            if path == made.home:  # not that of a backup, nor a private one
                made.held = held
            made.at(what)

        return note

    around(WriterLock, "acquire", None, holds(True, "LOCK was taken"))
    around(WriterLock, "release", None, holds(False, "LOCK was given back"))
    around(Engine, "release_files", None, holds(False, "LOCK was closed"))
    around(Engine, "use_generation", mark("open the index"))
    for deciding in (pipeline, log_tail, replay):
        around(deciding, "WriteTxn", mark("decide"))
    around(CommitBuffer, "encode", mark("encode"))
    around(Wake, "begin", mark("announce the commit in WAKE"))
    around(pipeline, "_keep_promise", mark("keep the promise"), mark("commit in LMDB"))
    around(Wake, "publish", mark("publish in WAKE"), mark("published"))
    around(Generation, "sync", mark("sync the index"))
    around(Generation, "copy_used", mark("copy the index"))
    around(snapshot, "_once", mark("begin a snapshot"), mark("a snapshot was ended"))
    around(snapshot, "IndexTxn", None, mark("in a snapshot"))
    return made
