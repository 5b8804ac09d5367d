"""Rows of an add, held against the schema of their stream. Spark's executors have no engine, and
hold theirs against it, too.

Whoever adds may have written the values by a schema before any lock is taken, and says so with the
position of its frame. If the stream has another one now, or rows come as they are, they are written
by the stream's own here, in the commit.

Invariants: a row that is stored has for each column the one text of its value. What is parsed is
kept by its text, so that an add parses nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from logstore.codec import RowBatch, codec
from logstore.codec.column_keys import COLUMNS_MAX, RangedColumn, kind_of, ranged_column
from logstore.errors import CorruptionError, SchemaError
from logstore.features.feature import Index, Record
from logstore.features.schema_rows import SchemaRows
from logstore.schema.column_types import Enum
from logstore.schema.schema_text import parse
from logstore.schema.stream_schema import Column, Schema

if TYPE_CHECKING:
    from logstore.codec.row_batch import RowWriter, WrittenColumn

parsed = lru_cache(maxsize=256)(parse)


def written_columns(schema: Schema) -> list[WrittenColumn]:
    """The columns of a schema, as what writes rows by them wants them."""
    return [
        (
            each.name,
            each.field,
            kind_of(each.type),
            each.type.write,
            each.nullable,
            each.default,
            each.type.texts if isinstance(each.type, Enum) else None,
        )
        for each in schema.columns
    ]


def ranged_columns(schema: Schema) -> list[tuple[Column, RangedColumn]]:
    """The columns of a schema that have ranges, the first COLUMNS_MAX of them."""
    found = [(each, ranged_column(each.field, each.type)) for each in schema.columns]
    return [(each, ranged) for each, ranged in found if ranged is not None][:COLUMNS_MAX]


@lru_cache(maxsize=256)
def row_writer(schema: Schema) -> RowWriter:
    """What writes rows by a schema; made once."""
    return codec().RowWriter(written_columns(schema), schema.is_open, schema.row)


def schema_of(index: Index, record: Record) -> Schema | None:
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
    schema: Schema, batch: RowBatch, first: int, end: int, number: int | None = None
) -> RowBatch | None:
    """Rows ``first`` to ``end`` (exclusive), with the one text of each value; None: they have that.
    SchemaError names the row; ``number`` is that of the first one, for who counts from elsewhere.
    """
    writer = row_writer(schema)
    rows: dict[int, list[tuple[bytes, Any]]] = {}
    for at in range(first, end):
        try:
            row = writer.rewritten(batch.flat(at))
        except SchemaError as error:
            if number is not None or end - first > 1:
                error = SchemaError(f"row {(number or 0) + at - first}: {error.message}")
            raise error from None
        if row is not None:
            rows[at] = row
    if not rows:
        return None
    return codec().rows([rows.get(at) or _pairs(batch.flat(at)) for at in range(first, end)])


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
