"""Listed nodes as blocks of a snapshot file, in runs of neighbours that are read apart.

Invariants: a block ends with its run, with its stream, or at BLOCK_BYTES; runs are named by the
byte range of their blocks, and every node is in one of them. What is written is durable, with the
table that says where the runs are, before it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from logstore.codec import Section
from logstore.codec.node_list import NodeList
from logstore.ids import ZERO_ID, StreamID
from logstore.scan.snapshot_file import Split, Writer

BLOCK_BYTES = 64 << 10


class Listed(Protocol):
    """Nodes of streams; ``sections``: what they are of, each from which node on."""

    nodes: NodeList
    sections: list[tuple[int, Section]]


def write(
    writer: Writer,
    place: Split,
    found: Listed,
    cuts: Sequence[int],
    table: Callable[[Sequence[Split]], bytes],
) -> tuple[list[Split], int]:
    """The runs between the ``cuts`` as splits, and where in the file their ``table`` is."""
    splits: list[Split] = []
    ends = sorted({*cuts, *(first for first, _ in found.sections)})
    pieces = iter(found.nodes.pieces(ends, BLOCK_BYTES))
    at = node = number = 0
    try:
        for high in cuts[1:]:
            offset, low, entries, size = writer.offset, node, 0, 0
            first = last = (0, 0)
            while node < high:
                one = next(pieces)
                while number + 1 < len(found.sections) and found.sections[number + 1][0] <= node:
                    number += 1
                writer.block(found.sections[number][1], one.nodes, found.nodes.items(at, one.end))
                if node == low:
                    first = one.first
                last, entries, size = one.last, entries + one.live, size + one.size_bytes
                at, node = one.end, node + one.nodes
            splits.append(
                place._replace(
                    offset=offset,
                    size_bytes=writer.offset - offset,
                    first=StreamID(*first),
                    last=StreamID(*last),
                    nodes=node - low,
                    entries=entries,
                    data_bytes=size,
                )
            )
        table_at = writer.offset
        writer.block((b"", 0, ZERO_ID, ZERO_ID), 0, table(splits))
        writer.finish()
    finally:
        writer.close()
    return splits, table_at
