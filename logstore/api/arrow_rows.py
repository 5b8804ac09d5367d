"""Rows of Arrow, to be added: tables, batches and readers as batches of rows with their IDs.

Invariants: columns are refused before a row is looked at; rows of what is read in batches are taken
outside every lock; memory holds the rows of one commit, beside what a reader holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logstore.codec import GivenIDs, RowBatch, codec
from logstore.engine.streams.add import AUTO, AutoID
from logstore.errors import EntryTypeError


def reader_of(data: Any) -> Any:
    """What is added as a reader of record batches; EntryTypeError."""
    import pyarrow as pa

    if type(data).__module__.partition(".")[0] == "pandas":  # whose index is no field
        data = pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    raise EntryTypeError(
        f"give a table, record batch or reader of Arrow, or a DataFrame, not {type(data).__name__}"
    )


def batches(
    data: Any, size: int, id_column: str = ""
) -> Iterator[tuple[AutoID | GivenIDs, RowBatch]]:
    """Rows in batches, each with its IDs. OptionError for columns that cannot be."""
    from logstore.scan import intake

    reader = reader_of(data)
    layout = intake.layout(reader.schema, id_column, streams=False)
    return _batches(reader, size, layout)


def _batches(reader: Any, size: int, layout: Any) -> Iterator[tuple[AutoID | GivenIDs, RowBatch]]:
    from logstore.scan import intake

    row = 0
    for batch in _sized(reader, size):
        ids = intake.row_ids(batch, layout, row) if layout.id_kind else None
        rows = intake.ready_rows(batch, layout, row)
        row += batch.num_rows
        yield AUTO if ids is None else codec().given_numbers(*ids), rows


def _sized(reader: Any, size: int) -> Iterator[Any]:
    """The batches of a reader, with so many rows each, but for the last one."""
    import pyarrow as pa

    held: list[Any] = []
    rows = 0
    for batch in reader:
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, size - rows)
            held.append(part)
            at, rows = at + part.num_rows, rows + part.num_rows
            if rows == size:
                yield from pa.Table.from_batches(held).combine_chunks().to_batches()
                held, rows = [], 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()
