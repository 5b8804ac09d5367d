"""Prevents a README, or a page of commands, whose shell session does not run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from logstore.tools.commands import COMMANDS
from tests.tools.commands import COMMAND, ROOT, environment, ok

SECTION = re.compile(r"^## From the shell$(.*?)^## ", re.MULTILINE | re.DOTALL)
FIRST_READ = """
import sys, logstore
with logstore.open("prepared") as store:
    stream = store.stream("jobs")
    stream.add({"job": "1"}, "1-0")
    stream.group("mail", start="0").read("worker-1")
"""
SERVERS = ("serve",)  # it runs until it is ended, and has tests of its own


def section() -> str:
    """The part of the README about the commands."""
    found = SECTION.search((ROOT / "README.md").read_text())
    assert found is not None
    return found[1]


def page() -> str:
    """The page that has all of them."""
    return (ROOT / "docs" / "commands.md").read_text()


def session(text: str) -> list[str]:
    """The lines that one types, as the shell takes them."""
    return re.findall(r"^\$ (logstore .*)$", text, re.MULTILINE)


def run(lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Type them in a folder."""
    typed = "\n".join(line for line in lines if line.split()[1] not in SERVERS)
    function = f'logstore() {{ {shlex.join(COMMAND)} "$@"; }}'
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", f"{function}\n{typed}"], cwd=folder,
        capture_output=True, text=True, check=False, env=environment(), timeout=240,
    )  # fmt: skip


def test_the_session_of_the_readme_runs(tmp_path: Path) -> None:
    done = run(session(section()), tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_session_of_the_page_has_every_command_and_runs(tmp_path: Path) -> None:
    lines = session(page())
    assert {line.split()[1] for line in lines} == set(COMMANDS)
    prepared = "logstore redis export prepared jobs.rdb"
    subprocess.run([sys.executable, "-c", FIRST_READ], cwd=tmp_path, check=True, env=environment())
    done = run([prepared, *lines], tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_forms_of_an_entry_are_what_import_reads_and_export_writes(empty: Path) -> None:
    block = re.search(r"```json\n(.*?)```", page(), re.DOTALL)
    assert block is not None
    ok("import", empty, "--stream", "s", stdin=block[1])
    assert ok("export", empty, "s") == block[1]
    assert [json.loads(line)["id"] for line in block[1].splitlines()]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 130])
def test_the_exit_codes_are_told(code: int) -> None:
    assert re.search(rf"\b{code} ", page())
