"""Readings of sensors: the same rows in a store, in Parquet and as JSON lines.

A row is a time, a text, a decimal number and an integer. There is one row each millisecond, so a
time says how many rows come before it. The values of ``CHUNK_ROWS`` rows are used again and again,
with other times.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import logstore
from benchmarks.harness import Bench

if TYPE_CHECKING:
    import pyarrow as pa

STREAM = "sensors"
COLUMNS = "ts timestamp, room string, temp double, hum bigint"
FIELDS = ("room", "temp", "hum")
FIRST_MS = 1_700_000_000_000
CHUNK_ROWS = 250_000
FILES = 4  # of Parquet, and of JSON lines, so that every core has some


def chunks(count: int) -> Iterator[tuple[int, pa.Table]]:
    """The fields of all rows as text, some at a time, and how many rows came before."""
    import pyarrow as pa

    some = range(min(count, CHUNK_ROWS))
    values = pa.table(
        {
            "room": [f"room {number * 31 % 97}" for number in some],
            "temp": [f"{number * 7919 % 4_003 / 100:.2f}" for number in some],
            "hum": [str(number * 104_729 % 1_000_003) for number in some],
        }
    )
    for first in range(0, count, CHUNK_ROWS):
        yield first, values.slice(0, count - first)


def times(first: int, rows: pa.Table) -> Any:
    """The milliseconds of the IDs of a chunk."""
    import pyarrow as pa

    return pa.array(range(FIRST_MS + first, FIRST_MS + first + rows.num_rows), pa.int64())


def typed(first: int, rows: pa.Table) -> pa.Table:
    """A chunk with the columns that a typed schema asks for."""
    import pyarrow as pa

    in_ms = times(first, rows).cast(pa.timestamp("ms", "UTC"))
    return pa.table(
        {
            "ts": in_ms.cast(pa.timestamp("us", "UTC")),
            "room": rows["room"],
            "temp": rows["temp"].cast(pa.float64()),
            "hum": rows["hum"].cast(pa.int64()),
        }
    )  # fmt: skip


def store(bench: Bench, count: int, node_entries: int = 100) -> Path:
    """A store of so many rows, closed cleanly; made at its first use."""
    path = bench.folder / f"sensors-{count}-{node_entries}"
    if not path.exists():
        building = path.with_suffix(".building")
        with logstore.open(building, sync="os", node_max_entries=node_entries) as made:
            stream = made.stream(STREAM)
            for first, rows in chunks(count):
                stream.add_arrow(rows.append_column("ms", times(first, rows)))
        building.rename(path)
    return path


def parquet_files(bench: Bench, count: int) -> Path:
    """A folder of Parquet files of the typed rows, made at its first use."""
    from pyarrow import parquet

    folder = bench.folder / f"sensors-{count}.parquet"
    if not folder.exists():
        folder.mkdir()
        for number, parts in enumerate(_shared(count)):
            with parquet.ParquetWriter(folder / f"{number}.parquet", typed(*parts[0]).schema) as to:
                for part in parts:
                    to.write_table(typed(*part))
    return folder


def map_files(bench: Bench, count: int) -> Path:
    """A folder of Parquet files with one column, the map of fields."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = bench.folder / f"sensors-{count}-map.parquet"
    if not folder.exists():
        folder.mkdir()
        with logstore.open(store(bench, count), create=False) as opened:
            found = opened.stream(STREAM).scan(columns=["fields"]).reader()
            table = pa.Table.from_batches(list(found))
        each = -(-count // FILES)
        for number in range(FILES):
            parquet.write_table(table.slice(number * each, each), folder / f"{number}.parquet")
    return folder


def json_files(bench: Bench, count: int) -> Path:
    """A folder of JSON lines of the typed rows, made at its first use."""
    folder = bench.folder / f"sensors-{count}.jsonl"
    if not folder.exists():
        folder.mkdir()
        for number, parts in enumerate(_shared(count)):
            with (folder / f"{number}.jsonl").open("w") as file:
                for part in parts:
                    file.writelines(_lines(typed(*part)))
    return folder


def _shared(count: int) -> list[list[tuple[int, pa.Table]]]:
    """The chunks of each file."""
    each = -(-count // FILES)
    found: list[list[tuple[int, pa.Table]]] = [[] for _ in range(FILES)]
    for first, rows in chunks(count):
        at = first
        while at < first + rows.num_rows:
            end = min((at // each + 1) * each, first + rows.num_rows)
            found[at // each].append((at, rows.slice(at - first, end - at)))
            at = end
    return found


def _lines(rows: pa.Table) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    told = pc.strftime(rows["ts"].cast(pa.timestamp("ms", "UTC")), "%Y-%m-%dT%H:%M:%SZ").to_pylist()
    fields = (rows[name].to_pylist() for name in FIELDS)
    for ts, room, temp, hum in zip(told, *fields, strict=True):
        yield f'{{"ts":"{ts}","room":"{room}","temp":{temp},"hum":{hum}}}\n'
