"""Prevents damage in the log from going unnoticed, from spreading, or from being cut away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.commit import log_tail
from logstore.engine.snapshots import snapshot
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.log import chain, file_names, segment, storefile
from logstore.log import frame as frames
from logstore.recovery.check import check
from logstore.recovery.recover import recover
from logstore.recovery.replay_guard import Orphan, ReplayGuard
from logstore.recovery.report import RecoveryReport
from logstore.recovery.salvage.run import salvage
from tests.corruption import frames as stored
from tests.corruption import shop
from tests.support.processes import Forked


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
def test_an_orphan_removed_by_later_frames_is_none(
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
def test_salvage_reports_losses_of_known_streams_only(
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


def add(store: logstore.Store[bytes]) -> None:
    """Some segments."""
    for n in range(20):
        store.stream("s").add({"n": n, "pad": "x" * 10_000})


def fill(path: Path) -> None:
    """A store of some segments, closed cleanly."""
    with opened(path) as store:
        add(store)


def opened(path: Path) -> logstore.Store[bytes]:
    return logstore.open(path, segment_bytes=64 << 10, background=False)


def forget(path: Path) -> None:
    """As a copy of the log has it: without index and marks."""
    (path / file_names.BOOT).unlink()
    shutil.rmtree(path / file_names.INDEX)


def lose_newest(path: Path) -> int:
    """Its number."""
    number = file_names.segments(LOCAL, path)[-1]
    file_names.segment(path, number).unlink()
    return number


def test_a_seal_with_a_hint_had_a_successor(tmp_path: Path) -> None:
    """A copy of a store, without index and marks, that lacks its newest segment."""
    path = tmp_path / "store"
    fill(path)
    forget(path)
    number = lose_newest(path)
    assert number > 2
    assert [each.segment for each in check(path).damage] == [number]
    for readonly in (False, True):
        with pytest.raises(logstore.DamagedStoreError, match=f"segment {number} is missing"):
            logstore.open(path, readonly=readonly)
    assert number not in file_names.segments(LOCAL, path)
    taken = salvage(path, tmp_path / "rescued")
    assert [each.segment for each in taken.damage] == [number]
    assert 0 < taken.entries < 20
    assert [each.segment for each in recover(path).damage] == [number]
    with logstore.open(path) as store:
        left = [int(entry.fields[b"n"]) for entry in store.stream("s")]
        assert left == list(range(len(left)))
        assert len(left) == taken.entries
        store.stream("s").add({"n": 20})
    assert check(path).damage == []


def test_without_a_hint_it_was_a_dead_writer(tmp_path: Path) -> None:
    """Who dies between the seal and the next segment loses nothing: the next opener makes it."""
    path = tmp_path / "store"
    fill(path)
    forget(path)
    number = lose_newest(path)
    file_names.hint(path, number - 1).unlink()
    assert check(path).damage == []
    with logstore.open(path) as store:
        store.stream("s").add({"n": 20})
    assert check(path).damage == []


def test_after_a_clean_close_the_index_does_not_hide_it(tmp_path: Path) -> None:
    """The log ends with a seal that was durable, and the index stands there: a segment that nothing
    was written to yet."""
    path = tmp_path / "store"
    fill(path)
    with opened(path) as store:
        engine = store._engine()
        with store._live().committer.locked() as words:
            log_tail.roll_locked(engine, words)
    number = lose_newest(path)
    assert file_names.hint(path, number - 1).exists()
    with pytest.raises(logstore.DamagedStoreError, match=rf"segment {number}.* is missing"):
        logstore.open(path)
    assert number not in file_names.segments(LOCAL, path)
    recover(path)
    with logstore.open(path) as store:
        assert len(store.stream("s")) == 20
    assert check(path).damage == []


@pytest.mark.parametrize("marks", [True, False])
def test_the_number_of_a_lost_segment_is_not_given_again(tmp_path: Path, *, marks: bool) -> None:
    """The hint of a lost one would speak of the one that has its number now; so would a mark."""
    path = tmp_path / "store"
    fill(path)
    if not marks:
        forget(path)
    newest, before = lose_newest(path), lose_newest(path)
    assert file_names.hint(path, before).exists()
    recover(path)
    assert file_names.segments(LOCAL, path)[-1] > (newest if marks else before)
    with logstore.open(path) as store:
        assert 0 < len(store.stream("s")) < 20
        store.stream("s").add({"n": 20})
    assert check(path).damage == []


def test_a_checkpoint_in_a_lost_segment_does_not_keep_it_shut(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        add(store)
        store.checkpoint()
    number = lose_newest(path)
    with pytest.raises(logstore.DamagedStoreError, match="ends before the position"):
        logstore.open(path)
    recover(path)
    assert file_names.segments(LOCAL, path)[-1] > number
    for more in range(2):
        with logstore.open(path) as store:
            left = [int(entry.fields[b"n"]) for entry in store.stream("s")]
            store.stream("s").add({"n": 20 + more})
    assert left[-1] == 20
    assert left[:-1] == list(range(len(left) - 1))
    assert check(path).damage == []
    forget(path)
    with logstore.open(path) as store:
        assert len(store.stream("s")) == len(left) + 1


def test_a_compacted_segment_is_no_successor(tmp_path: Path) -> None:
    """Its number may be above that of the segment that was lost."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=64 << 10, background=False) as store:
        add(store)
    uuid = storefile.read(LOCAL, path).uuid
    newest = chain.main_links(LOCAL, path, uuid)[-1].number
    head = segment.SegmentHead(fmt.Role.COMPACTED, newest + 1, uuid, 0, 0, 0)
    segment.create(LOCAL, path, head).close()
    file_names.segment(path, newest).unlink()
    with pytest.raises(logstore.DamagedStoreError, match=r"is missing|ends before"):
        logstore.open(path)


def test_an_index_that_is_still_trusted_knows_better(tmp_path: Path) -> None:
    """The writer was killed: no mark says how far the log must reach, and no hint was written."""
    path = tmp_path / "store"

    with Forked(lambda: add(opened(path))):
        pass
    number = lose_newest(path)
    assert not file_names.hint(path, number - 1).exists()
    with pytest.raises(logstore.DamagedStoreError, match=f"segment {number} is missing"):
        logstore.open(path)
    assert recover(path).rebuilt
    with logstore.open(path) as store:
        store.stream("s").add({"n": 20})
    assert check(path).damage == []
