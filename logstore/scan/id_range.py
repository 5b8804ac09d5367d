"""What a filter says of streams and IDs: where no row of it can be, so that nothing is read there.

A filter is an expression of pyarrow, which nobody can look into; but its data sets can tell whether
one can hold where something else is known to hold, for that is how they pass over files. So it is
asked about intervals of IDs until the first and the last that can have a row are found.

Invariant: an interval is left out only if pyarrow proved that the filter holds nowhere in it; what
cannot be proved is read, and filtered row by row. Neither the engine nor the index may be imported
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_
from typing import Any

from logstore.ids import U64_MAX, StreamID

I64_MAX = (1 << 63) - 1
TS_MAX_MS = 253_402_300_799_999  # the end of the year 9999: the column ``ts`` is null after it
ID_COLUMNS = ("ms", "ts", "id_key")


class Possible:
    """Asks where a filter can hold; ``schema`` has all columns that it names, and these:
    ``stream``, ``ms``, ``ts``, ``id_key``."""

    def __init__(self, condition: Any, schema: Any) -> None:
        from pyarrow import dataset, fs

        self._condition = condition
        self._schema = schema
        self._dataset = dataset
        self._format = dataset.IpcFileFormat()  # no file is ever opened
        self._files = fs.LocalFileSystem()

    def _can_hold(self, known: Iterable[Any]) -> bool:
        """Whether it can hold where one of some expressions does."""
        fragments = [
            self._format.make_fragment("none", self._files, partition_expression=each)
            for each in known
        ]
        made = self._dataset.FileSystemDataset(fragments, self._schema, self._format, self._files)
        return any(True for _ in made.get_fragments(filter=self._condition))

    def streams(self, names: Iterable[bytes]) -> list[bytes]:
        """The streams that can have rows."""
        import pyarrow.compute as pc

        found = []
        for name in names:
            try:
                known = pc.equal(pc.field("stream"), name.decode())
            except UnicodeDecodeError:  # the column has other letters in their place
                known = None
            if known is None or self._can_hold([known]):
                found.append(name)
        return found

    def interval(self, start: StreamID, end: StreamID) -> tuple[StreamID, StreamID] | None:
        """The part of a closed interval outside of which no row can be; None: no row can be."""
        low, high = (each.ms << 64 | each.seq for each in (start, end))
        if not self._between(low, high):
            return None
        first = _smallest(low, high, lambda at: self._between(low, at))
        # From above, the same: what is counted up is how far down it goes.
        down = _smallest(0, high - first, lambda by: self._between(high - by, high))
        # What each end leaves may be nothing together: ms > 1 and ms < 2.
        return (_id(first), _id(high - down)) if self._between(first, high - down) else None

    def _between(self, low: int, high: int) -> bool:
        known, at = [], low
        for edge in (TS_MAX_MS, I64_MAX, U64_MAX):
            until = min(high, (edge << 64) | U64_MAX)
            if at <= until:
                known.append(self._known(_id(at), _id(until)))
                at = until + 1
        return self._can_hold(known)

    def _known(self, low: StreamID, high: StreamID) -> Any:
        """What is known of an ID of a closed interval on one side of the edges."""
        import pyarrow as pa
        import pyarrow.compute as pc

        key, ms, ts = (pc.field(name) for name in ("id_key", "ms", "ts"))
        known = [key >= _key(low), key <= _key(high)]
        if self._schema.field("ms").type == pa.int64():
            known += [ms.is_null()] if low.ms > I64_MAX else [ms >= low.ms, ms <= high.ms]
        if low.ms > TS_MAX_MS:
            known.append(ts.is_null())
        else:
            kind = self._schema.field("ts").type
            known += [ts >= pa.scalar(low.ms * 1000, kind), ts <= pa.scalar(high.ms * 1000, kind)]
        return reduce(and_, known)


def _smallest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest number at which something holds that holds at ``high``, by halving."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _id(number: int) -> StreamID:
    return StreamID(number >> 64, number & U64_MAX)


def _key(id: StreamID) -> bytes:
    return id.ms.to_bytes(8) + id.seq.to_bytes(8)
