"""Prevents entries that are handed over by who adds them from being lost, doubled, or out of turn;
and an add from failing, or taking long, for those who wait.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.groups import deliver
from logstore.engine.shm import futex
from logstore.engine.shm.commit_words import Wake
from logstore.engine.shm.wait_words import Waits, bucket_of
from logstore.engine.waiting import handoff
from logstore.engine.waiting.wait_session import WaitSession
from tests.compaction.dumps import everywhere
from tests.support.inside import engine_of
from tests.support.processes import Forked
from tests.support.threads import running
from tests.support.waits import eventually, eventually_async
from tests.waiting import crowd
from tests.waiting.readers import Reading, add, commits, kill_self
from tests.waiting.tasks import go, task

pytestmark = pytest.mark.usefixtures("patient")


def reading(store: Store[Any], *names: str, count: int = 1) -> list[Reading]:
    """Threads in the queue, to whom something can be handed."""
    return [Reading(store, name, count=count) for name in names]


def test_one_commit_adds_and_delivers(store: Store[Any]) -> None:
    first, second, third = reading(store, "first", "second", "third")
    before, waking = commits(store), store.metrics()
    add(store, 0, 1)
    assert [first.wait(), second.wait()] == [[0], [1]]
    assert commits(store) == before + 1
    assert crowd.queue(store) == [os.getpid()]
    time.sleep(0.05)
    found = store.metrics()
    assert found["handed"] - waking["handed"] == 2
    assert found["deliveries"] - waking["deliveries"] == 2
    assert found["wakeups"] - waking["wakeups"] == 2  # not the third, for which nothing is left
    add(store, 2)
    assert third.wait() == [2]
    assert crowd.owners(store) == ["first", "second", "third"]


def test_entries_left_by_a_reader_wake_the_next(store: Store[Any]) -> None:
    """Who counts bytes comes itself, and hands on what it leaves."""
    by_count, by_bytes = Reading(store, "a", count=1), Reading(store, "b", max_bytes=1, count=1)
    last = Reading(store, "c", count=1)
    before = commits(store)
    add(store, 0, 1, 2)
    assert [by_count.wait(), by_bytes.wait(), last.wait()] == [[0], [1], [2]]
    assert commits(store) == before + 2


def test_all_groups_of_all_streams_of_a_commit_are_served(store: Store[Any]) -> None:
    got: dict[str, list[int]] = {}
    streams = [f"s{n}" for n in range(300)]

    def read(stream: str, name: str) -> None:
        group = store.stream(stream).group(name, start="0")
        found = group.read("c", timeout=crowd.LONG_S)
        got[stream + name] = [int(each.fields[b"n"]) for each in found]

    pairs = [(stream, name) for stream in streams[::30] for name in ("g", "h")]
    threads = [threading.Thread(target=read, args=pair) for pair in pairs]
    with running(threads, crowd.SOON_S):
        eventually(lambda: store.metrics()["waits"] == len(pairs))
        before = commits(store)
        with store.transaction() as tx:
            for n, stream in enumerate(streams):
                tx.stream(stream).add({"n": n})
                tx.stream(stream).add({"n": -n})
    assert got == {
        stream + name: [n, -n] for n, stream in enumerate(streams) for name in "gh" if n % 30 == 0
    }
    assert commits(store) == before + 1


def test_a_group_of_another_stream_is_left_alone(store: Store[Any]) -> None:
    """Both streams have the same word to wait on."""
    bucket = bucket_of(b"work")
    other = next(name for name in map(str, range(9999)) if bucket_of(name.encode()) == bucket)
    got: list[Any] = []

    def read() -> None:
        got.extend(store.stream(other).group("g", start="0").read("c", timeout=crowd.LONG_S))

    thread = threading.Thread(target=read)
    thread.start()
    eventually(lambda: store.metrics()["waits"] == 1)
    (first,) = reading(store, "first")
    add(store, 0)
    assert first.wait() == [0]
    assert thread.is_alive()
    assert store.stream(other).group("g").info().pending == 0
    store.stream(other).add({"n": 7})
    thread.join(crowd.SOON_S)
    assert [each.fields[b"n"] for each in got] == [b"7"]


def test_finishing_a_dead_writers_commit_wakes_waiters(store: Store[Any]) -> None:
    """A dead writer's, that was finished under the same LOCK."""
    (first,) = reading(store, "first")
    key, waits = crowd.key_of(store), engine_of(store).wake.waits
    woken = store.metrics()["wakeups"]
    with store._live().committer.locked():
        waits.bump_locked([b"work"], {key})
    time.sleep(0.05)
    assert store.metrics()["wakeups"] == woken
    with store._live().committer.locked():
        waits.bump_locked([b"work"], set())
        waits.bump_locked([b"work"], {key})
    eventually(lambda: store.metrics()["wakeups"] == woken + 1)
    add(store, 0)
    assert first.wait() == [0]


def test_an_add_does_not_deliver_what_was_there_before_it(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was woken for that is about to read it."""
    held, attempt = threading.Event(), WaitSession._try

    def slow(self: Any, ahead: Any) -> Any:
        held.wait(crowd.SOON_S)
        return attempt(self, ahead)

    monkeypatch.setattr(handoff, "SERVED_MAX_ENTRIES", 3)
    monkeypatch.setattr(WaitSession, "_try", slow)
    (first,) = reading(store, "first", count=0)
    add(store, 0, 1, 2, 3)
    add(store, 4)
    assert crowd.owners(store) == []
    held.set()
    assert first.wait() == [0, 1, 2, 3, 4]


def test_an_add_delivers_at_most_its_own_entries(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An add does not deliver more than it adds, nor large batches."""
    crowd.group_of(store)
    monkeypatch.setattr(handoff, "SERVED_MAX_ENTRIES", 3)
    (first,) = reading(store, "first", count=0)
    before = commits(store)
    add(store, 0, 1, 2, 3)
    assert first.wait() == [0, 1, 2, 3]
    assert commits(store) == before + 2
    (second,) = reading(store, "second", count=0)
    add(store, 4, 5, 6)
    assert second.wait() == [4, 5, 6]
    assert commits(store) == before + 4  # it joined, and was served by the add


def test_a_rolled_back_add_is_delivered_to_nobody(store: Store[Any]) -> None:
    (first,) = reading(store, "first")
    with store.transaction() as tx:
        tx.stream("work").add({"n": 0}, "1-0")
        tx.stream("work").delete("1-0")
        tx.stream("work").add({"n": 1})
    assert first.wait() == [1]
    with store.transaction() as tx:
        tx.stream("other").add({"n": 0})
        tx.drop("other")
    (second,) = reading(store, "second")
    with store.transaction() as tx:
        tx.stream("work").add({"n": 2})
        tx.stream("work").group("g").set_id("$")
    add(store, 3)
    assert second.wait() == [3]
    assert crowd.owners(store) == ["first", "second"]


def test_the_stopped_the_dead_and_those_who_gave_up_are_passed(store: Store[Any]) -> None:
    crowd.group_of(store)
    assert crowd.group_of(store).read("gave up", count=1, timeout=0.01) == []
    killed = crowd.reader(store, "killed")
    (first,) = reading(store, "first")
    killed.kill()
    add(store, 0)
    assert first.wait() == [0]
    stopped = crowd.reader(store, "stopped")
    crowd.stop(stopped.pid)
    try:
        (second,) = reading(store, "second")
        before = crowd.owners(store)
        add(store, 1)
        time.sleep(0.05)
        assert crowd.owners(store) == before  # its place stands before the second one's
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    stopped.join()
    add(store, 2)
    assert second.wait() == [2]
    assert crowd.owners(store) == ["first", "stopped", "second"]


def test_where_entries_are_redelivered_an_add_hands_out_nothing(store: Store[Any]) -> None:
    readers = reading(store, "a", "b")
    crowd.group_of(store).configure(min_idle=3600)
    add(store, 0, 1)
    assert [each.wait() for each in readers] == [[0], [1]]
    assert store.metrics()["handed"] == 0


@pytest.mark.parametrize("error", [RuntimeError("mine"), MemoryError()])
def test_an_add_does_not_fail_for_those_who_wait(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch, caplog: Any, error: Exception
) -> None:
    (first,) = reading(store, "first")
    fresh = deliver.fresh
    fails = [True]

    def once(*args: Any) -> Any:
        if fails:
            fails.clear()
            raise error
        return fresh(*args)

    monkeypatch.setattr(deliver, "fresh", once)
    before = commits(store)
    add(store, 0)
    assert first.wait() == [0]
    assert commits(store) == before + 2
    assert "could not be handed" in caplog.text
    assert len(store.stream("work")) == 1


def test_a_delivery_beyond_the_segment_goes_into_the_next_one(tmp_path: Path) -> None:
    """Where the delivery comes to lie beyond its end, all of it goes into the next one."""
    with logstore.open(tmp_path / "store", sync="os", segment_bytes=64 << 10) as store:
        crowd.group_of(store)
        got: list[int] = []

        def read() -> None:
            while len(got) < 3000:
                found = crowd.group_of(store).read("c", timeout=crowd.LONG_S)
                got.extend(int(each.fields[b"n"]) for each in found)

        thread = threading.Thread(target=read)
        thread.start()
        for n in range(3000):
            store.stream("work").add({"n": n, "pad": "x" * (n % 97)})
        thread.join(crowd.LONG_S)
        assert got == list(range(3000))
        assert store.metrics()["rolls"] > 3
        assert store.metrics()["handed"] > 0


@pytest.mark.parametrize("published", [True, False])
def test_an_adder_killed_during_a_delivery(store: Store[Any], published: bool) -> None:
    """Published: it was added, and the waiter finds that it got it. Else nothing happened."""
    (first,) = reading(store, "first")

    def work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            if published:
                Waits.given_locked = kill_self  # type: ignore[method-assign]
            else:
                Wake.begin = kill_self  # type: ignore[method-assign]
            theirs.stream("work").add({"n": 0})

    child = Forked(work)
    assert os.WTERMSIG(os.waitpid(child.pid, 0)[1]) == signal.SIGKILL
    if published:
        # Nobody woke it: the next commit does, whatever it is, or it looks once a slice.
        waiters = engine_of(store).wake.waits.waiters
        waiters.wake(0)
        waiters.count_up(0)
        waiters.wake(0)
        assert first.wait() == [0]
    else:
        assert len(store.stream("work")) == 0
        add(store, 1)
        assert first.wait() == [1]
    assert crowd.owners(store) == ["first"]


def test_tasks_are_served_by_who_adds(tmp_path: Path) -> None:
    async def work(store: Any, plain: Store[Any]) -> None:
        first, second = await task(store, "first"), await task(store, "second")
        await eventually_async(lambda: len(crowd.takers(plain)) == 2)
        before = commits(plain)
        plain.stream("work").add_many([{"n": 0}, {"n": 1}])
        assert len(await first) == len(await second) == 1
        assert commits(plain) == before + 1

    go(tmp_path, work)


def test_readers_that_were_served_run_before_more_is_added(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every processor is busy, they would wait until the adder's slice is over."""
    yields: list[int] = []
    monkeypatch.setattr(futex, "let_run", lambda: yields.append(commits(store)))
    add(store, 0)
    assert crowd.group_of(store).read("nobody waits", count=1)
    assert yields == []
    for n in (1, 2):
        (waiting,) = reading(store, f"w{n}")
        add(store, n)
        assert yields[n - 1 :] == [commits(store)]  # once, behind the commit that served it
        assert waiting.wait() == [n]


def test_no_value_stands_in_shared_memory(store: Store[Any]) -> None:
    """It would have to be erased there, too."""
    secret = os.urandom(24)
    (waiting,) = reading(store, "c")
    store.stream("work").add({"n": 1, "pad": secret})
    assert waiting.wait() == [1]
    assert store.metrics()["handed"] == 1
    assert "WAKE" not in everywhere(store.path, secret) != []
