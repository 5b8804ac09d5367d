"""Descriptions: what ``info`` tells of a stream, gathered on one snapshot.

Invariants: all of a description is of one moment; of the entries only the first and the last are
decoded; the numbers are those that the peers' XINFO gives for the same history.
"""

from __future__ import annotations

from typing import Any

from logstore.codec import codec
from logstore.engine import nodes
from logstore.engine.snapshot import Snapshot
from logstore.entry import Entry, make_entry
from logstore.errors import StreamNotFoundError
from logstore.ids import MAX_ID, ZERO_ID
from logstore.index.keys import StreamRecord
from logstore.info import StreamInfo, radix_tree_nodes


def stream_info(view: Snapshot, name: bytes, encoding: str | None) -> StreamInfo:
    """All fields of XINFO STREAM; StreamNotFoundError if there is no stream."""
    record = view.record(name)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=name)
    keys = [master.packed() for master, _ in view.index.nodes(record.number)]
    open_bytes = 0
    if record.open_version:
        keys.append(record.open_master.packed())
        node = view.open_node(record.number)
        open_bytes = nodes.open_bytes(node) if node is not None else 0
    return StreamInfo(
        name, record.length, len(keys), radix_tree_nodes(keys), record.last,
        record.max_deleted, record.entries_added, record.first, 0,
        _edge(view, record, encoding, reverse=False), _edge(view, record, encoding, reverse=True),
        record.node_bytes, open_bytes,
    )  # fmt: skip


def _edge(
    view: Snapshot, record: StreamRecord, encoding: str | None, *, reverse: bool
) -> Entry[Any] | None:
    walk = nodes.refs_reverse if reverse else nodes.refs
    for ref in walk(view, record):
        if ref.live:
            lp, vector = nodes.listpack(view, record, ref)
            found = codec().entries(lp, *ref.master, vector, ZERO_ID, MAX_ID, 1, reverse)
            if found:
                _, ms, seq, flat = found[0]
                return make_entry(ms, seq, flat, encoding)
    return None
