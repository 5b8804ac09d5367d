"""Rows of an add, held against the schema of their stream.

Whoever adds may have written the values by a schema before any lock is taken, and says so with the
position of its frame. If the stream has another one now, or rows come as they are, they are written
by the stream's own here, in the commit.

Invariants: a row that is stored has for each column the one text of its value. What is parsed is
kept by its text, so that an add parses nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from logstore.codec import RowBatch, codec
from logstore.errors import CorruptionError, SchemaError
from logstore.features.feature import Index
from logstore.features.schema_rows import SchemaRows
from logstore.index.keys import StreamRecord
from logstore.schema.schema_text import parse
from logstore.schema.stream_schema import Schema

parsed = lru_cache(maxsize=256)(parse)


def schema_of(index: Index, record: StreamRecord) -> Schema | None:
    """The schema of a stream; None if it has none. CorruptionError if it is lost."""
    if not record.schema_at:
        return None
    text = SchemaRows(index).text(record.number)
    if text is None:
        raise CorruptionError(
            f"the index lost the schema of stream {record.name!r}: delete its directory and reopen"
        )
    return parsed(text)


def written(
    schema: Schema, batch: RowBatch, first: int, end: int, row: int | None = None
) -> RowBatch:
    """Rows ``first`` to ``end`` (exclusive), with the one text of each value. SchemaError names the
    row; ``row`` is the number of the first one, where the caller counts from elsewhere."""
    rows: list[list[tuple[bytes, Any]]] = []
    for at in range(first, end):
        flat = batch.flat(at)
        try:
            rows.append(schema.row(zip(flat[::2], flat[1::2], strict=True)))
        except SchemaError as error:
            if row is not None or end - first > 1:
                error = SchemaError(f"row {(row or 0) + at - first}: {error.message}")
            raise error from None
    return codec().rows(rows)
