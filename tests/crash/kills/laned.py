"""``python -m tests.crash.kills.laned``: kills of writers in the lane, beside one without it.

A process of its own, for a library must be loaded before the C library (``linger.c``): it tells at
which step of the lane a writer stands. What came of it is printed as one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from logstore.engine.runtime import identity
from tests.crash.kills import rounds

LANES = 3  # of four writers


def main() -> None:
    """Seed, stores, rounds and kills a round are the arguments."""
    identity.LOOK_NS = 3600 * 10**9  # on a busy machine each add would look, beside the lane
    seed, parts, count, kills = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        fleets = rounds.run(Path(folder), seed, parts, count, kills, lanes=LANES)
    print(json.dumps({"figures": rounds.counted(fleets), "text": rounds.report_text(fleets, seed)}))


if __name__ == "__main__":
    main()
