"""A stream, as users hold it: what adds entries.

Invariants: arguments are refused before a lock is taken; each call is one commit (``add_many``: one
a batch), in the log before it returns. What is decided under the lock is decided by the engine's
modules, of which these calls hand over a function with its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from logstore.api import arguments
from logstore.api.arguments import ANY_ID
from logstore.api.entry import IDRuns, collect
from logstore.api.stream_reads import StreamReads
from logstore.codec import GivenIDs, Row, RowBatch
from logstore.engine.streams import add, trim
from logstore.errors import EntryTypeError, OptionError, UsageError
from logstore.ids import IDLike, StreamID, parse_id
from logstore.options import BATCH_MAX_ROWS, References, Sync

if TYPE_CHECKING:
    from logstore.engine.streams.add import Add, AutoID
    from logstore.engine.streams.idempotency import Asked

T = TypeVar("T", bytes, str)


class StreamAdds(StreamReads[T]):
    """What :class:`logstore.Stream` adds."""

    __slots__ = ()

    @overload
    def add(
        self,
        fields: Row,
        id: IDLike = "*",
        *,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        approximate: bool = True,
        limit: int | None = None,
        references: References = "keep",
        create: Literal[True] = True,
        producer: str | bytes | None = None,
        idempotent_id: str | bytes | None = None,
        expected_last_id: IDLike | None = None,
        ttl: timedelta | float | None = None,
        sync: Sync | None = None,
    ) -> StreamID: ...
    @overload
    def add(
        self,
        fields: Row,
        id: IDLike = "*",
        *,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        approximate: bool = True,
        limit: int | None = None,
        references: References = "keep",
        create: bool,
        producer: str | bytes | None = None,
        idempotent_id: str | bytes | None = None,
        expected_last_id: IDLike | None = None,
        ttl: timedelta | float | None = None,
        sync: Sync | None = None,
    ) -> StreamID | None: ...
    def add(
        self,
        fields: Row,
        id: IDLike = "*",
        *,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        approximate: bool = True,
        limit: int | None = None,
        references: References = "keep",
        create: bool = True,
        producer: str | bytes | None = None,
        idempotent_id: str | bytes | None = None,
        expected_last_id: IDLike | None = None,
        ttl: timedelta | float | None = None,
        sync: Sync | None = None,
    ) -> StreamID | None:
        """Add one entry, as XADD does.

        Args:
            fields: a mapping, or (name, value) pairs; str, bytes, int or float.
            id: ``"*"`` (of now), ``"<ms>-*"``, or an ID above ``last_id``.
            maxlen: trim to so many entries after the add.
            minid: trim what is below this ID after the add.
            approximate: trim whole nodes only.
            limit: trim at most so many entries; 0: no limit.
            references: of what is trimmed, as in ``delete``.
            create: whether to make a stream that is not there.
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
            InvalidIDError: ``id`` or ``minid`` is no ID, or 0-0.
            InvalidEntryError: there are no fields.
            EntryTypeError: a field or value is of another type.
            TooLargeError: a field, the entry or an idempotent ID is over its limit.
            LastIDConflictError: ``last_id`` is not ``expected_last_id``; nothing was added.
            OptionError: options contradict each other, or are not valid.
        """
        made: Any = None
        if (
            sync is producer is idempotent_id is expected_last_id is ttl is None
            and (create is True or create is False)
            and references == "keep"
        ):
            plain = id is ANY_ID and maxlen is minid is limit is None
            plain = plain and approximate is create is True
            options = None if plain else (id, maxlen, minid, approximate, limit, create)
            made = self._opened.add_plain(self._name, fields, options)
            if made:
                return made  # type: ignore[no-any-return]
        trimming = arguments.Trimming(maxlen, minid, approximate, limit, references)
        asked = {"create": create, "expected_last_id": expected_last_id, "ttl": ttl}
        by = (producer, idempotent_id)
        return self._add_with(fields, id, trimming, asked, by, sync, looked_at=made is False)

    def _add_with(
        self,
        fields: Row,
        id: IDLike,
        trimming: arguments.Trimming,
        asked: dict[str, Any],
        by: tuple[str | bytes | None, str | bytes | None],
        sync: Sync | None,
        *,
        looked_at: bool,
    ) -> StreamID | None:
        """Add what is not plain as it was given; ``looked_at``: what comes of it may be plain."""
        batch, request = arguments.one_add(
            self._name, fields, id, self._opened.encoding, trimming, **asked
        )
        if by != (None, None):
            return self._add_asked(batch, request, id, by, sync)
        if looked_at and (ready := self._opened.add_ready(request)) is not None:
            return ready
        made = self._opened.commit(partial(add.add, request=request), sync)
        return None if made is None else made.first  # a call here could be interrupted: it counts

    def _add_asked(
        self,
        batch: RowBatch,
        request: Add,
        id: IDLike,
        producer: tuple[str | bytes | None, str | bytes | None],
        sync: Sync | None,
    ) -> StreamID | None:
        """Add one entry for a producer, with its idempotent ID, unless that was done."""
        from logstore.api import producing
        from logstore.engine.streams import idempotency

        asked = producing.asked(batch, id, *producer, self._opened.encoding)
        step = partial(idempotency.add, request=request, asked=asked)
        ids: list[StreamID] | None = self._opened.commit(step, sync)
        return None if ids is None else ids[0]

    def add_many(
        self,
        rows: Iterable[Row | tuple[IDLike, Row]],
        *,
        batch: int = 1000,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        approximate: bool = True,
        limit: int | None = None,
        references: References = "keep",
        create: bool = True,
        producer: str | bytes | None = None,
        expected_last_id: IDLike | None = None,
        ttl: timedelta | float | None = None,
        sync: Sync | None = None,
    ) -> IDRuns:
        """Add rows of any iterable, one commit for each ``batch`` of them.

        If a row is refused its batch is; those before stay. ``rows`` is read outside every lock.

        Args:
            rows: what ``add`` takes, or (id, fields) in all rows, IDs ascending; or a DataFrame, as
                in ``add_arrow``. With ``producer``: fields, or (idempotent ID, fields).
            batch: rows of a commit, 1 to 1,000,000.
            maxlen: as in ``add``, after each batch.
            minid: as in ``add``, after each batch.
            approximate: as in ``add``.
            limit: as in ``add``.
            references: as in ``add``.
            create: as in ``add``.
            producer: as in ``add``; a row that is not added again has the ID that it got before.
            expected_last_id: as in ``add``; a further batch expects the last ID of the one before.
            ttl: as in ``add``, from the commit of each batch on.
            sync: a stronger promise than the store's, for each commit.

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
        given = IDRuns()
        usual = maxlen is minid is limit is producer is expected_last_id is ttl is sync is None
        usual = usual and create is approximate is True and references == "keep"
        if usual and self._add_few(given, rows, batch):
            return given
        for _ in self._adding(
            given,
            rows,
            batch=batch,
            maxlen=maxlen,
            minid=minid,
            approximate=approximate,
            limit=limit,
            references=references,
            create=create,
            producer=producer,
            expected_last_id=expected_last_id,
            ttl=ttl,
            sync=sync,
        ):
            pass
        return given

    def _add_few(self, given: IDRuns, rows: object, batch: object) -> bool:
        """Add a list of few dictionaries beside the pipeline; False: it is not that, and nothing
        has happened."""
        if type(rows) is not list or type(batch) is not int or self._values is not None:
            return False
        if not 0 < len(rows) <= batch <= BATCH_MAX_ROWS:
            return False
        added = self._opened.add_rows_plain(self._name, rows)
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
                stream. Its columns are fields, null is a field that an entry does not have;
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
            UsageError: pyarrow is not installed, or the stream has a codec.
        """
        arguments.check_between(batch, "batch", 1, BATCH_MAX_ROWS)
        arguments.check_flag(create, "create")
        batches = self._arrow_batches(data, batch, id_column)
        given = IDRuns()
        steps = self._add_batches(given, batches, None, None, create=create, ttl_ms=None, sync=sync)
        for _ in steps:
            pass
        return given

    def _arrow_batches(
        self, data: Any, batch: int, id_column: str = ""
    ) -> Iterator[tuple[AutoID | GivenIDs, RowBatch]]:
        from logstore.api import arrow_rows
        from logstore.loading import needing

        if self._values is not None:
            raise UsageError("rows of Arrow do not go through the stream's codec: use add_many")
        if isinstance(data, StreamReads):  # of which Arrow does not keep what is no UTF-8
            raise EntryTypeError(
                "a stream is no table: add_many((entry.id, entry.pairs) for entry in stream), or "
                "what is to be read of it, as add_arrow(stream.scan())"
            )
        return needing("arrow", lambda: arrow_rows.batches(data, batch, id_column))

    def _adding(
        self,
        given: IDRuns,
        rows: Iterable[Row | tuple[IDLike, Row]],
        *,
        batch: int,
        maxlen: int | None,
        minid: IDLike | None,
        approximate: bool,
        limit: int | None,
        references: References,
        create: bool,
        producer: str | bytes | None,
        expected_last_id: IDLike | None,
        ttl: timedelta | float | None,
        sync: Sync | None,
    ) -> Iterator[bool]:
        """Add rows, a batch each step, which is True; their IDs go to ``given``. It ends when there
        are no rows; asked once more, it goes on with what came since.
        """
        arguments.check_between(batch, "batch", 1, BATCH_MAX_ROWS)
        arguments.check_flag(create, "create")
        rule = arguments.Trimming(maxlen, minid, approximate, limit, references).rule()
        expected = None if expected_last_id is None else parse_id(expected_last_id)
        ttl_ms = arguments.ttl_ms(ttl)
        encoding = self._opened.encoding
        if hasattr(rows, "__arrow_c_stream__") and not isinstance(rows, StreamReads):
            if producer is not None:
                raise OptionError("rows of Arrow have no idempotent IDs: leave out producer")
            table = self._arrow_batches(rows, batch)
            return self._add_batches(
                given, table, rule, expected, create=create, ttl_ms=ttl_ms, sync=sync
            )
        if producer is not None:
            from logstore.api import producing

            named = producing.batches(rows, batch, producer, encoding, self._made_ready)
            return self._add_once(
                given, named, rule, expected, create=create, ttl_ms=ttl_ms, sync=sync
            )
        plain = arguments.batches(rows, batch, self._made_ready)
        return self._add_batches(
            given, plain, rule, expected, create=create, ttl_ms=ttl_ms, sync=sync
        )

    def _made_ready(self, rows: list[Any]) -> RowBatch:
        """Rows made ready to be packed."""
        return arguments.rows(rows, self._opened.encoding)

    def _add_batches(
        self,
        given: IDRuns,
        batches: Iterable[tuple[AutoID | GivenIDs, RowBatch]],
        rule: trim.TrimRule | None,
        expected: StreamID | None,
        *,
        create: bool,
        ttl_ms: int | None,
        sync: Sync | None,
    ) -> Iterator[bool]:
        for ids, chunk in batches:
            count = len(chunk)
            request = add.Add(self._name, chunk, 0, count, ids, create, rule, expected, ttl_ms)
            added: add.Added | None = self._opened.commit(partial(add.add, request=request), sync)
            if added is None:
                return
            collect(given, added)
            expected = add.expected_next(expected, added)
            yield True

    def _add_once(
        self,
        given: IDRuns,
        batches: Iterable[tuple[Asked, RowBatch]],
        rule: trim.TrimRule | None,
        expected: StreamID | None,
        *,
        create: bool,
        ttl_ms: int | None,
        sync: Sync | None,
    ) -> Iterator[bool]:
        from logstore.engine.streams import idempotency

        for asked, chunk in batches:
            count = len(chunk)
            request = add.Add(self._name, chunk, 0, count, add.AUTO, create, rule, expected, ttl_ms)
            step = partial(idempotency.add, request=request, asked=asked)
            ids: list[StreamID] | None = self._opened.commit(step, sync)
            if ids is None:
                return
            given.extend(ids)
            expected = add.expected_next(expected, ids)
            yield True
