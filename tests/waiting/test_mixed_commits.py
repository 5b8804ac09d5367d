"""Prevents those who wait from missing what a commit does besides adding, and an entry from being
handed to somebody whose read does not return it.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from logstore.api.store import Store
from logstore.engine.groups import deliver as deliveries
from logstore.engine.shm.wait_words import Waits, bucket_of
from logstore.engine.shm.waiters import NOTHING
from logstore.errors import Error
from logstore.log.segment_writer import CommitBuffer
from tests.support.inside import engine_of
from tests.support.waits import eventually
from tests.waiting.crowd import LONG_S, SOON_S, group_of, owners
from tests.waiting.readers import Reading, add

pytestmark = pytest.mark.usefixtures("patient")


@pytest.mark.parametrize("how", ["transaction", "threads"])
def test_a_nack_beside_an_add_wakes_claiming_readers(store: Store[Any], how: str) -> None:
    """Nothing new is left, but something else is there at once."""
    add(store, 0)
    (got,) = group_of(store).read("x")
    plain = Reading(store, "plain", count=1)
    claims = Reading(store, "claims", count=1, min_idle=3600)
    if how == "transaction":
        with store.transaction() as tx:
            tx.stream("work").add({"n": 1})
            tx.nack(got)
    else:
        in_one_batch(store, lambda: add(store, 1), lambda: group_of(store).nack(got.id))
    assert plain.wait() == [1]
    assert claims.wait() == [0]


def in_one_batch(store: Store[Any], *calls: Any) -> None:
    """Threads whose commits are one, as they come while another one leads."""
    begun, go = threading.Event(), threading.Event()

    def slow(_: Any) -> None:
        begun.set()
        go.wait(SOON_S)

    lead = threading.Thread(target=lambda: store._opened.commit(slow, None))
    lead.start()
    begun.wait(SOON_S)
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    commits = store._live().committer.queue
    eventually(lambda: len(commits.queue) == len(calls))
    go.set()
    for thread in [lead, *threads]:
        thread.join(SOON_S)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_reader_of_a_renamed_stream_returns_its_offer(store: Store[Any], at_once: bool) -> None:
    """The new name has the same word to wait on, so that its waiters are found."""
    bucket = bucket_of(b"work")
    other = next(name for name in map(str, range(9999)) if bucket_of(name.encode()) == bucket)
    add(store, 0)
    group_of(store).read("c")
    errors: list[Error] = []
    found: list[Any] = []

    def read() -> None:
        try:
            found.extend(store.stream("work").group("g").read("c", count=1, timeout=LONG_S))
        except Error as error:
            errors.append(error)

    before = store.metrics()["waits"]
    thread = threading.Thread(target=read)
    thread.start()
    eventually(lambda: store.metrics()["waits"] > before)
    if at_once:
        with store.transaction() as tx:
            tx.rename("work", other)
            tx.stream(other).add({"n": 1})
    else:
        store.rename("work", other)
        store.stream(other).add({"n": 1})
    thread.join(SOON_S)
    assert store.stream(other).group("g").info().pending == 1 + len(found)
    if at_once:
        assert [each.fields[b"n"] for each in found] == [b"1"]


@pytest.mark.parametrize("options", [{"max_bytes": 10_000}, {"noack": True}, {"min_idle": 3600}])
def test_a_reader_of_one_entry_does_not_read_for_those_behind(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """One behind it takes any number, but must come itself."""
    first = Reading(store, "first", count=1)
    second = Reading(store, "second", **options)
    most, fresh = [0], deliveries.fresh

    def counted(*args: Any) -> Any:
        found = fresh(*args)
        if threading.current_thread() is first:
            most.append(len(found))
        return found

    monkeypatch.setattr(deliveries, "fresh", counted)
    add(store, *range(3000))
    assert first.wait() == [0]
    assert second.wait()[0] == 1
    assert max(most) == 1


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next delivery fails, once."""
    deliver, fails = deliveries.deliver, [True]

    def once(*args: Any, **options: Any) -> None:
        if fails:
            fails.clear()
            raise RuntimeError("mine")
        deliver(*args, **options)

    monkeypatch.setattr(deliveries, "deliver", once)


def test_offers_before_a_failed_operation_are_withdrawn(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = [Reading(store, "a", count=1), Reading(store, "b", count=1)]
    states: list[list[int]] = []
    withdraw = Waits.withdraw_locked

    def seen(self: Waits, waiters: Any) -> None:
        withdraw(self, waiters)
        states.append([self.mailboxes.state(number) for number in (0, 1)])

    monkeypatch.setattr(Waits, "withdraw_locked", seen)
    failing(monkeypatch)
    add(store, 0, 1)
    assert [each.wait() for each in readers] == [[0], [1]]
    assert states[0] == [0, 0]
    time.sleep(0.01)
    assert owners(store) == ["a", "b"]


def test_offers_of_a_failed_commit_are_withdrawn(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first byte: nothing of it happened."""
    first = Reading(store, "first", count=1)
    encode, fails = CommitBuffer.encode, [True]

    def once(*args: Any) -> bytes:
        if fails:
            fails.clear()
            raise RuntimeError("mine")
        return encode(*args)

    monkeypatch.setattr(CommitBuffer, "encode", once)
    with pytest.raises(RuntimeError, match="mine"):
        add(store, 0)
    assert engine_of(store).wake.waits.mailboxes.state(0) == NOTHING
    assert first.is_alive()
    add(store, 1)
    assert first.wait() == [1]
