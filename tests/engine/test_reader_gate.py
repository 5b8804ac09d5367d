"""Prevents a gate that an interrupt left shut, or that opens for who did not shut it."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from logstore.engine.runtime import engine
from logstore.engine.runtime.engine import Gate
from logstore.engine.shm.writer_lock import through


class InterruptAt:
    """An interrupt at the k-th line that runs in the gate's module, the entry of calls included."""

    def __init__(self, place: int) -> None:
        self.left = place

    def __call__(self, frame: FrameType, event: str, _arg: object) -> Any:
        if frame.f_code.co_filename != engine.__file__:
            return None
        if event in {"call", "line"}:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def shut_and_open(gate: Gate) -> None:
    """As who takes back what was written to the index does."""
    try:
        gate.shut()
    finally:
        gate.reopen()


def shut_elsewhere(gate: Gate) -> bool:
    """Whether another thread can shut the gate, and opens it."""
    done: list[bool] = []

    def other() -> None:
        done.append(gate.shut(timeout_s=0.2))
        gate.reopen()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    return done == [True]


def test_an_interrupt_anywhere_leaves_it_open_once_the_step_was_repeated() -> None:
    for place in range(1, 100):
        gate, trace = Gate(), InterruptAt(place)
        sys.settrace(trace)
        try:
            through(shut_and_open, gate)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert not gate.is_shut, place
        assert shut_elsewhere(gate), place
        if trace.left > 0:
            assert place > 10
            return
    raise AssertionError("it never ended")


def test_the_gate_is_opened_only_by_who_shut_it() -> None:
    gate = Gate()
    assert gate.shut()
    assert not shut_elsewhere(gate)
    assert gate.is_shut
    gate.reopen()
    gate.reopen()
    assert not gate.is_shut
    assert shut_elsewhere(gate)
