"""Prevents an entry that kills its workers from stopping a group, or from dying twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import aio
from logstore.engine.waiting.wait_session import GroupRead
from tests.conftest import ROOT
from tests.groups.shop import NOW_MS, numbers, shop
from tests.support.processes import Forked

WORKER = """
import os, signal, sys
import logstore

with logstore.open(sys.argv[1], encoding="utf-8", sync="os") as store:
    group = store.stream("work").group("g")

    def handler(delivery):
        if delivery.fields["n"] in ("7", "23"):
            os.kill(os.getpid(), signal.SIGKILL)
        with store.transaction() as tx:
            tx.stream("out").add({"n": delivery.fields["n"]})
            tx.ack(delivery)

    @store.on_dead_letter
    def told(dead):
        print("dead", dead.fields["n"], dead.delivery_count, flush=True)

    group.consume(sys.argv[2], handler, batch=3, timeout=6)
"""


def run(path: Path, name: str) -> subprocess.Popen[bytes]:
    """A process that works until nothing came for a while, or until an entry kills it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), name], stdout=subprocess.PIPE, env=env
    )


def test_an_entry_that_kills_workers_ends_as_a_dead_letter(tmp_path: Path) -> None:
    """Exactly once, whoever is killed; all others have one output; what waited in the batch of a
    killed worker is handed on."""
    path, total = tmp_path / "store", 40
    with logstore.open(path, encoding="utf-8", sync="os") as store:
        work = store.stream("work")
        group = work.group("g", start="0")
        group.configure(max_deliveries=3, dead_letter="dead", min_idle=1.5)
        work.add_many({"n": str(number)} for number in range(total))
        workers = {name: run(path, name) for name in ("a", "b")}
        heard: list[bytes] = []
        killed = 0
        until = time.monotonic() + 300
        while workers:
            assert time.monotonic() < until
            for name, each in list(workers.items()):
                if each.poll() is None:
                    continue
                assert each.stdout is not None
                heard += each.stdout.read().splitlines()
                each.stdout.close()
                if each.returncode == 0:
                    del workers[name]
                else:
                    killed += 1
                    workers[name] = run(path, name)
            time.sleep(0.01)
        assert killed == 2 * 3
        dead = [each.fields for each in store.stream("dead")]
        assert sorted(each["n"] for each in dead) == ["23", "7"]
        assert {each["origin_error"] for each in dead} == {"deliveries without an ack: 3"}
        found = Counter(each.fields["n"] for each in store.stream("out"))
        assert set(found) == {str(n) for n in range(total)} - {"7", "23"}
        assert set(found.values()) == {1}
        assert (group.pending().count, group.info().lag) == (0, 0)
        assert sorted(heard) == [b"dead 23 3", b"dead 7 3"]


def test_a_waiting_reader_is_handed_what_a_killed_one_left(tmp_path: Path) -> None:
    """By its clock alone: no claim of its own, and no commit while it waits."""
    with shop(tmp_path, 2) as (store, group, clock):
        group.configure(min_idle=30)

        def die() -> None:
            with logstore.open(store.path, sync="os", background=False, clock=clock) as mine:
                assert len(mine.stream("work").group("g").read("dead")) == 2

        Forked(die).join()
        found: list[Any] = []
        before = store.metrics()["commits"]
        waiter = threading.Thread(
            target=lambda: found.extend(group.read("alive", timeout=300)), daemon=True
        )
        waiter.start()
        time.sleep(0.5)
        clock.ms += 29_999
        time.sleep(0.3)
        assert found == []
        assert store.metrics()["commits"] - before <= 1  # that it was seen
        clock.ms += 1
        waiter.join(60)
        assert numbers(found) == [1, 2]
        assert [each.delivery_count for each in found] == [2, 2]
        assert store.metrics()["commits"] - before <= 2


def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When readers look at a snapshot, from now on."""
    found: list[float] = []
    plain = GroupRead.probe

    def look(self: Any, **options: Any) -> Any:
        found.append(time.monotonic())
        return plain(self, **options)

    monkeypatch.setattr(GroupRead, "probe", look)
    return found


def test_a_waiting_reader_sleeps_until_the_moment_of_a_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a reader that looks again and again: with a clock that runs, it looks a few times,
    and is there in time."""
    with logstore.open(tmp_path / "s", sync="os") as store:
        work = store.stream("work")
        group = work.group("g", start="0")
        group.configure(min_idle=1.5)
        work.add({"n": "1"})
        (first,) = group.read("a")
        seen = looks(monkeypatch)
        (again,) = group.read("b", timeout=300)
        assert (again.id, again.delivery_count) == (first.id, 2)
        assert again.idle.total_seconds() >= 1.5
        assert len(seen) <= 6


def test_the_shorter_of_the_two_times_counts(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (_, group, clock):
        group.configure(min_idle=30)
        group.read("a")
        clock.ms += 10_000
        assert group.read("b") == group.read("b", min_idle=20) == []
        assert numbers(group.read("b", min_idle=5)) == [1]
        clock.ms += 30_000
        assert numbers(group.read("c", min_idle=3600)) == [1]
        clock.ms += 30_000
        assert group.read("d", noack=True) == []  # nobody would ack it
        assert group.read("d", noack=True, timeout=0.05) == []
        assert numbers(group.read("e")) == [1]


def test_nacked_entries_do_not_wait_for_min_idle(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (_, group, _):
        group.configure(min_idle=10**11)
        one, _two = group.read("a")
        one.nack()
        assert numbers(group.read("b", timeout=60)) == [1]


def test_a_waiting_reader_follows_changed_settings(tmp_path: Path) -> None:
    """Set while it waits, by another process too: nothing is handed out by a setting of before."""
    with shop(tmp_path, 1) as (_, group, clock):
        group.read("a")
        clock.ms += 60_000
        timer = threading.Timer(0.2, lambda: group.configure(min_idle=30))
        timer.start()
        assert numbers(group.read("b", timeout=300)) == [1]
        timer.join()


def on_asyncio(path: Path, work: Callable[[Any, Any], Any], clock: Any) -> None:
    """Run it on a store opened for asyncio."""

    async def main() -> None:
        options: dict[str, Any] = {"sync": "os", "background": False, "clock": clock}
        async with aio.open(path, encoding="utf-8", **options) as store:
            await work(store, await store.stream("work").group("g"))

    asyncio.run(main())


def test_the_same_for_asyncio(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (store, group, clock):
        group.configure(max_deliveries=2, dead_letter="dead", min_idle=30)
        group.read("dead", count=1)
        told: list[Any] = []

        async def work(there: Any, theirs: Any) -> None:
            there.on_dead_letter(told.append)
            clock.ms = NOW_MS + 20_000
            assert numbers(await theirs.read("a", count=1)) == [2]
            waiting = asyncio.create_task(theirs.read("b", timeout=300))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            clock.ms = NOW_MS + 30_000
            assert numbers(await waiting) == [1]
            clock.ms = NOW_MS + 90_000

            async def handler(delivery: Any) -> None:
                raise ValueError(delivery.id)

            assert await theirs.consume("c", handler, timeout=0.1) == 0

        on_asyncio(store.path, work, clock)
        assert numbers(told) == [2, 1]
        errors = [each.fields["origin_error"] for each in store.stream("dead")]
        assert errors[0].startswith("ValueError")
        assert errors[1] == "deliveries without an ack: 2"
        assert group.pending().count == 0
