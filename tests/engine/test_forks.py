"""Prevents a child from using, closing or unlocking what belongs to its parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine import registry
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.recovery import replay
from tests.support.processes import Forked
from tests.support.threads import running


def use(store: logstore.Store[bytes], name: str, count: int) -> None:
    """Read what the parent wrote, and write."""
    assert len(list(store.stream("parent").range())) >= 1
    assert not store.recovery["rebuilt"]  # it opened the same index
    for number in range(count):
        store.stream(name).add({"n": number})
    assert len(store.stream(name)) == count


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_handles_work_in_children(tmp_path: Path, method: str) -> None:
    """Inherited or pickled, a handle opens the store anew; the parent's goes on."""
    context = multiprocessing.get_context(method)
    with logstore.open(tmp_path / "store") as store:
        store.stream("parent").add({"a": 1})
        children = [context.Process(target=use, args=(store, f"c{n}", 30)) for n in range(3)]
        with running(children, 60):
            for number in range(30):
                store.stream("parent").add({"n": number})
        for child in children:
            assert child.exitcode == 0
        assert [len(store.stream(f"c{n}")) for n in range(3)] == [30] * 3
        assert len(store.stream("parent")) == 31
        assert not store._live().forked


def test_streams_pickle_with_their_store(tmp_path: Path) -> None:
    """A handle in a job's arguments is path, options and name."""
    with logstore.open(tmp_path / "store", encoding="utf-8") as store:
        stream = store.stream("é")
        found = pickle.loads(pickle.dumps(stream))
        found.add({"a": "1"})
        assert stream.name == found.name == "é"
        assert len(stream) == 1


def test_no_thread_opens_the_index_in_the_midst_of_a_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB refuses a child that inherited an environment: who comes for it waits for the fork."""
    with (
        logstore.open(tmp_path / "a", background=False) as store,
        logstore.open(tmp_path / "b", background=False) as later,
    ):
        store.stream("parent").add({"a": 1})
        thread = threading.Thread(target=lambda: len(store.stream("parent")))
        gate = later._engine().gate
        shut = gate.shut

        def slowly() -> bool:
            """The first store's index was closed by now, and the fork is yet to come."""
            thread.start()
            thread.join(0.3)
            return shut()

        monkeypatch.setattr(gate, "shut", slowly)
        with Forked(lambda: use(store, "child", 3)):
            monkeypatch.undo()
        thread.join()
        assert len(store.stream("child")) == 3


def test_a_fork_waits_for_who_follows_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only store writes to its own index: no fork closes that in the midst of it."""
    path = tmp_path / "store"
    inside, go_on = threading.Event(), threading.Event()
    found: list[object] = []
    with logstore.open(path, background=False) as writer:
        writer.stream("a").add({"n": 1})
        reader = logstore.open(path, readonly=True)
        writer.stream("a").add({"n": 2})
        apply = replay.apply_commit

        def slowly(*arguments: Any) -> None:
            inside.set()
            assert go_on.wait(120)
            apply(*arguments)

        def follow() -> None:
            try:
                found.append(len(reader.stream("a")))
            except BaseException as exc:  # noqa: BLE001  told below
                found.append(exc)

        def fork() -> None:
            Forked(lambda: len(reader.stream("a"))).join()
            found.append("forked")

        monkeypatch.setattr(replay, "apply_commit", slowly)
        threads = [threading.Thread(target=follow), threading.Thread(target=fork)]
        threads[0].start()
        assert inside.wait(60), found
        threads[1].start()
        threads[1].join(0.3)
        assert not found
        monkeypatch.setattr(replay, "apply_commit", apply)
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert sorted(map(str, found)) == ["2", "forked"]
        assert len(reader.stream("a")) == 2
        reader.close()


def test_forks_while_other_threads_commit_and_read(tmp_path: Path) -> None:
    """No lock is inherited taken; no child stands in the middle of a commit."""
    stop = threading.Event()
    counts = [0, 0, 0]
    with logstore.open(tmp_path / "store") as store:
        store.stream("parent").add({"a": 1})

        def write(number: int) -> None:
            while not stop.is_set():
                store.stream(f"t{number}").add({"n": counts[number]})
                counts[number] += 1

        def read() -> None:
            while not stop.is_set():
                entries = [int(entry.fields[b"n"]) for entry in store.stream("t0").range()]
                assert entries == list(range(len(entries)))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        threads += [threading.Thread(target=read) for _ in range(2)]
        with running(threads):
            for number in range(15):
                with Forked(lambda number=number: use(store, f"f{number}", 3)):
                    pass
            stop.set()
        for number, count in enumerate(counts):
            found = [int(entry.fields[b"n"]) for entry in store.stream(f"t{number}").range()]
            assert found == list(range(count))
        assert [len(store.stream(f"f{number}")) for number in range(15)] == [3] * 15


def test_a_child_that_ends_leaves_the_parents_locks(tmp_path: Path) -> None:
    """flock is shared over fork: unlocking in the child would unlock the parent."""
    path = tmp_path / "store"
    with logstore.open(path) as store:
        store.stream("parent").add({"a": 1})
        with store._live().committer.locked():
            pid = os.fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
            command = multiprocessing.get_context("spawn").Process(target=_try, args=(path,))
            command.start()
            command.join(60)
            assert command.exitcode == 7
        store.stream("parent").add({"a": 2})


def _try(path: Path) -> None:
    try:
        logstore.open(path, lock_timeout=0.1)
    except logstore.LockTimeoutError:
        os._exit(7)


def test_a_child_that_outlives_its_parent(tmp_path: Path) -> None:
    """The parent is killed; the child's handle is its own, and so is its share of USERS."""
    path = tmp_path / "store"
    read, write = os.pipe()

    def parent() -> None:
        store = logstore.open(path)
        store.stream("parent").add({"a": 1})
        if not os.fork():
            os.setsid()
            store.stream("child").add({"a": 1})
            os.write(write, b"1")
            time.sleep(0.3)
            store.stream("child").add({"a": 2})
            store.close()
            os.write(write, b"2")
            os._exit(0)
        os.read(read, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    child = Forked(parent)
    os.waitpid(child.pid, 0)
    assert os.read(read, 1) == b"2"
    with logstore.open(path) as store:
        assert len(store.stream("child")) == 2
        assert len(store.stream("parent")) == 1


def test_grandchildren(tmp_path: Path) -> None:
    """A child that used the store may fork, too."""
    with logstore.open(tmp_path / "store") as store:
        store.stream("parent").add({"a": 1})

        def child() -> None:
            store.stream("child").add({"a": 1})
            with Forked(lambda: use(store, "grandchild", 4)):
                pass
            store.stream("child").add({"a": 2})

        with Forked(child):
            pass
        assert [len(store.stream(name)) for name in ("child", "grandchild")] == [2, 4]


def test_a_child_that_does_not_use_the_store_costs_nothing(tmp_path: Path) -> None:
    """It keeps nothing open, and the parent is still the last to close."""
    path = tmp_path / "store"
    read, write = os.pipe()
    with logstore.open(path) as store:
        store.stream("parent").add({"a": 1})
        pid = os.fork()
        if not pid:
            assert not registry._open
            os.read(read, 1)
            os._exit(0)
    with logstore.open(path) as store:
        assert store.recovery["first_opener"]
        assert store.recovery["index_trusted"]
    os.write(write, b"x")
    os.waitpid(pid, 0)


def test_the_parents_reader_slots_stay(tmp_path: Path) -> None:
    """A child that closed an inherited environment would clear them: snapshots would be torn."""
    with logstore.open(tmp_path / "store") as store:
        store.stream("parent").add({"a": 1})
        with Forked(lambda: use(store, "child", 1)):
            pass
        engine = store._live().engine

        def look(_: Engine) -> None:
            generation = engine.index()
            with generation.env.begin():
                with Forked(lambda: None):  # not used there: ours is left alone
                    pass
                assert str(os.getpid()) in generation.env.readers()

        snapshot.inside(engine, look)
        store.stream("parent").add({"a": 2})
        assert len(list(store.stream("parent").range())) == 2
