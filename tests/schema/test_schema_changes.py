"""A schema that is changed: it reads what is stored, and each handle goes by it at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from time import sleep
from typing import Any

import pyarrow as pa
import pytest

import logstore
import logstore.aio
from logstore import SchemaError
from logstore.api.transaction import Transaction
from logstore.engine.features import schema_changes
from logstore.errors import EntryTypeError, OptionError
from logstore.options import StreamSettings
from logstore.schema.schema_text import parse
from tests.support.inside import committer_of, engine_of

Typed = logstore.Stream[str]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[logstore.Store[str]]:
    with logstore.open(tmp_path / "store", encoding="utf-8", background=False) as opened:
        yield opened


# -- what is stored ---------------------------------------------------------------------------
def dropped(stream: Typed, name: str, value: Any) -> None:
    stream.configure(schema=f'"{name}" string, room string')
    stream.add({name: value, "room": "a"}, "5-1")
    stream.configure(schema="room string")


def passed_over(stream: Typed, name: str, value: Any) -> None:
    stream.add({name: value, "room": "a"}, "5-1")
    stream.configure(schema="room string")


def closed(stream: Typed, name: str, value: Any) -> None:
    stream.configure(schema="room string, *")
    stream.add({name: value, "room": "a"}, "5-1")
    stream.configure(schema="room string")


def dead(stream: Typed, name: str, value: Any) -> None:
    """A letter is moved as it is."""
    stream.configure(schema="room string")
    other = logstore.Stream(stream._opened, b"other")
    other.add({name: value, "room": "a"})
    group = other.group("g", "0")
    group.configure(max_deliveries=1, dead_letter=stream.name)
    (delivery,) = group.read("c")
    delivery.nack()
    assert group.read("c") == []
    assert len(stream) == 1


def scheduled(stream: Typed, name: str, value: Any) -> None:
    stream.schedule({name: value, "room": "a"}, after=3600)
    stream.configure(schema="room string")


OLDER = [dropped, passed_over, closed, dead, scheduled]


@pytest.mark.parametrize("older", OLDER)
@pytest.mark.parametrize("name", ["temp", "7", "a b"])
def test_a_column_that_comes_is_held_against_what_older_entries_have(
    store: logstore.Store[str], older: Callable[[Typed, str, Any], None], name: str
) -> None:
    """Prevents values that read as null, and fail where they are looked at."""
    stream = store.stream("s")
    older(stream, name, "warm")
    before = stream.schema
    where = "scheduled" if older is scheduled else "entry"
    for wanted in (f'room string, "{name}" double?', f'room string, "{name}" int? = 5'):
        with pytest.raises(SchemaError, match=f"does not fit .*{where}.*its '{name}' is"):
            stream.configure(schema=wanted)
        assert stream.schema == before
    stream.configure(schema=f'room string, "{name}" string?')
    found = [*stream, *stream.scheduled()]
    assert [dict(each.pairs)[name] for each in found if name in dict(each.pairs)] == ["warm"]


def test_a_column_that_comes_fits_what_older_entries_have(store: logstore.Store[str]) -> None:
    stream = store.stream("s")
    dropped(stream, "temp", "21.50")
    with pytest.raises(SchemaError, match=r"entry 5-1: its 'temp' is .*21.50"):
        stream.configure(schema="room string, temp int?")
    stream.configure(schema="room string, temp double?")
    assert [entry["temp"] for entry in stream] == [21.5]
    assert stream.scan(columns=["temp"]).to_arrow()["temp"].to_pylist() == [21.5]


def test_one_entry_among_very_many_stands_against_a_column_that_comes(
    store: logstore.Store[str],
) -> None:
    """Nodes that have no such field are passed over; those that have it are not."""
    stream = store.stream("s")
    stream.configure(schema="n int, *")
    stream.add_many({"n": number} for number in range(20_000))
    odd = stream.add({"n": 1, "temp": "warm"})
    stream.add_many({"n": number} for number in range(20_000))
    stream.configure(schema="n int")
    with pytest.raises(SchemaError, match=str(odd)):
        stream.configure(schema="n int, temp double?")
    with pytest.raises(SchemaError, match=str(odd)):
        stream.configure(schema="n int, other string?, temp double?")
    stream.configure(schema="n int, other string?")
    stream.delete(odd)
    stream.configure(schema="n int, temp double?")


def put(
    store: logstore.Store[str], text: str, meanwhile: Callable[[int], object]
) -> StreamSettings:
    """Set the schema of `s`; ``meanwhile`` does something before each commit but the first."""
    count = 0

    def commit(step: Callable[[Any], Any]) -> Any:
        nonlocal count
        if count:
            meanwhile(count)
        count += 1
        return committer_of(store).run(step)

    return schema_changes.put(
        engine_of(store),
        commit,
        b"s",
        parse(text),
        create=True,
        settings=lambda _txn: StreamSettings(),
    )


def test_entries_that_come_while_a_schema_is_set_are_held_against_it(
    store: logstore.Store[str],
) -> None:
    stream = store.stream("s")
    passed_over(stream, "hum", 1)
    put(store, "room string, hum int?", lambda _count: stream.add({"room": "b"}))
    assert len(stream) == 10  # one in each round but the first; the last looks in its commit
    stream.configure(schema="room string, *")

    def odd(count: int) -> None:
        stream.add({"room": "b", "temp": "warm" if count == 9 else 1})

    with pytest.raises(SchemaError, match="'temp' is"):
        put(store, "room string, temp int?", odd)


def test_a_schema_that_changes_while_another_is_set_has_all_looked_at_again(
    store: logstore.Store[str],
) -> None:
    """A column that was as wide as it need be is not, under the schema that came meanwhile."""
    stream = store.stream("s")
    stream.configure(schema="room string, temp string?")
    stream.add({"room": "a", "temp": "warm"})

    def narrow(count: int) -> None:
        if count == 1:
            stream.configure(schema="room string")

    put(store, "room string, temp string?, hum int?", narrow)
    stream.configure(schema="temp string?, room string")
    stream.add({"room": "a", "temp": "5"})

    def replaced(count: int) -> None:
        if count == 1:
            store.stream("t").add({"room": "a", "hum": "warm"}, "1-1")
            store.stream("t").add({"room": "a"}, "99999999999999-1")
            store.stream("t").configure(schema="room string")
            store.rename("t", "s")

    with pytest.raises(SchemaError, match="entry 1-1: its 'hum'"):
        put(store, "room string, hum int?", replaced)


# -- handles ----------------------------------------------------------------------------------
FIRST, WIDE = "temp double", "temp double, n long?, tags json?"
ROW: dict[str, Any] = {"temp": 2.5, "n": 2**40, "tags": "a"}


def in_transaction(stream: Typed, step: Callable[[Any], object]) -> None:
    with Transaction(stream._opened, None) as tx:
        step(tx.stream(stream.name))


def through_aio(stream: Typed, step: Callable[[Any], Any]) -> None:
    """A handle of asyncio over this very handle."""

    async def use() -> None:
        opening = logstore.aio.open(stream._opened.path, encoding="utf-8", background=False)
        async with opening as opened:
            made = opened.stream(stream.name)
            made._stream = stream  # which has read before
            await step(made)

    asyncio.run(use())


async def asynchronous() -> AsyncIterator[dict[str, Any]]:
    yield ROW


def due(stream: Typed) -> None:
    stream.schedule(ROW, after=3600)
    (kept,) = stream.scheduled()
    assert kept.fields == ROW
    stream.cancel(kept.key)
    stream.add(dict(kept.pairs))


TABLE = pa.table({"temp": [2.5], "n": [2**40], "tags": ['"a"']})
ADDS: dict[str, Callable[[Typed], object]] = {
    "add": lambda stream: stream.add(ROW),
    "add with options": lambda stream: stream.add(ROW, ttl=600),
    "add of pairs": lambda stream: stream.add(list(ROW.items())),
    "add of an iterator": lambda stream: stream.add(iter(ROW.items())),  # type: ignore[arg-type]
    "idempotent add": lambda stream: stream.add(ROW, producer="p"),
    "add_many": lambda stream: stream.add_many([ROW]),
    "add_many of an iterator": lambda stream: stream.add_many(iter([ROW])),
    "add_many of a table": lambda stream: stream.add_many(TABLE),
    "add_arrow": lambda stream: stream.add_arrow(TABLE),
    "schedule": due,
    "transaction": lambda stream: in_transaction(stream, lambda each: each.add(ROW)),
    "transaction of many": lambda stream: in_transaction(stream, lambda each: each.add_many([ROW])),
    "aio": lambda stream: through_aio(stream, lambda each: each.add(ROW)),
    "aio of many": lambda stream: through_aio(stream, lambda each: each.add_many(asynchronous())),
}


def other_process(path: Path, text: str) -> None:
    code = (
        "import sys, logstore\n"
        "with logstore.open(sys.argv[1]) as store: store.stream('s').configure(schema=sys.argv[2])"
    )
    subprocess.run([sys.executable, "-c", code, str(path), text], check=True)


@pytest.mark.parametrize("way", ADDS)
def test_a_handle_adds_by_the_schema_that_the_stream_has_now(
    store: logstore.Store[str], way: str
) -> None:
    """Also one that wrote or read by another one, or by none."""
    for number, (before, has_read) in enumerate(product([None, FIRST], [False, True])):
        stream = store.stream(f"s{number}")
        stream.configure(schema=before)
        stream.add({"temp": 1})
        if has_read:
            assert stream.last is not None
        other = store.stream(stream.name)
        other.configure(schema=WIDE)
        ADDS[way](stream)
        assert (len(stream), stream.last) == (2, other.last)
        assert dict(stream.last or {}) == ROW
        other.configure(schema="temp double")
        with pytest.raises(SchemaError, match="no column 'n'"):
            ADDS[way](stream)
        other.configure(schema=None)
        with pytest.raises(EntryTypeError):
            stream.add({"temp": datetime.now(UTC)})
        stream.add({"anything": "goes"})


def test_a_schema_that_another_process_sets_counts_at_once(
    store: logstore.Store[str], tmp_path: Path
) -> None:
    stream = store.stream("s")
    stream.configure(schema=FIRST)
    stream.add({"temp": 1})
    assert dict(stream.last or {}) == {"temp": 1.0}
    other_process(tmp_path / "store", WIDE)
    stream.add(ROW)
    assert dict(stream.last or {}) == ROW
    other_process(tmp_path / "store", "temp double, n string?, tags json?")
    assert (stream.last or {})["n"] == str(2**40)


def test_rows_that_come_slowly_are_written_by_the_schema_of_their_time(
    store: logstore.Store[str],
) -> None:
    stream = store.stream("s")
    stream.configure(schema=FIRST)

    def rows() -> Iterator[dict[str, Any]]:
        yield {"temp": 1}
        store.stream("s").configure(schema=WIDE)
        yield ROW

    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        store.stream("s").configure(schema="temp double, n long?, tags string?")
        yield from TABLE.to_batches()

    stream.add_many(rows(), batch=1)
    stream.add_arrow(pa.RecordBatchReader.from_batches(TABLE.schema, batches()), batch=1)
    assert [entry.get("tags") for entry in stream] == [None, '"a"', '"a"', '"a"']
    with store.transaction() as tx:
        tx.stream("s").add({"temp": 1, "tags": "text"})
        store.stream("s").configure(schema="temp double, n long?, tags string?, on bool? = true")
    assert dict(stream.last or {}) == {"temp": 1.0, "tags": "text", "on": True}


READS: dict[str, Callable[[Typed], Any]] = {
    "get": lambda stream: stream.get(stream.last_id),
    "last": lambda stream: stream.last,
    "range": lambda stream: next(stream.range(where={"n": 2**40})),
    "a condition": lambda stream: next(stream.range(where="n > 5")),
    "read": lambda stream: stream.read("0")[-1],
    "follow": lambda stream: [*stream.follow("0", timeout=0)][-1],
    "info": lambda stream: stream.info().last_entry,
    "backlog": lambda stream: stream.group("g").backlog("c")[-1],
    "group": lambda stream: stream.group("h").read("c")[-1],
    "claim": lambda stream: stream.group("g").claim("d", stream.last_id, min_idle=0)[-1],
}


@pytest.mark.parametrize("way", READS)
def test_a_handle_reads_by_the_schema_that_the_stream_has_now(
    store: logstore.Store[str], way: str
) -> None:
    """Values of several schemas never stand beside one another."""
    stream = store.stream("s")
    stream.configure(schema="temp double, n int")
    stream.group("g", "0")
    stream.group("h", "0")
    stream.add({"temp": 1, "n": 5})
    assert [each["n"] for each in stream.group("g").read("c")] == [5]
    assert stream.last is not None
    store.stream("s").configure(schema=WIDE)
    store.stream("s").add(ROW)
    store.stream("s").group("g").read("c")
    assert dict(READS[way](stream)) == ROW


def test_entries_that_are_waited_for_are_read_by_the_schema_that_came_meanwhile(
    store: logstore.Store[str],
) -> None:
    stream = store.stream("s")
    stream.configure(schema=FIRST)
    stream.add({"temp": 1})
    group = stream.group("g", "$")
    waits: list[Callable[[], Any]] = [
        lambda: group.read("c", timeout=60)[0],
        lambda: next(stream.follow(timeout=60)),
        lambda: next(stream.follow(where="temp > 2", timeout=60)),
        lambda: stream.read(timeout=60)[0],
    ]
    with ThreadPoolExecutor(len(waits)) as threads:
        found = [threads.submit(wait) for wait in waits]
        sleep(0.5)  # all wait by then; else less is tried
        store.stream("s").configure(schema=WIDE)
        store.stream("s").add(ROW)
        assert [dict(each.result()) for each in found] == [ROW] * len(waits)


def test_a_follower_finds_by_the_schema_that_came_meanwhile(store: logstore.Store[str]) -> None:
    """Prevents one that finds nothing any more: what was wider read as null."""
    stream = store.stream("s")
    stream.configure(schema="n int")
    followers = [
        stream.follow(where="n > 1", timeout=0.2),
        (entry for _, entry in store.follow(["s"], where="n > 1", timeout=0.2)),
    ]
    stream.add({"n": 2})
    assert [next(each).id for each in followers] == [stream.last_id] * 2
    store.stream("s").configure(schema="n long")
    stream.add({"n": 2**40})
    assert [next(each).id for each in followers] == [stream.last_id] * 2


def test_a_handle_with_a_codec_sees_that_the_stream_is_a_typed_one_by_now(
    store: logstore.Store[str],
) -> None:
    coded = store.stream("s", codec="json")
    coded.add({"room": "a"})
    store.drop("s")
    store.stream("s").configure(schema="room string")
    for add in (coded.add, lambda row: coded.add_many([row])):
        with pytest.raises(OptionError, match="has a schema"):
            add({"room": "a"})
    assert len(store.stream("s")) == 0
