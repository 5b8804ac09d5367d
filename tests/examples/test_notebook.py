"""Prevents a notebook that does not run any more, or says other things than it shows."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.house.repo import EXAMPLES

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: make test has it")
nbclient = pytest.importorskip("nbclient")
# Of each notebook: what it needs beside this project's extras, and how many cells give something.
NOTEBOOKS = {"analysis.ipynb": ((), 5), "typed.ipynb": (("matplotlib", "pandas"), 7)}
_ID = re.compile(r"\b\d{13}-\d+\b")


def outputs_of(notebook: Any) -> list[str]:
    """What its cells gave, each in one piece; IDs are of another moment."""
    found = [
        "".join(
            output["data"]["text/plain"] if "data" in output else output["text"]
            for output in cell.get("outputs", ())
        )
        for cell in notebook.cells
    ]
    return [_ID.sub("0-0", text) for text in found if text]


def test_each_notebook_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_says_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is a temporary one; its kernel is this Python, and writes nothing at home."""
    needed, outputs = NOTEBOOKS[name]
    for package in needed:
        pytest.importorskip(package, reason=f"{package} is not installed: make test has it")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "TMPDIR"):
        (tmp_path / variable).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / variable))
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    shown = outputs_of(notebook)
    assert len(shown) == outputs
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    assert outputs_of(notebook) == shown
