"""The picture of ``logstore map`` as SVG: for a browser, a page, a report.

Invariants: it is whole by itself (no script, no font, nothing from elsewhere), follows light and
dark as the reader's system does, and takes no name of a stream for markup.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from logstore.api import units
from logstore.compaction.usage import SegmentUse
from logstore.tools.segment_map import Part, Picture
from logstore.tools.usage import marks

WIDTH, MARGIN, NUMBER, WORDS = 1000, 24, 56, 210
BAR = WIDTH - 2 * MARGIN - NUMBER - WORDS
LEGEND_COLUMNS, LEGEND_ROW = 3, 22
# How high a row is, by how many there are; low ones have no text.
ROWS = ((60, 24), (200, 14), (1 << 62, 6))
TEXT_ROW_MIN, NUMBERED_EVERY, GAP = 14, 10, 6
STYLE = """
svg { background: #ffffff; color-scheme: light dark }
text { font: 13px system-ui, sans-serif; fill: #1d2733 }
.title { font-size: 17px; font-weight: 600 }
.soft { fill: #5a6878 }
.number, .words { font-variant-numeric: tabular-nums }
.dead { fill: #dfe4ea }
.pinned { fill: none; stroke: #d1495b; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  svg { background: #14181d }
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


def svg_of(picture: Picture, title: str) -> str:
    """The picture as the text of an SVG file."""
    segments = picture.usage.segments
    row = next(height for most, height in ROWS if len(segments) <= most)
    rows = -(-len(picture.parts) // LEGEND_COLUMNS)
    top = 84 + rows * LEGEND_ROW
    height = top + row * len(segments) + MARGIN
    lines = [
        _head(height),
        f"<title>{escape(title)}: {escape(picture.headline())}</title>",
        f"<style>{STYLE}</style><defs>{HATCH}</defs>",
        f'<text class="title" x="{MARGIN}" y="36">{escape(title)}</text>',
        f'<text class="soft" x="{MARGIN}" y="58">{escape(picture.headline())}</text>',
        *_legend(picture),
    ]
    largest = max((use.size_bytes for use in segments), default=1) or 1
    for place, use in enumerate(segments):
        y = top + place * row
        if row >= TEXT_ROW_MIN or place % NUMBERED_EVERY == 0:
            lines.append(_number(use, y + max(0, row - GAP) / 2))
        lines += _bar(picture, use, largest, y, row)
    return "\n".join([*lines, "</svg>"])


def _head(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">'
    )


def _legend(picture: Picture) -> Iterator[str]:
    totals = picture.totals()
    wide = (WIDTH - 2 * MARGIN) // LEGEND_COLUMNS
    for place, part in enumerate(picture.parts.values()):
        x = MARGIN + place % LEGEND_COLUMNS * wide
        y = 74 + place // LEGEND_COLUMNS * LEGEND_ROW
        yield f'<rect {_fill(part)} x="{x}" y="{y}" width="14" height="14" rx="3"/>'
        told = escape(f"{part.label}, {units.size(totals[part.letter])}")
        yield f'<text x="{x + 20}" y="{y + 12}">{told}</text>'


def _fill(part: Part) -> str:
    if part.letter == ".":
        return 'class="dead"'
    return 'fill="url(#tombstoned)"' if part.letter == "x" else f'fill="{part.colour}"'


def _number(use: SegmentUse, middle: float) -> str:
    x, y = MARGIN + NUMBER - 10, middle + 4.5
    return f'<text class="number soft" x="{x}" y="{y}" text-anchor="end">{use.number}</text>'


def _bar(picture: Picture, use: SegmentUse, largest: int, y: int, row: int) -> Iterator[str]:
    high = row - (GAP if row >= TEXT_ROW_MIN else 1)
    begin = x = float(MARGIN + NUMBER)
    sizes = picture.bytes_of(use)
    live = units.share(use.live_bytes, use.size_bytes)
    said = f"{units.size(use.size_bytes)}, {live} live"
    if row >= TEXT_ROW_MIN:
        base = y + high / 2 + 4.5
        words = ", ".join([said, *marks(use)])
        at = WIDTH - MARGIN - WORDS + 12
        yield f'<text class="words soft" x="{at}" y="{base}">{words}</text>'
    yield f"<g><title>segment {use.number}: {', '.join([said, *marks(use)])}</title>"
    for part in picture.parts.values():
        wide = BAR * sizes[part.letter] / largest
        if wide:
            yield (f'<rect {_fill(part)} x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{high}"/>')
            x += wide
    if use.pins:
        yield (
            f'<rect class="pinned" x="{begin - 1}" y="{y - 1}" width="{x - begin + 2:.1f}" '
            f'height="{high + 2}"/>'
        )
    yield "</g>"
