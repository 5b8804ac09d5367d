"""A handle on a store: opened, shared within the process, reopened after a fork, closed.

Invariants: a store has one shared engine a process. Handles are safe in threads, pickle as path and
options, and reopen by themselves after a fork; each gives its use of the engine back once. Streams,
groups and transactions see their store as :class:`OpenStore` only. It knows no operation: those are
of :class:`logstore.Store`, streams and groups.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

from logstore.engine import registry
from logstore.engine.commit.committer import Committer, Op
from logstore.engine.maintenance.background_work import Compact
from logstore.engine.registry import SharedEngine
from logstore.engine.runtime import disk_space
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm.waiters import owner_of
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import read
from logstore.engine.streams.add import AutoID
from logstore.errors import ClosedError, CommittedInterrupt, DiskFullError, Error, StoreGoneError
from logstore.fs import LOCAL, FileSystem
from logstore.options import StoreLimits, StoreOptions, Sync, check_sync
from logstore.recovery import store_opening
from logstore.store_path import DirectoryPath, is_uri, path_of

if TYPE_CHECKING:
    from logstore.engine.groups.dead_letter import DeadLettered
    from logstore.engine.lane.native import Options
    from logstore.engine.runtime.background import Pause
    from logstore.engine.streams.add import Add
    from logstore.ids import StreamID
    from logstore.index.keys import StreamRecord

T = TypeVar("T", bytes, str)
R = TypeVar("R")
_ASCII_KEPT = frozenset({"ascii", "iso8859-1", "utf-8"})  # encodings that store it as it is
TIDY_MIN_BYTES = 256 << 10  # that a process committed, before it looks at a close what is dead
PLAIN_MAX_BYTES = 1 << 16  # of an entry that a lane may take
PLAIN_MAX_ROWS = 64  # of a commit that a lane may make
PLAIN_READ_MAX = 128  # as many as one run of pending entries takes
_NO_TIME = timedelta(0)
_COUNTS = "interrupted; the commit counts"
FILES: list[FileSystem] = [LOCAL]  # tests put one in its place that fails or crashes


class Teller(Protocol):
    """Tells whoever wants to know of entries that a commit dead-lettered."""

    def __call__(
        self,
        opened: OpenStore[Any],
        dead: list[DeadLettered],
        on_dead: Callable[[Any], object] | None,
    ) -> None:
        """``on_dead`` is called before what was registered with the store."""


class OpenStore(Generic[T]):
    """One handle's use of a store: how operations reach the engine."""

    def __init__(
        self,
        path: Path,
        options: StoreOptions,
        encoding: str | None,
        limits: StoreLimits,
        tell: Teller,
        *,
        create: bool,
        uuid: bytes | None = None,
    ) -> None:
        self.path = path
        self.encoding = encoding
        self.on_dead: list[Callable[[Any], object]] = []  # callbacks of ``on_dead_letter``
        self._options = options
        self._limits = limits
        self._tell = tell
        self._closed = False
        # Whether a lane may take text: ASCII, which is stored as it is, and what is beyond that.
        known = "utf-8" if encoding is None else codecs.lookup(encoding).name
        self._plain_text = known in _ASCII_KEPT
        self._ascii_alone = known != "utf-8"
        self._shared: SharedEngine | None = None
        self._shared = acquire(path, options, limits, create=create, uuid=uuid)

    # -- lifetime -----------------------------------------------------------------------------
    def close(self) -> None:
        """Give the store back, once; the last handle of the last process leaves it cleanly closed.

        Raises:
            ReentryError: it is called from inside one of the store's own calls.
        """
        if self._closed:
            return
        if self._shared is not None:
            self._shared.refuse_inside()
        self._closed = True
        shared, self._shared = self._shared, None
        if shared is not None:
            try:
                _tidy(shared)
            finally:
                registry.release(shared)

    def __del__(self) -> None:
        shared = getattr(self, "_shared", None)
        if shared is not None and registry is not None and not shared.forked:  # None: at exit
            registry.forget(shared)  # closed a little later, by another call or thread

    def __repr__(self) -> str:
        return f"<Store {str(self.path)!r}{' closed' if self._closed else ''}>"

    def __reduce__(self) -> Any:
        uuid = None if self._shared is None else self._shared.engine.uuid
        path = self.path if is_uri(self.path) else str(self.path)
        return _reopen, (path, self._options, self.encoding, self._tell, uuid)

    def live(self) -> SharedEngine:
        """The engine with its committer and threads; after a fork it is opened anew.

        Raises:
            ClosedError: the handle was closed.
            StoreGoneError: the directory was removed or replaced meanwhile.
        """
        shared = self._shared
        if shared is None:
            raise ClosedError("the store is closed: open it again")
        if shared.forked:
            # By the directory that the parent had open, whatever stands at the path by now.
            uuid, path = shared.engine.uuid, shared.engine.path
            shared = acquire(path, self._options, self._limits, create=False, uuid=uuid)
            self._shared = shared
        if shared.engine.gone:
            shared.engine.check_open()  # raises; those who wait look here now and then
        return shared

    def engine(self) -> Engine:
        """The engine; raises as ``live`` does."""
        return self.live().engine

    # -- operations ---------------------------------------------------------------------------
    def view(self, look: Callable[[Snapshot], R]) -> R:
        """What ``look`` finds on a read snapshot; it may be called again on a fresh one."""
        return snapshot.read(self.live().engine, look)

    def record(self, name: bytes) -> StreamRecord | None:
        """The record of a stream; None if there is no such stream."""
        return read.record(self.live().engine, name)

    def schema_at(self, name: bytes) -> int:
        """The position of the frame of a stream's schema; 0: it has none, or there is no stream."""
        return read.schema_at(self.live().engine, name)

    def commit(
        self,
        op: Op,
        sync: Sync | None = None,
        dead: list[DeadLettered] | None = None,
        *,
        at_once: bool = False,
    ) -> Any:
        """Decide and commit an operation; its result. ``sync`` asks for more than the store's.

        ``dead`` takes what it dead-lettered. With ``at_once`` it does not wait: ``NotFree``.
        """
        shared = self.live()
        if shared.engine.wake.full:
            if not at_once:
                shared.committer.leave_sealed()
            disk_space.check(shared.engine)
        if sync is not None:
            check_sync(sync)
        return shared.committer.run(op, sync, dead=dead, grows=True, at_once=at_once)

    def add_plain(
        self, name: bytes, fields: object, options: Options | None = None, schema_at: int = 0
    ) -> StreamID | Literal[False] | None:
        """Commit an entry beside the pipeline; its ID, or None if this moment is not plain, or
        False if this entry, or an option, is not as it was given: nothing has happened then, and
        ``commit`` does it. ``options``: ID, max_entries, min_id, approximate, limit, create.
        ``schema_at``: of the schema that wrote the fields: of the text in them all is ASCII."""
        shared = self._shared
        if shared is None or (lane := shared.lane) is None:
            return None
        if not schema_at and (not self._plain_text or type(fields) is not dict):
            return False
        committed: list[StreamID] = []
        try:
            given: Any = fields
            return lane.add(name, given, committed, self._ascii_alone, options, schema_at)
        except KeyboardInterrupt as exc:  # as ``beside``, whose call is a sixth of an add
            if not committed:
                raise
            try:
                error = CommittedInterrupt(_COUNTS)
            except KeyboardInterrupt:
                try:
                    error = CommittedInterrupt(_COUNTS)
                except KeyboardInterrupt:
                    error = CommittedInterrupt(_COUNTS)
            raise error from exc

    def add_rows_plain(
        self, name: bytes, rows: list[Any], schema_at: int = 0
    ) -> tuple[StreamID, int] | None:
        """Commit a few entries beside the pipeline, as one; the first one's ID, which the others
        follow, and how many there are. None, and ``schema_at``, as of ``add_plain``."""
        shared = self._shared
        if shared is None or (lane := shared.lane) is None:
            return None
        if not schema_at and not self._plain_text:
            return None
        committed: list[StreamID] = []
        count: int = beside(
            lane.add_rows,
            name,
            rows,
            committed=committed,
            ascii=self._ascii_alone,
            schema_at=schema_at,
        )
        return (committed[0], count) if count else None

    def add_ready(self, request: Add) -> StreamID | None:
        """The same of one row that became bytes, with what is asked for it; None, and nothing
        happened."""
        shared = self._shared
        if shared is None or (lane := shared.lane) is None:
            return None
        batch, rule = request.batch, request.rule
        ids: Any = request.ids
        if batch.raw_bytes(0) > PLAIN_MAX_BYTES:
            return None
        if isinstance(ids, AutoID):
            ids = "*" if ids.ms is None else f"{ids.ms}-*"
        options: Options = (ids, None, None, True, None, request.create)
        if rule is not None:
            options = (
                ids, rule.max_entries, rule.min_id, rule.approximate, rule.limit, request.create,
            )  # fmt: skip
        fields = tuple(batch.flat(0))
        added: StreamID | None = beside(lane.add, request.name, fields, options=options)
        return added or None

    def add_all_plain(self, entries: list[tuple[bytes, Any, Options | None]]) -> list[StreamID]:
        """Commit entries, as ``plain_entry`` gave them, as one; their IDs, or none: then nothing
        has happened."""
        shared = self._shared
        if shared is None or (lane := shared.lane) is None:
            return []
        committed: list[StreamID] = []
        return committed if beside(lane.add_all, entries, committed=committed) else []

    def add_each_plain(
        self, entries: list[tuple[bytes, Any, Options | None]], committed: list[StreamID | None]
    ) -> None:
        """Commit entries, each by itself, in as few commits as that can be.

        ``committed`` gets their IDs, and None for the one that fails with the error that is raised;
        of those behind it nothing has happened.
        """
        shared = self._shared
        if shared is not None and (lane := shared.lane) is not None:
            beside(lane.add_each, entries, committed=committed)

    def read_plain(
        self,
        stream: bytes,
        group: bytes,
        consumer: object,
        count: object,
        timeout: object,
        making: Callable[[Any], tuple[Callable[..., tuple[list[Any], bytes]], tuple[Any, ...]]],
        reader: Any,
        asked_idle_ms: int | None = None,
    ) -> list[Any] | None:
        """Read what is new in a group beside the pipeline; None as of ``add_plain``, or if a read
        with a ``timeout`` would wait, or has a place in the queue, or something is idle.
        ``making(reader)`` gives ``codec.DeliveryMaker.first`` for it, and its last argument."""
        shared = self._shared
        if shared is None or (lane := shared.lane) is None:
            return None
        if type(consumer) is str and self._plain_text and consumer.isascii():
            who = consumer.encode("ascii")
        elif type(consumer) is bytes:
            who = consumer
        else:
            return None
        most = 0 if count is None else count
        if type(most) is not int or not 0 <= most <= PLAIN_READ_MAX:
            return None
        place = None
        if type(timeout) is not int or timeout:
            if not _may_wait(timeout):
                return None
            place = shared.engine.wake.waits.saved.holds, owner_of(who)
        idle_ms = -1 if asked_idle_ms is None else asked_idle_ms
        given: list[Any] | None = beside(
            lane.read, stream, group, who, most, making(reader), place, idle_ms
        )
        return given

    def ack_plain(self, stream: bytes, group: bytes, ids: tuple[Any, ...]) -> int | None:
        """Ack entries beside the pipeline; how many were pending, or None as of ``add_plain``."""
        shared = self._shared
        if shared is None or (lane := shared.lane) is None:
            return None
        try:
            done: int | None = beside(lane.ack, stream, group, ids)
        except DiskFullError:  # nothing happened: the pipeline has space set aside for it
            return None
        return done

    def ack_delivery(self, stream: bytes, rest: tuple[Any, ...]) -> bool:
        """Ack a delivery, by its stream and the rest of its ``ack.Fence``: beside the pipeline if
        it is pending as it was handed out. Whether it was pending with its consumer."""
        shared = self._shared
        if shared is not None and (lane := shared.lane) is not None:
            try:
                if beside(lane.add_all, [(stream, rest, None)], committed=[]):
                    return True
            except DiskFullError:  # nothing happened: the pipeline has space set aside for it
                pass
        from logstore.engine.groups import ack

        done: bool = self.free(partial(ack.own_ack, fence=ack.Fence(stream, *rest)))
        return done

    def delete_plain(self, stream: bytes, id: StreamID) -> int | None:
        """Delete an entry beside the pipeline; how many there were, or None as of ``add_plain``."""
        shared = self._shared
        if shared is None or (lane := shared.lane) is None:
            return None
        try:
            done: int | None = beside(lane.delete, stream, id)
            if done is False:
                read.keep_places(shared.engine, stream, [id])
                done = beside(lane.delete, stream, id)
        except DiskFullError:  # nothing happened: the pipeline has space set aside for it
            return None
        return None if done is False else done

    def plain_entry(self, fields: object, options: Options | None = None) -> dict[Any, Any] | None:
        """A copy of an entry for ``add_all_plain``; None if it, or an option, is not plain."""
        shared = self._shared
        if shared is None or (lane := shared.lane) is None or not self._plain_text:
            return None
        return lane.plain(fields, self._ascii_alone, options)

    def free(
        self,
        op: Op,
        sync: Sync | None = None,
        dead: list[DeadLettered] | None = None,
        *,
        made: Callable[[Any], Any] | None = None,
    ) -> Any:
        """A commit that gives space back: on a full disk it runs in the space set aside. ``made``
        makes the result of what the operation gives."""
        if sync is not None:
            check_sync(sync)
        given = self.live().committer.free(op, sync, dead)
        return given if made is None else made(given)

    def hand_on(
        self,
        step: partial[Any],
        sync: Sync | None = None,
        *,
        frees: bool = False,
        on_dead: Callable[[Any], object] | None = None,
    ) -> Any:
        """What ``commit_telling`` does, of a step that gives back, hands on or reads again what is
        pending: beside the pipeline if it is plain. The lane has it by its function's name."""
        shared = self.live()
        if sync is None and shared.lane is not None:
            commit = getattr(shared.lane, step.func.__name__)
            missed: list[StreamID] = []
            try:
                given = beside(commit, missed=missed, **step.keywords)
                if missed:
                    read.keep_places(shared.engine, step.keywords["stream"], missed)
                    given = beside(commit, missed=[], **step.keywords)
            except DiskFullError:  # nothing happened: the pipeline may have space set aside for it
                given = None
            if given is not None:
                return given
        return self.commit_telling(step, sync, frees=frees, on_dead=on_dead)

    def commit_telling(
        self,
        op: Op,
        sync: Sync | None = None,
        *,
        frees: bool = False,
        on_dead: Callable[[Any], object] | None = None,
        at_once: bool = False,
    ) -> Any:
        """Commit an operation that may dead-letter entries, and tell of those after; its result.

        ``frees``: it gives space back, as acks do. ``at_once``: as ``commit`` has it.
        """
        dead: list[DeadLettered] = []
        if at_once:
            result = self.commit(op, sync, dead, at_once=True)
        else:
            result = (self.free if frees else self.commit)(op, sync, dead)
        if dead:
            self._tell(self, dead, on_dead)
        return result

    def compact(self, *, purge: bool, full: bool = False, threshold: float = 0.5) -> Any:
        """Compaction by call, as ``Store.compact``; its report."""
        from logstore.compaction import runner
        from logstore.engine.features.background_sweep import KeyCompaction

        shared = self.live()

        def run() -> Any:
            with shared.committer.locked():
                pass  # the end of the log was looked at, before anything is read
            KeyCompaction(shared.engine, shared.committer).run()  # what is replaced goes with it
            return runner.run(
                shared.engine, shared.committer, purge=purge, full=full, threshold=threshold
            )

        with shared.maintenance.aside():
            return disk_space.freeing(shared.engine, run)

    def text(self, name: bytes) -> T:
        """A stored name as users have it."""
        encoding = self.encoding
        return cast(T, name if encoding is None else name.decode(encoding, "surrogateescape"))


def _may_wait(timeout: object) -> bool:
    """Whether it is a length of time of an exact type, as ``arguments.deadline_of`` takes it."""
    if type(timeout) is int or type(timeout) is float:
        return timeout >= 0
    return timeout is None or (type(timeout) is timedelta and timeout >= _NO_TIME)


def beside(
    commit: Callable[..., Any], *args: Any, committed: list[Any] | None = None, **options: Any
) -> Any:
    """The result of a method of the lane, which also puts what it commits into ``committed``."""
    committed = [] if committed is None else committed
    try:
        return commit(*args, committed, **options)
    except KeyboardInterrupt as exc:  # also one that falls behind the end of the call
        if not committed:
            raise
        # Another one may fall into the call; a loop's jump back is a place for one, too.
        try:
            error = CommittedInterrupt(_COUNTS)
        except KeyboardInterrupt:
            try:
                error = CommittedInterrupt(_COUNTS)
            except KeyboardInterrupt:
                error = CommittedInterrupt(_COUNTS)
        raise error from exc


class _Holder(Protocol[T]):
    """What holds an open store: stores, streams, groups."""

    _opened: OpenStore[T]


def opened_of(holder: _Holder[T]) -> OpenStore[T]:
    """The open store of a public object, for asyncio and the wire, which use the engine."""
    return holder._opened


def _reopen(
    path: str | Path, options: StoreOptions, encoding: str | None, tell: Teller, uuid: bytes | None
) -> OpenStore[Any]:
    return OpenStore(path_of(path), options, encoding, StoreLimits(), tell, create=False, uuid=uuid)


def acquire(
    path: Path,
    options: StoreOptions,
    limits: StoreLimits,
    *,
    create: bool,
    uuid: bytes | None = None,
) -> SharedEngine:
    """The shared engine of the store at ``path``; StoreGoneError if it is not that of ``uuid``."""
    fs = FILES[0]
    if isinstance(path, DirectoryPath):
        path = fs.hold(path)

    def key() -> registry.Key | None:
        try:
            directory = fs.stat(path)
        except FileNotFoundError:
            return None
        return directory.device, directory.inode, options.readonly

    def find() -> tuple[registry.Key, SharedEngine]:
        if options.readonly:
            from logstore.log import shipped
            from logstore.recovery import readonly

            if shipped.is_shipped(path):
                engine, report = readonly.open_shipped(path, options)
            else:
                engine, report = readonly.open_engine(fs, path, options)
            close = readonly.close_engine
        else:
            engine, report = store_opening.open_engine(
                fs, path, options, create=create, limits=limits
            )
            close = store_opening.close_engine
        # Of what was opened: another directory may stand at ``path`` by now.
        directory = fs.stat(engine.index_home if is_uri(engine.path) else engine.path)
        made = directory.device, directory.inode, options.readonly
        return made, SharedEngine(engine, close, report, _compacting)

    shared = registry.acquire(key, find, options)
    if uuid is not None and shared.engine.uuid != uuid:
        registry.release(shared)
        raise StoreGoneError(
            f"{path} is another store than the one that this handle was made for, which was "
            "renamed, removed or replaced meanwhile: open the one that you mean by its path"
        )
    return shared


def _tidy(shared: SharedEngine) -> None:
    """Before the last handle goes: give back what the log holds twice, if much was written."""
    engine = shared.engine
    options = engine.options
    if shared.users_count != 1 or shared.forked or engine.gone or engine.closed:
        return
    if options.readonly or not options.background or not options.compact_rate_bytes_s:
        return
    if engine.metrics.as_dict()["commit_bytes"] < TIDY_MIN_BYTES or engine.wake.failed_at:
        return
    from logstore.compaction import closing

    try:
        with shared.maintenance.aside():
            closing.run(engine, shared.committer)
    except (Error, OSError) as exc:  # it is as good a store without that
        log.warning("the log was not compacted at the close: %s", exc)


def _compacting(engine: Engine, committer: Committer) -> Compact:
    """What compacts in the background: the engine stands below compaction and knows it not."""
    compact: Compact | None = None

    def tick(pause: Pause) -> None:
        nonlocal compact
        if compact is None:  # loaded by its thread, and not by who opens a store for a moment
            from logstore.compaction.compactor import Compactor

            compact = Compactor(engine, committer).tick
        compact(pause)

    return tick
