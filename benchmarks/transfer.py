"""Entries out of a store to files and back, one core: rows a second, beside what is fastest.

The commands are called as ``logstore export`` and ``logstore import`` call them, in this process.
Beside an export stand Python's own module and orjson, or pyarrow, of what they would be given, and
our own scan with polars, which writes the same columns: the fastest of them is the judge.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import logstore
from benchmarks import sensors
from benchmarks.harness import Bench, Result, Sample, at_least, cores, in_turns

NAME = "transfer"
TWO = ("temp", "hum")
COLUMNS = ("id", "room", "temp", "hum")


def run(bench: Bench) -> list[Result]:
    """Adds of Arrow, exports, imports."""
    rows = bench.size(3_000_000, 1_000_000)
    (bench.folder / "transfer").mkdir()
    with cores(1):
        return [_add_arrow(bench, rows), *_exports(bench, rows), *_imports(bench, rows)]


def _rated(bench: Bench, rows: int, sides: dict[str, Callable[[int], object]]) -> list[Sample]:
    """Million rows a second of each."""

    def rate(work: Callable[[int], object], number: int) -> float:
        started = time.perf_counter()
        work(number)
        return rows / (time.perf_counter() - started) / 1e6

    return in_turns(bench.rounds, {label: partial(rate, work) for label, work in sides.items()})


def _goal(name: str, samples: list[Sample], least: float | None = None) -> Result:
    ours, peer, *others = samples
    target = "none" if least is None else f">= {least:g} M rows/s"
    met = least is None or ours.mean >= least
    return Result(name, "M rows/s", ours, peer, ours.mean, target, met, others=others)


# -- Arrow ----------------------------------------------------------------------------------
def _add_arrow(bench: Bench, rows: int) -> Result:
    """A table of two columns of text, the IDs given by the store; as a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = bench.folder / "transfer"
    table = pa.concat_tables([part.select(TWO) for _, part in sensors.chunks(rows)])

    def ours(number: int) -> None:
        with logstore.open(folder / "added", sync="os") as store:
            store.stream(f"run {number}").add_arrow(table)

    def peer(number: int) -> None:
        parquet.write_table(table, folder / f"added-{number}.parquet")

    samples = _rated(bench, rows, {"add_arrow": ours, "pyarrow to Parquet": peer})
    return _goal("add a table of two text columns", samples, 2)


# -- out ------------------------------------------------------------------------------------
def _exports(bench: Bench, rows: int) -> list[Result]:
    from pyarrow import parquet

    from logstore.transfer import export_parquet_file

    folder, path = bench.folder / "transfer", sensors.store(bench, rows)
    schema = dict.fromkeys(sensors.FIELDS)
    with logstore.open(path, create=False, sync="os") as store:
        table = store.stream(sensors.STREAM).scan(columns=["id", "ts", *sensors.FIELDS]).to_arrow()

        def to_parquet(_: int) -> None:
            export_parquet_file(store, folder / "out.parquet", sensors.STREAM, schema=schema)

        def alone(_: int) -> None:
            parquet.write_table(table, folder / "alone.parquet")

        sides = {"logstore": to_parquet, "pyarrow, of a table": alone}
        found = [_goal("export to Parquet", _rated(bench, rows, sides), 1)]
    table = table.select(COLUMNS)
    for kind, told, others in (
        ("jsonl", "JSON lines", _to_lines(folder, path, table)),
        ("csv", "CSV", _to_cells(folder, path, table)),
    ):
        export = partial(_command, "export", path, sensors.STREAM, folder / f"out.{kind}")
        samples = _rated(bench, rows, {"logstore": lambda _, export=export: export(), **others})
        found.append(_beside_fastest(f"export to {told}", samples))
    return found


def _beside_fastest(name: str, samples: list[Sample]) -> Result:
    ours, *rest = samples
    best = max(rest, key=lambda each: each.mean)
    others = [each for each in rest if each is not best]
    return at_least(name, "M rows/s", ours, best, 1.0, others=others)


def _to_lines(folder: Path, path: Path, table: Any) -> dict[str, Callable[[int], object]]:
    dicts = table.to_pylist()

    def by_json(_: int) -> None:
        with (folder / "alone.jsonl").open("w") as file:
            for row in dicts:
                fields = {name: row[name] for name in sensors.FIELDS}
                file.write(json.dumps({"id": row["id"], "fields": fields}) + "\n")

    def by_orjson(_: int) -> None:
        import orjson

        with (folder / "alone.jsonl").open("wb") as file:
            for row in dicts:
                fields = {name: row[name] for name in sensors.FIELDS}
                file.write(orjson.dumps({"id": row["id"], "fields": fields}) + b"\n")

    fast = {} if importlib.util.find_spec("orjson") is None else {"orjson, of dicts": by_orjson}
    return {
        "module json, of dicts": by_json, **fast,
        "our scan with polars": lambda _: _scanned(path).write_ndjson(folder / "alone.jsonl"),
    }  # fmt: skip


def _to_cells(folder: Path, path: Path, table: Any) -> dict[str, Callable[[int], object]]:
    from pyarrow import csv as arrow_csv

    dicts = table.to_pylist()

    def by_csv(_: int) -> None:
        with (folder / "alone.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(dicts)

    return {
        "module csv, of dicts": by_csv,
        "pyarrow, of a table": lambda _: arrow_csv.write_csv(table, folder / "alone.csv"),
        "our scan with polars": lambda _: _scanned(path).write_csv(folder / "alone.csv"),
    }


def _scanned(path: Path) -> Any:
    with logstore.open(path, create=False, sync="os") as store:
        return store.stream(sensors.STREAM).scan(columns=list(COLUMNS)).to_polars()


# -- in -------------------------------------------------------------------------------------
def _imports(bench: Bench, rows: int) -> list[Result]:
    """What the exports wrote; the peer adds the same table in Python, another one only reads."""
    from pyarrow import csv, parquet

    folder = bench.folder / "transfer"

    def bring(kind: str, number: int) -> None:
        to = folder / "imported"
        name = f"{kind} {number}"
        _command("import", to, folder / f"out.{kind}", "--stream", name, "--sync", "os")

    def add(kind: str, number: int) -> None:
        table = parquet.read_table(folder / "out.parquet").drop_columns("ts")
        with logstore.open(folder / "imported", sync="os") as store:
            store.stream(f"{kind} again {number}").add_arrow(table)

    def loop(_: int) -> None:
        with (folder / "out.jsonl").open("rb") as file:
            for line in file:
                json.loads(line)

    def read(_: int) -> None:
        csv.read_csv(folder / "out.csv")

    names = {"parquet": "Parquet", "jsonl": "JSON lines", "csv": "CSV"}
    only_read = {"jsonl": {"module json, not added": loop}, "csv": {"pyarrow, not added": read}}
    return [
        _goal(
            f"import of {told}",
            _rated(
                bench,
                rows,
                {
                    "logstore": partial(bring, kind),
                    "add_arrow of the Parquet file": partial(add, kind),
                    **only_read.get(kind, {}),
                },
            ),
            None if kind == "parquet" else 0.3,
        )
        for kind, told in names.items()
    ]


def _command(*arguments: object) -> None:
    """A command of ``logstore`` in this process; what it tells goes nowhere."""
    from logstore.tools.commands import main

    with redirect_stdout(TextIOWrapper(BytesIO())):
        main([str(each) for each in arguments], standalone_mode=False)
