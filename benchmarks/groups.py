"""autoclaim of 100 idle entries among more and more pending ones, which must not grow.

What a read and its ack take is in ``workloads``, ``calls`` and ``live``.
"""

from __future__ import annotations

import statistics
import time
from datetime import timedelta

import logstore
from benchmarks import data
from benchmarks.harness import Bench, Result, Sample, below

NAME = "groups"


def run(bench: Bench) -> list[Result]:
    """Milliseconds of an autoclaim of 100 entries that idled, among few and many pending ones."""
    results: list[Result] = []
    for pending in (bench.size(10_000, 10_000), bench.size(1_000_000, 100_000)):
        with logstore.open(bench.folder / f"autoclaim-{pending}", sync="os") as store:
            stream = store.stream(data.STREAM)
            group = stream.group("g", start="0")
            stream.add_many(data.streamed(pending))
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
