"""Prevents info from telling of space that no compaction gives back, or of bytes twice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.opening import opened_of
from logstore.compaction import erasure
from logstore.compaction.usage import SpaceUsage, usage
from logstore.engine.runtime import maintenance_locks
from logstore.fs import LOCAL
from logstore.log import file_names, log_reader
from logstore.telemetry.gathering import store_numbers
from tests.compaction.conftest import Store
from tests.retention.retained import nodes_of
from tests.support.inside import roll

SEGMENT = 256 << 10
TEXTS = [os.urandom(30).hex() for _ in range(50)]


def rows(count: int) -> list[dict[str, str]]:
    return [{"n": str(n), "text": TEXTS[n % 50], "pad": "x" * 40} for n in range(count)]


def filled(store: Store, name: str = "s", count: int = 6000) -> None:
    store.stream(name).add_many(rows(count))


# -- shapes -------------------------------------------------------------------------------------
def nothing(store: Store) -> None:
    filled(store)


def single_adds(store: Store) -> None:
    for row in rows(4000):
        store.stream("s").add(row)


def import_in_batches(store: Store) -> None:
    store.stream("s").add_many(rows(20_000), batch=7)


def deletes(store: Store) -> None:
    filled(store, count=9000)
    ids = [entry.id for entry in store.stream("s")]
    for first in range(0, len(ids), 1000):
        store.stream("s").delete(*[id for n, id in enumerate(ids[first : first + 1000]) if n % 4])


def few_deletes(store: Store) -> None:
    filled(store)
    store.stream("s").delete(*[entry.id for entry in store.stream("s")][::10])


def trim(store: Store) -> None:
    filled(store, count=9000)
    store.stream("s").trim(max_entries=500, approximate=False)


def trimmed_to_nothing(store: Store) -> None:
    for row in rows(2000):
        store.stream("s").add(row)
    store.stream("s").trim(max_entries=0, approximate=False)


def drop(store: Store) -> None:
    filled(store, count=4000)
    filled(store, "other", 1500)
    store.drop("s")


def drop_in_the_active_segment(store: Store) -> None:
    filled(store, count=300)
    store.drop("s")


def drop_of_single_adds(store: Store) -> None:
    filled(store, "other", 1500)
    store.stream("s").add({"a": "1"})
    store.drop("s")


def rename_over(store: Store) -> None:
    filled(store, count=4000)
    filled(store, "other", 1500)
    store.rename("other", "s")


def groups(store: Store) -> None:
    filled(store, count=3000)
    group = store.stream("s").group("g", start="0")
    for _ in range(1000):
        group.ack(*[each.id for each in group.read("alice", count=3)])


def many_streams(store: Store) -> None:
    for number in range(600):
        filled(store, f"s{number}", 20)
    for number in range(0, 600, 2):
        store.drop(f"s{number}")


def deleted_while_open(store: Store) -> None:
    stream = store.stream("s")
    for row in rows(30):
        stream.add(row)
    stream.delete(*[entry.id for entry in stream][::3])
    stream.add_many(rows(400))


def drop_beside_few_deletes(store: Store) -> None:
    """In each segment nodes that live, most of each, stand beside more that are dead."""
    for _ in range(30):
        filled(store, count=150)
        filled(store, "other", 50)
    roll(store)
    store.stream("other").delete(*[entry.id for entry in store.stream("other")][::10])
    store.drop("s")


WITHOUT = [nothing, single_adds, import_in_batches, groups]
WITH = [
    deletes, few_deletes, trim, trimmed_to_nothing, drop, drop_in_the_active_segment,
    drop_of_single_adds, rename_over, many_streams, deleted_while_open, drop_beside_few_deletes,
]  # fmt: skip


def named(shape: Callable[[Store], None]) -> str:
    return shape.__name__


def open_small(path: Path) -> Store:
    return logstore.open(path, background=False, segment_bytes=SEGMENT)


def log_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in (path / "log").iterdir())


@pytest.mark.parametrize("shape", WITHOUT + WITH, ids=named)
def test_reclaimable_bytes_equal_the_bytes_given_back(
    tmp_path: Path, shape: Callable[[Store], None]
) -> None:
    path = tmp_path / "store"
    with open_small(path) as store:
        shape(store)
        before = log_bytes(path)
        told = store.info().reclaimable_bytes
        with logstore.open(path, readonly=True) as other:
            assert other.info().reclaimable_bytes == told
        store.compact()
        given = before - log_bytes(path)
        again = store.info().reclaimable_bytes
    print(f"{named(shape)}: told {told}, given {given}, of {before}")
    # Beside the estimate: a hint of the segment that was sealed, frames that say what was done.
    assert abs(told - max(0, given)) <= 0.06 * before + 4096
    assert again <= 0.06 * before + 4096


@pytest.mark.parametrize("deletes", [False, True])
def test_no_more_is_told_than_is_given_back_where_nodes_are_small(
    tmp_path: Path, *, deletes: bool
) -> None:
    """Each that moves costs its place in a frame and in a hint, which is as much as it holds."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, segment_bytes=SEGMENT, node_max_entries=2) as store:
        for _ in range(40):
            store.stream("s").add_many({"n": n} for n in range(300))
            store.stream("other").add_many({"n": n} for n in range(160))
        roll(store)
        store.drop("s")
        if deletes:  # one of the two of each node
            store.stream("other").delete(*[entry.id for entry in store.stream("other")][::2])
        before, told = log_bytes(path), store.info().reclaimable_bytes
        store.compact()
        given = before - log_bytes(path)
    print(f"told {told}, given {given}, of {before}")
    assert given / 2 < told <= given


def test_a_node_whose_last_entry_is_left_is_not_counted_whole(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, background=False, node_max_entries=4) as store:
        store.stream("s").add_many({"n": n, "pad": "x" * 900} for n in range(4))
        roll(store)
        store.stream("s").trim(max_entries=1, approximate=False)
        assert 3 * 900 < store.info().deleted_bytes < 3.5 * 900
        store.stream("s").trim(max_entries=0, approximate=False)
        assert 4 * 900 < store.info().deleted_bytes < 4.5 * 900


def test_deleted_bytes_of_single_adds_are_those_of_their_frames(tmp_path: Path) -> None:
    """Of nodes that are gone, and of one of which a part is."""
    path = tmp_path / "store"
    with logstore.open(path, background=False, node_max_entries=4) as store:
        for n in range(1000):
            store.stream("s").add({"n": n, "pad": "x" * 1000})
        store.stream("s").trim(max_entries=50, approximate=False)
        assert 0.89 < store.info().deleted_bytes / log_bytes(path) < 0.95
        store.stream("s").trim(max_entries=0, approximate=False)
        assert 0.93 < store.info().deleted_bytes / log_bytes(path) < 1


@pytest.mark.parametrize("shape", WITHOUT, ids=named)
def test_no_deleted_bytes_where_nothing_was_deleted(
    tmp_path: Path, shape: Callable[[Store], None]
) -> None:
    with open_small(tmp_path / "store") as store:
        shape(store)
        roll(store)
        info = store.info()
        assert (info.deleted_bytes, info.oldest_deleted_segment_ms) == (0, 0)
        store.compact()
        assert store.info().deleted_bytes == 0


@pytest.mark.parametrize("shape", WITH, ids=named)
def test_deleted_bytes_are_told_until_they_are_erased(
    tmp_path: Path, shape: Callable[[Store], None]
) -> None:
    path = tmp_path / "store"
    with open_small(path) as store:
        shape(store)
        info = store.info()
        assert info.deleted_bytes > 0
        assert info.oldest_deleted_segment_ms > 0
    with open_small(path) as store:
        assert store.info().deleted_bytes == info.deleted_bytes
        store.compact(purge=True)
        info = store.info()
        assert (info.deleted_bytes, info.oldest_deleted_segment_ms) == (0, 0)


def test_deleted_bytes_are_about_those_of_the_deleted_entries(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        filled(store, count=4000)
        filled(store, "other", 1500)
        all_bytes = store.stream("s").info().node_bytes
        store.stream("s").delete(*[entry.id for entry in store.stream("s")][:1000])
        assert 0.22 < store.info().deleted_bytes / all_bytes < 0.28
        store.drop("s")
        assert 0.95 < store.info().deleted_bytes / all_bytes < 1.05


def test_deleted_bytes_of_a_long_log_are_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with logstore.open(path, background=False, segment_bytes=SEGMENT, node_max_entries=10) as store:
        filled(store, count=20_000)
        ids = [entry.id for entry in store.stream("s")]
        store.stream("s").delete(*[id for n, id in enumerate(ids) if n % 10 < 3 and n > 4000])
        store.stream("s").trim(min_id=ids[2000], approximate=False)
        roll(store)
        exact = store.info().deleted_bytes
        looked: list[int] = []
        gone = erasure._gone_bytes

        def counted(view: Any, some: list[Any], **more: Any) -> int:
            looked.append(len(some))
            return gone(view, some=some, **more)

        monkeypatch.setattr(erasure, "_gone_bytes", counted)
        assert store.info().deleted_bytes == exact
        every = sum(looked)
        looked.clear()
        monkeypatch.setattr(erasure, "WHOLE_BYTES", log_bytes(path) // 8)
        assert 0.8 * exact < store.info().deleted_bytes < 1.25 * exact
        assert sum(looked) < every / 5


def test_hints_spare_the_reading_of_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else ``info`` would read the whole log once anything was deleted."""
    with open_small(tmp_path / "store") as store:
        deletes(store)
        for row in rows(2000):
            store.stream("s").add(row)
        roll(store)
        maintenance_locks.write_missing_hints(store._engine())
        told = store.info()
        assert told.segments > 3
        scan, read = log_reader.scan, []

        def noted(file: Any, seed: int, number: int, *more: int) -> Any:
            read.append(number)
            return scan(file, seed, number, *more)

        monkeypatch.setattr(log_reader, "scan", noted)
        assert store.info() == told
        assert set(read) <= {store._engine().wake.log().active_segment}


@pytest.mark.parametrize("sync", ["always", "everysec"])
def test_a_reader_tells_how_far_the_log_is_durable(tmp_path: Path, sync: logstore.Sync) -> None:
    """Beside a writer, after a clean close, and not beyond what is known."""
    path = tmp_path / "store"
    with logstore.open(path, sync=sync, background=False) as store:
        store.stream("s").add({"a": "1"})
        if sync == "everysec":
            with logstore.open(path, readonly=True) as other:
                assert other.durable_upto < (1, other.info().applied_offset)
                assert other.durable_upto == store.durable_upto
            store.sync()
        with logstore.open(path, readonly=True) as other:
            info = other.info()
            ends = info.applied_segment, info.applied_offset
            assert other.durable_upto == ends == store.durable_upto
            assert (info.durable_segment, info.durable_offset) == ends
            store.stream("s").add({"a": "2"}, sync="os")
            store.sync()
            assert other.info().durable_offset > ends[1]
    with logstore.open(path, readonly=True) as other:
        info = other.info()
        ends = info.applied_segment, info.applied_offset
        assert (info.durable_segment, info.durable_offset) == ends
        (path / "WAKE").unlink()  # as after a restart of the machine: a clean close told it, too
        assert other.durable_upto == ends
        (path / "BOOT").unlink()
        assert other.durable_upto == (0, 0)
        assert other.info().durable_offset == 0


def test_a_backup_tells_only_what_is_known(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        filled(store, count=100)
        store.backup(tmp_path / "copy")
    with logstore.open(tmp_path / "copy", readonly=True) as other:
        info = other.info()
        durable = (info.durable_segment, info.durable_offset)
        assert durable <= (info.applied_segment, info.applied_offset)


ENTRIES = 3000


def measured(path: Path) -> SpaceUsage:
    """What takes the space of a store."""
    with logstore.open(path, readonly=True) as store:
        return usage(opened_of(store).engine())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three streams in several segments: one whole, one with holes, one that was trimmed."""
    path = tmp_path / "store"
    with logstore.open(path, segment_bytes=64 << 10, background=False) as store:
        for name in ("whole", "holes", "trimmed"):
            store.stream(name).add_many({"n": str(n), "t": "x" * 40} for n in range(ENTRIES))
        ids = [entry.id for entry in store.stream("holes").range()]
        store.stream("holes").delete(*ids[::4])
        store.stream("trimmed").trim(max_entries=0, approximate=False)
        store.stream("whole").add({"one": "more"})
    return path


def test_the_told_bytes_add_up_to_the_files(path: Path) -> None:
    found = measured(path)
    assert [use.number for use in found.segments] == file_names.segments(LOCAL, path)
    for use in found.segments:
        assert use.size_bytes == file_names.segment(path, use.number).stat().st_size
        assert use.live_bytes + use.tombstoned_bytes + use.dead_bytes == use.size_bytes
        assert sum(use.streams.values()) == use.live_bytes
        assert use.created_ms > 0
    assert [use.number for use in found.segments if use.active] == [found.segments[-1].number]
    for name in ("live_bytes", "tombstoned_bytes"):
        assert sum(getattr(use, name) for use in found.streams) == getattr(found, name)
    assert found.other_bytes["hints"] > 0
    assert found.other_bytes["index"] > 0
    assert 0 < found.free_bytes <= found.disk_bytes


def test_each_stream_has_what_is_its_own(path: Path) -> None:
    found = {use.name: use for use in measured(path).streams}
    with logstore.open(path, readonly=True) as store:
        infos = {name: store.stream(name).info() for name in store.streams()}
    for name, use in found.items():
        assert use.entries == infos[name].length
        assert use.nodes == infos[name].radix_tree_keys
    whole, holes, trimmed = (found[name] for name in (b"whole", b"holes", b"trimmed"))
    assert whole.tombstoned_bytes == trimmed.live_bytes == trimmed.tombstoned_bytes == 0
    assert whole.live_bytes > infos[b"whole"].node_bytes
    both = holes.live_bytes + holes.tombstoned_bytes
    assert abs(both - whole.live_bytes) < both / 20  # the same entries were added
    assert holes.tombstoned_bytes == pytest.approx(both / 4, rel=0.1)


def test_entries_of_an_open_node_are_live(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with logstore.open(path, background=False) as store:
        for n in range(12):
            store.stream("s").add({"n": n, "pad": "x" * 200})
        (node,) = nodes_of(store, b"s")
        assert node.open
    found = measured(path)
    (use,) = found.streams
    assert (use.entries, use.nodes, use.tombstoned_bytes) == (12, 1, 0)
    assert use.live_bytes == node.size_bytes  # the head of a frame is dead
    assert found.segments[0].streams == {b"s": use.live_bytes}
    assert use.segments == {1}


def test_reclaimed_bytes_are_no_longer_counted_as_dead(path: Path) -> None:
    before = measured(path)
    with logstore.open(path, background=False) as store:
        store.compact(threshold=0.1)
        store.compact(threshold=0.1)
        assert erasure.tombstoned_bytes(opened_of(store).engine()) == {}
        held = store.stream("holes").info()
    after = measured(path)
    assert after.dead_bytes < before.dead_bytes / 4
    assert 0 < after.tombstoned_bytes < held.open_node_bytes  # the open node is left as it is
    assert after.tombstoned_bytes < before.tombstoned_bytes / 20
    assert any(use.compacted for use in after.segments)
    assert {use.name: use.entries for use in after.streams} == {
        use.name: use.entries for use in before.streams
    }


# -- one figure for each word -------------------------------------------------------------------
def expired(store: Store) -> None:
    """A stream that is gone for everybody, with deleted entries, in the segments of another one."""
    filled(store, count=900)
    for name in ("gone", "s"):
        filled(store, name, count=2000)
        store.stream(name).delete(*[entry.id for entry in store.stream(name)][::7])
    store.stream("gone").expire(after=timedelta(milliseconds=1))
    while b"gone" in store.streams():
        time.sleep(0.001)


def an_open_node_over_segments(store: Store) -> None:
    """The open node begins in a segment that has no room for all of it."""
    filled(store, count=10)
    for row in rows(3):
        store.stream("s").add(row)
    for number in range(40):
        roll(store)
        store.stream("s").add({"n": str(number), "text": "y" * 60, "pad": "z"})


FIGURES = ("log_bytes", "live_bytes", "tombstoned_bytes", "dead_bytes")


@pytest.mark.parametrize("shape", [*WITHOUT, *WITH, expired, an_open_node_over_segments], ids=named)
def test_all_views_tell_the_same_figures(tmp_path: Path, shape: Callable[[Store], None]) -> None:
    path = tmp_path / "store"
    with open_small(path) as store:
        shape(store)
    with logstore.open(path, readonly=True) as reader:
        found = usage(opened_of(reader).engine())
        info, told = reader.info(), store_numbers(opened_of(reader))
        summaries = {each: reader.stream(each).info() for each in reader.streams()}
    for name in FIGURES:
        assert getattr(info, name) == getattr(found, name) == told[name], name
    assert info.live_bytes + info.tombstoned_bytes + info.dead_bytes == info.log_bytes
    assert told["reclaimable_bytes"] == info.reclaimable_bytes
    assert {use.name for use in found.streams} == set(summaries)
    for use in found.streams:
        size = summaries[use.name].node_bytes + summaries[use.name].open_node_bytes
        assert use.live_bytes + use.tombstoned_bytes == size
