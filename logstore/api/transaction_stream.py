"""Streams and groups inside a transaction: the same operations, taken as steps of one commit.

Invariants: arguments are checked at the call; what the store's state refuses is raised by the
commit. Reads nothing and commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from logstore.api import arguments, producing, scheduling
from logstore.api.arguments import ANY_ID
from logstore.api.delivery import Delivery, deliveries_of
from logstore.api.entry import DeleteOutcome, IDRuns, collect, outcomes
from logstore.api.group import claim_step
from logstore.api.scheduling import ScheduleKey
from logstore.api.stream import Stream
from logstore.api.transaction_steps import Pending, Steps
from logstore.codec import Row
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.features import expiry, settings
from logstore.engine.features.expiry import Condition
from logstore.engine.groups import ack, admin
from logstore.engine.groups.deliver import Delivered
from logstore.engine.streams import add, delete, idempotency, lifecycle, trim
from logstore.engine.streams.add import Added
from logstore.engine.streams.idempotency import Asked
from logstore.ids import IDLike, StreamID, parse_id
from logstore.options import NackMode, References

if TYPE_CHECKING:
    from logstore.api.values import Values

T = TypeVar("T", bytes, str)
BATCH_ROWS = 1000  # rows of one step of ``add_many``


class TransactionStream(Generic[T]):
    """One stream inside a transaction; the arguments are those of :class:`logstore.Stream`."""

    __slots__ = ("_name", "_steps", "_values")

    def __init__(self, steps: Steps[T], name: bytes) -> None:
        self._steps: Steps[T] = steps
        self._name = name
        self._values: Values | None = None  # of a stream with a codec

    def _coded(self, fields: Any) -> Any:
        """The fields of an add, encoded if there is a codec."""
        return fields if self._values is None else self._values.row(fields)

    def _keep(self, *, create: bool) -> None:
        """Have the codec kept with the stream, before what was encoded with it is added."""
        if self._values is not None:
            codec = self._values.codec.name
            self._steps.take(
                partial(settings.keep_codec, name=self._name, codec=codec, create=create)
            )

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
    ) -> Pending[StreamID]: ...
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
    ) -> Pending[StreamID | None]: ...
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
    ) -> Pending[Any]:
        """Add an entry; ``.id`` is set by the commit.

        ``expected_last_id`` is the last ID as the steps before this one leave it.
        """
        if (
            self._values is producer is idempotent_id is expected_last_id is ttl is None
            and create is True
            and references == "keep"
        ):
            bare = id is ANY_ID and maxlen is minid is limit is None and approximate is True
            options = None if bare else (id, maxlen, minid, approximate, limit, True)
            plain = self._steps.add_plain(self._name, fields, options)
            if plain is not None:
                return plain
        encoding = self._steps.opened.encoding
        batch, request = arguments.one_add(
            self._name,
            self._coded(fields),
            id,
            encoding,
            arguments.Trimming(maxlen, minid, approximate, limit, references),
            create=create,
            expected_last_id=expected_last_id,
            ttl=ttl,
        )
        step: Callable[[WriteTxn], Any] = partial(add.add, request=request)
        if producer is not None or idempotent_id is not None:
            asked = producing.asked(batch, id, producer, idempotent_id, encoding)
            step = partial(idempotency.add, request=request, asked=asked)
        self._keep(create=create)
        return self._steps.take(step, _first)

    def add_many(
        self,
        rows: Iterable[Row | tuple[IDLike, Row]],
        *,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        approximate: bool = True,
        limit: int | None = None,
        references: References = "keep",
        create: bool = True,
        producer: str | bytes | None = None,
        expected_last_id: IDLike | None = None,
        ttl: timedelta | float | None = None,
    ) -> Pending[IDRuns]:
        """Add rows, which are all taken at the call and kept in memory; the result: their IDs."""
        arguments.check_flag(create, "create")
        rule = arguments.Trimming(maxlen, minid, approximate, limit, references).rule()
        name, encoding = self._name, self._steps.opened.encoding
        values = self._values
        made = partial(arguments.rows, encoding=encoding) if values is None else values.batch
        first = None if expected_last_id is None else parse_id(expected_last_id)
        ttl_ms = arguments.ttl_ms(ttl)
        steps: list[Callable[[WriteTxn, StreamID | None], Any]] = []
        if producer is None:
            for ids, chunk in arguments.batches(rows, BATCH_ROWS, made):
                request = add.Add(name, chunk, 0, len(chunk), ids, create, rule, None, ttl_ms)
                steps.append(partial(_add_chunk, request=request))
        else:
            named = producing.batches(rows, BATCH_ROWS, producer, encoding, made)
            for asked, chunk in named:
                request = add.Add(name, chunk, 0, len(chunk), add.AUTO, create, rule, None, ttl_ms)
                steps.append(partial(_add_chunk, request=request, asked=asked))

        def run(txn: WriteTxn) -> IDRuns:
            given, expected = IDRuns(), first
            for step in steps:
                added = step(txn, expected)
                collect(given, added)
                expected = add.expected_next(expected, added)
            return given

        self._keep(create=create)
        return self._steps.take(run)

    @overload
    def schedule(
        self,
        fields: Row,
        *,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        every: timedelta | float | None = None,
        cron: str | None = None,
        tz: str | None = None,
        name: str | None = None,
        create: Literal[True] = True,
    ) -> Pending[ScheduleKey]: ...
    @overload
    def schedule(
        self,
        fields: Row,
        *,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        every: timedelta | float | None = None,
        cron: str | None = None,
        tz: str | None = None,
        name: str | None = None,
        create: bool,
    ) -> Pending[ScheduleKey | None]: ...
    def schedule(
        self,
        fields: Row,
        *,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        every: timedelta | float | None = None,
        cron: str | None = None,
        tz: str | None = None,
        name: str | None = None,
        create: bool = True,
    ) -> Pending[Any]:
        """Keep an entry until its time; ``after`` counts from the commit. The result: its key."""
        arguments.check_flag(create, "create")
        kept = scheduling.fields(self._coded(fields), self._steps.opened.encoding)
        clock = self._steps.opened.engine().clock
        step = scheduling.step(
            self._name, kept, clock, at=at, after=after, every=every, cron=cron, tz=tz, name=name,
            create=create,
        )  # fmt: skip
        self._keep(create=create)
        return self._steps.take(step, scheduling.typed_key)

    def cancel(
        self, key: ScheduleKey | str | None = None, *, name: str | None = None
    ) -> Pending[bool]:
        """Schedule an entry no longer; the result says whether it was scheduled."""
        return self._steps.free(scheduling.cancelling(self._name, key, name))

    def expire(
        self,
        *,
        after: timedelta | float | None = None,
        at: datetime | int | None = None,
        only: Condition | None = None,
    ) -> Pending[bool]:
        """Let the stream expire, as ``Stream.expire``; ``after`` counts from the commit."""
        clock = self._steps.opened.engine().clock
        return self._steps.take(scheduling.expiry(self._name, at, after, only, clock), frees=True)

    def persist(self) -> Pending[bool]:
        """Let the stream expire no longer; the result: False if it never would."""
        return self._steps.free(expiry.persist, name=self._name)

    def delete(
        self, id: IDLike, *more_ids: IDLike, references: References = "keep"
    ) -> Pending[int]:
        """Delete entries by ID; the result counts them."""
        ids = [parse_id(wanted) for wanted in (id, *more_ids)]
        arguments.check_choice(references, References, "references")
        return self._steps.free(delete.delete, name=self._name, ids=ids, mode=references)

    def delete_each(
        self, *ids: IDLike, references: References = "keep"
    ) -> Pending[list[DeleteOutcome]]:
        """Delete entries by ID; the result: an outcome for each."""
        arguments.check_choice(references, References, "references")
        given = [parse_id(wanted) for wanted in ids]
        return self._steps.take(
            partial(delete.delete_ids, stream=self._name, ids=given, mode=references),
            outcomes,
            frees=True,
        )

    def delete_range(self, start: IDLike, end: IDLike) -> Pending[int]:
        """Delete an interval; the result counts the entries."""
        low, high = arguments.interval(start, end)
        return self._steps.free(delete.delete_range, name=self._name, start=low, end=high)

    def trim(
        self,
        *,
        maxlen: int | None = None,
        minid: IDLike | None = None,
        max_age: timedelta | float | None = None,
        approximate: bool = False,
        limit: int | None = None,
        references: References = "keep",
    ) -> Pending[int]:
        """Trim; the result counts the entries."""
        rule = arguments.trim_rule(
            maxlen,
            minid,
            max_age,
            approximate=approximate,
            limit=limit,
            references=references,
            optional=False,
        )
        return self._steps.free(trim.trim_named, name=self._name, rule=rule)

    def set_id(
        self,
        last_id: IDLike,
        *,
        entries_added: int | None = None,
        max_deleted_id: IDLike | None = None,
    ) -> Pending[None]:
        """Set the last ID."""
        last = parse_id(last_id)
        arguments.check_count(entries_added, "entries_added")
        deleted = None if max_deleted_id is None else parse_id(max_deleted_id)
        return self._steps.do(
            lifecycle.set_id,
            name=self._name,
            last=last,
            entries_added=entries_added,
            max_deleted=deleted,
        )

    def group(self, name: str | bytes) -> TransactionGroup[T]:
        """A consumer group of the stream, inside this transaction."""
        encoding = self._steps.opened.encoding
        return TransactionGroup(self._steps, self._name, arguments.group_name(name, encoding))


class TransactionGroup(Generic[T]):
    """One group inside a transaction; the arguments are those of :class:`logstore.Group`.

    Acks and nacks here are by ID; ``tx.ack(delivery)`` and ``tx.nack(delivery)`` are fenced.
    """

    __slots__ = ("_name", "_steps", "_stream")

    def __init__(self, steps: Steps[T], stream: bytes, name: bytes) -> None:
        self._steps: Steps[T] = steps
        self._stream = stream
        self._name = name

    def _do(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        return self._steps.do(decide, stream=self._stream, group=self._name, **asked)

    def _free(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        return self._steps.free(decide, stream=self._stream, group=self._name, **asked)

    def _consumer(self, name: str | bytes) -> bytes:
        return arguments.consumer_name(name, self._steps.opened.encoding)

    def create(
        self, start: IDLike = "$", *, entries_read: int | None = None, make_stream: bool = True
    ) -> Pending[None]:
        """Make the group; GroupExistsError at the commit if there is one."""
        arguments.check_flag(make_stream, "make_stream")
        at = arguments.group_position(start)
        arguments.check_count(entries_read, "entries_read")
        return self._do(admin.create, start=at, entries_read=entries_read, make_stream=make_stream)

    def set_id(self, last_id: IDLike, *, entries_read: int | None = None) -> Pending[None]:
        """Deliver next what comes after ``last_id``."""
        at = arguments.group_position(last_id)
        arguments.check_count(entries_read, "entries_read")
        return self._do(admin.set_id, start=at, entries_read=entries_read)

    def destroy(self) -> Pending[bool]:
        """Remove the group; the result says whether there was one."""
        return self._free(admin.destroy)

    def add_consumer(self, consumer: str | bytes) -> Pending[bool]:
        """Make a consumer; the result: False if there was one."""
        return self._do(admin.create_consumer, name=self._consumer(consumer))

    def remove_consumer(self, consumer: str | bytes) -> Pending[int]:
        """Remove a consumer; the result: how many entries were pending with it."""
        return self._free(admin.delete_consumer, name=self._consumer(consumer))

    def ack(self, *ids: IDLike) -> Pending[int]:
        """Done, with whomever they are pending; the result counts them."""
        return self._free(ack.ack, ids=[parse_id(wanted) for wanted in ids])

    def nack(
        self,
        *ids: IDLike,
        mode: NackMode = "fail",
        retry_count: int | None = None,
        force: bool = False,
        delay: timedelta | float | None = None,
        error: str = "",
    ) -> Pending[int]:
        """Give back, with whomever they are pending; the result counts them."""
        arguments.check_choice(mode, NackMode, "mode")
        arguments.check_count(retry_count, "retry_count")
        arguments.check_flag(force, "force")
        given = [parse_id(wanted) for wanted in ids]
        reason = arguments.reason(error)
        options: dict[str, Any] = {"mode": mode, "retry_count": retry_count, "force": force}
        options["error"] = reason
        options["later"] = arguments.later(delay)
        return self._free(ack.nack, ids=given, **options)

    def ack_delete(
        self, *ids: IDLike, references: References = "keep"
    ) -> Pending[list[DeleteOutcome]]:
        """Done, and delete the entries; the result: an outcome for each ID."""
        arguments.check_choice(references, References, "references")
        given = [parse_id(wanted) for wanted in ids]
        return self._steps.take(
            partial(
                ack.ack_delete, stream=self._stream, group=self._name, ids=given, mode=references
            ),
            outcomes,
            frees=True,
        )

    def claim(
        self,
        consumer: str | bytes,
        ids: Iterable[IDLike],
        *,
        min_idle: timedelta | float,
        idle: timedelta | float | None = None,
        time: datetime | None = None,
        retry_count: int | None = None,
        force: bool = False,
        just_id: bool = False,
        last_id: IDLike | None = None,
    ) -> Pending[list[Delivery[T]]]:
        """Take these over; the result: those taken, as deliveries of the committed store."""
        who, stream, name = self._consumer(consumer), self._stream, self._name
        step = claim_step(
            stream,
            name,
            who,
            ids,
            min_idle=min_idle,
            idle=idle,
            time=time,
            retry_count=retry_count,
            force=force,
            just_id=just_id,
            last_id=last_id,
        )
        opened = self._steps.opened

        def made(given: list[Delivered]) -> list[Delivery[T]]:
            group = Stream(opened, stream).group(name)
            return deliveries_of(group, who, given)

        return self._steps.take(step, made)


def _add_chunk(
    txn: WriteTxn, expected: StreamID | None, *, request: add.Add, asked: Asked | None = None
) -> Added | list[StreamID] | None:
    """Some rows of ``add_many``, behind those that the steps before added."""
    request = request._replace(expected=expected)
    if asked is None:
        return add.add(txn, request)
    return idempotency.add(txn, request, asked)


def _first(added: Added | list[StreamID] | None) -> StreamID | None:
    """The ID of an add of one entry."""
    return added[0] if added else None
