"""Prevents dead letters that an operator cannot find, give back or drop, or loses by a slip."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import logstore
from tests.tools.commands import invoke, objects, ok, on_a_terminal


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three dead letters of one group, and a stream that has none."""
    path = tmp_path / "store"
    with logstore.open(path, encoding="utf-8") as opened:
        jobs = opened.stream("jobs")
        jobs.add_many({"n": str(n)} for n in range(3))
        group = jobs.group("workers", start="0")
        group.configure(max_deliveries=1, dead_letter="dead")
        for delivery in group.read("anna"):
            delivery.nack(error="no such article")
    return path


def ids(store: Path) -> list[str]:
    """The IDs of the dead letters."""
    return [found["id"] for found in objects(ok("dead", "list", store, "dead", "--json"))]


def test_dead_letters_are_listed_and_shown(store: Path) -> None:
    (found,) = objects(ok("dead", "list", store, "--json"))
    assert found == {"name": "dead", "length": 3, "groups": ["jobs/workers"]}
    assert "jobs/workers" in ok("dead", "list", store)
    first, second, _ = ids(store)
    assert len(ok("dead", "list", store, "dead", "-n", "2").splitlines()) == 2
    told = json.loads(ok("dead", "show", store, "dead", second, "--json"))
    assert told["fields"]["origin_error"] == "no such article"
    assert "no such article" in ok("dead", "show", store, "dead", first)
    assert invoke("dead", "show", store, "dead", "1-1").exit_code == 1


def test_a_terminal_shows_first_where_one_came_from_and_why_it_died(store: Path) -> None:
    shown = on_a_terminal(["dead", "list", str(store), "dead"], 60, 40).replace("\r", "")
    with logstore.open(store, encoding="utf-8") as opened:
        origin = opened.stream("jobs").first
    assert origin is not None
    letter = shown.partition(ids(store)[1])[0]
    told = f"{ids(store)[0]} from jobs {origin.id}, given up by workers after 1 delivery"
    assert " ".join(letter.split()) == f"{told}, the last to anna no such article n=0"
    assert letter.endswith("\n    no such article\n    n=0\n")


def test_dead_letters_are_given_back(store: Path) -> None:
    first, second, third = ids(store)
    assert json.loads(ok("dead", "retry", store, "dead", second, "--json")) == {"requeued": 1}
    assert ids(store) == [first, third]
    gone = invoke("dead", "retry", store, "dead", first, second)
    assert (gone.exit_code, "is gone" in gone.stderr) == (1, True)
    assert ids(store) == [first, third]
    ok("dead", "retry", store, "dead", third, "--to", "looked at")
    ok("dead", "retry", store, "dead", "--all")
    assert ids(store) == []
    with logstore.open(store, encoding="utf-8") as opened:
        assert [entry["n"] for entry in opened.stream("jobs")] == ["0", "1", "2", "1", "0"]
        assert [entry["n"] for entry in opened.stream("looked at")] == ["2"]


def test_dead_letters_are_dropped_when_somebody_says_so(store: Path) -> None:
    first, *_ = ids(store)
    asked = invoke("dead", "drop", store, "dead", first)
    assert (asked.exit_code, "--yes" in asked.stderr) == (2, True)
    assert json.loads(ok("dead", "drop", store, "dead", first, "--yes", "--json")) == {"dropped": 1}
    ok("dead", "drop", store, "dead", "--all", "--yes")
    assert ids(store) == []


@pytest.mark.parametrize("command", ["retry", "drop"])
def test_ids_or_all(store: Path, command: str) -> None:
    for arguments in ((), ("1-1", "--all")):
        assert invoke("dead", command, store, "dead", *arguments).exit_code == 2
    assert invoke("dead", command, store, "absent", "--all").exit_code == 1
    assert len(ids(store)) == 3
