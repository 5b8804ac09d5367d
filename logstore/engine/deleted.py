"""How many bytes of deleted entries are still there, for ``info`` and for who decides to erase.

An estimate: of a node with tombstones the share of its bytes that their number is of its entries.
Invariants: read in short snapshots; nothing is changed.
"""

from __future__ import annotations

from functools import partial

from logstore.engine import snapshot
from logstore.engine.core import Engine
from logstore.engine.snapshot import Snapshot
from logstore.engine.throttle import Pause, no_pause

NODES_A_SNAPSHOT = 20_000


def tombstoned_bytes(engine: Engine, pause: Pause = no_pause) -> dict[int, int]:
    """Bytes of entries that are tombstones in sealed nodes, by segment."""
    found: dict[int, int] = {}
    after: bytes | None = b""
    while after is not None:
        after = snapshot.read(engine, partial(_some, after=after, found=found))
        pause(0)
    return found


def _some(view: Snapshot, after: bytes, found: dict[int, int]) -> bytes | None:
    last = b""
    for count, (key, _, _, locator) in enumerate(view.index.all_nodes(after)):
        if count == NODES_A_SNAPSHOT:
            return last + b"\x00"
        last = key
        if locator.vector:
            gone = locator.entries - locator.live
            number = locator.position >> 32
            size = locator.payload_bytes * gone // max(1, locator.entries)
            found[number] = found.get(number, 0) + size
    return None
