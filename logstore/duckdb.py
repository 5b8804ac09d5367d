"""Streams as views of DuckDB, which reads of them what a query needs, straight from the store.

``logstore.duckdb.attach(con, store)``, then ``con.sql('from "race:france" where ts > ...')``. What
a query does not need by its columns, times and IDs is not read at all: DuckDB hands these over.

Invariants: a view shows what is in the store at each query; nothing is copied into DuckDB. The
package ``duckdb`` is not imported here: its user brings the connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.api import arguments
from logstore.api.names import stream_names
from logstore.api.opening import opened_of
from logstore.api.scan import make_scan
from logstore.api.store import Store
from logstore.codec import ARROW_COLUMNS
from logstore.errors import EntryTypeError
from logstore.ids import IDLike
from logstore.loading import needing

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T", bytes, str)
SAMPLE = 100
BATCH_ROWS = 65536
SAMPLED_STREAMS_MAX = 100


def attach(
    con: duckdb.DuckDBPyConnection,
    store: Store[T],
    streams: str | bytes | Sequence[str | bytes] | None = None,
    *,
    view: str | None = None,
    start: IDLike = "-",
    end: IDLike = "+",
    schema: pa.Schema | Mapping[str, pa.DataType | None] | str | None = None,
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
        sample: without ``schema``, the fields of so many first and last entries of each stream (of
            100 streams at most) are columns of text.

    Returns:
        The names of the views.

    Raises:
        StreamNotFoundError: a stream is not there.
        InvalidIDError: an end is no ID.
        OptionError: the interval is reversed, or a column cannot be.
        EntryTypeError: ``store`` is no store, or a stream's name is neither str nor bytes.
        UsageError: pyarrow is not installed.
    """
    if not isinstance(store, Store):
        raise EntryTypeError(f"store is an open store, not {type(store).__name__}")
    arguments.check_count(sample, "sample")
    opened = opened_of(store)
    find = stream_names(opened, streams)
    parts = {_text(name): [name] for name in find()} if view is None else {view: find()}
    for name, raw in parts.items():
        given = schema if schema is not None else _sampled(store, raw, sample)
        scan = make_scan(
            opened,
            find if view is not None else partial(list[bytes], raw),
            start,
            end,
            columns=None,
            schema=_columns(given),
            where=None,
            batch_rows=BATCH_ROWS,
        )
        con.register(name, needing("arrow", scan.dataset))
    return list(parts)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _columns(given: Any) -> dict[str, Any]:
    """The standard columns, and fields; DuckDB does not tell names by case."""
    from logstore.scan.query import types_of

    columns: dict[str, Any] = dict.fromkeys(ARROW_COLUMNS)
    taken = set(columns)
    for name, kind in needing("arrow", lambda: types_of(given)).items():
        if name in ARROW_COLUMNS:
            columns[name] = kind
        elif str(name).lower() not in taken:
            taken.add(str(name).lower())
            columns[name] = kind
    return columns


def _sampled(store: Store[Any], names: Sequence[bytes], sample: int) -> dict[str, None]:
    """The fields of the first and last entries of streams, as far as they are text."""
    found: dict[str, None] = {}
    for raw in names[:SAMPLED_STREAMS_MAX]:
        stream = store.stream(raw)
        ends: list[Iterator[Any]] = [
            islice(stream.range(reverse=reverse), sample) for reverse in (False, True)
        ]
        for entry in chain(*ends):
            for field, _ in entry.pairs:
                name = field if isinstance(field, str) else _text(field)
                found[name] = None
    return found
