"""Scans of several streams merged to one, in the order of IDs.

Of each stream a batch is held. Up to the smallest of their last IDs nothing can be missing: what is
not above it is put into order and given out, and the streams that are used up are read on.

Invariants: rows come in the order of IDs, those of one ID in the order in which the streams are
named; a stream's own order is kept; memory holds one batch a stream, which are the smaller the more
streams there are. Neither the engine nor the index may be imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from logstore.errors import OptionError
from logstore.scan.conversion import Target

STREAMS_MAX = 1024
ROWS_MIN = 256
KEY = "\0id_key"


def key_column() -> Target:
    """The column by which is merged, which the batches must have."""
    import pyarrow as pa

    return Target(KEY, pa.binary(), "id_key")


def rows_each(streams: int, rows: int) -> int:
    """How many rows of a stream are held; OptionError for too many streams."""
    if streams > STREAMS_MAX:
        raise OptionError(
            f"{streams} streams cannot be merged, {STREAMS_MAX} at most: name fewer of them, or "
            "scan without merge and sort by id_key"
        )
    return max(ROWS_MIN, rows // streams)


class _Head:
    """What is held of a stream: a batch that is not empty, and what comes behind it."""

    def __init__(self, batch: Any, rest: Iterator[Any]) -> None:
        self.rest = rest
        self._hold(batch)

    def _hold(self, batch: Any) -> None:
        self._batch = batch
        self._keys = batch.column(KEY)
        self.first: bytes = self._keys[0].as_py()
        self.last: bytes = self._keys[-1].as_py()

    def take(self, border: bytes) -> tuple[Any, bool]:
        """What is not above a border, which something is; whether there is more in the stream."""
        import pyarrow.compute as pc

        batch = self._batch
        if self.last <= border:
            more = next(self.rest, None)
            if more is not None:
                self._hold(more)
            return batch, more is not None
        count = pc.sum(pc.less_equal(self._keys, border)).as_py()
        self._hold(batch.slice(count))
        return batch.slice(0, count), True


def merged(readers: Sequence[Iterator[Any]]) -> Iterator[Any]:
    """The batches of several streams as one reading. None of them has an empty batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    heads = {
        place: _Head(batch, reader)
        for place, reader in enumerate(readers)
        if (batch := next(reader, None)) is not None
    }
    while heads:
        border = min(head.last for head in heads.values())
        pieces = []
        for place, head in list(heads.items()):
            if head.first <= border:
                piece, more = head.take(border)
                pieces.append(piece)
                if not more:
                    del heads[place]
        if len(pieces) == 1:
            yield pieces[0]
            continue
        table = pa.Table.from_batches(pieces).combine_chunks()
        # A stable sort: what has the same ID stays in the order of the streams.
        order = pc.sort_indices(table, sort_keys=[(KEY, "ascending")])
        yield from table.take(order).to_batches()
