"""Streams as views of DuckDB, which reads of them what a query needs, straight from the store.

``logstore.duckdb.attach(con, store)``, then ``con.sql('from "race:france" where ts > ...')``. What
a query does not need by its columns, times and IDs is not read at all: DuckDB hands these over.

Invariants: a view shows what is in the store at each query, and fails if its stream is gone, or has
another type for one of its columns; nothing is copied into DuckDB; no name of a view or column is
another one to DuckDB, which tells none by case (`scan_columns`); a field that a sample missed is
never answered with another one's column (`NameGuard`). The package ``duckdb`` is not imported here:
its user brings the connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.api import arguments
from logstore.api.entry_reads import stream_names
from logstore.api.opening import opened_of
from logstore.api.scan import SAMPLE, kept_by_all, make_scan, sampled_columns
from logstore.api.store import Store
from logstore.codec import ARROW_COLUMNS
from logstore.errors import EntryTypeError, SchemaError, StreamNotFoundError
from logstore.ids import IDLike
from logstore.loading import needing
from logstore.scan import scan_columns

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.compute as pc

    from logstore.api.opening import OpenStore
    from logstore.scan.scan_columns import Target

T = TypeVar("T", bytes, str)
BATCH_ROWS = 65536


def attach(
    con: duckdb.DuckDBPyConnection,
    store: Store[T],
    streams: str | bytes | Sequence[str | bytes] | None = None,
    *,
    view: str | None = None,
    start: IDLike = "-",
    end: IDLike = "+",
    schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
    where: str | Sequence[tuple[str, str, Any]] | pc.Expression | None = None,
    sample: int = SAMPLE,
) -> list[str]:
    """Make views of streams in a connection of DuckDB, for as long as it and the store are open.

    A view has the standard columns (docs/scan.md), and columns for fields.

    Args:
        con: the connection; a view that it has under the same name is replaced.
        store: an open store.
        streams: names, or patterns such as ``"race:*"``; None: all.
        view: the name of one view of all these streams together; None: one for each of them, by
            its name. (What is not UTF-8 in a name is written ``\\xff``.)
        start: as in ``Stream.range``.
        end: as in ``Stream.range``.
        schema: the fields that are columns, and their types (None: text), as in ``Stream.scan``.
        where: entries for which this holds, as in ``Stream.scan``.
        sample: without ``schema``, the fields of so many first and last entries of each stream (of
            100 streams at most) are columns of text.

    DuckDB does not tell names by case. Streams whose names differ by case only are views with a
    suffix, ``Orders_2`` and ``orders_3``, and none has the bare name. Of such fields the later one
    has a suffix, ``Name`` and ``name_2``, and so has one that is named like a standard column.

    Returns:
        The names of the views, in the order of the streams.

    Raises:
        StreamNotFoundError: a stream is not there.
        InvalidIDError: an end is no ID.
        OptionError, SchemaError: the interval is reversed, or a column or condition cannot be.
        EntryTypeError: ``store`` is no store, or a stream's name is neither str nor bytes.
        UsageError: pyarrow is not installed.
    """
    opened = _opened(store)
    arguments.check_count(sample, "sample")
    find = stream_names(opened, streams)
    if view is None:
        views = scan_columns.stream_tables(stream_names(opened, None)())
        parts = {views[name]: [name] for name in find()}
    else:
        parts = {view: find()}
    for name, raw in parts.items():
        columns = None  # those of the streams' schema
        if schema is not None or kept_by_all(opened, raw) is None:
            columns = needing("arrow", partial(_columns, store, raw, schema, sample))
        with _naming(name):
            scan = make_scan(
                opened,
                find if view is not None else partial(_still_there, opened, raw),
                start,
                end,
                columns=columns,
                schema=None,
                where=where,
                batch_rows=BATCH_ROWS,
                guarded=schema is None,
            )
            con.register(name, needing("arrow", scan.dataset))
    return list(parts)


@contextmanager
def _naming(view: str) -> Iterator[None]:
    """SchemaError says of which view it is."""
    try:
        yield
    except SchemaError as error:
        raise SchemaError(f"view {view!r}: {error}") from None


def _opened(store: Store[T]) -> OpenStore[T]:
    if not isinstance(store, Store):
        raise EntryTypeError(f"store is an open store, not {type(store).__name__}")
    return opened_of(store)


def _still_there(opened: OpenStore[Any], names: Sequence[bytes]) -> Sequence[bytes]:
    """The names; StreamNotFoundError for one that was dropped since."""
    for name in names:
        if opened.record(name) is None:
            raise StreamNotFoundError("the stream was dropped", stream=name)
    return names


def _columns(store: Store[Any], names: Sequence[bytes], schema: Any, sample: int) -> list[Target]:
    """The standard columns, and those of fields: of a schema, or of what is in the streams."""
    from logstore.scan.scan_columns import standard_columns, typed_columns, types_of

    if schema is None:
        return [*standard_columns(), *sampled_columns(opened_of(store), names, sample)]
    given = {each.name: each.type for each in typed_columns(types_of(schema))}
    standard = {name: given.pop(name) for name in ARROW_COLUMNS if name in given}
    fields = {name.encode(): kind for name, kind in given.items()}
    found = typed_columns(dict.fromkeys(ARROW_COLUMNS) | standard)
    for field, column in scan_columns.field_columns(fields, ARROW_COLUMNS).items():
        (target,) = typed_columns({column: fields[field]})
        found.append(target._replace(field=field.decode()))
    return found
