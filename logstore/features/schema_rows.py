"""The schemas of streams, as they are stored: the frame, rows, and their part of a checkpoint.

A frame holds the whole text of a stream's schema after it (``schema.schema_text``); an empty text:
it has none. The record of the stream says where that frame stands, so whoever has the record knows
whether there is a schema, and whether it is the one that he knows.

Invariants: a stream has a row if and only if its record names a frame, and the row is what that
frame said. Rows end with their stream. An older record names no frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from logstore import format as fmt
from logstore.features import feature
from logstore.format import Kind
from logstore.tuples import NamedTuple

TEXT_MAX_BYTES = 256 << 10  # as ``stream_schema`` has it, which is loaded with the first schema
_STREAM = struct.Struct(">Q")


class StoredSchema(NamedTuple):
    """The schema of a stream from here on; an empty text: it has none."""

    stream: int
    text: str


def _encode(body: StoredSchema) -> bytes:
    return fmt.SCHEMA_BODY.pack(body.stream) + body.text.encode()


def _decode(payload: bytes) -> StoredSchema:
    (stream,) = fmt.SCHEMA_BODY.unpack_from(payload)
    data = payload[fmt.SCHEMA_BODY.size :]
    if len(data) > TEXT_MAX_BYTES:
        raise struct.error(f"more than {TEXT_MAX_BYTES} bytes of a schema")
    try:
        return StoredSchema(stream, data.decode())
    except UnicodeDecodeError as error:
        raise struct.error(f"not the text of a schema: {error}") from error


class SchemaRows(feature.FeatureRows):
    """The texts of schemas."""

    __slots__ = ()
    DATABASE = "schemas"

    def text(self, stream: int) -> str | None:
        """The schema of a stream."""
        value = self._get(_STREAM.pack(stream))
        return None if value is None else value.decode()

    def put(self, stream: int, text: str) -> None:
        """Set the schema of a stream; an empty text: it has none."""
        if text:
            self._put(_STREAM.pack(stream), text.encode())
        else:
            self._delete(_STREAM.pack(stream))

    def rows(self, after: int = 0) -> Iterator[tuple[int, str]]:
        """Streams that have a schema, with a number above ``after``."""
        for key, value in self._scan(_STREAM.pack(after + 1)):
            yield _STREAM.unpack(key)[0], value.decode()


def _apply(txn: feature.Txn, at: int, body: StoredSchema) -> None:
    record = txn.advance(body.stream, at)
    if record is not None:
        SchemaRows(txn.index).put(body.stream, body.text)
        record.schema_at = at if body.text else 0


def _page(index: feature.Index, after: int | None) -> feature.Page[int]:
    return feature.page_of("schemas", SchemaRows(index).rows(after or 0), lambda row: row[0])


def _load(txn: feature.Txn, chunk: dict[str, Any]) -> None:
    for stream, text in feature.of_present(txn, chunk["rows"], lambda row: row[0]):
        SchemaRows(txn.index).put(stream, text)


FEATURE = feature.Feature(
    database=SchemaRows.DATABASE,
    frames=(
        feature.FrameKind(Kind.SCHEMA, (StoredSchema,), _encode, _decode, _apply, of_record=True),
    ),
    copies=(feature.Copied("schemas", _page, _load),),
    compares=(feature.Compared("schemas differ", lambda index: SchemaRows(index).rows()),),
    dropped=lambda txn, stream: SchemaRows(txn.index).put(stream, ""),
)
