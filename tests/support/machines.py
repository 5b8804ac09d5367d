"""State machines of Hypothesis that run from a seed, which is printed and taken back.

With LOGSTORE_SHRINK=1 a failing run is made shorter, which may take minutes.
"""

from __future__ import annotations

import os
import random
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as from_seed
from hypothesis.stateful import run_state_machine_as_test

from tests.figures import TORTURE, times

PHASES = [Phase.generate, *[Phase.shrink] * bool(os.environ.get("LOGSTORE_SHRINK"))]


def machine_seed(usual: int) -> int:
    """The seed that is given; another one each time under `make torture`; else the usual one."""
    given = int(os.environ.get("LOGSTORE_SEED") or 0)
    return given or (random.getrandbits(32) if TORTURE in os.environ else usual)


def run_machine(machine: Any, seed: int, runs: int, steps: int) -> None:
    """Play it so many times; ``done`` of the machine counts what it did."""
    machine.done.clear()
    print(f"seed {seed}: LOGSTORE_SEED={seed} plays the same")
    how = settings(
        max_examples=runs * times(),
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
    )
    run_state_machine_as_test(from_seed(seed)(machine), settings=how)
