"""Threads that repeat their work for as long as another process goes on; not a test by itself."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from tests.support.threads import run_all


def run_beside(
    other: subprocess.Popen[bytes], works: Mapping[str, Callable[[], object]]
) -> Counter[str]:
    """Each work in a thread of its own until the process is done; how often each was done.

    The first error of a thread ends them all and is raised; a process that fails is an error too.
    """
    done: Counter[str] = Counter()
    failed: list[BaseException] = []

    def run(name: str, work: Callable[[], object]) -> None:
        try:
            while other.poll() is None and not failed:
                work()
                done[name] += 1
        except BaseException as exc:  # noqa: BLE001  told below
            failed.append(exc)

    threads = [threading.Thread(target=run, args=each) for each in works.items()]
    run_all(threads)
    if failed:
        other.kill()
        raise failed[0]
    assert other.wait() == 0
    assert all(done[name] for name in works), done
    return done
