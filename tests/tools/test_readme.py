"""Prevents a README whose shell session does not run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from logstore.tools.commands import COMMANDS
from tests.tools.commands import COMMAND, ROOT, environment, ok

SECTION = re.compile(r"^## From the shell$(.*?)^## ", re.MULTILINE | re.DOTALL)


def section() -> str:
    """The part of the README about the commands."""
    found = SECTION.search((ROOT / "README.md").read_text())
    assert found is not None
    return found[1]


def test_the_session_runs(tmp_path: Path) -> None:
    lines = re.findall(r"^\$ (logstore .*)$", section(), re.MULTILINE)
    assert {line.split()[1] for line in lines} == set(COMMANDS)
    # A server runs until it is ended; it has tests of its own.
    session = "\n".join(line for line in lines if line.split()[1] != "serve")
    function = f'logstore() {{ {shlex.join(COMMAND)} "$@"; }}'
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", f"{function}\n{session}"], cwd=tmp_path,
        capture_output=True, text=True, check=False, env=environment(), timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_forms_of_an_entry_are_what_import_reads_and_export_writes(empty: Path) -> None:
    block = re.search(r"```json\n(.*?)```", section(), re.DOTALL)
    assert block is not None
    ok("import", empty, "--stream", "s", stdin=block[1])
    assert ok("export", empty, "s") == block[1]
    assert [json.loads(line)["id"] for line in block[1].splitlines()]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 130])
def test_the_exit_codes_are_told(code: int) -> None:
    assert re.search(rf"\b{code} ", section())
