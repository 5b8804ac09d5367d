"""Prevents pins that nobody can find, or give back, from a shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: install the extra 'arrow'")

from tests.scan.scanned_stores import make_plan, make_store
from tests.tools.commands import invoke, objects, ok, on_a_terminal


@pytest.fixture
def held(tmp_path: Path) -> tuple[Path, list[str]]:
    """A store with two pins, and their IDs."""
    path = tmp_path / "held"
    with make_store(path, background=False) as store:
        store["x"].add_many(({"n": n} for n in range(100)), batch=10)
        ids = [make_plan(store, b"x", purpose="spark").pin_id]
        store["x"].add({"n": "more"})
        ids.append(make_plan(store, b"x", purpose="spark").pin_id)
    return path, ids


def test_pins_are_listed_and_released(held: tuple[Path, list[str]]) -> None:
    path, ids = held
    head, *rows = ok("pins", path).splitlines()
    assert head.split() == ["ID", "for", "process", "since", "until", "segments", "keeps", "KiB"]
    assert sorted(row.split()[0] for row in rows) == sorted(ids)
    assert all(row.split()[1] == "spark" for row in rows)
    found = objects(ok("pins", path, "--json"))
    assert {each["id"] for each in found} == set(ids)
    assert all(each["pid"] and each["host"] and each["since"] for each in found)
    assert json.loads(ok("info", path, "--json"))["pins"] == 2
    assert json.loads(ok("pins", path, "--release", ids[0], "--json")) == {"released": 1}
    assert [each["id"] for each in objects(ok("pins", path, "--json"))] == [ids[1]]
    ok("pins", path, "--release")
    assert objects(ok("pins", path, "--json")) == []
    assert list((path / "pins").iterdir()) == []


def test_an_id_stays_whole_in_a_narrow_terminal(held: tuple[Path, list[str]]) -> None:
    path, ids = held
    shown = on_a_terminal(["pins", str(path)], 80, 24).replace("\r", "").splitlines()
    assert sorted(line.split()[0] for line in shown[1:]) == sorted(ids)
    assert "KiB" in shown[0]


def test_an_unknown_pin_cannot_be_released(held: tuple[Path, list[str]]) -> None:
    path, ids = held
    done = invoke("pins", path, "--release", "0" * 32)
    assert (done.exit_code, "no pin" in done.stderr) == (1, True)
    done = invoke("pins", path, ids[0])
    assert (done.exit_code, "--release" in done.stderr) == (2, True)
    assert len(objects(ok("pins", path, "--json"))) == 2


def test_compact_tells_who_holds_it_up(held: tuple[Path, list[str]]) -> None:
    path, _ = held
    with make_store(path, background=False) as store:
        store["x"].trim(max_entries=0, approximate=False)
    found = json.loads(ok("compact", path, "--json"))
    assert found["segments_pinned"] >= 1
    assert "spark of process" in found["pinned_by"][0]
    assert "spark of process" in ok("compact", path)
