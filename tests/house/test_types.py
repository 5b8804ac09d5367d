"""Prevents a public face whose types a user's checker does not know, or knows to be others."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.house.repo import ROOT

SAMPLE = "tests/house/typed/user.py"
# mypy with the settings of `make types`, so that it finds what that knows of the package already.
CHECKERS = {
    "mypy": ["mypy", SAMPLE],
    "pyright": ["pyright", "--project", "tests/house/typed/pyrightconfig.json"],
}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_program_is_typed(checker: str) -> None:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed; `make test` has it")
    found = subprocess.run(
        [sys.executable, "-m", *CHECKERS[checker]], cwd=ROOT, capture_output=True, text=True,
        check=False, timeout=500,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
