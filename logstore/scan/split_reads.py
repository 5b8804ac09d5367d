"""Reading a split: from its part of the snapshot file and the segments, without any index.

Invariants: every node that is read is proven by its frame's CRC, stream and master ID (a count
reads only those at the ends of the interval); a pin that ran out, a snapshot that is gone, and a
segment that is gone and is not pinned (the pin is looked at behind the segment, for who unlinks
one revokes its pins first), raise SnapshotExpiredError; damage, and a segment that is gone though
it is pinned, is a CorruptionError that names the IDs, or is counted among the losses that the
caller takes. Never are there fewer rows unsaid. Neither the engine nor the index may be imported
here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from logstore import format as fmt
from logstore.clock import SYSTEM_CLOCK
from logstore.codec import Section
from logstore.codec.node_list import Item
from logstore.errors import CorruptionError, SnapshotExpiredError
from logstore.fs import LOCAL, File, FileSystem
from logstore.log import file_names, log_reader, pinfile
from logstore.log.segment_writer import crc_seed
from logstore.log.shipped import ShippedFiles, place
from logstore.scan import snapshot_file
from logstore.scan.arrow import BATCH_ROWS, Gather
from logstore.scan.located import Stretch
from logstore.scan.losses import Losses
from logstore.scan.snapshot_file import Split
from logstore.uri_path import UriPath

if TYPE_CHECKING:
    import pyarrow as pa

OPEN_FILES_MAX = 16


def _store(split: Split) -> Path:
    return UriPath.of(split.store) if split.blocks else Path(split.store)


class _Files:
    """The open segments of one split. ``pin_holds``: whether its pin keeps them; it is not asked
    where no compaction sees the pin."""

    def __init__(
        self, fs: FileSystem, split: Split, seed: int, pin_holds: Callable[[], bool]
    ) -> None:
        self._fs = fs
        self._store = _store(split)
        self._seed = seed
        self._pin_holds = pin_holds
        self._gone: set[int] = set()  # though the pin holds them
        self._open: OrderedDict[int, File] = OrderedDict()

    def _file(self, number: int) -> File:
        """A segment. SnapshotExpiredError if its file was dropped, CorruptionError if lost."""
        found = self._open.get(number)
        if found is not None:
            self._open.move_to_end(number)
            return found
        try:
            found = self._fs.open(file_names.segment(self._store, number))
        except FileNotFoundError:
            if number not in self._gone and not self._pin_holds():
                raise SnapshotExpiredError(
                    "a segment that this snapshot names was removed: load again", segment=number
                ) from None
            self._gone.add(number)
            raise CorruptionError(
                "the segment's file is not there, and logstore did not remove it: restore it from "
                "a backup, or see docs/recovery.md",
                segment=number,
            ) from None
        self._open[number] = found
        if len(self._open) > OPEN_FILES_MAX:
            self._open.popitem(last=False)[1].close()
        return found

    def around(self, position: int, size_bytes: int) -> bytes:
        """Unchecked bytes of a segment from a position on, as far as they can be read."""
        segment, offset = fmt.position_parts(position)
        return log_reader.readable(self._file(segment), size_bytes, offset)

    def listpack(self, section: Section, item: Item) -> bytes:
        """The listpack of one node, checked."""
        file = self._file(fmt.segment_of(item.position))
        return log_reader.listpack(
            file, self._seed, item.position, item.size_bytes, section[1], item.master
        )

    def close(self) -> None:
        """Close all of them."""
        for each in self._open.values():
            each.close()
        self._open.clear()


def batches(
    split: Split,
    gather: Gather,
    *,
    fs: FileSystem = LOCAL,
    now_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms,
    losses: Losses | None = None,
) -> Iterator[pa.RecordBatch]:
    """The entries of a split as record batches, in the order of the plan; the pin is renewed as
    they are read. What cannot be read goes to the ``losses``, by default ones that raise."""
    lease: pinfile.Lease | None = None
    losses = losses or Losses()

    def pin_holds() -> bool:
        """SnapshotExpiredError if the pin is over: compaction or an erasure may have come."""
        if lease is None or split.home != split.store:
            return False
        pinfile.check_planned(fs, Path(split.home), split.pin_id, now_ms())
        return True

    if split.blocks:
        fs = ShippedFiles(place(split.store), split.uuid.hex(), split.objects)
    else:
        lease = pinfile.Lease(fs, Path(split.home), split.pin_id, now_ms())
    seed = crc_seed(split.uuid)
    files = _Files(fs, split, seed, pin_holds)
    stretch = Stretch(files, seed, losses)
    blocks = snapshot_file.read(fs, split)
    try:
        for section, items in blocks:
            at = 0
            while at < len(items):
                if lease is not None:
                    lease.keep(now_ms())
                at = stretch.add(gather, section, items, at)
                losses.check()
                if at < len(items):
                    yield from gather.take()
        yield from gather.take()
    finally:
        blocks.close()
        files.close()


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
