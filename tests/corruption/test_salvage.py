"""Prevents a salvage that loses what could be read, invents entries, or says less than is gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore.format import Kind
from logstore.ids import ZERO_ID, StreamID
from logstore.options import IMPORTING
from logstore.rdb import dump_payload
from logstore.rdb.value import GROUPS_AT_ONCE, GroupValue, StreamInfoValue, StreamValue
from logstore.recovery.check import check
from logstore.recovery.salvage.run import salvage
from tests.corruption import frames, shop
from tests.corruption.reading import held_against, read
from tests.corruption.shop import Shop
from tests.tools.commands import invoke, no_traceback, process

Spoil = Callable[[Path], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Opened as copies only."""
    return shop.make(tmp_path_factory.mktemp("shop") / "store", 7)


@pytest.fixture
def store(made: Shop, tmp_path: Path) -> Path:
    """A copy; its index is rebuilt, as of any copy."""
    path = tmp_path / "store"
    shutil.copytree(made.path, path, ignore=shutil.ignore_patterns("index", "WAKE", "BOOT"))
    return path


def tree(path: Path) -> dict[str, bytes]:
    """Every file."""
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_salvage_of_a_sound_store_is_whole(made: Shop, tmp_path: Path) -> None:
    before = tree(made.path)
    report = salvage(made.path, tmp_path / "new")
    assert report.whole
    assert not report.damage
    assert report.index == "its own"
    assert tree(made.path) == before
    found = read(tmp_path / "new")
    for part in ("live", "infos", "settings", "scheduled"):
        assert getattr(found, part) == getattr(made, part), part
    assert not check(tmp_path / "new").damage


def test_the_same_without_its_index(made: Shop, store: Path, tmp_path: Path) -> None:
    report = salvage(store, tmp_path / "new")
    assert report.whole
    assert read(tmp_path / "new").infos == made.infos


def without_hints(path: Path) -> None:
    """As after a crash."""
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()


def node_frames(path: Path) -> None:
    """Every fourth NODE frame."""
    for frame in [each for each in frames.everything(path) if each.kind == Kind.NODE][::4]:
        frames.spoil(path, frame)


def a_block(path: Path) -> None:
    """4096 bytes in the middle of the active segment."""
    number = frames.segments(path)[-1]
    frames.patch(frames.file(path, number), 12_288, bytes(4096))


def heads(path: Path) -> None:
    """The headers of all segments."""
    for number in frames.segments(path):
        frames.flip(frames.file(path, number), 20)


def a_segment(path: Path) -> None:
    """One of them missing."""
    frames.file(path, frames.segments(path)[1]).unlink()


def marker(path: Path) -> None:
    """STORE."""
    frames.flip(path / "STORE", 30)


def no_checkpoint(path: Path) -> None:
    """Both of them damaged."""
    for each in (path / "checkpoint").iterdir():
        frames.flip(each, 100)


SPOILT: list[list[Spoil]] = [
    [node_frames], [node_frames, without_hints], [a_block], [a_block, without_hints], [heads],
    [a_segment], [a_segment, without_hints], [no_checkpoint], [no_checkpoint, node_frames],
]  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda each: "+".join(f.__name__ for f in each))
def test_salvage_takes_the_readable_and_reports_the_lost(
    made: Shop, store: Path, tmp_path: Path, spoil: list[Spoil]
) -> None:
    for each in spoil:
        each(store)
    before = tree(store)
    report = salvage(store, tmp_path / "new")
    assert tree(store) == before, "the damaged store is only read"
    assert report.damage
    found = read(tmp_path / "new")
    missing = held_against(made, found, report)
    assert report.entries == sum(map(len, found.live.values()))
    assert bool(missing) <= bool(report.gone)
    assert not check(tmp_path / "new").damage


def test_a_damaged_marker_is_made_anew_from_the_segments(
    made: Shop, store: Path, tmp_path: Path
) -> None:
    marker(store)
    report = salvage(store, tmp_path / "new")
    assert [each for each in report.damage if "STORE" in each.why]
    assert read(tmp_path / "new").live == made.live


def test_with_its_own_index_only_the_damaged_nodes_are_gone(made: Shop, tmp_path: Path) -> None:
    """Groups, settings and last IDs are as they were, though frames that made them are lost."""
    path = tmp_path / "store"
    shutil.copytree(made.path, path)
    others = (Kind.NODE, Kind.APPEND, Kind.OPEN)
    spoilt = [each for each in frames.everything(path) if each.kind not in others][:-1]
    assert len({each.kind for each in spoilt}) > 8
    with logstore.open(path, background=False):
        pass  # a copy's index is built anew, and closed cleanly
    spoilt = [each for each in frames.everything(path) if each.kind not in others][:-1]
    for frame in spoilt:
        frames.spoil(path, frame)
    report = salvage(path, tmp_path / "new")
    assert report.index == "its own"
    assert report.damage
    assert report.whole
    found = read(tmp_path / "new")
    assert found.infos == made.infos
    assert found.settings == made.settings
    assert found.live == made.live


def test_with_its_own_index_what_is_gone_is_told_to_the_entry(made: Shop, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(made.path, path)
    with logstore.open(path, background=False):
        pass  # a copy's index is built anew, and closed cleanly
    node_frames(path)
    report = salvage(path, tmp_path / "new")
    assert report.index == "its own"
    found = read(tmp_path / "new")
    missing = held_against(made, found, report)
    assert missing == sum(each.entries or 0 for each in report.gone)
    assert missing > 20
    assert all(each.stream for each in report.gone)
    assert found.infos[b"single"].groups == made.infos[b"single"].groups


def test_salvage_of_pending_entries_of_a_consumer_without_name(store: Path, tmp_path: Path) -> None:
    without_hints(store)
    for frame in [each for each in frames.everything(store) if each.kind == Kind.CONSUMER]:
        frames.spoil(store, frame)
    assert salvage(store, tmp_path / "new").pending == 15
    with logstore.open(tmp_path / "new", background=False, encoding="utf-8") as opened:
        (group,) = opened.stream("single").groups()
        assert (group.consumers, group.pending) == (2, 15)


@pytest.mark.parametrize("own_index", [True, False])
def test_salvage_takes_an_unfinished_import_out(tmp_path: Path, own_index: bool) -> None:
    """No list of streams shows it, and it is stored as any other stream is: it was left out."""
    path, name = tmp_path / "store", IMPORTING + b"half"
    with logstore.open(path, background=False) as opened:
        opened.stream(b"whole").add({b"f": b"v"})
        opened.stream(name).add({b"f": b"of an import"}, id="5-1")
        assert opened.streams() == [b"whole"]
    if not own_index:
        shutil.rmtree(path / "index")
    report = salvage(path, tmp_path / "new")
    assert (report.index == "its own") == own_index
    assert (report.streams, report.entries) == (2, 2)
    assert report.whole
    with logstore.open(tmp_path / "new", background=False) as opened:
        assert shop.entries(opened, name) == {"5-1": [(b"f", b"of an import")]}
        assert opened.streams() == [b"whole"]


def test_very_many_groups_come_in_commits_of_their_own(tmp_path: Path) -> None:
    """Nobody waits for all of them, and settings and the time of expiry come with the last one."""
    made = [GroupValue(b"g%d" % at, StreamID(at, 1), at) for at in range(GROUPS_AT_ONCE + 1)]
    made.sort(key=lambda each: each.name)
    value = StreamValue([], StreamInfoValue(0, StreamID(9999, 0), ZERO_ID, ZERO_ID, 9999, made))
    with logstore.open(tmp_path / "store", background=False) as opened:
        opened.restore(b"s", dump_payload.encode(value))
        opened.stream(b"s").configure(max_entries=7)
        opened.stream(b"s").group(b"g5").configure(min_idle=3)
        opened.stream(b"s").expire(at=shop.FAR_MS)
    report = salvage(tmp_path / "store", tmp_path / "new")
    assert (report.whole, report.streams, report.groups) == (True, 1, len(made))
    with logstore.open(tmp_path / "new", background=False) as opened:
        stream = opened.stream(b"s")
        assert stream.dump() == dump_payload.encode(value)
        assert stream.settings.max_entries == 7
        assert stream.group(b"g5").settings.min_idle_ms == 3000
        assert stream.info().expires_at is not None


# -- the command --------------------------------------------------------------------------------
def test_the_command_tells_what_is_gone(store: Path, tmp_path: Path) -> None:
    node_frames(store)
    done = process("recover", store, "--salvage", tmp_path / "new", "--json")
    assert done.returncode == 3
    assert no_traceback(done.stderr)
    found = json.loads(done.stdout)
    assert found["gone"]
    assert {"stream", "first", "last", "entries", "segment", "offset", "why"} == set(
        found["gone"][0]
    )
    text = invoke("recover", store, "--salvage", tmp_path / "other")
    assert text.exit_code == 3
    assert "gone:" in text.output
    assert "bulk" in text.output


def test_the_command_on_a_sound_store(store: Path, tmp_path: Path) -> None:
    assert invoke("recover", store, "--salvage", tmp_path / "new").exit_code == 0


@pytest.mark.parametrize("where", ["new", "store/inside"])
def test_refused_before_anything_is_written(store: Path, tmp_path: Path, where: str) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "letter").write_text("dear reader")
    before = tree(tmp_path)
    with pytest.raises(logstore.OptionError, match=r"empty|outside"):
        salvage(store, tmp_path / where)
    assert tree(tmp_path) == before


def test_a_store_that_is_open_is_refused(store: Path, tmp_path: Path) -> None:
    with (
        logstore.open(store, background=False),
        pytest.raises(logstore.StoreInUseError, match="close it"),
    ):
        salvage(store, tmp_path / "new")


def test_salvage_of_no_store_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "letter").mkdir()
    with pytest.raises(logstore.NotAStoreError):
        salvage(tmp_path / "letter", tmp_path / "new")
    assert not (tmp_path / "new").exists()
