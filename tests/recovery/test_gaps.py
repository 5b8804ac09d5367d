"""Prevents a node whose end was lost from coming back after later frames removed it, and a segment
of which nothing is left from being passed over in silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logstore.ids import StreamID
from logstore.log import frame as frames
from logstore.recovery.gaps import Gaps, Orphan
from logstore.recovery.report import RecoveryReport
from logstore.recovery.salvage import salvage
from tests.corruption import frames as stored
from tests.corruption import shop

NONE: Any = None  # no state is asked for these frames


def _key(stream: int, ms: int) -> tuple[int, StreamID]:
    return stream, StreamID(ms, 0)


ALL = {_key(1, 10), _key(1, 20), _key(1, 30), _key(2, 20)}


def _adopt(*replaced: int) -> frames.Adopt:
    item = frames.AdoptItem(1, 10, 0, 30, 0, 64, 9, 1, tuple((ms, 0) for ms in replaced))
    return frames.Adopt(4, (item,))


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (frames.Drop(1), {_key(2, 20)}),
        (frames.Drop(3), ALL),
        (frames.Trim(1, 10, 0, 20, 0), {_key(1, 30), _key(2, 20)}),
        (frames.Trim(1, 11, 0, 19, 0), ALL),
        (frames.Trim(2, 0, 0, 99, 0), ALL - {_key(2, 20)}),
        (_adopt(20), ALL - {_key(1, 20)}),
        (_adopt(10, 30, 77), {_key(1, 20), _key(2, 20)}),
        (frames.Note(b"x"), ALL),
    ],
)
def test_what_later_frames_removed_is_no_orphan(
    body: frames.Body, left: set[tuple[int, StreamID]]
) -> None:
    gaps = Gaps(NONE, RecoveryReport())
    gaps.orphans = {key: Orphan(5, 0) for key in ALL}
    assert gaps.certain(NONE, 999, body) == body
    assert set(gaps.orphans) == left


def test_a_segment_of_which_nothing_is_left(tmp_path: Path) -> None:
    """It is named as a whole, what was in it is gone, and the other segments are read."""
    made = shop.make(tmp_path / "store", 11)
    number = stored.segments(made.path)[1]
    file = stored.file(made.path, number)
    size = file.stat().st_size
    file.write_bytes(bytes(size))
    for hint in (made.path / "log").glob("*.hint"):
        hint.unlink()
    report = salvage(made.path, tmp_path / "new")
    told = [each for each in report.damage if each.segment == number]
    assert any(each[1:3] == (0, size) and "nor a frame" in each.why for each in told)
    assert report.streams > 0
    assert not report.whole
