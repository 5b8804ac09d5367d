"""Prevents counters that lie: counted twice, counted for what was refused, or not told."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import logstore.aio
from logstore.api.store import Store
from logstore.engine.shm.metrics import COUNTERS
from tests.groups.shop import shop
from tests.support.inside import engine_of

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
WAIT_S = 120.0


def grown(store: Store[Any], before: dict[str, int | float]) -> dict[str, int | float]:
    """What was counted since, without times and sizes."""
    after = store.metrics()
    return {
        name: value - before[name]
        for name, value in after.items()
        if value != before[name] and not name.endswith(("_bytes", "_s", "_s_max"))
    }


def test_every_counter_is_explained_and_told(tmp_path: Path) -> None:
    counters = PAGE.read_text("utf-8").partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|", counters, re.MULTILINE)
    with shop(tmp_path) as (store, _, _):
        assert list(store.metrics()) == told
    assert told[len(COUNTERS) :] == ["pins", "pinned_bytes", "oldest_pin_ms"]


def test_entries_are_counted_once(tmp_path: Path) -> None:
    with shop(tmp_path) as (store, _, _):
        work = store.stream("work")
        before = store.metrics()
        work.add({"a": "1"})
        work.add_many([{"a": "1"}] * 2500)
        assert grown(store, before) == {"added_entries": 2501, "commits": 4, "operations": 4}
        size = store.metrics()["added_bytes"] - before["added_bytes"]
        assert size == sum(len(lp) for _, lp in _nodes(store))
        before = store.metrics()
        assert len(list(work)) == 2501
        assert grown(store, before) == {"read_entries": 2501}
        before = store.metrics()
        ids = [entry.id for entry in work.range(count=3)]
        assert work.delete(*ids) == 3
        assert work.trim(max_entries=2400, approximate=False) == 98
        found = grown(store, before)
        assert (found["deleted_entries"], found["trimmed_entries"]) == (3, 98)


def _nodes(store: Store[Any]) -> list[tuple[Any, bytes]]:
    from tests.store.whole_store import stream_nodes

    return stream_nodes(store, b"work")


def test_a_group_is_counted(tmp_path: Path) -> None:
    with shop(tmp_path, 10) as (store, group, clock):
        before = store.metrics()
        group.read("alice", count=4)
        group.backlog("alice")
        group.ack("1-0")
        group.nack("2-0")
        clock.ms += 60_000
        group.claim("bob", "3-0", min_idle=30)
        group.read("carol", count=3, min_idle=30)  # 2-0, 4-0 and a new one
        group.ack_delete("2-0", "5-0")
        assert grown(store, before) == {
            "commits": 7, "operations": 7, "deliveries": 5, "redeliveries": 4, "acks": 3,
            "nacks": 1, "claims": 3, "deleted_entries": 2,
        }  # fmt: skip


def test_refused_operations_are_not_counted(tmp_path: Path) -> None:
    """Also not the steps of a transaction before the one that is refused."""
    with shop(tmp_path, 2) as (store, group, _):
        found = group.read("alice")[0]
        found.ack()
        before = store.metrics()
        with pytest.raises(logstore.NotOwnerError), store.transaction() as tx:  # noqa: PT012
            tx.stream("out").add({"a": "1"})
            tx.ack(found)
        assert grown(store, before) == {}


def test_a_commit_decided_twice_is_counted_once(tmp_path: Path) -> None:
    """A commit that does not fit into its segment is decided a second time."""
    with shop(tmp_path, segment_bytes=64 << 10) as (store, _, _):
        before = store.metrics()
        store.stream("big").add_many([{"a": "x" * 100}] * 3000, batch=100)
        found = grown(store, before)
        assert found["rolls"] >= 3
        assert (found["added_entries"], found["commits"]) == (3000, 30)


def test_the_wait_for_the_lock_is_measured(tmp_path: Path) -> None:
    """Another holder of LOCK: a second file description of it, as another process has one."""
    with shop(tmp_path, lock_timeout=0.05) as (store, _, _):
        engine = engine_of(store)
        other = engine.fs.open(store.path / "LOCK", write=True)
        assert other.try_lock(exclusive=True)
        before = store.metrics()
        assert (before["lock_waits"], before["lock_wait_s"]) == (0, 0)
        with pytest.raises(logstore.LockTimeoutError):
            store.stream("s").add({"a": "1"})
        other.unlock()
        other.close()
        store.stream("s").add({"a": "1"})
        after = store.metrics()
        assert (after["lock_waits"], after["lock_timeouts"]) == (1, 1)
        assert after["lock_wait_s_max"] == after["lock_wait_s"] >= 0.05


def test_syncs_and_care_are_counted(tmp_path: Path) -> None:
    with shop(tmp_path, 1, sync="always") as (store, _, _):
        before = store.metrics()
        store.stream("s").add({"a": "1"})
        after = store.metrics()
        assert after["syncs"] == before["syncs"] + 1
        assert after["sync_s"] >= after["sync_s_max"] > 0
        store.checkpoint()
        store.compact()
        found = grown(store, before)
        assert found["compactions"] == 1
        assert found["checkpoints"] >= 1


def test_tasks_that_wait_are_counted(tmp_path: Path) -> None:
    async def run() -> None:
        async with logstore.aio.open(tmp_path / "store", background=False) as store:
            reading = asyncio.create_task(store.stream("s").read("$", timeout=WAIT_S))
            while not store.metrics()["waits"]:
                await asyncio.sleep(0.001)
            await store.stream("s").add({"a": "1"})
            assert len(await reading) == 1
            assert store.metrics()["waits"] == 1
            assert store.metrics()["wakeups"] >= 1

    asyncio.run(run())


@pytest.mark.parametrize("grouped", [False, True])
def test_waits_and_wakeups(tmp_path: Path, grouped: bool) -> None:
    """One wait, and at least one wake-up: by the entry that ends it."""
    with shop(tmp_path) as (store, group, _):
        got: list[Any] = []

        def wait() -> None:
            if grouped:
                got.extend(group.read("alice", timeout=WAIT_S))
            else:
                got.extend(store.stream("work").read("$", timeout=WAIT_S))

        thread = threading.Thread(target=wait)
        thread.start()
        until = time.monotonic() + WAIT_S
        while not store.metrics()["waits"] and time.monotonic() < until:
            time.sleep(0.001)
        store.stream("work").add({"a": "1"})
        thread.join()
        assert len(got) == 1
        found = store.metrics()
        assert found["waits"] == 1
        assert found["wakeups"] >= 1
