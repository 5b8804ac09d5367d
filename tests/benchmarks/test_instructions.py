"""No operation takes over 10 % more instructions than its committed figure.

Skipped, with the reason, where valgrind or a compiler is missing, and where no figure was recorded
for this Python, processor and build: `python -m benchmarks.instructions --record`.
"""

from __future__ import annotations

import pytest

from benchmarks import instructions


def test_an_operation_over_its_figure_by_a_tenth_fails() -> None:
    counted = {"add": 1109.0, "get": 1101.0, "new": 5.0}
    assert instructions.above(counted, {"add": 1000, "get": 1000, "gone": 1}) == [
        "add: 1,109 instructions, 1,000 are committed",
        "get: 1,101 instructions, 1,000 are committed",
    ]
    assert not instructions.above({"add": 1100.0}, {"add": 1000})


def test_no_operation_takes_more_than_its_figure() -> None:
    figures = instructions.recorded().get(instructions.build_name())
    if figures is None:
        pytest.skip(f"no figures are recorded for {instructions.build_name()}")
    try:
        counted = instructions.count(list(figures), "ours")
    except instructions.Unavailable as reason:
        pytest.skip(str(reason))
    assert not instructions.above(counted, figures)
