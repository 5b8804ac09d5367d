"""Prevents a page of examples that do not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.repo import ROOT
from tests.house.test_docs import FENCE

PAGE = ROOT / "docs" / "analytics.md"


def test_every_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's ```python blocks, in order, in one namespace; none is left out."""
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    namespace: dict[str, object] = {"__name__": "analytics"}
    blocks = [block for block in FENCE.finditer(text) if block[1] == "python"]
    assert len(blocks) >= 3
    assert not any(block[2].strip() for block in blocks)
    try:
        for block in blocks:
            above = text.count("\n", 0, block.start(3))
            exec(compile("\n" * above + block[3], PAGE, "exec"), namespace)
    finally:
        namespace["store"].close()  # type: ignore[attr-defined]
