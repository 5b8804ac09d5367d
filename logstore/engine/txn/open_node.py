"""The open node as it grows: inline in the index while small, a list of its frames when large.

Invariants: an inline open node never exceeds OPEN_INLINE_MAX_BYTES (rewriting a large value at
each add would be quadratic); the skeleton of a large one has the master entry and nothing else,
its first run counts the live entries and the tombstones of the listpack that it begins with.
"""

from __future__ import annotations

from logstore.codec import codec, edit, listpack
from logstore.engine.runtime.segments import Segments
from logstore.index.keys import OpenNode, Run

OPEN_INLINE_MAX_BYTES = 64 * 1024


def skeleton(lp: bytes) -> bytes:
    """The node without its entries: what further entries are encoded against.

    Its counters are 0: the codec takes no node that counts more than its bytes could hold.
    """
    fields = codec().head(lp).fields
    none = listpack.encode_int(0)
    elements = len(fields) + 4  # count, deleted, number of fields, the fields, terminator
    return listpack.finish(elements, none, none, edit.encode_master(fields))


def _large(run: Run, lp: bytes) -> OpenNode:
    """A large open node that begins with this frame, which holds the whole listpack so far."""
    live, dead = codec().counts(lp)
    return OpenNode(skeleton(lp), [run._replace(entries=live, elements=dead)])


def opened(run: Run, data: bytes | None) -> OpenNode:
    """The open node that an open frame states."""
    if data is None:
        return OpenNode(None, [run])
    if len(data) > OPEN_INLINE_MAX_BYTES:
        return _large(run, data)
    return OpenNode(data)


def extended(node: OpenNode, run: Run, data: bytes | None) -> OpenNode:
    """The open node with an append frame behind it."""
    if node.runs:
        node.runs.append(run)
    else:
        assert node.lp is not None
        assert data is not None
        node.lp = codec().extend(node.lp, data, run.entries, run.elements)
    return node


def deleted(node: OpenNode, ordinals: tuple[int, ...]) -> OpenNode:
    """The open node with tombstones set."""
    if node.runs:
        for ordinal in ordinals:
            node.vector |= 1 << ordinal
    else:
        assert node.lp is not None
        node.lp = codec().mark_deleted(node.lp, ordinals)
    return node


def settled(node: OpenNode, segments: Segments, active: int) -> OpenNode:
    """After a rebuild: inline if small, else with its skeleton."""
    if not node.runs:
        return node
    if sum(run.payload_bytes for run in node.runs) <= OPEN_INLINE_MAX_BYTES:
        return OpenNode(segments.open_listpack(node, active))
    if node.lp is None:
        first, *others = node.runs
        large = _large(first, segments.run_bytes(first, active)[1])
        return OpenNode(large.lp, large.runs + others, node.vector)
    return node
