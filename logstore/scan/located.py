"""Nodes by their locators into batches: the loop that scans of an open store and of a split share.

Compiled code takes runs of nodes out of the bytes that it is given. What it leaves is looked at
here: the batch is full, the bytes are elsewhere, or the node is doubtful. Such a one is read by
itself, the way that a single node is read, whose error says what is wrong with it and where: it is
raised, or handed to who takes losses.

Invariants: every node is added once, in order, or is a loss, or an error is raised. Neither the
engine nor the index may be imported here.
"""

from __future__ import annotations

from typing import Protocol

from logstore import format as fmt
from logstore.codec import Section, codec
from logstore.codec.node_list import Item, read_item
from logstore.errors import CorruptionError, CorruptNodeError
from logstore.scan.arrow import Gather
from logstore.scan.losses import Losses

READ_BYTES = 256 << 10  # it stays in the cache of a core until its nodes are decoded
GAP_MAX_BYTES = 16 << 10  # between nodes: what is between them is read, too


def read_size(items: bytes, at: int, most_bytes: int = READ_BYTES) -> int:
    """How much of the log to read at once for nodes of a list, from an offset on: the first, and
    others behind it up to ``most_bytes``."""
    return codec().stretch_bytes(items, at, GAP_MAX_BYTES, most_bytes)


class NodeBytes(Protocol):
    """Where the bytes of nodes are."""

    def around(self, position: int, size_bytes: int) -> bytes:
        """Unchecked bytes of a segment from a position on, as far as they can be read."""
        ...

    def listpack(self, section: Section, item: Item) -> bytes:
        """The listpack of one node that is in a frame, checked; the error of one that is not."""
        ...


class Stretch:
    """Bytes of a segment, kept from one list of nodes to the next. ``at``: how far the last list
    was added, also where an error ended it. ``losses`` take what cannot be read, instead of an
    error. ``at_once_bytes``: how much is read at once; 0: a node at a time."""

    def __init__(
        self,
        nodes: NodeBytes,
        seed: int,
        losses: Losses | None = None,
        *,
        at_once_bytes: int = READ_BYTES,
    ) -> None:
        self.at = 0
        self._at_once_bytes = at_once_bytes
        self._losses = losses
        self._lost_upto = -1  # where in the list the node that was lost last ends
        self._nodes = nodes
        self._seed = seed
        self._data = b""
        self._position = 0

    def add(self, gather: Gather, section: Section, items: bytes, at: int) -> int:
        """Add a list of nodes from an offset on; the offset of the first that is left, because the
        batch is full, or the end."""
        self.at = at
        if not at:  # another list
            self._lost_upto = -1
        while True:
            at = gather.add_located(section, items, at, self._data, self._position, self._seed)
            self.at = at
            if at == len(items):
                return at
            found = read_item(items, at)
            if found is None:
                raise CorruptionError("a list of nodes is cut off", stream=section[0])
            item, after = found
            if gather.is_full(item.live):
                return at
            try:
                if item.position and not self._has(item):
                    size = read_size(items, at, self._at_once_bytes)
                    data = self._nodes.around(item.position, size)
                    self._data, self._position = data, item.position
                    if self._has(item):
                        continue
                self._add_one(gather, section, item)
            except CorruptionError as error:
                error.stream = section[0]
                if self._losses is None:
                    raise
                self._losses.met(section, item, error, beside=at == self._lost_upto)
                self._lost_upto = after
            self.at = at = after

    def _has(self, item: Item) -> bool:
        """Whether the bytes hold the frame of a node."""
        at = item.position - self._position
        return 0 <= at <= len(self._data) - fmt.FRAME_HEAD_BYTES - item.size_bytes

    def _add_one(self, gather: Gather, section: Section, item: Item) -> None:
        name, _, start, end = section
        lp = self._nodes.listpack(section, item) if item.position else item.lp
        try:
            gather.add(name, lp, *item.master, item.vector, start, end)
        except CorruptNodeError as exc:
            if not item.position:
                raise
            segment, offset = fmt.position_parts(item.position)
            raise CorruptNodeError(
                exc.message, stream=name, segment=segment, offset=offset
            ) from None
