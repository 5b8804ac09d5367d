"""``logstore map``: the segments as a picture, in a terminal or as SVG.

Each segment is a bar, as long as its file compared with the largest one: what lives in it, in the
colour of its stream (the largest few have one), then what is tombstoned, then what is dead. Of very
many segments a terminal shows one character each.

Invariants: without colours a letter stands for each stream, without UTF-8 no character beside ASCII
is written; the cells of a bar are shared out so that they add up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logstore.api import units
from logstore.errors import FileSystemError, UsageError
from logstore.tools import options
from logstore.tools.output import Output, readable
from logstore.tools.usage import marks, measured, segment_object

if TYPE_CHECKING:
    from rich.text import Text

    from logstore.compaction.usage import SegmentUse, Usage

# Colours that people who confuse red and green tell apart, too.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800")
OTHERS, TOMBSTONED, DEAD = "#8a94a0", "#d1495b", "#9aa3ad"
BARS_MAX = 60  # above that, a character a segment
WIDTH_OF_A_PIPE = 80
NAME_MAX = 40


@dataclass(frozen=True, slots=True)
class Part:
    """A kind of bytes in the picture: live ones of a stream, tombstoned or dead ones."""

    label: str
    letter: str
    colour: str
    block: str  # what it is drawn with where there are colours


class Picture:
    """What is drawn of a store: the parts, and how many bytes of each are in a segment."""

    def __init__(self, found: Usage) -> None:
        self.usage = found
        largest = [use.name for use in found.streams if use.live_bytes][: len(COLOURS)]
        self._letters = {name: chr(ord("A") + place) for place, name in enumerate(largest)}
        self.parts: dict[str, Part] = {
            letter: Part(_short(name), letter, COLOURS[place], "█")
            for place, (name, letter) in enumerate(self._letters.items())
        }
        if any(segment.streams.keys() - self._letters.keys() for segment in found.segments):
            self.parts["o"] = Part("other streams", "o", OTHERS, "█")
        self.parts["x"] = Part("tombstoned", "x", TOMBSTONED, "▒")
        self.parts["."] = Part("dead", ".", DEAD, "░")

    def bytes_of(self, segment: SegmentUse) -> dict[str, int]:
        """Bytes of each part in a segment, by letter, in the order of the picture."""
        found = dict.fromkeys(self.parts, 0)
        for name, live in segment.streams.items():
            found[self._letters.get(name, "o")] += live
        found["x"], found["."] = segment.tombstoned_bytes, segment.dead_bytes
        return found

    def totals(self) -> dict[str, int]:
        """The same of all segments."""
        found = dict.fromkeys(self.parts, 0)
        for segment in self.usage.segments:
            for letter, count in self.bytes_of(segment).items():
                found[letter] += count
        return found

    def headline(self) -> str:
        """What is drawn, in words."""
        found = self.usage
        shares = ", ".join(
            f"{units.share(getattr(found, f'{name}_bytes'), found.log_bytes)} {name}"
            for name in ("live", "tombstoned", "dead")
        )
        segments = units.counted(len(found.segments), "segment")
        pinned = sum(use.size_bytes for use in found.segments if use.pins)
        more = f"; {units.counted(len(found.pins), 'pin')}: {units.size(pinned)}" if pinned else ""
        return f"{units.size(found.log_bytes)} in {segments}: {shares}{more}"


def _short(name: bytes) -> str:
    text = readable(name)
    return text if len(text) <= NAME_MAX else f"{text[: NAME_MAX - 3]}..."


def cells(sizes: dict[str, int], width: int) -> dict[str, int]:
    """Share a width out among parts by their bytes; what is left goes to the largest rests."""
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
    else:
        yield from _bars(picture, width, piece)
    yield Text()
    if len(segments) <= BARS_MAX:
        totals = picture.totals()
        for part in picture.parts.values():
            size = f", {units.size(totals[part.letter])}"
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
        words = [units.share(use.live_bytes, use.size_bytes).rjust(5) for use in segments]
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
    live = units.share(use.live_bytes, use.size_bytes)
    return f"{units.size(use.size_bytes):>10} {live:>5} live {' '.join(marks(use))}".rstrip()


# From which live share on, what it is drawn with, and without UTF-8.
SHADES = (
    (0.85, ("█", "#")),
    (0.6, ("▓", "+")),
    (0.35, ("▒", "=")),
    (0.1, ("░", "-")),
    (-1.0, ("·", ".")),
)


def _grid(segments: list[SegmentUse], width: int, *, colours: bool, blocks: bool) -> Iterator[Text]:
    """A character a segment, by how much of it lives; those that are pinned stand out."""
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
    """The file, whole or not at all; UsageError, FileSystemError name it as it was given."""
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
def command(output: Output, path: Path, svg: Path | None) -> None:
    """Draw the segments: how much of each lives, of which stream, what is tombstoned, dead, pinned.

    With --json one object a segment. 'logstore du' tells the same in numbers.
    """
    if svg is not None and output.json:
        raise click.UsageError("give --svg or --json, not both")
    found = measured(path)
    if output.json:
        for use in found.segments:
            output.json_object(segment_object(use))
        return
    picture = Picture(found)
    if svg is not None:
        from logstore.tools.segment_svg import svg_of

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
