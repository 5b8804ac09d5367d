"""Reading a split: from its part of the snapshot file and the segments, without any index.

Invariants: every node is proven by its frame's CRC, stream and master ID; a pin that ran out, a
snapshot or a segment that is gone raises SnapshotExpired, damage raises CorruptionError, and never
are there fewer rows. Segments are read with positional reads, so that a file that is cut off is an
error and not a signal; reads that follow each other are done ahead, in pieces of READ_AHEAD_BYTES.
Neither the engine nor the index may be imported here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from logstore import format as fmt
from logstore.clock import SYSTEM_CLOCK
from logstore.errors import SnapshotExpired
from logstore.fs import LOCAL, File, FileSystem
from logstore.ids import StreamID
from logstore.log import located, names, pinfile
from logstore.log.writer import crc_seed
from logstore.scan import snapshot
from logstore.scan.arrow import BATCH_ROWS, Gather
from logstore.scan.snapshot import Split
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

READ_AHEAD_BYTES = 256 << 10
GAP_MAX_BYTES = 64 << 10
OPEN_FILES_MAX = 16


class FoundNode(NamedTuple):
    """A node of a split, and the closed interval of IDs that is asked for."""

    name: bytes
    lp: bytes
    master: StreamID
    vector: bytes
    start: StreamID
    end: StreamID
    live: int


class _Ahead:
    """A segment file, read ahead while the reads go forward."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._data = b""
        self._offset = 0

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Up to ``size_bytes`` from ``offset``."""
        at = offset - self._offset
        if at < 0 or at + size_bytes > len(self._data):
            gap = at - len(self._data)
            forward = bool(self._data) and at >= 0 and gap <= GAP_MAX_BYTES
            want = max(size_bytes, READ_AHEAD_BYTES) if forward else size_bytes
            self._data, self._offset, at = self.file.pread(want, offset), offset, 0
        return self._data[at : at + size_bytes]


class _Files:
    """The open segments of one split."""

    def __init__(self, fs: FileSystem, store: Path) -> None:
        self._fs = fs
        self._store = store
        self._open: OrderedDict[int, _Ahead] = OrderedDict()

    def source(self, number: int) -> _Ahead:
        """A segment; SnapshotExpired if its file is gone."""
        found = self._open.get(number)
        if found is not None:
            self._open.move_to_end(number)
            return found
        try:
            found = _Ahead(self._fs.open(names.segment(self._store, number)))
        except FileNotFoundError:
            raise SnapshotExpired(
                "a segment that this snapshot names was removed: load again", segment=number
            ) from None
        self._open[number] = found
        if len(self._open) > OPEN_FILES_MAX:
            self._open.popitem(last=False)[1].file.close()
        return found

    def close(self) -> None:
        """Close all of them."""
        for each in self._open.values():
            each.file.close()
        self._open.clear()


def nodes(
    split: Split, *, fs: FileSystem = LOCAL, now_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms
) -> Iterator[FoundNode]:
    """The nodes of a split in the order of the plan; the pin is renewed as they are read."""
    home = Path(split.home)
    lease = pinfile.Lease(fs, home, split.pin_id, now_ms())
    seed = crc_seed(split.uuid)
    files = _Files(fs, Path(split.store))
    blocks = snapshot.read(fs, home, split.uuid, split.pin_id, split.offset, split.size_bytes)
    try:
        for section, items in blocks:
            for item in items:
                lease.keep(now_ms())
                lp = item.lp
                if item.position:
                    source = files.source(fmt.segment_of(item.position))
                    lp = located.listpack(
                        source,
                        seed,
                        item.position,
                        item.payload_bytes,
                        section.stream,
                        item.master,
                    )
                yield FoundNode(
                    section.name,
                    lp,
                    item.master,
                    item.vector,
                    section.start,
                    section.end,
                    item.live,
                )
    finally:
        blocks.close()
        files.close()


def batches(
    split: Split,
    gather: Gather,
    *,
    fs: FileSystem = LOCAL,
    now_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms,
) -> Iterator[pa.RecordBatch]:
    """The entries of a split as record batches."""
    for node in nodes(split, fs=fs, now_ms=now_ms):
        if gather.is_full(node.live):
            yield from gather.take()
        gather.add(node.name, node.lp, *node.master, node.vector, node.start, node.end)
    yield from gather.take()


def read_split(
    split: Split,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    *,
    fs: FileSystem = LOCAL,
) -> pa.RecordBatchReader:
    """A split as Arrow."""
    import pyarrow as pa

    gather = Gather(columns, batch_rows)
    return pa.RecordBatchReader.from_batches(gather.schema, batches(split, gather, fs=fs))
