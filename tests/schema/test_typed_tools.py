"""Prevents tools that stumble over the values of a typed stream: they show what is stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import logstore
from logstore.errors import SchemaError
from logstore.jobs import Jobs
from logstore.redis import Redis
from logstore.tools.commands import main
from tests.tools.commands import invoke, on_a_terminal

SCHEMA = "temp double, at timestamp?, tags json?, ok bool?, level enum('low', 'high') = 'low'"
ROW: dict[str, Any] = {
    "temp": 21,
    "at": datetime(2026, 11, 26, 12, tzinfo=UTC),
    "tags": {"b": 1, "a": None},
    "ok": True,
}
STORED = {
    "temp": "21",
    "at": "2026-11-26 12:00:00.000000Z",
    "tags": '{"a":null,"b":1}',
    "ok": "true",
    "level": "low",
}
# As a shell shows an entry: what has a space or the like stands in quotes.
SHOWN = "temp=21 'at=2026-11-26 12:00:00.000000Z' 'tags={\"a\":null,\"b\":1}' ok=true level=low"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with logstore.open(tmp_path / "store") as store:
        stream = store.stream("typed")
        stream.configure(schema=SCHEMA)
        stream.add(ROW, id="1-0")
    return tmp_path / "store"


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.output


# -- what waits for its time --------------------------------------------------------------------
def test_scheduled_entries_are_listed_as_they_are_stored(path: Path) -> None:
    with logstore.open(path) as store:
        stream = store.stream("typed")
        stream.schedule(ROW, at=datetime(2031, 1, 1, tzinfo=UTC))
        stream.schedule({"temp": "22.50"}, every="1h", name="hourly", at="2032-01-01")
        with pytest.raises(SchemaError, match="column 'temp' is double: 'warm' is no number"):
            stream.schedule({"temp": "warm"}, after="1h")
        once, repeated = stream.scheduled()
        assert dict(once.pairs) == {**ROW, "temp": 21.0, "level": "low"}
        assert repeated.fields == {"temp": 22.5, "level": "low"}
    lines = run("schedule", path, "typed").splitlines()
    for part in ("temp=21", "tags={", '"b":1}', "ok=true", "temp=22.5", "'hourly' (every 1h)"):
        assert any(part in line for line in lines), part
    rows = [json.loads(line) for line in run("schedule", path, "typed", "--json").splitlines()]
    assert [row["fields"] for row in rows] == [STORED, {"temp": "22.5", "level": "low"}]


def test_an_entry_is_scheduled_by_the_schema_from_a_shell(path: Path) -> None:
    run("schedule", path, "typed", "temp=1e1", 'tags={"a": 1}', "--at", "2031-01-01")
    (row,) = map(json.loads, run("schedule", path, "typed", "--json").splitlines())
    assert row["fields"] == {"temp": "10", "tags": '{"a":1}', "level": "low"}
    done = CliRunner().invoke(main, ["schedule", str(path), "typed", "temp=warm", "--after", "1h"])
    assert done.exit_code == 1
    assert "column 'temp' is double" in done.output


def test_a_due_entry_is_typed_for_whoever_waits(path: Path) -> None:
    with logstore.open(path) as store:
        stream = store.stream("typed")
        behind = stream.last_id
        stream.schedule({"temp": "07.50", "tags": [1]}, after="50ms")
        (found,) = stream.read(behind, timeout=20)
        assert (found["temp"], found["tags"], found["level"]) == (7.5, [1], "low")


# -- what is told of a stream -------------------------------------------------------------------
def test_info_has_the_first_and_last_entries_by_their_types_in_json_alone(path: Path) -> None:
    wanted = {"id": "1-0", "pairs": [list(pair) for pair in STORED.items()]}
    told = json.loads(run("info", path, "typed", "--json"))
    (shown,) = map(json.loads, run("range", path, "typed", "--json").splitlines())
    assert told["first_entry"] == told["last_entry"] == shown
    assert shown["fields"]["temp"] == 21
    with logstore.open(path, encoding="utf-8") as store:
        assert store.stream("typed").info().as_dict()["first-entry"] == wanted
        assert store.stream("typed").info().last_entry == store.stream("typed").last
    with Redis(path, decode_responses=True) as client:
        facts: Any = client.xinfo_stream("typed")
        assert facts["first-entry"] == facts["last-entry"] == ("1-0", STORED)


def test_info_of_a_stream_with_a_codec(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        stream = store.stream("coded", codec="json")
        stream.add({"n": 5, "tags": [1]}, id="1-0")
        told = stream.info().as_dict()["first-entry"]
        assert told == {"id": "1-0", "pairs": [["n", "5"], ["tags", "[1]"]]}


def test_a_schema_is_inferred_of_a_typed_stream(path: Path) -> None:
    """Of what is stored, as of any stream: to see what a wider or narrower one would be."""
    text = run("schema", "infer", path, "typed").strip()
    assert text == "temp long, at timestamp, tags json, ok bool, level string"
    assert json.loads(run("schema", "infer", path, "typed", "--json")) == {"schema": text}
    run("schema", "drop", path, "typed", "--yes")
    assert run("schema", "infer", path, "typed").strip() == text
    run("schema", "set", path, "typed", SCHEMA)
    assert json.loads(run("schema", "show", path, "typed", "--json")) == {"schema": SCHEMA}


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("n long, *", None),
        ("n long, room string?, more double?, *", None),
        ("n long, room string?", "no other field may be there"),
        ("n int, room string?, *", "'n' becomes int"),
        ("n long, room string, *", "'room' must be there"),
        ("n long, room string = 'a', *", None),
        ("n long, room string?, more int, *", "'more' must be there"),
        ("room string?", "'n' goes, no other field may be there"),
    ],
)
def test_a_schema_that_refuses_what_was_taken_is_asked_for(
    tmp_path: Path, after: str, why: str | None
) -> None:
    """Prevents a writer that ends because somebody left out a column."""
    before = "n long, room string?, *"
    with logstore.open(tmp_path / "store") as store:
        store.stream("s").configure(schema=before)
    set_it = ("schema", "set", tmp_path / "store", "s", after)
    if why is not None:
        refused = invoke(*set_it)
        assert refused.exit_code == 2
        said = " ".join(refused.output.split())
        assert f"that were taken so far? {why}. There is no terminal to ask on: give --yes" in said
        assert before in run("schema", "show", tmp_path / "store", "s", "--json")
    run(*set_it, *(["--yes"] if why else []))
    assert json.loads(run("schema", "show", tmp_path / "store", "s", "--json"))["schema"] == after


def test_a_column_that_is_no_utf8_is_inferred_as_bytes(path: Path) -> None:
    with logstore.open(path) as store:
        store.stream("raw").configure(schema="raw binary?, *")
        store.stream("raw").add({"raw": b"\xff\0", "n": 1})
    assert run("schema", "infer", path, "raw").strip() == "raw binary, n long"


def test_the_web_view_shows_what_is_stored(path: Path) -> None:
    from logstore.web.entry_search import Asked, search

    with logstore.open(path) as store:
        found = search(store.stream("typed"), Asked())
    ((row,), more) = found.rows, found.older
    shown = [(field.name, field.value) for field in row.fields]
    assert (row.id, shown, more) == ("1-0", list(STORED.items()), "")


# -- dead letters -------------------------------------------------------------------------------
@pytest.fixture
def dead(path: Path) -> str:
    """A dead letter in a stream that has a schema, too; its ID."""
    with logstore.open(path) as store:
        store.stream("dead").configure(schema=f"{SCHEMA}, origin_delivery_count int, *")
        group = store.stream("typed").group("g")
        group.create(start="0")
        group.configure(max_deliveries=1, dead_letter="dead")
        seen: list[Any] = []

        def handle(delivery: Any) -> None:
            seen.append((delivery["temp"], delivery["tags"]))
            raise ValueError("no")

        letters: list[Any] = []
        group.consume("w", handle, timeout=0.1, on_dead=letters.append)
        assert seen == [(21.0, {"b": 1, "a": None})]
        assert [(each["temp"], each["at"]) for each in letters] == [(21.0, ROW["at"])]
        (letter,) = store.stream("dead").range()
        assert (letter["temp"], letter["origin_delivery_count"]) == (21.0, 1)
        return str(letter.id)


def test_dead_letters_are_shown_as_they_are_stored(path: Path, dead: str) -> None:
    shown = run("dead", "list", path, "dead")
    assert shown.startswith(f"{dead} ")
    assert f" {SHOWN} origin_stream=typed" in shown
    (row,) = map(json.loads, run("dead", "list", path, "dead", "--json").splitlines())
    assert row["fields"].items() >= {**STORED, "origin_delivery_count": "1"}.items()
    assert json.loads(run("dead", "show", path, "dead", dead, "--json")) == row
    shown = dict(
        line.split(maxsplit=1) for line in run("dead", "show", path, "dead", dead).splitlines()
    )
    assert shown.items() >= {**STORED, "id": dead, "origin_delivery_count": "1"}.items()


def test_a_dead_letter_on_a_terminal(path: Path, dead: str) -> None:
    shown = on_a_terminal(["dead", "list", str(path), "dead"], 200, 40).replace("\r", "")
    assert f"{dead}  from typed 1-0, given up by g after 1 delivery" in shown
    assert f"    {SHOWN}\n" in shown


def test_a_dead_letter_is_given_back(path: Path, dead: str) -> None:
    run("dead", "retry", path, "dead", dead)
    with logstore.open(path) as store:
        assert [entry["temp"] for entry in store.stream("typed").range()] == [21.0, 21.0]
        assert len(store.stream("dead")) == 0


# -- jobs ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("encoding", [None, "utf-8"])
def test_a_queue_may_have_a_schema(tmp_path: Path, encoding: Any) -> None:
    """The jobs of one lost their names: each of them died."""
    with logstore.open(tmp_path / "store", encoding=encoding) as store:
        store.stream("jobs").configure(schema="task string, args json, *")
        store.stream("jobs:results").configure(schema="job string, value json?, *")
        jobs = Jobs(store, "jobs")
        double = jobs.task(lambda number: 2 * number, name="double")
        failing = jobs.task(lambda _: 1 // 0, name="failing")
        job, failed = double.delay(4), failing.delay(4)
        assert jobs.work(timeout=0) == 2
        assert job.result(timeout=10) == 8
        with pytest.raises(logstore.JobFailedError, match="ZeroDivisionError"):
            failed.result(timeout=10)
        assert next(iter(store.stream("jobs:results").range()))["value"] == 8
