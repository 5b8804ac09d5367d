"""Prevents imports that take rows in blocks otherwise than they would take them one by one."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore.errors import InputLineError
from logstore.tools.interchange.import_command import Load
from logstore.tools.interchange.text_lines import Found, read_csv, read_json
from logstore.tools.interchange.text_rows import (
    Block,
    ImportRow,
    RowIDs,
    attempt,
    csv_pairs,
    json_pairs,
    one_by_one,
)
from tests.tools.drawn_csv import HEADERS, RECORDS, slow

WAYS = st.sampled_from(
    [{}, {"auto": True}, {"id_field": "id"}, {"id_field": "a"}, {"time_field": "t"}]
)  # fmt: skip
SOUND_ID = st.sampled_from(["1-0", "1-1", "2", "3-7", "03-8", "4-18446744073709551615", 6])
ODD_ID = st.sampled_from(
    ["5-*", "*", "x", "", "0-0", "9-", "99999999999999999999-1", "1-1 ", "\u0663-1", 7.5, None,
     True]
)  # fmt: skip
NAME = st.sampled_from(["id", "a", "b", "t", "ms", "seq", "fields", "pairs", "ü"])
TEXT = st.sampled_from(["", "1", "ü", "\U0001f600", "a:b", "2026-01-01", "\\ud800", "\0"])
ODD_TEXT = st.sampled_from(["\ud800", "\udcff"])  # no UTF-8 has it
NUMBER = st.sampled_from([0, 1.5, 1e300, 2**70, None, True, False])
NESTED = st.lists(TEXT | NUMBER, max_size=2) | st.dictionaries(TEXT, TEXT | NUMBER, max_size=2)


def dumped(pairs: list[tuple[str, Any]], *, escaped: bool, spaced: bool) -> bytes:
    """An object in which names may repeat."""
    dump = partial(json.dumps, ensure_ascii=escaped)
    colon, comma = (" : ", " ,") if spaced else (":", ",")
    text = comma.join(f"{dump(name)}{colon}{dump(value)}" for name, value in pairs)
    return f"{{{text}}}".encode("utf-8", "surrogatepass")


def lists_of(names: Any, values: Any) -> Any:
    """Some pairs."""
    return st.lists(st.tuples(names, values), max_size=3)


def with_id(ids: Any, rest: Any) -> Any:
    """The ID, then what else there is."""
    return st.tuples(ids, rest).map(lambda found: [("id", found[0]), *found[1]])


SOUND = lists_of(NAME, TEXT | NUMBER)
ODD = lists_of(NAME | ODD_TEXT, TEXT | NUMBER | NESTED | ODD_TEXT)
WRAPPED = st.tuples(st.sampled_from(["fields", "pairs"]), SOUND.map(dict) | NESTED).map(
    lambda pair: [pair]
)
OBJECT = st.builds(
    dumped,
    with_id(SOUND_ID, SOUND)
    | with_id(SOUND_ID, WRAPPED)
    | with_id(SOUND_ID | ODD_ID, SOUND | ODD | WRAPPED)
    | SOUND
    | ODD,
    escaped=st.booleans(),
    spaced=st.booleans(),
)
NO_OBJECT = st.sampled_from(
    [b"", b" ", b"\r", b"{", b"[1]", b"7", b"null", b"{}", b"\xff", b'{"a":"\xff"}', b'{"a":"\t"}',
     b'{"a":NaN}', b'{"a":"1"} x', b'{"a":"1"},{"b":"2"}', b' {"a":"1"} ', b'\xef\xbb\xbf{"a":"1"}',
     b'{"id":"1-0","fields":{"a":"1"},"b":"2"}', b'{"a":"1"}\x85', b"[" * 3000,
     b'{"id":"8-8","fields":{"a":"1","a":"2"}}', b'{"id":"8-9","a":"1","id":"1-0"}',
     b'{"id":null,"id":"9-9","a":"1"}', b'{"a":1.50,"b":1e3,"c":-0}',
     b'{"ms":5,"a":"1","seq":"7"}'],
)  # fmt: skip
LINES = st.lists(OBJECT | OBJECT | OBJECT | OBJECT | NO_OBJECT, min_size=1, max_size=12)
ENDS = st.sampled_from([b"\n", b"\r\n"])


def shown(found: Found | Iterator[ImportRow | InputLineError]) -> list[Any]:
    """Rows, and what is told of lines that are none."""
    rows: list[Any] = []
    try:
        for each in one_by_one(found):
            is_bad = isinstance(each, InputLineError)
            rows.append((each.line_number, str(each)) if is_bad else each)
    except InputLineError as error:
        rows.append(("ended by", str(error)))
    return rows


# -- JSON ---------------------------------------------------------------------------------------
@settings(max_examples=300)
@given(LINES, ENDS, WAYS, st.sampled_from([20, 40, 1 << 20]), st.sampled_from([1, 7, 99, 1 << 20]))
def test_lines_of_json_mean_what_each_of_them_means(
    lines: list[bytes], end: bytes, way: dict[str, Any], most: int, at_once: int
) -> None:
    def each() -> Iterator[ImportRow | InputLineError]:
        ids = RowIDs(**way)
        for number, line in enumerate(io.BytesIO(data).readlines(), 1):
            if len(line.removesuffix(b"\n")) > most:
                yield InputLineError(
                    f"longer than {most} bytes: --line-max-bytes takes longer ones, in the memory "
                    "of several",
                    line_number=number,
                )
            elif line.strip():
                yield attempt(number, partial(json_pairs, line, ids), ids)

    data = b'{"b":"1"}\n' + end.join(lines)
    found = read_json(slow(data, at_once), RowIDs(**way), line_max_bytes=most)
    assert shown(found) == shown(each())


def test_flat_lines_come_in_blocks() -> None:
    """Or the tests here would hold nothing against anything."""
    line = b'{"id": "%d-1", "fields": {"a": "1", "b": "\\u00fc"}}\n'
    flat = b'{"id": "%d-2", "a": 1.50, "a": true, "c": null}\n'
    data = b"".join((line + flat) % (at, at) for at in range(1000))
    first, *more = read_json(slow(data, 1 << 20), RowIDs())
    assert isinstance(first, ImportRow)
    assert all(isinstance(each, Block) for each in more)
    assert len(more) < 9
    table = b"id,a,b\n" + b"".join(b'%d-1,x,"y, z\nz"\n' % at for at in range(3000))
    found = list(read_csv(slow(table, 1 << 20), RowIDs()))
    assert sum(not isinstance(each, Block) for each in found) < 99


# -- CSV ----------------------------------------------------------------------------------------
@settings(max_examples=300)
@given(HEADERS, RECORDS, WAYS, st.sampled_from([1, 2, 5, 1 << 20]))
def test_csv_means_what_its_records_mean(
    header: bytes, rows: bytes, way: dict[str, Any], at_once: int
) -> None:
    """As the modules csv and io read it."""

    def each() -> Iterator[ImportRow | InputLineError]:
        ids = RowIDs(**way)
        text = io.TextIOWrapper(
            io.BytesIO(header + rows), "utf-8-sig", errors="surrogateescape", newline=""
        )
        reader = csv.reader(text, strict=True)
        names: list[str] = []
        while True:
            number = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                bad = InputLineError(f"no CSV: {error}", line_number=number)
                if not names:
                    raise bad from None
                yield bad
                continue
            if cells is None:
                return
            if not names:
                names = cells
            elif cells:
                yield attempt(number, partial(csv_pairs, names, cells, ids), ids)

    found = read_csv(slow(header + rows, at_once), RowIDs(**way))
    assert shown(found) == shown(each())


@settings(max_examples=200)
@given(HEADERS, RECORDS, st.integers(1, 30), st.sampled_from(["utf-8", "utf-16", "latin-1"]))
def test_csv_that_comes_by_bytes_is_the_same(
    header: bytes, rows: bytes, most: int, encoding: str
) -> None:
    """Then there is never a block of it."""
    data = header + rows
    if encoding == "utf-16":
        data = data.decode("latin-1").encode(encoding)
    read = partial(read_csv, ids=RowIDs(), encoding=encoding, line_max_bytes=most)

    def no_blocks() -> Iterator[ImportRow | InputLineError]:
        for each in read(slow(data, 1)):
            assert not isinstance(each, Block)
            yield each

    assert shown(read(slow(data, 1 << 20))) == shown(no_blocks())


# -- what becomes of them -----------------------------------------------------------------------
ROWS = st.lists(
    (SOUND_ID | ODD_ID).map(lambda at: b'{"id":%b,"a":"1"}' % json.dumps(at).encode())
    | st.integers(0, 60).map(lambda at: b'{"id":"%d-%d","fields":{"a":"x"}}' % divmod(at, 7))
    | st.integers(0, 60).map(lambda at: b'{"id":"%d-%d","fields":{"a":"x"}}' % divmod(at, 7))
    | st.sampled_from([b'{"a":"no ID"}', b'{"a":"a time","t":"7"}', b'{"t":"8"}']),
    max_size=12,
)  # fmt: skip


FIRST = st.sampled_from(
    [(b'{"id":"0-1","a":"1"}', {}), (b'{"a":"1"}', {}), (b"", {}), (b'{"id":"0-1","a":"1"}', {}),
     (b"{", {}), (b"{", {"time_field": "t", "time_format": "ms"}), (b'{"a":"1"}', {"auto": True})]
)  # fmt: skip


@settings(max_examples=100)
@given(FIRST, ROWS | ROWS.map(sorted), st.booleans(), st.booleans(), st.integers(1, 5))
def test_blocks_are_loaded_as_rows_are(
    first: tuple[bytes, dict[str, Any]],
    rows: list[bytes],
    skip_bad: bool,
    resume: bool,
    batch: int,
) -> None:
    """The same entries, batches, counts and errors."""
    data = b"\n".join([first[0], *rows])
    told: list[Any] = []
    with tempfile.TemporaryDirectory() as folder, logstore.open(folder, sync="os") as store:
        for name, as_rows in (("blocks", False), ("rows", True)):
            stream = store.stream(name)
            if resume:
                stream.add({"a": "before"}, id="1-0")
            seen: list[Any] = []
            found: Any = read_json(io.BytesIO(data), RowIDs(**first[1]))
            load = Load(
                stream,
                batch,
                skip_bad,
                resume,
                rows=one_by_one(found) if as_rows else found,  # type: ignore[arg-type]
                on_bad=lambda error, seen=seen: seen.append(str(error)),
                on_batch=lambda counts, _rows, seen=seen: seen.append(counts.imported),
            )
            try:
                load.run()
            except InputLineError as error:
                seen.append(("stopped", str(error)))
            made = [(entry.id.ms < 10**6 and entry.id, entry.pairs) for entry in stream]
            told.append((seen, load.counts.imported, load.counts.bad, made))
    assert told[0] == told[1]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_rows_of_a_pipe_are_imported_as_they_come(tmp_path: Path, kind: str) -> None:
    """A row is in the store before the next one is written."""
    reading, writing = os.pipe()
    read: Any = read_json if kind == "jsonl" else read_csv
    line = b'{"id":"%d-0","a":"1"}\n' if kind == "jsonl" else b"%d-0,1\n"
    with logstore.open(tmp_path / "store", sync="os") as store, open(reading, "rb") as source:
        stream = store.stream("s")
        load = Load(stream, 1, rows=read(source, RowIDs()))
        thread = threading.Thread(target=load.run)
        thread.start()
        try:
            os.write(writing, b"" if kind == "jsonl" else b"id,a\n")
            for at in range(1, 6):
                os.write(writing, line % at)
                (entry,) = stream.read(f"{at - 1}-0" if at > 1 else "0-0", timeout=60)
                assert entry.id == (at, 0)
        finally:
            os.close(writing)
            thread.join()
    assert load.counts.imported == 5
