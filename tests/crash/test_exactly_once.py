"""Prevents an entry that is handled twice, or never, when workers are killed or stall."""

from __future__ import annotations

import collections
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import logstore
from logstore.ids import MAX_ID, ZERO_ID
from tests import seeds
from tests.crash import group_worker

ENTRIES = 1500
WORKERS = 3
LIMIT_S = 60.0


def start(path: Path, number: int, seed: int) -> subprocess.Popen[bytes]:
    """One worker in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", group_worker.__name__, str(path), f"w{number}", str(seed)],
        cwd=Path(__file__).parents[2],
    )


def test_each_entry_has_one_output_whoever_is_killed(tmp_path: Path) -> None:
    """Reads from one stream, adds to another, acks: kills at any moment and stalls included."""
    seed = seeds.seed()
    print("seed", seed)
    chance = random.Random(seed)
    path = tmp_path / "s"
    kills = stops = 0
    with logstore.open(path, encoding="utf-8") as store:
        group = store.stream("in").group("g", start="0")
        workers = [start(path, number, chance.randrange(1 << 30)) for number in range(WORKERS)]
        try:
            end = time.monotonic() + LIMIT_S
            added = 0
            while time.monotonic() < end:
                if added < ENTRIES:
                    rows = [{"n": str(added + row)} for row in range(50)]
                    store.stream("in").add_many(rows)
                    added += 50
                elif group.info().lag == 0 and group.pending().count == 0:
                    break
                time.sleep(chance.uniform(0.05, 0.2))
                place = chance.randrange(WORKERS)
                if added < ENTRIES and chance.random() < 0.5:
                    workers[place].kill()
                    workers[place].wait()
                    kills += 1
                    workers[place] = start(path, place, chance.randrange(1 << 30))
                elif added < ENTRIES and chance.random() < 0.3:
                    workers[place].send_signal(signal.SIGSTOP)
                    stops += 1
                    time.sleep(1.5 * group_worker.IDLE_S)
                    workers[place].send_signal(signal.SIGCONT)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        print(f"{kills} kills, {stops} stops")
        assert kills > 3
        seen = collections.Counter(entry.fields["n"] for entry in store.stream("out"))
        assert sorted(seen, key=int) == [str(number) for number in range(ENTRIES)]
        assert set(seen.values()) == {1}
        assert group.pending().count == 0
        assert len(list(store.stream("in").range(ZERO_ID, MAX_ID))) == ENTRIES
