"""Prevents a wheel whose engine is interpreted, or half compiled, without anybody noticing."""

from __future__ import annotations

import ast
import importlib
import os

import pytest

from tests.house.repo import ROOT


def modules() -> tuple[str, ...]:
    """Those that the build compiles."""
    for each in ast.parse((ROOT / "build_engine.py").read_text()).body:
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "MODULES":
            found: tuple[str, ...] = ast.literal_eval(each.value)
            return found
    raise AssertionError("build_engine.py names no MODULES")


@pytest.mark.skipif(
    not os.environ.get("LOGSTORE_REQUIRE_COMPILED"),
    reason="LOGSTORE_REQUIRE_COMPILED is not set; `make test-compiled` sets it",
)
def test_every_module_that_should_be_is_compiled() -> None:
    found = {name: importlib.import_module(f"logstore.{name}").__file__ for name in modules()}
    assert [name for name, file in found.items() if file is None or file.endswith(".py")] == []


def test_what_decides_about_interrupts_is_not() -> None:
    for name in ("engine.commit.committer",):
        assert name not in modules()
        file = importlib.import_module(f"logstore.{name}").__file__
        assert file is not None
        assert file.endswith(".py")
