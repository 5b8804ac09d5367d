"""Prevents an export that import does not read back byte for byte, and half-written files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from tests.tools.commands import invoke, objects, ok, process
from tests.tools.conftest import ODD_NAME

PART = st.one_of(st.binary(max_size=12), st.text(max_size=6).map(str.encode))
ENTRIES = st.lists(st.lists(st.tuples(PART, PART), min_size=1, max_size=4), min_size=1, max_size=20)


@settings(max_examples=25)
@given(ENTRIES)
def test_json_lines_come_back_byte_for_byte(entries: list[list[tuple[bytes, bytes]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        with logstore.open(source) as store:
            store.stream("s").add_many((f"{at}-7", one) for at, one in enumerate(entries, 1))
        text = invoke("export", source, "s").stdout_bytes
        ok("import", target, "--stream", "s", stdin=text)
        assert invoke("export", target, "s").stdout_bytes == text
        with logstore.open(target) as store:
            assert [entry.pairs for entry in store.stream("s")] == entries


def test_a_pipe_of_processes(store: Path, empty: Path) -> None:
    other = empty.with_name("other")
    written = process("export", store, "race")
    assert (written.returncode, written.stderr) == (0, b"")
    assert process("import", other, "--stream", "race", stdin=written.stdout).returncode == 0
    assert process("export", other, "race").stdout == written.stdout


def test_an_odd_name_and_an_interval(store: Path) -> None:
    done = process("export", store, os.fsdecode(ODD_NAME))
    assert objects(done.stdout) == [{"id": "7-7", "fields": {"a": "b"}}]
    text = ok("export", store, "race", "--start", "1-2", "--end", "2")
    assert [one["id"] for one in objects(text)] == ["1-2", "2-0"]
    assert ok("export", store, "race", "--end", "0-5") == ""


def test_a_file_and_its_report(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    (told,) = objects(ok("export", store, "race", target, "--json"))
    assert told == {"exported": 4, "file": str(target)}
    assert target.read_text() == ok("export", store, "race")


def test_csv(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    ok("export", store, "race", target, "--end", "1")
    assert target.read_text() == ('id,rider,speed,note\n1-1,Castilla,30.2,\n1-2,Anna B,,"ü\n\\"\n')
    ok("import", store, target, "--stream", "again")
    assert ok("export", store, "again", "--format", "csv") == target.read_text()


def test_csv_with_columns_of_ones_own(store: Path) -> None:
    text = ok("export", store, "race", "--format", "csv", "--end", "1-1", "--fields", "speed,rider")
    assert text == "id,speed,rider\n1-1,30.2,Castilla\n"
    done = invoke("export", store, "race", "--format", "csv", "--end", "1-1", "--fields", "speed")
    assert done.exit_code == 1
    assert "'rider'" in done.stderr


def test_what_csv_cannot_hold_leaves_no_file(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    for name, why in (("--end=2", "repeats a field"), ("--start=3", "no UTF-8")):
        done = invoke("export", store, "race", target, name)
        assert done.exit_code == 1
        assert why in done.stderr
        assert list(tmp_path.glob("out.csv*")) == []
    ok("add", store, "s", "id=5")
    assert "--id-field" in invoke("export", store, "s", "--format", "csv").stderr
    assert ok("export", store, "s", "--format", "csv", "--id-field", "ID").startswith("ID,id\n")


def test_a_file_that_cannot_be_is_named(store: Path, tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "missing" / "out.jsonl"):
        done = invoke("export", store, "race", target)
        assert done.exit_code == 1
        assert f"{target} cannot be a file" in done.stderr
