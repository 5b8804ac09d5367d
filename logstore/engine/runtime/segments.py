"""Reading nodes and frames of segments: open files, kept per process.

Invariants: segments are read with pread, so that bytes that are not there, or that the disk does
not give back, are an error of the call and no signal to the process; a node is returned only if its
frame's CRC fits and it names the stream and master ID it was looked up under. A segment that is
gone raises SegmentGone: the reader takes a new snapshot and looks again. The space of one that was
dropped comes back when every process has closed it (``forget``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from logstore import format as fmt
from logstore.codec import codec
from logstore.engine.reading.reader_loading import node_cache
from logstore.errors import CorruptFrameError
from logstore.format import Kind
from logstore.fs import File, FileSystem, named
from logstore.ids import StreamID
from logstore.index.keys import Locator, NodeFrame, OpenNode
from logstore.log import file_names, log_reader
from logstore.log import frame as frames
from logstore.log.segment_writer import CommitBuffer

OPEN_FILES_MAX = 64
_HEAD_BYTES = fmt.FRAME_HEAD_BYTES


class SegmentGone(Exception):  # noqa: N818  (control flow inside the engine, never seen by users)
    """The segment was dropped after the snapshot was taken."""


class NodeSource(Protocol):
    """Where nodes are read from: the segments, or those and the commit that is being decided."""

    def node(self, stream: int, master: StreamID, locator: Locator) -> bytes:
        """The listpack of a sealed node."""
        ...

    def run_bytes(self, run: NodeFrame) -> tuple[int, bytes]:
        """Kind and listpack bytes of one frame of an open node."""
        ...

    def open_listpack(self, node: OpenNode) -> bytes:
        """The listpack of an open node."""
        ...


class Segments:
    """The open segments of one store in one process."""

    def __init__(self, fs: FileSystem, store: Path, seed: int) -> None:
        self._fs = fs
        self._store = store
        self.seed = seed
        self._lock = threading.RLock()  # a signal handler may read while we do
        self.files: OrderedDict[int, File] = OrderedDict()
        self.body_reads = 0  # frames read whole; a clean open leaves it at 0
        # Nodes read lately. What stands at a position that an index names never changes.
        self.nodes = node_cache()

    def source(self, number: int) -> File:
        """The segment's file, to read from."""
        with self._lock:
            opened = self.files.get(number)
            if opened is not None:
                self.files.move_to_end(number)
                return opened
        try:
            file = self._fs.open(file_names.segment(self._store, number))
        except FileNotFoundError:
            raise SegmentGone(number) from None
        with self._lock:
            self.files[number] = file
            while len(self.files) > OPEN_FILES_MAX:
                self.files.popitem(last=False)  # closed by its last user
        return file

    def close(self) -> None:
        """Let go of every file, and of the store's directory."""
        self.forget()
        self._store = named(self._store)

    def forget(self) -> None:
        """Let go of every file: some of them were dropped."""
        with self._lock:
            self.files.clear()
        self.nodes.clear()

    def frame(self, position: int, payload_bytes: int) -> log_reader.LogFrame:
        """The frame at a position, checked."""
        segment, offset = fmt.position_parts(position)
        self.body_reads += 1
        data = log_reader.read(self.source(segment), _HEAD_BYTES + payload_bytes, segment, offset)
        parsed = log_reader.parse(data, 0, self.seed, segment, offset)
        if parsed.payload_bytes != payload_bytes:
            raise CorruptFrameError(
                "a frame has not the length that its locator says", segment=segment, offset=offset
            )
        return parsed

    def node(self, stream: int, master: StreamID, locator: Locator) -> bytes:
        """The listpack of a sealed node, proven to be the one that was asked for."""
        size = locator.payload_bytes
        kept = self.nodes.get(locator.position, stream, master, size - fmt.NODE_BODY.size)
        if kept is not None:
            return kept
        self.body_reads += 1
        source = self.source(fmt.segment_of(locator.position))
        lp = log_reader.listpack(source, self.seed, locator.position, size, stream, master)
        self.nodes.put(locator.position, stream, master, lp)
        return lp

    def around(self, position: int, size_bytes: int) -> bytes:
        """Unchecked bytes of a segment from a position on, as far as they can be read."""
        segment, offset = fmt.position_parts(position)
        self.body_reads += 1
        return log_reader.readable(self.source(segment), size_bytes, offset)

    def run_bytes(self, run: NodeFrame) -> tuple[int, bytes]:
        """Kind and listpack bytes of one frame of an open node."""
        frame = self.frame(run.position, run.payload_bytes)
        return frame.kind, frame.payload[frames.DATA_HEAD_BYTES[frame.kind] :]

    def open_listpack(self, node: OpenNode) -> bytes:
        """The listpack of an open node, put together from its frames if need be."""
        return _assembled(self, node)


class UncommittedSegments:
    """The segments as the operations of one commit see them: what it wrote is in no file yet."""

    __slots__ = ("_below", "_buffer")

    def __init__(self, below: Segments, buffer: CommitBuffer) -> None:
        self._below = below
        self._buffer = buffer

    def node(self, stream: int, master: StreamID, locator: Locator) -> bytes:
        """The listpack of a sealed node."""
        frame = self._buffer.frame_at(locator.position)
        if frame is None:
            return self._below.node(stream, master, locator)
        return frame[1][fmt.NODE_BODY.size :]

    def run_bytes(self, run: NodeFrame) -> tuple[int, bytes]:
        """Kind and listpack bytes of one frame of an open node."""
        frame = self._buffer.frame_at(run.position)
        if frame is None:
            return self._below.run_bytes(run)
        kind, payload = frame
        return kind, payload[frames.DATA_HEAD_BYTES[kind] :]

    def open_listpack(self, node: OpenNode) -> bytes:
        """The listpack of an open node, put together from its frames if need be."""
        return _assembled(self, node)


def _assembled(source: NodeSource, node: OpenNode) -> bytes:
    if not node.runs:
        assert node.lp is not None
        return node.lp
    lp, entries, elements = b"", 0, 0
    added: list[bytes] = []
    for run in node.runs:
        kind, data = source.run_bytes(run)
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
