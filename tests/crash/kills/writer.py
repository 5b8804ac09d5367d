"""A writer of the kill test: does random operations until it is killed, and journals each."""

from __future__ import annotations

import os
import random
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from logstore.engine.lane import lane
from logstore.options import Sync
from tests.crash import steps
from tests.crash.kills import choosing, operations
from tests.crash.kills.journal import Journal
from tests.crash.kills.own_streams import State
from tests.crash.steps import CommitStep, Task

# What brings a writer to a step that it should linger at.
FIRST = {
    Task.NONE: "", Task.CLOSING: "reopen", Task.CHECKPOINT: "checkpoint", Task.FOLLOWING: "",
    Task.LANE: "", Task.LANE_ADD: "", Task.LANE_READ: "", Task.LANE_ACK: "",
}  # fmt: skip


class Plan(NamedTuple):
    """How a writer works."""

    store: Path
    journal: Path
    step: Path
    error: Path
    slot: int
    first: int  # number of its first operation
    policy: Sync
    lane: bool  # it commits there what is plain; else all goes through the pipeline
    pause_s: float  # between operations, on average
    linger_at: tuple[CommitStep, Task]
    seed: int
    state: State  # of its own streams
    remembered: list[tuple[str, str]]  # idempotent adds that may be sent again
    send_again: tuple[str, str] | None  # the one whose outcome its predecessor did not live to see


def start(plan: Plan) -> int:
    """Fork it; its pid."""
    plan.step.write_bytes(bytes(8))
    pid = os.fork()
    if not pid:
        try:
            _run(plan)
        except BaseException:  # noqa: BLE001  a child must not return into pytest
            plan.error.write_text(traceback.format_exc())
        finally:
            os._exit(3)
    return pid


def _run(plan: Plan) -> None:
    """Write until killed."""
    lane.IN_USE = plan.lane
    watch = steps.watch(plan.step, plan.seed, *plan.linger_at, lane=plan.lane)
    watch.at(CommitStep.OPENING)
    work = operations.Work(plan.store, plan.slot, plan.policy, plan.state, watch, lane=plan.lane)
    work.remembered = list(plan.remembered)
    watch.opening = False
    watch.at(CommitStep.OUTSIDE)
    journal = Journal(plan.journal)
    rng = random.Random(plan.seed)
    number = plan.first
    wanted = FIRST.get(plan.linger_at[1], "compact")
    while True:
        number += 1
        step = choosing.choose(work, rng, number, wanted)
        if number == plan.first + 1 and plan.send_again is not None:
            tag, id = plan.send_again
            step = {"n": number, "op": "again", "tag": tag, "id": id}
            if not id:
                step = {"n": number, "op": "idem", "tags": [tag]}
        elif wanted and rng.random() < 0.5:
            wanted = ""
        journal.begin(step)
        result = work.do(step)
        operations.after(work, step, result)
        journal.done(number, result, work.of_lane())
        if plan.pause_s:
            time.sleep(rng.random() * 2 * plan.pause_s)
