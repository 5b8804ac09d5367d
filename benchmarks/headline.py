"""``python -m benchmarks.headline README.md RUN.json ..``: the short table of a page.

The page has two marks, and what stands between them is written by this, from what runs of
``python -m benchmarks --json`` measured; nothing of it by hand. It is a choice of the questions
that ``report`` has all of.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import job_table

HEAD = """| | here | beside |
|---|---:|---:|
"""
# What it is called here, the question, the unit of one, and how many of that a measured one is.
QUESTIONS = (
    ("add one, three shapes in turn", "add, three shapes in turn", "us", 1),
    ("add one, to any of 5,000 streams", "add, 5,000 streams at random", "us", 1),
    ("add ten at once, each", "add_many of ten, an entry", "us", 1),
    ("get one of 100,000 by its ID", "get, at random of 100,000", "us", 1),
    ("read ten of them from an ID on", "range of ten, at random of 100,000", "us", 1),
    ("delete one of them", "delete, at random", "us", 1),
    ("a worker takes one, and acks it", "queue: the same, with a timeout of 1 s", "us", 1),
    ("a process opens a store, adds one, and ends", "a process that opens, adds one and ends",
     "ms", 1e-3),
    ("one producer, 1 waiting worker, in processes",
     "live: one producer, 1 waiting consumer in processes", "/s", 1),
    ("one producer, 5 waiting workers",
     "live: one producer, 5 waiting consumers in processes", "/s", 1),
    ("`logstore serve`, XADD by 50 clients", "XADD through the server, 50 clients, no pipeline",
     "/s", 1),
)  # fmt: skip


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """The table of these runs; KeyError if one of the questions is in none of them."""
    found = {result["name"]: result for run in runs for result in run["results"]}
    lines = []
    for label, name, unit, times in QUESTIONS:
        ours, peer = found[name]["ours"]["mean"] * times, found[name]["peer"]
        beside = f"{peer['label']} {_short(peer['mean'] * times)}"
        lines.append(f"| {label} | {_short(ours)} {unit} | {beside} |")
    return HEAD + "\n".join(lines).replace(" /s", " a second") + "\n"


def _short(value: float) -> str:
    """Two digits, or three of what begins with 1; thousands with commas."""
    digits = f"{value:.3g}" if f"{value:e}"[0] == "1" else f"{value:.2g}"
    return f"{float(digits):,.0f}" if value >= 100 else f"{float(digits):g}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    made = table([json.loads(Path(run).read_text()) for run in sys.argv[2:]])
    place.write_text(job_table.put(place.read_text(), made, "headline"))
