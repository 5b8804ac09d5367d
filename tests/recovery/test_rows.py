"""Prevents a rebuild from counting otherwise than the commits did, and a commit from forgetting
what it must keep beside the rows that are read: positions, and when to look next.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.errors import CorruptionError
from logstore.fs import FileSystem
from logstore.index.env import open_untouched
from logstore.index.group_keys import GroupRecord
from logstore.index.keys import SegmentRow, StreamRecord
from logstore.log import names
from logstore.recovery import compare, index_validity
from tests.corruption import shop

LATER_MS = 1 << 42


def _segments(engine: Engine) -> dict[int, SegmentRow]:
    return snapshot.read(engine, lambda view: view.index.segment_rows())


def _counted(rows: dict[int, SegmentRow], active: int) -> dict[int, tuple[int, ...]]:
    """What must be the same: of the active segment the size is not counted yet."""
    return {
        number: (row.role, row.live_bytes, row.live_nodes, row.total_bytes * (number < active))
        for number, row in rows.items()
    }


@pytest.mark.parametrize("compacted", [False, True])
def test_a_rebuilt_index_has_the_rows_of_the_one_before(tmp_path: Path, compacted: bool) -> None:
    path = tmp_path / "store"
    shop.make(path, 9, compacted=compacted)
    with logstore.open(path, encoding=None, background=False) as store:
        before = _segments(store._engine())
        active = max(before)
        assert len(before) > 3
        assert any(row.live_nodes for row in before.values())
    generation = names.generation(path, names.generations(FileSystem(), path)[-1])
    old = shutil.copytree(generation, tmp_path / "old")
    shutil.rmtree(path / "index")
    with logstore.open(path, encoding=None, background=False) as store:
        engine = store._engine()
        assert store.recovery["rebuilt"]
        assert _counted(_segments(engine), active) == _counted(before, active)
        was = open_untouched(old, 1)
        assert compare._differences(engine.index(), was) == []
        was.close()


def _group(engine: Engine, stream: bytes, name: bytes) -> GroupRecord:
    def look(view: snapshot.Snapshot) -> GroupRecord:
        record = view.index.record_by_name(stream)
        assert record is not None
        found = view.index.groups.named(record.number, name)
        assert found is not None
        return found

    return snapshot.read(engine, look)


def test_a_group_knows_the_last_frame_that_changed_it(tmp_path: Path) -> None:
    """Or a frame that is applied once more would count again."""
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        engine = store._engine()
        stream = store.stream("s")
        ids = [stream.add({b"f": b"v"}, f"{ms}-0") for ms in range(1, 6)]
        group = stream.group("g")
        seen = []
        for change in (
            lambda: group.create(start="0"),
            lambda: group.configure(max_deliveries=7, dead_letter="dead"),
            lambda: group.read("ann", count=3),
            lambda: group.ack(ids[0]),
            lambda: group.claim("bob", ids[1], min_idle=0),
            lambda: group.set_id(ids[4]),
        ):
            start = engine.wake.applied
            change()
            seen.append(_group(engine, b"s", b"g").position)
            assert start <= seen[-1] < engine.wake.applied
        assert seen == sorted(set(seen))


def _nodes(view: snapshot.Snapshot) -> tuple[StreamRecord, list[int]]:
    """The record of stream s, and the sizes of its sealed nodes."""
    record = view.index.record_by_name(b"s")
    assert record is not None
    return record, [each.payload_bytes for _, each in view.index.nodes(record.number)]


def test_a_sealed_node_that_is_opened_again_is_counted_no_more(tmp_path: Path) -> None:
    """A stream has so many nodes and bytes of them as the index has rows, also after a rebuild."""
    path = tmp_path / "store"

    def counted() -> tuple[int, int]:
        """Sealed nodes, and where the open one begins."""
        with logstore.open(path, encoding=None, background=False, node_max_bytes=1000) as store:
            record, sizes = snapshot.read(store._engine(), _nodes)
            assert (record.nodes, record.node_bytes) == (len(sizes), sum(sizes))
            assert store.stream("s").info().node_bytes == sum(sizes)
        return record.nodes, record.open_master.ms if record.open_version else 0

    def add(ms: int, size: int) -> None:
        with logstore.open(path, encoding=None, background=False, node_max_bytes=1000) as store:
            store.stream("s").add({b"f": bytes(size)}, f"{ms}-0")

    for ms, size in ((1, 900), (2, 100), (3, 900)):
        add(ms, size)
    assert counted() == (2, 3)
    with logstore.open(path, encoding=None, background=False) as store:
        store.stream("s").delete("3-0")
    assert counted() == (2, 0)
    add(4, 100)  # fits into the one before
    assert counted() == (1, 2)
    shutil.rmtree(path / "index")
    assert counted() == (1, 2)


def test_when_the_next_entry_is_due(tmp_path: Path) -> None:
    """After each commit that changes it, and after the stream went."""
    with logstore.open(tmp_path / "store", encoding=None, background=False) as store:
        wake = store._engine().wake
        stream, other = store.stream("s"), store.stream("t")
        later = stream.schedule({b"f": b"1"}, at=LATER_MS + 2000)
        assert wake.next_due_ms == LATER_MS + 2000
        sooner = stream.schedule({b"f": b"2"}, at=LATER_MS + 1000)
        assert wake.next_due_ms == LATER_MS + 1000
        other.schedule({b"f": b"3"}, at=LATER_MS + 3000)
        assert wake.next_due_ms == LATER_MS + 1000
        stream.cancel(sooner)
        assert wake.next_due_ms == LATER_MS + 2000
        store.drop("s")
        assert wake.next_due_ms == LATER_MS + 3000
        store.drop("t")
        assert wake.next_due_ms == 0
        assert later is not None


def test_an_index_names_a_frame_that_the_log_must_hold(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, encoding=None, background=False) as store:
        engine = store._engine()
        store.stream("s").add({b"f": b"v"})
        open_boot = index_validity.read_marker(engine.fs, engine.path)
        assert open_boot is not None
        index_validity.check_applied(engine, engine.index(), open_boot)
        segment = names.segment(path, 1)
        whole = segment.read_bytes()
        last = snapshot.read(engine, lambda view: view.meta.last_frame)
        _, at = fmt.position_parts(last)
        for data, why in (
            (whole[:at], "ahead"),
            (whole[: at + fmt.FRAME_HEAD_BYTES - 1], "ahead"),
            (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], "another log"),
        ):
            segment.write_bytes(data)
            with pytest.raises(CorruptionError, match=why):
                index_validity.check_applied(engine, engine.index(), open_boot)
        segment.write_bytes(whole)
        segment.rename(path / "away")
        with pytest.raises(CorruptionError, match="ahead"):
            index_validity.check_applied(engine, engine.index(), open_boot)
        (path / "away").rename(segment)
