"""Entries out of a store to files and back, one core: rows a second, beside pyarrow and json.

The commands are called as ``logstore export`` and ``logstore import`` call them, in this process.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import BytesIO, TextIOWrapper

import logstore
from benchmarks import sensors
from benchmarks.harness import Bench, Result, Sample, cores, in_turns

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
        stream = store.stream(sensors.STREAM)
        table = stream.scan(columns=["id", "ts", *sensors.FIELDS]).to_arrow()
        dicts = table.select(COLUMNS).to_pylist()

        def to_parquet(_: int) -> None:
            export_parquet_file(store, folder / "out.parquet", sensors.STREAM, schema=schema)

        def alone(_: int) -> None:
            parquet.write_table(table, folder / "alone.parquet")

        found = [
            _goal(
                "export to Parquet",
                _rated(bench, rows, {"logstore": to_parquet, "pyarrow, of a table": alone}),
                1,
            )
        ]

    def lines(_: int) -> None:
        with (folder / "alone.jsonl").open("w") as file:
            for row in dicts:
                fields = {name: row[name] for name in sensors.FIELDS}
                file.write(json.dumps({"id": row["id"], "fields": fields}) + "\n")

    def cells(_: int) -> None:
        with (folder / "alone.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(dicts)

    for kind, peer, work in (("jsonl", "json", lines), ("csv", "csv", cells)):
        export = partial(_command, "export", path, sensors.STREAM, folder / f"out.{kind}")
        sides: dict[str, Callable[[int], object]] = {
            "logstore": lambda _, export=export: export(),
            f"module {peer}, of dicts": work,
        }
        named = {"jsonl": "JSON lines", "csv": "CSV"}[kind]
        found.append(_goal(f"export to {named}", _rated(bench, rows, sides), 0.5))
    return found


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
