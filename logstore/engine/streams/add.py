"""Deciding an add: IDs, nodes, frames. The rules are those of XADD.

Invariants: every refusal comes before the first frame; the nodes are exactly those that one XADD
after another would give; a sealed last node that still has room becomes open again first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from logstore.codec import GivenIDs, Packed, PackedNode, RowBatch, codec
from logstore.engine.apply.streams import nodes_added
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.record_cache import BeforeImage
from logstore.engine.streams.removal import TrimRule, trim, vacate
from logstore.engine.txn import nodes
from logstore.errors import (
    CorruptionError,
    IDOrderError,
    InvalidIDError,
    LastIDConflictError,
    StreamNotFoundError,
)
from logstore.features.ttl_rows import TTL, pack_ids
from logstore.ids import MAX_ID, U64_MAX, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.options import ENTRY_MAX_BYTES, check_name
from logstore.tuples import NamedTuple

_NOT_ABOVE = (
    "The ID specified in XADD is equal or smaller than the target stream top item: "
    "give an ID above last_id, or '*'"
)
NODES_AT_ONCE = 1000  # full nodes that one step writes: it is looked through for one of them
EXHAUSTED = "The stream has exhausted the last possible ID, unable to add more items"


class AutoID(NamedTuple):
    """``*``, or with ``ms`` ``<ms>-*``."""

    ms: int | None = None


AUTO = AutoID()
AS_STORED = -1  # what is stored already: no schema keeps a dead letter from its stream


class Add(NamedTuple):
    """What to add; rows ``first`` to ``end`` (exclusive) of ``batch``."""

    name: bytes
    batch: RowBatch
    first: int
    end: int
    ids: AutoID | StreamID | GivenIDs
    create: bool = True
    rule: TrimRule | None = None
    expected: StreamID | None = None  # what the last ID must be
    ttl_ms: int | None = None  # how long the entries live, from the commit on
    # Position of the schema by which the values were written; 0: of none; AS_STORED: no matter.
    schema_at: int = 0
    # The one row as it was given, by which a schema that its caller did not look up writes it.
    given: Mapping[Any, Any] | None = None


class Added(NamedTuple):
    """The IDs: consecutive from ``first`` (carrying into ms), or those that were given."""

    first: StreamID
    count: int  # type: ignore[assignment]
    given: GivenIDs | None = None


def add(txn: WriteTxn, request: Add) -> Added | None:
    """Decide an add; None if the stream is missing and must not be created."""
    record = txn.record_by_name(request.name)
    if record is not None and request.schema_at not in {record.schema_at, AS_STORED}:
        request = _typed(txn, record, request)
    last = record.last if record is not None else ZERO_ID
    count = request.end - request.first
    if request.expected is not None:
        check_expected(request.name, request.expected, last)
    if isinstance(request.ids, AutoID):
        added = Added(_first_auto(last, request.ids, txn.now_ms), count, None)
        if count > 1:
            _check_room(added.first, count, request.ids)
    elif isinstance(request.ids, StreamID):
        _check_above(last, request.ids)
        added = Added(request.ids, count)
    else:
        _resolve_given(last, request.ids)
        added = Added(StreamID(*request.ids[0]), count, request.ids)
    if record is None:
        if not request.create:
            return None
        record = create(txn, request.name)
    if record.number not in txn.grown:  # a batch adds to it many times
        txn.grown[record.number] = BeforeImage(last, record.entries_added)
    if count != 1 or not _add_one(txn, record, request, added.first):
        _add_rows(txn, record, request, added)
    txn.counts["added_entries"] += count
    if request.ttl_ms is not None:
        # In the commit of the add: no crash leaves an entry that should expire and does not.
        txn.emit(TTL(record.number, txn.now_ms + request.ttl_ms, pack_ids(ids_of(added))))
    if request.rule is not None:
        trim(txn, record, request.rule)
    return added


def _typed(txn: WriteTxn, record: StreamRecord, request: Add) -> Add:
    """The request with its values written by the schema of the stream. SchemaError."""
    # here: whoever has no schemas does not load the types of columns
    from logstore.features.typed_rows import schema_of, written

    schema = schema_of(txn.index, record)
    if schema is None:  # what was written by a schema is text as any other
        return request
    batch: RowBatch | None
    if request.given is not None:
        batch = codec().rows([schema.row(request.given.items())])
    else:
        batch = written(schema, request.batch, request.first, request.end)
    if batch is None:
        return request
    return request._replace(batch=batch, first=0, end=len(batch))


def add_first(txn: WriteTxn, request: Add) -> StreamID:
    """The ID of an add that may create its stream."""
    added = add(txn, request)
    assert added is not None
    return added.first


def check_expected(name: bytes, expected: StreamID, last: StreamID) -> None:
    """LastIDConflictError unless the last ID is the one that the caller saw."""
    if expected == last:
        return
    if expected < last:
        why = f"the last ID is {last}, not {expected} as expected: entries were added since, so "
        why += "read what is new, then add with the last ID of that"
    else:
        why = f"the last ID is {last}, and expected_last_id {expected} is above it: that is of "
        why += "another stream, or this one was dropped or its last ID lowered since; give what "
        why += "last_id of this stream tells"
    raise LastIDConflictError(why, stream=name, expected=expected, actual=last)


def expected_next(
    expected: StreamID | None, added: Added | list[StreamID] | None
) -> StreamID | None:
    """What the batch behind this one expects: the last ID that this one left, if it expected one.

    An idempotent batch that was added before left what it gave then.
    """
    if expected is None or not added:
        return expected
    return max(expected, *added) if isinstance(added, list) else last_of(added)


def create(txn: WriteTxn, name: bytes) -> StreamRecord:
    """A new empty stream; TooLargeError."""
    check_name(name, "a stream name")
    vacate(txn, name)
    number = txn.meta.next_stream
    txn.emit(frames.Create(number, name))
    record = txn.record(number)
    assert record is not None
    return record


def existing(txn: WriteTxn, name: bytes) -> StreamRecord:
    """The record of a stream that must exist."""
    record = txn.record_by_name(name)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=name)
    return record


def _first_auto(last: StreamID, auto: AutoID, now_ms: int) -> StreamID:
    if auto.ms is None and now_ms > last.ms:
        return StreamID(now_ms, 0)
    if last == MAX_ID:
        raise IDOrderError(EXHAUSTED)
    if auto.ms is None:
        return last.next()
    if auto.ms < last.ms or (auto.ms == last.ms and last.seq == U64_MAX):
        raise IDOrderError(_NOT_ABOVE)
    if auto.ms > last.ms:
        return StreamID(auto.ms, 0)
    return StreamID(auto.ms, last.seq + 1)


def _check_room(first: StreamID, count: int, auto: AutoID) -> None:
    if first.seq + count - 1 > U64_MAX and (auto.ms is not None or first.ms == U64_MAX):
        raise IDOrderError(EXHAUSTED)


def _check_above(last: StreamID, id: StreamID, where: str = "") -> None:
    if last == MAX_ID:
        raise IDOrderError(EXHAUSTED)
    if id <= last:
        if id == ZERO_ID:
            raise InvalidIDError("The ID specified in XADD must be greater than 0-0")
        raise IDOrderError(_NOT_ABOVE + (where or f" ({last})"))


def _resolve_given(last: StreamID, ids: GivenIDs) -> None:
    """Give sequences where they were left open; refuse IDs that do not ascend above the last."""
    row = ids.settle(*last)
    if row >= 0:
        refused = StreamID(*ids[row])
        before = StreamID(*ids[row - 1]) if row else last
        where = f" (row {row}: {refused} after {before})" if len(ids) > 1 else ""
        _check_above(before, min(refused, before), where)


def ids_of(added: Added) -> Iterator[StreamID]:
    """All of the IDs, ascending."""
    if added.given is not None:
        for at in range(added.count):
            yield StreamID(*added.given[at])
        return
    id = added.first
    for _ in range(added.count - 1):
        yield id
        id = id.next()
    yield id


def last_of(added: Added) -> StreamID:
    """The last of the IDs."""
    if added.given is not None:
        return StreamID(*added.given[added.count - 1])
    carry, seq = divmod(added.first.seq + added.count - 1, U64_MAX + 1)
    return StreamID(added.first.ms + carry, seq)


def _add_one(txn: WriteTxn, record: StreamRecord, request: Add, given: StreamID) -> bool:
    """One row into a small open node that has room: the way of most adds. False: not that case."""
    node = txn.open_node(record.number) if record.open_version else None
    if node is None or node.runs:
        return False
    limits, at = txn.limits, request.first
    packed = codec().pack(
        request.batch,
        at,
        at + 1,
        given,
        node.lp,
        *record.open_master,
        limits.node_max_bytes or ENTRY_MAX_BYTES,
        limits.node_max_entries,
    )
    lp = packed.open_lp
    if packed.nodes or lp is None or len(lp) > nodes.OPEN_INLINE_MAX_BYTES or not record.length:
        return False
    txn.emit_row(record, node, given, packed)
    txn.counts["added_bytes"] += len(packed.added)
    return True


def _add_rows(txn: WriteTxn, record: StreamRecord, request: Add, added: Added) -> None:
    if record.open_version and txn.open_node(record.number) is None:
        raise CorruptionError(
            f"the index lost the open node of stream {record.name!r}: delete its directory and "
            "reopen"
        )
    before = (record.length, record.entries_added, record.first)
    _drop_above(txn, record, added.first)
    if not record.open_version:
        _reopen(txn, record, request.batch.raw_bytes(request.first))
    absolute, at = False, request.first
    while at < request.end:
        packed, taken = _pack(txn, record, request, at, added)
        absolute = (_fill_open(txn, record, packed) and before[0] == 0) or absolute
        txn.counts["added_bytes"] += len(packed.added) + sum(
            len(packed_node.lp) for packed_node in packed.nodes
        )
        if packed.nodes:
            _seal_open(txn, record)
            if len(packed.nodes) > 1:
                _add_full_nodes(txn, record, packed.nodes[:-1])
                absolute = True
            absolute = _add_last_node(txn, record, packed.nodes[-1]) or absolute
        at += taken
    if absolute:
        first = before[2] if before[0] else added.first
        txn.emit(
            frames.Record(
                record.number,
                before[0] + added.count,
                (before[1] + added.count) & U64_MAX,
                *last_of(added),
                *first,
                *record.max_deleted,
            )
        )


def _ids_from(added: Added, place: int) -> GivenIDs | StreamID:
    if added.given is not None:
        return added.given.since(place) if place else added.given
    if not place:
        return added.first
    carry, seq = divmod(added.first.seq + place, U64_MAX + 1)
    return StreamID(added.first.ms + carry, seq)


def _pack(
    txn: WriteTxn, record: StreamRecord, request: Add, at: int, added: Added
) -> tuple[Packed, int]:
    """Rows from ``at`` on as bytes for the open node and new nodes; how many rows were taken."""
    limits = txn.limits
    batch, end, place = request.batch, request.end, at - request.first
    most_bytes, most_entries = limits.node_max_bytes or ENTRY_MAX_BYTES, limits.node_max_entries
    node = txn.open_node(record.number) if record.open_version else None
    pack = codec().pack
    if node is None:
        ids = _ids_from(added, place)
        return pack(batch, at, end, ids, None, 0, 0, most_bytes, most_entries), end - at
    assert node.lp is not None
    master = record.open_master
    if not node.runs:
        ids = _ids_from(added, place)
        return pack(batch, at, end, ids, node.lp, *master, most_bytes, most_entries), end - at
    # A large open node is not put together to add to it: its skeleton decides the bytes of one
    # row, and whether there is room is decided here.
    entries = sum(nodes.open_counts(node))
    size = nodes.open_bytes(node)
    if size + batch.raw_bytes(at) >= most_bytes or 0 < most_entries <= entries:
        ids = _ids_from(added, place)
        return pack(batch, at, end, ids, None, 0, 0, most_bytes, most_entries), end - at
    one = _ids_from(added, place) if added.given is None else added.given[place]
    return pack(batch, at, at + 1, one, node.lp, *master, ENTRY_MAX_BYTES * 2, 0), 1


def _fill_open(txn: WriteTxn, record: StreamRecord, packed: Packed) -> bool:
    if not packed.added_entries:
        return False
    node = txn.open_node(record.number)
    assert node is not None
    assert node.lp is not None
    assert packed.last_of_added is not None
    last = packed.last_of_added
    size = len(node.lp) + len(packed.added)
    if not node.runs and size > nodes.OPEN_INLINE_MAX_BYTES and not packed.nodes:
        assert packed.open_lp is not None
        txn.emit(
            frames.Open(
                record.number, *record.open_master, *last, packed.added_entries, packed.open_lp
            )
        )
    else:
        txn.emit(
            frames.Append(
                record.number, *last, packed.added_entries, packed.added_elements, packed.added
            ),
            packed.open_lp,
        )
    return True


def _add_full_nodes(txn: WriteTxn, record: StreamRecord, made: list[PackedNode]) -> None:
    """Write new nodes behind which there is another one; the stream's record must be stated."""
    of: Any = codec().NodeBatch.of
    for at in range(0, len(made), NODES_AT_ONCE):
        placed = txn.emit_nodes(record.number, of(made[at : at + NODES_AT_ONCE]))
        nodes_added(txn, record, [placed])


def _add_last_node(txn: WriteTxn, record: StreamRecord, node: PackedNode) -> bool:
    """Write a new node, the stream's last; True if the stream's record must be stated."""
    most = txn.limits.node_max_bytes or ENTRY_MAX_BYTES
    stays_open = not (
        node.count == 1 and (len(node.lp) >= most or txn.limits.node_max_entries == 1)
    )
    ids = (node.master_ms, node.master_seq, node.last_ms, node.last_seq)
    kind = frames.Open if stays_open else frames.Node
    txn.emit(kind(record.number, *ids, node.count, node.lp))
    return not stays_open


def _seal_open(txn: WriteTxn, record: StreamRecord) -> None:
    """Write the open node once, as a node frame."""
    if not record.open_version:
        return
    lp = txn.open_listpack(record.number)
    assert lp is not None
    master = record.open_master
    last = codec().last_id(lp, *master)
    live, _ = codec().counts(lp)
    txn.emit(frames.Node(record.number, *master, *last, live, lp))


def end_open_node(txn: WriteTxn, record: StreamRecord, first: StreamID) -> None:
    """Make way for nodes that come as they are, from ``first`` on, which is above the last ID."""
    _drop_above(txn, record, first)
    _seal_open(txn, record)


def _drop_above(txn: WriteTxn, record: StreamRecord, first: StreamID) -> None:
    """Drop nodes whose master ID a lowered last ID has left above the next one.

    They have no live entry. Servers go on adding to the last of them, or behind it, out of order.
    """
    if record.open_version:
        above = record.open_master >= first
    else:
        tail = txn.index.last_node(record.number)
        above = tail is not None and tail[0] >= first
    if above:
        txn.emit(frames.Trim(record.number, *first, *MAX_ID))


def _reopen(txn: WriteTxn, record: StreamRecord, raw_bytes: int) -> None:
    """Make the sealed last node open again if Redis would append to it."""
    tail = txn.index.last_node(record.number)
    if tail is None:
        return
    master, locator = tail
    limits = txn.limits
    if nodes.is_full(locator, raw_bytes, limits.node_max_bytes or ENTRY_MAX_BYTES):
        return
    lp = codec().fold(txn.read_node(record.number, master, locator), locator.vector)
    if codec().fits(lp, raw_bytes, limits.node_max_bytes, limits.node_max_entries):
        txn.emit(frames.Open(record.number, *master, *record.last, 0, lp))
