"""Prevents waiters of a group that are served out of turn, and wake-ups that nobody passes on.

Waiters here sleep until they are woken: what looking once a slice would find is not found.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.shm import waiters
from logstore.engine.shm.waiters import PACE
from logstore.engine.waiting.session import WaitSession
from tests.engine.procs import Forked
from tests.support.inside import engine_of
from tests.waiting import crowd

WAITERS = 10
NAMES = [f"w{number}" for number in range(WAITERS)]


@pytest.mark.usefixtures("patient")
def test_processes_are_served_in_the_order_they_came(store: Store[Any]) -> None:
    crowd.group_of(store)
    with ExitStack() as stack:
        for who in NAMES:
            stack.enter_context(crowd.reader(store, who))
        for n in range(WAITERS // 2):
            store.stream("work").add({"n": n})
        store.stream("work").add_many({"n": n} for n in range(WAITERS // 2, WAITERS))
        crowd.eventually(lambda: len(crowd.owners(store)) == WAITERS)
    assert crowd.owners(store) == NAMES
    assert crowd.queue(store) == []


@pytest.mark.usefixtures("patient")
def test_threads_are_served_in_the_order_they_came(store: Store[Any]) -> None:
    group = crowd.group_of(store)
    key = crowd.key_of(store)
    threads = []
    for place, who in enumerate(NAMES):
        threads.append(
            threading.Thread(
                target=group.read, args=(who,), kwargs={"count": 1, "timeout": crowd.LONG_S}
            )
        )
        threads[-1].start()
        crowd.eventually(lambda place=place: len(crowd.queue(store, key)) == place + 1)  # type: ignore[misc]
    store.stream("work").add_many({"n": n} for n in range(WAITERS // 2))
    for n in range(WAITERS // 2, WAITERS):
        store.stream("work").add({"n": n})
    for thread in threads:
        thread.join(crowd.SOON_S)
    assert crowd.owners(store) == NAMES


@pytest.mark.usefixtures("patient")
def test_each_gets_its_turn_again_and_again(store: Store[Any]) -> None:
    """Ten that come back at once are served round and round; one that is killed is left out."""
    crowd.group_of(store)
    key, served = crowd.key_of(store), 0

    def serve_one(pid: int, *, comes_back: bool = True) -> None:
        nonlocal served
        served += 1
        store.stream("work").add({"n": served})
        crowd.eventually(lambda: len(crowd.owners(store)) == served)
        if comes_back:
            crowd.eventually(lambda: crowd.queue(store, key)[-1] == pid)
        else:
            crowd.eventually(lambda: pid not in crowd.queue(store, key))

    with ExitStack() as stack:
        lasting = [stack.enter_context(crowd.reader(store, who, 3)).pid for who in NAMES[:-1]]
        doomed = crowd.reader(store, NAMES[-1], 3)
        for pid in [*lasting, doomed.pid]:
            serve_one(pid)
        doomed.kill()
        for pid in lasting:
            serve_one(pid)
        for pid in lasting:
            serve_one(pid, comes_back=False)
    assert crowd.owners(store) == NAMES + 2 * NAMES[:-1]


@pytest.mark.usefixtures("patient")
def test_one_that_was_killed_asleep_costs_nothing(store: Store[Any]) -> None:
    crowd.group_of(store)
    first = crowd.reader(store, "first")
    with crowd.reader(store, "second"):
        first.kill()
        store.stream("work").add({"a": "b"})
        crowd.eventually(lambda: crowd.owners(store) == ["second"])


@pytest.mark.usefixtures("left_to_readers")
def test_one_that_was_killed_awake_costs_a_slice(store: Store[Any]) -> None:
    """The wake-up died with it: the next one finds that out by looking, in this test alone."""
    crowd.group_of(store)

    def die_at_work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            crowd.take(theirs, "first", once=lambda: os.kill(os.getpid(), signal.SIGKILL))

    PACE.stale_ms = 900_000  # it is seen to be dead, and not merely to have done nothing for long
    try:
        first = crowd.queued(store, die_at_work)
        with crowd.reader(store, "second"):
            store.stream("work").add({"a": "b"})
            os.waitpid(first.pid, 0)
            crowd.eventually(lambda: crowd.owners(store) == ["second"])
    finally:
        PACE.set(PACE.slice_s)


def test_one_that_died_leaves_what_is_new_to_one_that_claims_too(store: Store[Any]) -> None:
    """The second looked for what it may take past the first, found nothing, and slept again."""
    crowd.group_of(store)
    PACE.stale_ms = 900_000
    try:
        first = crowd.reader(store, "first")
        with crowd.reader(store, "second", claim_idle=3600):
            crowd.stop(first.pid)
            store.stream("work").add({"a": "b"})
            time.sleep(0.3)
            assert crowd.owners(store) == []
            first.kill()
            crowd.eventually(lambda: crowd.owners(store) == ["second"])
    finally:
        PACE.set(PACE.slice_s)


def test_who_looks_by_itself_does_not_push_in(store: Store[Any]) -> None:
    """The first is stopped for some slices of the others: what is there stays there for it."""
    crowd.group_of(store)
    PACE.set(0.02)
    PACE.stale_ms = PACE.fresh_ms = 900_000
    try:
        with (
            crowd.reader(store, "first") as first,
            crowd.reader(store, "second"),
            crowd.reader(store, "third"),
        ):
            crowd.stop(first.pid)
            store.stream("work").add({"a": "b"})
            time.sleep(0.3)
            assert crowd.owners(store) == []
            os.kill(first.pid, signal.SIGCONT)
            crowd.eventually(lambda: crowd.owners(store) == ["first"])
            store.stream("work").add_many([{"a": "b"}] * 2)
        assert crowd.owners(store) == ["first", "second", "third"]
    finally:
        PACE.set(0.1)


def test_who_was_stopped_gets_its_turn_after_those_that_stir(store: Store[Any]) -> None:
    crowd.group_of(store)
    with crowd.reader(store, "first") as first, crowd.reader(store, "second"):
        crowd.stop(first.pid)
        store.stream("work").add({"a": "b"})
        crowd.eventually(lambda: crowd.owners(store) == ["second"])
        os.kill(first.pid, signal.SIGCONT)
        store.stream("work").add({"a": "b"})
    assert crowd.owners(store) == ["second", "first"]


@pytest.mark.usefixtures("patient", "left_to_readers")
def test_who_gives_up_after_it_was_woken_wakes_the_next(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd.group_of(store)
    key, timeout = crowd.key_of(store), 0.5
    attempt, tried = WaitSession._try, threading.Event()

    def late(self: Any, ahead: Any) -> Any:
        """Looks in vain; then, too late for it, an entry comes, and wakes it alone."""
        found = attempt(self, ahead)
        if self._read.consumer == b"first" and not tried.is_set():
            tried.set()
            crowd.eventually(lambda: len(crowd.queue(store, key)) == 2)
            store.stream("work").add({"a": "b"})
            time.sleep(timeout)
        return found

    monkeypatch.setattr(WaitSession, "_try", late)
    given: list[Any] = []
    first = threading.Thread(target=lambda: given.append(crowd.take(store, "first", timeout)))
    first.start()
    crowd.eventually(lambda: len(crowd.queue(store, key)) == 1)
    second = threading.Thread(
        target=crowd.group_of(store).read, args=("second",), kwargs={"timeout": crowd.LONG_S}
    )
    second.start()
    first.join(crowd.SOON_S)
    crowd.eventually(lambda: crowd.owners(store) == ["second"])
    second.join(crowd.SOON_S)
    assert tried.is_set()
    assert given == [[]]


@pytest.mark.usefixtures("patient", "left_to_readers")
@pytest.mark.parametrize("how", ["leaves some", "fails", "is interrupted"])
def test_who_leaves_the_queue_wakes_the_next(store: Store[Any], how: str) -> None:
    """The second comes itself, so that nobody hands it anything."""
    group = crowd.group_of(store)
    key = crowd.key_of(store)
    stopped: list[bool] = []

    def alive() -> None:
        if stopped:
            raise KeyboardInterrupt

    def once() -> None:
        if how == "fails":
            raise logstore.UsageError(how)

    def work() -> None:
        with suppress(KeyboardInterrupt, logstore.UsageError):
            crowd.take(store, "first", None, once, alive if how == "is interrupted" else None)

    first = threading.Thread(target=work)
    first.start()
    crowd.eventually(lambda: len(crowd.queue(store, key)) == 1)
    second = threading.Thread(
        target=group.read, args=("second",), kwargs={"timeout": crowd.LONG_S, "claim_idle": 3600}
    )
    second.start()
    crowd.eventually(lambda: len(crowd.queue(store, key)) == 2)
    stopped.append(True)
    store.stream("work").add_many([{"a": "b"}] * (2 if how == "leaves some" else 1))
    second.join(crowd.SOON_S)
    assert crowd.owners(store) == (["first", "second"] if how == "leaves some" else ["second"])
    first.join(crowd.SOON_S)


def test_killed_at_random_none_is_lost_and_none_left_out(store: Store[Any], tmp_path: Path) -> None:
    """Ten processes, one after the other killed and replaced; each entry goes to one of them, and
    again only by claim; each lives on its share.
    """
    crowd.group_of(store)
    count, chosen = 300, random.Random(7)

    def work(who: str) -> None:
        told = os.open(tmp_path / who, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        with logstore.open(store.path, sync="os", background=False) as theirs:
            group = crowd.group_of(theirs)
            while True:
                for each in group.read(who, count=1, timeout=None, claim_idle=0.5):
                    os.write(told, b"%d %d\n" % (each.id.ms, each.delivery_count))
                    each.ack()

    steady, doomed = ([Forked(lambda n=n: work(f"w{n}")) for n in some] for some in (  # type: ignore[misc]
        range(WAITERS // 2), range(WAITERS // 2, WAITERS)
    ))  # fmt: skip
    try:
        for n in range(1, count + 1):
            store.stream("work").add({"n": n}, f"{n}-0")
            time.sleep(chosen.uniform(0, 0.006))
            if n % 30 == 0:
                doomed.pop(chosen.randrange(len(doomed))).kill()
                doomed.append(Forked(lambda n=n: work(f"x{n}")))  # type: ignore[misc]
        group = crowd.group_of(store)
        crowd.eventually(lambda: group.info().lag == 0 and group.pending().count == 0, 20)
    finally:
        for child in steady + doomed:
            child.kill()
    got = [
        (who.name, *map(int, line.split()))
        for who in tmp_path.glob("[wx][0-9]*")
        for line in who.read_text().splitlines()
    ]
    assert {id for _, id, _ in got} == set(range(1, count + 1))
    first = [id for _, id, deliveries in got if deliveries == 1]
    assert len(first) == len(set(first))
    assert not engine_of(store).wake.waits.waiters._used() > 2 * WAITERS
    for number in range(WAITERS // 2):  # these lived all the time
        share = sum(who == f"w{number}" for who, _, _ in got)
        assert count / WAITERS / 3 < share < 3 * count / WAITERS, got


@pytest.mark.usefixtures("patient")
def test_who_comes_when_all_tickets_are_taken_is_served_without_order(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiters, "WAITERS_MAX", 4)
    group = crowd.group_of(store)
    table = engine_of(store).wake.waits.waiters
    with store._live().committer.locked():
        taken = [table.take_locked(5, 1) for _ in range(5)]
    assert taken[-1] is None
    timer = threading.Timer(0.2, lambda: store.stream("work").add({"a": "b"}))
    timer.start()
    began = time.monotonic()
    assert group.read("late", timeout=crowd.LONG_S)
    assert time.monotonic() - began < crowd.SOON_S
    timer.join()
    table.give_back()
