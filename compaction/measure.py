"""What is dead, by segment: which segments a run empties, and which nothing lives in.

Invariants: read in short snapshots, nothing is changed; the active segment is never named.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore import format as fmt
from logstore.compaction.node_choice import NodeChooser
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.index.keys import Locator, SegmentRow
from logstore.log import file_names
from logstore.log.pinfile import Pin

NODES_A_SNAPSHOT = 5_000


def rows_and_active(engine: Engine) -> tuple[dict[int, SegmentRow], int]:
    """The counters of each segment, and the number of the active one."""
    return snapshot.read(engine, lambda view: (view.index.segment_rows(), view.meta.active_segment))


def victims(engine: Engine, threshold: float) -> set[int]:
    """Sealed segments of which more than the threshold is dead.

    With threshold 0 (erasure): every main segment, for append frames hold values too, and every
    compacted one of which not all is live.
    """
    staying, deleted_in = stays(engine, NodeChooser(set(), threshold))
    found: set[int] = set()
    rows, active = rows_and_active(engine)
    for number, row in rows.items():
        if number == active:
            continue
        # A dropped segment's file may have gone although an index that was rebuilt meanwhile still
        # has its row: such a row is dropped like that of any segment in which nothing lives.
        body = max(1, size_bytes(engine, number) - fmt.SEGMENT_HEAD_BYTES)
        live = staying.get(number, 0)
        if threshold <= 0:
            if row.role == fmt.Role.MAIN or live < body or number in deleted_in:
                found.add(number)
        elif live < (1 - threshold) * body:
            found.add(number)
    return found


def stays(engine: Engine, chooser: NodeChooser) -> tuple[dict[int, int], set[int]]:
    """Bytes of nodes that would stay, by segment; segments with deleted entries."""
    staying: dict[int, int] = {}
    deleted_in: set[int] = set()
    for page in locators(engine):
        for locator in page:
            number = fmt.segment_of(locator.position)
            if locator.vector:
                deleted_in.add(number)
            if not chooser.must(locator):
                size = locator.payload_bytes + fmt.FRAME_HEAD_BYTES
                staying[number] = staying.get(number, 0) + size
    return staying, deleted_in


def locators(engine: Engine, most: int = 0) -> Iterator[list[Locator]]:
    """Where all sealed nodes are, by stream and master ID, at most so many from one snapshot. What
    is counted of them is counted here outside: a snapshot may be read more than once."""
    after: bytes | None = b""
    while after is not None:
        page, after = snapshot.read(engine, _page, after, most or NODES_A_SNAPSHOT)
        yield page


def _page(view: Snapshot, after: bytes, most: int) -> tuple[list[Locator], bytes | None]:
    page: list[Locator] = []
    last = b""
    for key, _, _, locator in view.index.all_nodes(after):
        if len(page) == most:
            return page, last + b"\x00"
        last = key
        page.append(locator)
    return page, None


def gone_bytes(locator: Locator) -> int:
    """Bytes of a sealed node that are of deleted entries, by their share of its entries."""
    gone = locator.entries - locator.live
    return locator.payload_bytes * gone // max(1, locator.entries)


def empty(engine: Engine) -> set[int]:
    """Sealed segments in which no node lives now: what was moved out of, and short-lived ones."""
    rows, active = rows_and_active(engine)
    return {number for number, row in rows.items() if not row.live_nodes and number < active}


def size_bytes(engine: Engine, number: int) -> int:
    """The size of a segment's file; 0 if it is gone."""
    return engine.fs.size_bytes(file_names.segment(engine.path, number))


def pins_held(engine: Engine) -> list[Pin]:
    """Pins of scans under way; to be asked behind the commit that emptied segments."""
    return pins.living(engine.fs, engine.path, engine.clock.now_ms())
