"""``logstore add``, ``range``, ``tail`` and ``sql``: adding, reading and querying entries.

DuckDB itself says which tables a query needs: its parser, and then the errors of its catalogue.
Invariants: a query opens the store read-only, so nothing is written to it, whatever the query says.
Rows are printed as they come; with ``--json`` memory holds a batch of them.
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

from logstore.errors import OptionError, StreamNotFoundError, UsageError
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


_PLAIN_PAIR = re.compile(r"""[^\s=<>!'"()]+(?:=[^\s'"()]*)?""")


def wanted(given: tuple[str, ...]) -> dict[bytes, bytes] | str | None:
    """What --where asks for, all of it; None: nothing. FIELD=VALUE is what is stored, and all else
    a condition."""
    texts = [each for each in given if not _is_pair(each)]
    pairs = [split_pair(each) for each in given if each not in texts]
    if len(dict(pairs)) < len(pairs):
        raise click.BadParameter("a field is given twice: all conditions must hold")
    if not texts:
        return dict(pairs) or None
    if pairs:
        raise click.BadParameter(
            "a condition and FIELD=VALUE do not go together: write the latter as one, "
            f"{_said(pairs)}"
        )
    return " and ".join(f"({each})" for each in texts) if len(texts) > 1 else texts[0]


def _said(pairs: list[tuple[bytes, bytes]]) -> str:
    field, value = (part.decode("utf-8", "replace") for part in pairs[0])
    return f"{field} = " + "'" + value.replace("'", "''") + "'"


def _is_pair(text: str) -> bool:
    """Whether a text is FIELD=VALUE, or was meant to be: a word with or without a value, or what
    is no condition and has no quotes."""
    if _PLAIN_PAIR.fullmatch(text):
        return True
    from logstore.where.condition_text import parse  # here, for help must load fast

    try:
        parse(text)
    except OptionError:
        return "=" in text and not any(sign in text for sign in "'<>")
    return False


def split_pair(pair: str) -> tuple[bytes, bytes]:
    """FIELD=VALUE of the command line, as the bytes that were typed."""
    field, equals, value = pair.partition("=")
    if not equals:
        raise click.BadParameter(f"{pair!r} is not FIELD=VALUE", param_hint="FIELD=VALUE")
    return os.fsencode(field), os.fsencode(value)


where_option = click.option(
    "--where",
    metavar="CONDITION",
    multiple=True,
    help="Only entries for which it holds: FIELD=VALUE, or such as \"temp > 20 and room = 'a'\"; "
    "repeatable.",
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
    # Closing makes the entry durable, so no background thread is needed.
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
@click.option("--since", help="From this moment on: 1h (ago), today, 2026-01-31T12:00Z.")
@click.option("--until", help="Up to this moment, likewise; of a day all of it.")
@where_option
@options.count_option("At most this many.", default=None)
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
@options.count_option(None, default=10)
@click.option("--since", help="All from this moment on, whatever -n says: 1h, today.")
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
        seen = stream.last_id  # later entries are for --follow
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

        # DuckDB's bindings report objects that are not collected at the end as leaks.
        atexit.unregister(gc.freeze)
        con = duckdb.connect()
        con.execute("set timezone = 'UTC'")  # as all times of the store are
        con.execute("set python_enable_replacements = false")  # else variables here are tables
        return con

    return needing("duckdb", made)


class StreamTables:
    """The tables of a store's streams; each is made when a query needs it."""

    def __init__(self, con: duckdb.DuckDBPyConnection, store: Store[bytes]) -> None:
        from logstore.scan import scan_columns  # here, for help must load fast
        from logstore.schema.stream_schema import folded

        self._naming, self._folded = scan_columns, folded
        self._con = con
        self._store = store
        self._streams = store.streams()
        self._names = self._naming.stream_tables(self._streams, [ENTRIES])
        self._missing: dict[str, bytes | None] = {
            self._folded(table): stream for stream, table in self._names.items()
        }
        self._missing[ENTRIES] = None

    def execute(self, statement: duckdb.Statement) -> None:
        """Execute a statement, with the tables that it needs."""
        import duckdb

        types = duckdb.StatementType
        named: set[str] | None = None
        with suppress(duckdb.Error):  # for some statements the parser needs the tables
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
        """Make the table of a name; False: there is no such stream, or the table exists."""
        from logstore.duckdb import attach

        key = self._folded(name)
        if key not in self._missing:
            return False
        stream = self._missing.pop(key)
        if stream is None:
            attach(self._con, self._store, view=ENTRIES)
        else:
            attach(self._con, self._store, _literally(stream), view=self._names[stream])
        return True

    def hint(self, error: str) -> str:
        """What to add to the error for a table that does not exist."""
        found = _NO_TABLE.search(error)
        if found is None:
            return ""
        wanted = self._folded(found[1])
        alike = [
            f"{name!r} is {table}"
            for stream, table in self._names.items()
            if self._folded(name := self._naming.column_name(stream)) == wanted
        ]
        if not alike:
            rule = 'a stream is a table by its name, in "" where that has a colon'
            return f"; {rule}, {ENTRIES} is all"
        first = alike[0].replace(" is ", " is the table ", 1)
        others = ", ".join([first, *alike[1:]])
        return f"; tables are not told by upper and lower case: the stream {others}"


def _literally(name: bytes) -> bytes:
    """A pattern that matches this name alone."""
    return b"".join(b"[%c]" % each if each in b"*?[" else b"%c" % each for each in name)


def rows_of(
    con: duckdb.DuckDBPyConnection, store: Store[bytes], query: str
) -> tuple[list[str], Iterator[list[Any]]]:
    """The columns of a query, and its rows; UsageError with DuckDB's message."""
    import duckdb

    tables = StreamTables(con, store)
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
    """DuckDB's message, without the trace that pyarrow adds to an error of a scan."""
    return str(error).partition(_OUR_TRACE)[0]


def distinct(columns: list[str]) -> list[str]:
    """The names of columns as keys: a repeated name gets a suffix."""
    found: dict[str, None] = {}
    for name in columns:
        key, number = name, 2
        while key in found:
            key, number = f"{name}_{number}", number + 1
        found[key] = None
    return list(found)


def json_value(value: Any) -> Any:
    """A value of DuckDB for JSON: text for types that JSON lacks, base64 for bytes that are not
    UTF-8."""
    if isinstance(value, bytes):
        return wording.text_or_base64(value)
    if isinstance(value, dict):
        return {str(json_value(key)): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def table_cell(value: Any) -> str:
    """A value for a table."""
    import json  # (takes a while to load)

    value = json_value(value)
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
            output.json_object(dict(zip(keys, map(json_value, row), strict=True)))
