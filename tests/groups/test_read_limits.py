"""Prevents a group from delivering what a read's limits keep back: it would be pending, and nobody
would have it."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import logstore.aio
from tests.groups.shop import numbers, shop

SIZE = 16 + 1 + 1  # of an entry of the shop


def test_what_is_left_out_is_not_delivered(tmp_path: Path) -> None:
    with shop(tmp_path, 9) as (_, group, _):
        assert numbers(group.read("alice", max_bytes=2 * SIZE)) == [1, 2]
        assert numbers(group.pending_entries()) == [1, 2]
        assert (group.info().last_delivered_id, group.info().lag) == ((2, 0), 7)
        assert numbers(group.read("bob", max_bytes=3 * SIZE - 1)) == [3, 4]
        assert numbers(group.read("bob", max_bytes=1)) == [5]
        assert numbers(group.read("bob", max_count=2)) == [6, 7]
        assert numbers(group.read("bob", count=1, max_count=2, max_bytes=10 * SIZE)) == [8]
        assert numbers(group.read("bob", max_bytes=1, noack=True)) == [9]
        assert group.read("bob", max_bytes=1) == []
        assert group.pending().count == 8


def test_what_is_claimed_counts_too(tmp_path: Path) -> None:
    """Claimed entries come first, and use up the limits; what does not fit stays with its owner."""
    with shop(tmp_path, 8) as (_, group, clock):
        group.read("alice", count=4)
        clock.ms += 60_000
        found = group.read("bob", claim_idle=30, max_bytes=3 * SIZE)
        assert [(each.id.ms, each.delivery_count) for each in found] == [(1, 2), (2, 2), (3, 2)]
        assert numbers(group.pending_entries(consumer="alice")) == [4]
        assert group.info().last_delivered_id == (4, 0)
        found = group.read("bob", claim_idle=30, max_bytes=3 * SIZE)
        assert [(each.id.ms, each.delivery_count) for each in found] == [(4, 2), (5, 1), (6, 1)]
        group.nack("1-0", "2-0")
        assert numbers(group.read("carol", claim_idle=30, max_bytes=1)) == [1]
        assert numbers(group.read("carol", claim_idle=30, max_count=2)) == [2, 7]


def test_a_large_entry_comes_alone(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (store, group, _):
        store.stream("work").add({"v": "x" * 5_000}, id="2-0")
        store.stream("work").add({"v": "x"}, id="3-0")
        assert numbers(group.read("alice", max_bytes=100)) == [1]
        assert numbers(group.read("alice", max_bytes=100)) == [2]
        assert numbers(group.read("alice", max_bytes=100)) == [3]


@pytest.mark.parametrize(
    "limits",
    [{"max_count": 0}, {"max_bytes": 0}, {"max_bytes": -5}, {"count": 3, "max_count": 2},
     {"count": -1}, {"max_bytes": "9"}],
    ids=str,
)  # fmt: skip
def test_bad_limits_deliver_nothing(tmp_path: Path, limits: Any) -> None:
    with shop(tmp_path, 3) as (_, group, _):
        with pytest.raises(logstore.OptionError):
            group.read("alice", **limits)
        assert group.pending().count == 0
        assert not group.consumers()


def test_who_waits_behind_is_served_what_is_left(tmp_path: Path) -> None:
    """A read that its bytes cut short wakes the next one in the queue."""
    with shop(tmp_path) as (store, group, _):
        got: dict[str, list[int]] = {}

        def wait(name: str) -> None:
            got[name] = numbers(group.read(name, max_bytes=1, timeout=20.0))

        threads = [threading.Thread(target=wait, args=(f"c{n}",)) for n in range(4)]
        for place, thread in enumerate(threads, 1):
            thread.start()
            while store.metrics()["waits"] < place:
                time.sleep(0.001)
        with store.transaction() as tx:
            for n in range(1, 5):
                tx.stream("work").add({"n": str(n)}, id=f"{n}-0")
        for thread in threads:
            thread.join()
        assert got == {f"c{n}": [n + 1] for n in range(4)}


def test_limits_for_asyncio(tmp_path: Path) -> None:
    with shop(tmp_path, 6):
        pass

    async def run() -> None:
        async with logstore.aio.open(tmp_path / "store") as store:
            group = await store.stream("work").group("g")
            assert numbers(await group.read("alice", max_bytes=2 * SIZE)) == [1, 2]
            assert numbers(await group.read("alice", max_bytes=2 * SIZE, timeout=5.0)) == [3, 4]
            assert numbers(await group.read("alice", max_count=1, timeout=5.0)) == [5]
            with pytest.raises(logstore.OptionError):
                await group.read("alice", count=2, max_count=1, timeout=5.0)
            assert (await group.pending()).count == 5

    asyncio.run(run())
