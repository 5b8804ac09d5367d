"""Where a filter of a scan can hold: its streams, and its first and last ID.

A filter is an expression of pyarrow, whose parts cannot be read. But the data sets of pyarrow can
tell whether an expression can hold where another one is known to hold: that is how they skip files.
So `FilterRange` asks about intervals of IDs until it finds the first and the last ID that can have
a row.

Invariants: an interval is left out only if pyarrow proved that the filter holds nowhere in it.
Neither the engine nor the index may be imported here.
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


class FilterRange:
    """Finds where a filter can hold. ``schema`` has all columns that the filter names, and
    ``stream``, ``ms``, ``ts``, ``id_key``."""

    def __init__(self, condition: Any, schema: Any) -> None:
        from pyarrow import dataset, fs

        self._condition = condition
        self._schema = schema
        self._dataset = dataset
        self._format = dataset.IpcFileFormat()  # no file is ever opened
        self._files = fs.LocalFileSystem()

    def _can_hold(self, known: Iterable[Any]) -> bool:
        """Whether the filter can hold where one of some expressions holds."""
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
            except UnicodeDecodeError:  # the column shows such a name with other letters
                known = None
            if known is None or self._can_hold([known]):
                found.append(name)
        return found

    def interval(self, start: StreamID, end: StreamID) -> tuple[StreamID, StreamID] | None:
        """The part of a closed interval that can have rows; None: none of it can."""
        if not self._between(start, end):
            return None
        # By milliseconds first; only ``id_key`` tells more.
        low_ms = _smallest(
            start.ms, end.ms, lambda ms: self._between(start, min(end, StreamID(ms, U64_MAX)))
        )
        first = max(start, StreamID(low_ms, 0))
        down = _smallest(
            0, end.ms - low_ms, lambda by: self._between(max(first, StreamID(end.ms - by, 0)), end)
        )
        last = min(end, StreamID(end.ms - down, U64_MAX))
        if "id_key" in str(self._condition):
            first, last = self._by_sequence(first, last)
        # Each end alone may leave an interval in which both leave nothing: ms > 1 and ms < 2.
        return (first, last) if self._between(first, last) else None

    def _by_sequence(self, first: StreamID, last: StreamID) -> tuple[StreamID, StreamID]:
        """Move both ends within their milliseconds."""
        top = last.seq if first.ms == last.ms else U64_MAX
        low = _smallest(first.seq, top, lambda seq: self._between(first, StreamID(first.ms, seq)))
        found = StreamID(first.ms, low)
        bottom = low if first.ms == last.ms else 0
        down = _smallest(
            0,
            last.seq - bottom,
            lambda by: self._between(StreamID(last.ms, last.seq - by), last),
        )
        return found, StreamID(last.ms, last.seq - down)

    def _between(self, start: StreamID, end: StreamID) -> bool:
        known, at = [], start
        for edge in (TS_MAX_MS, I64_MAX, U64_MAX):
            until = min(end, StreamID(edge, U64_MAX))
            if at <= until:
                known.append(self._facts(at, until))
                if until == end:
                    break
                at = until.next()
        return self._can_hold(known)

    def _facts(self, low: StreamID, high: StreamID) -> Any:
        """What holds for each ID of a closed interval that crosses none of the edges."""
        import pyarrow as pa
        import pyarrow.compute as pc

        key, ms, ts = (pc.field(name) for name in ("id_key", "ms", "ts"))
        known = [key >= low.packed(), key <= high.packed()]
        if self._schema.field("ms").type == pa.int64():
            known += [ms.is_null()] if low.ms > I64_MAX else [ms >= low.ms, ms <= high.ms]
        if low.ms > TS_MAX_MS:
            known.append(ts.is_null())
        else:
            kind = self._schema.field("ts").type
            known += [ts >= pa.scalar(low.ms * 1000, kind), ts <= pa.scalar(high.ms * 1000, kind)]
        return reduce(and_, known)


def _smallest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest number for which ``holds`` is true, by halving; it is for ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
