"""A rebuild that passed over damage: what of the frames behind it still says something certain.

Lost frames may have sealed a node and begun another one. What an APPEND frame adds is encoded
against its node's master ID, and a TOMBSTONE of an open node counts from that node's first entry:
applied to another node, or to one that lacks some, they would give wrong IDs, or delete the wrong
entries.

Invariants: an append stays with an open node only if it gives the last ID that its frame says; an
ordinal counts only as far as the node was whole; an open node that was never seen sealed is no more
the last one when another begins (an *orphan*: its frames are still in the log, `salvage` takes them
out); a stream or a consumer whose name was lost gets one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from logstore import format as fmt
from logstore.codec import codec
from logstore.engine.apply.streams import apply
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.runtime.segments import SegmentGone
from logstore.engine.txn import nodes
from logstore.errors import CorruptFrameError, CorruptNodeError, DamagedStoreError
from logstore.ids import StreamID
from logstore.index.keys import NodeFrame, OpenNode, StreamRecord
from logstore.log import file_names, frame
from logstore.log import frame as frames
from logstore.recovery.report import Damage, LostEntries, RecoveryReport
from logstore.tuples import NamedTuple

UNNAMED = b"stream-%d-whose-name-was-lost"
UNNAMED_CONSUMER = b"consumer-%d-whose-name-was-lost"
UNREADABLE = (CorruptFrameError, CorruptNodeError, SegmentGone)


class Orphan(NamedTuple):
    """An open node whose NODE frame was lost."""

    version: int  # position of its OPEN frame
    vector: int  # ordinals deleted since it was sealed


class ReplayGuard:
    """The passed-over bytes of one rebuild."""

    def __init__(self, engine: Engine, report: RecoveryReport) -> None:
        self._engine = engine
        self._report = report
        self._passed: list[tuple[int, int]] = []  # positions, ascending
        self.repaired = False
        self.orphans: dict[tuple[int, StreamID], Orphan] = {}

    def __bool__(self) -> bool:
        return bool(self._passed)

    def passed(self, start: int, end: int) -> None:
        """Bytes between two positions say nothing."""
        self._passed.append((start, end))

    def cross(self, version: int) -> bool:
        """Whether frames of an open node that began at this position may have been lost."""
        return any(start > version for start, _ in self._passed)

    # -- frames behind damage -----------------------------------------------------------------
    def certain(self, txn: WriteTxn, at: int, body: frames.Body) -> frames.Body:
        """The part of a frame at ``at`` that is to be applied."""
        if isinstance(body, frames.Open | frames.Node | frames.Record):
            self._named(txn, at, body.stream)
        if isinstance(body, frames.Open | frames.Node):
            self._orphaned(txn, at, body.stream, StreamID(body.master_ms, body.master_seq))
        elif isinstance(body, frames.Tombstone):
            return self._tombstone(txn, body)
        elif isinstance(body, frames.Trim):
            low, high = StreamID(body.from_ms, body.from_seq), StreamID(body.to_ms, body.to_seq)
            here = [key for key in self.orphans if key[0] == body.stream]
            self._forget(key for key in here if low <= key[1] <= high)
        elif isinstance(body, frames.Drop):
            self._forget(key for key in self.orphans if key[0] == body.stream)
        elif isinstance(body, frames.Adopt):
            self._forget(
                (item.stream, StreamID(*master)) for item in body.items for master in item.replaced
            )
        elif isinstance(body, frame.Deliver | frame.Claim) and body.consumer:
            self._owned(txn, at, body.group, body.consumer)
        return body

    def _forget(self, keys: Iterable[tuple[int, StreamID]]) -> None:
        for key in list(keys):
            self.orphans.pop(key, None)

    def _named(self, txn: WriteTxn, at: int, stream: int) -> None:
        """Numbers ascend: one that none before reached was created by a frame that was lost."""
        if stream < txn.meta.next_stream or txn.record(stream) is not None:
            return
        txn.meta = txn.meta._replace(next_stream=stream + 1)
        txn.create(StreamRecord(stream, UNNAMED % stream, position=at - 1))

    @staticmethod
    def _owned(txn: WriteTxn, at: int, group: int, consumer: int) -> None:
        """Nothing is pending with a consumer that is not there."""
        if txn.groups.consumer(group, consumer) is None:
            name = UNNAMED_CONSUMER % consumer
            apply(txn, at - 1, 0, frame.Consumer(group, consumer, -1, -1, 1, name))

    def _orphaned(self, txn: WriteTxn, at: int, stream: int, master: StreamID) -> None:
        record = txn.record(stream)
        if record is None or not 0 < record.open_version < at or record.open_master >= master:
            return
        if self.cross(record.open_version):
            self.orphans[stream, record.open_master] = Orphan(record.open_version, 0)
            record.open_version = 0
            txn.drop_open(stream)
            txn.touch(record)

    def _tombstone(self, txn: WriteTxn, body: frames.Tombstone) -> frames.Tombstone:
        key = body.stream, StreamID(body.master_ms, body.master_seq)
        orphan = self.orphans.get(key)
        if orphan is not None and any(a <= body.version < b for a, b in self._passed):
            bits = orphan.vector
            for ordinal in body.ordinals:
                bits |= 1 << ordinal
            self.orphans[key] = orphan._replace(vector=bits)
        record = txn.record(body.stream)
        if record is None or record.open_version != body.version or not self.cross(body.version):
            return body
        node = txn.open_node(body.stream)
        whole = 0 if node is None else self._whole(node)
        return body._replace(ordinals=tuple(each for each in body.ordinals if each < whole))

    def _whole(self, node: OpenNode) -> int:
        """How many entries of an open node stand before the first damage behind its beginning."""
        if not node.runs:
            return sum(codec().counts(node.lp or b""))
        first = min(start for start, _ in self._passed if start > node.runs[0].position)
        count = 0
        for run in node.runs:
            if run.position > first:
                break
            try:
                count += self._entries(run)
            except UNREADABLE:
                break
        return count

    def _entries(self, run: NodeFrame) -> int:
        kind, data = self._engine.segments.run_bytes(run)
        return sum(codec().counts(data)) if kind == fmt.Kind.OPEN else run.entries

    def without_open(self, txn: WriteTxn, record: StreamRecord) -> None:
        """A checkpoint knows of an open node of which no frame was found. DamagedStoreError if the
        whole segment is missing."""
        engine, number = self._engine, fmt.segment_of(record.open_version)
        missing = not engine.fs.exists(file_names.segment(engine.path, number))
        why = f"segment {number} is missing, where the open node of {record.name!r} stands"
        if missing and not engine.accept_loss:
            raise DamagedStoreError(
                f"{why}: restore it from a backup, or accept the loss with 'logstore recover'",
                segment=number,
                stream=record.name,
            )
        if missing:
            self._report.damage.append(Damage(number, 0, 0, why))
        self.repaired = True
        first = NodeFrame(record.open_version, 0, 0, 0)
        self._gone(record, first, record.open_master, record.last, None)
        record.open_version = 0
        txn.touch(record)

    def count_entries(self, txn: WriteTxn, record: StreamRecord) -> None:
        """After damage a stream has the entries that its nodes say, and no ID above its last one,
        whatever frames counted."""
        txn.flush()
        live = 0
        for _, locator in txn.index.nodes(record.number):
            live += locator.live
            record.last = max(record.last, locator.last)
        node = txn.index.open_node(record.number) if record.open_version else None
        if node is not None:
            live += nodes.open_counts(node)[0]
            with suppress(*UNREADABLE):
                found = nodes.open_ref(txn, record)
                record.last = max(record.last, found.last if found is not None else record.last)
        if live == record.length:
            return
        self._report.lengths[record.number] = record.length, record.first
        record.entries_added = max(record.entries_added, live)
        record.length = live
        with suppress(*UNREADABLE):
            record.first = nodes.first_live(txn, record)

    # -- open nodes ---------------------------------------------------------------------------
    def sound(self, record: StreamRecord, node: OpenNode) -> OpenNode | None:
        """An open node with those of its frames that can be read and are its own; None if there is
        nothing of it. What is not is reported."""
        self.repaired = True
        master = record.open_master
        try:
            lp, first = self._first(node.runs[0], master)
        except UNREADABLE:
            self._gone(record, node.runs[0], master, record.last, None)
            return None
        skeleton, kept, places = (
            nodes.skeleton(lp),
            [first],
            list(range(sum(codec().counts(lp)))),
        )
        last, ordinal = StreamID(*codec().last_id(lp, *master)), len(places)
        missing: NodeFrame | None = None
        for run in node.runs[1:]:
            ordinal += run.entries
            after = self._after(skeleton, run, master)
            if after is None:
                missing = missing or run
                continue
            if missing is not None:
                self._gone(record, missing, last, after[0], None)
            missing, last = None, after[1]
            kept.append(run)
            places.extend(range(ordinal - run.entries, ordinal))
        if missing is not None:
            self._gone(record, missing, last, record.last, None)
        vector = sum(1 << new for new, old in enumerate(places) if node.vector >> old & 1)
        return OpenNode(None, kept, vector)

    def _first(self, run: NodeFrame, master: StreamID) -> tuple[bytes, NodeFrame]:
        _, lp = self._engine.segments.run_bytes(run)
        codec().validate(lp, *master)
        return lp, run

    def _after(
        self, skeleton: bytes, run: NodeFrame, master: StreamID
    ) -> tuple[StreamID, StreamID] | None:
        """First and last ID of an append frame that is of the node with this master ID."""
        try:
            found = self._engine.segments.frame(run.position, run.payload_bytes)
            body = found.body()
            if not isinstance(body, frames.Append):
                return None
            return own_ids(skeleton, master, body)
        except UNREADABLE:
            return None

    def _gone(
        self,
        record: StreamRecord,
        run: NodeFrame,
        first: StreamID,
        last: StreamID,
        entries: int | None,
    ) -> None:
        segment, offset = fmt.position_parts(run.position)
        why = "a part of the open node cannot be read, or is of a node whose beginning was lost"
        self._report.gone.append(
            LostEntries(record.name, first, last, entries, segment, offset, why)
        )
        log.error("entries of %r between %s and %s cannot be read", record.name, first, last)


def own_ids(
    skeleton: bytes, master: StreamID, body: frames.Append
) -> tuple[StreamID, StreamID] | None:
    """First and last ID of what an append frame adds, if it was encoded against this node."""
    lp = codec().extend(skeleton, body.data or b"", body.entries, body.elements)
    if codec().last_id(lp, *master) != (body.last_ms, body.last_seq):
        return None
    codec().validate(lp, *master)
    ids = codec().ids(lp, *master)
    first = StreamID(*ids[0][1:]) if ids else StreamID(body.last_ms, body.last_seq)
    return first, StreamID(body.last_ms, body.last_seq)
