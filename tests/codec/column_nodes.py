"""What the tests of ranges and filters share: nodes of entries, and what readers read there."""

from __future__ import annotations

from typing import Any

from logstore.codec import Codec
from logstore.codec.column_keys import RangedColumn, ranged_column
from logstore.schema.column_types import ColumnType

Pairs = list[tuple[bytes, bytes]]


def node_of(codec: Codec, rows: list[Pairs], deleted: list[int]) -> bytes:
    """A node with these entries, some of them deleted in it."""
    made: list[Any] = [pairs or [(b"other", b"")] for pairs in rows]
    batch = codec.rows(made)
    packed = codec.pack(batch, 0, len(rows), (5, 0), None, 0, 0, 1 << 20, 1 << 20)
    lp = packed.nodes[0].lp
    return codec.mark_deleted(lp, deleted) if deleted else lp


def columns_of(kinds: dict[bytes, ColumnType]) -> list[RangedColumn]:
    """The columns, each of which has ranges."""
    found = [ranged_column(name, kind) for name, kind in kinds.items()]
    return [each for each in found if each is not None]


def values_of(kind: ColumnType, texts: list[bytes | None]) -> list[Any]:
    """What readers read of these texts."""
    found = []
    for text in texts:
        try:
            value = None if text is None else kind.read(text)
        except ValueError:
            value = None
        found.append(value)
    return found
