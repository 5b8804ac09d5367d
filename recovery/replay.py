"""Building an index from the log: checkpoint, hints, replay; and taking in what was appended since.

Passes: (1) the newest valid checkpoint gives streams, vectors and the live nodes of the segments
before it; (2) frames before its position are replayed only for what a checkpoint does not hold,
the open nodes; (3) frames behind it are replayed physically, from hints where there are some;
(4) open nodes are put together, counts are taken anew; (5) the generation is renamed into place.
What stands behind the last complete commit is left to the tail check, which follows.

Who reads a store without writing to it (``recovery.readonly``), and who builds the next index of an
open one beside those who commit (``recovery.next_index``), has an index that nobody else writes to.
``take_in`` brings it up to what was appended to the log since it was made.

Invariants: the old generation is never opened; damage in a sealed segment is reported and passed
over, its neighbours are applied as far as they still say something certain
(``recovery.replay_guard``).

Invariants of taking in: a commit is taken in only if it is complete, and up to the end that the
caller gave; frames are applied by the code that applies them anywhere, all of one call in one
transaction of LMDB. The log's segments may go meanwhile: SegmentGone, and nothing was taken in.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logstore import format as fmt
from logstore.engine.apply.bulk_create import BulkCreate
from logstore.engine.apply.streams import apply, apply_commit
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.runtime.segments import SegmentGone
from logstore.engine.txn import nodes
from logstore.errors import CorruptFrameError, DamagedStoreError, DiskFullError, UnreadableError
from logstore.index.env import Generation, open_generation
from logstore.index.keys import Meta, OpenNode, SegmentRow, StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log import chain, file_names, hint, log_reader
from logstore.log import frame as frames
from logstore.recovery import index_validity
from logstore.recovery.replay_guard import UNREADABLE, ReplayGuard
from logstore.recovery.report import Damage, RecoveryReport

_NONE = [0, 0]
Published = Callable[[], int | None]
_OPEN_NODE_BODIES = (frames.Open, frames.Append, frames.Tombstone)


def build(engine: Engine, report: RecoveryReport, published: Published | None = None) -> int:
    """Build the next generation; its number. LOCK is held, or ``published`` says where to end:
    what stands behind that position of the active segment is not taken in.
    """
    started = time.monotonic_ns()
    fs, store = engine.fs, engine.index_home
    number = 1 + max([0, engine.wake.generation(), *file_names.generations(fs, store)])
    path = file_names.generation(store, number)
    temporary = path.with_name(path.name + file_names.TEMPORARY)
    generation = open_generation(fs, temporary, number, build=True)
    try:
        with _uncollected():
            Rebuild(engine, generation, report, published).run()
    except DiskFullError:
        generation.close()
        fs.remove_tree(temporary)  # what it took is wanted for the next try
        raise
    finally:
        generation.close()
    fs.rename(temporary, path)
    # A crash before this names the old generation, which nobody has written to meanwhile.
    here = index_validity.identity(path / "data.mdb")
    marker = index_validity.read_marker(fs, store)
    if not engine.options.readonly and not index_validity.power_was_cut(marker, here):
        index_validity.name_generation(engine, number)
    report.rebuilt = True
    report.rebuild_ms = (time.monotonic_ns() - started) // 1_000_000
    log.info("index generation %d rebuilt in %d ms", number, report.rebuild_ms)
    return number


def copy_used(engine: Engine) -> int:
    """Copy the index into its next generation without free pages; its number. LOCK is held.

    After many deletes most of LMDB's file is free pages, and the file never shrinks by itself. A
    copy of what is in use takes a fraction of the time of a rebuild, so writers may wait for it.

    Crash order: the copy has a temporary name until it is whole; until BOOT names it the old
    generation is valid, which nobody writes to meanwhile; from then on the copy is.
    """
    fs, store = engine.fs, engine.index_home
    before = engine.index()
    number = 1 + max([before.number, *file_names.generations(fs, store)])
    path = file_names.generation(store, number)
    temporary = path.with_name(path.name + file_names.TEMPORARY)
    fs.remove_tree(temporary)
    fs.make_directory(temporary)
    before.copy_used(temporary)
    fs.rename(temporary, path)
    index_validity.name_generation(engine, number)
    log.info("index generation %d was copied into %d without its free pages", before.number, number)
    return number


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the collection of cycles: there are none, and with many streams it would look through
    all that a rebuild holds again and again, while the lock is held."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Rebuild:
    """One rebuild: the state it fills and where it stands."""

    def __init__(
        self,
        engine: Engine,
        generation: Generation,
        report: RecoveryReport,
        published: Published | None = None,
    ) -> None:
        self._engine = engine
        self._generation = generation
        self._report = report
        self._published = published
        self._links = chain.main_links(engine.fs, engine.path, engine.uuid)
        self._guard = ReplayGuard(engine, report)
        # The checkpoint's records know of frames up to somewhere between these two positions.
        self._from_position = self._told_upto = 0
        self._missing: dict[int, int] = {}  # before which segment one is missing

    def run(self) -> None:
        """All passes but the last."""
        engine = self._engine
        if not self._links:
            raise DamagedStoreError("the log has no segment: restore it from a backup")
        sealed, active = self._links[:-1], self._links[-1]
        with self._generation.env.begin(write=True) as lmdb_txn:
            index = IndexTxn(self._generation, lmdb_txn)
            engine.cache.clear()
            index.hold_names()
            txn = WriteTxn(engine, index, Meta(active_segment=active.number), 0, 0)
            self._bulk_create = BulkCreate(txn)
            from_position = 0
            if file_names.checkpoints(engine.fs, engine.path):
                from logstore.recovery import checkpoint_load

                from_position = checkpoint_load.newest(engine, txn, self._report)
            positions = (record.position for record in txn.cache.records.values())
            self._from_position, self._told_upto = from_position, max(positions, default=0)
            self._check_chain(from_position)
            self._pass_lost_checkpoint(from_position)
            for link in sealed:
                self._replay(txn, link, from_position)
            self._replay_active(txn, active, from_position)
            if self._guard:
                self._bulk_create.hand_over()  # what they say is looked at one by one
            if engine.accept_loss and not from_position and self._missing:
                from logstore.recovery import checkpoint_load

                checkpoint_load.unadopted(engine, txn, self._report)
            # Behind a seal frame the next segment is the active one, also where its writer died
            # before it was made: the tail check makes it. Nothing is ever written behind a seal.
            self._finish(txn, max(active.number, txn.meta.active_segment))
            txn.flush()
            index.write_names()
        engine.cache.clear()

    def _check_chain(self, from_position: int) -> None:
        """DamagedStoreError if a segment is missing that no checkpoint stands for."""
        before = fmt.segment_of(from_position)
        for link in self._links:
            needed = fmt.segment_of(link.previous_end)
            if needed > before and link.number > fmt.segment_of(from_position):
                why = f"segment {needed} is missing, or the checkpoint that replaced it is damaged"
                if not self._engine.accept_loss:
                    raise DamagedStoreError(
                        f"{why}: restore it from a backup, or accept the loss with "
                        "'logstore recover'",
                        segment=needed,
                    )
                self._report.damage.append(Damage(needed, 0, 0, why))
                self._missing[link.number] = needed
            before = link.number
        self._check_end()

    def _pass_lost_checkpoint(self, from_position: int) -> None:
        """The segment of the checkpoint is lost, and the loss accepted: it counts nothing."""
        number = fmt.segment_of(from_position)
        if any(damage.segment == number for damage in self._report.damage):
            self._guard.passed(fmt.position(number, 0), fmt.position(number + 1, 0))

    def _check_end(self) -> None:
        """DamagedStoreError if the newest segments are missing, as the last one's hint shows."""
        engine, last = self._engine, self._links[-1].number
        lost = hint.lost_successor(engine.fs, engine.path, engine.uuid, last)
        if not lost:
            return
        why = f"segment {lost} is missing, which stood behind segment {last}"
        if not engine.accept_loss:
            raise DamagedStoreError(
                f"{why}: restore it from a backup, or accept the loss with 'logstore recover'",
                segment=lost,
            )
        self._report.damage.append(Damage(lost, 0, 0, why))

    def _frames(self, link: chain.Link) -> Iterator[log_reader.LogFrame]:
        engine = self._engine
        if link.number in self._missing:
            start = fmt.position(self._missing[link.number], 0)
            self._guard.passed(start, fmt.position(link.number, 0))
        begin, end = (fmt.position(link.number, at) for at in (link.start_offset, link.end_offset))
        whole = end <= self._from_position or begin >= self._told_upto
        kept = hint.read(engine.fs, engine.path, engine.uuid, link, joined=whole)
        if kept is not None:
            self._report.hints_used += 1
            yield from kept
            return
        self._report.segments_scanned += 1
        file = engine.fs.open(file_names.segment(engine.path, link.number))
        good = link.start_offset
        try:
            while good < link.end_offset:
                try:
                    for found in log_reader.scan(
                        file, engine.seed, link.number, good, link.end_offset
                    ):
                        yield hint.shortened(found)  # an open node's frames may be of both kinds
                        good = found.end_offset
                except CorruptFrameError as exc:
                    upto = log_reader.resume_offset(
                        file, engine.seed, link.number, good, link.end_offset
                    )
                    self._report.damage.append(Damage(link.number, good, upto, exc.message))
                    log.error("segment %d is damaged from byte %d to %d", link.number, good, upto)
                    start, end = (fmt.position(link.number, at) for at in (good, upto))
                    self._guard.passed(start, end)
                    good = upto
        finally:
            file.close()

    def _replay(self, txn: WriteTxn, link: chain.Link, from_position: int) -> None:
        last: log_reader.LogFrame | None = None
        end_position = fmt.position(link.number, link.end_offset)
        for found in self._frames(link):
            last = found
            self._apply(txn, found, from_position)
        # One that is void from its start holds no commit: the log stands in the one before, as the
        # opener that made it void left it.
        if end_position > txn.meta.applied and link.end_offset > link.start_offset:
            meta = txn.meta._replace(applied=end_position)
            if last is not None:
                meta = meta._replace(
                    commit=last.commit, last_frame=last.position, last_crc=last.crc
                )
            txn.meta = meta
        self._count_segment(txn, link)

    def _replay_active(self, txn: WriteTxn, link: chain.Link, from_position: int) -> None:
        """Complete commits of the active segment; what is behind them is the tail check's."""
        engine = self._engine
        # Asked behind the checkpoint, which may have seen what was published only just then.
        bound = None if self._published is None else self._published()
        file = engine.fs.open(file_names.segment(engine.path, link.number))
        scanned = log_reader.scan(
            file, engine.seed, link.number, link.start_offset, link.end_offset
        )
        try:
            for commit in log_reader.commits(scanned, None):
                if bound is not None and commit.end > bound:
                    break
                for found in commit.frames:
                    self._apply(txn, found, from_position)
                if commit.end > txn.meta.applied:
                    last = commit.frames[-1]
                    txn.meta = txn.meta._replace(
                        applied=commit.end,
                        commit=commit.number,
                        last_frame=last.position,
                        last_crc=last.crc,
                    )
        except CorruptFrameError as exc:
            log.info("complete commits end at offset %s: %s", exc.offset, exc.message)
        finally:
            file.close()
        self._count_segment(txn, link)

    def _apply(self, txn: WriteTxn, found: log_reader.LogFrame, from_position: int) -> None:
        at, held_back = found.position, self._bulk_create
        if self._guard:
            held_back.hand_over()
        elif at >= from_position and held_back.take(
            at, found.payload_bytes, found.kind, found.payload
        ):
            return
        body = found.body()
        if body is None:
            return
        if self._guard:
            body = self._guard.certain(txn, at, body)
        if at >= from_position:
            apply(txn, at, found.payload_bytes, body)
        elif isinstance(body, _OPEN_NODE_BODIES):
            self._open_only(txn, found, body)

    def _open_only(self, txn: WriteTxn, found: log_reader.LogFrame, body: frames.Body) -> None:
        """Frames that an open node of the checkpoint is made of."""
        record = txn.record(getattr(body, "stream", 0))
        if record is None or not 0 < record.open_version <= found.position:
            return
        if not isinstance(body, frames.Tombstone) or body.version == record.open_version:
            apply(txn, found.position, found.payload_bytes, body)

    def _count_segment(self, txn: WriteTxn, link: chain.Link) -> None:
        row = txn.segment(link.number) or SegmentRow(fmt.Role.MAIN, 0, 0, 0, link.created_ms)
        txn.put_segment(
            link.number, row._replace(total_bytes=link.end_offset, born_ms=link.created_ms)
        )

    def _finish(self, txn: WriteTxn, active: int) -> None:
        """Open nodes are put together; segments and streams are counted from what is there."""
        engine = self._engine
        new_rows = self._bulk_create.settle(engine.segments)
        records = self._join_open_nodes(txn)
        if self._guard.repaired:  # then all are looked at
            self._bulk_create.hand_over()
            records = self._join_open_nodes(txn)
        else:
            txn.new_rows = new_rows
        heads = chain.heads(engine.fs, engine.path, engine.uuid)
        rows: dict[int, SegmentRow] = {}
        for number, (head, _) in heads.items():
            found = txn.segment(number)
            total = found.total_bytes if found is not None else 0
            if number == active or head.role == fmt.Role.COMPACTED:
                total = 0  # as an adopt frame leaves it, which does not say
            rows[number] = SegmentRow(head.role, 0, 0, total, head.created_ms)
        counts: dict[int, list[int]] = {}
        for (stream, number), (count_here, payload_bytes) in txn.index.node_totals().items():
            row = rows.get(number)
            if row is not None:
                rows[number] = row._replace(
                    live_bytes=row.live_bytes + payload_bytes,
                    live_nodes=row.live_nodes + count_here,
                )
            count = counts.setdefault(stream, [0, 0])
            count[0] += count_here
            count[1] += payload_bytes
        for number in set(txn.index.segment_rows()) - set(rows):
            txn.drop_segment(number)
        replayed = {link.number for link in self._links}
        for number, row in rows.items():
            # A compacted segment without a row was never adopted: garbage for the next compaction.
            # A main one that was replayed and has none was dropped behind it: its file is about to
            # go, since another process unlinks behind the drop frame without this lock.
            new = row.role == fmt.Role.MAIN and number not in replayed
            if new or row.live_nodes or txn.segment(number) is not None:
                txn.put_segment(number, row)
        for record in records:
            count = counts.get(record.number, _NONE)
            if [record.nodes, record.node_bytes] != count:
                record.nodes, record.node_bytes = count
                txn.touch(record)
            if self._guard or self._guard.repaired:
                self._guard.count_entries(txn, record)
                txn.touch(record)
        self._report.orphans = dict(self._guard.orphans)
        txn.meta = txn.meta._replace(
            active_segment=active,
            next_segment=max([txn.meta.next_segment, *(number + 1 for number in heads)]),
        )

    def _join_open_nodes(self, txn: WriteTxn) -> list[StreamRecord]:
        """All records, their open nodes put together."""
        records = txn.all_records()
        for record in records:
            node = txn.open_node(record.number) if record.open_version else None
            if node is not None and node.runs:
                self._join_open_node(txn, record, node)
            elif node is None and record.open_version:
                self._guard.without_open(txn, record)
        return records

    def _join_open_node(self, txn: WriteTxn, record: StreamRecord, node: OpenNode) -> None:
        """Put an open node together; what cannot be read of it does not keep others from it."""
        segments = self._engine.segments
        sound: OpenNode | None = node
        if self._guard.cross(record.open_version):
            sound = self._guard.sound(record, node)
        try:
            joined = nodes.open_settled(sound, segments) if sound is not None else None
        except UNREADABLE:
            sound = self._guard.sound(record, node)
            joined = nodes.open_settled(sound, segments) if sound is not None else None
        if joined is not None:
            txn.put_open(record.number, joined)
            return
        record.open_version = 0
        txn.drop_open(record.number)
        txn.touch(record)


def take_in(engine: Engine, generation: Generation, bound: int | None) -> Meta:
    """Apply complete commits behind the index, up to the position ``bound``; where it stands then.

    The record cache of ``engine`` is of this index alone, or nobody else uses it now.
    """
    engine.cache.clear()
    with generation.env.begin(write=True) as lmdb_txn:
        index = IndexTxn(generation, lmdb_txn)
        meta = index.meta()
        txn = WriteTxn(engine, index, meta, meta.applied, meta.commit)
        links = chain.main_links(engine.fs, engine.path, engine.uuid, fmt.segment_of(meta.applied))
        if not links or links[0].number != fmt.segment_of(meta.applied):
            raise SegmentGone(fmt.segment_of(meta.applied))
        before = links[0].number
        for link in links:
            if link.number != before and fmt.segment_of(link.previous_end) != before:
                raise SegmentGone(fmt.segment_of(link.previous_end))  # dropped before it was read
            before = link.number
            last = link.number == links[-1].number
            if not _segment(engine, link, bound, txn, last=last):
                break
        txn.flush()
    engine.cache.clear()
    return txn.meta


def _segment(
    engine: Engine, link: chain.Link, bound: int | None, txn: WriteTxn, *, last: bool
) -> bool:
    """Complete commits of one segment; False if the rest is not to be looked at.

    CorruptFrameError for what is not valid, and was: in a sealed segment, or published.
    """
    start = link.start_offset
    if fmt.segment_of(txn.meta.applied) == link.number:
        start = fmt.offset_of(txn.meta.applied)
    file = engine.fs.open(file_names.segment(engine.path, link.number))
    good = fmt.position(link.number, start)
    try:
        scanned = log_reader.scan(file, engine.seed, link.number, start, link.end_offset)
        for commit in log_reader.commits(scanned, txn.meta.commit):
            if bound is not None and commit.end > bound:
                return False
            apply_commit(txn, commit)
            good = commit.end
    except CorruptFrameError as exc:
        if isinstance(exc, UnreadableError) or not last or (bound is not None and good < bound):
            raise
        return False  # a commit that is being written, or a torn tail
    finally:
        file.close()
    txn.meta = txn.meta._replace(active_segment=max(txn.meta.active_segment, link.number))
    return True
