"""Prevents an ack that holds the event loop, or that no worker and no transaction sees."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from logstore import DeletedDelivery, Delivery, aio
from logstore.aio import AsyncDelivery, AsyncGroup
from logstore.api.opening import OpenStore


@asynccontextmanager
async def group_of(path: Path, entries: int) -> AsyncIterator[AsyncGroup[bytes]]:
    """A group with so many entries to read."""
    async with aio.open(path / "store", sync="os", background=False) as store:
        await store["s"].add_many([{"n": n} for n in range(entries)])
        yield await store["s"].group("g", "0")


def test_an_ack_is_awaited_and_runs_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with group_of(tmp_path, 2) as group:
            first, second = await group.read("w")
            assert isinstance(first, AsyncDelivery)
            assert isinstance(first, Delivery)
            assert (first.group, first.consumer, first["n"]) == (group, b"w", b"0")
            seen: list[int] = []
            plain_ack = OpenStore.ack_delivery

            def ack(opened: OpenStore[bytes], *asked: Any) -> bool:
                seen.append(threading.get_ident())
                return plain_ack(opened, *asked)

            monkeypatch.setattr(OpenStore, "ack_delivery", ack)
            assert await first.ack() is True
            assert len(seen) == 1
            assert seen != [threading.get_ident()]
            assert first.settled
            assert await second.nack(error="no") is True
            assert second.settled
            assert await first.ack() is False
            assert [each.id for each in await group.backlog("w")] == []

    asyncio.run(run())


def test_a_transaction_settles_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with group_of(tmp_path, 1) as group:
            (given,) = await group.read("w")
            async with group._store.transaction() as tx:
                tx.stream("done").add({"n": given["n"]})
                tx.ack(given)
            assert given.settled
            assert (await group.pending()).count == 0

    asyncio.run(run())


def test_a_worker_sees_what_its_handler_settled(tmp_path: Path) -> None:
    """An ack of what the handler gave back would lose the entry."""

    async def run() -> None:
        async with group_of(tmp_path, 3) as group:
            given: list[AsyncDelivery[bytes]] = []

            async def handler(delivery: AsyncDelivery[bytes]) -> None:
                given.append(delivery)
                if delivery["n"] == b"1" and delivery.delivery_count == 1:
                    await delivery.nack()
                elif delivery["n"] == b"2":
                    await delivery.ack()

            async with asyncio.timeout(60):
                await group.consume("w", handler, timeout=0, batch=1)
            assert {type(each) for each in given} == {AsyncDelivery}
            assert sorted(each["n"] for each in given) == [b"0", b"1", b"1", b"2"]
            assert (await group.pending()).count == 0

    asyncio.run(run())


def test_a_plain_handler_gets_a_plain_delivery(tmp_path: Path) -> None:
    async def run() -> None:
        async with group_of(tmp_path, 1) as group:
            given: list[Delivery[bytes]] = []

            def handler(delivery: Delivery[bytes]) -> None:
                given.append(delivery)
                assert delivery.ack() is True

            await group.consume("w", handler, timeout=0)
            assert [type(each) for each in given] == [Delivery]

    asyncio.run(run())


def test_all_ways_to_come_by_deliveries(tmp_path: Path) -> None:
    async def run() -> None:
        async with group_of(tmp_path, 3) as group:
            first, second, third = await group.read("w", timeout=1)
            await group.stream.delete(second.id)
            mine = await group.backlog("w")
            assert [type(each).__name__ for each in mine] == [
                "AsyncDelivery", "AsyncDeletedDelivery", "AsyncDelivery",
            ]  # fmt: skip
            gone = mine[1]
            assert isinstance(gone, DeletedDelivery)
            assert (gone.fields, gone.pairs, gone.deleted) == (None, [], True)
            assert await gone.ack() is True
            (claimed,) = await group.claim("v", first.id, min_idle=0)
            taken = await group.autoclaim("u", min_idle=0)
            assert sorted(each.id for each in taken.entries) == [first.id, third.id]
            assert [await each.ack() for each in taken.entries] == [True, True]
            assert await claimed.ack() is False  # it was acked by then
            assert (await group.pending()).count == 0

    asyncio.run(run())


def test_an_async_delivery_has_an_async_group_and_its_codec(tmp_path: Path) -> None:
    async def run() -> None:
        async with aio.open(tmp_path / "store", sync="os", background=False) as store:
            stream = store.stream("s", codec="json")
            await stream.add({"n": {"x": 1}})
            (given,) = await (await stream.group("g", "0")).read("w")
            assert isinstance(given.group, AsyncGroup)
            again = await given.group.stream.add({"n": "1"})
            found = await given.group.stream.get(again)
            assert found is not None
            assert found["n"] == "1"
            assert await given.group.ack(given.id) == 1

    asyncio.run(run())


def test_a_copy_of_it_is_plain(tmp_path: Path) -> None:
    async def run() -> None:
        async with group_of(tmp_path, 1) as group:
            (given,) = await group.read("w")
            copy = pickle.loads(pickle.dumps(given))
            assert (type(copy), copy.id, copy["n"]) == (Delivery, given.id, b"0")
            copy.group._opened.close()

    asyncio.run(run())
