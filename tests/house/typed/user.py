"""A user's program, for the type checkers: what each call gives is known to them. It never runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import assert_type

import logstore
from logstore import (
    Delivery,
    Entry,
    Group,
    GroupSettings,
    ScheduleKey,
    Store,
    Stream,
    StreamID,
    StreamInfo,
    aio,
)
from logstore.aio import AsyncDelivery, AsyncGroup, AsyncStream


def plain(flag: bool) -> None:
    """The plain face."""
    with logstore.open("events", encoding="utf-8") as store, logstore.open("raw") as raw:
        assert_type(store, Store[str])
        assert_type(raw, Store[bytes])
        assert_type(list(store), list[str])
        assert_type(list(raw), list[bytes])
        stream = store["laps"]
        assert_type(stream, Stream[str])
        assert_type(stream.add({"a": "b"}), StreamID)
        assert_type(stream.add({"a": "b"}, create=True), StreamID)
        assert_type(stream.add({"a": "b"}, create=False), StreamID | None)
        assert_type(stream.add({"a": "b"}, "*", create=flag), StreamID | None)
        assert_type(stream.schedule({"a": "b"}, after=5), ScheduleKey)
        assert_type(stream.schedule({"a": "b"}, after=5, create=flag), ScheduleKey | None)
        assert_type(next(iter(stream)), Entry[str])
        assert_type(next(iter(reversed(stream))), Entry[str])
        assert_type(stream.first, Entry[str] | None)
        assert_type(stream.info(), StreamInfo[str])
        assert_type(raw["laps"].info().name, bytes)
        group = stream.group("riders")
        assert_type(group, Group[str])
        assert_type(group.settings, GroupSettings[str])
        assert_type(group.settings.dead_letter, str | None)
        assert_type(group.read("alice"), list[Delivery[str]])
        with store.transaction() as tx:
            assert_type(tx.stream("laps").add({"a": "b"}).result, StreamID)
            assert_type(tx.stream("laps").add({"a": "b"}, create=flag).result, StreamID | None)
            assert_type(tx.stream("laps").schedule({"a": "b"}, after=1).result, ScheduleKey)


async def rows() -> AsyncIterator[dict[str, str]]:
    """Rows that come one by one."""
    yield {"a": "b"}


async def handle(delivery: Delivery[str]) -> None:
    """Work on one entry."""
    assert_type(delivery.fields["a"], str)


async def awaited(flag: bool) -> None:
    """The same names, awaited."""
    async with aio.open("events", encoding="utf-8") as store, aio.open("raw") as raw:
        assert_type(store, aio.AsyncStore[str])
        assert_type(raw, aio.AsyncStore[bytes])
        assert_type(await store.streams(), list[str])
        assert_type([name async for name in raw], list[bytes])
        assert_type(await store.len(), int)
        stream = store["laps"]
        assert_type(stream, AsyncStream[str])
        assert_type(await stream.add({"a": "b"}), StreamID)
        assert_type(await stream.add({"a": "b"}, create=flag), StreamID | None)
        assert_type(await stream.schedule({"a": "b"}, after=timedelta(days=1)), ScheduleKey)
        assert_type(await stream.schedule({"a": "b"}, after=1, create=flag), ScheduleKey | None)
        assert_type(len(await stream.add_many(rows(), batch=10)), int)
        assert_type([each async for each in stream], list[Entry[str]])
        assert_type([each async for each in stream.follow()], list[Entry[str]])
        assert_type(await stream.first(), Entry[str] | None)
        assert_type(await stream.last_id(), StreamID)
        assert_type(await stream.info(), StreamInfo[str])
        assert_type(await store.read({"laps": "$"}, timeout=1), dict[str, list[Entry[str]]])
        group = await stream.group("riders", "0")
        assert_type(group, AsyncGroup[str])
        assert_type(await group.read("alice"), list[AsyncDelivery[str]])
        assert_type((await group.settings()).dead_letter, str | None)
        assert_type(await group.consume("alice", handle, concurrency=10), int)
        async with store.transaction() as tx:
            assert_type(tx.stream("laps").add({"a": "b"}).result, StreamID)
