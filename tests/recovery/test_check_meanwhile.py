"""Prevents what others do during a check from being told as damage."""

from __future__ import annotations

from pathlib import Path

import logstore
from logstore.engine.runtime import maintenance_locks
from logstore.log import names
from logstore.recovery.check import check

ROWS = [{"v": b"x" * 500}] * 8


def begun(path: Path) -> logstore.Store[bytes]:
    """Two sealed segments and an active one, nodes in all of them."""
    store = logstore.open(path, background=False, segment_bytes=64 * 1024, node_max_entries=4)
    while len(list((path / names.LOG).glob("*.log"))) < 3:
        store.stream("a").add_many(ROWS)
    store.stream("a").add_many(ROWS)
    return store


def test_nodes_that_are_added_meanwhile_are_found(tmp_path: Path) -> None:
    """The replay sees them, and they stand behind what was read of the log."""
    path = tmp_path / "store"
    with begun(path) as store:
        report = check(path, progress=lambda done, total: None)
        assert report.as_dict()["clean"]
        before = report.nodes
        report = check(path, progress=lambda done, total: store.stream("a").add_many(ROWS) and None)
        assert report.as_dict()["clean"], report.damage
        assert report.nodes == before
        assert check(path).nodes > before


def test_a_segment_that_is_sealed_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    """Its hint tells of more than was there at the start."""
    path = tmp_path / "store"
    with begun(path) as store:
        looks: list[int] = []

        def meanwhile(done: int, total: int) -> None:
            looks.append(done)
            if len(looks) == 1:
                store.stream("b").add_many([{"v": b"y" * 40_000}] * 3)
                maintenance_locks.write_missing_hints(store._live().engine)

        report = check(path, progress=meanwhile)
        assert report.as_dict()["clean"], report.damage
        assert report.hints == len(list((path / names.LOG).glob("*.hint"))) > 2
        assert looks.count(looks[0]) == 2  # it was begun again


def test_segments_that_go_meanwhile_are_not_missed(tmp_path: Path) -> None:
    """Compacted away between two looks."""
    path = tmp_path / "store"
    with begun(path) as store:
        looks: list[int] = []

        def meanwhile(done: int, total: int) -> None:
            looks.append(done)
            if len(looks) == 1:
                store.stream("a").trim(maxlen=4, approximate=False)
                store.compact(threshold=0.1)

        report = check(path, progress=meanwhile)
        assert report.as_dict()["clean"], report.damage
        assert report.entries == 4
        assert len(list((path / names.LOG).glob("*.log"))) < 3


def test_damage_is_told_also_of_a_store_that_changes(tmp_path: Path) -> None:
    """It is looked for again, and is still there."""
    path = tmp_path / "store"
    with begun(path) as store:
        file = names.segment(path, 1)
        data = bytearray(file.read_bytes())
        data[3000] ^= 1
        file.write_bytes(data)

        def meanwhile(done: int, total: int) -> None:
            store.stream("b").add_many([{"v": b"y" * 40_000}] * 3)

        report = check(path, progress=meanwhile)
        assert [found.segment for found in report.damage] == [1], report.damage
