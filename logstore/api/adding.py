"""What an add is asked for: its options, checked once, and rows as requests, batch by batch.

Invariants: everything is refused here, before a lock is taken. The names of the options stand in
``RowOptions`` and ``AddOptions`` alone; ``Stream.add`` says what each is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict

from logstore.api import arguments
from logstore.codec import GivenIDs, Row, RowBatch
from logstore.engine.streams import add
from logstore.engine.streams.add import Add, AutoID
from logstore.engine.streams.trim import TrimRule
from logstore.ids import IDLike, StreamID, parse_id
from logstore.options import References, Sync
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.engine.lane.native import Options
    from logstore.engine.streams.idempotency import Asked

# What adds rows under the lock, as ``OpenStore.commit`` takes it.
Step = Callable[[Any], Any]


class RowOptions(TypedDict, total=False):
    """Options of whatever adds rows, as ``Stream.add`` describes them."""

    maxlen: int | None
    minid: IDLike | None
    approximate: bool
    limit: int | None
    references: References
    producer: str | bytes | None
    expected_last_id: IDLike | None
    ttl: timedelta | float | None
    sync: Sync | None


class AddOptions(RowOptions, total=False):
    """Options of an add of one entry, as ``Stream.add`` describes them."""

    idempotent_id: str | bytes | None


_TRIMMING: Final = frozenset({"maxlen", "minid", "approximate", "limit"})
_TOLD: Final = _TRIMMING | {"references"}


class Terms(NamedTuple):
    """What rows are added on: the options that the engine decides by, checked."""

    create: bool
    rule: TrimRule | None
    expected: StreamID | None
    ttl_ms: int | None

    def request(
        self,
        name: bytes,
        batch: RowBatch,
        ids: AutoID | StreamID | GivenIDs = add.AUTO,
    ) -> Add:
        """What the engine is asked for: to add all rows of a batch to a stream."""
        return Add(name, batch, 0, len(batch), ids, *self)

    def behind(self, added: Any) -> Terms:
        """The terms of the next batch of one call."""
        return self._replace(expected=add.expected_next(self.expected, added))


def lane_options(id: IDLike, options: AddOptions, create: Any) -> Options | bool:
    """What the lane is asked for; True: nothing beside the fields, False: more than it does."""
    if type(create) is not bool:
        return False
    if not options:
        return (id is arguments.ANY_ID and create) or (id, None, None, True, None, create)
    if not options.keys() <= _TRIMMING and not _are_usual(options):
        return False
    maxlen, minid = options.get("maxlen"), options.get("minid")
    return id, maxlen, minid, options.get("approximate", True), options.get("limit"), create


def _are_usual(options: AddOptions) -> bool:
    """Whether what the lane does not know was given as it is if it is left out."""
    arguments.check_names(options, AddOptions, "add")
    return options.get("references", "keep") == "keep" and all(
        value is None for name, value in options.items() if name not in _TOLD
    )


def terms(create: bool, options: RowOptions) -> Terms:
    """The terms of these options. OptionError, InvalidIDError."""
    arguments.check_flag(create, "create")
    rule = arguments.Trimming(
        options.get("maxlen"),
        options.get("minid"),
        options.get("approximate", True),
        options.get("limit"),
        options.get("references", "keep"),
    ).rule()
    expected = options.get("expected_last_id")
    last = None if expected is None else parse_id(expected)
    return Terms(create, rule, last, arguments.ttl_ms(options.get("ttl")))


def one(
    name: bytes, fields: Row, id: IDLike, encoding: str | None, create: bool, options: AddOptions
) -> tuple[Step, Add]:
    """What adds one entry, and what the engine is asked for by it."""
    arguments.check_names(options, AddOptions, "add")
    ids = arguments.add_id(id)
    asked_of = terms(create, options)
    request = asked_of.request(name, arguments.rows([fields], encoding), ids)
    producer, idempotent_id = options.get("producer"), options.get("idempotent_id")
    if producer is None and idempotent_id is None:
        return partial(add.add, request=request), request
    from logstore.api import producing
    from logstore.engine.streams import idempotency

    asked = producing.asked(request.batch, id, producer, idempotent_id, encoding)
    return partial(idempotency.add, request=request, asked=asked), request


def steps(
    name: bytes,
    rows: Iterable[Row | tuple[IDLike, Row]],
    size: int,
    made: Callable[[list[Any]], RowBatch],
    encoding: str | None,
    options: RowOptions,
) -> Iterator[Callable[[Terms], Step]]:
    """What adds rows, a batch each, on terms that the batch before may have changed."""
    producer = options.get("producer")
    if producer is None:
        for ids, batch in arguments.batches(rows, size, made):
            yield partial(_adding, name, batch, ids)
        return
    from logstore.api import producing

    for asked, batch in producing.batches(rows, size, producer, encoding, made):
        yield partial(_adding_once, name, batch, asked)


def table_steps(
    name: bytes, batches: Iterable[tuple[AutoID | GivenIDs, RowBatch]]
) -> Iterator[Callable[[Terms], Step]]:
    """The same of rows that are batches already."""
    for ids, batch in batches:
        yield partial(_adding, name, batch, ids)


def _adding(name: bytes, batch: RowBatch, ids: AutoID | GivenIDs, on: Terms) -> Step:
    return partial(add.add, request=on.request(name, batch, ids))


def _adding_once(name: bytes, batch: RowBatch, asked: Asked, on: Terms) -> Step:
    from logstore.engine.streams import idempotency

    return partial(idempotency.add, request=on.request(name, batch), asked=asked)
