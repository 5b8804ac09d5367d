"""Prevents entries that are given back for later, where nobody reads by an idle time, from coming
early, twice, or never."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.txn import pel
from tests.groups.shop import NOW_MS, numbers, shop
from tests.support.inside import delete_index

DELAY_S, DELAY_MS = 60, 60_000


def worked(group: logstore.Group[Any], **options: Any) -> list[int]:
    """What a worker gets now."""
    got: list[int] = []
    group.consume("w", lambda each: got.append(each.id.ms), timeout=0, **options)
    return got


@pytest.mark.parametrize("way", ["delivery", "group", "transaction"])
def test_a_delay_needs_no_setting(tmp_path: Path, way: str) -> None:
    with shop(tmp_path, 3) as (store, group, clock):
        first, second, _ = group.read("a")
        if way == "delivery":
            assert first.nack(delay=DELAY_S)
        elif way == "group":
            assert group.nack(first.id, delay=DELAY_S) == 1
        else:
            with store.transaction() as tx:
                tx.nack(first, delay=DELAY_S)
        second.nack()
        assert worked(group) == [2]
        (waiting, _) = group.pending_entries()
        assert (waiting.id, waiting.consumer, waiting.delivery_count) == (first.id, None, 1)
        clock.ms += DELAY_MS - 1
        assert worked(group) == []
        clock.ms += 8  # at most so much later than asked for
        store.stream("work").add({"n": 4}, "4-0")
        assert worked(group) == [1, 4]
        assert [each.id.ms for each in group.pending_entries()] == [3]


def test_a_reader_by_an_idle_time_does_not_get_it_early(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (_, group, clock):
        first, _, _ = group.read("a")
        first.nack(delay=DELAY_S)
        clock.ms += DELAY_MS // 2
        assert numbers(group.read("b", min_idle=30)) == [2, 3]
        assert group.autoclaim("b", min_idle=1, count=1).entries == []
        assert group.claim("b", first.id, min_idle=1) == []
        assert group.reassign(min_idle=1, alive_within=600) == {}
        assert worked(group, min_idle=1000) == []
        group.configure(min_idle=10)
        clock.ms += 10_000
        assert worked(group) == [2, 3]
        clock.ms += DELAY_MS // 2 - 10_000
        assert worked(group) == [1]


def test_it_can_be_acked_claimed_and_deleted_as_all_that_is_pending(tmp_path: Path) -> None:
    with shop(tmp_path, 4) as (store, group, clock):
        for each in group.read("a"):
            each.nack(delay=DELAY_S)
        assert group.ack("1-0") == 1
        assert numbers(group.claim("b", "2-0", min_idle=0)) == [2]
        store.stream("work").delete("3-0")
        clock.ms += DELAY_MS
        assert worked(group) == [4]  # what b has is b's


def test_info_shows_when_it_is_due(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (store, group, clock):
        group.read("a")[0].nack(delay=DELAY_S)
        for passed_ms, idle_s in ((0, 0), (DELAY_MS + 5000, 5)):
            clock.ms += passed_ms
            (full,) = store.stream("work").info_full().group_infos
            (entry,) = full.pending_entries
            assert (entry.consumer, entry.idle) == ("", timedelta(seconds=idle_s))
            assert entry.delivered_ms == NOW_MS + DELAY_MS


def test_a_claim_beside_the_pipeline_leaves_it(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", encoding="utf-8", background=False) as store:
        work = store.stream("work")
        work.add({"n": 1})
        group = work.group("g", start="0")
        group.add_consumer("b")
        (first,) = group.read("a")
        first.nack(delay=3600)
        for _ in range(3):  # the first one may be the pipeline's
            work.add({"n": 2})
            group.read("a")[0].ack()
            assert group.autoclaim("b", min_idle=1, start=None).entries == []
            assert group.autoclaim("b", min_idle=1, start="0").entries == []
            assert group.claim("b", first.id, min_idle=1) == []
        assert group.autoclaim("b", min_idle=0).entries[0].id == first.id


def test_a_wait_outlives_the_index_and_a_backup(tmp_path: Path) -> None:
    with shop(tmp_path, 1) as (store, group, clock):
        group.read("a")[0].nack(delay=DELAY_S)
        store.backup(tmp_path / "saved")
        dumped = store.stream("work").dump()
        store.restore("again", dumped)
        path = store.path
    delete_index(path)
    for place, name in ((path, "work"), (path, "again"), (tmp_path / "saved", "work")):
        clock.ms = NOW_MS + DELAY_MS - 1
        with logstore.open(place, clock=clock, background=False, encoding="utf-8") as store:
            group = store.stream(name).group("g")
            assert worked(group) == []
            clock.ms += 8
            assert worked(group) == [1]


def test_a_waiting_worker_gets_it_when_its_wait_is_over(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", encoding="utf-8") as store:
        store.stream("work").add({"n": 1})
        group = store.stream("work").group("g", start="0")
        (first,) = group.read("a")
        stop, got = threading.Event(), list[Any]()

        def handler(each: Any) -> None:
            got.append(each.id)
            stop.set()

        waiter = threading.Thread(target=group.consume, args=("b", handler), kwargs={"stop": stop})
        waiter.start()
        first.nack(delay=0.3)
        waiter.join(60)
        stop.set()
        assert got == [first.id]


def test_a_claim_with_such_a_time_is_no_wait(tmp_path: Path) -> None:
    """A consumer's entry counts from the time that its claim says, however long ago."""
    with shop(tmp_path, 1) as (_, group, _):
        group.read("a")
        group.claim("b", "1-0", min_idle=0, idle=(NOW_MS - pel.PUT_OFF_MS - 5) / 1000)
        assert numbers(group.autoclaim("c", min_idle=1).entries) == [1]


def test_times_of_what_is_put_off() -> None:
    for due_ms in (0, 1, 7, 8, NOW_MS, NOW_MS + 1, (1 << 42) - 8):
        time_ms = pel.put_off_until(due_ms)
        assert pel.PUT_OFF_MS <= time_ms < pel.GIVEN_BACK_MS
        assert time_ms > pel.joined_line(due_ms - 1)
        assert pel.joined_line(pel.due_of(time_ms)) == time_ms
        assert due_ms <= pel.due_of(time_ms) < due_ms + pel.PUT_OFF_UNIT_MS
    assert pel.put_off_until(1 << 62) == pel.GIVEN_BACK_MS - 1
    assert pel.due_of(pel.PUT_OFF_MS - 1) == pel.due_of(pel.GIVEN_BACK_MS) == -1
