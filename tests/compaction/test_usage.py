"""Prevents bytes that are counted twice or not at all where a store tells what takes its space."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.api.opening import opened_of
from logstore.compaction.usage import Usage, usage
from logstore.fs import LOCAL
from logstore.log import names

ENTRIES = 3000


def measured(path: Path) -> Usage:
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
        store.stream("trimmed").trim(maxlen=0)
        store.stream("whole").add({"one": "more"})
    return path


def test_it_adds_up_to_the_files(path: Path) -> None:
    found = measured(path)
    assert [use.number for use in found.segments] == names.segments(LOCAL, path)
    for use in found.segments:
        assert use.size_bytes == names.segment(path, use.number).stat().st_size
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


def test_what_is_given_back_is_dead_no_more(path: Path) -> None:
    before = measured(path)
    with logstore.open(path, background=False) as store:
        store.compact(threshold=0.1)
        store.compact(threshold=0.1)
    after = measured(path)
    assert after.dead_bytes < before.dead_bytes / 4
    assert after.tombstoned_bytes == 0
    assert any(use.compacted for use in after.segments)
    assert {use.name: use.entries for use in after.streams} == {
        use.name: use.entries for use in before.streams
    }
