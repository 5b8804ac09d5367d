"""Prevents a kill or a power cut, wherever it falls, from losing or halving what was acknowledged.

``LOGSTORE_CRASH=<seed>`` makes the same states again, ``LOGSTORE_CRASH=<seed>:<name of a state>``
that one alone; ``LOGSTORE_TORTURE=<times>`` makes more of them at each operation.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore.engine.lane.lane_loading import native_or_none
from tests import figures, seeds
from tests.crash.states import groupscripts, laned, recoveries, scripts
from tests.crash.states.explore import states
from tests.crash.states.judge import Judge
from tests.crash.states.table import Table
from tests.crash.states.workload import Workload, forget, record

SEED, _, ONLY = os.environ.get("LOGSTORE_CRASH", "").partition(":")
SEED = SEED or str(seeds.seed())
LOSSES = 3 + 2 * figures.times()  # random states at each operation
WORKLOADS = (*scripts.WORKLOADS, *groupscripts.WORKLOADS, *recoveries.WORKLOADS, *laned.WORKLOADS)
WANTED = 10_000
MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def table() -> Table:
    """What all workloads of this run explored."""
    return Table()


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """Where states are laid out: in memory, if there is room."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    if not roomy or shutil.disk_usage(MEMORY).free < 1 << 28:
        yield tmp_path
        return
    found = Path(tempfile.mkdtemp(prefix="logstore-states-", dir=MEMORY))
    yield found
    shutil.rmtree(found)


@pytest.mark.slow
@pytest.mark.timeout(60 + 120 * LOSSES)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_cut(
    workload: Workload, table: Table, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened, held against the model, opened again and checked."""
    if workload in laned.WORKLOADS:
        if native_or_none is None:
            pytest.skip("the lane was not compiled")
        laned.lag_little(monkeypatch)
    if ONLY and not ONLY.startswith(f"{workload.name}/"):
        pytest.skip("another state was asked for")
    logging.getLogger("logstore").setLevel(logging.CRITICAL)
    try:
        run = record(workload, scratch)
        judge = Judge(scratch, table.known)
        with judge.sitting():
            for state in states(run, SEED, LOSSES, only=ONLY):
                if ONLY and state.name != ONLY:
                    continue
                digest = state.digest()
                fresh = digest not in table.known
                try:
                    verdict = judge.judge(run, state, digest)
                except Exception:
                    print(f"cut in {state.step}, {state.how}, {state.boot}; this state alone:")
                    print(f"LOGSTORE_CRASH='{SEED}:{state.name}'")
                    raise
                table.add(state.step, verdict, fresh=fresh)
        table.outcomes += judge.settled
        table.workloads.append(workload.name)
        forget(run)
    finally:
        logging.getLogger("logstore").setLevel(logging.NOTSET)


def test_the_table(table: Table, tell: Callable[[str], None]) -> None:
    """Every named step of every protocol was cut, and often enough."""
    if len(table.workloads) < len(WORKLOADS):
        pytest.skip("not all workloads were run")
    tell(f"crash states, LOGSTORE_CRASH={SEED}\n{table.text()}")
    assert not table.missing()
    assert len(table.known) >= WANTED
    figures.record("states", **table.figures(), seed=SEED)
