"""Streams with a schema: whatever adds is held against it, and it goes where the stream goes."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from redis.exceptions import ResponseError

import logstore
import logstore.aio
from logstore import Schema, SchemaError
from logstore.api.transaction import Transaction
from logstore.engine.dump import publish
from logstore.engine.dump.export import pinned
from logstore.engine.dump.publish import StagedEntries
from logstore.errors import (
    InvalidPayloadError,
    OptionError,
    StreamNotFoundError,
    UsageError,
)
from logstore.ids import ZERO_ID
from logstore.log.stagefile import StagedRun
from logstore.rdb import codes
from logstore.rdb.rdb_writer import FileWriter
from logstore.rdb.value import StreamInfoValue
from logstore.redis import Redis
from logstore.transfer import Wanted, export_file, import_file
from tests.support.inside import committer_of, engine_of

SENSOR = "temp double, note string?, level enum('low', 'high')? = 'low'"
GOOD = {"temp": "21.50"}
STORED = [(b"temp", b"21.5"), (b"level", b"low")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[logstore.Store[bytes]]:
    with logstore.open(tmp_path / "store", background=False) as opened:
        yield opened


def texts(entry: logstore.Entry[Any]) -> list[tuple[bytes, bytes]]:
    """What is stored, beneath the types."""
    flat: Any = entry._flat
    return list(zip(flat[::2], flat[1::2], strict=True))


@pytest.fixture
def sensor(store: logstore.Store[bytes]) -> logstore.Stream[bytes]:
    stream = store.stream("sensor")
    stream.configure(schema=SENSOR)
    return stream


def scheduled(stream: logstore.Stream[bytes], row: Any) -> None:
    stream.schedule(row, after=3600)
    (kept,) = stream.scheduled()
    stream.cancel(kept.key)
    stream.add(dict(kept.pairs))


def repeated(stream: logstore.Stream[bytes], row: Any) -> None:
    stream.schedule(row, every=3600, name="each hour")
    (kept,) = stream.scheduled()
    stream.cancel(name="each hour")
    stream.add(dict(kept.pairs))


WAYS: dict[str, Callable[[logstore.Stream[bytes], Any], object]] = {
    "add": lambda stream, row: stream.add(row),
    "add with options": lambda stream, row: stream.add(row, ttl=60, sync="always"),
    "add with an ID": lambda stream, row: stream.add(row, "5-1"),
    "add_many of one": lambda stream, row: stream.add_many([row]),
    "add_many of some": lambda stream, row: stream.add_many([row, GOOD]),
    "idempotent add": lambda stream, row: stream.add(row, producer="p"),
    "schedule": scheduled,
    "repeated": repeated,
}


@pytest.mark.parametrize("way", WAYS)
def test_an_add_stores_the_one_text_of_each_value(sensor: logstore.Stream[bytes], way: str) -> None:
    WAYS[way](sensor, GOOD)
    assert [texts(entry) for entry in sensor][:1] == [STORED]
    WAYS["add"](sensor, {"note": "x", "temp": "1E1", "level": "high"})
    *_, last = sensor
    assert texts(last) == [(b"note", b"x"), (b"temp", b"10"), (b"level", b"high")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"temp": "warm"}, "column 'temp' is double"),
        ({"note": "x"}, "column 'temp' is missing"),
        ({"temp": 1, "hum": 2}, "no column 'hum'"),
        ({"temp": 1, "level": "middle"}, "column 'level'"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused(
    sensor: logstore.Stream[bytes], way: str, row: dict[str, Any], why: str
) -> None:
    sensor.add(GOOD, "1-1")
    with pytest.raises(SchemaError, match=why):
        WAYS[way](sensor, row)
    assert len(sensor) == 1
    assert list(sensor.scheduled()) == []


def test_a_transaction_is_held_against_the_schema(
    store: logstore.Store[bytes], sensor: logstore.Stream[bytes]
) -> None:
    with store.transaction() as tx:
        tx.stream("other").add({"a": 1})
        tx.stream("sensor").add(GOOD)
    assert [texts(entry) for entry in sensor] == [STORED]
    refused = store.transaction()
    refused.stream("other").add({"a": 2})
    refused.stream("sensor").add({"temp": "warm"})
    with pytest.raises(SchemaError, match="temp"):
        refused.commit()
    assert len(store.stream("other")) == 1


NULLED: dict[str, Callable[[logstore.Stream[bytes], Any], object]] = {
    **WAYS,
    "a table": lambda stream, row: stream.add_arrow(
        pa.table({name: pa.array([value], pa.string()) for name, value in row.items()})
    ),
    "a transaction": lambda stream, row: in_transaction(stream, lambda each: each.add(row)),
    "rows of a transaction": lambda stream, row: in_transaction(
        stream, lambda each: each.add_many([row])
    ),
}
del NULLED["repeated"], NULLED["schedule"]  # their rows are written in the commit


def in_transaction(stream: logstore.Stream[bytes], step: Callable[[Any], object]) -> None:
    with Transaction(stream._opened, None) as tx:
        step(tx.stream(stream.name))


@pytest.mark.parametrize("way", NULLED)
@pytest.mark.parametrize("warm", [False, True])
def test_none_is_no_default(sensor: logstore.Stream[bytes], way: str, warm: bool) -> None:
    """Whichever way a row goes: beside the pipeline, or through it."""
    if warm:
        sensor.add(GOOD, "1-1")
    NULLED[way](sensor, {"temp": "5", "level": None})
    assert (b"temp", b"5") in texts(list(sensor)[warm])
    assert dict(texts(list(sensor)[warm])).keys() == {b"temp"}


@pytest.mark.parametrize(
    "row", [{5: "x"}, [(5, "x")], "temp", [("temp",)], 7, [], [("temp", "warm")], {"temp": "warm"}]
)
def test_values_that_are_no_rows_are_refused_in_every_way(
    sensor: logstore.Stream[bytes], row: Any
) -> None:
    for name, way in NULLED.items():
        if name != "a table":
            with pytest.raises(UsageError):
                way(sensor, row)
    assert len(sensor) == 0


def test_a_transaction_takes_values_of_python(typed: logstore.Stream[Any]) -> None:
    """Also where it begins as one of plain values, and where it is a schema's that came since."""
    opened = typed._opened
    store = logstore.open(opened.path, encoding=opened.encoding, background=False)
    with store, store.transaction() as tx:
        first = tx.stream("typed").add(TYPED)
        tx.stream("other").add({"a": 1})
        tx.stream("typed").add_many([TYPED, list(TYPED.items())])
        tx.stream("typed").add(TYPED, "*", ttl=60)
        tx.stream("typed").schedule(TYPED, after=3600)
        tx.stream("notes").trim(max_entries=5)
        tx.stream("typed").add(TYPED | {"note": None})
    assert first.id == typed[first.id].id
    assert [values_of(entry) for entry in typed] == [TYPED] * 5
    assert [dict(entry.pairs) for entry in typed.scheduled()] == [TYPED]


def test_a_text_in_a_transaction_is_what_it_is_in_an_add(store: logstore.Store[bytes]) -> None:
    """In a column of JSON a str is a value of its own, bytes are a JSON text."""
    stream = store.stream("s")
    stream.configure(schema="a json, n int?")
    for fields in ({"a": "5"}, {"a": b"5"}, {"a": "x", "n": 1}):
        stream.add(fields)
        with store.transaction() as tx:
            tx.stream("s").add(fields)
        with store.transaction() as tx:
            tx.stream("other").add({"a": 1})
            tx.stream("s").add(fields)
            tx.stream("other").trim(max_entries=1)
    assert [entry["a"] for entry in stream] == ["5"] * 3 + [5] * 3 + ["x"] * 3


def test_a_refusal_inside_a_transaction_leaves_what_was_collected(
    store: logstore.Store[bytes], sensor: logstore.Stream[bytes]
) -> None:
    tx = store.transaction()
    tx.stream("other").add({"a": 1})
    for bad in ({"temp": None}, {"temp": datetime.now(UTC)}, {"temp": 1, "hum": True}):
        with pytest.raises(SchemaError):
            tx.stream("sensor").add(bad)
    with pytest.raises(SchemaError, match="row 1"):
        tx.stream("sensor").add_many([{"temp": 1}, {"temp": []}])
    tx.stream("sensor").add({"temp": 2.5})
    tx.commit()
    assert len(store.stream("other")) == 1
    assert [entry["temp"] for entry in sensor] == [2.5]
    plain = store.transaction()
    plain.stream("sensor").add({"temp": "warm"})
    plain.stream("other").trim(max_entries=0)
    with pytest.raises(SchemaError, match="temp"):
        plain.commit()
    assert (len(sensor), len(store.stream("other"))) == (1, 1)


def test_many_rows_name_the_one_that_is_refused(sensor: logstore.Stream[bytes]) -> None:
    with pytest.raises(SchemaError, match="row 2: column 'temp'"):
        sensor.add_many([GOOD, GOOD, {"temp": "x"}])
    assert len(sensor) == 0


def test_the_schema_is_told_and_dropped(sensor: logstore.Stream[bytes]) -> None:
    schema = sensor.schema
    assert isinstance(schema, Schema)
    assert str(schema) == SENSOR
    info = sensor.info()
    assert info.schema == schema
    assert info.as_dict()["schema"] == SENSOR
    assert [column.name for column in schema.columns] == ["temp", "note", "level"]
    sensor.configure(schema=None)
    assert sensor.schema is None
    assert sensor.info().schema is None
    sensor.add({"anything": "goes"})


def test_an_invalid_schema_changes_nothing(store: logstore.Store[bytes]) -> None:
    stream = store.stream("s")
    for bad in ("temp colour", "", 5, b"temp double"):
        with pytest.raises(OptionError):
            stream.configure(schema=bad, max_entries=5)  # type: ignore[arg-type]
    assert store.streams() == []
    with pytest.raises(StreamNotFoundError):
        stream.configure(schema=SENSOR, create=False)
    assert stream.schema is None


def test_a_new_stream_of_the_name_has_no_schema(
    store: logstore.Store[bytes], sensor: logstore.Stream[bytes]
) -> None:
    sensor.add(GOOD)
    store.drop("sensor")
    sensor.add({"anything": "goes"})
    assert sensor.schema is None


@pytest.mark.parametrize(
    ("entry", "schema", "why"),
    [
        ({"temp": "warm"}, "temp double", "entry 1-1: its 'temp' is 'warm', which is no number"),
        ({"a": 1}, "temp double", "entry 1-1: it has no column 'temp'"),
        ({"temp": 1.5}, "temp int", "is no whole number"),
        ({"temp": b"\xff"}, "temp string", "is no UTF-8"),
    ],
)
def test_a_stored_entry_that_stands_against_a_schema_is_named(
    store: logstore.Store[bytes], entry: dict[str, Any], schema: str, why: str
) -> None:
    stream = store.stream("s")
    stream.add(entry, "1-1")
    stream.add(entry, "2-1")
    with pytest.raises(SchemaError) as refused:
        stream.configure(schema=schema)
    assert why in str(refused.value)
    assert stream.schema is None
    stream.delete("1-1", "2-1")
    stream.configure(schema=schema)


def test_an_entry_among_very_many_stands_against_a_schema(store: logstore.Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add_many({"temp": number} for number in range(20_000))
    stream.add({"temp": "x"}, "*")
    bad = stream.last_id
    stream.add_many({"temp": number} for number in range(100))
    with pytest.raises(SchemaError, match=str(bad)):
        stream.configure(schema="temp int")
    stream.delete(bad)
    stream.configure(schema="temp int")


def test_a_scheduled_entry_stands_against_a_schema(store: logstore.Store[bytes]) -> None:
    stream = store.stream("s")
    stream.schedule({"temp": "warm"}, after=3600)
    with pytest.raises(SchemaError, match="scheduled: its 'temp' is 'warm'"):
        stream.configure(schema="temp double")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("n int", "n long"),
        ("n int", "n double"),
        ("n int", "n decimal(20, 2)"),
        ("n int", "n string"),
        ("n int", "n int?"),
        ("n int", "n int, more string?"),
        ("n enum('1', '2')", "n enum('0', '1', '2')"),
        ("n decimal(3, 1)", "n decimal(5, 2)"),
        ("n int, gone string?", "n int"),
        ("n int, *", "n int"),
    ],
)
def test_a_schema_becomes_a_wider_one(
    store: logstore.Store[bytes], before: str, after: str
) -> None:
    stream = store.stream("s")
    stream.configure(schema=before)
    stream.add({"n": "1"})
    stream.configure(schema=after)
    assert str(stream.schema) == after
    stream.add({"n": "2"})


@pytest.mark.parametrize("after", ["n int", "n decimal(3, 0)", "more int, n long", "n bool"])
def test_a_narrower_schema_is_refused_by_the_entry_that_stands_against_it(
    store: logstore.Store[bytes], after: str
) -> None:
    stream = store.stream("s")
    stream.configure(schema="n long")
    stream.add({"n": 5}, "1-1")
    stream.add({"n": 2**40}, "1-2")
    with pytest.raises(SchemaError, match=r"entry 1-[12]"):
        stream.configure(schema=after)
    assert str(stream.schema) == "n long"


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_schema_is_found_again(tmp_path: Path, checkpoint: bool) -> None:
    path = tmp_path / "store"
    with logstore.open(path) as store:
        store.stream("before").configure(schema="a int")
        store.stream("before").add({"a": 1})
        store.stream("changed").configure(schema="a int")
        store.stream("dropped").configure(schema="a int")
        if checkpoint:
            store.checkpoint()
        store.stream("changed").configure(schema="a long")
        store.stream("dropped").configure(schema=None)
        store.rename("before", "renamed")
        store.stream("late").configure(schema="b uuid?")
    expected = {"renamed": "a int", "changed": "a long", "dropped": "None", "late": "b uuid?"}
    for _ in range(2):
        with logstore.open(path) as store:
            found = {name.decode(): str(store.stream(name).schema) for name in store.streams()}
            assert found == expected
            with pytest.raises(SchemaError):
                store.stream("renamed").add({"a": "x"})
        for file in sorted((path / "index").rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
    assert logstore.open(path, readonly=True).stream("late").schema is not None


def test_a_copy_a_backup_and_a_ship_have_the_schema(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        stream = store.stream("s")
        stream.configure(schema="a int, *")
        stream.add_many({"a": number, "pad": "x" * 1000} for number in range(3000))
        store.copy("s", "large copy")
        store.stream("small").configure(schema="a int")
        store.copy("small", "small copy")
        assert str(store.stream("large copy").schema) == "a int, *"
        assert str(store.stream("small copy").schema) == "a int"
        store.backup(tmp_path / "backup")
        store.ship(tmp_path / "ship")
    with logstore.open(tmp_path / "backup") as store:
        assert str(store.stream("large copy").schema) == "a int, *"


def typed_store(path: Path) -> logstore.Store[bytes]:
    """Streams with a schema and without one, of one piece and of several."""
    store = logstore.open(path, background=False)
    store.stream("s").configure(schema="a int, *")
    store.stream("s").add({"a": 5, "more": "x"})
    store.stream("plain").add({"a": "x"})
    store.stream("t").configure(schema="a int, pad string?, " + WIDE)
    store.stream("t").add_many({"a": number, "pad": "x" * 1000} for number in range(3000))
    return store


WIDE = ", ".join(f"column{number} double?" for number in range(900))


def test_an_rdb_file_has_the_schemas(tmp_path: Path) -> None:
    file = tmp_path / "dump.rdb"
    with typed_store(tmp_path / "from") as store:
        wanted = {name: store.stream(name).schema for name in store.streams()}
        export_file(store, file)
    with logstore.open(tmp_path / "to") as store:
        import_file(store, file, Wanted(prefix=b"old:"))
        for name, schema in wanted.items():
            assert store.stream(b"old:" + name).schema == schema
        with pytest.raises(SchemaError):
            store.stream("old:t").add({"a": "x"})
        store.stream("old:s").configure(schema=None)  # as an import leaves it that is killed then
        assert import_file(store, file, Wanted(prefix=b"old:")).same == 3
        assert store.stream("old:s").schema == wanted[b"s"]
        store.stream("s").add({"b": "another"})
        assert import_file(store, file, Wanted(policy="skip")).kept == 1
        assert store.stream("s").schema is None
        assert store.stream("t").schema == wanted[b"t"]
        import_file(store, file, Wanted(policy="replace"))
        assert store.stream("s").schema == wanted[b"s"]


@pytest.mark.parametrize("text", ["a bool", "a colour", "\udcff", "a int, A int"])
def test_a_schema_of_a_file_that_does_not_fit_is_left_out(tmp_path: Path, text: str) -> None:
    """Or is none. The entries come in, and a note tells of it."""
    pieces: list[bytes] = []
    raw = text.encode("utf-8", "surrogateescape")
    with typed_store(tmp_path / "from") as store, pinned(engine_of(store), b"s") as found:
        writer = FileWriter(pieces.append, [(codes.SCHEMA_NOTE, raw)])
        nodes = found.nodes(engine_of(store))
        writer.stream(b"s", found.node_count, nodes, found.info)
        writer.stream(b"t", 0, [], StreamInfoValue(0, ZERO_ID, ZERO_ID, ZERO_ID, 0, []))
        writer.finish()
    (tmp_path / "dump.rdb").write_bytes(b"".join(pieces))
    with logstore.open(tmp_path / "to") as store:
        report = import_file(store, tmp_path / "dump.rdb")
        assert (report.streams, report.entries) == (2, 1)
        assert ["s: the schema of the file was left out" in note for note in report.notes] == [True]
        assert store.stream("s").schema is None
        assert len(store.stream("s")) == 1


def test_a_note_that_is_too_long_is_refused_before_it_is_read(tmp_path: Path) -> None:
    pieces: list[bytes] = []
    writer = FileWriter(pieces.append, [(codes.SCHEMA_NOTE, b"x" * (codes.SCHEMA_MAX_BYTES + 1))])
    writer.finish()
    (tmp_path / "dump.rdb").write_bytes(b"".join(pieces))
    with logstore.open(tmp_path / "to") as store, pytest.raises(InvalidPayloadError):
        import_file(store, tmp_path / "dump.rdb")


def _add_until_refused(path: str, started: Any) -> None:
    with logstore.open(path) as store:
        stream = store.stream("s")
        number = 0
        while True:
            try:
                stream.add({"n": number, "text": f"t{number}"})
            except SchemaError:
                return
            number += 1
            started.set()


def test_a_schema_set_by_one_process_holds_for_adds_of_another(tmp_path: Path) -> None:
    """They go beside the pipeline until then: what is behind the schema was held against it."""
    path = tmp_path / "store"
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    with logstore.open(path) as store:
        other = context.Process(target=_add_until_refused, args=(str(path), started))
        other.start()
        assert started.wait(60)
        stream = store.stream("s")
        stream.configure(schema="n int, *")
        behind = stream.last_id
        stream.configure(schema="n int")
        other.join(60)
        assert other.exitcode == 0
        assert all(b"text" in entry.fields for entry in stream.range(end=behind))
        number = [int(entry.fields[b"n"]) for entry in stream]
        assert number == list(range(len(number)))


def test_a_client_of_redis_is_held_against_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path) as store:
        store.stream("s").configure(schema=SENSOR)
    client = Redis(str(path))
    try:
        client.xadd("s", GOOD)
        for row, why in (
            ({"temp": "warm"}, "column 'temp' is double"),
            ({"note": "x"}, "column 'temp' is missing"),
            ({"temp": 1, "hum": 2}, "no column 'hum'"),
        ):
            with pytest.raises(ResponseError, match=why):
                client.xadd("s", row)  # type: ignore[arg-type]
        pipeline = client.pipeline(transaction=False)
        for value in ("1", "warm", "3"):
            pipeline.xadd("s", {"temp": value})
        replies = pipeline.execute(raise_on_error=False)
        assert [isinstance(each, ResponseError) for each in replies] == [False, True, False]
        together = client.pipeline(transaction=True)
        together.xadd("s", {"temp": "4"})
        together.xadd("s", {"temp": "warm"})
        assert [type(each) is bytes for each in together.execute(raise_on_error=False)] == [
            True,
            False,
        ]
        found = [fields[b"temp"] for _, fields in client.xrange("s")]
        assert found == [b"21.5", b"1", b"3", b"4"]
    finally:
        client.close()


MOMENT = datetime(2026, 11, 26, 12, tzinfo=UTC)
TYPED: dict[str, Any] = {
    "temp": 21.53, "at": MOMENT, "price": Decimal("1.50"), "ref": UUID(int=5), "day": MOMENT.date(),
    "tags": {"room": ["a", None]}, "count": 2**40, "on": True, "raw": b"\xff",
}  # fmt: skip
COLUMNS = (
    "temp double, at timestamp, price decimal(10, 2), ref uuid, day date, tags json?, count long, "
    "on bool, raw binary?, note string?"
)


@pytest.fixture(params=[None, "utf-8"])
def typed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[logstore.Stream[Any]]:
    with logstore.open(tmp_path / "store", background=False, encoding=request.param) as opened:
        opened.stream("typed").configure(schema=COLUMNS)
        yield opened.stream("typed")


def values_of(entry: Any) -> dict[str, Any]:
    found = {name: entry[name] for name in TYPED}
    assert dict(entry.pairs) == dict(entry) == found
    return found


def test_a_handle_takes_and_gives_values_of_python(typed: logstore.Stream[Any]) -> None:
    one = typed.add(TYPED)
    typed.add_many([TYPED, list(TYPED.items())])
    typed.add(TYPED, "*", ttl=60)
    typed.schedule(TYPED, after=3600)
    found = typed.get(one)
    assert found is not None
    assert values_of(found) == TYPED
    assert [values_of(entry) for entry in typed] == [TYPED] * 4
    assert [values_of(entry) for entry in typed.read("0")] == [TYPED] * 4
    assert values_of(next(typed.follow("0"))) == TYPED
    assert [dict(entry.pairs) for entry in typed.scheduled()] == [TYPED]
    first = typed.info().first_entry
    assert first is not None
    assert values_of(first) == TYPED
    assert pickle.loads(pickle.dumps(found)) == found
    assert values_of(pickle.loads(pickle.dumps(found))) == TYPED
    group = typed.group("g", "0")
    assert [values_of(delivery) for delivery in group.read("a")] == [TYPED] * 4


def test_a_condition_names_columns(store: logstore.Store[bytes], sensor: Any) -> None:
    """Prevents a name with a typo that finds nothing."""
    with pytest.raises(SchemaError, match=r"no column 'tmp', only 'temp', 'note', 'level'$"):
        sensor.range(where={"tmp": 5})
    sensor.configure(schema="temp double, *")
    assert list(sensor.range(where={"tmp": 5})) == []


def test_a_day_is_a_moment_in_an_add(store: logstore.Store[bytes]) -> None:
    """As it is in a condition."""
    stream = store.stream("s")
    stream.configure(schema="at timestamp")
    stream.add({"at": "2026-11-28"})
    stream.add({b"at": b"2026-11-28"})
    stream.add_arrow(pa.table({"at": ["2026-11-28", "2026-11-28 00:00Z"]}))
    assert [entry["at"] for entry in stream] == [datetime(2026, 11, 28, tzinfo=UTC)] * 4
    assert len(list(stream.range(where="at = '2026-11-28'"))) == 4


def test_conditions_are_values_of_python(typed: logstore.Stream[Any]) -> None:
    typed.add(TYPED)
    typed.add(TYPED | {"temp": 5, "note": "x"})
    assert [entry["temp"] for entry in typed.range(where={"temp": 5})] == [5.0]
    assert len(list(typed.range(where={"at": MOMENT, "on": "TRUE"}))) == 2
    with pytest.raises(SchemaError, match="temp"):
        typed.range(where={"temp": "warm"})


def test_handles_agree_on_a_schema_that_changes(typed: logstore.Stream[Any]) -> None:
    other = typed._opened  # another handle that was there before
    old = logstore.Stream(other, b"typed")
    old.add(TYPED)
    typed.configure(schema=COLUMNS.replace("count long", "count double"))
    typed.add(TYPED | {"count": 1.5})
    assert [entry["count"] for entry in typed] == [float(2**40), 1.5]
    old.add(TYPED)
    *_, last = logstore.Stream(other, b"typed")
    assert last["count"] == float(2**40)
    *_, seen = old
    assert seen["temp"] == 21.53


def test_a_handle_from_before_the_schema_writes_by_it(store: logstore.Store[bytes]) -> None:
    old = store.stream("s")
    old.add({"at": "2026-11-26 12:00"})
    store.stream("s").configure(schema="at timestamp")
    old.add({"at": MOMENT})
    assert [entry["at"] for entry in store.stream("s")] == [MOMENT, MOMENT]


def test_a_stream_has_a_schema_or_a_codec(store: logstore.Store[bytes]) -> None:
    store.stream("coded", codec="json").add({"a": [1]})
    with pytest.raises(OptionError, match="codec 'json'"):
        store.stream("coded").configure(schema="a json")
    store.stream("typed").configure(schema="a json")
    with pytest.raises(OptionError, match="schema"):
        store.stream("typed", codec="json").add({"a": [1]})
    with pytest.raises(OptionError, match="this handle has the codec 'json'"):
        store.stream("new", codec="json").configure(schema="a json")
    assert store.stream("new").schema is None


def test_asyncio_has_the_types(tmp_path: Path) -> None:
    async def use() -> None:
        async with logstore.aio.open(tmp_path / "store") as store:
            stream = store.stream("s")
            await stream.configure(schema="temp double, at timestamp?")
            await stream.add({"temp": 21.5, "at": MOMENT})
            (found,) = await stream.read("0")
            assert (found["temp"], found["at"]) == (21.5, MOMENT)
            group = await stream.group("g", "0")
            (delivery,) = await group.read("a")
            assert delivery["temp"] == 21.5
            assert str(await stream.schema()) == "temp double, at timestamp?"

    asyncio.run(use())


def test_nodes_that_were_made_elsewhere_do_not_pass_the_schema_by(
    store: logstore.Store[bytes], sensor: logstore.Stream[bytes]
) -> None:
    """Prevents Spark's sink from adding what no schema took, or another one than there is now."""
    run = committer_of(store).run

    def staged(name: bytes, schema_at: int) -> StagedEntries:
        wrote = StagedRun(name, True, "file", 0, 0, 0, 1, (1, 0), (1, 0), schema_at)
        return StagedEntries(name, True, ((wrote, b""),))

    plain = [StagedEntries(b"other", True, ()), staged(b"sensor", 0)]
    other = [StagedEntries(b"other", True, ()), staged(b"sensor", 1)]
    for each in (plain, other):
        for mode in (publish.APPEND, publish.OVERWRITE, publish.IGNORE):
            step = partial(publish.publish, streams=each, mode=mode)
            if mode == publish.IGNORE:  # the stream is there: nothing is added to it
                assert run(step) == 0
            else:
                with pytest.raises(SchemaError, match=r"made elsewhere.*Run the job again"):
                    run(step)
    with pytest.raises(SchemaError, match="made elsewhere"):  # it was dropped, and its schema
        run(partial(publish.publish, streams=[staged(b"gone", 1)], mode=publish.IGNORE))
    assert len(sensor) == 0
    assert str(store.stream("sensor").schema) == SENSOR


def test_a_schema_and_settings_are_of_one_commit(store: logstore.Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add({"v": "x"})
    before = store.metrics()["commits"]
    after = stream.configure(schema="v string", max_entries=10)
    assert (after.max_entries, str(stream.schema)) == (10, "v string")
    assert stream.configure(schema="v string").max_entries == 10
    assert store.metrics()["commits"] == before + 1
    with pytest.raises(OptionError):
        stream.configure(schema="*", max_entries=-1)
    with pytest.raises(SchemaError):
        stream.configure(schema="v long", max_entries=20)
    assert (stream.settings.max_entries, str(stream.schema)) == (10, "v string")


def test_few_rows_with_ids_are_added_as_many_are(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", sync="os", background=False) as store:
        stream = store.stream("s")
        stream.configure(schema="n int")
        assert list(stream.add_many([((5, 0), {"n": 1}), ((6, 0), {"n": "2"})])) == [(5, 0), (6, 0)]
        assert [entry["n"] for entry in stream.range()] == [1, 2]
        with pytest.raises(SchemaError, match="row 1"):
            stream.add_many([((7, 0), {"n": 1}), ((8, 0), {"n": "x"})])
