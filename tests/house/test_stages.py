"""Prevents a draw that leaves a file out or cannot be repeated, and a red run called green."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import draw, rooms, stages
from tests.draw import Cost
from tests.house.repo import ROOT

COSTS = {"a/test_a.py": Cost(100, 2.0, 0.5), "b/test_b.py": Cost(50, 0.0, 1.0)}
NAMES = [
    *(f"tests/a/test_a.py::test_{at}" for at in range(100)),
    *(f"tests/b/test_b.py::test_{at}" for at in range(50)),
    "tests/c/test_new.py::test_one",
]
# What `make test` takes beside its draws, in seconds on two idle cores: CONTRIBUTING.md has it.
INSTALLATION_S = 180
LINT_S = 15
# Types, the site and an older Spark, beside the tests marked `alone`.
COMPUTING_S = 180
AT_MOST_S = 15 * 60
FLAKY = "def test_flaky():\n    once({at})\n"
HEAD = """
import os, time
from pathlib import Path
import pytest
pytestmark = [pytest.mark.{mark}] if "{mark}" == "alone" else []

def once(at):
    mark = Path(__file__).with_suffix(f".{{at}}")
    if not mark.exists():
        mark.touch()
        raise AssertionError("the first time")
"""


def test_the_same_seed_draws_the_same() -> None:
    """Two processes would run different tests, and a red draw could not be repeated."""
    first = draw.draw(NAMES, COSTS, 30, "7")
    assert draw.draw(reversed(NAMES), COSTS, 30, "7") == first
    assert draw.draw(NAMES, COSTS, 30, "8") != first


def test_the_order_in_which_tests_are_counted_does_not_matter() -> None:
    """A set has another one in each process, and all of them must draw the same."""
    names = [f"tests/{place}.py::test" for place in range(100)]
    costs = {f"{place}.py": draw.Cost(1, 0.0, 0.1 + place / 7) for place in range(100)}
    for seed in range(20):
        mixed = random.Random(seed).sample(names, len(names))
        assert draw.estimate(mixed, costs) == draw.estimate(names, costs)


def test_a_draw_keeps_to_its_budget_and_has_every_file() -> None:
    """A file without a row, or one that is dear, would never run."""
    for seed in "123456":
        drawn = draw.draw(NAMES, COSTS, 30, seed)
        assert {draw.file_of(name) for name in drawn} == {
            "a/test_a.py", "b/test_b.py", "c/test_new.py"
        }  # fmt: skip
        assert 29 < draw.estimate(drawn, COSTS) <= 30
    assert len(draw.draw(NAMES, COSTS, 0, "1")) == 3
    assert len(draw.draw(NAMES, COSTS, 0, "1", dear_s=2)) == 2  # the first of a takes 2.5 s
    drawn = draw.draw(NAMES, COSTS, 30, "1", dear_s=0.05)
    assert 28 < draw.estimate(drawn, COSTS) <= 30
    assert draw.draw(NAMES, COSTS, 1000, "1") == frozenset(NAMES)


def test_folders_of_promises_are_drawn_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "WHOLE", ("b",))
    drawn = draw.draw(NAMES, COSTS, 0, "1")
    assert {name for name in NAMES if name.startswith("tests/b/")} <= drawn
    assert len(drawn) == 52


def test_the_table_tells_what_the_first_test_of_a_file_takes() -> None:
    """Of a file with a server of its own, one test would be taken for as quick as the rest."""
    assert draw.measured([5.1, 0.1, 0.1, 0.1]) == Cost(4, 5.0, 0.1)
    assert draw.measured([0.3]) == Cost(1, 0.0, 0.3)
    assert Cost(4, 5.0, 0.1).of(1) == 5.1
    assert Cost(4, 5.0, 0.1).of(0) == 0


def test_folders_drawn_whole_and_rows_of_durations_exist() -> None:
    """A file that was renamed would leave the promises without a word."""
    assert not [name for name in (*draw.WHOLE, *draw.IN_PART) if not (draw.TESTS / name).exists()]
    named = {name for stage in stages.STAGES.values() for name in stage.only}
    assert not [name for name in named if not (draw.TESTS / name).exists()]
    assert set(json.loads(draw.TABLE.read_text())) == set(stages.STAGES)


@pytest.mark.parametrize("name", stages.STAGES)
def test_tests_that_always_run_take_half_of_a_budget_at_most(name: str) -> None:
    """Of the rest of a stage the same few tests would run each time, or its time would be over."""
    stage, costs = stages.STAGES[name], draw.load(name)
    always_s = sum(
        cost.of(cost.tests if draw.is_whole(file) else draw.least(cost, stage.dear_s))
        for file, cost in costs.items()
    )
    assert costs
    assert always_s < 0.75 * stage.draw_s()


def test_all_stages_together_take_a_quarter_of_an_hour() -> None:
    budgets = {name: stage.budget_s for name, stage in stages.STAGES.items()}
    first_s = max(budgets.pop("alone"), COMPUTING_S)
    assert INSTALLATION_S + LINT_S + first_s + sum(budgets.values()) <= AT_MOST_S


def test_each_test_that_is_known_to_fail_at_times_is_there() -> None:
    """A test that was renamed or mended would stay on the list."""
    listed = re.findall(r"^\| `(tests/[^`]+)`", (ROOT / "tests/FLAKY.md").read_text(), re.MULTILINE)
    for name in listed:
        path, *inner = name.split("::")
        assert Path(path) in rooms.test_files(), name
        found = re.search(rf"def {inner[-1].partition('[')[0]}\(", (ROOT / path).read_text())
        assert found, name


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder below the root, as tests have names from there."""
    with tempfile.TemporaryDirectory(prefix="stage-", dir=ROOT / "build") as made:
        yield Path(made)


def staged(
    folder: Path, text: str, stage: str = "alone", before: int = 0
) -> tuple[int, str, list[str]]:
    """The exit code of a stage of one file, what it printed, and the flaky lines."""
    (folder / "test_it.py").write_text(HEAD.format(mark=stage) + text)
    kept = folder / "stages"
    kept.mkdir()
    (kept / stages.FLAKY).write_text("FLAKY of another stage\n" * before)
    command = [sys.executable, "-m", "tests.stages", stage, "--draw", "5", "--jobs", "1"]
    done = subprocess.run(
        [*command, "--", "-q", str(folder / "test_it.py")],
        env={**os.environ, "LOGSTORE_STAGES": str(kept), "LOGSTORE_FORGIVE": "3"},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = (kept / stages.FLAKY).read_text().splitlines()[before:]
    return done.returncode, done.stdout + done.stderr, lines


def test_a_test_that_passes_the_second_time_is_told_as_flaky(folder: Path) -> None:
    code, said, lines = staged(folder, "def test_fine():\n    pass\n" + FLAKY.format(at=1))
    assert code == 0, said
    assert "1 failed, 1 passed" in said
    (line,) = lines
    assert re.fullmatch(r"FLAKY \S*test_it.py::test_flaky seed=5 stage=alone", line)
    assert line in said.splitlines()
    assert "SEED=5" in said


def test_a_test_that_fails_twice_fails_the_stage(folder: Path) -> None:
    text = (
        FLAKY.format(at=1)
        + "def test_broken():\n    assert os.environ['LOGSTORE_RUN_SEED'] == '6'\n"
    )
    code, said, lines = staged(folder, text)
    assert (code, len(lines)) == (1, 1), said
    assert "Failed twice:" in said


def test_more_flaky_tests_than_allowed_fail_the_run(folder: Path) -> None:
    """Of all stages together: two were forgiven before."""
    more = FLAKY.format(at=1) + FLAKY.format(at=2).replace("test_flaky", "test_other")
    code, said, lines = staged(folder, more, before=2)
    assert (code, lines) == (1, []), said
    assert "4 failed, at most 3" in said


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("import nothing_of_this_name", "alone"),
        ("def test_dies():\n    os._exit(3)", "beside"),
        ("@pytest.mark.timeout(1)\ndef test_late():\n    time.sleep(60)", "alone"),
    ],
    ids=["not collected", "died", "out of time"],
)
def test_crashes_hangs_and_broken_files_are_never_forgiven(
    folder: Path, text: str, stage: str
) -> None:
    """A dead process, a hang or a broken file would be green, as what is run alone may pass."""
    code, said, lines = staged(folder, f"{FLAKY.format(at=9)}\n{text}\n", stage)
    assert code != 0, said
    assert not lines
    assert "Once more" not in said
