"""``logstore add``, ``range``, ``tail`` and ``sql``: entries in and out, and queries of them.

Which tables a query of DuckDB needs is asked of DuckDB: of its parser, and of what its catalogue
misses. Invariants: a query opens the store to be read, and nothing is written to it, whatever the
query says; rows are printed as they come, and with ``--json`` memory holds a batch of them.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from logstore.errors import StreamNotFoundError, UsageError
from logstore.loading import needing
from logstore.tools import command_options as options
from logstore.tools import wording
from logstore.tools.command_options import LENGTH
from logstore.tools.command_output import Output

if TYPE_CHECKING:
    import duckdb

    from logstore.api.entry import Entry
    from logstore.api.store import Store
    from logstore.options import Sync


def wanted(pairs: tuple[str, ...]) -> dict[bytes, bytes] | None:
    """What --where asks for: a field cannot have two values."""
    where = dict(split_pair(pair) for pair in pairs)
    if len(where) < len(pairs):
        raise click.BadParameter("a field is given twice: all conditions must hold")
    return where or None


def split_pair(pair: str) -> tuple[bytes, bytes]:
    """FIELD=VALUE of the command line, as the bytes that were typed."""
    field, equals, value = pair.partition("=")
    if not equals:
        raise click.BadParameter(f"{pair!r} is not FIELD=VALUE", param_hint="FIELD=VALUE")
    return os.fsencode(field), os.fsencode(value)


where_option = click.option(
    "--where", metavar="FIELD=VALUE", multiple=True, help="Only entries that have it; repeatable."
)


@options.command("add")
@options.stream_argument
@click.argument("pairs", metavar="FIELD=VALUE...", nargs=-1, required=True)
@click.option("--id", "id", default="*", show_default=True, help="The ID: MS-SEQ, MS-* or *.")
@click.option(
    "--max-entries", type=click.IntRange(min=0), help="Then trim to about this many entries."
)
@click.option("--min-id", help="Then trim what is below this ID, about.")
@click.option("--exact", is_flag=True, help="Trim exactly, not whole nodes only.")
@click.option("--ttl", type=LENGTH, help="How long the entry lives: 90s, 1h30m, 7d.")
@options.no_create_option
@options.sync_option
def add(
    output: Output,
    /,
    path: Path,
    name: str,
    pairs: tuple[str, ...],
    exact: bool,
    no_create: bool,
    sync: Sync,
    **more: Any,
) -> None:
    """Add one entry to STREAM and print its ID.

    Makes the store and the stream if they are missing. A field name may repeat.
    """
    fields = [split_pair(pair) for pair in pairs]
    # Closed at once, which makes it durable: it needs no thread for that, nor for anything else.
    with options.opened(path, sync=sync, create=not no_create, background=False) as store:
        stream = store.stream(name)
        added = stream.add(fields, approximate=not exact, create=not no_create, **more)
    if added is None:
        raise StreamNotFoundError("no such stream: leave out --no-create to make it")
    if output.json:
        output.json_object({"id": str(added)})
    else:
        output.line(str(added))


@options.command("range")
@options.stream_argument
@click.argument("start", default="-")
@click.argument("end", default="+")
@click.option("--since", help="From this moment on: -1h, 2026-01-31, 2026-01-31T12:00Z (UTC).")
@click.option("--until", help="Up to this moment, likewise; of a day all of it.")
@where_option
@click.option("-n", "--count", type=click.IntRange(min=0), help="At most this many.")
@click.option("--reverse", is_flag=True, help="The last one first.")
def range_(
    output: Output, /, path: Path, name: str, where: tuple[str, ...], **interval: Any
) -> None:
    """Print entries from START to END, both included.

    An ID is MS-SEQ or MS; "-" and "+" are the first and the last; "(" before an ID leaves it out.
    START is the smaller one, also with --reverse.
    """
    match = wanted(where)
    with options.reading(path) as store:
        for entry in options.existing(store, name).range(where=match, **interval):
            output.entry(entry)


@options.command("tail")
@options.stream_argument
@click.option("-n", "--count", type=click.IntRange(min=0), default=10, show_default=True)
@click.option("--since", help="All from this moment on, whatever -n says: -1h, 2026-01-31.")
@where_option
@click.option("-f", "--follow", is_flag=True, help="Go on with new entries, until interrupted.")
def tail(
    output: Output,
    path: Path,
    name: str,
    count: int,
    since: str | None,
    where: tuple[str, ...],
    follow: bool,
) -> None:
    """Print the last entries of STREAM, the newest at the end."""
    match = wanted(where)
    with options.reading(path) as store:
        stream = options.existing(store, name)
        seen = stream.last_id  # what comes later is for those that follow
        if since is not None:
            begun = stream.range(since=since, where=match)
            shown: Iterable[Entry[bytes]] = takewhile(lambda entry: entry.id <= seen, begun)
        else:
            newest = stream.range(end=seen, where=match, count=count, reverse=True)
            shown = reversed(list(newest))
        for entry in shown:
            output.entry(entry)
        if follow:
            output.flush()
            for entry in stream.follow(seen, where=match):
                output.entry(entry)
                output.flush()


# -- queries --------------------------------------------------------------------------------------
ENTRIES = "entries"
ROWS = 10_000
_OUR_TRACE = ". Detail: Python exception: "
_NO_TABLE = re.compile(r"Table with name (.+?) does not exist", re.DOTALL)


def connect() -> duckdb.DuckDBPyConnection:
    """A database in memory; UsageError without DuckDB."""

    def made() -> duckdb.DuckDBPyConnection:
        import duckdb

        # Its bindings take what is not collected at the end of the process for their own leaks.
        atexit.unregister(gc.freeze)
        con = duckdb.connect()
        con.execute("set timezone = 'UTC'")  # as all times are that the store tells
        con.execute("set python_enable_replacements = false")  # else our variables are tables
        return con

    return needing("duckdb", made)


class Tables:
    """The tables of a store's streams, made as DuckDB's catalogue misses them."""

    def __init__(self, con: duckdb.DuckDBPyConnection, store: Store[bytes]) -> None:
        from logstore.scan import scan_columns  # here, so that the command's help loads none of it

        self._naming = scan_columns
        self._con = con
        self._store = store
        self._streams = store.streams()
        self._names = self._naming.stream_tables(self._streams, [ENTRIES])
        self._missing: dict[str, bytes | None] = {
            self._naming.folded(table): stream for stream, table in self._names.items()
        }
        self._missing[ENTRIES] = None

    def execute(self, statement: duckdb.Statement) -> None:
        """Execute a statement, with the tables that it needs."""
        import duckdb

        types = duckdb.StatementType
        named: set[str] | None = None
        with suppress(duckdb.Error):  # its parser wants to know the tables for some of them
            named = self._con.get_table_names(statement.query)
        if named is None:
            named = set()
        elif not named and statement.type in (types.SELECT, types.PRAGMA, types.CALL, types.COPY):
            named = set(self._missing)
        for name in named:
            self._make(name)
        while True:
            try:
                self._con.execute(statement)
            except duckdb.CatalogException as error:
                found = _NO_TABLE.search(str(error))
                if found is None or not self._make(found[1]):
                    raise
            else:
                return

    def _make(self, name: str) -> bool:
        """Make the table of a name; False: there is none, or it is there."""
        from logstore.duckdb import attach

        key = self._naming.folded(name)
        if key not in self._missing:
            return False
        stream = self._missing.pop(key)
        if stream is None:
            attach(self._con, self._store, view=ENTRIES)
        else:
            attach(self._con, self._store, _literally(stream), view=self._names[stream])
        return True

    def hint(self, error: str) -> str:
        """What to say of a table that is not there."""
        found = _NO_TABLE.search(error)
        if found is None:
            return ""
        wanted = self._naming.folded(found[1])
        alike = [
            f"{name!r} is {table}"
            for stream, table in self._names.items()
            if self._naming.folded(name := self._naming.column_name(stream)) == wanted
        ]
        if not alike:
            rule = 'a stream is a table by its name, in "" where that has a colon'
            return f"; {rule}, {ENTRIES} is all"
        first = alike[0].replace(" is ", " is the table ", 1)
        others = ", ".join([first, *alike[1:]])
        return f"; tables are not told by upper and lower case: the stream {others}"


def _literally(name: bytes) -> bytes:
    """A name as a pattern that stands for itself."""
    return b"".join(b"[%c]" % each if each in b"*?[" else b"%c" % each for each in name)


def rows_of(
    con: duckdb.DuckDBPyConnection, store: Store[bytes], query: str
) -> tuple[list[str], Iterator[list[Any]]]:
    """The columns of a query, and its rows; UsageError with what DuckDB says of it."""
    import duckdb

    tables = Tables(con, store)
    try:
        statements = con.extract_statements(query)
        for each in statements:
            tables.execute(each)
        columns = [each[0] for each in con.description or ()] if statements else []
    except duckdb.Error as error:
        raise UsageError(f"{_message(error)}{tables.hint(str(error))}") from error
    if not columns:
        raise UsageError(f"there is no query: give one, as in 'select * from {ENTRIES} limit 10'")

    def rows() -> Iterator[list[Any]]:
        try:
            while found := con.fetchmany(ROWS):
                yield from map(list, found)
        except duckdb.Error as error:
            raise UsageError(_message(error)) from error

    return columns, rows()


def _message(error: duckdb.Error) -> str:
    """What DuckDB says, without the lines of our code that pyarrow adds to an error of a scan."""
    return str(error).partition(_OUR_TRACE)[0]


def distinct(columns: list[str]) -> list[str]:
    """The names of columns as keys: a name that was there has a suffix."""
    found: dict[str, None] = {}
    for name in columns:
        key, number = name, 2
        while key in found:
            key, number = f"{name}_{number}", number + 1
        found[key] = None
    return list(found)


def plain(value: Any) -> Any:
    """A value of DuckDB for JSON: text for what JSON has not, base64 for bytes that are no text."""
    if isinstance(value, bytes):
        return wording.text_or_base64(value)
    if isinstance(value, dict):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def table_cell(value: Any) -> str:
    """A value for a table."""
    import json  # (takes a while to load)

    value = plain(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@options.command("sql")
@click.argument("query")
def sql(output: Output, path: Path, query: str) -> None:
    """Print what a query of DuckDB gives.

    Each stream is a table by its name, in "" if that is more than a word; the table entries is all
    streams together, and "show tables" lists them. They have the columns stream, id, ms, seq, ts,
    fields, id_key, pairs, and the fields of their first and last entries as text. What DuckDB takes
    for a name that is there, as it does not tell names by case, has a suffix: _2, _3. Needs the
    extra duckdb.
    """
    with options.reading(path) as store, closing(connect()) as con:
        columns, rows = rows_of(con, store, query)
        if not output.json:
            output.table(columns, ([*map(table_cell, row)] for row in rows))
            return
        keys = distinct(columns)
        for row in rows:
            output.json_object(dict(zip(keys, map(plain, row), strict=True)))
