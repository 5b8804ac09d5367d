"""Prevents values that come back otherwise than they were added, and codecs that are mixed up."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import logstore
from logstore import EntryTypeError, InvalidEntryError, OptionError
from logstore.api.store import Store
from tests.store.conftest import OpenStore
from tests.support.inside import delete_index
from tests.support.threads import run_all

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - a codec may hold what has no zone
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
VALUES: list[Any] = [
    None, True, False, 0, -1, 2**63 - 1, 1.5, "", "text", "é\n\"", "null", {}, [], MOMENT,
    {"a": [1, None, {"b": [True, MOMENT]}]}, {"$datetime": 1, "more": 2}, b"\x00\xff",
]  # fmt: skip
ENCODINGS = (None, "utf-8", "latin-1")


class Reversed:
    """A codec of one's own: text, backwards."""

    name = "reversed"

    def encode(self, value: Any) -> bytes:
        return value[::-1].encode()

    def decode(self, data: bytes) -> Any:
        return data.decode()[::-1]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_values_round_trip_through_each_codec(
    open_store: OpenStore, codec: str, encoding: str | None
) -> None:
    stream = open_store(encoding=encoding).stream("s", codec=codec)
    fields = {f"f{place}": value for place, value in enumerate(VALUES)}
    id = stream.add(fields)
    entry = stream[id]
    assert dict(entry) == dict(entry.fields) == fields
    assert entry.pairs == list(fields.items())
    assert entry.as_dict() == {"id": str(id), "fields": fields}
    assert [type(value) for value in dict(entry).values()] == [type(value) for value in VALUES]
    assert (entry["f0"], entry[b"f1"], "f2" in entry, b"f2" in entry) == (None, True, True, True)
    assert ("f99" in entry, b"f99" in entry, 5 in entry) == (False, False, False)
    for found in (stream.first, stream.last, next(stream.range()), stream.read("0")[0],
                  next(stream.follow("0", timeout=0)), stream.info().first_entry):  # fmt: skip
        assert found is not None
        assert dict(found) == fields
    assert entry.size_bytes > 16


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.datetimes()
    | st.floats(allow_nan=False, allow_infinity=False) | st.binary() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(JSON)
def test_json_gives_back_what_it_takes(value: Any) -> None:
    from logstore.api.values import value_codec

    codec = value_codec("json")
    try:
        data = codec.encode(value)
    except TypeError:  # a mapping of one name that stands for a datetime, a date or bytes
        assert "$" in repr(value)
    else:
        assert codec.decode(data) == value


def test_other_kinds_of_times(open_store: OpenStore) -> None:
    store = open_store()
    there = datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    for codec in ("json", "msgpack"):
        stream = store.stream(codec, codec=codec)
        assert stream[stream.add({"at": there})]["at"] == there
    stream = store.stream("json", codec="json")
    naive, day = NAIVE, date(2026, 1, 1)
    entry = stream[stream.add({"naive": naive, "day": day})]
    assert (entry["naive"], entry["day"]) == (naive, day)


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        ("json", {1, 2}), ("json", float("nan")), ("json", object()), ("json", {(1, 2): 3}),
        ("json", {"$bytes": "AA=="}), ("json", [{"x": {"$date": "2026-01-01"}}]),
        ("msgpack", {1, 2}), ("msgpack", 2**64), ("msgpack", NAIVE),
        (Reversed(), 5),
    ],
)  # fmt: skip
def test_a_value_that_a_codec_cannot_hold_is_refused(
    store: Store[bytes], codec: Any, value: Any
) -> None:
    stream = store.stream("s", codec=codec)
    for add in (
        lambda: stream.add({"fine": "1", "bad": value}),
        lambda: stream.add_many([{"fine": "1"}, {"bad": value}]),
        lambda: stream.schedule({"bad": value}, after=5),
    ):
        with pytest.raises(EntryTypeError, match="cannot hold the value of field 'bad'"):
            add()
    assert len(stream) == 0
    assert list(stream.scheduled()) == []


@pytest.mark.parametrize("codec", ["yaml", "", b"json", 5, Reversed, object()])
def test_an_invalid_codec_is_refused(store: Store[bytes], codec: Any) -> None:
    for give in (store.stream, store.transaction().stream):
        with pytest.raises(OptionError, match="codec"):
            give("s", codec=codec)


@pytest.mark.parametrize("name", ["json", "", "x" * 65, 5])
def test_names_of_one_s_own(store: Store[bytes], name: Any) -> None:
    own = Reversed()
    own.name = name
    with pytest.raises(OptionError, match="codec"):
        store.stream("s", codec=own)


def test_a_codec_of_one_s_own(open_store: OpenStore) -> None:
    stream = open_store().stream("s", codec=Reversed())
    stream.add({"a": "abc"})
    assert stream.last is not None
    assert stream.last["a"] == "abc"
    assert stream.settings.codec == "reversed"

    class Broken(Reversed):
        def encode(self, value: Any) -> Any:
            return "text"

    with pytest.raises(EntryTypeError, match="gave str and not bytes"):
        open_store().stream("s", codec=Broken()).add({"a": "b"})


def test_the_codec_stays_with_the_stream(open_store: OpenStore) -> None:
    store = open_store()
    store.stream("s", codec="json").add({"n": 1})
    assert store.stream("s").settings.codec == "json"
    store.checkpoint()
    store.close()
    delete_index(store.path)
    store = open_store()
    other = store.stream("s", codec="msgpack")
    for use in (
        lambda: other.add({"n": 1}), lambda: other.add_many([{"n": 1}]), lambda: other.last,
        lambda: other.get("1-1"), lambda: list(other), lambda: other.read("0"),
        lambda: other.schedule({"n": 1}, after=5),
    ):  # fmt: skip
        with pytest.raises(OptionError, match="the stream has the codec 'json', and not 'msgpack'"):
            use()
    tx = store.transaction()
    tx.stream("t").add({"n": 2})
    tx.stream("s", codec="msgpack").add({"n": 2})
    with pytest.raises(OptionError, match="'json'"):
        tx.commit()
    assert store.streams() == [b"s"]
    assert [dict(entry) for entry in store.stream("s", codec="json")] == [{"n": 1}]
    assert [dict(entry) for entry in store.stream("s")] == [{b"n": b"1"}]


def test_a_stream_that_was_dropped_has_it_again(store: Store[bytes]) -> None:
    stream = store.stream("s", codec="json")
    stream.add({"n": 1})
    store.drop("s")
    assert stream.add({"n": 1}, create=False) is None
    stream.add({"n": 2})
    assert stream.settings.codec == "json"
    assert not store.stream("t", codec="json").add({"n": 1}, create=False)
    assert b"t" not in store


def test_an_empty_stream_may_change_it(store: Store[bytes]) -> None:
    stream = store.stream("s", codec="json")
    stream.delete(stream.add({"n": 1}))
    other = store.stream("s", codec="msgpack")
    with store.transaction() as tx:
        tx.stream("s", codec="msgpack").add({"n": 2})
    assert [entry["n"] for entry in other] == [2]


def test_a_value_that_was_added_without_the_codec(open_store: OpenStore) -> None:
    store = open_store(encoding="utf-8")
    stream = store.stream("s", codec="json")
    stream.add({"n": 1})
    store.stream("s").add({"n": "no JSON", "m": "2"})
    good, bad = stream
    assert (good["n"], bad["m"], bad.get("x")) == (1, 2, None)
    with pytest.raises(InvalidEntryError, match=r"field 'n'.*without codec="):
        bad["n"]
    with pytest.raises(InvalidEntryError):
        dict(bad)
    assert "no JSON" in repr(bad)
    assert "no JSON" in bad._repr_html_()
    assert "no JSON" in repr(bad.fields)


def test_json_that_others_wrote(store: Store[bytes]) -> None:
    """With space around it, a mark of its encoding, or in another one."""
    stream = store.stream("s", codec="json")
    stream.add({"n": 0})
    texts = [
        b' {"a": [1]}\n',
        b'\xef\xbb\xbf{"a": [1]}',
        '{"a": [1]}'.encode("utf-16"),
        b'{"a":[1]}',
    ]
    store.stream("s").add_many({"n": text} for text in texts)
    assert [entry["n"] for entry in stream] == [0, *[{"a": [1]}] * 4]
    store.stream("s").add({"n": b'{"a": 1} {"b": 2}'})
    with pytest.raises(InvalidEntryError, match="Extra data"):
        stream.last["n"]  # type: ignore[index]


def test_groups_hand_values_out(store: Store[bytes]) -> None:
    stream = store.stream("jobs", codec="json")
    stream.add_many([{"n": n} for n in range(3)])
    group = stream.group("g", start="0")
    group.configure(max_deliveries=1, dead_letter="dead")
    told: list[Any] = []
    store.on_dead_letter(lambda dead: told.append(dead["n"]))
    (first,) = group.read("me", count=1)
    assert first["n"] == 0
    first.nack()
    seen: list[Any] = []
    pickle.loads(pickle.dumps(group)).consume("me", lambda job: seen.append(job["n"]), timeout=0)
    assert (seen, told) == ([1, 2], [0])


def test_transactions_and_schedules(store: Store[bytes]) -> None:
    with store.transaction() as tx:
        tx.stream("s", codec="json").add({"n": None})
        tx.stream("s", codec="json").add_many([{"n": 1}, {"n": [2]}])
        tx.stream("s", codec="json").schedule({"n": {"later": True}}, after=60)
    stream = store.stream("s", codec="json")
    assert [entry["n"] for entry in stream] == [None, 1, [2]]
    (kept,) = stream.scheduled()
    assert (dict(kept.fields), kept.pairs) == ({"n": {"later": True}}, [("n", {"later": True})])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_add_many_encodes_values_as_add_does(open_store: OpenStore, encoding: str | None) -> None:
    """Also rows of all kinds, with names that are no ASCII, and those of which one is refused."""
    stream = open_store(encoding=encoding).stream("s", codec="msgpack")
    name = "\udcff" if encoding == "utf-8" else "ÿ"
    rows: list[Any] = [
        {"é": [1], "b": None}, [("é", 2), ("é", 3)], iter([("b", {"x": 1})]), {b"n": 1, 5: 2},
        {name: True},
    ]  # fmt: skip
    expected = [[("é", [1]), ("b", None)], [("é", 2), ("é", 3)], [("b", {"x": 1})],
                [("n", 1), ("5", 2)], [(name, True)]]  # fmt: skip
    assert len(stream.add_many(rows)) == 5
    assert [entry.pairs for entry in stream] == expected
    for row, pairs in zip([*rows[:2], *rows[3:]], expected[:2] + expected[3:],
                          strict=True):  # fmt: skip
        assert stream[stream.add(row)].pairs == pairs


def test_a_value_whose_encoding_adds_another_one(store: Store[bytes]) -> None:
    """A packer has a buffer: a call inside of a call must not write into it."""
    stream = store.stream("s", codec="msgpack")
    stream.add({"n": 0})

    class Adding(tzinfo):
        def utcoffset(self, dt: datetime | None) -> timedelta:
            if len(stream) < 5:
                stream.add({"inside": [len(stream), "x" * 100]})
            return timedelta(hours=1)

        def dst(self, dt: datetime | None) -> timedelta:
            return timedelta(0)

        def tzname(self, dt: datetime | None) -> str:
            return "there"

    there = datetime(2026, 1, 1, 1, tzinfo=Adding())
    id = stream.add({"before": "y" * 50, "at": [there, there], "after": "z"})
    entry = stream[id]
    assert entry["at"] == [datetime(2026, 1, 1, tzinfo=UTC)] * 2
    assert (entry["before"], entry["after"]) == ("y" * 50, "z")
    inside = [each["inside"] for each in stream if "inside" in each]
    assert inside
    assert {text for _, text in inside} == {"x" * 100}


def test_threads_that_add_at_once(store: Store[bytes]) -> None:
    streams = [store.stream("s", codec="msgpack") for _ in range(2)] * 2

    def add(thread: int) -> None:
        for n in range(50):
            streams[thread].add({"at": MOMENT, "n": [thread, n], "text": "x" * thread})

    threads = [Thread(target=add, args=(number,)) for number in range(4)]
    run_all(threads)
    found = [(entry["n"], entry["text"], entry["at"]) for entry in streams[0]]
    expected = [([thread, n], "x" * thread, MOMENT) for thread in range(4) for n in range(50)]
    assert sorted(found) == expected


def test_rows_with_ids(store: Store[bytes]) -> None:
    stream = store.stream("s", codec="json")
    stream.add_many([("5-1", {"n": 1}), ("6-1", [("n", 2), ("n", 3)])])
    stream.add_many([("a", {"n": 4}), ("a", {"n": 4})], producer="p")
    assert [entry.pairs for entry in stream] == [
        [("n", 1)], [("n", 2), ("n", 3)], [("n", 4)],
    ]  # fmt: skip
    for bad in ("text", 5, [5], [("a",)]):
        with pytest.raises(logstore.Error):
            stream.add(bad)
    with pytest.raises(logstore.Error):
        stream.add_many(5)


def test_the_asyncio_face(tmp_path: Path) -> None:
    async def use() -> None:
        async with logstore.aio.open(tmp_path / "store") as store:
            stream = store.stream("s", codec="json")
            await stream.add({"n": 1})

            async def rows() -> Any:
                for n in (2, 3):
                    yield {"n": n}

            await stream.add_many(rows(), batch=1)
            assert [entry["n"] async for entry in stream] == [1, 2, 3]
            assert [entry["n"] for entry in await stream.read("0")] == [1, 2, 3]
            assert [entry["n"] async for entry in stream.follow("0", timeout=0)] == [1, 2, 3]
            group = await stream.group("g", start="0")
            assert [each["n"] for each in await group.read("me")] == [1, 2, 3]
            with pytest.raises(OptionError):
                await store.stream("s", codec="msgpack").last()

    import logstore.aio

    asyncio.run(use())
