"""Prevents streams with a schema whose columns Spark does not see, or sees as other ones."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.errors import OptionError, SchemaError
from logstore.redis import Redis
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


# -- writing ----------------------------------------------------------------------------------
def stored(path: Path, name: str) -> list[tuple[str, list[tuple[bytes, bytes]]]]:
    """What the entries of a stream have, as other clients see it."""
    with Redis(path) as client:
        return [(id.decode(), list(fields.items())) for id, fields in client.xrange(name)]


def write(frame: Any, path: Path, mode: str = "append", **options: Any) -> None:
    frame.write.format("logstore").mode(mode).options(path=str(path), **options).save()


def test_a_write_has_the_one_text_of_each_value(spark: Any, path: Path) -> None:
    """By option and by a column that names the stream; what is read can be written as it is."""
    frame = spark.sql(
        "SELECT '2-0' AS id, true AS b, '-21' AS i, 5.0D AS l, '2.150e1' AS d, 21.5BD AS n, "
        "'text' AS s, X'FF00' AS raw, date'2026-11-26' AS day, timestamp'2026-11-26 12:00:00' AS "
        f"at, '12:30' AS clock, upper('{WHO}') AS who, '{{ \"room\": \"a\" }}' AS tags, "
        "'high' AS level"
    )
    write(frame, path, stream="every")
    (_, first), (id, second) = stored(path, "every")
    assert (id, dict(second)) == (
        "2-0",
        {k: v for k, v in first if k not in {b"l", b"id"}} | {b"l": b"5", b"level": b"high"},
    )
    frame = load(spark, path, stream="every").orderBy("id_key")
    assert frame.count() == 2
    for name in ("copy", "typed copy"):
        if name != "copy":
            with logstore.open(path) as store:
                store.stream(name).configure(schema=EVERY)
        write(frame, path, stream=name)
        assert stored(path, name) == stored(path, "every")
    changed = frame.limit(1).selectExpr("'9-0' AS id", "pairs", "d + 1 AS d", "raw", "id_2 AS id_3")
    write(changed, path, stream="copy")
    assert stored(path, "copy")[-1] == (
        "9-0",
        [(k, b"22.5" if k == b"d" else v) for k, v in first] + [(b"id_3", b"7")],
    )
    rows = spark.sql(
        "SELECT * FROM VALUES ('sensor:1', '1e1'), ('plain', '1e1'), ('sensor:2', '0.50') "
        "AS v(stream, temp)"
    )
    write(rows.coalesce(1), path)
    assert [stored(path, name)[-1][1] for name in ("sensor:1", "plain", "sensor:2")] == [
        [(b"temp", b"10")], [(b"temp", b"1e1")], [(b"temp", b"0.5")],
    ]  # fmt: skip
    write(rows.where("temp = '1e1'").drop("stream").limit(1), path, "overwrite", stream="sensor:1")
    assert [pairs for _, pairs in stored(path, "sensor:1")] == [[(b"temp", b"10")]]
    write(rows.where("false"), path, "overwrite", stream="sensor:2")
    with logstore.open(path) as store:
        kept = [str(store.stream(f"sensor:{n}").schema) for n in (1, 2)]
        assert kept == ["temp double, store string?"] * 2
        assert len(store["sensor:2"]) == 0
        store["sensor:2"].add({"temp": 1.5})


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (
            "SELECT if(id = 25000, 'warm', string(id)) AS temp FROM range(0, 30000, 1, 1)",
            "row 25000: column 'temp' is double: 'warm' is no number; give it a value such as",
        ),
        ("SELECT 'x' AS store", "column 'temp' is missing"),
        ("SELECT 1 AS temp, 2 AS hum", "there is no column 'hum', only 'temp', 'store'"),
    ],
)
def test_a_value_that_does_not_fit_fails_the_task(
    spark: Any, path: Path, query: str, words: str
) -> None:
    before = stored(path, "sensor:1")
    with pytest.raises(Exception, match="SchemaError") as raised:
        write(spark.sql(query), path, stream="sensor:1")
    assert words in str(raised.value)
    assert "(stream 'sensor:1')" in str(raised.value)
    assert stored(path, "sensor:1") == before
    assert list((path / "pins").iterdir()) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_schema_that_changes_behind_a_task_refuses_the_job(path: Path, overwrite: bool) -> None:
    """Set, made wider, dropped: the job is run again, and has the schema of then."""
    pa = pytest.importorskip("pyarrow")
    from logstore.spark_io import publishing, spark_options
    from logstore.spark_io.sink import BatchSink

    options = spark_options.parse_write({"path": str(path), "stream": "s"}, streaming=False)

    def begun() -> tuple[BatchSink, Any]:
        stage = publishing.begin(options, overwrite=overwrite)
        sink = BatchSink(options, stage, overwrite=overwrite)
        return sink, sink.write(iter([pa.record_batch({"temp": ["1e1"]})]))

    with logstore.open(path) as store:
        store["s"].add({"temp": "1"})
    for schema, text in (("temp double", b"10"), ("temp double?", b"10"), (None, b"1e1")):
        sink, message = begun()
        before = stored(path, "s")
        with logstore.open(path) as store:
            store.stream("s").configure(schema=schema)
        with pytest.raises(SchemaError, match="Run the job again"):
            sink.commit([message])
        sink.abort([message])
        assert stored(path, "s") == before
        sink, message = begun()
        sink.commit([message])
        assert stored(path, "s")[-1][1] == [(b"temp", text)]
        with logstore.open(path) as store:
            kept = store.stream("s").schema
            assert (None if kept is None else str(kept)) == schema
    assert list((path / "pins").iterdir()) == []


def test_a_schema_that_is_set_while_a_query_writes(spark: Any, path: Path, tmp_path: Path) -> None:
    """The next batch is written by it, and one that does not fit ends the query, unwritten."""
    rows, checkpoint = tmp_path / "rows", tmp_path / "checkpoint"
    rows.mkdir()

    def given(name: str, text: str) -> None:
        aside = tmp_path / name
        aside.write_text(f"{text}\n")
        aside.rename(rows / name)

    def started() -> Any:
        frame = spark.readStream.schema("value string").text(str(rows))
        writer = frame.withColumnRenamed("value", "temp").writeStream.format("logstore")
        writer = writer.options(path=str(path), stream="live", producer="p")
        return writer.option("checkpointLocation", str(checkpoint)).start()

    def values() -> list[bytes]:
        return [pairs[0][1] for _, pairs in stored(path, "live")]

    query = started()
    try:
        given("0", "1e1")
        query.processAllAvailable()
        with logstore.open(path) as store:
            store.stream("live").configure(schema="temp double")
        given("1", "1e1")
        query.processAllAvailable()
        assert values() == [b"1e1", b"10"]
        given("2", "warm")
        with pytest.raises(Exception, match="column 'temp' is double: 'warm' is no number"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert values() == [b"1e1", b"10"]
    with logstore.open(path) as store:
        store.stream("live").configure(schema="temp string")
    query = started()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert values() == [b"1e1", b"10", b"warm"]
