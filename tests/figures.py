"""The figures that long tests leave behind, for the one table of `make torture`.

A test calls `record` with what it counted; where LOGSTORE_FIGURES names a directory, figures are
kept there as one JSON file a topic, and `python -m tests.torture` prints them together. Without it
nothing is written: a test prints its own table all the same.

Invariant: a topic is written whole, by the one test that owns it. Knows nothing of what is counted.
"""

import json
import os
from pathlib import Path

DIRECTORY = "LOGSTORE_FIGURES"
TORTURE = "LOGSTORE_TORTURE"


def times() -> int:
    """How many times as much as in continuous integration is asked for; 1 there."""
    return int(os.environ.get(TORTURE, "1"))


def record(topic: str, **figures: float | str) -> None:
    """Keep the figures of one topic, such as record("kills", kills=346, acknowledged_lost=0)."""
    where = os.environ.get(DIRECTORY)
    if where is None:
        return
    directory = Path(where)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{topic}.json").write_text(json.dumps(figures))


def recorded(directory: Path) -> dict[str, dict[str, float | str]]:
    """Every topic in the directory with its figures."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}
