"""Prevents an open node of which a part is lost from giving wrong entries, from losing sound ones,
and a delete from hitting another entry than its own.

All frames of a stream lie in a sealed segment: with its hint, which knows where each stood, or
without, so that it is read and what is damaged is passed over.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore.engine.snapshots import snapshot
from logstore.format import Kind
from logstore.log.reader import LogFrame
from logstore.recovery.recover import recover
from tests.corruption import frames
from tests.recovery import little

CREATE, OPEN, A2, A3, A4, A5, A67, A8, T25, R1, A9, T69, R2 = range(13)
KINDS = [
    Kind.CREATE, Kind.OPEN, *[Kind.APPEND] * 6, Kind.TOMBSTONE, Kind.RECORD, Kind.APPEND,
    Kind.TOMBSTONE, Kind.RECORD,
]  # fmt: skip
ALL = [1, 3, 4, 7, 8]
Cut = tuple[int, ...]

# With the hint: what is left, and between which two entries something is gone, and of which frame.
HINTED: dict[Cut, tuple[list[int], list[tuple[int, int, int]]]] = {
    (): (ALL, []),
    (CREATE,): (ALL, []),
    (OPEN,): ([], [(1, 9, OPEN)]),
    (A2,): (ALL, [(1, 3, A2)]),
    (A3,): ([1, 4, 7, 8], [(2, 4, A3)]),
    (A4,): ([1, 3, 7, 8], [(3, 5, A4)]),
    (A5,): (ALL, [(4, 6, A5)]),
    (A67,): ([1, 3, 4, 8], [(5, 8, A67)]),
    (A8,): ([1, 3, 4, 7], [(7, 9, A8)]),
    (A9,): (ALL, [(8, 9, A9)]),
    (T25,): (ALL, []),
    (R1, T69, R2): (ALL, []),
    (A2, A3): ([1, 4, 7, 8], [(1, 4, A2)]),
    (A3, A5): ([1, 4, 7, 8], [(2, 4, A3), (4, 6, A5)]),
    (A2, A3, A4): ([1, 7, 8], [(1, 5, A2)]),
    (A67, A8): ([1, 3, 4], [(5, 9, A67)]),
    (A8, A9): ([1, 3, 4, 7], [(7, 9, A8)]),
    (OPEN, A2, A3, A4, A5, A67, A8): ([], [(1, 9, OPEN)]),
}
# Without it: a delete counts up to where the node was whole.
READ: dict[Cut, list[int]] = {
    (): ALL,
    (OPEN,): [],
    (A2,): [1, 3, 4, 5, 6, 7, 8, 9],
    (A3,): [1, 4, 5, 6, 7, 8, 9],
    (A4,): [1, 3, 5, 6, 7, 8, 9],
    (A5,): [1, 3, 4, 6, 7, 8, 9],
    (A67,): [1, 3, 4, 8, 9],
    (A8,): [1, 3, 4, 7, 9],
    (A9,): ALL,
    (T25,): [1, 2, 3, 4, 5, 7, 8, 9],
    (R1,): [1, 3, 4, 7, 8, 9],
    (T69,): [1, 3, 4, 6, 7, 8, 9],
    (R2,): ALL,
    (A2, A3): [1, 4, 5, 6, 7, 8, 9],
    (A3, A5): [1, 4, 6, 7, 8, 9],
    (A67, A8): [1, 3, 4, 9],
    (OPEN, A2, A3): [],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Opened as copies only; without an index."""
    path = tmp_path_factory.mktemp("open") / "store"
    with logstore.open(
        path, segment_bytes=1 << 16, node_max_entries=20, background=False, encoding=None
    ) as store:
        stream = store.stream("x")
        rows = [(f"{ms}-{ms}", {b"n": b"%d" % ms}) for ms in range(1, 10)]
        for id, fields in rows[:5]:
            stream.add(fields, id)
        stream.add_many(rows[5:7])
        stream.add(rows[7][1], rows[7][0])
        stream.delete("2-2", "5-5")
        stream.add(rows[8][1], rows[8][0])
        stream.delete("9-9", "6-6")
        while len(frames.segments(path)) < 2:
            store.stream("f").add({b"pad": bytes(40_000)})
    shutil.rmtree(path / "index")
    assert [each.kind for each in _log(path)] == KINDS
    assert list((path / "log").glob("*.hint"))
    return path


def _log(path: Path) -> list[LogFrame]:
    """The frames of the stream."""
    return [each for each in frames.of(path, 1) if each.payload[:4] == b"\x01\0\0\0"]


def _left(path: Path, name: bytes = b"x") -> list[int]:
    """What is left; the stream counts it right, and takes more."""
    with logstore.open(path, background=False, encoding=None) as store:
        stream = store.stream(name)
        found = list(stream)
        assert all(each.pairs == [(b"n", b"%d" % each.id.ms)] for each in found)
        info = stream.info()
        assert info.length == len(found)
        assert stream.last_id.ms >= max((each.id.ms for each in found), default=0)
        assert info.entries_added >= len(found)
        if found:
            assert stream.first is not None
            assert stream.first.id == found[0].id

        def look(view: snapshot.Snapshot) -> bool:
            record = view.index.record_by_name(name)
            assert record is not None
            return bool(record.open_version) == (view.index.open_node(record.number) is not None)

        assert snapshot.read(store._engine(), look)
        stream.add({b"n": b"99"}, "99-99")
        assert [each.id.ms for each in stream] == [each.id.ms for each in found] + [99]
        return [each.id.ms for each in found]


@pytest.mark.parametrize("cut", HINTED, ids=lambda each: "-".join(map(str, each)) or "none")
def test_with_a_hint_only_what_cannot_be_read_is_gone(cut: Cut, made: Path, tmp_path: Path) -> None:
    left, gone = HINTED[cut]
    path = shutil.copytree(made, tmp_path / "store")
    log = _log(path)
    for nth in cut:
        little.cut(path, log[nth])
    report = recover(path)
    assert report.hints_used == 1
    assert report.segments_scanned == 0
    assert [
        (each.stream, each.first.ms, each.last.ms, each.entries, each.segment, each.offset)
        for each in report.gone
    ] == [(b"x", first, last, None, 1, log[nth].offset) for first, last, nth in gone]
    assert all("the open node" in each.why for each in report.gone)
    assert _left(path) == left


@pytest.mark.parametrize("cut", READ, ids=lambda each: "-".join(map(str, each)) or "none")
def test_without_one_no_delete_hits_another_entry(cut: Cut, made: Path, tmp_path: Path) -> None:
    path = shutil.copytree(made, tmp_path / "store")
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    log = _log(path)
    for nth in cut:
        little.cut(path, log[nth])
    report = recover(path)
    assert report.hints_used == 0
    assert report.segments_scanned == 1
    told = {at for each in report.damage for at in range(*each[1:3])}
    assert told == {at for nth in cut for at in range(log[nth].offset, log[nth].end_offset)}
    assert _left(path) == READ[cut]


def test_a_delete_behind_damage_counts_up_to_what_cannot_be_read(
    made: Path, tmp_path: Path
) -> None:
    """The hint knows where that stood, but the node is not whole behind it."""
    path = shutil.copytree(made, tmp_path / "store")
    with logstore.open(path, background=False, encoding=None) as store:
        store.stream("f").add({b"pad": b"1"})
        store.stream("x").delete("3-3", "8-8")
    shutil.rmtree(path / "index")
    little.cut(path, _log(path)[A4])
    *_, before, delete, _ = frames.of(path, 2)
    assert (before.payload[:4], delete.kind) == (b"\x02\0\0\0", Kind.TOMBSTONE)
    little.cut(path, before)
    report = recover(path)
    assert (report.hints_used, report.segments_scanned) == (1, 1)
    assert _left(path) == [1, 7, 8]


@pytest.mark.parametrize("hinted", [True, False])
def test_a_stream_without_its_name_has_all_else(hinted: bool, made: Path, tmp_path: Path) -> None:
    path = shutil.copytree(made, tmp_path / "store")
    if not hinted:
        for hint in (path / "log").glob("*.hint"):
            hint.unlink()
    little.cut(path, _log(path)[CREATE])
    recover(path)
    assert _left(path, b"x" if hinted else b"stream-1-whose-name-was-lost") == ALL


@pytest.mark.parametrize("checkpoints", [1, 2])
def test_a_checkpoint_knows_of_an_open_node_that_is_lost(
    checkpoints: int, made: Path, tmp_path: Path
) -> None:
    """Its frames stand before the checkpoint, and are looked for."""
    path = shutil.copytree(made, tmp_path / "store")
    with logstore.open(path, background=False, encoding=None) as store:
        for _ in range(checkpoints):
            store.checkpoint()
            store.stream("f").add({b"pad": b"1"})
    shutil.rmtree(path / "index")
    whole = shutil.copytree(path, tmp_path / "whole")
    assert _left(whole) == ALL
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    little.cut(path, _log(path)[OPEN])
    report = recover(path)
    assert [(each.first.ms, each.last.ms, each.segment) for each in report.gone] == [(1, 9, 1)]
    assert _left(path) == []


def test_a_segment_with_an_open_node_is_missing(made: Path, tmp_path: Path) -> None:
    """The newest checkpoint stands behind it: nothing else says that it must be there."""
    path = shutil.copytree(made, tmp_path / "store")
    with logstore.open(path, background=False, encoding=None) as store:
        for _ in range(2):
            store.checkpoint()
            store.stream("f").add({b"pad": b"1"})
    shutil.rmtree(path / "index")
    frames.file(path, 1).unlink()
    for hint in (path / "log").glob("*.hint"):
        hint.unlink()
    why = "segment 1 is missing, where the open node of b'x' stands"
    with pytest.raises(logstore.DamagedStoreError, match="is missing") as caught:
        logstore.open(path, background=False)
    assert caught.value.segment == 1
    report = recover(path)
    assert any(each[:3] == (1, 0, 0) and why in each.why for each in report.damage)
    (gone,) = [each for each in report.gone if each.stream == b"x"]
    assert (gone.first.ms, gone.last.ms, gone.entries, gone.segment) == (1, 9, None, 1)
    assert _left(path) == []
