"""Segment level: writing compacted segments, publishing them, dropping what is dead.

Crash order: output written into a segment of its own, synced, its hint; then one adopt commit,
which checks under the lock that locators and vectors are still those that were read; then (when
nothing lives in a segment, both checkpoints are past it and all of that is durable) a drop frame,
synced; only then the unlink. A kill before the adopt leaves a file that nobody names, removed by
the next run; a kill before the unlink leaves a file that the next run unlinks.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from crc32c import crc32c

from logstore import format as fmt
from logstore.codec import codec
from logstore.compaction.nodes import Group
from logstore.compaction.report import CompactionReport
from logstore.engine import care, snapshot, sync
from logstore.engine.commit import Committer
from logstore.engine.core import Engine
from logstore.engine.snapshot import Snapshot
from logstore.engine.state import State
from logstore.fs import File
from logstore.index.keys import StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log import chain, hint, names, segment
from logstore.log import frame as frames

WRITE_BYTES = 1 << 20
OPENS_A_COMMIT = 500


def reserve(engine: Engine, committer: Committer) -> int:
    """A segment number for a compacted segment; never used again."""
    with committer.locked():
        generation = engine.index()
        with generation.env.begin(write=True) as txn:
            index = IndexTxn(generation, txn)
            meta = index.meta()
            on_disk = names.segments(engine.fs, engine.path)
            number = max([meta.next_segment, *(found + 1 for found in on_disk)])
            index.put_meta(meta._replace(next_segment=number + 1))
        engine.kept.clear()
    return number


class Output:
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
        self.offset = fmt.SEGMENT_HEAD_BYTES
        self.items: list[tuple[frames.AdoptItem, Group]] = []

    def add(self, group: Group) -> None:
        """Write a group as one node frame; a group without live entries only goes."""
        first = group.parts[0]
        replaced = tuple((part.master.ms, part.master.seq) for part in group.parts)
        if not group.lp:
            item = frames.AdoptItem(first.stream, *first.master, 0, 0, 0, 0, 0, replaced)
            self.items.append((item, group))
            return
        last = group.last
        body = frames.Node(first.stream, *first.master, *last, group.live, group.lp)
        payload = frames.encode(body)
        at = fmt.position(self.number, self.offset)
        covered = fmt.FRAME_HEAD_AFTER_CRC.pack(
            at, len(payload), 0, 0, len(self.items), fmt.Kind.NODE, fmt.FRAME_FLAG_LAST,
            fmt.FRAME_MARK,
        )  # fmt: skip
        crc = crc32c(payload, crc32c(covered, self._engine.seed))
        self._pending += [crc.to_bytes(4, "little"), covered[8:], payload]
        size = fmt.FRAME_HEAD_BYTES + len(payload)
        item = frames.AdoptItem(
            first.stream, *first.master, *last, self.offset, len(payload), group.live, replaced
        )
        self.items.append((item, group))
        self.offset += size
        self._pending_bytes += size
        if self._pending_bytes >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._file.pwrite(b"".join(self._pending), self.offset - self._pending_bytes)
        self._pending, self._pending_bytes = [], 0

    def finish(self) -> None:
        """Make the segment durable, with its hint."""
        engine = self._engine
        if self._pending:
            self._write()
        self._file.sync()
        self._file.close()
        link = care.compacted_link(engine, self.number)
        hint.write(engine.fs, engine.path, engine.uuid, engine.seed, link, fmt.Role.COMPACTED)

    def abandon(self) -> None:
        """Nothing of it was adopted: remove it."""
        self._file.close()
        engine = self._engine
        engine.fs.remove(names.hint(engine.path, self.number))
        engine.fs.remove(names.segment(engine.path, self.number))


def write_and_adopt(
    engine: Engine, committer: Committer, groups: Iterable[Group], report: CompactionReport
) -> None:
    """Write all groups into compacted segments and publish each as soon as it is full."""
    output: Output | None = None
    try:
        for group in groups:
            if output is None:
                output = Output(engine, reserve(engine, committer))
            output.add(group)
            report.nodes_read += len(group.parts)
            if output.offset >= engine.limits.segment_bytes:
                full, output = output, None
                adopt(engine, committer, full, report)
        if output is not None:
            full, output = output, None
            adopt(engine, committer, full, report)
    finally:
        if output is not None:
            output.abandon()


def adopt(engine: Engine, committer: Committer, output: Output, report: CompactionReport) -> None:
    """Publish a compacted segment: one commit, in a main segment with a higher number."""
    output.finish()
    with committer.locked() as words:
        if words.active_segment < output.number:  # positions of nodes stay below their commit's
            engine.roll_locked(words)

    def publish(state: State) -> tuple[int, int]:
        items = [item for item, group in output.items if _unchanged(state, group)]
        if items:
            state.emit(frames.Adopt(output.number, tuple(items)))
        return len(items), sum(1 for item in items if item.payload_bytes)

    adopted, written = committer.run(publish)
    report.nodes_written += written
    report.nodes_skipped += len(output.items) - adopted
    if written:
        report.segments_written += 1
    elif not adopted:  # an adopted one without nodes is dropped like any other that is empty
        output.abandon()


def _unchanged(state: State, group: Group) -> bool:
    """Whether every part is still the version, with the vector, that was read."""
    return all(
        state.index.node(part.stream, part.master) == part.locator
        and state.record(part.stream) is not None
        for part in group.parts
    )


def seal(engine: Engine, committer: Committer) -> None:
    """Seal the active segment, if it holds anything."""
    with committer.locked() as words:
        start = engine.start_of_next(words)
        if start & fmt.OFFSET_MAX > fmt.SEGMENT_HEAD_BYTES:
            engine.roll_locked(words)


def drop_dead(
    engine: Engine, committer: Committer, victims: set[int], pinned: set[int],
    report: CompactionReport,
) -> None:  # fmt: skip
    """Drop segments in which nothing lives any more, and unlink them."""
    report.segments_pinned = len(victims & pinned)

    def publish(state: State) -> list[int]:
        rows = state.index.segment_rows()
        held = {
            record.open_version >> 32 for record in state.index.records() if record.open_version
        }
        dead = [
            number
            for number in sorted(victims - pinned)
            if number < min(held, default=number + 1)
            and number in rows and not rows[number].live_nodes
            and number != state.meta.active_segment
        ]  # fmt: skip
        for number in dead:
            state.emit(frames.DropSegment(number))
        return dead

    dead: list[int] = committer.run(publish)
    if not dead:
        return
    sync.flush(engine, committer)  # the drop, and every copy, before the file goes
    with committer.locked():
        engine.wake.dropped += len(dead)
    for number in dead:
        unlink(engine, number)
    engine.notice_drops()
    report.segments_dropped += len(dead)


def unlink(engine: Engine, number: int) -> None:
    """Remove a segment's files; the hint first, so that it never outlives its segment."""
    engine.fs.remove(names.hint(engine.path, number))
    engine.fs.remove(names.segment(engine.path, number))
    engine.fs.sync_directory(engine.path / names.LOG)


def restate_opens(committer: Committer, victims: set[int], *, purge: bool) -> int:
    """Write open nodes whose frames lie in a victim anew; how many."""
    done = after = 0
    while True:
        restated: tuple[int, int] = committer.run(
            partial(_restate_some, after=after, newest_victim=max(victims, default=0), purge=purge)
        )
        count, after = restated
        done += count
        if not after:
            return done


def _restate_some(state: State, after: int, newest_victim: int, purge: bool) -> tuple[int, int]:
    """Some open nodes of streams above ``after``; how many, and the last one looked at (0: end)."""
    count = 0
    for record in state.index.records(after):
        if record.open_version and record.open_version >> 32 <= newest_victim:
            _restate(state, record, purge=purge)
            count += 1
            if count == OPENS_A_COMMIT:
                return count, record.number
    return count, 0


def _restate(state: State, record: StreamRecord, *, purge: bool) -> None:
    """State one open node anew; for erasure without its tombstones, or not at all."""
    lp = state.open_listpack(record.number)
    if lp is None:
        return
    master = record.open_master
    if purge:
        if not codec().counts(lp)[0]:
            state.emit(frames.Trim(record.number, *master, *master))
            return
        lp = codec().rewrite([(lp, master.ms, master.seq, b"")], *master)
    state.emit(frames.Open(record.number, *master, *record.last, 0, lp))


def remove_garbage(engine: Engine) -> None:
    """Compacted segments that no adopt commit ever named, and dropped ones not yet unlinked."""

    def used(view: Snapshot) -> set[int]:
        found = {locator.position >> 32 for _, _, _, locator in view.index.all_nodes()}
        return found | set(view.index.segment_rows()) | {view.meta.active_segment}

    keep = snapshot.read(engine, used)
    covered = min(names.checkpoints(engine.fs, engine.path), default=0) >> 32
    for number, (head, _) in chain.heads(engine.fs, engine.path, engine.uuid).items():
        if number not in keep and (head.role == fmt.Role.COMPACTED or number < covered):
            unlink(engine, number)
