"""``logstore sql``: a query of DuckDB over the streams of a store, which reads what it needs.

Invariants: the store is opened to be read, and nothing is written to it, whatever the query says;
rows are printed as they come, and with ``--json`` memory holds a batch of them.
"""

from __future__ import annotations

import atexit
import gc
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.errors import UsageError
from logstore.loading import needing
from logstore.tools import options
from logstore.tools.output import Output

if TYPE_CHECKING:
    import duckdb

    from logstore.api.store import Store

ENTRIES = "entries"
ROWS = 10_000


def connect() -> duckdb.DuckDBPyConnection:
    """A database in memory; UsageError without DuckDB."""

    def made() -> duckdb.DuckDBPyConnection:
        import duckdb

        # Its bindings take what is not collected at the end of the process for their own leaks.
        atexit.unregister(gc.freeze)
        con = duckdb.connect()
        con.execute("set timezone = 'UTC'")  # as all times are that the store tells
        return con

    return needing("duckdb", made)


def attach(con: duckdb.DuckDBPyConnection, store: Store[bytes], query: str) -> None:
    """Views of the streams that a query names, and of all of them together if it names that."""
    from logstore.duckdb import attach as attach_views

    streams = store.streams()
    named = [name for name in streams if name.decode("utf-8", "backslashreplace") in query]
    if ENTRIES in query and ENTRIES.encode() not in streams:
        attach_views(con, store, view=ENTRIES)
    for name in named:
        options_of_view: dict[str, Any] = {"view": name.decode("utf-8", "backslashreplace")}
        attach_views(con, store, _literally(name), **options_of_view)


def _literally(name: bytes) -> bytes:
    """A name as a pattern that stands for itself."""
    return b"".join(b"[%c]" % each if each in b"*?[" else b"%c" % each for each in name)


def rows_of(con: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], Iterator[list[Any]]]:
    """The columns of a query, and its rows; UsageError with what DuckDB says of it."""
    import duckdb

    try:
        con.execute(query)
        columns = [each[0] for each in con.description or ()]
    except duckdb.Error as error:
        raise UsageError(f"{error}{_hint(str(error))}") from error
    if not columns:
        raise UsageError(f"there is no query: give one, as in 'select * from {ENTRIES} limit 10'")

    def rows() -> Iterator[list[Any]]:
        try:
            while found := con.fetchmany(ROWS):
                yield from map(list, found)
        except duckdb.Error as error:
            raise UsageError(str(error)) from error

    return columns, rows()


def _hint(error: str) -> str:
    if "Catalog Error" not in error:
        return ""
    return f'; a stream is a table by its name, in "" where that has a colon, {ENTRIES} is all'


def plain(value: Any) -> Any:
    """A value of DuckDB for JSON: text for what JSON has not, base64 for bytes that are no text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def shown(value: Any) -> str:
    """A value for a table."""
    value = plain(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@click.command("sql")
@options.store_argument
@click.argument("query")
@options.json_option
@options.pass_output
def command(output: Output, path: Path, query: str) -> None:
    """Print what a query of DuckDB gives.

    Each stream is a table by its name, in "" if that is more than a word; the table entries is all
    streams together. They have the columns stream, id, ms, seq, ts, fields, id_key, pairs, and the
    fields of their first and last entries as text. Needs the extra duckdb.
    """
    with options.reading(path) as store, closing(connect()) as con:
        attach(con, store, query)
        columns, rows = rows_of(con, query)
        if not output.json:
            output.table(columns, ([shown(value) for value in row] for row in rows))
            return
        for row in rows:
            output.json_object(dict(zip(columns, map(plain, row), strict=True)))
