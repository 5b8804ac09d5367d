"""Scanning a stream of an open store: some nodes on one snapshot, then the next snapshot.

Invariants: no snapshot lives longer than NODES_MAX nodes or BYTES_MAX bytes take to decode, none is
held while the caller has a batch; the walk goes on by ID behind the last entry it took, so that
nodes that were rewritten, merged or moved in between are neither skipped nor read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import OptionError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.scan.arrow import BATCH_ROWS, Gather

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.scan.shape import Shape

NODES_MAX = 64
BYTES_MAX = 1 << 20


class Walk:
    """Where a scan stands. ``step`` may be cut short by an error and called again."""

    def __init__(self, name: bytes, start: StreamID, end: StreamID) -> None:
        self.name = name
        self.start = start
        self.end = end
        self.started = False
        self._whole = False  # the walk is one of all that the stream has
        self.done = start > end

    def step(self, view: Snapshot, gather: Gather) -> bool:
        """Add the next nodes; whether the batch is full."""
        record = view.record(self.name)
        if record is None:
            self.done = True
            return True
        if not self.started:
            self.started, self._whole = True, self.start <= record.first <= record.last <= self.end
            self.end = min(self.end, record.last)
        return self._nodes(view, record, gather)

    def _nodes(self, view: Snapshot, record: StreamRecord, gather: Gather) -> bool:
        count = size = 0
        name, end = self.name, self.end
        for ref in nodes.refs(view, record, self.start, end):
            if not ref.live:
                continue
            if gather.is_full(ref.live):
                return True
            if count >= NODES_MAX or size >= BYTES_MAX:
                return False
            lp, vector = nodes.listpack(view, record, ref)
            gather.add(name, lp, *ref.master, vector, self.start, end)
            if ref.last >= end or ref.last == MAX_ID:
                break
            self.start = ref.last.next()
            count += 1
            size += len(lp)
        if self._whole:
            view.confirm_nodes(record, given=True)
        self.done = True
        return True


def _batches(
    engine: Engine, name: bytes, start: StreamID, end: StreamID, gather: Gather
) -> Iterator[pa.RecordBatch]:
    """The batches of a scan."""
    walk = Walk(name, start, end)
    while not walk.done:
        while not snapshot.read(engine, lambda view: walk.step(view, gather)):
            pass
        yield from gather.take()


def scan_stream(
    engine: Engine,
    name: bytes,
    start: StreamID = ZERO_ID,
    end: StreamID = MAX_ID,
    columns: Sequence[str] | Mapping[str, pa.DataType | None] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> pa.RecordBatchReader:
    """The live entries of a closed interval, up to the last one there was at the first batch.

    Each batch is read on snapshots of its own: entries that are deleted meanwhile may still come
    or not; none comes twice, and none that lives is left out.
    """
    import pyarrow as pa

    from logstore.scan import shape as shapes

    shape: Shape | None = None
    if isinstance(columns, Mapping):
        shape = shapes.Shape(shapes.typed(columns))
        gather = Gather(shape.sources, batch_rows)
    else:
        gather = Gather(_names(columns), batch_rows)
    batches = _batches(engine, name, start, end, gather)
    if shape is None:
        return pa.RecordBatchReader.from_batches(gather.schema, batches)
    return pa.RecordBatchReader.from_batches(shape.schema, map(shape.batch, batches))


def _names(columns: Sequence[str] | None) -> Sequence[str] | None:
    """Names of columns, each once."""
    if columns is None:
        return None
    if isinstance(columns, str | bytes) or not isinstance(columns, Sequence):
        raise OptionError(
            f"columns must be a sequence of names, or a mapping of names to types: {columns!r}"
        )
    for name in columns:
        if not isinstance(name, str):
            raise OptionError(f"the names of columns must be str: {name!r}")
    if len(set(columns)) != len(columns):
        raise OptionError(f"a column is named twice: {', '.join(columns)}")
    return columns
