"""A queue as people run it: one producer that adds, consumers in processes of their own that wait.

The producer adds entries one by one, as fast as it can. Each consumer reads what is there, at most
fifty at a time, waits when there is nothing, and acks one by one. The clock runs from the first add
to the last ack. Processor time is that of all processes, the server of Redis too, from when the
consumers wait. Redis has an append-only file (everysec), its clients a Unix socket and hiredis.

Then the producer pauses behind each add, so that each add meets a reader who waits: what the add
costs, and what the read and the ack cost.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from benchmarks import peer
from benchmarks.harness import ROOT, Bench, Result, Sample, at_least, at_most, below

NAME = "live"
STREAM, GROUP = "jobs", "workers"
CONSUMERS = (1, 2, 4, 5)
BATCH = 50
OVER_S = 1.5  # without an entry: then a consumer ends
SETTLED_S = 0.5
RATE_GOAL, PROCESSOR_GOAL = 2.0, 1.5  # of Redis
GIVE_US, TAKE_US = 15.0, 25.0
PAUSE_S = 0.002  # between adds that each meet a reader who waits


class RunTimes(NamedTuple):
    """What one run took."""

    rate: float  # entries a second, added, read and acked
    processor_us: float  # an entry, of all processes
    producer_us: float
    consumers_us: float


def run(bench: Bench) -> list[Result]:
    """Rates and processor time beside Redis; a hand-over alone."""
    count = bench.size(10_000, 3_000)
    results: list[Result] = []
    for consumers in CONSUMERS:
        ours: list[RunTimes] = []
        theirs: list[RunTimes] = []
        for number in range(bench.rounds):
            folder = bench.folder / f"live-{consumers}-{number}"
            ours.append(_ours(folder / "ours", consumers, count, 0))
            theirs.append(_redis(folder / "redis", consumers, count))
        results += _judged(consumers, ours, theirs)
    return results + _hand_over(bench)


def _judged(consumers: int, ours: list[RunTimes], theirs: list[RunTimes]) -> list[Result]:
    labels = ("logstore", "Redis")
    rates = [
        Sample(label, [each.rate for each in side])
        for label, side in zip(labels, (ours, theirs), strict=True)
    ]
    times = [
        Sample(label, [each.processor_us for each in side])
        for label, side in zip(labels, (ours, theirs), strict=True)
    ]
    what = f"one producer, {consumers} waiting consumer{'s' * (consumers > 1)} in processes"
    return [
        at_least(f"live: {what}", "entries/s", *rates, RATE_GOAL),
        at_most(
            f"live: processor time of all, {what}", "us an entry", *times, PROCESSOR_GOAL
        ),
    ]  # fmt: skip


def _hand_over(bench: Bench) -> list[Result]:
    """Adds with pauses: each of them meets a reader who waits."""
    count = bench.size(2_000, 300)
    found = [
        _ours(bench.folder / f"hand-{number}", 1, count, PAUSE_S) for number in range(bench.rounds)
    ]
    gives = Sample("add", [each.producer_us for each in found])
    takes = Sample("read and ack", [each.consumers_us for each in found])
    note = "processor time of the process that does it, its pauses and waits included"
    return [
        below("an add that hands over to who waits in another process", "us", gives, GIVE_US,
              note=note),
        below("a read and ack of who waited", "us", takes, TAKE_US, note=note),
    ]  # fmt: skip


def _ours(folder: Path, consumers: int, count: int, pause_s: float) -> RunTimes:
    with logstore.open(folder) as store:
        stream = store.stream(STREAM)
        group = stream.group(GROUP, start="0")

        def left() -> int:
            told = group.info()
            return (told.pending or 0) + (told.lag or 0)

        return _timed("ours", folder, consumers, count, stream.add, left, pause_s, None)


def _redis(folder: Path, consumers: int, count: int) -> RunTimes:
    with peer.unix_socket() as socket, peer.redis_server(folder, unix_socket=socket) as port:
        client = peer.connect_unix(socket)
        client.xgroup_create(STREAM, GROUP, "0", mkstream=True)

        def left() -> int:
            told = client.xinfo_groups(STREAM)[0]
            found: int = told["pending"] + (told["lag"] or 0)
            return found

        def add(fields: dict[str, Any]) -> object:
            return client.xadd(STREAM, fields)

        return _timed("redis", socket, consumers, count, add, left, 0, peer.process_of(port))


def _timed(
    side: str,
    place: Path,
    consumers: int,
    count: int,
    add: Callable[[dict[str, Any]], object],
    left: Callable[[], int],
    pause_s: float,
    server: int | None,
) -> RunTimes:
    drawn = random.Random(count)
    rows = [{"n": str(n), "body": "x" * drawn.randrange(10, 200)} for n in range(count)]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.live", side, str(place), f"c{number}"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for number in range(consumers)
    ]  # fmt: skip
    for each in running:
        assert each.stdout is not None
        each.stdout.readline()  # it is about to wait
    time.sleep(SETTLED_S)
    before_s, served_s, began_s = time.process_time(), _processor_s(server), time.perf_counter()
    for row in rows:
        add(row)
        if pause_s:
            time.sleep(pause_s)
    producer_s = time.process_time() - before_s
    while left():
        time.sleep(0.005)
    passed_s = time.perf_counter() - began_s
    told = [json.loads(each.communicate(timeout=60)[0].splitlines()[-1]) for each in running]
    consumers_s = sum(each["processor_s"] for each in told)
    assert sum(each["entries"] for each in told) == count
    spent_s = producer_s + consumers_s + _processor_s(server) - served_s
    return RunTimes(
        count / passed_s, *(each / count * 1e6 for each in (spent_s, producer_s, consumers_s))
    )


def _processor_s(process: int | None) -> float:
    """What a process has used so far; 0 of none."""
    if process is None:
        return 0.0
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def consume_ours(place: str, name: str, ready: Callable[[], None]) -> int:
    """Read and ack until nothing came for a while; how many."""
    with logstore.open(place, create=False) as store:
        group = store.stream(STREAM).group(GROUP)
        done = 0
        ready()
        while found := list(group.read(name, count=BATCH, timeout=OVER_S)):
            for each in found:
                each.ack()
            done += len(found)
    return done


def consume_redis(place: str, name: str, ready: Callable[[], None]) -> int:
    """The same from Redis."""
    client = peer.connect_unix(Path(place))
    client.ping()
    done = 0
    ready()
    block_ms = int(OVER_S * 1e3)
    while found := client.xreadgroup(GROUP, name, {STREAM: ">"}, count=BATCH, block=block_ms):
        for entry, _fields in found[0][1]:
            client.xack(STREAM, GROUP, entry)
        done += len(found[0][1])
    return done


def main(side: str, place: str, name: str) -> None:
    """Be one consumer; say what it took, from when it waits on."""
    began_s = 0.0

    def ready() -> None:
        nonlocal began_s
        print("ready", flush=True)
        began_s = time.process_time()

    entries = {"ours": consume_ours, "redis": consume_redis}[side](place, name, ready)
    print(json.dumps({"entries": entries, "processor_s": time.process_time() - began_s}))


if __name__ == "__main__":
    main(*sys.argv[1:])
