"""Prevents Spark columns that tell less than the entries: no rows, wrong order, silent nulls."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from logstore.ids import StreamID
from tests import seeds
from tests.scan.scanned_stores import make_store
from tests.scan.shapes import REPEATED, SHAPES, random_ids

Load = Callable[..., Any]


def key(id: StreamID) -> bytes:
    """An ID as 16 bytes that sort as it does."""
    return id.ms.to_bytes(8) + id.seq.to_bytes(8)


@pytest.fixture(scope="module")
def ids() -> dict[str, list[StreamID]]:
    seed = seeds.seed()
    print("seed", seed)
    return {shape: random_ids(shape, seed) for shape in SHAPES}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, ids: dict[str, list[StreamID]]) -> Path:
    made = tmp_path_factory.mktemp("spark") / "store"
    with make_store(made) as store:
        for shape, each in ids.items():
            store.stream(shape).add_many(((id, {"n": n}) for n, id in enumerate(each)), batch=50)
        for number, pairs in enumerate(REPEATED, 1):
            for seq in range(2):
                store["repeated"].add(pairs, id=(number, seq))
        weather = store["weather"]
        weather.add({"temp": "21.5", "city": "Rome"}, id="1-1")
        weather.add({"temp": "hot", "city": "Oslo", "note": "a"}, id="2-1")
        weather.add([("temp", "7"), ("temp", "cold"), (b"raw\xff", b"\xfe")], id="3-1")
        weather.add({"temp": "", "city": "Bonn"}, id="4-1")
        store["cases"].add({"Temp": "1", "temp": "2", "id": "mine"}, id="1-1")
    return made


@pytest.fixture(scope="module")
def load(spark: Any, path: Path) -> Load:
    def load_it(stream: str, schema: Any = None, **options: Any) -> Any:
        reader = spark.read.format("logstore").options(path=str(path), stream=stream, **options)
        return (reader if schema is None else reader.schema(schema)).load()

    return load_it


def test_no_columns_are_still_rows(load: Load, ids: dict[str, list[StreamID]]) -> None:
    from pyspark.sql.types import StructType

    frame = load("wide", StructType([]))
    assert frame.count() == len(ids["wide"])
    assert len(frame.collect()) == len(ids["wide"])
    assert load("weather", StructType([]), startId="9").count() == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_the_key_sorts_as_the_id_does(
    load: Load, ids: dict[str, list[StreamID]], shape: str
) -> None:
    from pyspark.sql import functions

    wanted = ids[shape]
    frame = load(shape, "id string, id_key binary, ms decimal(20,0), seq decimal(20,0)")
    shuffled = frame.repartition(3).orderBy("id_key").collect()
    assert [bytes(row.id_key) for row in shuffled] == [key(id) for id in wanted]
    assert [row.id for row in shuffled] == [str(id) for id in wanted]
    assert [(row.ms, row.seq) for row in shuffled] == [
        (Decimal(id.ms), Decimal(id.seq)) for id in wanted
    ]
    last, first = frame.select(functions.max("id_key"), functions.min("id_key")).first()
    assert (bytes(last), bytes(first)) == (key(wanted[-1]), key(wanted[0]))
    rng = random.Random(seeds.seed())
    low, high = sorted(rng.sample(wanted, 2))
    between = frame.where(
        functions.col("id_key").between(bytearray(key(low)), bytearray(key(high)))
    )
    assert between.count() == sum(low <= id <= high for id in wanted)
    some = set(rng.sample(wanted, min(100, len(wanted))))
    rows = [(bytearray(key(id)), n) for n, id in enumerate(sorted(some))]
    other = frame.sparkSession.createDataFrame(rows, "id_key binary, n int")
    joined = frame.join(other, "id_key").orderBy("n").collect()
    assert [row.id for row in joined] == [str(id) for id in sorted(some)]
    default = load(shape)
    assert bytes(default.select(functions.max("id_key")).first()[0]) == key(wanted[-1])


def test_repeated_fields_are_the_last_everywhere(load: Load, path: Path, spark: Any) -> None:
    with make_store(path) as store:
        entries = list(store["repeated"].range())
    texts = [
        [(name.decode("utf-8", "replace"), value.decode()) for name, value in entry.pairs]
        for entry in entries
    ]
    frame = load("repeated")
    rows = frame.orderBy("id_key").collect()
    assert [row.fields for row in rows] == [dict(each) for each in texts]
    assert [[tuple(pair) for pair in row.pairs] for row in rows] == texts
    in_sql = frame.selectExpr("id_key", "fields['tag'] AS tag", "size(fields) AS fields")
    found = in_sql.orderBy("id_key").collect()
    assert [row.tag for row in found] == [dict(each).get("tag") for each in texts]
    assert [row.fields for row in found] == [len(dict(each)) for each in texts]
    schema = (
        "id_key binary, tag string, fields array<struct<key:string,value:string>>, "
        "pairs array<struct<field:string,value:binary>>"
    )
    rows = load("repeated", schema).orderBy("id_key").collect()
    assert [row.tag for row in rows] == [dict(each).get("tag") for each in texts]
    assert [[tuple(pair) for pair in row.fields] for row in rows] == texts
    assert [
        [(pair.field, bytes(pair.value).decode()) for pair in row.pairs] for row in rows
    ] == texts
    tags = load("repeated").selectExpr("explode(pairs) AS pair").where("pair.field = 'tag'")
    assert tags.count() == sum(name == "tag" for each in texts for name, _ in each)


def test_standard_columns_match_without_case(load: Load, ids: dict[str, list[StreamID]]) -> None:
    small = load("small", "ID string, Ms bigint, seq decimal(20,0), Id_Key binary, FIELDS "
                 "map<string,string>, n int")  # fmt: skip
    assert small.columns == ["ID", "Ms", "seq", "Id_Key", "FIELDS", "n"]
    rows = small.orderBy("id_key").collect()
    assert [(row.ID, row.Ms, int(row.seq)) for row in rows] == [
        (str(id), id.ms, id.seq) for id in ids["small"]
    ]
    assert [row.n for row in rows] == list(range(len(rows)))
    assert rows[0].FIELDS == {"n": "0"}


@pytest.mark.parametrize(
    ("stream", "schema", "words"),
    [
        ("cases", "temp string, TEMP string", "ase"),
        ("cases", "ID int", "column 'ID' of logstore is string"),
        ("weather", "temp double, _corrupt_record int", "column '_corrupt_record'"),
        ("weather", "ms decimal(19,0)", "column 'ms'"),
    ],
)
def test_names_that_would_be_two_are_refused(
    load: Load, stream: str, schema: str, words: str
) -> None:
    with pytest.raises(Exception, match=words):
        load(stream, schema).collect()


def test_columns_that_differ_by_case_are_refused_by_name(path: Path) -> None:
    """Also where Spark itself is told to keep them apart."""
    from pyspark.sql.types import StringType, StructField, StructType

    from logstore.errors import OptionError
    from logstore.spark_io import spark_columns, spark_options

    parsed = spark_options.parse_read({"path": str(path), "stream": "x"})
    for names in (("temp", "TEMP"), ("id", "ID"), ("a", "a")):
        wanted = StructType([StructField(name, StringType()) for name in names])
        with pytest.raises(OptionError, match=f"'{names[1]}'"):
            spark_columns.columns(wanted, parsed)


def test_fields_that_differ_by_case_are_told_apart(load: Load) -> None:
    assert load("cases", "Temp string, id string").first() == ("1", "1-1")
    assert load("cases", "temp int").first() == (2,)
    assert load("cases").selectExpr("fields['id']", "fields['Temp']").first() == ("mine", "1")


def test_columns_do_not_depend_on_the_entries(
    load: Load, path: Path, reader: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The check of the case was by the first and last entries: a job failed on the day when those
    had the other case only. The log tells of it, and the job goes on."""
    from tests.spark.stores import rows as rows_here

    name = f"renamed for {reader}"
    schema = "NAME string, n int"
    with make_store(path) as store:
        store[name].add({"NAME": "a", "n": 1}, id="1-0")
    assert [tuple(row) for row in load(name, schema).collect()] == [("a", 1)]
    assert rows_here(schema, path=path, stream=name) == [("a", 1)]
    assert caplog.text == ""
    with make_store(path) as store:
        store[name].delete("1-0")
        store[name].add({"name": "b", "n": 2}, id="2-0")
    assert [tuple(row) for row in load(name, schema).collect()] == [(None, 2)]
    assert rows_here(schema, path=path, stream=name) == [(None, 2)]
    assert f"column 'NAME': entries of stream '{name}' have a field 'name'" in caplog.text
    assert [tuple(row) for row in load(name, "name string, N int").collect()] == [("b", None)]


ODD = ("", " ", "a.b", "a`b", "a b", "a,b", "a\0b", "a\nb", "\u00f6", "stream ", "_2", "x" * 300)


def test_odd_names_of_fields_are_columns_and_harm_no_other(
    load: Load, path: Path, reader: str
) -> None:
    """pandas writes CSV with a column without a name: every load with a schema failed."""
    from pyspark.sql.types import StringType, StructField, StructType

    fields = {**{name: repr(name) for name in ODD}, "plain": "1"}
    odd = f"odd for {reader}"
    with make_store(path) as store:
        store[odd].add({**fields, b"\xff": "raw"}, id="1-0")
        store[odd].add({"store": "Lyon", "ID": "2", "Fields": "3"}, id="2-0")
    assert [row.plain for row in load(odd, "plain int").collect()] == [1, None]
    for names in (ODD, ODD[:1]):
        schema = StructType([StructField(name, StringType()) for name in names])
        first, second = load(odd, schema).collect()
        assert list(first) == [repr(name) for name in names]
        assert set(second) == {None}
    assert load(odd, "`` string, `a``b` string, `a.b` string").where("`a.b` is not null").count()
    whole = load(odd).orderBy("id_key").collect()
    assert whole[0].fields == {**fields, "\ufffd": "raw"}
    assert whole[1].fields == {"store": "Lyon", "ID": "2", "Fields": "3"}
    assert load(odd).selectExpr("fields['']", "fields['ID']").collect()[1] == (None, "2")


def test_malformed_records(load: Load) -> None:
    schema = "id string, temp double, city string, _corrupt_record string"
    rows = {row.id: row for row in load("weather", schema).collect()}
    assert [row.temp for row in rows.values()] == [21.5, None, None, None]
    assert rows["1-1"]._corrupt_record is None
    assert rows["4-1"]._corrupt_record is None  # an empty text is null, and no damage
    assert json.loads(rows["2-1"]._corrupt_record) == {
        "id": "2-1", "fields": {"temp": "hot", "city": "Oslo", "note": "a"},
    }  # fmt: skip
    assert "pairs_base64" in json.loads(rows["3-1"]._corrupt_record)
    named = load("weather", "bad string, temp double", columnNameOfCorruptRecord="BAD")
    assert [row.bad is None for row in named.collect()] == [True, False, False, True]
    for mode in ("DROPMALFORMED", "dropMalformed"):
        frame = load("weather", "id string, temp double", mode=mode)
        assert [row.id for row in frame.collect()] == ["1-1", "4-1"]
        assert frame.count() == 2
    assert load("weather", "id string, temp string", mode="DROPMALFORMED").count() == 4
    with pytest.raises(Exception, match="'hot'"):
        load("weather", schema, mode="FAILFAST").collect()


def test_invalid_columns_are_one_line_errors(spark: Any, path: Path, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a",)], "value string")
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="NotAStoreError"):
            frame.write.format("logstore").mode(mode).option("create", "false").save(
                str(tmp_path / "none")
            )
    frames = {
        "for batch reads": (
            spark.readStream.format("logstore")
            .options(path=str(path), stream="weather", startId="1")
            .load(),
            "noop",
        ),
        "option 'producer' is missing": (spark.readStream.format("rate").load(), "logstore"),
    }
    for number, (words, (streaming, sink)) in enumerate(frames.items()):
        writer = streaming.writeStream.format(sink).options(path=str(path), stream="x")
        with pytest.raises(Exception, match=words):
            _run(writer.option("checkpointLocation", str(tmp_path / str(number))))


def _run(writer: Any) -> None:
    query = writer.start()
    try:
        query.awaitTermination(60)
    finally:
        query.stop()


def test_a_batch_in_which_the_first_repetition_comes_late(
    load: Load, path: Path, reader: str
) -> None:
    """What is before it stays as it was."""
    late = f"late for {reader}"
    with make_store(path) as store:
        plain = ((StreamID(n, 0), [("a", str(n))]) for n in range(1, 500))
        repeated = ((StreamID(n, 0), [("a", "x"), ("a", str(n))]) for n in range(500, 600))
        store[late].add_many(itertools.chain(plain, repeated), batch=100)
    found = load(late).orderBy("id_key").collect()
    assert [row.fields for row in found] == [{"a": str(n)} for n in range(1, 600)]
    assert [len(row.pairs) for row in found] == [1] * 499 + [2] * 100
