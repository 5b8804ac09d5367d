"""What an add is asked for: its options, checked once, and its rows as requests, batch by batch.

Rows come from an iterable, or from a table, batch or reader of Arrow. Invariants: everything is
refused here, before a lock is taken; columns are refused before a row is looked at; rows of what is
read in batches are taken outside every lock; memory holds the rows of one commit, beside what a
reader of Arrow holds. Idempotent IDs are computed here. The names of the options stand in
``RowOptions`` and ``AddOptions`` alone; ``Stream.add`` says what each is for. With a producer, what
stands before the fields of a row is its idempotent ID, not the ID of an entry: the store gives
those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, cast

from logstore.api import arguments
from logstore.codec import GivenIDs, Row, RowBatch, codec
from logstore.engine.streams import add
from logstore.engine.streams.add import AUTO, Add, AutoID
from logstore.engine.streams.removal import TrimRule
from logstore.errors import EntryTypeError, InvalidEntryError, OptionError, TooLargeError
from logstore.ids import IDLike, StreamID, parse_id
from logstore.options import PRODUCER_ID_MAX_BYTES, Length, References, Sync
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.engine.lane.native import Options
    from logstore.engine.streams.idempotency import ProducerRequest


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


def terms(create: bool, options: RowOptions) -> AddTerms:
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
    return AddTerms(create, rule, last, arguments.ttl_ms(options.get("ttl")))


def one(
    name: bytes, fields: Row, id: IDLike, encoding: str | None, create: bool, options: AddOptions
) -> tuple[AddOp, Add]:
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
) -> Iterator[Callable[[AddTerms], AddOp]]:
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
        name = arguments.text_bytes(name, encoding)
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
    data: Any, size: int, id_column: str = ""
) -> Iterator[tuple[AutoID | GivenIDs, RowBatch]]:
    """Rows in batches, each with its IDs. OptionError for columns that cannot be."""
    from logstore.scan import intake

    reader = _reader_of(data)
    layout = intake.layout(reader.schema, id_column, streams=False)
    return _table_batches(reader, size, layout)


def _table_batches(
    reader: Any, size: int, layout: Any
) -> Iterator[tuple[AutoID | GivenIDs, RowBatch]]:
    from logstore.scan import intake

    row = 0
    for batch in _sized(reader, size):
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
