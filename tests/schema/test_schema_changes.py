"""A schema that is changed: it reads what is stored, and each handle goes by it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import SchemaError
from logstore.engine.features import schema_changes
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
