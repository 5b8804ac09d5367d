"""Prevents commands that compact, retain or recover too much, or do not tell what they did."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import logstore
from tests.tools.commands import invoke, no_traceback, ok, process, segments

SECRET = b"0123456789abcdef-secret-value-32"


def test_a_report_and_the_same_entries(large: Path) -> None:
    with logstore.open(large) as opened:
        opened.stream("s").delete_range("-", "4000-0")
    before = ok("range", large, "s", "--json")
    found = json.loads(ok("compact", large, "--json"))
    assert found["disk_bytes_after"] < found["disk_bytes_before"]
    assert ok("range", large, "s", "--json") == before


def test_purge_as_a_process(empty: Path) -> None:
    with logstore.open(empty) as opened:
        stream = opened.stream("s")
        stream.add_many((f"{at}-0", {"a": str(at)}) for at in range(1, 500))
        stream.add({"a": SECRET}, "500-0")
        stream.add_many((f"{at}-0", {"a": str(at)}) for at in range(501, 900))
        stream.delete("500-0")
    done = process("compact", empty, "--purge")
    assert done.returncode == 0
    assert b"disk after" in done.stdout
    holding = [path for path in empty.rglob("*") if path.is_file() and SECRET in path.read_bytes()]
    assert holding == []


def test_a_share_that_is_none(store: Path) -> None:
    assert invoke("compact", store, "--threshold", "1.5").exit_code == 2


def test_a_clean_store(store: Path) -> None:
    found = json.loads(ok("recover", store, "--json"))
    assert found["torn_bytes"] == 0
    assert len(ok("range", store, "race").splitlines()) == 4
    assert ok("recover", store).startswith("nothing to do: ")


def test_a_tail_is_set_aside_and_told(store: Path) -> None:
    with segments(store)[-1].open("ab") as log:
        log.write(b"\x07" * 25)
    done = process("recover", store, "--json")
    assert done.returncode == 0
    assert no_traceback(done.stderr)
    assert json.loads(done.stdout)["torn_bytes"] == 25
    assert invoke("check", store).exit_code == 0
    assert len(ok("range", store, "race").splitlines()) == 4


def test_without_an_index(store: Path) -> None:
    shutil.rmtree(store / "index")
    told = ok("recover", store)
    assert re.search(r"^rebuilt +yes$", told, re.MULTILINE)
    assert "damage" not in told  # of which there is none
    assert len(ok("range", store, "race").splitlines()) == 4


def test_retain_drops_by_the_settings(large: Path) -> None:
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


def test_maintenance_commands_as_processes(store: Path) -> None:
    done = process("retain", store)
    assert done.returncode == 0
    assert done.stdout.split() == [b"entries", b"dropped", b"0"]


def test_no_store_is_made(tmp_path: Path) -> None:
    assert invoke("retain", tmp_path / "none").exit_code == 1
    assert not (tmp_path / "none").exists()
