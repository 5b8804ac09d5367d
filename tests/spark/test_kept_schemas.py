"""Prevents streams with a schema whose columns Spark does not see, or sees as other ones."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.errors import OptionError
from tests.spark.tables import source_of

STANDARD = ["stream", "id", "ms", "seq", "ts", "fields", "id_key", "pairs"]
EVERY = (
    "b bool, i int, l long, d double, n decimal(10, 2), s string, raw binary, day date, "
    "at timestamp, clock time, who uuid, tags json, level enum('low', 'high')?, id long?"
)
WHO = "6f2a1c1e-0c5b-4a53-9c0e-2a0b6c4d8e1f"
ROW: dict[str, Any] = {
    "b": True,
    "i": -21,
    "l": 1 << 40,
    "d": 21.5,
    "n": Decimal("21.50"),
    "s": "text",
    "raw": b"\xff\x00",
    "day": date(2026, 11, 26),
    "at": datetime(2026, 11, 26, 12, tzinfo=UTC),
    "clock": "12:30",
    "who": WHO,
    "tags": {"room": "a"},
    "id": 7,
}
IN_SPARK: dict[str, tuple[str, Any]] = {
    "b": ("boolean", True),
    "i": ("int", -21),
    "l": ("bigint", 1 << 40),
    "d": ("double", 21.5),
    "n": ("decimal(10,2)", Decimal("21.50")),
    "s": ("string", "text"),
    "raw": ("binary", b"\xff\x00"),
    "day": ("date", date(2026, 11, 26)),
    "at": ("timestamp", datetime(2026, 11, 26, 12, tzinfo=UTC)),
    "clock": ("string", "12:30:00.000000"),
    "who": ("string", WHO),
    "tags": ("string", '{"room":"a"}'),
    "level": ("string", None),
    "id_2": ("bigint", 7),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with logstore.open(tmp_path / "store") as store:
        store.stream("every").configure(schema=EVERY)
        store["every"].add(ROW, id="1-0")
        for number in (1, 2):
            sensor = store.stream(f"sensor:{number}")
            sensor.configure(schema="temp double, store string?")
            sensor.add({"temp": 9 + number / 2, "store": "Lyon"}, id=(number, 0))
            sensor.add({"temp": 10 * number}, id=(number, 1))
        store.stream("other").configure(schema="temp long")
        store["plain"].add({"temp": "x"}, id="1-0")
    return tmp_path / "store"


def load(spark: Any, path: Path, schema: Any = None, **options: Any) -> Any:
    reader = spark.read.format("logstore").options(path=str(path), **options)
    return (reader if schema is None else reader.schema(schema)).load()


def kinds(frame: Any) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema}


def test_a_kept_schema_is_the_columns(spark: Any, path: Path, tmp_path: Path) -> None:
    """Each type, and a name that is a standard column's; a schema of the user's own wins."""
    frame = load(spark, path, stream="every")
    assert frame.columns == [*IN_SPARK, *STANDARD]
    assert {name: kinds(frame)[name] for name in IN_SPARK} == {
        name: kind for name, (kind, _) in IN_SPARK.items()
    }
    found = {name: frame.first()[name] for name in IN_SPARK}
    found["raw"] = bytes(found["raw"])
    found["at"] = found["at"].astimezone(UTC)
    assert found == {name: value for name, (_, value) in IN_SPARK.items()}
    assert frame.where("id_2 = 7 AND id = '1-0' AND d > 9 AND day >= '2026-01-01'").count() == 1
    assert load(spark, path, "d string, id string", stream="every").first() == ("21.5", "1-0")
    assert load(spark, path, stream="every", typedColumns="false").columns == STANDARD
    sensors = load(spark, path, streams="sensor:*")
    assert sensors.columns == ["temp", "store", *STANDARD]
    rows = sensors.where("temp > 9.75").orderBy("id_key").select("id", "temp", "store").collect()
    assert [tuple(row) for row in rows] == [
        ("1-1", 10.0, None), ("2-0", 10.0, "Lyon"), ("2-1", 20.0, None),
    ]  # fmt: skip
    assert (
        load(spark, path, sensors.schema, streams="sensor:*").where("store = 'Lyon'").count() == 2
    )
    for names in ("*", "sensor:1,other", "sensor:1,plain", "plain"):
        assert load(spark, path, streams=names).columns == STANDARD
    spark.sql("DROP TABLE IF EXISTS kept_sensors")
    spark.sql(
        f"CREATE TABLE kept_sensors USING logstore OPTIONS (path '{path}', stream 'sensor:1')"
    )
    try:
        assert spark.sql("SELECT avg(temp), max(store) FROM kept_sensors").first() == (9.75, "Lyon")
    finally:
        spark.sql("DROP TABLE kept_sensors")
    with logstore.open(tmp_path / "second") as store:
        store.stream("sensor:1").configure(schema="temp double, store string?")
        store["sensor:1"].add({"temp": 30.5, "store": "Pau"})
    both = spark.read.format("logstore").option("streams", "sensor:*")
    both = both.load([str(path), str(tmp_path / "second")])
    assert both.columns == ["temp", "store_2", *STANDARD, "store"]
    assert both.where("temp > 30").select("store_2", "store").first() == (
        "Pau",
        str(tmp_path / "second"),
    )


def test_a_moment_has_the_schema_of_its_streams(path: Path) -> None:
    with logstore.open(path) as store:
        token = store.moment()
        store["sensor:1"].configure(schema="temp double, store string?, note string?")
        store.drop("sensor:2")
        store.stream("sensor:2").configure(schema="temp long")
    found = [source_of(path, stream=f"sensor:{n}", asOf=token).schema().names for n in (1, 2)]
    assert found == [["temp", "store", "note", *STANDARD], STANDARD]


def test_the_option_is_one_of_entries(path: Path) -> None:
    with pytest.raises(OptionError, match="'typedColumns' is true or false, not 'none'"):
        source_of(path, stream="every", typedColumns="none").schema()
    with pytest.raises(OptionError, match="'typedColumns' does not go with 'table'"):
        source_of(path, stream="every", typedColumns="true", table="groups").schema()


def test_a_streaming_query_has_the_columns_of_its_start(
    spark: Any, path: Path, tmp_path: Path
) -> None:
    """The schema becomes wider, and another one, while the query runs."""

    def typed(**options: Any) -> Any:
        reader = spark.readStream.format("logstore")
        return reader.options(path=str(path), streams="sensor:*", **options).load()

    assert typed(typedColumns="false").columns == STANDARD
    frame = typed()
    assert frame.columns == ["temp", "store", *STANDARD]
    writer = frame.where("temp > 9.75").select("id", "temp", "store").writeStream
    writer = writer.format("memory").queryName("kept_schemas")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        with logstore.open(path) as store:
            one = store.stream("sensor:1")
            one.configure(schema="temp double, store string?, note string?")
            one.add({"temp": 40, "store": "Pau", "note": "x"}, id="5-0")
            store["sensor:3"].add({"temp": "hot", "store": "Caen"}, id="5-1")
            one.configure(schema="temp string, store string?, note string?")
            one.add({"temp": "50.5"}, id="6-0")
            one.add({"temp": "warm"}, id="7-0")
        query.processAllAvailable()
        found = spark.sql("SELECT id, temp, store FROM kept_schemas").collect()
    finally:
        query.stop()
    assert sorted(tuple(row) for row in found) == [
        ("1-1", 10.0, None),
        ("2-0", 10.0, "Lyon"),
        ("2-1", 20.0, None),
        ("5-0", 40.0, "Pau"),
        ("6-0", 50.5, None),
    ]
