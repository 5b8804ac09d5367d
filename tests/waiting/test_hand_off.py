"""Prevents entries that a reader hands to a waiter from being lost, doubled, or out of turn.

Waiters here sleep until they are woken, but where a test says that they must look by themselves.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.shm.waiters import SERVED
from logstore.engine.waiting.wait_session import WaitSession
from tests.support.inside import engine_of
from tests.support.threads import running
from tests.support.waits import eventually
from tests.waiting import crowd
from tests.waiting.readers import Reading, add, commits, killed_handing_over

pytestmark = pytest.mark.usefixtures("left_to_readers")


@pytest.mark.usefixtures("patient")
def test_one_commit_serves_all_that_wait(store: Store[Any]) -> None:
    crowd.group_of(store)
    with ExitStack() as stack:
        for who in range(10):
            stack.enter_context(crowd.reader(store, f"w{who}"))
        eventually(lambda: len(crowd.takers(store)) == 10)
        with store._live().committer.locked():  # who joined has committed so
            before = commits(store)
        add(store, *range(10))
        eventually(lambda: len(crowd.owners(store)) == 10)
        assert commits(store) == before + 2  # the add, and the read of the first
    assert crowd.owners(store) == [f"w{who}" for who in range(10)]
    assert crowd.queue(store) == []


@pytest.mark.usefixtures("patient")
def test_each_gets_as_many_as_it_asks_for(store: Store[Any]) -> None:
    readers = [Reading(store, f"w{n}", count=n) for n in (1, 2, 3, 0)]
    last = Reading(store, "last", count=1)
    add(store, *range(9))
    assert [each.wait() for each in readers] == [[0], [1, 2], [3, 4, 5], [6, 7, 8]]
    add(store, 9)
    assert last.wait() == [9]


@pytest.mark.usefixtures("patient")
def test_a_new_reader_serves_the_queue_first(store: Store[Any], monkeypatch: Any) -> None:
    """The first was woken and is not awake yet: who comes meanwhile needs not wait for it."""
    held = threading.Event()
    attempt = WaitSession._try

    def slow(self: Any, ahead: Any) -> Any:
        if self._read.consumer == b"first" and store.stream("work").first is not None:
            held.wait(crowd.SOON_S)
        return attempt(self, ahead)

    monkeypatch.setattr(WaitSession, "_try", slow)
    first, second = Reading(store, "first", count=1), Reading(store, "second", count=2)
    add(store, *range(5))
    found = crowd.group_of(store).read("third", count=1, timeout=crowd.LONG_S)
    assert [int(each.fields[b"n"]) for each in found] == [3]
    assert second.wait() == [1, 2]
    held.set()
    assert first.wait() == [0]  # and not another one besides: that would be lost
    assert crowd.owners(store) == ["first", "second", "second", "third"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("options", [{"min_idle": 3600}, {"max_bytes": 10_000}, {"noack": True}])
def test_a_reader_with_a_limit_of_bytes_is_not_passed_over(
    store: Store[Any], options: dict[str, Any]
) -> None:
    readers = [
        Reading(store, "first", count=1), Reading(store, "other", count=1, **options),
        Reading(store, "third", count=1),
    ]  # fmt: skip
    add(store, 0, 1, 2)
    assert [each.wait() for each in readers] == [[0], [1], [2]]
    counts = store.metrics()
    assert counts["handed"] == 1  # to the third, by the second


@pytest.mark.usefixtures("patient")
def test_nothing_is_handed_where_entries_are_redelivered(store: Store[Any]) -> None:
    readers = [Reading(store, f"w{n}", count=1) for n in range(3)]
    crowd.group_of(store).configure(min_idle=3600)
    add(store, 0, 1, 2)
    assert [each.wait() for each in readers] == [[0], [1], [2]]
    assert store.metrics()["handed"] == 0


def test_nothing_is_handed_to_the_stopped_and_the_dead(store: Store[Any]) -> None:
    crowd.group_of(store)
    stopped, killed = crowd.reader(store, "stopped"), crowd.reader(store, "killed")
    crowd.stop(stopped.pid)
    killed.kill()
    add(store, 0)
    with crowd.reader(store, "second"):
        eventually(lambda: crowd.owners(store) == ["second"])
    os.kill(stopped.pid, signal.SIGCONT)
    add(store, 1)
    stopped.join()
    assert crowd.owners(store) == ["second", "stopped"]


@pytest.mark.usefixtures("patient")
def test_a_reader_whose_entry_was_deleted_waits_on(store: Store[Any], monkeypatch: Any) -> None:
    collect = WaitSession._collect

    def late(self: Any, mailbox: Any) -> Any:
        if not store.metrics()["deleted_entries"]:
            store.stream("work").delete(mailbox.first)
        return collect(self, mailbox)

    monkeypatch.setattr(WaitSession, "_collect", late)
    first, second = Reading(store, "first", count=1), Reading(store, "second", count=1)
    add(store, 0, 1)
    assert first.wait() == [0]
    eventually(lambda: store.metrics()["handed"] == 1 and len(crowd.queue(store)) == 1)
    assert second.is_alive()
    add(store, 2)
    assert second.wait() == [2]


@pytest.mark.parametrize("published", [True, False])
def test_a_writer_killed_during_a_hand_off(store: Store[Any], published: bool) -> None:
    """Published: the other finds in the index that it was served. Else it is served again."""
    crowd.group_of(store)
    first = killed_handing_over(store, published=published)
    second = Reading(store, "second", count=1)
    add(store, 0, 1)
    assert os.WTERMSIG(os.waitpid(first.pid, 0)[1]) == signal.SIGKILL
    assert second.wait() == ([1] if published else [0])
    assert crowd.owners(store) == (["dying", "second"] if published else ["second"])
    assert crowd.queue(store) == []


def test_a_reader_served_at_its_deadline_returns_its_entries(store: Store[Any]) -> None:
    """Waiters with short time-outs: what is pending with one was returned to it, whatever met."""
    group = crowd.group_of(store)
    count, got, done = 400, [[] for _ in range(6)], threading.Event()  # type: ignore[var-annotated]

    def work(number: int) -> None:
        mine: Any = got[number]
        while not done.is_set() or group.info().lag:
            for each in group.read(f"w{number}", count=2, timeout=0.002 * (1 + number % 3)):
                mine.append(each.id)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    with running(threads, crowd.LONG_S):
        for n in range(0, count, 4):
            add(store, n, n + 1, n + 2, n + 3)
            time.sleep(0.001 * (n % 5))
        done.set()
    pending = {each.id: each.consumer for each in group.pending_entries()}
    assert {id: f"w{n}".encode() for n in range(6) for id in got[n]} == pending
    assert sum(map(len, got)) == len(pending) == count
    assert store.metrics()["handed"] > 0


def test_a_stopped_reader_returns_its_handed_entries(store: Store[Any], monkeypatch: Any) -> None:
    """Stopped between being handed something and looking: it is not left in its backlog unseen."""
    stopped: list[bool] = []
    group = crowd.group_of(store)
    found: list[Any] = []

    def alive() -> None:
        if stopped and engine_of(store).wake.waits.mailboxes.state(1):
            raise logstore.UsageError("stopped")

    def work() -> None:
        found.extend(group._read(b"second", 1, None, alive=alive))

    first = Reading(store, "first", count=1)
    second = threading.Thread(target=work)
    second.start()
    eventually(lambda: len(crowd.queue(store)) == 2)
    stopped.append(True)
    add(store, 0, 1)
    second.join(crowd.SOON_S)
    assert first.wait() == [0]
    assert [int(each.fields[b"n"]) for each in found] == [1]


def test_a_record_that_was_left_while_it_was_served_is_used_again(store: Store[Any]) -> None:
    waiters = engine_of(store).wake.waits.waiters
    with store._live().committer.locked():
        for _ in range(3):
            number, ticket = waiters.take_locked(5, 1) or (-1, 0)
            waiters.free(number, ticket)
            waiters._words[waiters._at(number) + 4 >> 2] = SERVED  # as if both were stored at once
        assert waiters._used() == 1
