"""Lines of text for a terminal of one size: cut to its width, in characters that it can show.

Invariants: no line is wider than the canvas, in columns of the terminal, and none has a character
that steers it or that its encoding lacks. Names are cut in the middle, where they differ least;
numbers are never cut while there is room for them. A colour only repeats what a number says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logstore.api.showing import printable
from logstore.tools.text_tables import FOLDED, beginning, cell_len, elided, fitting
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from rich.text import Text

BLOCKS, LEVELS = "▁▂▃▄▅▆▇█", "_.-:=+*#"  # of a trend, with and without more than ASCII
LABEL, GAP = 13, 2
NAME_MIN = 10
GOOD, NOTE, WARN, BAD, DIM = "green", "cyan", "yellow", "bold red", "dim"


class Piece(NamedTuple):
    """Text with the style that it has."""

    text: str
    style: str = ""


class Fact(NamedTuple):
    """A number with its name, and how it was lately."""

    label: str
    value: str
    style: str = ""
    trend: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Canvas:
    """The size of a terminal, and what it can show."""

    width: int
    height: int
    encoding: str = "utf-8"

    @property
    def more_than_ascii(self) -> bool:
        """Whether blocks and dots can be shown."""
        return self.encoding.lower().startswith("utf")

    def text(self, raw: str) -> str:
        """Text as it can be shown: escapes stand for what steers a terminal or is not known."""
        shown = printable(raw)
        if shown.isascii():
            return shown
        return shown.encode(self.encoding, "backslashreplace").decode(self.encoding)

    def elided(self, text: str, width: int) -> str:
        """A text of so many columns at most, without its middle if it is too long."""
        return elided(text, width, "…" if self.more_than_ascii else "~")

    def trend(self, values: Sequence[float], width: int) -> str:
        """The last values as blocks of their height, the largest one full; the newest is right."""
        levels = BLOCKS if self.more_than_ascii else LEVELS
        shown = list(values)[-width:] if width > 0 else []
        largest = max(shown, default=0.0) or 1.0
        steps = len(levels) - 1
        drawn = (levels[max(1, round(each / largest * steps)) if each > 0 else 0] for each in shown)
        return "".join(drawn).rjust(max(0, width))

    def line(self, *pieces: Piece, style: str = "") -> Text:
        """A line of pieces, cut at the width; with a style of its own it fills the canvas."""
        from rich.text import Text

        made, left = Text(style=style, no_wrap=True), self.width
        for piece in pieces:
            cut = beginning(piece.text, left)
            made.append(cut, piece.style)
            left -= cell_len(cut)
        if style:
            made.append(" " * left)
        return made

    def part(self, width: int) -> Canvas:
        """A canvas of so many columns beside another."""
        return Canvas(width, self.height, self.encoding)


def grid(canvas: Canvas, facts: Sequence[Fact], cell: int = 38) -> list[Text]:
    """Facts in columns of at least ``cell`` characters, row by row."""
    columns = max(1, (canvas.width + GAP) // (cell + GAP))
    cell = (canvas.width + GAP) // columns - GAP
    lines: list[Text] = []
    for at in range(0, len(facts), columns):
        pieces: list[Piece] = []
        for fact in facts[at : at + columns]:
            room = max(0, cell - LABEL)
            shown = beginning(fact.value, room)
            pieces += [Piece(fact.label.ljust(LABEL), DIM), Piece(shown, fact.style or "bold")]
            left = room - cell_len(shown)
            if fact.trend is not None:
                behind = max(0, 8 - cell_len(shown))
                wide = max(0, min(30, left - behind - 1))
                drawn = canvas.trend(fact.trend, wide) if wide else ""
                pieces += [Piece(" " * (behind + 1)), Piece(drawn, NOTE)]
                left -= behind + 1 + len(drawn)
            pieces.append(Piece(" " * (max(0, left) + GAP)))
        lines.append(canvas.line(*pieces))
    return lines


Row = Mapping[str, Piece]  # by the names of columns
TREND = "trend"  # the column of a trend, which is aligned left as names are


def table(
    canvas: Canvas,
    head: Sequence[str],
    rows: Sequence[Row],
    narrow: Sequence[str],
    *,
    sorted_by: str = "",
    chosen: int = -1,
) -> list[Text]:
    """A table with its head; where it is too wide it does without the columns that ``narrow``
    names, the first first. ``chosen``: the place of the row that stands out."""
    cells = [[row[name].text for name in head] for row in rows]
    narrow = [name for name in narrow if name in head]
    columns, _ = fitting(head, cells, narrow, canvas.width, max(FOLDED, canvas.width // 3))
    widths = {
        name: max([cell_len(name), *(cell_len(row[name].text) for row in rows)]) for name in columns
    }
    rest = sum(widths[name] + GAP for name in columns[1:])
    widths[columns[0]] = min(widths[columns[0]], max(NAME_MIN, canvas.width - rest))

    def pieces(row: Row) -> Iterable[Piece]:
        for place, name in enumerate(columns):
            text = row[name].text
            if not place:
                text = canvas.elided(text, widths[name])
            space = " " * (widths[name] - cell_len(text))
            left = not place or name == TREND
            yield Piece((" " * GAP if place else "") + ("" if left else space))
            yield Piece(text, row[name].style)
            yield Piece(space if left else "")

    titles = {
        name: Piece(name, "bold underline" if name == sorted_by else "bold") for name in columns
    }
    lines = [canvas.line(*pieces(titles))]
    for place, row in enumerate(rows):
        lines.append(canvas.line(*pieces(row), style="reverse" if place == chosen else ""))
    return lines


def beside(left: Sequence[Text], right: Sequence[Text], at: int) -> list[Text]:
    """Lines beside each other, those on the right from a column on."""
    lines: list[Text] = []
    for number in range(max(len(left), len(right))):
        line = left[number].copy() if number < len(left) else None
        if number < len(right):
            if line is None:
                line = right[number].copy()
                line.pad_left(at)
            else:
                line.append(" " * (at - line.cell_len))
                line.append_text(right[number])
        if line is not None:
            lines.append(line)
    return lines
