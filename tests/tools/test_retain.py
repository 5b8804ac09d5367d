"""Prevents a command that drops too much, nothing, or does not tell what."""

from __future__ import annotations

import json
from pathlib import Path

import logstore
from tests.tools.commands import invoke, ok, process


def test_what_is_not_kept_goes(large: Path) -> None:
    with logstore.open(large, background=False) as opened:
        before = len(opened.stream("s"))
        opened.stream("s").configure(max_entries=150)
    found = json.loads(ok("retain", large, "--json"))
    with logstore.open(large, background=False) as opened:
        left = len(opened.stream("s"))
        assert found == {"entries_dropped": before - left}
        assert 150 <= left < before
    assert json.loads(ok("retain", large, "--json")) == {"entries_dropped": 0}
    assert json.loads(ok("info", large, "s", "--json"))["settings"]["max_entries"] == 150


def test_as_a_process(store: Path) -> None:
    done = process("retain", store)
    assert done.returncode == 0
    assert done.stdout.split() == [b"entries", b"dropped", b"0"]


def test_no_store_is_made(tmp_path: Path) -> None:
    assert invoke("retain", tmp_path / "none").exit_code == 1
    assert not (tmp_path / "none").exists()
