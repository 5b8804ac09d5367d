"""Prevents a log that is filled with one failure of the background, told every few seconds; and one
that never says that it is over."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

import pytest

import logstore
from logstore.engine.runtime import background
from logstore.engine.runtime.background import AGAIN_MAX_S, AGAIN_S, OVER_S, Repeated
from tests.support.processes import Program

HOLDING = """
import sys, time, logstore
store = logstore.open(sys.argv[1], background=False, sync="os")
store.stream("s").add({"a": "1"})
with store._live().committer.locked():
    store._live().engine.wake.oldest_unsynced_ms = 1
    print("held", flush=True)
    sys.stdin.readline()
store.close()
"""


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_same_failure_is_told_at_growing_intervals(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    trouble = Repeated("the work", clock)
    for _ in range(24 * 1200):  # a day, every three seconds
        trouble.failed(OSError("no"))
        trouble.went()  # a round that had nothing to do, between two that fail
        clock.now_s += 3
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "the work failed: no"
    assert told[1].startswith(f"the work still fails, {int(AGAIN_S / 3) + 1} times in 60 s: no")
    assert 24 <= len(told) <= 24 + 3
    assert AGAIN_MAX_S == 3600


def test_another_failure_and_the_end_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    trouble = Repeated("the work", clock)
    trouble.went()
    for words in ("no", "no", "never", "never"):
        trouble.failed(OSError(words))
        clock.now_s += 1
    clock.now_s += OVER_S
    trouble.went()
    trouble.went()
    trouble.failed(OSError("never"))
    assert [record.getMessage() for record in caplog.records] == [
        "the work failed: no", "the work failed: never",
        "the work works again; it had failed 4 times in 3 s", "the work failed: never",
    ]  # fmt: skip
    assert [record.levelno for record in caplog.records[:3]] == [
        logging.ERROR, logging.ERROR, logging.WARNING,
    ]  # fmt: skip


def test_a_stopped_writer_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails here is the flusher's, which wants the writer lock for what is not synced."""
    path = tmp_path / "store"
    monkeypatch.setattr(background, "OVER_S", 1.0)
    with logstore.open(path, lock_timeout=0.1) as store:
        store.stream("s").add({"a": "1"})
        writer = Program(HOLDING, path)
        try:
            assert writer.answer() == "held"
            os.kill(writer.pid, signal.SIGSTOP)
            until(caplog, "keeping the promise of everysec failed", 1)
            time.sleep(2.0)  # some six tries more, on an idle machine
            assert count(caplog, "keeping the promise of everysec") == 1
        finally:
            os.kill(writer.pid, signal.SIGCONT)
            writer.end("\n")
        until(caplog, "keeping the promise of everysec works again", 1)
        assert count(caplog, "keeping the promise of everysec") == 2


def count(caplog: pytest.LogCaptureFixture, words: str) -> int:
    """How many lines have these words."""
    return sum(words in record.getMessage() for record in caplog.records)


def until(caplog: pytest.LogCaptureFixture, words: str, times: int) -> None:
    """Until they were told so often; the test's own limit of time ends it otherwise."""
    while count(caplog, words) < times:
        time.sleep(0.05)
