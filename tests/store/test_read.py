"""Prevents a read of several streams that misses, repeats or invents entries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import logstore
import logstore.aio
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
    assert stream.read() == stream.read("$") == stream.read(b"$") == []
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
