"""Prevents two processes that share a store from writing over each other's entries, when a backup
or sync tool puts a copy in the place of a file that they share, or writes an older one over it.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

import logstore
from logstore.fs import LOCAL
from logstore.log import file_names
from logstore.recovery.check import check
from logstore.recovery.salvage.run import salvage
from tests.support.inside import engine_of
from tests.support.processes import Program

WRITER = """
import sys, logstore
from logstore.engine.lane import lane
lane.IN_USE = sys.argv[2] == "lane"
try:
    store = logstore.open(sys.argv[1], background=False)
except logstore.Error as exc:
    print(type(exc).__name__, exc, flush=True)
    sys.exit()
stream = store.stream("mine")
print("open", flush=True)
for part in sys.stdin:
    word, first, count = part.split()
    done = 0
    try:
        for n in range(int(first), int(first) + int(count)):
            stream.add({"n": n})
            done += 1
        if word != "add":
            getattr(store, word)()
        print(done, flush=True)
    except logstore.Error as exc:
        print(done, type(exc).__name__, exc, flush=True)
"""
HOW = ["lane", "pipeline"]
LOOKED_S = 0.01  # longer than a process trusts its last look at the log's end


class Writer(Program):
    """Another process that has the store open, and does what it is told; it ends with its locks."""

    def __init__(self, path: Path, how: str = "lane") -> None:
        super().__init__(WRITER, path, how)
        self.said = self.answer()

    def tell(self, word: str, first: int = 0, count: int = 0) -> str:
        """Its answer: how many it added, and the error that came then."""
        return self.ask(word, first, count)


def replace(path: Path) -> None:
    """As many tools write files: a copy beside it, then a rename."""
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def write_over(path: Path, data: bytes) -> None:
    """The same file, with other bytes."""
    with path.open("r+b") as file:
        file.write(data)


def numbers(path: Path) -> list[int]:
    """What a store has that nobody else has open; all of it is sound."""
    found = check(path, careful=True)
    assert found.damage == []
    with logstore.open(path, background=False) as store:
        return [int(entry.fields[b"n"]) for entry in store.stream("mine")]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "files",
    [
        (file_names.WAKE,),
        (file_names.LOCK,),
        (file_names.USERS,),
        (file_names.LOCK, file_names.USERS, file_names.WAKE),
    ],
)
def test_a_replaced_shared_file_refuses_an_opener(
    tmp_path: Path, files: tuple[str, ...], how: str
) -> None:
    """40 of 41 acknowledged adds were gone without an error, when WAKE was a copy."""
    path = tmp_path / "store"
    with Writer(path, how) as old:
        assert old.tell("add", 0, 10) == "10"
        for name in files:
            replace(path / name)
        with Writer(path, how) as new:
            assert new.said.startswith("StoreInUseError")
            assert any(f"{name} was replaced" in new.said for name in files)
            assert "close the store in every process" in new.said
        done, _, error = old.tell("add", 10, 10).partition(" ")
        time.sleep(0.25)  # until its files are looked at again
        said = old.tell("add", 90, 1)
        assert said.startswith("0 StoreGoneError")
        assert "close the store in every process" in said
        assert "StoreGoneError" in old.tell("close")
        assert not error or error.startswith("StoreGoneError")
    assert numbers(path) == list(range(10 + int(done)))


def test_salvage_does_not_take_a_copy_of_users_for_an_idle_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Writer(path) as old:
        assert old.tell("add", 0, 10) == "10"
        replace(path / file_names.USERS)
        with pytest.raises(logstore.StoreInUseError, match="open in another process"):
            salvage(path, tmp_path / "new")
    assert numbers(path) == list(range(10))


@pytest.mark.parametrize("how", HOW)
def test_an_older_wake_written_over_it_loses_nothing(tmp_path: Path, how: str) -> None:
    """45 entries were there where 48 were made: who added next stood where the older one did."""
    path = tmp_path / "store"
    wake = path / file_names.WAKE
    with Writer(path, how) as first, Writer(path, how) as second:
        assert first.tell("add", 0, 5) == "5"
        early = wake.read_bytes()
        assert first.tell("add", 5, 5) == "5"
        late = wake.read_bytes()  # to the last byte as the first process left it
        assert second.tell("add", 10, 3) == "3"
        time.sleep(LOOKED_S)
        write_over(wake, late)
        assert first.tell("add", 13, 2) == "2"
        write_over(wake, early)
        assert second.tell("add", 15, 1) == "1"
        write_over(wake, early)
        assert second.tell("add", 16, 1) == "1"
        write_over(wake, early)
        with Writer(path, how) as third:
            assert third.tell("add", 17, 1) == "1"
        assert first.tell("add", 18, 1) == "1"
        assert second.tell("add", 19, 1) == "1"
    assert numbers(path) == list(range(20))


@pytest.mark.parametrize("how", HOW)
def test_an_older_wake_from_before_a_roll_loses_nothing(tmp_path: Path, how: str) -> None:
    """It names a segment that is sealed since, or was removed by a compaction."""
    path = tmp_path / "store"
    wake = path / file_names.WAKE
    with Writer(path, how) as first:
        assert first.tell("add", 0, 5) == "5"
        early = wake.read_bytes()
        assert first.tell("compact", 5, 5) == "5"
        assert file_names.segments(LOCAL, path)[-1] > 1
        write_over(wake, early)
        assert first.tell("add", 10, 5) == "5"
        write_over(wake, early)
        with logstore.open(path, background=False) as store:
            assert len(store.stream("mine")) == 15
            store.stream("mine").add({"n": 15})
    assert numbers(path) == list(range(16))


@pytest.mark.parametrize("how", HOW)
def test_an_older_wake_is_seen_by_who_only_closes_or_tidies(tmp_path: Path, how: str) -> None:
    path = tmp_path / "store"
    for word in ("close", "sync", "checkpoint", "compact"):
        with Writer(path, how) as first:
            assert first.tell("add", 0, 5) == "5"
            early = (path / file_names.WAKE).read_bytes()
            assert first.tell("add", 5, 5) == "5"
            write_over(path / file_names.WAKE, early)
            assert first.tell(word) == "0"
        assert numbers(path) == list(range(10))
        shutil.rmtree(path)


@pytest.mark.parametrize("how", HOW)
def test_a_copy_of_the_active_segment_ends_the_process_that_has_the_other(
    tmp_path: Path, how: str
) -> None:
    """What it would add went to a file without a name: nobody would ever see it."""
    path = tmp_path / "store"
    with Writer(path, how) as first:
        assert first.tell("add", 0, 10) == "10"
        replace(file_names.segment(path, 1))
        time.sleep(LOOKED_S)
        said = first.tell("add", 10, 1)
        assert said.startswith("0 StoreGoneError")
        assert "log/" in said
    assert numbers(path) == list(range(10))


@pytest.mark.parametrize("name", [file_names.BOOT, file_names.STORE])
def test_copies_of_what_is_only_read_change_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "store"
    with Writer(path) as first:
        assert first.tell("add", 0, 10) == "10"
        replace(path / name)
        with Writer(path) as second:
            assert second.tell("add", 10, 10) == "10"
            assert first.tell("add", 20, 10) == "10"
    assert numbers(path) == list(range(30))


def test_a_copy_of_the_index_is_not_used(tmp_path: Path) -> None:
    """Who opens it next builds another one; the first process goes over to that."""
    path = tmp_path / "store"
    with Writer(path) as first:
        assert first.tell("add", 0, 10) == "10"
        with logstore.open(path, background=False) as store:
            generation = engine_of(store).wake.generation()
        replace(file_names.generation(path, generation) / "data.mdb")
        with Writer(path) as second:
            assert second.tell("add", 10, 10) == "10"
            assert first.tell("add", 20, 10) == "10"
    assert os.listdir(path / file_names.INDEX) != [str(generation)]
    assert numbers(path) == list(range(30))


@pytest.mark.parametrize("how", HOW)
def test_bytes_behind_the_end_of_the_log_are_set_aside_first(tmp_path: Path, how: str) -> None:
    """Written there by something else: they would stay in the middle of the log, as damage."""
    path = tmp_path / "store"
    with Writer(path, how) as first:
        assert first.tell("add", 0, 10) == "10"
        with file_names.segment(path, 1).open("ab") as file:
            file.write(b"no frame" * 9)
        time.sleep(LOOKED_S)
        assert first.tell("add", 10, 10) == "10"
    assert [each.read_bytes() for each in (path / file_names.QUARANTINE).iterdir()] == [
        b"no frame" * 9
    ]
    assert numbers(path) == list(range(20))
