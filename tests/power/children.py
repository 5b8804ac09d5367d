"""Working on a store in a process of its own, so that nothing of it stays open on the mount."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logstore
from tests.power.disks import die_with_parent

Work = Callable[[], Any]


def run(folder: Path, work: Work) -> Any:
    """What it returns, as JSON carries it; AssertionError with the trace of what it raised."""
    told = folder / "told"
    told.unlink(missing_ok=True)
    status = _wait(_fork(told, work))
    found: dict[str, Any] = json.loads(told.read_text()) if told.exists() else {}
    assert status == 0, found.get("error", f"it ended with status {status}")
    return found["result"]


def killed(folder: Path, work: Work) -> None:
    """Do it, and be killed: nothing is closed."""

    def then_die() -> None:
        kept = work()
        os.kill(os.getpid(), signal.SIGKILL)
        del kept

    told = folder / "told"
    told.unlink(missing_ok=True)
    status = _wait(_fork(told, then_die))
    assert os.WIFSIGNALED(status), told.read_text() if told.exists() else status


def _fork(told: Path, work: Work) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent()
        told.write_text(json.dumps({"result": work()}))
        os._exit(0)
    except BaseException:  # noqa: BLE001  a child must not return into pytest
        told.write_text(json.dumps({"error": traceback.format_exc()}))
    finally:
        os._exit(1)


def _wait(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def add(path: Path, first: int, last: int, **options: Any) -> logstore.Store[bytes]:
    """One entry a number to the stream "a"; the store stays open."""
    store = logstore.open(path, background=False, segment_bytes=64 << 10, **options)
    for number in range(first, last + 1):
        store.stream("a").add({"v": b"%d" % number * 100}, id=f"{number}-1")
    return store


def numbers_and_recovery(path: Path) -> dict[str, Any]:
    """The numbers that the stream "a" holds, each with its own bytes, and what opening did.

    A refusal is told by the name of its error.
    """
    try:
        with logstore.open(path, background=False, segment_bytes=64 << 10) as store:
            found: list[int] = []
            for entry in store.stream("a").range():
                assert entry.fields[b"v"] == b"%d" % entry.id.ms * 100, entry.id
                found.append(entry.id.ms)
            return {"numbers": found, "recovery": store.recovery, "refused": ""}
    except logstore.Error as exc:
        return {"numbers": [], "recovery": {}, "refused": type(exc).__name__, "said": str(exc)}
