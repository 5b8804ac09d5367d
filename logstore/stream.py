"""A stream, as users hold it: a handle of a store and a name.

Nothing is created until the first add. Times are seconds or ``timedelta``; IDs are given as text,
StreamID, (ms, seq), int milliseconds or an aware datetime. It knows no logic of the disk: it turns
arguments into operations of the engine, and bytes into entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from logstore import arguments, describe, reading
from logstore.codec import Row
from logstore.engine import adds, deletes, ranges, snapshot, trims
from logstore.entry import Entry, IDRuns, make_entry
from logstore.errors import GroupExistsError, OptionError, UsageError
from logstore.group import Group
from logstore.ids import ZERO_ID, IDLike, StreamID, parse_end, parse_id, parse_start
from logstore.index.keys import StreamRecord
from logstore.info import GroupInfo, StreamInfo
from logstore.options import BATCH_MAX_ROWS, Sync

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.store import Store

T = TypeVar("T", bytes, str)


class Stream(Generic[T]):
    """One stream of a store. Safe to share between threads; its iterators are not."""

    __slots__ = ("_name", "_store")

    def __init__(self, store: Store[T], name: bytes) -> None:
        self._store: Store[T] = store
        self._name = name

    @property
    def name(self) -> T:
        """The name, as bytes or in the store's encoding."""
        return cast(T, self._store._text(self._name))

    def __repr__(self) -> str:
        return f"<Stream {self.name!r} of {self._store!r}>"

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return (_reopen, (self._store, self._name))

    # -- adding -------------------------------------------------------------------------------
    def add(
        self, fields: Row, id: IDLike = "*", *, maxlen: int | None = None,
        minid: IDLike | None = None, approximate: bool = True, limit: int | None = None,
        create: bool = True, sync: Sync | None = None,
    ) -> StreamID | None:  # fmt: skip
        """Add one entry, as XADD does; its ID, or None if ``create`` is False and there is no
        stream.

        ``id``: ``"*"`` (of now), ``"<ms>-*"``, or an ID above ``last_id``. ``maxlen`` or ``minid``
        trim after the add. IDOrderError, InvalidIDError, InvalidEntryError, EntryTypeError,
        TooLargeError: nothing was changed.
        """
        ids = arguments.add_id(id)
        rule = arguments.trim_rule(
            maxlen, minid, None, approximate=approximate, limit=limit, optional=True
        )
        batch = arguments.rows([fields], self._store.encoding)
        request = adds.Add(self._name, batch, 0, 1, ids, create, rule)
        added: adds.Added | None = self._store._commit(lambda state: adds.add(state, request), sync)
        return None if added is None else added.first

    def add_many(
        self, rows: Iterable[Row | tuple[IDLike, Row]], *, batch: int = 1000,
        maxlen: int | None = None, minid: IDLike | None = None, approximate: bool = True,
        limit: int | None = None, create: bool = True, sync: Sync | None = None,
    ) -> IDRuns:  # fmt: skip
        """Add rows of any iterable, one commit for each ``batch`` of them; their IDs.

        A row is what ``add`` takes, or (id, fields). Memory holds one batch. The iterable runs
        outside every lock. If a row is refused its whole batch is, and the batches before stay.
        """
        arguments.check_count(batch, "batch")
        if not 1 <= batch <= BATCH_MAX_ROWS:
            raise OptionError(f"batch must be 1 to {BATCH_MAX_ROWS}: {batch}")
        rule = arguments.trim_rule(
            maxlen, minid, None, approximate=approximate, limit=limit, optional=True
        )
        given = IDRuns()
        for ids, chunk in arguments.batches(rows, batch, self._store.encoding):
            request = adds.Add(self._name, chunk, 0, len(chunk), ids, create, rule)
            added: adds.Added | None = self._store._commit(partial(adds.add, request=request), sync)
            if added is None:
                break
            if added.explicit is None:
                given.add(added.first, added.count)
            else:
                for each in added.explicit:
                    given.add(each)
        return given

    # -- reading ------------------------------------------------------------------------------
    def get(self, id: IDLike) -> Entry[T] | None:
        """The entry with this ID, or None."""
        at = parse_id(id)
        found = ranges.read_batch(self._store._engine(), self._name, at, at, 1)
        return self._entry(found.entries[0]) if found.entries else None

    def __getitem__(self, id: IDLike) -> Entry[T]:
        found = self.get(id)
        if found is None:
            raise KeyError(str(parse_id(id)))
        return found

    def __contains__(self, id: IDLike) -> bool:
        return self.get(id) is not None

    def __len__(self) -> int:
        record = self._record()
        return record.length if record is not None else 0

    def range(
        self, start: IDLike = "-", end: IDLike = "+", *, count: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Entry[T]]:  # fmt: skip
        """Entries of an interval, lazily; both ends included, ``(`` before an ID excludes it.

        ``start`` is always the smaller end, also with ``reverse``. ``count`` 0 gives none.
        """
        low, high = parse_start(start), parse_end(end)
        arguments.check_count(count, "count")
        if count is not None and count < 0:
            raise OptionError(f"count must not be negative: {count}")
        return self._range(low, high, -1 if count is None else count, reverse)

    def _range(self, low: StreamID, high: StreamID, left: int, reverse: bool) -> Iterator[Entry[T]]:
        engine = self._store._engine
        while True:
            found = ranges.read_batch(engine(), self._name, low, high, left, reverse=reverse)
            for row in found.entries:
                yield self._entry(row)
            if left >= 0:
                left -= len(found.entries)
            if found.rest is None or left == 0:
                return
            low, high = found.rest

    def __iter__(self) -> Iterator[Entry[T]]:
        return self.range()

    def read(
        self, after: IDLike = "$", *, count: int | None = None,
        timeout: float | timedelta | None = 0, block: None = None,
    ) -> list[Entry[T]]:  # fmt: skip
        """Entries above an ID, as XREAD; a list, empty if none came within ``timeout``.

        ``timeout``: seconds or timedelta; 0 does not wait, None waits for ever. ``"$"`` stands for
        the last ID at the call, ``"+"`` for the last entry itself. ``count`` 0 or None is no limit.
        """
        reading.refuse_block(block)
        return reading.read_stream(self, after, count, timeout)

    def follow(
        self, after: IDLike = "$", *, timeout: float | timedelta | None = None,
        count: int | None = None,
    ) -> Iterator[Entry[T]]:  # fmt: skip
        """Entries above an ID and all that come; ends when none came for ``timeout`` (None: never).

        ``after`` as in ``read``, settled at the call; ``count`` is how many are read at once.
        """
        return reading.follow(self, after, count, timeout)

    @property
    def first(self) -> Entry[T] | None:
        """The entry with the smallest ID, or None."""
        return next(self.range(count=1), None)

    @property
    def last(self) -> Entry[T] | None:
        """The entry with the largest ID, or None."""
        return next(self.range(count=1, reverse=True), None)

    @property
    def last_id(self) -> StreamID:
        """The last ID ever given; it survives deletes. 0-0 before the first add."""
        record = self._record()
        return record.last if record is not None else ZERO_ID

    def info(self) -> StreamInfo:
        """All fields of XINFO STREAM; StreamNotFoundError if there is no stream."""
        return snapshot.read(
            self._store._engine(),
            lambda view: describe.stream_info(view, self._name, self._store.encoding),
        )

    def scan(
        self, start: IDLike = "-", end: IDLike = "+", *, columns: Sequence[str] | None = None,
        batch_rows: int = 65536,
    ) -> pa.RecordBatchReader:  # fmt: skip
        """Entries of an interval as Arrow record batches: stream, id, ms, seq, ts, fields."""
        from logstore.scan import arrow

        low, high = parse_start(start), parse_end(end)
        engine = self._store._engine()
        try:
            return arrow.scan_stream(engine, self._name, low, high, columns, batch_rows)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"{error.name} is not installed: pip install 'logstore-streams[arrow]'"
            ) from error

    # -- deleting -----------------------------------------------------------------------------
    def delete(
        self, id: IDLike, *more_ids: IDLike, purge: bool = False, sync: Sync | None = None
    ) -> int:
        """Delete entries by ID, as XDEL; how many there were.

        With ``purge`` their bytes are also erased from every file of the store before it returns.
        """
        ids = [parse_id(each) for each in (id, *more_ids)]
        gone: int = self._store._free(lambda state: deletes.delete(state, self._name, ids), sync)
        if purge:
            self._store.compact(purge=True)
        return gone

    def delete_range(
        self, start: IDLike, end: IDLike, *, purge: bool = False, sync: Sync | None = None
    ) -> int:
        """Delete all entries of an interval (both ends included), in one commit; how many."""
        low, high = parse_start(start), parse_end(end)
        gone: int = self._store._free(
            lambda state: deletes.delete_range(state, self._name, low, high), sync
        )
        if purge:
            self._store.compact(purge=True)
        return gone

    def trim(
        self, *, maxlen: int | None = None, minid: IDLike | None = None,
        max_age: timedelta | float | None = None, approximate: bool = False,
        limit: int | None = None, sync: Sync | None = None,
    ) -> int:  # fmt: skip
        """Trim from the old end, as XTRIM; how many entries went.

        One of: keep at most ``maxlen``; drop below ``minid``; drop what is older than ``max_age``
        (seconds or timedelta, by the IDs' milliseconds). ``approximate`` drops whole nodes only,
        at most ``limit`` entries (0: no limit).
        """
        rule = arguments.trim_rule(
            maxlen, minid, max_age, approximate=approximate, limit=limit, optional=False
        )
        gone: int = self._store._free(lambda state: trims.trim_named(state, self._name, rule), sync)
        return gone

    def set_id(
        self, last_id: IDLike, *, entries_added: int | None = None,
        max_deleted_id: IDLike | None = None, sync: Sync | None = None,
    ) -> None:  # fmt: skip
        """Set the last ID, as XSETID; for interchange and repair."""
        last = parse_id(last_id)
        arguments.check_count(entries_added, "entries_added")
        deleted = None if max_deleted_id is None else parse_id(max_deleted_id)
        self._store._commit(
            lambda state: deletes.set_id(state, self._name, last, entries_added, deleted), sync
        )

    # -- consumer groups ----------------------------------------------------------------------
    def group(
        self, name: str | bytes, start: IDLike | None = None, *, entries_read: int | None = None
    ) -> Group[T]:
        """A handle of a consumer group; with ``start`` it is made if it is missing."""
        found = Group(self._store, self._name, arguments.group_name(name, self._store.encoding))
        if start is not None and not found.exists():
            with suppress(GroupExistsError):  # another process was faster
                found.create(start, entries_read=entries_read)
        return found

    def groups(self) -> list[GroupInfo[T]]:
        """All fields of XINFO GROUPS, by name; StreamNotFoundError if there is no stream."""
        return describe.group_infos(self._store, self._name)

    # -- inside -------------------------------------------------------------------------------
    def _record(self) -> StreamRecord | None:
        return snapshot.read(self._store._engine(), lambda view: view.record(self._name))

    def _entry(self, row: tuple[int, int, int, list[bytes]]) -> Entry[T]:
        return make_entry(row[1], row[2], row[3], self._store.encoding)


def _reopen(store: Store[Any], name: bytes) -> Stream[Any]:
    return Stream(store, name)
