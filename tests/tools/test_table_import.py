"""Prevents imports of tables that take other rows than the file has, or stop in silence."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import logstore
from tests.tools.commands import invoke, objects, ok, pairs, process
from tests.tools.tables import pa, parquet, written

NAMES = ["a.parquet", "a.arrow", "a.arrows", "a.feather",
         "a.arrows.gz", "a.arrows.zst", "a.arrow.gz", "a.feather.zst"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_file_and_batch(tmp_path: Path, name: str) -> None:
    table = pa.table({"id": ["1-1", "1-2", "3-0", "4-5", "9-0"], "a": [1, None, 3, 4, 5],
                      "b": ["x", "y", None, "ü", ""]})  # fmt: skip
    file = written(tmp_path / name, table, 2)
    (told,) = objects(ok("import", tmp_path / "s", file, "--stream", "s", "--batch", 3, "--json"))
    assert told == {
        "imported": 5, "bad": 0, "resumed_over": 0, "last_id": "9-0",
        "schema": "a long?, b string?",
    }  # fmt: skip
    assert pairs(tmp_path / "s") == [
        ("1-1", [(b"a", b"1"), (b"b", b"x")]),
        ("1-2", [(b"b", b"y")]),
        ("3-0", [(b"a", b"3")]),
        ("4-5", [(b"a", b"4"), (b"b", "ü".encode())]),
        ("9-0", [(b"a", b"5"), (b"b", b"")]),
    ]


def test_a_stream_of_arrow_from_a_pipe(tmp_path: Path) -> None:
    data = written(tmp_path / "a.arrows", pa.table({"id": ["1-1"], "a": [1]})).read_bytes()
    done = process("import", tmp_path / "s", "--stream", "s", stdin=data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert pairs(tmp_path / "s") == [("1-1", [(b"a", b"1")])]


def test_an_arrow_file_from_a_pipe(tmp_path: Path) -> None:
    """Without its footer, which says that it is whole, it is an error behind its last row."""
    data = written(tmp_path / "a.arrow", pa.table({"id": ["1-1", "2-1"], "a": [1, 2]}), 1)
    data = data.read_bytes()
    done = process("import", tmp_path / "s", "--stream", "s", stdin=data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [id for id, _ in pairs(tmp_path / "s")] == ["1-1", "2-1"]
    done = process("import", tmp_path / "t", "--stream", "s", stdin=data[:-6])
    assert done.returncode == 1
    assert b"behind row 2" in done.stderr
    assert b"footer" in done.stderr


TYPES = [
    ([True], pa.bool_(), b"true"),
    ([Decimal("1.50")], pa.decimal128(5, 2), b"1.50"),
    ([date(2026, 1, 2)], pa.date32(), b"2026-01-02"),
    ([b"\xff"], pa.binary(1), b"\xff"),
    ([1_000_001], pa.time64("us"), b"00:00:01.000001"),
    (["x"], pa.dictionary(pa.int8(), pa.string()), b"x"),
    ([[1, None, 2]], pa.list_(pa.int64()), b"[1,null,2]"),
    ([{"b": "ü", "c": [{"d": None}]}],
     pa.struct([("b", pa.string()), ("c", pa.list_(pa.struct([("d", pa.int8())])))]),
     '{"b":"ü","c":[{"d":null}]}'.encode()),
    ([[(1, 2.5), (3, float("nan"))]], pa.map_(pa.int8(), pa.float64()), b'{"1":2.5,"3":"nan"}'),
    ([[b"\xff", b"a"]], pa.list_(pa.binary()), b'["/w==","a"]'),
    ([[datetime(2026, 1, 2, tzinfo=UTC)]], pa.list_(pa.timestamp("ms", "UTC")),
     b'["2026-01-02 00:00:00.000Z"]'),
    ([[(1, "x")]], pa.map_(pa.field("a", pa.int8(), False), pa.field("b", pa.string())),
     b'{"1":"x"}'),
    ([[Decimal("1.50")]], pa.list_(pa.decimal128(5, 2)), b'["1.50"]'),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind", "wanted"), TYPES, ids=lambda each: str(each)[:40])
def test_values_of_each_arrow_type_as_text(
    tmp_path: Path, value: Any, kind: Any, wanted: bytes
) -> None:
    table = pa.table({"id": ["1-1", "1-2"], "v": pa.array([*value, None], kind), "w": ["0", "0"]})
    file = written(tmp_path / "a.arrow", table)
    ok("import", tmp_path / "s", file, "--stream", "s")
    assert pairs(tmp_path / "s") == [
        ("1-1", [(b"v", wanted), (b"w", b"0")]), ("1-2", [(b"w", b"0")]),
    ]  # fmt: skip


MOMENT = datetime(1970, 1, 1, 0, 0, 1, 5000, UTC)
IDS: list[tuple[dict[str, list[Any]], tuple[str, ...], str, list[str]]] = [
    ({"ms": [7], "seq": [9], "a": [1]}, (), "7-9", ["a"]),
    ({"ts": [MOMENT], "a": [1]}, (), "1005-0", ["a"]),
    ({"when": [MOMENT], "a": [1], "id": [4]}, ("--id-field", "when"), "1005-0", ["a", "id"]),
    ({"when": [MOMENT], "a": [1]}, ("--time-field", "when"), "1005-0", ["when", "a"]),
    ({"when": [3], "ts": [1]}, ("--time-field", "when", "--time-format", "s"), "3000-0",
     ["when", "ts"]),
    ({"when": ["1970-01-01T00:00:02"], "a": [1]}, ("--time-field", "when"), "2000-0",
     ["when", "a"]),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "options", "id", "fields"), IDS)
def test_columns_that_ids_are_taken_from(
    tmp_path: Path, columns: Any, options: tuple[str, ...], id: str, fields: list[str]
) -> None:
    file = written(tmp_path / "a.parquet", pa.table(columns))
    ok("import", tmp_path / "s", file, "--stream", "s", *options)
    ((found, values),) = pairs(tmp_path / "s")
    assert (found, [name.decode() for name, _ in values]) == (id, fields)


def test_ids_of_now(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", pa.table({"id": ["7"], "ts": [1]}))
    ok("import", tmp_path / "s", file, "--stream", "s", "--auto-id")
    ((found, values),) = pairs(tmp_path / "s")
    assert int(found.partition("-")[0]) > 1_700_000_000_000
    assert values == [(b"id", b"7"), (b"ts", b"1")]


def test_an_exported_parquet_file_is_imported_back(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    ok("export", store, "race", file, "--schema", "pairs", "--end", "2")
    ok("import", tmp_path / "s", file, "--stream", "race")
    assert ok("export", tmp_path / "s", "race") == ok("export", store, "race", "--end", "2")


def test_ranks_and_resuming(tmp_path: Path) -> None:
    """Rows of one millisecond; what is cut off in the midst goes on with the same IDs."""
    file = written(tmp_path / "a.parquet", pa.table({"ts": [MOMENT] * 5, "a": [*range(5)]}))
    first = written(tmp_path / "b.parquet", parquet.read_table(file).slice(0, 3))
    arguments = ("--stream", "s", "--batch", "2", "--json")
    ok("import", tmp_path / "s", first, *arguments)
    done = invoke("import", tmp_path / "s", file, *arguments)
    (told,) = objects(done.stderr)
    assert (told["row"], told["file"], told["imported"]) == (1, str(file), 0)
    assert "--resume" in told["message"]
    (told,) = objects(ok("import", tmp_path / "s", file, *arguments, "--resume"))
    assert (told["imported"], told["resumed_over"]) == (2, 3)
    assert [id for id, _ in pairs(tmp_path / "s")] == [f"1005-{at}" for at in range(5)]


BAD = [
    (3, {"id": "x"}, "no ID"),
    (3, {"id": None}, "row 3: the ID is null"),
    (3, {"id": "1-1"}, "not above 2-0"),
    (3, {"a": None, "b": None}, "row 3: an entry needs at least one field"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "changed", "why"), BAD)
def test_a_bad_row_is_named_and_stops(
    tmp_path: Path, row: int, changed: dict[str, Any], why: str
) -> None:
    rows = [{"id": f"{at}-0", "a": str(at), "b": "c"} for at in range(1, 6)]
    rows[row - 1] |= changed
    file = written(tmp_path / "a.parquet", pa.Table.from_pylist(rows))
    arguments = ("import", tmp_path / "s", file, "--stream", "s", "--batch", "2", "--json")
    done = invoke(*arguments)
    (told,) = objects(done.stderr)
    assert (done.exit_code, told["error"]) == (1, "InputLineError")
    assert (told["row"], told["imported"], told["last_id"]) == (row, 2, "2-0")
    assert why in told["message"]
    (told,) = objects(ok(*arguments, "--skip-bad", "--resume"))
    # What has a bad ID that is not above the last one was passed over with those that are there.
    assert (told["imported"], told["bad"]) == (2, 0 if changed.get("id") == "1-1" else 1)
    assert [id for id, _ in pairs(tmp_path / "s")] == ["1-0", "2-0", "4-0", "5-0"]


def damaged(path: Path, name: str) -> Path:
    """A file of some batches whose end is cut off or changed."""
    table = pa.table({"id": [f"{at + 1}-0" for at in range(4000)], "a": ["x" * 50] * 4000})
    data = bytearray(written(path / name, table, 500).read_bytes())
    (path / name).write_bytes(data[: len(data) * 3 // 4])
    return path / name


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_cut_off(tmp_path: Path, name: str) -> None:
    """A typed error; either nothing is there, or what is there is told and goes on."""
    file = damaged(tmp_path, name)
    done = invoke("import", tmp_path / "s", file, "--stream", "s", "--batch", "500", "--json")
    assert done.exit_code == 1
    (told,) = objects(done.stderr)
    assert str(file) in json.dumps(told) or "damaged" in told["message"]
    assert "Traceback" not in done.stderr
    if name == "a.arrows":
        assert told["imported"] == 3000
    if (tmp_path / "s").exists():
        assert len(pairs(tmp_path / "s")) == told["imported"]
    else:
        assert "imported" not in told


def test_a_page_that_was_changed_is_told(tmp_path: Path) -> None:
    """Parquet finds that by checksums alone, and only if it is asked to look."""
    file = tmp_path / "a.parquet"
    with logstore.open(tmp_path / "s", sync="os") as opened:
        opened.stream("s").add_many({"a": at * 1_000_003} for at in range(2000))
    ok("export", tmp_path / "s", "s", file, "--schema", "a long")
    data = bytearray(file.read_bytes())
    data[data.index(b"\x28\xb5\x2f\xfd") + 40] ^= 1  # in the first page, behind its first bytes
    file.write_bytes(data)
    done = invoke("import", tmp_path / "t", file, "--stream", "s")
    assert done.exit_code == 1
    assert "CRC" in done.stderr


def test_a_hostile_batch_is_refused(tmp_path: Path) -> None:
    """Offsets that point behind the values: who believes them reads memory of somebody else."""
    table = pa.table({"a": ["x" * 8] * 4})
    file = written(tmp_path / "a.arrow", table)
    offsets = b"".join(at.to_bytes(4, "little") for at in (0, 8, 16, 24, 32))
    data = file.read_bytes()
    assert data.count(offsets) == 1
    hostile = b"".join(at.to_bytes(4, "little") for at in (0, 8, 16, 24, 1 << 30))
    file.write_bytes(data.replace(offsets, hostile))
    done = invoke("import", tmp_path / "s", file, "--stream", "s")
    assert done.exit_code == 1
    assert "cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("name", "data", "options", "why"),
    [
        ("a.parquet", b"id,a\n1-0,b\n", (), "begins as no such file"),
        ("a.csv", b"PAR1", ("--format", "csv"), "begins as parquet"),
        ("a.jsonl.gz", b"{}", (), "not compressed as gzip"),
        ("a.parquet.gz", gzip.compress(b"PAR1xxxxxxPAR1", mtime=0), (), "unpack it first"),
        ("a.arrow", b"ARROW1\0\0", (), "cannot be read"),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 9, mtime=0)[:-12], (), "damaged"),
        ("a.parquet", b"PAR1", ("--delimiter", ";"), "--delimiter is not for parquet"),
    ],
)
def test_files_that_are_not_what_they_seem(
    tmp_path: Path, name: str, data: bytes, options: tuple[str, ...], why: str
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    done = invoke("import", tmp_path / "s", file, "--stream", "s", *options)
    assert done.exit_code in {1, 2}
    assert why in done.stderr
    if (tmp_path / "s").exists():
        with logstore.open(tmp_path / "s") as opened:
            assert opened.streams() == []


@pytest.mark.parametrize(
    ("table", "options", "why"),
    [
        ({"id": [4], "a": [1]}, (), "--auto-id"),
        ({"a": [1]}, ("--id-field", "b"), "there is no column 'b'"),
        ({"a": [1]}, ("--time-field", "b"), "there is no column 'b'"),
        ({"a": [1]}, ("--resume",), "cannot be resumed"),
        ({"id": ["1-1"]}, (), "an entry needs a field"),
    ],
)
def test_columns_that_cannot_be(
    tmp_path: Path, table: Any, options: tuple[str, ...], why: str
) -> None:
    file = written(tmp_path / "a.parquet", pa.table(table))
    done = invoke("import", tmp_path / "s", file, "--stream", "s", *options)
    assert done.exit_code == 1
    assert why in done.stderr
    assert "idColumn" not in done.stderr


OUT_OF_RANGE = [
    pa.array([1, 1 << 60], pa.timestamp("s")),
    pa.array([0, 1 << 40], pa.time64("us")),
    pa.array([[0], [1 << 30]], pa.list_(pa.date32())),
]


@pytest.mark.parametrize("column", OUT_OF_RANGE, ids=lambda each: str(each.type))
def test_a_time_that_has_no_text(tmp_path: Path, column: Any) -> None:
    """Arrow writes '<value out of range>', which no reader takes for a time."""
    file = written(tmp_path / "a.arrow", pa.table({"v": column}))
    done = invoke("import", tmp_path / "s", file, "--stream", "s")
    assert done.exit_code == 1
    assert any(why in done.stderr for why in ("row 2", "out of its range", "cannot be read"))


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_compressed_text_by_its_first_bytes(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "rows"
    with pa.OSFile(str(file), "wb") as raw, pa.CompressedOutputStream(raw, kind) as packed:
        packed.write(b'{"id": "1-0", "a": "b"}\n' + b'{"id": "2-0", "a": "c"}\n')
    ok("import", tmp_path / "s", file, "--stream", "s")
    assert [id for id, _ in pairs(tmp_path / "s")] == ["1-0", "2-0"]
    ok("import", tmp_path / "p", "--stream", "s", stdin=file.read_bytes())
    assert [id for id, _ in pairs(tmp_path / "p")] == ["1-0", "2-0"]
