"""Prevents those who come to wait from missing what is there, or from commits that say nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.groups import admin
from logstore.engine.shm.waiters import NEW_ONLY
from logstore.engine.waiting import probe
from tests.support.inside import engine_of
from tests.support.threads import running
from tests.support.waits import eventually
from tests.waiting.crowd import SOON_S, group_of, key_of, owners
from tests.waiting.readers import Reading, add, commits

pytestmark = pytest.mark.usefixtures("patient", "unhurried", "by_session")


def served_once(store: Store[Any], who: str = "c") -> None:
    """A consumer that has read before, and so is known."""
    add(store, 0)
    assert len(group_of(store).read(who)) == 1


def wish_of(store: Store[Any]) -> int:
    """What the first in the queue would take."""
    return engine_of(store).wake.waits.waiters.waiting(key_of(store))[0].min_idle_ms


def test_a_consumer_seen_lately_joins_without_a_commit(store: Store[Any]) -> None:
    served_once(store)
    before = commits(store)
    waiting = Reading(store, "c", count=1)
    assert commits(store) == before
    add(store, 1)
    assert waiting.wait() == [1]
    assert commits(store) == before + 1
    assert owners(store) == ["c", "c"]


def test_a_consumer_that_was_not_seen_lately_is_written_down(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    served_once(store)
    monkeypatch.setattr(admin, "SEEN_MS", 0)
    time.sleep(0.02)  # the lane has its own ten milliseconds
    before = commits(store)
    waiting = Reading(store, "c", count=1)
    assert commits(store) == before + 1
    new = Reading(store, "new", count=1)
    assert commits(store) == before + 2
    add(store, 1, 2)
    assert [waiting.wait(), new.wait()] == [[1], [2]]


@pytest.mark.parametrize("looks", [1, 2])
def test_entries_added_during_joining_are_read(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Behind its first look, or behind that and a commit of another stream, which makes it look
    once more, under LOCK.
    """
    served_once(store)
    drained, times = probe.drained, []

    def slow(*args: Any) -> int:
        found = drained(*args)
        times.append(found)
        if len(times) == 1:
            store_of_another(store, looks)
        return found

    monkeypatch.setattr(probe, "drained", slow)
    found = group_of(store).read("c", timeout=30) if looks == 1 else None
    if looks == 2:
        waiting = Reading(store, "c", count=1)
        assert len(times) == 2
        add(store, 1)
        assert waiting.wait() == [1]
    else:
        assert found is not None
        assert [each.fields[b"n"] for each in found] == [b"9"]
        assert times[1:] == [0]


def store_of_another(store: Store[Any], looks: int) -> None:
    """A commit from another thread."""
    name = "work" if looks == 1 else "other"
    thread = threading.Thread(target=lambda: store.stream(name).add({"n": 9}))
    thread.start()
    thread.join()


def test_a_group_that_was_made_anew_is_another(store: Store[Any]) -> None:
    served_once(store)
    assert group_of(store).read("c", timeout=0.01) == []  # now its number is known
    store.stream("work").group("g").destroy()
    store.stream("work").group("g").create(start="0")
    found = group_of(store).read("c", timeout=SOON_S)
    assert [each.fields[b"n"] for each in found] == [b"0"]
    waiting = Reading(store, "c", count=1)
    add(store, 1)
    assert waiting.wait() == [1]


def test_a_stream_that_was_made_anew_is_another(store: Store[Any]) -> None:
    served_once(store)
    assert group_of(store).read("c", timeout=0.01) == []
    store.drop("work")
    add(store, 5)
    group_of(store)
    found = group_of(store).read("c", timeout=SOON_S)
    assert [each.fields[b"n"] for each in found] == [b"5"]


def test_settings_of_a_group_count_for_the_next_waiter(store: Store[Any]) -> None:
    served_once(store)
    first = Reading(store, "c", count=1)
    assert wish_of(store) == NEW_ONLY
    add(store, 1)
    assert first.wait() == [1]
    group_of(store).configure(min_idle=3600)
    second = Reading(store, "c", count=1)
    assert wish_of(store) == 3_600_000
    add(store, 2)
    assert second.wait() == [2]
    group_of(store).configure(min_idle=None)
    third = Reading(store, "c", count=1)
    eventually(lambda: wish_of(store) == NEW_ONLY)
    add(store, 3)
    assert third.wait() == [3]


def test_a_consumer_that_was_deleted_is_made_anew(store: Store[Any]) -> None:
    served_once(store)
    assert group_of(store).read("c", timeout=0.01) == []
    group_of(store).remove_consumer("c")
    waiting = Reading(store, "c", count=1)
    assert [each.name for each in group_of(store).consumers()] == [b"c"]
    add(store, 1)
    assert waiting.wait() == [1]


def test_joining_a_closing_store_is_an_error(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def work(store: Store[Any], who: str) -> None:
        try:
            while True:
                group_of(store).read(who, count=1, timeout=0.0005)
        except Exception as error:  # noqa: BLE001  they are looked at
            errors.append(error)

    for turn in range(40):
        store = logstore.open(tmp_path / "closed", sync="os", background=False)
        names = [f"c{number}" for number in range(4)]
        for name in names:
            served_once(store, name)
        threads = [threading.Thread(target=work, args=(store, name)) for name in names]
        with running(threads, 60):
            time.sleep(turn % 20 / 1000)
            store.close()
    assert {type(error) for error in errors} == {logstore.ClosedError}
    assert len(errors) == 160


def test_a_kept_place_is_not_lost_when_the_group_is_configured(store: Store[Any]) -> None:
    served_once(store, "a")
    assert group_of(store).read("a", count=1, timeout=0.01) == []
    second = Reading(store, "b", count=1)
    group_of(store).configure(min_idle=3600)
    timer = threading.Timer(0.2, lambda: add(store, 1))
    timer.start()
    found = group_of(store).read("a", count=1, timeout=30)
    timer.join()
    assert [each.fields[b"n"] for each in found] == [b"1"]
    add(store, 2)
    assert second.wait() == [2]
