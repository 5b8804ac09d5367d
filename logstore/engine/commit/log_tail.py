"""The end of the log: the tail check, and the step from a full segment to the next one.

The tail is what stands in the log behind what the index has applied. One code path serves a dead
writer's commit, a dirty open and the end of a rebuild. The part of it that is published is no
dead writer's: the index only lags behind it (``write_back``), and follows.

Invariants: the mutex and LOCK are held; what is accepted is synced before it is published, and what
was published keeps the promise that it had; complete
commits are never cut off with ftruncate, the header of a new segment voids them; whether bad bytes
are a torn tail or damage is decided here, at one place (``_segment``), by ``durable_upto`` of the
valid frames behind them and by the positions that clean closes and checkpoints recorded; the log
has one active segment, and each later segment names the position at which the one before it ended.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from logstore import format as fmt
from logstore.engine.apply.streams import apply_commit
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime import disk_space, identity, reopen
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.runtime.segments import SegmentGone
from logstore.engine.shm.commit_words import LogWords
from logstore.errors import CorruptFrameError, DamagedStoreError, DiskFullError, UnreadableError
from logstore.features.feature_list import first_due
from logstore.format import Kind
from logstore.fs import File
from logstore.index import env
from logstore.index.txn import IndexTxn
from logstore.log import chain, file_names, log_reader, segment
from logstore.log import frame as frames
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.engine.apply.write_txn import WriteTxn
    from logstore.engine.runtime.engine import Engine


class TailReport(NamedTuple):
    """What a tail check found: commits finished, bytes set aside."""

    commits: int
    torn_bytes: int
    torn_at: int  # position; 0: nothing was torn
    saved: Path | None


NOTHING = TailReport(0, 0, 0, None)
END_LOOK_NS = 1_000_000  # how long commits trust that the log ends where WAKE says


def look_locked(engine: Engine, words: LogWords, *, careful: bool = False) -> LogWords:
    """Does the log end where WAKE says, no commit being in progress? Where it stands then.

    ``careful``: and with the commit that WAKE says? If an older WAKE was written over it, the log
    goes on behind that: the tail check takes it in. What something else wrote there is set
    aside. StoreGoneError if the file that is held is not the active segment any more;
    DamagedStoreError if the log is shorter, or ends otherwise.
    """
    number = words.active_segment
    try:
        found = engine.active_file(number).stat()
    except FileNotFoundError:
        return finish_locked(engine)  # it was dropped since, or is missing
    end = fmt.offset_of(fmt.start_of_next(words.applied, number))
    if found.size_bytes == end and found.links:
        if careful:
            _check_last(engine, words)
        return words
    identity.check_active_locked(engine, number)
    why = f"segment {number} ends at {found.size_bytes}, where WAKE says {end}"
    log.warning("%s: %s: the end of the log is checked", engine.path, why)
    return finish_locked(engine)


def _check_last(engine: Engine, words: LogWords) -> None:
    """DamagedStoreError if the frame that ends the last commit is not what was written."""
    if not words.last_frame:
        return
    number, offset = fmt.position_parts(words.last_frame)
    try:
        file = engine.fs.open(file_names.segment(engine.path, number))
    except FileNotFoundError:
        return  # it was sealed, and dropped since
    try:
        frame = log_reader.read_frame(file, engine.seed, number, offset, file.size_bytes())
        if (frame.crc, frame.commit) != (words.last_crc, words.commit):
            raise CorruptFrameError("another commit stands there", segment=number, offset=offset)
    except UnreadableError:
        raise
    except CorruptFrameError as exc:
        identity.check_active_locked(engine, words.active_segment)  # or the log is another one
        raise _damaged(exc, words.last_frame) from exc
    finally:
        file.close()


def finish_locked(engine: Engine, *, sync: bool = True) -> LogWords:
    """Apply complete commits behind the index, cut off the rest; where the log stands then."""
    try:
        words, report = check_locked(engine, sync=sync)
    except Exception as exc:
        if not _made_room(engine, error := env.typed(exc)):
            raise error from exc
        words, report = check_locked(engine, sync=sync)
    if report.torn_bytes:
        engine.metrics.count("torn_tails")
    return words


def _made_room(engine: Engine, error: BaseException) -> bool:
    """Whether the index may try again what it refused with this error. The log has it already, so
    the space set aside may be used for it."""
    again = reopen.revive(engine)
    if isinstance(error, DiskFullError):
        again = disk_space.release(engine) or again
    return again


def check_locked(engine: Engine, *, sync: bool = True) -> tuple[LogWords, TailReport]:
    """The tail check itself, with its report.

    Crash order: what is accepted is synced, the rest is set aside and cut, then LMDB's commit, then
    WAKE. It may be cut off anywhere and is then done again. An index that is up to date is not
    written to, so that a full disk does not stand in the way of finding that nothing happened.
    """
    generation = engine.index()
    torn = NOTHING
    count = 0
    foreign: int = 1
    # What living processes have published is whole, or damaged, but never torn.
    published, in_progress = engine.wake.applied, engine.wake.in_progress
    engine.check_open()  # which may be lost
    engine.cache.clear()
    with generation.env.begin(write=True) as index_txn:
        index = IndexTxn(generation, index_txn)
        meta = index.meta()
        txn = WriteTxn(engine, index, meta, meta.applied, meta.commit)
        links = chain.main_links(engine.fs, engine.path, engine.uuid, fmt.segment_of(meta.applied))
        for place, link in enumerate(links):
            file = engine.fs.open(file_names.segment(engine.path, link.number), write=True)
            try:
                last = place == len(links) - 1
                finished, torn = _segment(engine, txn, file, link, published, last=last)
                count += finished
                # Also without a find: the dead writer may have died right behind LMDB's commit,
                # and what others committed under a weaker policy is not durable either.
                foreign = in_progress or torn.torn_bytes or txn.meta.applied > published
                if sync and foreign and (last or finished):
                    engine.sync_file(file, meta.applied)
            finally:
                file.close()
        _refuse_less(engine, txn.meta.applied, published)
        sync = sync and bool(foreign)
        _complete_roll(engine, txn)
        if sync and txn.meta.active_segment != meta.active_segment:
            # Its maker may have died, or failed, between the rename and the directory's sync.
            engine.fs.sync_directory(engine.path / file_names.LOG)
        due_ms = first_due(index)
        if txn.meta != meta or count:
            txn.flush()
    if sync:
        engine.wake.raise_durable(txn.meta.applied)
        engine.wake.oldest_unsynced_ms = 0
    engine.cache.clear()
    engine.wake.next_due_ms = due_ms
    engine.wake.publish(txn.meta)
    words = engine.wake.log()
    engine.wake.waits.bump_locked(txn.woken, set())
    return words, torn._replace(commits=count)


def follow_locked(engine: Engine, words: LogWords) -> None:
    """The index takes in what is published and it lacks, from the log; nothing is synced for that.

    No commit is in progress. The record cache stands where the log does then. DamagedStoreError.
    """
    try:
        _follow(engine, words)
    except Exception as exc:
        if not _made_room(engine, error := env.typed(exc)):
            raise error from exc
        _follow(engine, words)


def _follow(engine: Engine, words: LogWords) -> None:
    generation = engine.index()
    number = words.active_segment
    cache = engine.cache
    cache.clear()
    with generation.env.begin(write=True) as index_txn:
        index = IndexTxn(generation, index_txn)
        meta = index.meta()
        txn = WriteTxn(engine, index, meta, meta.applied, meta.commit)
        if meta.active_segment == number:
            start = fmt.offset_of(fmt.start_of_next(meta.applied, number))
            end = fmt.offset_of(fmt.start_of_next(words.applied, number))
            scanned = log_reader.scan(engine.active_file(number), engine.seed, number, start, end)
            try:
                for commit in log_reader.commits(scanned, meta.commit):
                    apply_commit(txn, commit)
            except CorruptFrameError as exc:
                raise _damaged(exc, fmt.position(number, start)) from exc
        if meta.applied < txn.meta.applied == words.applied:
            txn.flush()
        else:
            written = txn.meta.applied != meta.applied
            generation.leave(index_txn, engine.gate, written=written)
    if txn.meta.applied != words.applied:
        check_locked(engine)  # it lacks more than a tail that lags: all is looked at
        return
    engine.wake.indexed_upto = words.applied
    cache.applied, cache.meta, cache.generation = words.applied, txn.meta, generation.number


def _segment(
    engine: Engine, txn: WriteTxn, file: File, link: chain.Link, published: int, *, last: bool
) -> tuple[int, TailReport]:
    """Apply the commits of one segment that lie behind the index."""
    start = link.start_offset
    if fmt.segment_of(txn.meta.applied) == link.number:
        start = fmt.offset_of(txn.meta.applied)
    if txn.meta.active_segment < link.number:
        txn.meta = txn.meta._replace(active_segment=link.number)
    if start > link.end_offset:
        raise DamagedStoreError(
            "the log ends before what the index has applied: restore the segment, or delete the "
            "index directory to go back to what the log holds",
            segment=link.number,
            offset=link.end_offset,
        )
    count, good = 0, start
    scanned = log_reader.scan(file, engine.seed, link.number, start, link.end_offset)
    try:
        for commit in log_reader.commits(scanned, txn.meta.commit):
            apply_commit(txn, commit)
            count += 1
            good = fmt.offset_of(commit.end)
    except UnreadableError as exc:  # no crash leaves that: what stands there may have counted
        raise _damaged(exc, fmt.position(link.number, good)) from exc
    except CorruptFrameError as exc:
        behind = log_reader.behind(
            file,
            engine.seed,
            link.number,
            good,
            link.end_offset if last else good,
            max(engine.promised, published),
            txn.meta.commit,
        )
        if not last or behind.damaged:
            raise _damaged(exc, fmt.position(link.number, good)) from exc
        try:
            return count, _cut(engine, txn, file, link, good, void=behind.complete)
        except UnreadableError as lost:  # a part of it, which is not copied then, nor cut
            raise _damaged(lost, fmt.position(link.number, good)) from lost
    return count, NOTHING


def _refuse_less(engine: Engine, applied: int, published: int) -> None:
    """DamagedStoreError if the log holds less than living processes have acknowledged."""
    if applied < published and not engine.accept_loss:
        number, offset = fmt.position_parts(applied)
        raise DamagedStoreError(
            "the log ends before what was acknowledged, which ended in segment "
            f"{fmt.segment_of(published)} at {fmt.offset_of(published)}: it was cut off while the "
            "store was open; close the store in every process, and restore the segment from a "
            "backup, or accept the loss with 'logstore recover'",
            segment=number,
            offset=offset,
        )


def _damaged(exc: CorruptFrameError, at: int) -> DamagedStoreError:
    number, offset = fmt.position_parts(at)
    return DamagedStoreError(
        f"the log is damaged before its durable end: {exc.message}; run "
        "'logstore check' to see what is affected, then 'logstore recover'",
        segment=number,
        offset=offset,
    )


def _cut(
    engine: Engine, txn: WriteTxn, file: File, link: chain.Link, good: int, *, void: bool
) -> TailReport:
    """Set the un-synced tail aside and cut it whole; ``void``: a complete commit may be in it.

    Crash order: copy in quarantine, synced; then ftruncate if the bytes never formed a complete
    commit, else a new segment whose header says that this one ends at ``good``. A crash between
    the two finds the same tail again.
    """
    size = link.end_offset - good
    saved = engine.path / file_names.QUARANTINE / f"{link.number:020d}-{good:010d}.tail"
    engine.fs.make_directory(saved.parent)
    engine.fs.sync_directory(engine.path)
    engine.fs.copy_atomic(saved, file, good, size)
    if void:
        number = max(file_names.segments(engine.fs, engine.path)[-1] + 1, txn.meta.next_segment)
        end = fmt.position(link.number, good)
        engine.sync_file(file, end)
        make_segment(engine, number, end, txn.meta.commit)
        txn.meta = txn.meta._replace(active_segment=number, next_segment=number + 1)
    else:
        file.truncate(good)
    return TailReport(0, size, fmt.position(link.number, good), saved)


def _complete_roll(engine: Engine, txn: WriteTxn) -> None:
    """A writer died behind its seal frame: make the segment that it announced.

    DamagedStoreError if that segment was there before: an empty one in its place would hide that
    it was lost, with all that was acknowledged in it.
    """
    following = txn.meta.active_segment
    if engine.fs.exists(file_names.segment(engine.path, following)):
        return
    from logstore.log import hint

    number, offset = fmt.position_parts(txn.meta.last_frame)
    try:
        source = engine.segments.source(number)
    except SegmentGone:
        raise _newest_missing(following) from None
    end = fmt.offset_of(txn.meta.applied)
    last_frame = log_reader.read_frame(source, engine.seed, number, offset, end)
    if last_frame.kind != Kind.SEAL or hint.lost_successor(
        engine.fs, engine.path, engine.uuid, number
    ):
        raise _newest_missing(following)
    make_segment(engine, following, txn.meta.applied, txn.meta.commit)


def _newest_missing(number: int) -> DamagedStoreError:
    return DamagedStoreError(
        f"segment {number}, the newest of the log, is missing: restore it from a backup, or accept "
        "the loss with 'logstore recover'",
        segment=number,
    )


def roll_locked(engine: Engine, words: LogWords) -> LogWords:
    """Seal the active segment and begin the next one.

    Crash order: seal frame, sync of the old segment under every policy, new segment under a
    temporary name, sync, rename, directory sync, index, WAKE. A writer that dies after the
    seal frame leaves a tail whose last commit is the seal: the tail check makes the segment.
    """
    identity.check_whole(engine)
    if engine.wake.indexed_upto < words.applied:  # it lags behind one segment at most
        follow_locked(engine, words)
    generation = engine.index()
    with generation.env.begin(write=True) as index_txn:
        index = IndexTxn(generation, index_txn)
        meta = index.meta()
        number = words.commit + 1
        txn = WriteTxn(
            engine, index, meta, fmt.start_of_next(words.applied, words.active_segment), number
        )
        following = max(meta.next_segment, file_names.segments(engine.fs, engine.path)[-1] + 1)
        txn.emit(frames.Seal(following))
        buffer = txn.buffer
        engine.wake.begin(number)
        file = engine.active_file(words.active_segment)
        data = buffer.encode(engine.seed, engine.wake.durable_upto)
        file.pwrite(data, fmt.offset_of(buffer.start))
        engine.sync_file(file, buffer.start)
        make_segment(engine, following, buffer.end, number)
        txn.meta = txn.meta._replace(
            applied=buffer.end,
            commit=number,
            last_frame=buffer.last_start,
            last_crc=buffer.last_crc,
        )
        txn.flush()
    engine.wake.raise_durable(buffer.end)
    engine.wake.oldest_unsynced_ms = 0
    engine.cache.clear()
    engine.wake.publish(txn.meta)
    return engine.wake.log()


def make_segment(engine: Engine, number: int, previous_end: int, previous_commit: int) -> None:
    """Create a main segment that follows ``previous_end``, durable."""
    head = segment.SegmentHead(
        fmt.Role.MAIN, number, engine.uuid, previous_end, previous_commit, engine.clock.now_ms()
    )
    segment.create(engine.fs, engine.path, head).close()
