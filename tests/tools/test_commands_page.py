"""Prevents a page of commands that leaves one out, or tells what they do otherwise than it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from logstore.tools.commands import COMMANDS
from tests.tools.commands import ROOT, ok


def page() -> str:
    """The page that has all of them."""
    return (ROOT / "docs" / "commands.md").read_text()


def session(text: str) -> list[str]:
    """The lines that one types, as the shell takes them."""
    return re.findall(r"^\$ (logstore .*)$", text, re.MULTILINE)


def test_the_page_has_every_command() -> None:
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
