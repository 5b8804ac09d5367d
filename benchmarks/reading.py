"""Scanning to Arrow on one core, beside Parquet and SQLite; and the memory of a scan.

The same rows are in the store, in Parquet as pyarrow writes it, which is with dictionaries where
they pay, in Parquet without them, and in SQLite; the faster Parquet is the judge. Values are drawn
at random: those of some columns are few, of others mostly distinct. What each takes on disk is told
with each question.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import logstore
from benchmarks import data
from benchmarks.harness import Bench, Result, Sample, at_least, below, cores, fresh, in_turns
from logstore.fs import LOCAL

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "reading"
WIDE = 20  # fields
CHUNK = 10_000


class Asked(NamedTuple):
    """What is read of which rows."""

    name: str
    rows: Callable[[int], dict[str, list[str]]]  # columns of text
    typed: dict[str, str]  # by column, what pyarrow calls the types that are asked for


def run(bench: Bench) -> list[Result]:
    """Rows a second on one core; anonymous memory of a process that scans."""
    entries = bench.size(10_000_000, 1_000_000)
    rows = min(entries, 1_000_000)
    asked = (
        Asked("two text fields", _two, {}),
        Asked("two typed fields", _two, {"temp": "float64", "hum": "int64"}),
        Asked(f"{WIDE} text fields", _wide, {}),
    )
    return [*(_rate(bench, each, rows) for each in asked), _memory(bench, entries)]


def _two(count: int) -> dict[str, list[str]]:
    drawn = random.Random(count)
    return {
        "temp": [f"{drawn.uniform(-20, 40):.2f}" for _ in range(count)],
        "hum": [str(drawn.randrange(1_000_000)) for _ in range(count)],
    }


def _wide(count: int) -> dict[str, list[str]]:
    """As many columns of few values as of many."""
    drawn = random.Random(count)
    return {
        f"field{at}": [str(drawn.randrange(100 if at % 2 else 1_000_000)) for _ in range(count)]
        for at in range(WIDE)
    }


def _rate(bench: Bench, asked: Asked, entries: int) -> Result:
    import pyarrow as pa

    columns = asked.rows(entries // (5 if asked.rows is _wide else 1))
    table = pa.table(columns)
    schema = {name: pa.type_for_alias(kind) for name, kind in asked.typed.items()} or None
    folder = bench.folder / asked.name.replace(" ", "-")
    folder.mkdir()
    with logstore.open(folder / "store") as store:
        store.stream(data.STREAM).add_many(_documents(columns), batch=CHUNK)
    with logstore.open(folder / "store", create=False) as store, cores(1):
        stream = store.stream(data.STREAM)

        def ours() -> int:
            found = stream.scan(columns=list(columns), schema=schema)
            return sum(each.num_rows for each in found)

        sides = {"logstore": ours, **_parquets(folder, table, asked)}
        if asked.rows is _two:
            sides["SQLite"] = _sqlite(folder, columns, asked)
        samples = in_turns(bench.rounds, {name: _timed(each) for name, each in sides.items()})
    first, *rest = samples
    peer = max((each for each in rest if "Parquet" in each.label), key=lambda each: each.mean)
    others = [each for each in rest if each is not peer]
    sizes = ", ".join(f"{name} {size / 1e6:,.1f}" for name, size in _sizes(folder))
    name = f"scan {asked.name} to Arrow, one core"
    return at_least(name, "M rows/s", first, peer, 1.0, f"MB on disk: {sizes}", others)


def _documents(columns: dict[str, list[str]]) -> Iterator[dict[str, str]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _timed(read: Callable[[], int]) -> Callable[[int], float]:
    def timed(_: int) -> float:
        started = time.perf_counter()
        count = read()
        return count / (time.perf_counter() - started) / 1e6

    return timed


def _parquets(folder: Path, table: pa.Table, asked: Asked) -> dict[str, Callable[[], int]]:
    """Read as they were written: typed columns are typed in the file."""
    import pyarrow as pa
    from pyarrow import parquet

    for name, kind in asked.typed.items():
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(pa.type_for_alias(kind)))
    parquet.write_table(table, folder / "default.parquet")
    parquet.write_table(table, folder / "plain.parquet", use_dictionary=False)

    def read(name: str) -> int:
        rows: int = parquet.read_table(folder / f"{name}.parquet", use_threads=False).num_rows
        return rows

    return {f"Parquet, {name}": partial(read, name) for name in ("default", "plain")}


def _sqlite(folder: Path, columns: dict[str, list[str]], asked: Asked) -> Callable[[], int]:
    import pyarrow as pa

    names = ", ".join(columns)
    kinds = {"float64": "REAL", "int64": "INTEGER"}
    typed = ", ".join(f"{name} {kinds.get(asked.typed.get(name, ''), 'TEXT')}" for name in columns)
    base = sqlite3.connect(folder / "table.db", isolation_level=None)
    base.execute(f"CREATE TABLE measured (id INTEGER PRIMARY KEY, {typed})")
    base.execute("BEGIN")
    places = ", ".join("?" * len(columns))
    insert = f"INSERT INTO measured ({names}) VALUES ({places})"
    base.executemany(insert, zip(*columns.values(), strict=True))
    base.execute("COMMIT")

    def read() -> int:
        found = base.execute(f"SELECT {names} FROM measured").fetchall()
        read = map(list, zip(*found, strict=True))
        rows: int = pa.table(dict(zip(columns, read, strict=True))).num_rows
        return rows

    return read


def _sizes(folder: Path) -> list[tuple[str, int]]:
    files = {"Parquet, default": "default.parquet", "Parquet, plain": "plain.parquet"}
    found = [("logstore", LOCAL.tree_bytes(folder / "store"))]
    found += [(label, (folder / name).stat().st_size) for label, name in files.items()]
    table = folder / "table.db"
    return [*found, ("SQLite", table.stat().st_size)] if table.exists() else found


def _memory(bench: Bench, entries: int) -> Result:
    store = data.history(bench, entries)
    found = [fresh("scan_memory", store, data.STREAM) for _ in range(2)]
    sample = Sample("RssAnon while scanning", [one["peak_mib"] for one in found])
    idle = Sample("before the scan", [one["idle_mib"] for one in found])
    return below(f"memory of a scan of {entries:,}", "MiB", sample, 100, idle)
