"""The picture of ``logstore map`` as SVG: for a browser, a page, a report.

Invariants: it is whole by itself (no script, no font, nothing from elsewhere), follows light and
dark as the reader's system does, and takes no name of a stream for markup. Which font a reader has
is not known here: room is left for a wide one, and no text reaches another or the edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from logstore.api import units
from logstore.compaction.usage import SegmentUse
from logstore.tools.output import cell_len
from logstore.tools.segment_map import Part, Picture
from logstore.tools.usage import marks

WIDTH, MARGIN, NUMBER = 1000, 24, 56
CELL, TITLE_CELL = 8, 10.5  # how wide a character of a wide font is, of 13 and of 17 pixels
LEGEND_ROW, SWATCH, SPACE = 22, 20, 16
# How high a row is, by how many there are; low ones have no text.
ROWS = ((60, 24), (200, 14), (1 << 62, 6))
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
class _Layout:
    """Where what stands, by how long the texts are."""

    columns: int  # of the legend
    top: int  # of the first bar
    row: int  # how high one is, with the gap
    bar: float  # how wide the longest is

    @property
    def words(self) -> bool:
        """Whether there is room for text beside each bar."""
        return self.row >= TEXT_ROW_MIN


def _laid_out(picture: Picture) -> _Layout:
    segments = picture.usage.segments
    row = next(height for most, height in ROWS if len(segments) <= most)
    inside = WIDTH - 2 * MARGIN
    widest = max((cell_len(label) for label in _labels(picture)), default=0)
    columns = min(3, max(1, int((inside + SPACE) // (SWATCH + CELL * widest + SPACE))))
    top = 84 + -(-len(picture.parts) // columns) * LEGEND_ROW
    words = max((cell_len(_said(use)) for use in segments), default=0)
    room = SPACE + CELL * words if row >= TEXT_ROW_MIN else 0
    return _Layout(columns, top, row, inside - NUMBER - room)


def _labels(picture: Picture) -> list[str]:
    totals = picture.totals()
    return [f"{part.label}, {units.size(totals[part.letter])}" for part in picture.parts.values()]


def _said(use: SegmentUse) -> str:
    live = units.share(use.live_bytes, use.size_bytes)
    return ", ".join([units.size(use.size_bytes), f"{live} live", *marks(use)])


def svg_of(picture: Picture, title: str) -> str:
    """The picture as the text of an SVG file."""
    segments, layout = picture.usage.segments, _laid_out(picture)
    height = layout.top + layout.row * len(segments) + MARGIN
    shown = title
    while cell_len(shown) * TITLE_CELL > WIDTH - 2 * MARGIN:
        shown = f"…{shown[2:]}"
    lines = [
        _head(height),
        f"<title>{escape(title)}: {escape(picture.headline())}</title>",
        f"<style>{STYLE}</style><defs>{HATCH}</defs>",
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="{MARGIN}" y="36">{escape(shown)}</text>',
        f'<text class="soft" x="{MARGIN}" y="58">{escape(picture.headline())}</text>',
        *_legend(picture, layout),
    ]
    largest = max((use.size_bytes for use in segments), default=1) or 1
    for place, use in enumerate(segments):
        y = layout.top + place * layout.row
        if layout.words or place % NUMBERED_EVERY == 0:
            lines.append(_number(use, y + max(0, layout.row - GAP) / 2))
        lines += _bar(picture, use, largest, y, layout)
    return "\n".join([*lines, "</svg>"])


def _head(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">'
    )


def _legend(picture: Picture, layout: _Layout) -> Iterator[str]:
    wide = (WIDTH - 2 * MARGIN + SPACE) // layout.columns
    told = zip(picture.parts.values(), _labels(picture), strict=True)
    for place, (part, label) in enumerate(told):
        x = MARGIN + place % layout.columns * wide
        y = 74 + place // layout.columns * LEGEND_ROW
        yield f'<rect {_fill(part)} x="{x}" y="{y}" width="14" height="14" rx="3"/>'
        yield f'<text x="{x + SWATCH}" y="{y + 12}">{escape(label)}</text>'


def _fill(part: Part) -> str:
    if part.letter == ".":
        return 'class="dead"'
    return 'fill="url(#tombstoned)"' if part.letter == "x" else f'fill="{part.colour}"'


def _number(use: SegmentUse, middle: float) -> str:
    x, y = MARGIN + NUMBER - 10, middle + 4.5
    return f'<text class="number soft" x="{x}" y="{y}" text-anchor="end">{use.number}</text>'


def _bar(picture: Picture, use: SegmentUse, largest: int, y: int, layout: _Layout) -> Iterator[str]:
    high = layout.row - (GAP if layout.words else 1)
    begin = x = float(MARGIN + NUMBER)
    sizes, said = picture.bytes_of(use), escape(_said(use))  # a share may be "<1 %"
    if layout.words:
        at, base = begin + layout.bar + SPACE, y + high / 2 + 4.5
        yield f'<text class="words soft" x="{at:.1f}" y="{base}">{said}</text>'
    yield f"<g><title>segment {use.number}: {said}</title>"
    for part in picture.parts.values():
        wide = layout.bar * sizes[part.letter] / largest
        if wide:
            yield (f'<rect {_fill(part)} x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{high}"/>')
            x += wide
    if use.pins:
        yield (
            f'<rect class="pinned" x="{begin - 1}" y="{y - 1}" width="{x - begin + 2:.1f}" '
            f'height="{high + 2}"/>'
        )
    yield "</g>"
