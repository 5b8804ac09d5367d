"""Statements and dot commands of ``logstore sql``, one after the other: run, written, or refused.

Invariants: rows are written as they come; an error is DuckDB's own text, and ends a script but not
a prompt; Ctrl-C ends the statement that runs, and at a prompt nothing else. A prompt looks at the
streams anew for each line.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from logstore.api import showing
from logstore.errors import Error, UsageError
from logstore.tools.command_output import EXIT_ERROR, Output
from logstore.tools.sql import result_forms
from logstore.tools.sql.result_forms import Canvas, Result
from logstore.tools.sql.stream_tables import (
    ENTRIES,
    StreamTables,
    interruptible,
    is_whole,
    quoted,
    statements,
    unquoted,
)
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    import duckdb

    from logstore.api.store import Store

ROWS = 10_000
NO_QUERY = f"there is no query: give one, as in 'select * from {ENTRIES} limit 10'"
TABLE = "table"  # the form where stdout is no terminal: columns of text without a box
MODES = [*result_forms.FORMS, TABLE]


class Shell:
    """Runs statements over a store. ``paged``: what is longer than the terminal goes to a pager."""

    def __init__(
        self,
        output: Output,
        store: Store[bytes],
        con: duckdb.DuckDBPyConnection,
        *,
        paged: bool,
    ) -> None:
        self.mode = "json" if output.json else "box" if output.on_terminal else TABLE
        self._output = output
        self._store = store
        self._con = con
        self._paged = paged
        self._ended = False
        self.tables = StreamTables(con, store, output.progress)

    def script(self, lines: Iterable[str]) -> None:
        """Run what lines have, up to the first error."""
        nothing = True
        for text in gathered(lines):
            nothing = False
            if not self._run(text):
                self._output.exit_code = EXIT_ERROR
                return
            if self._ended:
                return
            self._output.flush()
        if nothing:
            raise UsageError(NO_QUERY)

    def interactive(self) -> None:
        """Ask for lines and run them, until the end of file or ``.quit``."""
        from logstore.tools.sql.sql_prompt import reader

        read = reader(self._output, self.tables, self._con, [*DOTTED], MODES)
        while not self._ended:
            try:
                text = read()
                if text.strip():
                    self.tables.refresh()
                    self._run(text)
                self._output.flush()
            except EOFError:
                return
            except KeyboardInterrupt:
                self._output.beside("interrupted")

    # -- statements ---------------------------------------------------------------------------
    def _run(self, text: str) -> bool:
        """Run statements, or a dot command; False: one of them is in error, which is told."""
        import duckdb

        try:
            if is_dotted(text):
                self._dotted(text.strip())
            else:
                found = statements(self._con, text)
                if not found:
                    raise UsageError(NO_QUERY)
                for each in found:
                    self._statement(each)
        except duckdb.Error as error:
            self._output.lines_of_error(type(error).__name__, self.tables.message(error))
            return False
        except Error as error:
            self._output.error(error)
            return False
        return True

    def _statement(self, statement: duckdb.Statement) -> None:
        self.tables.execute(statement)
        described = self._con.description or []
        columns = [each[0] for each in described]
        if gives_rows(statement, columns):
            types = [str(each[1]) for each in described]
            self._write(Result(columns, types, self._rows()))
            self._output.flush()  # the next statement may take long

    def _rows(self) -> Iterator[Sequence[Any]]:
        while found := interruptible(self._con, lambda: self._con.fetchmany(ROWS)):
            yield from found

    def _write(self, result: Result) -> None:
        if self.mode == TABLE:
            rows = ([*map(result_forms.text_of, row)] for row in result.rows)
            self._output.table(result.columns, rows)
            return
        width, _, unicode = self._output.canvas(shutil.get_terminal_size().columns)
        self._lines(result_forms.FORMS[self.mode](result, Canvas(width, unicode)))

    def _lines(self, lines: Iterator[str]) -> None:
        """Write lines: on a terminal those that it cannot hold go to the pager."""
        if not self._output.on_terminal:
            for line in lines:
                self._output.utf8_line(line)
            return
        safe = (showing.printable(part) for line in lines for part in line.split("\n"))
        first = list(islice(safe, shutil.get_terminal_size().lines - 1)) if self._paged else []
        more = next(safe, None)
        if self._paged and more is not None:
            self._output.page(chain(first, [more], safe))
            return
        for line in chain(first, [] if more is None else [more], safe):
            self._output.line(line)

    # -- dot commands -------------------------------------------------------------------------
    def _dotted(self, text: str) -> None:
        name, _, argument = text.rstrip(";").partition(" ")
        if name not in DOTTED:
            raise UsageError(f"there is no {name}: .help lists what there is")
        DOTTED[name].run(self, unquoted(argument.strip()))

    def tell_tables(self, _argument: str) -> None:
        """The tables: streams, with their entries and the columns of their schema."""
        types = ["VARCHAR", "BIGINT", "VARCHAR"]
        self._write(Result(["table", "entries", "columns"], types, self._tables_rows()))

    def _tables_rows(self) -> Iterator[Sequence[Any]]:
        for table, name in self.tables.tables().items():
            if name is None:
                yield (
                    table,
                    sum(len(self._store.stream(each)) for each in self._store.streams()),
                    "",
                )
                continue
            stream = self._store.stream(name)
            schema = stream.schema
            yield table, len(stream), "" if schema is None else schema.text

    def tell_schema(self, argument: str) -> None:
        """The columns of a table, or of all."""
        self._lines(self._schema_lines([argument] if argument else list(self.tables.tables())))

    def _schema_lines(self, tables: list[str]) -> Iterator[str]:
        for table in tables:
            columns = self.tables.columns(table)
            if columns is None:
                raise UsageError(f"there is no table {table!r}: .tables lists those there are")
            yield f"CREATE TABLE {quoted(table)} ("
            for place, (name, kind) in enumerate(columns, 1):
                yield f"  {quoted(name)} {kind}" + ("," if place < len(columns) else "")
            yield ");"

    def set_mode(self, argument: str) -> None:
        """The form of results."""
        if argument not in MODES:
            raise UsageError(f".mode takes one of {', '.join(MODES)}; it is {self.mode}")
        self.mode = argument

    def help(self, _argument: str) -> None:
        """This list."""
        for each in _COMMANDS:
            self._output.line(f"{each.usage:16} {each.help}")
        self._output.line(f"{'...;':16} A statement of DuckDB, over several lines if need be.")

    def quit(self, _argument: str) -> None:
        """The end."""
        self._ended = True


class DotCommand(NamedTuple):
    """How a dot command is called, and what it does."""

    usage: str
    help: str
    run: Callable[[Shell, str], None]


_COMMANDS = (
    DotCommand(".tables", "List the tables, with their entries and schemas.", Shell.tell_tables),
    DotCommand(".schema [TABLE]", "Tell the columns of a table, or of all.", Shell.tell_schema),
    DotCommand(".mode MODE", f"Write results as {', '.join(MODES)}.", Shell.set_mode),
    DotCommand(".help", "Tell this.", Shell.help),
    DotCommand(".quit", "End, as the end of file does.", Shell.quit),
)
DOTTED = {each.usage.split()[0]: each for each in _COMMANDS}


def is_dotted(text: str) -> bool:
    """Whether a text is a dot command."""
    return text.lstrip().startswith(".")


def gathered(lines: Iterable[str]) -> Iterator[str]:
    """Statements and dot commands of lines: a statement may take several."""
    begun = ""
    for line in lines:
        if not begun.strip() and is_dotted(line):
            yield line
            continue
        begun += line
        if ";" in line and is_whole(begun):
            yield begun
            begun = ""
    if begun.strip():
        yield begun


def gives_rows(statement: duckdb.Statement, columns: list[str]) -> bool:
    """Whether a statement gave rows, and no count of what it changed, nor that it was done."""
    from duckdb import ExpectedResultType as Gives

    gives = statement.expected_result_type
    if not columns or Gives.QUERY_RESULT not in gives:
        return False
    counted = Gives.CHANGED_ROWS in gives and columns == ["Count"]
    return not counted and not (Gives.NOTHING in gives and columns == ["Success"])
