"""The index as a reader sees it where entries of sealed nodes were deleted that still live in it.

Invariants: each locator that is given out has the tombstones of all frames up to
``meta().applied``, however it was asked for, as bytes of a row, too; those are sealed anew. A
tombstone counts only for the version of the node that it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logstore.engine.runtime.overlaid_index import OverlaidIndex
from logstore.engine.runtime.plain_frames import mark_sealed
from logstore.engine.runtime.published_tail import PublishedTail, Tail
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index import keys
from logstore.index.env import Generation
from logstore.index.keys import Locator, Meta
from logstore.index.txn import IndexTxn
from logstore.log.frame import Tombstone
from logstore.row_seal import seal, unseal

_KEY = keys.NODE_KEY.pack
Row = tuple[bytes, bytes]


class OverlaidNodes(OverlaidIndex):
    """The index with a published tail over it that has tombstones."""

    __slots__ = ("_gone",)

    def __init__(
        self, generation: Generation, txn: Any, meta: Meta, tail: Tail, published: PublishedTail
    ) -> None:
        """As of ``OverlaidIndex``."""
        super().__init__(generation, txn, meta, tail, published)
        self._gone: dict[bytes, list[Tombstone]] = {}  # by the key of the node's row
        for at, body in tail.tombstones:
            if at >= meta.applied and isinstance(body, Tombstone):
                key = _KEY(body.stream, body.master_ms, body.master_seq)
                self._gone.setdefault(key, []).append(body)

    def node(self, stream: int, master: StreamID) -> Locator | None:
        """The sealed node with this master ID."""
        found = IndexTxn.node(self, stream, master)
        return None if found is None else self._marked(stream, master, found)

    def node_floor(self, stream: int, at: StreamID) -> tuple[StreamID, Locator] | None:
        """The sealed node with the largest master ID not above ``at``."""
        return self._pair(stream, IndexTxn.node_floor(self, stream, at))

    def first_node(self, stream: int) -> tuple[StreamID, Locator] | None:
        """The sealed node with the smallest master ID."""
        return self._pair(stream, IndexTxn.first_node(self, stream))

    def node_from(
        self, stream: int, at: StreamID
    ) -> tuple[StreamID, Locator, StreamID | None] | None:
        """As of ``IndexTxn``."""
        found = IndexTxn.node_from(self, stream, at)
        if found is None:
            return None
        master, locator, above = found
        return master, self._marked(stream, master, locator), above

    def nodes(
        self,
        stream: int,
        start: StreamID = ZERO_ID,
        end: StreamID = MAX_ID,
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[StreamID, Locator]]:
        """Sealed nodes with master IDs in the closed interval."""
        for master, locator in IndexTxn.nodes(self, stream, start, end, reverse=reverse):
            yield master, self._marked(stream, master, locator)

    def all_nodes(self, after: bytes = b"") -> Iterator[tuple[bytes, int, StreamID, Locator]]:
        """As of ``IndexTxn``."""
        for key, stream, master, locator in IndexTxn.all_nodes(self, after):
            yield key, stream, master, self._marked(stream, master, locator)

    def node_rows(self, stream: int, start: StreamID, count_max: int) -> list[Row]:
        """As of ``IndexTxn``."""
        return self._rows(IndexTxn.node_rows(self, stream, start, count_max))

    def neighbours(
        self, stream: int, at: tuple[int, int], count: int, *, reverse: bool = False
    ) -> tuple[list[Row], bool, bool]:
        """As of ``IndexTxn``."""
        rows, at_front, at_back = IndexTxn.neighbours(self, stream, at, count, reverse=reverse)
        return self._rows(rows), at_front, at_back

    def rows_from(self, after: bytes, most: int) -> tuple[list[Row], bytes | None]:
        """As of ``IndexTxn``."""
        rows, following = IndexTxn.rows_from(self, after, most)
        return self._rows(rows), following

    def _pair(
        self, stream: int, found: tuple[StreamID, Locator] | None
    ) -> tuple[StreamID, Locator] | None:
        return None if found is None else (found[0], self._marked(stream, *found))

    def _marked(self, stream: int, master: StreamID, locator: Locator) -> Locator:
        return mark_sealed(locator, self._gone.get(_KEY(stream, *master), ()))

    def _rows(self, rows: list[Row]) -> list[Row]:
        return [self._row(key, data) if key in self._gone else (key, data) for key, data in rows]

    def _row(self, key: bytes, data: bytes) -> Row:
        locator = Locator.unpack(unseal(key, data))
        return key, seal(key, mark_sealed(locator, self._gone[key]).pack())
