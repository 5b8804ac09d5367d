"""A split: one part of a plan, small enough to be sent anywhere.

Invariants: a split is plain numbers and text, whatever the size of the stream: what it covers
stands in a byte range of the plan's snapshot file. The splits of a plan cover every entry once.
"""

from __future__ import annotations

from logstore.ids import StreamID
from logstore.tuples import NamedTuple


class Split(NamedTuple):
    """What one task reads. ``entries`` and ``data_bytes`` are what is to be expected, at most."""

    store: str
    home: str  # the directory whose pins/ has the pin and the snapshot file; mostly the store
    uuid: bytes
    pin_id: str
    offset: int  # in the snapshot file
    size_bytes: int
    first: StreamID  # master ID of the first node
    last: StreamID  # last ID of the last node
    nodes: int
    entries: int
    data_bytes: int
