"""Nodes to Arrow record batches of bounded size; the scan of a stream.

Invariants: a batch has at most ``batch_rows`` rows and, but for its last node, at most BATCH_BYTES;
rows come in the order of IDs; columns come in the order asked for. No index is needed to turn nodes
into batches: what a Spark executor imports from here reaches neither the engine nor LMDB.

A name that is none of the standard columns is a field of the entries: a column of text, null where
an entry has no such field, the last value where it has several.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from logstore.codec import ARROW_COLUMNS, ID, ArrowBuilder, codec
from logstore.errors import OptionError
from logstore.ids import MAX_ID, ZERO_ID, StreamID

if TYPE_CHECKING:
    import pyarrow as pa

    from logstore.engine.core import Engine

BATCH_BYTES = 8 << 20
BATCH_ROWS = 65536
BATCH_ROWS_MAX = 16_777_216


class Gather:
    """Nodes gathered into record batches; ``binary`` names columns whose values stay bytes."""

    def __init__(
        self, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS, *,
        binary: Collection[str] = (),
    ) -> None:  # fmt: skip
        if not 1 <= batch_rows <= BATCH_ROWS_MAX:
            raise OptionError(f"batch_rows must be 1 to {BATCH_ROWS_MAX}: {batch_rows}")
        names = list(ARROW_COLUMNS) if columns is None else list(columns)
        text = [name for name in names if name not in binary]
        raw = [name for name in names if name in binary]
        first = _builder(text, binary=False) if text or not raw else _builder(raw, binary=True)
        self._builders = [first]
        if text and raw:  # a builder makes all values text or all of them bytes
            self._builders.append(_builder(raw, binary=True))
        self._names = names
        self._batch_rows = batch_rows
        self.add: Callable[[bytes, bytes, int, int, bytes, ID, ID], int] = (
            self._add_to_all if text and raw else first.add
        )
        self.schema: pa.Schema = self._finish().schema

    def _add_to_all(
        self, name: bytes, lp: bytes, ms: int, seq: int, vector: bytes, start: ID, end: ID
    ) -> int:
        return max([each.add(name, lp, ms, seq, vector, start, end) for each in self._builders])

    def is_full(self, more_rows: int) -> bool:
        """Whether the batch must be taken before a node of so many rows is added."""
        rows = self._builders[0].rows
        return rows > 0 and (
            rows + more_rows > self._batch_rows
            or sum(each.nbytes for each in self._builders) >= BATCH_BYTES
        )

    def take(self) -> Iterator[pa.RecordBatch]:
        """What was gathered: one batch, or several if one node has more rows than a batch."""
        if not self._builders[0].rows:
            return
        batch = self._finish()
        for at in range(0, batch.num_rows, self._batch_rows):
            yield batch if batch.num_rows <= self._batch_rows else batch.slice(at, self._batch_rows)

    def _finish(self) -> pa.RecordBatch:
        import pyarrow as pa

        parts = [each.finish() for each in self._builders]
        if len(parts) == 1 and parts[0].schema.names == self._names:
            return parts[0]
        found = {
            field.name: (field, part.column(at))
            for part in parts
            for at, field in enumerate(part.schema)
        }
        schema = pa.schema([found[name][0] for name in self._names])
        return pa.RecordBatch.from_arrays([found[name][1] for name in self._names], schema=schema)


def _builder(names: Sequence[str], *, binary: bool) -> ArrowBuilder:
    standard = [name for name in names if name in ARROW_COLUMNS]
    fields = [name for name in names if name not in ARROW_COLUMNS]
    return codec().ArrowBuilder(standard, fields, binary)


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
