"""Nodes by their locators: lists of them, and frames that prove to be the ones that were meant.

A list of nodes is bytes, an *item* a node, as `format.SNAPSHOT_ITEM` lays it out: so it goes into a
snapshot file as it is, and into columns without an object a node (``ArrowBuilder.add_located``). A
node whose listpack stands in no frame as a whole has it in its item.

Invariants: an item is only made of a row of the index whose checksum fits; nothing of a frame is
used before its checksum, bound to store and place, fits, and it names the stream and the master ID.

It may not know where bytes come from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from logstore import format as fmt
from logstore import tombstones
from logstore.codec.checksums import unseal
from logstore.codec.node import entries
from logstore.codec.node_types import ID
from logstore.crc import crc32c
from logstore.errors import CorruptNodeError
from logstore.tuples import NamedTuple

_ITEM = fmt.SNAPSHOT_ITEM
_HEAD = fmt.FRAME_HEAD
_BODY_BYTES = fmt.NODE_BODY.size
_KINDS = (fmt.Kind.NODE, fmt.Kind.OPEN)


class Item(NamedTuple):
    """A node. ``position`` is 0 if ``lp`` holds its listpack; ``size_bytes``: of its frame's
    payload, or of that listpack; ``last``: no entry of it has a larger ID."""

    position: int
    size_bytes: int
    live: int
    master: ID
    last: ID
    vector: bytes
    lp: bytes

    def pack(self) -> bytes:
        """The item in a list."""
        head = _ITEM.pack(
            self.position, self.size_bytes, self.live, *self.master, *self.last, len(self.vector)
        )
        return head + self.vector + self.lp


class Piece(NamedTuple):
    """Some neighbouring items: how many, where in the list they end, and of their nodes the live
    entries, the bytes, the first master ID and the last ID."""

    nodes: int
    end: int
    live: int
    size_bytes: int
    first: ID
    last: ID


def read_item(items: bytes | bytearray, at: int) -> tuple[Item, int] | None:
    """The item at an offset and where the next one begins; None if it is cut off."""
    body = at + _ITEM.size
    if body > len(items):
        return None
    position, size, live, ms, seq, last_ms, last_seq, vector_bytes = _ITEM.unpack_from(items, at)
    lp_at = body + vector_bytes
    end = lp_at if position else lp_at + size
    if end > len(items):
        return None
    vector, lp = bytes(items[body:lp_at]), bytes(items[lp_at:end])
    return Item(position, size, live, (ms, seq), (last_ms, last_seq), vector, lp), end


def each_item(items: bytes | bytearray, at: int = 0) -> Iterator[tuple[Item, int]]:
    """The items of a list from an offset on, each with where it ends; not one that is cut off."""
    while (one := read_item(items, at)) is not None:
        yield one
        at = one[1]


def segments_of(items: bytes | bytearray) -> set[int]:
    """The segments that the items of a list are in."""
    return {fmt.segment_of(item.position) for item, _ in each_item(items) if item.position}


def frame_listpack(data: bytes, at: int, item: Item, stream: int, seed: int) -> bytes | None:
    """The listpack of the node frame at an index; None if it is not the one that is meant."""
    end = at + fmt.FRAME_HEAD_BYTES + item.size_bytes
    if at < 0 or end > len(data) or item.size_bytes < _BODY_BYTES:
        return None
    crc, size, _, _, _, kind, _, mark = _HEAD.unpack_from(data, at)
    body = at + fmt.FRAME_HEAD_BYTES
    if size != item.size_bytes or mark != fmt.FRAME_MARK or kind not in _KINDS:
        return None
    if fmt.NODE_BODY.unpack_from(data, body)[:3] != (stream, *item.master):
        return None
    place = crc32c(item.position.to_bytes(8, "little"), seed)
    if crc32c(bytes(data[at + 4 : end]), place) != crc:
        return None
    return bytes(data[body + _BODY_BYTES : end])


def stretch_bytes(items: bytes, at: int, gap_max: int, bytes_max: int) -> int:
    """How much of the log to read for a list of nodes from an offset on.

    Returns:
        Bytes from the frame of the first node on, which hold it and those that follow: while each
        begins behind the one before, at most ``gap_max`` bytes, and it all is at most ``bytes_max``
        (but for the first). 0 if no node of the list has a frame.
    """
    begin = end = 0
    for item, _ in each_item(items, at):
        if item.position:
            upto = item.position + fmt.FRAME_HEAD_BYTES + item.size_bytes
            if not begin:
                begin = item.position
            elif not 0 <= item.position - end <= gap_max or upto - begin > bytes_max:
                break
            end = upto
    return end - begin


def may_match(
    items: bytes,
    at: int,
    data: bytes,
    position: int,
    stream: int,
    seed: int,
    where: list[bytes],
    found: list[int],
) -> int:
    """Go through items of a list from an offset on, whose frames lie in ``data``, which is of the
    log from ``position`` on.

    Puts the offsets of those that have an entry that matches (`node.entries`), in whatever
    interval and whatever is in their vector, into ``found``, and of those that are not sound.

    Returns:
        The offset of the first item that does not lie there as a whole.
    """
    for item, after in each_item(items, at):
        begin = item.position - position
        if begin < 0 or begin + fmt.FRAME_HEAD_BYTES + item.size_bytes > len(data):
            break
        lp = frame_listpack(data, begin, item, stream, seed)
        if lp is None or _may_have(lp, where):
            found.append(at)
        at = after
    return at


def _may_have(lp: bytes, where: list[bytes]) -> bool:
    try:
        return bool(entries(lp, 0, 0, limit=1, where=where))
    except CorruptNodeError:
        return True


class NodeList:
    """A list of nodes that grows.

    ``nbytes``: of the list itself; ``live`` and ``size_bytes``: the live entries and the bytes of
    its nodes.
    """

    __slots__ = ("_count", "_data", "_last", "live", "size_bytes")

    def __init__(self) -> None:
        self._data = bytearray()
        self._count = self.live = self.size_bytes = 0
        self._last: ID = (0, 0)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the list itself."""
        return len(self._data)

    def add(
        self, position: int, size_bytes: int, live: int, master: ID, last: ID, vector: bytes,
        lp: bytes = b"",
    ) -> None:  # fmt: skip
        """Add one node."""
        self._data += Item(position, size_bytes, live, master, last, vector, lp).pack()
        self._count += 1
        self.live += live
        self.size_bytes += size_bytes
        self._last = (last[0], last[1])

    def add_rows(
        self, rows: Sequence[tuple[bytes, bytes]], at: int, stream: int, start: ID, end: ID,
        nodes_max: int,
    ) -> int:  # fmt: skip
        """Add what has live entries of the sealed nodes that rows of the index tell of.

        Returns:
            The place of the first row that was not looked at: because it is another stream's, or
            its master ID is above ``end``, or ``nodes_max`` were added, or it is damaged.
        """
        most = self._count + nodes_max
        while at < len(rows) and self._count < most:
            key, data = rows[at]
            value = unseal(key, data) or b""
            if len(key) != fmt.NODE_KEY.size or len(value) < fmt.LOCATOR.size:
                break
            number, ms, seq = fmt.NODE_KEY.unpack(key)
            if number != stream or (ms, seq) > end:
                break
            position, size, entries, *last = fmt.LOCATOR.unpack_from(value)
            vector = value[fmt.LOCATOR.size :]
            live = entries - tombstones.count(vector)
            if live > 0 and (last[0], last[1]) >= start:
                self.add(position, size, live, (ms, seq), (last[0], last[1]), vector)
            at += 1
        return at

    def add_items(self, items: bytes, start: ID, end: ID) -> int:
        """Add what can have entries of a closed interval, of a list that was made before.

        Returns:
            Where the first item begins that is cut off, or the end.
        """
        at = 0
        for item, at in each_item(items):  # noqa: B007  (where the last one ended)
            if item.last >= start and item.master <= end:
                self.add(*item)
        return at

    def mark(self) -> tuple[int, int, int, int, ID]:
        """How it stands, for `cut`."""
        return len(self._data), self._count, self.live, self.size_bytes, self._last

    def cut(self, mark: tuple[int, int, int, int, ID]) -> None:
        """Forget what was added since it stood so."""
        size, self._count, self.live, self.size_bytes, self._last = mark
        del self._data[size:]

    def items(self, start: int = 0, end: int = -1) -> bytes:
        """A part of the list, from one offset to another; all of it."""
        return bytes(self._data[start:] if end < 0 else self._data[start:end])

    def last(self) -> ID:
        """The last ID of the node that was added last; of none it is 0-0."""
        return self._last

    def segments(self) -> set[int]:
        """The segments in which nodes lie."""
        return segments_of(self._data)

    def positions(self) -> list[int]:
        """The positions of the nodes; 0 of one whose listpack stands in the list."""
        return [item.position for item, _ in each_item(self._data)]

    def lives(self) -> list[int]:
        """How many live entries each of the nodes has."""
        return [item.live for item, _ in each_item(self._data)]

    def picked(self, wanted: Sequence[int]) -> bytes:
        """The items of some nodes: their numbers in the list, ascending."""
        chosen = set(wanted)
        found = enumerate(each_item(self._data))
        return b"".join(item.pack() for number, (item, _) in found if number in chosen)

    def places(self, sums: Sequence[int]) -> list[tuple[int, int, int]]:
        """For each of the sums, which ascend: how many nodes it takes for their bytes to reach it,
        the sum that they then have, and the bytes of the last of these."""
        sizes = [0, *(item.size_bytes for item, _ in each_item(self._data))]
        totals = list(accumulate(sizes))
        counts = [min(bisect_left(totals, wanted), len(self)) for wanted in sums]
        return [(count, totals[count], sizes[count]) for count in counts]

    def pieces(self, ends: Sequence[int], bytes_max: int) -> list[Piece]:
        """The whole list in pieces of at most so many bytes, but for single items that are larger;
        a piece ends at each of the ``ends``, which are numbers of nodes and ascend."""
        found: list[Piece] = []
        stops, begin = set(ends), 0
        for number, (item, end) in enumerate(each_item(self._data)):
            if not found or number in stops or end - begin > bytes_max:
                begin = found[-1].end if found else 0
                found.append(Piece(0, 0, 0, 0, item.master, item.last))
            nodes, _, live, size, first, _ = found[-1]
            live, size = live + item.live, size + item.size_bytes
            found[-1] = Piece(nodes + 1, end, live, size, first, item.last)
        return found
