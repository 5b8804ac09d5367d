"""Neighbouring losses of a stream told as one range: a segment that is cut off loses thousands of
nodes for one cause, and a line for each would hide all else.

Invariants: a range covers no entry that is there beside those that its parts cover, nor losses of
two segments or two causes; its entries are those of its parts, not known if those of one are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from logstore.codec import codec
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.ids import MAX_ID, StreamID
from logstore.recovery.report import Gone

# An error of a frame ends in its place, which is another one for each node.
_PLACE = re.compile(r" \(segment \d+, offset \d+\)$")
Between = Callable[[bytes, StreamID, StreamID], bool]


def merged(gone: Iterable[Gone], between: Between) -> list[Gone]:
    """The same losses, those of neighbours as one; each range stands where its first part did.

    ``between`` says whether a stream has an entry above one ID and below another.
    """
    found: list[Gone] = []
    last: dict[bytes, int] = {}  # where the last loss of a stream stands
    for each in gone:
        place = last.get(each.stream)
        before = None if place is None else found[place]
        if place is not None and before is not None and _neighbours(before, each, between):
            entries = None
            if before.entries is not None and each.entries is not None:
                entries = before.entries + each.entries
            why = _PLACE.sub("", before.why)
            found[place] = before._replace(
                last=each.last, entries=entries, why=why, offset=min(before.offset, each.offset)
            )
        else:
            last[each.stream] = len(found)
            found.append(each)
    return found


def _neighbours(before: Gone, each: Gone, between: Between) -> bool:
    return (
        bool(each.stream)  # of unknown streams nothing is known of their IDs
        and before.segment == each.segment
        and before.last < each.first
        and _PLACE.sub("", before.why) == _PLACE.sub("", each.why)
        and not between(each.stream, before.last, each.first)
    )


def has_between(engine: Engine, name: bytes, low: StreamID, high: StreamID) -> bool:
    """Whether a stream has an entry above ``low`` and below ``high``."""
    if low == MAX_ID or low.next() >= high:
        return False

    def look(view: Snapshot) -> bool:
        record = view.record(name)
        if record is None:
            return False
        start, end = low.next(), high.previous()
        for ref in nodes.refs(view, record, start, end):
            if ref.live:
                lp, vector = nodes.listpack(view, record, ref)
                if codec().entries(lp, *ref.master, vector, start, end, 1):
                    return True
        return False

    return snapshot.read(engine, look)
