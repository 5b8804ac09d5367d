"""Prevents who waits for a compaction, checkpoint or backup from waiting without a word."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from pathlib import Path

import pytest

import logstore
from logstore import fsinfo
from logstore.engine.runtime import maintenance_locks
from logstore.log import file_names
from tests.support.processes import Forked, Program


def test_the_holder_of_the_care_lock_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log after some seconds, in the error at the end."""
    path = tmp_path / "store"
    logstore.open(path).close()
    ready, say = os.pipe()

    def hold() -> None:
        store = logstore.open(path, background=False)
        with maintenance_locks.alone(store._live().engine):
            os.write(say, b"x")
            time.sleep(60)

    child = Forked(hold)
    try:
        os.read(ready, 1)
        monkeypatch.setattr(maintenance_locks, "LOG_AFTER_S", 0.1)
        with logstore.open(path, background=False) as store, caplog.at_level(logging.WARNING):
            engine = store._live().engine
            with (
                pytest.raises(logstore.LockTimeoutError) as found,
                maintenance_locks.alone(engine, 0.4),
            ):
                pass
            assert found.value.owner_pid == child.pid
            told = [each.getMessage() for each in caplog.records]
            assert [f"process {child.pid}" in each for each in told] == [True]
    finally:
        child.kill()
        os.close(ready)
        os.close(say)
    assert fsinfo.flock_owner(path / file_names.CHECKPOINTS) == 0
    with logstore.open(path, background=False) as store:
        store.checkpoint()


def test_the_owner_of_a_lock_is_not_guessed(tmp_path: Path) -> None:
    """Who only waits is not meant, nor one of several."""
    found = os.stat(tmp_path)
    here = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"

    def line(pid: int, where: str, kind: str = "FLOCK", before: str = "") -> str:
        return f"1: {before}{kind}  ADVISORY  WRITE {pid} {where} 0 EOF\n"

    other = f"ff:ff:{found.st_ino}"
    for locks, owner in (
        ("", 0),
        (line(7, here), 7),
        (line(7, other), 7),
        (line(8, here) + line(7, other), 8),
        (line(8, other) + line(7, other), 0),
        (line(7, here, "POSIX"), 0),
        (line(7, here) + line(9, here, before="-> "), 7),
        (line(-1, here), 0),
        (line(7, f"{here}1"), 0),
        (line(7, here) + line(7, here), 7),
        (line(7, here) + line(9, here), 0),
    ):
        assert fsinfo.flock_owner(tmp_path, locks) == owner, locks


LOCKING = """
import fcntl, sys
files = [open(f"{sys.argv[1]}-{number}", "w") for number in range(30)]
print("on", flush=True)
while True:
    for how in (fcntl.LOCK_EX, fcntl.LOCK_UN):
        for file in files:
            fcntl.flock(file, how)
"""


def test_the_owner_is_found_while_others_lock_and_unlock(tmp_path: Path) -> None:
    """Else a close gives nothing back now and then: a look may miss the line here, or have it more
    than once, as kernel and cores are."""
    others = [Program(LOCKING, tmp_path / str(number)) for number in range(3)]
    try:
        for other in others:
            assert other.answer()
        with (tmp_path / "held").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            found = {fsinfo.flock_owner(tmp_path / "held") for _ in range(500)}
        assert found == {os.getpid()}
    finally:
        for other in others:
            other.kill()
