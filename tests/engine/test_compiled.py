"""Prevents a wheel whose engine is interpreted, or half compiled, without anybody noticing."""

from __future__ import annotations

import importlib
import os

import pytest

import build_engine
from logstore.tuples import NamedTuple
from tests.house.repo import ROOT

MODULES = build_engine.modules(ROOT)


@pytest.mark.skipif(
    not os.environ.get("LOGSTORE_REQUIRE_COMPILED"),
    reason="LOGSTORE_REQUIRE_COMPILED is not set; `make test-compiled` sets it",
)
def test_every_module_that_should_be_is_compiled() -> None:
    found = {name: importlib.import_module(f"logstore.{name}").__file__ for name in MODULES}
    assert [name for name, file in found.items() if file is None or file.endswith(".py")] == []


def test_named_tuples_of_compiled_modules_are_ours() -> None:
    """mypyc puts those of ``typing`` in their place, if the build does not tell it otherwise."""
    theirs = [
        f"{name}.{each.__name__}"
        for name in MODULES
        for each in vars(importlib.import_module(f"logstore.{name}")).values()
        if isinstance(each, type) and issubclass(each, tuple) and each is not NamedTuple
        if hasattr(each, "_fields") and not issubclass(each, NamedTuple)
    ]
    assert theirs == []


def test_what_the_build_names_is_there() -> None:
    """A module that moved would be left out of the compiled engine, or come into it, in silence."""
    for name in (*build_engine.INTERPRETED, *build_engine.SINGLE):
        assert (ROOT / "logstore" / f"{name.replace('.', '/')}.py").is_file(), name
    assert all(
        name.rpartition(".")[0] in build_engine.PACKAGES for name in build_engine.INTERPRETED
    )


def test_what_decides_about_interrupts_is_not() -> None:
    for name in ("engine.commit.committer",):
        assert name not in MODULES
        file = importlib.import_module(f"logstore.{name}").__file__
        assert file is not None
        assert file.endswith(".py")
