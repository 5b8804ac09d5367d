"""What the commands write: text, tables, JSON and errors; progress bars on a terminal.

Invariants: results go to stdout, all else to stderr. JSON is UTF-8, one object a line. Text is cut
or coloured on a terminal only. It alone of the commands prints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, TypeVar

import click

from logstore.api import showing
from logstore.api.showing import printable, readable, short_length
from logstore.errors import CorruptionError, Error, InputLineError, UsageError
from logstore.tools.text_tables import Paper, cell, text_table, wrapped
from logstore.tools.wording import JsonText, entry_for_json, entry_line, for_a_shell

if TYPE_CHECKING:
    from logstore.api.entry import Entry
    from logstore.schema.stream_schema import Schema

T = TypeVar("T")
Progress: TypeAlias = Callable[[int, int], None]  # done, in all; 0 in all: not known

WIDTH_OF_A_PIPE = 10_000  # of a picture; texts are not cut there at all
WIDTH_UNBOUNDED = 1 << 30
PAGED_LINES = 100  # are given to the pager at once
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
        self.raw = False  # --raw: IDs are not told as moments, too
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

    def json_object(self, value: Mapping[str, Any] | JsonText) -> None:
        """One JSON object, on a line of its own."""
        self.stream.write(_json(value).encode() + b"\n")

    @property
    def encoding(self) -> str:
        """The encoding of what is written for people."""
        return getattr(sys.stdout, "encoding", None) or "utf-8"

    @property
    def _paper(self) -> Paper:
        """What text is written on: as wide as the terminal, or as it likes."""
        if not self.stream.isatty():
            return Paper(WIDTH_UNBOUNDED, self.encoding)
        import shutil  # here: it takes a while to load

        return Paper(shutil.get_terminal_size().columns, self.encoding)

    def line(self, text: str) -> None:
        """One line of text."""
        self.stream.write(f"{text}\n".encode(self.encoding, "backslashreplace"))

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
        width = self._paper.width
        for line in self.broken(text, indent if 3 * indent <= width else 4):
            self.line(line)

    def broken(self, text: str, indent: int = 0, *, less: int = 0) -> list[str]:
        """A text as lines for the terminal, ``less`` columns narrower; a pipe gets one."""
        paper = self._paper
        return wrapped(paper.shown(text), max(20, paper.width - less), indent)

    def entry(self, entry: Entry[bytes], schema: Schema | None = None) -> None:
        """One entry, in the form that was asked for; JSON has the types of the schema."""
        if self.json:
            self.json_object(entry_for_json(entry, schema))
        else:
            self.line(entry_line(entry, when=not self.raw))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        title: str = "",
        narrow: Sequence[str] = (),
        whole: Collection[str] = (),
        none: str = "",
    ) -> None:
        """Write a table, as ``text_table`` lays it out.

        ``none``: the line that is written if there are no rows."""
        every = list(rows)
        if not every and none:
            self.line(none)
            return
        if title:
            self.line(title)
        head, lines = text_table(columns, every, self._paper, narrow=narrow, whole=whole)
        if head:
            self.line(f"\x1b[1m{head}\x1b[0m" if self._has_styles else head)
        for line in lines:
            self.line(line)

    @property
    def _has_styles(self) -> bool:
        """Whether a line may be bold: on a terminal that knows it, unless NO_COLOR is set."""
        term = os.environ.get("TERM", "dumb")
        plain = term in {"dumb", "unknown", ""} or os.environ.get("NO_COLOR")
        return self.stream.isatty() and not plain

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
        in_utf = self.encoding.lower().startswith("utf")
        return console.width, console.color_system is not None, in_utf

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
            self._tell(_json({**values, **self.context}, ascii=True))
            return
        context = ", ".join(
            f"{name.replace('_', ' ')} {self.context[name]}" for name in self.context
        )
        below: list[str] = []
        lines = str(error).splitlines()
        if len(lines) == 3 and lines[-1].strip() == "^":  # a condition, and where it is none
            message, *below = for_a_shell(lines[0]), *map(printable, lines[1:])
        self._tell(f"logstore: {message}" + (f" ({context})" if context else ""))
        for line in below:
            self._tell(line)

    def lines_of_error(self, name: str, message: str) -> None:
        """Write an error of another program to stderr: its own lines, or one object."""
        if self.json:
            self._tell(_json({"error": name, "message": message}, ascii=True))
            return
        for line in message.expandtabs().splitlines():
            self._tell(printable(line))

    def beside(self, text: str) -> None:
        """A line to stderr, about what goes on."""
        self._tell(f"logstore: {text}")

    def _tell(self, text: str) -> None:
        """A line to stderr, in characters that its encoding has."""
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        click.echo(Paper(0, encoding).shown(text), err=True)

    def skipped(self, error: InputLineError) -> None:
        """Write to stderr that a bad line was skipped."""
        if self.json:
            self._tell(_json({"skipped": str(error), **_place(error)}, ascii=True))
        else:
            self._tell(f"logstore: {error}; skipped")

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


def _json(value: Mapping[str, Any] | JsonText, *, ascii: bool = False) -> str:
    if isinstance(value, JsonText):
        return value.text
    import json  # (takes a while to load)

    ready: list[str] = []
    mark = ""

    def place(found: Any) -> str:
        nonlocal mark
        if not isinstance(found, JsonText):
            raise TypeError(f"{type(found).__name__} is no JSON")
        mark = mark or os.urandom(16).hex()  # no value has it by chance
        ready.append(found.text)
        return mark

    text = json.dumps(value, ensure_ascii=ascii, default=place)
    if not ready:
        return text
    parts = text.split(f'"{mark}"')
    return parts[0] + "".join(each for pair in zip(ready, parts[1:], strict=True) for each in pair)


def _silent(_done: int, _total: int) -> None:
    """Progress that nobody watches."""


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
    elif words[-1] in {"time", "due", "at"} and value:
        value = _moment(value)
    elif words[-2:] == ["idmp", "duration"] and value is not None:  # XINFO has seconds
        value = short_length(timedelta(seconds=value))
    return " ".join(words), value


def _moment(value: Any) -> Any:
    """Milliseconds, or a moment in ISO form, as a moment for people; anything else as it is."""
    moment = showing.clock(value) if isinstance(value, int) else None
    with suppress(ValueError):
        moment = datetime.fromisoformat(value) if isinstance(value, str) else moment
    return value if moment is None else f"{showing.date(moment)}, {showing.ago(moment)}"


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name} ")
        elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            yield f"{above}{name}", len(value)
            for place, one in enumerate(value, 1):
                yield from _flat(one, f"{above}{name} {place} ")
        elif isinstance(value, list):
            yield f"{above}{name}", ", ".join(map(cell, value)) or "none"
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
