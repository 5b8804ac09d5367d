"""Prevents a full disk from locking a user in: what gives space back must still work."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import logstore
from logstore.recovery.check import check
from tests.conftest import SMALL_DISK_BYTES


def fill(store: logstore.Store[bytes]) -> int:
    """Add until the disk is full; how many entries were acknowledged."""
    stream = store.stream("x")
    for count in range(100_000):
        try:
            stream.add({"n": count, "pad": os.urandom(1000)})
        except logstore.DiskFullError:
            return count
    raise AssertionError("the disk never got full")


def test_reads_deletes_and_compaction_work_on_a_full_disk(small_disk: Path) -> None:
    path = small_disk / "store"
    with logstore.open(path, segment_bytes=1 << 20) as store:
        stream = store.stream("x")
        acknowledged = fill(store)
        assert len(stream) == acknowledged
        assert sum(1 for _ in stream) == acknowledged
        with pytest.raises(logstore.DiskFullError, match=r"full|space"):
            stream.add_many({"pad": os.urandom(1000)} for _ in range(100))
        kept = len(stream)
        assert stream.trim(max_entries=200, approximate=False) == kept - 200
        assert [stream.delete(entry.id) for entry in stream.range(count=5)] == [1] * 5
        before = store.info().disk_bytes
        report = store.compact()
        assert report.segments_dropped
        assert store.info().disk_bytes < before
        stream.add_many({"pad": os.urandom(1000)} for _ in range(1000))
        assert len(stream) == 1195
    assert check(path).damage == []
    with logstore.open(path) as store:
        assert len(store.stream("x")) == 1195


def test_the_error_says_how_much_room_compaction_needs(small_disk: Path) -> None:
    """Of one large segment half lives: that cannot be moved until there is as much room as told."""
    path, filler = small_disk / "store", small_disk / "filler"
    filler.write_bytes(bytes(SMALL_DISK_BYTES // 2))
    with logstore.open(path, background=False) as store:
        kept = fill(store) // 2
        store.stream("x").trim(max_entries=kept, approximate=False)
        with pytest.raises(logstore.DiskFullError, match="compaction needs") as refused:
            store.compact()
        found = re.search(r"needs ([0-9,]+) free bytes, .* finds ([0-9,]+);", str(refused.value))
        assert found is not None
        needed, free = (int(each.replace(",", "")) for each in found.groups())
        os.truncate(filler, filler.stat().st_size - (needed - free))
        assert store.compact().segments_dropped
        assert len(store.stream("x")) == kept
    assert check(path).damage == []


def test_groups_on_a_full_disk(small_disk: Path) -> None:
    """What is done can be acknowledged, and what was read given up; work goes on after compaction.

    Both levels: most entries of each node go, then whole nodes.
    """
    path = small_disk / "store"
    with logstore.open(path, segment_bytes=1 << 20) as store:
        stream = store.stream("x")
        stream.add_many({"n": n, "pad": os.urandom(1000)} for n in range(2000))
        group = stream.group("g")
        group.create("0")
        mine = [str(entry.id) for entry in group.read("me", count=1000)]
        acknowledged = 2000 + fill(store)
        with pytest.raises(logstore.DiskFullError, match="make room"):
            group.read("me", count=1000)
        assert sum(1 for _ in stream) == acknowledged
        assert len(list(group.pending_entries(count=2000))) == 1000
        assert group.ack(*mine[:500]) == 500
        assert group.pending().count == 500
        group.ack_delete(*mine[500:600])
        assert group.pending().count == 400
        every = [entry.id for entry in stream.range(count=1000)]
        assert stream.delete(*[id for n, id in enumerate(every) if n % 10]) == 900
        left = acknowledged - 100 - 900
        assert len(stream) == left
        before = store.info().disk_bytes
        assert store.compact(threshold=0.3).nodes_written  # nodes are rewritten ...
        assert stream.trim(max_entries=200, approximate=False) == left - 200
        assert store.compact().segments_dropped  # ... and segments go
        assert store.info().disk_bytes < before / 2
        stream.add_many({"pad": os.urandom(1000)} for _ in range(1000))
        assert len(group.read("me", count=100)) == 100
        assert group.pending().count >= 100
        assert len(stream) == 1200
    assert check(path).damage == []
    with logstore.open(path) as store:
        assert len(store.stream("x")) == 1200


def test_no_store_is_made_on_a_full_disk(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="space"):
        filler.write_bytes(bytes(2 * SMALL_DISK_BYTES))
    with pytest.raises(logstore.DiskFullError):
        logstore.open(small_disk / "store")
    filler.unlink()
    with logstore.open(small_disk / "store") as store:
        store.stream("x").add({"a": 1})
