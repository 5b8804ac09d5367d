"""Prevents a read of several streams that misses, repeats or invents entries, or gives more than
was asked for.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import logstore
import logstore.aio
from logstore import Entry, OptionError
from logstore.api.store import Store
from logstore.ids import MAX_ID
from tests.store.conftest import OpenStore


@pytest.fixture
def two(store: Store[bytes]) -> Store[bytes]:
    """Streams a (1-0 to 12-0) and b (1-0 to 3-0)."""
    for name, count in (("a", 12), ("b", 3)):
        store.stream(name).add_many(((ms, 0), {"n": ms}) for ms in range(1, count + 1))
    return store


def numbers(found: dict[Any, list[logstore.Entry[Any]]]) -> dict[Any, list[int]]:
    """The milliseconds of the IDs by stream."""
    return {name: [entry.id.ms for entry in entries] for name, entries in found.items()}


def test_entries_above_an_id_of_each_stream(two: Store[bytes]) -> None:
    assert numbers(two.read({"a": "9", "b": "0"})) == {b"a": [10, 11, 12], b"b": [1, 2, 3]}
    assert numbers(two.read({b"a": (9, 1)}, count=2)) == {b"a": [10, 11]}
    for unlimited in (None, 0, -1):
        assert len(two.stream("a").read("0", count=unlimited)) == 12


def test_streams_without_any_are_left_out(two: Store[bytes]) -> None:
    assert two.read({"a": "12", "b": "$", "none": "0"}) == {}
    assert numbers(two.read({"a": "12-0", "b": "2"})) == {b"b": [3]}
    assert two.read({}) == {}
    assert two.stream("a").read(MAX_ID) == []


def test_the_dollar_sign_is_the_last_id_ever_given(two: Store[bytes]) -> None:
    stream = two.stream("b")
    stream.delete("3")
    assert stream.read("$") == stream.read(b"$") == stream.read(timeout=0.01) == []
    with pytest.raises(OptionError, match="names no ID"):
        stream.read()
    assert [entry.id.ms for entry in stream.read(stream.last_id)] == []


def test_the_plus_sign_is_the_last_entry(two: Store[bytes]) -> None:
    stream = two.stream("b")
    stream.delete("3")
    assert [entry.id.ms for entry in stream.read("+", count=5)] == [2]
    stream.delete_range("-", "+")
    assert stream.read("+") == []


def test_names_come_in_the_encoding_of_the_store(two: Store[bytes], open_store: OpenStore) -> None:
    text = open_store(encoding="utf-8")
    assert numbers(text.read({"b": "1"})) == {"b": [2, 3]}


@pytest.mark.parametrize("after", ["", "-", "(1", "*", None, 1.5])
def test_a_wrong_id_is_refused(two: Store[bytes], after: Any) -> None:
    with pytest.raises(logstore.InvalidIDError):
        two.read({"a": after})


@pytest.mark.parametrize("count", ["5", True, 1.5])
def test_a_wrong_count_is_refused(two: Store[bytes], count: Any) -> None:
    with pytest.raises(logstore.OptionError, match="count"):
        two.read({"a": "0"}, count=count)


def test_two_names_of_one_stream_are_refused(two: Store[bytes]) -> None:
    """Of the two answers only the last was given, and the entries of the first were missed."""
    after: Any = {"a": "0", b"a": "11"}
    with pytest.raises(logstore.UsageError, match="stream b'a' is named twice: give one ID for it"):
        two.read(after)
    with pytest.raises(logstore.UsageError, match="stream b'a' is named twice"):
        next(two.follow(after, timeout=0))

    async def both() -> None:
        async with logstore.aio.open(two.path.with_name("other")) as store:
            with pytest.raises(logstore.UsageError, match="named twice"):
                await store.read(after)
            with pytest.raises(logstore.UsageError, match="named twice"):
                await anext(store.follow(after, timeout=0))

    asyncio.run(both())


SIZE = 16 + 1 + 10  # of an entry with one field "v" of 10 bytes
BAD: list[dict[str, Any]] = [
    {"max_count": 0}, {"max_count": -1}, {"max_count": True}, {"max_count": "3"},
    {"max_bytes": 0}, {"max_bytes": 1.5}, {"count": 5, "max_count": 4}, {"count": "1"},
]  # fmt: skip


def fill(store: Store[Any]) -> None:
    for name in ("a", "b", "c"):
        store.stream(name).add_many([((n, 0), {"v": "x" * 10}) for n in range(1, 6)])


def ids(found: list[Entry[Any]]) -> list[int]:
    return [entry.id.ms for entry in found]


def test_one_stream(store: Store[bytes]) -> None:
    fill(store)
    read = store.stream("a").read
    assert ids(read("0", max_count=2)) == [1, 2]
    assert ids(read("0", count=2, max_count=3)) == [1, 2]
    assert ids(read("0", count=0, max_count=3)) == [1, 2, 3]
    assert ids(read("2", max_bytes=3 * SIZE)) == [3, 4, 5]
    assert ids(read("0", max_bytes=3 * SIZE)) == [1, 2, 3]
    assert ids(read("0", max_bytes=3 * SIZE - 1)) == [1, 2]
    assert ids(read("0", max_bytes=1)) == [1]  # one in any case
    assert ids(read("+", max_bytes=1, max_count=1)) == [5]
    assert read("5", max_bytes=1) == []
    assert store.stream("a").first.size_bytes == SIZE  # type: ignore[union-attr]


def test_many_streams_in_the_order_of_the_caller(store: Store[bytes]) -> None:
    fill(store)

    def read(order: str, **limits: int) -> dict[bytes, list[int]]:
        found = store.read(dict.fromkeys(order, "0"), **limits)
        return {name: ids(entries) for name, entries in found.items()}

    assert read("abc", count=2, max_count=3) == {b"a": [1, 2], b"b": [1]}
    assert read("cab", max_count=6) == {b"c": [1, 2, 3, 4, 5], b"a": [1]}
    assert read("cab", max_count=5) == {b"c": [1, 2, 3, 4, 5]}
    assert read("bca", count=1, max_count=3) == {b"b": [1], b"c": [1], b"a": [1]}
    assert read("abc", count=2, max_bytes=5 * SIZE) == {b"a": [1, 2], b"b": [1, 2], b"c": [1]}
    assert read("abc", max_bytes=5 * SIZE - 1) == {b"a": [1, 2, 3, 4]}
    assert read("bac", max_bytes=1) == {b"b": [1]}
    store.stream("big").add({"v": "x" * 100}, id="1-0")
    assert store.read({"a": "4", "big": "0", "b": "4"}, max_bytes=2 * SIZE).keys() == {b"a"}
    found = store.read({"a": "3", "b": "+", "c": "0"}, max_count=3)
    assert {name: ids(entries) for name, entries in found.items()} == {b"a": [4, 5], b"b": [5]}


def test_text_is_counted_in_bytes(open_store: OpenStore) -> None:
    store = open_store(encoding="utf-8")
    store.stream("s").add_many([{"ä": "öü"}] * 3)
    assert [entry.size_bytes for entry in store.stream("s")] == [22] * 3
    assert len(store.stream("s").read("0", max_bytes=44)) == 2
    assert len(store.stream("s").read("0", max_bytes=43)) == 1


@pytest.mark.parametrize("limits", BAD, ids=str)
def test_bad_limits_are_refused(store: Store[bytes], limits: dict[str, Any]) -> None:
    fill(store)
    with pytest.raises(OptionError):
        store.stream("a").read("0", **limits)
    with pytest.raises(OptionError):
        store.read({"a": "0"}, **limits)


def test_a_read_that_waits_keeps_its_limits(store: Store[bytes]) -> None:
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append(store.read({"a": "$", "b": "$"}, max_count=2, timeout=20.0))
    )
    thread.start()
    while not store.metrics()["waits"]:
        time.sleep(0.001)
    with store.transaction() as tx:
        for name in "bba":
            tx.stream(name).add({"v": "1"})
    thread.join()
    assert {name: len(entries) for name, entries in found[0].items()} == {b"a": 1, b"b": 1}


def test_limits_for_asyncio(store: Store[bytes]) -> None:
    fill(store)
    path = store.path
    store.close()

    async def run() -> None:
        async with logstore.aio.open(path) as opened:
            assert ids(await opened.stream("a").read("0", max_bytes=2 * SIZE)) == [1, 2]
            assert ids(await opened.stream("a").read("0", max_count=3, timeout=5.0)) == [1, 2, 3]
            found = await opened.read({"b": "0", "a": "0"}, count=3, max_count=4, timeout=5.0)
            assert {name: ids(entries) for name, entries in found.items()} == {
                b"b": [1, 2, 3], b"a": [1],
            }  # fmt: skip
            with pytest.raises(OptionError):
                await opened.stream("a").read("0", count=3, max_count=2, timeout=1.0)

    asyncio.run(run())
