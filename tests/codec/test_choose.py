"""Prevents a silent fall-back: which codec is used is what the environment asked for."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from logstore.codec import Codec, pure
from tests.support.compiled import has_parameters, parameter_names

NAMES = sorted(name for name in vars(Codec) if not name.startswith("_"))
FUNCTIONS = [name for name in NAMES if inspect.isfunction(getattr(pure, name))]
# What the modules of pure Python call of each other's classes.
INNER = {"EntryMaker": {"made"}, "GivenIDs": {"put"}}
OLDER = "import sys, types; sys.modules['logstore.codec.native'] = types.ModuleType('native'); "
PRINT = "import logstore.codec as c; print(c.codec_name(), c.codec() is c.{})"
HIDDEN = "import sys; sys.modules['logstore.codec.native'] = None; "


def _python(code: str, wish: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LOGSTORE_CODEC": wish}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_native_is_used_where_it_is(native: Codec) -> None:
    for wish in ("", "native"):
        assert _python(PRINT.format("native_or_none"), wish).stdout == "native True\n"


def test_pure_is_used_on_demand_or_where_native_is_missing() -> None:
    assert _python(PRINT.format("pure"), "pure").stdout == "pure True\n"
    assert _python(HIDDEN + PRINT.format("pure"), "").stdout == "pure True\n"


def test_native_that_is_older_than_its_source_is_not_used() -> None:
    """Prevents: a build of before that lacks what the pure codec has by now, found out in use."""
    assert _python(OLDER + PRINT.format("pure"), "").stdout == "pure True\n"
    result = _python(OLDER + PRINT.format("pure"), "native")
    assert "the compiled codec is older than the pure one, it has no ArrowBuilder" in result.stderr


def test_native_that_is_demanded_and_missing_is_an_error() -> None:
    result = _python(HIDDEN + PRINT.format("pure"), "native")
    assert result.returncode != 0
    assert "ImportError: LOGSTORE_CODEC=native, but it was not built" in result.stderr


def test_another_choice_is_refused() -> None:
    assert "it can be 'pure' or 'native'" in _python(PRINT.format("pure"), "fast").stderr


def test_both_have_exactly_the_names_of_the_interface(native: Codec) -> None:
    assert sorted(vars(pure)["__all__"]) == NAMES
    for name in NAMES:
        assert callable(getattr(native, name)), name


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Its parameters, and what they are if they are not given."""
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.default) for each in found if each.name not in {"self", "cls"}]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_functions_take_the_parameters_of_the_pure_ones(native: Codec, name: str) -> None:
    assert parameters(getattr(native, name)) == parameters(getattr(pure, name))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FUNCTIONS])
def test_compiled_classes_are_called_as_the_pure_ones(native: Codec, name: str) -> None:
    """The pure class is the type of both."""
    plain, compiled = getattr(pure, name), getattr(native, name)
    if has_parameters(compiled):
        assert parameter_names(compiled) == list(inspect.signature(plain).parameters)
    for method in vars(plain).keys() - INNER.get(name, set()):
        if not method.startswith("_"):
            assert hasattr(compiled, method), method
            if callable(getattr(plain, method)):
                expected = [each for each, _ in parameters(getattr(plain, method))]
                assert parameter_names(getattr(compiled, method)) == expected, method
