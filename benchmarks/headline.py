"""``python -m benchmarks.headline README.md RUN.json ..``: the short table of a page.

The page has two marks, and what stands between them is written by this, from what runs of
``python -m benchmarks --json`` measured; nothing of it by hand. It is a choice of the questions
that ``report`` has all of; one that is in none of the runs is left out, and told.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import job_table

HEAD = """| what was done | here | beside |
|---|---:|---:|
"""


class Question(NamedTuple):
    """What it is called here, and how its figures are told."""

    label: str
    name: str
    unit: str
    times: float = 1.0  # of this unit in one of the run's
    beside: tuple[str, ...] = ()  # sides that stand beside ours; none: the peer


STORES = ("SQLite", "RocksDB")
QUESTIONS = (
    Question("add an entry, each another one, the close counted",
             "add, all different, close included", "us", 1, STORES),
    Question("add to one of 5,000 streams, at random",
             "add, 5,000 streams at random", "us", 1, STORES),
    Question("add rows by `add_many`", "add_many of rows drawn at random", "M/s"),
    Question("get one of 1,000,000 entries by its ID",
             "get, at random of 1,000,000", "us", 1, STORES),
    Question("read ten of them from an ID on",
             "range of ten, at random of 1,000,000", "us", 1, STORES),
    Question("delete one of them", "delete, at random", "us", 1, STORES),
    Question("take one from a queue, and ack it", "queue: take one, ack it", "us"),
    Question("hand entries to a worker that waits in another process",
             "live: one producer, 1 waiting consumer in processes", "/s"),
    Question("the same, 4 workers wait",
             "live: one producer, 4 waiting consumers in processes", "/s"),
    Question("do jobs, 4 processes of `logstore work`",
             "jobs done by 4 worker processes, as `logstore work` does them", "/s", 1e3,
             ("huey, SQLite", "SQLite, 30 lines")),
    Question("XADD over 1,000 streams, by `logstore serve`",
             "served: XADD over 1,000 streams, 1 client", "us"),
    Question("XREADGROUP of one and XACK, by `logstore serve`",
             "served: XREADGROUP COUNT 1 and XACK, 1 client", "us"),
    Question("scan two fields of text to Arrow, one core",
             "scan two text fields to Arrow, one core", "M/s", 1,
             ("Parquet, default", "Parquet, plain")),
    Question("scan two typed fields to Arrow, one core",
             "scan two typed fields to Arrow, one core", "M/s", 1,
             ("Parquet, default", "Parquet, plain")),
    Question("start a process that opens a store, adds one, and ends",
             "a process that opens, adds one and ends", "ms", 1e-3),
)  # fmt: skip
SIZES = "MB on disk: "  # what a note that has them begins with


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """The table of these runs."""
    found = _found(runs)
    lines = [_row(each, found[each.name]) for each in QUESTIONS if each.name in found]
    return HEAD + "\n".join(lines) + "\n"


def missing(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The questions that none of these runs has."""
    found = _found(runs)
    return [each.name for each in QUESTIONS if each.name not in found]


def _found(runs: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {result["name"]: result for run in runs for result in run["results"]}


def _row(asked: Question, result: Mapping[str, Any]) -> str:
    unit = {"/s": " a second", "M/s": " million rows a second"}.get(asked.unit, f" {asked.unit}")
    sides = [result["peer"], *result["others"]]
    sides = [each for each in sides if each["label"] in (asked.beside or sides[0]["label"])]
    beside = ", ".join(f"{each['label']} {_short(each['mean'] * asked.times)}" for each in sides)
    if result["note"].startswith(SIZES):
        beside += f" ({result['note'].replace(SIZES, 'MB: ')})"
    return f"| {asked.label} | {_short(result['ours']['mean'] * asked.times)}{unit} | {beside} |"


def _short(value: float) -> str:
    """Two digits, or three of what begins with 1; thousands with commas."""
    digits = f"{value:.3g}" if f"{value:e}"[0] == "1" else f"{value:.2g}"
    return f"{float(digits):,.0f}" if value >= 100 else f"{float(digits):g}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    measured = [json.loads(Path(run).read_text()) for run in sys.argv[2:]]
    for name in missing(measured):
        print(f"not measured: {name}", file=sys.stderr)
    place.write_text(job_table.put(place.read_text(), table(measured), "headline"))
