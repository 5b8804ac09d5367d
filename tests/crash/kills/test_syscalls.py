"""Prevents a process that dies, or gets an error, at a system call from losing or halving anything.

Every call of a short workload, one run each: it kills the process, or fails. Also those of LMDB,
which do not go through the file-system layer. Continuous integration takes a sample of them,
``LOGSTORE_TORTURE=20`` all, a smaller number a part; ``LOGSTORE_SEED`` takes the same ones again.
"""

from __future__ import annotations

import random
import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.engine.lane.lane_loading import native_or_none
from logstore.options import Sync
from tests import figures, seeds
from tests.crash.kills import script, strace
from tests.crash.kills.strace import CALLS, Hit

SEED = seeds.seed()
SAMPLES = {script.KINDS: 36, script.ENDS: 24}
ALL_AT = 20  # times; with fewer as much smaller a part of all calls
POLICIES: tuple[Sync, ...] = ("always", "everysec")


def one(
    template: Path, folder: Path, sync: Sync, kinds: tuple[str, ...], hit: Hit
) -> tuple[strace.Outcome, list[str]]:
    """Run it in a copy of the store, and look at what is left."""
    shutil.copytree(template, folder)
    its = script.Script(folder, sync, kinds)
    outcome = strace.run(its.run, folder, hit, its.ready)
    if not hit.call:
        of_lane = script.learned(folder)
        if kinds is script.ENDS:
            assert of_lane["tidied"], "no close gave anything back"
            lane = [of_lane[what] for what in ("adds", "reads", "acks")]
            assert native_or_none is None or min(lane) >= 3, lane
    errors = script.settled(folder, outcome.killed)
    shutil.rmtree(folder)
    return outcome, errors


def planned(calls: Counter[str], rng: random.Random, sync: Sync, sample: int) -> list[Hit]:
    """Every call with everything that it may do; in continuous integration some of them."""
    kills_only = figures.times() > 1 and sync != POLICIES[0]  # errors are the same ones once more
    every = [
        Hit(call, number, how)
        for call, count in sorted(calls.items())
        for number in range(1, count + 1)
        for how in CALLS[call]
        if how == "KILL" or not kills_only
    ]
    if figures.times() > 1:
        return rng.sample(every, len(every) * min(figures.times(), ALL_AT) // ALL_AT)
    # One of each first: what is rare is not drowned by what is frequent.
    rng.shuffle(every)
    first = {(hit.call, hit.how): hit for hit in every}
    kills = [hit for (_, how), hit in sorted(first.items()) if how == "KILL"]
    others = [hit for (_, how), hit in sorted(first.items()) if how != "KILL"]
    rng.shuffle(others)
    return [*kills, *others][:sample]


@pytest.mark.slow
@pytest.mark.timeout(900 if figures.times() == 1 else 7200)
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(script.KINDS, id="all"),
        pytest.param(script.ENDS, id="lane and ends"),
    ],
)
def test_every_system_call_kills_or_fails(
    tmp_path: Path, tell: Callable[[str], None], kinds: tuple[str, ...]
) -> None:
    """What was acknowledged is there, what was begun whole or not at all; errors are typed."""
    if strace.STRACE is None:
        pytest.skip("strace is not installed: system calls cannot be made to fail")
    rng = random.Random(SEED)
    template = tmp_path / "template"
    template.mkdir()
    script.prepare(template)
    made: Counter[tuple[str, str]] = Counter()
    raised: Counter[tuple[str, str]] = Counter()
    failures: list[str] = []
    missed = 0
    for sync in POLICIES if figures.times() > 1 else (rng.choice(POLICIES),):
        try:
            outcome, errors = one(template, tmp_path / "count", sync, kinds, Hit())
        except strace.Refused as exc:
            pytest.skip(f"strace may not attach: {exc}")
        assert not errors
        assert not outcome.killed
        for place, hit in enumerate(planned(outcome.calls, rng, sync, SAMPLES[kinds])):
            try:
                outcome, errors = one(template, tmp_path / f"{sync}-{place}", sync, kinds, hit)
            except Exception:  # noqa: BLE001  the others say more about what is wrong
                failures.append(f"sync={sync}, {hit}:\n{traceback.format_exc()}")
                continue
            if not outcome.killed and not outcome.injected:
                missed += 1  # one run makes a call more or less than another
                continue
            assert outcome.killed == (hit.how == "KILL")
            made[hit.call, hit.how] += 1
            raised[hit.call, hit.how] += bool(errors)
    tell(f"system calls, LOGSTORE_SEED={SEED}; not reached: {missed}\n{table(made, raised)}")
    kills = sum(count for (_, how), count in made.items() if how == "KILL")
    figures.record(
        "syscalls" if kinds is script.KINDS else "syscalls_of_lane_and_ends",
        kills=kills, errors=made.total() - kills, errors_raised=raised.total(),
        kinds_of_call=len({call for call, _ in made}), acknowledged_lost=0,
    )  # fmt: skip
    assert not failures, f"{len(failures)} failed, LOGSTORE_SEED={SEED}\n" + "\n".join(
        failures[:20]
    )
    assert made.total() >= SAMPLES[kinds] * 0.8


def table(made: Counter[tuple[str, str]], raised: Counter[tuple[str, str]]) -> str:
    """A row for each call: how often it killed, and how often which error it gave and was told."""
    lines: list[str] = []
    for call in CALLS:
        parts = [f"{how} {made[call, how]} ({raised[call, how]} raised)" for how in CALLS[call]
                 if made[call, how] and how != "KILL"]  # fmt: skip
        if made[call, "KILL"] or parts:
            lines.append(f"  {call:<12}kill {made[call, 'KILL']:<5}{', '.join(parts)}")
    return "\n".join(lines)
