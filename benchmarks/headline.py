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
# What it is called here, the question, and the unit of one.
QUESTIONS = (
    ("add one entry", "append one row", "us"),
    ("get one by its ID", "get one row by its name", "us"),
    ("`add_many`", "add_many of two-field dicts", "M rows/s"),
    ("a group reads one entry and acks it", "group read + ack, one by one", "/s"),
    ("jobs done by four worker processes", "jobs done by 4 worker processes", "k jobs/s"),
    ("`logstore serve`, 50 clients", "XADD through the server, 50 clients, no pipeline", "/s"),
    ("scan of two fields to Arrow", "scan two text fields to Arrow, one core", "M rows/s"),
    ("open 10 million entries", "opening 10,000,000 entries", "ms"),
)  # fmt: skip
PEERS = {"XREADGROUP + XACK": "Redis", "SQLite executemany": "SQLite"}
ITSELF = "100,000 entries"  # a smaller store: no peer


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """The table of these runs; KeyError if one of the questions is in none of them."""
    found = {result["name"]: result for run in runs for result in run["results"]}
    lines = []
    for label, name, unit in QUESTIONS:
        result = found[name]
        peer = result["peer"]
        beside = ""
        if peer["label"] != ITSELF:
            beside = f"{PEERS.get(peer['label'], peer['label'])} {_short(peer['mean'])}"
        lines.append(f"| {label} | {_short(result['ours']['mean'])} {unit} | {beside} |")
    return HEAD + "\n".join(lines).replace(" /s", " a second") + "\n"


def _short(value: float) -> str:
    """Two digits, or three of what begins with 1; thousands with commas."""
    digits = f"{value:.3g}" if f"{value:e}"[0] == "1" else f"{value:.2g}"
    return f"{float(digits):,.0f}" if value >= 100 else f"{float(digits):g}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    made = table([json.loads(Path(run).read_text()) for run in sys.argv[2:]])
    place.write_text(job_table.put(place.read_text(), made, "headline"))
