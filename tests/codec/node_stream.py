"""A stream made of operations of the codec only: XADD, XDEL and XTRIM as the servers apply them to
nodes.

It stands in for the engine where the codec is compared with real servers, node by node.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from logstore.codec import Codec, NodeEntry

ID = tuple[int, int]
ZERO: ID = (0, 0)


@dataclass
class Node:
    """A node: its master ID and its listpack."""

    master: ID
    lp: bytes


@dataclass
class NodeStream:
    """A stream's nodes and record."""

    codec: Codec
    node_max_bytes: int = 4096
    node_max_entries: int = 100
    nodes: list[Node] = field(default_factory=list)
    length: int = 0
    last_id: ID = ZERO
    max_deleted: ID = ZERO
    entries_added: int = 0

    def add(self, id: ID, flat: list[bytes]) -> None:
        """XADD with an explicit ID."""
        raw_bytes = sum(map(len, flat))
        limits = (self.node_max_bytes, self.node_max_entries)
        if self.nodes and self.codec.fits(self.nodes[-1].lp, raw_bytes, *limits):
            node = self.nodes[-1]
            node.lp, _ = self.codec.append(node.lp, *node.master, *id, flat)
        else:
            self.nodes.append(Node(id, self.codec.new_node(*id, flat)))
        self.length += 1
        self.entries_added += 1
        self.last_id = id

    def delete(self, id: ID) -> int:
        """XDEL of one ID: 1 if it was there."""
        for node in self.nodes:
            ordinal = self.codec.find(node.lp, *node.master, *id)
            if ordinal < 0:
                continue
            self.max_deleted = max(self.max_deleted, id)
            self.length -= 1
            if self.codec.counts(node.lp)[0] == 1:
                self.nodes.remove(node)
            else:
                node.lp = self.codec.mark_deleted(node.lp, [ordinal])
            return 1
        return 0

    def trim(
        self,
        maxlen: int | None = None,
        minid: ID = ZERO,
        approximate: bool = False,
        limit: int = 0,
    ) -> int:
        """XTRIM by length, or by ID if ``maxlen`` is None; how many entries went."""
        deleted = 0
        while self.nodes and (maxlen is None or self.length > maxlen):
            node = self.nodes[0]
            live = self.codec.counts(node.lp)[0]
            if limit and deleted + live > limit:
                break
            if maxlen is None:
                whole = self.codec.last_id(node.lp, *node.master) < minid
            else:
                whole = self.length - live >= maxlen
            if whole:
                self.nodes.pop(0)
                deleted += live
                self.length -= live
                continue
            if not approximate:
                deleted += self._trim_inside(node, maxlen, minid)
            break
        return deleted

    def _trim_inside(self, node: Node, maxlen: int | None, minid: ID) -> int:
        live = self.codec.ids(node.lp, *node.master)
        if maxlen is None:
            gone = [ordinal for ordinal, ms, seq in live if (ms, seq) < minid]
        else:
            gone = [ordinal for ordinal, _, _ in live[: self.length - maxlen]]
        node.lp = self.codec.mark_deleted(node.lp, gone)
        self.length -= len(gone)
        return len(gone)

    def first_id(self) -> ID:
        """ID of the first live entry, 0-0 if there is none."""
        for node in self.nodes:
            id = self.codec.first_live_id(node.lp, *node.master)
            if id is not None:
                return id
        return ZERO

    def entries(self) -> list[NodeEntry]:
        """All live entries."""
        return [entry for node in self.nodes for entry in self.codec.entries(node.lp, *node.master)]
