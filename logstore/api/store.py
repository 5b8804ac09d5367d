"""A store, as users hold it: one directory, opened by as many processes as they like.

``open_store`` checks options before anything is touched, and closes a store again that has other
limits than those that were asked for. ``opening`` has how a handle is shared, reopened and closed.
It knows no logic of the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from logstore.api import arguments
from logstore.api.entry import Entry
from logstore.api.opening import FILES, OpenStore
from logstore.api.stream import Stream
from logstore.clock import Clock, checked
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import Error, OptionError, ReadOnlyError
from logstore.format import position_parts
from logstore.ids import IDLike, StreamID, parse_id
from logstore.log import file_names
from logstore.options import COMPACT_RATE_BYTES_S, Length, StoreLimits, StoreOptions, Sync, seconds
from logstore.store_path import UriPath, is_uri, path_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from logstore.api.entry_reads import MatchingOf, Where
    from logstore.api.group import OnDead
    from logstore.api.info import PinInfo, StoreInfo
    from logstore.api.scan import Scan
    from logstore.api.transaction import Transaction
    from logstore.api.values import ValueCodec
    from logstore.engine.groups.dead_letter import DeadLettered
    from logstore.ids import When
    from logstore.recovery.shipping import Shipped

T = TypeVar("T", bytes, str)

# Of a store, fixed when it is made.
LIMITS: Final = ("node_max_bytes", "node_max_entries", "segment_bytes")
JOIN_WAIT_S = 2.0  # for a commit of others, before a look at the store is one from outside


# -- opening ----------------------------------------------------------------------------------
class OpenOptions(TypedDict, total=False):
    """Options of a store that is opened, as ``logstore.open`` describes them."""

    sync: Sync
    readonly: bool
    create: bool
    lock_timeout: Length
    background: bool
    clock: Clock | None
    node_max_bytes: int | None
    node_max_entries: int | None
    segment_bytes: int | None
    compact_rate: float | None
    low_space_bytes: int | None


@overload
def open_store(
    path: str | os.PathLike[str], *, encoding: None = ..., **options: Unpack[OpenOptions]
) -> Store[bytes]: ...
@overload
def open_store(
    path: str | os.PathLike[str], *, encoding: str, **options: Unpack[OpenOptions]
) -> Store[str]: ...
def open_store(
    path: str | os.PathLike[str], *, encoding: str | None = None, **options: Unpack[OpenOptions]
) -> Store[Any]:
    """Open a store, making it if it is missing and ``create`` allows.

    Args:
        path: the store's directory; with ``readonly`` also the URI that one was shipped to.
        encoding: None gives bytes, a codec's name gives str.
        sync: "always", "everysec" or "os": what a crash of the machine may lose.
        readonly: write nothing, and need no permission to.
        create: whether to make a store that is not there.
        lock_timeout: seconds, timedelta or "1h" to wait for another process's commit.
        background: have threads for "everysec", for what is due, retention and compaction.
        clock: what tells the time instead of the system's clock.
        node_max_bytes: bytes of a node; the three limits are fixed when the store is made.
        node_max_entries: entries of a node.
        segment_bytes: bytes of a segment of the log.
        compact_rate: bytes a second of compaction in the background; 0, None: by ``compact`` only.
        low_space_bytes: with fewer bytes free on its disk the thread in the background logs a
            warning; 0: never; None: twice a segment, or a twentieth of the disk (10 GiB at most).

    Returns:
        The store.

    Raises:
        OptionError: an option is not valid, or another one than the store was made with.
        NotAStoreError: there is something else at ``path``, or nothing and ``create`` is False.
        FormatVersionError: a later version made it.
        DamagedStoreError: it cannot be made whole; the message says what to do.
        LockTimeoutError: another process held the lock for longer than ``lock_timeout``.
        FileSystemError: the system refused.
    """
    arguments.check_names(options, OpenOptions, "open")
    create = options.get("create", True)
    arguments.check_flag(create, "create")
    if encoding is not None:
        arguments.check_encoding(encoding)
    given: Any = options
    wanted: dict[str, int] = {each: given[each] for each in LIMITS if given.get(each) is not None}
    limits = StoreLimits(**wanted)
    limits.check()
    readonly = options.get("readonly", False)
    asked = StoreOptions(
        options.get("sync", "everysec"),
        readonly,
        seconds(options.get("lock_timeout", 10.0), "lock_timeout"),
        options.get("background", True),
        checked(options.get("clock")),
        options.get("compact_rate", COMPACT_RATE_BYTES_S) or 0,
        options.get("low_space_bytes"),
    )
    asked.check()
    place, may_create = _place(path, readonly=readonly), bool(create) and not readonly
    opened: OpenStore[Any] = OpenStore(
        place, asked, encoding, limits, _tell_dead_letters, create=may_create
    )
    try:
        _check_limits(opened.engine().limits, wanted)
    except BaseException:
        opened.close()
        raise
    return Store(opened)


def _place(path: str | os.PathLike[str], *, readonly: bool) -> Path:
    """The directory of a store, or the URI of what was shipped of one."""
    arguments.place(path)
    found = path_of(path).absolute()
    if is_uri(found) and not readonly:
        raise OptionError(
            f"{found} is what was shipped of a store, to be read only: give readonly=True, or "
            "change the store itself"
        )
    return found


def open_to_look(path: str | os.PathLike[str]) -> Store[bytes]:
    """Open a store to read from it, as the commands do.

    Where another process has it open and this user owns it, this is one more of its processes. Else
    it is opened with ``readonly``, with a copy of the index that a clean close left. Both take no
    time, however long the history is; only a store that crashed is read as ``readonly`` reads it.

    Raises:
        NotAStoreError: there is none at ``path``; and what ``open_store`` raises.
    """
    place = _place(path, readonly=True)
    if not is_uri(place) and _may_join(place):
        joining = StoreOptions(lock_timeout_s=JOIN_WAIT_S, background=False, only_join=True)
        with suppress(Error, OSError):  # nobody has it open, or whoever has is stuck
            return _opened(place, joining)
    return _opened(place, StoreOptions(readonly=True, copy_index=True))


def _opened(place: Path, options: StoreOptions) -> Store[bytes]:
    return Store(OpenStore(place, options, None, StoreLimits(), _tell_dead_letters, create=False))


def _may_join(place: Path) -> bool:
    """Whether joining would make no file, and none that its owner could not write to."""
    fs = FILES[0]
    try:
        owner = fs.stat(place).user
        return owner == os.geteuid() and all(
            fs.stat(place / name).user == owner
            for name in (file_names.LOCK, file_names.USERS, file_names.WAKE)
        )
    except OSError:
        return False


def _check_limits(has: StoreLimits, wanted: dict[str, int]) -> None:
    """OptionError if limits were asked for that the store was not made with."""
    for name, value in wanted.items():
        if getattr(has, name) != value:
            raise OptionError(
                f"the store was created with {name}={getattr(has, name)}, or set to it, and "
                f"opening it does not change that to {value}: "
                "leave the option out, or make a new store and export into it"
            )


def _tell_dead_letters(
    opened: OpenStore[Any], dead: list[DeadLettered], on_dead: Callable[[Any], object] | None
) -> None:
    """Tell whoever wants to know of entries that a commit of this handle dead-lettered. Where that
    cannot be, it is logged: the commit counts, and what it gave is the caller's."""
    from logstore.api import coded
    from logstore.api.group import Group, log, tell_dead

    try:
        groups = {
            key: Group(coded.as_kept(opened, key[0]), key[1])
            for key in {(entry.origin, entry.group) for entry in dead}
        }
        tell_dead(opened, dead, groups, on_dead)
    except Error:
        log.exception("of %d dead-lettered entries nobody could be told", len(dead))


# -- the store --------------------------------------------------------------------------------
class Store(Generic[T]):
    """One open store; made by :func:`logstore.open`, closed by ``with`` or ``close``.

    Beside the errors that a call names, calls of a store, its streams and groups raise ClosedError
    behind ``close``, StoreGoneError if the directory went, CorruptionError for what the disk gives
    back otherwise; those that write, ReadOnlyError, LockTimeoutError if another process keeps the
    lock, DiskFullError, FileSystemError and StoreFailedError if the disk refuses, and ReentryError
    from inside one of the store's own calls. CommittedError: the commit counts, do not repeat it.

    A name of a stream, group or consumer is str or bytes, of at most 64 KiB. EntryTypeError,
    TooLargeError, or InvalidEntryError for text that the encoding cannot take, say what is wrong.
    """

    def __init__(self, opened: OpenStore[T]) -> None:
        self.path = opened.path
        self.encoding = opened.encoding
        self._opened: OpenStore[T] = opened
        self._live, self._engine = opened.live, opened.engine

    # -- lifetime -----------------------------------------------------------------------------
    def close(self) -> None:
        """Give the store back; the last handle of the last process leaves it cleanly closed.

        Raises:
            ReentryError: it is called from inside one of the store's own calls.
        """
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._opened)

    def __reduce__(self) -> Any:
        return (type(self), (self._opened,))

    # -- streams ------------------------------------------------------------------------------
    @overload
    def stream(self, name: str | bytes, *, codec: None = None) -> Stream[T]: ...
    @overload
    def stream(self, name: str | bytes, *, codec: str | ValueCodec) -> Stream[Any]: ...
    def stream(
        self, name: str | bytes, *, codec: str | ValueCodec | None = None
    ) -> Stream[T] | Stream[Any]:
        """A handle of a stream; nothing is created before the first add.

        Args:
            name: the stream's name, at most 64 KiB.
            codec: "json", "msgpack", or an object with ``name``, ``encode`` and ``decode``: values
                are what it holds, and its name is kept with the stream. None: values are text or
                bytes.

        Returns:
            The handle.

        Raises:
            EntryTypeError, InvalidEntryError, TooLargeError: ``name`` is no valid name.
            OptionError: ``codec`` is not valid. A stream with another one says so when it is used.
        """
        raw = arguments.stream_name(name, self.encoding)
        if codec is None:
            return Stream(self._opened, raw)
        from logstore.api import coded

        return coded.stream(self._opened, raw, codec)

    def __getitem__(self, name: str | bytes) -> Stream[T]:
        return self.stream(name)

    def __contains__(self, name: str | bytes) -> bool:
        raw = arguments.stream_name(name, self.encoding)
        return self._opened.record(raw) is not None

    def __iter__(self) -> Iterator[T]:
        """Names of all streams, sorted, as of the moment of the call."""
        return iter(self.streams())

    def __len__(self) -> int:
        """How many streams there are."""
        return self._opened.view(lambda view: sum(1 for _ in view.listed()))

    def __bool__(self) -> bool:
        return True

    def streams(self) -> list[T]:
        """List the streams.

        Returns:
            The names of all, sorted, as of one moment.
        """

        def names(view: Snapshot) -> list[bytes]:
            return sorted(record.name for record in view.listed())

        return [self._opened.text(name) for name in self._opened.view(names)]

    def create(self, name: str | bytes, *, sync: Sync | None = None) -> bool:
        """Make an empty stream.

        Args:
            name: the stream's name, at most 64 KiB.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            False if there is one already.

        Raises:
            EntryTypeError, InvalidEntryError, TooLargeError: ``name`` is no valid name.
        """
        raw = arguments.stream_name(name, self.encoding)
        from logstore.engine.streams import lifecycle

        made: bool = self._opened.commit(partial(lifecycle.create_empty, name=raw), sync)
        return made

    def drop(self, name: str | bytes, *, sync: Sync | None = None) -> bool:
        """Remove a stream with all its entries and groups, as DEL.

        Args:
            name: the stream's name.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            False if there is none.

        Raises:
            EntryTypeError, InvalidEntryError, TooLargeError: ``name`` is no valid name.
        """
        raw = arguments.stream_name(name, self.encoding)
        from logstore.engine.streams import lifecycle

        dropped: bool = self._opened.free(partial(lifecycle.drop, name=raw), sync)
        return dropped

    def rename(
        self, old: str | bytes, new: str | bytes, *, replace: bool = True, sync: Sync | None = None
    ) -> bool:
        """Call a stream otherwise, with all that is its, as RENAME and RENAMENX.

        Handles go by name: those of the old one find no stream after.

        Args:
            old: the name that it has.
            new: the name that it gets.
            replace: drop a stream of the new name first.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            False, and nothing happens, if there is one of the new name and ``replace`` is False.

        Raises:
            StreamNotFoundError: there is no stream ``old``.
            EntryTypeError, InvalidEntryError, TooLargeError: a name is not valid.
            OptionError: ``replace`` is neither True nor False.
        """
        arguments.check_flag(replace, "replace")
        before, after = (arguments.stream_name(name, self.encoding) for name in (old, new))
        from logstore.engine.streams import lifecycle

        step = partial(lifecycle.rename, old=before, new=after, replace=replace)
        renamed: bool = self._opened.commit(step, sync)
        return renamed

    def copy(
        self,
        source: str | bytes,
        target: str | bytes,
        *,
        replace: bool = False,
        sync: Sync | None = None,
    ) -> bool:
        """Copy a stream with its groups, and when it expires, as COPY: as it is at one moment.

        Settings of retention and of groups, and what is scheduled, are not copied. A large stream
        is written bit by bit, so that other writers go on, and gets its name at the end; while
        others delete from it all the time, it is copied in one commit, for which they wait.

        Args:
            source: the stream's name.
            target: the copy's name.
            replace: drop a stream of that name first.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            False, and nothing happens, if there is a ``target`` and ``replace`` is False.

        Raises:
            StreamNotFoundError: there is no stream ``source``.
            UsageError: both names are one.
            EntryTypeError, InvalidEntryError, TooLargeError: a name is not valid.
            OptionError: ``replace`` is neither True nor False.
        """
        from logstore.engine.dump import copy

        arguments.check_flag(replace, "replace")
        source, target = (arguments.stream_name(name, self.encoding) for name in (source, target))
        commit, free = partial(self._opened.commit, sync=sync), self._opened.free
        return copy.copy_beside(self._engine(), commit, free, source, target, replace=replace)

    def restore(
        self, name: str | bytes, payload: bytes, *, replace: bool = False, sync: Sync | None = None
    ) -> Stream[T]:
        """Make a stream of a payload, as RESTORE; it is there whole, or not at all.

        Args:
            name: the stream's name.
            payload: what ``Stream.dump`` gave, or DUMP of Redis or Valkey.
            replace: drop a stream of that name first.
            sync: a stronger promise than the store's, for the commit.

        Returns:
            A handle of the stream.

        Raises:
            InvalidPayloadError: the payload is damaged, or no stream's.
            StreamExistsError: there is a stream and ``replace`` is False.
            EntryTypeError: ``name`` or ``payload`` is of another type.
            InvalidEntryError: a name is text that the store's encoding cannot take.
            TooLargeError: it is larger than a stream may be, or ``name`` has above 64 KiB.
            OptionError: ``replace`` is neither True nor False.
        """
        from logstore.engine.dump import payloads

        arguments.check_flag(replace, "replace")
        raw = arguments.stream_name(name, self.encoding)
        payloads.restore(self._opened.commit, raw, payload, replace=replace, sync=sync)
        return Stream(self._opened, raw)

    def read(
        self,
        after: Mapping[str, IDLike] | Mapping[bytes, IDLike],
        *,
        count: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        timeout: Length | None = 0,
    ) -> dict[T, list[Entry[T]]]:
        """Entries above an ID of each stream, as XREAD.

        Args:
            after: the ID by stream, as in ``Stream.read``.
            count: at most so many entries of each stream; 0 or None: no limit.
            max_count: at most so many of all, in the order in which the streams are named.
            max_bytes: as in ``Stream.read``, for all together.
            timeout: seconds or timedelta to wait until one of them has some; 0 does not wait, None
                waits for ever.

        Returns:
            Lists of entries by stream, without the streams that have none; {} if none came in time.

        Raises:
            InvalidIDError: an ID is not valid.
            OptionError: a limit or the timeout is not valid.
            UsageError: ``after`` is no mapping, or empty and waits for ever.
            EntryTypeError, InvalidEntryError, TooLargeError: the name of a stream is not valid.
        """
        from logstore.api import entry_reads as read

        limits = arguments.limits(count, max_count, max_bytes)
        return read.read_many(self._opened, after, limits, timeout)

    def follow(
        self,
        after: Mapping[str, IDLike] | Mapping[bytes, IDLike] | Iterable[str | bytes],
        *,
        since: When | None = None,
        where: Where | None = None,
        timeout: Length | None = None,
        count: int | None = None,
    ) -> Iterator[tuple[T, Entry[T]]]:
        """Entries of several streams, and all that come: pairs of a stream's name and an entry.

        Args:
            after: names of streams, for what comes from now on; or the ID to begin after by stream.
            since: a moment to begin with instead of "$", as in ``Stream.range``.
            where: only entries for which this holds, as in ``Stream.range``.
            timeout: seconds, timedelta or "1h" without an entry that end it; None: never.
            count: how many of each stream are read at once.

        Returns:
            An iterator, which waits for entries. Of each stream they come in order; what is read at
            once is in the order of IDs.

        Raises:
            InvalidIDError: an ID is not valid.
            OptionError: ``count``, ``timeout``, ``since`` or ``where`` is not valid, or two
                beginnings are given.
            SchemaError: ``where`` does not fit the schema of a stream.
            UsageError: no stream is named.
            EntryTypeError: a stream's name is neither str nor bytes, or a field or value of
                ``where`` is of a type that is not stored.
            InvalidEntryError: a name, field or value is text that the store's encoding cannot take.
            TooLargeError: a name has above 64 KiB.
        """
        from logstore.api import entry_reads as read

        arguments.check_count(count, "count")
        arguments.deadline_of(timeout)
        found = self._matching(where)
        begin = read.starts(self._opened, after, since)
        return read.follow_many(self._opened, begin, timeout, count or read.FOLLOW_COUNT, found)

    def _matching(self, where: Where | None) -> MatchingOf | None:
        """What finds the entries of any stream that match."""
        from logstore.api import configuring
        from logstore.api.entry_reads import MatchingEach, matching

        opened = self._opened
        if not isinstance(where, str):
            return matching(where, opened.encoding)
        schema_of = partial(configuring.stream_schema, opened)
        decoder_of = partial(configuring.stream_decoder, opened)
        return MatchingEach(where, opened.encoding, schema_of, decoder_of)

    def merge(
        self,
        streams: str | bytes | Sequence[str | bytes] | None = None,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        since: When | None = None,
        until: When | None = None,
        count: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[T, Entry[T]]]:
        """Entries of several streams in the order of their IDs, lazily, under one limit.

        Args:
            streams: names, or patterns such as ``"race:*"``; None: all there are at the call.
            start: as in ``Stream.range``.
            end: as in ``Stream.range``.
            since: as in ``Stream.range``.
            until: as in ``Stream.range``.
            count: at most so many entries of all together; None: no limit, 0: none.
            reverse: from the newest entry on.

        Returns:
            An iterator of pairs of a stream's name and an entry; what has the same ID comes in the
            order in which the streams are named, with ``reverse``, too. It holds a batch a stream.

        Raises:
            StreamNotFoundError: a stream is not there.
            InvalidIDError: an end is no ID.
            OptionError: ``start`` is above ``end``, an end is given twice or is no moment,
                ``count`` is negative, or no stream is named.
            EntryTypeError, InvalidEntryError, TooLargeError: the name of a stream is not valid.
        """
        from logstore.api import entry_reads as read
        from logstore.api.entry_reads import stream_names

        low, high = arguments.moments(start, end, since, until, self._engine().clock)
        arguments.check_flag(reverse, "reverse")
        left = arguments.range_count(count)
        names = stream_names(self._opened, streams)()
        return read.merged(self._opened, names, low, high, left, reverse=reverse)

    def scan(
        self,
        streams: str | bytes | Sequence[str | bytes] | None = None,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        columns: Sequence[str] | Mapping[str, pa.DataType | None] | None = None,
        schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
        where: str | Sequence[tuple[str, str, Any]] | pc.Expression | None = None,
        merge: bool = False,
        batch_rows: int = 65536,
    ) -> Scan:
        """Entries of several streams as Arrow, to be read as often as wanted.

        Args:
            streams: names, or patterns such as ``"race:*"``, whose streams are found at each
                reading; None: all.
            start: as in ``Stream.range``.
            end: as in ``Stream.range``.
            columns: as in ``Stream.scan``.
            schema: as in ``Stream.scan``.
            where: as in ``Stream.scan``; a comparison of ``stream`` also says which are read.
            merge: in the order of IDs over all streams (1024 at most); else stream by stream.
            batch_rows: rows of a batch, at most.

        Returns:
            A ``Scan``.

        Raises:
            StreamNotFoundError: a stream is not there.
            InvalidIDError: an end is no ID.
            OptionError: the interval is reversed, or a column or condition cannot be.
            SchemaError: the condition does not fit the schema of the streams.
            EntryTypeError, InvalidEntryError, TooLargeError: the name of a stream is not valid.
            UsageError: pyarrow is not installed.
        """
        from logstore.api.entry_reads import stream_names
        from logstore.api.scan import make_scan

        return make_scan(
            self._opened,
            stream_names(self._opened, streams),
            start,
            end,
            columns=columns,
            schema=schema,
            where=where,
            batch_rows=batch_rows,
            merge=merge,
        )

    def transaction(self, *, sync: Sync | None = None) -> Transaction[T]:
        """Operations on any streams, all or nothing: ``with store.transaction() as tx: ...``

        Args:
            sync: a stronger promise than the store's, for its commit.

        Returns:
            An object that collects operations, and commits them when the block ends.
        """
        from logstore.api.transaction import Transaction

        return Transaction(self._opened, sync)

    # -- its durability, its space, its keepers ------------------------------------------------
    def sync(self) -> None:
        """Make everything durable that was acknowledged, or seen by a reader, before it returns.

        Raises:
            StoreFailedError: the disk refused; nothing that was not durable before is promised.
            DamagedStoreError: the log does not end with what was acknowledged last.
        """
        from logstore.engine.commit import durability

        shared = self._live()
        durability.sync(shared.engine, shared.committer)

    @property
    def durable_upto(self) -> tuple[int, int]:
        """Segment and offset up to which the log is durable; a lower bound.

        (0, 0) of a store opened with ``readonly`` means that nothing in it tells, as in a copy.
        """
        from logstore.api.info import durable_upto

        return position_parts(durable_upto(self._engine()))

    def compact(self, *, purge: bool = False, full: bool = False, threshold: float = 0.5) -> Any:
        """Give deleted space back: rewrite nodes with many tombstones, drop mostly dead segments.

        Args:
            purge: rewrite whatever still holds a deleted entry, whatever the threshold, so that its
                bytes are in no file of the store. At a URI they go with the next ship to it.
            full: rewrite all that is dead by a hundredth, and the index: the store is as small as
                it can be then. It takes the time to write all of that.
            threshold: the share, 0 to 1, of a node or segment that is dead when it is rewritten.

        Returns:
            A report.

        Raises:
            OptionError: ``threshold`` is no share.
            ReadOnlyError: the store was opened with ``readonly``.
            ErasureIncompleteError: ``purge`` could not reach some bytes.
        """
        arguments.check_flag(purge, "purge")
        arguments.check_flag(full, "full")
        arguments.check_share(threshold, "threshold")
        return self._opened.compact(purge=purge, full=full, threshold=threshold)

    def pins(self) -> list[PinInfo]:
        """What keeps segments from compaction: plans of Spark and exports under way.

        A pin ends by itself an hour after it was last used, or when the process it is for is gone.

        Returns:
            The pins that hold, the oldest first.
        """
        from logstore.api.info import pin_infos

        return pin_infos(self._engine())

    def release_pins(self, *ids: str) -> int:
        """Give pins back; what reads by them raises SnapshotExpiredError then.

        Args:
            ids: those of ``pins``; none: all pins.

        Returns:
            How many were given back.

        Raises:
            OptionError: there is no pin of an ID.
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.api.info import release_pins

        return release_pins(self._engine(), ids)

    def moment(self, *streams: str | bytes) -> str:
        """Keep how streams are now, all at one moment, for readers that come later.

        Spark loads with the option ``asOf`` show it: what one transaction wrote to several streams
        is in all of their loads or in none. It keeps the segments that it names from compaction,
        for an hour after it was last loaded by, or until ``release_pins``.

        Args:
            streams: names; none: all streams.

        Returns:
            The token, which is the ID of a pin.

        Raises:
            StreamNotFoundError: there is no stream of a name.
            EntryTypeError, InvalidEntryError, TooLargeError: a name is not valid.
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.api.info import moment

        names = [arguments.stream_name(name, self._opened.encoding) for name in streams]
        token = moment(self._engine(), names)
        self.sync()
        return token

    def retain(self) -> int:
        """Drop at once what streams do not keep by their settings: retention and ``compact_by``.

        The background does that by itself; this is for stores opened with ``background=False``.

        Returns:
            How many entries went.

        Raises:
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.engine.features import retention
        from logstore.engine.features.background_sweep import KeyCompaction

        shared = self._live()
        replaced = KeyCompaction(shared.engine, shared.committer).run()
        return replaced + retention.run(shared.engine, shared.committer)

    def checkpoint(self) -> int:
        """Take a checkpoint now.

        Returns:
            Its size in bytes.

        Raises:
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.engine.maintenance import checkpoint

        shared = self._live()
        with shared.maintenance.aside():
            return checkpoint.take(shared.engine, shared.committer)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store into a new directory, without stopping anybody. A store that was opened
        with ``readonly`` is copied, too, and nothing is written to it.

        Args:
            path: a directory outside the store, empty or not there.

        Raises:
            OptionError: ``path`` is not valid, or is in the store itself.
            ReadOnlyError: the store was opened at the URI that it was shipped to.
        """
        from logstore.recovery import backup

        target, shared = arguments.place(path), self._live()
        if isinstance(shared.engine.path, UriPath):
            raise ReadOnlyError("a store at a URI is copied by 'logstore restore URI DIRECTORY'")
        if target.absolute().is_relative_to(shared.engine.path):
            raise OptionError(f"{target} is in the store itself: give a directory outside it")
        with shared.maintenance.aside():
            backup.take(shared.engine, shared.committer, target)

    def ship(
        self,
        uri: str | os.PathLike[str],
        *,
        take_over: bool = False,
        keep: Length = "2h",
        verify: bool = False,
    ) -> Shipped:
        """Publish the store at a URI, in an object store or another file system; only what is new
        there is sent. Nobody is stopped; readers of the URI see the state before or after.

        Args:
            uri: what pyarrow takes (``s3://bucket/path``, ``gs://``, ``hdfs://``, ``file:///``), or
                a directory outside the store. Each store needs one of its own, and so does a copy
                of a store that goes on by itself.
            take_over: this store goes on in the place of the copy that was shipped there, which is
                refused from then on: once, for a store that was restored when that one was lost.
            keep: so long, as a length or in seconds, files stay there that only older states have,
                for who reads one of these. Of states from before an erasure none stay: it reaches
                the URI with the next ship there.
            verify: read all that is there, and send anew what is not what was sent.

        Returns:
            How many files and bytes are published, and how many of them were sent for it.

        Raises:
            OptionError: ``uri`` is not valid, lies in the store, or has another store, copy or
                history; the extra ``arrow`` is not installed.
            DamagedStoreError: the log is damaged; what was published stays.
            FileSystemError: it cannot be reached; what was sent is not sent again.
            CorruptionError: what stands there is damaged.
            SnapshotExpiredError: an erasure came in between; try again.
            ReadOnlyError: the store was opened with ``readonly``.
        """
        from logstore.recovery import shipping

        shared = self._live()
        arguments.check_flag(take_over, "take_over")
        arguments.check_flag(verify, "verify")
        return shipping.ship(
            shared.engine,
            shared.committer,
            arguments.uri(uri),
            take_over=take_over,
            keep_ms=arguments.milliseconds(keep, "keep"),
            verify=verify,
        )

    def info(self) -> StoreInfo:
        """Tell what the store holds and where it stands.

        Returns:
            Counts and sizes in bytes.
        """
        from logstore.api.info import store_info

        return store_info(self._engine())

    def metrics(self) -> dict[str, int | float]:
        """Counters of this process since it opened the store, and how many pins the store has.

        Returns:
            Numbers by name, as docs/metrics.md explains; names that end in ``_s`` or ``_s_max`` are
            seconds.
        """
        from logstore.api.info import pin_counts

        engine = self._engine()
        return {**engine.metrics.as_dict(), **pin_counts(engine)}

    @property
    def recovery(self) -> dict[str, Any]:
        """What opening found and did."""
        report: dict[str, Any] = self._live().report.as_dict()
        return report

    # -- dead letters -------------------------------------------------------------------------
    def on_dead_letter(self, callback: OnDead[T]) -> OnDead[T]:
        """Have a function called for each entry that this handle dead-letters; may be a decorator.

        What it raises is logged. Other processes and handles have callbacks of their own.

        Args:
            callback: called with a ``DeadLetter``, after the commit, in the thread that did it.

        Returns:
            The same function.

        Raises:
            OptionError: it cannot be called, or is a coroutine function, which nobody would await.
        """
        from logstore.api.worker import PLAIN, check_callable

        check_callable(callback, "the callback", coroutines=PLAIN)
        self._opened.on_dead.append(callback)
        return callback

    def requeue(
        self,
        dead_letter: str | bytes,
        *ids: IDLike,
        to: str | bytes | None = None,
        sync: Sync | None = None,
    ) -> list[StreamID]:
        """Give dead letters back to the streams that they came from, without what tells of that.

        Each becomes a new entry there, for all groups of that stream, and is deleted from the
        stream of dead letters, in the same commit.

        Args:
            dead_letter: the stream of dead letters.
            ids: of entries there, in the order in which they go; none: all that are there now, in
                commits of some hundred.
            to: another stream, which takes all of them; None: where each came from.
            sync: a stronger promise than the store's, for these commits.

        Returns:
            The IDs of the new entries.

        Raises:
            EntryNotFoundError: an entry that was named is gone; nothing happened.
            StreamNotFoundError: there is no stream ``dead_letter``.
            OptionError: an entry does not tell where it came from; nothing of its commit happened.
            InvalidIDError: an ID is not valid.
            EntryTypeError, InvalidEntryError, TooLargeError: a name is not valid.
        """
        from logstore.api.group import requeue

        encoding = self._opened.encoding
        name = arguments.stream_name(dead_letter, encoding)
        target = None if to is None else arguments.stream_name(to, encoding)
        return requeue(self._opened, name, [parse_id(each) for each in ids], target, sync)
