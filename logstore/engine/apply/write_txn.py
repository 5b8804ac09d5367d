"""The write transaction of one commit: what an operation decides is appended and applied at once.

Invariants: a frame is applied at the moment when it joins the commit, so that the next operation of
the same commit sees it; the same code applies it when the log is replayed. Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.codec import Packed
from logstore.engine.apply.streams import APPLY, PlacedNodes
from logstore.engine.txn.view import TxnView
from logstore.format import APPEND_BODY, FRAME_HEAD_BYTES, NODE_BODY, Kind
from logstore.ids import StreamID
from logstore.index.keys import OpenNode, StreamRecord
from logstore.log import frame as frames

if TYPE_CHECKING:
    from logstore.codec.node_batch import NodeBatch


class WriteTxn(TxnView):
    """A view that frames are added to."""

    def emit(self, body: frames.Body, joined: bytes | None = None) -> int:
        """Add a frame to the commit and apply it; its position.

        ``joined`` is what an append frame makes of its open node, where its decider knows it.
        """
        kind = type(body)
        at, size = self.buffer.add_payload(frames.KIND_OF[kind], frames.ENCODERS[kind](body))
        self.joined = joined
        APPLY[kind](self, at, size, body)
        return at

    def emit_nodes(self, stream: int, batch: NodeBatch) -> PlacedNodes:
        """Add node frames, behind which another frame is to come: where they are. What they change
        is for ``nodes_added`` to apply."""
        at = self.buffer.add_nodes(batch, stream)
        rows, last = batch.rows(stream, at, FRAME_HEAD_BYTES)
        return PlacedNodes(rows, batch.nbytes + len(batch) * NODE_BODY.size, last)

    def emit_row(
        self, record: StreamRecord, node: OpenNode, last: StreamID, packed: Packed
    ) -> None:
        """What ``emit`` does for the append frame of one row to a small open node, in one step."""
        head = APPEND_BODY.pack(record.number, *last, 1, packed.added_elements)
        at, _ = self.buffer.add_payload(Kind.APPEND, head + packed.added)
        self.appended(record, at, 1, last)
        node.lp = packed.open_lp
        self._dirty_opens.add(record.number)
