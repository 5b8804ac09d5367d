"""The streams of a store as tables of a connection of DuckDB, each made when a statement needs it.

DuckDB itself says which tables a statement needs: its parser, its plan, and then the errors of its
catalogue. Invariants: nothing is looked for in the text of a statement; a statement finds the
streams that are there when it begins, and those that it names with the columns that they have then;
a table that a statement made has its name before a stream. A statement that asks for names of
tables alone finds names without tables, for the time that it runs. Nothing in the store changes,
and no file is touched unless files are allowed.
"""

from __future__ import annotations

import atexit
import gc
import json
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from logstore.loading import needing
from logstore.signal_handlers import handled
from logstore.tools.command_output import Progress

if TYPE_CHECKING:
    import duckdb

    from logstore.api.store import Store

R = TypeVar("R")

ENTRIES = "entries"
# What a statement may set although nothing else can be set, where DuckDB knows such a list.
SETTABLE = ("TimeZone", "threads", "memory_limit", "default_order", "default_null_order")
_OUR_TRACE = ". Detail: Python exception: "
_NO_TABLE = re.compile(r"Table with name (.+?) does not exist", re.DOTALL)
_CATALOGUE = "DUCKDB_"  # begins the functions that read it, in a plan
# What tells no more than names: functions of what streams are not, and columns of views.
_OF_NAMES = {f"{_CATALOGUE}{each}" for each in ("TABLES", "INDEXES", "DATABASES", "SCHEMAS")}
_OF_VIEWS = f"{_CATALOGUE}VIEWS"
_NAMES = {
    "comment", "database_name", "database_oid", "internal", "schema_name", "schema_oid", "tags",
    "temporary", "view_name", "view_oid",
}  # fmt: skip
_UNREAD = "select error('a name without a table was read') as unread"
_INTERRUPT_S = 0.05


def connect(*, files: bool) -> duckdb.DuckDBPyConnection:
    """A database in memory; UsageError without DuckDB. Without ``files`` nothing that is a file can
    be read or written, and no setting that would write one can be changed."""

    def made() -> duckdb.DuckDBPyConnection:
        import duckdb

        # DuckDB's bindings report objects that are not collected at the end as leaks.
        atexit.unregister(gc.freeze)
        con = duckdb.connect()
        con.execute("set timezone = 'UTC'")  # as all times of the store are
        con.execute("set python_enable_replacements = false")  # else variables here are tables
        if not files:
            _lock(con)
        return con

    return needing("duckdb", made)


def _lock(con: duckdb.DuckDBPyConnection) -> None:
    """Keep statements from files. Some settings write a file though files are refused, such as
    profiling_output, so settings are locked too."""
    import duckdb

    spilled = str(Path(tempfile.gettempdir()) / "logstore-sql").replace("'", "''")
    con.execute(f"set temp_directory = '{spilled}'")  # else it is in the current directory
    con.execute("set allow_persistent_secrets = false")
    with suppress(duckdb.CatalogException):  # an older DuckDB has no such list
        con.execute(f"set allowed_configs = {list(SETTABLE)}")
    con.execute("set enable_external_access = false")
    con.execute("set lock_configuration = true")


def interruptible(con: duckdb.DuckDBPyConnection, call: Callable[[], R]) -> R:
    """What a call gives that uses a connection; Ctrl-C ends the call, and is then raised.

    DuckDB sees no signal while it works, and Python none before DuckDB returns: so the call has a
    thread of its own, and the caller's thread waits and interrupts. Meanwhile a signal only says
    so, and raises nothing: whoever raised it anywhere here would leave the connection to that call.
    """
    found: list[R] = []
    failed: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            failed.append(error)
        finally:
            ended.set()

    interrupted: list[int] = []
    with handled(lambda number, _frame: interrupted.append(number), signal.SIGINT):
        threading.Thread(target=run, daemon=True).start()
        while not ended.wait(_INTERRUPT_S):
            if interrupted:  # again: one that comes before the work begins is lost
                con.interrupt()
    if interrupted:
        raise KeyboardInterrupt
    if failed:
        raise failed[0]
    return found[0]


class StreamTables:
    """The tables of a store's streams. ``progress`` shows how far their making is, when a statement
    reads the catalogue and so needs all."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        store: Store[bytes],
        progress: Callable[[str], AbstractContextManager[Progress]],
    ) -> None:
        from logstore.scan import scan_columns  # here, for help must load fast
        from logstore.schema.stream_schema import folded

        self._naming, self._folded = scan_columns, folded
        self._con = con
        self._store = store
        self._progress = progress
        self._names: dict[bytes, str] = {}  # of streams: their tables
        self._streams: dict[str, bytes | None] = {}  # of tables, folded: their streams; None: all
        self._made: dict[str, str] = {}  # tables that are there, by their folded names
        self._listed: list[str] = []  # names that are there, without their tables
        self._own: set[str] = set()  # what statements made under whatever name, folded
        self.refresh()

    def refresh(self) -> None:
        """Look which streams there are, and forget what their columns are: a statement that comes
        finds them as they are then."""
        self._names = self._naming.stream_tables(self._store.streams(), [ENTRIES])
        streams: dict[str, bytes | None] = {
            self._folded(table): stream for stream, table in self._names.items()
        }
        streams[ENTRIES] = None
        self._unlist()
        for table in self._made.values():
            self._con.unregister(table)
        self._made.clear()
        self._streams = streams

    def tables(self) -> dict[str, bytes | None]:
        """The table of each stream, and the one of all entries, in order of their names."""
        found: dict[str, bytes | None] = {table: stream for stream, table in self._names.items()}
        found[ENTRIES] = None
        return dict(sorted(found.items()))

    def columns(self, table: str) -> list[tuple[str, str]] | None:
        """The names and types of a table's columns; None: there is no such table."""
        import duckdb

        self._unlist()
        self._make(table)
        try:
            found = self._con.execute(f"describe {quoted(table)}").fetchall()
        except duckdb.CatalogException:
            return None
        return [(row[0], row[1]) for row in found]

    def made_columns(self) -> list[str]:
        """The names of columns of the tables that are there, without a look at the store."""
        found = self._con.execute(
            "select distinct column_name from duckdb_columns() where not internal"
        )
        return [row[0] for row in found.fetchall()]

    def columns_named_in(self, text: str) -> list[str]:
        """The columns that schemas give to the streams which a text names."""
        import duckdb

        raw = text.encode()
        ends = [at for at, _ in duckdb.tokenize(text)] + [len(raw)]
        found: list[str] = []
        for at, end in pairwise(ends):
            name = unquoted(raw[at:end].decode(errors="replace").strip())
            stream = self._streams.get(self._folded(name))
            schema = None if stream is None else self._store.stream(stream).schema
            found += [] if schema is None else [each.name for each in schema.columns]
        return found

    # -- statements ---------------------------------------------------------------------------
    def execute(self, statement: duckdb.Statement) -> None:
        """Execute a statement, with the tables that it needs."""
        import duckdb

        self._unlist()
        named: set[str] = set()
        with suppress(duckdb.Error):  # for some statements the parser needs the tables
            named = self._con.get_table_names(statement.query)
        for name in named:
            self._make(name)
        self._make_catalogue(statement)
        con = self._con
        self._with_tables(lambda: interruptible(con, lambda: con.execute(statement)))
        types = duckdb.StatementType
        if statement.type in {types.CREATE, types.DROP, types.ALTER, types.TRANSACTION}:
            self._note_own()  # these give no rows, which it would replace

    def _make_catalogue(self, statement: duckdb.Statement) -> None:
        """Make all tables for a statement that asks which there are, or their names only."""
        missing = self._streams.keys() - self._made.keys() - self._own
        reads = self._reads_catalogue(statement) if missing else None
        if reads is None:
            return
        if reads == "names":
            self._listed = [self._table(key) for key in missing]
            views = (f"create temp view {quoted(each)} as {_UNREAD};" for each in self._listed)
            self._con.execute("".join(views))
            return
        with self._progress("tables") as tell:
            for done, key in enumerate(missing):
                tell(done, len(missing))
                self._make(key)

    def _unlist(self) -> None:
        """Take the names away that have no tables."""
        import duckdb

        drops = [f"drop view if exists {quoted(each)};" for each in self._listed]
        if drops:
            with suppress(duckdb.TransactionException):  # it failed: first it has to be ended
                self._con.execute("".join(drops))
                self._listed = []

    def _with_tables(self, call: Callable[[], R]) -> R:
        """A call of DuckDB, again when a table is made that it missed."""
        import duckdb

        while True:
            try:
                return call()
            except duckdb.CatalogException as error:
                found = _NO_TABLE.search(str(error))
                if found is None or not self._make(found[1]):
                    raise

    def _reads_catalogue(self, statement: duckdb.Statement) -> Literal["names", "tables"] | None:
        """What a statement asks of the tables that there are, by the functions of its plan."""
        import duckdb

        types = duckdb.StatementType
        if statement.type == types.PRAGMA:
            return "tables"  # DuckDB has no plan of one
        if statement.type not in {
            types.SELECT, types.CALL, types.CREATE, types.COPY, types.INSERT, types.EXECUTE,
        }:  # fmt: skip
            return None
        query = f"explain (format json) {statement.query}"
        try:
            plan = self._with_tables(lambda: self._con.execute(query).fetchall())
        except duckdb.Error:  # the statement itself will say it, with its own place
            return None
        if not any(_CATALOGUE in str(row) for row in plan):
            return None
        return "names" if all(map(_names_only, _operators(plan[0][1]))) else "tables"

    def _note_own(self) -> None:
        """Note the tables and views that statements made: they hide a stream of their name."""
        found = self._con.execute(
            "select table_name from duckdb_tables() where not internal union all "
            "select view_name from duckdb_views() where not internal and not temporary"
        ).fetchall()
        self._own = {self._folded(row[0]) for row in found}
        for key in self._own & self._made.keys():
            self._con.unregister(self._made.pop(key))

    def _make(self, name: str) -> bool:
        """Make the table of a name; False: there is no such stream, or its table is there."""
        from logstore.duckdb import attach

        key = self._folded(name)
        if key not in self._streams or key in self._made or key in self._own:
            return False
        stream, table = self._streams[key], self._table(key)
        attach(self._con, self._store, None if stream is None else _literally(stream), view=table)
        self._made[key] = table
        return True

    def _table(self, key: str) -> str:
        """The name of a table, by the folded one."""
        stream = self._streams[key]
        return ENTRIES if stream is None else self._names[stream]

    # -- errors -------------------------------------------------------------------------------
    def message(self, error: duckdb.Error) -> str:
        """DuckDB's message, without the trace that pyarrow adds to an error of a scan; behind it is
        what helps with a table that does not exist."""
        text = str(error).partition(_OUR_TRACE)[0].rstrip()
        found = _NO_TABLE.search(text)
        if found is None:
            return text
        wanted = self._folded(found[1])
        alike = [
            f"{name!r} is {table}"
            for stream, table in self._names.items()
            if self._folded(name := self._naming.column_name(stream)) == wanted
        ]
        if not alike:
            rule = 'a stream is a table by its name, in "" where that has a colon'
            return f"{text}\n{rule}, {ENTRIES} is all"
        first = alike[0].replace(" is ", " is the table ", 1)
        others = ", ".join([first, *alike[1:]])
        return f"{text}\ntables are not told by upper and lower case: the stream {others}"


def _operators(plan: str) -> Iterator[dict[str, Any]]:
    """The operators of a plan, as DuckDB explains it in JSON."""
    found: list[dict[str, Any]] = json.loads(plan)
    while found:
        operator = found.pop()
        yield operator
        found += operator.get("children", ())


def _names_only(operator: dict[str, Any]) -> bool:
    """Whether an operator reads of the catalogue what the names of tables tell, if it reads it."""
    name = operator["name"].strip()
    if name != _OF_VIEWS:
        return not name.startswith(_CATALOGUE) or name in _OF_NAMES
    read = operator["extra_info"].get("Projections")
    return read is not None and _NAMES.issuperset([read] if isinstance(read, str) else read)


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"{}"'.format(name.replace('"', '""'))


def unquoted(name: str) -> str:
    """The name of an identifier of SQL."""
    if len(name) > 1 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name


def statements(con: duckdb.DuckDBPyConnection, text: str) -> list[duckdb.Statement]:
    """The statements of a text, as DuckDB tells them apart."""
    return list(con.extract_statements(text))


def is_whole(text: str) -> bool:
    """Whether the last statement of a text is ended, by a semicolon that is no part of a string or
    a comment."""
    import duckdb

    tokens = [at for at, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    raw = text.encode()
    return bool(tokens) and raw[tokens[-1] : tokens[-1] + 1] == b";"


def _literally(name: bytes) -> bytes:
    """A pattern that matches this name alone; the name itself needs no look at all the others."""
    if not any(each in name for each in b"*?["):
        return name
    return b"".join(b"[%c]" % each if each in b"*?[" else b"%c" % each for each in name)
