"""One run of compaction, from start to end.

Order: seal the active segment; choose victims; rewrite nodes and adopt them; write open nodes anew
that lie in victims; two checkpoints past all of it; drop and unlink the victims; shrink the index,
whose next generation is built beside those who commit. Each step is whole by itself: a run that is
killed leaves a sound store and less to do.

Invariants of shrinking the index: the maintenance lock is held; all that is published is durable
before the index before goes, as when any index is rebuilt; LOCK is held for the switch, and for
slices of what was committed last. Between two slices others commit, for a shorter time, so that it
comes to an end.
"""

from __future__ import annotations

import time

from logstore import format as fmt
from logstore import fsinfo
from logstore.codec import codec
from logstore.compaction import erasure, measure, node_choice, segment_rewrite
from logstore.compaction.segment_rewrite import CompactionReport
from logstore.engine.commit import durability
from logstore.engine.commit.committer import Committer
from logstore.engine.dump import copy
from logstore.engine.maintenance import checkpoint, column_statistics, whole_log
from logstore.engine.runtime import disk_space, maintenance_locks, pins
from logstore.engine.runtime.background import Pause, no_pause
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import CorruptionError, DiskFullError, ErasureIncompleteError, OptionError
from logstore.log import chain, file_names, log_reader, shipfile
from logstore.log import frame as frames

BREAK_S = 0.003  # between two slices
TRIES = 3  # somebody who lost a page of the index builds it anew, at any time


def renew_index(engine: Engine, committer: Committer) -> bool:
    """Put the next generation in the place of this one, without free pages, and without bytes of
    what was deleted. False where it cannot be copied, or others build one again and again.
    """
    durability.flush(engine, committer)
    return any(_renewed(engine, committer) for _ in range(TRIES))


def _renewed(engine: Engine, committer: Committer) -> bool:
    """Whether it was built and is used now."""
    if engine.renewing is None:
        return False
    following = engine.renewing(engine)
    try:
        following.build()
        while True:
            with committer.locked() as words:
                if following.follow_locked(words.applied):
                    return following.switch_locked(words.applied)
            time.sleep(BREAK_S)
    except CorruptionError as exc:
        log.warning("%s: the index was not shrunk, as it cannot be copied: %s", engine.path, exc)
        return False
    finally:
        following.leave()


FULL_THRESHOLD = 0.01  # of a run that gives back all that is worth writing a node for
BESIDE_BYTES = 1 << 20  # beside what lives and the checkpoints: a hint, commits
INDEX_SLACK = 1.5
INDEX_SLACK_BYTES = 1 << 20
PURGE_AGAIN_MAX = 8  # passes of an erasure, if others change the same nodes meanwhile


def run(
    engine: Engine,
    committer: Committer,
    *,
    purge: bool = False,
    full: bool = False,
    threshold: float = 0.5,
) -> CompactionReport:
    """Compact a store; what was done. ``full``: to the least that it can be, index included.

    ErasureIncompleteError if others changed the same nodes in every pass of an erasure.
    """
    if not 0 <= threshold <= 1:
        raise OptionError(f"threshold must be 0 to 1, the share that may be dead: {threshold}")
    if full:
        threshold = min(threshold, FULL_THRESHOLD)
    started = time.monotonic_ns()
    report = CompactionReport(purge=purge)
    report.disk_bytes_before = engine.fs.tree_bytes(engine.path)
    with maintenance_locks.alone(engine):
        segment_rewrite.remove_garbage(engine, committer)
        if purge:
            copy.drop_unfinished(engine, committer.free)
        with committer.locked() as words:
            whole_log.upto(engine, words.applied)  # or what is missing would be taken for dead
        try:
            _pass(engine, committer, report, 0.0 if purge else threshold)
            if full:  # the commits that published what was moved are dead, too
                _pass(engine, committer, report, 0.0 if purge else threshold)
        except DiskFullError:
            if purge:
                raise
            _one_by_one(engine, committer, report, threshold)
        complete = not purge or _nothing_left(engine, committer, report)
        if purge:  # what ships keep elsewhere of states before it is theirs to remove
            with committer.locked():
                shipfile.count_erasure(engine.fs, engine.path)
        disk_space.ensure(engine)
        report.index_rebuilt = _shrink_index(engine, committer, always=purge or full)
    report.disk_bytes_after = engine.fs.tree_bytes(engine.path)
    finish(engine, report, started)
    if not complete:
        raise ErasureIncompleteError(
            "what was deleted is deleted, but bytes of it are still in the store: others changed "
            "the same nodes all the while; run compact(purge=True) again"
        )
    return report


def finish(engine: Engine, report: CompactionReport, started_ns: int) -> None:
    """Tell of a run."""
    report.took_ms = (time.monotonic_ns() - started_ns) // 1_000_000
    engine.metrics.count("compactions")
    engine.metrics.count("compaction_bytes", report.written_bytes)
    log.info("compaction: %s", report)


def _pass(engine: Engine, committer: Committer, report: CompactionReport, threshold: float) -> None:
    """From the seal to the unlink."""
    segment_rewrite.seal(engine, committer)
    victims = measure.victims(engine, threshold)
    maintenance_locks.write_missing_hints(engine, victims)  # those are to go
    column_statistics.write_missing(engine, victims)
    sweep(engine, committer, report, victims, threshold)


def _one_by_one(
    engine: Engine, committer: Committer, report: CompactionReport, threshold: float
) -> None:
    """A pass in little space: what is empty goes first, then the segments in which least lives.

    Each gives back its space before the next one is moved. DiskFullError if not even one could be.
    """
    disk_space.release(engine)
    segment_rewrite.remove_garbage(engine, committer)
    segment_rewrite.seal(engine, committer)
    sweep(engine, committer, report, set(), 1.0)
    rows, _ = measure.rows_and_active(engine)
    gone = erasure.tombstoned_bytes(engine)
    live = {number: row.live_bytes - gone.get(number, 0) for number, row in rows.items()}
    for number in sorted(measure.victims(engine, threshold) & set(live), key=lambda one: live[one]):
        try:
            sweep(engine, committer, report, {number}, 1.0)
        except DiskFullError as exc:
            if not report.segments_dropped:
                error = _too_full(engine, live[number])
                if error is None:
                    raise
                raise error from exc
            log.warning(
                "%s: compaction ended early, as its disk is full: make room and run it again",
                engine.path,
            )
            segment_rewrite.remove_garbage(engine, committer)
            return


def _too_full(engine: Engine, live_bytes: int) -> DiskFullError | None:
    """What is told where not even the segment in which least lives could be moved; None if there is
    room by now, or only a quota stands in the way.
    """
    free_bytes, _ = fsinfo.space(engine.path)
    checkpoints_bytes = engine.fs.tree_bytes(engine.path / file_names.CHECKPOINTS)
    needed_bytes = live_bytes + checkpoints_bytes + BESIDE_BYTES
    if free_bytes >= needed_bytes:
        return None
    return DiskFullError(
        f"the disk of {engine.path} is full: compaction needs {needed_bytes:,} free bytes, as "
        f"{live_bytes:,} live in one segment, and finds {free_bytes:,}; make room on it for "
        "them, or delete or trim more entries, and compact again"
    )


def sweep(
    engine: Engine,
    committer: Committer,
    report: CompactionReport,
    victims: set[int],
    threshold: float,
    pause: Pause = no_pause,
) -> None:
    """Move what lives out of the victims, and drop what is empty then.

    The maintenance lock is held.
    """
    purge = report.purge
    report.nodes_skipped = 0
    groups = node_choice.groups(engine, node_choice.NodeChooser(victims, threshold), pause)
    segment_rewrite.write_and_adopt(engine, committer, groups, report, pause)
    report.open_nodes_restated += segment_rewrite.rewrite_open_nodes(
        engine, committer, victims, purge=purge, pause=pause
    )
    # Only what is empty before the checkpoints: neither may name a node in what goes.
    victims = measure.empty(engine)
    if victims:
        _checkpoint_twice(engine, committer, pause)
        held = [] if purge else measure.pins_held(engine)
        segment_rewrite.drop_dead(engine, committer, victims, held, report)


def _nothing_left(engine: Engine, committer: Committer, report: CompactionReport) -> bool:
    """Passes of an erasure until no deleted byte is left; whether that was reached."""
    for passes_left in reversed(range(PURGE_AGAIN_MAX + 1)):
        # Before the look: who copies by a pin, or goes on with a copy, finds it gone from here on.
        _erase_copies(engine, committer)
        if not _left_behind(engine, committer, report):
            return True
        if passes_left:
            _pass(engine, committer, report, 0.0)
    return False


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
        if link.number == fmt.segment_of(words.applied):
            end = fmt.offset_of(words.applied)
        elif link.number > fmt.segment_of(words.applied):
            continue
        file = engine.fs.open(file_names.segment(engine.path, link.number))
        try:
            for found in log_reader.scan(file, engine.seed, link.number, link.start_offset, end):
                body = found.body()
                if not isinstance(body, frames.Open | frames.Node) or body.data is None:
                    continue
                if codec().counts(body.data)[1]:
                    return True
        finally:
            file.close()
    return False


def _checkpoint_twice(engine: Engine, committer: Committer, pause: Pause) -> None:
    """Operation frames are dead when both kept checkpoints are past them."""
    checkpoint.take_alone(engine, committer, pause)
    committer.run(lambda txn: txn.emit(frames.Note(b"between two checkpoints")))
    checkpoint.take_alone(engine, committer, pause)


def _erase_copies(engine: Engine, committer: Committer) -> None:
    """Erasure: what holds copies of entries outside the log; scans under way end with an error."""
    fs, store = engine.fs, engine.path
    for name in fs.names(store / file_names.QUARANTINE):
        if file_names.is_tail(name):
            fs.remove(store / file_names.QUARANTINE / name)
    pins.revoke_all(fs, store)  # snapshot files hold copies of open nodes
    copy.drop_unfinished(engine, committer.free)
    with committer.locked():  # then nobody is making a segment or an index: these are left over
        for name in fs.names(store / file_names.LOG):
            if name.endswith(f".log{file_names.TEMPORARY}") and file_names.is_segment_file(name):
                fs.remove(store / file_names.LOG / name)
        for name in fs.names(store / file_names.CHECKPOINTS):
            if file_names.is_half_checkpoint(name):
                fs.remove(store / file_names.CHECKPOINTS / name)
        for name in fs.names(store / file_names.INDEX):
            if file_names.is_half_generation(name):
                fs.remove_tree(store / file_names.INDEX / name)


def _shrink_index(engine: Engine, committer: Committer, *, always: bool) -> bool:
    """Build the next generation if this one is mostly free pages, or always."""
    size, live = snapshot.read(engine, index_bytes)
    if not always and size < INDEX_SLACK * live + INDEX_SLACK_BYTES:
        return False
    if not renew_index(engine, committer):
        with committer.locked():
            engine.rebuild_locked()
    return True


def index_bytes(view: Snapshot) -> tuple[int, int]:
    """Bytes of the index that it takes up, and of those in use; no close or fork takes the
    environment away meanwhile.
    """
    generation = view.index.generation
    return generation.used_bytes(), generation.live_bytes()
