"""Prevents a kill -9 of any writers, at any moment, from losing, doubling or halving anything.

``LOGSTORE_SEED=<seed>`` makes the same random choices again; ``LOGSTORE_TORTURE=<times>`` kills
more often.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.engine.lane.lane_loading import native_or_none
from tests import figures, seeds
from tests.crash.kills import rounds
from tests.support import preload

ROUNDS = 10
KILLS_A_ROUND = 31
KILLS = 300  # at least, of one part
PARTS = max(1, round(figures.times() * 0.4))  # each with a store of its own
INSIDE = 0.08  # far less than usual, for a machine that is busy with other things
LANE_ROUNDS = ROUNDS if figures.times() > 1 else 2
SEED = seeds.seed()


@pytest.mark.slow
@pytest.mark.timeout(900 * PARTS)
def test_writers_killed_at_any_moment_lose_double_and_halve_nothing(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Acknowledged operations are there once, others wholly or not at all, in each one's order."""
    print(f"LOGSTORE_SEED={SEED}")
    fleets = rounds.run(tmp_path, SEED, PARTS, ROUNDS, KILLS_A_ROUND)
    found = rounds.counted(fleets)
    figures.record("kills", **found)
    tell(rounds.report_text(fleets, SEED))
    assert found["kills"] >= KILLS * PARTS
    assert found["in_a_commit"] >= INSIDE * found["kills"]


@pytest.mark.slow
@pytest.mark.timeout(900 * PARTS)
@pytest.mark.skipif(native_or_none is None, reason="the lane was not compiled")
def test_writers_killed_in_the_lane(tmp_path: Path, tell: Callable[[str], None]) -> None:
    """The same of adds, reads of groups and acks that are committed beside the pipeline, in three
    processes, while another one goes through it."""
    print(f"LOGSTORE_SEED={SEED}")
    library = preload.built(tmp_path, Path(__file__).with_name("linger.c"))
    sizes = (SEED, PARTS, LANE_ROUNDS, KILLS_A_ROUND)
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.kills.laned", *map(str, sizes)],
        env={**os.environ, **preload.below(library), "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    found = said["figures"]
    figures.record("kills_in_the_lane", **found)
    tell(said["text"])
    assert found["kills"] >= KILLS_A_ROUND * LANE_ROUNDS * PARTS
    assert found["in_the_group_lane"] >= INSIDE * found["kills"]
    assert min(found["lane_adds"], found["lane_reads"], found["lane_acks"]) >= found["kills"]
