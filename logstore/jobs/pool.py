"""Worker processes of a queue: a pool of them, and what each runs.

``python -m logstore.jobs.pool APP BATCH PARENT`` is one process of a pool; APP names the queue,
``module:attribute``, as ``app:jobs``. The pool starts processes, replaces those that die, and ends
them cleanly.

Invariants: a stop ends each process after its running job; one that has not ended when the grace is
over is killed, and its job goes to another worker. A process that dies by itself is replaced, later
each time if it dies at once, so that a broken program does not keep a core busy. A pool that drains
is stopped when no job is left, however many processes died meanwhile: the queue says so, for a
process that finds nothing to do does not know what others have, or what is to be tried again. No
process outlives the pool: each looks for its parent. A process ends after its running job at
SIGTERM, or when its parent is gone; an interrupt from the terminal is its parent's. It prints
nothing; tasks may. The module of the queue is imported from the working directory first, as the
program would import it; a wrong name is an error of one line, an error in the module a traceback.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from logstore.errors import OptionError
from logstore.jobs.queue import Jobs
from logstore.logger import Logger
from logstore.signal_handlers import end_with_parent


# -- one process ------------------------------------------------------------------------------
def load(name: str) -> Jobs:
    """The queue of this name.

    Args:
        name: ``module:attribute``, or ``module`` if there is one ``Jobs`` in it.

    Returns:
        The queue.

    Raises:
        OptionError: there is no such module, or no queue in it.
    """
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise
        raise OptionError(
            f"there is no module {module!r} in {os.getcwd()} or on Python's path: give "
            "module:attribute, as app:jobs for jobs = Jobs(...) in app.py"
        ) from error
    except (ValueError, TypeError) as error:  # an empty or relative name
        raise OptionError(f"give module:attribute, as app:jobs, not {name!r}") from error
    if attribute:
        found = getattr(loaded, attribute, None)
        if not isinstance(found, Jobs):
            raise OptionError(
                f"{module} has no queue {attribute!r}: give the name of its Jobs(...)"
            )
        return found
    queues = {key: value for key, value in vars(loaded).items() if isinstance(value, Jobs)}
    if len(queues) != 1:
        raise OptionError(
            f"{module} has {len(queues)} queues ({', '.join(sorted(queues)) or 'none'}): give "
            f"{module}:NAME"
        )
    return next(iter(queues.values()))


def main(given: list[str]) -> int:
    """Do jobs until stopped; the exit code."""
    name, batch, parent = given
    stop = threading.Event()
    end_with_parent(stop, int(parent))
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s worker {os.getpid()} %(levelname)s %(message)s"
    )
    with load(name) as jobs:
        jobs.work(batch=int(batch), stop=stop)
    return 0


log = Logger("logstore.jobs")
# -- the pool ---------------------------------------------------------------------------------
STEP_S = 0.1
AGAIN_S, AGAIN_MAX_S = 0.5, 30.0
SOUND_S = 2.0  # a process that ran for so long did not die at once


class Pool:
    """Worker processes of one queue."""

    def __init__(
        self,
        app: str,
        processes: int,
        *,
        batch: int,
        grace_s: float,
        left: Callable[[], int] | None = None,
    ) -> None:
        """``left`` tells how many jobs are left; then the pool ends when there is none."""
        self._command = [sys.executable, "-m", "logstore.jobs.pool", app, str(batch),
                         str(os.getpid())]  # fmt: skip
        self._wanted = processes
        self._grace_s = grace_s
        self._left = left
        self.drained = False  # no job was left
        self._running: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
        self._asked = 0  # how often for an end
        self._stopping_since: float | None = None
        self._again_s = AGAIN_S
        self._next_start = 0.0
        self.died = 0  # processes that ended unasked
        self.killed = 0  # that did not end in time

    @property
    def pids(self) -> list[int]:
        """The processes that run, by their numbers."""
        return list(self._running)

    def stop(self) -> None:
        """Ask for an end after the running jobs; asked twice: at once. Any thread may: ``run`` does
        it, between two processes that it starts."""
        self._asked += 1

    def run(self, tell: Callable[[int], None]) -> None:
        """Keep the processes until stopped, or, of a pool that drains, until no job is left.
        ``tell`` is called often with how many run, and not for long."""
        while True:
            self._reap()
            if self._left is not None and self._stopping_since is None and self._left() == 0:
                self.drained = True
                self.stop()
            if self._stopping_since is None and self._asked:
                self._terminate()
            if self._stopping_since is None:
                self._start()
            elif not self._running:
                return
            else:
                self._kill_late()
            tell(len(self._running))
            time.sleep(STEP_S)

    def _terminate(self) -> None:
        self._stopping_since = time.monotonic()
        for process, _ in self._running.values():
            process.terminate()

    def _start(self) -> None:
        """Start what is missing."""
        now = time.monotonic()
        if now >= self._next_start:
            for _ in range(self._wanted - len(self._running)):
                process = subprocess.Popen(self._command, process_group=0)
                self._running[process.pid] = process, now

    def _reap(self) -> None:
        now = time.monotonic()
        for pid, (process, since) in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[pid]
            if self._stopping_since is not None:
                continue
            self.died += 1
            if now - since >= SOUND_S:
                self._again_s = AGAIN_S
            self._next_start = now + self._again_s
            log.warning("worker %d ended with %s: another one is started", pid, _exit_text(code))
            self._again_s = min(2 * self._again_s, AGAIN_MAX_S)

    def _kill_late(self) -> None:
        assert self._stopping_since is not None
        grace_s = self._grace_s if self._asked == 1 else 0.0
        if time.monotonic() - self._stopping_since >= grace_s:
            for process, _ in self._running.values():
                process.kill()
                self.killed += 1
                process.wait()
            self._running.clear()


def _exit_text(code: int) -> str:
    return f"code {code}" if code >= 0 else signal.Signals(-code).name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
