"""Opening a store: the numbered passes from a directory to an engine.

(1) STORE and versions. (2) Is the index to be trusted? If not, the old generation stays unopened.
(3) Rebuild: newest valid checkpoint, hints, replay. (4) The tail: what a dead writer left is
finished or cut off. (5) BOOT names the index, before anything is written to it.

Invariants: all of it under LOCK, so that two openers never decide at once; a clean open reads no
segment body; every step may be cut by a crash and is then done again by the next opener.
"""

from __future__ import annotations

from pathlib import Path

from logstore import format as fmt
from logstore import fsinfo
from logstore.engine import process, tail
from logstore.engine.core import Engine, log
from logstore.engine.lock import WriterLock
from logstore.engine.wake import LogWords, Wake
from logstore.errors import (
    CorruptionError,
    DamagedStoreError,
    FileSystemError,
    NotAStoreError,
    StoreInUseError,
)
from logstore.fs import File, FileSystem
from logstore.index.txn import IndexTxn
from logstore.log import chain, names, segment, storefile
from logstore.options import StoreLimits, StoreOptions
from logstore.recovery import boot, rebuild
from logstore.recovery.report import RecoveryReport

USERS_RESERVED = (names.STORE, names.LOCK, names.USERS, names.WAKE, names.BOOT, names.RESERVE)


def check_place(path: Path) -> None:
    """FileSystemError for a network file system: its locks are no ground for a store."""
    probe = path
    while not probe.exists() and probe != probe.parent:
        probe = probe.parent
    kind = fsinfo.mount_type(probe)
    if kind in fsinfo.NETWORK_TYPES:
        raise FileSystemError(
            f"{path} is on a network file system ({kind}), where locks and syncs cannot be relied "
            "on: keep the store on a local disk"
        )


def create_store(fs: FileSystem, path: Path, limits: StoreLimits, now_ms: int) -> None:
    """Make a new store in an empty or new directory.

    Crash order: directories, first segment, STORE last: without STORE it is not a store yet, and
    creating it again takes the leftovers over.
    """
    limits.check()
    others = [name for name in fs.names(path) if name not in (names.LOG, names.LOCK)]
    if any(not name.endswith(names.TEMPORARY) for name in others):
        raise NotAStoreError(
            f"{path} holds other files and no store: give an empty or a new directory"
        )
    for folder in (names.LOG, names.CHECKPOINTS, names.PINS, names.INDEX):
        fs.make_directory(path / folder)
    uuid = storefile.new_uuid()
    head = segment.SegmentHead(fmt.Role.MAIN, 1, uuid, 0, 0, now_ms)
    segment.create(fs, path, head).close()
    fs.sync_directory(path)
    content = storefile.StoreFile(uuid, limits, now_ms)
    fs.write_atomic(path / names.STORE, storefile.pack(content))


def open_engine(
    fs: FileSystem, path: Path, options: StoreOptions, *, create: bool, limits: StoreLimits,
) -> tuple[Engine, RecoveryReport]:  # fmt: skip
    """All passes; the engine and what they found."""
    check_place(path)
    report = RecoveryReport()
    if create:
        fs.make_directory(path)
    elif not fs.exists(path / names.STORE):
        storefile.read(fs, path)  # raises, and says why
    lock = WriterLock(fs, path / names.LOCK)
    users: File | None = None
    wake: Wake | None = None
    engine: Engine | None = None
    try:
        if fs.exists(path / names.WAKE):
            wake = _living_wake(fs, path)
        lock.acquire(wake, options.lock_timeout_s)
        if not fs.exists(path / names.STORE):
            if not create:
                storefile.read(fs, path)
            create_store(fs, path, limits, options.clock.now_ms())
            report.created = True
        content = storefile.read(fs, path)
        users = fs.open(path / names.USERS, write=True, create=True)
        report.first_opener = users.try_lock(exclusive=True)
        wake = _wake(fs, path, users, first=report.first_opener)
        engine = Engine(
            fs, path, content.uuid, content.limits, options, lock=lock, users=users, wake=wake,
            rebuild=lambda found: rebuild.build(found, report),
        )  # fmt: skip
        if report.first_opener:
            _first(engine, report)
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
    return engine, report


def _living_wake(fs: FileSystem, path: Path) -> Wake | None:
    """WAKE as it lies there: only to name the owner of the lock while waiting for it."""
    try:
        return Wake(fs, path / names.WAKE)
    except (FileNotFoundError, OSError):
        return None


def _wake(fs: FileSystem, path: Path, users: File, *, first: bool) -> Wake:
    if first:
        Wake.create(fs, path / names.WAKE)
        if not users.try_lock(exclusive=False):
            raise StoreInUseError(f"{path} was taken by another process: try again")
        wake = Wake(fs, path / names.WAKE)
        wake.namespace = process.pid_namespace()
        return wake
    if not users.try_lock(exclusive=False):
        raise StoreInUseError(
            f"{path} is held exclusively by another process (a salvage?): wait until it is done"
        )
    wake = Wake(fs, path / names.WAKE)
    if wake.namespace not in (0, process.pid_namespace()):
        raise StoreInUseError(
            f"{path} is open in another pid namespace (a container?), and LMDB cannot tell the two "
            "apart: let the containers share one pid namespace, or open it in one of them"
        )
    return wake


def _first(engine: Engine, report: RecoveryReport) -> None:
    """Nobody else has the store open: decide on trust, recover, state where the log is."""
    fs, store = engine.fs, engine.path
    for name in fs.names(store / names.INDEX):
        if name.endswith(names.TEMPORARY):
            fs.remove_tree(store / names.INDEX / name)
    known = boot.read(fs, store)
    report.why_not_trusted = _why_distrust(engine, known)
    clean = known is not None and known.clean_applied and not report.why_not_trusted
    if known is not None and known.clean_applied:
        _check_log_reaches(engine, known.clean_applied)
    report.index_trusted = not report.why_not_trusted
    if report.index_trusted and known is not None:
        _set_generation(engine, known.generation)
        try:
            engine.use_generation(known.generation)
            _check_applied(engine)
        except (FileNotFoundError, CorruptionError) as exc:
            report.index_trusted, clean = False, False
            report.why_not_trusted = str(exc)
    if not report.index_trusted:
        if not report.created:
            log.info("the index is rebuilt: %s", report.why_not_trusted)
        _set_generation(engine, known.generation if known is not None else 0)
        engine.rebuild_locked()
    assert engine.generation is not None
    here = boot.identity(engine.generation.path / "data.mdb")
    boot.write(fs, store, boot.dirty(engine.generation.number, here))
    if clean:
        _publish_clean(engine)
    else:
        _finish_tail(engine, report)


def _why_distrust(engine: Engine, known: boot.Boot | None) -> str:
    here = None
    if known is not None:
        data = names.generation(engine.path, known.generation) / "data.mdb"
        here = boot.identity(data) if engine.fs.exists(data) else None
    return boot.why_distrust(known, here)


def _set_generation(engine: Engine, number: int) -> None:
    engine.wake.set_log(LogWords(0, 0, 0, 0, 0, 0, number, 0))


def _check_log_reaches(engine: Engine, applied: int) -> None:
    """A log that ends before the mark of the last clean close is damaged."""
    number, offset = fmt.position_parts(applied)
    try:
        size = engine.fs.stat(names.segment(engine.path, number)).size_bytes
    except FileNotFoundError:
        size = -1
    if size < offset:
        raise DamagedStoreError(
            "the log ends before the position that the last clean close recorded: restore it from "
            "a backup, or run 'logstore recover' to accept the loss",
            segment=number, offset=max(0, size),
        )  # fmt: skip


def _check_applied(engine: Engine) -> None:
    """The index names a commit that the log must hold, by the header of its last frame."""
    generation = engine.index()
    with generation.env.begin() as txn:
        meta = IndexTxn(generation, txn).meta()
    if not meta.last_frame:
        return
    number, offset = fmt.position_parts(meta.last_frame)
    try:
        file = engine.fs.open(names.segment(engine.path, number))
    except FileNotFoundError:
        raise CorruptionError("the index is ahead of the log") from None
    try:
        head = file.pread(fmt.FRAME_HEAD_BYTES, offset)
    finally:
        file.close()
    if len(head) < fmt.FRAME_HEAD_BYTES:
        raise CorruptionError("the index is ahead of the log")
    crc, _, commit, *_ = fmt.FRAME_HEAD.unpack(head)
    if (crc, commit) != (meta.last_crc, meta.commit):
        raise CorruptionError("the index is of another log")


def _publish_clean(engine: Engine) -> None:
    """After a clean close the index stands at the end of the log, which is durable."""
    generation = engine.index()
    with generation.env.begin() as txn:
        meta = IndexTxn(generation, txn).meta()
    links = chain.main_links(engine.fs, engine.path, engine.uuid, meta.active_segment)
    end = links[-1].end_offset
    number, offset = fmt.position_parts(meta.applied)
    at_end = offset == end if number == meta.active_segment else end == fmt.SEGMENT_HEAD_BYTES
    if links[-1].number != meta.active_segment or not at_end:
        tail.check_locked(engine)
        return
    engine.publish(meta)
    engine.wake.reset_durable(meta.applied)


def _finish_tail(engine: Engine, report: RecoveryReport) -> None:
    words, found = tail.check_locked(engine)
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
    """The first opener syncs first: only then is ``durable_upto`` true."""
    engine.sync_file(engine.active_file(words.active_segment), 0)
    engine.wake.reset_durable(words.applied)


def _join(engine: Engine, report: RecoveryReport) -> None:
    """Others have the store open: their index is in use and trusted."""
    report.index_trusted = True
    try:
        engine.use_generation(engine.wake.generation())
        with engine.index().env.begin() as txn:
            IndexTxn(engine.index(), txn).meta()
    except (FileNotFoundError, CorruptionError) as exc:
        report.index_trusted = False
        report.why_not_trusted = str(exc)
        words = engine.wake.log()
        engine.rebuild_locked()
        engine.wake.set_log(words._replace(generation=engine.wake.generation()))
        tail.check_locked(engine)
        assert engine.generation is not None
        here = boot.identity(engine.generation.path / "data.mdb")
        boot.write(engine.fs, engine.path, boot.dirty(engine.generation.number, here))
        return
    if engine.wake.log().in_progress:
        tail.check_locked(engine)


def close_engine(engine: Engine) -> None:
    """Close; the last closer leaves a clean mark.

    Crash order: log sync, index sync, mark. A crash before the mark leaves a dirty store, which
    the next opener handles; after it everything the mark speaks of is durable.
    """
    last = False
    if not engine.wake.failed_at:
        engine.lock.acquire(engine.wake, engine.options.lock_timeout_s)
        last = engine.users.try_lock(exclusive=True)
        if last:
            _mark_clean(engine)
        engine.lock.release(engine.wake)
    engine.release_files()


def _mark_clean(engine: Engine) -> None:
    words = engine.wake.log()
    if words.in_progress:
        words, _ = tail.check_locked(engine)
    generation = engine.index()
    if not engine.fs.exists(generation.path / "data.mdb"):
        return  # deleted by hand: the next opener rebuilds
    _sync_active(engine, words)
    generation.sync()
    with generation.env.begin() as txn:
        meta = IndexTxn(generation, txn).meta()
    here = boot.identity(generation.path / "data.mdb")
    boot.write(engine.fs, engine.path, boot.clean(generation.number, here, meta))
