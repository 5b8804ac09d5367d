"""Prevents a salvage from telling less, more or other than what is gone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.errors import OptionError
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.log import segment
from logstore.log.frame import Node
from logstore.log.log_reader import LogFrame
from logstore.recovery.check import check
from logstore.recovery.recover import recover
from logstore.recovery.report import LostEntries
from logstore.recovery.salvage import run as salvaging
from logstore.recovery.salvage.lost import merged
from logstore.recovery.salvage.run import UNSEEN, SalvageReport, salvage
from tests.corruption import frames, shop
from tests.corruption.shop import FAR_MS, Shop
from tests.recovery import small_store

X, Y, ALL_Y = [1, 4, 5, 6, 7, 8, 10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], list(range(1, 11))
BY_FRAME = "by the damaged frame itself"
BY_LENGTH = "by the number of entries that the stream had"
Told = tuple[bytes, int, int, int, str]  # stream, from, to, entries, why
# The frames in their order; what is told to be gone, and what is left of x and of y.
FRAMES: list[tuple[Kind, list[Told], list[int], list[int]]] = [
    (Kind.CREATE, [], X, Y),
    (Kind.OPEN, [], X, Y),
    (Kind.APPEND, [(b"x", 2, 2, 1, BY_FRAME)], X, Y),
    (Kind.APPEND, [(b"x", 3, 3, 1, BY_FRAME)], X, Y),
    (Kind.APPEND, [], X, Y),
    (Kind.NODE, [(b"x", 1, 4, 2, BY_FRAME)], X, Y),
    (Kind.OPEN, [], X, Y),
    (Kind.APPEND, [], X, Y),
    (Kind.APPEND, [], X, Y),
    (Kind.APPEND, [], X, Y),
    (Kind.NODE, [], X, Y),
    # What was appended to the lost beginning cannot be read either.
    (Kind.OPEN, [(b"x", 9, 9, 1, BY_FRAME), (b"x", 0, 10, 1, BY_LENGTH)], X[:-1], Y),
    (Kind.APPEND, [(b"x", 10, 10, 1, BY_FRAME)], X[:-1], Y),
    (Kind.CREATE, [], X, Y),
    (Kind.NODE, [(b"y", 1, 4, 4, BY_FRAME)], X, Y[4:]),
    (Kind.NODE, [(b"y", 5, 8, 4, BY_FRAME)], X, Y[:4] + Y[8:]),
    (Kind.OPEN, [(b"y", 9, 10, 2, BY_FRAME)], X, Y[:8]),
    (Kind.RECORD, [], X, Y),
    (Kind.TOMBSTONE, [], [1, 2, 3, 4, 5, 6, 7, 8, 10], Y),
    (Kind.TOMBSTONE, [], [1, 4, 5, 6, 7, 8, 9, 10], Y),
    (Kind.RECORD, [], ALL_Y, Y),  # the last of its commit: no frame of it counts
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Opened as copies only; without an index."""
    path = tmp_path_factory.mktemp("told") / "store"
    small_store.make(path)
    shutil.rmtree(path / "index")
    assert [each.kind for each in frames.everything(path)] == [each[0] for each in FRAMES]
    return path


def _master(frame: LogFrame) -> int:
    body = frame.body()
    assert isinstance(body, Node)
    return body.master_ms


def _names(nth: int) -> tuple[bytes, bytes]:
    lost = {0: (b"stream-1-whose-name-was-lost", b"y"), 13: (b"x", b"stream-2-whose-name-was-lost")}
    return lost.get(nth, (b"x", b"y"))


@pytest.mark.parametrize("nth", range(len(FRAMES)))
def test_salvage_reports_the_content_of_each_lost_frame(
    nth: int, made: Path, tmp_path: Path
) -> None:
    kind, gone, x, y = FRAMES[nth]
    path = shutil.copytree(made, tmp_path / "store")
    log = frames.everything(path)
    frame, last_of_x = log[nth], log[-1]
    small_store.cut(path, frame)
    done: list[tuple[int, int]] = []
    report = salvage(path, tmp_path / "new", progress=lambda *each: done.append(each))
    names = _names(nth)
    assert small_store.held(tmp_path / "new") == dict(zip(names, (x, y), strict=True))
    assert [
        (each.stream, each.first.ms, each.last.ms, each.entries, each.why) for each in report.gone
    ] == gone
    places = {BY_FRAME: frame.offset, BY_LENGTH: last_of_x.offset}
    assert all((each.segment, each.offset) == (1, places[each.why]) for each in report.gone)
    assert [each[:3] for each in report.damage] == [(1, frame.offset, frame.end_offset)]
    again = [f"node {_master(frame)}-"] if kind == Kind.NODE and nth < 13 else []
    assert [each[: len(again[0])] for each in report.unsure[:-1]] == again
    assert report.unsure[-1] == UNSEEN
    assert report.unsure[0].startswith("node ") == bool(again)
    assert not report.whole
    assert report.index == "built from what the log still says"
    assert (report.streams, report.entries) == (2, len(x) + len(y))
    assert (report.groups, report.pending, report.scheduled) == (0, 0, 0)
    # One that is made behind a damaged active segment has a header, and is looked at as well.
    size, made_bytes = log[-1].end_offset, fmt.SEGMENT_HEAD_BYTES * (nth < len(FRAMES) - 1)
    total = 2 * (size + made_bytes)
    assert [each[1] for each in done] == [total] * len(done)
    assert done[0][0] == size
    assert done == sorted(done)
    assert size + made_bytes < done[-1][0] <= total


@pytest.mark.parametrize("nth", range(len(FRAMES)))
def test_past_a_damaged_frame_all_others_are_recovered(
    nth: int, made: Path, tmp_path: Path
) -> None:
    """Nodes whose seal is lost are left to a salvage; nothing else is missing."""
    kind, _, x, y = FRAMES[nth]
    path = shutil.copytree(made, tmp_path / "store")
    log = frames.everything(path)
    small_store.cut(path, log[nth])
    report = recover(path)
    assert report.rebuilt
    assert 0 <= report.rebuild_ms < 600_000  # not a point in time
    assert [each[:3] for each in report.damage] == [(1, log[nth].offset, log[nth].end_offset)]
    left = x
    if kind == Kind.NODE and nth < 13:
        first = _master(log[nth])
        left = [ms for ms in x if not first <= ms < first + 4]
    assert small_store.held(path) == dict(zip(_names(nth), (left, y), strict=True))


def test_a_segment_that_is_missing_takes_its_entries_along(made: Path, tmp_path: Path) -> None:
    """And nothing else: what is behind it is read, under names that were lost with it."""
    path = shutil.copytree(made, tmp_path / "store")
    last = frames.everything(path)[-1]
    end = fmt.position(1, last.end_offset)
    uuid = frames.uuid(path)
    segment.create(
        LOCAL, path, segment.SegmentHead(fmt.Role.MAIN, 2, uuid, end, last.commit, 0)
    ).close()
    with logstore.open(path, background=False, encoding=None) as store:
        for ms in range(20, 26):
            store.stream("z").add({b"n": b"%d" % ms}, f"{ms}-{ms}")
    shutil.rmtree(path / "index")
    frames.file(path, 1).unlink()
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    report = salvage(path, tmp_path / "new")
    assert small_store.held(tmp_path / "new") == {b"z": list(range(20, 26))}
    assert [(each.stream, each.segment) for each in report.gone] == [(b"", 1)]
    assert [each[:3] for each in report.damage] == [(1, 0, 0)]
    assert not report.whole
    again = recover(path)
    assert {each[:3] for each in again.damage} == {(1, 0, 0)}
    assert small_store.held(path) == {b"z": list(range(20, 26))}


def test_losses_of_a_dropped_stream_are_reported_without_a_name(tmp_path: Path) -> None:
    """Its number says no name: the bytes are told, under none."""
    path = tmp_path / "store"
    small_store.make(path)
    with logstore.open(path, background=False) as store:
        store.drop("y")
    shutil.rmtree(path / "index")
    log = frames.everything(path)
    small_store.cut(path, log[14])
    report = salvage(path, tmp_path / "new")
    assert small_store.held(tmp_path / "new") == {b"x": X}
    (gone,) = report.gone
    assert (gone.stream, gone.entries, gone.offset) == (b"", None, log[14].offset)
    assert "cannot be told" in gone.why


def gone(first: int, last: int, **other: object) -> LostEntries:
    plain = LostEntries(
        b"s", StreamID(first, 0), StreamID(last, 0), last - first + 1, 2, first, "cut off"
    )
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


PARTS = ("live", "infos", "settings", "scheduled")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A store with a bit of everything; closed cleanly, and never opened again."""
    path = tmp_path_factory.mktemp("out") / "store"
    found = Shop(path)
    with logstore.open(path, node_max_entries=8, background=False) as store:
        long = store.stream("long")
        long.add_many([[(b"n", b"%d" % n)] for n in range(1, 101)])
        long.delete(*(entry.id for entry in list(long)[::7]))
        group = long.group("readers")
        group.create(start="0")
        group.configure(max_deliveries=7, dead_letter="dead")
        group.read("ann", count=5)
        long.group("others").create(start="$")
        for n in range(5):
            store.stream("later").schedule([(b"n", b"%d" % n)], at=FAR_MS + n)
        store.stream("later").schedule([(b"n", b"5")], every=9e6, name="again")
        store.stream("short").add([(b"n", b"1")], id="1-0")
        store.stream("short").configure(max_entries=1000)
        store.stream("short").expire(at=FAR_MS)
        store.create("empty")
        store.stream("once").add([(b"n", b"1")], producer="p", idempotent_id="one")
        shop.take_down(store, found)
    return found


def _kept(path: Path) -> list[object]:
    """What is set for groups and streams beside settings, and what repeats."""
    with logstore.open(path, background=False) as store:
        groups = [store.stream("long").group(name).settings for name in ("readers", "others")]
        again = [(each.name, each.every, each.due) for each in store.stream("later").scheduled()]
        return [*groups, again, *(store.stream(name).expires_at for name in store.streams())]


@pytest.mark.parametrize(
    ("piece_bytes", "scheduled"), [(1, 1), (150, 2), (400, 5), (1 << 20, 1000)]
)
def test_salvage_of_a_whole_store_has_everything(
    whole: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, scheduled: int
) -> None:
    path = shutil.copytree(whole.path, tmp_path / "store")
    kept = _kept(path)
    assert sum(each is not None for each in kept) == 4
    assert "7" in str(kept[0])
    monkeypatch.setattr(salvaging, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(salvaging, "SCHEDULED_A_COMMIT", scheduled)
    told: list[tuple[int, int]] = []
    report = salvage(whole.path, tmp_path / "new", progress=lambda *each: told.append(each))
    assert report.whole
    assert (report.index, report.destination) == ("its own", str(tmp_path / "new"))
    assert (report.damage, report.gone, report.unsure) == ([], [], [])
    assert report.streams == len(whole.live) == 5
    assert report.entries == sum(map(len, whole.live.values()))
    assert (report.groups, report.pending, report.scheduled) == (2, 5, 6)
    found = Shop(tmp_path / "new")
    with logstore.open(tmp_path / "new", background=False) as store:
        shop.take_down(store, found)
    for part in PARTS:
        assert getattr(found, part) == getattr(whole, part), part
    assert _kept(tmp_path / "new") == kept
    assert check(tmp_path / "new").as_dict()["clean"]
    assert told == sorted(told)
    assert told[-1][0] <= told[-1][1]


def test_refused_destinations_of_salvage(whole: Shop, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").touch()
    with pytest.raises(OptionError, match="is not empty"):
        salvage(whole.path, tmp_path / "full")
    for inside in (whole.path / "new", whole.path / "log" / ".." / "new"):
        with pytest.raises(OptionError, match="in the damaged store itself"):
            salvage(whole.path, inside)
    beside = whole.path.with_name(whole.path.name + "-new")
    assert salvage(whole.path, beside).whole
    shutil.rmtree(beside)


def test_the_report_of_a_whole_and_of_an_empty_salvage(whole: Shop, tmp_path: Path) -> None:
    told = salvage(whole.path, tmp_path / "new").as_dict()
    assert told["whole"] is True
    assert (told["gone"], told["damage"], told["streams"]) == ([], [], 5)
    empty = SalvageReport()
    assert empty.whole
    assert not any(value for name, value in empty.as_dict().items() if name != "whole")
    assert not SalvageReport(unsure=["one"]).whole
