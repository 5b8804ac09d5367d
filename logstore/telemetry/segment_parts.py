"""The parts of a picture of the segments: live bytes by stream, tombstoned ones, dead ones.

``logstore map`` draws them in a terminal and as SVG, the web view on a page. Invariants: the
largest few streams have a colour and a letter of their own, so that no part is told by its colour
alone; the parts of a segment add up to its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logstore.api import showing
from logstore.api.showing import readable

if TYPE_CHECKING:
    from logstore.compaction.usage import SegmentUse, SpaceUsage

# Colours that people who confuse red and green tell apart, too.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800")
OTHERS, TOMBSTONED, DEAD = "#8a94a0", "#d1495b", "#9aa3ad"
NAME_MAX = 40


@dataclass(frozen=True, slots=True)
class Part:
    """A kind of bytes in the picture: live ones of a stream, tombstoned or dead ones."""

    label: str
    letter: str
    colour: str
    block: str  # the character that it is drawn with in colour


class Picture:
    """The contents of the picture: its parts, and how many bytes of each a segment has."""

    def __init__(self, found: SpaceUsage) -> None:
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
        """Bytes of each part in all segments."""
        found = dict.fromkeys(self.parts, 0)
        for segment in self.usage.segments:
            for letter, count in self.bytes_of(segment).items():
                found[letter] += count
        return found

    def headline(self) -> str:
        """The picture in words."""
        found = self.usage
        shares = ", ".join(
            f"{showing.share(getattr(found, f'{name}_bytes'), found.log_bytes)} {name}"
            for name in ("live", "tombstoned", "dead")
        )
        segments = showing.counted(len(found.segments), "segment")
        pinned = sum(use.size_bytes for use in found.segments if use.pins)
        pins = showing.counted(len(found.pins), "pin")
        more = f"; {pins}: {showing.size(pinned)}" if pinned else ""
        return f"{showing.size(found.log_bytes)} in {segments}: {shares}{more}"


def _short(name: bytes) -> str:
    text = readable(name)
    return text if len(text) <= NAME_MAX else f"{text[: NAME_MAX - 3]}..."


def segment_marks(use: SegmentUse) -> Iterator[str]:
    """Marks of a segment: active, pinned and so on."""
    if use.active:
        yield "active"
    if use.compacted:
        yield "compacted"
    if use.pins:
        yield "pinned"
