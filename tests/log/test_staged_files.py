"""Prevents staged nodes from being published damaged, under other IDs, or for a job that was given
up, and their files from being left behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import logstore
from logstore.codec import ID, codec
from logstore.engine.dump import publish
from logstore.errors import CorruptionError, NotAStoreError, SnapshotExpiredError
from logstore.fs import LOCAL
from logstore.log import file_names, pinfile, stagefile
from logstore.log.pinfile import Pin
from logstore.log.stagefile import StagedRun, StageWriter
from tests.support.inside import committer_of
from tests.support.watched_files import DurableOrder

NOW_MS = 1_700_000_000_000
HALF_MS = stagefile.STAGE_MS // 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store, closed."""
    with logstore.open(tmp_path / "store", background=False) as store:
        store.stream("s").add({"n": "before"})
    return tmp_path / "store"


@pytest.fixture
def stage(path: Path) -> Pin:
    """A stage of this process."""
    return stagefile.begin(LOCAL, path, "host", "system", os.getpid(), 7, NOW_MS)


def packed(first: ID, count: int, most: int = 4) -> bytearray:
    """Entries with the IDs from ``first`` on, in nodes of so many."""
    rows = codec().rows([{b"n": b"%d" % n, b"pad": b"x" * n} for n in range(count)])
    out = bytearray()
    for node in codec().pack(rows, 0, count, first, None, 0, 0, 1 << 20, most).nodes:
        stagefile.put(out, (node.master_ms, node.master_seq), node.lp)
    return out


def staged(path: Path, stage: Pin, first: ID, *counts: int) -> list[StagedRun]:
    """A file with a run for each count, of the streams s, t, ... that are to get IDs."""
    writer = StageWriter(LOCAL, path, stage)
    for name, count in zip((b"s", b"t", b"u"), counts, strict=False):
        last = (first[0], first[1] + count - 1)
        writer.add(name, False, packed(first, count), count, first, last)
    return writer.finish()


def files(path: Path) -> list[str]:
    return sorted(each.name for each in (path / file_names.PINS).iterdir())


def numbers(entries: Iterator[logstore.Entry[bytes]]) -> list[tuple[int, int, int, int]]:
    """Of each entry its ID, its number, and the length of its pad."""
    return [(*entry.id, int(entry.fields[b"n"]), len(entry.fields[b"pad"])) for entry in entries]


def test_a_stage_holds_no_segment_and_lives_for_an_hour(path: Path, stage: Pin) -> None:
    found = pinfile.read(LOCAL, path, stage.id)
    assert found == stage
    assert (found.segments, found.expires_ms) == (frozenset(), NOW_MS + 3_600_000)
    assert (found.pid, found.host, found.system, found.start) == (os.getpid(), "host", "system", 7)


def test_a_stage_makes_the_directory_of_pins(path: Path) -> None:
    """A store that was restored, or put together by hand, may have none."""
    shutil.rmtree(path / file_names.PINS)
    made = stagefile.begin(LOCAL, path, "host", "system", 1, 7, NOW_MS)
    assert pinfile.read(LOCAL, path, made.id) == made


def test_a_stage_is_renewed_once_half_of_its_time_is_over(path: Path, stage: Pin) -> None:
    for after_ms, expires_ms in (
        (0, NOW_MS + 2 * HALF_MS),
        (HALF_MS - 1, NOW_MS + 2 * HALF_MS),
        (HALF_MS, NOW_MS + 3 * HALF_MS),
    ):
        stagefile.keep(LOCAL, path, stage, NOW_MS + after_ms, again=False)
        found = pinfile.read(LOCAL, path, stage.id)
        assert found is not None
        assert found.expires_ms == expires_ms
    # By what is on the disk, not by what the task was sent.
    stagefile.keep(LOCAL, path, stage, NOW_MS + HALF_MS + 1, again=False)
    assert pinfile.read(LOCAL, path, stage.id) == found


def test_a_stage_that_is_gone_is_made_again_for_a_streaming_query_alone(
    path: Path, stage: Pin
) -> None:
    pinfile.path(path, stage.id).unlink()
    with pytest.raises(SnapshotExpiredError, match="Run the job again"):
        stagefile.keep(LOCAL, path, stage, NOW_MS, again=False)
    assert files(path) == []
    stagefile.keep(LOCAL, path, stage, NOW_MS + 5, again=True)
    found = pinfile.read(LOCAL, path, stage.id)
    assert found == stage._replace(expires_ms=NOW_MS + 5 + stagefile.STAGE_MS)


@pytest.mark.parametrize("again", [False, True])
def test_a_host_without_the_stores_directory_is_told(
    tmp_path: Path, stage: Pin, *, again: bool
) -> None:
    with pytest.raises(NotAStoreError, match="executors need it"):
        stagefile.keep(LOCAL, tmp_path / "elsewhere", stage, NOW_MS, again=again)


def test_staged_nodes_are_read_as_they_were_written(path: Path, stage: Pin) -> None:
    runs = staged(path, stage, (5, 1), 6, 1, 9)
    assert [run.stream for run in runs] == [b"s", b"t", b"u"]
    assert [(run.rows, run.first, run.last) for run in runs] == [
        (6, (5, 1), (5, 6)), (1, (5, 1), (5, 1)), (9, (5, 1), (5, 9)),
    ]  # fmt: skip
    data = [bytes(packed((5, 1), count)) for count in (6, 1, 9)]
    assert list(stagefile.read(LOCAL, path, runs)) == data
    assert list(stagefile.read(LOCAL, path, runs[::-1])) == data[::-1]
    whole = (path / file_names.PINS / runs[0].file).read_bytes()
    assert whole == b"".join(data)


@pytest.mark.parametrize("first", [(0, 1), (2, 1), (1 << 60, 1 << 60)])
@pytest.mark.parametrize("base", [(0, 0), (3, 0), (0, 70), (NOW_MS, 1 << 40)])
def test_moved_nodes_hold_the_same_entries_under_other_ids(base: ID, first: ID) -> None:
    """Each node is moved, and nothing of it but its place."""
    data = packed(first, 10)
    found = stagefile.moved(bytes(data), base)
    there = codec().NodeBatch(found, 0, publish.NODES_MAX, None, (0, 0))
    assert (there.end, there.live) == (len(data), 10)
    assert there.first == (first[0] + base[0], first[1] + base[1])
    assert there.last == (first[0] + base[0], first[1] + base[1] + 9)
    assert found == bytes(packed((first[0] + base[0], first[1] + base[1]), 10))


def test_nodes_behind_a_large_one_are_moved() -> None:
    """Its length takes all four bytes."""
    out = bytearray()
    for seq, size in enumerate((17 << 20, 5), 1):
        rows = codec().rows([{b"v": bytes(size)}])
        (node,) = codec().pack(rows, 0, 1, (0, seq), None, 0, 0, 1 << 30, 4).nodes
        stagefile.put(out, (0, seq), node.lp)
    there = codec().NodeBatch(
        stagefile.moved(bytes(out), (9, 4)), 0, publish.NODES_MAX, None, (0, 0)
    )
    assert (there.live, there.first, there.last) == (2, (9, 5), (9, 6))


def test_published_runs_follow_each_other(path: Path, stage: Pin) -> None:
    """The store gives the IDs, run by run; what tasks wrote is there in the order of the tasks."""
    runs = [*staged(path, stage, (0, 1), 6, 3), *staged(path, stage, (0, 1), 5)]
    pairs = list(zip(runs, stagefile.read(LOCAL, path, runs), strict=True))
    streams = [
        publish.staged(name, [pair for pair in pairs if pair[0].stream == name], own_ids=False)
        for name in (b"s", b"t")
    ]
    with logstore.open(path, background=False) as store:
        rows = committer_of(store).run(
            partial(publish.publish, streams=streams, mode=publish.OVERWRITE)
        )
        assert rows == 14
        found = numbers(iter(store.stream("s")))
        ms = found[0][0]
        assert found == [(ms, seq, n, n) for seq, n in enumerate([*range(6), *range(5)])]
        assert [each[2] for each in numbers(iter(store.stream("t")))] == [0, 1, 2]


def test_a_file_is_made_with_its_first_run_and_durable_before_it_is_told(
    path: Path, stage: Pin
) -> None:
    told = DurableOrder()
    writer = StageWriter(told, path, stage)
    assert writer.finish() == []
    assert (files(path), told.done) == ([stage.id], [])
    writer.add(b"s", True, packed((1, 1), 3), 3, (1, 1), (1, 3))
    (run,) = writer.finish()
    assert told.done == [("sync", run.file), ("directory", file_names.PINS)]
    assert files(path) == sorted([stage.id, run.file])
    assert pinfile.is_ours(run.file)  # it goes with its stage
    assert run.file.startswith(stage.id)


def test_a_task_that_fails_leaves_no_file(path: Path, stage: Pin) -> None:
    """Also not that of a task that had written nothing; and what another wrote stays."""
    (run,) = staged(path, stage, (1, 1), 2)
    for count in (0, 1, 2):
        writer = StageWriter(LOCAL, path, stage)
        for _ in range(count):
            writer.add(b"s", True, packed((1, 1), 3), 3, (1, 1), (1, 3))
        writer.abandon()
        assert files(path) == sorted([stage.id, run.file])


def test_published_files_are_removed_and_no_others(path: Path, stage: Pin) -> None:
    runs, others = staged(path, stage, (1, 1), 2, 3), staged(path, stage, (1, 1), 2)
    assert runs[0].file == runs[1].file != others[0].file
    stagefile.remove(LOCAL, path, runs)
    assert files(path) == sorted([stage.id, others[0].file])


def opened_below(path: Path) -> list[str]:
    """The files below a path that this process has open."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(each.readlink()))
    return [each for each in found if each.startswith(f"{path}/")]


@pytest.mark.parametrize("damage", ["a bit", "cut short", "empty"])
def test_a_damaged_run_is_not_read(path: Path, stage: Pin, damage: str) -> None:
    runs = staged(path, stage, (5, 1), 6, 2)
    file = path / file_names.PINS / runs[0].file
    data = bytearray(file.read_bytes())
    if damage == "a bit":
        data[runs[1].offset + 30] ^= 1
    file.write_bytes(bytes(data) if damage == "a bit" else data[: -1 if damage != "empty" else 0])
    with pytest.raises(CorruptionError, match="run the job again") as caught:
        list(stagefile.read(LOCAL, path, runs))
    assert caught.value.stream == (b"s" if damage == "empty" else b"t")
    assert opened_below(path) == []  # a driver would run out of descriptors


def test_a_run_whose_file_is_gone_is_told(path: Path, stage: Pin) -> None:
    (run,) = staged(path, stage, (5, 1), 6)
    (path / file_names.PINS / run.file).unlink()
    with pytest.raises(SnapshotExpiredError, match="run the job again"):
        list(stagefile.read(LOCAL, path, [run]))
