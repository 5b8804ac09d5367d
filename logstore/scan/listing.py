"""The nodes of streams, each stream as it stood at one moment.

Invariants: the index is read in pieces of PIECE_NODES nodes, a snapshot each, many small streams
in one; of a larger stream what was added since the first piece is left out, and if anything was
deleted meanwhile the walk begins again, the last time on one snapshot. Nodes that the index has
lost are an error, where the whole stream is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from logstore.codec import ID, Section
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import StreamNotFoundError
from logstore.ids import U64_MAX, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.row_seal import LostRowsError
from logstore.scan import walk

PIECE_NODES = 1024
PIECE_STREAMS = 256
WALKS_MAX = 3
Mark: TypeAlias = tuple[int, int, int, int, ID]


class _Changed(Exception):  # noqa: N818  (control flow of one walk)
    """Something was deleted since the first piece."""


class Listing:
    """The nodes of streams that must be there; ``sections``: what they are of, each from which node
    on. StreamNotFoundError if a stream is missing. ``lossy``: as `walk.piece` has it."""

    def __init__(
        self,
        engine: Engine,
        names: Sequence[bytes],
        start: StreamID,
        end: StreamID,
        *,
        lossy: bool = False,
    ) -> None:
        self.nodes = walk.new_list()
        self.sections: list[tuple[int, Section]] = []
        self._engine = engine
        self._start = start
        self._end = end
        self._piece = partial(walk.piece, lossy=lossy)
        at = 0
        while at < len(names):
            after = snapshot.read(engine, self._small, names, at, self.nodes.mark())
            if after == at:
                self._large(names[at])
                after += 1
            at = after

    def _add(self, name: bytes, number: int, end: StreamID, before: int) -> None:
        if len(self.nodes) > before:
            self.sections.append((before, (name, number, self._start, end)))

    def _small(self, view: Snapshot, names: Sequence[bytes], at: int, mark: Mark) -> int:
        """Streams from one on, each whole, as far as they fit into a piece; the next one.

        It may be called again: it begins with what there was before.
        """
        found = self.nodes
        found.cut(mark)
        while self.sections and self.sections[-1][0] >= len(found):
            self.sections.pop()
        first = len(found)
        for place in range(at, min(at + PIECE_STREAMS, len(names))):
            record = _record(view, names[place])
            mark, before = found.mark(), len(found)
            room = PIECE_NODES - (before - first)
            end = min(self._end, record.last)
            follows, seen = self._piece(view, record, self._start, end, found, max(room, 1))
            if follows is not None:
                found.cut(mark)
                return place
            if self._start <= record.first and record.last <= self._end:
                _confirm(view, record, seen)
            self._add(names[place], record.number, end, before)
        return min(at + PIECE_STREAMS, len(names))

    def _large(self, name: bytes) -> None:
        """One stream, in pieces."""
        mark, before = self.nodes.mark(), len(self.nodes)
        for tries in range(1, WALKS_MAX + 1):
            self.nodes.cut(mark)
            try:
                number, end = self._walk(name, at_once=tries == WALKS_MAX)
            except _Changed:
                continue
            except LostRowsError:  # the index was built anew
                if tries == WALKS_MAX:
                    raise
                continue
            self._add(name, number, end, before)
            return

    def _walk(self, name: bytes, *, at_once: bool) -> tuple[int, StreamID]:
        """The stream's number and the end of what was read of it."""
        engine, found = self._engine, self.nodes
        first: StreamRecord | None = None
        at: StreamID | None = self._start
        end = self._end
        while at is not None:
            record, at = snapshot.read(engine, self._next, found.mark(), name, at, end, at_once)
            if first is None:
                first, end = record, min(end, record.last)
            elif removal_mark(record) != removal_mark(first):
                raise _Changed
        assert first is not None
        if self._start <= first.first and first.last <= self._end:
            snapshot.read(engine, _confirm_all, name)
        return first.number, end

    def _next(
        self, view: Snapshot, mark: Mark, name: bytes, start: StreamID, end: StreamID, at_once: bool
    ) -> tuple[StreamRecord, StreamID | None]:
        """List the next nodes with live entries, or all; where to go on, None at the end."""
        found = self.nodes
        found.cut(mark)  # of a snapshot that was given up
        record = _record(view, name)
        upto = min(end, record.last)
        at, _ = self._piece(view, record, start, upto, found, PIECE_NODES)
        while at_once and at is not None:
            at, _ = self._piece(view, record, at, upto, found, PIECE_NODES)
        return record, at


class AtOnce:
    """All nodes of some streams, or of all, on one snapshot; StreamNotFoundError if one is missing.

    ``streams``: names and numbers, also of those without nodes.
    """

    def __init__(self, engine: Engine, names: Sequence[bytes] | None) -> None:
        self.nodes = walk.new_list()
        self.sections: list[tuple[int, Section]] = []
        self.streams: list[tuple[bytes, int]] = []
        snapshot.read(engine, self._list, names, self.nodes.mark())

    def _list(self, view: Snapshot, names: Sequence[bytes] | None, mark: Mark) -> None:
        """It may be called again, on another snapshot."""
        found = self.nodes
        found.cut(mark)
        self.sections, self.streams = [], []
        records = view.listed() if names is None else (_record(view, name) for name in names)
        for record in records:
            before, total = len(found), 0
            at: StreamID | None = ZERO_ID
            while at is not None:
                at, seen = walk.piece(view, record, at, record.last, found, PIECE_NODES)
                total += seen
            _confirm(view, record, total)
            self.streams.append((record.name, record.number))
            if len(found) > before:
                section = record.name, record.number, ZERO_ID, record.last
                self.sections.append((before, section))


def _record(view: Snapshot, name: bytes) -> StreamRecord:
    record = view.record(name)
    if record is None:
        raise StreamNotFoundError("there is no such stream", stream=name)
    return record


def _confirm(view: Snapshot, record: StreamRecord, seen: int) -> None:
    """LostRowsError if nodes of a stream were not met because the index lost them."""
    lost = record.open_version and view.open_node(record.number) is None
    if lost or seen != record.nodes:  # dead ones before the first entry were not looked at
        view.confirm_nodes(record)


def _confirm_all(view: Snapshot, name: bytes) -> None:
    record = view.record(name)
    if record is not None:
        view.confirm_nodes(record, given=True)


def removal_mark(record: StreamRecord) -> tuple[int, int]:
    """A stream's number, and how many of its entries went: the same while it is only added to."""
    return record.number, (record.entries_added - record.length) & U64_MAX
