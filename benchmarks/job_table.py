"""``python -m benchmarks.job_table docs/jobs.md RUN.json``: the table of job queues in a page.

The page has two marks, and what stands between them is written by this, from what a run of
``python -m benchmarks jobs --json`` measured; nothing of it by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEGIN = "<!-- made by benchmarks/{maker}.py from here on -->\n"
END = "<!-- and up to here -->\n"
HEAD = """Thousands of jobs a second in one run of `make bench ARGS=jobs` on {day}:
{note}; {cores} cores, of which other work had {busy_cores:.1f} as it began,
Python {python}, {versions}.
"""
PACKAGES = ("litequeue", "persist-queue", "huey", "rq", "dbos")
# What a column is called, and what its question begins with; one that the run has not is left out.
COLUMNS = {
    "done by 4 processes": "jobs done by",
    "an effect each, once, 5 workers killed": "jobs done once",
    "added one by one": "jobs added",
}


def table(run: Mapping[str, Any]) -> str:
    """The table of one run."""
    found = {
        column: result
        for column, name in COLUMNS.items()
        for result in run["results"]
        if result["name"].startswith(name)
    }
    there = {name: run["versions"][name] for name in PACKAGES if name in run["versions"]}
    versions = ", ".join(f"{name} {version}" for name, version in there.items())
    note = next(iter(found.values()))["note"]
    rates = [_rates(column, result) for column, result in found.items()]
    ours = next(iter(found.values()))["ours"]["label"]
    others = sorted({label for each in rates for label in each} - {ours})
    order = {label: [-each.get(label, 0.0) for each in rates] for label in others}
    lines = ["", *(_row(*cells) for cells in (("", *found), ("---", *["---"] * len(found))))]
    for label in (ours, *sorted(others, key=order.__getitem__)):
        told = [_rate(each[label]) if label in each else "" for each in rates]
        lines.append(_row("here" if label == ours else label, *told))
    return HEAD.format(**{**run, "note": note, "versions": versions}) + "\n".join(lines) + "\n"


def _rates(column: str, result: Mapping[str, Any]) -> dict[str, float]:
    """By side; where workers are killed, of ours alone: those of the others are not."""
    sides = [result["ours"]] if "killed" in column else _sides(result)
    return {side["label"]: side["mean"] for side in sides}


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def put(page: str, made: str, maker: str = "job_table") -> str:
    """The page with this table between the marks of who makes it."""
    begin = BEGIN.format(maker=maker)
    before, rest = page.split(begin)
    return f"{before}{begin}\n{made}\n{END}{rest.split(END)[1]}"


def _sides(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [result["ours"], result["peer"], *result["others"]]


def _rate(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(put(place.read_text(), table(json.loads(Path(sys.argv[2]).read_text()))))
