"""A stream inside a transaction: the names of the plain face, outcomes known at the end.

Invariants: nothing here looks at the store or takes a lock; arguments are refused at the call, and
what they became is a step that the commit decides. What only reads is not here: nothing could be
told before the commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from logstore.api import arguments, producing, scheduling
from logstore.api.buffered_group import TransactionGroup
from logstore.api.delivery import DeleteOutcome, Pending, collect, outcomes
from logstore.api.entry import IDRuns
from logstore.api.scheduling import ScheduleKey
from logstore.codec import Row
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.features import expiry, schedule
from logstore.engine.features.expiry import Condition
from logstore.engine.streams import add, delete, idempotency, lifecycle, trim
from logstore.ids import IDLike, StreamID, parse_id
from logstore.options import References

if TYPE_CHECKING:
    from logstore.api.transaction import Transaction

T = TypeVar("T", bytes, str)
BATCH_ROWS = 1000


class TransactionStream(Generic[T]):
    """One stream inside a transaction; the arguments are those of :class:`logstore.Stream`."""

    __slots__ = ("_name", "_tx")

    def __init__(self, tx: Transaction[T], name: bytes) -> None:
        self._tx: Transaction[T] = tx
        self._name = name

    @overload
    def add(
        self, fields: Row, id: IDLike = "*", *, maxlen: int | None = None,
        minid: IDLike | None = None, approximate: bool = True, limit: int | None = None,
        references: References = "keep", create: Literal[True] = True,
        producer: str | bytes | None = None, idempotent_id: str | bytes | None = None,
    ) -> Pending[StreamID]: ...  # fmt: skip
    @overload
    def add(
        self, fields: Row, id: IDLike = "*", *, maxlen: int | None = None,
        minid: IDLike | None = None, approximate: bool = True, limit: int | None = None,
        references: References = "keep", create: bool, producer: str | bytes | None = None,
        idempotent_id: str | bytes | None = None,
    ) -> Pending[StreamID | None]: ...  # fmt: skip
    def add(
        self, fields: Row, id: IDLike = "*", *, maxlen: int | None = None,
        minid: IDLike | None = None, approximate: bool = True, limit: int | None = None,
        references: References = "keep", create: bool = True,
        producer: str | bytes | None = None, idempotent_id: str | bytes | None = None,
    ) -> Pending[Any]:  # fmt: skip
        """Add an entry; ``.id`` is set by the commit."""
        arguments.check_flag(create, "create")
        rule = arguments.trim_rule(
            maxlen, minid, None, approximate=approximate, limit=limit, references=references,
            optional=True,
        )  # fmt: skip
        batch = arguments.rows([fields], self._tx._store.encoding)
        request = add.Add(self._name, batch, 0, 1, arguments.add_id(id), create, rule)
        if producer is not None or idempotent_id is not None:
            asked = producing.asked(batch, id, producer, idempotent_id, self._tx._store.encoding)
            return self._tx._collect(
                lambda state: idempotency.add(state, request, asked),
                lambda given: None if given is None else given[0],
            )

        def step(state: WriteTxn) -> StreamID | None:
            added = add.add(state, request)
            return None if added is None else added.first

        return self._tx._collect(step)

    def add_many(
        self, rows: Iterable[Row | tuple[IDLike, Row]], *, maxlen: int | None = None,
        minid: IDLike | None = None, approximate: bool = True, limit: int | None = None,
        references: References = "keep", create: bool = True, producer: str | bytes | None = None,
    ) -> Pending[IDRuns]:  # fmt: skip
        """Add rows, which are all taken at the call and kept in memory; the result: their IDs."""
        arguments.check_flag(create, "create")
        rule = arguments.trim_rule(
            maxlen, minid, None, approximate=approximate, limit=limit, references=references,
            optional=True,
        )  # fmt: skip
        if producer is not None:
            return self._add_once(rows, producer, rule, create=create)
        requests = [
            add.Add(self._name, chunk, 0, len(chunk), ids, create, rule)
            for ids, chunk in arguments.batches(rows, BATCH_ROWS, self._tx._store.encoding)
        ]

        def step(state: WriteTxn) -> IDRuns:
            given = IDRuns()
            for request in requests:
                added = add.add(state, request)
                if added is not None:
                    collect(given, added)
            return given

        return self._tx._collect(step)

    def _add_once(
        self, rows: Iterable[Row | tuple[Any, Row]], producer: str | bytes,
        rule: trim.TrimRule | None, *, create: bool,
    ) -> Pending[IDRuns]:  # fmt: skip
        requests = [
            (add.Add(self._name, chunk, 0, len(chunk), add.AUTO, create, rule), asked)
            for asked, chunk in producing.batches(
                rows, BATCH_ROWS, producer, self._tx._store.encoding
            )
        ]

        def step(state: WriteTxn) -> IDRuns:
            given = IDRuns()
            for request, asked in requests:
                given.extend(idempotency.add(state, request, asked) or ())
            return given

        return self._tx._collect(step)

    @overload
    def schedule(
        self, fields: Row, *, at: datetime | int | None = None,
        after: timedelta | float | None = None, create: Literal[True] = True,
    ) -> Pending[ScheduleKey]: ...  # fmt: skip
    @overload
    def schedule(
        self, fields: Row, *, at: datetime | int | None = None,
        after: timedelta | float | None = None, create: bool,
    ) -> Pending[ScheduleKey | None]: ...  # fmt: skip
    def schedule(
        self, fields: Row, *, at: datetime | int | None = None,
        after: timedelta | float | None = None, create: bool = True,
    ) -> Pending[Any]:  # fmt: skip
        """Keep an entry until its time; ``after`` counts from the commit. The result: its key."""
        arguments.check_flag(create, "create")
        when = scheduling.when(at, after, self._tx._store._engine().clock)
        kept = scheduling.fields(fields, self._tx._store.encoding)
        step = partial(schedule.schedule, name=self._name, fields=kept, when=when, create=create)
        return self._tx._collect(step, scheduling.typed_key)

    def cancel(self, key: ScheduleKey | str) -> Pending[bool]:
        """Schedule an entry no longer; the result says whether it was scheduled."""
        step = partial(schedule.cancel, name=self._name, key=scheduling.key(key))
        return self._tx._collect(step, frees=True)

    def expire(
        self, *, after: timedelta | float | None = None, at: datetime | int | None = None,
        only: Condition | None = None,
    ) -> Pending[bool]:  # fmt: skip
        """Let the stream expire, as ``Stream.expire``; ``after`` counts from the commit."""
        clock = self._tx._store._engine().clock
        return self._tx._collect(scheduling.expiry(self._name, at, after, only, clock), frees=True)

    def persist(self) -> Pending[bool]:
        """Let the stream expire no longer; the result: False if it never would."""
        return self._tx._collect(partial(expiry.persist, name=self._name), frees=True)

    def delete(
        self, id: IDLike, *more_ids: IDLike, references: References = "keep"
    ) -> Pending[int]:
        """Delete entries by ID; the result counts them."""
        ids = [parse_id(each) for each in (id, *more_ids)]
        arguments.check_choice(references, References, "references")
        return self._tx._collect(
            lambda state: delete.delete(state, self._name, ids, references), frees=True
        )

    def delete_each(
        self, *ids: IDLike, references: References = "keep"
    ) -> Pending[list[DeleteOutcome]]:
        """Delete entries by ID; the result: an outcome for each."""
        arguments.check_choice(references, References, "references")
        given = [parse_id(each) for each in ids]
        return self._tx._collect(
            lambda state: delete.delete_ids(state, self._name, given, references), outcomes,
            frees=True,
        )  # fmt: skip

    def delete_range(self, start: IDLike, end: IDLike) -> Pending[int]:
        """Delete an interval; the result counts the entries."""
        low, high = arguments.interval(start, end)
        return self._tx._collect(
            lambda state: delete.delete_range(state, self._name, low, high), frees=True
        )

    def trim(
        self, *, maxlen: int | None = None, minid: IDLike | None = None,
        max_age: timedelta | float | None = None, approximate: bool = False,
        limit: int | None = None, references: References = "keep",
    ) -> Pending[int]:  # fmt: skip
        """Trim; the result counts the entries."""
        rule = arguments.trim_rule(
            maxlen, minid, max_age, approximate=approximate, limit=limit, references=references,
            optional=False,
        )  # fmt: skip
        return self._tx._collect(lambda state: trim.trim_named(state, self._name, rule), frees=True)

    def set_id(
        self, last_id: IDLike, *, entries_added: int | None = None,
        max_deleted_id: IDLike | None = None,
    ) -> Pending[None]:  # fmt: skip
        """Set the last ID."""
        last = parse_id(last_id)
        arguments.check_count(entries_added, "entries_added")
        deleted = None if max_deleted_id is None else parse_id(max_deleted_id)
        return self._tx._collect(
            lambda state: lifecycle.set_id(state, self._name, last, entries_added, deleted)
        )

    def group(self, name: str | bytes) -> TransactionGroup[T]:
        """A consumer group of the stream, inside this transaction."""
        encoding = self._tx._store.encoding
        return TransactionGroup(self._tx, self._name, arguments.group_name(name, encoding))
