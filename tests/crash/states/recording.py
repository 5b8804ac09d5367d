"""A run written down: every file-system operation with its bytes, its step, the index as it was.

LMDB and the mapped words of WAKE do not go through the file-system layer; what they held is kept
beside each operation. Invariants: an operation is written down before it is done; nothing is
changed in what the code under test does, and it runs in one thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from logstore import fsinfo
from logstore.engine.commit import log_tail, write_back
from logstore.engine.shm import process_identity
from logstore.engine.shm.commit_words import Wake
from logstore.engine.shm.writer_lock import WriterLock
from logstore.index.env import Generation
from logstore.log import file_names, storefile
from tests.crash.states.disk import Event, Image
from tests.crash.states.steps import ProtocolStep, code_of, step_of
from tests.support.watched_files import FileOperation, WatchedFileSystem, in_place
from tests.support.wrapped_calls import around

STORE = "new/store"  # below the root, so that the names above the store count, too
MOUNT, BORN_NS, BOOT_ID = 7, 9, "the boot of the recording"

FOLLOWING = (code_of(write_back.follow_locked), code_of(log_tail.follow_locked))


class IndexFile(NamedTuple):
    """One data.mdb as it was."""

    content: bytes
    device: int
    inode: int
    modified_ns: int


Index = dict[str, IndexFile]  # by generation


class Moment(NamedTuple):
    """An operation, and what was true just before it."""

    event: Event
    step: ProtocolStep
    acknowledged: int  # steps of the workload
    durable: int  # of them, those that must outlive a power cut
    index: Index
    synced: Index  # as it was at the last sync of each generation
    wake: bytes


class Recorder(WatchedFileSystem):
    """The real file system, written down."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / STORE
        self.moments: list[Moment] = []
        self.acknowledged = self.durable = 0
        self.failing: Callable[[str, Path], None] | None = None
        self.begin: Image = {}
        self.numbers: dict[str, int] = {}
        self._by_path: dict[Path, int] = {}
        self._last = 0
        self._synced: Index = {}
        self._seen: dict[str, tuple[int, int, IndexFile]] = {}

    def load(self) -> None:
        """What lies below the root is durable, and the beginning."""
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if not name.startswith(f"{STORE}/index/"):
                self.begin[name] = path.read_bytes() if path.is_file() else None
                if path.is_file():
                    self.numbers[name] = self._number(path)

    def _number(self, path: Path) -> int:
        self._last += 1
        self._by_path[path] = self._last
        return self._last

    # -- writing down -------------------------------------------------------------------------
    def note(
        self, kind: str, path: Path, inode: int = 0, offset: int = 0, data: bytes = b"",
        target: Path | None = None,
    ) -> None:  # fmt: skip
        """Write an operation down, before it is done."""
        into = "" if target is None else target.relative_to(self.root).as_posix()
        where = path.relative_to(self.root).as_posix() if path != self.root else ""
        step = step_of(sys._getframe(1), kind, target or path)
        outside = kind
        if (
            path.is_relative_to(self.store / file_names.INDEX)
            and path != self.store / file_names.INDEX
        ):
            outside, inode = "mark", 0  # LMDB's
        self._keep(Event(outside, where, inode, offset, data, into), step)
        if self.failing is not None:
            self.failing(kind, path)

    def mark(self, what: str) -> None:
        """Write down a step that is no operation on files."""
        self._keep(Event("mark", ""), step_of(sys._getframe(1), what, None))

    def laid(self, event: Event, step: ProtocolStep, wake: bytes, index: Index) -> None:
        """Write down what was done past this file system, with WAKE and the index as they were."""
        if event.kind != "mark":
            path = self.root / event.path
            event = event._replace(inode=self._by_path[path])
        self._keep(event, step, wake, index)

    def _keep(
        self,
        event: Event,
        step: ProtocolStep,
        wake: bytes | None = None,
        index: Index | None = None,
    ) -> None:
        if wake is None:
            try:
                wake = (self.store / file_names.WAKE).read_bytes()
            except FileNotFoundError:
                wake = b""
        if index is None:
            index = self.index()
        self.moments.append(Moment(
            event, step, self.acknowledged, self.durable, index, dict(self._synced), wake
        ))  # fmt: skip

    def index(self) -> Index:
        """The index as it is now."""
        found: Index = {}
        folder = self.store / file_names.INDEX
        for name in sorted(os.listdir(folder)) if folder.exists() else ():
            data = folder / name / "data.mdb"
            try:
                stat = data.stat()
            except FileNotFoundError:
                continue
            seen = self._seen.get(name)
            if seen is None or seen[:2] != (stat.st_ino, stat.st_mtime_ns):
                kept = IndexFile(data.read_bytes(), stat.st_dev, stat.st_ino, stat.st_mtime_ns)
                seen = self._seen[name] = (stat.st_ino, stat.st_mtime_ns, kept)
            found[name] = seen[2]
        return found

    def index_synced(self, generation: Generation) -> None:
        """LMDB made a generation durable."""
        name = generation.path.name
        self._synced[name] = self.index()[name]

    # -- the file system ----------------------------------------------------------------------
    def before(self, operation: FileOperation) -> None:
        kind, path, file = operation.kind, operation.path, operation.file
        if kind == "create":
            self.note(kind, path, self._number(path))
        elif kind == "rename":
            assert operation.source is not None
            self.note(kind, operation.source, target=path)
        elif kind == "remove_tree":
            for each in sorted(path.rglob("*"), reverse=True):
                self.note("remove", each)
        elif kind in {"make_directory", "sync_directory"}:
            self.note(kind, path)
        elif file is not None and file.number:
            self._note_of_file(operation, file.number)
        if kind in {"remove", "remove_tree"} and path.exists():
            self.note("remove", path)
            self._by_path.pop(path, None)

    def _note_of_file(self, operation: FileOperation, number: int) -> None:
        kind, path, _, _, offset, size_bytes, data = operation
        if kind == "write":
            self.note(kind, path, number, offset, bytes(data))
        elif kind == "sync":
            self.note(kind, path, number)
        elif kind in {"truncate", "allocate"} and not self.leaves_out(operation):
            self.note("truncate", path, number, size_bytes)

    def leaves_out(self, operation: FileOperation) -> bool:
        """The space that is set aside: a megabyte of nothing in every state."""
        return operation.kind == "allocate" and operation.path.name.startswith(file_names.RESERVE)

    def after(self, operation: FileOperation) -> None:
        path, file, source = operation.path, operation.file, operation.source
        if operation.kind in {"open", "create"} and file is not None and file.write:
            file.number = self._by_path.get(path, 0)
        elif operation.kind == "rename" and source in self._by_path:
            self._by_path[path] = self._by_path.pop(source)


def _followed(recorder: Recorder) -> Callable[[], None]:
    """Marks where the index has followed, before WAKE says so, and behind it."""
    words: Any = vars(Wake)["indexed_upto"]

    def store(wake: Wake, position: int) -> None:
        follows = sys._getframe(1).f_code in FOLLOWING
        if follows:
            recorder.mark("LMDB has committed")
        words.fset(wake, position)
        if follows:
            recorder.mark("WAKE says so")

    Wake.indexed_upto = property(words.fget, store)  # type: ignore[assignment]

    def undo() -> None:
        Wake.indexed_upto = words

    return undo


@contextmanager
def recording(root: Path) -> Iterator[Recorder]:
    """Stores are opened through a recorder; what tells boots and mounts apart is set."""
    recorder = Recorder(root)
    recorder.load()
    uuid, identity, boot_id = storefile.new_uuid, fsinfo.file_identity, process_identity.boot_id

    def known(path: Path) -> tuple[int, int, int, int]:
        found = os.stat(path)
        return MOUNT, found.st_dev, found.st_ino, BORN_NS

    undo = [
        around(Wake, "begin", lambda *_: recorder.mark("announce the commit in WAKE")),
        around(Wake, "publish", lambda *_: recorder.mark("publish in WAKE"),
                lambda *_: recorder.mark("published")),
        around(WriterLock, "release", None, lambda *_: recorder.mark("let go of LOCK")),
        around(Generation, "sync", lambda *_: recorder.mark("sync the index"),
                recorder.index_synced),
        _followed(recorder),
    ]  # fmt: skip
    storefile.new_uuid = lambda: bytes(range(16))
    fsinfo.file_identity = known
    process_identity.boot_id = lambda: BOOT_ID
    try:
        with in_place(recorder):
            yield recorder
    finally:
        storefile.new_uuid = uuid
        fsinfo.file_identity = identity
        process_identity.boot_id = boot_id
        for each in undo:
            each()
