"""Prevents those who wait again without LOCK from missing an entry, getting it twice, getting past
others, or holding waiters for ever.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from logstore.api.store import Store
from logstore.engine.shm.waiters import BARE_MAX, Waiters
from logstore.engine.waiting import probe
from logstore.engine.waiting.wait_session import WaitSession
from tests.support.inside import engine_of
from tests.support.waits import eventually
from tests.waiting import crowd
from tests.waiting.readers import Reading, ReadsTwice, add, commits, reads_in_its_turn

pytestmark = pytest.mark.usefixtures("patient", "unhurried", "by_session")


def test_a_served_reader_rejoins_without_lock(store: Store[Any]) -> None:
    waiting = ReadsTwice(store, "c")
    key, before = crowd.key_of(store), commits(store)
    with store._live().committer.locked():  # of this process and of all others
        waiting.goes_on.set()
        eventually(lambda: len(engine_of(store).wake.waits.waiters.waiting(key)) == 1)
    assert commits(store) == before
    add(store, 1)
    assert waiting.wait() == [0, 1]
    assert crowd.owners(store) == ["c", "c"]


def test_a_reader_that_rejoins_stands_behind_those_who_wait(store: Store[Any]) -> None:
    again = ReadsTwice(store, "again")
    reads_in_its_turn(store, again, again.goes_on.set)


@pytest.mark.parametrize("looked", [False, True])
def test_an_entry_added_during_rejoining_is_given_once(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch, looked: bool
) -> None:
    """Before it looked, or behind that: it is handed the entry, and must not read another."""
    waiting, drained = ReadsTwice(store, "c"), probe.drained

    def slow(*args: Any) -> int:
        found = drained(*args) if looked else 0
        monkeypatch.setattr(probe, "drained", drained)
        adding = threading.Thread(target=lambda: add(store, 1, 2))
        adding.start()
        adding.join()
        return found if looked else drained(*args)

    monkeypatch.setattr(probe, "drained", slow)
    waiting.goes_on.set()
    assert waiting.wait() == [0, 1]
    assert crowd.owners(store) == ["c", "c"]
    assert crowd.queue(store) == []


def test_a_reader_that_rejoins_is_called_before_it_can_look(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between being seen to wait and looking: the call counts from before it was seen."""
    waiting, fence = ReadsTwice(store, "c"), Waiters.fence

    def slow(self: Waiters) -> None:
        monkeypatch.setattr(Waiters, "fence", fence)
        fence(self)
        adding = threading.Thread(target=lambda: add(store, 1))
        adding.start()
        adding.join()

    monkeypatch.setattr(Waiters, "fence", slow)
    waiting.goes_on.set()
    eventually(lambda: waiting.got == [0, 1])
    waiting.join()


def test_a_rejoining_reader_reads_existing_entries(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = ReadsTwice(store, "c")
    add(store, 1, 2)
    before = commits(store)
    waiting.goes_on.set()
    assert waiting.wait() == [0, 1]
    assert commits(store) == before + 1


def test_a_killed_reader_stands_in_nobodys_way(store: Store[Any]) -> None:
    crowd.group_of(store)
    child = crowd.reader(store, "dies", times=2)
    add(store, 0)
    eventually(lambda: crowd.owners(store) == ["dies"] and crowd.queue(store) == [child.pid])
    child.kill()
    waiting = Reading(store, "lives", count=1)
    add(store, 1)
    assert waiting.wait() == [1]


def test_records_are_not_held_by_many_who_do_not_come_back(store: Store[Any]) -> None:
    crowd.group_of(store)
    for n in range(3 * BARE_MAX):
        waiting = Reading(store, f"c{n}", count=1)
        add(store, n)
        assert waiting.wait() == [n]
    assert len(crowd.used(store)) <= BARE_MAX


def test_a_close_frees_the_waiter_record(store: Store[Any]) -> None:
    crowd.group_of(store)
    child = crowd.reader(store, "c")
    add(store, 0)
    child.join()
    assert crowd.owners(store) == ["c"]
    assert crowd.used(store) == []


def test_an_offer_of_a_deleted_entry_is_dropped(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader waits on, for what is there."""
    collect = WaitSession._collect

    def late(self: Any, mailbox: Any) -> Any:
        monkeypatch.setattr(WaitSession, "_collect", collect)
        store.stream("work").delete(mailbox.first)
        return collect(self, mailbox)

    monkeypatch.setattr(WaitSession, "_collect", late)
    waiting = Reading(store, "c", count=1)
    add(store, 7)
    eventually(lambda: store.metrics()["handed"] == 1)
    add(store, 8)
    assert waiting.wait() == [8]
