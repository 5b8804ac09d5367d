"""Prevents CSV that becomes other rows where pyarrow splits it than row by row."""

from __future__ import annotations

import gzip
import io
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import logstore
from logstore.errors import InputLineError
from logstore.schema.schema_text import parse
from logstore.tools.interchange import csv_blocks, import_schema
from logstore.tools.interchange.csv_blocks import CellBlock
from logstore.tools.interchange.import_command import Load
from logstore.tools.interchange.import_schema import ImportSchema
from logstore.tools.interchange.text_lines import read_csv
from logstore.tools.interchange.text_rows import ImportRow, RowIDs, one_by_one
from tests.schema.drawn_values import TEXTS
from tests.tools.commands import objects, ok
from tests.tools.drawn_csv import CELL, HEADERS, RECORDS, slow

pytest.importorskip("pyarrow", reason="pyarrow is not installed: install the extra 'arrow'")
ENOUGH = csv_blocks.SMALL_BYTES + 1000


def plain_names(cells: list[str]) -> tuple[list[str], bool]:
    """The first record is the header."""
    return cells, True


def blocks_of(data: bytes, at_once: int = 1 << 20, **more: Any) -> Iterator[Any]:
    """What is read of a CSV, by blocks of cells."""
    how: dict[str, Any] = {"delimiter": ",", "names": plain_names, "empty_is_null": False}
    how |= {"line_max_bytes": csv_blocks.RECORD_BYTES_MAX} | more
    yield from csv_blocks.read(slow(data, at_once), how.pop("ids", None) or RowIDs(), **how)


def many(records: bytes) -> bytes:
    """Records again and again, until they are worth a block."""
    return records * (ENOUGH // max(len(records), 1) + 1)


def told(found: Iterator[Any]) -> list[Any]:
    """Rows and errors; of a block of cells those that pyarrow found."""
    rows: list[Any] = []
    try:
        for each in found:
            if isinstance(each, CellBlock):
                rows += cell_rows(each)
            else:
                rows += map(row_of, one_by_one(iter([each])))
    except InputLineError as error:
        rows.append(("ended by", str(error)))
    return rows


def row_of(each: ImportRow | InputLineError) -> Any:
    """A row without its line, as a block of cells has it; or the error."""
    if isinstance(each, InputLineError):
        return each.line_number, str(each)
    return None if each.id is None else str(each.id), each.pairs


def cell_rows(block: CellBlock) -> list[Any]:
    """The rows of a block of cells, whose own rows are the same if their IDs are usual ones."""
    columns = [column.to_pylist() for column in block.batch.columns]
    rows: list[Any] = []
    for cells in zip(*columns, strict=True):
        pairs = [
            (name.encode(), cell.encode())
            for place, (name, cell) in enumerate(zip(block.header, cells, strict=True))
            if place != block.id_at
        ]
        rows.append((cells[block.id_at] if block.id_at >= 0 else None, pairs))
    by_row = list(map(row_of, one_by_one(block.row_by_row())))
    if block.id_at < 0:
        assert rows == by_row
    else:
        assert len(rows) == len(by_row)
        assert all(row == one for row, one in zip(rows, by_row, strict=True) if one[0] == row[0])
    return by_row


ENDS = st.sampled_from([b"\n", b"\r\n"])
SOUND_RECORDS = st.lists(
    st.tuples(st.tuples(CELL, CELL).map(b",".join), ENDS).map(b"".join),
    min_size=1,
    max_size=12,
).map(b"".join)  # fmt: skip
WAYS = st.sampled_from([{}, {"auto": True}, {"id_field": "a"}, {"time_field": "t"}])


@settings(max_examples=150, deadline=None)
@given(HEADERS, RECORDS | SOUND_RECORDS, WAYS, st.sampled_from([50_000, 1 << 20]))
@example(b"a,b\n", b'"x\n,""y""",\n\n1,2\r\n', {}, 1 << 20)
@example(b"a,b\n", b'x"y,"z"\n', {}, 1 << 20)
@example(b"\xef\xbb\xbfa,b\n", b"\xef\xbb\xbf,b\n", {}, 50_000)
@example(b"a\n", b'\n""\n1\n', {}, 1 << 20)
def test_blocks_have_the_records_that_are_found_one_by_one(
    header: bytes, records: bytes, way: dict[str, Any], at_once: int
) -> None:
    data = header + many(records)
    wanted = told(read_csv(io.BytesIO(data), RowIDs(**way)))
    assert told(blocks_of(data, at_once, ids=RowIDs(**way))) == wanted


def test_plain_and_quoted_records_come_in_blocks() -> None:
    """Or the tests here would hold nothing against anything."""
    for record in (b"1.5,x\n", b'"1.5","a ""b""\nc"\n', b"1,2\r\n"):
        found = list(blocks_of(b"a,b\n" + record * 300_000))
        assert all(isinstance(each, CellBlock) for each in found)
        assert 1 < len(found) < 9


# -- what becomes of them -----------------------------------------------------------------------
SCHEMAS = st.sampled_from(
    ["a long?, b double?", "a string, b timestamp?", "a double, b string?, c int = '7'",
     "a bool?, *", "a json?, b decimal(9, 2)?", "a date?, b time?", "a uuid?, b enum('x', 'y')?",
     "b binary, a int", None]
)  # fmt: skip
TYPED = st.sampled_from(
    [b"1", b"-7", b"21.50", b"1e3", b"", b"007", b"2026-11-26 12:00:00", b"2026-02-29T12:00Z",
     b"2026-11-26T12:00:00.123+01:00", b"2026-12-31", b"True", b"x", "ü".encode(), b"12:30", b"-0",
     b"12345678901234567890", b"0.10"]
) | TEXTS.map(
    lambda text: b'"' + text.replace('"', '""').encode("utf-8", "replace") + b'"'
)  # fmt: skip
PAIRS_OF_CELLS = st.lists(st.tuples(TYPED, TYPED).map(b",".join), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(PAIRS_OF_CELLS, PAIRS_OF_CELLS, SCHEMAS, st.booleans(), st.sampled_from([None, 700]))
def test_blocks_are_loaded_as_rows_are(
    first: list[bytes], last: list[bytes], text: str | None, skip_bad: bool, batch: int | None
) -> None:
    """The same schema, entries, counts and errors, also where later rows are of other types."""
    data = b"a,b\n" + many(b"\n".join(first) + b"\n") + b"\n".join(last) + b"\n"
    found: list[Any] = []
    with tempfile.TemporaryDirectory() as folder, logstore.open(folder, sync="os") as store:
        for name in ("blocks", "rows"):
            stream = store.stream(name)
            sample = b"a,b\n" + b"\n".join(first) + b"\n"
            schema = parse(text) if text else import_schema.of_csv(
                sample, RowIDs(), plain_names, encoding="utf-8", delimiter=","
            )  # fmt: skip
            typed = None
            if schema is not None:
                typed = ImportSchema(stream, schema, to_set=True, widens=text is None)
            rows: Any = read_csv(io.BytesIO(data), RowIDs())
            if name == "blocks":
                rows = blocks_of(data, empty_is_null=schema is not None)
            load = Load(stream, batch, skip_bad, rows=rows, schema=typed, empty_is_null=True)
            seen: list[Any] = []
            try:
                load.run()
            except InputLineError as error:
                seen.append(str(error))
            made = [entry.pairs for entry in stream]
            found.append((seen, load.counts.bad, str(stream.schema), made))
    blocks, by_row = found
    if by_row[0]:  # how many batches came before a bad row may differ
        assert blocks[:3] == by_row[:3]
        made, others = sorted((blocks[3], by_row[3]), key=len)
        assert made == others[: len(made)]
    else:
        assert blocks == by_row


@settings(max_examples=40, deadline=None)
@given(PAIRS_OF_CELLS)
def test_the_types_of_cells_are_those_of_their_rows(lines: list[bytes]) -> None:
    data = b"a,b\n" + many(b"\n".join(lines) + b"\n")
    of_cells = import_schema.of_csv(data, RowIDs(), plain_names, encoding="utf-8", delimiter=",")
    of_rows = import_schema.of_csv(
        b"a,b\n" + b"\n".join(lines) + b"\n", RowIDs(), plain_names, encoding="utf-8", delimiter=","
    )
    assert of_cells == of_rows


def test_ids_of_blocks_ascend_and_resume(tmp_path: Path) -> None:
    lines = [f"{1_700_000_000_000 + at // 3}-{at % 3},{at}.50\n" for at in range(30_000)]
    file = tmp_path / "t.csv.gz"
    file.write_bytes(gzip.compress("".join(["id,temp\n", *lines[:20_000]]).encode()))
    (told_of,) = objects(ok("import", tmp_path / "s", file, "--json", "--batch", "777"))
    assert (told_of["imported"], told_of["schema"]) == (20_000, "temp double?")
    file.write_bytes(gzip.compress("".join(["id,temp\n", *lines]).encode()))
    (told_of,) = objects(ok("import", tmp_path / "s", file, "--json", "--resume"))
    assert (told_of["imported"], told_of["resumed_over"]) == (10_000, 20_000)
    with logstore.open(tmp_path / "s", encoding="utf-8") as store:
        stream = store.stream("t")
        assert [f"{entry.id},{entry.pairs[0][1]}0\n" for entry in islice(stream, 99)] == lines[:99]
        assert stream.last_id == (1_700_000_009_999, 2)
