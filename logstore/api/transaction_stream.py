"""Streams and groups inside a transaction: the same operations, taken as steps of one commit.

Invariants: arguments are checked at the call; what the store's state refuses is raised by the
commit. Reads nothing and commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial, wraps
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

from logstore.api import adding, arguments, scheduling
from logstore.api.adding import AddOptions, RowOptions
from logstore.api.entry import IDRuns, collect
from logstore.api.group import Delivery, Group, claim_step, deliveries_of
from logstore.api.scheduling import ScheduleKey, ScheduleOptions
from logstore.api.stream import Stream
from logstore.api.transaction_steps import Pending, Recording, Steps
from logstore.codec import Row
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.features import settings
from logstore.engine.groups.deliver import Delivered
from logstore.engine.streams.add import Added
from logstore.ids import IDLike, StreamID

if TYPE_CHECKING:
    from logstore.api.values import Values

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T", bytes, str)
BATCH_ROWS = 1000  # rows of one step of ``add_many``


class Taken(Generic[P, R_co]):
    """The type of a call that becomes a step, as its face shows it."""

    def __get__(self, face: object, of: object) -> Callable[P, Pending[R_co]]:
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
        asked = create is True and adding.lane_options(id, options, create)
        if asked is not False and self._values is None:
            bare = None if asked is True else asked
            plain = self._steps.add_plain(self._name, fields, bare)
            if plain is not None:
                return plain
        encoding = self._steps.opened.encoding
        row = self._coded(fields)
        step, _ = adding.one(self._name, row, id, encoding, create, options)
        self._keep(create=create)
        return self._steps.take(step, _first, sync=options.get("sync"))

    def add_many(
        self,
        rows: Iterable[Row | tuple[IDLike, Row]],
        *,
        create: bool = True,
        **options: Unpack[RowOptions],
    ) -> Pending[IDRuns]:
        """Add rows, which are all taken at the call and kept in memory; the result: their IDs."""
        arguments.check_names(options, RowOptions, "add_many")
        terms = adding.terms(create, options)
        encoding, values = self._steps.opened.encoding, self._values
        made = partial(arguments.rows, encoding=encoding) if values is None else values.batch
        steps = list(adding.steps(self._name, rows, BATCH_ROWS, made, encoding, options))

        def run(txn: WriteTxn) -> IDRuns:
            given, on = IDRuns(), terms
            for step in steps:
                added = step(on)(txn)
                collect(given, added)
                on = on.behind(added)
            return given

        self._keep(create=create)
        return self._steps.take(run, sync=options.get("sync"))

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
        row = self._coded(fields)
        step = scheduling.step(self._name, row, self._steps.opened, create, options)
        self._keep(create=create)
        return self._steps.take(step, scheduling.typed_key, sync=options.get("sync"))

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
        who = arguments.consumer_name(consumer, self._steps.opened.encoding)
        stream, name = self._stream, self._name
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


def _first(added: Added | list[StreamID] | None) -> StreamID | None:
    """The ID of an add of one entry."""
    return added[0] if added else None
