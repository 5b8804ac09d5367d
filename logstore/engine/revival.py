"""An index that LMDB has given up in this process, opened again.

If LMDB cannot write its meta page, it serves that process no more, neither writers nor readers,
until the environment was closed. Its files are as sound as a writer that was killed at that page
would have left them, and other processes go on with them. So this process opens the same ones
again, as it does after a fork; what is in the log and not in the index is the tail check's.

Invariants: the mutex is held, so that nobody here writes, and the gate is shut: LMDB works without
the GIL, and closing it under a reader would end the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from logstore.engine.core import Engine, log
from logstore.index import env


def revive(engine: Engine) -> bool:
    """Close the index if LMDB has given it up, so that it is opened again at its next use.

    False if there is nothing to do, or readers do not leave. No transaction of this thread is open.
    """
    with engine.mutex:
        found = engine.generation
        if found is None or not found.given_up():
            return False
        try:
            if not engine.gate.shut():
                return False
            found.close()
            engine.switch_generation(None)
        finally:
            engine.gate.reopen()
        engine.kept.clear()
    log.warning("LMDB gave up the index after a failed write of its meta page: it is opened again")
    return True


@contextmanager
def healing(engine: Engine) -> Iterator[None]:
    """Errors of LMDB leave as typed ones, and an index that it gave up is opened again."""
    try:
        with env.translated():
            yield
    except Exception:
        revive(engine)
        raise
