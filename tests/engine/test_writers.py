"""Prevents threads and processes from losing, doubling or reordering each other's commits."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import logstore
from logstore.api import opening
from logstore.engine.shm import commit_words, writer_lock
from logstore.errors import IDOrderError, LockTimeoutError, OptionError
from logstore.fs import FileSystem
from logstore.options import Sync
from tests.support.processes import Forked
from tests.support.threads import run_all

THREADS, PROCESSES, ROUNDS = 4, 3, 40
ROOT = Path(__file__).resolve().parent.parent.parent


def write(store: logstore.Store[bytes], writer: str, rounds: int) -> None:
    """Adds to a stream that all share and to one of its own, in one commit or in several."""
    rng = random.Random(writer)
    for number in range(rounds):
        if rng.random() < 0.3:
            with store.transaction() as tx:
                first = tx.stream("all").add({"w": writer, "n": number})
                tx.stream(writer).add({"n": number})
            assert first.id is not None
        elif rng.random() < 0.3:
            rows = [{"w": writer, "n": number}, {"w": writer, "n": f"{number}b"}]
            assert len(store.stream("all").add_many(rows)) == 2
            store.stream(writer).add({"n": number})
        else:
            store.stream("all").add({"w": writer, "n": number})
            store.stream(writer).add({"n": number})
        if rng.random() < 0.05:
            with pytest.raises(IDOrderError):  # refused inside a commit that others share
                store.stream("all").add({"w": writer}, id="1-1")


def in_threads(path: Path, sync: Sync, process: int) -> None:
    """Several threads of one process."""
    with logstore.open(path, sync=sync) as store:
        names = [f"{process}.{number}" for number in range(THREADS)]
        threads = [threading.Thread(target=write, args=(store, name, ROUNDS)) for name in names]
        run_all(threads)


@pytest.mark.parametrize("sync", ["always", "everysec", "os"])
def test_threads_and_processes_at_once(tmp_path: Path, sync: Sync) -> None:
    """Every entry once, in each writer's order, IDs ascending; also for readers meanwhile."""
    path = tmp_path / "store"
    logstore.open(path, segment_bytes=64 * 1024).close()
    children = [Forked(partial(in_threads, path, sync, number)) for number in range(PROCESSES)]
    with logstore.open(path) as store:
        seen = 0
        for _ in range(20):  # a reader while they write: it never sees fewer, nor out of order
            entries = list(store.stream("all").range())
            ids = [entry.id for entry in entries]
            assert ids == sorted(set(ids))
            assert len(ids) >= seen
            assert len(store.stream("all")) >= len(ids)
            seen = len(ids)
            time.sleep(0.005)
        for child in children:
            child.join()
        check(store)


def check(store: logstore.Store[bytes]) -> None:
    """All that all writers wrote."""
    by_writer: dict[bytes, list[str]] = {}
    for entry in store.stream("all").range():
        by_writer.setdefault(entry.fields[b"w"], []).append(entry.fields[b"n"].decode())
    assert len(by_writer) == THREADS * PROCESSES
    for writer, numbers in by_writer.items():
        plain = [int(number) for number in numbers if not number.endswith("b")]
        assert plain == list(range(ROUNDS))
        own = [int(entry.fields[b"n"]) for entry in store.stream(writer).range()]
        assert own == list(range(ROUNDS))


def test_a_time_out_names_the_owner(tmp_path: Path) -> None:
    """A stopped process keeps the lock: whoever waits must be told which one it is."""
    path = tmp_path / "store"
    ready, go = os.pipe()

    def stop() -> None:
        store = logstore.open(path, background=False)
        with store._live().committer.locked():
            os.write(go, b"x")
            os.kill(os.getpid(), signal.SIGSTOP)
        store.close()

    logstore.open(path).close()
    child = Forked(stop)
    try:
        os.read(ready, 1)
        status = Path(f"/proc/{child.pid}/stat")
        while status.read_bytes().rsplit(b")", 1)[1].split()[0] != b"T":
            time.sleep(0.005)
        with pytest.raises(LockTimeoutError, match=f"process {child.pid} holds it") as caught:
            logstore.open(path, lock_timeout=0.2)
        assert caught.value.owner_pid == child.pid
    finally:
        os.kill(child.pid, signal.SIGCONT)
        child.join()
    with logstore.open(path, lock_timeout=60) as store:
        store.stream("a").add({"a": 1})


class Holder:
    """A process that holds LOCK, and is stopped; forked before the store is opened here."""

    def __init__(self, path: Path) -> None:
        ready, go = os.pipe()
        start, self._start = os.pipe()
        self._ready = ready

        def hold() -> None:
            os.read(start, 1)
            store = logstore.open(path, background=False)
            with store._live().committer.locked():
                os.write(go, b"x")
                time.sleep(60)

        self.child = Forked(hold)
        self.pid = self.child.pid

    def stop(self) -> None:
        """From now on it holds LOCK and does nothing."""
        os.write(self._start, b"x")
        os.read(self._ready, 1)
        os.kill(self.pid, signal.SIGSTOP)


def test_time_outs_of_queued_writers_do_not_add_up(tmp_path: Path) -> None:
    """Behind a stopped process each waits for its own time: threads that add, and maintenance."""
    path, timeout_s = tmp_path / "store", 1.5
    found: list[tuple[str, float]] = []
    holder = Holder(path)

    def tried(what: str, work: Callable[[], object]) -> None:
        began = time.monotonic()
        with pytest.raises(LockTimeoutError, match=f"{holder.pid} holds it"):
            work()
        found.append((what, time.monotonic() - began))

    with logstore.open(path, lock_timeout=timeout_s) as store:
        stream, committer = store.stream("s"), store._live().committer
        stream.add({"n": 0})
        holder.stop()
        try:
            works: list[tuple[str, Callable[[], object]]] = [
                ("add", lambda: stream.add({"n": 1})) for _ in range(8)
            ]
            works[3:3] = [("work", lambda: committer.locked().__enter__())] * 2
            threads = [threading.Thread(target=tried, args=each) for each in works]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                assert [entry.fields[b"n"] for entry in stream] == [b"0"]  # who reads never waits
                time.sleep(0.01)
        finally:
            holder.child.kill()
        assert len(found) == 10
        # Added up, the last one would wait for ten times as long.
        assert all(timeout_s <= took < 5 * timeout_s for _, took in found), found
        stream.add({"n": 2})
        assert len(stream) == 2


def test_time_in_the_queue_counts_against_lock_timeout(tmp_path: Path) -> None:
    path, timeout_s = tmp_path / "store", 3.0
    holder = Holder(path)
    with logstore.open(path, lock_timeout=timeout_s) as store:
        committer, stream = store._live().committer, store.stream("s")
        holder.stop()

        def add() -> float:
            began = time.monotonic()
            since_ns = time.monotonic_ns() - int(timeout_s * 1e9)
            with committer.wanted_since(since_ns), pytest.raises(LockTimeoutError):
                stream.add({"n": 1})
            return time.monotonic() - began

        try:
            assert add() >= timeout_s  # as far as it knew, it stood behind work
            assert add() < timeout_s
        finally:
            holder.child.kill()
        stream.add({"n": 2})
        assert (committer._local.since_ns, committer.queue.stalled) == (0, False)


def test_waiting_writers_go_on_when_the_owner_dies(tmp_path: Path) -> None:
    """flock goes with its process: nobody waits for a dead one."""
    path = tmp_path / "store"
    ready, go = os.pipe()

    def hold() -> None:
        store = logstore.open(path, background=False)
        with store._live().committer.locked():
            os.write(go, b"x")
            time.sleep(600)

    with logstore.open(path) as store:
        child = Forked(hold)
        os.read(ready, 1)
        timer = threading.Timer(0.2, lambda: os.kill(child.pid, signal.SIGKILL))
        timer.start()
        store.stream("a").add({"a": 1})
        timer.join()
        os.waitpid(child.pid, 0)
        assert len(store.stream("a")) == 1


def test_a_release_of_lock_wakes_one_waiter_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here nobody looks by itself before the test gives up."""
    monkeypatch.setattr(commit_words, "WAIT_SLICE_S", 900.0)
    monkeypatch.setattr(writer_lock, "SPIN_NS", 0)
    path = tmp_path / "store"
    ready, here = os.pipe()

    def work() -> None:
        with logstore.open(path, sync="os", background=False, lock_timeout=600) as store:
            os.write(here, b"x")
            for number in range(50):
                store.stream("a").add({"a": number})

    with logstore.open(path, sync="os", background=False) as store:
        store.stream("a").add({"a": 0})
        children = [Forked(work) for _ in range(6)]
        for _ in children:
            os.read(ready, 1)
        began = time.monotonic()
        for _ in range(20):
            with store._live().committer.locked():
                time.sleep(0.01)  # all the others sleep
        for child in children:
            child.join()
        assert time.monotonic() - began < 300
        assert len(store.stream("a")) == 1 + 6 * 50


def test_opening_twice_shares_one_environment(tmp_path: Path) -> None:
    """LMDB opened twice in a process loses its locks; options must not depend on who came first."""
    path = tmp_path / "store"
    (tmp_path / "link").symlink_to(path)
    with logstore.open(path) as one, logstore.open(tmp_path / "link") as two:
        assert one._live() is two._live()
        one.stream("a").add({"a": 1})
        assert len(two.stream("a")) == 1
        with pytest.raises(OptionError, match="other options"):
            logstore.open(path, sync="always")
        one.close()
        two.stream("a").add({"a": 2})
        assert len(two.stream("a")) == 2
    with logstore.open(path, sync="always") as store:
        assert len(store.stream("a")) == 2


def test_threads_that_open_and_close_one_path(tmp_path: Path) -> None:
    """The last handle closes the store while another thread opens it."""
    path = tmp_path / "store"
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(15):
                with logstore.open(path) as store:
                    store.stream(f"{number}").add({"a": 1})
        except BaseException as exc:  # noqa: BLE001
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    run_all(threads)
    assert not errors
    with logstore.open(path) as store:
        assert [len(store.stream(name)) for name in store.streams()] == [15] * 6


def test_processes_that_open_and_close_one_store(tmp_path: Path) -> None:
    """The last one marks the store clean while the next one opens it."""
    path = tmp_path / "store"
    logstore.open(path).close()

    def work(number: int) -> None:
        for _ in range(25):
            with logstore.open(path, background=False) as store:
                store.stream(f"{number}").add({"a": 1})

    children = [Forked(partial(work, number)) for number in range(4)]
    for child in children:
        child.join()
    with logstore.open(path) as store:
        assert [len(store.stream(name)) for name in store.streams()] == [25] * 4


def test_a_second_pid_namespace_is_refused(tmp_path: Path) -> None:
    """Two containers with pid 1 cannot share LMDB's reader table."""
    path = tmp_path / "store"
    unshare = ["unshare", "--pid", "--fork"]
    found = shutil.which("unshare")
    if found is None or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("a new pid namespace is not permitted here")
    code = f"import logstore; logstore.open({str(path)!r}).stream('a').add({{'a': 2}})"
    command = [*unshare, sys.executable, "-c", code]
    with logstore.open(path) as store:
        store.stream("a").add({"a": 1})
        ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
        assert ran.returncode
        assert "StoreInUseError" in ran.stderr
        assert "pid namespace" in ran.stderr
    ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert not ran.returncode, ran.stderr
    with logstore.open(path) as store:
        assert len(store.stream("a")) == 2


def test_the_file_system_of_the_tests_is_put_back() -> None:
    """The twins of this room do not leak into others."""
    assert type(opening.FILES[0]) is FileSystem
