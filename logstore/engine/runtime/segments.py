"""Reading nodes and frames of segments: open files and maps, kept per process.

Invariants: only sealed segments are mapped, the active one is read with pread; a node is returned
only if its frame's CRC fits and it names the stream and master ID it was looked up under. A
segment that is gone raises SegmentGone: the reader takes a new snapshot and looks again. A walk,
however long, leaves not much more than RESIDENT_BYTES of the maps in the process's memory.
"""

from __future__ import annotations

import mmap
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from logstore import format as fmt
from logstore.codec import codec
from logstore.engine.shm.late_free import let_go
from logstore.errors import CorruptFrameError
from logstore.format import Kind
from logstore.fs import File, FileSystem, named
from logstore.ids import StreamID
from logstore.index.keys import Locator, OpenNode, Run
from logstore.log import frame as frames
from logstore.log import names, node_reader, reader
from logstore.log.writer import CommitBuffer

OPEN_FILES_MAX = 64
# Of maps. A page that is let go costs half a microsecond when it is looked at again: what is
# smaller than this stays, however often it is walked over.
RESIDENT_BYTES = 128 << 20
READ_AHEAD_BYTES = 256 * 1024  # of the active segment, which is not mapped
KEPT_NODES_MAX = 16
KEPT_NODE_MAX_BYTES = 16 * 1024
_HEAD_BYTES = fmt.FRAME_HEAD_BYTES


class SegmentGone(Exception):  # noqa: N818  (control flow inside the engine, never seen by users)
    """The segment was dropped after the snapshot was taken."""


class NodeSource(Protocol):
    """Where nodes are read from: the segments, or those and the commit that is being decided."""

    def node(self, stream: int, master: StreamID, locator: Locator, active: int) -> bytes:
        """The listpack of a sealed node."""
        ...

    def run_bytes(self, run: Run, active: int) -> tuple[int, bytes]:
        """Kind and listpack bytes of one frame of an open node."""
        ...

    def open_listpack(self, node: OpenNode, active: int) -> bytes:
        """The listpack of an open node."""
        ...


class MappedSegment:
    """A sealed segment as memory; closed when nobody uses it any more."""

    def __init__(self, file: File) -> None:
        self._map: mmap.mmap = file.map()
        self.file = file

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Up to ``size_bytes`` from ``offset``."""
        return self._map[offset : offset + size_bytes]

    def size_bytes(self) -> int:
        """The size of the segment."""
        return len(self._map)

    def whole(self) -> mmap.mmap:
        """All of its bytes; who has them keeps the segment mapped."""
        return self._map

    def let_go_pages(self) -> None:
        """Take its pages out of the process's memory; the system still has them in its cache, and
        the next look at one brings it back."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


class Segments:
    """The open segments of one store in one process."""

    def __init__(self, fs: FileSystem, store: Path, seed: int) -> None:
        self._fs = fs
        self._store = store
        self.seed = seed
        self._lock = threading.RLock()  # a signal handler may read while we do
        self._files: OrderedDict[tuple[int, bool], File | MappedSegment] = OrderedDict()
        self.body_reads = 0  # frames read whole; a clean open leaves it at 0
        self._resident_bytes = 0  # about, of maps: what was read since their pages were let go
        # Nodes read lately. What stands at a position that an index names never changes.
        self._nodes: dict[tuple[int, int, StreamID], bytes] = {}

    def source(self, number: int, *, sealed: bool) -> File | MappedSegment:
        """Something to read the segment's bytes from."""
        key = (number, sealed)
        with self._lock:
            opened = self._files.get(key)
            if opened is not None:
                self._files.move_to_end(key)
                return opened
        try:
            file = self._fs.open(names.segment(self._store, number))
        except FileNotFoundError:
            raise SegmentGone(number) from None
        if sealed and not file.size_bytes():  # which cannot be mapped
            raise CorruptFrameError("the segment is empty", segment=number, offset=0)
        made: File | MappedSegment = file
        if sealed and file.mappable:
            made = MappedSegment(file)
            file.close()
        with self._lock:
            self._files[key] = made
            while len(self._files) > OPEN_FILES_MAX:
                self._files.popitem(last=False)  # closed by its last user
        return made

    def close(self) -> None:
        """Let go of every file and map, and of the store's directory."""
        self.forget()
        store = self._store
        self._store = named(store)
        let_go(store)

    def forget(self) -> None:
        """Let go of every file and map: some of them were dropped."""
        with self._lock:
            self._files.clear()
            self._nodes.clear()

    def was_read(self, size_bytes: int) -> None:
        """So many bytes of maps were looked at. Without this, a walk over a long stream would end
        with all of it counted as the process's memory."""
        self._resident_bytes += size_bytes
        if self._resident_bytes >= RESIDENT_BYTES:
            self.let_go_pages()

    def let_go_pages(self) -> None:
        """Take the pages of all maps out of the process's memory: for who reads them once."""
        self._resident_bytes = 0
        with self._lock:
            opened = [*self._files.values()]
        for each in opened:
            if isinstance(each, MappedSegment):
                each.let_go_pages()

    def frame(self, position: int, payload_bytes: int, active: int) -> reader.LogFrame:
        """The frame at a position, checked."""
        segment, offset = fmt.position_parts(position)
        self.body_reads += 1
        source = self.source(segment, sealed=segment != active)
        data = source.pread(_HEAD_BYTES + payload_bytes, offset)
        parsed = reader.parse(data, 0, self.seed, segment, offset)
        if parsed.payload_bytes != payload_bytes:
            raise CorruptFrameError(
                "a frame has not the length that its locator says", segment=segment, offset=offset
            )
        return parsed

    def node(self, stream: int, master: StreamID, locator: Locator, active: int) -> bytes:
        """The listpack of a sealed node, proven to be the one that was asked for."""
        size = locator.payload_bytes
        key = (locator.position, stream, master)
        kept = self._nodes.get(key)
        if kept is not None and len(kept) + fmt.NODE_BODY.size == size:
            return kept
        segment = fmt.segment_of(locator.position)
        self.body_reads += 1
        source = self.source(segment, sealed=segment != active)
        lp = node_reader.listpack(source, self.seed, locator.position, size, stream, master)
        self.was_read(size)
        if size <= KEPT_NODE_MAX_BYTES:
            with self._lock:
                if len(self._nodes) >= KEPT_NODES_MAX:
                    self._nodes.clear()
                self._nodes[key] = lp
        return lp

    def around(self, position: int, size_bytes: int, active: int) -> tuple[bytes | mmap.mmap, int]:
        """Unchecked bytes of a segment that hold so many from a position on, as far as they are
        there, and more for who goes on reading behind them; the position where they begin. What
        is looked at of a map is told to ``was_read``."""
        segment, offset = fmt.position_parts(position)
        self.body_reads += 1
        source = self.source(segment, sealed=segment != active)
        if isinstance(source, MappedSegment):
            return source.whole(), fmt.position(segment, 0)
        return source.pread(max(size_bytes, READ_AHEAD_BYTES), offset), position

    def run_bytes(self, run: Run, active: int) -> tuple[int, bytes]:
        """Kind and listpack bytes of one frame of an open node."""
        frame = self.frame(run.position, run.payload_bytes, active)
        return frame.kind, frame.payload[frames.DATA_HEAD_BYTES[frame.kind] :]

    def open_listpack(self, node: OpenNode, active: int) -> bytes:
        """The listpack of an open node, put together from its frames if need be."""
        return _assembled(self, node, active)


class Uncommitted:
    """The segments as the operations of one commit see them: what it wrote is in no file yet."""

    __slots__ = ("_below", "_buffer")

    def __init__(self, below: Segments, buffer: CommitBuffer) -> None:
        self._below = below
        self._buffer = buffer

    def node(self, stream: int, master: StreamID, locator: Locator, active: int) -> bytes:
        """The listpack of a sealed node."""
        frame = self._buffer.frame_at(locator.position)
        if frame is None:
            return self._below.node(stream, master, locator, active)
        return frame[1][fmt.NODE_BODY.size :]

    def run_bytes(self, run: Run, active: int) -> tuple[int, bytes]:
        """Kind and listpack bytes of one frame of an open node."""
        frame = self._buffer.frame_at(run.position)
        if frame is None:
            return self._below.run_bytes(run, active)
        kind, payload = frame
        return kind, payload[frames.DATA_HEAD_BYTES[kind] :]

    def open_listpack(self, node: OpenNode, active: int) -> bytes:
        """The listpack of an open node, put together from its frames if need be."""
        return _assembled(self, node, active)


def _assembled(source: NodeSource, node: OpenNode, active: int) -> bytes:
    if not node.runs:
        assert node.lp is not None
        return node.lp
    lp, entries, elements = b"", 0, 0
    added: list[bytes] = []
    for run in node.runs:
        kind, data = source.run_bytes(run, active)
        if kind == Kind.OPEN:
            lp, entries, elements, added = data, 0, 0, []
        else:
            added.append(data)
            entries += run.entries
            elements += run.elements
    if added:  # all at once: put behind one by one, each would copy all that is before it
        lp = codec().extend(lp, b"".join(added), entries, elements)
    if node.vector:
        size = (node.vector.bit_length() + 7) // 8
        lp = codec().fold(lp, node.vector.to_bytes(size, "little"))
    return lp
