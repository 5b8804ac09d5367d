"""Entries of streams, read a slice at a time: XRANGE, XREVRANGE and XREAD.

A slice is what one snapshot gives of at most ``SLICE_ENTRIES`` entries or ``SLICE_STREAMS``
streams, and nothing is held between two: who reads on knows where it stands by ID.

Invariants: a read that is through in one slice is of one moment. One that is not ends, in each of
its streams, where the stream ended at the moment of its first slice (of streams beyond the next
``SLICE_STREAMS``: of the slice that comes near them), so that it is never lengthened by who adds;
what is deleted or trimmed before the read comes to it is not in it; of a stream that is dropped
nothing more is read, also if another one has its name by then. What a slice read counts once it is
whole: it may be read again, on another snapshot.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.codec import NodeEntry
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import read as ranges
from logstore.engine.streams.budget import ByteBudget, entry_bytes
from logstore.engine.streams.read import Batch, Maker
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.wire.resp.outgoing import Rows, entry
from logstore.wire.resp.reply import Reply
from logstore.wire.steps import RangeQuery, Reader

SLICE_ENTRIES = 256
FEW_ENTRIES = 32  # that are looked for before it is known whether they are all
SLICE_STREAMS = 64
_NONE = -1  # in place of the number of a stream that is not there


class End(NamedTuple):
    """Where a stream ended at one moment."""

    number: int
    last: StreamID


class Stretch:
    """What is to be read of one stream: entries between two IDs, at most ``limit`` (-1: all)."""

    def __init__(
        self, key: bytes, low: StreamID, high: StreamID, limit: int = -1, *, reverse: bool = False
    ) -> None:
        self.key = key
        self.limit = limit
        self.begun = False
        self._reverse = reverse
        self._whole = self._rest = (low, high)
        self._number = 0  # of the stream, once its end is settled

    def read(self, view: Snapshot, limit: int, most: int, maker: Maker | None) -> Batch:
        """The next entries of at most ``limit`` (-1: all) in all, and ``most`` now."""
        if self._number:
            record = view.record(self.key)
            if record is None or record.number != self._number:
                return Batch([], None)
        asked = most if limit < 0 else min(limit, most)
        low, high = self._rest
        walked = self._whole if self.begun else None
        batch = ranges.read_on(
            lambda look: look(view),
            self.key,
            ranges.RangeRead(low, high, asked, self._reverse, walked, maker),
        )
        if batch.rest is None and len(batch.entries) == asked != limit:
            return Batch(batch.entries, self._behind(StreamID(*batch.entries[-1][1:3])))
        return batch

    def _behind(self, last: StreamID) -> ranges.Interval | None:
        """What is left behind an entry."""
        low, high = self._rest
        if self._reverse:
            return (low, last.previous()) if low < last else None
        return (last.next(), high) if last < high else None

    def read_whole(self, reader: Reader, limit: int, maker: Maker | None) -> Batch | None:
        """All of it by the shortest way, if that is no more than a slice; None: it may be more.

        Where that is not known before, few are looked for: they are read again if there are more.
        """
        most = limit if 0 <= limit <= SLICE_ENTRIES else FEW_ENTRIES
        batch = reader.batch(RangeQuery(self.key, *self._rest, most, maker, self._reverse))
        if batch is None or batch.rest is not None:
            return None
        return batch if most == limit or len(batch.entries) < most else None

    def went(self, batch: Batch) -> bool:
        """A batch was read; whether more is to be read of the stream."""
        self.begun = True
        if self.limit >= 0:
            self.limit -= len(batch.entries)
        if batch.rest is not None:
            self._rest = batch.rest
        return batch.rest is not None

    @property
    def is_settled(self) -> bool:
        """Whether it is known where it ends, whatever is added."""
        return self._number != 0

    def settle(self, end: End) -> None:
        """Read nothing behind this."""
        low, high = self._rest
        self._number, self._rest = end.number, (low, min(high, end.last))


def behind(key: bytes, start: StreamID) -> Stretch:
    """All of a stream behind an ID."""
    if start == MAX_ID:
        return Stretch(key, MAX_ID, ZERO_ID)  # nothing
    return Stretch(key, start.next(), MAX_ID)


def _end(view: Snapshot, key: bytes) -> End:
    record = view.record(key)
    return End(_NONE, ZERO_ID) if record is None else End(record.number, record.last)


def least(a: int, b: int) -> int:
    """The smaller of two limits, -1: none."""
    return max(a, b) if a < 0 or b < 0 else min(a, b)


class Budget:
    """What one reply may still hold: of each stream, and in all, entries, and bytes as ``room``
    counts them; 0: any."""

    def __init__(self, each: int = 0, most: int = 0, max_bytes: int = 0) -> None:
        self._each = each
        self._left = most or None
        self._bytes = max_bytes or None

    @property
    def spent(self) -> bool:
        """Whether nothing more goes in."""
        return (self._left is not None and self._left <= 0) or (
            self._bytes is not None and self._bytes <= 0
        )

    def count(self, read: int = 0) -> int:
        """How many entries to read of the next stream, once so many more were; -1: all."""
        if self._left is None:
            return self._each or -1
        left = max(0, self._left - read)
        return min(left, self._each) if self._each else left

    @property
    def max_bytes(self) -> int:
        """How many bytes are left; 0: no limit."""
        return self._bytes or 0

    @property
    def weighs(self) -> bool:
        """Whether bytes are counted."""
        return self._bytes is not None

    def room(self) -> ByteBudget | None:
        """The bytes that are left for the next stream; None: they are not counted."""
        return None if self._bytes is None else ByteBudget(self._bytes)

    def take(self, rows: list[NodeEntry], room: ByteBudget) -> list[NodeEntry]:
        """The entries of a stream that still fit; its first one does in any case."""
        if self._bytes is not None:
            kept = next((at for at, row in enumerate(rows) if not room.takes(row[3])), None)
            rows = rows if kept is None else rows[:kept]
            self._bytes = 0 if kept is not None else self._bytes
        self.spend([row[3] for row in rows])
        return rows

    def spend(self, entries: list[list[bytes] | None]) -> None:
        """These are in the reply: fields and values of each."""
        self.spend_entries(len(entries))
        if self._bytes is not None:
            self._bytes -= sum(entry_bytes(items or ()) for items in entries)

    def spend_entries(self, count: int) -> None:
        """So many are in the reply."""
        if self._left is not None:
            self._left -= count


class _Slice(NamedTuple):
    stretches: list[Stretch]
    batches: list[Batch]  # one of each stretch that comes next
    ends: list[tuple[Stretch, End]]  # of those that are not through


class EntriesWalk:
    """Entries of several streams, one stream after the other; ``found`` at the end by stream, of
    those that have some."""

    def __init__(self, stretches: list[Stretch] | None, budget: Budget) -> None:
        self.found: list[tuple[bytes, Reply]] = []
        self._stretches = stretches
        self._left = budget
        self._room: ByteBudget | None = None  # of the stream at hand, if bytes are counted
        self._rows: Rows | None = None
        self._at = 0

    def begin(self, view: Snapshot) -> list[Stretch]:
        """What is to be read, if that depends on what there is."""
        raise NotImplementedError

    def slice(self, reader: Reader) -> bool:
        """Read what comes next; whether another slice follows."""
        rows = self._rows = self._rows or reader.rows()
        maker = None if self._left.weighs else rows.maker
        if self._read_whole(reader, maker):
            return False
        stretches, batches, ends = reader.once(lambda view: self._read(view, maker))
        self._stretches = stretches
        for stretch, batch in zip(stretches[self._at :], batches, strict=False):
            self._take(reader, stretch, batch, maker)
        for stretch, end in ends:
            stretch.settle(end)
        return self._at < len(stretches) and not self._left.spent

    def _read_whole(self, reader: Reader, maker: Maker | None) -> bool:
        """Read the one stream that is wanted by the shortest way, if no slice follows."""
        stretches = self._stretches
        if stretches is None or len(stretches) > 1 or self._left.weighs or stretches[0].begun:
            return False
        limit = least(stretches[0].limit, self._left.count())
        batch = stretches[0].read_whole(reader, limit, maker) if limit else None
        if batch is not None:
            self._take(reader, stretches[0], batch, maker)
        return batch is not None

    def _read(self, view: Snapshot, maker: Maker | None) -> _Slice:
        stretches = self.begin(view) if self._stretches is None else self._stretches
        batches: list[Batch] = []
        place, told, whole = self._at, 0, True
        while whole and place < len(stretches) and told < SLICE_ENTRIES:
            stretch = stretches[place]
            limit = stretch.limit if stretch.begun else least(stretch.limit, self._left.count(told))
            if not limit or len(batches) == SLICE_STREAMS:
                break
            batch = stretch.read(view, limit, SLICE_ENTRIES - told, maker)
            batches.append(batch)
            told += len(batch.entries)
            whole = batch.rest is None
            place += whole
            if self._left.weighs:
                break
        return _Slice(stretches, batches, self._ends(view, stretches[place:]))

    def _ends(self, view: Snapshot, left: list[Stretch]) -> list[tuple[Stretch, End]]:
        return [
            (stretch, _end(view, stretch.key))
            for stretch in left[:SLICE_STREAMS]
            if not stretch.is_settled
        ]

    def _take(self, reader: Reader, stretch: Stretch, batch: Batch, maker: Maker | None) -> None:
        """Tell of a batch, and go on with the next stream if this one is through."""
        rows = self._rows = self._rows or reader.rows()
        left = self._left
        if not stretch.begun:
            self._room = left.room()
            stretch.limit = least(stretch.limit, left.count())
        entries = batch.entries
        if self._room is not None:
            entries = left.take(entries, self._room)
        else:
            left.spend_entries(len(entries))
        if maker is None:
            rows.add([entry(row) for row in entries])
        else:
            rows.take(entries)
        fits = len(entries) == len(batch.entries)
        if stretch.went(batch) and fits:
            return
        told = rows.done()
        if len(told):
            self.found.append((stretch.key, told))
        self._rows = None
        self._at += 1


class RangeWalk(EntriesWalk):
    """Entries of one stream, as an array."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__([stretch], Budget())

    def reply(self) -> Reply:
        """All of them."""
        return self.found[0][1] if self.found else []
