"""The index as a reader sees it: one transaction, and over it what it lacks of the published log.

Invariants: who looks at a stream sees it as it is at one position, which is ``meta().applied``: the
record and the nodes with all frames up to there, or none of them; a record or node that is given
out is the caller's own, never a part of what others see; and a group, with its consumers and
pending entries, with all deliveries and acks up to there. Nothing else of the index is different:
these frames change of sealed nodes what is deleted of them, no segment's row, and nothing that
features store. For reading alone; whoever commits brings the index up to date first, and reads it
as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logstore.engine.runtime.overlaid_groups import OverlaidRows
from logstore.engine.runtime.plain_frames import (
    extend_node,
    grow_record,
    mark_open,
    restate_record,
)
from logstore.engine.runtime.published_tail import (
    Appended,
    Change,
    PublishedTail,
    Tail,
    unexpected,
)
from logstore.index.env import Generation
from logstore.index.group_txn import GroupTxn
from logstore.index.keys import Meta, OpenNode, StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log import frame as frames


class OverlaidIndex(IndexTxn):
    """The index with a published tail over it."""

    __slots__ = ("_applied", "_below", "_meta", "_published", "_tail")

    def __init__(
        self, generation: Generation, txn: Any, meta: Meta, tail: Tail, published: PublishedTail
    ) -> None:
        """``meta``: where the index itself stands."""
        super().__init__(generation, txn)
        self._tail = tail
        self._below, self._published = meta, published
        self._applied = meta.applied
        self._meta = Meta(
            tail.end, tail.commit, tail.last_frame, tail.last_crc,
            meta.active_segment, meta.next_stream, meta.next_segment,
        )  # fmt: skip

    def meta(self) -> Meta:
        """Where the index stands, with what is laid over it."""
        return self._meta

    @property
    def groups(self) -> GroupTxn:
        """The consumer groups."""
        if self._groups is None:
            txn, generation = self.txn, self.generation
            if self._tail.of_groups:
                rows = self._published.group_rows(generation, txn, self._below, self._tail)
                txn = OverlaidRows(txn, rows)
            self._groups = GroupTxn(generation, txn)
        return self._groups

    def record(self, number: int) -> StreamRecord | None:
        """A stream's record by number."""
        found = IndexTxn.record(self, number)
        return None if found is None else self._grown(found)

    def record_by_name(self, name: bytes) -> StreamRecord | None:
        """A stream's record by name."""
        found = IndexTxn.record_by_name(self, name)
        return None if found is None else self._grown(found)

    def records(self, after: int = 0) -> Iterator[StreamRecord]:
        """Records with numbers above ``after``, ascending."""
        for found in IndexTxn.records(self, after):
            yield self._grown(found)

    def records_with_opens(self, after: int = 0) -> Iterator[tuple[StreamRecord, OpenNode | None]]:
        """The same records, each with the open node of its stream."""
        for found, node in IndexTxn.records_with_opens(self, after):
            yield self._grown(found), self._extended(found.number, node)

    def open_node(self, stream: int) -> OpenNode | None:
        """A stream's open node."""
        return self._extended(stream, IndexTxn.open_node(self, stream))

    def _extended(self, stream: int, node: OpenNode | None) -> OpenNode | None:
        changes = self._changes(stream)
        added = [each for each in changes if isinstance(each, Appended)]
        if added:
            if node is None:
                raise unexpected(added[0].position, "its stream has no open node to add to")
            runs = [each.run for each in added]
            extend_node(node, runs, b"".join([each.data for each in added]))
        if node is not None and len(added) < len(changes):
            self._mark(stream, node, changes)
        return node

    def _mark(self, stream: int, node: OpenNode, changes: list[Change]) -> None:
        """Tombstones name entries by their places in the node, which no later frame changes."""
        record = IndexTxn.record(self, stream)
        version = 0 if record is None else record.open_version
        for change in changes:
            body = None if isinstance(change, Appended) else change.body
            if isinstance(body, frames.Tombstone) and body.version == version:
                mark_open(node, body.ordinals)

    def _changes(self, stream: int) -> list[Change]:
        """The frames of a stream that the index itself has not."""
        changes = self._tail.by_stream.get(stream)
        if changes is None:
            return []
        return [each for each in changes if each.position >= self._applied]

    def _grown(self, record: StreamRecord) -> StreamRecord:
        for change in self._changes(record.number):
            if record.position >= change.position:
                raise unexpected(change.position, "its stream has it already")
            if isinstance(change, Appended):
                if not record.open_version:
                    raise unexpected(change.position, "its stream has no open node to add to")
                grow_record(record, change.position, change.run.entries, change.last)
            elif isinstance(change.body, frames.Record):
                restate_record(record, change.position, change.body)
            else:
                record.position = change.position
        return record


def index_upto(tail: PublishedTail, generation: Generation, txn: Any, upto: int) -> IndexTxn:
    """The index in a transaction, with what it lacks of the log up to the published position
    ``upto``, which was looked up before the transaction began."""
    index = IndexTxn(generation, txn)
    meta = index.meta()
    if meta.applied >= upto:
        return index
    behind = tail.behind(meta, upto)
    if not behind.tombstones:
        return OverlaidIndex(generation, txn, meta, behind, tail)
    from logstore.engine.runtime.overlaid_nodes import OverlaidNodes

    return OverlaidNodes(generation, txn, meta, behind, tail)
