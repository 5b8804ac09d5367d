"""What a session asks of loads of all kinds, of their order, and of where entries lie.

The checks of `pushdown_driver`, which hands itself over; `test_pushdown` looks at the answers.
"""

from __future__ import annotations

import re
from typing import Any

from logstore import format as fmt
from logstore.api.opening import opened_of
from logstore.codec.node_list import read_item
from logstore.scan import snapshot_file, split_plan
from tests.recovery.shipped import ship
from tests.scan.scanned_stores import make_store

QUERIES = (
    "select count(*), min(ms), max(ms), min(id_key), max(id_key) from {} where stream = 'laps'",
    "select stream, count(*) from {} group by stream order by stream",
    "select stream, max(ts) from {} where stream != 'far' group by stream order by stream",
    "select id_key, stream from {} order by id_key desc, stream, id limit 5",
    "select id from {} where stream = 'laps' order by ts, id limit 3",
    "select count(*) from (select * from {} where ms > 9 limit 7)",
)


def load_kinds(driver: Any) -> dict[str, Any]:
    """Queries of loads of all kinds that differ from those of the Python source, and how many were
    answered by the plan."""
    one, two, away = (str(driver.folder / name) for name in ("one", "two", "away"))
    with make_store(one) as store:
        ship(store, away)
        token = store.moment()
        store["laps"].add({"n": 1, "z": 21})
        store["far"].trim(max_entries=2, approximate=False)
    kinds: dict[str, dict[str, Any]] = {
        "as of": {"path": one, "asOf": token},
        "shipped": {"path": away},
        "shipped and not": {"path": [away, two]},
        "pattern": {"path": str(driver.folder / "?[nw]?")},
    }
    found = {}
    for name, options in kinds.items():
        driver.tables(**options)
        found[name] = _asked(driver, "stream, id, n", "")
        for view in ("ours", "theirs"):
            driver.spark.catalog.dropTempView(view)
    for table, reader in (("ours", "jvm"), ("theirs", "python")):
        driver.spark.sql(
            f"create table {table} using logstore "
            f"options (path '{two}', streams 'laps,single', reader '{reader}')"
        )
    found["table"] = _asked(driver, "stream, id, fields['n']", "store")  # it has no such column
    for table in ("ours", "theirs"):
        driver.spark.sql(f"drop table {table}")
    return found


def _asked(driver: Any, columns: str, absent: str) -> dict[str, Any]:
    wrong: list[Any] = []
    drawn = driver.filters_of(13)
    for _ in range(8):
        where = drawn.test_of_id()
        if absent and absent in where:
            continue
        here, there, _task = driver.asked(f"select {columns} from {{}} where {where}")
        if sorted(here) != sorted(there):
            wrong.append([where, len(here), len(there)])
    without_tasks = 0
    for query in QUERIES:
        here, there, has_task = driver.asked(query)
        without_tasks += not has_task
        if here != there:
            wrong.append([query, here, there])
    return {"wrong": wrong, "without_tasks": without_tasks}


# -- order ----------------------------------------------------------------------------------------
ORDERED = "select stream, id_key, n, spark_partition_id() as p from {} sort by stream, id_key"
WINDOW = (
    "select stream, id, n, row_number() over (partition by stream order by id_key) as r from {}"
)
# What is asked of which load.
ORDERS: dict[str, tuple[dict[str, Any], str]] = {
    "two stores": ({"streams": "laps,single", "minPartitions": "6"}, ORDERED),
    "streams as they were named": ({"streams": "single,laps", "minPartitions": "1"}, ORDERED),
    "a name that is no text": ({"minPartitions": "1"}, ORDERED),
    "some of the streams": ({}, ORDERED.replace("sort", "where stream in ('far', 'laps') sort")),
    "some of the IDs": (
        {"streams": "laps,single"},
        ORDERED.replace("sort", "where ms > 1760000005000 sort"),
    ),
    "one stream of a load": (
        {"minPartitions": "5"},
        "select id_key, n from {} where stream = 'laps' sort by id_key",
    ),
    "a window": ({"streams": "laps,single", "minPartitions": "1", "path": "two"}, WINDOW),
    "a window over parts": ({"streams": "laps,single", "minPartitions": "4"}, WINDOW),
    "all by ID": (
        {"streams": "laps", "minPartitions": "1", "path": "two"},
        "select id, n from {} order by id_key",
    ),
    "all by time": (
        {"streams": "laps", "minPartitions": "1", "path": "two"},
        "select ts, n from {} order by ts",
    ),
    "by a time that may be null": (
        {"streams": "far", "minPartitions": "1", "path": "two"},
        "select ts, n from {} order by ts",
    ),
    "backwards": (
        {"streams": "laps", "minPartitions": "1", "path": "two"},
        "select id, n from {} order by id_key desc",
    ),
    "two streams by ID": (
        {"streams": "laps,single", "minPartitions": "1", "path": "two"},
        "select id, n from {} order by id_key",
    ),
}


def orders(driver: Any) -> dict[str, Any]:
    """Which queries Spark sorts for, and of which the rows are wrong."""
    found: dict[str, Any] = {"sorted": [], "not": [], "wrong": []}
    for name, (options, query) in ORDERS.items():
        path = {"path": str(driver.folder / options["path"])} if "path" in options else {}
        driver.tables(**options | path)
        frame = driver.spark.sql(query.format("ours"))
        has_sort = re.search(r"\bSort \[", driver.plan(frame)) is not None
        found["sorted" if has_sort else "not"].append(name)
        here = list(map(tuple, frame.collect()))
        there = list(map(tuple, driver.spark.sql(query.format("theirs")).collect()))
        if "spark_partition_id" in query:
            is_right = here == sorted(here, key=_place) and _rows(here) == _rows(there)
        elif "order by id_key" in query.replace(WINDOW, ""):
            is_right = here == there
        else:  # rows of one time have no order
            is_right = sorted(map(str, here)) == sorted(map(str, there))
            is_right &= "order by ts" not in query or [t for t, _ in here] == [t for t, _ in there]
        if not is_right:
            found["wrong"].append([name, len(here), len(there)])
    return found


def _place(row: tuple[Any, ...]) -> Any:
    return row[3], row[0].encode(), bytes(row[1])


def _rows(found: list[tuple[Any, ...]]) -> list[str]:
    return sorted(str(row[:3]) for row in found)


# -- where entries lie ----------------------------------------------------------------------------
def places(driver: Any) -> dict[str, Any]:
    """The columns that tell it, beside those that a schema has, and where they cannot be."""
    path = str(driver.folder / "lies")
    with make_store(path, background=False) as store:
        store["laps"].add_many(({"n": at, "_offset": "x"} for at in range(22)), batch=3)
        wanted = _of_nodes(store)
    frame = driver.load("id string, n int", path=path)
    all_rows = [tuple(each) for each in frame.select("_segment", "_offset", "*").collect()]
    hidden = driver.load("id string, _offset string", path=path)
    python = driver.load("id string, n int", path=path, reader="python")
    return {
        "equal": [row[:3] for row in all_rows] == wanted,
        "nowhere": sum(row[0] is None for row in all_rows),
        "star": frame.columns,
        "filtered": frame.where(f"_offset = {wanted[0][1]}").select("_SEGMENT").count(),
        "hidden": list(map(list, hidden.select("_offset", "_segment").distinct().collect())),
        "not asked": "_offset" in driver.plan(frame),
        "asked": "[n, _offset]" in driver.plan(frame.select("n", "_offset")),
        "python": _error(lambda: python.select("_segment").collect()),
        "streamed": _streamed(driver, path),
    }


def _of_nodes(store: Any) -> list[tuple[int | None, int | None, str]]:
    """Segment, offset and ID of entries, as the index has them."""
    engine = opened_of(store).engine()
    found: list[tuple[int | None, int | None, str]] = []
    for split in split_plan.make(engine, [b"laps"]).splits:
        for _, items in snapshot_file.read(engine.fs, split):
            at = 0
            while (one := read_item(items, at)) is not None:
                item, at = one
                place = fmt.position_parts(item.position) if item.position else (None, None)
                entries = store["laps"].range(item.master, item.last)
                found += [(*place, str(each.id)) for each in entries]
    return found


def _error(ask: Any) -> str:
    try:
        return f"no error: {ask()}"
    except Exception as error:  # noqa: BLE001  (which one is looked at)
        return str(error)


def _streamed(driver: Any, path: str) -> Any:
    """Rows of a streaming query that asks where entries lie."""
    reader = driver.spark.readStream.format("logstore").schema("id string, n int")
    frame = reader.options(path=path, stream="laps", reader="jvm").load()
    query = (
        frame.select("n", "_segment", "_offset").writeStream.format("memory").queryName("lies")
        .option("checkpointLocation", (driver.folder / "checkpoint").as_uri())
        .trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001  (which one is looked at)
        return str(error)[:300]
    rows = driver.spark.sql("select count(*), count(_segment), min(n) from lies").collect()
    return list(rows[0])
