"""Prevents a process that waits for ever since a signal came in the middle of a wait."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

from logstore.jobs.pool import Pool
from logstore.signal_handlers import handled, stopped_by_signals
from tests.support.processes import run_program

WAIT_S = 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_may_take_a_lock_that_the_interrupted_thread_has(number: signal.Signals) -> None:
    """As ``Event.set`` does where a signal comes amid ``Event.wait`` of the same event."""
    lock, stopped = threading.Lock(), threading.Event()

    def stop() -> None:
        with lock:
            stopped.set()

    with stopped_by_signals(stop):
        with lock:
            signal.raise_signal(number)
        assert stopped.wait(WAIT_S)


def test_each_signal_is_told_before_the_block_is_over_and_none_after_it() -> None:
    """The second one is to end jobs at once; and what is left behind calls nobody."""
    heard: list[str] = []
    with handled(lambda *_: heard.append("before"), signal.SIGTERM):
        with stopped_by_signals(lambda: heard.append("stop")):
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        assert heard == ["stop", "stop"]
        signal.raise_signal(signal.SIGTERM)
    assert heard == ["stop", "stop", "before"]


def test_another_thread_changes_no_handler() -> None:
    """Python refuses it there, and who reads a stream in a thread has no use for it."""
    before = signal.getsignal(signal.SIGTERM)
    found: list[object] = []

    def run() -> None:
        with handled(lambda *_: None, signal.SIGTERM):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [before]


PART = """
import os, signal, threading
from logstore.signal_handlers import end_with_parent
stop, lock = threading.Event(), threading.Lock()
end_with_parent(stop, {parent})
if {parent} == os.getppid():
    with stop._cond:  # a wait has this lock for a moment
        signal.raise_signal(signal.SIGTERM)
print(stop.wait(60))
"""


@pytest.mark.parametrize("parent", ["os.getppid()", "1 + os.getppid()"], ids=["signal", "gone"])
def test_a_part_of_a_process_ends_at_a_signal_and_without_its_parent(parent: str) -> None:
    """Workers of a pool and parts of the demo outlive nobody."""
    assert run_program(PART.format(parent=parent)).stdout == "True\n"


def test_a_pool_that_is_stopped_while_it_starts_a_process_stops_that_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was in no list yet, so it was asked for nothing and killed when the grace was over."""
    monkeypatch.setenv("JOBS_STORE", str(tmp_path / "s"))
    pool = Pool("tests.jobs.app:jobs", 1, batch=1, grace_s=30)
    asked = []

    def starts(event: str, _given: object) -> None:
        if event == "subprocess.Popen" and not asked:
            asked.append(event)
            pool.stop()

    sys.addaudithook(starts)  # it stays, and does nothing from now on
    pool.run(lambda _running: None)
    assert (len(asked), pool.killed, pool.died) == (1, 0, 0)
