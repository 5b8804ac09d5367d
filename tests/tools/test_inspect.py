"""Prevents damage that hides what stands behind it, and bytes that are shown as another frame."""

from __future__ import annotations

import json
import random
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.opening import opened_of
from logstore.format import Kind
from logstore.ids import StreamID
from logstore.log.frame import Ack
from logstore.log.log_reader import LogFrame
from logstore.tools.views import inspected
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
def test_inspect_goes_on_past_every_damage(
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
    row = inspected.frame_row(frame)
    assert "from a newer logstore" in row["wrong"]
    assert row["wrong"] in inspected.line_of(row)


def test_packed_ids_are_shown_as_ids() -> None:
    ids = b"".join(n.to_bytes(8, "big") for n in (1, 1, 1, 2))
    assert inspected.plain(Ack(7, ids)) == {"group": 7, "ids": ["1-1", "1-2"]}


def test_a_long_frame_is_cut_where_it_is_shown_to_people(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s") as opened:
        opened.stream("s").add({"a": "x" * 10_000})
    row = max(rows(tmp_path / "s", 1), key=lambda row: row["end"] - row["offset"])
    place = ("inspect", "frame", tmp_path / "s", 1, row["offset"])
    text = ok(*place)
    assert "bytes more: --bytes 0 shows all" in text
    assert text.count("7878") < 4096 / 2
    assert "bytes more" not in ok(*place, "--bytes", 0)


# -- the index, and what it is built from ---------------------------------------------------------
@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sealed and open nodes, deleted entries, a group, hints, two checkpoints."""
    path = tmp_path_factory.mktemp("indexed") / "store"
    with logstore.open(path, segment_bytes=64 << 10, node_max_entries=10) as opened:
        race = opened.stream("race")
        race.add_many((f"{n}-1", {"rider": f"r{n}", "note": "x" * 100}) for n in range(1, 1200))
        race.delete("3-1", "1191-1")
        race.add([("x", "y"), ("x", "z")], "9999-1")
        race.group("g", "0").read("c", count=5)
        opened.checkpoint()
        race.delete("5-1")
        opened.checkpoint()
    return path


def test_the_rows_of_a_stream(indexed: Path) -> None:
    found = objects(ok("inspect", "stream", indexed, "race", "-n", 0, "--json"))
    record, *others = found
    with logstore.open(indexed, readonly=True) as opened:
        info = opened.stream("race").info()
    assert (record["length"], record["last"]) == (info.length, str(info.last_generated_id))
    places = [row for row in others if row["what"] == "node"]
    assert sum(row["live"] for row in places) == info.length
    for row in places[::20]:  # each is where it is said to be
        frame = json.loads(ok("inspect", "frame", indexed, row["segment"], row["offset"], "--json"))
        assert frame["kind"] == ("OPEN" if row["open"] else "NODE")
    group = next(row for row in others if row["what"] == "group")
    assert (group["group"], group["pending"]) == ("g", 5)
    assert len(objects(ok("inspect", "stream", indexed, "race", "-n", 3, "--json"))) == 5
    text = ok("inspect", "stream", indexed, "race", "-n", 2)
    assert re.search(
        rf"^\d+-1 +9999-1 +{places[-1]['segment']} +{places[-1]['offset']} ", text, re.MULTILINE
    )


@pytest.mark.parametrize("id", ["3-1", "1191-1", "9999-1"])
def test_the_entries_of_a_node(indexed: Path, id: str) -> None:
    found = json.loads(ok("inspect", "node", indexed, "race", id, "--json"))
    elements = found["elements"]
    assert [row["offset"] for row in elements[1:]] == [row["end"] for row in elements[:-1]]
    assert elements[-1]["end"] == found["listpack_bytes"]
    entries = [row for row in elements if row["what"] == "entry"]
    entry = next(row for row in entries if row["entry"]["id"] == id)
    assert entry["deleted"] is (id != "9999-1")
    assert sum(not row["deleted"] for row in entries) == found["live"]
    if id == "9999-1":
        assert entry["entry"]["pairs"] == [["x", "y"], ["x", "z"]]
    assert f" {id} " in ok("inspect", "node", indexed, "race", id)


def test_a_node_is_shown_up_to_where_it_breaks(indexed: Path) -> None:
    """Whatever byte is another one, each byte is told of once, and nothing fails."""
    with logstore.open(indexed, readonly=True) as opened:
        record_of = partial(inspected._node_of, name=b"race", wanted=StreamID(3, 1))
        row, lp, vector = opened_of(opened).view(record_of)
    master = StreamID(1, 1)
    assert row["master"] == str(master)
    broken = 0
    for at in range(len(lp)):
        wrong = lp[:at] + bytes([lp[at] ^ 0x41]) + lp[at + 1 :]
        shown = list(inspected._node_elements(wrong, vector, master))
        if shown[0]["what"] == "invalid":
            assert shown[0]["offset"] == 0
        else:
            assert [each["offset"] for each in shown[1:]] == [each["end"] for each in shown[:-1]]
        assert shown[-1]["end"] == len(wrong)
        broken += "wrong" in shown[-1]
    assert broken > 100


def test_a_damaged_node_is_named(indexed: Path, tmp_path: Path) -> None:
    shutil.copytree(indexed, tmp_path / "s")
    found = json.loads(ok("inspect", "node", indexed, "race", "3-1", "--json"))
    frames.flip(frames.file(tmp_path / "s", found["segment"]), found["offset"] + 60)
    done = invoke("inspect", "node", tmp_path / "s", "race", "3-1")
    assert done.exit_code == 1
    assert f"offset {found['offset']}" in done.stderr
    rest = objects(ok("inspect", "stream", tmp_path / "s", "race", "-n", 0, "--json"))
    assert rest == objects(ok("inspect", "stream", indexed, "race", "-n", 0, "--json"))


def test_a_hint_is_that_of_its_segment_or_invalid(indexed: Path, tmp_path: Path) -> None:
    head, *kept = objects(ok("inspect", "hint", indexed, 1, "--json"))
    whole = {row["offset"]: row for row in rows(indexed, 1) if row["what"] == "frame"}
    assert head["frames"] == len(kept) > 10
    for row in kept:
        assert row["crc"] == whole[row["offset"]]["crc"]
        assert row["kind"] == whole[row["offset"]]["kind"]
    shutil.copytree(indexed, tmp_path / "s")
    frames.flip(tmp_path / "s" / "log" / f"{1:020}.hint", 200)
    done = invoke("inspect", "hint", tmp_path / "s", 1)
    assert done.exit_code == 1
    assert "invalid" in done.stdout
    none = invoke("inspect", "hint", indexed, 99)
    assert none.exit_code == 1
    assert "there are: 1" in none.stderr


def test_a_checkpoint_fits_the_log_or_is_invalid(indexed: Path, tmp_path: Path) -> None:
    head, *chunks = objects(ok("inspect", "checkpoint", indexed, "--json"))
    assert head["fits_the_log"]
    assert {"meta", "streams", "groups", "pending", "vectors", "live"} <= {
        chunk["kind"] for chunk in chunks
    }
    text = ok("inspect", "checkpoint", indexed)
    older = re.search(r"^older ones: (\d+)$", text, re.MULTILINE)
    assert older is not None
    assert ok("inspect", "checkpoint", indexed, older[1]) != text
    copy = tmp_path / "s"
    shutil.copytree(indexed, copy)
    newest = max((copy / "checkpoint").iterdir())
    frames.flip(newest, 100)
    done = invoke("inspect", "checkpoint", copy)
    assert done.exit_code == 1
    assert "damaged" in done.stdout
    assert invoke("inspect", "checkpoint", copy, older[1]).exit_code == 0
    shutil.rmtree(copy / "checkpoint")
    assert "'logstore checkpoint' takes one" in invoke("inspect", "checkpoint", copy).stderr
    none = invoke("inspect", "checkpoint", indexed, 5)
    assert none.exit_code == 1
    assert older[1] in none.stderr
