"""One index row by row into another one: the smallest file, with no byte but those of the rows.

LMDB's own copy takes pages as they are: half full where rows came in another order, and with bytes
of what was deleted behind those that count.

Invariants: all rows are of one snapshot; each goes over as it is stored, with its checksum, so what
is damaged stays damaged and is found where it is read; the target is new, and has all databases.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

from logstore.index.env import DATABASES, Generation

PIECE_BYTES = 128 << 10  # in half a millisecond
_MAIN = "main"
_OF_LMDB = frozenset(name.encode() for name in DATABASES)  # its own rows of the main database
Piece: TypeAlias = tuple[str, list[tuple[bytes, bytes]]]  # rows of a database, in their order


def pieces(source: Generation, reading: Any) -> Generator[Piece, None, None]:
    """All that ``reading``, a transaction of ``source``, sees, but for LMDB's own rows."""
    for name in (_MAIN, *DATABASES):
        some: list[tuple[bytes, bytes]] = []
        size = 0
        with reading.cursor(db=source.databases[name]) as cursor:
            for row in cursor.iternext():
                if name == _MAIN and row[0] in _OF_LMDB:
                    continue
                some.append(row)
                size += len(row[0]) + len(row[1])
                if size >= PIECE_BYTES:
                    yield name, some
                    some, size = [], 0
        if some:
            yield name, some


def put(target: Generation, writing: Any, piece: Piece) -> None:
    """Store them behind those before. LMDB's own rows of the main database are there: others go
    before and behind them."""
    name, rows = piece
    with writing.cursor(db=target.databases[name]) as cursor:
        cursor.putmulti(rows, append=name != _MAIN)
