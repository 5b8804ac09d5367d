"""The engine of one store in one process: what it holds open, and the steps below a commit.

Readers pass a gate (``Gate``), so that a closer, a fork or a reopening can wait until none is
inside. Work that wants another index of an open store, smaller or without bytes of what was
deleted, has it built beside those who commit (``NextIndex``; who builds it is handed in), and
switches all processes over to it under LOCK. So LOCK is held for some of what was committed last
at a time, and never for all that a store has.

Invariants: one engine per store and process; lock order is the mutex, LOCK, LMDB's write
transaction; methods whose name ends in ``_locked`` need the mutex and LOCK. It knows no policy of
recovery: rebuilding an index is handed in from above.

Invariants of the gate: a reader holds its token for one batch; adding and discarding a token is one
step each, so that an interrupt between them leaves at most a token that ``finally`` takes away; a
reader shows its token and then looks whether the gate is shut, so that the closer sees it, or it
sees the closer (``snapshot.inside``); whoever shuts the gate waits with a time limit, and leaves
what is in use alone when it runs out. Shutting and opening may be cut off by an interrupt at any
place, and are repeated then: a gate that stayed shut would keep its process from reading, and LOCK
from others.

Invariants of the next index: the maintenance lock is held, so no segment goes meanwhile; whoever
needs an index at once, because the one there is lost, builds it under LOCK
(``Engine.rebuild_locked``), and then the next one is not switched to.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from logstore import format as fmt
from logstore.clock import Clock
from logstore.engine.reading.reader_loading import open_reader
from logstore.engine.runtime import identity
from logstore.engine.runtime.newest import NewestOfStreams
from logstore.engine.runtime.overlaid_rows import Overlay
from logstore.engine.runtime.record_cache import RecordCache
from logstore.engine.runtime.segments import Segments
from logstore.engine.shm.commit_words import Wake
from logstore.engine.shm.users_file import Users
from logstore.engine.shm.wait_words import Waits
from logstore.engine.shm.writer_lock import PAUSE_S, WriterLock, through
from logstore.errors import (
    ClosedError,
    CorruptionError,
    DamagedStoreError,
    Error,
    ReentryError,
    StoreFailedError,
    StoreGoneError,
)
from logstore.fs import File, FileSystem, named
from logstore.index.env import LOST_PAGES, Generation, open_generation, translated
from logstore.index.txn import IndexTxn
from logstore.log import file_names
from logstore.log.segment_writer import crc_seed
from logstore.logger import Logger
from logstore.options import StoreLimits, StoreOptions

if TYPE_CHECKING:
    from logstore.engine.reading.reader_interface import Reader

SHUT_TIMEOUT_S = 5.0
_POLL_S = 0.0005


class Gate:
    """Counts readers without a lock on their path."""

    def __init__(self) -> None:
        self.inside: dict[object, int] = {}  # by the token of a reader: its thread
        self.is_shut = False
        self._lock = threading.RLock()

    def wait(self, token: object) -> None:
        """It was found shut: wait outside until it is open, and go in again."""
        while self.is_shut:
            self.inside.pop(token, None)
            with self._lock:
                pass
            self.inside[token] = threading.get_ident()

    def shut(self, timeout_s: float = SHUT_TIMEOUT_S) -> bool:
        """Keep new readers out and wait for those inside; False if some would not leave.

        ``reopen`` must follow, in the same thread. False, too, if another thread keeps it shut.
        """
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            return False
        self.is_shut = True
        while self.inside:
            ours = threading.get_ident() in self.inside.copy().values()
            if ours or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def reopen(self) -> None:
        """Let readers in again, if this thread kept them out. May be repeated.

        An interrupt may have cut ``shut`` off anywhere, or a first ``reopen``: the lock may be
        taken not at all, or several times.
        """
        if not self._lock.acquire(blocking=False):
            return  # another thread has it
        self.is_shut = False
        with suppress(RuntimeError):  # not taken by this thread any more
            while True:
                self._lock.release()


class NextIndex(Protocol):
    """One that is being built. ``leave`` must follow, whatever became of it."""

    def build(self) -> None:
        """Build it, up to what is published, or a little before that. No lock is held.

        CorruptionError where the one that there is cannot be copied.
        """
        ...

    def follow_locked(self, applied: int) -> bool:
        """Take in some of what was committed since; whether that was the last of it. The mutex and
        LOCK are held, and ``applied`` says where the log ends."""
        ...

    def switch_locked(self, applied: int) -> bool:
        """All processes use this index from now on, and the one before loses the name that they
        open.

        The mutex and LOCK are held, and ``applied`` says where the log ends. False, and nothing
        happened, if this index lacks some of that, or another one was built meanwhile.
        """
        ...

    def leave(self) -> None:
        """Remove the one that is not used any more, or this one. The mutex and LOCK are free."""
        ...


Renewing: TypeAlias = Callable[[Any], NextIndex]  # of an engine, which has it


log = Logger("logstore")
REBUILD_TRIES = 3


class Lane(Protocol):
    """What commits plain adds beside the pipeline: ``engine.lane``."""

    @property
    def locked(self) -> bool:
        """Whether a call of it has the mutex."""
        ...

    @property
    def has_lock(self) -> bool:
        """Whether that call has LOCK, too."""
        ...

    def give_back(self) -> None:
        """The record cache has all that was held. The mutex and LOCK are held."""
        ...

    def take_counts(self) -> Mapping[str, int]:
        """The counts since the last call, for the metrics."""
        ...

    def given(
        self, name: bytes, group: int, first: tuple[int, int]
    ) -> tuple[tuple[int, int], bytes] | None:
        """Master ID and listpack of the open node of a stream, for one that was handed entries of
        it from this ID on; None if they are not at hand."""
        ...

    def wait(
        self,
        name: bytes,
        group: int,
        who: bytes,
        most: int,
        making: tuple[Callable[..., tuple[list[Any], bytes]], tuple[Any, ...]],
        mine: dict[int, int],
        waiter: int,
        before: int,
        consumer: int,
        most_ns: int,
    ) -> tuple[int, int, list[Any] | None, int]:
        """Wait once more for a slice, with a waiter record of one that was served: what became of
        it, the record's word before, deliveries and their time."""
        ...

    def drained(self, name: bytes, group: int, who: bytes) -> int:
        """The number of a consumer that need not commit to know that there is nothing new; or 0."""
        ...

    def close(self) -> None:
        """Commit no more, and let go of the control block."""
        ...


class DueWork(Protocol):
    """What does the work that a time was set for."""

    def add(self, due_ms: int) -> float:
        """Do a batch of what is due; after how many seconds to look again."""
        ...


class Engine:
    """What a process holds of one store."""

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        uuid: bytes,
        limits: StoreLimits,
        options: StoreOptions,
        *,
        lock: WriterLock,
        users: Users | None,  # None: read-only
        wake: Wake,
        rebuild: Callable[[Engine], int],
    ) -> None:
        self.fs, self.path, self.uuid, self.seed = fs, path, uuid, crc_seed(uuid)
        self.limits, self.options = limits, options
        self.clock: Clock = options.clock
        self.lock, self.users, self.wake = lock, users, wake
        self.segments = Segments(fs, path, self.seed)
        # None: each read takes a snapshot, as of a store that is only read, which follows the log.
        self.reader: Reader | None = None
        if users is not None and type(fs) is FileSystem:  # one of the tests must see every read
            self.reader = self.new_reader()
        self.overlay: Overlay | None = None  # see ``snapshots.published_tail``
        self.newest = NewestOfStreams()
        self.count_marks: dict[int, Any] = {}  # of streams, by number: see ``scan.live``
        self.statistics: dict[int, Any] = {}  # of segments, by number: see ``scan.node_skipping``
        # See ``maintenance.column_statistics``.
        self.unread_segments: dict[int, Any] = {}
        self.seen_statistics: set[int] = set()
        self.cache, self.metrics, self.gate = RecordCache(), lock.metrics, Gate()
        self.pid, self.closed = os.getpid(), False
        self.gone, self.looked_ns = "", 0  # why the directory is not the store's any more
        self.end_looked_ns = 0  # when the log's end was compared with WAKE last
        self.mutex = threading.RLock()  # first in the lock order; re-entry is refused, not awaited
        self.generation: Generation | None = None
        self.promised = 0  # a position recorded as durable: a log that ends before is damaged
        self.accept_loss = False  # 'recover': go on past what is damaged or missing
        self.index_home = path  # elsewhere for a read-only store
        self.follow: Callable[[], None] | None = None  # read-only: take in what was appended
        self.due_work: DueWork | None = None  # None: read-only
        # Hands to waiting readers what a commit adds: the room of waiting registers it.
        self.hand_out: Callable[[Any, Waits], None] | None = None
        self.lane: Lane | None = None  # commits plain adds beside the pipeline
        self.calls: Any = None  # the committer's ``ThreadUse``
        self._rebuild = rebuild
        self.copy_index: Callable[[Engine], int] | None = None  # handed in, as ``rebuild`` is
        self.renewing: Renewing | None = None  # the same, of what builds it beside those who commit
        self.care_files: set[File] = (
            set()
        )  # whose flocks are held, or waited for: see ``runtime.maintenance_locks``
        self.active: File | None = None  # the active segment, once it was opened for writing
        self.active_number, self.dropped_seen = 0, wake.dropped
        self.rebuilds_of_lost = 0  # by readers that found rows of the index missing

    def new_reader(self) -> Reader | None:
        """A read core that keeps nothing yet."""
        segments = self.segments
        memory, now_ms = self.wake.memory, self.clock.now_ms
        return open_reader(
            memory, self.seed, segments.nodes, segments.files, segments.source, now_ms
        )

    # -- the index ----------------------------------------------------------------------------
    def use_generation(self, number: int) -> Generation:
        """Move to an index generation; the one before is closed when its last user is done.

        FileNotFoundError if it was deleted; CorruptionError if other files stand in its place: they
        do not show what is committed to the first ones. The mutex is held, or nobody knows us yet.
        """
        opened = self.generation
        if opened is not None and opened.number == number:
            return opened
        path = file_names.generation(self.index_home, number)
        self.fs.check_held(self.path)
        made = open_generation(self.fs, path, number)
        try:
            expected, current = self.wake.index_files, self.wake.generation() == number
            if current and any(expected) and self._index_files(path) != expected:
                raise CorruptionError("the files of the index were replaced while it was open")
        except BaseException:
            made.close()
            raise
        self.wake.readers_changed += 1  # under LOCK: nobody writes over a page before that
        self.generation = made
        return made

    def _index_files(self, path: Path) -> tuple[int, int]:
        """Inodes of data.mdb and lock.mdb: looked at, never opened."""
        return self.fs.stat(path / "data.mdb").inode, self.fs.stat(path / "lock.mdb").inode

    def settle_generation(self, generation: Generation) -> None:
        """From now on every process uses these files and no others. LOCK is held."""
        with generation.env.begin() as txn:
            upto = IndexTxn(generation, txn).meta().applied
        # A process that opens it in between only does so a little early.
        self.wake.index_files = (0, 0)
        self.wake.indexed_upto = 0  # what it says of the one before may not be so of this one
        self.wake.set_log(self.wake.log()._replace(generation=generation.number))
        self.wake.indexed_upto = upto
        self.wake.index_files = self._index_files(generation.path)

    def index(self) -> Generation:
        """The generation that is valid now."""
        while True:
            generation, number = self.generation, self.wake.generation()
            self.check_open()  # behind the look at WAKE, whose words may be lost
            if generation is not None and generation.number == number:
                if generation.lost:
                    raise CorruptionError(LOST_PAGES)
                return generation
            if not number:
                identity.check(self)
            try:  # LMDB opens databases under a lock of its own, without a time limit for waiting
                with self._locked():
                    if self.wake.generation() == number:  # else it was left while this waited
                        return self.use_generation(number)
            except FileNotFoundError:
                if self.wake.generation() == number:
                    raise

    @translated()
    def rebuild_locked(self, build: Callable[[Engine], int] | None = None) -> None:
        """Build the next generation, by default from the log, and switch all processes over."""
        identity.check_whole(self)
        for left in reversed(range(REBUILD_TRIES)):
            try:
                number = (build or self._rebuild)(self)
                path = file_names.generation(self.index_home, number)
                made = open_generation(self.fs, path, number)
                self.generation = made
                self.settle_generation(made)
            except FileNotFoundError as exc:  # the index, or a dropped segment, went meanwhile
                if not left:
                    raise DamagedStoreError("files go while they are read: try again") from exc
                continue
            for old in file_names.generations(self.fs, self.index_home):
                if old != number:  # processes that still have it open keep what they mapped
                    self.fs.remove_tree(file_names.generation(self.index_home, old))
            return

    def repair_index(self) -> None:
        """A reader found the generation gone (deleted by hand, or replaced): build the next one."""
        with self._locked():
            self.ensure_index_locked()

    def replace_index(self, number: int) -> None:
        """Build the next generation in place of this one, unless that was done meanwhile."""
        with self._locked():
            if self.wake.generation() == number:
                self.rebuild_locked()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The mutex and LOCK, unless this thread holds them."""
        timeout_s = self.options.lock_timeout_s
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        while True:
            with self.mutex:
                lane = self.lane
                if self.lock.held or (lane is not None and lane.has_lock):
                    yield
                    return
                try:
                    if self.lock.acquired(self.wake, timeout_s, deadline_ns):
                        yield
                        return
                finally:
                    through(self.lock.release, self.wake)
            time.sleep(PAUSE_S)

    def ensure_index_locked(self) -> None:
        """The valid generation is open here, or a new one is built from the log."""
        try:
            self.index()
        except (FileNotFoundError, CorruptionError) as exc:
            log.warning("%s: the index is rebuilt from the log: %s", self.path, exc)
            self.rebuild_locked()

    def notice_drops(self) -> None:
        """Let go of maps of segments that were dropped since we last looked."""
        if self.wake.dropped != self.dropped_seen:
            self.dropped_seen = self.wake.dropped
            self.segments.forget()

    # -- the active segment -------------------------------------------------------------------
    def active_file(self, number: int) -> File:
        """The active segment, open for writing."""
        before = self.active
        if before is not None and self.active_number == number:
            return before
        opened = self.fs.open(file_names.segment(self.path, number), write=True)
        self.active = opened
        self.active_number = number
        if before is not None:
            before.close()
        return opened

    def leave_sealed_locked(self, number: int) -> File | None:
        """The segment that was active, unless it still is: the caller closes it."""
        before = self.active
        if before is None or self.active_number == number:
            return None
        self.active = None
        return before

    def sleep_within(self, left_s: float, late_ms: int = 0) -> float:
        """How long to sleep of ``left_s``, so as to wake for what is due next.

        A word of the control block says when that is. The background thread of each process and
        every waiting reader sleep no longer than until then; the first to wake does the work, a
        batch at most, and gets 0.0: it looks whether that is what it waits for. The others find
        that the word moved. ``late_ms``: leave it to others for so long.
        """
        due_ms, work = self.wake.next_due_ms, self.due_work
        if not due_ms or work is None or left_s <= 0:
            return left_s
        ahead_ms = due_ms + late_ms - self.clock.now_ms()
        if ahead_ms > 0:
            return min(left_s, ahead_ms / 1000)
        return min(left_s, work.add(due_ms))

    def check_open(self) -> None:
        """ClosedError once the last handle of this process gave the store back; StoreGoneError once
        its directory was found removed or replaced, or WAKE was lost.
        """
        if self.closed:
            raise ClosedError("the store is closed: open it again")
        if self.wake.lost and not self.gone:
            self.gone = (
                f"{self.path} lost its file WAKE, which was cut or cannot be read: close the store "
                "in every process and open it again; it is made anew"
            )
        if self.gone:
            raise StoreGoneError(self.gone)

    def is_inside(self) -> bool:
        """Whether this thread is inside a call of this store, also one beside the pipeline."""
        calls, lane, mutex = self.calls, self.lane, cast("Any", self.mutex)
        if calls is not None and calls.now:
            return True
        return bool(lane is not None and lane.locked and mutex._is_owned())  # noqa: SLF001

    def refuse_inside(self) -> None:
        """ReentryError inside one of the store's own calls: it would wait for itself, or others for
        it, with the lead of the commit or the mutex."""
        if self.is_inside():
            raise ReentryError(
                "the store was called from inside one of its own calls (a signal handler or a "
                "finaliser): do this work outside"
            )

    def check_failed(self) -> None:
        """StoreFailedError after a failed sync, in any process."""
        at = self.wake.failed_at
        if at:
            number, offset = fmt.position_parts(at)
            raise StoreFailedError(
                "a sync failed, and nothing more is acknowledged: close the store in every process "
                "and open it again, or run 'logstore recover', which names what is at risk",
                segment=number,
                offset=offset,
            )

    # -- durability ---------------------------------------------------------------------------
    def sync_file(self, file: File, at_risk: int) -> None:
        """Sync; a failure marks the store failed for every process, from ``at_risk`` on.

        StoreFailedError if one failed before: a sync that succeeds after it is not to be believed.
        """
        self.check_failed()
        started = time.perf_counter_ns()
        try:
            file.sync()
        except Error:
            self.wake.failed_at = max(1, self.wake.durable_upto or at_risk)
            raise
        self.metrics.took("sync", time.perf_counter_ns() - started, "syncs")

    # -- the end ------------------------------------------------------------------------------
    def release_files(self) -> None:
        """Close what is open, without unlocking; LOCK last: nobody meets a half-closed store.

        The environment is closed under a shut gate: LMDB works without the GIL, and closing it
        under a reader would end the process.
        """
        self.closed = True
        self.metrics.as_dict()  # has what the lane counted, too
        self._close_lane()
        self.segments.forget()
        self.wake.waits.waiters.give_back()
        active = self.active
        self.active = None
        if active is not None:
            active.close()
        try:
            alone = self.gate.shut()
            if alone and self.generation is not None and self.pid == os.getpid():
                self.generation.close()
            self.generation = None
            self.segments.close()  # also of what readers opened until the gate was shut
        finally:
            through(self.gate.reopen)
            if self.users is not None:
                self.users.close()
            self.lock.close(self.wake)
            self._untie()

    def _close_lane(self) -> None:
        """No add goes beside the pipeline any more, and no read beside a snapshot."""
        lane, self.lane = self.lane, None
        if lane is not None:
            lane.close()
        self.metrics.more = None
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.close()

    def _untie(self) -> None:
        """Let go of WAKE and of the directory, and of what refers back to this: they are unmapped
        and closed by their last user now, also if a handle or an error is kept that knows this
        engine, and not by a garbage collection, which may be long in coming.
        """
        self.wake = Wake(None, self.path)
        self.path = named(self.path)
        self.index_home = named(self.index_home)
        self.due_work = None
        self.follow = None

    def set_aside(self) -> None:
        """In a child after fork: files are closed, never unlocked; nothing shared is touched."""
        self.closed = True
        self._close_lane()
        self.wake.waits.waiters.set_aside()
        active = [] if self.active is None else [self.active]
        if self.users is not None:
            self.users.close()
        for file in [self.lock.file, *self.care_files, *active]:
            file.close()
