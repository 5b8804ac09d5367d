"""Prevents an export that import does not read back byte for byte, and half-written files."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore.api.entry import TextRows, entry_maker
from logstore.codec import codec
from logstore.errors import UsageError
from logstore.scan.scan_records import entry_object, json_lines
from logstore.tools.interchange.export_command import CsvWriter
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


# What lines and cells must escape, what a format of Python has a meaning for; and what is no text.
NAME = st.sampled_from([b"a", b"b", b"%s", b'"', b""])
TEXT = st.sampled_from(
    [b"", b"%", b"%%d", b"{0}", b'"', b"\\", b",", b"\t", b"\r", b"\n", b"\0",
     "\x7f\x85\u2028\ufeff".encode(), "ü😀".encode()]
) | st.text(max_size=6).map(str.encode)  # fmt: skip
NO_TEXT = st.sampled_from([b"\xff", b"\xed\xa0\x80", b"a\xc3"])


def lists_of(part: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[list[tuple[bytes, bytes]]]]:
    """Entries of a node, some of which have the fields of the one before."""
    pairs = st.lists(st.tuples(NAME | part, TEXT | part), min_size=1, max_size=3)
    return st.lists(pairs, min_size=1, max_size=9)


ODD_ENTRIES = lists_of(TEXT) | lists_of(NO_TEXT)


@given(ODD_ENTRIES)
def test_the_lines_of_many_entries_are_those_of_each(
    entries: list[list[tuple[bytes, bytes]]],
) -> None:
    found = [
        json.dumps(entry_object(f"{at}-7", pairs), ensure_ascii=False).encode() + b"\n"
        for at, pairs in enumerate(entries)
    ]
    assert json_lines(rows_of(entries)) == b"".join(found)


@given(ODD_ENTRIES, st.sampled_from(",\t"))
def test_the_rows_of_many_entries_are_those_of_each(
    entries: list[list[tuple[bytes, bytes]]], delimiter: str
) -> None:
    """What does not fit is refused, and what stands before it is written."""
    known = ["b", "", "%s", "a", '"', ",", "\\"]
    writer = CsvWriter(known, "id", delimiter)
    text, refused = io.StringIO(newline=""), ""
    reference = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    for at, pairs in enumerate(entries):
        try:
            found = {name.decode(): value.decode() for name, value in pairs}
        except UnicodeDecodeError:
            refused = f"{at}-7 is no UTF-8"
            break
        if len(found) < len(pairs) or not found.keys() <= set(known):
            refused = f"{at}-7 {'repeats' if len(found) < len(pairs) else 'has'} "
            break
        reference.writerow([f"{at}-7", *(found.get(name, "") for name in known)])
    written: list[bytes] = []
    with pytest.raises(UsageError, match=refused) if refused else nullcontext():
        written.extend(writer(rows_of(entries)))
    assert b"".join(written) == text.getvalue().encode()


def rows_of(entries: list[list[tuple[bytes, bytes]]]) -> TextRows:
    """The entries of a node, as an export reads them."""
    node = b""
    for at, pairs in enumerate(entries):
        flat = [part for pair in pairs for part in pair]
        node = codec().append(node, 0, 7, at, 7, flat)[0] if at else codec().new_node(0, 7, flat)
    return TextRows(entry_maker("utf-8").entries(node, 0, 7))


def test_a_pipe_of_processes(store: Path, empty: Path) -> None:
    other = empty.with_name("other")
    written = process("export", store, "race")
    assert (written.returncode, written.stderr) == (0, b"")
    assert process("import", other, "--stream", "race", stdin=written.stdout).returncode == 0
    assert process("export", other, "race").stdout == written.stdout


def test_an_export_of_an_empty_stream_is_no_error(store: Path, tmp_path: Path) -> None:
    """Not an error: a script exports a stream before its first entry, or behind its last one."""
    with logstore.open(store) as opened:
        opened.stream("new").group("g", start="0")
        opened.stream("old").add({"a": "1"}, id="5-0")
    for name, *interval in (["new"], ["old", "--start", "6-0"], ["old", "--start", "(5-0"]):
        assert ok("export", store, name, *interval) == ""
        assert ok("export", store, name, "--to", "csv", *interval).splitlines() == ["id"]
        file = tmp_path / f"{name}.jsonl"
        assert "exported  0" in ok("export", store, name, str(file), *interval)
        assert file.read_bytes() == b""
    done = invoke("export", store, "old", "--start", "6-0", "--end", "5-0")
    assert (done.exit_code, "is above end" in done.stderr) == (1, True)


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


def test_an_export_that_csv_cannot_hold_leaves_no_file(store: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["out.jsonl.gz", "out.jsonl.zst", "out.csv.gz", "out.tsv.zst"])
def test_a_compressed_file_holds_what_a_plain_one_does(
    store: Path, tmp_path: Path, name: str
) -> None:
    pa = pytest.importorskip("pyarrow")
    plain, packed = tmp_path / name.rpartition(".")[0], tmp_path / name
    for target in (plain, packed):
        ok("export", store, "race", target, "--end", "1")
    kind = {"gz": "gzip", "zst": "zstd"}[name.rpartition(".")[2]]
    with pa.OSFile(str(packed)) as file, pa.CompressedInputStream(file, kind) as unpacked:
        assert unpacked.read() == plain.read_bytes() != b""
    assert sorted(each.name for each in tmp_path.glob("out*")) == [plain.name, name]


def test_parquet(store: Path, tmp_path: Path) -> None:
    """What the folder and the file have is held against the store in tests/transfer."""
    parquet = pytest.importorskip("pyarrow.parquet")
    for end in ("1-1", "1-2"):
        text = ok("export", store, "ra*", tmp_path / "out", "--to", "parquet", "--json",
                  "--end", end, "--schema", "speed double", "--resume")  # fmt: skip
        assert objects(text) == [
            {"exported": 1, "folder": str(tmp_path / "out"), "streams": 1, "files": 1}
        ]
    target = tmp_path / "race.parquet"
    told = ok("export", store, "race", target, "--schema", "rider double", "--end", "1", "--json")
    assert objects(told) == [{"exported": 2, "file": str(target), "null": {"rider": 2}}]
    assert parquet.read_table(target).column_names == ["id", "ts", "rider"]
    done = invoke("export", store, tmp_path / "out", "--to", "parquet")
    assert done.exit_code == 1
    assert "has files already" in done.stderr
    done = invoke("export", store, "race", tmp_path / "o.parquet", "--json")  # has bytes
    assert done.exit_code == 1
    assert "no UTF-8" in done.stderr
    assert list(tmp_path.glob("*o.parquet*")) == []


def test_a_failed_export_to_a_folder_tells_what_is_whole(empty: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with logstore.open(empty) as opened:
        opened.stream("a").add({"v": "1"}, id="5-1")
        opened.stream("b").add({"v": b"\xff"}, id="5-2")
    done = invoke("export", empty, tmp_path / "out", "--to", "parquet", "--json")
    (told,) = objects(done.stderr)
    assert (done.exit_code, told["exported"], told["the rest"]) == (1, 1, "--resume")


@pytest.mark.parametrize("name", ["o.arrow", "o.feather", "o.arrows.gz", "o.xlsx"])
def test_a_name_of_another_format_is_refused(store: Path, tmp_path: Path, name: str) -> None:
    """It was JSON lines under the name of what Arrow reads."""
    done = invoke("export", store, "race", tmp_path / name)
    assert done.exit_code in {1, 2}
    assert ".parquet" in done.stderr
    assert list(tmp_path.glob("o.*")) == []


@pytest.mark.parametrize(
    "given",
    [("--to", "parquet"), ("s", "-", "--to", "parquet"), ("x.parquet", "--to", "parquet"),
     ("s", "x.parquet", "--resume"), ("s", "x.parquet", "--fields", "a"), ("s", "--resume"),
     ("s", "--schema", "a int"), ("s", "t", "u"), (), ("s", "--id-field", "x"),
     ("s", __file__, "--to", "parquet")],
)  # fmt: skip
def test_options_that_are_of_another_format(store: Path, given: tuple[str, ...]) -> None:
    assert invoke("export", store, *given).exit_code == 2
