"""Prevents damage in the log from going unnoticed, from spreading, or from being cut away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore.recovery.check import check
from logstore.recovery.recover import recover


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """A cleanly closed store of three segments, everything synced at once."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=1 << 17, sync="always") as store:
        for turn in range(8):
            store.stream("x").add_many({"n": n} for n in range(3000))
            store.stream("y").add({"turn": turn})
    return path


def segments(path: Path) -> list[Path]:
    """Log files, ascending."""
    return sorted((path / "log").glob("*.log"))


def flip(file: Path, share: float) -> int:
    """Flip one bit; its offset."""
    data = bytearray(file.read_bytes())
    at = int(len(data) * share)
    data[at] ^= 0x10
    file.write_bytes(data)
    return at


def test_a_sound_store_is_clean_and_its_index_agrees(store_path: Path) -> None:
    found = check(store_path)
    assert found.damage == []
    assert found.tail_bytes == 0
    assert found.index == "agrees with the log"
    assert (found.streams, found.entries) == (2, 24_008)


@pytest.mark.parametrize("share", [0.001, 0.2, 0.5, 0.8, 0.999])
@pytest.mark.parametrize("number", [0, 1])
def test_a_flipped_bit_is_found_where_it_is(store_path: Path, number: int, share: float) -> None:
    at = flip(segments(store_path)[number], share)
    places = [found for found in check(store_path).damage if found.to_offset]
    assert any(found.from_offset <= at < found.to_offset for found in places)


def test_neighbours_of_damage_stay_readable_after_recover(store_path: Path) -> None:
    active = segments(store_path)[-1]
    at = flip(active, 0.3)
    shutil.rmtree(store_path / "index")
    with pytest.raises(logstore.DamagedStoreError, match="recover"):
        logstore.open(store_path)
    before = active.read_bytes()
    report = recover(store_path)
    assert any(found.from_offset <= at < found.to_offset for found in report.damage)
    assert active.read_bytes() == before, "nothing may be cut"
    with logstore.open(store_path) as store:
        left = sum(1 for _ in store.stream("x"))
        assert 24_000 - 200 <= left < 24_000
        store.stream("x").add({"after": "recover"})
    with logstore.open(store_path) as store:
        assert sum(1 for _ in store.stream("x")) == left + 1


def test_a_damaged_node_raises_with_its_place_and_others_read_on(store_path: Path) -> None:
    flip(segments(store_path)[0], 0.45)  # in a node
    with logstore.open(store_path) as store:
        stream = store.stream("x")
        with pytest.raises(logstore.CorruptFrameError) as caught:
            list(stream)
        assert caught.value.segment == 1
        assert caught.value.offset
        assert stream.last is not None
        assert stream.first is not None


def test_an_unacknowledged_tail_is_told_apart_from_damage(store_path: Path) -> None:
    active = segments(store_path)[-1]
    active.write_bytes(active.read_bytes() + b"\xff" * 777)
    found = check(store_path)
    assert found.damage == []
    assert found.tail_bytes == 777
    with logstore.open(store_path) as store:
        assert store.recovery["torn_bytes"] == 777
        assert len(store.stream("x")) == 24_000
    assert check(store_path).tail_bytes == 0
    assert list((store_path / "quarantine").iterdir()), "the tail is set aside, not thrown away"


def test_a_log_cut_short_behind_a_clean_close_is_refused(store_path: Path) -> None:
    active = segments(store_path)[-1]
    active.write_bytes(active.read_bytes()[:-100])
    with pytest.raises(logstore.DamagedStoreError, match="recover"):
        logstore.open(store_path)
    recover(store_path)
    with logstore.open(store_path) as store:
        assert len(store.stream("y")) in (7, 8)


def test_a_missing_segment_is_refused_and_named(store_path: Path) -> None:
    first = segments(store_path)[0]
    first.unlink()
    shutil.rmtree(store_path / "index")
    with pytest.raises(logstore.DamagedStoreError, match="segment 1 is missing"):
        logstore.open(store_path)
    assert check(store_path).damage


def test_a_bad_hint_is_told_and_does_no_harm(store_path: Path) -> None:
    hint = next((store_path / "log").glob("*.hint"))
    flip(hint, 0.5)
    assert any("hint" in found.why for found in check(store_path).damage)
    shutil.rmtree(store_path / "index")
    with logstore.open(store_path) as store:
        assert len(list(store.stream("x"))) == 24_000


@pytest.mark.parametrize("reopened", [False, True])
def test_damage_before_a_clean_close_is_never_taken_for_a_torn_tail(
    tmp_path: Path, reopened: bool
) -> None:
    """Under everysec no later frame need know the bytes durable: the mark of the close does."""
    path = tmp_path / "store"
    with logstore.open(path, sync="os") as store:
        store.stream("x").add_many({"n": n} for n in range(5000))
    if reopened:  # the mark itself is gone, what it recorded is not
        store = logstore.open(path, sync="os", background=False)
        store.stream("x").add({"late": 1})
        copy = tmp_path / "copy"
        shutil.copytree(path, copy, ignore=shutil.ignore_patterns("index", "WAKE"))
        store.close()
        path = copy
    flip(segments(path)[-1], 0.5)
    shutil.rmtree(path / "index", ignore_errors=True)
    assert check(path).damage
    with pytest.raises(logstore.DamagedStoreError, match="recover"):
        logstore.open(path)
    recover(path)
    with logstore.open(path) as store:
        assert 4700 <= sum(1 for _ in store.stream("x")) <= 5001


def test_a_directory_of_other_files_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader", encoding="utf-8")
    with pytest.raises(logstore.NotAStoreError, match="other files"):
        logstore.open(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]
