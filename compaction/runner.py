"""One run of compaction, from start to end.

Order: seal the active segment; choose victims; rewrite nodes and adopt them; restate open nodes
that lie in victims; two checkpoints past all of it; drop and unlink the victims; shrink the index.
Each step is whole by itself: a run that is killed leaves a sound store and less to do.
"""

from __future__ import annotations

import time

from logstore import format as fmt
from logstore.codec import codec
from logstore.compaction import nodes, segments
from logstore.compaction.report import CompactionReport
from logstore.engine import care, checkpoints, pins, reserve, snapshot, sync
from logstore.engine.commit import Committer
from logstore.engine.core import Engine, log
from logstore.engine.snapshot import Snapshot
from logstore.errors import ErasureIncompleteError, OptionError
from logstore.index.keys import SegmentRow
from logstore.log import chain, names, reader
from logstore.log import frame as frames

INDEX_SLACK = 1.5
INDEX_SLACK_BYTES = 1 << 20
PURGE_AGAIN_MAX = 8  # passes of an erasure, if others change the same nodes meanwhile


def run(
    engine: Engine, committer: Committer, *, purge: bool = False, threshold: float = 0.5
) -> CompactionReport:
    """Compact a store; what was done.

    ErasureIncompleteError if others changed the same nodes in every pass of an erasure.
    """
    if not 0 <= threshold <= 1:
        raise OptionError(f"threshold must be 0 to 1, the share that may be dead: {threshold}")
    started = time.monotonic_ns()
    report = CompactionReport(purge=purge)
    complete = True
    report.disk_bytes_before = engine.fs.tree_bytes(engine.path)
    with care.alone(engine):
        segments.remove_garbage(engine)
        _pass(engine, committer, report, 0.0 if purge else threshold)
        if purge:
            for _ in range(PURGE_AGAIN_MAX):
                if not _left_behind(engine, committer, report):
                    break
                _pass(engine, committer, report, 0.0)
            else:
                complete = not _left_behind(engine, committer, report)
            _erase_copies(engine, committer)
        reserve.ensure(engine)
        report.index_rebuilt = _shrink_index(engine, committer, purge=purge)
    report.disk_bytes_after = engine.fs.tree_bytes(engine.path)
    report.took_ms = (time.monotonic_ns() - started) // 1_000_000
    engine.metrics.count("compactions")
    log.info("compaction: %s", report)
    if not complete:
        raise ErasureIncompleteError(
            "what was deleted is deleted, but bytes of it are still in the store: others changed "
            "the same nodes all the while; run compact(purge=True) again"
        )
    return report


def _pass(engine: Engine, committer: Committer, report: CompactionReport, threshold: float) -> None:
    """From the seal to the unlink."""
    purge = report.purge
    report.nodes_skipped = 0
    segments.seal(engine, committer)
    care.write_missing_hints(engine)
    victims = _victims(engine, threshold)
    chooser = nodes.Chooser(victims, threshold)
    segments.write_and_adopt(engine, committer, nodes.groups(engine, chooser), report)
    report.open_nodes_restated += segments.restate_opens(committer, victims, purge=purge)
    # Only what is empty before the checkpoints: neither may name a node in what goes.
    victims = _empty(engine)
    if victims:
        _checkpoint_twice(engine, committer)
        pinned = set() if purge else _pinned(engine)
        segments.drop_dead(engine, committer, victims, pinned, report)


def _left_behind(engine: Engine, committer: Committer, report: CompactionReport) -> bool:
    """Whether what others did during a pass of an erasure kept deleted entries in the log.

    They changed a node while it was copied, or wrote one anew with its tombstones (a node that
    became open again, or was filled).
    """
    if report.nodes_skipped:
        return True
    with committer.locked() as words:
        pass
    for link in chain.main_links(engine.fs, engine.path, engine.uuid):
        end = link.end_offset
        if link.number == words.applied >> fmt.POSITION_SEGMENT_BITS:
            end = words.applied & fmt.OFFSET_MAX
        elif link.number > words.applied >> fmt.POSITION_SEGMENT_BITS:
            continue
        file = engine.fs.open(names.segment(engine.path, link.number))
        try:
            for found in reader.scan(file, engine.seed, link.number, link.start_offset, end):
                body = found.body()
                if not isinstance(body, frames.Open | frames.Node) or body.data is None:
                    continue
                if codec().counts(body.data)[1]:
                    return True
        finally:
            file.close()
    return False


def _victims(engine: Engine, threshold: float) -> set[int]:
    """Sealed segments of which more than the threshold is dead.

    With threshold 0 (erasure): every main segment, for append frames hold values too, and every
    compacted one of which not all is live.
    """
    rows, staying, deleted_in, active = snapshot.read(
        engine, lambda view: _segment_state(view, threshold)
    )
    victims: set[int] = set()
    for number, row in rows.items():
        if number == active:
            continue
        size = engine.fs.stat(names.segment(engine.path, number)).size_bytes
        body = max(1, size - fmt.SEGMENT_HEAD_BYTES)
        live = staying.get(number, 0)
        if threshold <= 0:
            if row.role == fmt.Role.MAIN or live < body or number in deleted_in:
                victims.add(number)
        elif live < (1 - threshold) * body:
            victims.add(number)
    return victims


def _segment_state(
    view: Snapshot, threshold: float
) -> tuple[dict[int, SegmentRow], dict[int, int], set[int], int]:
    """Rows; bytes of nodes that would stay, by segment; segments with deleted entries; active."""
    chooser = nodes.Chooser(set(), threshold)
    staying: dict[int, int] = {}
    deleted_in: set[int] = set()
    for _, _, _, locator in view.index.all_nodes():
        number = locator.position >> 32
        if locator.vector:
            deleted_in.add(number)
        if not chooser.must(locator):
            size = locator.payload_bytes + fmt.FRAME_HEAD_BYTES
            staying[number] = staying.get(number, 0) + size
    return view.index.segment_rows(), staying, deleted_in, view.meta.active_segment


def _empty(engine: Engine) -> set[int]:
    """Sealed segments in which no node lives now: what was moved out of, and short-lived ones."""
    rows, active = snapshot.read(
        engine, lambda view: (view.index.segment_rows(), view.meta.active_segment)
    )
    return {number for number, row in rows.items() if not row.live_nodes and number < active}


def _pinned(engine: Engine) -> set[int]:
    return pins.pinned_segments(engine.fs, engine.path, engine.clock.now_ms())


def _checkpoint_twice(engine: Engine, committer: Committer) -> None:
    """Operation frames are dead when both kept checkpoints are past them."""
    checkpoints.take_alone(engine, committer)
    committer.run(lambda state: state.emit(frames.Note(b"between two checkpoints")))
    checkpoints.take_alone(engine, committer)


def _erase_copies(engine: Engine, committer: Committer) -> None:
    """Erasure: what holds copies of entries outside the log; scans under way end with an error."""
    fs, store = engine.fs, engine.path
    fs.remove_tree(store / names.QUARANTINE)
    with committer.locked():  # then nobody is making a segment or an index: these are left over
        for name in fs.names(store / names.LOG):
            if name.endswith(f"{names.segment(store, 0).suffix}{names.TEMPORARY}"):
                fs.remove(store / names.LOG / name)
        for name in fs.names(store / names.CHECKPOINTS):
            if name.endswith(names.TEMPORARY):
                fs.remove(store / names.CHECKPOINTS / name)
        for name in fs.names(store / names.INDEX):
            if name.endswith(names.TEMPORARY):
                fs.remove_tree(store / names.INDEX / name)


def _shrink_index(engine: Engine, committer: Committer, *, purge: bool) -> bool:
    """Build the next generation if this one is mostly free pages (or for erasure, always)."""
    generation = engine.index()
    data = generation.path / "data.mdb"
    size = engine.fs.stat(data).size_bytes if engine.fs.exists(data) else 0
    if not purge and size < INDEX_SLACK * generation.live_bytes() + INDEX_SLACK_BYTES:
        return False
    sync.flush(engine, committer)
    with committer.locked():
        engine.rebuild_locked()
    return True
