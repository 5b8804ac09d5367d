"""Prevents a silent fall-back: which codec is used is what the environment asked for."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

from logstore.codec import Codec, pure

NAMES = sorted(name for name in vars(Codec) if not name.startswith("_"))
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
    assert sorted({*vars(pure)["__all__"]} - {"RowBatch"}) == NAMES
    for name in NAMES:
        assert callable(getattr(native, name)), name


@pytest.mark.parametrize("name", [name for name in NAMES if name.islower()])
def test_both_take_the_same_parameters(native: Codec, name: str) -> None:
    expected = inspect.signature(getattr(pure, name)).parameters
    assert list(inspect.signature(getattr(native, name)).parameters) == list(expected)
