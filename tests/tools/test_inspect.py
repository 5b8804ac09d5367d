"""Prevents damage that hides what stands behind it, and bytes that are shown as another frame."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from logstore.format import Kind
from logstore.log.groupframe import Ack
from logstore.log.reader import LogFrame
from logstore.tools import inspecting
from tests.corruption import frames, shop
from tests.corruption.injections import INJECTIONS, Inject, segment_missing
from tests.tools.commands import invoke, objects, ok

SEED = 18


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> shop.Shop:
    """A bit of everything; damaged as copies only."""
    return shop.make(tmp_path_factory.mktemp("shop") / "store", SEED)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another store with frames of the same lengths."""
    return shop.make(tmp_path_factory.mktemp("other") / "store", SEED).path


@pytest.fixture(scope="module")
def everything(made: shop.Shop) -> list[LogFrame]:
    """All its frames."""
    return frames.everything(made.path)


def rows(path: Path, number: int) -> list[dict[str, Any]]:
    """What it says of a segment, damaged or not."""
    done = invoke("inspect", "segment", path, number, "--json")
    found = objects(done.stdout)
    assert done.exit_code == any(row["what"] == "invalid" for row in found), done.output
    return found


def covers(found: list[dict[str, Any]], size: int) -> bool:
    """Whether each byte of the file is told of once."""
    ends = [0, *(row["end"] for row in found)]
    return [row["offset"] for row in found] == ends[:-1] and ends[-1] == size


def test_every_frame_of_a_whole_store(made: shop.Shop, everything: list[LogFrame]) -> None:
    for number in frames.segments(made.path):
        found = rows(made.path, number)
        assert covers(found, frames.file(made.path, number).stat().st_size)
        assert [(row["offset"], row["crc"]) for row in found if row["what"] == "frame"] == [
            (each.offset, each.crc) for each in everything if each.segment == number
        ]
        assert not [row for row in found if row["what"] == "invalid" or "wrong" in row]


@pytest.mark.parametrize("inject", INJECTIONS)
def test_it_goes_on_past_every_damage(
    made: shop.Shop, other: Path, everything: list[LogFrame], tmp_path: Path, inject: Inject
) -> None:
    copy = tmp_path / "store"
    shutil.copytree(made.path, copy, ignore=shutil.ignore_patterns("index", "WAKE"))
    rng = random.Random(SEED)
    done = next(filter(None, (inject(copy, other, rng) for _ in range(20))), None)
    assert done is not None  # (None: the segment was too small)
    if inject is segment_missing:
        gone = invoke("inspect", "segment", copy, int(done.what))
        assert gone.exit_code == 1
        assert f"there is no segment {done.what}" in gone.stderr
    numbers = [done.segment] if done.segment else frames.segments(copy)
    for number in numbers:
        found = rows(copy, number)
        assert covers(found, frames.file(copy, number).stat().st_size)
        shown = {(row["offset"], row["crc"]) for row in found if row["what"] == "frame"}
        assert shown == {
            (each.offset, each.crc)
            for each in everything
            if each.segment == number and not done.hits(each)
        }, done


def test_a_frame_is_shown_with_its_entries_and_bytes(store: Path) -> None:
    row = next(row for row in rows(store, 1) if row.get("kind") == "OPEN")
    found = json.loads(ok("inspect", "frame", store, 1, row["offset"], "--json"))
    assert found["entries"] == [{"id": "1-1", "fields": {"rider": "Castilla", "speed": "30.2"}}]
    raw = frames.file(store, 1).read_bytes()[row["offset"] : row["end"]]
    assert bytes.fromhex(found["bytes"]) == raw
    text = ok("inspect", "frame", store, 1, row["offset"])
    assert "OPEN" in text
    assert raw[:4].hex() in text


def test_no_frame_is_told_with_its_reason(store: Path) -> None:
    frames.flip(frames.file(store, 1), 64 + 33)
    done = invoke("inspect", "frame", store, 1, 64)
    assert done.exit_code == 1
    assert "the checksum does not fit" in done.stdout


def test_an_offset_behind_the_file_is_refused(store: Path) -> None:
    done = invoke("inspect", "frame", store, 1, 1 << 40)
    assert done.exit_code == 1
    assert "give a lower offset" in done.stderr


def test_a_frame_with_a_right_checksum_and_a_wrong_body_is_told() -> None:
    frame = LogFrame(1, 64, 0, 1, 0, 0, Kind.COPY, 1, 0, b"")
    row = inspecting.frame_row(frame)
    assert "from a newer logstore" in row["wrong"]
    assert row["wrong"] in inspecting.line_of(row)


def test_packed_ids_are_shown_as_ids() -> None:
    ids = b"".join(n.to_bytes(8, "big") for n in (1, 1, 1, 2))
    assert inspecting.plain(Ack(7, ids)) == {"group": 7, "ids": ["1-1", "1-2"]}
