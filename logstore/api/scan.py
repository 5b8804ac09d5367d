"""A scan, as users hold it: entries of streams as Arrow, as often as they are asked for.

Invariants: making one reads no entry, but a few of streams with a codec, whose values say what the
columns are; each use is a reading of its own, which finds what is there then, and holds no snapshot
while its caller has a batch. Where the schema of the streams says the types, a reading is refused
that would find another one: its values would be null. It knows no logic of the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.api import arguments, configuring
from logstore.api.configuring import stream_decoder, stream_decoders
from logstore.api.entry_reads import entries
from logstore.api.opening import OpenStore
from logstore.errors import SchemaError
from logstore.ids import MAX_ID, ZERO_ID, IDLike
from logstore.loading import needing

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    from logstore.scan.query import Query
    from logstore.scan.scan_columns import Target
    from logstore.schema.stream_schema import Schema

T = TypeVar("T", bytes, str)

_ANEW = "make the scan, or the view of DuckDB, anew"


class Scan:
    """Entries of streams as Arrow; made by ``Stream.scan`` and ``Store.scan``.

    It can be read again and again, by several readers at a time, and each reading is a new one.
    Tools that take Arrow streams take it as it is: ``pa.table(scan)``, ``pl.DataFrame(scan)``,
    ``duckdb.sql("from scan")``.
    """

    def __init__(self, query: Query) -> None:
        self._query = query

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._query.schema

    def __repr__(self) -> str:
        return f"<Scan of {', '.join(self.schema.names) or 'no columns'}>"

    def dataset(self) -> Any:
        """What hands columns and filters of a query down to the scan, for DuckDB only.

        Returns:
            A data set of pyarrow with a schema and a scanner, and nothing else.
        """
        from logstore.scan.dataset import Entries

        return Entries(self._query)

    def pushed(
        self, columns: Sequence[str] | None, filter: pc.Expression | None, limit: int | None
    ) -> pa.RecordBatchReader:
        """Begin a reading of what a query needs.

        Args:
            columns: some of the scan's columns; None: all.
            filter: an expression of pyarrow that holds for all rows that are wanted.
            limit: at most so many rows.

        Returns:
            A reader of record batches.
        """
        return self._query.reader(columns, filter, limit)

    def reader(self, limit: int | None = None) -> pa.RecordBatchReader:
        """Begin a reading.

        Args:
            limit: at most so many rows; None: all.

        Returns:
            A reader of record batches.

        Raises:
            OptionError: ``limit`` is negative or no integer.
            StreamNotFoundError: a stream that was named is gone.
            SchemaError: the schema that gave the columns their types has others now.
        """
        arguments.range_count(limit, "limit")
        return self._query.reader(limit=limit)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.reader())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """What tools of Arrow take: a new reading."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Read all.

        Returns:
            A table, in memory.

        Raises:
            StreamNotFoundError: a stream that was named is gone.
            SchemaError: the schema that gave the columns their types has others now.
        """
        return self.reader().read_all()

    def read_all(self) -> pa.Table:
        """Read all, under the name that readers of pyarrow have for it: ``to_arrow``.

        Returns:
            A table, in memory.

        Raises:
            StreamNotFoundError: a stream that was named is gone.
            SchemaError: the schema that gave the columns their types has others now.
        """
        return self.to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """Read all.

        Returns:
            A DataFrame; ``fields`` are dicts, ``pairs`` arrays of dicts. Null is None in text, NaN
            in doubles; whole numbers and bools with nulls are ``Int64``, ``boolean`` and so on.

        Raises:
            UsageError: pandas is not installed.
            StreamNotFoundError: a stream that was named is gone.
            SchemaError: the schema that gave the columns their types has others now.
        """
        return needing("pandas", lambda: _frame(self.to_arrow()))

    def to_polars(self) -> pl.DataFrame:
        """Read all. ``logstore.polars.scan`` reads what a query needs only.

        Returns:
            A DataFrame; ``fields`` and ``pairs`` are lists of structs.

        Raises:
            UsageError: polars is not installed.
            StreamNotFoundError: a stream that was named is gone.
            SchemaError: the schema that gave the columns their types has others now.
        """

        def made() -> pl.DataFrame:
            import polars as pl

            return pl.DataFrame(self)

        return needing("polars", made)


def _frame(table: pa.Table) -> pd.DataFrame:
    """A DataFrame. NumPy has no null in whole numbers: as doubles large ones would lose digits."""
    import pandas as pd
    import pyarrow as pa

    kinds = {pa.bool_(): pd.BooleanDtype()}
    kinds |= {
        getattr(pa, name.lower())(): getattr(pd, f"{name}Dtype")()
        for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    }
    frame = table.to_pandas(maps_as_pydicts="strict")
    for place, column in enumerate(table.columns):
        if column.null_count and column.type in kinds:
            frame.isetitem(place, column.to_pandas(types_mapper=kinds.get))
    return frame


def kept_by_all(opened: OpenStore[Any], names: Sequence[bytes]) -> Schema | None:
    """The schema that all of these streams have; None if there is no such one."""
    first: Schema | None = None
    for name in names:
        found = configuring.stream_schema(opened, name)
        if found is None or (first is not None and found != first):
            return None
        first = found
    return first


SAMPLE = 100
SAMPLED_STREAMS_MAX = 100


def sampled_columns(
    opened: OpenStore[Any], names: Sequence[bytes], sample: int = SAMPLE
) -> list[Target]:
    """The columns of fields of the first and last ``sample`` entries of streams, the oldest first,
    so that a new entry takes no column from another field; what is no UTF-8 in a name is in
    ``pairs`` alone. In streams with a codec they have the types of the values, else they are
    text."""
    from logstore.scan.scan_columns import value_columns, value_kind

    kinds: dict[bytes, set[type]] = {}
    for name in names[:SAMPLED_STREAMS_MAX]:
        decode = stream_decoder(opened, name)
        for field, stored in _sampled(opened, name, sample):
            found = kinds.setdefault(field, set())
            kind = str if decode is None else value_kind(decode(stored))
            found |= set() if kind is None else {kind}
    return value_columns(kinds)


def _sampled(opened: OpenStore[Any], name: bytes, sample: int) -> Iterator[tuple[bytes, bytes]]:
    """Fields and what they have, of the first and last entries of a stream."""
    for reverse in (False, True):
        for entry in entries(opened, name, ZERO_ID, MAX_ID, sample, reverse=reverse):
            for pair in entry.pairs:
                field, stored = map(_encoded, pair)
                with suppress(UnicodeDecodeError):
                    field.decode()
                    yield field, stored


def _encoded(text: bytes | str) -> bytes:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def _typed_as_before(
    opened: OpenStore[Any], names: Callable[[], Sequence[bytes]], before: Schema
) -> Sequence[bytes]:
    """The names of streams that still have the columns of a schema. SchemaError for another one."""
    found = names()
    for name in found:
        now = configuring.stream_schema(opened, name)
        if now == before or opened.record(name) is None:
            continue
        if now is None:
            raise SchemaError(f"the stream has no schema now: {_ANEW}", stream=name)
        for column in before.columns:
            other = now.column(column.field)
            if other is None or other.type != column.type:
                is_now = "is no column" if other is None else f"is {other.type.name}"
                raise SchemaError(
                    f"column {column.name!r} was {column.type.name}, and {is_now} now: {_ANEW}",
                    stream=name,
                )
    return found


def make_scan(
    opened: OpenStore[T],
    names: Callable[[], Sequence[bytes]],
    start: IDLike,
    end: IDLike,
    *,
    columns: Sequence[str] | Sequence[Target] | Mapping[str, pa.DataType | None] | None,
    schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None,
    where: str | Sequence[tuple[str, str, Any]] | pc.Expression | None,
    batch_rows: int,
    merge: bool = False,
    guarded: bool = False,
) -> Scan:
    """A scan; what it says is checked. ``guarded``: see `Query`. UsageError without pyarrow."""
    low, high = arguments.interval(start, end)
    arguments.check_flag(merge, "merge")
    opened.engine()  # ClosedError

    def made() -> Scan:
        from logstore.scan import query
        from logstore.scan.scan_columns import standard_columns

        known, wanted, found = schema, columns, names
        if schema is None and not isinstance(columns, Mapping):
            there: Sequence[bytes] = names()
            known = kept = kept_by_all(opened, there)
            if kept is not None:
                found = partial(_typed_as_before, opened, names, kept)
            if columns is None and there and all(stream_decoders(opened, there)):
                wanted = [*sampled_columns(opened, there), *standard_columns()]
        read = query.ScanRange(opened.engine, found, low, high, partial(stream_decoders, opened))
        return Scan(
            query.Query(read, wanted, known, where, batch_rows, merge=merge, guarded=guarded)
        )

    return needing("arrow", made)
