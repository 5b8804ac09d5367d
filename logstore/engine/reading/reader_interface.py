"""What both twins of the cache of nodes do, and what the read core does.

Invariants: types alone; the twins are tested by the same tests.
"""

from __future__ import annotations

from typing import Any, Protocol

NODES_MAX_BYTES = 16 << 20  # of nodes that one process keeps of one store
STREAMS_MAX_BYTES = 8 << 20  # of open nodes and of places of nodes
PAGE_NODES = 64  # places of so many neighbours are read at once


class NodeCache(Protocol):
    """Verified listpacks of sealed nodes, by their positions."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the nodes that are held, with the cost of each besides its listpack."""
        ...

    def get(
        self, position: int, stream: int, master: tuple[int, int], lp_bytes: int, /
    ) -> bytes | None:
        """The listpack of so many bytes at a position, of this node; None if it is not kept."""
        ...

    def put(self, position: int, stream: int, master: tuple[int, int], lp: bytes, /) -> None:
        """Keep a listpack that was read from there and checked; others may go for it."""
        ...

    def clear(self) -> None:
        """Forget all."""
        ...


class Reader(Protocol):
    """The read core of one engine. What gives ``MISS`` has read nothing."""

    def record(self, name: bytes) -> Any:
        """A stream's record at the published end; None for one that has expired; or MISS."""
        ...

    def schema_at(self, name: bytes) -> Any:
        """The position of the frame of a stream's schema, 0 if it has none; or MISS."""
        ...

    def get(self, name: bytes, id: tuple[int, int], maker: Any) -> Any:
        """The entry with this ID, made; None; or MISS."""
        ...

    def batch(
        self,
        name: bytes,
        start: tuple[int, int],
        end: tuple[int, int],
        limit: int,
        reverse: bool,
        walked: Any,
        decode: Any,
    ) -> Any:
        """Entries of an interval, and where to go on; or MISS.

        The second is None if the interval was read to its end, or as many entries as wanted were
        found; else the master ID of the first node that was not read, with ``reverse`` its last ID.
        """
        ...

    def place(self, name: bytes, ms: int, seq: int) -> Any:
        """The sealed node into which an ID belongs, at the published end: its master ID in two
        parts, its position, how many entries live, the vector of those that do not, its listpack;
        None; or MISS."""
        ...

    def place_in(self, stream: Any, view: Any, ms: int, seq: int) -> Any:
        """As ``place``, in the snapshot that gave the stream."""
        ...

    def of(self, view: Any, name: bytes) -> Any:
        """What a snapshot says of a stream, to be read in and to be kept; None without a stream."""
        ...

    def get_in(self, stream: Any, view: Any, id: tuple[int, int], maker: Any) -> Any:
        """As ``get``, in that snapshot."""
        ...

    def batch_in(
        self,
        stream: Any,
        view: Any,
        start: tuple[int, int],
        end: tuple[int, int],
        limit: int,
        reverse: bool,
        decode: Any,
    ) -> Any:
        """As ``batch``, in that snapshot; then how many entries were met, -1 unless the interval
        was read to its end."""
        ...

    def keep(self, stream: Any) -> None:
        """Keep what a snapshot said that was found sound, unless the log has gone on."""
        ...

    def close(self) -> None:
        """Forget all, and let go of the control block and of files. Safe to repeat."""
        ...
