"""Prevents a compaction that loses entries, keeps erased bytes, or does not tell what it did."""

from __future__ import annotations

import json
from pathlib import Path

import logstore
from tests.tools.commands import invoke, ok, process

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
