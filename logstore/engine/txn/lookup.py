"""Looking up single entries of a stream by ID, many in one go.

Invariants: IDs are asked for in any order; a node is read once for neighbouring IDs; a deleted
entry is not there. Works alike on a write state and on a snapshot.
"""

from __future__ import annotations

from logstore.codec import codec
from logstore.engine.txn import nodes
from logstore.engine.txn.nodes import View
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord


class Lookup:
    """Finds entries of one stream."""

    def __init__(self, view: View, record: StreamRecord) -> None:
        self._view = view
        self._record = record
        self._ref: nodes.NodeRef | None = None
        self._lp = b""
        self._vector = b""

    def fields(self, id: StreamID) -> list[bytes] | None:
        """Field, value, field, value, ...; None if there is no such entry."""
        if not self._record.length or not self._go(id):
            return None
        assert self._ref is not None
        master = self._ref.master
        found = codec().entries(self._lp, *master, self._vector, id, id, 1, False)
        return found[0][3] if found else None

    def __contains__(self, id: StreamID) -> bool:
        if not self._record.length or not self._go(id):
            return False
        assert self._ref is not None
        return codec().find(self._lp, *self._ref.master, *id, self._vector) >= 0

    def _go(self, id: StreamID) -> bool:
        """Read the node that would hold the ID."""
        ref = self._ref
        if ref is not None and ref.master <= id <= ref.last:
            return True
        ref = nodes.ref_of(self._view, self._record, id)
        if ref is None or not ref.live:
            return False
        self._ref = ref
        self._lp, self._vector = nodes.listpack(self._view, self._record, ref)
        return True
