"""Prevents that some order of steps, with deaths and failures, loses, doubles or mixes up.

Histories of ``play``, a process of its own. LOGSTORE_SEED repeats them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.engine.lane.lane_loading import native_or_none
from tests import figures, seeds
from tests.simulation.playing import played

TORTURE = int(os.environ.get("LOGSTORE_TORTURE", "0"))
HISTORIES = 12 * TORTURE or 4
S_EACH = 30
pytestmark = [
    pytest.mark.timeout(60 + S_EACH * HISTORIES),
    pytest.mark.skipif(native_or_none is None, reason="the lane was not compiled"),
]


def test_histories(tmp_path: Path, tell: Callable[[str], None]) -> None:
    """Every answer is that of some order, and the end is what all of them say."""
    seed = str(seeds.seed())
    print(f"seed {seed}")
    code, said = played(tmp_path, seed, HISTORIES)
    assert not code, f"seed {seed}: {said}"
    last = said.strip().splitlines()[-1]
    tell(f"simulation, seed {seed}: {last}")
    figures.record("simulation", **dict(_counts(last)))


def _counts(line: str) -> list[tuple[str, int]]:
    """The counts that ``play`` prints."""
    return [
        (name.replace(" ", "_"), int(count))
        for name, _, count in (each.rpartition(" ") for each in line.split(", "))
    ]


def test_a_seed_gives_the_same_again(tmp_path: Path) -> None:
    """What failed once can be looked at: each report of each hand is the same, and each byte of
    the log that they leave."""
    seed = str(seeds.seed())
    print(f"seed {seed}")
    histories = max(1, TORTURE // 2)
    first = played(tmp_path, seed, histories, "--trace")
    assert played(tmp_path, seed, histories, "--trace") == first
