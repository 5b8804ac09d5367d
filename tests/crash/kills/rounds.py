"""Rounds of kills: some or all of a fleet at a time, and all of it is checked after each.

What was done and found is counted, and told as a text.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from pathlib import Path

import logstore
from logstore.recovery.check import check
from tests.crash import steps
from tests.crash.kills import takeover
from tests.crash.kills.fleet import WRITERS, Fleet
from tests.crash.steps import CommitStep, Task


def one_round(fleet: Fleet, number: int, kills: int) -> None:
    """Kill some while others go on, or all at one moment; check after each time."""
    for slot in range(WRITERS):
        fleet.start(slot)
    observer = logstore.open(fleet.path) if number % 2 else None
    killed = WRITERS
    while killed < kills:
        time.sleep(fleet.rng.random() * 0.04)
        slots = fleet.chosen()
        fleet.kill(slots)
        for each in fleet.writers:  # and at once who lingers while it finishes what those left
            if each.pid and each.wanted[0] == CommitStep.FINISHING_A_DEAD_COMMIT:
                fleet.kill([each.slot])
                slots.append(each.slot)
        if observer is not None:
            fleet.check(observer, slots)
        else:
            with logstore.open(fleet.path) as store:
                fleet.check(store, slots)
        killed += len(slots)
        for slot in slots:
            fleet.start(slot)
    if observer is not None:
        observer.close()
    fleet.kill(list(range(WRITERS)))
    if number % 3 == 2:  # nobody has it open: the first opener builds the index anew
        shutil.rmtree(fleet.path / "index")
    with logstore.open(fleet.path) as store:
        fleet.check(store, list(range(WRITERS)))
        fleet.check_at_rest(store)
    checked = check(fleet.path)
    assert checked.as_dict()["clean"], checked.as_dict()


def without_its_index(fleet: Fleet) -> None:
    """The index that lived through all of it says what one that is built from the log says."""
    shutil.rmtree(fleet.path / "index")
    with logstore.open(fleet.path) as store:
        assert not store.recovery["index_trusted"]
        for each in fleet.writers:
            each.expected.settle(store)
        fleet.check_at_rest(store)


def histogram(hits: Counter[tuple[CommitStep, Task]]) -> str:
    """How many kills hit which step."""
    lines: list[str] = []
    for task in Task:
        for step in CommitStep:
            if count := hits[step, task]:
                name = step.name if not task else f"{task.name}: {step.name}"
                name = name.lower().replace("_", " ")
                lines.append(f"  {name:<52}{count:>5}  {'#' * min(count, 60)}")
    return "\n".join(lines)


def counted(fleets: list[Fleet]) -> dict[str, float]:
    """What was done and found, and where processes were killed."""
    hits: Counter[tuple[CommitStep, Task]] = Counter()
    kinds: Counter[str] = Counter()
    took: dict[str, list[float]] = {"next": [], "locked": [], "opened": []}
    for fleet in fleets:
        hits += fleet.hits
        for each in fleet.writers:
            kinds += each.expected.kinds
        took["next"] += fleet.commits.took_ms(alive=True)
        took["locked"] += fleet.commits.took_ms(alive=True, locked=True)
        took["opened"] += fleet.commits.took_ms(alive=False)
    ms = {f"{name}_{what}_ms": round(value, 2) for name, all_ms in took.items()
          for what, value in (("median", takeover.middle(sorted(all_ms))),
                              ("max", max(all_ms, default=0.0)))}  # fmt: skip
    of_lane = sum((each.expected.of_lane for fleet in fleets for each in fleet.writers), Counter())
    where = {
        "in_a_commit": lambda step, task: steps.in_commit(step),
        "in_compaction_checkpoint_close": lambda step, task: 0 < task < Task.LANE,
        "in_the_lane": lambda step, task: task in steps.OF_LANE,
        "in_the_group_lane": lambda step, task: task in (Task.LANE_READ, Task.LANE_ACK),
        "while_the_index_follows": lambda step, task: task == Task.FOLLOWING,
    }  # fmt: skip
    return {
        "kills": hits.total(),
        **{
            name: sum(count for hit, count in hits.items() if its(*hit))
            for name, its in where.items()
        },
        "acknowledged_operations": sum(kinds.values()),
        **{f"lane_{what}": of_lane[what] for what in ("adds", "reads", "acks")},
        "cut_off": sum(each.expected.cut_off for fleet in fleets for each in fleet.writers),
        "cut_off_and_happened": sum(
            each.expected.found_done for fleet in fleets for each in fleet.writers
        ),
        "acknowledged_lost": 0,  # any would have failed the test
        **ms,
    }


def report_text(fleets: list[Fleet], seed: int) -> str:
    """All of it as a text."""
    hits = sum((fleet.hits for fleet in fleets), Counter())
    kinds = sum((each.expected.kinds for fleet in fleets for each in fleet.writers), Counter())
    head = f"kills, LOGSTORE_SEED={seed}: {counted(fleets)}\n{dict(kinds.most_common())}"
    return f"{head}\n{histogram(hits)}"


def run(
    folder: Path, seed: int, parts: int, rounds: int, kills: int, *, lanes: int = 0
) -> list[Fleet]:
    """So many stores, one after the other, each with so many rounds; what came of them."""
    fleets: list[Fleet] = []
    for part in range(parts):
        home = folder / str(part)
        home.mkdir()
        fleet = Fleet(home, random.Random(seed + part), lanes)
        fleets.append(fleet)
        try:
            for number in range(rounds):
                one_round(fleet, number, kills)
            without_its_index(fleet)
        finally:
            fleet.stop()
        shutil.rmtree(home)
    return fleets
