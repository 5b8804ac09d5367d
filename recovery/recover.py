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
from logstore.engine.core import log
from logstore.errors import DamagedStoreError, StoreInUseError
from logstore.fs import LOCAL, FileSystem
from logstore.log import chain, names, reader, segment, storefile
from logstore.log.writer import crc_seed
from logstore.options import StoreLimits, StoreOptions
from logstore.recovery import passes
from logstore.recovery.check import check
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
        engine, report = passes.open_engine(fs, path, options, create=False, limits=limits)
    except DamagedStoreError as exc:
        log.error("damaged: %s; going on with what can be read", exc)
        _seal_damaged(fs, path)
        engine, report = passes.open_engine(
            fs, path, options, create=False, limits=limits, accept_loss=True
        )
    report.damage += [damage for damage in seen if damage not in report.damage]
    passes.close_engine(engine)
    return report


def _seal_damaged(fs: FileSystem, path: Path) -> None:
    """Begin a new segment behind the last valid frame of a damaged active one.

    Crash order: only a new file is made; before it has its name nothing has changed.
    """
    content = storefile.read(fs, path)
    users = fs.open(path / names.USERS, write=True, create=True)
    try:
        if not users.try_lock(exclusive=True):
            raise StoreInUseError("the store is damaged and open elsewhere: close it there first")
        links = chain.main_links(fs, path, content.uuid)
        if not links:
            raise DamagedStoreError("there is no segment left in the log: restore a backup")
        last = links[-1]
        file = fs.open(names.segment(path, last.number), write=True)
        seed = crc_seed(content.uuid)
        end, commit = last.start_offset, 0
        try:
            for found in reader.next_valid(
                file, seed, last.number, end, last.end_offset, bodies=False
            ):
                if found.last:
                    end, commit = found.end_offset, found.commit
            file.sync()
        finally:
            file.close()
        number = names.segments(fs, path)[-1] + 1
        head = segment.SegmentHead(
            fmt.Role.MAIN, number, content.uuid, fmt.position(last.number, end), commit,
            SYSTEM_CLOCK.now_ms(),
        )  # fmt: skip
        segment.create(fs, path, head).close()
    finally:
        users.close()
