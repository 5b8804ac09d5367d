"""Streams with a schema: imports that find it, adds that are held against it, and questions that
go by it.

Files are imported by the command, in a process of its own for each round, with the libraries loaded
before; DuckDB reads the same CSV into a table in memory, on one thread. Rows are drawn at random: a
time, a text of eight letters, a double with two digits behind the point, and a whole number. An add
with a schema and one without come in turns, of the same rows in a shuffled order. What is told is
processor time: of the process, or of the thread that adds. Questions are DuckDB's, on one thread,
of a stream in the order of its column of times, and of the same rows in a Parquet file; what of the
log is read for a condition is told by the kernel's count of bytes.
"""

from __future__ import annotations

import random
import shutil
import string
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import logstore
from benchmarks.harness import (
    Bench,
    Result,
    Sample,
    at_least,
    at_most,
    below,
    fresh,
    in_turns,
    interleave,
)

NAME = "typed"
SCHEMA = "at timestamp, device string, temp double, count long"
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def run(bench: Bench) -> list[Result]:
    """Rates of imports and scans, times of adds and questions."""
    return [*_imports(bench), *_adds(bench), *_questions(bench)]


def _rows(count: int) -> Iterator[dict[str, Any]]:
    """Rows, each with its moment as a datetime."""
    draw = random.Random(7)
    moment = T0
    for _ in range(count):
        moment += timedelta(microseconds=draw.randrange(2_000_000))
        device = "".join(draw.choices(string.ascii_lowercase, k=8))
        temp, number = round(draw.gauss(20, 8), 2), draw.randrange(-(10**6), 10**6)
        yield {"at": moment, "device": device, "temp": temp, "count": number}


def _imports(bench: Bench) -> list[Result]:
    import pyarrow as pa
    from pyarrow import csv, parquet

    count = bench.size(2_000_000, 200_000)
    folder = bench.folder / "typed"
    folder.mkdir()
    table = pa.Table.from_pylist(list(_rows(count)))
    plain = table.set_column(0, "at", table["at"].cast(pa.timestamp("us")).cast(pa.string()))
    parquet.write_table(table, folder / "rows.parquet")
    for style in ("none", "needed"):  # which quotes every text
        csv.write_csv(plain, folder / f"{style}.csv", csv.WriteOptions(quoting_style=style))

    def imported(file: Path, _round: int) -> float:
        store = folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        took: float = fresh("import_table", store, file)
        return count / took / 1e6

    def read(file: Path, _round: int) -> float:
        took: float = fresh("read_by_duckdb", file)
        return count / took / 1e6

    (of_parquet,) = in_turns(
        bench.rounds, {"logstore import": partial(imported, folder / "rows.parquet")}
    )
    labels = ("logstore import", "DuckDB, into a table")
    of_csv = {
        told: interleave(bench.rounds, partial(imported, file), partial(read, file), labels)
        for told, file in (
            ("", folder / "none.csv"),
            (", texts in quotes", folder / "needed.csv"),
        )
    }
    unit, goal = "M rows/s of processor time", 1.0
    return [
        Result(
            "import of Parquet, four columns",
            unit,
            of_parquet,
            None,
            of_parquet.mean,
            f">= {goal:g} M rows/s",
            of_parquet.mean >= goal,
            f"{count:,} rows",
        ),
        *(
            at_least(f"import of CSV, types found{told}", unit, *sides, 0.5, f"{count:,} rows")
            for told, sides in of_csv.items()
        ),
    ]


def _adds(bench: Bench) -> list[Result]:
    """An add of a row with a schema over one without, of the same values; and of datetimes."""
    count = bench.size(50_000, 10_000)
    moments = list(_rows(count))
    random.Random(8).shuffle(moments)
    texts = [row | {"at": f"{row['at']:%Y-%m-%d %H:%M:%S.%f}Z"} for row in moments]
    with logstore.open(bench.folder / "typed-adds", sync="os", background=False) as store:
        plain, typed = store.stream("plain"), store.stream("typed")
        typed.configure(schema=SCHEMA)
        sides: dict[str, Callable[[int], float]] = {
            "with a schema": lambda _: _took_us(typed.add, texts),
            "with a schema, of datetimes": lambda _: _took_us(typed.add, moments),
            "without": lambda _: _took_us(plain.add, texts),
            "many with a schema": lambda _: _took_us(typed.add_many, texts, at_once=True),
            "many without": lambda _: _took_us(plain.add_many, texts, at_once=True),
        }
        one, dated, bare, many, bare_many = in_turns(2 * bench.rounds, sides)
    unit = "us a row, of processor time"
    note = "four values drawn at random, in turns, sync='os'"
    return [
        at_most("add with a schema, of texts and numbers", unit, one, bare, 1.3, note),
        at_most(
            "add with a schema, of datetimes, over one of ready texts", unit, dated, bare, 1.3, note
        ),
        at_most("add_many with a schema", unit, many, bare_many, 1.3, note),
    ]


def _took_us(
    add: Callable[[Any], object], rows: list[dict[str, Any]], *, at_once: bool = False
) -> float:
    started_ns = time.thread_time_ns()
    if at_once:
        add(rows)
    else:
        for row in rows:
            add(row)
    return (time.thread_time_ns() - started_ns) / len(rows) / 1e3


DRAWN = """
    select timestamptz '2026-01-01 00:00:00+00'
            + to_microseconds((i * 1000000 + random() * 999999)::bigint) as at,
        substr(md5(random()::varchar), 1, 8) as device,
        round(20 + 8 * sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()), 2) as temp,
        (random() * 2e6 - 1e6)::bigint as count
    from range({first}, {end}) as t(i)
"""
CHUNK_ROWS = 500_000


def _questions(bench: Bench) -> list[Result]:
    """A scan of four columns, an average, and a condition that keeps a thousandth of the rows."""
    import duckdb
    from pyarrow import parquet

    import logstore.duckdb as views

    count = bench.size(10_000_000, 200_000)
    file = bench.folder / "typed.parquet"
    con = duckdb.connect(config={"threads": 1})
    con.execute("set timezone = 'UTC'; select setseed(0.7)").fetchall()
    with logstore.open(bench.folder / "typed-questions", sync="os", background=False) as store:
        stream = store.stream("rows")
        stream.configure(schema=SCHEMA)
        writer = None
        for first in range(0, count, CHUNK_ROWS):
            text = DRAWN.format(first=first, end=min(count, first + CHUNK_ROWS))
            table = con.sql(text).to_arrow_table()
            stream.add_arrow(table)
            writer = writer or parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()
        store.compact()  # which seals the last segment, so that all nodes have statistics
        views.attach(con, store)
        condition = (
            f"\"at\" >= timestamptz '2026-01-01' + to_seconds({count // 2}) "
            f"and \"at\" < timestamptz '2026-01-01' + to_seconds({count // 2 + count // 1000})"
        )

        def scanned(_round: int) -> float:
            def all_rows() -> None:
                for _ in stream.scan(columns=["at", "device", "temp", "count"]):
                    pass

            return count / _processor_s(all_rows) / 1e6

        def asked(question: str, source: str) -> Callable[[int], float]:
            text = question.format(source)
            return lambda _round: _processor_s(lambda: con.execute(text).fetchall())

        (scan,) = in_turns(bench.rounds, {"scan to Arrow": scanned})
        labels = ("DuckDB on the stream", "DuckDB on Parquet")
        averages, kept = (
            interleave(bench.rounds, asked(question, "rows"), asked(question, f"'{file}'"), labels)
            for question in (
                "select avg(temp) from {}",
                f"select avg(temp) from {{}} where {condition}",
            )
        )
        before = _read_bytes()
        con.execute(f"select count(*), avg(temp) from rows where {condition}").fetchall()
        log_bytes = sum(each.stat().st_size for each in (store.path / "log").glob("*.log"))
        share = Sample("bytes of the log", [100 * (_read_bytes() - before) / log_bytes])
        lookups = _lookups(stream, log_bytes)
    note, unit = f"{count:,} rows, in the order of at", "s of processor time"
    return [
        Result(
            "scan four typed columns to Arrow", "M rows/s of processor time", scan, None,
            scan.mean, ">= 10 M rows/s", scan.mean >= 10, note,
        ),
        at_most("DuckDB: avg of a column, by scanning", unit, *averages, 10, note),
        at_most(
            "DuckDB: avg of a thousandth of the rows, by time, where statistics leave out nodes",
            unit, *kept, 10, note,
        ),
        below("read of the log for a thousandth of the rows", "%", share, 1.0, note=note),
        below("read for one text, in no order, with statistics", "%", lookups, 6, note=note),
    ]  # fmt: skip


def _lookups(stream: Any, log_bytes: int) -> Sample:
    """What is read to find the rows of a text in the midst, with the statistics."""
    middle = (stream.first.id.ms + stream.last.id.ms) // 2
    device = next(iter(stream.range((middle, 0), count=1)))["device"]
    stream._opened.engine().statistics.clear()
    before = _read_bytes()
    assert sum(1 for _ in stream.range(where=f"device = '{device}'"))
    return Sample("bytes of the log", [100 * (_read_bytes() - before) / log_bytes])


def _processor_s(call: Callable[[], object]) -> float:
    started_ns = time.process_time_ns()
    call()
    return (time.process_time_ns() - started_ns) / 1e9


def _read_bytes() -> int:
    """Bytes that this process has read by calls of the system so far."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])
