"""The nodes of a stream, found in the index and listed, some at a time.

Invariants: rows of the index are listed without an object a node, and a row whose checksum does
not fit is an error; the open node is the last, and its listpack stands in the list, unless it
cannot be read and losses are allowed. Between two
pieces nodes may be rewritten, merged or moved: the next one goes on at the master ID of the first
node that was not listed, below which all live entries of the listed ones are. (The last ID of a
node is not that border: after XSETID to a smaller ID the next node may begin below it.)
"""

from __future__ import annotations

from logstore.codec import codec
from logstore.codec.node_list import NodeList
from logstore.engine.runtime.segments import SegmentGone
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptionError
from logstore.format import NODE_KEY
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.row_seal import key_parts, unseal
from logstore.scan.losses import Loss


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
    *,
    lossy: bool = False,
) -> tuple[StreamID | None, int]:
    """List the next nodes with live entries of a closed interval, at most so many. An open node
    that cannot be read is an error; or, if that is ``lossy``, it is listed without a listpack, so
    that who reads the list meets it as a node that is damaged.

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
        _add_open(view, record, start, found, lossy=lossy)
    return None, seen


def _add_open(
    view: Snapshot, record: StreamRecord, start: StreamID, found: NodeList, *, lossy: bool
) -> None:
    """List the open node, if it has live entries. Where it cannot be read its frames are damaged:
    the index knows how many entries these have."""
    node = view.open_node(record.number)
    try:
        ref = nodes.open_ref(view, record)
        if ref is None or not ref.live or ref.last < start:
            return
        lp, vector = nodes.listpack(view, record, ref)
        found.add(0, len(lp), ref.live, ref.master, ref.last, vector, lp)
    except (CorruptionError, SegmentGone) as error:
        if node is None or (isinstance(error, SegmentGone) and not lossy):
            raise
        live = node.totals()[0] - node.vector.bit_count()
        if isinstance(error, SegmentGone) or lossy:
            found.add(0, 0, live, record.open_master, record.last, b"", b"")
            return
        here = Loss(record.name, record.open_master, record.last, 1, live, 0, error)
        raise here.told() from None


def _damaged(key: bytes, data: bytes) -> CorruptionError:
    """The error of a row that the list does not take."""
    unseal(key, data)
    return CorruptionError(f"the index is damaged at key {key.hex()}: it names no node")
