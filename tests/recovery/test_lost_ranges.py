"""Prevents a salvage from telling thousands of losses of one cause one by one, and a range that
covers what is there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import logstore
from logstore.ids import StreamID
from logstore.recovery.report import Gone
from logstore.recovery.salvage.lost import merged
from logstore.recovery.salvage.run import salvage


def gone(first: int, last: int, **other: object) -> Gone:
    plain = Gone(b"s", StreamID(first, 0), StreamID(last, 0), last - first + 1, 2, first, "cut off")
    return plain._replace(**other)  # type: ignore[arg-type]


def test_neighbours_become_one_and_others_stay() -> None:
    there = {5}

    def between(_stream: bytes, low: StreamID, high: StreamID) -> bool:
        return any(low.ms < each < high.ms for each in there)

    rows = [
        gone(1, 2, why="cut off (segment 2, offset 1)"),
        gone(3, 4, why="cut off (segment 2, offset 3)"),
        gone(6, 7), gone(8, 9, stream=b"other"), gone(8, 9), gone(10, 10, why="another"),
        gone(11, 11, segment=3), gone(12, 12, segment=3, entries=None),
        gone(0, 0, stream=b""), gone(0, 0, stream=b""),
    ]  # fmt: skip
    assert merged(rows, between) == [
        gone(1, 4), gone(6, 9), gone(8, 9, stream=b"other"), gone(10, 10, why="another"),
        gone(11, 12, segment=3, entries=None), gone(0, 0, stream=b""), gone(0, 0, stream=b""),
    ]  # fmt: skip


def test_a_segment_that_is_cut_off_is_a_line_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=64 << 10, background=False) as store:
        for name in ("a", "b"):
            rows = [{"n": str(n), "pad": "x" * 30} for n in range(700)]
            store.stream(name).add_many(rows)
            store.stream(name).add_many(rows)
        all_ids = {name: [entry.id for entry in store.stream(name)] for name in ("a", "b")}
    shutil.rmtree(path / "index")
    (path / "BOOT").unlink()
    segments = sorted((path / "log").glob("*.log"))
    os.truncate(segments[1], 2000)
    report = salvage(path, tmp_path / "new")
    told = [each for each in report.gone if each.stream]
    assert 1 <= len(told) <= 6  # where there were some 15 nodes
    assert any((each.entries or 0) > 300 for each in told)
    with logstore.open(tmp_path / "new") as store:
        for name, ids in all_ids.items():
            kept = {entry.id for entry in store.stream(name)}
            here = [each for each in told if each.stream == name.encode()]
            lost = [id for id in ids if id not in kept]
            assert all(any(each.first <= id <= each.last for each in here) for id in lost)
