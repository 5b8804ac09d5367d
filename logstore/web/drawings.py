"""Small drawings as plain numbers and texts, of which templates make SVG: rates and segments.

Invariants: a drawing says in words what it shows. Knows nothing of HTTP, and escapes nothing.
"""

from __future__ import annotations

from logstore.api import showing
from logstore.telemetry.segment_parts import Picture, segment_marks
from logstore.telemetry.store_samples import per_s
from logstore.tuples import NamedTuple
from logstore.web.observing import Rates

CHART_WIDTH, CHART_HEIGHT = 240, 48
LETTER_WIDTH = 4.0  # of a part that has room for its letter: percent


class Chart(NamedTuple):
    """A line of rates: what it is of, the points of its line, the newest and the largest value."""

    name: str
    line: str
    area: str
    now: str
    range: str
    words: str


def chart(rates: Rates) -> Chart:
    """The chart of some rates."""
    values = rates.values or [0.0]
    most = max(values)
    step = CHART_WIDTH / max(1, len(values) - 1)
    room = CHART_HEIGHT - 4
    points = [
        f"{place * step:.1f},{CHART_HEIGHT - 2 - (room * value / most if most else 0):.1f}"
        for place, value in enumerate(values)
    ]
    if len(points) == 1:
        points.append(f"{CHART_WIDTH},{points[0].partition(',')[2]}")
    line = " ".join(points)
    span = f"the last {showing.length(rates.span)}"
    words = (
        f"{rates.name.lower()} a second in {span}: "
        f"{per_s(values[-1])} now, {per_s(min(values))} at least, {per_s(most)} at most"
    )
    area = f"0,{CHART_HEIGHT} {line} {CHART_WIDTH},{CHART_HEIGHT}"
    range_ = f"{span}, at most {per_s(most)}"
    return Chart(rates.name, line, area, per_s(values[-1]), range_, words)


class Piece(NamedTuple):
    """A part of a bar: where it begins and how wide it is in percent, and whether that is room for
    its letter."""

    letter: str
    x: str
    wide: str
    middle: str
    roomy: bool


class Bar(NamedTuple):
    """A segment."""

    number: int
    size: str
    live: str
    marks: str
    pinned: bool
    pieces: list[Piece]
    words: str


def bars(picture: Picture, count: int) -> list[Bar]:
    """The newest segments as bars, as long as each is beside the largest."""
    segments = picture.usage.segments[-count:]
    largest = max((use.size_bytes for use in segments), default=1) or 1
    found: list[Bar] = []
    for use in segments:
        x, pieces, told = 0.0, [], []
        for letter, size in picture.bytes_of(use).items():
            wide = 100 * size / largest
            if size:
                pieces.append(
                    Piece(letter, f"{x:.2f}", f"{wide:.2f}", f"{x + wide / 2:.2f}",
                          wide >= LETTER_WIDTH)
                )  # fmt: skip
                told.append(f"{showing.share(size, use.size_bytes)} {picture.parts[letter].label}")
            x += wide
        live = showing.share(use.live_bytes, use.size_bytes)
        marks = ", ".join(segment_marks(use))
        begun = showing.date(showing.at(use.created_ms))
        words = f"segment {use.number}, from {begun}: {', '.join(told)}"
        found.append(
            Bar(use.number, showing.size(use.size_bytes), live, marks, bool(use.pins), pieces,
                words)
        )  # fmt: skip
    return found


def ink_on(colour: str) -> str:
    """What can be read on a colour: black or white."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#000000" if 0.3 * red + 0.59 * green + 0.11 * blue > 110 else "#ffffff"
