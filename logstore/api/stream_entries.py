"""The entries of a stream, as users hold it: added, read, deleted.

Times are seconds or ``timedelta``; IDs are given as text, StreamID, (ms, seq), int milliseconds or
an aware datetime.

Invariants: arguments are refused before a lock is taken. Each call that changes something is one
commit (``add_many``: one a batch), in the log before it returns. Decisions under the lock are the
engine's: a call hands over a function of the engine with its arguments. Iterators are lazy and take
a snapshot a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, cast, overload

from logstore.api import arguments
from logstore.api.arguments import ANY_ID, AddOptions, RowOptions
from logstore.api.entry import DeleteOutcome, Entry, IDRuns, collect, entry_maker, outcomes
from logstore.api.opening import PLAIN_MAX_ROWS, OpenStore
from logstore.codec import GivenIDs, Row, RowBatch
from logstore.engine.reading.reader_loading import MISS
from logstore.engine.streams import read, removal
from logstore.errors import EntryTypeError, Error, OptionError, SchemaError, UsageError
from logstore.ids import ZERO_ID, IDLike, StreamID, parse_id
from logstore.options import BATCH_MAX_ROWS, Length, References, Sync

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from logstore.api.describing import StreamDescription
    from logstore.api.entry_reads import Matching, MatchingOf, Where
    from logstore.api.info import FullStreamInfo, GroupInfo, StreamInfo
    from logstore.api.scan import Scan
    from logstore.api.values import TypedValues, Values
    from logstore.engine.dump.payloads import Peer
    from logstore.engine.streams.add import AutoID
    from logstore.ids import When
    from logstore.schema.stream_schema import Schema

T = TypeVar("T", bytes, str)


class StreamEntries(Generic[T]):
    """The entries of a stream, as :class:`logstore.Stream` has them."""

    __slots__ = ("_name", "_opened", "_typed")

    def __init__(self, opened: OpenStore[T], name: bytes) -> None:
        self._opened: OpenStore[T] = opened
        self._name = name
        self._typed: TypedValues | None = None  # by the schema that the stream had at the last look

    @property
    def _by_schema(self) -> TypedValues | None:
        """How values are written and read, by the schema that the stream has now."""
        # What a call takes counts here: each read asks.
        typed, engine = self._typed, self._opened.live().engine
        reader = engine.reader
        at = MISS if reader is None else reader.schema_at(self._name)
        if at is MISS:
            at = read.schema_at(engine, self._name)
        if typed is None:
            return self._looked_up() if at else None
        return typed if typed.schema_at == at else self._looked_up()

    # The same, or by a codec, in a handle that has one: no call more, as each read asks.
    if TYPE_CHECKING:

        @property
        def _values(self) -> Values | TypedValues | None: ...

    else:
        _values = _by_schema

    def _looked_up(self) -> TypedValues | None:
        """Look the schema up, at one moment."""
        from logstore.api.configuring import kept_schema
        from logstore.api.values import TypedValues

        schema, at = kept_schema(self._opened, self._name)
        found = None if schema is None else TypedValues(schema, at, self._opened.encoding)
        self._typed = found
        return found

    @property
    def name(self) -> T:
        """The name, as bytes or in the store's encoding."""
        return self._opened.text(self._name)

    def __repr__(self) -> str:
        return f"<Stream {self.name!r} of {self._opened!r}>"

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return (type(self), (self._opened, self._name))

    def _viewed(self, entries: list[Entry[T]]) -> list[Entry[T]]:
        """Entries of this stream that were read elsewhere, as this handle gives them."""
        values = self._values
        return entries if values is None else [values.view(entry) for entry in entries]

    def _matching(self, where: Where | None) -> Matching | None:
        """What finds the entries that match."""
        if where is None:
            return None
        from logstore.api.configuring import stream_decoder
        from logstore.api.entry_reads import matching, matching_text

        values = self._values
        if not isinstance(where, str):
            return matching(where, self._opened.encoding, values)
        schema, opened = getattr(values, "schema", None), self._opened
        kept = partial(stream_decoder, opened, self._name)
        return matching_text(where, self._name, opened.encoding, values, schema, kept)

    def _matching_anew(self, where: Where | None) -> MatchingOf | None:
        """The same, for reads that go on while the schema may change; checked at once."""
        if self._matching(where) is None:
            return None
        from logstore.api.entry_reads import MatchingAnew

        return MatchingAnew(lambda: cast("Matching", self._matching(where)))

    # -- entries ------------------------------------------------------------------------------
    def get(self, id: IDLike) -> Entry[T] | None:
        """Look an entry up.

        Args:
            id: its ID.

        Returns:
            The entry, or None if there is none with this ID.

        Raises:
            InvalidIDError: ``id`` is no whole ID.
        """
        opened, values = self._opened, self._values
        maker = entry_maker(opened.encoding) if values is None else values.maker
        found: Entry[T] | None = read.get(opened.live().engine, self._name, parse_id(id), maker)
        return found

    def __getitem__(self, id: IDLike) -> Entry[T]:
        if isinstance(id, slice | int):
            raise EntryTypeError(
                "a stream is indexed by ID, not by place: stream.last and stream.first are its "
                "ends, stream.range(start, end, count=, reverse=) is a part of it"
            )
        entry = self.get(id)
        if entry is None:
            raise KeyError(str(parse_id(id)))
        return entry

    def __contains__(self, id: IDLike) -> bool:
        return self.get(id) is not None

    def __len__(self) -> int:
        record = self._opened.record(self._name)
        return record.length if record is not None else 0

    def range(
        self,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        since: When | None = None,
        until: When | None = None,
        where: Where | None = None,
        count: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Entry[T]]:
        """Entries of an interval, lazily, as XRANGE and XREVRANGE.

        Args:
            start: the smaller end, also with ``reverse``; ``(`` before an ID excludes it.
            end: the larger end, included unless ``(`` stands before it.
            since: the smaller end as a moment: a timedelta (how long ago), an aware datetime, a
                date, or text: ``"-1h"``, ``"2026-01-31"``, ``"2026-01-31T12:00Z"``.
            until: the larger end, likewise; of a day all is included.
            where: only entries for which a condition holds, ``"temp > 20 and room = 'a'"``, which
                is compared by the stream's schema; or whose fields have these values, as
                ``{"level": "error"}``, which are equal if an add stores them as the same bytes.
            count: at most so many entries; None: no limit, 0: none.
            reverse: from the newest entry on.

        Returns:
            An iterator, which takes a snapshot a batch and is not shared between threads.

        Raises:
            InvalidIDError: an end is no ID.
            OptionError: ``start`` is above ``end``, an end is given twice or is no moment,
                ``where`` is neither a condition nor a mapping with a field, or ``count`` is
                negative.
            SchemaError: ``where`` does not fit the stream's schema.
            EntryTypeError: a field or value of ``where`` is of a type that is not stored.
            InvalidEntryError: one is text that the store's encoding cannot take.
        """
        from logstore.api import entry_reads as reading

        low, high = arguments.moments(start, end, since, until, self._opened.engine().clock)
        arguments.check_flag(reverse, "reverse")
        left, found = arguments.range_count(count), self._matching(where)
        return reading.entries(
            self._opened,
            self._name,
            low,
            high,
            left,
            reverse=reverse,
            where=found,
            values=self._values,
        )

    def __iter__(self) -> Iterator[Entry[T]]:
        return self.range()

    def __reversed__(self) -> Iterator[Entry[T]]:
        return self.range(reverse=True)

    def read(
        self,
        after: IDLike | None = None,
        *,
        count: int | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        timeout: Length | None = 0,
    ) -> list[Entry[T]]:
        """Entries above an ID, as XREAD.

        Args:
            after: an ID; ``"$"`` is the last ID at the call, ``"+"`` asks for the last entry. None:
                as ``"$"``, for a read that waits.
            count: at most so many entries; 0 or None: no limit.
            max_count: one more limit, not below ``count``; for reads of many streams.
            max_bytes: stops before the entry that passes it, never before the first; an entry
                has ``size_bytes``: 16, and those of its field names and values.
            timeout: seconds, timedelta or "1h" to wait; 0 does not wait, None waits for ever.

        Returns:
            A list, empty if none came in time.

        Raises:
            InvalidIDError: ``after`` is no ID.
            OptionError: a limit or the timeout is not valid; or neither ``after`` nor ``timeout``
                is given: above the last entry there is nothing yet.
        """
        from logstore.api import entry_reads as reading

        if after is None:
            after = reading.behind_all(timeout)
        limits = arguments.limits(count, max_count, max_bytes)
        found = reading.read_stream(self._opened, self._name, after, limits, timeout)
        return self._viewed(found)

    def follow(
        self,
        after: IDLike = "$",
        *,
        since: When | None = None,
        where: Where | None = None,
        timeout: Length | None = None,
        count: int | None = None,
    ) -> Iterator[Entry[T]]:
        """Entries above an ID, and all that come.

        Args:
            after: as in ``read``; what it stands for is settled at the call.
            since: a moment to begin with instead, as in ``range``.
            where: only entries for which this holds, as in ``range``; ``"+"`` begins with the last
                one of them.
            timeout: seconds, timedelta or "1h" without an entry that end it; None: never.
            count: how many are read at once.

        Returns:
            An iterator, which waits for entries.

        Raises:
            InvalidIDError: ``after`` is no ID.
            OptionError: ``count``, ``timeout``, ``since`` or ``where`` is not valid, or two
                beginnings are given.
            SchemaError: ``where`` does not fit the stream's schema.
            EntryTypeError: a field or value of ``where`` is of a type that is not stored.
            InvalidEntryError: one is text that the store's encoding cannot take.
        """
        from logstore.api import entry_reads as reading

        after, found = reading.beginning(self._opened, after, since), self._matching_anew(where)
        return reading.follow(self._opened, self._name, after, count, timeout, found, self._viewed)

    def latest(self, key: Any) -> Entry[T] | None:
        """The newest entry of a key, in a stream that is kept compact by a field.

        Args:
            key: the value of the field that ``configure(compact_by=)`` named.

        Returns:
            The entry, or None if there is none, or it was deleted.

        Raises:
            OptionError: the stream is not kept compact.
            EntryTypeError: the key is of a type that is not stored.
            InvalidEntryError: it is text that the store's encoding cannot take.
        """
        from logstore.api import entry_reads as reading

        values = self._values
        found = reading.latest(self._opened, self._name, key, values)
        return found if found is None or values is None else values.view(found)

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
        record = self._opened.record(self._name)
        return ZERO_ID if record is None else record.last

    def count(self, start: IDLike = "-", end: IDLike = "+") -> int:
        """Count the entries of an interval.

        All but the nodes at its ends are counted without being read; a whole stream is ``len``.

        Args:
            start: as in ``range``.
            end: as in ``range``.

        Returns:
            How many entries there are, at one moment; 0 without a stream.

        Raises:
            InvalidIDError: an end is no ID.
            OptionError: ``start`` is above ``end``.
        """
        from logstore.scan import live

        low, high = arguments.interval(start, end)
        return live.count_stream(self._opened.engine(), self._name, low, high)

    def describe(
        self, start: IDLike = "-", end: IDLike = "+", *, columns: Sequence[str] | None = None
    ) -> StreamDescription:
        """Tell what the columns of the schema hold: values, nulls, the least and the most.

        It is exact, and quick where statistics tell of most nodes: the others are read.

        Args:
            start: as in ``range``.
            end: as in ``range``.
            columns: their names; None: all of the schema but those of ``json`` and ``binary``.

        Returns:
            A ``StreamDescription``, of one moment. What is not of its column's type is null, and
            NaN is above all numbers.

        Raises:
            InvalidIDError: an end is no ID.
            OptionError: ``start`` is above ``end``, or ``columns`` are no names.
            SchemaError: there is no schema, or no such column, or its values have no order.
        """
        from logstore.api.describing import describe

        low, high = arguments.interval(start, end)
        return describe(self._opened, self._name, low, high, columns)

    # -- adding -------------------------------------------------------------------------------
    @overload
    def add(
        self,
        fields: Row,
        id: IDLike = "*",
        *,
        create: Literal[True] = True,
        **options: Unpack[AddOptions],
    ) -> StreamID: ...
    @overload
    def add(
        self, fields: Row, id: IDLike = "*", *, create: bool, **options: Unpack[AddOptions]
    ) -> StreamID | None: ...
    def add(
        self, fields: Row, id: IDLike = "*", *, create: bool = True, **options: Unpack[AddOptions]
    ) -> StreamID | None:
        """Add one entry, as XADD does.

        Args:
            fields: a mapping, or (name, value) pairs; str, bytes, int or float.
            id: ``"*"`` (of now), ``"<ms>-*"``, or an ID above ``last_id``.
            create: whether to make a stream that is not there.
            max_entries: trim to so many entries after the add.
            min_id: trim what is below this ID after the add.
            approximate: trim whole nodes only.
            limit: trim at most so many entries; 0: no limit.
            references: of what is trimmed, as in ``delete``.
            producer: 1 to 1024 bytes; the add may be repeated then: what this producer added under
                the same ``idempotent_id`` is not added again, for as long as docs/adding.md says.
            idempotent_id: 1 to 1024 bytes; None: computed from the fields.
            expected_last_id: add only if ``last_id`` is this one, 0-0 before the first add.
            ttl: how long the entry lives, seconds or a timedelta; then as docs/lifetimes.md says.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            The entry's ID, or the one that it had from its first add by ``producer``; None if
            ``create`` is False and there is no stream.

        Raises:
            IDOrderError: ``id`` is not above ``last_id``.
            InvalidIDError: ``id`` or ``min_id`` is no ID, or 0-0.
            InvalidEntryError: there are no fields.
            EntryTypeError: a field or value is of another type.
            TooLargeError: a field, the entry or an idempotent ID is over its limit.
            LastIDConflictError: ``last_id`` is not ``expected_last_id``; nothing was added.
            OptionError: options contradict each other, or are not valid.
        """
        made: Any = None
        if self._typed:
            return self._add_typed(fields, id, create, options)
        plain = not options and create is True and id is ANY_ID
        asked = plain or arguments.lane_options(id, options, create)
        if asked is not False:
            made = self._opened.add_plain(self._name, fields, None if asked is True else asked)
            if made:
                return made  # type: ignore[no-any-return]
        typed = None
        with suppress(Error):  # what cannot be looked up now, the commit says better
            typed = self._by_schema
        if typed is not None:
            return self._add_typed(fields, id, create, options)
        encoding = self._opened.encoding
        step, request = arguments.one(self._name, fields, id, encoding, create, options, None)
        if made is False and (ready := self._opened.add_ready(request)) is not None:
            return ready
        added = self._opened.commit(step, options.get("sync"))
        return None if added is None else added[0]  # a call here could be interrupted: it counts

    def _add_typed(
        self, fields: Row, id: IDLike, create: bool, options: AddOptions
    ) -> StreamID | None:
        """Add an entry that the schema writes here, before any lock is taken. If the stream has
        another schema by then, that one writes it again in the commit."""
        typed = self._typed
        assert typed is not None
        plain = not options and create is True and id is ANY_ID
        asked = plain or arguments.lane_options(id, options, create)
        try:
            row = None if asked is False else typed.plain(fields)
        except SchemaError:
            if self._by_schema is typed:
                raise
            return self.add(fields, id, create=create, **options)  # it has another schema by now
        if row:
            given: Any = None if asked is True else asked
            made = self._opened.add_plain(self._name, row, given, typed.schema_at)
            if made:
                return made
        encoding, values = self._opened.encoding, self._by_schema
        step, _ = arguments.one(self._name, fields, id, encoding, create, options, values)
        added = self._opened.commit(step, options.get("sync"))
        return None if added is None else added[0]

    def add_many(
        self,
        rows: Iterable[Row | tuple[IDLike, Row]],
        *,
        batch: int = 1000,
        create: bool = True,
        **options: Unpack[RowOptions],
    ) -> IDRuns:
        """Add rows of any iterable, one commit for each ``batch`` of them.

        If a row is refused its batch is; those before stay. ``rows`` is read outside every lock.

        Args:
            rows: what ``add`` takes, or (id, fields) in all rows, IDs ascending; or a DataFrame, as
                in ``add_arrow``. With ``producer``: fields, or (idempotent ID, fields).
            batch: rows of a commit, 1 to 1,000,000.
            create: as in ``add``.
            options: as in ``add``, for each batch: what is trimmed is trimmed after each, ``ttl``
                counts from its commit, ``sync`` is for it. With ``producer``, a row that is not
                added again has the ID that it got before. A further batch expects the last ID of
                the one before as ``expected_last_id``.

        Returns:
            The IDs of the rows.

        Raises:
            IDOrderError: an ID is not above the one before.
            InvalidIDError: an ID is not valid.
            InvalidEntryError: a row is no entry, or some rows have IDs and others have not.
            EntryTypeError: ``rows`` is no iterable, or a field or value is of another type.
            TooLargeError: a field, an entry or an idempotent ID is over its limit.
            LastIDConflictError: as in ``add``; the batches before stay.
            OptionError: options contradict each other, or are not valid.
            UsageError: a DataFrame, without pyarrow or for a stream that has a codec.
        """
        arguments.check_names(options, RowOptions, "add_many")
        given = IDRuns()
        if not options and create is True and self._add_few(given, rows, batch):
            return given
        for _ in self._adding(given, rows, batch, create, options):
            pass
        return given

    def _add_few(self, given: IDRuns, rows: object, batch: object) -> bool:
        """Add a list of few dictionaries beside the pipeline; False: it is not that, and nothing
        has happened."""
        if type(rows) is not list or type(batch) is not int:
            return False
        if not 0 < len(rows) <= batch <= BATCH_MAX_ROWS:
            return False
        values = self._values
        if values is None:
            added = self._opened.add_rows_plain(self._name, rows)
        elif len(rows) <= PLAIN_MAX_ROWS and (plain := values.all_plain(rows)):
            added = self._opened.add_rows_plain(self._name, plain, values.schema_at)
        else:
            return False
        if added is None:
            return False
        given.add(*added)
        return True

    def add_arrow(
        self,
        data: Any,
        *,
        id_column: str = "",
        batch: int = 65536,
        create: bool = True,
        sync: Sync | None = None,
    ) -> IDRuns:
        """Add rows of Arrow, one commit for each ``batch`` of them, as ``add_many`` does.

        Args:
            data: a table, record batch or reader of pyarrow, a DataFrame, or what else has an Arrow
                stream. Its columns are fields, null is a field that an entry does not have; values
                become text, or what the stream's schema has for them (docs/schemas.md);
                ``id``, or ``ms`` and ``seq``, or ``ts`` are the ID, and ``pairs`` and ``fields``
                are fields, so that what ``scan`` reads can be added. ``stream`` is left out.
            id_column: the column of the ID: text, milliseconds or a timestamp; "*": the store gives
                the IDs, and columns of these names are fields.
            batch: rows of a commit, 1 to 1,000,000.
            create: as in ``add``.
            sync: a stronger promise than the store's, for each commit.

        Returns:
            The IDs of the rows.

        Raises:
            IDOrderError: an ID is not above the one before.
            InvalidIDError: an ID is not valid.
            InvalidEntryError: a row has no field that is not null.
            EntryTypeError: ``data`` is none of these.
            TooLargeError: a field or an entry is over its limit.
            OptionError: a column can be no field or no ID; options are not valid.
            SchemaError: a value is not of its column's type in the stream's schema: it names the
                row; or a column is missing, or is none of the schema.
            UsageError: pyarrow is not installed, or the stream has a codec.
        """
        arguments.check_between(batch, "batch", 1, BATCH_MAX_ROWS)
        writing = _Writing(self)
        steps = arguments.table_steps(self._name, writing.table(data, batch, id_column))
        given = IDRuns()
        for _ in self._commit_each(given, steps, arguments.terms(create, {}), writing, sync):
            pass
        return given

    def _adding(
        self, given: IDRuns, rows: Any, batch: int, create: bool, options: RowOptions
    ) -> Iterator[bool]:
        """Add rows, a batch each step, which is True; their IDs go to ``given``. It ends when there
        are no rows; asked once more, it goes on with what came since.
        """
        arguments.check_between(batch, "batch", 1, BATCH_MAX_ROWS)
        writing, encoding = _Writing(self), self._opened.encoding
        if _is_table(rows):
            if options.get("producer") is not None:
                raise OptionError("rows of Arrow have no idempotent IDs: leave out producer")
            steps = arguments.table_steps(self._name, writing.table(rows, batch, ""))
        else:
            steps = arguments.steps(self._name, rows, batch, writing.rows, encoding, options)
        terms = arguments.terms(create, options)
        return self._commit_each(given, steps, terms, writing, options.get("sync"))

    def _commit_each(
        self,
        given: IDRuns,
        steps: Iterable[Callable[[arguments.AddTerms], arguments.AddOp]],
        terms: arguments.AddTerms,
        writing: _Writing,
        sync: Sync | None,
    ) -> Iterator[bool]:
        for step in steps:
            terms = terms._replace(schema_at=writing.schema_at)
            added = self._opened.commit(step(terms), sync)
            if added is None:
                return
            collect(given, added)
            terms = terms.behind(added)
            yield True

    # -- deleting -----------------------------------------------------------------------------
    def delete(
        self,
        *ids: IDLike,
        references: References = "keep",
        purge: bool = False,
        sync: Sync | None = None,
    ) -> int:
        """Delete entries by ID, as XDEL.

        Args:
            ids: the entries' IDs.
            references: "keep" leaves what groups have pending of them, "delete" takes that away,
                too, "acked" deletes only what every group has read and acked.
            purge: also erase their bytes from every file of the store before it returns.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            How many were deleted.

        Raises:
            InvalidIDError: an ID is not valid.
            OptionError: an option is not valid.
            ErasureIncompleteError: ``purge`` could not reach some bytes.
        """
        given = [parse_id(wanted) for wanted in ids]
        if len(given) == 1 and references == "keep" and purge is False and sync is None:
            done = self._opened.delete_plain(self._name, given[0])
            if done is not None:
                return done
        arguments.check_choice(references, References, "references")
        arguments.check_flag(purge, "purge")
        step = partial(removal.delete, name=self._name, ids=given, mode=references)
        return self._removed(step, purge=purge, sync=sync)

    def _removed(self, step: Callable[[Any], int], *, purge: bool, sync: Sync | None) -> int:
        """Take a step that deletes entries, and maybe erase their bytes; how many these were."""
        gone: int = self._opened.free(step, sync)
        if purge:
            self._opened.compact(purge=True)
        return gone

    def delete_each(
        self, *ids: IDLike, references: References = "keep", sync: Sync | None = None
    ) -> list[DeleteOutcome]:
        """Delete entries by ID, as XDELEX, and tell what became of each.

        Args:
            ids: the entries' IDs; one that is named twice is MISSING the second time.
            references: as in ``delete``.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            For each ID whether it was DELETED, MISSING or KEPT. KEPT comes of "acked" only, also
            for an ID without an entry, if a group has not read so far or has it pending.

        Raises:
            InvalidIDError: an ID is not valid.
            OptionError: ``references`` is not valid of the three.
        """
        arguments.check_choice(references, References, "references")
        given = [parse_id(wanted) for wanted in ids]
        step = partial(removal.delete_ids, stream=self._name, ids=given, mode=references)
        deleted: list[DeleteOutcome] = self._opened.free(step, sync, made=outcomes)
        return deleted

    def delete_range(
        self, start: IDLike, end: IDLike, *, purge: bool = False, sync: Sync | None = None
    ) -> int:
        """Delete all entries of an interval, in one commit.

        Args:
            start: the smaller end, included unless ``(`` stands before it.
            end: the larger end, likewise.
            purge: as in ``delete``.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            How many were deleted.

        Raises:
            InvalidIDError: an end is no ID.
            OptionError: ``start`` is above ``end``.
            ErasureIncompleteError: ``purge`` could not reach some bytes.
        """
        arguments.check_flag(purge, "purge")
        low, high = arguments.interval(start, end)
        step = partial(removal.delete_range, name=self._name, start=low, end=high)
        return self._removed(step, purge=purge, sync=sync)

    def trim(
        self,
        *,
        max_entries: int | None = None,
        min_id: IDLike | None = None,
        max_age: Length | None = None,
        approximate: bool = True,
        limit: int | None = None,
        references: References = "keep",
        sync: Sync | None = None,
    ) -> int:
        """Trim from the old end, as XTRIM; exactly one of the first three says to where.

        Args:
            max_entries: keep at most so many entries.
            min_id: drop what is below this ID.
            max_age: drop what is older, by the IDs' milliseconds; seconds, timedelta or "1h".
            approximate: drop whole nodes only, so that up to a node more may stay, as ``add`` does
                and clients of Redis do; False: exactly.
            limit: with ``approximate``, drop at most so many entries; 0: no limit.
            references: as in ``delete``; with "delete" and "acked" entries go one by one, and
                "acked" passes over those that a group still needs.
            sync: a stronger promise than the store's, for this commit.

        Returns:
            How many entries went.

        Raises:
            InvalidIDError: ``min_id`` is no ID.
            OptionError: options contradict each other, or are not valid.
        """
        rule = arguments.trim_rule(
            max_entries,
            min_id,
            max_age,
            approximate=approximate,
            limit=limit,
            references=references,
            optional=False,
        )
        gone: int = self._opened.free(partial(removal.trim_named, name=self._name, rule=rule), sync)
        return gone

    def set_id(
        self,
        last_id: IDLike,
        *,
        entries_added: int | None = None,
        max_deleted_id: IDLike | None = None,
        sync: Sync | None = None,
    ) -> None:
        """Set the last ID, as XSETID; for interchange and repair.

        Args:
            last_id: the last ID that counts as given.
            entries_added: how many entries count as ever added; None: as it is.
            max_deleted_id: the largest ID that counts as deleted; None: as it is.
            sync: a stronger promise than the store's, for this commit.

        Raises:
            InvalidIDError: an ID is not valid.
            OptionError: ``entries_added`` is no integer of 64 bits.
            StreamNotFoundError: there is no stream.
            UsageError: they contradict what is in the stream.
        """
        from logstore.engine.streams import lifecycle

        last = parse_id(last_id)
        arguments.check_count(entries_added, "entries_added")
        deleted = None if max_deleted_id is None else parse_id(max_deleted_id)
        step = partial(
            lifecycle.set_id,
            name=self._name,
            last=last,
            entries_added=entries_added,
            max_deleted=deleted,
        )
        done: None = self._opened.commit(step, sync)
        return done

    # -- what it tells ------------------------------------------------------------------------
    def info(self) -> StreamInfo[T]:
        """Tell what XINFO STREAM tells, and more.

        Returns:
            The description, of one moment.

        Raises:
            StreamNotFoundError: there is no stream.
        """
        from logstore.api.info import stream_info

        name, encoding = self._name, self._opened.encoding
        found = self._opened.view(lambda view: stream_info(view, name, encoding))
        self._viewed([each for each in (found.first_entry, found.last_entry) if each is not None])
        return found

    def info_full(self, count: int = 10) -> FullStreamInfo[T]:
        """Tell what XINFO STREAM FULL tells: entries, groups, consumers, what is pending with them.

        Args:
            count: at most so many of each list, those with the smallest IDs; 0: all, in memory.

        Returns:
            The description; what is long is looked at in steps, each of a moment of its own.

        Raises:
            StreamNotFoundError: there is no stream.
            OptionError: ``count`` is negative or no integer.
        """
        from logstore.api.info import full_info

        return full_info(self._opened, self._name, arguments.read_count(count))

    def groups(self) -> list[GroupInfo[T]]:
        """Tell what XINFO GROUPS tells.

        Returns:
            All groups, by name.

        Raises:
            StreamNotFoundError: there is no stream.
        """
        from logstore.api.info import group_infos

        return group_infos(self._opened, self._name)

    # -- in bulk ------------------------------------------------------------------------------
    def scan(
        self,
        start: IDLike = "-",
        end: IDLike = "+",
        *,
        columns: Sequence[str] | Mapping[str, pa.DataType | None] | None = None,
        schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
        where: str | Sequence[tuple[str, str, Any]] | pc.Expression | None = None,
        batch_rows: int = 65536,
    ) -> Scan:
        """Entries of an interval as Arrow, to be read as often as wanted.

        Args:
            start: as in ``range``.
            end: as in ``range``.
            columns: names of stream, id, ms, seq, ts, fields, id_key, pairs (None: those of
                ``schema``, else these; of a stream with a codec before these the fields of some
                entries), or of fields; as a mapping with their types (None: text). A value that is
                not of its type is null.
            schema: the types of columns, also as the text ``rider string, speed double``; None:
                fields are text.
            where: a condition, ``"speed > 30 and rider like 'N%'"``; or comparisons that must all
                hold, as ``[("speed", ">", 30)]``; or an expression of pyarrow. Those of ``id``,
                ``ms``, ``ts`` and ``id_key`` also say where to read.
            batch_rows: rows of a batch, at most.

        Returns:
            A ``Scan``: iterate over its record batches, or see its ``to_arrow``, ``to_pandas`` and
            ``to_polars``.

        Raises:
            InvalidIDError: an end is no ID.
            OptionError: the interval is reversed, or a column or condition cannot be.
            SchemaError: the condition does not fit the schema of the streams.
            UsageError: pyarrow is not installed.
        """
        from logstore.api.scan import make_scan

        return make_scan(
            self._opened,
            lambda: [self._name],
            start,
            end,
            columns=columns,
            schema=schema,
            where=where,
            batch_rows=batch_rows,
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """What tools of Arrow take: a new scan of the whole stream, in its standard columns."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def dump(self, *, peer: Peer | None = None) -> bytes:
        """The stream with its groups, as DUMP gives it.

        Args:
            peer: "redis" or "valkey", if one of them is to take it: they refuse each other's nodes
                where a field or value has exactly 16378 or 2097146 bytes. "redis-8.6", a Redis from
                there on, also takes idempotent IDs, "redis-8.8" also entries that were given back.

        Returns:
            A payload that Redis (7.2 on) and Valkey RESTORE; or that ``peer`` does.

        Raises:
            StreamNotFoundError: there is no stream.
            OptionError: ``peer`` is neither.
            TooLargeError: it has above 512 MiB.
        """
        from logstore.engine.dump import payloads

        return payloads.payload(self._opened.engine(), self._name, peer)


class _Writing:
    """How a call writes its rows that adds batch by batch: each by the schema that the stream has
    when the batch is made ready."""

    __slots__ = ("_stream", "_values")

    def __init__(self, stream: StreamEntries[Any]) -> None:
        self._stream = stream
        self._values: Values | TypedValues | None = None

    @property
    def schema_at(self) -> int:
        """Of the schema that wrote the last batch."""
        return 0 if self._values is None else self._values.schema_at

    def rows(self, rows: list[Any]) -> RowBatch:
        """Rows made ready."""
        values = self._values = self._stream._values
        if values is None:
            return arguments.rows(rows, self._stream._opened.encoding)
        return values.batch(rows)

    def table(
        self, data: Any, size: int, id_column: str
    ) -> Iterator[tuple[AutoID | GivenIDs, RowBatch]]:
        """Rows of Arrow made ready, in batches. UsageError if the stream has a codec."""
        from logstore.loading import needing

        if isinstance(data, StreamEntries):  # of which Arrow does not keep what is no UTF-8
            raise EntryTypeError(
                "a stream is no table: add_many((entry.id, entry.pairs) for entry in stream), or "
                "what is to be read of it, as add_arrow(stream.scan())"
            )
        return needing(
            "arrow", lambda: arguments.table_batches(data, size, id_column, self._schema)
        )

    def _schema(self) -> Schema | None:
        values = self._values = self._stream._values
        if values is None:
            return None
        from logstore.api.values import TypedValues

        if not isinstance(values, TypedValues):
            raise UsageError("rows of Arrow do not go through the stream's codec: use add_many")
        return values.schema


def _is_table(rows: object) -> bool:
    """Whether rows come as Arrow; a stream does, too, but Arrow does not keep what is no UTF-8."""
    return hasattr(rows, "__arrow_c_stream__") and not isinstance(rows, StreamEntries)
