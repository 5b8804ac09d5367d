"""What append frames do to a stream: to its record, and to its open node.

The one place for it: a commit, the replay of the log, and a reader that lays the newest frames over
its snapshot all come here, so that they cannot disagree.

Invariants: frames come in the order of their positions, and none twice, which the caller sees to; a
listpack is only looked into through the codec. Knows no transaction, and reads no file.
"""

from __future__ import annotations

from logstore.codec import codec
from logstore.ids import U64_MAX, StreamID
from logstore.index.keys import OpenNode, Run, StreamRecord


def grow_record(record: StreamRecord, at: int, entries: int, last: StreamID) -> None:
    """The record after an append frame at position ``at`` added so many entries, the last one with
    this ID."""
    record.length += entries
    record.entries_added = (record.entries_added + entries) & U64_MAX  # as servers count
    record.last = last
    record.position = at


def extend_node(node: OpenNode, runs: list[Run], data: bytes | None) -> None:
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
