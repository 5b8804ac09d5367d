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

| | done by 4 processes | an effect each, once, {killed} workers killed | added one by one |
|---|---|---|---|
"""
PACKAGES = ("litequeue", "persist-queue", "huey", "rq")


def table(run: Mapping[str, Any]) -> str:
    """The table of one run."""
    done, once, added = (
        _found(run, name) for name in ("jobs done by", "jobs done once", "jobs added")
    )
    rates = [{side["label"]: side["mean"] for side in _sides(each)} for each in (done, once, added)]
    versions = ", ".join(f"{name} {run['versions'][name]}" for name in PACKAGES)
    head = HEAD.format(
        **{**run, "note": done["note"], "versions": versions,
           "killed": once["name"].split("of which ")[1].split()[0]}
    )  # fmt: skip
    ours = done["ours"]["label"]
    lines = [
        f"| here | {_rate(rates[0][ours])} | {_rate(rates[1][ours])} | {_rate(rates[2][ours])} |"
    ]
    others = sorted((label for label in rates[0] if label != ours), key=lambda at: -rates[0][at])
    lines += [f"| {at} | {_rate(rates[0][at])} | | {_rate(rates[2][at])} |" for at in others]
    return head + "\n".join(lines) + "\n"


def put(page: str, made: str, maker: str = "job_table") -> str:
    """The page with this table between the marks of who makes it."""
    begin = BEGIN.format(maker=maker)
    before, rest = page.split(begin)
    return f"{before}{begin}\n{made}\n{END}{rest.split(END)[1]}"


def _found(run: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next(each for each in run["results"] if each["name"].startswith(name))


def _sides(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [result["ours"], result["peer"], *result["others"]]


def _rate(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(put(place.read_text(), table(json.loads(Path(sys.argv[2]).read_text()))))
