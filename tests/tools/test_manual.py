"""Prevents pages of commands that leave one out, or tell otherwise than the commands do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from logstore.tools.commands import COMMANDS
from tests.house.repo import project
from tests.tools import manual
from tests.tools.commands import ROOT, ok


def test_the_page_is_that_of_the_commands() -> None:
    assert manual.PAGE.read_text() == manual.text(), "make it anew: make manual"


def test_the_page_has_every_command() -> None:
    page = manual.PAGE.read_text()
    for name in COMMANDS:
        assert f".SS logstore {name}".replace("-", r"\-") in page


def test_the_page_is_installed_where_man_looks() -> None:
    files = project()["tool"]["setuptools"]["data-files"]
    assert files == {"share/man/man1": ["docs/logstore.1"]}


def test_man_shows_it_without_a_complaint() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    shown = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(manual.PAGE)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert shown.stderr == ""
    assert "Print the script that makes SHELL complete" in " ".join(shown.stdout.split())


def page() -> str:
    """The page that has all of them."""
    return (ROOT / "docs" / "commands.md").read_text()


def session(text: str) -> list[str]:
    """The lines that one types, as the shell takes them."""
    return re.findall(r"^\$ (logstore .*)$", text, re.MULTILINE)


def test_the_page_of_commands_has_every_command() -> None:
    """tests/house/test_docs.py runs what it shows."""
    assert {line.split()[1] for line in session(page())} == set(COMMANDS)


def test_the_forms_of_an_entry_are_what_import_reads_and_export_writes(empty: Path) -> None:
    block = re.search(r"```json\n(.*?)```", page(), re.DOTALL)
    assert block is not None
    ok("import", empty, "--stream", "s", stdin=block[1])
    assert ok("export", empty, "s") == block[1]
    assert [json.loads(line)["id"] for line in block[1].splitlines()]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 130])
def test_the_exit_codes_are_told(code: int) -> None:
    assert re.search(rf"\b{code} ", page())
