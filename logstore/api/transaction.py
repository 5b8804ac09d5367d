"""Transactions: operations on any streams, collected first, committed as one.

Invariants: no lock is held while the caller's code runs. Nothing is decided before ``with`` ends;
an exception in the block commits nothing. All of it is in the log or none, also across a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial, wraps
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from logstore.api import arguments, scheduling
from logstore.api.arguments import AddOptions, RowOptions
from logstore.api.entry import IDRuns, collect
from logstore.api.group import ClaimOptions, Delivery, Group, claim_step, deliveries_of, reading_of
from logstore.api.opening import OpenStore
from logstore.api.scheduling import ScheduleKey, ScheduleOptions
from logstore.api.stream import Stream
from logstore.codec import Row
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Op
from logstore.engine.features import setting_changes
from logstore.engine.groups import ack
from logstore.engine.groups.deliver import Delivered
from logstore.engine.streams import add, lifecycle
from logstore.engine.streams.add import Added
from logstore.errors import DiskFullError, EntryTypeError, Error, OptionError, UsageError
from logstore.ids import IDLike, StreamID
from logstore.options import SYNC_RANK, Length, NackMode, Sync, check_sync

if TYPE_CHECKING:
    from logstore.api.values import TypedValues, ValueCodec, Values
    from logstore.engine.lane.native import Options

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T", bytes, str)


class Pending(Generic[R]):
    """The outcome of an operation of a transaction; known once it was committed."""

    __slots__ = ("_done", "_made", "_value")

    def __init__(self, made: Callable[[Any], R] | None = None) -> None:
        self._done = False
        self._made = made
        self._value: Any = None

    def settle(self, value: Any) -> None:
        """Set the outcome, once it counts."""
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


class Steps(Generic[T]):
    """The steps of one transaction."""

    def __init__(self, opened: OpenStore[T], sync: Sync | None) -> None:
        self.opened: OpenStore[T] = opened
        self.over = False
        self._sync: Sync | None = sync
        self._taken: list[tuple[Callable[[WriteTxn], Any], Pending[Any]]] = []
        # Plain adds and acks, of which there are none once another step was taken: the name of the
        # stream, then an entry and its options, or the rest of an ``ack.Fence``.
        self._entries: list[tuple[bytes, dict[Any, Any] | tuple[Any, ...], Options | None]] = []
        self._added: list[Pending[Any]] = []
        self._frees = True  # every step so far gives space back
        self._streams: dict[bytes, Stream[T]] = {}  # by name, for their schemas

    def typed(self, name: bytes) -> TypedValues | None:
        """How values of a stream are written by the schema that it has now; None: it has none. A
        schema that it has by the commit writes them there."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = Stream(self.opened, name)
        with suppress(Error):  # what cannot be looked up now, the commit says better
            return stream._by_schema
        return None

    def check_open(self) -> None:
        """UsageError if the transaction is over."""
        if self.over:
            raise UsageError("the transaction is over: begin a new one")

    def ask_for(self, sync: Sync | None) -> None:
        """Have the commit keep this promise, unless it keeps a stronger one. OptionError."""
        if sync is not None:
            check_sync(sync)
            if self._sync is None or SYNC_RANK[sync] > SYNC_RANK[self._sync]:
                self._sync = sync

    def do(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        """Take a step that a function of the engine decides, with these arguments."""
        return self.take(partial(decide, **asked))

    def free(self, decide: Callable[..., Any], **asked: Any) -> Pending[Any]:
        """Take a step, likewise, that gives space back."""
        return self.take(partial(decide, **asked), frees=True)

    def take(
        self,
        step: Callable[[WriteTxn], Any],
        made: Callable[[Any], R] | None = None,
        *,
        frees: bool = False,
        sync: Sync | None = None,
    ) -> Pending[R]:
        """Take a step; ``made`` makes the result of what it gives, after the commit. ``sync`` asks
        for more than the steps before did."""
        self.check_open()
        self.ask_for(sync)
        if self._added:
            self._through_pipeline()
        pending: Pending[R] = Pending(made)
        self._taken.append((step, pending))
        self._frees = self._frees and frees
        return pending

    def add_plain(
        self, name: bytes, fields: object, options: Options | None = None
    ) -> Pending[StreamID] | None:
        """Take an add, if it is plain; None: nothing was taken, ``take`` it. ``options`` as
        ``OpenStore.add_plain`` has them."""
        self.check_open()
        if self._taken or (entry := self.opened.plain_entry(fields, options)) is None:
            return None
        pending: Pending[StreamID] = Pending()
        self._entries.append((name, entry, options))
        self._added.append(pending)
        return pending

    def acks(self, fences: list[tuple[bytes, tuple[Any, ...]]]) -> Pending[int]:
        """Take the acks of deliveries, each by its stream and the rest of its ``ack.Fence``; the
        outcome counts them."""
        self.check_open()
        if len(fences) != 1:
            pending: Pending[int] = Pending(partial(_count_of, len(fences)))
        else:
            pending = Pending()
        if self._taken or not fences:
            if self._added:
                self._through_pipeline()
            return self._take_acks(fences, pending)
        for stream, fence in fences:
            self._entries.append((stream, fence, None))
            self._added.append(pending)
        return pending

    def _take_acks(
        self, fences: list[tuple[bytes, tuple[Any, ...]]], pending: Pending[int]
    ) -> Pending[int]:
        for stream, fence in fences:
            self._taken.append((partial(_acked, stream=stream, fence=fence), pending))
        if not fences:
            self._taken.append((_nothing, pending))
        return pending

    def _through_pipeline(self) -> None:
        """Plain adds and acks become steps like others."""
        encoding = self.opened.encoding
        for (name, entry, options), pending in zip(self._entries, self._added, strict=True):
            if isinstance(entry, tuple):
                self._take_acks([(name, entry)], pending)
                continue
            request = _asked(name, entry, encoding, options)
            self._taken.append((partial(add.add_first, request=request), pending))
            self._frees = False
        self._entries, self._added = [], []

    def _beside_pipeline(self) -> bool:
        """Commit plain adds and acks in the lane; False: nothing has happened."""
        try:
            done = self.opened.add_all_plain(self._entries)
        except DiskFullError:  # nothing happened: the pipeline has space set aside for acks
            return False
        if not done:
            return False
        for pending, value in zip(self._added, done, strict=True):
            pending.settle(value)
        return True

    def commit(self) -> bool:
        """Commit all steps, and set their outcomes; False if there are none."""
        self.check_open()
        self.over = True
        if self._added:
            if self._sync is None and self._beside_pipeline():
                return True
            self._through_pipeline()
        taken = self._taken
        if not taken:
            return False

        def run(txn: WriteTxn) -> list[Any]:
            return [step(txn) for step, _ in taken]

        done = self.opened.commit_telling(run, self._sync, frees=self._frees)
        for (_, pending), value in zip(taken, done, strict=True):
            pending.settle(value)
        return True


class Recording(Generic[T]):
    """What a stream and a group have in place of their store inside a transaction: what they would
    commit becomes a step, and what they give is its outcome."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps: Steps[T] = steps
        self.encoding = steps.opened.encoding
        self.engine = steps.opened.engine

    def commit(self, op: Op, sync: Sync | None = None) -> Any:
        """Take a step."""
        return self._steps.take(op, sync=sync)

    def free(
        self, op: Op, sync: Sync | None = None, *, made: Callable[[Any], Any] | None = None
    ) -> Any:
        """Take a step that gives space back."""
        return self._steps.take(op, made, frees=True, sync=sync)

    def hand_on(self, step: Op, sync: Sync | None = None, *, frees: bool = False) -> Any:
        """Take a step that gives back or hands on what is pending."""
        return self._steps.take(step, frees=frees, sync=sync)

    def ack_plain(self, *_: object) -> None:
        """Nothing is committed at once."""

    def delete_plain(self, *_: object) -> None:
        """Nothing is committed at once."""


def _acked(txn: WriteTxn, stream: bytes, fence: tuple[Any, ...]) -> int:
    ack.fenced_ack(txn, ack.Fence(stream, *fence))
    return 1


def _nothing(_: WriteTxn) -> int:
    return 0


def _count_of(count: int, _: object) -> int:
    return count


def _asked(
    name: bytes, entry: dict[Any, Any], encoding: str | None, options: Options | None
) -> add.Add:
    """What the engine is asked for by a plain add. Whether the stream has a schema is not looked
    up, which would take as long as the commit: that finds out, and writes the row by it."""
    ids: add.AutoID | StreamID = add.AUTO
    rule = None
    if options is not None:
        id, max_entries, min_id, approximate, limit, _ = options
        ids = arguments.add_id(id)
        rule = arguments.Trimming(max_entries, min_id, approximate, limit, "keep").rule()
    batch = arguments.rows([entry], encoding)
    return add.Add(name, batch, 0, 1, ids, True, rule, given=entry)


BATCH_ROWS = 1000  # rows of one step of ``add_many``


class Taken(Generic[P, R_co]):
    """The type of a call that becomes a step, as type checkers see it."""

    def __get__(self, instance: object, owner: object) -> Callable[P, Pending[R_co]]:
        raise NotImplementedError


def of_stream(call: Callable[Concatenate[Stream[T], P], R]) -> Taken[P, R]:
    """A call of ``Stream``, taken as a step."""
    return _taken(call)


def of_group(call: Callable[Concatenate[Group[T], P], R]) -> Taken[P, R]:
    """A call of ``Group``, taken as a step."""
    return _taken(call)


def _taken(call: Callable[..., R]) -> Taken[Any, R]:
    @wraps(call)
    def taken(self: Any, *args: Any, **named: Any) -> Any:
        if named.get("purge", False) is not False:
            raise OptionError(
                "purge= is no step of a transaction: after its commit, erase what it deleted with "
                "store.compact(purge=True)"
            )
        return call(self._plain, *args, **named)

    return cast(Any, taken)  # type: ignore[no-any-return]


class TransactionStream(Generic[T]):
    """One stream inside a transaction; the arguments are those of :class:`logstore.Stream`."""

    __slots__ = ("_name", "_steps", "_values")

    def __init__(self, steps: Steps[T], name: bytes) -> None:
        self._steps: Steps[T] = steps
        self._name = name
        self._values: Values | None = None  # of a stream with a codec

    @property
    def _plain(self) -> Stream[T]:
        """The stream, whose calls become steps."""
        return Stream(cast(Any, Recording(self._steps)), self._name)

    def _writing(self) -> Values | TypedValues | None:
        """How values are written: by a codec, or the stream's schema."""
        return self._steps.typed(self._name) if self._values is None else self._values

    def _keep(self, *, create: bool) -> None:
        """Have the codec kept with the stream, before what was encoded with it is added."""
        if self._values is not None:
            codec = self._values.codec.name
            self._steps.take(
                partial(setting_changes.keep_codec, name=self._name, codec=codec, create=create)
            )

    @overload
    def add(
        self,
        fields: Row,
        id: IDLike = "*",
        *,
        create: Literal[True] = True,
        **options: Unpack[AddOptions],
    ) -> Pending[StreamID]: ...
    @overload
    def add(
        self, fields: Row, id: IDLike = "*", *, create: bool, **options: Unpack[AddOptions]
    ) -> Pending[StreamID | None]: ...
    def add(
        self, fields: Row, id: IDLike = "*", *, create: bool = True, **options: Unpack[AddOptions]
    ) -> Pending[Any]:
        """Add an entry; ``.id`` is set by the commit.

        ``expected_last_id`` is the last ID as the steps before this one leave it.
        """
        asked = create is True and arguments.lane_options(id, options, create)
        if asked is not False and self._values is None:
            bare = None if asked is True else asked
            plain = self._steps.add_plain(self._name, fields, bare)
            if plain is not None:
                return plain
        encoding, values = self._steps.opened.encoding, self._writing()
        step, _ = arguments.one(self._name, fields, id, encoding, create, options, values)
        self._steps.ask_for(options.get("sync"))
        self._keep(create=create)
        return self._steps.take(step, _first)

    def add_many(
        self,
        rows: Iterable[Row | tuple[IDLike, Row]],
        *,
        create: bool = True,
        **options: Unpack[RowOptions],
    ) -> Pending[IDRuns]:
        """Add rows, which are all taken at the call and kept in memory; the result: their IDs."""
        arguments.check_names(options, RowOptions, "add_many")
        encoding, values = self._steps.opened.encoding, self._writing()
        schema_at = 0 if values is None else values.schema_at
        terms = arguments.terms(create, options)._replace(schema_at=schema_at)
        made = partial(arguments.rows, encoding=encoding) if values is None else values.batch
        steps = list(arguments.steps(self._name, rows, BATCH_ROWS, made, encoding, options))

        def run(txn: WriteTxn) -> IDRuns:
            given, on = IDRuns(), terms
            for step in steps:
                added = step(on)(txn)
                collect(given, added)
                on = on.behind(added)
            return given

        self._steps.ask_for(options.get("sync"))
        self._keep(create=create)
        return self._steps.take(run)

    @overload
    def schedule(
        self, fields: Row, *, create: Literal[True] = True, **options: Unpack[ScheduleOptions]
    ) -> Pending[ScheduleKey]: ...
    @overload
    def schedule(
        self, fields: Row, *, create: bool, **options: Unpack[ScheduleOptions]
    ) -> Pending[ScheduleKey | None]: ...
    def schedule(
        self, fields: Row, *, create: bool = True, **options: Unpack[ScheduleOptions]
    ) -> Pending[Any]:
        """Keep an entry until its time; ``after`` counts from the commit. The result: its key."""
        values = self._writing()
        row = fields if values is None else values.row(fields)
        step = scheduling.step(self._name, row, self._steps.opened, create, options)
        self._steps.ask_for(options.get("sync"))
        self._keep(create=create)
        return self._steps.take(step, scheduling.typed_key)

    cancel = of_stream(Stream[T].cancel)
    expire = of_stream(Stream[T].expire)
    persist = of_stream(Stream[T].persist)
    delete = of_stream(Stream[T].delete)
    delete_each = of_stream(Stream[T].delete_each)
    delete_range = of_stream(Stream[T].delete_range)
    trim = of_stream(Stream[T].trim)
    set_id = of_stream(Stream[T].set_id)

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

    @property
    def _plain(self) -> Group[T]:
        """The group, whose calls become steps."""
        return Group(Stream(cast(Any, Recording(self._steps)), self._stream), self._name)

    create = of_group(Group[T].create)
    set_id = of_group(Group[T].set_id)
    destroy = of_group(Group[T].destroy)
    add_consumer = of_group(Group[T].add_consumer)
    remove_consumer = of_group(Group[T].remove_consumer)
    ack = of_group(Group[T].ack)
    nack = of_group(Group[T].nack)
    ack_delete = of_group(Group[T].ack_delete)

    def claim(
        self,
        consumer: str | bytes,
        *ids: IDLike,
        min_idle: Length,
        sync: Sync | None = None,
        **options: Unpack[ClaimOptions],
    ) -> Pending[list[Delivery[T]]]:
        """Take these over; the result: those taken, as deliveries of the committed store."""
        who = arguments.consumer_name(consumer, self._steps.opened.encoding)
        stream, name = self._stream, self._name
        step = claim_step(stream, name, who, ids, min_idle, options)
        group = Stream(self._steps.opened, stream).group(name)
        values = reading_of(group)

        def made(given: list[Delivered]) -> list[Delivery[T]]:
            return deliveries_of(group, who, values, given)

        return self._steps.take(step, made, sync=sync)


def _first(added: Added | list[StreamID] | None) -> StreamID | None:
    """The ID of an add of one entry."""
    return added[0] if added else None


class Transaction(Generic[T]):
    """Collects operations; made by ``store.transaction()``, used with ``with``.

    The arguments are those of :class:`logstore.Store`; errors that the store's state causes are
    raised by the commit.
    """

    def __init__(self, opened: OpenStore[T], sync: Sync | None) -> None:
        self._opened: OpenStore[T] = opened
        self._steps: Steps[T] = Steps(opened, sync)
        self._settled: list[Delivery[T]] = []

    def __enter__(self) -> Transaction[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and not self._steps.over:
            self.commit()
        self._steps.over = True

    def stream(
        self, name: str | bytes, *, codec: str | ValueCodec | None = None
    ) -> TransactionStream[T]:
        """A stream, inside this transaction; ``codec`` as in ``Store.stream``."""
        stream = TransactionStream(self._steps, self._stream_name(name))
        if codec is not None:
            from logstore.api import values

            stream._values = values.Values(values.value_codec(codec), self._opened.encoding)
        return stream

    def create(self, name: str | bytes) -> Pending[bool]:
        """Make an empty stream; the result: False if there is one already."""
        return self._steps.do(lifecycle.create_empty, name=self._stream_name(name))

    def drop(self, name: str | bytes) -> Pending[bool]:
        """Remove a stream; the result says whether there was one."""
        return self._steps.free(lifecycle.drop, name=self._stream_name(name))

    def rename(self, old: str | bytes, new: str | bytes, *, replace: bool = True) -> Pending[bool]:
        """Call a stream otherwise, as ``Store.rename``; StreamNotFoundError at the commit."""
        arguments.check_flag(replace, "replace")
        old, new = map(self._stream_name, (old, new))
        return self._steps.do(lifecycle.rename, old=old, new=new, replace=replace)

    def copy(
        self, source: str | bytes, target: str | bytes, *, replace: bool = False
    ) -> Pending[bool]:
        """Copy a stream as it is then, as ``Store.copy``; its errors come at the commit."""
        from logstore.engine.dump import copy

        arguments.check_flag(replace, "replace")
        source, target = map(self._stream_name, (source, target))
        return self._steps.do(copy.copy, source=source, target=target, replace=replace)

    def ack(self, *deliveries: Delivery[T]) -> Pending[int]:
        """Ack deliveries, if they are still this consumer's when the transaction commits.

        If another consumer claimed or acked one meanwhile, or it was delivered once more, the
        commit raises NotOwnerError and nothing of the transaction happens.

        Args:
            deliveries: what groups of this store handed out.

        Returns:
            The result counts them.

        Raises:
            EntryTypeError: something else was given, such as an ID.
            UsageError: one is of another store, or the transaction is over.
        """
        self._check(deliveries)
        self._settled += deliveries
        return self._steps.acks([delivery._fenced() for delivery in deliveries])

    def nack(
        self,
        *deliveries: Delivery[T],
        mode: NackMode = "fail",
        retry_count: int | None = None,
        delay: Length | None = None,
        error: str = "",
    ) -> Pending[int]:
        """Give deliveries back to their groups, fenced as ``ack`` is; the result counts them.

        The options are those of ``Group.nack``.
        """
        arguments.check_choice(mode, NackMode, "mode")
        arguments.check_count(retry_count, "retry_count")
        self._check(deliveries)
        fences, reason = [each._fence() for each in deliveries], arguments.reason(error)
        how: dict[str, Any] = {"mode": mode, "retry_count": retry_count}
        how["later"] = arguments.later(delay)

        def step(txn: WriteTxn) -> int:
            for fence in fences:
                ack.fenced_nack(txn, fence, **how, error=reason)
            return len(fences)

        self._settled += deliveries
        return self._steps.take(step, frees=True)

    def commit(self) -> None:
        """Commit now; the transaction is over then. NotOwnerError: see ``ack``."""
        if self._steps.commit():
            for delivery in self._settled:
                delivery._settled = True

    def _stream_name(self, name: str | bytes) -> bytes:
        return arguments.stream_name(name, self._opened.encoding)

    def _check(self, deliveries: tuple[Delivery[T], ...]) -> None:
        self._steps.check_open()
        for delivery in deliveries:
            if not isinstance(delivery, Delivery):
                raise EntryTypeError(
                    f"give what a group handed out (a Delivery), not {type(delivery).__name__}; by "
                    "ID: tx.stream(name).group(name).ack(id)"
                )
            opened = delivery.group._opened
            if opened is not self._opened and opened.path != self._opened.path:
                raise UsageError(
                    "the delivery is of another store: settle it in a transaction there"
                )
