"""Deciding a stream that comes from elsewhere, as RESTORE does: nodes and groups as they are.

``prepare`` verifies everything, outside of every lock; ``install`` writes it in one commit, all or
nothing. What is too large for one commit comes in chunks, a commit each: ``bring`` does all of it
for a stream in memory; who reads one bit by bit calls ``begin``, ``extend`` and ``complete``.

Invariants of chunks, in crash order: they go to a stream under a temporary name; the last commit
gives it its groups, its counts and its own name, and drops who had that name before. So readers of
the name see all of it or nothing, and whoever is killed leaves only the other name, which the next
one who begins takes away. Each commit leaves a stream that is sound by itself.

Invariants: no node is re-encoded; what the engine relies on is checked, also where servers
do not (live IDs ascend through all nodes, none is below its node's master ID, the counts and the
last ID fit); the first ID is reckoned from the nodes, not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace as replace_
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from logstore.codec import ID, codec
from logstore.codec.node_batch import NodeBatch, index_rows
from logstore.engine.apply import group_frames as apply_groups
from logstore.engine.apply.streams import PlacedNodes, nodes_added
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.dump import dumped_ids
from logstore.engine.streams import add, lifecycle
from logstore.engine.txn import group_view as groups
from logstore.errors import (
    CorruptNodeError,
    Error,
    StreamExistsError,
    TooLargeError,
)
from logstore.format import (
    GROUP_BODY,
    NODE_BODY,
    SEGMENT_HEAD_BYTES,
    Kind,
    offset_of,
)
from logstore.ids import ZERO_ID, StreamID
from logstore.index.group_keys import FIRST_CONSUMER, NO_ONE, NewGroup
from logstore.index.keys import StreamRecord
from logstore.log import frame
from logstore.log import frame as frames
from logstore.log.segment_writer import SegmentTooFull
from logstore.options import IMPORTING, NAME_MAX_BYTES, check_name
from logstore.rdb.value import (
    NOBODY,
    GroupValue,
    Idempotence,
    Node,
    PlainGroup,
    StreamInfoValue,
    StreamValue,
    impossible,
)
from logstore.row_seal import digest
from logstore.tuples import NamedTuple

INSTALL_MAX_BYTES = 1 << 30  # of one commit, which stands in one segment
CLAIM_MAX_ITEMS = 4096
# What holds others up for some milliseconds: groups without consumers; one with costs more.
PLAIN_A_COMMIT, PLAIN_A_GROUP = 1200, 4
Commit: TypeAlias = Callable[[Callable[[WriteTxn], Any]], Any]
_PENDING_BYTES = 40  # an item of a claim frame, and its part of the frame


class Sealed(NamedTuple):
    """A node that was verified."""

    master: StreamID
    last: ID  # tombstone or not
    live: int
    lp: bytes


class VerifiedNodes(NamedTuple):
    """What is known of the nodes that were verified so far."""

    first: ID = ZERO_ID  # live
    top: ID = ZERO_ID  # the last live one
    last: ID = ZERO_ID  # live or not, or the master ID of the last node
    master: ID | None = None  # of the last node
    length: int = 0


VerifiedPart: TypeAlias = NodeBatch | list[Sealed]  # nodes that were verified


class VerifiedStream(NamedTuple):
    """A stream that was verified, and what is known of its nodes."""

    parts: list[VerifiedPart]
    edge: VerifiedNodes
    info: StreamInfoValue


def prepare(value: StreamValue) -> VerifiedStream:
    """Verify a stream; InvalidPayloadError, CorruptNodeError, TooLargeError."""
    check_size(value.info, sum(len(lp) for _, lp in value.nodes))
    nodes, edge = verify(value.nodes, VerifiedNodes())
    return settled([nodes], edge, value.info)


def settled(
    parts: list[VerifiedPart], edge: VerifiedNodes, info: StreamInfoValue
) -> VerifiedStream:
    """Verify all but the nodes, which were; as ``prepare``."""
    check_size(info, sum(map(part_bytes, parts)))
    check_info(info, edge)
    return VerifiedStream(parts, edge, info)


def part_bytes(part: VerifiedPart) -> int:
    """The bytes of the listpacks."""
    return part.nbytes if not isinstance(part, list) else sum(len(node.lp) for node in part)


def behind(edge: VerifiedNodes, batch: NodeBatch) -> VerifiedNodes:
    """The edge behind a batch that was read behind ``edge``."""
    first = edge.first if edge.length or batch.first is None else batch.first
    master = edge.master if batch.master is None else batch.master
    last = max(edge.last, batch.last, master or ZERO_ID)
    return VerifiedNodes(first, batch.top, last, master, edge.length + batch.live)


def verify(nodes: Iterable[Node], edge: VerifiedNodes) -> tuple[list[Sealed], VerifiedNodes]:
    """Verify the nodes behind those of ``edge``; InvalidPayloadError, CorruptNodeError."""
    found: list[Sealed] = []
    first, top, last, before, length = edge
    for node in nodes:
        sealed, edges = _verified(node)
        if before is not None and sealed.master <= before:
            raise impossible("its nodes are not in order")
        if edges is not None:
            if edges[0] <= top or edges[0] < sealed.master:
                raise impossible(f"entry {StreamID(*edges[0])} is not above those before it")
            first = first if length else edges[0]
            top = edges[1]
        length += sealed.live
        before, last = sealed.master, max(last, sealed.last, sealed.master)
        found.append(sealed)
    return found, VerifiedNodes(first, top, last, before, length)


def check_info(info: StreamInfoValue, edge: VerifiedNodes) -> None:
    """Verify all but the nodes against the nodes; InvalidPayloadError, TooLargeError."""
    if info.too_long is not None:
        raise TooLargeError(info.too_long)
    if info.idempotence is not None:
        dumped_ids.check(info.idempotence, info.last)
    for group in info.groups:
        _check_group(group)
    added = info.length if info.entries_added is None else info.entries_added
    if edge.length != info.length:
        raise impossible(f"it has {edge.length} entries and says {info.length}")
    if added < edge.length:
        raise impossible(f"it has {edge.length} entries and says that {added} were added")
    if info.last < max(edge.top, info.max_deleted):
        raise impossible(f"its last ID {info.last} is below that of an entry it has or had")


def _verified(node: Node) -> tuple[Sealed, tuple[ID, ID] | None]:
    """A node, and its first and last live ID, None if it has none."""
    key, lp = node
    master = StreamID.unpacked(key)
    try:
        live, low, high, last = codec().survey(lp, *master)
    except CorruptNodeError as exc:
        raise CorruptNodeError(f"Bad data format: node {master}: {exc.message}") from exc
    sealed = Sealed(master, last, live, lp)
    return sealed, None if low is None or high is None else (low, high)


def check_size(info: StreamInfoValue, node_bytes: int) -> None:
    """TooLargeError if this does not go into one commit."""
    size = node_bytes + _PENDING_BYTES * info.pending_count()
    if size > INSTALL_MAX_BYTES:
        raise TooLargeError(
            f"a stream of {size} bytes cannot be restored as one commit ({INSTALL_MAX_BYTES} at "
            "most): read it from its server with XRANGE and add it in batches with add_many"
        )


def _check_group(group: GroupValue) -> None:
    check_name(group.name, "a group name")
    for each in group.consumers:
        check_name(each.name, "a consumer name")


def install(txn: WriteTxn, name: bytes, stream: VerifiedStream, *, replace: bool = False) -> None:
    """Make a stream of what was verified; StreamExistsError unless ``replace``."""
    if not replace:
        check_free(txn, name)
    check_room(txn, stream.parts)
    if txn.record_by_name(name) is not None:
        lifecycle.drop(txn, name)
    record = add.create(txn, name)
    number, info = record.number, stream.info
    nodes_added(txn, record, written(txn, number, stream.parts))
    installed(txn, number, info, stream.edge.first)


def check_free(txn: WriteTxn, name: bytes) -> None:
    """StreamExistsError if there is a stream of this name."""
    if txn.record_by_name(name) is not None:
        raise StreamExistsError(
            "BUSYKEY Target key name already exists: drop the stream, or give replace=True",
            stream=name,
        )


def installed(txn: WriteTxn, number: int, info: StreamInfoValue, first: ID) -> None:
    """Write the record and the groups of a stream whose nodes are there."""
    described(txn, number, info, first)
    grouped(txn, number, info.all_groups())


def described(txn: WriteTxn, number: int, info: StreamInfoValue, first: ID) -> None:
    """Write all but the groups of a stream whose nodes are there."""
    added = info.length if info.entries_added is None else info.entries_added
    txn.emit(frames.Record(number, info.length, added, *info.last, *first, *info.max_deleted))
    if info.idempotence is not None:
        dumped_ids.install(txn, number, info.idempotence)


def grouped(txn: WriteTxn, number: int, groups: Iterable[GroupValue]) -> None:
    """Make groups of a stream that was described."""
    record = txn.record(number)
    assert record is not None
    for group in groups:
        _group(txn, record, group)


def _many_grouped(txn: WriteTxn, number: int, groups: list[PlainGroup | GroupValue]) -> None:
    """The same for some of very many groups, in the order of their rows. Those without consumers
    are appended and applied together, without a step of their own for each."""
    record, buffer = txn.record(number), txn.buffer
    assert record is not None
    assert buffer is not None
    pack = GROUP_BODY.pack
    plain: list[NewGroup] = []
    payloads: list[bytes] = []
    for group in groups:
        if not isinstance(group, PlainGroup):
            _group(txn, record, group)
            continue
        name_digest, name, ms, seq, read = group
        if read is None:
            read = _entries_read(record, (ms, seq), read)
        plain.append(NewGroup(name_digest, ms, seq, read, name))
        payloads.append(pack(number, 0, ms, seq, read) + name)
    if plain:
        positions = buffer.add_payloads(Kind.GROUP, payloads)
        apply_groups.made(txn, number, positions, plain)


def _entries_read(record: StreamRecord, last: ID, stated: int | None) -> int:
    """As servers estimate it where the payload does not say."""
    return groups.estimate(record, StreamID(*last)) if stated is None else stated


def check_room(txn: WriteTxn, parts: list[VerifiedPart]) -> None:
    """A commit too large for the rest of the segment begins in the next one. This decides it early,
    before all of the commit is decided."""
    assert txn.buffer is not None
    size = sum(map(part_bytes, parts))
    start, end = offset_of(txn.buffer.start), offset_of(txn.buffer.end)
    if start > SEGMENT_HEAD_BYTES and end + size > txn.limits.segment_bytes:
        raise SegmentTooFull


def written(txn: WriteTxn, stream: int, parts: list[VerifiedPart]) -> list[PlacedNodes]:
    """Add a node frame for each; where they are. Applied together: there may be 100,000."""
    assert txn.buffer is not None
    head = NODE_BODY.pack
    found: list[PlacedNodes] = []
    for part in parts:
        if not isinstance(part, list):
            found.append(txn.emit_nodes(stream, part))
        elif part:
            payloads = [head(stream, *each[0], *each[1], each[2]) + each[3] for each in part]
            positions = txn.buffer.add_payloads(Kind.NODE, payloads)
            places = [
                (at, master, len(payload), live, end)
                for at, payload, (master, end, live, _) in zip(
                    positions, payloads, part, strict=True
                )
            ]
            found.append(
                PlacedNodes(index_rows(stream, places), sum(map(len, payloads)), places[-1])
            )
    return found


def _group(txn: WriteTxn, record: StreamRecord, group: GroupValue) -> None:
    read = _entries_read(record, group.last, group.entries_read)
    made = txn.emit(frame.Group(record.number, 0, *group.last, read, group.name))
    for place, each in enumerate(group.consumers):
        txn.emit(
            frame.Consumer(made, FIRST_CONSUMER + place, each.seen_ms, each.active_ms, 1, each.name)
        )
    _pending(txn, made, group)


def _pending(txn: WriteTxn, made: int, group: GroupValue) -> None:
    """Claim frames: who has which entries since when, and in what order others were given back."""
    pending = group.pending
    if not pending:
        return
    items: dict[int, list[tuple[int, int, int, int]]] = {}
    line = {id: place for place, id in enumerate(group.nacked, 1)}
    for place, owner in enumerate(pending.owners):
        id = pending.id_at(place)
        ms, seq = StreamID.unpacked(id)
        time_ms = line[id] if owner == NOBODY else pending.times[place]
        items.setdefault(owner, []).append((ms, seq, time_ms, pending.counts[place]))
    for owner, found in items.items():
        who, seen_ms, active_ms = NO_ONE, -1, -1
        if owner != NOBODY:
            _, seen_ms, active_ms = group.consumers[owner - 1]
            who = FIRST_CONSUMER + owner - 1
        for at in range(0, len(found), CLAIM_MAX_ITEMS):
            some = tuple(found[at : at + CLAIM_MAX_ITEMS])
            txn.emit(frame.Claim(made, who, seen_ms, active_ms, some))


# -- a stream that comes in chunks, a commit each ------------------------------------------------
class UnfinishedStream(NamedTuple):
    """A stream that is not whole yet, under its temporary name."""

    name: bytes
    number: int


def begin(txn: WriteTxn, name: bytes) -> UnfinishedStream:
    """Make an empty stream under a temporary name; what a killed import left of it is dropped."""
    short = len(IMPORTING + name) <= NAME_MAX_BYTES
    return begin_as(txn, IMPORTING + (name if short else digest(name).hex().encode()))


def begin_as(txn: WriteTxn, temporary: bytes) -> UnfinishedStream:
    """As ``begin``, under a temporary name that is given."""
    lifecycle.drop(txn, temporary)
    return UnfinishedStream(temporary, add.create(txn, temporary).number)


def extend(
    txn: WriteTxn,
    temporary: UnfinishedStream,
    before: VerifiedNodes,
    parts: list[VerifiedPart],
    after: VerifiedNodes,
) -> None:
    """Add nodes that were verified behind those of ``before``; StreamExistsError if somebody
    else changed the stream."""
    record = _unchanged(txn, temporary, before)
    check_room(txn, parts)
    number = record.number
    nodes_added(txn, record, written(txn, number, parts))
    txn.emit(frames.Record(number, after.length, after.length, *after.last, *after.first, 0, 0))


def describe(
    txn: WriteTxn, temporary: UnfinishedStream, edge: VerifiedNodes, info: StreamInfoValue
) -> None:
    """Give the stream its counts, and all but its groups, which follow. StreamExistsError."""
    record = _unchanged(txn, temporary, edge)
    described(txn, record.number, info, edge.first)


def _add_groups(
    txn: WriteTxn,
    temporary: UnfinishedStream,
    info: StreamInfoValue,
    groups: list[PlainGroup | GroupValue],
) -> None:
    """Give the stream some of its groups. StreamExistsError."""
    _many_grouped(txn, _unchanged(txn, temporary, info).number, groups)


def remember(
    txn: WriteTxn, temporary: UnfinishedStream, info: StreamInfoValue, found: Idempotence
) -> None:
    """Let the stream remember some of its idempotent IDs. StreamExistsError."""
    dumped_ids.install(txn, _unchanged(txn, temporary, info).number, found)


def name_it(txn: WriteTxn, temporary: UnfinishedStream, name: bytes, *, replace: bool) -> None:
    """Give the stream its own name. StreamExistsError."""
    if not lifecycle.rename(txn, temporary.name, name, replace=replace):
        raise StreamExistsError(
            "somebody else made the stream while it was brought in: drop it, or give replace=True",
            stream=name,
        )


def discard(txn: WriteTxn, temporary: UnfinishedStream) -> None:
    """Drop the stream, unless its temporary name is another import's by now."""
    record = txn.record_by_name(temporary.name)
    if record is not None and record.number == temporary.number:
        lifecycle.drop(txn, temporary.name)


def _unchanged(
    txn: WriteTxn, temporary: UnfinishedStream, edge: VerifiedNodes | StreamInfoValue
) -> StreamRecord:
    record = txn.record_by_name(temporary.name)
    if (
        record is None
        or record.number != temporary.number
        or (record.length, record.last) != (edge.length, edge.last)
    ):
        raise StreamExistsError(
            "somebody else changed what is being brought in: two imports of one stream at a time",
            stream=temporary.name,
        )
    return record


def finish(
    txn: WriteTxn,
    temporary: UnfinishedStream,
    edge: VerifiedNodes,
    name: bytes,
    info: StreamInfoValue,
    *,
    replace: bool,
) -> None:
    """Make it the stream ``name``; StreamExistsError. ``info`` was verified against ``edge``."""
    describe(txn, temporary, edge, info)
    grouped(txn, _unchanged(txn, temporary, info).number, info.all_groups())
    name_it(txn, temporary, name, replace=replace)


def complete(
    commit: Commit,
    temporary: UnfinishedStream,
    edge: VerifiedNodes,
    name: bytes,
    info: StreamInfoValue,
    *,
    replace: bool,
    last: Callable[[WriteTxn], object] = bool,
) -> None:
    """As ``finish``, but very many groups come in commits of their own before, so that nobody else
    waits for all of them. ``last`` is done in the commit that gives the name."""
    few = not info.many
    if not few:
        commit(lambda txn: describe(txn, temporary, edge, replace_(info, idempotence=None)))
        for one in dumped_ids.by_producer(info.idempotence):
            commit(partial(remember, temporary=temporary, info=info, found=one))
        for some in _some(info):
            commit(partial(_add_groups, temporary=temporary, info=info, groups=some))

    def finished(txn: WriteTxn) -> None:
        if few:
            finish(txn, temporary, edge, name, info, replace=replace)
        else:
            _unchanged(txn, temporary, info)
            name_it(txn, temporary, name, replace=replace)
        last(txn)

    commit(finished)


def bring(
    commit: Commit,
    name: bytes,
    stream: VerifiedStream,
    *,
    replace: bool,
    last: Callable[[WriteTxn], object] = bool,
) -> None:
    """Bring in a stream that is in memory; as ``complete``."""
    temporary: UnfinishedStream = commit(lambda txn: begin(txn, name))
    edge = stream.edge
    try:
        commit(lambda txn: extend(txn, temporary, VerifiedNodes(), stream.parts, edge))
        complete(commit, temporary, edge, name, stream.info, replace=replace, last=last)
    except BaseException:
        with suppress(Error):  # what failed may be the store; the next one does it then
            commit(lambda txn: discard(txn, temporary))
        raise


def _some(info: StreamInfoValue) -> Iterator[list[PlainGroup | GroupValue]]:
    """The groups, about as many at a time as a commit takes. Very many come in the order of the
    index: so the rows of a commit lie side by side, where else each would touch its own page."""
    some: list[PlainGroup | GroupValue] = []
    weight = 0
    for group in chain(info.groups, () if info.packed is None else info.packed.by_digest()):
        some.append(group)
        if isinstance(group, PlainGroup):
            weight += 1
        else:
            weight += PLAIN_A_GROUP * (1 + len(group.consumers) + len(group.pending) // 10)
        if weight >= PLAIN_A_COMMIT:
            yield some
            some, weight = [], 0
    if some:
        yield some
