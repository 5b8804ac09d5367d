"""What the commands write: text, tables, JSON and errors; progress bars on a terminal.

Invariants: results go to stdout, all else to stderr. JSON is UTF-8, one object a line. Text is cut
or coloured on a terminal only. It alone of the commands prints.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, TypeVar

import click

from logstore.api import showing
from logstore.errors import CorruptionError, Error, InputLineError, UsageError
from logstore.tools.wording import (
    entry_line,
    entry_object,
    for_a_shell,
    printable,
    readable,
    short_length,
)

if TYPE_CHECKING:
    from logstore.api.entry import Entry

T = TypeVar("T")
Progress: TypeAlias = Callable[[int, int], None]  # done, in all; 0 in all: not known

WIDTH_OF_A_PIPE = 10_000
PAGED_LINES = 100  # are given to the pager at once
FOLDED = 20  # characters that the first column keeps in a narrow terminal
_UNITS = {"bytes", "KiB", "MiB", "GiB", "TiB", "%", "d", "h", "min", "s"}  # behind a number
EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_LEFT_OUT = 3
EXIT_INTERRUPTED = 130


class Output:
    """The output of one run of a command, and its exit code."""

    def __init__(self) -> None:
        self.json = False
        self.yes = False  # --yes: ask no question
        self.exit_code = EXIT_OK
        self.context: dict[str, Any] = {}  # written with an error, such as counts so far

    # -- results ------------------------------------------------------------------------------
    @property
    def stream(self) -> BinaryIO:
        """The bytes of stdout; UsageError where the caller has closed it."""
        if sys.stdout is None:
            raise UsageError("stdout is closed: leave out >&-, or send it to /dev/null")
        return sys.stdout.buffer

    @property
    def on_terminal(self) -> bool:
        """Whether stdout is a terminal: what is written is for people only."""
        return self.stream.isatty()

    @property
    def can_redraw(self) -> bool:
        """Whether stdout is a terminal that can draw over what it shows."""
        return self.stream.isatty() and not self._console(WIDTH_OF_A_PIPE).is_dumb_terminal

    def json_object(self, value: Mapping[str, Any]) -> None:
        """One JSON object, on a line of its own."""
        self.stream.write(_json(value).encode() + b"\n")

    def line(self, text: str) -> None:
        """One line of text."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self.stream.write(f"{text}\n".encode(encoding, "backslashreplace"))

    def utf8_line(self, text: str) -> None:
        """One line for a program, in UTF-8 wherever this runs."""
        self.stream.write(f"{text}\n".encode("utf-8", "surrogatepass"))

    def page(self, lines: Iterable[str]) -> None:
        """Lines to the pager of a terminal, as far as they are looked at."""
        self.flush()
        os.environ.setdefault("LESS", "-S")  # lines that are too wide are moved, not broken
        rest = iter(lines)
        parts = iter(lambda: "\n".join(islice(rest, PAGED_LINES)), "")
        click.echo_via_pager(f"{part}\n" for part in parts)

    def words(self, text: str, indent: int = 0) -> None:
        """A line of text; a terminal that is too narrow gets several, broken between words, the
        further ones indented."""
        if not self.stream.isatty():
            self.line(text)
            return
        width = self._console(WIDTH_OF_A_PIPE).width
        indent = indent if 3 * indent <= width else 4
        for line in textwrap.wrap(text, width, subsequent_indent=" " * indent, tabsize=1,
                                  break_on_hyphens=False):  # fmt: skip
            self.line(line)

    def entry(self, entry: Entry[bytes]) -> None:
        """One entry, in the form that was asked for."""
        if self.json:
            self.json_object(entry_object(entry))
        else:
            self.line(entry_line(entry))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        title: str = "",
        narrow: Sequence[str] = (),
        none: str = "",
        folded: int = FOLDED,
    ) -> None:
        """Write a table, with a head only if columns have names; numbers are aligned right.

        In a narrow terminal columns are left out in the order of ``narrow``, and the first column
        is folded to ``folded`` characters before that. If that is not enough each row becomes a
        table of names and values. ``none``: the line that is written if there are no rows."""
        from rich.table import Table  # (rich takes a while to load)
        from rich.text import Text

        console = self._console(WIDTH_OF_A_PIPE)
        cells = [[_cell(value) for value in row] for row in rows]
        if not cells and none:
            self.line(none)
            return
        columns, cells = fitting(columns, cells, narrow, console.width, folded)
        if any(columns) and least_width(columns, cells) > console.width:
            for place, row in enumerate(cells):
                if place:
                    self.line("")
                self.table(("", ""), (pair for pair in zip(columns, row, strict=True) if pair[1]))
            return
        numeric = [all(map(_is_number, column)) for column in zip(*cells, strict=True)]
        table = Table(
            box=None,
            pad_edge=False,
            show_header=any(columns),
            title=title or None,
            title_justify="left",
        )
        for place, column in enumerate(columns):
            right = bool(cells) and numeric[place]
            justify: Literal["left", "right"] = "right" if right else "left"
            table.add_column(column, justify=justify, overflow="fold", no_wrap=right)
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        self._print(console, table)

    def listing(
        self,
        found: Iterable[T],
        to_object: Callable[[T], Mapping[str, Any]],
        columns: Sequence[str],
        to_row: Callable[[T], Sequence[Any]],
        **table: Any,
    ) -> None:
        """Write an object for each, or all as a table."""
        if self.json:
            for each in found:
                self.json_object(to_object(each))
        else:
            self.table(columns, map(to_row, found), **table)

    def canvas(self, width: int) -> tuple[int, bool, bool]:
        """How wide a picture may be (``width`` where there is no terminal), whether colours are
        shown, and whether more than ASCII can be."""
        console = self._console(width)
        encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
        return console.width, console.color_system is not None, encoding.startswith("utf")

    def draw(self, renderable: Any) -> None:
        """Anything of rich, in colours on a terminal."""
        self._print(self._console(WIDTH_OF_A_PIPE), renderable)

    def _console(self, width: int) -> Any:
        from rich.console import Console

        terminal = self.stream.isatty()
        return Console(force_terminal=terminal, width=None if terminal else width, highlight=False)

    def _print(self, console: Any, renderable: Any) -> None:
        with console.capture() as captured:
            console.print(renderable)
        for line in captured.get().splitlines():
            self.line(line.rstrip())

    def report(self, values: Mapping[str, Any], *, raw: bool = False) -> None:
        """Write what a command found or did: one JSON object, or a table of names and values with
        sizes and lengths of time in units, unless they are ``raw``."""
        if self.json:
            self.json_object(values)
        elif raw:
            digits = (
                (name.replace("_", " "), str(value) if type(value) is int else value)
                for name, value in _flat(values)
            )
            self.table(("", ""), digits)
        else:
            self.table(("", ""), (_for_people(name, value) for name, value in _flat(values)))

    def flush(self) -> None:
        """Flush what was written so far."""
        if sys.stdout is not None:
            self.stream.flush()

    # -- beside the results -------------------------------------------------------------------
    def error(self, error: BaseException) -> None:
        """Write an error to stderr, with the context: one line, below which a condition stands with
        its caret; or one object."""
        if isinstance(error, KeyboardInterrupt) and not isinstance(error, Error):
            message = "interrupted"  # its own text, if any, comes from a codec
        else:
            message = for_a_shell(" ".join(str(error).splitlines()))
            message = message or type(error).__name__
        if self.json:
            values = {"error": type(error).__name__, "message": message, **_place(error)}
            click.echo(_json({**values, **self.context}, ascii=True), err=True)
            return
        context = ", ".join(
            f"{name.replace('_', ' ')} {self.context[name]}" for name in self.context
        )
        below: list[str] = []
        lines = str(error).splitlines()
        if len(lines) == 3 and lines[-1].strip() == "^":  # a condition, and where it is none
            message, *below = for_a_shell(lines[0]), *map(printable, lines[1:])
        click.echo(f"logstore: {message}" + (f" ({context})" if context else ""), err=True)
        for line in below:
            click.echo(line, err=True)

    def lines_of_error(self, name: str, message: str) -> None:
        """Write an error of another program to stderr: its own lines, or one object."""
        if self.json:
            click.echo(_json({"error": name, "message": message}, ascii=True), err=True)
            return
        for line in message.expandtabs().splitlines():
            click.echo(printable(line), err=True)

    def beside(self, text: str) -> None:
        """A line to stderr, about what goes on."""
        click.echo(f"logstore: {text}", err=True)

    def skipped(self, error: InputLineError) -> None:
        """Write to stderr that a bad line was skipped."""
        if self.json:
            click.echo(_json({"skipped": str(error), **_place(error)}, ascii=True), err=True)
        else:
            click.echo(f"logstore: {error}; skipped", err=True)

    def abandon(self) -> None:
        """Write nothing more, also not at exit: the reader of stdout has gone."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)

    @contextmanager
    def progress(self, what: str) -> Iterator[Progress]:
        """A progress bar on stderr, if that is a terminal; the block calls what it gets."""
        if not sys.stderr.isatty():
            yield _silent
            return
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)

            def update(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total or None)

            yield update

    @contextmanager
    def live(self) -> Iterator[Callable[[str], None] | None]:
        """A line on stderr that can be replaced, if that is a terminal; else None."""
        if self.json or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as line:
            yield lambda text: line.update(
                Text(text, no_wrap=True, overflow="ellipsis"), refresh=True
            )


def _json(value: Mapping[str, Any], *, ascii: bool = False) -> str:
    import json  # (takes a while to load)

    return json.dumps(value, ensure_ascii=ascii)


def _silent(_done: int, _total: int) -> None:
    """Progress that nobody watches."""


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        return readable(value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _for_people(name: str, value: Any) -> tuple[str, Any]:
    """A name and a value for people: bytes as a size, milliseconds as a length of time."""
    words = name.replace("_", " ").split()
    if type(value) in {int, float} and "bytes" in words:
        value = showing.size(int(value))
        if words != ["max", "bytes"]:  # the name of an option
            words = [word for word in words if word != "bytes"] or ["size"]
    elif type(value) in {int, float} and words[-1] in {"ms", "s"}:
        unit = timedelta(milliseconds=1) if words.pop() == "ms" else timedelta(seconds=1)
        value = short_length(value * unit) if value else "0s"
    elif value is None and words[-1:] == ["ms"]:
        words.pop()
    return " ".join(words), value


def least_width(columns: Sequence[str], cells: list[list[str]]) -> int:
    """The least width of a table, with its texts folded."""
    each_of = zip(columns, *cells, strict=True)
    widest = [(max(map(cell_len, of_it)), all(map(_is_number, of_it[1:]))) for of_it in each_of]
    return sum(wide if number else min(wide, FOLDED) for wide, number in widest) + 2 * (
        len(columns) - 1
    )


def fitting(
    columns: Sequence[str],
    cells: list[list[str]],
    narrow: Sequence[str],
    width: int,
    folded: int = FOLDED,
) -> tuple[Sequence[str], list[list[str]]]:
    """The columns that fit, and their cells; the first column, a name, may be folded."""
    for name in narrow:
        widths = [max(map(cell_len, of_it)) for of_it in zip(columns, *cells, strict=True)]
        gaps = 2 * (len(widths) - 1)
        if sum(min(wide, folded) for wide in widths[:1]) + sum(widths[1:]) + gaps <= width:
            break
        left_out = list(columns).index(name)
        columns = [column for place, column in enumerate(columns) if place != left_out]
        cells = [[cell for place, cell in enumerate(row) if place != left_out] for row in cells]
    return columns, cells


def cell_len(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len as width

    return width(text)


def _is_number(cell: str) -> bool:
    number, _, unit = cell.partition(" ")
    if unit in _UNITS:
        cell = number.removeprefix("<")
    if cell in {"", "-", "now", "unknown"}:
        return True
    return cell.replace(",", "").replace(".", "", 1).removeprefix("-").isdigit()


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name} ")
        elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            yield f"{above}{name}", len(value)
            for place, one in enumerate(value, 1):
                yield from _flat(one, f"{above}{name} {place} ")
        elif isinstance(value, list):
            yield f"{above}{name}", ", ".join(map(_cell, value)) or "none"
        else:
            yield f"{above}{name}", value


def _place(error: BaseException) -> dict[str, Any]:
    """The place of an error: line, stream, segment and offset."""
    found: dict[str, Any] = {}
    if isinstance(error, InputLineError):
        found[error.unit] = error.line_number
    if isinstance(error, Error):
        if error.stream is not None:
            found["stream"] = readable(error.stream)
        if isinstance(error, CorruptionError) or error.segment is not None:
            found |= {"segment": error.segment, "offset": error.offset}
    return found
