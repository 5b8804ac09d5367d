"""Opening a store: the numbered passes from a directory to an engine.

(1) STORE and versions; a store of an older format becomes one of this. (2) Is the index to be
trusted? If not, the old generation stays unopened. (3) Rebuild: newest valid checkpoint, hints,
replay. (4) The tail: what a dead writer left is finished or cut off. (5) BOOT names the index,
before anything is written to it.

Invariants: all of it under LOCK, so that two openers never decide at once; a clean open reads no
segment body; every step may be cut by a crash and is then done again by the next opener.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

from logstore import format as fmt
from logstore.engine.commit import log_tail
from logstore.engine.runtime import identity, maintenance_locks, reserve
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm import process
from logstore.engine.shm.control_block import LogWords, Wake
from logstore.engine.shm.writer_lock import WriterLock
from logstore.errors import (
    CorruptionError,
    DamagedStoreError,
    DiskFullError,
    Error,
    StoreError,
    StoreInUseError,
)
from logstore.features.registry import first_due
from logstore.fs import File, FileSystem
from logstore.index.env import translated
from logstore.index.txn import IndexTxn
from logstore.log import chain, names, storefile
from logstore.options import StoreLimits, StoreOptions
from logstore.recovery import create as creation
from logstore.recovery import index_validity, power_cut, shutdown_marker
from logstore.recovery.report import RecoveryReport


@translated()
def open_engine(
    fs: FileSystem, path: Path, options: StoreOptions, *, create: bool, limits: StoreLimits,
    accept_loss: bool = False,
) -> tuple[Engine, RecoveryReport]:  # fmt: skip
    """All passes; the engine and what they found.

    ``accept_loss`` goes on past what is damaged or missing, and reports it.
    """
    creation.check_place(fs, path)
    if create:
        creation.make_place(fs, path)
    path = creation.hold(fs, path)  # from here on it is this directory, whatever its name
    if create:
        creation.check_free(fs, path)  # before LOCK is made: a wrong directory stays as it is
    elif not fs.exists(path / names.STORE):
        storefile.read(fs, path)  # raises, and says why
    scarce = Scarce.NOT
    while True:
        report = RecoveryReport()
        try:
            engine = _opened(
                fs, path, options, report, create=create, limits=limits, accept_loss=accept_loss,
                scarce=scarce,
            )  # fmt: skip
        except DiskFullError:
            if not report.first_opener or report.created or scarce == Scarce.HINTS:
                raise
            # All steps may be cut off anywhere: the next try is the next opener's.
            scarce = Scarce(scarce + 1)
            if scarce == Scarce.INDEX and report.index_trusted:
                scarce = Scarce.HINTS
            continue
        return engine, report


class Scarce(IntEnum):
    """What an opener gives up on a full disk, for all of it can be made again: the least first."""

    NOT = 0
    RESERVE = 1
    INDEX = 2  # one that is not trusted, and is rebuilt beside what is there of it
    HINTS = 3


def _give_up(fs: FileSystem, path: Path, scarce: Scarce) -> None:
    """Make room, after an opener that found none. Nobody else has the store open."""
    fs.remove(path / names.RESERVE)
    if scarce == Scarce.INDEX:
        for name in filter(names.is_generation, fs.names(path / names.INDEX)):
            fs.remove_tree(path / names.INDEX / name)
    if scarce == Scarce.HINTS:
        reserve.give_up_hints(fs, path)


def _opened(
    fs: FileSystem, path: Path, options: StoreOptions, report: RecoveryReport, *, create: bool,
    limits: StoreLimits, accept_loss: bool, scarce: Scarce,
) -> Engine:  # fmt: skip
    lock = WriterLock(fs, path / names.LOCK)
    users: File | None = None
    wake: Wake | None = None
    engine: Engine | None = None
    try:
        if fs.exists(path / names.WAKE):
            wake = _living_wake(fs, path)
        lock.acquire(wake, options.lock_timeout_s)
        if fs.stat(path / names.LOCK).inode != lock.file.stat().inode:
            raise StoreInUseError(f"{path / names.LOCK} was replaced: try again")
        if not fs.exists(path / names.STORE):
            if not create:
                storefile.read(fs, path)
            creation.create_store(fs, path, limits, options.clock.now_ms())
            report.created = True
        content = storefile.read(fs, path)
        users = fs.open(path / names.USERS, write=True, create=True)
        report.first_opener = users.try_lock(exclusive=True)
        if scarce and report.first_opener:
            _give_up(fs, path, scarce)
        _upgrade(fs, path, content, first=report.first_opener)
        failed_at = Wake.last_failure(fs, path / names.WAKE) if report.first_opener else 0
        wake = _wake(fs, path, users, first=report.first_opener, failed_at=failed_at)
        engine = Engine(
            fs, path, content.uuid, content.limits, options, lock=lock, users=users, wake=wake,
            rebuild=lambda found: _rebuild(found, report),
        )  # fmt: skip
        engine.copy_index = _copy_index
        engine.accept_loss = accept_loss
        if report.first_opener:
            _first(engine, report, failed_at)
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


def _upgrade(fs: FileSystem, path: Path, content: storefile.StoreFile, *, first: bool) -> None:
    """Make a store of an older format, if it is one, one of this format. LOCK and USERS are held.

    Crash order: STORE (temporary name, sync, rename, directory sync), then all else: whatever this
    format puts into the store, an older logstore is refused by STORE before it meets that. Before
    the rename it is a store of the older format, which the next opener upgrades; a kill between
    rename and directory sync is made up for by BOOT, whose writing syncs the same directory before
    the first commit.
    """
    if content.version == fmt.FORMAT_VERSION:
        return
    if not first:  # who opened it with this format would have upgraded it, under LOCK
        raise StoreInUseError(
            f"{path} is of format {content.version} and open in another process, whose logstore is "
            "older: close it there, and it becomes a store of this format when it is opened again"
        )
    storefile.upgrade(fs, path, content)
    log.info(
        "%s was of format %d and is now of format %d: an older logstore refuses it from here on",
        path, content.version, fmt.FORMAT_VERSION,
    )  # fmt: skip


def _living_wake(fs: FileSystem, path: Path) -> Wake | None:
    """WAKE as it lies there: only to name the owner of the lock while waiting for it."""
    try:
        return Wake(fs, path / names.WAKE)
    except (OSError, StoreError):
        return None


def _wake(fs: FileSystem, path: Path, users: File, *, first: bool, failed_at: int) -> Wake:
    if first:
        # A failed sync stays known until what it left behind was written anew.
        Wake.create(fs, path / names.WAKE, failed_at, path / names.RESERVE)
        if not users.try_lock(exclusive=False):
            raise StoreInUseError(f"{path} was taken by another process: try again")
        wake = Wake(fs, path / names.WAKE)
        wake.namespace = process.pid_namespace()
        wake.set_owner(process.packed_self())  # of LOCK; the words are new
        return wake
    if not users.try_lock(exclusive=False):
        raise StoreInUseError(
            f"{path} is held exclusively by another process (a salvage?): wait until it is done"
        )
    try:
        wake = Wake(fs, path / names.WAKE)
    except FileNotFoundError:
        raise StoreInUseError(
            f"{path / names.WAKE} was removed while the store is open: close it in every process"
        ) from None
    if wake.namespace not in (0, process.pid_namespace()):
        raise StoreInUseError(
            f"{path} is open in another pid namespace (a container?), and LMDB cannot tell the two "
            "apart: let the containers share one pid namespace, or open it in one of them"
        )
    return wake


def _first(engine: Engine, report: RecoveryReport, failed_at: int) -> None:
    """Nobody else has the store open: decide on trust, recover, state where the log is."""
    fs, store = engine.fs, engine.path
    if failed_at:
        from logstore.recovery import unsynced

        report.restated_segments = unsynced.rewrite(engine, failed_at)
    for name in filter(names.is_half_generation, fs.names(store / names.INDEX)):
        fs.remove_tree(store / names.INDEX / name)
    known = shutdown_marker.read(fs, store)
    if not engine.accept_loss:
        engine.promised = index_validity.promised(fs, store, known)
    report.why_not_trusted = index_validity.why_not(engine, known)
    if engine.accept_loss:
        report.why_not_trusted = "recover reads the whole log"
    clean = known is not None and known.clean_applied and not report.why_not_trusted
    index_validity.check_log_reaches(engine, engine.promised)
    report.index_trusted = not report.why_not_trusted
    if report.index_trusted and known is not None:
        _set_generation(engine, known.generation)
        report.why_not_trusted = _why_not_applied(engine, known)
        if report.why_not_trusted:
            report.index_trusted, clean = False, False
    if not report.index_trusted:
        if not report.created:
            log.info("the index is rebuilt: %s", report.why_not_trusted)
        _set_generation(engine, known.generation if known is not None else 0)
        engine.rebuild_locked()
    assert engine.generation is not None
    if report.index_trusted:
        engine.settle_generation(engine.generation)
        here = shutdown_marker.identity(engine.generation.path / "data.mdb")
        mark = shutdown_marker.dirty(engine.generation.number, here, engine.promised)
        if mark != known:  # after a kill it stands there already
            shutdown_marker.write(fs, store, mark)
    if clean:
        _publish_clean(engine, report)
    else:
        written_to = power_cut.written_to(engine, known)
        _finish_tail(engine, report)
        power_cut.leave(engine, written_to)
    _tell_at_risk(engine, report, failed_at)
    reserve.ensure(engine)  # last: what was wanted until here had to come from it


def _why_not_applied(engine: Engine, known: shutdown_marker.Boot) -> str:
    """Why the index does not go with the log; empty if it does."""
    try:
        index_validity.check_applied(engine, engine.use_generation(known.generation), known)
    except DamagedStoreError:
        raise  # of the log: the index is not to blame, and another one would not help
    except (FileNotFoundError, CorruptionError) as exc:
        return str(exc)
    return ""


# What most openings do not need is loaded by those that do: loading takes longer than opening.
def _rebuild(engine: Engine, report: RecoveryReport) -> int:
    from logstore.recovery import rebuild

    return rebuild.build(engine, report)


def _copy_index(engine: Engine) -> int:
    from logstore.recovery import shrink_index

    return shrink_index.copy(engine)


def _tell_at_risk(engine: Engine, report: RecoveryReport, failed_at: int) -> None:
    if failed_at:
        from logstore.recovery import at_risk

        report.at_risk = at_risk.find(engine, failed_at)


def _set_generation(engine: Engine, number: int) -> None:
    engine.wake.set_log(LogWords(0, 0, 0, 0, 0, number, 0))


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
    engine.publish(meta)
    engine.wake.reset_durable(meta.applied)


def _finish_tail(engine: Engine, report: RecoveryReport) -> None:
    words, found = log_tail.check_locked(engine)
    _sync_active(engine, words)
    report.commits_finished = found.commits
    report.torn_bytes, report.torn_position = found.torn_bytes, found.torn_at
    if found.saved is not None:
        report.saved_to = str(found.saved)
        log.warning(
            "%d bytes behind the last complete commit were set aside in %s",
            found.torn_bytes, found.saved,
        )  # fmt: skip


def _sync_active(engine: Engine, words: LogWords) -> None:
    """The first opener syncs first, names too: only then is ``durable_upto`` true."""
    engine.fs.sync_directory(engine.path / names.LOG)
    engine.sync_file(engine.active_file(words.active_segment), 0)
    engine.wake.reset_durable(words.applied)


def _join(engine: Engine, report: RecoveryReport) -> None:
    """Others have the store open: their index is in use and trusted."""
    if not engine.accept_loss:  # who makes a new generation states it in BOOT once more
        engine.promised = index_validity.promised(
            engine.fs, engine.path, shutdown_marker.read(engine.fs, engine.path)
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
    # After a failed sync nothing is ended: the next sync would work, and be believed.
    if engine.wake.log().in_progress and not engine.wake.failed_at:
        log_tail.check_locked(engine)
    _tell_at_risk(engine, report, engine.wake.failed_at)


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
            if engine.users.try_lock(exclusive=True):
                _mark_clean(engine)
    except CorruptionError:
        shutdown_marker.write(engine.fs, engine.path, shutdown_marker.distrusted(engine.promised))
        raise
    finally:
        # USERS goes before LOCK: whoever waits for LOCK must not find us among the users.
        engine.release_files()


def _leave_hints(engine: Engine) -> None:
    try:
        maintenance_locks.write_missing_hints(engine)
    except (Error, OSError) as exc:  # a rebuild is slower without them, and no less right
        log.warning("hints were not written: %s", exc)


def _mark_clean(engine: Engine) -> None:
    words = engine.wake.log()
    if words.in_progress:
        words = log_tail.finish_locked(engine)
    generation = engine.index()
    _sync_active(engine, words)
    generation.sync()
    with generation.env.begin() as txn:
        meta = IndexTxn(generation, txn).meta()
    data = generation.path / "data.mdb"
    try:
        mark = shutdown_marker.clean(
            generation.number, shutdown_marker.identity(data), meta, engine.fs.stat(data)
        )
        shutdown_marker.write(engine.fs, engine.path, mark)
    except FileNotFoundError:
        return  # deleted by hand: the next opener rebuilds
    except DiskFullError as exc:  # all is durable; the next opener only looks longer
        log.warning("the store was closed without the mark that says so: %s", exc)
