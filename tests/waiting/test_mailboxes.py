"""Prevents offers that are taken for given entries, or made to readers that do not wait.

Entries are offered before a commit, and given once it is published: it may be decided once more, or
never end, and the reader that is offered something may just be leaving.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import aio
from logstore.api import arguments
from logstore.api.store import Store
from logstore.engine.groups import admin
from logstore.engine.shm.wait_words import Waits
from logstore.engine.shm.waiters import GIVEN, IDLE, NO_ONE, NOTHING, OFFERED, Mailboxes
from logstore.engine.streams import add as adds
from logstore.engine.txn import pel
from logstore.engine.waiting import handoff
from logstore.engine.waiting.wait_session import WaitSession
from tests.support.inside import engine_of
from tests.support.waits import eventually, eventually_async
from tests.waiting import crowd
from tests.waiting.readers import Reading, add, killed_handing_over
from tests.waiting.tasks import Held, go, task

pytestmark = pytest.mark.usefixtures("left_to_readers")


def hand_off(store: Store[Any], numbers: int, *, times: int = 1) -> list[int]:
    """Add entries and hand them to those who wait, in one commit; what mailboxes had then."""
    waits, key = engine_of(store).wake.waits, crowd.key_of(store)

    def step(state: Any) -> list[int]:
        batch = arguments.rows([{"n": n} for n in range(numbers)], None)
        adds.add(state, adds.Add(b"work", batch, 0, numbers, adds.AUTO))
        found = admin.existing(state, b"work", b"g")
        records = waits.waiters.waiting(key)
        for _ in range(times):
            handoff.hand_off(state, waits, *found, records)
        return [waits.mailboxes.state(record.number) for record in records]

    given: list[int] = store._opened.commit(step, None)
    return given


@pytest.mark.usefixtures("patient")
def test_in_one_commit_nobody_is_handed_something_twice(store: Store[Any]) -> None:
    """As two threads do that share a commit."""
    first, second = Reading(store, "first", count=1), Reading(store, "second", count=1)
    assert hand_off(store, 5, times=2) == [OFFERED, OFFERED]
    assert [first.wait(), second.wait()] == [[0], [1]]
    assert crowd.owners(store) == ["first", "second"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("rejoins", [True, False])
def test_a_leaving_reader_is_offered_nothing(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch, rejoins: bool
) -> None:
    """It says so between the look at the queue and the offer, or comes back already."""
    first, second = Reading(store, "first", count=1), Reading(store, "second", count=1)
    waiters = engine_of(store).wake.waits.waiters
    leaving = waiters.waiting(crowd.key_of(store))[0]
    offer = Mailboxes.offer_locked

    def late(self: Mailboxes, number: int, *args: Any) -> None:
        offer(self, number, *args)
        if number == leaving.number and rejoins:
            self.set_taker(number, NO_ONE, 0)
        elif number == leaving.number:
            waiters.set_state(number, leaving.ticket, IDLE)

    monkeypatch.setattr(Mailboxes, "offer_locked", late)
    hand_off(store, 1)
    monkeypatch.undo()
    assert second.wait() == [0]
    assert first.is_alive()
    waiters.set_state(leaving.number, leaving.ticket, leaving.state)
    add(store, 1)
    assert first.wait() == [1]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("whose", ["other", "c"])
def test_an_offer_of_the_dead_is_withdrawn_if_another_read_it(
    store: Store[Any], whose: str
) -> None:
    """Another consumer, or the same one in another read: it was returned there."""
    group = crowd.group_of(store)
    add(store, 0)
    (had,) = group.read(whose, count=1)
    waiting = Reading(store, "c", count=1)
    key = crowd.key_of(store)
    found = group._opened.view(lambda view: pel.find(view.index.groups, key, had.id))
    assert found is not None
    waits = engine_of(store).wake.waits
    (record,) = waits.waiters.waiting(key)
    with store._live().committer.locked():
        time_ms = found.time_ms - (whose == "c")
        waits.mailboxes.offer_locked(record.number, had.id, had.id, time_ms)
        waits.waiters.count_up(record.number)
    waits.waiters.wake(record.number)
    eventually(lambda: waits.mailboxes.state(record.number) == NOTHING)
    add(store, 1)
    assert waiting.wait() == [1]


@pytest.mark.usefixtures("patient")
def test_a_timed_out_reader_is_offered_nothing_until_it_rejoins(store: Store[Any]) -> None:
    group = crowd.group_of(store)
    assert group.read("first", count=1, timeout=0.01) == []
    second = Reading(store, "second", count=1)
    add(store, 0, 1)
    assert second.wait() == [0]
    assert crowd.owners(store) == ["second"]
    assert [each.fields[b"n"] for each in group.read("first", timeout=crowd.LONG_S)] == [b"1"]


def test_nothing_is_handed_to_a_stopped_process(store: Store[Any]) -> None:
    """It would lie there, while others could have it."""
    crowd.group_of(store)
    stopped = crowd.reader(store, "stopped")
    eventually(lambda: engine_of(store).wake.waits.mailboxes.read(0).consumer != NO_ONE)
    crowd.stop(stopped.pid)
    try:
        assert hand_off(store, 1) == [NOTHING]
        assert crowd.owners(store) == []
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    add(store, 1)
    stopped.join()
    assert crowd.owners(store) == ["stopped"]


@pytest.mark.usefixtures("patient")
def test_readers_ahead_are_not_served_by_one_that_would_get_nothing(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are awake by now, and two would do the work of one."""
    held = threading.Event()
    attempt = WaitSession._try

    def slow(self: Any, ahead: Any) -> Any:
        if self._read.consumer == b"first" and store.stream("work").first is not None:
            held.wait(5)
        return attempt(self, ahead)

    monkeypatch.setattr(WaitSession, "_try", slow)
    first = Reading(store, "first", count=1)
    add(store, 0)
    second = Reading(store, "second", count=1)
    assert crowd.owners(store) == []
    held.set()
    assert first.wait() == [0]
    add(store, 1)
    assert second.wait() == [1]
    assert store.metrics()["handed"] == 0


def test_an_offer_of_a_commit_decided_twice_is_withdrawn(store: Store[Any]) -> None:
    """Else the same consumer in another thread may read it in the same millisecond: both got it."""
    waiting = Reading(store, "c", count=1)
    waits, number = engine_of(store).wake.waits, crowd.key_of(store)
    records = waits.waiters.waiting(number)
    offered: list[int] = []

    def fails(state: Any) -> None:
        adds.add(state, adds.Add(b"work", arguments.rows([{"n": 0}], None), 0, 1, adds.AUTO))
        assert handoff.hand_off(state, waits, *admin.existing(state, b"work", b"g"), records)
        offered.append(waits.mailboxes.state(records[0].number))
        raise logstore.UsageError("mine")

    with pytest.raises(logstore.UsageError):
        store._opened.commit(fails, None)
    assert offered == [OFFERED]
    assert waits.mailboxes.state(records[0].number) == NOTHING
    add(store, 1)
    assert waiting.wait() == [1]


def test_an_offer_of_a_recreated_stream_is_dropped(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody delivered that: it would come once more."""
    collect = WaitSession._collect

    def late(self: Any, mailbox: Any) -> Any:
        store.drop("work")
        store.stream("work").add({"n": 77}, id=mailbox.first)
        crowd.group_of(store)
        return collect(self, mailbox)

    monkeypatch.setattr(WaitSession, "_collect", late)
    first, second = Reading(store, "first", count=1), Reading(store, "second", count=1)
    add(store, 0, 1)
    assert first.wait() == [0]
    assert second.wait() == [77]
    assert crowd.owners(store) == ["second"]


@pytest.mark.parametrize("published", [True, False])
def test_a_writer_killed_during_a_hand_off_to_tasks(tmp_path: Path, published: bool) -> None:
    """They look by themselves, each of them, and find what the index says."""

    async def work(store: aio.AsyncStore, plain: Store[Any]) -> None:
        first = await asyncio.to_thread(killed_handing_over, plain, published=published)
        tasks = [await task(store, f"task {n}") for n in range(3)]
        await eventually_async(lambda: plain.metrics()["waits"] == 3)
        await asyncio.to_thread(add, plain, *range(4))
        await asyncio.to_thread(os.waitpid, first.pid, 0)
        found = await asyncio.wait_for(asyncio.gather(*tasks), 60)
        numbers = [int(each.fields[b"n"]) for (each,) in found]
        assert numbers == ([1, 2, 3] if published else [0, 1, 2])

    go(tmp_path, work)


def test_a_reader_that_gives_up_returns_a_late_offer(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd.group_of(store)
    held = Held(monkeypatch, "give_up")
    late = Reading(store, "late", count=1, timeout=0.05)
    assert held.reached.wait(crowd.SOON_S)
    assert hand_off(store, 1) == [OFFERED]
    held.goes_on.set()
    assert late.wait() == [0]


@pytest.mark.usefixtures("patient")
def test_a_reader_with_an_offer_of_a_dead_writer_gets_no_second_one(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first would never be returned."""
    first, second = Reading(store, "first", count=1), Reading(store, "second", count=1)
    with monkeypatch.context() as patch:
        patch.setattr(Waits, "given_locked", lambda *_: None)  # died when it had published
        patch.setattr(Waits, "wake_pending", lambda *_: None)
        assert hand_off(store, 1) == [OFFERED, NOTHING]
    assert hand_off(store, 1) == [GIVEN, OFFERED]
    assert len(first.wait()) == len(second.wait()) == 1
    assert crowd.owners(store) == ["first", "second"]
