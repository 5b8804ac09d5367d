"""Prevents a group's reads of many IDs or with limits from doing other than one by one."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import logstore.aio
import logstore.redis
from tests.groups.shop import numbers, shop

SIZE = 16 + 1 + 1  # of an entry of the shop


def test_entries_beyond_a_limit_are_not_delivered(tmp_path: Path) -> None:
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


def test_claimed_entries_count_against_limits(tmp_path: Path) -> None:
    """Claimed entries come first, and use up the limits; what does not fit stays with its owner."""
    with shop(tmp_path, 8) as (_, group, clock):
        group.read("alice", count=4)
        clock.ms += 60_000
        found = group.read("bob", min_idle=30, max_bytes=3 * SIZE)
        assert [(each.id.ms, each.delivery_count) for each in found] == [(1, 2), (2, 2), (3, 2)]
        assert numbers(group.pending_entries(consumer="alice")) == [4]
        assert group.info().last_delivered_id == (4, 0)
        found = group.read("bob", min_idle=30, max_bytes=3 * SIZE)
        assert [(each.id.ms, each.delivery_count) for each in found] == [(4, 2), (5, 1), (6, 1)]
        group.nack("1-0", "2-0")
        assert numbers(group.read("carol", min_idle=30, max_bytes=1)) == [1]
        assert numbers(group.read("carol", min_idle=30, max_count=2)) == [2, 7]


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


def test_a_read_cut_short_wakes_the_next_in_the_queue(tmp_path: Path) -> None:
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


SEED = 20261122
ENTRIES = 350  # of some nodes
COMMANDS: list[tuple[str, ...]] = [
    ("XDEL", "s"), ("XACK", "s", "g"), ("XDELEX", "s", "KEEPREF", "IDS"),
    ("XDELEX", "s", "DELREF", "IDS"), ("XDELEX", "s", "ACKED", "IDS"),
    ("XACKDEL", "s", "g", "KEEPREF", "IDS"), ("XACKDEL", "s", "g", "DELREF", "IDS"),
    ("XACKDEL", "s", "g", "ACKED", "IDS"), ("XCLAIM", "s", "g", "d", "0"),
]  # fmt: skip


def _fill(client: Any) -> None:
    for at in range(1, ENTRIES + 1):
        client.xadd("s", {"f": at}, id=f"{at}-1")
    client.execute_command("XDEL", "s", *(f"{at}-1" for at in range(240, ENTRIES)))
    for at in range(ENTRIES, 2 * ENTRIES):
        client.xadd("s", {"f": at}, id=f"{at}-2")
    for group in ("g", "h"):
        client.xgroup_create("s", group, id="0")
        client.xreadgroup(group, "c", {"s": ">"}, count=500)
    client.execute_command("XACK", "s", "g", *(f"{at}-1" for at in range(100, 130)))
    read = [f"{at}-{seq}" for at in range(300) for seq in (1, 2)]
    client.execute_command("XACK", "s", "h", *read)


def _server_content(client: Any) -> Any:
    return (
        client.xrange("s"), client.xinfo_stream("s")["length"],
        [client.execute_command("XPENDING", "s", group) for group in ("g", "h")],
        [[each["message_id"] for each in client.xpending_range("s", group, "-", "+", 2000)]
         for group in ("g", "h")],
    )  # fmt: skip


def _one_by_one(client: Any, words: tuple[str, ...], ids: list[str]) -> Any:
    if words[-1] == "IDS":
        return [client.execute_command(*words, 1, each)[0] for each in ids]
    found = [client.execute_command(*words, each) for each in ids]
    return sum(found) if isinstance(found[0], int) else [row for rows in found for row in rows]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_limits_give_the_entries_of_single_reads(words: tuple[str, ...], tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with (
        logstore.redis.Redis(tmp_path / "many") as many,
        logstore.redis.Redis(tmp_path / "single") as single,
    ):
        for client in (many, single):
            _fill(client)
        for round_ in range(3):
            count = rng.choice((5, 60, 400))
            ids = [f"{rng.randrange(2 * ENTRIES + 50)}-{rng.randrange(3)}" for _ in range(count)]
            if round_ == 1:
                ids.sort(key=lambda each: int(each.partition("-")[0]))
            said = many.execute_command(*words, *([len(ids)] * (words[-1] == "IDS")), *ids)
            expected = _one_by_one(single, words, ids)
            if words[0] == "XCLAIM":  # named twice it is claimed twice
                assert [row[0] for row in said] == [row[0] for row in expected]
            else:
                assert said == expected
            assert _server_content(many) == _server_content(single)
