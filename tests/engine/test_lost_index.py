"""Prevents an index that was deleted or replaced by hand from changing any answer."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest

import logstore
from logstore.fs import LOCAL
from logstore.log import file_names
from tests.support.processes import Forked, ForkedOnGo
from tests.support.threads import running

ROUNDS = 60
State = dict[bytes, list[tuple[str, bytes]]]


def fill(store: logstore.Store[bytes], count: int = 300) -> None:
    """Nodes sealed and open, deletes in both, a trim, a large entry."""
    rng = random.Random(1)
    for name in ("a", "b"):
        store.stream(name).add_many([{"v": rng.randbytes(30)} for _ in range(count)])
        ids = [entry.id for entry in store.stream(name).range()]
        store.stream(name).delete(*rng.sample(ids, count // 5))
    store.stream("b").trim(max_entries=count // 2, approximate=False)
    store.stream("c").add({"v": rng.randbytes(90_000)})


def dump(store: logstore.Store[bytes]) -> State:
    """Every answer: ranges both ways, lengths, lookups."""
    found: State = {}
    for name in store.streams():
        stream = store.stream(name)
        rows = [(str(entry.id), entry.fields[b"v"]) for entry in stream.range()]
        assert rows == [(str(e.id), e.fields[b"v"]) for e in stream.range(reverse=True)][::-1]
        assert len(stream) == len(rows)
        for each, value in rows[::17]:
            assert stream[each].fields[b"v"] == value
        found[name] = rows
    return found


def generation(path: Path) -> int:
    """The newest one on disk; 0 if there is none."""
    return max(file_names.generations(LOCAL, path), default=0)


def test_deleted_under_everybody(tmp_path: Path) -> None:
    """Those who have it open go on; the next opener builds n+1, and all move over."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=64 * 1024) as store:
        fill(store)

        def other() -> None:
            with logstore.open(path) as mine:
                assert not mine.recovery["index_trusted"]
                found = dump(mine)
                assert found[b"d"][0][1] == b"1"
                assert {**found, b"d": []} == {**before, b"d": []}
                mine.stream("d").add({"v": b"2"})

        before = dump(store)
        child = ForkedOnGo(other)
        assert dump(store) == before
        first = generation(path)
        shutil.rmtree(path / "index")
        assert dump(store) == before
        store.stream("d").add({"v": b"1"})
        assert dump(store)[b"d"]
        child.go()
        assert generation(path) > first
        assert [row[1] for row in dump(store)[b"d"]] == [b"1", b"2"]
        assert store._live().engine.index().number == generation(path)
        store.stream("d").add({"v": b"3"})
        before = dump(store)
    shutil.rmtree(path / "index")
    with logstore.open(path) as store:
        assert dump(store) == before


def numbers(store: logstore.Store[bytes], writer: int) -> list[int]:
    """What one writer wrote, in its order."""
    return [int(entry.fields[b"v"]) for entry in store.stream(f"w{writer}").range()]


def write(path: Path, number: int) -> None:
    """A writer that looks at its own commits after each."""
    with logstore.open(path) as store:
        for turn in range(ROUNDS):
            store.stream(f"w{number}").add({"v": b"%d" % turn})
            if turn % 10 == 0:
                time.sleep(0.02)
            found = numbers(store, number)
            assert found == list(range(turn + 1)), "a writer does not see its own commits"


def test_deleted_while_many_write_and_read(tmp_path: Path) -> None:
    """Again and again, with openers coming and going: nothing is missing, nothing is doubled."""
    path = tmp_path / "store"
    logstore.open(path, segment_bytes=64 * 1024).close()
    writers = 3

    children = [Forked(partial(write, path, number)) for number in range(writers)]
    stop = threading.Event()
    errors: list[BaseException] = []

    def read() -> None:
        seen = [0] * writers
        try:
            while not stop.is_set():
                for number in range(writers):
                    found = numbers(store, number)
                    assert found == list(range(len(found)))
                    assert len(found) >= seen[number]
                    seen[number] = len(found)
        except BaseException as exc:  # noqa: BLE001
            errors.append(exc)

    with logstore.open(path) as store:
        readers = [threading.Thread(target=read) for _ in range(2)]
        with running(readers):
            for _ in range(8):
                time.sleep(0.03)
                shutil.rmtree(path / "index", ignore_errors=True)
                with Forked(lambda: logstore.open(path).close()):
                    pass
            for child in children:
                child.join()
            stop.set()
        assert not errors, errors
        for number in range(writers):
            assert numbers(store, number) == list(range(ROUNDS))


@pytest.mark.parametrize("left", ["lock.mdb", "data.mdb"])
def test_deleted_in_part(tmp_path: Path, left: str) -> None:
    """A second lock file beside the same data would hide readers from writers."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=64 * 1024) as store:
        fill(store)
        before = dump(store)

        def other() -> None:
            with logstore.open(path) as mine:
                assert not mine.recovery["index_trusted"]
                assert dump(mine) == before

        child = ForkedOnGo(other)
        assert dump(store) == before
        number = generation(path)
        folder = path / "index" / str(number)
        (folder / ("data.mdb" if left == "lock.mdb" else "lock.mdb")).unlink()
        child.go()
        assert generation(path) > number
        assert dump(store) == before


def test_replaced_by_an_older_copy_while_open(tmp_path: Path) -> None:
    """Two environments under one number: what one commits, the other would not see."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=64 * 1024) as store:
        before: State = {}

        def other() -> None:
            with logstore.open(path) as mine:
                assert len(mine.stream("a")) == 241
                assert len(list(mine.stream("a").range())) == 241
                mine.stream("z").add({"v": b"1"})

        child = ForkedOnGo(other)
        store.stream("a").add({"v": b"0"})
        folder = path / "index" / str(generation(path))
        shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("lock.mdb"))
        fill(store)
        before = dump(store)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "copy", folder)
        assert dump(store) == before
        child.go()
        assert {**before, b"z": dump(store)[b"z"]} == dump(store)
        assert len(store.stream("z")) == 1


@pytest.mark.parametrize("reads", [True, False])
def test_moving_to_a_deleted_generation_builds_the_next(tmp_path: Path, reads: bool) -> None:
    """Switched by another process, and deleted before this one looked: it builds the next, for a
    read or for a commit."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=64 * 1024) as store:
        fill(store)
        before = dump(store)
        child = ForkedOnGo(lambda: logstore.open(path).close())
        assert dump(store) == before
        shutil.rmtree(path / "index")
        child.go()  # n+1, in WAKE
        shutil.rmtree(path / "index")
        if reads:
            assert dump(store) == before
        store.stream("d").add({"v": b"1"})
        assert len(store.stream("d")) == 1
        assert {**before, b"d": dump(store)[b"d"]} == dump(store)


def test_a_killed_reader_does_not_keep_its_slot(tmp_path: Path) -> None:
    """Its snapshot would let the index grow with every commit."""
    path = tmp_path / "store"
    ready, go = os.pipe()
    with logstore.open(path, background=False) as store:
        store.stream("a").add({"v": b"1"})

        def hold() -> None:
            mine = logstore.open(path, background=False)
            environment = mine._live().engine.index().env
            with environment.begin():
                os.write(go, b"x")
                time.sleep(60)

        child = Forked(hold)
        os.read(ready, 1)
        generation_now = store._live().engine.index()  # opened before the kill: opening checks, too
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        assert str(child.pid) in generation_now.env.readers()
        generation_now.check_readers()
        assert str(child.pid) not in generation_now.env.readers()
