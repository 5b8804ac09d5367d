"""Prevents one who died, or was stopped, from being taken for one that runs, and the other way."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from logstore.engine.shm import process_identity
from logstore.engine.shm.process_identity import GONE, RUNS, STOPPED, WATCHED_MAX
from logstore.fsinfo import SystemFile
from tests.support.processes import Forked
from tests.support.waits import eventually


@pytest.fixture(autouse=True)
def unwatched() -> Iterator[None]:
    """Nobody is watched before or after."""
    process_identity.forget()
    yield
    process_identity.forget()


def held() -> int:
    """How many files are open that tell what a process does."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one of this listing
            found += str(each.readlink()).endswith("/stat")
    return found


def becomes(child: Forked, start: int, state: int) -> None:
    """Wait until it is seen in this state."""
    eventually(lambda: process_identity.state_of(child.pid, start) == state)


def test_state_of_a_process_follows_stop_and_continue() -> None:
    child = Forked(lambda: time.sleep(600))
    start = process_identity.start_ticks(child.pid)
    assert process_identity.state_of(child.pid, start) == RUNS
    for _ in range(3):
        os.kill(child.pid, signal.SIGSTOP)
        becomes(child, start, STOPPED)
        os.kill(child.pid, signal.SIGCONT)
        becomes(child, start, RUNS)
    os.kill(child.pid, signal.SIGKILL)
    becomes(child, start, GONE)  # nobody has waited for it
    os.waitpid(child.pid, 0)
    assert process_identity.state_of(child.pid, start) == GONE
    process_identity.forget()
    assert process_identity.state_of(child.pid, start) == GONE


def test_another_of_the_same_pid_is_not_it() -> None:
    child = Forked(lambda: time.sleep(600))
    start = process_identity.start_ticks(child.pid)
    assert process_identity.state_of(child.pid, start + 1) == GONE
    assert process_identity.state_of(child.pid, start) == RUNS
    assert process_identity.state_of(child.pid, start + 1) == GONE
    child.kill()


def test_few_files_stay_open_and_none_when_they_are_forgotten() -> None:
    children = [Forked(lambda: time.sleep(600)) for _ in range(5)]
    for child in children:
        assert process_identity.lives(child.pid, process_identity.start_ticks(child.pid))
    assert held() == 5
    process_identity.forget()
    assert held() == 0
    process_identity._watched.update(
        {(0, n): SystemFile("/proc/self/stat") for n in range(WATCHED_MAX)}
    )
    assert process_identity.lives(children[0].pid, process_identity.start_ticks(children[0].pid))
    assert held() == 1
    for child in children:
        child.kill()


def test_a_name_tells_nothing_of_the_state() -> None:
    """It stands before the state, and may hold brackets."""

    def work() -> None:
        Path("/proc/self/comm").write_text("a) Z (b) T")
        time.sleep(600)

    child = Forked(work)
    eventually(lambda: "Z" in Path(f"/proc/{child.pid}/comm").read_text())
    start = process_identity.start_ticks(child.pid)
    assert [process_identity.state_of(child.pid, start) for _ in range(3)] == [RUNS] * 3
    child.kill()


CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
NOBODY = 65534


def hide_others() -> None:
    """From now on /proc shows this process none of other users, as with systemd's ProtectProc."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "no mount namespace of its own")
    if libc.mount(b"proc", b"/proc", b"proc", 0, b"hidepid=2"):
        raise OSError(ctypes.get_errno(), "/proc cannot be mounted")
    os.setgid(NOBODY)
    os.setuid(NOBODY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount /proc with hidepid")
def test_a_process_that_proc_hides_lives_while_its_pid_exists(tmp_path: Path) -> None:
    """Prevents a writer, a waiter or a pin of another user from being taken for dead."""
    told = tmp_path / "told"
    telling = told.open("w")  # nobody else may enter the folder
    child = Forked(lambda: time.sleep(600))
    dead = Forked(lambda: None)
    start, started = process_identity.start_ticks(child.pid), process_identity.start_ticks(dead.pid)
    os.waitpid(dead.pid, 0)

    def look() -> None:
        try:
            hide_others()
        except OSError as error:
            telling.write(str(error))
        else:
            hidden = not Path(f"/proc/{child.pid}/stat").exists()
            states = (
                process_identity.state_of(child.pid, start),
                process_identity.state_of(dead.pid, started or 1),
            )
            telling.write(f"{hidden} {states}")
        telling.close()

    with telling, Forked(look):
        pass
    child.kill()
    if "Operation not permitted" in told.read_text():
        pytest.skip(told.read_text())
    assert told.read_text() == f"True {(RUNS, GONE)}"
