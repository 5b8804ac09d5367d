"""Prevents a list of streams that leaves one out, or cannot be told apart from another."""

from __future__ import annotations

import re
from pathlib import Path

import logstore
from logstore.tools import command_output
from tests.tools.commands import objects, ok, process


def test_table(store: Path) -> None:
    head, *rows = ok("streams", store).splitlines()
    assert re.split(r"  +", head) == [
        "stream", "entries", "size", "last ID", "age", "groups", "lag", "pending",
    ]  # fmt: skip
    assert [row.split() for row in rows] == [
        ["odd\\xff", "1", "29", "bytes", "7-7"], ["race", "4", "135", "bytes", "3-0"],
    ]  # fmt: skip


def test_json_as_a_process(store: Path) -> None:
    done = process("streams", store, "--json")
    assert done.returncode == 0
    more = {"groups": 0, "lag": 0, "pending": 0}
    assert objects(done.stdout) == [
        {"name_base64": "b2Rk/w==", "entries": 1, "last_id": "7-7", "first_id": "7-7",
         "size_bytes": 29, **more},
        {"name": "race", "entries": 4, "last_id": "3-0", "first_id": "1-1",
         "size_bytes": 135, **more},
    ]  # fmt: skip


def test_the_groups_of_a_stream_are_summed_up(store: Path) -> None:
    """The lag is the largest, what is pending that of all; one that is not known hides no other."""
    with logstore.open(store) as opened:
        race = opened.stream("race")
        race.group("fast", start="0").read("a", count=3)
        race.group("slow", start="0").read("b", count=1)
        race.group("unknown", start="1-1")
    found = next(each for each in objects(ok("streams", store, "--json")) if "name" in each)
    assert (found["groups"], found["lag"], found["pending"]) == (3, 3, 4)
    assert ok("streams", store).splitlines()[-1].split()[-3:] == ["3", "3", "4"]


def test_a_narrow_terminal_gets_what_fits() -> None:
    """No column is folded to a heap of letters while another could be left out."""
    columns, cells = ("stream", "entries", "size"), [["a" * 30, "1,000", "1.0 MiB"]]
    assert command_output.fitting(columns, cells, ("size",), 80) == (columns, cells)
    assert command_output.fitting(columns, cells, ("size",), 33)[0] == ["stream", "entries"]
    assert command_output.fitting(columns, [], ("size",), 5) == (["stream", "entries"], [])


def test_a_name_is_no_markup(empty: Path) -> None:
    """Rich would take [red] for a colour."""
    ok("add", empty, "[red]a", "a=b")
    assert "[red]a" in ok("streams", empty)
