"""Reading and acknowledging in a group, against redis-py on a local Redis (everysec).

And autoclaim of 100 idle entries among more and more pending ones, which must not grow.
"""

from __future__ import annotations

import statistics
import time
from datetime import timedelta

import logstore
from benchmarks import data, peer
from benchmarks.harness import Bench, Result, Sample, at_least, below, interleave

NAME = "groups"
BATCH = 100
LABELS = ("group.read + ack", "XREADGROUP + XACK")


def run(bench: Bench) -> list[Result]:
    """Entries a second, read and acknowledged; milliseconds of an autoclaim."""
    results: list[Result] = []
    with peer.redis_server(bench.folder / "redis") as port:
        results.append(_pairs(bench, port, 1, bench.size(5_000, 2_000), 4.0))
        results.append(_pairs(bench, port, BATCH, bench.size(50_000, 20_000), 3.0))
    return results + _autoclaim(bench)


def _pairs(bench: Bench, port: int, batch: int, count: int, target: float) -> Result:
    client = peer.connect(port)
    key = f"s{batch}"
    row = {"rider": "Castilla", "speed": "30.2"}
    client.xgroup_create(key, "g", "0", mkstream=True)
    with logstore.open(bench.folder / f"groups-{batch}", sync="everysec") as store:
        stream = store.stream(data.STREAM)
        group = stream.group("g", start="0")

        def ours(_: int) -> float:
            stream.add_many([row] * count)
            started = time.perf_counter()
            done = 0
            while done < count:
                found = group.read("c", count=batch)
                done += group.ack(*[each.id for each in found])
            return count / (time.perf_counter() - started)

        def theirs(_: int) -> float:
            pipe = client.pipeline(transaction=False)
            for _number in range(count):
                pipe.xadd(key, row)
            pipe.execute()
            started = time.perf_counter()
            done = 0
            while done < count:
                found = client.xreadgroup("g", "c", {key: ">"}, count=batch)
                done += client.xack(key, "g", *[id for id, _fields in found[0][1]])
            return count / (time.perf_counter() - started)

        samples = interleave(bench.rounds, ours, theirs, LABELS)
    what = "one by one" if batch == 1 else f"batches of {batch}"
    return at_least(f"group read + ack, {what}", "entries/s", *samples, target)


def _autoclaim(bench: Bench) -> list[Result]:
    """100 entries that idled, among few and among many pending ones."""
    results: list[Result] = []
    for pending in (bench.size(10_000, 10_000), bench.size(1_000_000, 100_000)):
        with logstore.open(bench.folder / f"autoclaim-{pending}", sync="os") as store:
            stream = store.stream(data.STREAM)
            group = stream.group("g", start="0")
            stream.add_many([{"n": "1"}] * pending)
            while group.read("c", count=1000):
                pass
            taken: list[float] = []
            for _ in range(5 * bench.rounds):
                time.sleep(0.01)
                started = time.perf_counter()
                found = group.autoclaim("d", min_idle=timedelta(milliseconds=5), count=100)
                taken.append((time.perf_counter() - started) * 1e3)
                assert len(found.entries) == 100
        sample = Sample(f"{pending} pending", [statistics.median(taken), *taken])
        results.append(below(f"autoclaim of 100 of {pending:,}", "ms", sample, 2.0))
    return results
