"""Arrow to nodes: which columns are the stream, the ID and the fields of an entry, and the packing.

The column ``stream`` names the stream. The ID is in ``id`` (text), else in ``ms`` and ``seq``, else
in ``ts``. ``pairs``, or else ``fields``, hold fields, and every other column is a field of its
name, unless pairs repeat it. So what ``scan`` and Spark read can be written as it is.
Values become text as Arrow casts them, and reading casts them back, or as the stream's schema has
them (``column_texts``); a null is a field that the entry does not have.

Invariants: the schema is refused before a row is read. IDs ascend within a stream, or the rows are
refused. Memory holds a batch, and what was packed and not taken yet. Needs no index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from logstore.codec import ID, codec
from logstore.errors import (
    IDOrderError,
    InvalidEntryError,
    InvalidIDError,
    OptionError,
    SchemaError,
)
from logstore.ids import U64_MAX, StreamID
from logstore.log import stagefile
from logstore.options import ENTRY_MAX_BYTES, StoreLimits
from logstore.scan import column_texts, conversion
from logstore.scan.column_texts import is_text
from logstore.scan.scan_columns import schema_columns
from logstore.schema.stream_schema import Schema
from logstore.tuples import NamedTuple

STANDARD = ("stream", "id", "ms", "seq", "ts", "fields", "id_key", "pairs")
GIVEN = "*"  # instead of a column: the store gives the IDs
RUN_BYTES = 4 << 20
HELD_BYTES = 32 << 20
_ID = r"^(?P<ms>[0-9]{1,20})-(?P<seq>[0-9]{1,20})$"


class Layout(NamedTuple):
    """The columns of a batch, by their numbers; -1: there is no such column."""

    stream: int
    id_kind: str  # what IDs are made of: "id", "ms" or "ts"; empty: the store gives them
    id: int
    seq: int
    pairs: int
    fields: int
    plain: tuple[tuple[int, bytes], ...]  # columns that are fields, and their names
    typed: Schema | None = None  # of the stream, by which the values are written


def layout(
    schema: Any,
    id_column: str = "",
    *,
    streams: bool,
    typed: Schema | None = None,
    id_alone: str = "",
    renamed: Mapping[str, str] | None = None,
) -> Layout:
    """What each column of an Arrow schema is for; OptionError names a column that cannot be
    written.

    ``id_column`` names the column of the ID; ``*``: there is none. ``streams``: a column names the
    stream of each row. ``typed``: the schema of the stream; SchemaError names a column that it has
    not, or that is missing. ``id_alone`` names the column of the ID where every other one is a
    field, whatever it is called. ``renamed``: the fields of columns that have another name.
    """
    names = [name.lower() for name in schema.names]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"column {name!r} is there twice (names differ by case only)")
    at = {name: names.index(name) if name in names else -1 for name in STANDARD}
    if streams and at["stream"] < 0:
        raise OptionError("which stream? Give option 'stream', or a column 'stream' of text")
    kind, id, seq = _id(schema, names, at, id_column or id_alone)
    used = {at[name] for name in STANDARD}
    if id_column == GIVEN or id_alone:
        used = {at[name] for name in ("stream", "fields", "pairs")}
    fields_of: Mapping[Any, str] = renamed or {}
    plain = tuple(
        (place, str(fields_of.get(name, name)).encode())
        for place, name in enumerate(schema.names)
        if place not in used and place not in (id, seq)
    )
    if typed is not None:
        plain = tuple((place, _field_of(name, typed)) for place, name in plain)
    for place, name in plain:
        if not _is_taken(name, schema.field(place).type, typed):
            _check_field(schema.field(place))
    pairs, fields = at["pairs"], at["fields"]
    _check_nested(schema, pairs, fields)
    if not plain and pairs < 0 and fields < 0:
        raise OptionError("an entry needs a field: there is no column for one")
    if typed is not None:
        _check_typed(typed, [name for _, name in plain], whole=pairs < 0 and fields < 0)
    return Layout(at["stream"] if streams else -1, kind, id, seq, pairs, fields, plain, typed)


def _field_of(name: bytes, typed: Schema) -> bytes:
    """The field of a column, which a scan may have given another name beside the standard ones."""
    if typed.column(name) is None:
        for each in schema_columns(typed):
            if each.name.encode() == name:
                return each.read_from.encode("utf-8", "surrogateescape")
    return name


def _is_taken(name: bytes, kind: Any, typed: Schema | None) -> bool:
    """Whether a column of a schema takes columns of this type; values may be refused later."""
    import pyarrow as pa

    column = None if typed is None else typed.column(name)
    if column is None:
        return False
    return column.type.name == "json" or not pa.types.is_nested(kind)


def _check_typed(typed: Schema, names: Sequence[bytes], *, whole: bool) -> None:
    """SchemaError for columns that no row can be of. ``whole``: no row has any other field."""
    for name in names:
        typed.check_field(name)
    if whole:
        for _ in typed.filled(names):
            pass


def _id(
    schema: Any, names: Sequence[str], at: dict[str, int], id_column: str
) -> tuple[str, int, int]:
    import pyarrow as pa

    if id_column == GIVEN:
        return "", -1, -1
    place = at["id"] if at["id"] >= 0 else at["ms"] if at["ms"] >= 0 else at["ts"]
    if id_column:
        if id_column.lower() not in names:
            raise OptionError(f"there is no column {id_column!r}, which is to be the ID")
        place = names.index(id_column.lower())
    if place < 0:
        return "", -1, -1
    field = schema.field(place)
    if is_text(field.type):
        return "id", place, -1
    if pa.types.is_timestamp(field.type):
        return "ts", place, -1
    if (pa.types.is_integer(field.type) or pa.types.is_decimal(field.type)) and (
        id_column or names[place] == "ms"
    ):
        return "ms", place, at["seq"] if names[place] == "ms" else -1
    raise OptionError(
        f"column {field.name!r} of {field.type} cannot be the ID, which is text such as '1-0', "
        "milliseconds, or a timestamp: name the right one with option 'idColumn' (id_column in "
        "Python), or give '*' there and the store gives the IDs"
    )


def is_plain(kind: Any) -> bool:
    """Whether values of a type can be those of a field."""
    import pyarrow as pa

    types = pa.types
    return any(
        test(kind)
        for test in (
            is_text,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
            types.is_integer,
            types.is_floating,
            types.is_decimal,
            types.is_boolean,
            types.is_timestamp,
            types.is_date,
            types.is_null,
        )
    )


def _check_field(field: Any) -> None:
    import pyarrow as pa

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if not is_plain(kind):
        raise OptionError(
            f"column {field.name!r} of {field.type} cannot be a field, which is text, bytes, a "
            "number, a date or a timestamp: cast it, as with to_json, or leave it out"
        )


def holds_fields(name: str, kind: Any) -> bool:
    """Whether a column of this type can be ``fields`` (a map) or ``pairs`` (a list of two each)."""
    import pyarrow as pa

    if name == "fields":
        return bool(pa.types.is_map(kind) and is_text(kind.key_type))
    inner = kind.value_type if pa.types.is_list(kind) else None
    return inner is not None and pa.types.is_struct(inner) and inner.num_fields == 2


def _check_nested(schema: Any, pairs: int, fields: int) -> None:
    if fields >= 0:
        kind = schema.field(fields).type
        if not holds_fields("fields", kind):
            raise OptionError(f"column 'fields' must be a map of text to text, not {kind}")
    if pairs >= 0:
        kind = schema.field(pairs).type
        if not holds_fields("pairs", kind):
            raise OptionError(f"column 'pairs' must be an array of (field, value), not {kind}")


# -- rows ------------------------------------------------------------------------------------
def ready_rows(batch: Any, wanted: Layout, row: int = 0) -> Any:
    """The rows of a batch, as the codec makes them ready.

    Args:
        batch: the rows.
        wanted: what each column is for.
        row: the number of the first one, for errors.

    Raises:
        InvalidEntryError, EntryTypeError: a row is no entry.
        SchemaError: a row is not of the schema of the stream.
    """
    columns = [_column(batch, place, name, wanted, row) for place, name in wanted.plain]
    names = [name for _, name in wanted.plain]
    if wanted.pairs < 0 and wanted.fields < 0:
        if wanted.typed is not None:
            for name, default in wanted.typed.filled(names):
                names.append(name)
                columns.append([default] * batch.num_rows)
        return codec().columns(names, columns)
    rows: list[Any] = []
    lists = [each if isinstance(each, list) else each.to_pylist() for each in columns]
    for place, pairs in enumerate(_nested(batch, wanted)):
        of_row = {name: column[place] for name, column in zip(names, lists, strict=True)}
        rows.append(_row_of(_merged(pairs, of_row), wanted.typed, row + place))
    return codec().rows(rows)


def _merged(pairs: list[tuple[Any, Any]], columns: dict[bytes, Any]) -> list[tuple[Any, Any]]:
    """The pairs of a row with its columns. A scan of typed columns gives a field in both: then the
    column has its value, which pairs of text may not have kept; a repeated one is in pairs."""
    names = [name.encode() if isinstance(name, str) else name for name, _ in pairs]
    merged = [
        (name, columns[name])
        if columns.get(name) is not None and names.count(name) == 1
        else (name, value)
        for name, (_, value) in zip(names, pairs, strict=True)
    ]
    return merged + [item for item in columns.items() if item[0] not in names]


def _column(batch: Any, place: int, name: bytes, wanted: Layout, row: int) -> Any:
    column, typed = batch.column(place), wanted.typed
    of = None if typed is None else typed.column(name)
    if of is None:
        return column_texts.values(column, name.decode(), row)
    if wanted.pairs < 0 and wanted.fields < 0:
        return column_texts.typed_values(column, of, row)
    # the value of a row in which it is null may be among its pairs
    return column_texts.typed_values(column, of._replace(nullable=True), row)


def _row_of(pairs: list[tuple[Any, Any]], typed: Schema | None, row: int) -> list[tuple[Any, Any]]:
    if typed is None:
        return [pair for pair in pairs if pair[1] is not None]
    try:  # a text is that of a value, also of JSON
        return typed.row((name, _encoded(value)) for name, value in pairs)
    except SchemaError as error:
        raise SchemaError(f"row {row}: {error.message}") from None


def _encoded(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _nested(batch: Any, wanted: Layout) -> Iterator[list[tuple[Any, Any]]]:
    """The pairs of each row, from ``pairs``, or where that is null from ``fields``."""
    none: list[Any] = [None] * batch.num_rows
    pairs, fields = (
        batch.column(place).to_pylist() if place >= 0 else none
        for place in (wanted.pairs, wanted.fields)
    )
    for of_row, as_map in zip(pairs, fields, strict=True):
        if of_row is None:
            yield list(as_map or ())
        else:
            yield [tuple(pair.values()) for pair in of_row]


def row_ids(batch: Any, wanted: Layout, row: int = 0) -> tuple[list[int], list[int] | None]:
    """The milliseconds and sequences of the rows' IDs; no sequences where the store gives them.
    InvalidIDError names the first row without an ID. ``row``: the number of the first row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = batch.column(wanted.id)
    if column.null_count:
        row += column.is_null().to_pylist().index(True)
        raise InvalidIDError(f"row {row}: the ID is null")
    if wanted.id_kind == "id":
        parts = pc.extract_regex(column.cast(pa.string()), _ID)  # numbers of up to 20 digits
        if parts.null_count:
            bad = column[parts.is_null().to_pylist().index(True)].as_py()
            raise InvalidIDError(f"{bad!r} is no ID: write it as <ms>-<seq>, such as 1-0")
        ms, seq = (pc.struct_field(parts, [place]) for place in (0, 1))
        return _numbers(ms, "id"), _numbers(seq, "id")
    if wanted.id_kind == "ts":
        found = conversion.time_milliseconds(column)
        odd = next((at for at, ms in enumerate(found) if not 0 <= ms <= U64_MAX), -1)
        if odd >= 0:
            raise InvalidIDError(
                f"row {row + odd}: a timestamp is no time of an ID, which is from 1970 on: "
                f"{found[odd]} ms"
            )
        return found, None
    if wanted.seq < 0:
        return _numbers(column, "ms"), None
    seq = batch.column(wanted.seq)
    if seq.null_count:
        raise InvalidIDError("a row's seq is null")
    return _numbers(column, "ms"), _numbers(seq, "seq")


def _numbers(column: Any, what: str) -> list[int]:
    import pyarrow as pa

    if is_text(column.type):
        try:
            column = column.cast(pa.uint64())
        except pa.ArrowInvalid as error:
            raise InvalidIDError(f"{what} of an ID is 0 to {U64_MAX}: {error}") from None
    found: list[int] = column.to_pylist()
    if pa.types.is_decimal(column.type):
        found = [int(each) for each in found]
    if found and not (min(found) >= 0 and max(found) <= U64_MAX):
        raise InvalidIDError(f"{what} of an ID is 0 to {U64_MAX}, not {min(found)} or {max(found)}")
    return found


# -- nodes -----------------------------------------------------------------------------------
class _PackedNodes:
    """The packed nodes of one stream that were not taken yet; the last one still grows."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.rows = 0
        self.first: ID = (0, 0)
        self.last: ID = (0, 0)  # of all rows so far, also of nodes that were taken
        self.master: ID = (0, 0)
        self.lp: bytes | None = None

    def close(self) -> None:
        """End the node that grows."""
        if self.lp is not None:
            stagefile.put(self.data, self.master, self.lp)
            self.lp = None


class StreamTyping(NamedTuple):
    """The schema of a stream, as text, and the position of its frame."""

    text: str
    schema_at: int

    @property
    def schema(self) -> Schema:
        """The schema."""
        # here: whoever has no schemas does not load the types of columns
        from logstore.features.typed_rows import parsed

        return parsed(self.text)


# The stream, whether the IDs are the rows' own, the nodes, how many entries, first and last ID, and
# the position of the schema by which the values were written.
Take = Callable[[bytes, bool, bytearray, int, ID, ID, int], None]


class Packer:
    """Packs batches to nodes, stream by stream, and hands them to ``take``, many at a time.
    ``typed``: the streams that have a schema."""

    def __init__(
        self,
        wanted: Layout,
        stream: bytes,
        limits: StoreLimits,
        take: Take,
        typed: Mapping[bytes, StreamTyping],
    ) -> None:
        self._wanted = wanted
        self._stream = stream
        self._limits = limits
        self._take = take
        self._typed = typed
        self._row = 0  # the number of the first row of a batch, for errors
        self._growing: dict[bytes, _PackedNodes] = {}
        self._held = 0

    def add(self, batch: Any) -> None:
        """Pack a batch; IDOrderError, InvalidIDError, InvalidEntryError, EntryTypeError,
        SchemaError."""
        if not batch.num_rows:
            return
        ids: list[ID] = []
        if self._wanted.id_kind:
            ms, seq = row_ids(batch, self._wanted, self._row)
            ids = list(zip(ms, seq if seq is not None else [-1] * len(ms), strict=True))
        rows = ready_rows(batch, self._wanted, self._row)
        for name, first, end in self._runs(batch):
            typed = self._written(name, rows, first, end)
            if typed is None:
                self._pack(name, rows, first, end, ids[first:end])
            else:
                self._pack(name, typed, 0, end - first, ids[first:end])
        self._row += batch.num_rows
        if self._held > HELD_BYTES:
            self.finish()

    def _written(self, name: bytes, rows: Any, first: int, end: int) -> Any:
        """Rows with the one text of each value; None: they have that. SchemaError."""
        typing = self._typed.get(name)
        if typing is None or self._wanted.typed is not None:
            return None
        from logstore.features.typed_rows import written

        try:
            return written(typing.schema, rows, first, end, self._row + first)
        except SchemaError as error:
            raise SchemaError(error.message, stream=name) from None

    def _runs(self, batch: Any) -> Iterator[tuple[bytes, int, int]]:
        """The stream, the first row and the end of each run of rows of one stream."""
        if self._wanted.stream < 0:
            yield self._stream, 0, batch.num_rows
            return
        names = batch.column(self._wanted.stream).to_pylist()
        first = 0
        for at in range(1, len(names) + 1):
            if at == len(names) or names[at] != names[first]:
                name = names[first]
                if not name:
                    raise InvalidEntryError(
                        f"row {self._row + first}: the name of the stream is missing"
                    )
                yield name if isinstance(name, bytes) else name.encode(), first, at
                first = at

    def _pack(self, name: bytes, rows: Any, first: int, end: int, ids: list[ID]) -> None:
        to = self._growing.get(name)
        if to is None:
            to = self._growing[name] = _PackedNodes()
        start: ID | list[ID]
        if self._wanted.id_kind:
            start = ids = _ascending(name, to.last, ids)
            low, high = ids[0], ids[-1]
        else:
            # IDs count from 0-1 in each run of nodes; the store replaces them.
            start = low = (0, to.rows + 1)
            high = (0, to.rows + end - first)
        limits = self._limits
        most = limits.node_max_bytes or ENTRY_MAX_BYTES
        packed = codec().pack(
            rows, first, end, start, to.lp, *to.master, most, limits.node_max_entries
        )
        if not to.rows:
            to.first = low
        before = len(to.data) + len(to.lp or b"")
        to.lp = packed.open_lp
        for node in packed.nodes:
            to.close()
            to.master, to.lp = (node.master_ms, node.master_seq), node.lp
        to.rows += end - first
        to.last = high
        self._held += len(to.data) + len(to.lp or b"") - before
        if len(to.data) >= RUN_BYTES:
            self._hand(name, to)

    def _hand(self, name: bytes, to: _PackedNodes) -> None:
        to.close()
        if to.rows:
            own_ids, typing = bool(self._wanted.id_kind), self._typed.get(name)
            schema_at = 0 if typing is None else typing.schema_at
            self._take(name, own_ids, to.data, to.rows, to.first, to.last, schema_at)
            self._held -= len(to.data)
        to.data, to.rows = bytearray(), 0

    def finish(self) -> None:
        """Hand over what is left."""
        for name, to in self._growing.items():
            self._hand(name, to)
        self._held = 0


def _ascending(name: bytes, last: ID, ids: list[ID]) -> list[ID]:
    """IDs with their sequences; IDOrderError if they do not ascend above ``last``."""
    found: list[ID] = []
    for ms, seq in ids:
        id = (ms, seq)
        if seq < 0:  # a time only: the sequence is as an add gives it
            id = (ms, last[1] + 1) if ms == last[0] and (found or last != (0, 0)) else (ms, 0)
        if id <= last:
            raise IDOrderError(
                f"rows of stream {name!r} do not come in the order of their IDs: "
                f"{StreamID(*id)} after {StreamID(*last)}. Sort by ID before you write: "
                "df.orderBy('id_key'), or by the columns that the ID is made of",
                stream=name,
            )
        found.append(id)
        last = id
    return found
