"""Prevents entries from being acknowledged into another store, or into files that nobody can reach,
when the directory of an open store is renamed, replaced or removed.
"""

from __future__ import annotations

import errno
import gc
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.runtime import identity
from logstore.fs import LOCAL
from logstore.log import file_names
from logstore.recovery.check import check
from logstore.store_path import Directory
from tests.support.inside import engine_of
from tests.support.processes import Forked, Program

WRITER = """
import sys, logstore
from logstore import store_path
if sys.argv[2] == "by name":
    store_path._DESCRIPTORS = "/nowhere"
store = logstore.open(sys.argv[1], segment_bytes=64 << 10, node_max_entries=10, background=True)
stream = store.stream("mine")
done = 0
for part in sys.stdin:
    word, count = part.split()
    try:
        for _ in range(int(count)):
            stream.add({"n": done, "pad": "x" * 200})
            done += 1
        if word == "tidy":
            store.checkpoint()
            store.compact()
        if word == "close":
            store.close()
        print(done, flush=True)
    except logstore.Error as exc:
        print(type(exc).__name__, done, flush=True)
"""
Store = logstore.Store[bytes]


class Writer(Program):
    """A process that adds as many entries as it is told to, and says how many it has added."""

    def __init__(self, path: Path, how: str = "") -> None:
        super().__init__(WRITER, path, how)

    def tell(self, word: str, count: int = 0) -> str:
        """Its answer to a line."""
        return self.ask(word, count)


def numbers(store: Store) -> list[int]:
    """What was added to the stream of the writer."""
    return [int(entry.fields[b"n"]) for entry in store.stream("mine")]


def until_gone(call: Callable[[], object]) -> logstore.StoreGoneError:
    """Call until the store says that it is gone, as it must within its next looks."""
    for _ in range(600):
        try:
            call()
        except logstore.StoreGoneError as exc:
            return exc
        time.sleep(0.05)
    raise AssertionError("it goes on")


def rename(path: Path, to: Path) -> None:
    """By another process."""
    subprocess.run([sys.executable, "-c", "import os, sys; os.rename(*sys.argv[1:])", path, to],
                   check=True)  # fmt: skip


def test_a_renamed_store_stays_one_store(tmp_path: Path) -> None:
    """3,000 adds, and a new store at the old path in their midst."""
    path, moved = tmp_path / "store", tmp_path / "moved"
    with Writer(path) as writer:
        assert writer.tell("add", 500) == "500"
        rename(path, moved)
        with logstore.open(path) as other:
            other.stream("other").add({"n": 1})
            assert writer.tell("add", 2499) == "2999"
            other.stream("other").add({"n": 2})
            assert writer.tell("tidy", 1) == "3000"
            assert len(other.stream("other")) == 2
            assert other.streams() == [b"other"]
            with logstore.open(moved) as same:  # by a second process, under its new name
                assert numbers(same) == list(range(3000))
                same.stream("mine").add({"n": 3000})
            assert writer.tell("close") == "3000"
    for each in (path, moved):
        assert check(each).damage == []
        assert (len(file_names.segments(LOCAL, each)) > 1) == (each == moved)
    with logstore.open(moved) as store:
        assert numbers(store) == list(range(3001))
        assert not store.recovery["rebuilt"]
    with logstore.open(path) as other:
        assert other.streams() == [b"other"]
        assert len(other.stream("other")) == 2


def test_without_descriptors_a_renamed_store_is_gone(tmp_path: Path) -> None:
    """Where no path begins at an open directory: what was acknowledged is kept, then it ends."""
    path, moved = tmp_path / "store", tmp_path / "moved"
    with Writer(path, "by name") as writer:
        assert writer.tell("add", 500) == "500"
        rename(path, moved)
        with logstore.open(path) as other:
            time.sleep(0.3)
            name, done = writer.tell("add", 2500).split()
            assert name == "StoreGoneError"
            assert writer.tell("tidy").split() == [name, done]
            assert writer.tell("close").split() == [name, done]
            other.stream("other").add({"n": 1})
    assert check(path).damage == []
    assert check(moved).damage == []
    with logstore.open(moved) as store:
        assert numbers(store) == list(range(int(done)))


@pytest.mark.parametrize("background", [True, False])
def test_a_removed_store_says_so(tmp_path: Path, background: bool) -> None:
    """Reads and adds, waiting and closing: each with the name that the user gave."""
    path = tmp_path / "store"
    store = logstore.open(path, background=background)
    stream = store.stream("s")
    stream.add({"a": 1})
    said: list[BaseException] = []

    def wait() -> None:
        try:
            store.stream("quiet").read("$", timeout=60.0)
        except logstore.Error as exc:
            said.append(exc)

    waiter = threading.Thread(target=wait)
    if background:
        waiter.start()
    shutil.rmtree(path)
    error = until_gone(lambda: stream.add({"a": 2}))
    assert str(path) in str(error)
    assert "/proc" not in str(error)
    if background:
        waiter.join(60)
        assert isinstance(said[0], logstore.StoreGoneError)
    for call in (lambda: len(stream), store.sync, store.checkpoint, store.compact, store.close):
        with pytest.raises(logstore.StoreGoneError, match=r"was removed|lost its file"):
            call()
    assert not path.exists()
    with logstore.open(path) as again:
        assert again.streams() == []


@pytest.mark.parametrize("part", [file_names.LOCK, file_names.USERS, file_names.LOG])
def test_a_part_that_was_replaced_ends_it(tmp_path: Path, part: str) -> None:
    """Who opens it then has another lock, or another log."""
    path = tmp_path / "store"
    store = logstore.open(path)
    store.stream("s").add({"a": 1})
    (path / part).rename(tmp_path / "aside")
    shutil.copytree(tmp_path / "aside", path / part) if part == file_names.LOG else (
        path / part
    ).touch()
    error = until_gone(lambda: store.stream("s").add({"a": 2}))
    assert part in str(error)
    with pytest.raises(logstore.StoreGoneError):
        store.close()
    assert store.stream  # and nothing was written to what stands there now
    with logstore.open(path) as again:
        assert len(again.stream("s")) >= 1


def test_the_store_of_another_is_not_closed_over(tmp_path: Path) -> None:
    """STORE itself was replaced: nothing is made, moved or removed among the files of another."""
    path, other = tmp_path / "store", tmp_path / "other"
    logstore.open(other).close()
    store = logstore.open(path, background=False)
    store.stream("s").add({"a": 1})
    shutil.copy(other / file_names.STORE, path / file_names.STORE)
    before = sorted(path.rglob("*"))
    for call in (store.checkpoint, store.compact, store.close):
        with pytest.raises(logstore.StoreGoneError, match="STORE"):
            call()
    assert sorted(path.rglob("*")) == before


def test_an_index_that_was_removed_is_made_again(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store") as store:
        store.stream("s").add({"a": 1})
        shutil.rmtree(tmp_path / "store" / file_names.INDEX)
        with logstore.open(tmp_path / "store") as same:
            assert len(same.stream("s")) == 1


def test_a_reader_keeps_to_its_directory(tmp_path: Path) -> None:
    """One that only reads goes on in the renamed store, and says when it was removed."""
    path, moved = tmp_path / "store", tmp_path / "moved"
    logstore.open(path, segment_bytes=64 << 10, node_max_entries=10).close()
    with Writer(path) as writer, logstore.open(path, readonly=True) as reader:
        assert writer.tell("add", 10) == "10"
        assert len(reader.stream("mine")) == 10
        rename(path, moved)
        logstore.open(path).close()
        assert writer.tell("add", 1000) == "1010"
        assert len(reader.stream("mine")) == 1010
        assert writer.tell("close") == "1010"
        shutil.rmtree(moved)
        assert "was removed" in str(until_gone(lambda: len(reader.stream("mine"))))


def test_a_child_keeps_to_the_directory_of_its_parent(tmp_path: Path) -> None:
    """Also if it closes every descriptor first, as daemons do."""
    path, moved = tmp_path / "store", tmp_path / "moved"

    def use() -> None:
        store.stream("s").add({"a": 2})
        assert len(store.stream("s")) >= 2

    def as_daemon() -> None:
        os.closerange(3, 256)
        with open(os.devnull, "rb"), open(os.devnull, "rb"):
            store.stream("s").add({"a": 2})

    with logstore.open(path) as store:
        store.stream("s").add({"a": 1})
        rename(path, moved)
        logstore.open(path).close()
        with Forked(use):
            pass
        assert len(store.stream("s")) == 2
        child = os.fork()
        if not child:
            try:
                as_daemon()
            except logstore.StoreGoneError:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with logstore.open(path) as other:
        assert other.streams() == []
    with logstore.open(moved) as same:
        assert len(same.stream("s")) == 2


def test_a_pickled_handle_opens_no_other_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path) as store:
        data = pickle.dumps(store.stream("s"))
    shutil.rmtree(path)
    logstore.open(path).close()
    with pytest.raises(logstore.StoreGoneError, match="another store"):
        pickle.loads(data).add({"a": 1})


@pytest.mark.parametrize("how", ["by descriptor", "by name"])
def test_a_look_that_fails_once_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The disk does not tell of the directory: what asked is refused, and the next one is not."""
    if how == "by name":
        monkeypatch.setattr("logstore.store_path._DESCRIPTORS", "/nowhere")
    look = os.fstat if how == "by descriptor" else os.stat
    with logstore.open(tmp_path / "store", background=False) as store:
        stream = store.stream("a")
        stream.add({"n": 0})
        left = [OSError(errno.EIO, "Input/output error")]

        def fails_once(what: Any, **more: Any) -> os.stat_result:
            if left:
                raise left.pop()
            return look(what, **more)

        monkeypatch.setattr(os, look.__name__, fails_once)
        with pytest.raises(logstore.FileSystemError, match=r"looking at .*Input/output error"):
            identity.check(engine_of(store))
        assert not left
        stream.add({"n": 1})
        store.checkpoint()
        assert len(stream) == 2


def test_a_directory_that_cannot_be_looked_at_is_not_kept_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor leaked, and its end printed an AttributeError."""
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def fails(_: int) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fails)
        with pytest.raises(OSError, match="Input/output"):
            Directory(tmp_path, fd)
    gc.collect()
    assert not unraisable
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
