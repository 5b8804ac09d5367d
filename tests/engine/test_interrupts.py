"""Prevents an interrupt, wherever it falls, from leaving a lock taken or a commit in doubt."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType

import pytest

import logstore
from logstore.engine.commit import group_commit, pipeline
from logstore.engine.commit.group_commit import CommitQueue
from logstore.engine.commit.pipeline import Batch, Request
from logstore.engine.shm.commit_words import Wake
from logstore.errors import CommittedError, CommittedInterrupt, FileSystemError, ReentryError
from logstore.log import file_names
from logstore.options import Sync
from tests import seeds
from tests.support.inside import committer_of
from tests.support.processes import Forked, run_program

SEED = seeds.seed()
INTERRUPTS = 400


class Interrupter:
    """Raises KeyboardInterrupt in the main thread after random times, counted in microseconds."""

    def __init__(self, rng: random.Random, twice: bool) -> None:
        self.rng = rng
        self.twice = twice
        self.armed = False
        self.again = False
        signal.signal(signal.SIGALRM, self._raise)

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        if self.armed:
            if self.twice and not self.again and self.rng.random() < 0.5:
                self.again = True  # one more, while the first is being handled
                signal.setitimer(signal.ITIMER_REAL, self.rng.random() * 50e-6 + 1e-6)
            raise KeyboardInterrupt

    def arm(self) -> None:
        """The next one comes soon."""
        self.armed = True
        self.again = False
        signal.setitimer(signal.ITIMER_REAL, self.rng.random() ** 2 * 400e-6 + 1e-6)

    def disarm(self) -> None:
        """None comes any more."""
        self.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)


def interrupted_adds(path: Path, sync: Sync, twice: bool, threads: int) -> dict[str, int]:
    """Adds under fire; each is there if it returned or said so, and absent if it said not."""
    print(f"LOGSTORE_SEED={SEED}")
    interrupter = Interrupter(random.Random(SEED), twice)
    counts = {"returned": 0, "committed": 0, "not": 0, "between": 0}
    stop = threading.Event()
    ended: list[str] = []
    with logstore.open(path, sync=sync, segment_bytes=64 * 1024) as store:
        others = [
            threading.Thread(target=others_write, args=(store, f"t{number}", stop, ended))
            for number in range(threads)
        ]
        for other in others:
            other.start()
        number, there = 0, []
        while counts["committed"] + counts["not"] < INTERRUPTS:
            number += 1
            outcome = "between"
            try:
                try:
                    interrupter.arm()
                    store.stream("a").add({"n": number, "p": "x" * (number % 400)})
                    outcome = "returned"
                except CommittedInterrupt:
                    outcome = "committed"
                except KeyboardInterrupt:
                    outcome = "not"
                interrupter.armed = False
            except KeyboardInterrupt:  # it came while the one before was handled, here
                interrupter.armed = False
            interrupter.disarm()
            counts[outcome] += 1
            there.append(outcome)
            assert threads or not store._live().engine.lock.held
            assert not store._live().committer.busy
        stop.set()
        for other in others:
            other.join(timeout=60)
            assert not other.is_alive(), "a thread waits for ever"
        assert len(ended) == threads, "a thread that was not interrupted got an error"
        check(store, there)
    with logstore.open(path) as store:
        check(store, there)
    return counts


def others_write(
    store: logstore.Store[bytes], name: str, stop: threading.Event, ended: list[str]
) -> None:
    """Threads that are not interrupted lose nothing."""
    number = 0
    while not stop.is_set():
        number += 1
        store.stream(name).add({"n": number})
    assert [int(entry.fields[b"n"]) for entry in store.stream(name).range()] == list(
        range(1, number + 1)
    )
    ended.append(name)


def check(store: logstore.Store[bytes], outcomes: list[str]) -> None:
    """What was said of every add is so."""
    found = [int(entry.fields[b"n"]) for entry in store.stream("a").range()]
    assert found == sorted(set(found))
    present = set(found)
    for number, outcome in enumerate(outcomes, 1):
        if outcome in {"returned", "committed"}:
            assert number in present, f"add {number} {outcome} and is missing"
        if outcome == "not":
            assert number not in present, f"add {number} was said not to have happened"


@pytest.mark.parametrize(
    ("sync", "twice", "threads"),
    [("everysec", False, 0), ("always", False, 0), ("everysec", True, 0), ("everysec", True, 3)],
)
def test_interrupts_at_random_moments_of_add(
    tmp_path: Path, sync: Sync, twice: bool, threads: int
) -> None:
    """CommittedInterrupt or nothing happened; the store goes on, also for other threads."""

    def work() -> None:
        print(interrupted_adds(tmp_path / "store", sync, twice, threads))

    with Forked(work):
        pass


class HandsTheLeadOn:
    """The guard of a queue; when it is next taken, the leader has just handed the lead on."""

    def __init__(self, queue: CommitQueue, ended: Batch) -> None:
        self.queue, self.guard, self.ended = queue, queue.guard, ended
        queue.guard = self  # type: ignore[assignment]

    def __enter__(self) -> None:
        if self.queue.guard is self:
            self.queue.guard = self.guard
            self.queue.hand_on(self.ended)
        self.guard.acquire()

    def __exit__(self, *_: object) -> None:
        self.guard.release()


def test_the_lead_is_not_lost_with_a_request_that_gets_it_and_is_interrupted(
    tmp_path: Path,
) -> None:
    with logstore.open(tmp_path / "store", background=False, lock_timeout=5) as store:
        committer = store._live().committer
        queue = committer.queue
        first, second = (Request(lambda _txn: None, (), 0, 0) for _ in range(2))
        assert queue._enter(first)
        assert not queue._enter(second)
        ended = queue.batch
        assert ended is not None
        HandsTheLeadOn(queue, ended)
        committer._rescue(second, KeyboardInterrupt())
        assert isinstance(second.error, KeyboardInterrupt)
        assert queue.leader is None
        assert not queue.queue
        store.stream("a").add({"a": 1})


class Rescued:
    """A store whose next add is interrupted behind its append, and what then fails is given."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = logstore.open(path, background=False, lock_timeout=0.2)
        self.stream = self.store.stream("a")
        self.stream.add({"n": 1}, id="1-1")
        self._patch = monkeypatch

    def add(self, error: type[logstore.Error]) -> None:
        """Add, and be told so."""

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with self._patch.context() as patch:
            patch.setattr(pipeline, "_keep_promise", interrupt)
            with pytest.raises(error):
                self.stream.add({"n": 2}, id="2-1", sync="always")

    def goes_on(self) -> None:
        """Other threads commit, and what was told is there."""
        thread = threading.Thread(target=self.stream.add, args=({"n": 3},))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        assert [entry[b"n"] for entry in self.stream.range()] == [b"1", b"2", b"3"]
        self.store.close()


def test_an_unlock_that_fails_behind_an_interrupt_hides_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rescued = Rescued(tmp_path / "store", monkeypatch)
    lock = rescued.store._live().engine.lock.file
    unlock, calls = lock.unlock, count(1)

    def fails_once() -> None:
        if next(calls) == 2:
            raise FileSystemError("unlocking failed")
        unlock()

    monkeypatch.setattr(lock, "unlock", fails_once)
    rescued.add(CommittedInterrupt)
    rescued.goes_on()
    assert next(calls) > 3


def test_a_lock_that_another_process_took_is_told_as_a_commit_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupts cut off what would find out whether it counts, until LOCK was given back."""
    rescued = Rescued(tmp_path / "store", monkeypatch)
    lock = rescued.store._live().engine.lock
    other = os.open(tmp_path / "store" / "LOCK", os.O_RDWR)
    release = lock.release

    def to_another(wake: Wake | None) -> None:
        release(wake)
        with suppress(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(group_commit, "resolve", cut_off)
        patch.setattr(lock, "release", to_another)
        rescued.add(CommittedError)
    os.close(other)
    rescued.goes_on()


def test_another_process_is_not_kept_waiting(tmp_path: Path) -> None:
    """LOCK is released whatever was interrupted."""
    path = tmp_path / "store"
    logstore.open(path, segment_bytes=64 * 1024).close()

    def work() -> None:
        interrupter = Interrupter(random.Random(SEED), twice=True)
        store = logstore.open(path, background=False)
        for _ in range(100):
            try:
                interrupter.arm()
                store.stream("a").add({"a": 1})
                interrupter.armed = False
            except KeyboardInterrupt:
                interrupter.armed = False
            interrupter.disarm()
            assert not store._live().engine.lock.held
        time.sleep(0.5)  # open, and doing nothing: it must not hold the lock

    with logstore.open(path, lock_timeout=60) as store, Forked(work):
        for _ in range(50):
            store.stream("b").add({"b": 1})
            time.sleep(0.01)


def test_a_call_from_inside_a_call_is_refused(tmp_path: Path) -> None:
    """From a signal handler: an error at once, never a wait for itself. Reading is allowed."""
    refused: list[str] = []
    reads: list[int] = []

    def work() -> None:
        with logstore.open(tmp_path / "store") as store:

            def handler(_number: int, _frame: FrameType | None) -> None:
                reads.append(len(list(store.stream("a").range(count=5))))
                for call in (
                    lambda: store.stream("b").add({"b": 1}),
                    store.sync,
                    store.close,
                    store.checkpoint,
                ):
                    try:
                        if store._live().committer.busy:
                            call()
                    except ReentryError as exc:
                        refused.append(str(exc))

            signal.signal(signal.SIGALRM, handler)
            rng = random.Random(SEED)
            deadline = time.monotonic() + 120
            while len(refused) < 40 and time.monotonic() < deadline:
                signal.setitimer(signal.ITIMER_REAL, rng.random() * 60e-6 + 1e-6)
                store.stream("a").add({"a": 1})
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert len(refused) >= 40
            assert len(reads) >= 10
            assert len(store.stream("b")) == 0

    with Forked(work):
        pass


@pytest.mark.timeout(60)
@pytest.mark.parametrize("work", ["checkpoint", "compact", "backup", "ship"])
def test_maintenance_from_inside_a_commit_waits_for_nobody(tmp_path: Path, work: str) -> None:
    """While somebody else does maintenance, it would keep all commits waiting, too."""
    with logstore.open(tmp_path / "store", background=False) as store:
        store.stream("a").add({"a": 1})
        calls: dict[str, Callable[[], object]] = {
            "checkpoint": store.checkpoint,
            "compact": lambda: store.compact(full=True),
            "backup": lambda: store.backup(tmp_path / "backup"),
            "ship": lambda: store.ship(tmp_path / "shipped"),
        }
        with (
            held(tmp_path / "store" / file_names.CHECKPOINTS),
            held(tmp_path / "store" / file_names.PINS),
            pytest.raises(ReentryError, match="do this work outside"),
        ):
            committer_of(store).run(lambda _: calls[work]())
        store.stream("a").add({"a": 2})


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Somebody else has the maintenance lock that this directory stands for."""
    folder.mkdir(exist_ok=True)
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def test_a_forgotten_handle_is_closed_later(tmp_path: Path) -> None:
    """A finaliser may run in the middle of a commit: it takes no lock."""
    path = tmp_path / "store"

    def forget() -> None:
        logstore.open(path).stream("a").add({"a": 1})

    forget()
    deadline = time.monotonic() + 60
    with Forked(lambda: None):
        pass
    while True:
        with logstore.open(tmp_path / "other"):  # opening anything closes what was forgotten
            pass
        with Forked(lambda: first_opener(path)):
            pass
        if (path / "alone").exists():
            break
        assert time.monotonic() < deadline
    with logstore.open(path) as store:
        assert len(store.stream("a")) == 1


def first_opener(path: Path) -> None:
    """Notes whether nobody else has the store open."""
    with logstore.open(path) as store:
        if store.recovery["first_opener"]:
            (path / "alone").touch()


def test_an_open_store_is_closed_at_exit(tmp_path: Path) -> None:
    """A script that ends without closing leaves a clean store."""

    path = tmp_path / "store"
    code = f"import logstore; s = logstore.open({str(path)!r}); s.stream('a').add({{'a': 1}})"
    root = Path(__file__).resolve().parent.parent.parent
    run_program(code, cwd=root)
    with logstore.open(path) as store:
        assert store.recovery["index_trusted"]
        assert store.recovery["commits_finished"] == 0
        assert len(store.stream("a")) == 1
