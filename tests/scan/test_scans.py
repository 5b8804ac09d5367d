"""Prevents scans that differ at their second reading, filter other rows than `range` has, read what
cannot be asked for, or merge out of order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore.aio
from logstore.api.store import Store
from logstore.errors import ClosedError, InvalidIDError, OptionError, StreamNotFoundError
from logstore.ids import MAX_ID, U64_MAX, ZERO_ID, StreamID
from logstore.scan import conditions, live
from logstore.scan.filter_range import TS_MAX_MS, FilterRange
from tests.scan.scanned_stores import make_store

# Both sides of where `ts`, and then `ms`, become null.
TOPS = (0, 5, TS_MAX_MS, TS_MAX_MS + 1, (1 << 63) - 1, 1 << 63, U64_MAX)


@pytest.fixture(scope="module")
def races(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store[bytes]]:
    """Three streams; entry n of `race:a` and `race:b` is (n, 0), and all of `other` are at 7."""
    with make_store(tmp_path_factory.mktemp("scans") / "store") as store:
        for first, name in enumerate(("race:a", "race:b"), 1):
            rows = (((n, 0), {"speed": n % 7, "rider": f"r{n % 3}"}) for n in range(first, 2001, 2))
            store.stream(name).add_many(rows, batch=90)
        store.stream("other").add_many((((7, n), {"x": n}) for n in range(50)), batch=20)
        yield store


def ids(found: Any) -> list[str]:
    return [id for batch in found for id in batch["id"].to_pylist()]


def test_each_reading_of_a_scan_is_a_new_one(races: Store[bytes]) -> None:
    stream = races.stream("again")
    scan = stream.scan(columns=["id"])
    for count in (1, 2):
        stream.add({"n": count}, id=(count, 0))
        wanted = [f"{n}-0" for n in range(1, count + 1)]
        assert ids(scan) == wanted
        assert pa.table(scan)["id"].to_pylist() == wanted
        assert scan.to_arrow().equals(scan.read_all())
    first, second = scan.reader(), scan.reader(limit=1)
    assert (second.read_all().num_rows, first.read_all().num_rows) == (1, 2)
    assert scan.to_pandas()["id"].to_list() == scan.to_polars()["id"].to_list() == ["1-0", "2-0"]
    assert races.scan("again").to_pandas()["fields"][1] == {"n": "2"}
    with pytest.raises(OptionError):
        scan.reader(limit=-1)


def test_streams_by_name_and_pattern(races: Store[bytes]) -> None:
    def names(streams: Any) -> list[str]:
        table = races.scan(streams, columns=["stream"]).to_arrow()
        return table["stream"].unique().to_pylist()

    assert names("race:*") == names(["race:a", b"race:b", "race:?"]) == ["race:a", "race:b"]
    assert names(["other", "race:a"]) == ["other", "race:a"]
    assert set(names(None)) >= {"other", "race:a", "race:b"}
    assert names("nobody*") == []
    late = races.scan("late*", columns=["id"])
    races.stream("late:1").add({"a": 1}, id="1-1")
    assert ids(late) == ["1-1"]
    races.drop("late:1")
    for refused in ([], 5):
        with pytest.raises(OptionError):
            races.scan(refused)  # type: ignore[arg-type]
    with pytest.raises(StreamNotFoundError):
        races.scan(["race:a", "misspelt"])


MOMENT = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ([("speed", ">", 3)], lambda n, row: row["speed"] > 3),
        ([("speed", "<=", 3.5), ("rider", "==", "r1")], lambda n, row: row["speed"] <= 3
            and row["rider"] == "r1"),
        ([("rider", "in", ["r0", "r2"])], lambda n, row: row["rider"] != "r1"),
        ([("rider", "not in", ("r0",))], lambda n, row: row["rider"] != "r0"),
        ([("nobody", "=", None)], lambda n, row: True),
        ([("nobody", "!=", None)], lambda n, row: False),
        ([("id", ">=", "1990-0"), ("id", "!=", "1991-0")], lambda n, row: n >= 1990 and n != 1991),
        ([("id", "in", [(3, 0), "5-0"])], lambda n, row: n in (3, 5)),
        ([("ts", "<", MOMENT + timedelta(milliseconds=9))], lambda n, row: n < 9),
        ([("ms", ">", 500), ("ms", "<", 600)], lambda n, row: 500 < n < 600),
        (pc.field("ms").isin([5, 1999]) | (pc.field("ms") == 7), lambda n, row: n in (5, 7, 1999)),
        (pc.field("ts").is_null(), lambda n, row: False),
        (pc.field("stream") == "race:a", lambda n, row: True),
    ],
)  # fmt: skip
def test_rows_for_which_conditions_hold(races: Store[bytes], where: Any, holds: Any) -> None:
    wanted = [
        f"{n}-0" for n in range(1, 2001, 2) if holds(n, {"speed": n % 7, "rider": f"r{n % 3}"})
    ]
    assert ids(races["race:a"].scan(columns=["id"], where=where)) == wanted
    assert ids(races.scan(["race:a"], columns=["id"], where=where, batch_rows=100)) == wanted
    counted = races["race:a"].scan(columns=[], where=where)
    assert counted.to_arrow().num_rows == len(wanted)


def test_a_column_keeps_the_type_of_the_schema_in_conditions(races: Store[bytes]) -> None:
    schema = pa.schema([("speed", pa.int64()), ("ms", pa.int64())])
    found = races["race:a"].scan(schema=schema, where=[("speed", "==", 6)]).to_arrow()
    assert found.schema == schema
    assert set(found["speed"].to_pylist()) == {6}
    few = races["race:a"].scan(columns=["ms"], schema=schema, where=[("speed", "<", 1)])
    assert few.schema.names == ["ms"]
    told = races["race:a"].scan(schema="speed long, ms bigint", where=[("speed", "==", 6)])
    assert told.to_arrow() == found
    assert few.to_arrow().num_rows == sum(n % 7 == 0 for n in range(1, 2001, 2))


@pytest.mark.parametrize(
    "where",
    [
        "speed > ", b"speed > 3", [], [("speed",)], [("speed", "~", 3)], [("ms", "<", "x")],
        ["abc"], [("ts", "<", MOMENT.replace(tzinfo=None))],
        [("speed", "<", 1 << 60)], [("speed", "<", None)],
        [("rider", "in", "r0")], [("rider", "in", [])], [("speed", "==", 1j)],
        pc.field("nobody") > 1, pc.field("ms"),
    ],
    ids=str,
)  # fmt: skip
def test_conditions_that_cannot_be(races: Store[bytes], where: Any) -> None:
    with pytest.raises(OptionError):
        races["race:a"].scan(where=where)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"schema": 5}, OptionError),
        ({"schema": "speed quick"}, OptionError),
        ({"schema": ""}, OptionError),
        ({"schema": {"a": pa.large_string()}}, OptionError),
        ({"schema": pa.schema([("a", pa.string()), ("a", pa.int8())])}, OptionError),
        ({"schema": {"a": None}, "columns": {"a": None}}, OptionError),
        ({"columns": "speed"}, OptionError),
        ({"batch_rows": 2.5}, OptionError),
        ({"where": [("id", "<", "none")]}, InvalidIDError),
    ],
    ids=str,
)
def test_invalid_scans_are_refused(races: Store[bytes], options: Any, error: type) -> None:
    with pytest.raises(error):
        races["race:a"].scan(**options)


def test_a_scan_of_a_store_that_was_closed(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store["x"].add({"a": 1})
        scan = store.scan("*")
    with pytest.raises(ClosedError):
        scan.to_arrow()


# -- what is not read ------------------------------------------------------------------------
def test_nodes_and_streams_where_nothing_can_hold_are_not_read(
    races: Store[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = []
    whole = live.StreamScan.__init__

    def init(
        self: Any, engine: Any, name: bytes, start: StreamID, end: StreamID, skipping: Any
    ) -> None:
        walks.append((name, start, end))
        whole(self, engine, name, start, end, skipping)

    monkeypatch.setattr(live.StreamScan, "__init__", init)
    where = [("stream", "==", "race:b"), ("ms", ">", 10), ("id", "<", "20-5"), ("speed", ">", 1)]
    assert races.scan(where=where).to_arrow().num_rows
    assert walks == [(b"race:b", StreamID(11, 0), StreamID(20, 4))]
    walks.clear()
    assert not races.scan(where=[("ms", ">", 10), ("ms", "<", 11)]).to_arrow().num_rows
    assert walks == []


def scalar(ms: int) -> Any:
    return pa.scalar(ms * 1000, pa.timestamp("us", tz="UTC"))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_an_interval_leaves_out_nothing_for_which_a_filter_holds(data: st.DataObject) -> None:
    """The filter is evaluated on IDs around every edge, in the columns that a scan has of them."""
    near = st.builds(
        StreamID,
        st.one_of(st.integers(0, 9), st.sampled_from(TOPS)),
        st.sampled_from((0, 1, U64_MAX)),
    )

    def part() -> Any:
        id, kind = data.draw(near), data.draw(st.sampled_from(("ms", "ts", "id_key", "null")))
        if kind == "null" or (kind == "ts" and id.ms > TS_MAX_MS) or id.ms > (1 << 63) - 1:
            return pc.field(data.draw(st.sampled_from(("ms", "ts")))).is_null()
        values = {"ms": id.ms, "ts": scalar(min(id.ms, TS_MAX_MS)), "id_key": key(id)}
        sign = conditions.OPERATORS[data.draw(st.sampled_from(("==", "!=", "<", "<=", ">", ">=")))]
        return sign(pc.field(kind), values[kind])

    found = part()
    for _ in range(data.draw(st.integers(0, 3))):
        found = found & part() if data.draw(st.booleans()) else found | part()
    rows = sorted({ZERO_ID, MAX_ID, *data.draw(st.lists(near, max_size=30))})
    table = pa.table(
        {
            "ms": pa.array([id.ms if id.ms < 1 << 63 else None for id in rows], pa.int64()),
            "ts": pa.array([id.ms * 1000 if id.ms <= TS_MAX_MS else None for id in rows],
                           pa.timestamp("us", tz="UTC")),
            "id_key": pa.array([key(id) for id in rows], pa.binary()),
        }
    )  # fmt: skip
    holds = set(table.filter(found)["id_key"].to_pylist())
    interval = FilterRange(found, table.schema).interval(ZERO_ID, MAX_ID)
    left = [] if interval is None else [id for id in rows if interval[0] <= id <= interval[1]]
    assert holds <= {key(id) for id in left}


def key(id: StreamID) -> bytes:
    return id.ms.to_bytes(8) + id.seq.to_bytes(8)


# -- merged ----------------------------------------------------------------------------------
@pytest.mark.parametrize("batch_rows", [1, 300, 65536])
def test_a_merged_scan_is_in_the_order_of_ids(races: Store[bytes], batch_rows: int) -> None:
    scan = races.scan(["race:*", "other"], columns=["id", "stream"], merge=True,
                      batch_rows=batch_rows)  # fmt: skip
    wanted = [(str(entry.id), name.decode()) for name, entry in races.merge(["race:*", "other"])]
    found = [tuple(row.values()) for batch in scan for row in batch.to_pylist()]
    assert found == wanted
    assert len(wanted) == 2050
    first = scan.reader(limit=60).read_all()
    assert [tuple(row.values()) for row in first.to_pylist()] == wanted[:60]


def test_a_merged_read_has_one_limit(races: Store[bytes]) -> None:
    def told(**options: Any) -> list[tuple[str, str]]:
        return [(name.decode(), str(entry.id)) for name, entry in races.merge(**options)]

    assert told(streams="race:*", count=3) == [
        ("race:a", "1-0"), ("race:b", "2-0"), ("race:a", "3-0"),
    ]  # fmt: skip
    assert told(streams="race:*", start="(5", end="7", reverse=True) == [
        ("race:a", "7-0"), ("race:b", "6-0"),
    ]  # fmt: skip
    both = told(streams=["other", "race:a"], start=(7, 0), end=(7, 0))
    assert both == [("other", "7-0"), ("race:a", "7-0")]
    assert told(streams=["race:a", "other"], start=(7, 0), end=(7, 0), reverse=True) == both[::-1]
    assert told(streams="race:*", count=0) == []
    for refused in ({"count": -1}, {"start": "5", "end": "3"}, {"reverse": 1}, {"streams": []}):
        with pytest.raises(OptionError):
            races.merge(**refused)  # type: ignore[arg-type]


def test_merging_too_many_streams_is_refused(
    races: Store[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.scan.query.STREAMS_MAX", 2)
    with pytest.raises(OptionError, match="sort by id_key"):
        races.scan(merge=True).to_arrow()


def test_the_asyncio_face_scans_and_merges(races: Store[bytes]) -> None:
    async def main() -> None:
        async with logstore.aio.open(races.path, sync="os") as store:
            batches = [batch async for batch in store.scan("race:*", columns=["id"], merge=True)]
            assert sum(batch.num_rows for batch in batches) == 2000
            found = [name async for name, _ in store.merge("race:*", count=300)]
            assert found == [b"race:a", b"race:b"] * 150

    asyncio.run(main())
