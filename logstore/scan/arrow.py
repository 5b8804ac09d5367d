"""Nodes to Arrow record batches of bounded size; the scan of a stream.

Invariants: a batch has at most ``batch_rows`` rows and, but for its last node, at most BATCH_BYTES;
rows come in the order of IDs; columns come in the order asked for. No index is needed to turn nodes
into batches: what a Spark executor imports from here reaches neither the engine nor LMDB.

A name that is none of the standard columns is a field of the entries: a column of text, null where
an entry has no such field, the last value where it has several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from logstore.codec import ARROW_COLUMNS, ID, codec
from logstore.errors import OptionError
from logstore.ids import MAX_ID, ZERO_ID, StreamID

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.engine.core import Engine

BATCH_BYTES = 8 << 20
BATCH_ROWS = 65536
BATCH_ROWS_MAX = 16_777_216


class Gather:
    """Nodes gathered into record batches."""

    def __init__(
        self, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS, *,
        binary: bool = False,
    ) -> None:  # fmt: skip
        if not 1 <= batch_rows <= BATCH_ROWS_MAX:
            raise OptionError(f"batch_rows must be 1 to {BATCH_ROWS_MAX}: {batch_rows}")
        names = list(ARROW_COLUMNS) if columns is None else list(columns)
        standard = [name for name in names if name in ARROW_COLUMNS]
        fields = [name for name in names if name not in ARROW_COLUMNS]
        self._builder = codec().ArrowBuilder(standard, fields, binary)
        self._order = names if names != standard + fields else None
        self._batch_rows = batch_rows
        self.add: Callable[[bytes, bytes, int, int, bytes, ID, ID], int] = self._builder.add
        self.schema: pa.Schema = self._finish().schema

    def is_full(self, more_rows: int) -> bool:
        """Whether the batch must be taken before a node of so many rows is added."""
        rows = self._builder.rows
        return rows > 0 and (
            rows + more_rows > self._batch_rows or self._builder.nbytes >= BATCH_BYTES
        )

    def take(self) -> Iterator[pa.RecordBatch]:
        """What was gathered: one batch, or several if one node has more rows than a batch."""
        if not self._builder.rows:
            return
        batch = self._finish()
        for at in range(0, batch.num_rows, self._batch_rows):
            yield batch if batch.num_rows <= self._batch_rows else batch.slice(at, self._batch_rows)

    def _finish(self) -> pa.RecordBatch:
        batch = self._builder.finish()
        return batch if self._order is None else batch.select(self._order)


def scan_stream(
    engine: Engine, name: bytes, start: StreamID = ZERO_ID, end: StreamID = MAX_ID,
    columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS,
) -> pa.RecordBatchReader:  # fmt: skip
    """The live entries of a closed interval, up to the last one there was at the first batch.

    Each batch is read on snapshots of its own: entries that are deleted meanwhile may still come
    or not; none comes twice, and none that lives is left out.
    """
    import pyarrow as pa

    from logstore.scan import live  # with LMDB, which a reader of splits must not need

    gather = Gather(columns, batch_rows)
    batches = live.batches(engine, name, start, end, gather)
    return pa.RecordBatchReader.from_batches(gather.schema, batches)
