"""``logstore sql``: what is asked for, and from where the statements come.

They come from the argument, from a terminal with a prompt, or from stdin. Invariants: the store is
opened to be read, so nothing is written to it, whatever a statement says; what is loaded for a
prompt is loaded for one.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import click

from logstore.tools import command_options as options
from logstore.tools.command_output import Output


@options.command("sql")
@click.argument("query", required=False)
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV, with a line of names.")
@click.option("--files", is_flag=True, help="Let statements read and write files, and attach.")
def sql(output: Output, path: Path, query: str | None, as_csv: bool, files: bool) -> None:
    """Ask DuckDB: print what statements give, or ask for them at a prompt.

    Statements end with ";". Without QUERY they are read from stdin, and a terminal gets a prompt:
    .help tells what it knows.

    Each stream is a table by its name, in "" if that is more than a word; the table entries is all
    streams together, and .tables lists them. A stream with a schema has its columns, with their
    types; others have the fields of their first and last entries as text. All have the columns
    stream, id, ms, seq, ts, fields, id_key, pairs. What DuckDB takes for a name that is there, as
    it does not tell names by case, has a suffix: _2, _3. Needs the extra duckdb.
    """
    from logstore.tools.sql.sql_shell import Shell
    from logstore.tools.sql.stream_tables import connect

    if as_csv and output.json:
        raise click.UsageError("give --csv or --json, not both")
    at_terminal = sys.stdin is not None and sys.stdin.isatty() and output.on_terminal
    with options.reading(path) as store, closing(connect(files=files)) as con:
        shell = Shell(output, store, con, paged=at_terminal)
        if as_csv:
            shell.mode = "csv"
        if query is not None:
            shell.script([query])
        elif at_terminal:
            shell.interactive()
        else:
            shell.script(sys.stdin or ())
