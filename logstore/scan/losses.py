"""What cannot be read of what was planned: which entries, of which stream, and where they lie.

Nodes that lie beside each other in a list and are in one segment are told as one loss, so that a
segment that is gone is one line and not a thousand.

Invariants: every node that could not be read is in a loss, once, or its error was raised; what is
told of IDs lies in the interval that was asked for. It may not know where bytes come from.
"""

from __future__ import annotations

from logstore import format as fmt
from logstore.codec import Section
from logstore.codec.node_list import Item
from logstore.errors import CorruptionError
from logstore.ids import StreamID
from logstore.tuples import NamedTuple


class Loss(NamedTuple):
    """Neighbouring nodes; ``entries``: how many they had, at most, in the interval."""

    stream: bytes
    first: StreamID
    last: StreamID
    nodes: int
    entries: int
    position: int  # of the first node; 0: it is in no segment
    error: CorruptionError

    @property
    def segment(self) -> int | None:
        """The segment, if it is known."""
        if self.position:
            return fmt.segment_of(self.position)
        return self.error.segment

    @property
    def offset(self) -> int | None:
        """The offset in it of the first node, if it is known."""
        return fmt.position_parts(self.position)[1] if self.position else self.error.offset

    def told(self, advice: str = "") -> CorruptionError:
        """The error that names it."""
        nodes = f" in {self.nodes} nodes" if self.nodes > 1 else ""
        return type(self.error)(
            f"entries from {self.first} to {self.last}, {self.entries} at most{nodes}, cannot be "
            f"read: {self.error.message}{advice}",
            stream=self.stream,
            segment=self.segment,
            offset=self.offset,
        )


class Losses:
    """Takes what a reading meets. ``passed_over``: it goes on behind damage, and ``found`` has all
    of it; else ``check`` raises the first loss, whose text ends with the ``advice``."""

    def __init__(self, *, passed_over: bool = False, advice: str = "") -> None:
        self.found: list[Loss] = []
        self._passed_over = passed_over
        self._advice = advice

    @property
    def entries(self) -> int:
        """How many entries could not be read, at most."""
        return sum(each.entries for each in self.found)

    def met(self, section: Section, item: Item, error: CorruptionError, *, beside: bool) -> None:
        """One node; ``beside``: it is the next of its list behind the one that was met last."""
        name, _, start, end = section
        first, last = StreamID(*max(item.master, start)), StreamID(*min(item.last, end))
        here = Loss(name, first, last, 1, item.live, item.position, error)
        before = self.found[-1] if self.found else None
        if beside and before is not None and before.segment == here.segment:
            self.found[-1] = before._replace(
                last=max(before.last, last),
                nodes=before.nodes + 1,
                entries=before.entries + item.live,
            )
            return
        self.check()
        self.found.append(here)

    def check(self) -> None:
        """The error of the first loss, unless losses are passed over."""
        if self.found and not self._passed_over:
            raise self.found[0].told(self._advice) from None
