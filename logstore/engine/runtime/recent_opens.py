"""Open nodes that were looked up last, for the next look at the same position of the log.

What the record and the open node of a stream are at a published position is a fact of the log. So a
second look at that position needs neither LMDB nor the log again.

Invariants: what is kept was read by a snapshot that was found sound, and is of exactly one position
in one generation: no commit was published or in progress when the snapshot had been read. It is
used only while that position still is the published end, and no commit is in progress: others may
have seen its rows in LMDB already, and what a thread has seen once must not go again. What goes by
time alone, as a stream that expires does, is not kept, nor anything for a read-only handle, which
must follow the log first. What is kept is never changed. Threads need no lock: they put things into
one dictionary, which is swapped for another at another position. It is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.codec import codec
from logstore.engine.shm.control_block import Wake
from logstore.engine.shm.late_free import let_go
from logstore.ids import StreamID

if TYPE_CHECKING:
    from logstore.codec.making import EntryMaker

STREAMS_MAX = 16
NODE_MAX_BYTES = 64 * 1024


class OpenNow:
    """The listpack of a stream's open node."""

    __slots__ = ("_finder", "lp", "master")

    def __init__(self, master: StreamID, lp: bytes) -> None:
        self.master = master  # IDs from here on stand in this node, or nowhere
        self.lp = lp
        self._finder: Any = None  # made for a second look alone: it walks over the whole node

    def find(self, id: StreamID, maker: EntryMaker) -> Any:
        """The entry with this ID, made; None if there is none."""
        finder = self._finder
        if finder is None:
            finder = codec().NodeFinder(self.lp, self.master.ms, self.master.seq)
            before = self._finder  # another thread may have made one meanwhile
            self._finder = finder
            let_go(before)
        return finder.find(id.ms, id.seq, maker)


class OpensAt:
    """Open nodes at one position, by the name of the stream."""

    __slots__ = ("applied", "generation", "nodes")

    def __init__(self, applied: int, generation: int) -> None:
        self.applied = applied
        self.generation = generation
        self.nodes: dict[bytes, OpenNow] = {}


class RecentOpens:
    """What was looked up at the position where the log was published last."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept = OpensAt(-1, 0)

    def now(self, wake: Wake) -> OpensAt | None:
        """What is kept of the published end of the log; None while a commit is in progress."""
        if wake.in_progress:  # first: a commit that is over by then is in the other word
            return None
        applied, generation = wake.applied, wake.generation()
        kept = self._kept
        if kept.applied == applied and kept.generation == generation:
            return kept
        fresh = OpensAt(applied, generation)
        self._kept = fresh
        let_go(kept)
        return fresh

    def keep(self, wake: Wake, opens: OpensAt, name: bytes, node: OpenNow) -> None:
        """Keep what a snapshot gave that began behind ``now``, unless it may be of later."""
        if len(node.lp) <= NODE_MAX_BYTES and self.now(wake) is opens:
            if len(opens.nodes) >= STREAMS_MAX:
                opens.nodes.clear()
            opens.nodes[name] = node
