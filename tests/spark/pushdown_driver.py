"""A session that asks for parts of loads: python -m tests.spark.pushdown_driver FOLDER

Prints the answers of `CHECKS`, as JSON; `test_pushdown` looks at them. What is expected is what
Spark itself makes of all rows, read once by the Python source.
"""

from __future__ import annotations

import json
import os
import random
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests.scan.scanned_stores import make_store, seal_with_statistics
from tests.spark import conftest
from tests.spark.pushdown_loads import load_kinds, orders, places

BEGIN_MS = 1_760_000_000_000
KEPT = (
    "n int?, v double?, s string?, b bool?, d date?, t timestamp?, m decimal(8,2)?, w long?, z int"
)
TYPED = (
    "stream string, id string, ms bigint, seq bigint, ts timestamp, id_key binary, store string, "
    "n int, v double, s string, b boolean, d date, t timestamp, m decimal(8,2), w bigint"
)
ODD = b"\xe0\xa0odd\xff"  # as text it has characters that stand for what is none
FAR_MS = (0, 1, 253402300799999, 253402300800000, 2**63 - 1, 2**63, 2**64 - 1)
ENTRIES = 240
FILTERS = 90


def row(at: int) -> dict[str, Any]:
    """Columns of an entry; some are missing, and some repeat."""
    found: dict[str, Any] = {
        "z": 0,
        "n": at - 100,
        "v": (at - 50) / 8 if at % 11 else "nan",
        "s": f"s{at % 37:02}é",
        "b": "true" if at < 90 else "false",
        "d": f"2026-{1 + at // 24:02}-{1 + at % 28:02}",
        "t": f"2026-03-01 {at % 24:02}:00:00.{at:06}Z",
        "m": f"{at - 120}.25",
        "w": at * 10**12,
    }
    kept = {name: value for name, value in found.items() if name == "z" or (at + ord(name)) % 7}
    return kept | {name: found[name] for name in "nsb" if at % 5}


def fill(folder: Path) -> None:
    """Two stores: typed streams with statistics, others without, IDs of all sizes."""
    for name in ("one", "two"):
        with make_store(folder / name, background=False) as store:
            laps = store["laps"]
            laps.configure(schema=KEPT)
            for at in range(ENTRIES):
                laps.add(row(at), id=f"{BEGIN_MS + at // 3 * 500}-{at % 3}")
            seal_with_statistics(store)
            gone = [f"{BEGIN_MS + at // 3 * 500}-{at % 3}" for at in (0, 1, 50, 51, 52, 53, 239)]
            if name == "one":
                laps.delete(*gone)
            far = store["far"]
            for at, ms in enumerate(FAR_MS):
                far.add({"n": at}, id=f"{ms}-{2**64 - 1}")
            store[ODD].add_many(({"n": at, "v": "x"} for at in range(10)), batch=3)
            store["single"].add({"n": 1}, id=f"{BEGIN_MS - 9}-0")
            store["gone"].add({"n": 1})
            store["gone"].trim(max_entries=0, approximate=False)


# Between two milliseconds, at one, and at one of its ends.
EDGES = [
    f"ts {sign} timestamp_micros({(BEGIN_MS + 500) * 1000 + more})"
    for sign in ("<", "<=", "=", ">", ">=", "!=")
    for more in (0, 1)
]


class Filters:
    """Draws conditions."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def condition(self, depth: int = 2) -> str:
        """A condition of SQL."""
        draw = self.draw
        if depth and draw.random() < 0.6:
            parts = [self.condition(depth - 1) for _ in range(draw.choice((2, 2, 3)))]
            found = draw.choice((" and ", " or ")).join(f"({each})" for each in parts)
            return f"not ({found})" if draw.random() < 0.25 else found
        return draw.choice([self.test_of_id, self.test_of_id, self.test_of_field])()

    def test_of_id(self) -> str:
        """A test of a column that tells of ID or stream."""
        name = self.draw.choice(("ms", "ts", "id_key", "id", "stream", "seq", "store"))
        return self.tested(name, lambda: self.of_id(name))

    def test_of_field(self) -> str:
        """A test of a field."""
        name = self.draw.choice(("n", "v", "s", "b", "d", "t", "m", "w"))
        return self.tested(name, lambda: self.of_field(name))

    def tested(self, name: str, value: Any) -> str:
        """A test of a column with values of its type."""
        draw = self.draw
        kind = draw.random()
        if kind < 0.08:
            return f"{name} is {draw.choice(('', 'not '))}null"
        if kind < 0.25:
            values = [value() for _ in range(draw.randint(1, 4))]
            values += ["null"] if draw.random() < 0.2 else []
            return f"{name} {draw.choice(('', 'not '))}in ({', '.join(values)})"
        if kind < 0.3:
            return f"{name} <=> {draw.choice((value(), 'null'))}"
        if kind < 0.35:
            return f"{value()} {draw.choice(('<', '>='))} {name}"
        return f"{name} {draw.choice(('=', '!=', '<', '<=', '>', '>='))} {value()}"

    def of_id(self, name: str) -> str:
        """A literal for one of the columns of IDs and streams."""
        draw = self.draw
        near = [BEGIN_MS + draw.randrange(-900, 41000) for _ in range(3)]
        there = [BEGIN_MS + draw.randrange(ENTRIES // 3) * 500 for _ in range(6)]
        ms = draw.choice((*FAR_MS[:5], *near, *there))
        seq = draw.choice((0, 1, 2, 2**64 - 1))
        if name == "ms":
            return draw.choice((f"{ms}L", f"{ms}L", f"{ms}", f"{ms}.5", "-1"))
        if name == "seq":
            return str(min(seq, 2**63 - 1))
        if name == "ts":
            micros = min(ms, FAR_MS[2]) * 1000 + draw.choice((0, 0, 1, 999, -1))
            return f"timestamp_micros({micros})"
        if name == "id":
            return draw.choice(
                (f"'{ms}-{seq}'", f"'{ms}-{seq % 3}'", f"'0{ms}-0'", "'x'", f"'{ms}'")
            )
        if name == "id_key":
            key = f"{ms:016x}{seq:016x}"
            return f"X'{key[: draw.choice((32, 32, 16, 0, 14))]}{draw.choice(('', '', '00'))}'"
        if name == "stream":
            return draw.choice(("'laps'", "'far'", "'none'", f"'{ODD.decode(errors='replace')}'"))
        return draw.choice(("'one'", "concat('o', 'ne')"))

    def of_field(self, name: str) -> str:
        """A literal for one of the fields."""
        draw = self.draw
        at = draw.randrange(-20, ENTRIES + 20)
        return {
            "n": lambda: draw.choice((str(at - 100), f"{at}.5", f"{at}L")),
            "v": lambda: draw.choice((f"{(at - 50) / 8}D", "double('NaN')", "-0.0D", f"{at}")),
            "s": lambda: draw.choice((f"'s{abs(at) % 37:02}é'", "''", "'s1'", f"'{'z' * 70}'")),
            "b": lambda: draw.choice(("true", "false")),
            "d": lambda: f"date '2026-{1 + abs(at) // 24:02}-{1 + abs(at) % 28:02}'",
            "t": lambda: f"timestamp '2026-03-01 {abs(at) % 24:02}:00:00.{abs(at):06}Z'",
            "m": lambda: draw.choice((f"{at - 120}.25", f"{at}", f"{at}.255")),
            "w": lambda: draw.choice((f"{at * 10**12}L", f"{at}")),
        }[name]()


class Driver:
    """A session, and the stores that it reads."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder = folder
        self.spark = spark

    def load(self, schema: str = TYPED, **options: Any) -> Any:
        """All streams of both stores."""
        reader = self.spark.read.format("logstore").schema(schema)
        paths = [str(self.folder / each) for each in ("one", "two")]
        if "path" in options:
            path = options.pop("path")
            paths = path if isinstance(path, list) else [path]
        return reader.options(**{"reader": "jvm", "streams": "*"} | options).load(paths)

    def plan(self, frame: Any) -> str:
        """The physical plan."""
        with redirect_stdout(StringIO()) as told:
            frame.explain()
        return told.getvalue()

    def differing(self, conditions: list[str], **options: str) -> list[str]:
        """Those of some conditions for which a load gives other rows than it should."""
        frame = self.load(**options)
        frame.createOrReplaceTempView("ours")
        expected = self.load(**options | {"reader": "python"}).cache()
        expected.createOrReplaceTempView("theirs")
        select = "select stream, id, store, n from {} where {} "
        found: list[str] = []
        for each in conditions:
            here, there = (
                sorted(map(str, self.spark.sql(select.format(table, each)).collect()))
                for table in ("ours", "theirs")
            )
            if here != there:
                found.append(f"{each}: {len(here)}, not {len(there)}")
        expected.unpersist()
        return found

    def filters(self) -> dict[str, list[str]]:
        """Random conditions, of loads of several kinds."""
        drawn = Filters(int(os.environ.get("LOGSTORE_TEST_SEED", "7")))
        loads: dict[str, dict[str, str]] = {
            "all": {},
            "some": {"startId": f"{BEGIN_MS + 5000}-1", "endId": f"{BEGIN_MS + 30000}-1"},
            "dropped": {"mode": "DROPMALFORMED", "minPartitions": "7"},
        }
        return {
            name: self.differing(
                [*EDGES, *(drawn.condition() for _ in range(FILTERS // 3))], **each
            )
            for name, each in loads.items()
        }

    def tables(self, **options: Any) -> None:
        """The views ``ours`` and ``theirs`` of a load."""
        self.load(**options).createOrReplaceTempView("ours")
        theirs = self.load(**options | {"reader": "python"}).cache()
        theirs.createOrReplaceTempView("theirs")

    def filters_of(self, seed: int) -> Filters:
        """Conditions that a seed draws."""
        return Filters(seed)

    def asked(self, query: str) -> tuple[list[str], list[str], bool]:
        """The rows of a query, those that it should have, and whether a task was needed."""
        frame = self.spark.sql(query.format("ours"))
        here = list(map(str, frame.collect()))
        there = list(map(str, self.spark.sql(query.format("theirs")).collect()))
        return here, there, "LocalTableScan" not in self.plan(frame)

    def aggregates(self) -> dict[str, Any]:
        """Aggregates of all that is there and of parts, and which of them needed no tasks."""
        ids = Filters(11)
        some = ["true", f"ms >= {BEGIN_MS + 3000}", "stream = 'laps'", "stream = 'gone'"]
        some += [ids.test_of_id() for _ in range(4)]
        found: dict[str, Any] = {"wrong": [], "without_tasks": []}
        loads: list[dict[str, str]] = [
            {},
            {"streams": "laps,gone,single"},
            {"mode": "DROPMALFORMED"},
        ]
        for options in loads:
            self.tables(**options)
            for functions in (
                "count(*)",
                "count(*), min(ms), max(ms), min(ts), max(ts), min(id_key), max(id_key)",
                "stream, count(*)",
                "stream, max(ts), min(id_key)",
            ):
                by = " group by stream order by stream" if functions[0] == "s" else ""
                for each in some:
                    query = f"select {functions} from {{}} where {each}{by}"
                    here, there, has_task = self.asked(query)
                    if here != there:
                        found["wrong"].append([query, options, here, there])
                    if each == some[1] and not has_task:
                        found["without_tasks"].append([functions, *options.values()])
        return found

    def tops(self) -> list[Any]:
        """First rows by order, and limits, that are not what they should be."""
        found: list[Any] = []
        ids = Filters(12)
        orders = (
            ("id_key, stream", "id_key desc, stream, store"),
            ("ms, seq", "ms, seq"),
            ("ms", "ms desc"),
            ("ms", "ms desc nulls first"),
            ("ts, n", "ts desc, n"),
            ("ts", "ts nulls last"),
            ("n", "n"),
        )
        loads: list[dict[str, str]] = [{}, {"streams": "laps", "minPartitions": "9"}]
        for options in loads:
            self.tables(**options)
            for columns, order in orders:
                for limit in (1, 7):
                    where = ids.draw.choice(("true", ids.test_of_id()))
                    query = (
                        f"select {columns} from {{}} where {where} order by {order} limit {limit}"
                    )
                    here, there, _ = self.asked(query)
                    if here != there:
                        found.append([query, options, here, there])
            for limit in (1, 300):
                here, there, _ = self.asked(
                    f"select count(*) from (select * from {{}} where ms > 9 limit {limit})"
                )
                if here != there:
                    found.append([limit, here, there])
        return found

    def read(self, frame: Any) -> dict[str, int]:
        """What Spark's metrics say of a query."""
        frame.collect()
        plan = frame._jdf.queryExecution().executedPlan()
        if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            plan = plan.executedPlan()
        metrics = plan.collectLeaves().head().metrics()
        names = ("nodesRead", "nodesSkipped", "bytesRead", "rowsRead")
        return {name: metrics.apply(name).value() for name in names}

    def metrics(self) -> dict[str, dict[str, int]]:
        """What is read of one stream."""
        frame = self.load(path=str(self.folder / "two"), streams="laps", minPartitions="1")
        return {
            "all": self.read(frame),
            "range": self.read(frame.where(f"ms between {BEGIN_MS + 5000} and {BEGIN_MS + 6000}")),
            "field": self.read(frame.where("n >= 0 and n < 8")),
            "either": self.read(frame.where("n = 100 or s = 's07é'")),
            "limit": self.read(frame.limit(1)),
            "top": self.read(frame.orderBy("id_key").limit(3)),
            "last": self.read(frame.orderBy(frame.ts.desc()).limit(3)),
            "none": self.read(frame.where("stream = 'other'")),
            "apart": self.read(self.wide().where("ms in (1, 17)")),
        }

    def wide(self) -> Any:
        """Nodes of 40 KiB, each of four entries."""
        path = str(self.folder / "wide")
        with make_store(path, segment_bytes=1 << 22) as store:
            for at in range(40):
                store["laps"].add({"s": f"{at:010240}"}, id=f"{at}-1")
        return self.load(path=path, minPartitions="1")

    def joins(self) -> str:
        """The plan of a join with a small part of a load: Spark knows that it is small."""
        small = self.load("ms bigint, n bigint", streams="laps").where("ms < 9")
        return self.plan(self.spark.range(10**9).withColumnRenamed("id", "n").join(small, "n"))

    def plans(self) -> list[str]:
        """What plans say of what was pushed down."""
        frame = self.load(streams="laps")
        first = frame.where("ms > 5 and n > 7"), frame.limit(2), frame.orderBy("id_key").limit(1)
        return [self.plan(each) for each in first]

    def moments(self) -> list[int]:
        """Queries of one load, of which one comes after an entry; and as of a moment."""
        path = str(self.folder / "grows")
        with make_store(path) as store:
            store["laps"].add_many(({"n": at} for at in range(20)), batch=3)
        frame = self.load(path=path)
        found = [frame.where("n >= 10").count()]
        with make_store(path) as store:
            store["laps"].add({"n": 30})
        later = frame.where("ms > 0").count(), frame.where("n >= 10").count(), frame.count()
        last = frame.where("n >= 10").orderBy(frame.ms.desc(), frame.seq.desc()).first().n
        return [*found, *later, last, self.load(path=path).where("n >= 10").count()]


CHECKS = (
    Driver.filters, Driver.aggregates, Driver.tops, Driver.metrics, Driver.plans, Driver.joins,
    Driver.moments, load_kinds, orders, places,
)  # fmt: skip


def main(folder: str, *names: str) -> None:
    """Make the stores, and ask what is named, or everything."""
    from logstore.spark_io import jar

    path = Path(folder)
    fill(path)
    spark = conftest.session(jar())
    # Spark asks the least and most of what it keeps in memory, and loses NaN by that.
    spark.conf.set("spark.sql.inMemoryColumnarStorage.partitionPruning", "false")
    driver = Driver(path, spark)
    found: dict[str, Any] = {"version": spark.version}
    for check in CHECKS:
        if names and check.__name__ not in names:
            continue
        try:
            found[check.__name__] = check(driver)
        except Exception as error:  # noqa: BLE001  (the other checks are made)
            found[check.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
