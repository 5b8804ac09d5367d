"""Prevents a node whose end was lost from coming back after later frames removed it, and a segment
of which nothing is left from being passed over in silence.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.snapshots import snapshot
from logstore.format import Kind
from logstore.ids import StreamID
from logstore.log import frame as frames
from logstore.recovery.recover import recover
from logstore.recovery.replay_guard import Orphan, ReplayGuard
from logstore.recovery.report import RecoveryReport
from logstore.recovery.salvage.run import salvage
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
    gaps = ReplayGuard(NONE, RecoveryReport())
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


def _block(path: Path) -> None:
    number = stored.segments(path)[-1]
    stored.patch(stored.file(path, number), 12_288, bytes(4096))


def _first_half(path: Path) -> None:
    file = stored.file(path, stored.segments(path)[0])
    stored.patch(file, 200, bytes(file.stat().st_size // 2))


@pytest.mark.parametrize("damage", [_block, _first_half])
def test_what_is_gone_is_of_a_stream_that_was_or_of_none(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    made = shop.make(tmp_path / "store", 11)
    damage(made.path)
    for hint in (made.path / "log").glob("*.hint"):
        hint.unlink()
    report = salvage(made.path, tmp_path / "new")
    assert report.gone
    for each in report.gone:
        assert not each.stream or each.stream in made.ever or b"lost" in each.stream
        assert each.entries is None or each.entries > 0
        if not each.stream:
            assert each.as_dict()["stream"] is None


def test_an_index_ahead_of_the_log_is_not_used_to_salvage(tmp_path: Path) -> None:
    made = shop.make(tmp_path / "store", 11)
    sound = salvage(made.path, tmp_path / "sound")
    assert (sound.index, sound.groups) == ("its own", 1)
    file = stored.file(made.path, stored.segments(made.path)[-1])
    last = stored.of(made.path, stored.segments(made.path)[-1])[-1]
    with file.open("r+b") as log:
        log.truncate(last.offset)
    assert salvage(made.path, tmp_path / "new").index != "its own"


def test_after_damage_a_record_names_an_open_node_only_if_it_is_there(tmp_path: Path) -> None:
    """Or the next add would look for it."""
    made = shop.make(tmp_path / "store", 11)
    for kind in (Kind.OPEN, Kind.APPEND):
        for nth in (-1, -2, -3):
            copy = shutil.copytree(made.path, tmp_path / f"{int(kind)}{nth}")
            stored.spoil(copy, [each for each in stored.everything(copy) if each.kind == kind][nth])
            for hint in (copy / "log").glob("*.hint"):
                hint.unlink()
            shutil.rmtree(copy / "index")
            recover(copy)
            with logstore.open(copy, encoding=None, background=False) as store:

                def look(view: snapshot.Snapshot) -> list[bytes]:
                    return [
                        record.name
                        for record in view.index.records()
                        if bool(record.open_version)
                        != (view.index.open_node(record.number) is not None)
                    ]

                assert snapshot.read(store._engine(), look) == []
                for name in made.ever:
                    if name in store:
                        store.stream(name).add({b"more": b"1"}, "9999999999999-0")
