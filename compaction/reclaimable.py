"""How much smaller a compaction would make the log, without doing it.

What ``compact()`` does is reckoned, with the threshold that it has by default or another one: the
active segment is sealed; segments that are mostly dead are emptied and removed with their hints;
what still lives in them, and nodes of which most is deleted, is written anew. Not reckoned: what
merging small nodes saves, pins that hold segments back for a while, the index, and checkpoints.
Invariants: read in short snapshots; nothing is changed. Nodes without tombstones are not decoded:
the rows of their segments count them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from logstore import format as fmt
from logstore.compaction.measure import rows_and_active, size_bytes
from logstore.compaction.node_choice import Chooser
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.index.keys import Locator
from logstore.log import file_names

THRESHOLD = 0.5  # of ``compact()``
ROWS_A_SNAPSHOT = 10_000
_HEAD = fmt.FRAME_HEAD_BYTES
# What a node that moves costs beside its bytes: its place in an adopt frame, its item in a hint.
# Items of hints are compressed, to about a quarter.
_MOVED_BYTES = (
    fmt.ADOPT_ITEM.size + fmt.MASTER.size + (fmt.HINT_ITEM.size + fmt.NODE_BODY.size) // 4
)


def log_bytes(
    engine: Engine, threshold: float = THRESHOLD, opens: dict[int, int] | None = None
) -> int:
    """By how many bytes ``compact()`` would make the files of the log smaller; never below 0.

    ``opens``: bytes of all open nodes, written anew, by the segment in which they begin, if the
    caller has looked at them anyway.
    """
    rows, active = rows_and_active(engine)
    # Of each segment the nodes that stay if it does: in bytes with their frames, and as they would
    # be written anew. First all of its nodes, as if nothing had been deleted in them.
    staying = {number: row.live_bytes + _HEAD * row.live_nodes for number, row in rows.items()}
    stay_anew = {
        number: row.live_bytes + (_HEAD + _MOVED_BYTES) * row.live_nodes
        for number, row in rows.items()
    }
    chooser = Chooser(set(), threshold)
    written = 0
    for locator in _with_tombstones(engine):
        live, number = locator.live, fmt.segment_of(locator.position)
        anew = _HEAD + _MOVED_BYTES + locator.payload_bytes * live // max(1, locator.entries)
        anew = anew if live else 0
        stay_anew[number] = stay_anew.get(number, 0) - locator.payload_bytes - _HEAD - _MOVED_BYTES
        if chooser.must(locator):
            staying[number] = staying.get(number, 0) - locator.payload_bytes - _HEAD
            written += anew
        else:
            stay_anew[number] += anew
    freed = victims = 0
    for number in rows:
        size = size_bytes(engine, number)
        body = size - fmt.SEGMENT_HEAD_BYTES
        if number == active and body <= 0:
            continue  # an empty one is not sealed
        if staying[number] < (1 - threshold) * max(1, body):
            freed += size + _hint_bytes(engine, number)
            written += stay_anew[number]
            victims = max(victims, number)
    if not victims:
        return 0
    if active in rows:
        freed -= fmt.SEGMENT_HEAD_BYTES  # of the segment behind the one that is sealed
    if written:
        written += fmt.SEGMENT_HEAD_BYTES + fmt.HINT_HEAD.size
    if opens is None:
        opens = _opens(engine)
    # Open nodes are written anew if they begin in a victim, or before one.
    moved = sum(size for number, size in opens.items() if number <= victims)
    return max(0, freed - written - moved)


def anew_bytes(open_bytes: int) -> int:
    """What an open node of so many bytes takes when it is written anew."""
    return open_bytes + fmt.OPEN_BODY.size + fmt.FRAME_HEAD_BYTES


def _with_tombstones(engine: Engine) -> Iterator[Locator]:
    """The nodes of which something was deleted; what is counted of them is counted outside of the
    snapshots, which may be read more than once."""
    after: bytes | None = b""
    while after is not None:
        page, after = snapshot.read(engine, _tombstoned_page, after)
        for _, locator in page:
            yield locator


def _tombstoned_page(
    view: Snapshot, after: bytes
) -> tuple[list[tuple[int, Locator]], bytes | None]:
    return view.index.nodes_with_tombstones(after, ROWS_A_SNAPSHOT)


def _hint_bytes(engine: Engine, number: int) -> int:
    """0 of the active segment, and of one whose hint is not written yet."""
    return engine.fs.size_bytes(file_names.hint(engine.path, number))


def _opens(engine: Engine) -> dict[int, int]:
    """Bytes of all open nodes, written anew, by the segment in which they begin."""
    found: dict[int, int] = {}
    after = 0
    while True:
        page, last = snapshot.read(engine, partial(_some_opens, after=after))
        for number, size in page:
            found[number] = found.get(number, 0) + size
        if last == after:
            return found
        after = last


def _some_opens(view: Snapshot, after: int) -> tuple[list[tuple[int, int]], int]:
    found: list[tuple[int, int]] = []
    for record, node in islice(view.index.records_with_opens(after), ROWS_A_SNAPSHOT):
        after = record.number
        if node is not None and record.open_version:
            found.append((fmt.segment_of(record.open_version), anew_bytes(nodes.open_bytes(node))))
    return found, after
