"""Nodes to Arrow columns, in pure Python.

Invariants: a column that was not asked for costs nothing; text columns hold valid UTF-8, whatever
the entries hold; a node that fails to decode adds no row. pyarrow is imported by `finish` only.

It may not know where nodes come from, or how many rows a batch should have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from logstore.codec import node
from logstore.codec.node_list import each_item, frame_listpack
from logstore.codec.node_types import (
    ARROW_COLUMNS,
    EXACT_COLUMNS,
    ID,
    MAX_ID,
    TIMESTAMP_MS_MAX,
    ZERO_ID,
    NodeEntry,
    Section,
)
from logstore.errors import CorruptNodeError, OptionError, TooLargeError, shown

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN_BYTES_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


def check_columns(columns: Sequence[str], field_columns: Sequence[str]) -> None:
    """OptionError unless every column exists and none is asked for twice."""
    for name in columns:
        if name not in ARROW_COLUMNS and name not in EXACT_COLUMNS:
            raise OptionError(f"no column {name!r}; there are {', '.join(ARROW_COLUMNS)}")
    for names in (columns, field_columns):
        if len(set(names)) != len(names):
            raise OptionError(f"a column is named twice: {', '.join(names)}")


def binary_flags(binary: bool | Sequence[bool], count: int) -> list[bool]:
    """For each of the columns whether its values stay bytes."""
    flags = [binary] * count if isinstance(binary, bool) else list(binary)
    if len(flags) != count:
        raise OptionError(f"there are {count} columns, not {len(flags)}")
    return flags


def arrow_type(name: str, binary: bool) -> Any:
    """The Arrow type of a standard column; any other name is a field's."""
    import pyarrow as pa

    values = pa.binary() if binary else pa.string()
    types = {
        "stream": pa.string(),
        "id": pa.string(),
        "ms": pa.int64(),
        "seq": pa.int64(),
        "ts": pa.timestamp("us", tz="UTC"),
        "fields": pa.map_(pa.string(), values),
        "id_key": pa.binary(),
        "pairs": pa.list_(pa.struct([("field", pa.string()), ("value", values)])),
        "ms_exact": pa.uint64(),
        "seq_exact": pa.uint64(),
    }
    return types.get(name, values)


class NameGuard:
    """Which fields may have the names of columns, for who does not tell names by case.

    An entry with another field of such a name is refused: a query for its name would answer with
    the column. Names are folded in ASCII, as DuckDB does it.

    Args:
        columns: the names of columns.
        known: the fields that are columns, by these names or by others.
    """

    def __init__(self, columns: Iterable[str], known: Iterable[str]) -> None:
        self.columns = {name.encode().lower(): name for name in columns}
        self.reserved = tuple(self.columns)
        self.known = tuple(name.encode() for name in known)

    def check(self, stream_name: bytes, entries: Iterable[NodeEntry]) -> None:
        """OptionError if one of some entries has such a field."""
        for _, ms, seq, flat in entries:
            for field in flat[::2]:
                column = self.columns.get(field.lower())
                if column is not None and field not in self.known:
                    name = _text(field)
                    raise OptionError(
                        f"entry {ms}-{seq} of stream {shown(stream_name)} has the field {name!r}, "
                        f"which would be taken for the column {column!r} of another field, as "
                        f"names are not told by case here; fields['{name}'] tells them apart, or "
                        "say with schema= which fields are columns"
                    )

    def refuse(
        self, stream_name: bytes, lp: bytes, ms: int, seq: int, vector: bytes, start: ID, end: ID
    ) -> None:
        """The same, of the entries of a node."""
        self.check(stream_name, node.entries(lp, ms, seq, vector, start, end))


class ArrowBuilder:
    """Nodes made into one pyarrow.RecordBatch. One thread at a time.

    ``columns`` is any selection of ARROW_COLUMNS and EXACT_COLUMNS; ``field_columns`` name fields
    that become columns of their own, behind these (null where the field is absent). Types: stream
    and id string, ms and seq int64 (null past 2**63-1), ts timestamp[us, tz=UTC] (null past the
    year 9999), fields map<string, string>, id_key binary (16 bytes, big endian: sorts as the ID
    does), pairs list<struct<field: string, value: string>>, ms_exact and seq_exact uint64, field
    columns string. Of a repeated field the last value counts, in the map (at the place of the
    first) and in field columns; names are the same if their text is; pairs has all of them.
    ``binary`` makes the values of map and pairs and the field columns binary: of all, or of those
    of the columns, field columns behind the others, for which it is true. ``guard`` refuses entries
    with a field that would be taken for a column (OptionError). What is not UTF-8 has
    U+FFFD in its place in a string column, as ``bytes.decode(errors="replace")`` puts it.
    """

    def __init__(
        self,
        columns: Sequence[str] = ARROW_COLUMNS,
        field_columns: Sequence[str] = (),
        binary: bool | Sequence[bool] = False,
        guard: NameGuard | None = None,
    ) -> None:
        check_columns(columns, field_columns)
        self._columns = tuple(columns)
        self._field_columns = tuple(field_columns)
        self._field_keys = [name.encode() for name in field_columns]
        self._binary = binary_flags(binary, len(self._columns) + len(self._field_columns))
        self._guard = guard
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._data: list[list[Any]] = [[] for _ in self._columns + self._field_columns]
        self._bytes = [0] * len(self._data)

    @property
    def rows(self) -> int:
        """Rows added since the last `finish`."""
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes of the columns so far; for a caller that bounds its batches."""
        return sum(self._bytes)

    def add(
        self,
        stream_name: bytes,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes = b"",
        start: ID = ZERO_ID,
        end: ID = MAX_ID,
    ) -> int:
        """Add the live entries with start <= ID <= end; return how many.

        CorruptNodeError, TooLargeError (a column would pass 2 GiB: finish first), and OptionError
        of a `NameGuard` add nothing.
        """
        entries = node.entries(lp, master_ms, master_seq, vector, start, end)
        if self._guard is not None:
            self._guard.check(stream_name, entries)
        name = _text(stream_name)
        made = [
            self._column(column, name, entries, binary)
            for column, binary in zip(self._columns, self._binary, strict=False)
        ]
        made += [
            self._field_column(key, entries, binary)
            for key, binary in zip(self._field_keys, self._binary[len(made) :], strict=True)
        ]
        sizes = [
            before + sum(map(_size, column))
            for before, column in zip(self._bytes, made, strict=True)
        ]
        if max(sizes, default=0) > COLUMN_BYTES_MAX:
            raise TooLargeError("a column would pass 2 GiB; finish the batch before this node")
        for at, column in enumerate(made):
            self._data[at] += column
        self._bytes = sizes
        self._rows += len(entries)
        return len(entries)

    def add_located(
        self, section: Section, items: bytes, at: int, data: bytes, position: int, seed: int,
        rows_max: int, bytes_max: int,
    ) -> int:  # fmt: skip
        """Add nodes by their locators; the compiled twin does not hold the interpreter's lock.

        ``items``: a list of nodes (`node_list`), from ``at`` on; ``data``: bytes of a segment from
        ``position`` on; ``seed``: of the checksums of the store. Without columns, a node that lies
        wholly in the interval is counted and not read.

        Returns:
            The offset in ``items`` of the first node that was not added: because its frame is not
            in ``data``, or it would make more rows than ``rows_max`` or there are ``bytes_max``
            already (but a builder without rows takes any node), or its bytes are not sound. It
            never raises for what stands in a node: whoever reads looks at that one by itself.
        """
        if at > len(items):
            raise ValueError("items begin inside of the bytes")
        name, stream, start, end = section
        for item, after in each_item(items, at):
            full = self._rows + item.live > rows_max or self.nbytes >= bytes_max
            if self._rows and full:
                break
            if not self._data and start <= item.master and item.last <= end:
                self._rows += item.live
            else:
                lp: bytes | None = item.lp
                if item.position:
                    lp = frame_listpack(data, item.position - position, item, stream, seed)
                if lp is None:
                    break
                try:
                    self.add(name, lp, *item.master, item.vector, start, end)
                except (CorruptNodeError, TooLargeError, OptionError):
                    break
            at = after
        return at

    def _column(self, column: str, name: str, entries: list[NodeEntry], binary: bool) -> list[Any]:
        match column:
            case "stream":
                return [name] * len(entries)
            case "id":
                return [f"{ms}-{seq}" for _, ms, seq, _ in entries]
            case "ms":
                return [ms if ms <= _INT64_MAX else None for _, ms, _, _ in entries]
            case "seq":
                return [seq if seq <= _INT64_MAX else None for _, _, seq, _ in entries]
            case "ts":
                return [ms * 1000 if ms <= TIMESTAMP_MS_MAX else None for _, ms, _, _ in entries]
            case "id_key":
                return [ms.to_bytes(8, "big") + seq.to_bytes(8, "big") for _, ms, seq, _ in entries]
            case "ms_exact" | "seq_exact":
                return [entry[1 if column == "ms_exact" else 2] for entry in entries]
            case _:
                pairs = [_pairs(flat, binary) for _, _, _, flat in entries]
                return pairs if column == "pairs" else [list(dict(each).items()) for each in pairs]

    def _field_column(self, key: bytes, entries: list[NodeEntry], binary: bool) -> list[Any]:
        column: list[Any] = []
        for _, _, _, flat in entries:
            at = [i for i in range(0, len(flat), 2) if flat[i] == key]
            column.append(_value(flat[at[-1] + 1], binary) if at else None)
        return column

    def finish(self) -> pa.RecordBatch:
        """The batch; the builder is empty again."""
        import pyarrow as pa

        names = self._columns + self._field_columns
        kinds = (*self._columns, *[""] * len(self._field_columns))
        types = [arrow_type(*kind) for kind in zip(kinds, self._binary, strict=True)]
        arrays = [pa.array(data, kind) for data, kind in zip(self._data, types, strict=True)]
        schema = pa.schema(list(zip(names, types, strict=True)))
        if not names:
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * self._rows, pa.struct([])))
        else:
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self._clear()
        return batch


def _pairs(flat: list[bytes], binary: bool) -> list[tuple[str, str | bytes]]:
    return [(_text(flat[i]), _value(flat[i + 1], binary)) for i in range(0, len(flat), 2)]


def _value(value: bytes, binary: bool) -> str | bytes:
    return value if binary else _text(value)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _size(value: Any) -> int:
    """Bytes of one value in its column, near enough to bound a batch."""
    if isinstance(value, str):
        return len(value.encode()) + 4
    if isinstance(value, bytes):
        return len(value) + 4
    if isinstance(value, list):
        return 4 + sum(_size(key) + _size(item) for key, item in value)
    return 8
