"""Processes that add in the lane, and are killed at a call of the system after ten commits."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support import preload
from tests.support.processes import run_program

ADDS = """
import os, sys, logstore
from pathlib import Path
from logstore.engine.commit import write_back
from logstore.engine.lane import lane
write_back.INDEX_LAG_MAX_COMMITS = 64
lane.IN_USE = True
path, sync, start = sys.argv[1:]
store = logstore.open(path, sync=sync, background=False)
stream = store.stream("s")
def add(number):
    stream.add({"n": number})
for number in range(10):
    add(number)
assert store._live().lane.take_counts()["commits"]
Path(start).touch()
for number in range(10, 20):
    add(number)
    print(number, flush=True)
assert store._live().lane.take_counts()["commits"] == 10
os._exit(0)
"""
TRANSACTIONS = ADDS.replace(
    'stream.add({"n": number})',
    """with store.transaction() as transaction:
        for name in "aba":
            transaction.stream(name).add({"n": number})""",
)

# Each add meets a reader who waits.
ADDS_TO_WHO_WAITS = ADDS.replace(
    'stream.add({"n": number})',
    """while not waiters.lowest():
        time.sleep(0.001)
    stream.add({"n": number})""",
).replace("def add(", "waiters = store._live().engine.wake.waits.waiters\ndef add(")
ADDS_TO_WHO_WAITS = "import time\n" + ADDS_TO_WHO_WAITS
READS = ADDS.replace(
    'stream.add({"n": number})',
    'assert stream.group("g").read("c", count=1)[0]["n"] == b"%d" % number',
)
ACKS = ADDS.replace('stream.add({"n": number})', 'assert stream.group("g").ack(ids[number]) == 1')
ACKS = ACKS.replace("def add(", "ids = [entry.id for entry in stream]\ndef add(")


def run_until_killed(
    killer: Path, script: str, folder: Path, sync: str, at: str, how: str
) -> list[str]:
    """Run a script on the store in a folder, killed at a call of the system, or in it, once it has
    made ten commits; what it told after them."""
    start = folder / "start"
    kill = {"KILL_AT": at, "KILL_HOW": how, "KILL_FROM": str(start)}
    env = {**os.environ, **preload.below(killer), **kill}
    done = run_program(
        script, folder / "store", sync, start, exits=-signal.SIGKILL, env=env, timeout=60
    )
    return done.stdout.split()
