"""Prevents repeating schedules that come twice, too early, in heaps, or are lost or doubled."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import logstore
from logstore import OptionError, aio
from logstore.api.store import Store
from logstore.features import cron as repeat
from logstore.features.cron import Repeat
from logstore.ids import MAX_ID
from logstore.recovery.check import check
from tests import seeds
from tests.schedules.due import opened, values, waiting
from tests.support.inside import START_MS, FixedClock, delete_index, do_due_work
from tests.support.processes import Forked


def dues(store: Store[Any], name: str = "a") -> list[int]:
    """How many ms after the start what is scheduled comes."""
    return [each.key.due_ms - START_MS for each in store.stream(name).scheduled()]


def test_an_entry_rescheduled_during_a_listing_is_listed_once(
    store: Store[Any], clock: FixedClock
) -> None:
    """A list that fits a page is of one moment, however slowly it is gone through."""
    stream = store.stream("a")
    key = stream.schedule({"n": "1"}, every=10, name="tick")
    listed = stream.scheduled()
    assert next(listed).key == key
    clock.ms += 10_000
    do_due_work(store)
    assert values(stream) == ["1"]
    assert list(listed) == []


def test_a_repeated_entry_comes_once_each_time_and_missed_times_are_one(
    store: Store[Any], clock: FixedClock
) -> None:
    """In step with its first time; the next time is in the commit of the entry."""
    stream = store.stream("a")
    key = stream.schedule({"n": "1"}, every=10, name="tick")
    assert dues(store) == [10_000]
    clock.ms += 9_999
    do_due_work(store)
    assert values(stream) == []
    clock.ms += 1
    do_due_work(store)
    do_due_work(store)
    assert values(stream) == ["1"]
    assert dues(store) == [20_000]
    clock.ms += 65_000  # six were missed
    do_due_work(store)
    assert values(stream) == ["1", "1"]
    assert dues(store) == [80_000]
    [entry] = stream.scheduled()
    assert (entry.name, entry.every, entry.cron, entry.tz) == (
        "tick", timedelta(seconds=10), None, None,
    )  # fmt: skip
    assert not stream.cancel(key)
    assert stream.cancel(name="tick")
    assert not stream.cancel(name="tick")
    assert store.info().scheduled == 0


def test_the_same_name_changes_it_and_the_same_rule_changes_nothing(
    store: Store[Any], clock: FixedClock
) -> None:
    """So a program that starts again and again does not put its schedule off."""
    stream = store.stream("a")
    first = stream.schedule({"n": "1"}, every=10, name="x")
    clock.ms += 4_000
    before = store.durable_upto
    assert stream.schedule({"n": "1"}, every=timedelta(seconds=10), name="x") == first
    assert store.durable_upto == before
    assert stream.schedule({"n": "2"}, every=10, name="x") != first
    assert (waiting(stream), dues(store)) == (["2"], [10_000])
    stream.schedule({"n": "2"}, every=20, name="x")
    assert dues(store) == [24_000]
    at = datetime.fromtimestamp((START_MS + 3_000) / 1000, UTC)
    stream.schedule({"n": "2"}, every=20, at=at, name="x")  # in step with a time that passed
    assert dues(store) == [23_000]
    stream.schedule({"n": "2"}, every=20, at=START_MS + 63_000, name="x")  # the same steps
    assert dues(store) == [23_000]
    stream.schedule({"n": "2"}, every=20, at=START_MS + 62_000, name="x")  # not before the first
    assert dues(store) == [62_000]
    store.stream("b").schedule({"n": "3"}, every=1, name="x")
    stream.schedule({"n": "4"}, cron="* * * * *", name="y")
    assert len(list(stream.scheduled())) == 2
    with store.transaction() as tx:  # and in a transaction, all or nothing
        tx.stream("a").cancel(name="y")
        tx.stream("a").schedule({"n": "5"}, every=5, name="x")
    assert waiting(stream) == ["5"]
    store.drop("a")
    assert store.info().scheduled == 1
    stream.schedule({"n": "6"}, every=5, name="x")
    assert waiting(stream) == ["6"]


@pytest.mark.parametrize(
    ("cron", "tz", "now", "then"),
    [
        ("30 3 * * MON-FRI", "UTC", "2027-01-01T04:00", "2027-01-04T03:30"),
        ("30 3 * * *", "Europe/Berlin", "2027-01-01T02:29:59", "2027-01-01T02:30"),
        ("0 0 29 2 *", "UTC", "2025-01-01T00:00", "2028-02-29T00:00"),
        ("30 2 * * *", "Europe/Berlin", "2027-03-28T00:00", "2027-03-28T01:00"),  # no 2:30 that day
        ("*/20 * * * *", "Asia/Kolkata", "2027-01-01T00:00", "2027-01-01T00:10"),
    ],
)
def test_cron_expressions_and_time_zones(cron: str, tz: str, now: str, then: str) -> None:
    """Times are those of the time zone, also where a clock is put forward."""
    begin = datetime.fromisoformat(now).replace(tzinfo=UTC)
    found = Repeat("x", 0, 0, cron, tz).after(int(begin.timestamp() * 1000))
    assert found is not None
    assert found / 1000 == datetime.fromisoformat(then).replace(tzinfo=UTC).timestamp()
    assert ZoneInfo(tz) is not None


def test_invalid_repeating_schedules_are_refused(store: Store[Any]) -> None:
    """Before anything is made, with what to do."""
    stream = store.stream("a")
    for wrong, told in (
        ({"cron": "0 0 31 2 *"}, "day"),
        ({"cron": "0 0 */31 * MON#5"}, "never fires"),
        ({"cron": "x"}, "no cron expression"),
        ({"cron": ""}, "cron must be"),
        ({"cron": 5}, "cron must be"),
        ({"cron": "* * * * *", "tz": "No/Where"}, "unknown here"),
        ({"cron": "* * * * *", "tz": "../x"}, "unknown here"),
        ({"cron": "* * * * *", "tz": ""}, "tz must be"),
        ({"cron": "* * * * *", "every": 1}, "either every="),
        ({"cron": "* * * * *", "at": START_MS}, "leave out at"),
        ({"every": 0}, "every must be"),
        ({"every": -1}, "every must be"),
        ({"every": 1e15}, "every"),
        ({"every": 1, "tz": "UTC"}, "a time zone is of"),
        ({"every": 1, "after": 1}, "not after"),
        ({"after": 1}, "a name and a time zone"),
        ({"every": 1, "name": None}, "needs a name"),
        ({"every": 1, "name": ""}, "needs a name"),
        ({"every": 1, "name": "x" * 201}, "needs a name"),
        ({"every": 1, "name": "a\nb"}, "needs a name"),
        ({"every": 1, "name": b"x"}, "needs a name"),
    ):
        given: dict[str, Any] = {"name": "x", **wrong}
        with pytest.raises(OptionError, match=told):
            stream.schedule({"n": "1"}, **given)
    for nothing in ({}, {"key": "1-1", "name": "x"}, {"name": ""}):
        with pytest.raises(OptionError):
            stream.cancel(**nothing)  # type: ignore[arg-type]
    assert "a" not in store


def test_a_repeated_entry_that_cannot_be_added_waits(
    store: Store[Any], clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps nobody else waiting, adds nothing, and goes on in step."""
    full, stream = store.stream("full"), store.stream("a")
    full.add({"n": "0"}, MAX_ID)
    full.schedule({"n": "1"}, every=10, name="x")
    stream.schedule({"n": "2"}, cron="* * * * *", tz="Europe/Berlin", name="y")
    stream.schedule({"n": "3"}, every=60, name="z")

    def unknown(name: str) -> None:
        raise OptionError(f"the time zone {name} is unknown here")

    monkeypatch.setattr(repeat, "_zone", unknown)
    clock.ms += 61_000
    do_due_work(store)
    assert values(stream) == ["3"]
    assert dues(store, "full") == [661_000]
    assert dues(store) == [120_000, 661_000]
    monkeypatch.undo()
    clock.ms += 600_000
    full.delete(MAX_ID)
    do_due_work(store)
    assert values(stream) == ["3", "3", "2"]
    assert dues(store)[0] == 700_000 - (START_MS + 700_000) % 60_000


def test_nothing_is_lost_or_doubled_by_reopens_checkpoints_and_lost_indexes(
    tmp_path: Path, clock: FixedClock
) -> None:
    """Random schedules, changes and firings against a model of due times and texts by name."""
    seed = seeds.seed()
    print(f"LOGSTORE_SEED={seed}")
    chance = random.Random(seed)
    path = tmp_path / "s"
    rules: dict[str, tuple[int, int, str]] = {}  # due, every, text
    came: list[str] = []
    store = opened(path, clock)
    store.stream("a").add({"n": "begin"})
    for number in range(120):
        name, every = chance.choice("xyz"), chance.choice((7, 11)) * 1000
        step = chance.randrange(8)
        if step < 3:
            text = chance.choice(("p", "q"))
            store.stream("a").schedule({"n": text}, every=every / 1000, name=name)
            same = name in rules and rules[name][1] == every
            rules[name] = rules[name][0] if same else clock.ms + every, every, text
        elif step == 3:
            assert store.stream("a").cancel(name=name) == (rules.pop(name, None) is not None)
        elif step == 4:
            clock.ms += chance.randrange(30_000)
            do_due_work(store)
            for due, key in sorted((rule[0], key) for key, rule in rules.items()):
                if due <= clock.ms:
                    _, length, text = rules[key]
                    came.append(text)
                    rules[key] = due + ((clock.ms - due) // length + 1) * length, length, text
        elif step == 5:
            store.checkpoint()
        elif step == 6 and number % 3 == 0:
            store.compact(purge=True)
        else:
            store.close()
            if chance.random() < 0.5:
                delete_index(path)
            store = opened(path, clock)
        there = [(str(e.name), e.key.due_ms, e.fields["n"]) for e in store.stream("a").scheduled()]
        assert sorted(there) == sorted((key, due, text) for key, (due, _, text) in rules.items())
        assert sorted(values(store.stream("a"))[1:]) == sorted(came)
    store.close()
    report = check(path)
    assert not report.damage
    assert report.index == "agrees with the log"


def test_each_time_comes_once_whoever_is_killed(tmp_path: Path) -> None:
    """Four processes are awake, and killed by turns about when it is due."""
    path = tmp_path / "s"
    every_ms = 20

    def work() -> None:
        with logstore.open(path, encoding="utf-8") as store:
            while True:
                store.stream("a").read("$", timeout=0.5)

    with logstore.open(path, encoding="utf-8", background=False) as store:
        stream = store.stream("a")
        stream.schedule({"n": "1"}, every=every_ms / 1000, name="x")
        workers = [Forked(work) for _ in range(4)]
        try:
            for number in range(30):
                stream.read("$", timeout=10)
                workers[number % 4].kill()
                workers[number % 4] = Forked(work)
        finally:
            for worker in workers:
                worker.kill()
        [left] = stream.scheduled()
        times = [(entry.id.ms - left.key.due_ms) // every_ms for entry in stream]
        assert len(times) >= 30
        assert len(set(times)) == len(times)  # none of two in the same step
        assert max(times) < 0


def test_the_awaited_face(tmp_path: Path) -> None:
    """As the plain one."""

    async def use() -> None:
        async with aio.open(tmp_path / "s", encoding="utf-8") as store:
            stream = store.stream("a")
            await stream.schedule({"n": "1"}, cron="0 0 1 1 *", tz="Europe/Berlin", name="new year")
            [entry] = [each async for each in stream.scheduled()]
            assert (entry.cron, entry.tz) == ("0 0 1 1 *", "Europe/Berlin")
            assert await stream.cancel(name="new year")

    asyncio.run(use())
