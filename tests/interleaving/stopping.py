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
from typing import Any

from logstore.api import opening
from logstore.engine.commit import log_tail, pipeline
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.control_block import Wake
from logstore.engine.shm.writer_lock import WriterLock
from logstore.engine.snapshots import snapshot
from logstore.fs import File, FileSystem
from logstore.index.env import Generation
from logstore.log import file_names as names
from logstore.log.segment_writer import CommitBuffer
from logstore.recovery import replay
from tests.interleaving.points import Point, name_of


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


class _StoppingFile(File):
    stops: Stops

    def pwrite(self, data: bytes | bytearray, offset: int) -> None:
        self.stops.at("write", self.path)
        if self.path.suffix != ".log" or len(data) < 2:
            super().pwrite(data, offset)
            return
        half = len(data) // 2  # as the kernel may do it
        super().pwrite(data[:half], offset)
        self.stops.at("write the rest of", self.path)
        super().pwrite(data[half:], offset + half)

    def sync(self) -> None:
        self.stops.at("sync", self.path)

    def truncate(self, size_bytes: int) -> None:
        self.stops.at("truncate", self.path)
        super().truncate(size_bytes)

    def try_lock(self, *, exclusive: bool) -> bool:
        self.stops.at("lock", self.path)
        taken = super().try_lock(exclusive=exclusive)
        if self._care() and taken:
            self.stops.cared = True
        return taken

    def unlock(self) -> None:
        self.stops.at("unlock", self.path)
        super().unlock()
        if self._care():
            self.stops.cared = False

    def _care(self) -> bool:
        is_folder = self.path.parent == self.stops.home and self.path.is_dir()
        return is_folder and self.path.name != names.LOG  # which every opener holds


class StoppingFileSystem(FileSystem):
    """The real one, with a point before each operation."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops

    def open(self, path: Path, *, write: bool = False, create: bool = False,
             exclusive: bool = False) -> File:  # fmt: skip
        made = (create or exclusive) and not path.exists()
        self._stops.at("create" if made else "open", path)
        file = super().open(path, write=write, create=create, exclusive=exclusive)
        fd, file.fd = file.fd, -1
        found = _StoppingFile(fd, path)
        found.stops = self._stops
        return found

    def rename(self, source: Path, target: Path) -> None:
        self._stops.at("rename", target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._stops.at("remove", path)
        super().remove(path)

    def remove_tree(self, path: Path) -> None:
        self._stops.at("remove", path)
        super().remove_tree(path)

    def make_directory(self, path: Path) -> None:
        if not path.exists():
            self._stops.at("make_directory", path)
        super().make_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._stops.at("sync_directory", path)

    def names(self, path: Path) -> list[str]:
        self._stops.at("list", path)
        return super().names(path)

    def stat(self, path: Path) -> Any:
        self._stops.at("look at", path)
        return super().stat(path)


def _around(
    owner: Any, name: str, before: Callable[[Any], None] | None, after: Callable[[Any], None] | None
) -> None:
    """Both are called with the first argument: of a method, its object."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(args[0])
        result = original(*args, **kwargs)
        if after is not None:
            after(args[0])
        return result

    setattr(owner, name, wrapped)


def install(stop: Callable[[str], None]) -> Stops:
    """Make this process stoppable; to be called once, in a process of its own."""
    made = Stops(stop)
    opening.FILES[0] = StoppingFileSystem(made)

    def mark(what: str) -> Callable[[Any], None]:
        return lambda _: made.at(what)

    def holds(held: bool, what: str) -> Callable[[Any], None]:
        def note(of: WriterLock | Engine) -> None:
            path = of.path if isinstance(of, Engine) else of.file.path.parent
            if path == made.home:  # not that of a backup, nor a private one
                made.held = held
            made.at(what)

        return note

    _around(WriterLock, "acquire", None, holds(True, "LOCK was taken"))
    _around(WriterLock, "release", None, holds(False, "LOCK was given back"))
    _around(Engine, "release_files", None, holds(False, "LOCK was closed"))
    _around(Engine, "use_generation", mark("open the index"), None)
    for deciding in (pipeline, log_tail, replay, replay):
        _around(deciding, "WriteTxn", mark("decide"), None)
    _around(CommitBuffer, "encode", mark("encode"), None)
    _around(Wake, "begin", mark("announce the commit in WAKE"), None)
    _around(pipeline, "_keep_promise", mark("keep the promise"), mark("commit in LMDB"))
    _around(Wake, "publish", mark("publish in WAKE"), mark("published"))
    _around(Generation, "sync", mark("sync the index"), None)
    _around(Generation, "copy_used", mark("copy the index"), None)
    _around(snapshot, "_once", mark("begin a snapshot"), mark("a snapshot was ended"))
    _around(snapshot, "IndexTxn", None, mark("in a snapshot"))
    return made
