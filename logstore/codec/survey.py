"""A node that comes from elsewhere: everything checked, and what whoever keeps it must know of it.

Invariants: as `node.validate`; nothing is decoded but IDs.

It may not know where the node comes from.
"""

from __future__ import annotations

from logstore.codec import node
from logstore.codec.interface import NodeSurvey


def survey(lp: bytes, master_ms: int, master_seq: int) -> NodeSurvey:
    """Live entries, the first and last live ID, the last ID; CorruptNodeError as `validate`."""
    node.validate(lp, master_ms, master_seq)
    live, _ = node.counts(lp)
    return NodeSurvey(
        live,
        node.first_live_id(lp, master_ms, master_seq),
        node.last_live_id(lp, master_ms, master_seq),
        node.last_id(lp, master_ms, master_seq),
    )
