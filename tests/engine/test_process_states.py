"""Prevents one who died, or was stopped, from being taken for one that runs, and the other way."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import logstore
from logstore.api.worker import process_ended, process_name
from logstore.engine.shm import process_identity
from logstore.engine.shm.process_identity import GONE, RUNS, STOPPED, WATCHED_MAX
from logstore.fsinfo import SystemFile
from logstore.jobs import gone
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


def mounted_over_proc(kind: bytes, options: bytes | None) -> None:
    """Mount something at /proc, for this process and its children alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "no mount namespace of its own")
    if libc.mount(kind, b"/proc", kind, 0, options):
        raise OSError(ctypes.get_errno(), "/proc cannot be mounted")


def hide_others() -> None:
    """From now on /proc shows this process none of other users, as with systemd's ProtectProc."""
    mounted_over_proc(b"proc", b"hidepid=2")
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


# -- where there is no /proc, as on macOS ---------------------------------------------------------
def without_proc(work: Callable[[], object]) -> None:
    """Run work in a child that has no /proc; the test is skipped where there can be no such one."""

    def hidden() -> None:
        mounted_over_proc(b"tmpfs", None)
        assert not process_identity.has_proc()
        work()

    if os.geteuid() != 0:
        pytest.skip("only root can mount something over /proc")
    try:
        Forked(hidden).join()
    except AssertionError as error:
        if "no mount namespace of its own" in str(error) or "cannot be mounted" in str(error):
            pytest.skip(f"nothing can be mounted over /proc here: {error}")
        raise


def test_a_pid_tells_who_is_gone_where_there_is_no_proc() -> None:
    def look() -> None:
        child = Forked(lambda: time.sleep(600))
        assert process_identity.start_ticks(child.pid) == 0
        assert process_identity.state_of(os.getpid(), 0) == RUNS
        assert process_identity.state_of(child.pid, 0) == RUNS
        found = process_identity.identity(child.pid)
        assert (found.system, found.start) == ("", 0)
        assert not found.is_gone()
        child.kill()
        assert process_identity.state_of(child.pid, 0) == GONE
        assert found.is_gone()
        assert not found._replace(host="elsewhere").is_gone()
        assert not found._replace(system="a boot:1").is_gone()

    without_proc(look)


def test_jobs_of_a_killed_worker_are_taken_over_where_there_is_no_proc(tmp_path: Path) -> None:
    """They stayed with it for an hour."""

    def look() -> None:
        with logstore.open(tmp_path / "store", background=False, encoding="utf-8") as store:
            store.stream("jobs").add({"n": "1"})
            group = store.stream("jobs").group("g", start="0")

            def take() -> None:
                with logstore.open(tmp_path / "store", background=False) as mine:
                    mine.stream("jobs").group("g").read(f"{process_name()}:1")
                    (tmp_path / "took").touch()
                    time.sleep(600)

            child = Forked(take)
            eventually((tmp_path / "took").exists)
            assert not process_ended(group.consumers()[0].name)
            assert gone.rescue(group, "other") == []
            child.kill()
            assert process_ended(group.consumers()[0].name)
            eventually(lambda: len(gone.rescue(group, "other")) == 1)

    without_proc(look)


PER_LINUX32 = 0x0008  # its uname names a machine whose system calls are not known here
WAIT = """
import ctypes, os, resource, sys, threading
ctypes.CDLL(None).personality({personality})
from logstore.engine.shm import futex
assert futex.NATIVE is None and futex._call is None, os.uname()
word = ctypes.c_uint(7)
address = ctypes.addressof(word)
futex.wait(address, 6, 600.0)
futex.wait(address, 7, 1.0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw)
changed = threading.Timer(0.05, lambda: setattr(word, "value", 8))
changed.start()
futex.wait(address, 7, 600.0)
assert word.value == 8
assert futex.wake(address) == 0
"""


def test_a_wait_looks_less_and_less_often_where_there_is_no_futex() -> None:
    """It looked each millisecond, for as long as it lasted; a change ends it."""
    if os.uname().machine != "x86_64":
        pytest.skip("a process of another personality tells a machine with known calls")
    found = subprocess.run(
        [sys.executable, "-c", WAIT.format(personality=PER_LINUX32)],
        env=os.environ | {"LOGSTORE_CODEC": "pure"}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 300
