"""Prevents a log that is wrong from being called clean, and what others do meanwhile from being
told as damage.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.codec import codec
from logstore.engine.runtime import maintenance_locks
from logstore.errors import CorruptFrameError
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.log import file_names, frame, segment
from logstore.log.log_reader import LogFrame
from logstore.log.segment import SegmentHead
from logstore.recovery import check as checking
from logstore.recovery.check import check
from tests.corruption import frames
from tests.recovery import forged, small_store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Opened as copies only; without an index."""
    path = tmp_path_factory.mktemp("findings") / "store"
    small_store.make(path)
    shutil.rmtree(path / "index")
    (path / file_names.WAKE).unlink()  # it says how far the log was published
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy."""
    return shutil.copytree(made, tmp_path / "store")


def _next_segment(path: Path, last: LogFrame) -> None:
    """Another one begins behind this frame."""
    end = fmt.position(last.segment, last.end_offset)
    head = SegmentHead(fmt.Role.MAIN, last.segment + 1, frames.uuid(path), end, last.commit, 0)
    segment.create(LOCAL, path, head).close()


def _lp(*rows: int) -> bytes:
    lp = codec().new_node(rows[0], 0, [b"n", b"%d" % rows[0]])
    for ms in rows[1:]:
        lp, _ = codec().append(lp, rows[0], 0, ms, 0, [b"n", b"%d" % ms])
    return lp


NODE = frame.Node(2, 20, 0, 22, 0, 3, _lp(20, 21, 22))
RECORD = frame.Record(2, 13, 13, 22, 0, 1, 1, 0, 0)


def test_check_counts_a_sound_log(path: Path) -> None:
    before = check(path)
    assert before.as_dict()["clean"]
    assert (before.frames, before.commits, before.nodes) == (21, 12, 4)
    assert (before.segments, before.hints, before.checkpoints) == (1, 0, 0)
    assert (before.streams, before.entries) == (2, 17)
    assert before.log_bytes == frames.everything(path)[-1].end_offset
    forged.append(path, NODE, RECORD)
    after = check(path)
    assert after.as_dict()["clean"], after.damage
    assert (after.frames, after.commits, after.nodes, after.entries) == (23, 13, 5, 20)


FORGED: dict[str, tuple[list[frame.Body], str]] = {
    "a node that says less than it has": (
        [NODE._replace(entries=2), RECORD._replace(length=12)],
        "a node has 3 live entries, its frame says 2",
    ),
    "a node that is none": (
        [NODE._replace(data=NODE.data[:-1] + b"\x00")] if NODE.data else [],
        "listpack",
    ),
    "a length that its nodes do not have": (
        [NODE, RECORD._replace(length=14)],
        "stream b'y' has 13 live entries and a length of 14",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_check_names_damage_with_its_place(name: str, path: Path) -> None:
    bodies, why = FORGED[name]
    at = forged.append(path, *bodies)
    log = frames.everything(path)
    first, last = next(each for each in log if each.offset == at), log[-1]
    (found,) = check(path).damage
    assert why in found.why or why == "listpack"
    if "length" in name:
        assert found[:3] == (1, last.offset, 0)
    else:
        assert found[:3] == (1, first.offset, first.end_offset)


@pytest.mark.parametrize("skipped", [1, -1])
def test_commits_that_are_out_of_order(path: Path, skipped: int) -> None:
    """A number is left out, or comes twice."""
    at = forged.append(path, frame.Note(b"x"), frame.Note(b"y"), skipped=skipped)
    found = check(path).damage
    assert found[0].why == "commits are out of order"
    assert found[0][:2] == (1, at)
    assert [each.why for each in found].count("commits are out of order") == 1


def test_a_sealed_segment_whose_last_commit_is_not_whole(path: Path) -> None:
    """Each frame of it is sound; the last one, which ends the commit, is not there."""
    at = forged.append(path, NODE, RECORD)
    last = frames.everything(path)[-1]
    with frames.file(path, 1).open("r+b") as file:
        file.truncate(last.offset)
    tail = check(path)
    assert tail.damage == []
    assert (tail.tail_segment, tail.tail_offset, tail.tail_bytes) == (1, at, last.offset - at)
    _next_segment(path, frames.of(path, 1)[-1])
    found = check(path)
    assert (1, at, last.offset, "the last commit is not whole") in found.damage
    assert found.tail_bytes == 0


def test_a_torn_tail_is_no_damage(path: Path) -> None:
    at = forged.append(path, NODE, RECORD, cut=5)
    size = frames.file(path, 1).stat().st_size
    found = check(path)
    assert found.damage == []
    assert (found.tail_segment, found.tail_offset, found.tail_bytes) == (1, at, size - at)
    assert found.entries == 17
    assert not found.as_dict()["clean"]


def test_damage_that_comes_after_a_segment_was_looked_at_is_told(path: Path) -> None:
    """The replay reads it once more."""
    log = frames.everything(path)
    victim = next(each for each in log if each.kind == Kind.NODE)
    _next_segment(path, log[-1])
    assert check(path).damage == []
    looks: list[int] = []

    def meanwhile(done: int, total: int) -> None:
        looks.append(done)
        if done == total and len(looks) < 5:
            small_store.cut(path, victim)

    found = check(path, progress=meanwhile)
    assert next(each[:3] for each in found.damage) == (1, victim.offset, victim.end_offset)


def test_a_writer_at_work_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its commit is under way the sizes are not those of a moment between two commits."""
    (path / file_names.LOCK).touch()
    at = forged.append(path, NODE, RECORD, cut=5)
    data = frames.file(path, 1).read_bytes()[at:]
    lock = LOCAL.open(path / file_names.LOCK, write=True)
    assert lock.try_lock(exclusive=True)

    def finish() -> None:
        frames.patch(frames.file(path, 1), at, bytes(len(data)))
        with frames.file(path, 1).open("r+b") as file:
            file.truncate(at)
        forged.append(path, NODE, RECORD)
        lock.close()

    timer = threading.Timer(0.2, finish)
    timer.start()
    found = check(path)
    timer.join()
    assert found.as_dict()["clean"]
    assert found.entries == 20
    # One that does not end is not waited for without end.
    monkeypatch.setattr(checking, "LOCK_WAIT_S", 0.05)
    lock = LOCAL.open(path / file_names.LOCK, write=True)
    assert lock.try_lock(exclusive=True)
    assert check(path).entries == 20
    lock.close()


def _head_lost(path: Path) -> None:
    frames.flip(frames.file(path, 1), 20)


def _all_lost(path: Path) -> None:
    frames.file(path, 1).write_bytes(bytes(2000))


def test_a_damaged_header_hides_nothing_else(path: Path) -> None:
    _head_lost(path)
    found = check(path)
    assert [each[:3] for each in found.damage] == [(1, 0, 64)]
    assert (found.frames, found.nodes) == (21, 4)
    _all_lost(path)
    with pytest.raises(CorruptFrameError):
        check(path)


def test_a_checkpoint_that_does_not_fit_the_log(path: Path) -> None:
    with logstore.open(path, background=False) as store:
        store.checkpoint()
    (position,) = file_names.checkpoints(LOCAL, path)
    found = check(path)
    assert (found.checkpoints, found.damage) == (1, [])
    place = file_names.checkpoint(path, position)
    kept = place.read_bytes()
    frames.flip(place, len(kept) - 1)
    (damage,) = [each for each in check(path).damage if "chunk" in each.why]
    assert damage[:3] == (
        fmt.segment_of(position),
        fmt.offset_of(position),
        fmt.offset_of(position),
    )
    place.write_bytes(kept)
    last = frames.everything(path)[-1]
    frames.flip(frames.file(path, 1), last.offset + 3)
    why = "the log lacks the commit of a checkpoint"
    assert [each[:3] for each in check(path).damage if each.why == why] == [damage[:3]]


ROWS = [{"v": b"x" * 500}] * 8


def begun(path: Path) -> logstore.Store[bytes]:
    """Two sealed segments and an active one, nodes in all of them."""
    store = logstore.open(path, background=False, segment_bytes=64 * 1024, node_max_entries=4)
    while len(list((path / file_names.LOG).glob("*.log"))) < 3:
        store.stream("a").add_many(ROWS)
    store.stream("a").add_many(ROWS)
    return store


def test_nodes_that_are_added_meanwhile_are_found(tmp_path: Path) -> None:
    """The replay sees them, and they stand behind what was read of the log."""
    path = tmp_path / "store"
    with begun(path) as store:
        report = check(path, progress=lambda done, total: None)
        assert report.as_dict()["clean"]
        before = report.nodes
        report = check(path, progress=lambda done, total: store.stream("a").add_many(ROWS) and None)
        assert report.as_dict()["clean"], report.damage
        assert report.nodes == before
        assert check(path).nodes > before


def checked(path: Path, meanwhile: Callable[[], None]) -> tuple[Any, list[int]]:
    """A clean report of a check at whose first look something happens, and its looks."""
    looks: list[int] = []

    def progress(done: int, total: int) -> None:
        looks.append(done)
        if len(looks) == 1:
            meanwhile()

    report = check(path, progress=progress)
    assert report.as_dict()["clean"], report.damage
    return report, looks


def test_a_segment_that_is_sealed_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    """Its hint tells of more than was there at the start."""
    path = tmp_path / "store"
    with begun(path) as store:

        def meanwhile() -> None:
            store.stream("b").add_many([{"v": b"y" * 40_000}] * 3)
            maintenance_locks.write_missing_hints(store._live().engine)

        report, looks = checked(path, meanwhile)
        assert report.hints == len(list((path / file_names.LOG).glob("*.hint"))) > 2
        assert looks.count(looks[0]) == 2  # it was begun again


def test_segments_that_go_meanwhile_are_not_missed(tmp_path: Path) -> None:
    """Compacted away between two looks."""
    path = tmp_path / "store"
    with begun(path) as store:

        def meanwhile() -> None:
            store.stream("a").trim(max_entries=4, approximate=False)
            store.compact(threshold=0.1)

        report, _ = checked(path, meanwhile)
        assert report.entries == 4
        assert len(list((path / file_names.LOG).glob("*.log"))) < 3


def test_damage_is_told_also_of_a_store_that_changes(tmp_path: Path) -> None:
    """It is looked for again, and is still there."""
    path = tmp_path / "store"
    with begun(path) as store:
        file = file_names.segment(path, 1)
        data = bytearray(file.read_bytes())
        data[3000] ^= 1
        file.write_bytes(data)

        def meanwhile(done: int, total: int) -> None:
            store.stream("b").add_many([{"v": b"y" * 40_000}] * 3)

        report = check(path, progress=meanwhile)
        assert [found.segment for found in report.damage] == [1], report.damage
