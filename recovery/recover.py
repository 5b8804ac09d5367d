"""``recover``: what opening does after a crash, said aloud; and past damage, which opening refuses.

Damage in the active segment is set aside by sealing: a new segment begins whose header says where
the damaged one ends, so that its readable frames stay and nothing is overwritten. Then the index is
rebuilt from all that can be read. Invariants: nothing of the log is cut or removed; what could not
be read is reported by segment and offset.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from logstore import format as fmt
from logstore.clock import SYSTEM_CLOCK
from logstore.engine.commit.committer import Committer
from logstore.engine.maintenance import checkpoint as checkpoints
from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm.users_file import users_alone
from logstore.errors import CorruptionError, DamagedStoreError
from logstore.fs import LOCAL, FileSystem
from logstore.log import chain, checkpoint_file, file_names, segment, storefile
from logstore.log import frame as frames
from logstore.log.segment_writer import crc_seed
from logstore.options import StoreLimits, StoreOptions
from logstore.recovery import index_validity, store_opening
from logstore.recovery.check import check
from logstore.recovery.repaired_view import last_commit
from logstore.recovery.report import RecoveryReport

Progress = Callable[[int, int], None]


def recover(
    path: Path, *, progress: Progress | None = None, fs: FileSystem = LOCAL
) -> RecoveryReport:
    """Recover the store at ``path``; what was found and done.

    StoreInUseError while another process has it open and it is damaged.
    """
    seen = check(path, progress=progress, fs=fs).damage
    options = StoreOptions(background=False)
    limits = StoreLimits()
    try:
        engine, report = store_opening.open_engine(fs, path, options, create=False, limits=limits)
    except DamagedStoreError as exc:
        log.error("%s is damaged: %s; recovery goes on with what can be read", path, exc)
        _seal_damaged(fs, path, exc.segment or 0)
        engine, report = store_opening.open_engine(
            fs, path, options, create=False, limits=limits, accept_loss=True
        )
        _renew_checkpoints(engine)
    report.damage += [damage for damage in seen if damage not in report.damage]
    store_opening.close_engine(engine)
    return report


def _renew_checkpoints(engine: Engine) -> None:
    """Put a new checkpoint in the place of those whose commit was lost with its segment.

    What they say was taken in, but no later rebuild may use them: the log does not hold their
    commit. Crash order: a commit in the new segment, the checkpoint, then they are removed; who is
    cut off before leaves a store that is recovered once more.
    """
    fs, path = engine.fs, engine.path
    lost = [
        position
        for position in file_names.checkpoints(fs, path)
        if not fs.exists(file_names.segment(path, fmt.segment_of(position)))
        and not _fits(engine, position)
    ]
    if not lost:
        return
    committer = Committer(engine)
    committer.run(lambda txn: txn.emit(frames.Note(b"behind what was lost")))
    checkpoints.take(engine, committer)
    for position in lost:
        fs.remove(file_names.checkpoint(path, position))


def _fits(engine: Engine, position: int) -> bool:
    try:
        head, _ = checkpoint_file.read(engine.fs, engine.path, engine.uuid, position)
    except CorruptionError:
        return True  # it is passed over anyway, and 'check' reports it
    return checkpoint_file.fits_log(engine.fs, engine.path, engine.uuid, head)


def _newest_known(fs: FileSystem, path: Path) -> int:
    """The largest number of a segment that is there, or of which something in the store speaks."""
    recorded = index_validity.promised(fs, path, index_validity.read_marker(fs, path))
    return max(
        [fmt.segment_of(recorded), *file_names.segments(fs, path), *file_names.hints(fs, path)]
    )


def _seal_damaged(fs: FileSystem, path: Path, damaged: int) -> None:
    """Begin a new segment behind the last valid frame of a damaged active one.

    Its number is above that of every segment that is known to have been there, ``damaged`` among
    them: positions are never used again, and what speaks of a lost segment (a hint, a checkpoint,
    BOOT) must not be taken for speaking of this one.

    Crash order: only a new file is made; before it has its name nothing has changed.
    """
    content = storefile.read(fs, path)
    users = users_alone(fs, path)
    try:
        links = chain.main_links(fs, path, content.uuid)
        if not links:
            raise DamagedStoreError("there is no segment left in the log: restore a backup")
        last = links[-1]
        file = fs.open(file_names.segment(path, last.number), write=True)
        seed = crc_seed(content.uuid)
        try:
            end, commit = last_commit(file, seed, last.number, last.start_offset, last.end_offset)
            file.sync()
        finally:
            file.close()
        number = 1 + max(damaged, _newest_known(fs, path))
        head = segment.SegmentHead(
            fmt.Role.MAIN,
            number,
            content.uuid,
            fmt.position(last.number, end),
            commit,
            SYSTEM_CLOCK.now_ms(),
        )
        segment.create(fs, path, head).close()
    finally:
        if users is not None:
            users.close()
