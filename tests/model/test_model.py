"""Prevents numbers that drift: all that info, the metrics and ``logstore info`` tell is held
against a model of plain Python, and against the log, which the test reads for itself; also after a
reopen, a rebuild of the index, checkpoints, and compaction of both levels.

LOGSTORE_TORTURE=n gives n times as many runs, others each time; the seed is printed.
With LOGSTORE_SHRINK=1 a failing run is made shorter, which may take minutes.
"""

from __future__ import annotations

import pytest

from tests import figures
from tests.model.machine import Machine
from tests.support.machines import machine_seed, run_machine

TIMES = figures.times()
SEED = machine_seed(20261121)
RUNS, STEPS = 60, 50


MET = (  # what the numbers depend on
    "seals", "reopened", "tombstones", "joined", "adopted", "dropped", "pinned segments", "purge",
    "compact", "rebuild", "reopen", "checkpoint", "transaction", "rename", "copy", "expire", "wake",
    "retain", "set_id", "add_once", "nack", "claim", "autoclaim", "read", "backlog", "commands",
    "killed",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(3600 if TIMES > 1 else 900)
def test_every_number_is_that_of_the_model() -> None:
    run_machine(Machine, SEED, RUNS, STEPS)
    done = dict(Machine.done)
    print(done)
    assert not [each for each in MET if not done.get(each)], "not everything was met"
    figures.record("model", steps=done["steps"], numbers_compared=done["numbers"])
