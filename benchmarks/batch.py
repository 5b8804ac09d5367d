"""``add_many`` of two fields against SQLite, given tuples; and with given IDs against without."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import logstore
from benchmarks import data
from benchmarks.harness import Bench, Result, Sample, at_least, at_most, below, fresh, interleave

NAME = "batch"
BATCH = 1000


def run(bench: Bench) -> list[Result]:
    """Rates of both, a commit for each 1000 rows."""
    count = bench.size(300_000, 100_000)
    database = data.database(bench.folder / "batch.db")
    insert = "INSERT INTO race (rider, speed) VALUES (?, ?)"
    with logstore.open(bench.folder / "batch") as store:
        stream = store.stream(data.STREAM)

        def ours(number: int) -> float:
            rows = data.rows(count, number)
            started = time.perf_counter()
            stream.add_many(rows, batch=BATCH)
            return count / (time.perf_counter() - started) / 1e6

        def peer(number: int) -> float:
            rows = [tuple(row.values()) for row in data.rows(count, number)]
            started = time.perf_counter()
            for first in range(0, count, BATCH):
                database.execute("BEGIN")
                database.executemany(insert, rows[first : first + BATCH])
                database.execute("COMMIT")
            return count / (time.perf_counter() - started) / 1e6

        labels = ("add_many of dicts", "SQLite executemany of tuples")
        samples = interleave(bench.rounds, ours, peer, labels)
    database.close()
    return [
        at_least("add_many of rows drawn at random", "M rows/s", *samples, 3.0),
        *given(bench),
        memory(bench),
    ]


def given(bench: Bench) -> list[Result]:
    """Processor time of a row whose ID is given, in each form, over that of a row without."""
    count = bench.size(200_000, 50_000)
    rows = data.rows(count)
    forms: dict[str, Callable[[int, int], object]] = {
        "(ms, seq)": lambda ms, seq: (ms, seq),
        "StreamID": logstore.StreamID,
        "str": lambda ms, seq: f"{ms}-{seq}",
        "bytes": lambda ms, seq: b"%d-%d" % (ms, seq),
        "'<ms>-*'": lambda ms, _: f"{ms}-*",
    }
    results: list[Result] = []
    with logstore.open(bench.folder / "given", sync="os") as store:
        for form, id in forms.items():
            plain, with_id = store.stream(f"no ID {form}"), store.stream(form)

            def ours(number: int, id: Any = id, stream: Any = with_id) -> float:
                first = 1_700_000_000_000 + (number + 1) * count * 7
                return _took_us([(id(first + 7 * n, n % 3), row) for n, row in enumerate(rows)],
                                stream)  # fmt: skip

            def peer(_: int, stream: Any = plain) -> float:
                return _took_us(rows, stream)

            labels = (f"ID as {form}", "no ID")
            samples = interleave(bench.rounds, ours, peer, labels)
            name = f"add_many with IDs given as {form}, over no IDs"
            results.append(at_most(name, "us of processor time a row", *samples, 2.0))
    return results


def _took_us(rows: list[Any], stream: Any) -> float:
    gc.collect()  # what the rows before left is not this one's to look through
    started = time.process_time()
    stream.add_many(rows, batch=BATCH)
    return (time.process_time() - started) / len(rows) * 1e6


def memory(bench: Bench) -> Result:
    """The most memory of a process that adds many rows with IDs, beside one that has none."""
    count = bench.size(10_000_000, 500_000)
    found = {
        ids: fresh("load_memory", bench.folder / f"load-{ids}", count, ids) for ids in ("1", "0")
    }
    ours, peer = (
        Sample(label, [found[ids]["peak_mib"]])
        for label, ids in (("given IDs", "1"), ("no IDs", "0"))
    )
    note = f"{count} rows; {found['1']['ids_mib']:.1f} MiB of it are the IDs that it returns"
    return below("VmHWM of a load with IDs", "MiB", ours, 150, peer, note)
