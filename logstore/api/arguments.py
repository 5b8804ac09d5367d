"""Arguments of public calls, checked and turned into what the engine takes.

Of an add: its options, checked once, and its rows as requests, batch by batch. The names of the
options stand in ``RowOptions`` and ``AddOptions`` alone; ``Stream.add`` says what each is for. With
a producer, what stands before the fields of a row is its idempotent ID, which may be computed here;
the store gives the IDs of entries then.

Invariants: everything is refused here, before a lock is taken; a typed error says what to do. Rows
of an iterable are taken a batch at a time, outside every lock; columns of Arrow are refused before
a row is looked at. Memory holds the rows of one commit, beside what a reader of Arrow holds.
"""

from __future__ import annotations

import codecs
import math
import os
import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypedDict, cast, get_args

from logstore.clock import CLOCK_MAX_MS, Clock
from logstore.codec import GivenIDs, Row, RowBatch, codec
from logstore.engine.streams import add
from logstore.engine.streams.add import AUTO, Add, AutoID
from logstore.engine.streams.removal import TrimRule, check_rule
from logstore.errors import (
    EntryTypeError,
    InvalidEntryError,
    InvalidIDError,
    OptionError,
    TooLargeError,
    shown,
)
from logstore.ids import (
    ZERO_ID,
    IDLike,
    StreamID,
    moment_span,
    parse_auto,
    parse_end,
    parse_id,
    parse_start,
    since_id,
    until_id,
)
from logstore.options import (
    AMOUNT_MAX,
    LENGTH_MAX_MS,
    NAME_MAX_BYTES,
    PRODUCER_ID_MAX_BYTES,
    Length,
    References,
    Sync,
    check_name,
    seconds,
)
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.engine.groups.ack import NackDelay
    from logstore.engine.lane.native import Options
    from logstore.engine.streams.idempotency import ProducerRequest
    from logstore.ids import When
    from logstore.schema.stream_schema import Schema


class RowOptions(TypedDict, total=False):
    """Options of whatever adds rows, as ``Stream.add`` describes them."""

    max_entries: int | None
    min_id: IDLike | None
    approximate: bool
    limit: int | None
    references: References
    producer: str | bytes | None
    expected_last_id: IDLike | None
    ttl: Length | None
    sync: Sync | None


class AddOptions(RowOptions, total=False):
    """Options of an add of one entry, as ``Stream.add`` describes them."""

    idempotent_id: str | bytes | None


_TRIMMING: Final = frozenset({"max_entries", "min_id", "approximate", "limit"})


class AddTerms(NamedTuple):
    """What rows are added on: the options that the engine decides by, checked."""

    create: bool
    rule: TrimRule | None
    expected: StreamID | None
    ttl_ms: int | None
    schema_at: int = 0  # of the schema by which the rows are written, as ``add.Add`` has it

    def request(
        self,
        name: bytes,
        batch: RowBatch,
        ids: AutoID | StreamID | GivenIDs = add.AUTO,
    ) -> Add:
        """What the engine is asked for: to add all rows of a batch to a stream."""
        return Add(name, batch, 0, len(batch), ids, *self)

    def behind(self, added: Any) -> AddTerms:
        """The terms of the next batch of one call."""
        return self._replace(expected=add.expected_next(self.expected, added))


def lane_options(id: IDLike, options: AddOptions, create: Any) -> Options | bool:
    """What the lane is asked for; True: nothing beside the fields, False: more than it does."""
    if type(create) is not bool:
        return False
    if not options:
        return (id is ANY_ID and create) or (id, None, None, True, None, create)
    if not options.keys() <= _TRIMMING and not _are_usual(options):
        return False
    max_entries, min_id = options.get("max_entries"), options.get("min_id")
    return id, max_entries, min_id, options.get("approximate", True), options.get("limit"), create


def _are_usual(options: AddOptions) -> bool:
    """Whether what the lane does not know was given as it is if it is left out."""
    check_names(options, AddOptions, "add")
    others = options.keys() - _TRIMMING - {"references"}
    return options.get("references", "keep") == "keep" and all(
        value is None for name, value in options.items() if name in others
    )


def terms(create: bool, options: RowOptions) -> AddTerms:
    """The terms of these options. OptionError, InvalidIDError."""
    check_flag(create, "create")
    rule = Trimming(
        options.get("max_entries"),
        options.get("min_id"),
        options.get("approximate", True),
        options.get("limit"),
        options.get("references", "keep"),
    ).rule()
    expected = options.get("expected_last_id")
    last = None if expected is None else parse_id(expected)
    return AddTerms(create, rule, last, ttl_ms(options.get("ttl")))


class RowValues(Protocol):
    """What writes the values of rows: by a schema, or a codec."""

    schema_at: int

    def row(self, fields: Any) -> Any:
        """The fields of an add as they are stored."""
        ...


def one(
    name: bytes,
    fields: Row,
    id: IDLike,
    encoding: str | None,
    create: bool,
    options: AddOptions,
    values: RowValues | None,
) -> tuple[AddOp, Add]:
    """What adds one entry, which ``values`` write, and what the engine is asked for by it."""
    check_names(options, AddOptions, "add")
    ids = add_id(id)
    row = fields if values is None else values.row(fields)
    terms_ = terms(create, options)._replace(schema_at=0 if values is None else values.schema_at)
    request = terms_.request(name, rows([row], encoding), ids)
    if type(fields) is dict and encoding in {None, "utf-8"}:  # for a schema that comes meanwhile
        request = request._replace(given=fields.copy())
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
) -> Iterator[Callable[[AddTerms], AddOp]]:
    """What adds rows, a batch each, on terms that the batch before may have changed."""
    producer = options.get("producer")
    if producer is None:
        for ids, batch in batches(rows, size, made):
            yield partial(_adding, name, batch, ids)
        return
    for asked, batch in _asked_batches(rows, size, producer, encoding, made):
        yield partial(_adding_once, name, batch, asked)


def table_steps(
    name: bytes, batches: Iterable[tuple[AutoID | GivenIDs, RowBatch]]
) -> Iterator[Callable[[AddTerms], AddOp]]:
    """The same of rows that are batches already."""
    for ids, batch in batches:
        yield partial(_adding, name, batch, ids)


def _adding(name: bytes, batch: RowBatch, ids: AutoID | GivenIDs, on: AddTerms) -> AddOp:
    return partial(add.add, request=on.request(name, batch, ids))


def _adding_once(name: bytes, batch: RowBatch, asked: ProducerRequest, on: AddTerms) -> AddOp:
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
    return ProducerRequest(who, [_idempotent_id(idempotent_id, encoding)])


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
    source = iterated(items)
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
            names.append(_idempotent_id(name, encoding))
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
    return _named(
        name, encoding, "producer", "give each producer one of its own, which it keeps when it "
        "starts again",
    )  # fmt: skip


def _idempotent_id(name: Name, encoding: str | None) -> bytes:
    return _named(name, encoding, "idempotent", "leave it out and it is computed from the fields")


def _named(name: Name, encoding: str | None, kind: str, instead: str) -> bytes:
    """The ID of a producer, or of what it adds; ``instead`` of an empty one it says what to do."""
    what = f"{'an' if kind == 'idempotent' else 'a'} {kind} ID"
    if isinstance(name, str):
        name = text_bytes(name, encoding)
    if not isinstance(name, bytes):
        raise EntryTypeError(f"{what} is str or bytes, not {type(name).__name__}")
    if len(name) > PRODUCER_ID_MAX_BYTES:
        raise TooLargeError(
            f"{what} has at most {PRODUCER_ID_MAX_BYTES} bytes, not {len(name)}: give its hash"
        )
    if not name:
        raise OptionError(f"syntax error, IDMP requires a non-empty {kind} ID: {instead}")
    return name


# -- rows of Arrow ----------------------------------------------------------------------------
def _reader_of(data: Any) -> Any:
    """What is added as a reader of record batches; EntryTypeError."""
    import pyarrow as pa

    if type(data).__module__.partition(".")[0] == "pandas":  # whose index is no field
        data = pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    raise EntryTypeError(
        f"give a table, record batch or reader of Arrow, or a DataFrame, not {type(data).__name__}"
    )


def table_batches(
    data: Any, size: int, id_column: str, schema_of: Callable[[], Schema | None]
) -> Iterator[tuple[AutoID | GivenIDs, RowBatch]]:
    """Rows in batches, each with its IDs, written by the schema that is then, if there is one.
    OptionError, SchemaError for columns that cannot be."""
    from logstore.scan import intake

    reader = _reader_of(data)
    layout_of = partial(intake.layout, reader.schema, id_column, streams=False)
    return _table_batches(reader, size, layout_of, schema_of, layout_of(typed=schema_of()))


def _table_batches(
    reader: Any,
    size: int,
    layout_of: Callable[..., Any],
    schema_of: Callable[[], Schema | None],
    layout: Any,
) -> Iterator[tuple[AutoID | GivenIDs, RowBatch]]:
    from logstore.scan import intake

    row = 0
    for batch in _sized(reader, size):
        schema = schema_of()
        if schema != layout.typed:
            layout = layout_of(typed=schema)
        ids = intake.row_ids(batch, layout, row) if layout.id_kind else None
        rows = intake.ready_rows(batch, layout, row)
        row += batch.num_rows
        yield AUTO if ids is None else codec().given_numbers(*ids), rows


def _sized(reader: Any, size: int) -> Iterator[Any]:
    """The batches of a reader, with so many rows each, but for the last one."""
    import pyarrow as pa

    held: list[Any] = []
    rows = 0
    for batch in reader:
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, size - rows)
            held.append(part)
            at, rows = at + part.num_rows, rows + part.num_rows
            if rows == size:
                yield from pa.Table.from_batches(held).combine_chunks().to_batches()
                held, rows = [], 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


Name: TypeAlias = str | bytes
# What adds rows under the lock, as ``OpenStore.commit`` takes it.
AddOp = Callable[[Any], Any]


# The ID of an add that gives none. Compared by address, which is one for all such texts in CPython:
# another one is an ID that is read.
ANY_ID = "*"
TIMEOUT_MAX_S = 1_000_000_000  # thirty years and more: for ever
# What redis-py and others call some options.
_PEERS = {"maxlen": "max_entries", "minid": "min_id"}


def entry_ids(ids: Sequence[IDLike]) -> Sequence[StreamID]:
    """IDs that were given; those that are IDs already, as most are, stay as they are.

    Raises:
        InvalidIDError: one of them is not valid.
    """
    if codec().are_ids(ids, StreamID):
        return cast("Sequence[StreamID]", ids)
    return [parse_id(wanted) for wanted in ids]


def check_encoding(encoding: str) -> None:
    """OptionError unless all bytes survive being decoded and encoded again."""
    every = bytes(range(256))
    try:
        kept = every.decode(encoding, "surrogateescape").encode(encoding, "surrogateescape")
    except (LookupError, TypeError, UnicodeError):
        kept = b""
    if kept != every:
        raise OptionError(
            f"encoding must name a text encoding that keeps any bytes, not {shown(encoding)}: give "
            "'utf-8', 'latin-1' or the like, or None for bytes"
        )


def text_bytes(text: str, encoding: str | None) -> bytes:
    """A str in the store's encoding; what was no text when it was read becomes its bytes again."""
    try:
        return text.encode(encoding or "utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidEntryError(f"{text[:32]!r} cannot be stored: {error}; give bytes") from error


def stream_name(
    name: str | bytes, encoding: str | None = None, *, what: str = "a stream name"
) -> bytes:
    """A stream's name as bytes, at most 64 KiB."""
    if isinstance(name, str):
        name = text_bytes(name, encoding)
    if not isinstance(name, bytes):
        raise EntryTypeError(f"{what} is str or bytes, not {type(name).__name__}")
    if len(name) > NAME_MAX_BYTES:
        check_name(name, what)  # raises
    return name if type(name) is bytes else bytes(name)


def group_name(name: str | bytes, encoding: str | None = None) -> bytes:
    """A consumer group's name as bytes, at most 64 KiB."""
    return stream_name(name, encoding, what="a group name")


def consumer_name(name: str | bytes, encoding: str | None = None) -> bytes:
    """A consumer's name as bytes, at most 64 KiB and not empty (that would be nobody)."""
    consumer = stream_name(name, encoding, what="a consumer name")
    if not consumer:
        raise OptionError("a consumer name must not be empty: give each worker one of its own")
    return consumer


def add_id(id: IDLike) -> AutoID | StreamID:
    """The ID of an add: "*", "<ms>-*", or a whole one that is not 0-0."""
    text = id.decode("latin-1") if isinstance(id, bytes) else id
    if text == "*":
        return AUTO
    if isinstance(text, str) and text.endswith("-*"):
        return AutoID(parse_auto(text))
    whole = parse_id(id)
    if whole == ZERO_ID:
        raise InvalidIDError("The ID specified in XADD must be greater than 0-0")
    return whole


class Trimming(NamedTuple):
    """What is trimmed after an add, as its arguments say."""

    max_entries: int | None
    min_id: IDLike | None
    approximate: bool
    limit: int | None
    references: str

    def rule(self) -> TrimRule | None:
        """The rule; None if nothing is trimmed. OptionError."""
        max_entries, min_id, approximate, limit, references = self
        return trim_rule(
            max_entries,
            min_id,
            None,
            approximate=approximate,
            limit=limit,
            references=references,
            optional=True,
        )


def trim_rule(
    max_entries: int | None,
    min_id: IDLike | None,
    max_age: Length | None,
    *,
    approximate: bool,
    limit: int | None,
    optional: bool,
    references: str = "keep",
) -> TrimRule | None:
    """The rule of a trim; None if none is asked for and ``optional``."""
    check_choice(references, References, "references")
    check_flag(approximate, "approximate")
    if optional and max_entries is None and min_id is None and limit is None:
        if references != "keep":
            raise OptionError(
                "give max_entries or min_id with references: it is about what is trimmed"
            )
        return None
    check_count(max_entries, "max_entries")
    check_count(limit, "limit")
    age_ms = None if max_age is None else milliseconds(max_age, "max_age")
    least = None if min_id is None else parse_id(min_id)
    rule = TrimRule(max_entries, least, approximate, limit, age_ms, references)
    check_rule(rule)
    return rule


def check_names(options: Mapping[str, object], known: type[Any], call: str) -> None:
    """TypeError for an option that a TypedDict does not name, as Python has it."""
    names = known.__annotations__
    for name in options:
        if name not in names:
            from difflib import get_close_matches

            near = _PEERS.get(name) or next(iter(get_close_matches(name, names, 1)), "")
            hint = f". Did you mean {near!r}?" if near in names else ""
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{hint}")


def check_count(value: object, name: str) -> None:
    """OptionError for what is neither an int of 64 bits, with a sign, nor None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} must be an integer: {shown(value)}")
    if not -AMOUNT_MAX <= value <= AMOUNT_MAX:
        raise OptionError(f"{name} must be at most 2^63-1")


def range_count(count: int | None, name: str = "count") -> int:
    """How many are asked for at most; -1 if there is no limit. OptionError."""
    check_count(count, name)
    if count is not None and count < 0:
        raise OptionError(f"{name} must not be negative: {count}")
    return -1 if count is None else count


def check_between(value: object, name: str, least: int, most: int) -> None:
    """OptionError for what is no int between these, both included."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} must be an integer: {shown(value)}")
    if not least <= value <= most:
        raise OptionError(f"{name} must be {least} to {most}: {shown(value)}")


def check_flag(value: object, name: str) -> None:
    """OptionError for what is neither True nor False: 0, 1 and words are taken for mistakes."""
    if value is not True and value is not False:
        raise OptionError(f"{name} must be True or False, not {shown(value)}")


def place(path: object) -> Path:
    """A path as it was given; OptionError for a value that is no path."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise OptionError(f"path must be str or os.PathLike, not {shown(path)}")
    return Path(path)


def uri(value: object) -> str:
    """A URI, or a directory's path, as it was given; OptionError for any other value."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, os.PathLike):
        return str(place(value))
    raise OptionError(f"uri must be a URI or a path, not {shown(value)}")


def check_share(value: object, name: str) -> None:
    """OptionError for what is no number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise OptionError(f"{name} must be a number from 0 to 1: {shown(value)}")


def reason(error: str) -> bytes:
    """Why an entry is given back; OptionError for what is no text."""
    if not isinstance(error, str):
        raise OptionError(f"error must be text, such as repr(exception), not {shown(error)}")
    return error.encode("utf-8", "backslashreplace")


def interval(start: IDLike, end: IDLike) -> tuple[StreamID, StreamID]:
    """The first and the last ID of an interval; OptionError if its ends are swapped.

    An interval that ends where it begins, or right before, is empty: who reads on behind the last
    ID he saw comes to that.
    """
    low, high = _first_id(start), _last_id(end)
    if low > high:
        first, last = parse_start(_included(start)), parse_end(_included(end))
        if first > last and first != last.next():
            raise OptionError(
                f"start ({start!s}) is above end ({end!s}): give the smaller ID first, and "
                "reverse=True to read from the newest on"
            )
    return low, high


def moments(
    start: IDLike, end: IDLike, since: When | None, until: When | None, clock: Clock
) -> tuple[StreamID, StreamID]:
    """The first and the last ID of an interval whose ends may be moments. OptionError."""
    if since is None and until is None:
        return interval(start, end)
    low, high = _first_id(start), _last_id(end)
    now_ms = clock.now_ms()
    if since is not None:
        if start not in ("-", b"-"):
            raise OptionError("start and since are the same end: give one of them")
        low = since_id(since, now_ms)
    if until is not None:
        if end not in ("+", b"+"):
            raise OptionError("end and until are the same end: give one of them")
        high = until_id(until, now_ms)
    if low > high and low.previous() != high:
        first, last = "start" if since is None else "since", "end" if until is None else "until"
        raise OptionError(f"{first} ({low}) is above {last} ({high}): give the earlier one first")
    return low, high


def _first_id(start: IDLike) -> StreamID:
    try:
        return parse_start(start)
    except InvalidIDError as error:
        raise InvalidIDError(f"{error.message} (start){_as_moment(start, 'since')}") from None


def _last_id(end: IDLike) -> StreamID:
    try:
        return parse_end(end)
    except InvalidIDError as error:
        raise InvalidIDError(f"{error.message} (end){_as_moment(end, 'until')}") from None


def _as_moment(given: object, name: str) -> str:
    """Advice for an end that is a moment, and no ID."""
    if not isinstance(given, str | timedelta | date):
        return ""
    try:
        moment_span(given, CLOCK_MAX_MS, name)
    except OptionError:
        return ""
    return f". It is a moment: a range takes that as {name}={shown(given)}"


def _included(end: IDLike) -> IDLike:
    """One end of an interval without the "(" that leaves it out."""
    text = end.decode("latin-1") if isinstance(end, bytes) else end
    return text.removeprefix("(") if isinstance(text, str) else text


def read_count(count: int | None) -> int:
    """How many entries a read may give; 0 stands for no limit, as None does."""
    check_count(count, "count")
    if count is not None and count < 0:
        raise OptionError(f"count must not be negative: {count}")
    return count or 0


def deadline_of(timeout: Length | None) -> float | None:
    """When a wait ends, by ``time.monotonic``; None: never. OptionError for what is no time."""
    if timeout is None:
        return None
    if type(timeout) is int and not timeout:  # as most reads are made
        return 0.0
    given = seconds(timeout, "timeout")
    if math.isnan(given) or given < 0:
        raise OptionError(
            f"timeout must be 0 (do not wait) or more seconds, or None (for ever): {shown(timeout)}"
        )
    return time.monotonic() + given if given < TIMEOUT_MAX_S else None


class Limits(NamedTuple):
    """How much a read may give."""

    count: int = 0  # type: ignore[assignment]  # entries of one stream; 0: no limit
    max_count: int | None = None  # entries of all streams
    max_bytes: int | None = None  # of all entries, but the first entry comes in any case


def limits(count: int | None, max_count: int | None, max_bytes: int | None) -> Limits:
    """The limits of a read, checked; OptionError. A negative ``count`` is no limit, as in XREAD."""
    check_count(count, "count")
    for value, name in ((max_count, "max_count"), (max_bytes, "max_bytes")):
        check_count(value, name)
        if value is not None and value < 1:
            raise OptionError(f"{name} must be 1 or more, or None (no limit): {value}")
    if count is not None and max_count is not None and max_count < count:
        raise OptionError(f"max_count must not be below count: {max_count} < {count}")
    return Limits(max(count or 0, 0), max_count, max_bytes)


class GroupReadArguments(NamedTuple):
    """What a read of a group asks for, checked."""

    consumer: bytes
    limit: int  # of entries; 0: none
    max_bytes: int  # of all entries; 0: no limit
    asked_idle_ms: int | None
    deadline: float | None  # of ``time.monotonic``; None: none
    noack: bool

    def options(self) -> dict[str, Any]:
        """What is asked for beside who reads, how many and until when."""
        return {
            "noack": self.noack,
            "asked_idle_ms": self.asked_idle_ms,
            "max_bytes": self.max_bytes,
        }


def group_read(
    consumer: str | bytes,
    encoding: str | None,
    *,
    count: int | None = None,
    max_count: int | None = None,
    max_bytes: int | None = None,
    timeout: Length | None = 0,
    noack: bool = False,
    min_idle: Length | None = None,
) -> GroupReadArguments:
    """The arguments of a read of a group; ``count`` 0 or None: no limit."""
    check_flag(noack, "noack")
    idle_ms = None if min_idle is None else milliseconds(min_idle, "min_idle")
    limit, most_bytes = read_count(count), 0
    if max_count is not None or max_bytes is not None:
        allowed = limits(count, max_count, max_bytes)
        limit, most_bytes = allowed.count or allowed.max_count or 0, allowed.max_bytes or 0
    who = consumer_name(consumer, encoding)
    return GroupReadArguments(who, limit, most_bytes, idle_ms, deadline_of(timeout), noack)


def milliseconds(length: Length, name: str) -> int:
    """A length of time as whole milliseconds. OptionError."""
    return int(round(length_s(length, name) * 1000, 6))  # what its shortest text says


def length_s(length: Length, name: str, most_ms: int = LENGTH_MAX_MS) -> float:
    """Seconds of a length of time that is not negative, and not above ``most_ms``. OptionError."""
    given = seconds(length, name)
    if not 0 <= given < math.inf:
        raise OptionError(f"{name} must be a length of time, not negative: {shown(length)}")
    if given * 1000 > most_ms:
        most = timedelta(milliseconds=most_ms).days
        raise OptionError(f"{name} must be at most {most} days: {shown(length)}")
    return given


def ttl_ms(ttl: Length | None) -> int | None:
    """How long an entry lives; None: for ever. OptionError for a time that is over at once."""
    if ttl is None:
        return None
    length_ms = milliseconds(ttl, "ttl")
    if not length_ms:
        raise OptionError(f"ttl must be at least a millisecond: {shown(ttl)}")
    return length_ms


def later(delay: Length | None) -> NackDelay | None:
    """How long an entry that is given back waits; None: what is set for the group."""
    if delay is None:
        return None
    from logstore.engine.groups.ack import NackDelay

    delay_ms = milliseconds(delay, "delay")
    return NackDelay(delay_ms, delay_ms)


def group_position(start: IDLike) -> StreamID | None:
    """Where a group begins; None for "$", the stream's last ID at the commit."""
    if start in ("$", b"$"):
        return None
    return ZERO_ID if start in ("-", b"-") else parse_id(start)


def check_choice(value: object, choices: Any, name: str) -> None:
    """OptionError for a value that is not one of a Literal's words."""
    words = get_args(choices)
    if value not in words:
        choices = ", ".join(map(repr, words))
        raise OptionError(f"{name} must be one of {choices}, not {shown(value)}")


def rows(items: Iterable[Row], encoding: str | None) -> RowBatch:
    """Rows made ready to be packed; str becomes bytes in the store's encoding."""
    if encoding is None:
        return codec().rows(items)
    ready = [list(row) if isinstance(row, Iterator) else row for row in items]
    if codecs.lookup(encoding).name == "utf-8":
        try:
            return codec().rows(ready)
        except InvalidEntryError:
            pass  # it may be bytes that were no text when they were read
    return codec().rows([_encoded(row, encoding) for row in ready])


def _encoded(row: Any, encoding: str) -> Any:
    """The row with its str as bytes; what is no row stays as it is, to be refused."""
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
        return row
    pairs: Iterable[Any] = row.items() if isinstance(row, Mapping) else row
    return [
        tuple(text_bytes(part, encoding) if isinstance(part, str) else part for part in pair)
        if isinstance(pair, tuple | list)
        else pair
        for pair in pairs
    ]


def iterated(items: Iterable[Any]) -> Iterator[Any]:
    """An iterator over rows; EntryTypeError for what cannot be iterated over."""
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        hint = "give a list of entries, or any iterable"
        if isinstance(items, AsyncIterable):
            hint = "open the store with logstore.aio.open, whose add_many takes async generators"
        raise EntryTypeError(f"rows are an iterable of entries, not {type(items).__name__}: {hint}")
    return iter(items)


def batches(
    items: Iterable[Row | tuple[IDLike, Row]],
    size: int,
    made: Callable[[list[Any]], RowBatch],
) -> Iterator[tuple[AutoID | GivenIDs, RowBatch]]:
    """Rows in batches, each with its IDs; rows with and without IDs are never mixed in one call.

    ``made`` makes rows ready, as ``rows`` does.
    """
    source = iterated(items)
    done = 0
    from logstore.codec.given_ids import has_id

    with_id: bool | None = None
    while chunk := list(islice(source, size)):
        if with_id is None:
            with_id = has_id(chunk[0])
        if not with_id:  # a row with an ID among them is no row: it is refused there
            yield AUTO, made(chunk)
            continue
        ids, fields = codec().given(chunk, done)
        done += len(chunk)
        yield ids, made(fields)
