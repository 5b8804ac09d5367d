"""Segment level: writing compacted segments, publishing them, dropping what is dead.

A compacted segment is node frames, sorted by stream and ID, and a hint. Its number is never used
again; nobody reads it before an adopt commit names it; bytes of nodes are kept until they are
written, never for a whole segment.

Crash order: output written into a segment of its own, synced, its hint; then adopt commits, which
check under the lock that locators and vectors are still those that were read; then (when
nothing lives in a segment, both checkpoints are past it and all of that is durable) a drop frame,
synced; in an erasure then the end of all pins; only then the unlink. A kill before the adopt leaves
a file that nobody names, removed by the next run; a kill before the unlink leaves a file that the
next run unlinks, and the pins that name it with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from logstore import format as fmt
from logstore.codec import codec
from logstore.compaction.measure import locators, size_bytes
from logstore.compaction.node_choice import Group, NodeVersion
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit import durability, log_tail
from logstore.engine.commit.committer import Committer
from logstore.engine.maintenance import column_statistics
from logstore.engine.runtime import maintenance_locks, pins
from logstore.engine.runtime.background import Pause, no_pause
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.errors import DiskFullError
from logstore.fs import File
from logstore.index.keys import StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log import chain, file_names, hint, segment, segment_writer
from logstore.log import frame as frames
from logstore.log.pinfile import Pin

WRITE_BYTES = 1 << 20
SYNC_BYTES = 8 << 20  # no sync of others waits for more of ours than that


class CompactedSegment:
    """One compacted segment being written."""

    def __init__(self, engine: Engine, number: int) -> None:
        self._engine = engine
        self.number = number
        head = segment.SegmentHead(
            fmt.Role.COMPACTED, number, engine.uuid, 0, 0, engine.clock.now_ms()
        )
        self._file: File = segment.create(engine.fs, engine.path, head)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._unsynced_bytes = 0
        self.offset = fmt.SEGMENT_HEAD_BYTES
        self.items: list[tuple[frames.AdoptItem, tuple[NodeVersion, ...]]] = []

    def add(self, group: Group) -> None:
        """Write a group as one node frame; a group without live entries only goes."""
        first = group.parts[0]
        replaced = tuple((part.master.ms, part.master.seq) for part in group.parts)
        if not group.lp:
            item = frames.AdoptItem(first.stream, *first.master, 0, 0, 0, 0, 0, replaced)
            self.items.append((item, group.versions()))
            return
        last = group.last
        body = frames.Node(first.stream, *first.master, *last, group.live, group.lp)
        payload = frames.encode(body)
        at = fmt.position(self.number, self.offset)
        _, head = segment_writer.head(
            self._engine.seed,
            at,
            payload,
            0,
            0,
            len(self.items),
            fmt.Kind.NODE,
            fmt.FRAME_FLAG_LAST,
        )
        self._pending += [head, payload]
        size = fmt.FRAME_HEAD_BYTES + len(payload)
        item = frames.AdoptItem(
            first.stream, *first.master, *last, self.offset, len(payload), group.live, replaced
        )
        self.items.append((item, group.versions()))
        self.offset += size
        self._pending_bytes += size
        if self._pending_bytes >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._file.pwrite(b"".join(self._pending), self.offset - self._pending_bytes)
        self._unsynced_bytes += self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        if self._unsynced_bytes >= SYNC_BYTES:
            self._file.sync()
            self._unsynced_bytes = 0

    def finish(self) -> None:
        """Make the segment durable, with its hint and its statistics."""
        engine = self._engine
        if self._pending:
            self._write()
        self._file.sync()
        self._file.close()
        link = maintenance_locks.compacted_link(engine, self.number)
        hint.write(engine.fs, engine.path, engine.uuid, engine.seed, link, fmt.Role.COMPACTED)
        column_statistics.write(engine, link)

    def abandon(self) -> None:
        """Nothing of it was adopted: remove it."""
        self._file.close()
        engine = self._engine
        for path in file_names.of_segment(engine.path, self.number):
            engine.fs.remove(path)


def begin(engine: Engine, committer: Committer) -> CompactedSegment:
    """A new compacted segment, under a number that is never used again.

    Its file is made before LOCK is given back: until it lies there, another process, whose last
    look at the index may be older, could roll to the same number.
    """
    with committer.locked():
        generation = engine.index()
        with generation.env.begin(write=True) as txn:
            index = IndexTxn(generation, txn)
            meta = index.meta()
            on_disk = file_names.segments(engine.fs, engine.path)
            number = max([meta.next_segment, *(found + 1 for found in on_disk)])
            index.put_meta(meta._replace(next_segment=number + 1))
        engine.cache.clear()
        return CompactedSegment(engine, number)


ITEMS_A_COMMIT = 200  # some milliseconds under the lock
OPENS_A_COMMIT = 100
RECORDS_A_SNAPSHOT = 10_000


class CompactionReport:
    """Counts and sizes of one run."""

    def __init__(self, *, purge: bool = False) -> None:
        self.purge = purge
        self.disk_bytes_before = 0
        self.disk_bytes_after = 0
        self.nodes_read = 0
        self.nodes_written = 0
        self.nodes_skipped = 0  # changed by others while they were copied: left for the next run
        self.open_nodes_restated = 0
        self.segments_written = 0
        self.segments_dropped = 0
        self.written_bytes = 0  # of segments that compaction wrote
        self.dropped_bytes = 0  # of segments that went
        self.segments_pinned = 0  # nothing lives in them, but a pin still names them
        self.pinned_bytes = 0  # of these segments
        self.pinned_by: list[str] = []  # who has the pins, and since when
        self.index_rebuilt = False
        self.took_ms = 0

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"CompactionReport({named})"

    def as_dict(self) -> dict[str, Any]:
        """Everything by name."""
        return vars(self) | {"pinned_by": list(self.pinned_by)}


def write_and_adopt(
    engine: Engine,
    committer: Committer,
    groups: Iterable[Group],
    report: CompactionReport,
    pause: Pause = no_pause,
) -> None:
    """Write all groups into compacted segments and publish each as soon as it is full."""
    output: CompactedSegment | None = None
    try:
        for group in groups:
            if output is None:
                output = begin(engine, committer)
            output.add(group)
            report.nodes_read += len(group.parts)
            pause(len(group.lp))
            if output.offset >= engine.limits.segment_bytes:
                full, output = output, None
                adopt(engine, committer, full, report, pause)
        if output is not None:
            full, output = output, None
            adopt(engine, committer, full, report, pause)
    finally:
        if output is not None:
            output.abandon()


def adopt(
    engine: Engine,
    committer: Committer,
    output: CompactedSegment,
    report: CompactionReport,
    pause: Pause = no_pause,
) -> None:
    """Publish a compacted segment: commits in main segments with a higher number.

    The first one makes the segment count; a kill between two leaves nodes in it that stay dead.
    """
    try:
        output.finish()
    except DiskFullError:
        output.abandon()  # its blocks are needed, and a file that is open keeps them
        raise
    if engine.wake.log().active_segment < output.number:
        durability.flush(engine, committer)  # what a roll syncs under LOCK is little then
    with committer.locked() as words:
        if words.active_segment < output.number:  # positions of nodes stay below their commit's
            log_tail.roll_locked(engine, words)

    def publish(
        txn: WriteTxn, some: list[tuple[frames.AdoptItem, tuple[NodeVersion, ...]]]
    ) -> tuple[int, int]:
        items = [item for item, versions in some if _unchanged(txn, versions)]
        if items:
            txn.emit(frames.Adopt(output.number, tuple(items)))
        return len(items), sum(1 for item in items if item.payload_bytes)

    adopted = written = 0
    for first in range(0, len(output.items), ITEMS_A_COMMIT):
        some = output.items[first : first + ITEMS_A_COMMIT]
        done: tuple[int, int] = committer.run(partial(publish, some=some))
        engine.lock.give_way()
        adopted += done[0]
        written += done[1]
        if adopted:
            pause(0)  # else stopping here would leave a segment that nobody names
    report.nodes_written += written
    report.nodes_skipped += len(output.items) - adopted
    if written:
        report.segments_written += 1
        report.written_bytes += output.offset
    elif not adopted:  # an adopted one without nodes is dropped like any other that is empty
        output.abandon()


def _unchanged(txn: WriteTxn, versions: tuple[NodeVersion, ...]) -> bool:
    """Whether every node is still the version, with the vector, that was read."""
    return all(
        txn.index.node(read.stream, read.master) == read.locator
        and txn.record(read.stream) is not None
        for read in versions
    )


def seal(engine: Engine, committer: Committer) -> None:
    """Seal the active segment, if it holds anything. It is synced before, so that under LOCK little
    of it is left to sync."""
    durability.flush(engine, committer)
    with committer.locked() as words:
        start = fmt.start_of_next(words.applied, words.active_segment)
        if fmt.offset_of(start) > fmt.SEGMENT_HEAD_BYTES:
            log_tail.roll_locked(engine, words)


def drop_dead(
    engine: Engine,
    committer: Committer,
    victims: set[int],
    held: list[Pin],
    report: CompactionReport,
) -> None:
    """Drop segments in which nothing lives any more, and unlink them."""
    pinned = _pinned(engine, victims, held, report)
    # Read before the commit: where an open node begins only ever moves on, to the active segment.
    oldest = _oldest_open(engine)
    shortened = _shortened(engine)

    def publish(txn: WriteTxn) -> list[int]:
        rows = txn.index.segment_rows()
        dead: list[int] = []
        for number in sorted(victims - pinned):
            if (
                number < oldest
                and number in rows
                and not rows[number].live_nodes
                and number != txn.meta.active_segment
                and (number not in shortened or shortened[number] in dead)
            ):
                dead.append(number)
        for number in dead:
            txn.emit(frames.DropSegment(number))
        return dead

    dead: list[int] = committer.run(publish)
    if not dead:
        return
    durability.flush(engine, committer)  # the drop, and every copy, before the file goes
    size = sum(size_bytes(engine, number) for number in dead)
    report.dropped_bytes += size
    with committer.locked():
        engine.wake.dropped += len(dead)
        engine.wake.compacted = engine.clock.now_ms(), engine.wake.compacted[1] + size
    if report.purge:  # behind the commit: a pin that is made from here on names none of them
        pins.revoke_all(engine.fs, engine.path)
    for number in dead:
        unlink(engine, number)
    engine.notice_drops()
    report.segments_dropped += len(dead)


def _pinned(
    engine: Engine, victims: set[int], held: list[Pin], report: CompactionReport
) -> set[int]:
    """The victims that pins name; the report says whose pins these are."""
    found: dict[int, None] = {}
    report.pinned_by = []
    for pin in held:
        named = victims if pin.segments is None else victims & pin.segments
        if named:
            found.update(dict.fromkeys(named))
            report.pinned_by.append(pins.description(pin))
    report.segments_pinned = len(found)
    report.pinned_bytes = sum(size_bytes(engine, number) for number in found)
    return set(found)


def _shortened(engine: Engine) -> dict[int, int]:
    """Segments whose header alone says that another, still there, ends before its file does.

    What stands behind that end is void, or damaged. Without the header it would count again.
    """
    heads = chain.heads(engine.fs, engine.path, engine.uuid)
    found: dict[int, int] = {}
    for number, (head, _) in heads.items():
        before, end = fmt.position_parts(head.previous_end)
        if head.role == fmt.Role.MAIN and before in heads and end < heads[before][1]:
            found[number] = before
    return found


def _oldest_open(engine: Engine) -> int:
    """The segment in which the oldest open node begins; a number above all if there is none."""
    oldest = 1 << 32
    for records in _record_batches(engine):
        oldest = min([oldest, *(begins for _, begins in records if begins)])
    return oldest


def _record_batches(engine: Engine) -> Iterator[list[tuple[int, int]]]:
    """Streams by number, and the segments in which their open nodes begin (0: none)."""
    after = 0
    while found := snapshot.read(engine, partial(_records, after=after)):
        yield found
        after = found[-1][0]


def _records(view: Snapshot, after: int) -> list[tuple[int, int]]:
    some = islice(view.index.records(after), RECORDS_A_SNAPSHOT)
    return [(record.number, fmt.segment_of(record.open_version)) for record in some]


def unlink(engine: Engine, number: int) -> None:
    """Remove a segment's files; it goes last, so that none outlives it."""
    for path in file_names.of_segment(engine.path, number):
        engine.fs.remove(path)
    engine.fs.sync_directory(engine.path / file_names.LOG)


def rewrite_open_nodes(
    engine: Engine, committer: Committer, victims: set[int], *, purge: bool, pause: Pause = no_pause
) -> int:
    """Write anew the open nodes with frames in a victim, or before one; how many there were."""
    newest = max(victims, default=0)
    done = 0
    for records in _record_batches(engine):
        streams = [number for number, begins in records if 0 < begins <= newest]
        pause(0)
        for first in range(0, len(streams), OPENS_A_COMMIT):
            some = streams[first : first + OPENS_A_COMMIT]
            count, size = committer.run(
                partial(_rewrite_some, streams=some, newest_victim=newest, purge=purge)
            )
            engine.lock.give_way()
            done += count
            pause(size)
    return done


def _rewrite_some(
    txn: WriteTxn, streams: list[int], newest_victim: int, purge: bool
) -> tuple[int, int]:
    """Write some open nodes anew; how many, and their bytes."""
    count = size = 0
    for number in streams:
        record = txn.record(number)
        if record is not None and 0 < fmt.segment_of(record.open_version) <= newest_victim:
            size += _rewrite_open(txn, record, purge=purge)
            count += 1
    return count, size


def _rewrite_open(txn: WriteTxn, record: StreamRecord, *, purge: bool) -> int:
    """WriteTxn one open node anew; for erasure without its tombstones, or not at all. Its bytes."""
    lp = txn.open_listpack(record.number)
    if lp is None:
        return 0
    master = record.open_master
    if purge:
        if not codec().counts(lp)[0]:
            txn.emit(frames.Trim(record.number, *master, *master))
            return 0
        lp = codec().rewrite([(lp, master.ms, master.seq, b"")], *master)
    txn.emit(frames.Open(record.number, *master, *record.last, 0, lp))
    return len(lp)


def remove_garbage(engine: Engine, committer: Committer) -> None:
    """Compacted segments that no adopt commit ever named, dropped ones not yet unlinked, and what
    a process that died left of a checkpoint or a hint.

    The maintenance lock is held: nobody adopts or drops anything meanwhile, nor takes a checkpoint.

    Crash order: a compaction that was killed may have left an adopt that is complete in the log,
    and so counts, and that no index has yet. So its commit is finished first; asked before that,
    the index would call the segment garbage, and every node in it would be lost.
    """
    with committer.locked():
        pass  # the tail was checked
    keep = snapshot.read(
        engine, lambda view: {*view.index.segment_rows(), view.meta.active_segment}
    )
    for page in locators(engine):
        keep.update(fmt.segment_of(locator.position) for locator in page)
    covered = fmt.segment_of(min(file_names.checkpoints(engine.fs, engine.path), default=0))
    garbage = [
        number
        for number, (head, _) in chain.heads(engine.fs, engine.path, engine.uuid).items()
        if number not in keep and (head.role == fmt.Role.COMPACTED or number < covered)
    ]
    if garbage:  # an erasure that was killed dropped segments whatever pins name them
        pins.revoke(engine.fs, engine.path, garbage)
    for number in garbage:
        unlink(engine, number)
    _remove_halves(engine)


def _remove_halves(engine: Engine) -> None:
    """Checkpoints that were never named, and hints, whole or half, whose segment is gone: somebody
    may have been writing one while another process dropped the segment.
    """
    fs, store = engine.fs, engine.path
    for name in fs.names(store / file_names.CHECKPOINTS):
        if file_names.is_half_checkpoint(name):
            fs.remove(store / file_names.CHECKPOINTS / name)
    segments = set(file_names.segments(fs, store))
    for name in fs.names(store / file_names.LOG):
        is_ours = file_names.is_derived(name, half=True)
        if is_ours and int(name.partition(".")[0]) not in segments:
            fs.remove(store / file_names.LOG / name)
