"""A case of the attack suite: an attack, how large it is, and what it may cost.

To write one, put into a module ``test_SUBJECT.py`` of this folder::

    def silence(target: Target, size: int) -> str:
        lines = [target.line(login=False) for _ in range(size)]
        ...                                  # attack; assert on replies, by target.ours if need be
        return f"{size} connected"           # a word for the table

    CASES = [Case("strangers who say nothing", silence, small=100, full=1000,
                  budget=Budget(p99_ms=20, memory_bytes=100 * MIB, files=1000))]

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_attack(case: Case, tmp_path: Path, tell: Callable[[str], None]) -> None:
        tell(check(case, tmp_path))

Each case has servers of its own, as new; ``prepare`` fills them before anything is measured. Both
must live, answer and obey SIGTERM afterwards, without a traceback in the log of ours.

Memory, files and bytes of the log are held to the budget wherever the suite runs. Time is not: on
a machine with other work a bound would fail for nothing. So pytest grants ``GENEROUS`` times what
the budget says, and never less than a few times what Redis took beside it; ``python -m
tests.wire.attacks`` holds a quiet machine to the budget as it stands.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.wire.attacks.meter import Cost, Meter
from tests.wire.attacks.servers import Attack, Serve, Target

MIB = 1 << 20
GENEROUS = 20.0
AS_REDIS = 5.0
NOISE_MS = 500.0  # what a busy machine does to a client of an idle server
NOISE_S = 0.5


@dataclass(frozen=True)
class Budget:
    """What a case may cost; None: not looked at.

    ``p99_ms`` and ``max_ms`` are what the bystander waits, ``cpu_s`` processor time of the server
    in all its threads at full size.
    """

    memory_bytes: int | None = None
    files: int | None = None
    log_bytes: int | None = 64 * 1024
    p99_ms: float | None = None
    max_ms: float | None = None
    cpu_s: float | None = None


@dataclass(frozen=True)
class AttackCase:
    """An attack, called with each server and a size: ``small`` with pytest, ``full`` for the table.

    ``waits``: what the bystander asks, "all", "reads" or "adds". ``redis`` False: Redis is not
    attacked, for the reason in ``why``.
    """

    name: str
    attack: Attack
    small: int
    full: int
    budget: Budget
    serve: Serve = field(default_factory=Serve)
    prepare: Callable[[Target, int], Any] | None = None
    waits: str = "all"
    redis: bool = True
    why: str = ""

    def __str__(self) -> str:
        return self.name.replace(" ", "_")


class AttackRow(NamedTuple):
    """One server's line of the table."""

    name: str
    cost: Cost
    seen: str

    def __str__(self) -> str:
        cost = self.cost
        return (
            f"{self.name:6} p99 {cost.p99_ms:8.1f} ms, max {cost.max_ms:8.1f} ms, "
            f"{cost.memory_bytes / MIB:8.1f} MiB, {cost.files:5} files, "
            f"{cost.log_bytes / 1024:7.1f} KiB of log, {cost.cpu_s:6.2f} s | {self.seen}"
        )


def run(case: AttackCase, directory: Path, *, full: bool = False) -> list[AttackRow]:
    """Attack ours, then Redis; what each had to bear."""
    size = case.full if full else case.small
    rows = []
    for name in ("ours", "redis") if case.redis else ("ours",):
        home = directory / name
        target = Target(name, case.serve, home)
        try:
            if case.prepare is not None:
                case.prepare(target, size)
            with Meter(target, case.waits) as meter:
                seen = case.attack(target, size) or ""
            with target.line(unix=True) as line:
                assert line("PING") == b"PONG"
        except BaseException as error:
            error.add_note(f"{case.name}, {name}; its log ends: {target.said()[-2000:]}")
            target.kill()
            raise
        target.end()
        rows.append(AttackRow(name, meter.cost, seen))
        shutil.rmtree(home)
    return rows


def over(case: AttackCase, rows: list[AttackRow], *, strict: bool) -> list[str]:
    """Where ours cost more than the budget allows."""
    cost, budget = rows[0].cost, case.budget
    theirs = rows[1].cost if len(rows) > 1 else Cost()
    found = []
    for name in ("memory_bytes", "files", "log_bytes"):
        most, took = getattr(budget, name), getattr(cost, name)
        if most is not None and took > most:
            found.append(f"{name}: {took:,}, the budget is {most:,}")
    for name, noise in (("p99_ms", NOISE_MS), ("max_ms", NOISE_MS), ("cpu_s", NOISE_S)):
        most, took = getattr(budget, name), getattr(cost, name)
        if most is None:
            continue
        if not strict:
            most = max(most * GENEROUS, getattr(theirs, name) * AS_REDIS + noise)
        if took > most:
            found.append(f"{name}: {took:,.1f}, the budget is {most:,.1f}")
    return found


def check(case: AttackCase, directory: Path) -> str:
    """Run a case at its small size; its rows, or what was over the budget as a failure."""
    try:
        rows = run(case, directory)
    except FileNotFoundError as exc:
        pytest.skip(str(exc))
    told = "\n".join([f"attack: {case.name}, size {case.small:,}", *(f"  {row}" for row in rows)])
    found = over(case, rows, strict=False)
    assert not found, "\n".join([*found, told])
    return told
