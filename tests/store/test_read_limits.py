"""Prevents reads that give more than was asked for, nothing at all, or entries out of turn."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import logstore.aio
from logstore import Entry, OptionError
from logstore.api.store import Store
from tests.store.conftest import OpenStore

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
