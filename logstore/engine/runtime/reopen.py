"""An index that LMDB gave up, or lost a reader of, opened again; one that lost rows, built anew.

If LMDB cannot write its meta page, it serves that process no more, neither writers nor readers,
until the environment was closed. Its files are as sound as a writer that was killed at that page
would have left them, and other processes go on with them. So this process opens the same ones
again, as it does after a fork; what is in the log and not in the index is the tail check's.

Invariants: the mutex is held, so that nobody here writes, and the gate is shut: LMDB works without
the GIL, and closing it under a reader would end the process.

*A lost reader*: LMDB knows living processes from dead ones by POSIX locks on lock.mdb, and the
system takes those away when the process closes *any* descriptor of that file: after a program that
has the store open copied or read its directory (``shutil.copytree``, tar). A process that opens
the index next, or frees the slots of dead readers, frees those of this process, too. A reader is
told so (``env.LostReader``), or finds pages that others write over meanwhile, which looks like
damage. So the environment is opened again, which takes locks and slots again, and the batch is read
once more before the disk is blamed. A reader that noticed nothing asks whether it still stands in
the table of readers, whenever others opened the index since it last did (``Wake.readers_changed``).
Writers need none of this: they hold LOCK, and see the newest pages only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from logstore.engine.runtime.engine import Engine, log
from logstore.engine.shm.writer_lock import through
from logstore.index import env
from logstore.index.env import Generation
from logstore.log import file_names
from logstore.row_seal import LostRowsError

REBUILDS_MAX = 3  # of one process: a loss that a rebuild does not end is the log's


def revive(engine: Engine) -> bool:
    """Close the index if LMDB has given it up, so that it is opened again at its next use.

    False if there is nothing to do, or readers do not leave. No transaction of this thread is open.
    """
    with engine.mutex:
        generation = engine.generation
        if generation is None or not generation.given_up():
            return False
        if not _close_locked(engine, generation):
            return False
    log.warning(
        "%s: LMDB could not write a meta page of the index and gave it up: it is opened again",
        engine.path,
    )
    return True


def reopen(engine: Engine, lost: Generation) -> bool:
    """Close an environment in which this process may not be registered any more; it is opened again
    at the next use. True also if another thread was quicker.

    False if readers do not leave, or if it is not the store's own. No transaction of this thread is
    open.
    """
    with engine.mutex:
        if engine.generation is not lost:
            return True
        if lost.path != file_names.generation(engine.index_home, lost.number):
            return False
        if not _close_locked(engine, lost):
            return False
    engine.metrics.count("index_reopened")
    return True


def _close_locked(engine: Engine, generation: Generation) -> bool:
    """Close the environment while no reader is in it. False if readers do not leave. The mutex is
    held."""
    try:
        if not engine.gate.shut():
            return False
        generation.close()
        engine.generation = None
    finally:
        through(engine.gate.reopen)
    engine.cache.clear()
    return True


def rebuild(engine: Engine, lost: LostRowsError) -> None:
    """Build the index anew from the log, since rows are missing in it.

    Raises ``lost`` itself if a part of the answer was given away before, or if that was done too
    often here: then it is not the index that lacks them. Neither the gate nor a lock is held.
    """
    if engine.rebuilds_of_lost >= REBUILDS_MAX:
        raise lost
    engine.rebuilds_of_lost += 1
    log.error("%s: %s: the index is rebuilt from the log", engine.path, lost.message)
    engine.replace_index(lost.generation)
    if lost.given:
        raise lost


@contextmanager
def healing(engine: Engine) -> Iterator[None]:
    """Errors of LMDB leave as typed ones, and an index that it gave up is opened again."""
    try:
        with env.translated():
            yield
    except Exception:
        revive(engine)
        raise
