"""Applying frames to the index: the one place that changes it.

Used alike by a live commit, by finishing a dead writer's commit, by replay and by rebuild.

Invariants: physical only: no clock, no trim, no ID is computed; idempotent by position: a record
changes only if the frame stands behind the record's own position, a node is dropped only by a
frame behind it, a tombstone touches only the version it names. A frame of a stream that has no
record is passed over: the stream's drop comes later in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from logstore import format as fmt
from logstore.engine.apply import group_frames
from logstore.engine.runtime.plain_frames import extend_node, mark_open, restate_record
from logstore.engine.txn import nodes
from logstore.features.feature_list import DROPPED, FRAMES
from logstore.ids import MAX_ID, U64_MAX, ZERO_ID, StreamID
from logstore.index.keys import Locator, Meta, NodeFrame, SegmentRow, StreamRecord
from logstore.index.txn import put_nodes
from logstore.log import frame as frames
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.codec.node_batch import Place
    from logstore.engine.txn.view import TxnView
    from logstore.log import log_reader

MAX_POSITION = U64_MAX


def apply(txn: TxnView, at: int, payload_bytes: int, body: frames.Body) -> None:
    """Apply the frame at position ``at``."""
    APPLY[type(body)](txn, at, payload_bytes, body)


def apply_commit(
    txn: TxnView,
    commit: log_reader.Commit,
    some: Sequence[log_reader.LogFrame] | None = None,
    check: Callable[[TxnView, log_reader.LogFrame, Any], None] | None = None,
) -> None:
    """Apply all frames of a complete commit, or ``some``: the others are of no concern here.

    ``check`` is called with each frame and its body, before that is applied.
    """
    for frame in commit.frames if some is None else some:
        body = frame.body()
        if check is not None:
            check(txn, frame, body)
        if body is not None:
            apply(txn, frame.position, frame.payload_bytes, body)
    last = commit.frames[-1]
    txn.meta = txn.meta._replace(
        applied=commit.end, commit=commit.number, last_frame=last.position, last_crc=last.crc
    )


def _seal(txn: TxnView, at: int, _: int, body: frames.Seal) -> None:
    segment, offset = fmt.position_parts(at)
    row = txn.segment(segment) or SegmentRow(fmt.Role.MAIN, 0, 0, 0, txn.now_ms)
    end = offset + fmt.FRAME_HEAD_BYTES + fmt.SEAL_BODY.size
    txn.put_segment(segment, row._replace(total_bytes=end))
    if txn.segment(body.next_segment) is None:
        fresh = SegmentRow(fmt.Role.MAIN, 0, 0, 0, txn.now_ms)
        txn.put_segment(body.next_segment, fresh)
    txn.meta = txn.meta._replace(
        active_segment=max(txn.meta.active_segment, body.next_segment),
        next_segment=max(txn.meta.next_segment, body.next_segment + 1),
    )


def _create(txn: TxnView, at: int, _: int, body: frames.Create) -> None:
    meta = txn.meta
    record: StreamRecord | None = None
    if body.stream >= meta.next_stream:  # numbers ascend, and none is given twice
        txn.meta = Meta(
            meta.applied,
            meta.commit,
            meta.last_frame,
            meta.last_crc,
            meta.active_segment,
            body.stream + 1,
            meta.next_segment,
        )
    else:
        record = txn.record(body.stream)
    if record is None:
        txn.create(StreamRecord(body.stream, body.name, position=at))
    elif record.name == body.name:
        # A stream that is called otherwise by now may have taken it: see ``_rename``.
        txn.bind(record)


def _drop(txn: TxnView, at: int, _: int, body: frames.Drop) -> None:
    txn.drop_nodes(body.stream, ZERO_ID, MAX_ID, MAX_POSITION)
    group_frames.drop_all(txn, body.stream, at)
    record = txn.record(body.stream)
    if record is not None and record.position >= at:
        return
    for dropped in DROPPED:  # without a record too: what damage left of the stream goes with it
        dropped(txn, body.stream)
    if record is not None:
        txn.remove(record)


def _open(txn: TxnView, at: int, payload_bytes: int, body: frames.Open) -> None:
    record = txn.record(body.stream)
    if record is None:
        return
    master = StreamID(body.master_ms, body.master_seq)
    sealed = None if txn.is_new(record) else txn.index.node(body.stream, master)
    reopened = sealed is not None and sealed.position < at
    if sealed is not None and reopened:
        txn.drop_node(body.stream, master, sealed)
    if record.position < at:
        if body.entries:
            if record.length == 0:
                record.first = master
            record.length += body.entries
            record.entries_added = (record.entries_added + body.entries) & U64_MAX
            record.last = StreamID(body.last_ms, body.last_seq)
        if sealed is not None and reopened:
            record.nodes -= 1
            record.node_bytes -= sealed.payload_bytes
        record.open_version = record.position = at
        record.open_master = master
        txn.touch(record)
    elif record.open_version != at:
        return
    run = NodeFrame(at, payload_bytes, body.entries, 0)
    txn.put_open(body.stream, nodes.open_from_frame(run, body.data))


def _append(txn: TxnView, at: int, payload_bytes: int, body: frames.Append) -> None:
    record = txn.record(body.stream)
    if record is None:
        return
    if record.position < at:
        txn.appended(record, at, body.entries, StreamID(body.last_ms, body.last_seq))
    elif not record.open_version or record.open_version > at:
        return
    node = txn.open_node(body.stream)
    if node is None:
        return
    if txn.joined is not None and not node.runs:
        node.lp = txn.joined
    else:
        run = NodeFrame(at, payload_bytes, body.entries, body.elements)
        extend_node(node, [run], body.data)
    txn.put_open(body.stream, node)


def _node(txn: TxnView, at: int, payload_bytes: int, body: frames.Node) -> None:
    record = txn.record(body.stream)
    if record is None:
        return
    master = StreamID(body.master_ms, body.master_seq)
    last = StreamID(body.last_ms, body.last_seq)
    place_node(txn, body.stream, master, Locator(at, payload_bytes, body.entries, last))
    if record.position < at:
        if record.open_version and record.open_master == master:
            record.open_version = 0
            txn.drop_open(body.stream)
        record.nodes += 1
        record.node_bytes += payload_bytes
        record.position = at
        txn.touch(record)


def place_node(txn: TxnView, stream: int, master: StreamID, locator: Locator) -> None:
    """A sealed node stands there: its row, and what is counted of its segment."""
    before = txn.sealed_node(stream, master)
    if before is None or before.position < locator.position:
        if before is not None:
            txn.count_live(before.position, -before.payload_bytes, -1)
        txn.put_node(stream, master, locator)


class PlacedNodes(NamedTuple):
    """Node frames that were written side by side."""

    rows: list[tuple[bytes, bytes]]  # what the index keeps of them
    payload_bytes: int
    last: Place


def nodes_added(txn: TxnView, record: StreamRecord, placed: Sequence[PlacedNodes]) -> None:
    """What node frames change of a stream; master IDs ascend, and are above those it has."""
    for rows, payload_bytes, (at, master, size, live, last) in placed:
        put_nodes(txn.index, rows)
        txn.count_live(at, payload_bytes - size, len(rows) - 1)  # all in one segment
        locator = Locator(at, size, live, StreamID(*last))
        txn.put_node(record.number, StreamID(*master), locator)
        record.node_bytes += payload_bytes
        record.nodes += len(rows)
    if placed:
        record.position = placed[-1].last[0]
    txn.touch(record)


def _tombstone(txn: TxnView, at: int, _: int, body: frames.Tombstone) -> None:
    record = txn.record(body.stream)
    if record is None:
        return
    if record.open_version == body.version:
        node = txn.open_node(body.stream)
        if node is not None:
            mark_open(node, body.ordinals)
            txn.put_open(body.stream, node)
    else:
        txn.mark_node(body)
    if record.position < at:
        record.position = at
        txn.touch(record)


def _trim(txn: TxnView, at: int, _: int, body: frames.Trim) -> None:
    record = txn.record(body.stream)
    if record is None:
        return
    first, last = StreamID(body.from_ms, body.from_seq), StreamID(body.to_ms, body.to_seq)
    dropped, dropped_bytes = txn.drop_nodes(body.stream, first, last, at)
    if record.position < at:
        record.nodes -= dropped
        record.node_bytes -= dropped_bytes
        if record.open_version and first <= record.open_master <= last:
            record.open_version = 0
            txn.drop_open(body.stream)
        record.position = at
        txn.touch(record)


def _record(txn: TxnView, at: int, _: int, body: frames.Record) -> None:
    record = txn.advance(body.stream, at)
    if record is not None:
        restate_record(record, at, body)


def _rename(txn: TxnView, at: int, _: int, body: frames.Rename) -> None:
    """A checkpoint is read in pieces, so two streams may have had one name by turns between its
    position and the last piece, and a frame that is replayed may take a name from a stream that has
    it for good: the frame that gave it that name comes later, and binds it once more.
    """
    record = txn.record(body.stream)
    if record is None:
        return
    if record.position < at:
        txn.woken.add(record.name)
        if record.name != body.name:
            txn.index.delete_name(record.name, record.number)
        record.name = body.name
        record.position = at
        txn.touch(record)
    if record.name == body.name:
        txn.bind(record)


def _adopt(txn: TxnView, at: int, _: int, body: frames.Adopt) -> None:
    if txn.segment(body.segment) is None:
        fresh = SegmentRow(fmt.Role.COMPACTED, 0, 0, 0, txn.now_ms)
        txn.put_segment(body.segment, fresh)
    for item in body.items:
        record = txn.record(item.stream)
        if record is None:
            continue
        new_at = fmt.position(body.segment, item.offset)
        gone, gone_bytes = 0, 0
        for replaced in item.replaced:
            locator = txn.index.node(item.stream, StreamID(*replaced))
            if locator is not None and locator.position < at and locator.position != new_at:
                txn.drop_node(item.stream, StreamID(*replaced), locator)
                gone += 1
                gone_bytes += locator.payload_bytes
        last = StreamID(item.last_ms, item.last_seq)
        master = StreamID(item.master_ms, item.master_seq)
        if item.payload_bytes and txn.index.node(item.stream, master) is None:
            locator = Locator(new_at, item.payload_bytes, item.entries, last)
            txn.put_node(item.stream, master, locator)
        if record.position < at:
            record.nodes += (1 if item.payload_bytes else 0) - gone
            record.node_bytes += item.payload_bytes - gone_bytes
            txn.touch(record)
    for stream in {item.stream for item in body.items}:
        record = txn.record(stream)
        if record is not None and record.position < at:
            record.position = at
            txn.touch(record)
    txn.meta = txn.meta._replace(next_segment=max(txn.meta.next_segment, body.segment + 1))


def _drop_segment(txn: TxnView, _at: int, _: int, body: frames.DropSegment) -> None:
    txn.drop_segment(body.segment)
    txn.meta = txn.meta._replace(next_segment=max(txn.meta.next_segment, body.segment + 1))


def _note(_state: TxnView, _at: int, _: int, _body: frames.Note) -> None:
    return


def _of_feature(applied: Callable[[Any, int, Any], None]) -> Callable[[Any, int, int, Any], None]:
    """A feature's ``apply``, which does not ask how long the payload is."""

    def apply_feature(txn: Any, at: int, _: int, body: Any) -> None:
        applied(txn, at, body)

    return apply_feature


# What a frame does, by the class of its body.
APPLY: dict[type, Callable[[Any, int, int, Any], None]] = {
    frames.Seal: _seal,
    frames.Create: _create,
    frames.Drop: _drop,
    frames.Open: _open,
    frames.Append: _append,
    frames.Node: _node,
    frames.Tombstone: _tombstone,
    frames.Trim: _trim,
    frames.Record: _record,
    frames.Adopt: _adopt,
    frames.DropSegment: _drop_segment,
    frames.Note: _note,
    frames.Rename: _rename,
    **group_frames.APPLY,
    **{body: _of_feature(frame.apply) for frame in FRAMES.values() for body in frame.bodies},
}
