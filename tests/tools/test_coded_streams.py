"""Prevents commands that show the bytes of a stream with a codec for its values, find nothing in
it, or add to it what its codec cannot read."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

import logstore
from tests.tools.commands import invoke, objects, ok
from tests.tools.tables import pa, parquet

AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(params=["json", "msgpack"])
def coded(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "coded"
    with logstore.open(path, background=False) as store:
        jobs = store.stream("jobs", codec=request.param)
        jobs.add({"level": "error", "n": 7, "tags": {"room": "a"}, "at": AT}, "1-0")
        jobs.add({"level": "info", "n": 9, "size": "10", "none": None}, "2-0")
    return path


def values(path: Path) -> list[dict[str, object]]:
    """What the handle with the codec reads."""
    with logstore.open(path, readonly=True) as store:
        codec = store.stream("jobs").settings.codec
        return [dict(entry) for entry in store.stream("jobs", codec=codec).range()]


def test_entries_are_shown_as_their_values(coded: Path) -> None:
    wanted = [
        "1-0 level=error n=7 'tags={\"room\":\"a\"}' 'at=2026-01-02 00:00:00.000000Z'",
        "2-0 level=info n=9 'size=\"10\"' none=null",
    ]
    assert ok("range", coded, "jobs").splitlines() == wanted
    assert ok("tail", coded, "jobs").splitlines() == wanted
    first, second = objects(ok("range", coded, "jobs", "--json"))
    assert first["fields"] == {
        "level": "error", "n": 7, "tags": {"room": "a"}, "at": {"$datetime": AT.isoformat()},
    }  # fmt: skip
    assert second["fields"] == {"level": "info", "n": 9, "size": "10", "none": None}


@pytest.mark.parametrize(
    "where", ["level=error", "n=7", "level = 'error'", "n < 8", "tags.room = 'a'"]
)
def test_where_compares_values(coded: Path, where: str) -> None:
    assert ok("range", coded, "jobs", "--where", where).split()[:1] == ["1-0"]
    assert ok("tail", coded, "jobs", "--where", where).split()[:1] == ["1-0"]


def test_an_added_entry_has_values_of_the_codec(coded: Path) -> None:
    ok("add", coded, "jobs", "level=error", "n=2.5", 'tags={"room": "b"}', 'size="8"', "x=a b")
    assert values(coded)[-1] == {
        "level": "error", "n": 2.5, "tags": {"room": "b"}, "size": "8", "x": "a b",
    }  # fmt: skip
    done = invoke("add", coded, "jobs", b"level=\xff".decode("utf-8", "surrogateescape"))
    assert done.exit_code == 1
    assert "'level'" in done.stderr
    assert len(values(coded)) == 3


def test_exports_have_the_values(coded: Path, tmp_path: Path) -> None:
    first, second = objects(ok("export", coded, "jobs"))
    assert first["fields"]["tags"] == {"room": "a"}
    assert second["fields"] == {"level": "info", "n": 9, "size": "10", "none": None}
    ok("export", coded, "jobs", tmp_path / "jobs.csv")
    with (tmp_path / "jobs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["level"] == "error"
    assert json.loads(rows[0]["tags"]) == {"room": "a"}
    assert (rows[0]["size"], rows[1]["size"], rows[1]["none"]) == ("", "10", "")


def test_an_entry_that_the_codec_cannot_read_keeps_its_bytes(coded: Path) -> None:
    with logstore.open(coded, background=False) as store:
        store.stream("jobs").add({"level": b"\xc1 no value"}, "3-0")  # as another client would
    *_, last = objects(ok("export", coded, "jobs"))
    assert set(last) == {"id", "pairs_base64"}
    assert ok("range", coded, "jobs", "3").splitlines() == ["3-0 'level=\\xc1 no value'"]


@pytest.mark.parametrize("where", ["level = 'error'", "tags.room = 'a'", "n between 6 and 8"])
def test_exports_have_what_a_condition_leaves(coded: Path, tmp_path: Path, where: str) -> None:
    assert [each["id"] for each in objects(ok("export", coded, "jobs", "--where", where))] == [
        "1-0"
    ]
    ok("export", coded, "jobs", tmp_path / "jobs.csv", "--where", where)
    with (tmp_path / "jobs.csv").open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["1-0"]
    one = tmp_path / "jobs.parquet"
    ok("export", coded, "jobs", one, "--where", where, "--schema", "n double, level")
    assert [row[:4] for row in rows_of(one)] == [("1-0", 7.0, "error")]


def rows_of(path: Path) -> list[tuple[object, ...]]:
    """The ID, ``n`` and ``level`` of the rows of a file."""
    table = parquet.read_table(path)
    return [(row["id"], row["n"], row["level"]) for row in table.to_pylist()]


def test_exports_by_a_condition_of_other_streams(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        store.stream("typed").configure(schema="n int, level string?")
        for n in range(5):
            store.stream("typed").add({"n": n, "level": "low"}, f"1-{n}")
            store.stream("plain").add({"n": n}, f"1-{n}")
    for name in ("typed", "plain"):
        found = objects(ok("export", path, name, "--where", "n >= 3", "--where", "id > '1-3'"))
        assert [each["id"] for each in found] == ["1-4"]
        found = objects(ok("export", path, name, "--where", "n=3"))
        assert [each["id"] for each in found] == ["1-3"]
    folder = tmp_path / "folder"
    ok(
        "export",
        path,
        "typed",
        "plain",
        folder,
        "--to",
        "parquet",
        "--where",
        "n >= 3 and not false",
    )
    assert parquet.read_table(folder).num_rows == 4
    done = invoke("export", path, "typed", tmp_path / "no.parquet", "--where", "m > 3")
    assert (done.exit_code, "there is no column 'm'" in done.stderr, "^" in done.stderr) == (
        1, True, True,
    )  # fmt: skip
    assert not (tmp_path / "no.parquet").exists()
    done = invoke("export", path, "typed", tmp_path / "no.jsonl", "--where", "n > 'a'")
    assert (done.exit_code, "column 'n' is int" in done.stderr) == (1, True)
    assert not (tmp_path / "no.jsonl").exists()
    done = invoke("export", path, "typed", tmp_path / "no.parquet", "--where", "n=3")
    assert (done.exit_code, "give a condition" in done.stderr) == (2, True)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_an_import_encodes_values(coded: Path, tmp_path: Path, codec: str) -> None:
    """Also into a stream with another codec."""
    lines = ok("export", coded, "jobs") + '{"id": "3-0", "n": [1, null], "size": "10", "x": 1.5}\n'
    other = tmp_path / "other"
    with logstore.open(other, background=False) as store:
        store.stream("jobs", codec=codec).add({"n": 0}, "0-1")
    ok("import", other, "--stream", "jobs", stdin=lines)
    added = {"n": [1, None], "size": "10", "x": 1.5}
    assert values(other) == [{"n": 0}, *values(coded), added]
    ok(
        "import",
        other,
        "--stream",
        "jobs",
        "--format",
        "csv",
        stdin='id,a,b\n4-0,x,7\n5-0,,"[1]"\n',
    )
    assert values(other)[-2:] == [{"a": "x", "b": 7}, {"b": [1]}]


def test_an_import_of_what_a_codec_cannot_hold_is_refused(coded: Path, tmp_path: Path) -> None:
    file = tmp_path / "table.parquet"
    parquet.write_table(pa.table({"n": [1]}), file)
    done = invoke("import", coded, file, "--stream", "jobs")
    assert (done.exit_code, "codec" in done.stderr, "JSON lines" in done.stderr) == (1, True, True)
    with logstore.open(coded, background=False) as store:
        store.stream("packed", codec="msgpack").add({"n": 1}, "1-0")
    line = f'{{"id": "2-0", "n": {1 << 70}}}\n'
    done = invoke("import", coded, "--stream", "packed", stdin=line)
    assert (done.exit_code, "line 1" in done.stderr, "'n'" in done.stderr) == (1, True, True)
