"""The draw of `make test`: which tests of a stage run, from a seed and a budget.

Invariants: the same tests, table, stage and seed give the same draw, in every process that collects
them; no clock is asked; every test file gives one test at least, those of ``WHOLE`` all of theirs,
but that a stage may leave dear files to chance: those of which one test takes long.
What a test takes is looked up in ``durations.json``, which `make test-full` writes: a row a file,
with its number of tests, what its first one takes on top of the others (servers, fixtures of the
module), and what each takes, in seconds of a machine with nothing else to do. A file without a row
is new, and taken for a quick one.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parent
TABLE = TESTS / "durations.json"


class Cost(NamedTuple):
    """What the tests of a file take, in seconds."""

    tests: int
    first_s: float
    each_s: float

    def of(self, count: int) -> float:
        """What so many of them take together."""
        return self.first_s + count * self.each_s if count else 0.0


UNKNOWN = Cost(0, 0.2, 0.1)
Costs = Mapping[str, Cost]

# Drawn whole, as these are the promises that everything else stands on, and quick: the bytes of the
# format, the commit's lane, who owns a store, what a crash may leave, and the rules of the house.
# The last rows hold files whose tests sum up what the tests before them did.
WHOLE = (
    "codec/test_golden.py",
    "engine/test_lane.py",
    "engine/test_durability_promises.py",
    "house",
    "log/test_format_page.py",
    "log/test_frames.py",
    "recovery/test_backup.py",
    "recovery/test_new_store.py",
    "recovery/test_salvage_parts.py",
)
# Of these the rest is drawn: each test runs a page, a run of pytest, or most of what there is.
IN_PART = (
    "house/test_docs.py",
    "house/test_rooms.py",
    "house/test_stages.py",
    "house/test_torture.py",
)


def file_of(nodeid: str) -> str:
    """The file of a test below ``tests/``, as the tables name it."""
    return nodeid.partition("::")[0].removeprefix("tests/")


def is_whole(file: str) -> bool:
    """Tell whether a file is always drawn whole."""
    return file not in IN_PART and any(
        file == name or file.startswith(f"{name}/") for name in WHOLE
    )


def draw(
    names: Iterable[str], costs: Costs, budget_s: float, seed: str, dear_s: float = math.inf
) -> frozenset[str]:
    """The tests to run, of those with these names, that take the budget or less.

    It may be more where one test of each file and the files of ``WHOLE`` take more already. A file
    of which one test takes over ``dear_s`` is left to chance.
    """
    rng = random.Random(seed)
    files: dict[str, list[str]] = {}
    for name in sorted(names):
        files.setdefault(file_of(name), []).append(name)
    drawn: set[str] = set()
    rest: list[str] = []
    for file, found in files.items():
        rng.shuffle(found)
        count = len(found) if is_whole(file) else least(costs.get(file, UNKNOWN), dear_s)
        drawn.update(found[:count])
        rest += found[count:]
    rng.shuffle(rest)
    left_s = budget_s - estimate(drawn, costs)
    begun = {file_of(name) for name in drawn}
    for name in rest:
        file = file_of(name)
        cost = costs.get(file, UNKNOWN)
        takes_s = cost.each_s if file in begun else cost.of(1)
        if takes_s <= left_s:
            left_s -= takes_s
            drawn.add(name)
            begun.add(file)
    return frozenset(drawn)


def least(cost: Cost, dear_s: float) -> int:
    """How many tests of a file are always drawn."""
    return int(cost.of(1) <= dear_s)


def estimate(names: Iterable[str], costs: Costs) -> float:
    """What these tests take one after the other, by the table.

    Exactly summed: processes have sets in other orders, and one bit decides what is drawn last.
    """
    counts: dict[str, int] = {}
    for name in names:
        file = file_of(name)
        counts[file] = counts.get(file, 0) + 1
    return math.fsum(costs.get(file, UNKNOWN).of(count) for file, count in counts.items())


def measured(seconds: Sequence[float]) -> Cost:
    """The row of a file whose tests took this long, in the order in which they ran."""
    later = seconds[1:] or seconds
    first_s = max(0.0, seconds[0] - statistics.median(later))
    each_s = (sum(seconds) - first_s) / len(seconds)
    return Cost(len(seconds), round(first_s, 2), round(each_s, 4))


def load(stage: str) -> Costs:
    """The rows of a stage."""
    rows = json.loads(TABLE.read_text()).get(stage, {}) if TABLE.exists() else {}
    return {file: Cost(*row) for file, row in rows.items()}


def write(stages: Mapping[str, Costs]) -> None:
    """Put the rows of these stages into the table, a line a file; other stages keep theirs."""
    kept = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    table = {**kept, **stages}
    parts = []
    for stage, rows in sorted(table.items()):
        lines = [f"    {json.dumps(file)}: {json.dumps(row)}" for file, row in sorted(rows.items())]
        parts.append(f"  {json.dumps(stage)}: {{\n" + ",\n".join(lines) + "\n  }")
    TABLE.write_text("{\n" + ",\n".join(parts) + "\n}\n")
