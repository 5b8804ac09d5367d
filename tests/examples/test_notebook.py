"""Prevents a notebook that does not run any more, or says other things than it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.house.repo import EXAMPLES

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: make test has it")
nbclient = pytest.importorskip("nbclient")
NOTEBOOK = EXAMPLES / "analysis.ipynb"


def outputs_of(notebook: Any) -> list[str]:
    """What its cells gave."""
    return [
        output["data"]["text/plain"] if "data" in output else output["text"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    ]


def test_the_notebook_says_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is a temporary one; its kernel is this Python, and writes nothing at home."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = outputs_of(notebook)
    assert len(shown) == 5
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    assert outputs_of(notebook) == shown
