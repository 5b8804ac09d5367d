"""How much smaller a compaction would make the log, without doing it.

What ``compact()`` does is reckoned, with the threshold that it has by default or another one: the
active segment is sealed; segments that are mostly dead are emptied and removed with their hints;
what still lives in them, and nodes of which most is deleted, is written anew. Not reckoned: what
merging small nodes saves, pins that hold segments back for a while, the index, and checkpoints.
Invariants: read in short snapshots; nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from logstore import format as fmt
from logstore.compaction.measure import locators, rows_and_active, size_bytes
from logstore.compaction.nodes import Chooser
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.index.keys import Locator
from logstore.log import names

THRESHOLD = 0.5  # of ``compact()``
RECORDS_A_SNAPSHOT = 10_000
# What a node that moves costs beside its bytes: its place in an adopt frame, its item in a hint.
# Items of hints are compressed, to about a quarter.
_MOVED_BYTES = (
    fmt.ADOPT_ITEM.size + fmt.MASTER.size + (fmt.HINT_ITEM.size + fmt.NODE_BODY.size) // 4
)


@dataclass(slots=True)
class _Nodes:
    """Sealed nodes by segment, in bytes with their frames."""

    staying: dict[int, int] = field(default_factory=dict)  # that stay if their segment does
    stay_anew: dict[int, int] = field(default_factory=dict)  # the same, as they would be written
    moving_anew: int = 0  # all others, as they will be written


def log_bytes(engine: Engine, threshold: float = THRESHOLD) -> int:
    """By how many bytes ``compact()`` would make the files of the log smaller; never below 0."""
    found = _Nodes()
    chooser = Chooser(set(), threshold)
    for page in locators(engine):
        for locator in page:
            _count(locator, chooser, found)
    rows, active = rows_and_active(engine)
    freed = victims = 0
    written = found.moving_anew
    for number in rows:
        size = size_bytes(engine, number)
        body = size - fmt.SEGMENT_HEAD_BYTES
        if number == active and body <= 0:
            continue  # an empty one is not sealed
        if found.staying.get(number, 0) < (1 - threshold) * max(1, body):
            freed += size + _hint_bytes(engine, number)
            written += found.stay_anew.get(number, 0)
            victims = max(victims, number)
    if not victims:
        return 0
    if active in rows:
        freed -= fmt.SEGMENT_HEAD_BYTES  # of the segment behind the one that is sealed
    if written:
        written += fmt.SEGMENT_HEAD_BYTES + fmt.HINT_HEAD.size
    return max(0, freed - written - _open_bytes(engine, victims))


def _count(locator: Locator, chooser: Chooser, found: _Nodes) -> None:
    """Add one node."""
    live, number = locator.live, fmt.segment_of(locator.position)
    size = locator.payload_bytes + fmt.FRAME_HEAD_BYTES
    anew = 0
    if live:
        anew = locator.payload_bytes * live // max(1, locator.entries)
        anew += fmt.FRAME_HEAD_BYTES + _MOVED_BYTES
    if chooser.must(locator):
        found.moving_anew += anew
    else:
        found.staying[number] = found.staying.get(number, 0) + size
        found.stay_anew[number] = found.stay_anew.get(number, 0) + anew


def _hint_bytes(engine: Engine, number: int) -> int:
    try:
        return engine.fs.stat(names.hint(engine.path, number)).size_bytes
    except FileNotFoundError:
        return 0  # of the active segment, or not written yet


def _open_bytes(engine: Engine, newest: int) -> int:
    """Bytes of the open nodes that are written anew: they begin in a victim, or before one."""
    total = after = 0
    while True:
        size, after = snapshot.read(engine, partial(_some_opens, after=after, newest=newest))
        total += size
        if not after:
            return total


def _some_opens(view: Snapshot, after: int, newest: int) -> tuple[int, int]:
    size = last = 0
    for record in islice(view.index.records(after), RECORDS_A_SNAPSHOT):
        last = record.number
        if 0 < fmt.segment_of(record.open_version) <= newest:
            node = view.index.open_node(record.number)
            if node is not None:
                size += nodes.open_bytes(node) + fmt.OPEN_BODY.size + fmt.FRAME_HEAD_BYTES
    return size, last
