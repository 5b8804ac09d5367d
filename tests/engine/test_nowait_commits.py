"""Prevents a commit that may not wait from waiting, from half happening, or from locking up."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import logstore
from logstore.api import arguments
from logstore.api.opening import opened_of
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import NotFree
from logstore.engine.streams import add
from logstore.errors import IDOrderError
from tests.support.threads import running
from tests.support.waits import eventually

JOIN_S = 60


def one(state: WriteTxn) -> add.Added | None:
    """Adds an entry."""
    return add.add(state, add.Add(b"s", arguments.rows([{"n": 1}], None), 0, 1, add.AUTO))


def at_once(store: logstore.Store[bytes]) -> object:
    """The same, without a wait."""
    return opened_of(store).commit(one, at_once=True)


def until_refused(store: logstore.Store[bytes]) -> None:
    """The same, very often."""
    for _ in range(1 << 16):
        at_once(store)


@contextmanager
def held_by_another_process(path: Path) -> Iterator[None]:
    """LOCK, through an open file of its own."""
    with (path / "LOCK").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def held_by_another_thread(store: logstore.Store[bytes]) -> Iterator[None]:
    """The mutex and LOCK, in a thread of this process."""
    holds, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with opened_of(store).live().committer.locked():
            holds.set()
            ends.wait(JOIN_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(JOIN_S)
    try:
        yield
    finally:
        ends.set()
        thread.join(JOIN_S)


def test_a_commit_without_waiting_gives_the_lock_back(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", encoding=None, background=False) as store:
        store.stream(b"s").add({"n": 0})
        for _ in range(3):
            assert isinstance(at_once(store), add.Added)
        with held_by_another_process(tmp_path / "s"):  # else this would wait for ever
            pass
        assert len(store.stream(b"s")) == 4


def test_a_commit_without_waiting_does_nothing_where_it_would_wait(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with logstore.open(path, encoding=None, background=False, lock_timeout=60.0) as store:
        store.stream(b"s").add({"n": 0})
        with held_by_another_process(path), pytest.raises(NotFree):
            at_once(store)
        with held_by_another_thread(store), pytest.raises(NotFree):
            at_once(store)
        assert len(store.stream(b"s")) == 1
        assert opened_of(store).engine().metrics.as_dict().get("lock_timeouts", 0) == 0
        at_once(store)
        store.stream(b"s").add({"n": 2})  # the queue is as before
        assert len(store.stream(b"s")) == 3


def test_a_commit_without_waiting_never_waits_for_the_disk(tmp_path: Path) -> None:
    """Neither for the sync of ``always`` nor for that of a segment that is full."""
    with logstore.open(tmp_path / "a", encoding=None, sync="always") as store:
        store.stream(b"s").add({"n": 0})
        with pytest.raises(NotFree):
            at_once(store)
    with logstore.open(
        tmp_path / "b", encoding=None, background=False, segment_bytes=1 << 16
    ) as store:
        store.stream(b"s").add({"n": 0})
        segment = opened_of(store).engine().wake.log().active_segment
        with pytest.raises(NotFree):
            until_refused(store)
        assert opened_of(store).engine().wake.log().active_segment == segment
        count = len(store.stream(b"s"))
        opened_of(store).commit(one)
        assert opened_of(store).engine().wake.log().active_segment == segment + 1
        assert len(store.stream(b"s")) == count + 1


def test_a_commit_without_waiting_refuses_with_the_same_errors(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", encoding=None, background=False) as store:
        store.stream(b"s").add({"n": 0}, id="5-5")

        def low(state: WriteTxn) -> None:
            batch = arguments.rows([{"n": 1}], None)
            add.add(state, add.Add(b"s", batch, 0, 1, logstore.StreamID(1, 1)))

        with pytest.raises(IDOrderError):
            opened_of(store).commit(low, at_once=True)
        at_once(store)
        assert len(store.stream(b"s")) == 2


def test_commits_without_waiting_beside_waiting_threads_count_once(tmp_path: Path) -> None:
    """Who has the lead waits for the mutex while this one has it, and the other way round."""
    rounds = 300
    with logstore.open(tmp_path / "s", encoding=None, sync="os") as store:
        store.stream(b"s").add({"n": 0})

        def adds() -> None:
            for _ in range(rounds):
                store.stream(b"s").add({"n": 1})

        threads = [threading.Thread(target=adds) for _ in range(3)]
        with running(threads, JOIN_S):
            done = 0
            while any(thread.is_alive() for thread in threads):
                try:
                    at_once(store)
                    done += 1
                except NotFree:
                    pass
        for thread in threads:
            assert not thread.is_alive()
        assert len(store.stream(b"s")) == 1 + 3 * rounds + done


def test_a_commit_without_waiting_takes_no_lead_from_who_waits(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", encoding=None, background=False) as store:
        store.stream(b"s").add({"n": 0})
        committer, added = opened_of(store).live().committer, list[object]()
        thread = threading.Thread(target=lambda: added.append(store.stream(b"s").add({"n": 1})))
        with committer.mutex:
            thread.start()
            eventually(lambda: committer.queue.leader is not None)
            with pytest.raises(NotFree):
                at_once(store)
        thread.join(JOIN_S)
        assert len(added) == 1
        assert added[0] is not None
        at_once(store)
        assert len(store.stream(b"s")) == 3
