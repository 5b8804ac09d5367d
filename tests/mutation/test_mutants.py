"""Prevents a mutation check that breaks nothing, calls everything noticed, or keeps old excuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.mutation import copies, scope, table
from tests.mutation.asking import Asker
from tests.mutation.mutants import is_program, mutants, mutated, shown
from tests.mutation.table import PAGE, ROW, Outcome

SOURCE = '''\
"""A module."""
LIMIT: int = 3
def least(a: int, b: int = 0) -> int:
    assert a is not None
    if a < b and not b:
        raise ValueError(f"{a + 1}")
    log.info("%d", a - 1)
    self.at = a << 1
    self.seal()
    return a + (b) * 2
'''
WANTED = {
    "LIMIT: int = 4",
    "def least(a: int, b: int = 1) -> int:",
    "if a <= b and not b:",
    "if a < b or not b:",
    "if a < b and bool(b):",
    "pass",
    "self.at = a >> 1",
    "self.at = a << 2",
    "self.at = None",
    "return a - (b) * 2",
    "return a + (b) // 2",
    "return a + (b) * 3",
}


def test_each_way_to_break() -> None:
    """Operators, constants, conditions, calls; no annotation, no log, no text, no assertion."""
    found = mutants(SOURCE)
    assert {shown(SOURCE, one)[1] for one in found} == WANTED
    assert len(found) == len(WANTED) + 1  # the raise and the call are both left out
    assert all(is_program(SOURCE, one) for one in found)


SUMMING = """\
LIMIT = 9
def total(a, b):
    return min(a + b, LIMIT)
class Sum:
    STEP = 1
    def up(self, a):
        return [one + self.STEP for one in a]
HANDS = {0: lambda a: a * 2}
"""
TESTS = """\
from logstore.summing import HANDS, LIMIT, Sum, total
def test_total():
    assert total(2, 3) == 5
def test_up():
    assert Sum().up([1]) == [2]
def test_hands():
    assert HANDS[0](3) == 6
def test_limit():
    assert LIMIT == 9
"""

MOUNTING = """\
import os, subprocess, pytest
from logstore.summing import total
def test_disk(tmp_path):
    command = ["mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(command).returncode:
        pytest.skip("nothing can be mounted")
    (tmp_path / "file").touch()
    assert total(1, 1) == 2
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)
"""


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """A worker whose product is one module, with tests of it."""
    tree = tmp_path_factory.mktemp("tree")
    copies.take(tree, only="tests/mutation/")
    (tree / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    for name, text in (
        ("tests/__init__.py", ""), ("tests/log/test_it.py", TESTS),
        ("tests/log/test_mounting.py", MOUNTING),
        ("logstore/__init__.py", ""), ("logstore/summing.py", SUMMING),
    ):  # fmt: skip
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    made = Asker(tree)
    yield made
    made.close()


def test_each_mutant_is_noticed_by_its_test(asker: Asker) -> None:
    """In a function, a method, a comprehension, a lambda, and where the module is imported."""
    met = {}
    for mutant in mutants(SUMMING):
        _, after = shown(SUMMING, mutant)
        answer = asker.ask(
            "logstore/summing.py", mutated(SUMMING, mutant), dict.fromkeys(asker.tests, 60)
        )
        met[after] = (answer["result"], answer["by"].partition("::")[2])
    assert met == {
        "LIMIT = 10": ("failed", "test_limit"),
        "return min(a - b, LIMIT)": ("failed", "test_total"),
        "STEP = 2": ("failed", "test_up"),
        "return [one - self.STEP for one in a]": ("failed", "test_up"),
        "HANDS = {1: lambda a: a * 2}": ("failed", ""),
        "HANDS = {0: lambda a: a // 2}": ("failed", "test_hands"),
        "HANDS = {0: lambda a: a * 3}": ("failed", "test_hands"),
    }
    assert (asker.tree / "logstore/summing.py").read_text() == SUMMING


def test_an_unseen_change_survives(asker: Asker) -> None:
    """A change that no test sees survives, in a function and at import, also behind a kill."""
    limits = dict.fromkeys(asker.tests, 60.0)
    for after in (SUMMING.replace("9", "9  "), SUMMING.replace("min(a + b", "min(b + a")):
        assert asker.ask("logstore/summing.py", after, limits)["result"] == "passed"


def test_time_over(asker: Asker) -> None:
    """A mutant that never ends is stopped."""
    after = SUMMING.replace("return min", "while True: pass\n    return min")
    answer = asker.ask("logstore/summing.py", after, dict.fromkeys(asker.tests, 2.0))
    assert (answer["result"], answer["by"].partition("::")[2]) == ("timeout", "test_total")


def test_a_test_that_is_stopped_with_a_disk_mounted_harms_no_other(asker: Asker) -> None:
    """Its files could not be removed, and each mutant behind it would count as noticed."""
    (disk,) = [test for test in asker.tests if test.endswith("test_disk")]
    endless = SUMMING.replace("return min", "while True: pass\n    return min")
    result = asker.ask("logstore/summing.py", endless, {disk: 2.0})["result"]
    if result == "passed":
        pytest.skip("nothing can be mounted")
    assert result == "timeout"
    unseen = SUMMING.replace("min(a + b", "min(b + a")
    assert asker.ask("logstore/summing.py", unseen, {disk: 60.0})["result"] == "passed"


def test_every_excuse_is_of_something() -> None:
    """Each row of the page names a mutant that there is; none is left of code that is gone."""
    rows = {(module, before, after) for module, before, after in table.explained()}
    assert rows <= {
        (module, *shown(source, mutant))
        for module in {row[0] for row in rows}
        for source in [(copies.ROOT / module).read_text()]
        for mutant in mutants(source)
    }
    assert len(rows) == len(ROW.findall(PAGE.read_text()))


def test_the_table_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A survivor lowers the share, and is named until it is explained."""
    outcomes = [
        Outcome("frames", "a.py", 1, "constant", "x = 1", "x = 2", f"a:{result}", result, "")
        for result in ("failed", "timeout", "passed", "unreached")
    ]
    monkeypatch.setattr(table, "explained", set)
    assert table.text(outcomes, {"a.py": 9}).endswith("| **all** | 9 | 4 | 2 | 1 | 2 | 0 | 50.0 |")
    assert len(table.survivors(outcomes)) == 2
    monkeypatch.setattr(table, "explained", lambda: {("a.py", "x = 1", "x = 2")})
    assert table.survivors(outcomes) == []


def test_rooms_and_test_files_of_the_mutation_check_exist() -> None:
    """No room without modules, no test file that was renamed."""
    assert set(scope.modules(copies.ROOT).values()) == set(scope.ROOMS)
    assert all((copies.ROOT / name).exists() for name in (*scope.TESTS, *scope.LEFT_OUT))
    assert not re.search("kill|soak|wait", " ".join(scope.tests(copies.ROOT)))
