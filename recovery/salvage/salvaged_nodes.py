"""The nodes of a damaged store: which can be read, which can be put together again, which are gone.

Invariants: nodes of a stream come in order, and none of their live IDs twice; a node is given only
if every byte of it is proven by a frame; of one that is not, what is missing is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from logstore import format as fmt
from logstore.codec import codec
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptFrameError, CorruptNodeError
from logstore.format import Kind
from logstore.fs import FileSystem
from logstore.ids import StreamID
from logstore.index.keys import Locator, StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log import chain, file_names, log_reader
from logstore.log import frame as frames
from logstore.rdb.value import Node
from logstore.recovery.replay_guard import UNREADABLE, own_ids
from logstore.recovery.report import Damage, LostEntries, RecoveryReport
from logstore.tuples import NamedTuple

_KINDS = (Kind.OPEN, Kind.APPEND, Kind.TOMBSTONE)


@dataclass(slots=True)
class WantedNode:
    """A node that is looked for: as it stood before a position (of its lost frame)."""

    stream: int
    master: StreamID
    before: int
    version: int = 0
    lp: bytes = b""
    skeleton: bytes = b""
    deleted: set[int] = field(default_factory=set)

    def as_sealed(self, live: int | None) -> tuple[bytes, bool]:
        """The listpack, and whether it is the node as it was sealed, with so many live entries.

        If entries are missing in it, ordinals say nothing: deletes are not carried out.
        """
        size = sum(codec().counts(self.lp))
        marked = codec().mark_deleted(self.lp, sorted(each for each in self.deleted if each < size))
        if live is None:
            return marked, False
        return (marked, True) if codec().counts(marked)[0] == live else (self.lp, False)


def find(
    fs: FileSystem, store: Path, uuid: bytes, seed: int, wanted: list[WantedNode]
) -> dict[tuple[int, StreamID], WantedNode]:
    """Those of which an OPEN frame is left; entries may be missing in them."""
    by_stream: dict[int, list[WantedNode]] = {}
    for each in wanted:
        by_stream.setdefault(each.stream, []).append(each)
    if by_stream:
        for link in chain.main_links(fs, store, uuid):
            file = fs.open(file_names.segment(store, link.number))
            try:
                for found in log_reader.next_valid(
                    file, seed, link.number, fmt.SEGMENT_HEAD_BYTES, link.end_offset
                ):
                    if found.kind in _KINDS:
                        _take(found, by_stream)
            finally:
                file.close()
    return {(each.stream, each.master): each for each in wanted if each.lp}


def _take(found: log_reader.LogFrame, by_stream: dict[int, list[WantedNode]]) -> None:
    here = by_stream.get(int.from_bytes(found.payload[:8], "little"))
    if here is None:
        return
    try:
        body = found.body()
        for each in here:
            if found.position >= each.before:
                continue
            if isinstance(body, frames.Open):
                _begin(each, found.position, body)
            elif isinstance(body, frames.Append) and each.lp:
                if own_ids(each.skeleton, each.master, body) is not None:
                    each.lp = codec().extend(each.lp, body.data or b"", body.entries, body.elements)
            elif isinstance(body, frames.Tombstone) and body.version == each.version:
                each.deleted.update(body.ordinals)
    except (CorruptFrameError, CorruptNodeError):
        return


def _begin(wanted: WantedNode, at: int, body: frames.Open) -> None:
    if (body.master_ms, body.master_seq) != wanted.master or body.data is None:
        return
    codec().validate(body.data, *wanted.master)
    wanted.version, wanted.lp, wanted.deleted = at, body.data, set()
    wanted.skeleton = nodes.skeleton(body.data)


_Key = tuple[int, StreamID]
BEHIND_ALL = 1 << 64  # a position


class _LostNode(NamedTuple):
    """A sealed node whose frame cannot be read."""

    master: StreamID
    locator: Locator
    why: str


class SalvageableNodes:
    """What is left of the nodes of one store, as one transaction sees them."""

    def __init__(
        self, engine: Engine, index: IndexTxn, report: RecoveryReport, damage: list[Damage]
    ) -> None:
        self._engine = engine
        self.view = Snapshot(index, engine.segments, engine.clock.now_ms)
        self._orphans = report.orphans
        self.gone: list[LostEntries] = []
        self.unsure: list[str] = []
        self._lost = self._unreadable({each.segment for each in damage})
        self._found = self._again()

    def _unreadable(self, suspects: set[int]) -> dict[_Key, _LostNode]:
        """Sealed nodes that cannot be read; only in these segments, all others were verified."""
        found: dict[_Key, _LostNode] = {}
        engine = self._engine
        there = set(file_names.segments(engine.fs, engine.path))
        for _, stream, master, locator in self.view.index.all_nodes():
            segment = fmt.segment_of(locator.position)
            if segment in there and segment not in suspects:
                continue
            try:
                lp = engine.segments.node(stream, master, locator)
                codec().validate(lp, *master)
            except UNREADABLE as exc:
                why = "its segment is missing" if segment not in there else str(exc)
                found[stream, master] = _LostNode(master, locator, why)
        return found

    def _again(self) -> dict[_Key, WantedNode]:
        """Those of them, and of the orphans, that the frames of single adds are left of."""
        engine = self._engine
        wanted = [
            WantedNode(stream, master, lost.locator.position)
            for (stream, master), lost in self._lost.items()
        ]
        wanted += [WantedNode(*key, BEHIND_ALL) for key in self._orphans]
        return find(engine.fs, engine.path, engine.uuid, engine.seed, wanted)

    def _main(self, locator: Locator) -> bool:
        engine = self._engine
        mains = chain.main_links(engine.fs, engine.path, engine.uuid)
        number = fmt.segment_of(locator.position)
        return any(link.number == number for link in mains)

    # -- one stream -----------------------------------------------------------------------------
    def nodes(self, record: StreamRecord) -> Iterator[Node]:
        """The nodes that are left of a stream; what is not is put into ``gone``."""
        top: StreamID | None = None
        before: StreamID | None = None
        for master, found in sorted(self._parts(record), key=lambda part: part[0]):
            lp = found
            ids = codec().ids(lp, *master)
            if top is not None and ids and StreamID(*ids[0][1:]) <= top:
                seen = sum(1 << place for place, *id in ids if StreamID(*id) <= top)
                lp = codec().fold(lp, seen.to_bytes((seen.bit_length() + 7) // 8, "little"))
                ids = codec().ids(lp, *master)
            if not ids or (before is not None and master <= before):
                continue
            top, before = StreamID(*ids[-1][1:]), master
            yield master.packed(), lp

    def _parts(self, record: StreamRecord) -> Iterator[tuple[StreamID, bytes]]:
        """Master ID and listpack, deletes carried out; in no order."""
        for stream, master in self._orphans:
            if stream == record.number:
                yield from self._orphan(record, master)
        for ref in nodes.refs(self.view, record):
            lost = self._lost.get((record.number, ref.master)) if ref.locator else None
            if lost is not None:
                yield from self._put_together(record, lost)
                continue
            try:
                lp, vector = nodes.listpack(self.view, record, ref)
                codec().validate(lp, *ref.master)
            except UNREADABLE as exc:
                self._tell(record, ref.master, ref.last, ref.live, str(exc), ref.version)
                continue
            yield ref.master, codec().fold(lp, vector) if vector else lp

    def _orphan(self, record: StreamRecord, master: StreamID) -> Iterator[tuple[StreamID, bytes]]:
        found = self._found.get((record.number, master))
        if found is None:
            return
        lp, _ = found.as_sealed(None)
        _, vector = self._orphans[record.number, master]
        size = sum(codec().counts(lp))
        vector &= (1 << size) - 1
        if vector:
            lp = codec().fold(lp, vector.to_bytes((vector.bit_length() + 7) // 8, "little"))
        self.unsure.append(
            f"node {master} of {record.name!r} was put together from the adds, because the frame "
            "that sealed it was lost: entries may be missing at its end"
        )
        yield master, lp

    def _put_together(
        self, record: StreamRecord, lost: _LostNode
    ) -> Iterator[tuple[StreamID, bytes]]:
        locator, found = lost.locator, self._found.get((record.number, lost.master))
        where = locator.position
        if found is None:
            self._tell(record, lost.master, locator.last, locator.live, lost.why, where)
            return
        lp, whole = found.as_sealed(locator.entries)
        left = codec().counts(lp)[0]
        if whole:
            yield lost.master, codec().fold(lp, locator.vector) if locator.vector else lp
            return
        if left >= locator.entries or not self._main(locator):
            # Rewritten since: which of these entries were deleted before is not known.
            self._tell(record, lost.master, locator.last, locator.live, lost.why, where)
            return
        # What was deleted is there again, so that at most so many of those that lived are missing.
        missing = min(locator.live, locator.entries - left + len(found.deleted))
        self._tell(record, lost.master, locator.last, missing, lost.why, where)
        if locator.vector or found.deleted:
            self.unsure.append(
                f"of node {lost.master} of {record.name!r} a part is left: entries of it that were "
                "deleted are there again"
            )
        yield lost.master, lp

    def _tell(
        self,
        record: StreamRecord,
        first: StreamID,
        last: StreamID,
        entries: int | None,
        why: str,
        position: int,
    ) -> None:
        segment, offset = fmt.position_parts(position)
        if entries:
            self.gone.append(LostEntries(record.name, first, last, entries, segment, offset, why))
