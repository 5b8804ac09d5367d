"""Nodes that come from elsewhere, many at a time, as they stand in RDB: checked, not decoded.

Invariants: only what is whole, plainly stored, sound, and above what is before it is taken; at the
first node that is not, the batch ends, and whoever reads looks at that one by itself. Nodes that
were just packed are a batch without being looked at (``of``).

It may not know what stands around the nodes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from logstore.codec.checksums import frame_head, seal
from logstore.codec.node import survey
from logstore.codec.node_types import ID, ZERO_ID, PackedNode
from logstore.errors import CorruptNodeError
from logstore.format import FRAME_HEAD_AFTER_CRC, FRAME_HEAD_BYTES, LOCATOR, NODE_BODY, NODE_KEY

_KEY = b"\x10"  # the length of a master ID
_ID_BYTES = 16
_ID = struct.Struct(">QQ")
# Position, master ID, bytes of the frame's payload, live entries, ID of the last entry.
Place: TypeAlias = tuple[int, ID, int, int, ID]


class NodeBatch:
    """The nodes from ``at`` on, at most ``most``: those before had the last master ID ``master``
    (None: there were none) and the last live ID ``top``.

    ``end``: the offset behind them; ``live``: their live entries; ``nbytes``: of their listpacks;
    ``first``: their first live ID, or None; ``top``: the last live ID up to their end; ``last``:
    the largest ID of their entries, live or not; ``master``: of the last node, or None.
    """

    __slots__ = ("_before", "_nodes", "end", "first", "last", "live", "master", "nbytes", "top")

    def __init__(self, data: bytes, at: int, most: int, master: ID | None, top: ID) -> None:
        if not 0 <= at <= len(data) or most < 0:
            raise ValueError("nodes begin inside of the bytes")
        self.end = at
        self.live = self.nbytes = 0
        self.first: ID | None = None
        self.top: ID = (top[0], top[1])
        self.last: ID = ZERO_ID
        self.master: ID | None = None
        self._before = master
        self._nodes: list[tuple[ID, int, ID, bytes]] = []
        while len(self._nodes) < most:
            found = _node(data, self.end)
            if found is None or not self._take(found[0], found[1]):
                return
            self.end = found[2]

    @classmethod
    def of(cls, nodes: Sequence[PackedNode]) -> NodeBatch:
        """Nodes that ``pack`` made, one behind the other: they are not looked at again."""
        made = cls(b"", 0, 0, None, ZERO_ID)
        for node in nodes:
            master, last = (node.master_ms, node.master_seq), (node.last_ms, node.last_seq)
            made.first, made.top = made.first or master, last
            made._keep(master, node.count, last, node.lp)
        made.end = made.nbytes
        return made

    def _take(self, master: ID, lp: bytes) -> bool:
        """Keep a node, if it is sound and above what is before it."""
        if self._before is not None and master <= self._before:
            return False
        try:
            live, first, last, end = survey(lp, *master)
        except CorruptNodeError:
            return False
        if first is not None and last is not None:
            if first <= self.top or first < master:
                return False
            self.first, self.top = self.first or first, last
        self._keep(master, live, end, lp)
        return True

    def _keep(self, master: ID, live: int, last: ID, lp: bytes) -> None:
        self.master = self._before = master
        self.live += live
        self.last = max(self.last, last)
        self.nbytes += len(lp)
        self._nodes.append((master, live, last, lp))

    def __len__(self) -> int:
        return len(self._nodes)

    def payloads(self, stream: int) -> list[bytes]:
        """The payload of a node frame of this stream for each."""
        return [
            NODE_BODY.pack(stream, *master, *end, live) + lp
            for master, live, end, lp in self._nodes
        ]

    def payload_at(self, stream: int, offset: int, head_bytes: int) -> bytes | None:
        """The payload of the frame that begins so far behind the first one, if their frames, which
        have heads of so many bytes, stand side by side; None if none begins there."""
        for payload in self.payloads(stream):
            if offset <= 0:
                return None if offset else payload
            offset -= head_bytes + len(payload)
        return None

    def places(self, position: int, head_bytes: int) -> list[Place]:
        """Where each is, if their frames, which have heads of so many bytes, stand side by side
        from this position on."""
        found: list[Place] = []
        for master, live, end, lp in self._nodes:
            size = NODE_BODY.size + len(lp)
            found.append((position, master, size, live, end))
            position += head_bytes + size
        return found

    def rows(
        self, stream: int, position: int, head_bytes: int
    ) -> tuple[list[tuple[bytes, bytes]], Place]:
        """The rows of the index for these places, and the last place; not of an empty batch."""
        places = self.places(position, head_bytes)
        return index_rows(stream, places), places[-1]

    def frames(self, stream: int, covered: bytes, seed: int) -> bytes:
        """The frames of all as bytes; ``covered`` is what the CRC of the first covers in front of
        its payload, with any size in it."""
        at, _, number, durable_upto, ordinal, *rest = FRAME_HEAD_AFTER_CRC.unpack(covered)
        out: list[bytes] = []
        for payload in self.payloads(stream):
            head = FRAME_HEAD_AFTER_CRC.pack(at, len(payload), number, durable_upto, ordinal, *rest)
            out += (frame_head(head, payload, seed)[1], payload)
            at += FRAME_HEAD_BYTES + len(payload)
            ordinal += 1
        return b"".join(out)


def index_rows(stream: int, places: Iterable[Place]) -> list[tuple[bytes, bytes]]:
    """Keys and values of locators, with their checksums."""
    found: list[tuple[bytes, bytes]] = []
    for at, master, payload_bytes, live, last in places:
        key = NODE_KEY.pack(stream, *master)
        found.append((key, seal(key, LOCATOR.pack(at, payload_bytes, live, *last))))
    return found


def _node(data: bytes, at: int) -> tuple[ID, bytes, int] | None:
    """The master ID and the listpack at an offset, and where they end; None if they are not whole
    or not stored as they are."""
    body = at + 1 + _ID_BYTES
    if data[at : at + 1] != _KEY or len(data) <= body:
        return None
    first = data[body]
    if first < 0x40:
        begin, size = body + 1, first
    elif first < 0x80:
        begin, size = body + 2, (first & 0x3F) << 8 | int.from_bytes(data[body + 1 : body + 2])
    elif first == 0x80:
        begin, size = body + 5, int.from_bytes(data[body + 1 : body + 5])
    else:
        return None
    if len(data) < begin + size:
        return None
    return _ID.unpack_from(data, at + 1), data[begin : begin + size], begin + size
