"""The cache of nodes without compiled code. Twin: _nodes.pxi.

Invariants: what is kept at a position was read from there and checked, and what stands there never
changes; it is given only to who names the same node. At most ``most_bytes`` are held; nodes that
were asked for again stay longest. Threads need no lock but for what is changed together.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

NODE_COST_BYTES = 256  # of a node besides its listpack, about


class NodeCache:
    """Verified listpacks of sealed nodes, by their positions."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._nodes: OrderedDict[int, tuple[int, tuple[int, int], bytes]] = OrderedDict()
        self._lock = threading.RLock()  # a signal handler may read while we do

    @property
    def held_bytes(self) -> int:
        """Bytes of the nodes that are held, with the cost of each besides its listpack."""
        return self._held_bytes

    def get(
        self, position: int, stream: int, master: tuple[int, int], lp_bytes: int, /
    ) -> bytes | None:
        """The listpack of so many bytes at a position, of this node; None if it is not kept."""
        with self._lock:
            kept = self._nodes.get(position)
            if kept is None or kept[:2] != (stream, tuple(master)) or len(kept[2]) != lp_bytes:
                return None
            self._nodes.move_to_end(position)
            return kept[2]

    def put(self, position: int, stream: int, master: tuple[int, int], lp: bytes, /) -> None:
        """Keep a listpack that was read from there and checked; others may go for it."""
        cost = len(lp) + NODE_COST_BYTES
        if cost > self._most_bytes // 16:
            return
        with self._lock:
            before = self._nodes.pop(position, None)
            if before is not None:
                self._held_bytes -= len(before[2]) + NODE_COST_BYTES
            while self._nodes and self._held_bytes + cost > self._most_bytes:
                _, gone = self._nodes.popitem(last=False)
                self._held_bytes -= len(gone[2]) + NODE_COST_BYTES
            self._nodes[position] = stream, (master[0], master[1]), lp
            self._held_bytes += cost

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._nodes.clear()
            self._held_bytes = 0
