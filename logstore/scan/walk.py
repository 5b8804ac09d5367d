"""The nodes of a stream, found in the index and listed, some at a time.

Invariants: rows of the index are listed without an object a node, and a row whose checksum does
not fit is an error; the open node is the last, and its listpack stands in the list. Between two
pieces nodes may be rewritten, merged or moved: the next one goes on at the master ID of the first
node that was not listed, below which all live entries of the listed ones are. (The last ID of a
node is not that border: after XSETID to a smaller ID the next node may begin below it.)
"""

from __future__ import annotations

from logstore.codec import codec
from logstore.codec.located import NodeList
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptionError
from logstore.format import NODE_KEY
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.row_seal import key_parts, unseal


def new_list() -> NodeList:
    """An empty list of the codec in use."""
    made: NodeList = codec().NodeList()
    return made


def piece(
    view: Snapshot,
    record: StreamRecord,
    start: StreamID,
    end: StreamID,
    found: NodeList,
    nodes_max: int,
) -> tuple[StreamID | None, int]:
    """List the next nodes with live entries of a closed interval, at most so many.

    Returns:
        Where the next piece begins, or None at the end; how many sealed nodes were looked at.
    """
    number, before, seen = record.number, len(found), 0
    high = NODE_KEY.pack(number, *end)
    floor = view.index.node_floor(number, start) if record.nodes else None
    low = start if floor is None else floor[0]
    # One more than is listed: where the next one begins, all that is listed has ended.
    count = min(nodes_max, record.nodes) + 1
    while record.nodes:
        rows = view.index.node_rows(number, low, count)
        at = found.add_rows(rows, 0, number, start, end, before + nodes_max - len(found))
        seen += at
        if at < len(rows):
            key, data = rows[at]
            if key > high:
                break
            _, ms, seq = key_parts(NODE_KEY, key)
            if len(found) - before < nodes_max:
                raise _damaged(key, data)
            return StreamID(ms, seq), seen
        if len(rows) < count or rows[-1][0] == high:
            break
        low = StreamID(*NODE_KEY.unpack(rows[-1][0])[1:]).next()
    if record.open_version and record.open_master <= end:
        ref = nodes.open_ref(view, record)
        if ref is not None and ref.live and ref.last >= start:
            lp, vector = nodes.listpack(view, record, ref)
            found.add(0, len(lp), ref.live, ref.master, ref.last, vector, lp)
    return None, seen


def _damaged(key: bytes, data: bytes) -> CorruptionError:
    """The error of a row that the list does not take."""
    unseal(key, data)
    return CorruptionError(f"the index is damaged at key {key.hex()}: it names no node")
