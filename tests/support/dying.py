"""A process that is killed while it commits, at a named step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from logstore.api.store import Store
from logstore.engine.commit import pipeline
from logstore.engine.shm.control_block import Wake

POINTS = ("announced", "appended", "indexed")  # before the append, behind it, behind LMDB's commit


def killed_at(point: str, store: Store[Any], work: Callable[[], object]) -> None:
    """Do some work in a child, which is killed at the first commit of it, at this point."""
    pid = os.fork()
    if not pid:
        try:
            _die_at(point, store)
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def _die_at(point: str, store: Store[Any]) -> None:
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    engine = store._engine()  # opened anew in the child
    if point == "announced":
        file = engine.active_file(engine.wake.log().active_segment)
        file.pwrite = die  # type: ignore[method-assign]
    elif point == "appended":
        pipeline._keep_promise = die
    else:
        Wake.publish = die  # type: ignore[method-assign]
