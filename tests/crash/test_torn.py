"""Prevents torn tails from being read, and complete commits and damage from being cut off."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.shm import process_identity
from logstore.errors import DamagedStoreError
from logstore.fs import LOCAL
from logstore.log import file_names, log_reader, segment, storefile
from logstore.log.segment_writer import crc_seed
from tests.crash import script
from tests.crash.script import State

COMMITS = 12


class Prepared:
    """A log of one segment that nobody closed, with the end of every commit and the state there."""

    def __init__(self, folder: Path, synced_after: int = 0) -> None:
        self.path = folder / "prepared"
        live = folder / "live"
        self.states: list[State] = [{}]
        with logstore.open(live, sync="os", background=False) as store:
            for number in range(1, COMMITS + 1):
                with store.transaction() as tx:
                    tx.stream("a").add({"v": b"%03d" % number * 9}, id=f"{number}-1")
                    tx.stream("b").add({"v": b"x" * number}, id=f"{number}-1")
                self.states.append(script.dump(store))
                if number == synced_after:
                    store.sync()
            self.path.mkdir()
            shutil.copytree(live / "log", self.path / "log")
            shutil.copy(live / "STORE", self.path / "STORE")
        self.data = self.segment(1).read_bytes()
        self.uuid = storefile.read(LOCAL, self.path).uuid
        file = LOCAL.open(self.segment(1))
        start = fmt.SEGMENT_HEAD_BYTES
        scanned = log_reader.scan(file, crc_seed(self.uuid), 1, start, len(self.data))
        found = list(log_reader.commits(scanned, 0))
        file.close()
        self.ends = [start, *(fmt.offset_of(commit.end) for commit in found)]
        self.inner = found[-3].frames[-1].offset  # where the last frame of a late commit begins
        assert len(self.ends) == COMMITS + 1

    def segment(self, number: int) -> Path:
        """The file of a segment."""
        return file_names.segment(self.path, number)

    def become(self, data: bytes) -> None:
        """Only this is left of the store."""
        for each in self.path.iterdir():
            if each.is_dir() and each.name != "log":
                shutil.rmtree(each)
            elif each.name not in {"log", "STORE"}:
                each.unlink()
        for each in (self.path / "log").iterdir():
            each.unlink()
        self.segment(1).write_bytes(data)

    def complete(self, size: int) -> int:
        """How many commits are complete within the first bytes."""
        return sum(1 for end in self.ends[1:] if end <= size)

    def check(self, commits: int, torn_bytes: int) -> None:
        """It opens with so many commits, says what was torn, and goes on working."""
        state = self.states[commits]
        with script.open_store(self.path, "os") as store:
            assert script.dump(store) == state
            assert store.recovery["torn_bytes"] == torn_bytes
            if torn_bytes:
                saved = Path(store.recovery["saved_to"])
                assert saved.parent.name == "quarantine"
                assert saved.stat().st_size == torn_bytes
            store.stream("a").add({"v": b"more"}, id="1000-1")
        shutil.rmtree(self.path / "index")
        with script.open_store(self.path, "os") as store:
            after = {**state, b"a": [*state.get(b"a", []), ("1000-1", b"more")]}
            assert script.dump(store) == after
            assert store.recovery["torn_bytes"] == 0


def test_a_log_cut_off_at_every_byte_of_the_last_commits(tmp_path: Path) -> None:
    """What is complete counts, the rest is set aside, whatever byte the crash reached."""
    prepared = Prepared(tmp_path)
    for size in range(prepared.ends[-3] - 1, len(prepared.data) + 1):
        prepared.become(prepared.data[:size])
        commits = prepared.complete(size)
        prepared.check(commits, size - prepared.ends[commits])
        assert not prepared.segment(2).exists()


@pytest.mark.parametrize("size", [1, 31, 32, 33, 4096])
@pytest.mark.parametrize("kind", ["zeros", "ones", "stale", "garbage", "shifted"])
def test_bytes_behind_the_end(tmp_path: Path, kind: str, size: int) -> None:
    """Zeros, 0xFF, older bytes of the same log and noise are no commits."""
    prepared = Prepared(tmp_path)
    start = fmt.SEGMENT_HEAD_BYTES
    tail = {
        "zeros": bytes(size),
        "ones": b"\xff" * size,
        "stale": (prepared.data[start:] * 9)[:size],
        "garbage": random.Random(size).randbytes(size),
        "shifted": (b"\0" + prepared.data[prepared.ends[-2] :] * 9)[:size],
    }[kind]
    prepared.become(prepared.data + tail)
    prepared.check(COMMITS, len(tail))
    assert not prepared.segment(2).exists()


def test_a_hole_with_complete_commits_behind_it(tmp_path: Path) -> None:
    """What follows a hole in the un-synced tail does not apply, and is not overwritten either."""
    prepared = Prepared(tmp_path)
    for lost in range(3, COMMITS):
        begin, end = prepared.ends[lost - 1 : lost + 1]
        for hole in (bytes(end - begin), bytes(end - begin - 1) + b"\x01"):
            data = prepared.data[:begin] + hole + prepared.data[end:]
            prepared.become(data)
            prepared.check(lost - 1, len(data) - begin)
            assert prepared.segment(1).read_bytes() == data  # void, not cut
            file = LOCAL.open(prepared.segment(2))
            head = segment.read_head(file, 2, prepared.uuid)
            file.close()
            assert head.previous_end == fmt.position(1, begin)
            assert head.previous_commit == lost - 1


def test_a_hole_inside_the_last_commit(tmp_path: Path) -> None:
    """A commit with a lost frame in its middle is torn, though its last frame is whole."""
    prepared = Prepared(tmp_path)
    begin = prepared.ends[-2]
    data = prepared.data[:begin] + bytes(8) + prepared.data[begin + 8 :]
    prepared.become(data)
    prepared.check(COMMITS - 1, len(data) - begin)


@pytest.mark.parametrize("damage", ["bit", "zeros", "gone"])
def test_damage_before_the_durable_end_is_refused(tmp_path: Path, damage: str) -> None:
    """A later commit knew these bytes durable: they were changed, and nothing is cut off."""
    prepared = Prepared(tmp_path, synced_after=6)
    for lost in range(1, 6):
        begin, end = prepared.ends[lost - 1 : lost + 1]
        data = bytearray(prepared.data)
        if damage == "bit":
            data[(begin + end) // 2] ^= 4
        elif damage == "zeros":
            data[begin:end] = bytes(end - begin)
        else:
            del data[begin:end]
            if lost > 1:
                continue  # every later frame is out of its place then, and proves nothing
            data[begin:begin] = bytes(end - begin - 1) + b"\x07"
        prepared.become(bytes(data))
        before = script.files(prepared.path)
        for _ in range(2):
            with pytest.raises(DamagedStoreError) as caught:
                script.open_store(prepared.path, "os")
            assert caught.value.segment == 1
            assert caught.value.offset == begin
        assert script.files(prepared.path) == before


def test_the_un_synced_tail_behind_durable_bytes_is_torn_not_damaged(tmp_path: Path) -> None:
    """Only what a frame knew durable is damage: the same hole behind it is a torn tail."""
    prepared = Prepared(tmp_path, synced_after=6)
    begin, end = prepared.ends[8:10]
    data = prepared.data[:begin] + bytes(end - begin) + prepared.data[end:]
    prepared.become(data)
    prepared.check(8, len(data) - begin)


def test_a_log_that_ends_before_the_mark_of_a_clean_close(tmp_path: Path) -> None:
    """What was durable when the store was closed cannot be a torn tail."""
    path = tmp_path / "store"
    with script.open_store(path, "os") as store:
        store.stream("a").add({"v": b"x"}, id="1-1")
    log = file_names.segment(path, 1)
    log.write_bytes(log.read_bytes()[:-1])
    before = script.files(path)
    with pytest.raises(DamagedStoreError, match="clean close"):
        script.open_store(path, "os")
    assert script.files(path) == before


def test_a_log_that_ends_before_a_checkpoint(tmp_path: Path) -> None:
    """A checkpoint is only named when the log is durable up to it."""
    path = tmp_path / "store"
    with script.open_store(path, "os") as store:
        store.stream("a").add({"v": b"x"}, id="1-1")
        store.checkpoint()
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
    shutil.rmtree(copy / "index")
    (copy / "BOOT").unlink()
    log = file_names.segment(copy, 1)
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(DamagedStoreError, match="checkpoint"):
        script.open_store(copy, "os")


@pytest.mark.parametrize("size", [100, 5000])
def test_a_commit_lost_at_an_opening_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A lost commit may stand in a block behind the end of the file, and the next power cut may
    show it there, in place of what was added since.
    """
    prepared, cuts = Prepared(tmp_path), [tmp_path / f"cut-{number}" for number in range(2)]
    seen = prepared.ends[9]
    prepared.become(prepared.data[:seen])
    for number, path in enumerate((prepared.path, cuts[0])):
        monkeypatch.setattr(process_identity, "boot_id", lambda number=number: f"boot {number}")
        with script.open_store(path, "os") as store:
            assert script.dump(store) == prepared.states[9]
            if number:
                store.stream("c").add({"v": b"n" * size}, id="1-1")
            shutil.copytree(path, cuts[number])
    file = file_names.segment(cuts[1], 1)
    length = file.stat().st_size
    file.write_bytes(file.read_bytes()[:seen] + prepared.data[seen:length])
    monkeypatch.setattr(process_identity, "boot_id", lambda: "boot 2")
    with script.open_store(cuts[1], "os") as store:
        found = script.dump(store)
        found.pop(b"c", None)
        assert found == prepared.states[9]
