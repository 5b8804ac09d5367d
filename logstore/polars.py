"""Streams as lazy frames of Polars, which reads of them what a query needs, from the store itself.

``logstore.polars.scan(store, "race:*")`` is a LazyFrame. Polars hands over which columns a query
needs, how many rows, and what must hold of them; what it says of streams, IDs and times decides
what is read.

Invariants: each ``collect`` reads what is in the store then; the whole condition is applied to
every row by Polars itself, so what is not understood of it here costs time, and no row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from logstore.api.scan import Scan
from logstore.api.store import Store, open_store
from logstore.ids import IDLike
from logstore.loading import needing
from logstore.scan.conditions import OPERATORS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

_SIGNS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def scan(
    store: Store[Any] | str | os.PathLike[str],
    streams: str | bytes | Sequence[str | bytes] | None = None,
    start: IDLike = "-",
    end: IDLike = "+",
    *,
    columns: Sequence[str] | Mapping[str, pa.DataType | None] | None = None,
    schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
    where: str | Sequence[tuple[str, str, Any]] | pc.Expression | None = None,
    merge: bool = False,
) -> pl.LazyFrame:
    """Entries of streams as a LazyFrame.

    Args:
        store: an open store, or the path of one, which is opened to be read at each ``collect``.
            (What this process has open under other options is given as a store.)
        streams: as in ``Store.scan``.
        start: as in ``Stream.range``.
        end: as in ``Stream.range``.
        columns: as in ``Stream.scan``.
        schema: as in ``Stream.scan``.
        where: as in ``Stream.scan``; a query may have conditions of its own besides.
        merge: as in ``Store.scan``.

    Returns:
        A LazyFrame. What a query does not need of it is not read.

    Raises:
        UsageError: polars or pyarrow is not installed.
        NotAStoreError: there is no store at the path.
        StreamNotFoundError: a stream is not there.
        InvalidIDError: an end is no ID.
        OptionError: the interval is reversed, or a column or condition cannot be.
        SchemaError: the condition does not fit the schema of the streams.
    """

    def made(opened: Store[Any], batch_rows: int) -> Scan:
        return opened.scan(
            streams,
            start,
            end,
            columns=columns,
            schema=schema,
            where=where,
            merge=merge,
            batch_rows=batch_rows,
        )

    return needing("polars", lambda: _lazy(store, made))


def _lazy(store: Any, made: Callable[[Store[Any], int], Scan]) -> pl.LazyFrame:
    import polars as pl
    from polars.io.plugins import register_io_source

    def source(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        # A number of rows is of those before the condition: the first ones must be read then.
        with _opened(store) as opened:
            found = made(opened, batch_size or BATCH_ROWS)
            known = None
            if predicate is not None and n_rows is None:
                known = pushed(predicate, found.schema)
            reader = found.pushed(with_columns, known, n_rows)
            for batch in reader:
                frame = frame_of(batch)
                yield frame if predicate is None else frame.filter(predicate)

    def frame_of(batch: Any) -> pl.DataFrame:
        import pyarrow as pa

        return pl.DataFrame(pa.Table.from_batches([batch]))

    with _opened(store) as opened:
        empty = made(opened, BATCH_ROWS).schema.empty_table()
    return register_io_source(source, schema=pl.DataFrame(empty).schema)


BATCH_ROWS = 65536


@contextmanager
def _opened(store: Any) -> Iterator[Store[Any]]:
    if isinstance(store, Store):
        yield store
        return
    with open_store(store, readonly=True, create=False) as opened:
        yield opened


# -- conditions ------------------------------------------------------------------------------
def pushed(predicate: pl.Expr, schema: pa.Schema) -> Any:
    """What a condition says of streams, IDs and times, as an expression of pyarrow that holds
    wherever the condition does; None: nothing that is understood.

    Only comparisons of a standard column with one value, and what ``and`` and ``or`` make of them,
    are understood. Where nothing else can hold is not said of what stands below a ``not``, a
    function or a cast: all is read then.
    """
    try:
        return _pushed(predicate, schema)
    except Exception:
        # How Polars writes conditions down is its own matter, and it has hundreds of functions:
        # what is not understood is not said. Then all is read, and Polars filters it.
        return None


def _kind(expr: pl.Expr) -> tuple[str, Any]:
    """What an expression is, as Polars writes it down, and what it has."""
    made = json.loads(expr.meta.serialize(format="json"))
    return next(iter(made.items())) if isinstance(made, dict) else (str(made), None)


def _pushed(predicate: pl.Expr, schema: pa.Schema) -> Any:
    kind, what = _kind(predicate)
    parts = predicate.meta.pop()[::-1]
    if kind == "Function":
        closed = what["function"]["Boolean"]["IsBetween"]["closed"]
        low = ">=" if closed in ("Both", "Left") else ">"
        high = "<=" if closed in ("Both", "Right") else "<"
        column, *ends = parts
        return _both(
            _compared(column, low, ends[0], schema), _compared(column, high, ends[1], schema)
        )
    if kind != "BinaryExpr":
        return None
    left, right = parts
    if what["op"] in ("And", "LogicalAnd"):
        return _both(pushed(left, schema), pushed(right, schema))
    if what["op"] in ("Or", "LogicalOr"):
        one, other = pushed(left, schema), pushed(right, schema)
        return None if one is None or other is None else one | other
    sign = _SIGNS[what["op"]]
    if _kind(right)[0] == "Column":
        return _compared(right, _MIRRORED.get(sign, sign), left, schema)
    return _compared(left, sign, right, schema)


def _both(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one & other


def _compared(column: pl.Expr, sign: str, value: pl.Expr, schema: pa.Schema) -> Any:
    """A comparison of a column with a constant; None: it is no such."""
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, name = _kind(column)
    if kind != "Column" or not _is_constant(value):
        return None
    found = pl.select(value).to_series()
    constant = found.to_arrow()
    for wanted, type_of_column, fits in (
        ("stream", pa.string(), found.dtype == pl.String),
        ("ms", pa.int64(), found.dtype.is_integer()),
        ("ts", pa.timestamp("us", tz="UTC"), isinstance(found.dtype, pl.Datetime)),
        ("id_key", pa.binary(), found.dtype == pl.Binary),
    ):
        if name == wanted and fits and schema.field(name).type == type_of_column:
            # A value that is rounded, or null, says nothing.
            scalar = constant.cast(type_of_column)[0]
            one = len(found) == 1 and scalar.is_valid
            return OPERATORS[sign](pc.field(name), scalar) if one else None
    return None


def _is_constant(value: pl.Expr) -> bool:
    """A literal, also as another type. Functions may have another value for each row."""
    kind, _ = _kind(value)
    return kind == "Literal" or (kind == "Cast" and all(map(_is_constant, value.meta.pop())))
