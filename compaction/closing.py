"""What the last process that has a store open gives back as it closes it.

Entries that were added one by one lie in the log as they came, and once more in their node: such a
log is four fifths dead. Compaction in the background leaves the newest segments alone, so a store
that is closed early would keep all of that. Here segments are emptied that are dead by more than
half, the one that writers are in too, as long as what has to be moved for it is bounded: so a close
frees more than it moves, and who closes a store of which most lives does not wait for that.

Invariants: what is done is what a run by call does, in the same crash order; no other process is
waited for; a process that wrote little, or shares the store with another one, looks at two counters
at most.
"""

from __future__ import annotations

import os

from logstore import format as fmt
from logstore import fsinfo
from logstore.compaction import measure, runner, segment_rewrite, usage
from logstore.compaction.node_choice import NodeChooser
from logstore.compaction.segment_rewrite import CompactionReport
from logstore.engine.commit import durability
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.errors import LockTimeoutError
from logstore.log import file_names

SEGMENT_SHARE = 0.5  # of a segment that is dead: less than half of it has to be moved
LOG_SHARE = 0.07  # of the whole log that is dead
DEAD_MIN_BYTES = 512 << 10  # of the whole log: less is not worth two checkpoints
INDEX_FREE_BYTES, INDEX_MAX_BYTES = 256 << 10, 16 << 20  # free pages that are worth a copy
STREAM_BYTES = 140  # of a stream in a checkpoint
MOVE_MAX_BYTES = 64 << 20  # a second's work or two


def run(engine: Engine, committer: Committer) -> CompactionReport | None:
    """Compact if that gives enough back; the report, or None if nothing was done."""
    if not _enough_is_dead(engine) or _others_have_it(engine):
        return None
    back = usage.log_use(engine, SEGMENT_SHARE).reclaimable_bytes
    if back < DEAD_MIN_BYTES + _checkpoint_bytes(engine):
        return None
    report = CompactionReport()
    try:
        with maintenance_locks.alone(engine, 0):
            segment_rewrite.remove_garbage(engine, committer)
            segment_rewrite.seal(engine, committer)
            if victims := _victims(engine):
                runner.sweep(engine, committer, report, victims, 1.0)
            report.index_rebuilt = _copy_index(engine, committer)
    except LockTimeoutError:
        return None  # somebody came, and compacts
    return report


def _copy_index(engine: Engine, committer: Committer) -> bool:
    """Copy an index without its free pages, if these are many and it is small."""
    used, live = snapshot.read(engine, runner.index_bytes)
    if engine.copy_index is None or live > INDEX_MAX_BYTES or used < live + INDEX_FREE_BYTES:
        return False
    durability.flush(engine, committer)
    with committer.locked():
        engine.rebuild_locked(engine.copy_index)
    return True


def _enough_is_dead(engine: Engine) -> bool:
    """Whether it may be: open nodes are not looked at yet, they count as dead."""
    rows, active = measure.rows_and_active(engine)
    log_bytes = live_bytes = 0
    for number in {*rows, active}:
        log_bytes += measure.size_bytes(engine, number)
        if (row := rows.get(number)) is not None:
            live_bytes += row.live_bytes + row.live_nodes * fmt.FRAME_HEAD_BYTES
    dead_bytes = log_bytes - live_bytes
    return dead_bytes >= max(DEAD_MIN_BYTES, LOG_SHARE * live_bytes)


def _checkpoint_bytes(engine: Engine) -> int:
    """About what the two checkpoints of a run take: a store of many small streams would grow."""
    streams: int = snapshot.read(engine, lambda view: view.meta.next_stream)
    return 2 * STREAM_BYTES * streams


def _others_have_it(engine: Engine) -> bool:
    """True also if the system does not say."""
    return fsinfo.flock_owner(engine.path / file_names.USERS) != os.getpid()


def _victims(engine: Engine) -> set[int]:
    """The segments to empty: those in which least lives, as long as that is little."""
    staying, _ = measure.stays(engine, NodeChooser(set(), 1.0))
    rows, active = measure.rows_and_active(engine)
    found: list[tuple[float, int, int]] = []
    for number in rows:
        if number >= active:
            continue
        body = max(1, measure.size_bytes(engine, number) - fmt.SEGMENT_HEAD_BYTES)
        live = staying.get(number, 0)
        if live < (1 - SEGMENT_SHARE) * body:
            found.append((live / body, number, live))
    moved = 0
    some: set[int] = set()
    for _, number, live in sorted(found):
        moved += live
        if moved > MOVE_MAX_BYTES:
            break
        some.add(number)
    return some
