"""Reading a range in batches: each on a snapshot of its own, resumed by ID; and the byte budget.

Invariants: a batch reads at most NODES_MAX nodes or BYTES_MAX bytes, so that no snapshot lives
long; what is appended behind a batch is seen by the next one; entries come in the order of IDs. Of
a budget in bytes the first entry always fits, and the first that does not ends the read, so that
entries are never given out of turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from logstore.codec import NodeEntry, codec
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord

_ID_BYTES = 16
HELD_BYTES = 400  # of memory that an entry takes as values, beside its field names and values
HELD_ITEM_BYTES = 48  # of memory that a field name or value takes beside its bytes


def entry_bytes(items: Iterable[bytes]) -> int:
    """What an entry counts as; ``items``: field, value, field, value, ..."""
    return _ID_BYTES + sum(map(len, items))


class ByteBudget:
    """What is left of the limits of a read.

    ``max_bytes`` bounds the bytes of its entries, ``max_held_bytes`` the memory that these take as
    values; 0: no limit. ``full`` is true once an entry did not fit.
    """

    __slots__ = ("_empty", "_held_left", "_left", "full")

    def __init__(self, max_bytes: int = 0, max_held_bytes: int = 0) -> None:
        self._left = max_bytes or None
        self._held_left = max_held_bytes or None
        self._empty = True
        self.full = False

    def takes(self, items: Sequence[bytes]) -> bool:
        """Whether one more entry fits; it counts then."""
        if self._left is None and self._held_left is None:
            return True
        size = entry_bytes(items)
        over = False
        if self._left is not None:
            self._left -= size
            over = self._left < 0
        if self._held_left is not None:
            self._held_left -= size + HELD_BYTES + HELD_ITEM_BYTES * len(items)
            over = over or self._held_left < 0
        if over and not self._empty:
            self.full = True
            return False
        self._empty = False
        return True


NODES_MAX = 64
BYTES_MAX = 1 << 20


Interval: TypeAlias = tuple[StreamID, StreamID]


class Batch(NamedTuple):
    """Entries of a range, and the rest of it that was not read; None if it was read whole."""

    entries: list[NodeEntry]
    rest: Interval | None


def read_batch(
    engine: Engine, name: bytes, start: StreamID, end: StreamID, limit: int, *,
    reverse: bool = False, walked: Interval | None = None,
) -> Batch:  # fmt: skip
    """The next entries of a closed interval; at most ``limit`` unless it is negative.

    ``walked``: the interval of all batches, if this is one behind the first.
    """
    found = read_on(
        partial(snapshot.read, engine), name, start, end, limit, reverse=reverse, walked=walked
    )
    if found.entries:
        engine.metrics.count("read_entries", len(found.entries))
    return found


def read_on(
    once: Callable[[Callable[[Snapshot], Batch]], Batch], name: bytes, start: StreamID,
    end: StreamID, limit: int, *, reverse: bool = False, walked: Interval | None = None,
) -> Batch:  # fmt: skip
    """The same on what ``once`` reads: a fresh snapshot, or the state inside a commit."""
    if start > end or limit == 0:
        return Batch([], None)
    return once(lambda view: _read(view, name, start, end, limit, reverse, walked))


def _read(
    view: Snapshot, name: bytes, start: StreamID, end: StreamID, limit: int, reverse: bool,
    walked: Interval | None,
) -> Batch:  # fmt: skip
    record = view.record(name)
    if record is None or not record.length:
        return Batch([], None)
    walk = nodes.refs_reverse if reverse else nodes.refs
    entries: list[NodeEntry] = []
    count = size = live = 0
    for ref in walk(view, record, start, end):
        if count >= NODES_MAX or size >= BYTES_MAX:
            if reverse:
                return Batch(entries, (start, _before(ref, entries)))
            return Batch(entries, (_after(ref.master, start, entries), end))
        if not ref.live:
            continue
        live += ref.live
        lp, vector = nodes.listpack(view, record, ref)
        left = -1 if limit < 0 else limit - len(entries)
        entries += codec().entries(lp, *ref.master, vector, start, end, left, reverse)
        if 0 <= limit <= len(entries):
            break
        count += 1
        size += len(lp)
    else:
        if isinstance(view, Snapshot):
            _confirm(view, record, start, end, live, walked)
    return Batch(entries, None)


def _confirm(
    view: Snapshot, record: StreamRecord, start: StreamID, end: StreamID, live: int,
    walked: Interval | None,
) -> None:  # fmt: skip
    """LostRowsError if a walk that came to its end met less than there must be: LMDB's pages have
    no checksum, and nodes of a damaged one seem not to be there.

    A walk of one batch is held against the entries, one of several against the nodes; where nothing
    was met, there must be a place where nothing is.
    """
    if start <= record.first and record.last <= end:
        if live != record.length:
            raise view.lost(record, f"{live} of {record.length} entries")
    elif walked is not None:
        if walked[0] <= record.first and record.last <= walked[1]:
            view.confirm_nodes(record, given=True)
    elif not live and record.first <= start <= record.last:
        if record.open_version and record.open_master <= start:
            found: object = view.open_node(record.number)
        else:
            found = view.index.node_floor(record.number, start)
        if found is None:
            raise view.lost(record, "nothing")


def _after(master: StreamID, start: StreamID, entries: list[NodeEntry]) -> StreamID:
    if not entries:
        return max(master, start)
    last = StreamID(*entries[-1][1:3])
    return last.next() if last < MAX_ID else MAX_ID


def _before(ref: nodes.NodeRef, entries: list[NodeEntry]) -> StreamID:
    if not entries:
        return ref.last
    last = StreamID(*entries[-1][1:3])
    return last.previous() if last > ZERO_ID else ZERO_ID
