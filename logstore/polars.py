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

from logstore.api.open_store import open_store
from logstore.api.scan import Scan
from logstore.api.store import Store
from logstore.ids import IDLike
from logstore.loading import needing
from logstore.scan.conditions import OPERATORS

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_SIGNS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PRUNED = ("stream", "ms", "ts", "id_key")


def scan(
    store: Store[Any] | str | os.PathLike[str],
    streams: str | bytes | Sequence[str | bytes] | None = None,
    start: IDLike = "-",
    end: IDLike = "+",
    *,
    columns: Sequence[str] | Mapping[str, pa.DataType | None] | None = None,
    schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
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
        merge: as in ``Store.scan``.

    Returns:
        A LazyFrame. What a query does not need of it is not read.

    Raises:
        UsageError: polars or pyarrow is not installed.
        NotAStoreError: there is no store at the path.
        StreamNotFoundError: a stream is not there.
        InvalidIDError: an end is no ID.
        OptionError: the interval is reversed, or a column cannot be.
    """

    def made(opened: Store[Any], batch_rows: int) -> Scan:
        return opened.scan(
            streams,
            start,
            end,
            columns=columns,
            schema=schema,
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
        known = None if predicate is None or n_rows is not None else pushed(predicate)
        with _opened(store) as opened:
            found = made(opened, batch_size or BATCH_ROWS)
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
def pushed(predicate: pl.Expr) -> Any:
    """What a condition says of streams, IDs and times, as an expression of pyarrow that holds
    wherever the condition does; None: nothing that is understood."""
    import polars as pl

    try:
        return _pushed(predicate)
    except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError):
        # How Polars writes conditions down is its own matter, and another version may do it in
        # another way: then all is read, and Polars filters it.
        return None


def _pushed(predicate: pl.Expr) -> Any:
    kind, what = next(iter(json.loads(predicate.meta.serialize(format="json")).items()))
    parts = predicate.meta.pop()[::-1]
    if kind == "Function" and "IsBetween" in what["function"].get("Boolean", {}):
        closed = what["function"]["Boolean"]["IsBetween"]["closed"]
        low = ">=" if closed in ("Both", "Left") else ">"
        high = "<=" if closed in ("Both", "Right") else "<"
        column, *ends = parts
        return _both(_compared(column, low, ends[0]), _compared(column, high, ends[1]))
    if kind != "BinaryExpr":
        return None
    left, right = parts
    if what["op"] in ("And", "LogicalAnd"):
        return _both(_pushed(left), _pushed(right))
    if what["op"] in ("Or", "LogicalOr"):
        one, other = _pushed(left), _pushed(right)
        return None if one is None or other is None else one | other
    sign = _SIGNS.get(what["op"])
    if sign is None:
        return None
    if not left.meta.root_names():
        return _compared(right, _MIRRORED.get(sign, sign), left)
    return _compared(left, sign, right)


def _both(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one & other


def _compared(column: pl.Expr, sign: str, value: pl.Expr) -> Any:
    """A comparison of a column with a constant; None: it is no such."""
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    if value.meta.root_names():
        return None
    name = next((each for each in _PRUNED if column.meta.eq(pl.col(each))), None)
    if name is None:
        return None
    constant = pl.select(value).to_series().to_arrow()
    kind = {"stream": pa.string(), "ms": constant.type, "id_key": pa.binary()}.get(
        name, pa.timestamp("us", tz="UTC")
    )
    return OPERATORS[sign](pc.field(name), constant.cast(kind)[0])
