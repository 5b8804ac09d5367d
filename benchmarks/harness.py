"""What every benchmark shares: scales, interleaved rounds, results, work in a fresh process.

A benchmark is a module with ``NAME`` and ``run(bench) -> list[Result]``. Times of one run on a
shared machine say little by themselves: a round measures ours, then the peer, then ours again, and
what counts is the ratio of the means.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORES = 2
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


@dataclass(frozen=True, slots=True)
class Bench:
    """Where to work, and how much."""

    folder: Path
    quick: bool = False
    tiny: bool = False  # for a test of the harness itself
    asked_rounds: int = 0  # 0: as many as go with the size

    def size(self, full: int, quick: int) -> int:
        """How many: ``full``, ``quick``, or next to nothing."""
        return max(200, quick // 100) if self.tiny else quick if self.quick else full

    @property
    def rounds(self) -> int:
        """How often each side is measured."""
        return self.asked_rounds or (2 if self.tiny else 3 if self.quick else 5)


@dataclass(frozen=True, slots=True)
class Sample:
    """One side's measurements."""

    label: str
    values: list[float]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """Standard deviation over mean."""
        return statistics.pstdev(self.values) / self.mean if self.mean else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "label": self.label, "mean": self.mean, "spread": self.spread, "values": self.values
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table."""

    name: str
    unit: str
    ours: Sample
    peer: Sample | None
    measured: float  # what the target speaks of: a ratio, or a value
    target: str
    met: bool
    note: str = ""
    others: Sequence[Sample] = ()  # peers that the target does not speak of

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        sides = {"ours": self.ours, "peer": self.peer}
        return asdict(self) | {
            **{side: None if found is None else found.as_dict() for side, found in sides.items()},
            "others": [found.as_dict() for found in self.others],
        }


@dataclass(frozen=True, slots=True)
class Curve:
    """What one operation costs at growing sizes."""

    name: str
    across: str  # what grows
    unit: str
    points: list[tuple[int, float]]
    expected: str  # how it should grow, in words
    model: Callable[[int], float] | None  # and as a function, up to a factor

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "name": self.name, "across": self.across, "unit": self.unit, "points": self.points,
            "expected": self.expected,
        }  # fmt: skip


def interleave(
    rounds: int, ours: Callable[[int], float], peer: Callable[[int], float], labels: Sequence[str]
) -> tuple[Sample, Sample]:
    """Measure A, B, A, B, ..; one round before that does not count."""
    first, second = in_turns(rounds, {labels[0]: ours, labels[1]: peer})
    return first, second


def in_turns(rounds: int, sides: Mapping[str, Callable[[int], float]]) -> list[Sample]:
    """Measure each side by its label, then all of them again; one round before that does not
    count."""
    found: dict[str, list[float]] = {label: [] for label in sides}
    for number in range(-1, rounds):
        for label, side in sides.items():
            value = side(number)
            if number >= 0:
                found[label].append(value)
    return [Sample(label, values) for label, values in found.items()]


def at_most(
    name: str,
    unit: str,
    ours: Sample,
    peer: Sample,
    limit: float,
    note: str = "",
    others: Sequence[Sample] = (),
) -> Result:
    """Our time over the peer's."""
    ratio = ours.mean / peer.mean
    return Result(name, unit, ours, peer, ratio, f"<= {limit:g} x", ratio <= limit, note, others)


def at_least(
    name: str, unit: str, ours: Sample, peer: Sample, limit: float, *more: Any, **named: Any
) -> Result:
    """Our rate over the peer's; the note and the others as of ``at_most``."""
    found = at_most(name, unit, ours, peer, limit, *more, **named)
    return replace(found, target=f">= {limit:g} x", met=found.measured >= limit)


def below(
    name: str, unit: str, ours: Sample, limit: float, peer: Sample | None = None, note: str = ""
) -> Result:
    """A value of ours that must stay under a limit."""
    target = f"<= {limit:g} {unit}"
    return Result(name, unit, ours, peer, ours.mean, target, ours.mean <= limit, note)


def told_alone(
    name: str,
    unit: str,
    ours: Sample,
    peer: Sample | None,
    note: str = "",
    others: Sequence[Sample] = (),
) -> Result:
    """Ours beside the peer's, without a goal."""
    ratio = ours.mean if peer is None else ours.mean / peer.mean
    return Result(name, unit, ours, peer, ratio, "none", True, note, others)


def fresh(function: str, *arguments: object) -> Any:
    """Run a function of benchmarks.child in a process of its own; what it returns."""
    command = [sys.executable, "-m", "benchmarks.child", function, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def as_installed(bytecode: Path) -> dict[str, str]:
    """The environment of a process with the bytecode that an installation has, whatever is said of
    bytecode outside; the first process leaves it in that folder."""
    kept = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    return kept | {"PYTHONPYCACHEPREFIX": str(bytecode)}


def process_ms(bytecode: Path, code: str, *arguments: object) -> float:
    """How long a process takes that runs some code, from its start to its end."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    started = time.perf_counter()
    subprocess.run(command, check=True, cwd=ROOT, env=as_installed(bytecode))
    return (time.perf_counter() - started) * 1e3


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Keep this process to some cores, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
