"""Transactions: operations on any streams, collected first, committed as one.

Invariants: no lock is held while the caller's code runs; nothing is decided before ``with`` ends;
an exception in the block commits nothing; either all of it is in the log or none of it, also
across a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, overload

from logstore.api import arguments, producing, scheduling
from logstore.api.delivery import Delivery
from logstore.api.entry import DeleteOutcome, IDRuns, collect, outcomes
from logstore.api.group import claim_step
from logstore.api.group_admin import NackMode
from logstore.api.opening import OpenStore
from logstore.api.scheduling import ScheduleKey
from logstore.api.stream import Stream
from logstore.codec import Row
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import copy
from logstore.engine.features import expiry, schedule
from logstore.engine.features.expiry import Condition
from logstore.engine.groups import ack, admin
from logstore.engine.groups.deliver import Delivered
from logstore.engine.streams import add, delete, idempotency, lifecycle, trim
from logstore.engine.streams.add import Added
from logstore.errors import EntryTypeError, UsageError
from logstore.ids import IDLike, StreamID, parse_id
from logstore.options import References, Sync

T = TypeVar("T", bytes, str)
R = TypeVar("R")


BATCH_ROWS = 1000  # rows of one step of ``add_many``


class Pending(Generic[R]):
    """The outcome of an operation of a transaction; known once it was committed."""

    __slots__ = ("_done", "_made", "_value")

    def __init__(self, made: Callable[[Any], R] | None = None) -> None:
        self._done = False
        self._made = made
        self._value: Any = None

    def _settle(self, value: Any) -> None:
        self._value = value if self._made is None else self._made(value)
        self._done = True

    @property
    def result(self) -> R:
        """What the operation gave: an ID, a count. UsageError before the commit."""
        if not self._done:
            raise UsageError("known after the commit: leave the with block first")
        value: R = self._value
        return value

    @property
    def id(self) -> StreamID:
        """The ID that an add was given. UsageError before the commit."""
        result = self.result
        if not isinstance(result, StreamID):
            raise UsageError("this operation gives no ID")
        return result


class Transaction(Generic[T]):
    """Collects operations; made by ``store.transaction()``, used with ``with``.

    The arguments are those of :class:`logstore.Store`; errors that the store's state causes are
    raised by the commit.
    """

    def __init__(self, opened: OpenStore[T], sync: Sync | None) -> None:
        self._opened: OpenStore[T] = opened
        self._sync: Sync | None = sync
        self._steps: list[tuple[Callable[[WriteTxn], Any], Pending[Any]]] = []
        self._frees = True  # every step so far gives space back
        self._settled: list[Delivery[T]] = []
        self._over = False

    def __enter__(self) -> Transaction[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if kind is None and not self._over:
            self.commit()
        self._over = True

    def stream(self, name: str | bytes) -> TransactionStream[T]:
        """A stream, inside this transaction."""
        return TransactionStream(self, self._stream_name(name))

    def create(self, name: str | bytes) -> Pending[bool]:
        """Make an empty stream; the result: False if there is one already."""
        return self._do(lifecycle.create_empty, name=self._stream_name(name))

    def drop(self, name: str | bytes) -> Pending[bool]:
        """Remove a stream; the result says whether there was one."""
        return self._free(lifecycle.drop, name=self._stream_name(name))

    def rename(self, old: str | bytes, new: str | bytes, *, replace: bool = True) -> Pending[bool]:
        """Call a stream otherwise, as ``Store.rename``; StreamNotFoundError at the commit."""
        arguments.check_flag(replace, "replace")
        old, new = map(self._stream_name, (old, new))
        return self._do(lifecycle.rename, old=old, new=new, replace=replace)

    def copy(
        self, source: str | bytes, target: str | bytes, *, replace: bool = False
    ) -> Pending[bool]:
        """Copy a stream as it is then, as ``Store.copy``; its errors come at the commit."""
        arguments.check_flag(replace, "replace")
        source, target = map(self._stream_name, (source, target))
        return self._do(copy.copy, source=source, target=target, replace=replace)

    def ack(self, *deliveries: Delivery[T]) -> Pending[int]:
        """Ack deliveries, if they are still this consumer's when the transaction commits.

        If another consumer claimed or acked one meanwhile, or it was delivered once more, the
        commit raises NotOwner and nothing of the transaction happens.

        Args:
            deliveries: what groups of this store handed out.

        Returns:
            The result counts them.

        Raises:
            EntryTypeError: something else was given, such as an ID.
            UsageError: one is of another store, or the transaction is over.
        """
        fences = self._fences(deliveries)

        def step(txn: WriteTxn) -> int:
            for fence in fences:
                ack.fenced_ack(txn, **fence)
            return len(fences)

        self._settled += deliveries
        return self._collect(step, frees=True)

    def nack(
        self, *deliveries: Delivery[T], mode: NackMode = "fail", retry_count: int | None = None,
        error: str = "",
    ) -> Pending[int]:  # fmt: skip
        """Give deliveries back to their groups, fenced as ``ack`` is; the result counts them.

        The options are those of ``Group.nack``.
        """
        arguments.check_choice(mode, NackMode, "mode")
        arguments.check_count(retry_count, "retry_count")
        fences, reason = self._fences(deliveries), arguments.reason(error)

        def step(txn: WriteTxn) -> int:
            for fence in fences:
                ack.fenced_nack(txn, **fence, mode=mode, retry_count=retry_count, error=reason)
            return len(fences)

        self._settled += deliveries
        return self._collect(step, frees=True)

    def commit(self) -> None:
        """Commit now; the transaction is over then. NotOwner: see ``ack``."""
        self._open()
        self._over = True
        if not self._steps:
            return
        steps = self._steps

        def run(txn: WriteTxn) -> list[Any]:
            return [step(txn) for step, _ in steps]

        done = self._opened.commit_telling(run, self._sync, frees=self._frees)
        for (_, pending), value in zip(steps, done, strict=True):
            pending._settle(value)
        for delivery in self._settled:
            delivery._settled = True

    def _stream_name(self, name: str | bytes) -> bytes:
        return arguments.stream_name(name, self._opened.encoding)

    def _fences(self, deliveries: tuple[Delivery[T], ...]) -> list[Any]:
        self._open()
        for delivery in deliveries:
            if not isinstance(delivery, Delivery):
                raise EntryTypeError(
                    f"give what a group handed out (a Delivery), not {type(delivery).__name__}; by "
                    "ID: tx.stream(name).group(name).ack(id)"
                )
            if delivery.group._opened.path != self._opened.path:
                raise UsageError(
                    "the delivery is of another store: settle it in a transaction there"
                )
        return [delivery._fence() for delivery in deliveries]

    def _open(self) -> None:
        if self._over:
            raise UsageError("the transaction is over: begin a new one")

    def _do(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        """Take a step that a function of the engine decides, with these arguments."""
        return self._collect(partial(decide, **asked))

    def _free(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        """Take a step, likewise, that gives space back."""
        return self._collect(partial(decide, **asked), frees=True)

    def _collect(
        self, step: Callable[[WriteTxn], Any], made: Callable[[Any], R] | None = None, *,
        frees: bool = False,
    ) -> Pending[R]:  # fmt: skip
        """Take a step; ``made`` makes the result of what it gives, after the commit."""
        self._open()
        pending: Pending[R] = Pending(made)
        self._steps.append((step, pending))
        self._frees = self._frees and frees
        return pending


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
        encoding = self._tx._opened.encoding
        batch, request = arguments.one_add(
            self._name, fields, id, encoding, maxlen=maxlen, minid=minid, approximate=approximate,
            limit=limit, references=references, create=create,
        )  # fmt: skip
        step: Callable[[WriteTxn], Any] = partial(add.add, request=request)
        if producer is not None or idempotent_id is not None:
            asked = producing.asked(batch, id, producer, idempotent_id, encoding)
            step = partial(idempotency.add, request=request, asked=asked)
        return self._tx._collect(step, _first)

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
        name, encoding = self._name, self._tx._opened.encoding
        steps: list[Callable[[WriteTxn], Any]] = []
        if producer is None:
            for ids, chunk in arguments.batches(rows, BATCH_ROWS, encoding):
                request = add.Add(name, chunk, 0, len(chunk), ids, create, rule)
                steps.append(partial(add.add, request=request))
        else:
            for asked, chunk in producing.batches(rows, BATCH_ROWS, producer, encoding):
                request = add.Add(name, chunk, 0, len(chunk), add.AUTO, create, rule)
                steps.append(partial(idempotency.add, request=request, asked=asked))

        def run(txn: WriteTxn) -> IDRuns:
            given = IDRuns()
            for step in steps:
                collect(given, step(txn))
            return given

        return self._tx._collect(run)

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
        when = scheduling.when(at, after, self._tx._opened.engine().clock)
        kept = scheduling.fields(fields, self._tx._opened.encoding)
        step = partial(schedule.schedule, name=self._name, fields=kept, when=when, create=create)
        return self._tx._collect(step, scheduling.typed_key)

    def cancel(self, key: ScheduleKey | str) -> Pending[bool]:
        """Schedule an entry no longer; the result says whether it was scheduled."""
        return self._tx._free(schedule.cancel, name=self._name, key=scheduling.key(key))

    def expire(
        self, *, after: timedelta | float | None = None, at: datetime | int | None = None,
        only: Condition | None = None,
    ) -> Pending[bool]:  # fmt: skip
        """Let the stream expire, as ``Stream.expire``; ``after`` counts from the commit."""
        clock = self._tx._opened.engine().clock
        return self._tx._collect(scheduling.expiry(self._name, at, after, only, clock), frees=True)

    def persist(self) -> Pending[bool]:
        """Let the stream expire no longer; the result: False if it never would."""
        return self._tx._free(expiry.persist, name=self._name)

    def delete(
        self, id: IDLike, *more_ids: IDLike, references: References = "keep"
    ) -> Pending[int]:
        """Delete entries by ID; the result counts them."""
        ids = [parse_id(wanted) for wanted in (id, *more_ids)]
        arguments.check_choice(references, References, "references")
        return self._tx._free(delete.delete, name=self._name, ids=ids, mode=references)

    def delete_each(
        self, *ids: IDLike, references: References = "keep"
    ) -> Pending[list[DeleteOutcome]]:
        """Delete entries by ID; the result: an outcome for each."""
        arguments.check_choice(references, References, "references")
        given = [parse_id(wanted) for wanted in ids]
        return self._tx._collect(
            partial(delete.delete_ids, stream=self._name, ids=given, mode=references), outcomes,
            frees=True,
        )  # fmt: skip

    def delete_range(self, start: IDLike, end: IDLike) -> Pending[int]:
        """Delete an interval; the result counts the entries."""
        low, high = arguments.interval(start, end)
        return self._tx._free(delete.delete_range, name=self._name, start=low, end=high)

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
        return self._tx._free(trim.trim_named, name=self._name, rule=rule)

    def set_id(
        self, last_id: IDLike, *, entries_added: int | None = None,
        max_deleted_id: IDLike | None = None,
    ) -> Pending[None]:  # fmt: skip
        """Set the last ID."""
        last = parse_id(last_id)
        arguments.check_count(entries_added, "entries_added")
        deleted = None if max_deleted_id is None else parse_id(max_deleted_id)
        return self._tx._do(
            lifecycle.set_id,
            name=self._name,
            last=last,
            entries_added=entries_added,
            max_deleted=deleted,
        )

    def group(self, name: str | bytes) -> TransactionGroup[T]:
        """A consumer group of the stream, inside this transaction."""
        encoding = self._tx._opened.encoding
        return TransactionGroup(self._tx, self._name, arguments.group_name(name, encoding))


class TransactionGroup(Generic[T]):
    """One group inside a transaction; the arguments are those of :class:`logstore.Group`.

    Acks and nacks here are by ID; ``tx.ack(delivery)`` and ``tx.nack(delivery)`` are fenced.
    """

    __slots__ = ("_name", "_stream", "_tx")

    def __init__(self, tx: Transaction[T], stream: bytes, name: bytes) -> None:
        self._tx: Transaction[T] = tx
        self._stream = stream
        self._name = name

    def _do(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        return self._tx._do(decide, stream=self._stream, group=self._name, **asked)

    def _free(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        return self._tx._free(decide, stream=self._stream, group=self._name, **asked)

    def _consumer(self, name: str | bytes) -> bytes:
        return arguments.consumer_name(name, self._tx._opened.encoding)

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
        self, *ids: IDLike, mode: NackMode = "fail", retry_count: int | None = None,
        force: bool = False, error: str = "",
    ) -> Pending[int]:  # fmt: skip
        """Give back, with whomever they are pending; the result counts them."""
        arguments.check_choice(mode, NackMode, "mode")
        arguments.check_count(retry_count, "retry_count")
        arguments.check_flag(force, "force")
        given = [parse_id(wanted) for wanted in ids]
        reason = arguments.reason(error)
        options = {"mode": mode, "retry_count": retry_count, "force": force, "error": reason}
        return self._free(ack.nack, ids=given, **options)

    def ack_delete(
        self, *ids: IDLike, references: References = "keep"
    ) -> Pending[list[DeleteOutcome]]:
        """Done, and delete the entries; the result: an outcome for each ID."""
        arguments.check_choice(references, References, "references")
        given = [parse_id(wanted) for wanted in ids]
        return self._tx._collect(
            partial(
                ack.ack_delete, stream=self._stream, group=self._name, ids=given, mode=references
            ),
            outcomes, frees=True,
        )  # fmt: skip

    def claim(
        self, consumer: str | bytes, ids: Iterable[IDLike], *, min_idle: timedelta | float,
        idle: timedelta | float | None = None, time: datetime | None = None,
        retry_count: int | None = None, force: bool = False, just_id: bool = False,
        last_id: IDLike | None = None,
    ) -> Pending[list[Delivery[T]]]:  # fmt: skip
        """Take these over; the result: those taken, as deliveries of the committed store."""
        who, stream, name = self._consumer(consumer), self._stream, self._name
        step = claim_step(
            stream, name, who, ids, min_idle=min_idle, idle=idle, time=time,
            retry_count=retry_count, force=force, just_id=just_id, last_id=last_id,
        )  # fmt: skip
        opened = self._tx._opened

        def made(given: list[Delivered]) -> list[Delivery[T]]:
            group = Stream(opened, stream).group(name)
            return [Delivery(group, who, delivery) for delivery in given]

        return self._tx._collect(step, made)


def _first(added: Added | list[StreamID] | None) -> StreamID | None:
    """The ID of an add of one entry."""
    return added[0] if added else None
