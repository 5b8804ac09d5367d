"""Prevents a unit in the documentation that systemd does not take, or that confines the server less
than it says.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.repo import ROOT

EXPOSURE_MAX = 20  # tenths


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit of docs/security.md, for a command that is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    found = re.search(r"```ini\n(.*?)```", (ROOT / "docs" / "security.md").read_text(), re.DOTALL)
    assert found is not None
    path = tmp_path / "logstore.service"
    path.write_text(found[1].replace("/usr/bin/logstore", sys.executable))
    return path


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    """What systemd-analyze says."""
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_unit_is_understood(unit: Path) -> None:
    done = analyze("verify", str(unit))
    about_it = [line for line in done.stderr.splitlines() if unit.name in line]
    assert about_it == []


def test_the_unit_confines(unit: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(unit))
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze does not look at files")
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_no_call_that_the_store_needs_is_filtered(unit: Path) -> None:
    allowed, refused = _calls("@system-service") | _calls("@default"), _calls("@privileged")
    refused |= _calls("@resources")
    assert "SystemCallFilter=@system-service\n" in unit.read_text()
    needed = {"futex", "flock", "fsync", "fdatasync", "fallocate", "msync", "mmap", "statx"}
    if not allowed:
        pytest.skip("this systemd-analyze lists no system calls")
    assert needed <= allowed - refused


def _calls(name: str) -> set[str]:
    """The system calls of a set, those of its sets included."""
    found: set[str] = set()
    for line in analyze("syscall-filter", name).stdout.splitlines():
        word = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
        if not word or word.startswith("#") or word == name:
            continue
        found |= _calls(word) if word.startswith("@") else {word}
    return found
