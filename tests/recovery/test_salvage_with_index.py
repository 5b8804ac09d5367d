"""Prevents a salvage that has the store's own index from telling more or less than what is gone,
and from giving an entry twice, or a part of a node as the whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.codec import codec
from logstore.format import Kind
from logstore.ids import StreamID
from logstore.index import env
from logstore.index.keys import StreamRecord
from logstore.log.log_reader import LogFrame
from logstore.recovery.salvage.run import salvage
from logstore.recovery.salvage.salvaged_nodes import SalvageableNodes
from tests.corruption import frames
from tests.recovery import small_store

X, Y = [1, 4, 5, 6, 7, 8, 10], list(range(1, 11))
Told = tuple[bytes, int, int, int | None]

# Which frames are damaged: what is gone, what is left, what is unsure.
DAMAGED: dict[tuple[int, ...], tuple[list[Told], list[int], list[int], list[str]]] = {
    (0, 13): ([], X, Y, []),  # the names
    (11, 12): ([], X, Y, []),  # the open node, which is in the index
    (17, 18, 19): ([], X, Y, []),  # the deletes
    (5,): ([], X, Y, []),  # put together from its adds, deletes and all
    (10, 3): ([], X, Y, []),
    (5, 4): ([(b"x", 1, 4, 1)], [1, 2, 3, *X[2:]], Y, ["of node 1-1"]),
    (5, 2): ([(b"x", 1, 4, 1)], [1, 3, 4, *X[2:]], Y, ["of node 1-1"]),
    (5, 2, 3): ([(b"x", 1, 4, 2)], [1, 4, *X[2:]], Y, ["of node 1-1"]),
    (5, 1): ([(b"x", 1, 4, 2)], X[2:], Y, []),
    (10, 9): ([(b"x", 5, 8, 1)], [1, 4, 5, 6, 7, 10], Y, []),
    (10, 7, 8, 9): ([(b"x", 5, 8, 3)], [1, 4, 5, 10], Y, []),
    (14,): ([(b"y", 1, 4, 4)], X, Y[4:], []),
    (14, 15): ([(b"y", 1, 8, 8)], X, Y[8:], []),  # neighbours are told as one range
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Opened as copies only."""
    path = tmp_path_factory.mktemp("own") / "store"
    small_store.make(path)
    return path


@pytest.mark.parametrize("damaged", DAMAGED, ids=lambda each: "-".join(map(str, each)))
def test_salvage_with_an_index_reports_each_lost_entry(
    damaged: tuple[int, ...], made: Path, tmp_path: Path
) -> None:
    gone, x, y, unsure = DAMAGED[damaged]
    path = shutil.copytree(made, tmp_path / "store")
    with logstore.open(path, background=False):
        pass  # a copy's index is built anew, and closed cleanly
    log = frames.everything(path)
    for nth in damaged:
        small_store.cut(path, log[nth])
    report = salvage(path, tmp_path / "new")
    assert report.index == "its own"
    assert small_store.held(tmp_path / "new") == {b"x": x, b"y": y}
    assert [
        (each.stream, each.first.ms, each.last.ms, each.entries) for each in report.gone
    ] == gone
    places = [log[nth].offset for nth in damaged if log[nth].kind == Kind.NODE]
    assert [(each.segment, each.offset) for each in report.gone] == [
        (1, place) for place in places[: len(gone)]
    ]
    assert [each.partition(" of b")[0] for each in report.unsure] == unsure
    assert report.whole == (not gone)
    bytes_told = {(each.segment, at) for each in report.damage for at in range(*each[1:3])}
    assert bytes_told == {(1, at) for nth in damaged for at in range(*_place(log[nth]))}


def _place(frame: LogFrame) -> tuple[int, int]:
    return frame.offset, frame.end_offset


def test_every_node_of_a_damaged_segment_is_looked_at(tmp_path: Path) -> None:
    """Also behind nodes of sound ones; it is put together from its adds."""
    path = tmp_path / "store"
    with logstore.open(
        path, encoding=None, background=False, node_max_entries=4, segment_bytes=64 << 10
    ) as store:
        store.stream("a").add_many((f"{ms}-{ms}", {b"n": b"%d" % ms}) for ms in range(1, 9))
        while len(frames.segments(path)) < 2:
            store.stream("fill").add({b"pad": bytes(40_000)})
        store.drop("fill")
        for ms in range(1, 10):
            store.stream("b").add({b"n": b"%d" % ms}, f"{ms}-{ms}")
    for each in frames.of(path, 2):
        if each.kind == Kind.NODE and each.payload[0] == 3:
            small_store.cut(path, each)
    report = salvage(path, tmp_path / "new")
    assert report.index == "its own"
    assert (report.gone, report.unsure) == ([], [])
    assert len(report.damage) == 2
    assert small_store.held(tmp_path / "new") == {b"a": Y[:8], b"b": Y[:9]}


def _node(*rows: int) -> tuple[StreamID, bytes]:
    lp = codec().new_node(rows[0], 0, [b"n", b"v"])
    for ms in rows[1:]:
        lp, _ = codec().append(lp, rows[0], 0, ms, 0, [b"n", b"v"])
    return StreamID(rows[0], 0), lp


class Given(SalvageableNodes):
    """With these nodes, in this order."""

    def __init__(self, *parts: tuple[StreamID, bytes]) -> None:
        self.given = parts

    def _parts(self, record: StreamRecord) -> Iterator[tuple[StreamID, bytes]]:
        return iter(self.given)


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ([(1, 2, 3), (4, 5)], [[1, 2, 3], [4, 5]]),
        ([(4, 5), (1, 2, 3)], [[1, 2, 3], [4, 5]]),
        ([(1, 2, 3), (3, 4)], [[1, 2, 3], [4]]),
        ([(1, 2, 3), (2, 3, 4, 5)], [[1, 2, 3], [4, 5]]),
        ([(1, 5), (2, 3, 5, 6)], [[1, 5], [6]]),
        ([(1, 9), (2, 3), (8, 9)], [[1, 9]]),
        ([(1, 9), (2, 3), (10,)], [[1, 9], [10]]),
        ([(1, 2), (1, 2, 3)], [[1, 2]]),
        ([(7,)], [[7]]),
        ([], []),
    ],
)
def test_nodes_come_in_order_and_no_entry_twice(
    parts: list[tuple[int, ...]], left: list[list[int]]
) -> None:
    record: Any = None
    found = list(Given(*(_node(*rows) for rows in parts)).nodes(record))
    assert [
        [ms for _, ms, _ in codec().ids(lp, *StreamID.unpacked(master))] for master, lp in found
    ] == left


def test_an_index_of_an_older_format_is_not_the_stores_own(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacks a database that this format has: what is left is read from the log."""
    path = shutil.copytree(made, tmp_path / "store")
    with logstore.open(path, background=False):
        pass
    assert salvage(path, tmp_path / "sound").index == "its own"
    monkeypatch.setattr(env, "DATABASES", (*env.DATABASES, "later"))
    report = salvage(path, tmp_path / "new")
    assert report.index == "built from what the log still says"
    assert report.gone == []
    assert small_store.held(tmp_path / "new") == {b"x": X, b"y": Y}


def test_a_node_with_a_lost_delete_is_not_salvaged(tmp_path: Path) -> None:
    """All its adds are there, and one more than lived: which of them was deleted is not known."""
    path = tmp_path / "store"
    with logstore.open(path, encoding=None, background=False, node_max_entries=4) as store:
        stream = store.stream("x")
        for ms in range(1, 10):
            if ms == 4:
                stream.delete("2-2")
            stream.add({b"n": b"%d" % ms}, f"{ms}-{ms}")
    log = frames.everything(path)
    deleted = next(each for each in log if each.kind == Kind.TOMBSTONE)
    node = next(each for each in log if each.kind == Kind.NODE)
    assert deleted.position < node.position
    whole = shutil.copytree(path, tmp_path / "whole")
    with logstore.open(whole, background=False):
        pass  # a copy's index is built anew, and closed cleanly
    small_store.cut(whole, node)
    assert salvage(whole, tmp_path / "again").whole
    assert small_store.held(tmp_path / "again") == {b"x": [1, *range(3, 10)]}
    small_store.cut(path, node)
    small_store.cut(path, deleted)
    report = salvage(path, tmp_path / "new")
    assert report.index == "its own"
    assert [(each.stream, each.first.ms, each.last.ms, each.entries) for each in report.gone] == [
        (b"x", 1, 4, 3)
    ]
    assert small_store.held(tmp_path / "new") == {b"x": [5, 6, 7, 8, 9]}
