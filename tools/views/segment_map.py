"""``logstore map``: the segments as a picture, in a terminal or as SVG.

Each segment is a bar, as long as its file compared with the largest one: live bytes in the colour
of their stream (the largest few streams have one), then tombstoned ones, then dead ones. With very
many segments a terminal shows one character for each.

Invariants: without colours a letter stands for each stream; without UTF-8 only ASCII is written.
The cells of a bar add up to its width. The SVG needs nothing else (no script, no font), follows the
reader's light or dark theme, and escapes names of streams. The reader's font is not known: there is
room for a wide one, so that no text reaches another or the edge.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.api import showing
from logstore.errors import FileSystemError, UsageError
from logstore.telemetry.segment_parts import COLOURS, TOMBSTONED, Part, Picture, segment_marks
from logstore.tools import command_options as options
from logstore.tools.command_output import Output
from logstore.tools.text_tables import cell_len
from logstore.tools.views.overview import measured_usage, segment_object

if TYPE_CHECKING:
    from rich.text import Text

    from logstore.compaction.usage import SegmentUse


BARS_MAX = 60  # with more segments each is a character
WIDTH_OF_A_PIPE = 80


def cells(sizes: dict[str, int], width: int) -> dict[str, int]:
    """Divide a width among parts by their bytes; the rest goes to the largest remainders."""
    whole = sum(sizes.values())
    if not whole:
        return dict.fromkeys(sizes, 0)
    found = {letter: width * size // whole for letter, size in sizes.items()}
    rests = sorted(sizes, key=lambda letter: -(width * sizes[letter] % whole))
    for letter in rests[: width - sum(found.values())]:
        found[letter] += 1
    return found


# -- in a terminal ------------------------------------------------------------------------------
def drawn(picture: Picture, width: int, *, colours: bool, blocks: bool) -> Iterator[Text]:
    """The lines of the picture."""
    from rich.text import Text

    def piece(part: Part, count: int) -> Text:
        return Text((part.block if colours and blocks else part.letter) * count, part.colour)

    segments = picture.usage.segments
    if len(segments) > BARS_MAX:
        yield from _grid(segments, width, colours=colours, blocks=blocks)
        yield Text()
        return
    yield from _bars(picture, width, piece)
    yield Text()
    totals = picture.totals()
    for part in picture.parts.values():
        size = f", {showing.size(totals[part.letter])}"
        label = Text(f" {part.label}")
        label.truncate(max(1, width - 2 - len(size)), overflow="ellipsis" if blocks else "crop")
        line = Text.assemble(piece(part, 2), label, size)
        line.truncate(width, overflow="crop")
        yield line


def _bars(picture: Picture, width: int, piece: Callable[[Part, int], Text]) -> Iterator[Text]:
    from rich.text import Text

    segments = picture.usage.segments
    largest = max((use.size_bytes for use in segments), default=1) or 1
    numbers = max(len(str(use.number)) for use in segments)
    words = [_words(use) for use in segments]
    room = width - numbers - 2 - max(map(len, words))
    if room < 12:  # a very narrow terminal
        words = [showing.share(use.live_bytes, use.size_bytes).rjust(5) for use in segments]
        room = max(4, width - numbers - 2 - 5)
    for use, said in zip(segments, words, strict=True):
        length = max(1, room * use.size_bytes // largest)
        shared = cells(picture.bytes_of(use), length)
        bar = Text.assemble(
            *(piece(part, shared[part.letter]) for part in picture.parts.values()),
            " " * (room - length),
        )
        yield Text.assemble(f"{use.number:>{numbers}} ", bar, " ", said)


def _words(use: SegmentUse) -> str:
    live = showing.share(use.live_bytes, use.size_bytes)
    return (
        f"{showing.size(use.size_bytes):>10} {live:>5} live {' '.join(segment_marks(use))}".rstrip()
    )


# From which live share on, what it is drawn with, and without UTF-8.
SHADES = (
    (0.85, ("█", "#")),
    (0.6, ("▓", "+")),
    (0.35, ("▒", "=")),
    (0.1, ("░", "-")),
    (-1.0, ("·", ".")),
)


def _grid(segments: list[SegmentUse], width: int, *, colours: bool, blocks: bool) -> Iterator[Text]:
    """One character for each segment, by its share of live bytes; pinned ones are marked."""
    from rich.text import Text

    numbers = max(len(str(use.number)) for use in segments)
    room = max(10, (width - numbers - 1) // 10 * 10)
    for begin in range(0, len(segments), room):
        some = segments[begin : begin + room]
        line = Text(f"{some[0].number:>{numbers}} ")
        for use in some:
            share = use.live_bytes / max(1, use.size_bytes)
            shade = next(shades[not blocks] for least, shades in SHADES if share >= least)
            style = f"bold {TOMBSTONED}" if use.pins else COLOURS[0]
            line.append("P" if use.pins and not colours else shade, style)
        yield line
    yield Text()
    *above, (_, less) = SHADES
    for least, shades in above:
        yield Text(f"{shades[not blocks]} from {least:.0%} live on", "dim")
    yield Text(f"{less[not blocks]} less", "dim")
    yield Text("red: pinned" if colours else "P pinned", "dim")


def _write(svg: Path, drawing: str) -> None:
    """Write the file, whole or not at all; UsageError, FileSystemError name it as it was given."""
    from logstore.fs import LOCAL

    if svg.is_dir() or not svg.absolute().parent.is_dir():
        raise UsageError(f"{svg} cannot be a file: name one in a directory that is there")
    try:
        LOCAL.write_atomic(svg.absolute(), drawing.encode() + b"\n")
    except OSError as exc:
        why = os.strerror(exc.errno) if exc.errno else str(exc)
        raise FileSystemError(f"{svg} cannot be written: {why}; name a file elsewhere") from exc


@options.command("map")
@click.option("--svg", metavar="FILE", type=click.Path(path_type=Path),
              help="Write the picture as SVG, for a browser; '-' is stdout.")  # fmt: skip
def map_(output: Output, path: Path, svg: Path | None) -> None:
    """Draw the segments: how much of each lives, of which stream, what is tombstoned, dead, pinned.

    With --json one object a segment. 'logstore du' tells the same in numbers.
    """
    if svg is not None and output.json:
        raise click.UsageError("give --svg or --json, not both")
    found = measured_usage(path)
    if output.json:
        for use in found.segments:
            output.json_object(segment_object(use))
        return
    picture = Picture(found)
    if svg is not None:
        drawing = svg_of(picture, str(path))
        if svg == Path("-"):
            output.line(drawing)
        else:
            _write(svg, drawing)
        return
    output.words(picture.headline())
    output.line("")
    width, colours, blocks = output.canvas(WIDTH_OF_A_PIPE)
    for line in drawn(picture, width, colours=colours, blocks=blocks):
        output.draw(line)


# -- as SVG ---------------------------------------------------------------------------------------
SVG_WIDTH, SVG_MARGIN, NUMBER = 1000, 24, 56
CELL, TITLE_CELL = 8, 10.5  # the width of a character of a wide font of 13 and of 17 pixels
LEGEND_ROW, SWATCH, SPACE = 22, 20, 16
# How high a row is, by how many there are; low ones have no text.
SVG_ROWS = ((60, 24), (200, 14), (1 << 62, 6))
TEXT_ROW_MIN, NUMBERED_EVERY, GAP = 14, 10, 6
# The ground is drawn, too: not every reader fills the page behind a picture.
STYLE = """
svg { background: #ffffff; color-scheme: light dark }
.ground { fill: #ffffff }
text { font: 13px system-ui, sans-serif; fill: #1d2733 }
.title { font-size: 17px; font-weight: 600 }
.soft { fill: #5a6878 }
.number, .words { font-variant-numeric: tabular-nums }
.dead { fill: #dfe4ea }
.pinned { fill: none; stroke: #d1495b; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  svg { background: #14181d }
  .ground { fill: #14181d }
  text { fill: #e4e9ef }
  .soft { fill: #93a1b1 }
  .dead { fill: #2d353f }
}
"""
HATCH = (
    '<pattern id="tombstoned" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" fill="#d1495b" opacity=".25"/>'
    '<rect width="3" height="6" fill="#d1495b"/></pattern>'
)


@dataclass(frozen=True, slots=True)
class _SVGLayout:
    """The layout, by the lengths of the texts."""

    columns: int  # of the legend
    top: int  # of the first bar
    row: int  # the height of a bar with its gap
    bar: float  # the width of the longest bar

    @property
    def words(self) -> bool:
        """Whether there is room for text beside each bar."""
        return self.row >= TEXT_ROW_MIN


def _svg_layout(picture: Picture) -> _SVGLayout:
    segments = picture.usage.segments
    row = next(height for most, height in SVG_ROWS if len(segments) <= most)
    inside = SVG_WIDTH - 2 * SVG_MARGIN
    widest = max((cell_len(label) for label in _svg_labels(picture)), default=0)
    columns = min(3, max(1, int((inside + SPACE) // (SWATCH + CELL * widest + SPACE))))
    top = 84 + -(-len(picture.parts) // columns) * LEGEND_ROW
    words = max((cell_len(_svg_words(use)) for use in segments), default=0)
    room = SPACE + CELL * words if row >= TEXT_ROW_MIN else 0
    return _SVGLayout(columns, top, row, inside - NUMBER - room)


def _svg_labels(picture: Picture) -> list[str]:
    totals = picture.totals()
    return [f"{part.label}, {showing.size(totals[part.letter])}" for part in picture.parts.values()]


def _svg_words(use: SegmentUse) -> str:
    live = showing.share(use.live_bytes, use.size_bytes)
    return ", ".join([showing.size(use.size_bytes), f"{live} live", *segment_marks(use)])


def svg_of(picture: Picture, title: str) -> str:
    """The picture as the text of an SVG file."""
    segments, layout = picture.usage.segments, _svg_layout(picture)
    height = layout.top + layout.row * len(segments) + SVG_MARGIN
    shown = title
    while cell_len(shown) * TITLE_CELL > SVG_WIDTH - 2 * SVG_MARGIN:
        shown = f"…{shown[2:]}"
    lines = [
        _svg_head(height),
        f"<title>{escape(title)}: {escape(picture.headline())}</title>",
        f"<style>{STYLE}</style><defs>{HATCH}</defs>",
        f'<rect class="ground" width="{SVG_WIDTH}" height="{height}"/>',
        f'<text class="title" x="{SVG_MARGIN}" y="36">{escape(shown)}</text>',
        f'<text class="soft" x="{SVG_MARGIN}" y="58">{escape(picture.headline())}</text>',
        *_svg_legend(picture, layout),
    ]
    largest = max((use.size_bytes for use in segments), default=1) or 1
    for place, use in enumerate(segments):
        y = layout.top + place * layout.row
        if layout.words or place % NUMBERED_EVERY == 0:
            lines.append(_svg_number(use, y + max(0, layout.row - GAP) / 2))
        lines += _svg_bar(picture, use, largest, y, layout)
    return "\n".join([*lines, "</svg>"])


def _svg_head(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SVG_WIDTH} {height}" '
        f'width="{SVG_WIDTH}" height="{height}" role="img">'
    )


def _svg_legend(picture: Picture, layout: _SVGLayout) -> Iterator[str]:
    wide = (SVG_WIDTH - 2 * SVG_MARGIN + SPACE) // layout.columns
    labelled = zip(picture.parts.values(), _svg_labels(picture), strict=True)
    for place, (part, label) in enumerate(labelled):
        x = SVG_MARGIN + place % layout.columns * wide
        y = 74 + place // layout.columns * LEGEND_ROW
        yield f'<rect {_svg_fill(part)} x="{x}" y="{y}" width="14" height="14" rx="3"/>'
        yield f'<text x="{x + SWATCH}" y="{y + 12}">{escape(label)}</text>'


def _svg_fill(part: Part) -> str:
    if part.letter == ".":
        return 'class="dead"'
    return 'fill="url(#tombstoned)"' if part.letter == "x" else f'fill="{part.colour}"'


def _svg_number(use: SegmentUse, middle: float) -> str:
    x, y = SVG_MARGIN + NUMBER - 10, middle + 4.5
    return f'<text class="number soft" x="{x}" y="{y}" text-anchor="end">{use.number}</text>'


def _svg_bar(
    picture: Picture, use: SegmentUse, largest: int, y: int, layout: _SVGLayout
) -> Iterator[str]:
    high = layout.row - (GAP if layout.words else 1)
    begin = x = float(SVG_MARGIN + NUMBER)
    sizes, said = picture.bytes_of(use), escape(_svg_words(use))  # a share may be "<1 %"
    if layout.words:
        at, base = begin + layout.bar + SPACE, y + high / 2 + 4.5
        yield f'<text class="words soft" x="{at:.1f}" y="{base}">{said}</text>'
    yield f"<g><title>segment {use.number}: {said}</title>"
    for part in picture.parts.values():
        wide = layout.bar * sizes[part.letter] / largest
        if wide:
            yield (
                f'<rect {_svg_fill(part)} x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{high}"/>'
            )
            x += wide
    if use.pins:
        yield (
            f'<rect class="pinned" x="{begin - 1}" y="{y - 1}" width="{x - begin + 2:.1f}" '
            f'height="{high + 2}"/>'
        )
    yield "</g>"
