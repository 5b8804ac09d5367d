"""What an add is asked for: its options, checked once, and rows as requests, batch by batch.

Invariants: everything is refused here, before a lock is taken; idempotent IDs are computed here,
too. The names of the options stand in ``RowOptions`` and ``AddOptions`` alone; ``Stream.add`` says
what each is for. With a producer, what stands before the fields of a row is its idempotent ID, not
the ID of an entry: those of such entries are always given by the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, cast

from logstore.api import arguments
from logstore.codec import GivenIDs, Row, RowBatch
from logstore.engine.streams import add
from logstore.engine.streams.add import Add, AutoID
from logstore.engine.streams.removal import TrimRule
from logstore.errors import EntryTypeError, InvalidEntryError, OptionError, TooLargeError
from logstore.ids import IDLike, StreamID, parse_id
from logstore.options import PRODUCER_ID_MAX_BYTES, References, Sync
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.engine.lane.native import Options
    from logstore.engine.streams.idempotency import ProducerRequest


Name: TypeAlias = str | bytes
# What adds rows under the lock, as ``OpenStore.commit`` takes it.
Step = Callable[[Any], Any]


class RowOptions(TypedDict, total=False):
    """Options of whatever adds rows, as ``Stream.add`` describes them."""

    max_entries: int | None
    min_id: IDLike | None
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


_TRIMMING: Final = frozenset({"max_entries", "min_id", "approximate", "limit"})


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
    max_entries, min_id = options.get("max_entries"), options.get("min_id")
    return id, max_entries, min_id, options.get("approximate", True), options.get("limit"), create


def _are_usual(options: AddOptions) -> bool:
    """Whether what the lane does not know was given as it is if it is left out."""
    arguments.check_names(options, AddOptions, "add")
    others = options.keys() - _TRIMMING - {"references"}
    return options.get("references", "keep") == "keep" and all(
        value is None for name, value in options.items() if name in others
    )


def terms(create: bool, options: RowOptions) -> Terms:
    """The terms of these options. OptionError, InvalidIDError."""
    arguments.check_flag(create, "create")
    rule = arguments.Trimming(
        options.get("max_entries"),
        options.get("min_id"),
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
    request = terms(create, options).request(name, arguments.rows([fields], encoding), ids)
    producer, idempotent_id = options.get("producer"), options.get("idempotent_id")
    if producer is None and idempotent_id is None:
        return partial(add.add, request=request), request
    from logstore.engine.streams import idempotency

    asked = _asked(request.batch, id, producer, idempotent_id, encoding)
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
    for asked, batch in _asked_batches(rows, size, producer, encoding, made):
        yield partial(_adding_once, name, batch, asked)


def table_steps(
    name: bytes, batches: Iterable[tuple[AutoID | GivenIDs, RowBatch]]
) -> Iterator[Callable[[Terms], Step]]:
    """The same of rows that are batches already."""
    for ids, batch in batches:
        yield partial(_adding, name, batch, ids)


def _adding(name: bytes, batch: RowBatch, ids: AutoID | GivenIDs, on: Terms) -> Step:
    return partial(add.add, request=on.request(name, batch, ids))


def _adding_once(name: bytes, batch: RowBatch, asked: ProducerRequest, on: Terms) -> Step:
    from logstore.engine.streams import idempotency

    return partial(idempotency.add, request=on.request(name, batch), asked=asked)


def _asked(
    batch: RowBatch,
    id: IDLike,
    producer: Name | None,
    idempotent_id: Name | None,
    encoding: str | None,
) -> ProducerRequest:
    """The producer of the one row of ``batch``, and its ID; computed if None is given."""
    from logstore.engine.streams.idempotency import ProducerRequest

    if producer is None:
        raise OptionError("an idempotent ID is known of one producer: give producer=, too")
    if id not in ("*", b"*"):
        raise OptionError(
            "syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs: "
            "leave id out, or producer"
        )
    who = _producer(producer, encoding)
    if idempotent_id is None:
        return ProducerRequest(who, _computed(batch))
    return ProducerRequest(who, [_given(idempotent_id, encoding)])


def _asked_batches(
    items: Iterable[Row | tuple[Any, Row]],
    size: int,
    producer: Name,
    encoding: str | None,
    made: Callable[[list[Any]], RowBatch],
) -> Iterator[tuple[ProducerRequest, RowBatch]]:
    """Rows in batches, each with its idempotent IDs: all rows of one call have one, or none."""
    from logstore.engine.streams.idempotency import ProducerRequest

    who = _producer(producer, encoding)
    source = arguments.iterated(items)
    done = 0
    with_id: bool | None = None
    while chunk := list(islice(source, size)):
        if with_id is None:
            with_id = _with_id(chunk[0])
        if not with_id:
            batch = made(chunk)
            yield ProducerRequest(who, _computed(batch)), batch
            continue
        names: list[bytes] = []
        fields: list[Row] = []
        for place, row in enumerate(chunk, done):
            if not _with_id(row):
                raise InvalidEntryError(
                    f"row {place}: give every row of one call an idempotent ID, (id, fields), "
                    "or none of them"
                )
            name, given = cast("tuple[Name, Row]", row)
            names.append(_given(name, encoding))
            fields.append(given)
        done += len(chunk)
        yield ProducerRequest(who, names), made(fields)


def _with_id(row: Any) -> bool:
    """Whether a row is (ID, fields); of two pairs in a tuple the first is no ID."""
    is_pair = isinstance(row, tuple) and len(row) == 2
    return is_pair and not isinstance(row[0], tuple) and isinstance(row[1], (Mapping, list))


def _computed(batch: RowBatch) -> list[bytes]:
    from logstore.codec.fingerprint import fingerprint  # needs xxhash, which nothing else does

    return [fingerprint(batch.flat(place)) for place in range(len(batch))]


def _producer(name: Name, encoding: str | None) -> bytes:
    producer = _named(name, encoding, "a producer ID")
    if not producer:
        raise OptionError(
            "syntax error, IDMP requires a non-empty producer ID: give each producer one of its "
            "own, which it keeps when it starts again"
        )
    return producer


def _given(name: Name, encoding: str | None) -> bytes:
    idempotent_id = _named(name, encoding, "an idempotent ID")
    if not idempotent_id:
        raise OptionError(
            "syntax error, IDMP requires a non-empty idempotent ID: leave it out and it is "
            "computed from the fields"
        )
    return idempotent_id


def _named(name: Name, encoding: str | None, what: str) -> bytes:
    if isinstance(name, str):
        name = arguments.text_bytes(name, encoding)
    if not isinstance(name, bytes):
        raise EntryTypeError(f"{what} is str or bytes, not {type(name).__name__}")
    if len(name) > PRODUCER_ID_MAX_BYTES:
        raise TooLargeError(
            f"{what} has at most {PRODUCER_ID_MAX_BYTES} bytes, not {len(name)}: give its hash"
        )
    return name
