"""Prevents a public name that goes without a word, and a warning that points at our own code."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.deprecation import DEPRECATED, Deprecation, renamed, warn
from tests.house.repo import ROOT, modules

VERSION = re.compile(r"[1-9]\d*\.\d+")
OLD = Deprecation("1.2", "2.0", "logstore.Stream")


def number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def test_the_register_keeps_the_promise() -> None:
    """A line says when it began, goes with a later major version, and not in one that is out; what
    it is of warns, and the changelog tells it."""
    sources = "".join((ROOT / path).read_text() for path in modules("logstore", "tools"))
    changelog = (ROOT / "CHANGELOG.md").read_text()
    for name, each in DEPRECATED.items():
        assert VERSION.fullmatch(each.since), name
        assert re.fullmatch(r"[2-9]\d*\.0", each.removed_in), name
        assert number(each.since) < number(each.removed_in), name
        assert number(logstore.__version__) < number(each.removed_in), f"{name} should be gone"
        assert name.startswith("logstore.") or f'warn("{name}")' in sources, name
        assert name in changelog, name


def test_a_renamed_name_works_and_warns_at_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEPRECATED, "logstore.Log", OLD)
    with pytest.warns(DeprecationWarning, match="deprecated since") as told:
        found = logstore.Log
    assert found is logstore.Stream
    (warning,) = told
    assert Path(warning.filename) == Path(__file__)
    assert "found = logstore.Log" in Path(__file__).read_text().splitlines()[warning.lineno - 1]
    assert str(warning.message) == (
        "logstore.Log is deprecated since logstore 1.2, and goes with 2.0: use logstore.Stream"
    )
    assert not hasattr(logstore, "Logs")
    assert renamed("Stream") == ""


def test_a_warning_passes_over_our_own_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many: an old option of ``add`` is found out some calls below it."""
    monkeypatch.setitem(DEPRECATED, "Stream.add(maxlen=)", OLD)
    code = "def outer(): return inner()\ndef inner(): warn('Stream.add(maxlen=)')\n"
    space: dict[str, Any] = {"__name__": "logstore.api.stream", "warn": warn}
    exec(compile(code, "logstore/api/stream.py", "exec"), space)
    with pytest.warns(DeprecationWarning, match="deprecated since") as told:
        space["outer"]()
    assert Path(told[0].filename) == Path(__file__)


def test_a_warning_is_an_error_where_one_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEPRECATED, "logstore.Log", OLD)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        with pytest.raises(DeprecationWarning, match=r"use logstore\.Stream"):
            _ = logstore.Log
