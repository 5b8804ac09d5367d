"""One compacted segment as it is written: node frames, sorted by stream and ID, and its hint.

Invariants: its number is never used again; nobody reads it before an adopt commit names it; bytes
of nodes are kept until they are written, never for a whole segment.
"""

from __future__ import annotations

from logstore import format as fmt
from logstore.compaction.node_choice import Group, NodeVersion
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.engine import Engine
from logstore.fs import File
from logstore.index.txn import IndexTxn
from logstore.log import file_names, hint, segment, segment_writer
from logstore.log import frame as frames

WRITE_BYTES = 1 << 20
SYNC_BYTES = 8 << 20  # no sync of others waits for more of ours than that


class Output:
    """One compacted segment being written."""

    def __init__(self, engine: Engine, number: int) -> None:
        self._engine = engine
        self.number = number
        head = segment.SegmentHead(
            fmt.Role.COMPACTED, number, engine.uuid, 0, 0, engine.clock.now_ms()
        )
        self._file: File = segment.create(engine.fs, engine.path, head)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._unsynced_bytes = 0
        self.offset = fmt.SEGMENT_HEAD_BYTES
        self.items: list[tuple[frames.AdoptItem, tuple[NodeVersion, ...]]] = []

    def add(self, group: Group) -> None:
        """Write a group as one node frame; a group without live entries only goes."""
        first = group.parts[0]
        replaced = tuple((part.master.ms, part.master.seq) for part in group.parts)
        if not group.lp:
            item = frames.AdoptItem(first.stream, *first.master, 0, 0, 0, 0, 0, replaced)
            self.items.append((item, group.versions()))
            return
        last = group.last
        body = frames.Node(first.stream, *first.master, *last, group.live, group.lp)
        payload = frames.encode(body)
        at = fmt.position(self.number, self.offset)
        _, head = segment_writer.head(
            self._engine.seed,
            at,
            payload,
            0,
            0,
            len(self.items),
            fmt.Kind.NODE,
            fmt.FRAME_FLAG_LAST,
        )
        self._pending += [head, payload]
        size = fmt.FRAME_HEAD_BYTES + len(payload)
        item = frames.AdoptItem(
            first.stream, *first.master, *last, self.offset, len(payload), group.live, replaced
        )
        self.items.append((item, group.versions()))
        self.offset += size
        self._pending_bytes += size
        if self._pending_bytes >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._file.pwrite(b"".join(self._pending), self.offset - self._pending_bytes)
        self._unsynced_bytes += self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        if self._unsynced_bytes >= SYNC_BYTES:
            self._file.sync()
            self._unsynced_bytes = 0

    def finish(self) -> None:
        """Make the segment durable, with its hint."""
        engine = self._engine
        if self._pending:
            self._write()
        self._file.sync()
        self._file.close()
        link = maintenance_locks.compacted_link(engine, self.number)
        hint.write(engine.fs, engine.path, engine.uuid, engine.seed, link, fmt.Role.COMPACTED)

    def abandon(self) -> None:
        """Nothing of it was adopted: remove it."""
        self._file.close()
        engine = self._engine
        engine.fs.remove(file_names.hint(engine.path, self.number))
        engine.fs.remove(file_names.segment(engine.path, self.number))


def begin(engine: Engine, committer: Committer) -> Output:
    """A new compacted segment, under a number that is never used again.

    Its file is made before LOCK is given back: until it lies there, another process, whose last
    look at the index may be older, could roll to the same number.
    """
    with committer.locked():
        generation = engine.index()
        with generation.env.begin(write=True) as txn:
            index = IndexTxn(generation, txn)
            meta = index.meta()
            on_disk = file_names.segments(engine.fs, engine.path)
            number = max([meta.next_segment, *(found + 1 for found in on_disk)])
            index.put_meta(meta._replace(next_segment=number + 1))
        engine.cache.clear()
        return Output(engine, number)
