"""Prevents a reader that could claim something and sleeps, behind others who would not take it.

Waiters here sleep until they are woken, or until the moment they reckoned.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.shm.wait_words import bucket_of
from logstore.engine.shm.waiters import NEW_ONLY
from logstore.engine.snapshots import snapshot
from logstore.engine.waiting import probe
from tests.support.inside import engine_of
from tests.support.processes import Forked
from tests.support.waits import eventually
from tests.waiting import crowd

IDLE_S = 4.0  # nobody has it before all stand in the queue, on a busy machine too

pytestmark = pytest.mark.usefixtures("patient")


def deliver(store: Store[Any], *ids: str) -> None:
    """Add entries, and hand them to a consumer that does nothing with them."""
    group = crowd.group_of(store)
    for id in ids:
        store.stream("work").add({"a": "b"}, id)
    assert len(group.read("gone", count=len(ids))) == len(ids)


def test_idle_entries_pass_readers_without_min_idle(store: Store[Any]) -> None:
    began = time.monotonic()
    deliver(store, "1-0")
    with (
        crowd.reader(store, "first"),
        crowd.reader(store, "second"),
        crowd.reader(store, "claims", min_idle=IDLE_S),
    ):
        eventually(lambda: crowd.owners(store) == ["claims"])
        assert time.monotonic() - began >= IDLE_S - 0.05
        eventually(lambda: len(crowd.queue(store)) == 2)
        store.stream("work").add_many([("2-0", {"a": "b"}), ("3-0", {"a": "b"})])
    assert crowd.owners(store) == ["claims", "first", "second"]


def test_nacked_entries_pass_readers_without_min_idle(store: Store[Any]) -> None:
    deliver(store, "1-0")
    with crowd.reader(store, "first"), crowd.reader(store, "claims", min_idle=1_000):
        crowd.group_of(store).nack("1-0")
        eventually(lambda: crowd.owners(store) == ["claims"])
        store.stream("work").add({"a": "b"}, "2-0")
    assert crowd.owners(store) == ["claims", "first"]


def test_a_claiming_reader_takes_no_new_entries_out_of_turn(store: Store[Any]) -> None:
    """It takes what it may, and leaves what is new, though it asked for more of both."""
    deliver(store, "1-0")
    with (
        crowd.reader(store, "first") as first,
        crowd.reader(store, "claims", count=10, min_idle=IDLE_S),
    ):
        crowd.stop(first.pid)
        store.stream("work").add({"a": "b"}, "2-0")
        eventually(lambda: crowd.owners(store) == ["claims"])
        time.sleep(0.1)
        assert crowd.owners(store) == ["claims"]
        os.kill(first.pid, signal.SIGCONT)
    assert crowd.owners(store) == ["claims", "first"]


def test_equals_claim_in_the_order_they_came(store: Store[Any]) -> None:
    """They become idle at a time that all reckon, once all stand in the queue."""
    ids = ["1-0", "2-0", "3-0"]
    deliver(store, *ids)
    with (
        crowd.reader(store, "plain"),
        crowd.reader(store, "a", min_idle=1_000),
        crowd.reader(store, "b", min_idle=1_000),
        crowd.reader(store, "c", min_idle=1_000),
    ):
        assert len(crowd.group_of(store).claim("gone", *ids, min_idle=0, idle=999)) == 3
        eventually(lambda: crowd.owners(store) == ["a", "b", "c"])
        store.stream("work").add({"a": "b"}, "4-0")
    assert crowd.owners(store) == ["a", "b", "c", "plain"]


def test_the_less_patient_is_served_before_the_more_patient(store: Store[Any]) -> None:
    deliver(store, "1-0")
    with (
        crowd.reader(store, "long", min_idle=1_000),
        crowd.reader(store, "short", min_idle=IDLE_S),
    ):
        eventually(lambda: crowd.owners(store) == ["short"])
        crowd.group_of(store).nack("1-0")  # this suits both
        eventually(lambda: crowd.owners(store) == ["long"])


def test_an_entry_that_suits_two_goes_to_the_first(store: Store[Any]) -> None:
    """Who looks on its own account yields to those before it that would take it as well."""
    deliver(store, "1-0")
    key = crowd.key_of(store)
    waiters = engine_of(store).wake.waits.waiters
    group = crowd.group_of(store)
    with store._live().committer.locked():
        taken = waiters.take_locked(key, bucket_of(b"work"), 100)  # it waits, and does nothing
    assert taken is not None
    time.sleep(0.15)
    assert group.read("second", timeout=0.3, min_idle=0.05) == []
    waiters.set_wanted(taken[0], bucket_of(b"work"), NEW_ONLY)
    assert [each.id.ms for each in group.read("second", timeout=0.3, min_idle=0.05)] == [1]
    waiters.free(*taken)


def test_readers_that_a_queue_may_serve(store: Store[Any]) -> None:
    waiters = engine_of(store).wake.waits.waiters
    with store._live().committer.locked():
        taken = [
            waiters.take_locked(5, 1, min_idle)
            for min_idle in (NEW_ONLY, 300, NEW_ONLY, 300, 100, 200)
        ]
    made = [each for each in taken if each is not None]
    min_idles = [waiters.record(number).min_idle_ms for number, _ in made]
    ahead = [waiters.ahead(5, made[at][1], min_idles[at]) for at in range(6)]
    assert ahead == [[], [NEW_ONLY], None, None, [NEW_ONLY, 300, NEW_ONLY, 300], None]
    before = [waiters.load(number) for number, _ in made]
    waiters.wake_first(5)
    assert [waiters.load(number) - was for (number, _), was in zip(made, before, strict=True)] == [
        1, 1, 0, 0, 1, 0
    ]  # fmt: skip
    for number, ticket in made:
        waiters.free(number, ticket)


def test_an_offer_tells_when_the_next_can_be_claimed(store: Store[Any]) -> None:
    group = crowd.group_of(store)
    deliver(store, "1-0", "2-0")
    time.sleep(0.02)
    deliver(store, "3-0")

    def look(idle_ms: int | None) -> probe.AvailableEntries:
        found = snapshot.read(
            engine_of(store), lambda view: probe.probe(view, b"work", b"g", idle_ms)
        )
        assert found is not None
        return found

    now_ms = engine_of(store).clock.now_ms()
    plain, first = look(None), look(500)
    assert (plain.claimable_at_ms, plain.min_idle_ms, plain.fresh) == (None, NEW_ONLY, False)
    assert first.claimable_at_ms is not None
    assert now_ms - 1_000 < first.claimable_at_ms - 500 <= now_ms
    group.ack("1-0")
    assert look(500) == first  # the second was delivered with it
    store.stream("work").delete("2-0")  # still pending, and gone
    third = look(500)
    assert third.claimable_at_ms is not None
    assert third.claimable_at_ms >= first.claimable_at_ms + 20
    group.nack("3-0")
    assert look(10**6).claimable(now_ms)
    assert look(1 << 50).min_idle_ms == look(1 << 60).min_idle_ms


def test_threads_of_one_process_are_told_apart_as_well(store: Store[Any]) -> None:
    deliver(store, "1-0")
    group = crowd.group_of(store)
    new = threading.Thread(target=group.read, args=("first",), kwargs={"timeout": crowd.LONG_S})
    new.start()
    eventually(lambda: len(crowd.queue(store)) == 1)
    began = time.monotonic()
    assert [each.id.ms for each in group.read("claims", timeout=crowd.LONG_S, min_idle=IDLE_S)] == [
        1
    ]
    assert time.monotonic() - began < crowd.SOON_S
    store.stream("work").add({"a": "b"}, "2-0")
    new.join(crowd.SOON_S)
    assert crowd.owners(store) == ["claims", "first"]


@pytest.mark.parametrize("how", ["destroy", "drop", "anew"])
def test_all_waiters_of_a_group_that_goes_are_told(store: Store[Any], how: str) -> None:
    """One after the other, over processes and threads; of one that is made anew they read on."""
    group = crowd.group_of(store)
    told: list[BaseException | int] = []

    def work() -> None:
        try:
            told.append(len(group.read("thread", count=1, timeout=crowd.LONG_S)))
        except logstore.GroupNotFoundError as error:
            told.append(error)

    def fail() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            if how == "anew":
                assert crowd.group_of(theirs).read("process", count=1, timeout=crowd.LONG_S)
            else:
                with pytest.raises(logstore.GroupNotFoundError, match="NOGROUP"):
                    theirs.stream("work").group("g").read("process", timeout=crowd.LONG_S)

    with crowd.queued(store, fail), crowd.queued(store, fail):
        thread = threading.Thread(target=work)
        thread.start()
        eventually(lambda: len(crowd.queue(store)) == 3)
        with crowd.queued(store, fail):
            if how == "drop":
                store.drop("work")
            elif how == "destroy":
                group.destroy()
            else:
                with store.transaction() as tx:
                    tx.stream("work").group("g").destroy()
                    tx.stream("work").group("g").create("0")
                eventually(lambda: len(crowd.queue(store)) == 4)
                store.stream("work").add_many([{"a": "b"}] * 4)
            thread.join(crowd.SOON_S)
            assert len(told) == 1
    assert isinstance(told[0], int if how == "anew" else logstore.GroupNotFoundError)


def test_readers_of_several_streams_in_several_processes_all_wake(
    store: Store[Any], tmp_path: Path
) -> None:
    wanted = [("a",), ("a", "b"), ("b", "c"), ("c", "a", "d"), ("a", "b", "c", "d")]
    for name in "abcd":
        store.create(name)

    def work(number: int) -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            names = wanted[number]
            if len(names) == 1:
                theirs.stream(names[0]).read("0", timeout=crowd.LONG_S)
            else:
                theirs.read(dict.fromkeys(names, "0"), timeout=crowd.LONG_S)
            (tmp_path / f"{number}").touch()

    waits = engine_of(store).wake.waits

    def woken() -> set[int]:
        return {number for number in range(len(wanted)) if (tmp_path / f"{number}").exists()}

    with ExitStack() as stack:
        for number in range(len(wanted)):
            stack.enter_context(Forked(lambda number=number: work(number)))  # type: ignore[misc]
        time.sleep(0.3)  # asleep, as a rule; else they find it by their first look
        for name, due in (("c", {2, 3, 4}), ("b", {1, 2, 3, 4}), ("a", {0, 1, 2, 3, 4})):
            store.stream(name).add({"a": "b"})
            eventually(lambda due=due: woken() == due)  # type: ignore[misc]
    assert not waits.pending
