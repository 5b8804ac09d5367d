"""``make demo``: the main job on real input, and whether all of it was right.

336,776 flights and 26,115 hours of weather go in; the loader is killed half-way and resumes;
entries are deleted, erased, trimmed, and the store compacted; Spark and pandas must agree on what
is left. A streaming query copies it, is killed, and goes on; Spark, DuckDB and Polars must say the
same of the copy. Exit code 1 if anything is not as it must be. Safe to run again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from logstore.api.store import open_store
from logstore.codec import codec_name
from logstore.errors import Error
from logstore.recovery import check
from logstore.tools.command_options import pass_output
from logstore.tools.command_output import EXIT_ERROR, Output
from tests.demo import data as demo_data
from tests.demo import load as demo_load
from tests.demo import of_spark as demo_spark
from tests.demo import pipeline as demo_pipeline
from tests.demo.data import StreamRows
from tests.demo.forget import Forgetting, ForgettingStep
from tests.demo.load import DemoError

MIB = 1 << 20
READERS = {"jvm": "the JVM", "python": "Python"}


class Demo:
    """One run: what it says, and the numbers that it gathers for the table at the end."""

    def __init__(self, output: Output, home: Path, every: int) -> None:
        self.output = output
        self.store = home / "store"
        self.flown = home / "flown"
        self.scratch = home / "spark"
        self.every = every
        self.full_bytes = 0
        self.rates: list[tuple[str, str, str]] = []

    def say(self, text: str) -> None:
        """One line, at once."""
        self.output.line(text)
        self.output.flush()

    def rate(self, what: str, entries: int, seconds: float) -> None:
        """A row of the table: how fast a step was."""
        speed = f"{entries / seconds:,.0f} entries/s" if entries and seconds else ""
        self.rates.append((what, f"{seconds:.1f} s", speed))

    @contextmanager
    def timed(self, what: str, entries: int) -> Iterator[None]:
        """Time a step for the table."""
        started = time.monotonic()
        yield
        self.rate(what, entries, time.monotonic() - started)

    def fresh(self) -> None:
        """An empty place."""
        for folder in (self.store, self.flown, self.scratch):
            shutil.rmtree(folder, ignore_errors=True)
        self.store.parent.mkdir(parents=True, exist_ok=True)

    def load(self) -> list[StreamRows]:
        """Load, kill half-way, recover, resume; every row of the CSV once."""
        streams = demo_data.read_all(self.every)
        total = sum(map(len, streams))
        parts = ", ".join(f"{rows.name} {len(rows):,}" for rows in streams)
        self.say(f"{total:,} rows of {demo_data.PACKAGE}: {parts}")
        first = demo_load.run_loader(self.store, self.every, kill_at=total // 2)
        with open_store(self.store, encoding="utf-8", create=False) as store:
            found = sum(demo_load.check_after_kill(store, streams, first).values())
            torn = store.recovery["torn_bytes"]
        self.say(
            f"The loader was killed (SIGKILL) after it acknowledged {first.total:,}; recovered: "
            f"{found:,} are there, none lost, none doubled; {torn:,} bytes set aside"
        )
        second = demo_load.run_loader(self.store, self.every)
        loaded, seconds = first.added + second.added, first.seconds + second.seconds
        self.rate("load, 1000 entries a commit", loaded, seconds)
        with self.timed("read back, compare with the CSV", total):
            demo_load.compare(self.store, streams)
        self.say(f"It resumed from last_id: all {total:,} rows are there, each once, byte for byte")
        return streams

    def forget(self, streams: list[StreamRows]) -> list[StreamRows]:
        """Delete, erase and trim; what is left."""
        forgetting = Forgetting(self.store, streams, self._tell)
        largest = forgetting.largest.items()
        names = ", ".join(f"{' and '.join(carriers)} at {name[-3:]}" for name, carriers in largest)
        self.say(f"\nThe two largest carriers are {names}.")
        self.say(f"{'':30}{'removed':>9}{'entries':>9}{'bytes':>12}{'s':>6}")
        steps = forgetting.run()
        removed = sum(step.removed for step in steps)
        self.rate("delete and trim", removed, sum(step.seconds for step in steps if step.removed))
        compacting = [step for step in steps if "compacted" in step.what]
        seconds = sum(step.seconds for step in compacting)
        self.rate("compact, three times", sum(step.entries for step in compacting), seconds)
        self.full_bytes = steps[0].disk_bytes
        demo_load.compare(self.store, forgetting.left)
        checked = check.check(self.store)
        if checked.damage or checked.tail_bytes:
            raise DemoError(f"the store is not clean: {checked.as_dict()}")
        self.say(
            f"What is left is what the CSV says, byte for byte; `logstore check` is clean; of "
            f"{forgetting.probes} tail numbers that only erased flights had, none is in any file"
        )
        return forgetting.left

    def _tell(self, step: ForgettingStep) -> None:
        self.say(
            f"{step.what:30}{step.removed:9,}{step.entries:9,}{step.disk_bytes:12,}"
            f"{step.seconds:6.1f}"
        )

    def ask(self, left: list[StreamRows]) -> None:
        """The same question to Spark and to pandas."""
        flights = demo_data.flights_of(left)
        with self.timed("pandas, from the CSV", sum(map(len, flights))):
            wanted = demo_spark.means_of_pandas(self.every)
        with self.timed("Spark starts", 0):
            spark = demo_spark.session(self.scratch)
        try:
            means = {each: self._means(spark, flights, each) for each in demo_spark.readers()}
            self._stream(spark, flights)
        finally:
            spark.stop()
        self.say(f"\nMean departure delay of {len(wanted)} carriers and months:")
        for reader, found in means.items():
            worst = demo_spark.compare(found, wanted)
            self.say(
                f"Spark, read by {READERS[reader]}, and pandas agree (largest difference "
                f"{worst:.1e}): OK"
            )
        if "jvm" not in means:
            self.say("The reader in the JVM was not asked: `make jar` makes it, where a JDK is")
        for who, means in demo_pipeline.answers(self.flown).items():
            worst = demo_spark.compare(means, wanted)
            self.say(f"{who}, of what was streamed, agrees (largest difference {worst:.1e}): OK")

    def _means(self, spark: Any, flights: list[StreamRows], reader: str) -> demo_spark.Means:
        """What Spark answers by a reader, asked twice."""
        names = [rows.name for rows in flights]
        found: demo_spark.Means = {}
        for what in ("the first query", "again"):
            with self.timed(f"Spark by {READERS[reader]}, {what}", sum(map(len, flights))):
                found = demo_spark.means_of_spark(spark, self.store, names, reader)
        return found

    def _stream(self, spark: Any, flights: list[StreamRows]) -> None:
        """The flights through a streaming query that is killed; the means of what it wrote."""
        rows = sum(map(len, flights))
        open_store(self.flown).close()
        with self.timed("Spark streams, until it is killed", 0):
            before = demo_pipeline.run_and_kill(self.store, self.flown, self.scratch, rows)
        with self.timed("Spark goes on from its checkpoint", rows - before):
            demo_pipeline.go_on(spark, self.store, self.flown, self.scratch, rows)  # one batch
        demo_pipeline.check_copy(self.flown, flights)
        with self.timed("Spark writes the means", 0):
            demo_pipeline.write_means(spark, self.flown)
        self.say(
            f"\nA streaming query was killed (SIGKILL) after {before:,} of {rows:,} flights, and "
            "went on: each is there once"
        )

    def summary(self, left: list[StreamRows], seconds: float) -> None:
        """The table at the end."""
        with open_store(self.store, readonly=True, create=False) as store:
            info = store.info()
        self.say("")
        self.output.table(("rates", "time", "rate"), self.rates)
        self.say("")
        sizes: list[tuple[str, Any]] = [
            ("CSV, unpacked", f"{demo_data.csv_bytes() / MIB:.1f} MiB"),
            ("the store, with all of it", f"{self.full_bytes / MIB:.1f} MiB"),
            ("the store at the end", f"{info.disk_bytes / MIB:.1f} MiB"),
            ("its nodes", f"{info.live_bytes / MIB:.1f} MiB"),
            ("its segments", info.segments),
            ("its entries", sum(map(len, left))),
            ("codec", codec_name()),
            ("the whole demo", f"{seconds:.0f} s"),
        ]
        self.output.table(("sizes", ""), sizes)


def run(demo: Demo, with_spark: bool) -> None:
    """All of it; DemoError if something is not as it must be."""
    started = time.monotonic()
    demo.fresh()
    left = demo.forget(demo.load())
    if with_spark:
        demo.ask(left)
    demo.summary(left, time.monotonic() - started)


@click.command()
@click.option("--home", type=click.Path(path_type=Path), default=Path("build/demo"))
@click.option("--every", type=click.IntRange(min=1), default=1, help="Each so many-th row only.")
@click.option("--spark/--no-spark", "with_spark", default=True)
@pass_output
def main(output: Output, home: Path, every: int, with_spark: bool) -> None:
    """Load, kill, resume, delete, erase, trim, compact, ask Spark; compare all with the CSV."""
    try:
        run(Demo(output, home, every), with_spark)
    except (DemoError, Error, ModuleNotFoundError) as error:
        output.flush()
        output.error(error)
        raise SystemExit(EXIT_ERROR) from error


if __name__ == "__main__":
    main()
