"""What frames of plain commits do to a stream: to its record, and to its nodes.

The one place for it: a commit, the replay of the log, and a reader that lays the newest frames over
its snapshot all come here, so that they cannot disagree.

Invariants: frames come in the order of their positions, and none twice, which the caller sees to; a
listpack is only looked into through the codec. Knows no transaction, and reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logstore.codec import codec
from logstore.ids import U64_MAX, StreamID
from logstore.index.keys import Locator, NodeFrame, OpenNode, StreamRecord
from logstore.log import frame as frames


def grow_record(record: StreamRecord, at: int, entries: int, last: StreamID) -> None:
    """The record after an append frame at position ``at`` added so many entries, the last one with
    this ID."""
    record.length += entries
    record.entries_added = (record.entries_added + entries) & U64_MAX  # as servers count
    record.last = last
    record.position = at


def restate_record(record: StreamRecord, at: int, body: frames.Record) -> None:
    """The record after a frame at position ``at`` that states it."""
    record.length = body.length
    record.entries_added = body.entries_added
    record.last = StreamID(body.last_ms, body.last_seq)
    record.first = StreamID(body.first_ms, body.first_seq)
    record.max_deleted = StreamID(body.max_deleted_ms, body.max_deleted_seq)
    record.position = at


def mark_open(node: OpenNode, ordinals: Sequence[int]) -> None:
    """The open node after these of its entries were deleted."""
    if node.runs:
        for ordinal in ordinals:
            node.vector |= 1 << ordinal
    else:
        assert node.lp is not None
        node.lp = codec().mark_deleted(node.lp, tuple(ordinals))


def mark_sealed(locator: Locator, bodies: Iterable[frames.Tombstone]) -> Locator:
    """A sealed node's locator with the tombstones of these frames that name its version."""
    for body in bodies:
        if body.version == locator.position:
            locator = locator.marked(body.ordinals)
    return locator


def extend_node(node: OpenNode, runs: list[NodeFrame], data: bytes | None) -> None:
    """The open node after append frames: ``runs`` as they stand in the log, ``data`` the listpack
    bytes of all of them, one behind the other. A large node needs only the runs."""
    if node.runs:
        node.runs.extend(runs)
        return
    assert node.lp is not None
    assert data is not None
    entries = elements = 0
    for run in runs:
        entries += run.entries
        elements += run.elements
    node.lp = codec().extend(node.lp, data, entries, elements)
