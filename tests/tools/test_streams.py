"""Prevents a list of streams that leaves one out, or cannot be told apart from another."""

from __future__ import annotations

from pathlib import Path

from tests.tools.commands import objects, ok, process


def test_table(store: Path) -> None:
    head, *rows = ok("streams", store).splitlines()
    assert head.split() == ["stream", "entries", "last", "ID"]
    assert [row.split() for row in rows] == [["odd\\xff", "1", "7-7"], ["race", "4", "3-0"]]


def test_json_as_a_process(store: Path) -> None:
    done = process("streams", store, "--json")
    assert done.returncode == 0
    assert objects(done.stdout) == [
        {"name_base64": "b2Rk/w==", "entries": 1, "last_id": "7-7"},
        {"name": "race", "entries": 4, "last_id": "3-0"},
    ]


def test_a_name_is_no_markup(empty: Path) -> None:
    """Rich would take [red] for a colour."""
    ok("add", empty, "[red]a", "a=b")
    assert "[red]a" in ok("streams", empty)
