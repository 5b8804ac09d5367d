"""Prevents entries that outlive their time, go before it, take others along, or vanish from groups
that had not acked them without becoming dead letters."""

from __future__ import annotations

import asyncio
import random
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
import logstore.aio
from logstore import OptionError
from logstore.engine.features import expiry
from logstore.recovery import compare
from logstore.recovery.check import check
from tests import seeds
from tests.schedules.due import opened, values
from tests.support.inside import FixedClock, delete_index, do_due_work


def sound(store: logstore.Store[Any]) -> None:
    """Closed, its index is that which the log gives, and nothing is wrong."""
    store.close()
    assert check(store.path).index == compare.AGREES


def test_an_entry_goes_when_its_time_is_over_and_no_other(tmp_path: Path) -> None:
    """Also of many that were added at once, by a producer, in a transaction, or with IDs given."""
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream = store.stream("s")
        stream.add({"n": "stays"})
        stream.add({"n": "5 s"}, ttl=5)
        stream.add_many([{"n": f"{n}"} for n in range(3)], ttl=timedelta(seconds=6), batch=2)
        stream.add({"n": "once"}, ttl=6, producer="p", idempotent_id="1")
        stream.add({"n": "once"}, ttl=1, producer="p", idempotent_id="1")  # was added before
        with store.transaction() as tx:
            tx.stream("s").add({"n": "tx"}, ttl=7)
            tx.stream("t").add_many([{"n": "tx 2"}], ttl=7)
        last = stream.last_id
        stream.add_many(
            [((last.ms + 9, 5), {"n": "given"}), ((last.ms + 10, 0), {"n": "g"})], ttl=8
        )
        at_once = ["stays", "5 s", "0", "1", "2", "once", "tx", "given", "g"]
        gone = {4999: 0, 5000: 1, 6000: 5, 7000: 6, 8000: 8}
        start_ms = clock.ms
        for after_ms, count in gone.items():
            clock.ms = start_ms + after_ms
            do_due_work(store)
            assert values(stream) == at_once[:1] + at_once[1 + count :]
            assert store.metrics()["expired_entries"] == count + (count >= 6)
        assert values(store.stream("t")) == []
        assert len(stream) == 1
        sound(store)


def test_an_expired_unacked_entry_is_one_dead_letter(tmp_path: Path) -> None:
    """Delivered or not; what was acked is none, and a group without dead letters forgets it."""
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream = store.stream("jobs")
        group, plain = stream.group("g", start="0"), stream.group("plain", start="0")
        group.configure(max_deliveries=3, dead_letter="dead")
        acked, taken, waiting = (stream.add({"n": name}, ttl=5) for name in ("a", "t", "w"))
        stays = stream.add({"n": "stays"})
        assert group.ack(group.read("c", count=2)[0].id) == 1
        assert len(plain.read("c")) == 4
        clock.ms += 5000
        for _ in range(2):
            do_due_work(store)
            dead = list(store["dead"])
            assert [(each["n"], each["origin_id"], each["origin_consumer"]) for each in dead] == [
                ("t", str(taken), "c"), ("w", str(waiting), ""),
            ]  # fmt: skip
            assert [each["origin_error"] for each in dead] == ["expired"] * 2
            assert [each["origin_delivery_count"] for each in dead] == ["1", "0"]
            assert group.pending().count == 0
            assert [each.id for each in plain.pending_entries()] == [stays]
        assert acked not in stream
        assert [each.id for each in group.read("c")] == [stays]
        assert [str(id) for id in store.requeue("dead")] == [str(e.id) for e in stream][1:]
        clock.ms += 50_000
        do_due_work(store)
        assert values(stream) == ["stays", "t", "w"]  # what came back has no time of its own
        sound(store)


def test_an_id_that_is_given_again_has_no_old_time(tmp_path: Path) -> None:
    """An entry that was trimmed early, and whose ID a lowered last ID gives to another one."""
    clock = FixedClock()
    with opened(tmp_path / "s", clock) as store:
        stream = store.stream("s")
        stream.add({"n": "1"}, "1-0")
        stream.add({"n": "old"}, "2-0", ttl=5)
        stream.trim(max_entries=0, approximate=False)
        stream.set_id("1-0")
        stream.add({"n": "new"}, "2-0")
        store.stream("gone").add({"n": "x"}, "1-0", ttl=5)
        store.drop("gone")
        store.stream("gone").add({"n": "another"}, "1-0")
        clock.ms += 60_000
        do_due_work(store)
        assert values(stream) == ["new"]
        assert values(store.stream("gone")) == ["another"]
        assert store.metrics()["expired_entries"] == 0
        sound(store)


def test_the_lifetime_of_an_entry_survives_a_lost_index_and_backups(tmp_path: Path) -> None:
    """The time is in the log, as the entry is."""
    clock, path = FixedClock(), tmp_path / "s"
    with opened(path, clock) as store:
        store.stream("old").add_many([{"n": f"{n}"} for n in range(2500)], ttl=5)
        store.stream("old").add({"n": "stays"})
        store.rename("old", "new")
        store.checkpoint()
        store.stream("new").add({"n": "behind"}, ttl=6)
        store.backup(tmp_path / "backup")
    delete_index(path)
    for place in (path, tmp_path / "backup"):
        with opened(place, clock) as store:
            assert len(store["new"]) == 2502
            sound(store)
    clock.ms += 5000
    for place in (path, tmp_path / "backup"):
        with opened(place, clock) as store:
            do_due_work(store)
            assert values(store.stream("new")) == ["stays", "behind"]
            sound(store)


def test_random_lives_end_as_a_model_says(tmp_path: Path) -> None:
    """Adds, deletes, trims, moves of the clock, losses of the index, in any order."""
    seed = seeds.seed()
    print(f"LOGSTORE_SEED={seed}")
    rng, clock, path = random.Random(seed), FixedClock(), tmp_path / "s"
    lives: dict[str, int | None] = {}
    store = opened(path, clock)
    for n in range(300):
        stream = store.stream("s")
        what = rng.random()
        if what < 0.6:
            length = rng.choice((None, 1, 3, 10))
            lives[f"{n}"] = None if length is None else clock.ms + 1000 * length
            stream.add({"n": f"{n}"}, ttl=length)
        elif what < 0.7 and lives:
            entry = rng.choice(list(stream))
            stream.delete(entry.id)
            del lives[str(entry["n"])]
        elif what < 0.75 and lives:
            stream.trim(max_entries=len(lives) - 1, approximate=False)
            del lives[min(lives, key=int)]
        elif what < 0.95:
            clock.ms += rng.randrange(2000)
            do_due_work(store)
            lives = {name: due for name, due in lives.items() if due is None or due > clock.ms}
        else:
            if rng.random() < 0.5:
                store.checkpoint()
            store.close()
            if rng.random() < 0.7:
                shutil.rmtree(path / "index")
            store = opened(path, clock)
            do_due_work(store)
            lives = {name: due for name, due in lives.items() if due is None or due > clock.ms}
        assert values(store.stream("s")) == list(lives)
    sound(store)


def test_expired_entries_are_deleted_in_bounded_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit has a bound in entries and in bytes; all go in the end."""
    clock = FixedClock()
    monkeypatch.setattr(expiry, "BATCH_ENTRIES", 7)
    with opened(tmp_path / "s", clock) as store:
        for name in ("a", "b"):
            store.stream(name).group("g", start="0").configure(max_deliveries=1, dead_letter="dead")
            for n in range(10):
                store.stream(name).add({"n": f"{n}", "big": "x" * 200_000}, ttl=1 + n % 3)
        clock.ms += 10_000
        do_due_work(store)
        assert len(store["a"]) == len(store["b"]) == 0
        assert len(store["dead"]) == 20
        assert store.metrics()["expired_entries"] == 20
        sound(store)


@pytest.mark.parametrize(
    "given", [0, -1, 0.0004, True, "5", float("nan"), float("inf"), 1e300, timedelta(0)]
)
def test_an_invalid_ttl_is_refused_before_anything_changes(tmp_path: Path, given: Any) -> None:
    """By each of the calls that take one."""
    with logstore.open(tmp_path / "s", background=False) as store:
        stream = store.stream("s")
        with pytest.raises(OptionError, match="ttl"):
            stream.add({"n": 1}, ttl=given)
        with pytest.raises(OptionError, match="ttl"):
            stream.add_many([{"n": 1}], ttl=given)
        with store.transaction() as tx, pytest.raises(OptionError, match="ttl"):
            tx.stream("s").add({"n": 1}, ttl=given)
        assert "s" not in store


def test_the_background_does_it_for_asyncio_too(tmp_path: Path) -> None:
    """A reader that waits, or the thread of the store, wakes for it."""

    async def run() -> None:
        async with logstore.aio.open(tmp_path / "s", encoding="utf-8") as store:
            stream = store.stream("s")
            await stream.add({"n": "stays"})
            await stream.add({"n": "goes"}, ttl=0.05)
            await stream.add_many([{"n": "goes"}], ttl=timedelta(milliseconds=50))
            while await stream.len() > 1:  # the test's own limit ends it
                await asyncio.sleep(0.01)

    asyncio.run(run())
