"""Prevents retries that come at once, too early, never, or without their entry."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from logstore import OptionError
from tests.groups.shop import numbers, shop
from tests.support.inside import delete_index

IDLE_S = 30


def failing(_: Any) -> None:
    raise ValueError("the other side is away")


def test_each_retry_waits_twice_as_long(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (store, group, clock):
        group.configure(min_idle=IDLE_S, backoff=1, backoff_max=3)
        group.configure(max_deliveries=5, dead_letter="dead")
        assert group.settings.backoff == timedelta(seconds=1)
        for count, wait_ms in enumerate((1000, 2000, 3000, 3000), 1):
            (each,) = group.read("a")
            assert each.delivery_count == count
            assert each.nack()
            clock.ms += wait_ms - 1
            assert group.read("b") == []
            assert group.consume("a", failing, timeout=0) == 0  # nor is it its backlog
            assert group.autoclaim("b", min_idle=IDLE_S).entries == []
            clock.ms += 1
        (last,) = group.read("b")
        last.nack()
        (dead,) = store.stream("dead")
        assert (dead["origin_delivery_count"], len(group.read("b"))) == ("5", 0)


def test_a_worker_s_own(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (_, group, clock):
        tried: list[int] = []

        def handler(each: Any) -> None:
            tried.append(each.id.ms)
            if each.id.ms == 1:
                failing(each)

        def work(**options: Any) -> None:
            group.consume("a", handler, min_idle=0.5, timeout=0, backoff=60, **options)

        work()
        clock.ms += 59_999
        work()
        assert tried == [1, 2]
        clock.ms += 1
        work()
        clock.ms += 119_999
        work()
        assert tried == [1, 2, 1]
        clock.ms += 1
        work(backoff_max=1)
        clock.ms += 1000
        work()
        assert tried == [1, 2, 1, 1, 1]


@pytest.mark.parametrize("way", ["delivery", "group", "transaction", "by ID in a transaction"])
def test_a_delay_of_one_s_own(tmp_path: Path, way: str) -> None:
    with shop(tmp_path, 3) as (store, group, clock):
        group.configure(min_idle=IDLE_S)
        first, _, _ = group.read("a")
        delay = timedelta(minutes=5)
        if way == "delivery":
            assert first.nack(delay=delay)
        elif way == "group":
            assert group.nack(first.id, delay=delay) == 1
        else:
            with store.transaction() as tx:
                if way == "transaction":
                    tx.nack(first, delay=300)
                else:
                    tx.stream("work").group(group.name).nack(first.id, delay=300)
        (waiting,) = [each for each in group.pending_entries() if each.consumer is None]
        assert (waiting.id, waiting.delivery_count) == (first.id, 1)
        clock.ms += 299_999
        assert numbers(group.read("b")) == [2, 3]
        clock.ms += 1
        assert numbers(group.read("b")) == [1]


def test_a_wait_survives_the_loss_of_the_index(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (store, group, clock):
        group.configure(min_idle=IDLE_S, backoff=100)
        group.read("a")[0].nack()
        store.checkpoint()
        path, at_ms = store.path, clock.ms
    delete_index(path)
    import logstore

    clock.ms = at_ms + 99_999
    with logstore.open(path, clock=clock, background=False, encoding="utf-8") as store:
        group = store.stream("work").group(group.name)
        assert group.read("b") == []
        clock.ms += 1
        assert numbers(group.read("b")) == [1]
        assert group.settings.backoff_ms == 100_000


def test_a_waiting_reader_gets_an_entry_when_its_backoff_ends(tmp_path: Path) -> None:
    import logstore

    with logstore.open(tmp_path / "s", encoding="utf-8") as store:
        store.stream("work").add({"n": 1})
        group = store.stream("work").group("g", start="0")
        group.configure(min_idle=IDLE_S)
        (first,) = group.read("a")
        got: list[Any] = []
        waiter = threading.Thread(target=lambda: got.extend(group.read("b", timeout=60)))
        waiter.start()
        first.nack(delay=0.3)
        waiter.join()
        assert [each.id for each in got] == [first.id]  # and not after 30 seconds


def test_an_invalid_delay_is_refused(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (_, group, _):
        (first,) = group.read("a")
        for backoff in (1, timedelta(hours=1)):
            with pytest.raises(OptionError, match="min_idle"):
                group.configure(backoff=backoff)
            with pytest.raises(OptionError, match="min_idle=30"):
                group.consume("a", failing, backoff=backoff, timeout=0)
        for odd in (-1, "1", float("nan"), True):
            for call in (
                lambda odd=odd: group.nack(first.id, delay=odd),
                lambda odd=odd: group.configure(backoff=odd, min_idle=1),
                lambda odd=odd: group.consume("a", failing, backoff=odd, min_idle=1, timeout=0),
            ):
                with pytest.raises(OptionError):
                    call()
        assert group.pending().count == 1
        assert first.nack(delay=0)  # at once needs nothing
        assert len(group.read("b", min_idle=1)) == 1


def test_reassigning_gives_nobody_anything(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (_, group, clock):
        group.configure(min_idle=IDLE_S)
        first, second = group.read("a")
        first.nack(delay=1)
        clock.ms += 60_000
        group.read("c", count=1)
        assert group.reassign(min_idle=20, alive_within=600).keys() <= {"a", "c"}
        assert second.id
