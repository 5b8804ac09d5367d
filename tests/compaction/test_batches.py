"""Prevents compaction from passing over nodes, streams or files where one batch ends and the next
begins, and from leaving anything of a run that did not come to its end.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from logstore import format as fmt
from logstore.compaction import measure, node_choice, segment_rewrite
from logstore.compaction.node_choice import NodeChooser
from logstore.compaction.segment_rewrite import CompactionReport
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime.background import no_pause
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.fs import LOCAL
from logstore.log import chain, file_names
from tests.compaction.conftest import Store
from tests.corruption import frames as stored
from tests.support.watched_files import DurableOrder


def _victims(engine: Engine) -> list[set[int]]:
    return [measure.victims(engine, threshold) for threshold in (0.0, 0.1, 0.3, 0.5, 0.9, 1.0)]


def test_victims_are_the_same_whatever_a_snapshot_holds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = store._engine()
    wanted = _victims(engine)
    assert len({len(each) for each in wanted}) > 1
    for size in (1, 2, 7):
        monkeypatch.setattr(measure, "NODES_A_SNAPSHOT", size)
        assert _victims(engine) == wanted


def test_a_page_of_nodes_that_is_read_twice_counts_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot is taken again if what it read was moved meanwhile."""
    engine = store._engine()
    wanted = _victims(engine)
    read = snapshot.read

    def twice(*args: Any) -> Any:
        read(*args)
        return read(*args)

    monkeypatch.setattr(snapshot, "read", twice)
    assert _victims(engine) == wanted


def test_for_an_erasure_every_main_segment_goes(store: Store) -> None:
    """Also one in which everything lives: append frames hold values too. Of compacted ones those
    in which something is dead."""
    engine = store._engine()
    store.stream(b"whole").add_many([{b"pad": bytes(30_000)}] * 8)
    rows, active = measure.rows_and_active(engine)
    assert measure.victims(engine, 0.0) == set(rows) - {active}
    store.compact(threshold=0.0)
    rows, active = measure.rows_and_active(engine)
    compacted = {number for number, row in rows.items() if row.role == fmt.Role.COMPACTED}
    assert compacted
    assert not measure.victims(engine, 0.0) & compacted
    last = list(store.stream(b"whole"))[-1].id
    store.stream(b"whole").delete(last)
    (found,) = measure.victims(engine, 0.0) & compacted
    assert found in compacted


def test_every_segment_in_use_is_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = store._engine()

    def used() -> set[int]:
        pages = measure.locators(engine)
        return {fmt.segment_of(locator.position) for page in pages for locator in page}

    wanted = used()
    assert len(wanted) > 2
    for size in (1, 2, 7):
        monkeypatch.setattr(measure, "NODES_A_SNAPSHOT", size)
        assert used() == wanted


def _candidates(engine: Engine, pause: Callable[[int], None]) -> list[Any]:
    chooser = NodeChooser(set(), 0.3)
    found = list(node_choice._candidates(engine, chooser.must, pause))
    # Where a batch ends, neighbours that stay may be told once more.
    return [
        each for at, each in enumerate(found) if each is not None or found[at - 1 : at] != [None]
    ]


def test_nodes_to_rewrite_are_the_same_whatever_a_batch_holds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = store._engine()
    paused: list[int] = []
    wanted = _candidates(engine, paused.append)
    read = [each for each in wanted if each is not None]
    assert None in wanted
    assert len(read) > 20
    assert paused == [sum(len(each.lp) for each in read)]
    rows, _ = snapshot.read(engine, partial(
        node_choice._batch, after=b"", must=lambda locator: locator.live % 2 == 0
    ))  # fmt: skip
    assert all(a is not None or b is not None for a, b in pairwise(rows))
    assert any(each is None for each in rows)
    for name, size in (("NODES_A_BATCH", 1), ("NODES_A_BATCH", 3), ("BYTES_A_BATCH", 300)):
        with monkeypatch.context() as patch:
            patch.setattr(node_choice, name, size)
            paused.clear()
            assert _candidates(engine, paused.append) == wanted
            assert len(paused) > 3
            assert sum(paused) == sum(len(each.lp) for each in read)
            (some, last), most = snapshot.read(engine, partial(
                node_choice._batch, after=b"", must=lambda _: True
            )), node_choice.NODES_A_BATCH  # fmt: skip
            assert last is not None
            assert len(some) <= most
    with monkeypatch.context() as patch:  # nor are more than so many looked at
        patch.setattr(node_choice, "NODES_A_BATCH", 1)
        rows, last = snapshot.read(engine, partial(
            node_choice._batch, after=b"", must=lambda _: False
        ))  # fmt: skip
        assert (rows, last is not None) == ([None], True)


def test_open_nodes_are_found_whatever_a_snapshot_holds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        store.stream(f"open-{number}").add({b"n": b"1"})
    engine = store._engine()

    def look() -> list[tuple[int, int]]:
        return [each for some in segment_rewrite._record_batches(engine) for each in some]

    wanted = look()
    assert [number for number, _ in wanted] == list(range(1, 11))
    oldest = segment_rewrite._oldest_open(engine)
    assert oldest == min(begins for _, begins in wanted if begins)
    monkeypatch.setattr(segment_rewrite, "RECORDS_A_SNAPSHOT", 3)
    assert look() == wanted
    assert segment_rewrite._oldest_open(engine) == oldest
    monkeypatch.setattr(segment_rewrite, "OPENS_A_COMMIT", 2)
    store.stream(b"fill").add({b"pad": bytes(63_000)})
    committer = Committer(engine)
    _, active = measure.rows_and_active(engine)
    segment_rewrite.seal(engine, committer)
    paused: list[int] = []
    before = engine.wake.log().commit
    count = len([begins for _, begins in look() if begins])
    assert count >= 6
    done = segment_rewrite.rewrite_open_nodes(
        engine, committer, {active}, purge=False, pause=paused.append
    )
    assert done == count
    assert engine.wake.log().commit - before >= count // 2
    assert all(begins > active for _, begins in look() if begins)
    assert sum(paused) > 0
    assert segment_rewrite.rewrite_open_nodes(engine, committer, {active}, purge=False) == 0
    assert segment_rewrite.rewrite_open_nodes(engine, committer, set(), purge=False) == 0


def _written(engine: Engine, committer: Committer) -> bytes:
    made = segment_rewrite.begin(engine, committer)
    for group in node_choice.groups(engine, NodeChooser(set(), 0.0)):
        made.add(group)
    made.finish()
    assert file_names.hint(engine.path, made.number).exists()
    found = file_names.segment(engine.path, made.number).read_bytes()
    assert len(found) == made.offset
    assert len(stored.of(engine.path, made.number)) == sum(1 for item, _ in made.items if item[6])
    for nth, each in enumerate(stored.of(engine.path, made.number)):
        assert (each.commit, each.durable_upto, each.ordinal) == (0, 0, nth)
        assert (each.kind, each.flags) == (fmt.Kind.NODE, fmt.FRAME_FLAG_LAST)
    made.abandon()
    assert not file_names.segment(engine.path, made.number).exists()
    assert not file_names.hint(engine.path, made.number).exists()
    return found


def test_a_compacted_segment_is_the_same_however_it_is_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, or piece by piece, and synced in between."""
    engine, committer = store._engine(), Committer(store._engine())
    sizes, syncs = [], []
    for write_bytes, sync_bytes in ((1 << 20, 8 << 20), (1, 1 << 20), (1, 2000)):
        monkeypatch.setattr(segment_rewrite, "WRITE_BYTES", write_bytes)
        monkeypatch.setattr(segment_rewrite, "SYNC_BYTES", sync_bytes)
        fs = engine.fs = DurableOrder()
        sizes.append(len(_written(engine, committer)))
        engine.fs = LOCAL
        newest = max(name.partition(".")[0] for what, name in fs.done if what == "sync")
        log = file_names.segment(engine.path, 0).suffix
        synced = [name for what, name in fs.done if what == "sync" and log in name]
        syncs.append(sum(name.startswith(newest) for name in synced))
    assert len(set(sizes)) == 1
    assert sizes[0] > 6000
    assert syncs[:2] == [2, 2]  # when it is made, and when it is whole
    assert syncs[0] + 2 <= syncs[2] <= syncs[0] + sizes[0] // 2000


def test_a_number_is_above_all_that_are_there_or_were(store: Store) -> None:
    engine, committer = store._engine(), Committer(store._engine())
    first = segment_rewrite.begin(engine, committer)
    first.abandon()
    second = segment_rewrite.begin(engine, committer)
    assert second.number == first.number + 1
    head = chain.heads(LOCAL, engine.path, engine.uuid)[second.number][0]
    assert (head.role, head.number) == (fmt.Role.COMPACTED, second.number)
    shutil.copy(file_names.segment(engine.path, 1), file_names.segment(engine.path, 90))
    third = segment_rewrite.begin(engine, committer)
    assert third.number == 91
    file_names.segment(engine.path, 90).unlink()
    fourth = segment_rewrite.begin(engine, committer)
    assert fourth.number == 92
    for each in (second, third, fourth):
        each.abandon()


def test_nodes_of_which_nothing_lives_only_go(store: Store) -> None:
    """They are named, and no byte of them is written."""
    engine, committer = store._engine(), Committer(store._engine())
    sources = [each for each in node_choice._candidates(engine, lambda _: True, no_pause) if each][
        :2
    ]
    made = segment_rewrite.begin(engine, committer)
    made.add(node_choice.Group(sources, 0, b""))
    ((item, versions),) = made.items
    assert [(read.master, read.locator) for read in versions] == [
        (each.master, each.locator) for each in sources
    ]
    assert (item.stream, item.payload_bytes, item.offset, item.entries) == (1, 0, 0, 0)
    assert (item.master_ms, item.master_seq) == sources[0].master
    assert item.replaced == tuple((each.master.ms, each.master.seq) for each in sources)
    assert made.offset == fmt.SEGMENT_HEAD_BYTES
    report = CompactionReport()
    length = store.stream(b"a").info().length
    segment_rewrite.adopt(engine, committer, made, report)
    assert (report.nodes_written, report.nodes_skipped, report.segments_written) == (0, 0, 0)
    there = {master for _, stream, master, _ in _nodes(engine) if stream == 1}
    assert there
    assert not there & {each.master for each in sources}
    assert length > 0


def _nodes(engine: Engine) -> list[tuple[Any, ...]]:
    return snapshot.read(engine, lambda view: list(view.index.all_nodes()))
