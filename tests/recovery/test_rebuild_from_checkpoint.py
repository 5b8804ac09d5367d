"""Prevents a rebuild from taking another checkpoint than the newest that fits, and nodes of damaged
or orphaned segments from being lost in silence, or brought back without a word.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.errors import DamagedStoreError
from logstore.format import Kind
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.log import chain, checkpoint_file, file_names, segment
from logstore.recovery import checkpoint_load
from logstore.recovery.recover import recover
from logstore.recovery.report import Damage, RecoveryReport
from logstore.recovery.salvage.run import salvage
from tests.corruption import frames
from tests.recovery import small_store

ROWS = [(f"{ms}-{ms}", {b"n": b"%d" % ms}) for ms in range(1, 21)]


def _open(path: Path) -> logstore.Store[bytes]:
    return logstore.open(path, encoding=None, background=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two checkpoints in one segment, entries before, between and behind them."""
    path = tmp_path / "store"
    with logstore.open(path, encoding=None, background=False, node_max_entries=4) as store:
        stream = store.stream("s")
        for part in (ROWS[:6], ROWS[6:12], ROWS[12:]):
            for id, fields in part:
                stream.add(fields, id)
            if part[-1] != ROWS[-1]:
                store.checkpoint()
    shutil.rmtree(path / "index")
    return path


def _built(path: Path) -> int:
    """Of which checkpoint the index is built; all entries are there."""
    assert small_store.held(path) == {b"s": list(range(1, 21))}
    shutil.rmtree(path / "index")
    with _open(path) as store:
        return store._live().report.checkpoint_position


def test_the_newest_checkpoint_that_fits_is_taken(path: Path) -> None:
    older, newest = file_names.checkpoints(LOCAL, path)
    assert older < newest
    assert _built(path) == newest
    place = file_names.checkpoint(path, newest)
    whole = place.read_bytes()
    frames.flip(place, len(whole) - 1)
    shutil.rmtree(path / "index")
    assert _built(path) == older
    place.write_bytes(whole)
    uuid = frames.uuid(path)
    head, chunks = checkpoint_file.read(LOCAL, path, uuid, newest)
    checkpoint_file.write(LOCAL, path, uuid, head._replace(commit=head.commit + 1), chunks)
    shutil.rmtree(path / "index")
    assert _built(path) == older
    place.unlink()
    shutil.rmtree(path / "index")
    assert _built(path) == older
    file_names.checkpoint(path, older).unlink()
    shutil.rmtree(path / "index")
    assert _built(path) == 0


def test_a_checkpoint_of_nothing_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with _open(path) as store:
        store.checkpoint()
        store.stream("s").add({b"n": b"1"}, "1-1")
    shutil.rmtree(path / "index")
    assert small_store.held(path) == {b"s": [1]}
    shutil.rmtree(path / "index")
    with _open(path) as store:
        assert store._live().report.checkpoint_position == 0


@pytest.mark.parametrize("hinted", [True, False])
def test_sizes_of_segments_are_counted_anew(tmp_path: Path, hinted: bool) -> None:
    """Of sealed ones, also where no frame says how long they are."""
    path = tmp_path / "store"
    with logstore.open(path, encoding=None, background=False, segment_bytes=64 << 10) as store:
        for turn in range(4):
            store.stream(f"s{turn}").add_many(ROWS)
            store.stream(f"s{turn}").add({b"n": bytes(60_000)})
        before = snapshot.read(store._engine(), lambda view: view.index.segment_rows())
    if not hinted:
        for hint in (path / "log").glob("*.hint"):
            hint.unlink()
    shutil.rmtree(path / "index")
    links = chain.main_links(LOCAL, path, frames.uuid(path))
    with _open(path) as store:
        engine = store._engine()
        rows = snapshot.read(engine, lambda view: view.index.segment_rows())
        meta = snapshot.read(engine, lambda view: view.meta)
    assert len(links) > 3
    for link in links[:-1]:
        assert rows[link.number].total_bytes == link.end_offset == before[link.number].total_bytes
        assert rows[link.number].born_ms == link.created_ms
    assert [row[:3] for row in rows.values()] == [row[:3] for row in before.values()]
    assert (meta.active_segment, meta.next_segment) == (links[-1].number, links[-1].number + 1)


def test_a_segment_ends_where_the_next_one_says(path: Path) -> None:
    """Also if no frame seals it: what stood behind was voided."""
    last = frames.everything(path)[-1]
    end = fmt.position(1, last.end_offset)
    head = segment.SegmentHead(fmt.Role.MAIN, 2, frames.uuid(path), end, last.commit, 77)
    segment.create(LOCAL, path, head).close()
    with frames.file(path, 1).open("ab") as file:
        file.write(b"void")
    for left in (file_names.checkpoints(LOCAL, path), []):
        with _open(path) as store:
            engine = store._engine()
            rows = snapshot.read(engine, lambda view: view.index.segment_rows())
            meta = snapshot.read(engine, lambda view: view.meta)
        assert rows[1].total_bytes == last.end_offset
        assert (meta.active_segment, meta.applied, meta.commit) == (2, end, last.commit)
        assert (meta.last_frame, meta.last_crc) == (last.position, last.crc)
        assert small_store.held(path) == {b"s": list(range(1, 21))}
        shutil.rmtree(path / "index")
        for position in left:
            file_names.checkpoint(path, position).unlink()


class Compacted:
    """A store whose nodes were moved into a compacted segment, in which some were deleted since."""

    def __init__(self, path: Path, *, later: bool = True) -> None:
        self.path = path
        with logstore.open(
            path, encoding=None, background=False, node_max_entries=4, segment_bytes=64 << 10
        ) as store:
            store.stream("s").add_many(ROWS)
            store.stream("t").add({b"n": b"1"}, "1-1")
            store.stream("s").delete("2-2", "3-3", "20-20")
            store.compact(threshold=0.0)
            if later:
                store.stream("s").delete("5-5")
        self.uuid = frames.uuid(path)
        heads = chain.heads(LOCAL, path, self.uuid)
        (self.number,) = [n for n, (head, _) in heads.items() if head.role == fmt.Role.COMPACTED]
        self.nodes = [each for each in frames.of(path, self.number) if each.kind == Kind.NODE]
        self.link = chain.Link(
            self.number, fmt.SEGMENT_HEAD_BYTES, heads[self.number][1], heads[self.number][1], 0
        )


@pytest.fixture
def moved(tmp_path: Path) -> Compacted:
    """All of stream s, in nodes of up to four entries."""
    made = Compacted(tmp_path / "store")
    assert len(made.nodes) >= 4
    return made


def _engine(store: logstore.Store[bytes], *, accept_loss: bool) -> Engine:
    engine = store._engine()
    engine.accept_loss = accept_loss
    return engine


def test_the_nodes_of_a_segment_and_what_stands_behind_damage(moved: Compacted) -> None:
    """Before damage the live bits count; behind it nobody knows of which frame they are."""
    places = [each.position for each in moved.nodes]
    with _open(moved.path) as store:
        engine = _engine(store, accept_loss=True)

        def look() -> tuple[list[int], list[int], list[Damage]]:
            report = RecoveryReport()
            sure, unsure = checkpoint_load._node_frames(engine, moved.link, report)
            return [n.position for n in sure], [n.position for n in unsure], report.damage

        for hint in (moved.path / "log").glob("*.hint"):
            hint.unlink()
        assert look() == (places, [], [])
        at = moved.nodes[1]
        why = "no valid frame"
        for nth in (0, 1, 2, len(places) - 1):
            at = moved.nodes[nth]
            small_store.cut(moved.path, at)
            damage = [Damage(moved.number, at.offset, at.end_offset, why)]
            assert look() == (places[:nth], places[nth + 1 :], damage)
            small_store.cut(moved.path, at)
        file_names.segment(moved.path, moved.number).rename(moved.path / "away")
        found = look()
        assert found[:2] == ([], [])
        assert [each[:3] for each in found[2]] == [(moved.number, 0, 0)]
        assert "is missing and was not dropped" in found[2][0].why
        engine.accept_loss = False
        with pytest.raises(DamagedStoreError, match="is missing and was not dropped") as caught:
            look()
        assert caught.value.segment == moved.number
        (moved.path / "away").rename(file_names.segment(moved.path, moved.number))


S = [1, *range(4, 20)]


def _held(path: Path) -> dict[bytes, list[int]]:
    return {name: ids for name, ids in small_store.held(path).items() if name != b"t"}


@pytest.mark.parametrize("nth", [0, 1, 2])
def test_behind_damage_in_a_compacted_segment_nothing_is_lost(
    nth: int, moved: Compacted, tmp_path: Path
) -> None:
    """But what was deleted may be there again, and that is told."""
    path = moved.path
    for each in [*(path / "log").glob("*.hint"), *(path / "index").iterdir()]:
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    small_store.cut(path, moved.nodes[nth])
    report = salvage(path, tmp_path / "new")
    held = _held(tmp_path / "new")[b"s"]
    body: Any = moved.nodes[nth].body()
    gone = range(body.master_ms, body.last_ms + 1)
    assert set(held) >= {ms for ms in S if ms not in gone} - {5}
    assert set(held) <= {*S, 5} - set(gone)
    assert any(each.stream == b"s" and each.first.ms in gone for each in report.gone)
    assert report.damage[0][:3] == (
        moved.number, moved.nodes[nth].offset, moved.nodes[nth].end_offset
    )  # fmt: skip


def test_a_compacted_segment_that_nothing_left_speaks_of(moved: Compacted, tmp_path: Path) -> None:
    """No checkpoint, and the main segments that adopted it are gone: its nodes are all there is."""
    path = moved.path
    for each in (path / "checkpoint").iterdir():
        each.unlink()
    shutil.rmtree(path / "index")
    mains = [link.number for link in chain.main_links(LOCAL, path, moved.uuid)]
    for number in mains[:-1]:
        file_names.segment(path, number).unlink()
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    report = recover(path)
    assert report.damage
    name = b"stream-1-whose-name-was-lost"
    assert _held(path)[name] == [1, *range(4, 20)]
    told = [each for each in report.unsure if each.startswith("node ")]
    assert len(told) == len(moved.nodes)
    assert all(f"in segment {moved.number} without a hint" in each for each in told)
    with _open(path) as store:
        store.stream("fresh").add({b"n": b"1"}, "1-1")
        assert store.stream("fresh").info().length == 1
        assert store.stream(name).info().length == 17


def test_nodes_of_unnamed_streams_are_left_out(tmp_path: Path) -> None:
    made = Compacted(tmp_path / "store", later=False)
    path = made.path
    for each in (path / "checkpoint").iterdir():
        each.unlink()
    shutil.rmtree(path / "index")
    for link in chain.main_links(LOCAL, path, made.uuid)[:-1]:
        file_names.segment(path, link.number).unlink()
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    report = recover(path)
    name = b"stream-1-whose-name-was-lost"
    assert _held(path)[name] == S
    masters: list[Any] = [each.body() for each in made.nodes]
    assert sorted(each.partition(" of b")[0] for each in report.unsure) == sorted(
        f"node {StreamID(each.master_ms, each.master_seq)}" for each in masters
    )
    with _open(path) as store:
        stream = store.stream(name)
        assert (stream.info().length, stream.last_id.ms) == (17, 20)
        stream.add({b"n": b"99"}, "99-99")
        store.stream("fresh").add({b"n": b"1"}, "1-1")
        records = snapshot.read(store._engine(), lambda view: list(view.index.records()))
    assert [record.number for record in records] == [1, 2, 3]


def test_without_a_main_segment_there_is_nothing_to_go_by(moved: Compacted, tmp_path: Path) -> None:
    for link in chain.main_links(LOCAL, moved.path, moved.uuid):
        file_names.segment(moved.path, link.number).unlink()
    with pytest.raises(DamagedStoreError, match="no main segment"):
        salvage(moved.path, tmp_path / "new")
    with pytest.raises(DamagedStoreError, match="no segment"):
        recover(moved.path)
