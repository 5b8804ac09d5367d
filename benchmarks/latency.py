"""The latency test of the streams documentation: from add to receipt, ten consumers in one group.

One producer adds 10,000 entries a second; ten processes read (``count`` 1, and 10,000) and ack;
once with nothing pending, once with a million entries that another consumer got and never acked.
Clocks are the machine's monotonic one, which all processes share. The same script runs against a
local Redis; the tables say how many entries came within each millisecond. What the machine itself
takes away is told below them: how often a loop a core that only looks at the clock was put off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from benchmarks import peer
from benchmarks.harness import ROOT, Bench, Result, Sample

NAME = "latency"
CONSUMERS = 10
RATE = 10_000
SLICE_S = 0.001
TARGET_SHARE = 0.999
PENDING = 1_000_000
PREPARED = 10_000  # entries delivered at once, of those that stay pending
ROWS_MS = 10  # told one by one; what came later, together
GATHER_S = 600.0
LOOK_S = 5.0
PUT_OFF_S = 0.001
_PREPARE = """
for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 't', '0') end
redis.call('XREADGROUP', 'GROUP', 'g', 'gone', 'COUNT', ARGV[1], 'STREAMS', KEYS[1], '>')
"""


class Received(NamedTuple):
    """What all consumers got."""

    by_ms: Counter[int]
    rate: float  # entries added a second: both cores are busy, and no peer reaches what is asked


def run(bench: Bench) -> list[Result]:
    """The share of entries received within two milliseconds."""
    entries = bench.size(100_000, 5_000)
    results: list[Result] = []
    with peer.redis_server(bench.folder / "redis") as port:
        for count in (1, 10_000):
            for pending in (0, bench.size(PENDING, 20_000)):
                name = f"count={count}, {pending:,} pending"
                ours = _ours(bench.folder / f"latency-{count}-{pending}", count, pending, entries)
                theirs = _theirs(port, f"s{count}-{pending}", count, pending, entries)
                _table(name, ours, theirs)
                share, other = _share(ours.by_ms), _share(theirs.by_ms)
                results.append(Result(
                    f"within 2 ms, {name}", "share", Sample("logstore", [share]),
                    Sample("Redis", [other]), share, f">= {TARGET_SHARE}", share >= TARGET_SHARE,
                ))  # fmt: skip
    _interruptions()
    return results


def _interruptions() -> None:
    """How often nothing but the machine puts off who runs, on all cores at once."""
    cores = len(os.sched_getaffinity(0))
    loops = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.latency", "loop"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(cores)
    ]  # fmt: skip
    gaps_s = sorted(gap for loop in loops for gap in json.loads(loop.communicate()[0]))
    print(
        f"\n{cores} loops that only look at the clock were put off for over "
        f"{PUT_OFF_S * 1e3:g} ms {len(gaps_s) / LOOK_S:g} times a second, at most for "
        f"{max(gaps_s, default=0.0) * 1e3:.1f} ms"
    )


def long_gaps() -> list[float]:
    """The gaps between two looks at the clock that are too long."""
    gaps_s: list[float] = []
    last = time.monotonic()
    end = last + LOOK_S
    while last < end:
        now = time.monotonic()
        if now - last > PUT_OFF_S:
            gaps_s.append(now - last)
        last = now
    return gaps_s


def _table(name: str, *received: Received) -> None:
    ours, theirs = [each.by_ms for each in received]
    print(f"\nadd to receipt, {name}: % of entries")
    print("      ms   logstore     Redis")
    for ms in range(ROWS_MS):
        left, right = (100 * each[ms] / each.total() for each in (ours, theirs))
        print(f"{ms:4}-{ms + 1:<4} {left:9.3f} {right:9.3f}")
    late = (sum(each[ms] for ms in each if ms >= ROWS_MS) for each in (ours, theirs))
    left, right = (
        100 * count / each.total() for count, each in zip(late, (ours, theirs), strict=True)
    )
    print(f"{'later':9} {left:9.3f} {right:9.3f}")
    print(f"{'latest ms':9} {max(ours):9} {max(theirs):9}")
    rates = [each.rate for each in received]
    print(f"{'added/s':9} {rates[0]:9,.0f} {rates[1]:9,.0f}   asked {RATE:,}", flush=True)


def _share(found: Counter[int]) -> float:
    return (found[0] + found[1]) / found.total()


def _consumers(arguments: list[str]) -> list[subprocess.Popen[str]]:
    made = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.latency", *arguments, f"c{number}"],
            cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
        )
        for number in range(CONSUMERS)
    ]  # fmt: skip
    for each in made:
        assert each.stdout is not None
        each.stdout.readline()  # it is about to read
    return made


def _gather(consumers: list[subprocess.Popen[str]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for each in consumers:
        out, _ = each.communicate(timeout=GATHER_S)
        total.update({int(ms): number for ms, number in json.loads(out).items()})
    return total


def _produce(entries: int, add: Any) -> float:
    """Add at an even rate; who falls behind catches up. The rate that was reached."""
    began = time.monotonic()
    for number in range(entries):
        due = began + number / RATE
        while time.monotonic() < due:
            time.sleep(max(0.0, min(SLICE_S, due - time.monotonic())))
        add(time.monotonic_ns())
    return entries / (time.monotonic() - began)


def _ours(path: Path, count: int, pending: int, entries: int) -> Received:
    with logstore.open(path, sync="everysec") as store:
        stream = store.stream("s")
        group = stream.group("g", start="0")
        for first in range(0, pending, PREPARED):
            stream.add_many([{"t": "0"}] * min(PREPARED, pending - first))
            group.read("gone")
        consumers = _consumers(["ours", str(path), str(count)])
        rate = _produce(entries, lambda now: stream.add({"t": now}))
        for _ in range(CONSUMERS):
            stream.add({"t": "stop"})
        return Received(_gather(consumers), rate)


def _theirs(port: int, key: str, count: int, pending: int, entries: int) -> Received:
    client = peer.connect(port)
    client.xgroup_create(key, "g", "0", mkstream=True)
    prepare = client.register_script(_PREPARE)
    for first in range(0, pending, PREPARED):
        prepare(keys=[key], args=[min(PREPARED, pending - first)])
    assert client.xpending(key, "g")["pending"] == pending
    consumers = _consumers(["theirs", str(port), str(count), key])
    rate = _produce(entries, lambda now: client.xadd(key, {"t": now}))
    for _ in range(CONSUMERS):
        client.xadd(key, {"t": "stop"})
    return Received(_gather(consumers), rate)


def consume_ours(path: str, count: int, name: str) -> Counter[int]:
    """Read and ack until told to stop."""
    found: Counter[int] = Counter()
    with logstore.open(path, sync="everysec", create=False) as store:
        group = store.stream("s").group("g")
        print("ready", flush=True)
        stops = 0
        while not stops:
            batch = group.read(name, count=count, timeout=1.0)
            now = time.monotonic_ns()
            for each in batch:
                assert each.fields is not None
                stops += _note(found, each.fields[b"t"], now)
            if batch:
                group.ack(*[each.id for each in batch])
        for _ in range(stops - 1):
            store.stream("s").add({"t": "stop"})
    return found


def consume_theirs(port: str, count: int, key: str, name: str) -> Counter[int]:
    """The same from Redis."""
    found: Counter[int] = Counter()
    client = peer.connect(int(port))
    print("ready", flush=True)
    stops = 0
    while not stops:
        reply = client.xreadgroup("g", name, {key: ">"}, count=count, block=1000)
        now = time.monotonic_ns()
        batch = reply[0][1] if reply else []
        for _, fields in batch:
            stops += _note(found, fields[b"t"], now)
        if batch:
            client.xack(key, "g", *[id for id, _ in batch])
    for _ in range(stops - 1):
        client.xadd(key, {"t": "stop"})
    return found


def _note(found: Counter[int], sent: bytes, now: int) -> int:
    if sent == b"stop":
        return 1
    found[(now - int(sent)) // 1_000_000] += 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "loop":
        print(json.dumps(long_gaps()))
        sys.exit()
    side, place, how_many, *rest = sys.argv[1:]
    received = (
        consume_ours(place, int(how_many), rest[0])
        if side == "ours"
        else consume_theirs(place, int(how_many), *rest)
    )
    print(json.dumps(received))
