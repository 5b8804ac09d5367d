"""The nodes of one stream of an RDB file, verified, in pieces.

Invariants: what can be verified many at a time is; a node that cannot, since it lies across two
reads of the file, is compressed, or is damaged, is looked at by itself, and tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.engine.dump import restore
from logstore.engine.dump.restore import Edge, Part
from logstore.rdb.filereader import StreamKey
from logstore.transfer.intake import Piece


def pieces(key: StreamKey, most_bytes: int) -> Iterator[tuple[Piece, bool]]:
    """Pieces of about ``most_bytes``, and whether more may follow; at least one, empty if there
    are no nodes. InvalidPayloadError, CorruptNodeError."""
    parts: list[Part] = []
    edge = Edge()
    size = 0
    for part, after in _parts(key):
        parts.append(part)
        edge = after
        size += restore.part_bytes(part)
        if size >= most_bytes:
            yield Piece(parts, edge), True
            parts, size = [], 0
    yield Piece(parts, edge), False


def _parts(key: StreamKey) -> Iterator[tuple[Part, Edge]]:
    edge = Edge()
    nodes = key.nodes()
    while True:
        batch = key.batch(edge.top)
        if len(batch):
            edge = restore.behind(edge, batch)
            yield batch, edge
            continue
        node = next(nodes, None)
        if node is None:
            return
        sealed, edge = restore.verify([node], edge)
        yield sealed, edge
