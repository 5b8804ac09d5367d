"""Opening a store: the numbered passes from a directory to an engine.

(1) STORE and versions. A new store is made here, and one of an older format becomes one of this.
(2) Is the index valid? If not, it is not even opened.
(3) An index that is not valid is rebuilt beside the old one: checkpoint, hints, replay.
(4) BOOT names the index, before anything is written to it.
(5) The tail of the log: a dead writer's commit is finished or cut off. After a power cut the
    segment that was written to is sealed, and a new one begun.

``open_engine`` takes the lock and goes through the passes. The first opener, who has the store to
itself, does all of them; who joins others finds their index in use, and so valid.

Processes that have a store open share three files: LOCK, USERS and WAKE. If one of them is not the
file that the others have, two processes would write over each other's entries, so nobody joins
then. What tells is the locks that living processes hold (``shm.users_file``,
``shm.commit_words``), which no copy of a file has, and for LOCK the inode that WAKE names.

Invariants: all of it under LOCK, so that two openers never decide at once; nothing of the store is
changed before it is known who has it open; what looks replaced is looked at again for a while, for
a process may be dying meanwhile; after a clean close no body of a segment is read; every step may
be cut off by a crash, and the next opener does it again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from logstore import format as fmt
from logstore import fsinfo
from logstore.engine.commit import log_tail, write_back
from logstore.engine.maintenance import column_statistics
from logstore.engine.runtime import disk_space, identity, maintenance_locks
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm import process_identity
from logstore.engine.shm.commit_words import LogWords, NotHeldError, Wake
from logstore.engine.shm.users_file import SettleTime, Users, replaced
from logstore.engine.shm.writer_lock import WriterLock
from logstore.errors import (
    CorruptionError,
    DamagedStoreError,
    DiskFullError,
    Error,
    StoreError,
    StoreInUseError,
)
from logstore.features.feature_list import first_due
from logstore.fs import FileSystem
from logstore.index.env import translated
from logstore.index.txn import IndexTxn
from logstore.log import chain, file_names, storefile
from logstore.options import StoreLimits, StoreOptions
from logstore.recovery import create as creation
from logstore.recovery import index_validity
from logstore.recovery.index_validity import ShutdownMarker
from logstore.recovery.report import RecoveryReport

if TYPE_CHECKING:
    from logstore.engine.runtime.engine import NextIndex


def peek_at_wake(fs: FileSystem, path: Path) -> Wake | None:
    """WAKE as it lies there: only to name the owner of LOCK while waiting for it."""
    try:
        return Wake(fs, path / file_names.WAKE)
    except (OSError, StoreError):
        return None


def join(fs: FileSystem, path: Path, lock: WriterLock, users: Users) -> Wake | None:
    """WAKE of those who have the store open; None, and it is held alone, if nobody has.

    StoreInUseError if they cannot be joined: one of the files that they share was replaced.
    """
    settling = SettleTime()
    while True:
        alone = users.enter()
        if alone:
            return None
        odd = file_names.USERS
        if alone is not None:
            try:
                return _joined(fs, path, lock)
            except NotHeldError:
                odd = file_names.WAKE
        if not settling.wait():
            users.close()
            raise replaced(path, odd)


def _joined(fs: FileSystem, path: Path, lock: WriterLock) -> Wake:
    try:
        wake = Wake(fs, path / file_names.WAKE, hold=True, join=True)
    except FileNotFoundError:
        raise StoreInUseError(
            f"{path / file_names.WAKE} was removed while the store is open: close it in every "
            "process"
        ) from None
    if wake.lock_file != lock.file.stat().inode:
        raise replaced(path, file_names.LOCK)
    if wake.namespace not in (0, process_identity.pid_namespace()):
        raise StoreInUseError(
            f"{path} is open in another pid namespace (a container?), and LMDB cannot tell the two "
            "apart: let the containers share one pid namespace, or open it in one of them"
        )
    return wake


def first_wake(fs: FileSystem, path: Path, lock: WriterLock, users: Users, failed_at: int) -> Wake:
    """WAKE anew, by the first opener. The store is held shared from here on."""
    # A failed sync stays known until what it left behind was written anew.
    Wake.create(fs, path / file_names.WAKE, failed_at, path / file_names.RESERVE)
    if not users.share():
        raise StoreInUseError(f"{path} was taken by another process: try again")
    wake = Wake(fs, path / file_names.WAKE, hold=True)
    wake.lock_file = lock.file.stat().inode
    wake.made_as = fsinfo.file_identity(path / file_names.WAKE)
    wake.namespace = process_identity.pid_namespace()
    wake.set_owner(process_identity.packed_self())  # of LOCK; the words are new
    return wake


# What an opener gives up on a full disk, cheapest first: all of it can be made again. An index goes
# that is not valid, and is rebuilt beside what is there of it; else hints go.
RESERVE, INDEX, HINTS = 1, 2, 3


class NotOpenError(StoreError):
    """No other process has the store open, as ``only_join`` asks for; nothing was changed."""


@translated()
def open_engine(
    fs: FileSystem,
    path: Path,
    options: StoreOptions,
    *,
    create: bool,
    limits: StoreLimits,
    accept_loss: bool = False,
) -> tuple[Engine, RecoveryReport]:
    """All passes; the engine, and what they found and did.

    ``create`` makes a store, with these ``limits``, where there is none. ``accept_loss`` goes on
    past what is damaged or missing, and reports it. NotAStoreError, StoreInUseError,
    LockTimeoutError, FormatVersionError; DamagedStoreError for damage that only ``accept_loss``
    goes past.
    """
    path = creation.place(fs, path, create=create)
    shortage = 0  # nothing is given up yet
    while True:
        report = RecoveryReport()
        try:
            engine = _open_locked(
                fs,
                path,
                options,
                report,
                create=create,
                limits=limits,
                accept_loss=accept_loss,
                shortage=shortage,
            )
        except DiskFullError:
            if not report.first_opener or report.created or shortage == HINTS:
                raise
            # Every step may be cut off anywhere: this try ends like a crash, and the next begins.
            shortage += 1
            if shortage == INDEX and report.index_trusted:
                shortage = HINTS
            continue
        return engine, report


def _give_up(fs: FileSystem, path: Path, shortage: int) -> None:
    """Make room, after an opener that found none. Nobody else has the store open."""
    fs.remove(path / file_names.RESERVE)
    if shortage == INDEX:
        for name in filter(file_names.is_generation, fs.names(path / file_names.INDEX)):
            fs.remove_tree(path / file_names.INDEX / name)
    if shortage == HINTS:
        disk_space.give_up_hints(fs, path)


def _open_locked(
    fs: FileSystem,
    path: Path,
    options: StoreOptions,
    report: RecoveryReport,
    *,
    create: bool,
    limits: StoreLimits,
    accept_loss: bool,
    shortage: int,
) -> Engine:
    """Take LOCK, go through the passes, give LOCK back."""
    lock = WriterLock(fs, path / file_names.LOCK)
    users: Users | None = None
    engine: Engine | None = None
    try:
        # A process that may not be the first one writes nothing before it knows, not even its pid.
        # Nor is WAKE as it was kept mapped any longer: it takes the space of the new one.
        lock.acquire(None if options.only_join else peek_at_wake(fs, path), options.lock_timeout_s)
        if fs.stat(path / file_names.LOCK).inode != lock.file.stat().inode:
            raise StoreInUseError(f"{path / file_names.LOCK} was replaced: try again")
        # (1) STORE and versions.
        content, report.created = creation.store_file(
            fs, path, limits if create else None, options.clock.now_ms()
        )
        users = Users(fs, path)
        _refuse_older(path, content, users)
        wake, failed_at = join(fs, path, lock, users), 0
        first = report.first_opener = wake is None
        if first and options.only_join:
            raise NotOpenError(f"no other process has {path} open")
        if shortage and first:
            _give_up(fs, path, shortage)
        if wake is None:
            _upgrade(fs, path, content)
            failed_at = Wake.last_failure(fs, path / file_names.WAKE)
            wake = first_wake(fs, path, lock, users, failed_at)
        engine = Engine(
            fs,
            path,
            content.uuid,
            content.limits,
            options,
            lock=lock,
            users=users,
            wake=wake,
            rebuild=lambda self: _rebuild(self, report),
        )
        engine.copy_index = _copy_index
        engine.renewing = _next_index
        engine.accept_loss = accept_loss
        if first:
            _recover(engine, report, failed_at)  # (2) to (5)
        else:
            _join(engine, report)
        lock.release(wake)
    except BaseException:
        if engine is not None:
            engine.release_files()
        else:
            lock.close()
            if users is not None:
                users.close()
        raise
    return engine


# -- (1) STORE and versions ---------------------------------------------------------------------
def _refuse_older(path: Path, content: storefile.StoreFile, users: Users) -> None:
    """An opener of this format would have upgraded the store, under LOCK."""
    if content.version != fmt.FORMAT_VERSION and not users.alone():
        raise StoreInUseError(
            f"{path} is of format {content.version} and open in another process, whose logstore is "
            "older: close it there, and it becomes a store of this format when it is opened again"
        )


def _upgrade(fs: FileSystem, path: Path, content: storefile.StoreFile) -> None:
    """Make a store of an older format one of this format. LOCK is held; nobody else has it open.

    Crash order: STORE (temporary name, sync, rename, directory sync), then everything else. So an
    older logstore is refused by STORE before it meets anything that this format puts into the
    store. Before the rename it is a store of the older format, which the next opener upgrades; a
    kill between rename and directory sync is made up for by BOOT, whose writing syncs the same
    directory before the first commit.
    """
    if content.version == fmt.FORMAT_VERSION:
        return
    storefile.upgrade(fs, path, content)
    log.info(
        "%s was of format %d and is now of format %d: an older logstore refuses it from here on",
        path,
        content.version,
        fmt.FORMAT_VERSION,
    )


# -- (2) to (5), by the first opener --------------------------------------------------------------
def _recover(engine: Engine, report: RecoveryReport, failed_at: int) -> None:
    """Nobody else has the store open. A sync failed at position ``failed_at`` (0: none did)."""
    fs, store = engine.fs, engine.path
    if failed_at:
        from logstore.recovery import unsynced

        report.restated_segments = unsynced.rewrite(engine, failed_at)
    for name in filter(file_names.is_half_generation, fs.names(store / file_names.INDEX)):
        fs.remove_tree(store / file_names.INDEX / name)
    marker = index_validity.read_marker(fs, store)
    if not engine.accept_loss:
        engine.promised = index_validity.promised(fs, store, marker)
    index_validity.check_log_reaches(engine, engine.promised)
    report.why_not_trusted = _why_not_valid(engine, marker)  # (2)
    report.index_trusted = not report.why_not_trusted
    if not report.index_trusted:
        if not report.created:
            log.info("%s: the index is rebuilt: %s", engine.path, report.why_not_trusted)
        _set_generation(engine, marker.generation if marker is not None else 0)
        engine.rebuild_locked()  # (3); BOOT (4) is part of it
    else:
        _mark_dirty(engine, marker)  # (4)
    if report.index_trusted and marker is not None and marker.clean_applied:
        _publish_clean(engine, report)
    else:
        cut = _segment_of_power_cut(engine, marker)
        _finish_tail(engine, report)  # (5)
        if cut:
            _leave_segment(engine, cut)
    if failed_at:
        _tell_at_risk(engine, report, failed_at)
    disk_space.ensure(engine)  # last: what was needed until here had to come from it


def _why_not_valid(engine: Engine, marker: ShutdownMarker | None) -> str:
    """Why the index must be rebuilt, in words; empty if it is valid, and then it is open."""
    if engine.accept_loss:
        return "recover reads the whole log"
    why = index_validity.why_not(engine, marker)
    if why or marker is None:
        return why
    _set_generation(engine, marker.generation)
    try:
        generation = engine.use_generation(marker.generation)
        index_validity.check_applied(engine, generation, marker)
    except DamagedStoreError:
        raise  # of the log: the index is not to blame, and another one would not help
    except (FileNotFoundError, CorruptionError) as exc:
        return str(exc)
    return ""


def _set_generation(engine: Engine, number: int) -> None:
    engine.wake.set_log(LogWords(0, 0, 0, 0, 0, number, 0))


# What most openings do not need is loaded by those that do: loading takes longer than opening.
def _rebuild(engine: Engine, report: RecoveryReport) -> int:
    from logstore.recovery import replay

    return replay.build(engine, report)


def _copy_index(engine: Engine) -> int:
    from logstore.recovery import replay

    return replay.copy_used(engine)


def _next_index(engine: Engine) -> NextIndex:
    from logstore.recovery import next_index

    return next_index.NextIndex(engine)


def _mark_dirty(engine: Engine, before: ShutdownMarker | None) -> None:
    """The clean mark goes, durably, before the first write to the index."""
    generation = engine.generation
    assert generation is not None
    engine.settle_generation(generation)
    here = index_validity.identity(generation.path / "data.mdb")
    marker = index_validity.dirty_marker(generation.number, here, engine.promised)
    if marker != before:  # after a kill it stands there already
        index_validity.write_marker(engine.fs, engine.path, marker)


def _publish_clean(engine: Engine, report: RecoveryReport) -> None:
    """After a clean close the index stands at the end of the log, which is durable."""
    generation = engine.index()
    with generation.env.begin() as txn:
        index = IndexTxn(generation, txn)
        meta, due_ms = index.meta(), first_due(index)
    links = chain.main_links(engine.fs, engine.path, engine.uuid, meta.active_segment)
    if not links:  # the tail check says what is missing
        _finish_tail(engine, report)
        return
    end = links[-1].end_offset
    number, offset = fmt.position_parts(meta.applied)
    at_end = offset == end if number == meta.active_segment else end == fmt.SEGMENT_HEAD_BYTES
    if links[-1].number != meta.active_segment or not at_end:
        _finish_tail(engine, report)
        return
    engine.wake.next_due_ms = due_ms
    engine.wake.publish(meta)
    engine.wake.reset_durable(meta.applied)


# -- (5) the tail ---------------------------------------------------------------------------------
def _finish_tail(engine: Engine, report: RecoveryReport) -> None:
    words, tail = log_tail.check_locked(engine)
    _sync_active(engine, words)
    report.commits_finished = tail.commits
    report.torn_bytes, report.torn_position = tail.torn_bytes, tail.torn_at
    if tail.saved is not None:
        report.saved_to = str(tail.saved)
        log.warning(
            "%d bytes behind the last complete commit were set aside in %s",
            tail.torn_bytes,
            tail.saved,
        )


def _sync_active(engine: Engine, words: LogWords) -> None:
    """The first opener syncs first, names too: only then is ``durable_upto`` true."""
    engine.fs.sync_directory(engine.path / file_names.LOG)
    engine.sync_file(engine.active_file(words.active_segment), 0)
    engine.wake.reset_durable(words.applied)


def _segment_of_power_cut(engine: Engine, marker: ShutdownMarker | None) -> int:
    """The segment that was written to when the power was cut; 0 if it was not."""
    here = index_validity.identity(engine.path / file_names.LOCK)
    if not index_validity.power_was_cut(marker, here):
        return 0
    return chain.main_links(engine.fs, engine.path, engine.uuid)[-1].number


def _leave_segment(engine: Engine, segment: int) -> None:
    """Seal the segment that a power cut met, unless the log already goes on in another one.

    Commits that were lost may stand on the disk behind the end of that segment, in blocks that a
    file system shows again when the file grows over them and its new bytes are lost: whole frames,
    at their place, with the next number. An opening that did not see them has said what there is,
    so they must not come back. The seal is synced over them, and what a sealed segment holds behind
    its end is void.

    Crash order: the seal, the new segment, then BOOT, which the rebuild has left as it was: whoever
    opens the store before that does all of it again. A full disk does not stand in the way.
    """
    words = engine.wake.log()
    if words.active_segment == segment:
        try:
            log_tail.roll_locked(engine, words)
        except DiskFullError as exc:  # reads, deletes and acks must go on
            log_tail.finish_locked(engine)
            log.warning(
                "%s: the segment that was written to before the power cut is not sealed: %s",
                engine.path,
                exc,
            )
    index_validity.name_generation(engine, engine.index().number)


def _tell_at_risk(engine: Engine, report: RecoveryReport, failed_at: int) -> None:
    from logstore.recovery import unsynced

    report.at_risk = unsynced.at_risk(engine, failed_at)


# -- joining those who have the store open --------------------------------------------------------
def _join(engine: Engine, report: RecoveryReport) -> None:
    """Others have the store open: their index is in use, and valid."""
    if not engine.accept_loss:  # who makes a new generation states it in BOOT once more
        engine.promised = index_validity.promised(
            engine.fs, engine.path, index_validity.read_marker(engine.fs, engine.path)
        )
    report.index_trusted = True
    try:
        engine.use_generation(engine.wake.generation())
        with engine.index().env.begin() as txn:
            IndexTxn(engine.index(), txn).meta()
    except (FileNotFoundError, CorruptionError) as exc:
        report.index_trusted = False
        report.why_not_trusted = str(exc)
        engine.rebuild_locked()
        log_tail.check_locked(engine, sync=not engine.wake.failed_at)
    # After a failed sync no commit is finished: the next sync would work, and be believed.
    if not engine.wake.failed_at:
        words = engine.wake.log()
        if words.in_progress:
            log_tail.check_locked(engine)
        else:
            log_tail.look_locked(engine, words)
    if engine.wake.failed_at:
        _tell_at_risk(engine, report, engine.wake.failed_at)


# -- closing --------------------------------------------------------------------------------------
@translated()
def close_engine(engine: Engine) -> None:
    """Close; the last closer leaves a clean mark.

    Crash order: log sync, index sync, mark. A crash before the mark leaves a dirty store, which
    the next opener handles; after it everything the mark speaks of is durable.
    """
    try:
        identity.check_whole(engine)
        if not engine.wake.failed_at:
            _leave_hints(engine)
            engine.lock.acquire(engine.wake, engine.options.lock_timeout_s)
            words = engine.wake.log()
            if not words.in_progress:
                words = log_tail.look_locked(engine, words, careful=True)
            if engine.users is not None and engine.users.alone():
                _mark_clean(engine, words)
    except CorruptionError:
        # The next opener must see it, too, where the log lacks what was durable.
        promised = max(engine.promised, engine.wake.durable_upto)
        marker = index_validity.invalid_marker(promised)
        index_validity.write_marker(engine.fs, engine.path, marker)
        raise
    finally:
        # USERS goes before LOCK: whoever waits for LOCK must not find us among the users.
        engine.release_files()


def _leave_hints(engine: Engine) -> None:
    try:
        maintenance_locks.write_missing_hints(engine)
        most_bytes = column_statistics.MOST_BYTES_AT_CLOSE
        column_statistics.write_missing(engine, most_bytes=most_bytes, renew=False)
    except (Error, OSError) as exc:  # what they are for is slower without them, and no less right
        log.warning(
            "%s: hints or statistics were not written; a rebuild, or a read for a condition, is "
            "slower: %s",
            engine.path,
            exc,
        )


def _mark_clean(engine: Engine, words: LogWords) -> None:
    if words.in_progress:
        words = log_tail.finish_locked(engine)
    _sync_active(engine, words)
    try:
        write_back.follow_locked(engine, words)
    except DiskFullError as exc:  # all is durable; the next opener takes it in from the log
        log.warning("%s was closed, and its index follows at the next open: %s", engine.path, exc)
        return
    generation = engine.index()
    generation.sync()
    with generation.env.begin() as txn:
        meta = IndexTxn(generation, txn).meta()
    data = generation.path / "data.mdb"
    try:
        here, file = index_validity.identity(data), engine.fs.stat(data)
        marker = index_validity.clean_marker(generation.number, here, meta, file)
        index_validity.write_marker(engine.fs, engine.path, marker)
    except FileNotFoundError:
        return  # deleted by hand: the next opener rebuilds
    except DiskFullError as exc:  # all is durable; the next opener only looks longer
        log.warning("%s was closed, but is not marked as closed: %s", engine.path, exc)
