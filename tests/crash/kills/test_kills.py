"""Prevents a kill -9 of any writers, at any moment, from losing, doubling or halving anything.

``LOGSTORE_SEED=<seed>`` makes the same random choices again; ``LOGSTORE_TORTURE=<times>`` kills
more often.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore.recovery.check import check
from tests import figures
from tests.crash import steps
from tests.crash.kills import takeover
from tests.crash.kills.fleet import WRITERS, Fleet
from tests.crash.steps import Step, Task

ROUNDS = 10
KILLS_A_ROUND = 31
KILLS = 300  # at least, of one part
PARTS = max(1, round(figures.times() * 0.4))  # each with a store of its own
INSIDE = 0.08  # far less than usual, for a machine that is busy with other things
SEED = int(os.environ.get("LOGSTORE_SEED") or 0) or random.SystemRandom().randrange(1 << 32)


def one_round(fleet: Fleet, number: int) -> None:
    """Kill some while others go on, or all at one moment; check after each time."""
    for slot in range(WRITERS):
        fleet.start(slot)
    observer = logstore.open(fleet.path) if number % 2 else None
    killed = WRITERS
    while killed < KILLS_A_ROUND:
        time.sleep(fleet.rng.random() * 0.04)
        count = fleet.rng.choices(range(1, WRITERS + 1), (20, 3, 1, 2))[0]
        slots = fleet.rng.sample(range(WRITERS), count)
        fleet.kill(slots)
        for each in fleet.writers:  # and at once who lingers while it finishes what those left
            if each.pid and each.wanted[0] == Step.FINISHING_A_DEAD_COMMIT:
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


def histogram(hits: Counter[tuple[Step, Task]]) -> str:
    """How many kills hit which step."""
    lines: list[str] = []
    for task in Task:
        for step in Step:
            if count := hits[step, task]:
                name = step.name if not task else f"{task.name}: {step.name}"
                name = name.lower().replace("_", " ")
                lines.append(f"  {name:<52}{count:>5}  {'#' * min(count, 60)}")
    return "\n".join(lines)


def report(fleets: list[Fleet]) -> tuple[Counter[tuple[Step, Task]], str]:
    """Record what was done and found; where processes were killed, and all of it as a text."""
    hits: Counter[tuple[Step, Task]] = Counter()
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
    counts = {
        "kills": hits.total(),
        "in_a_commit": sum(count for (step, _), count in hits.items() if steps.in_commit(step)),
        "in_compaction_checkpoint_close": sum(n for (_, task), n in hits.items() if task),
        "acknowledged_operations": sum(kinds.values()),
        "cut_off": sum(each.expected.cut_off for fleet in fleets for each in fleet.writers),
        "cut_off_and_happened": sum(
            each.expected.found_done for fleet in fleets for each in fleet.writers
        ),
        "acknowledged_lost": 0,  # any would have failed the test
    }
    figures.record("kills", **counts, **ms)
    head = f"kills, LOGSTORE_SEED={SEED}: {counts}\ntake over: {ms}\n{dict(kinds.most_common())}"
    return hits, f"{head}\n{histogram(hits)}"


@pytest.mark.slow
@pytest.mark.timeout(900 * PARTS)
def test_writers_killed_at_any_moment_lose_double_and_halve_nothing(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Acknowledged operations are there once, others wholly or not at all, in each one's order."""
    print(f"LOGSTORE_SEED={SEED}")
    fleets: list[Fleet] = []
    for part in range(PARTS):
        folder = tmp_path / str(part)
        folder.mkdir()
        fleet = Fleet(folder, random.Random(SEED + part))
        fleets.append(fleet)
        try:
            for number in range(ROUNDS):
                one_round(fleet, number)
            without_its_index(fleet)
        finally:
            fleet.stop()
        shutil.rmtree(folder)
    hits, text = report(fleets)
    tell(text)
    inside = sum(count for (step, _), count in hits.items() if steps.in_commit(step))
    assert hits.total() >= KILLS * PARTS
    assert inside >= INSIDE * hits.total()
