"""Prevents a run of compaction that ends early, holds what it wrote, or gives back too much."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import format as fmt
from logstore.codec import codec_name
from logstore.compaction import measure, node_choice, runner, segment_rewrite
from logstore.compaction.node_choice import NodeChooser
from logstore.compaction.segment_rewrite import CompactionReport
from logstore.engine.commit.committer import Committer
from logstore.engine.reading.reader_interface import NODES_MAX_BYTES
from logstore.engine.runtime import maintenance_locks
from logstore.engine.snapshots import snapshot
from logstore.errors import DiskFullError
from logstore.fs import LOCAL
from logstore.log import chain, file_names, pinfile
from tests.compaction.conftest import Store, open_plain
from tests.support.watched_files import DurableOrder


def test_a_segment_that_is_gone_has_no_bytes(store: Store) -> None:
    engine = store._engine()
    assert measure.size_bytes(engine, 1) == file_names.segment(engine.path, 1).stat().st_size
    assert measure.size_bytes(engine, 77) == 0


def test_bytes_given_back_by_a_run_are_counted(store: Store) -> None:
    engine = store._engine()
    store.stream(b"short").add_many([{b"pad": bytes(30_000)}] * 6)
    store.drop(b"short")
    sizes = {
        number: file_names.segment(engine.path, number).stat().st_size
        for number in file_names.segments(LOCAL, engine.path)
    }
    before = engine.wake.compacted
    report = store.compact(threshold=0.0)
    gone = set(sizes) - set(file_names.segments(LOCAL, engine.path))
    assert len(gone) > 3
    # And those that were begun and ended by the run itself.
    assert report.segments_dropped >= len(gone)
    assert 0 <= report.dropped_bytes - sum(sizes[number] for number in gone) < 70_000
    assert engine.wake.dropped == report.segments_dropped
    assert engine.wake.compacted[1] - before[1] == report.dropped_bytes
    assert engine.wake.compacted[0] > 0
    assert report.segments_pinned == 0
    found = report.as_dict()
    assert found["dropped_bytes"] == report.dropped_bytes


def test_a_name_that_went_is_gone_for_good(store: Store) -> None:
    """What is derived goes first, then the segment, then all is durable."""
    engine = store._engine()
    store.compact(threshold=0.0)
    number = min(file_names.segments(LOCAL, engine.path))
    assert file_names.hint(engine.path, number).exists()
    fs = engine.fs = DurableOrder()
    gone: list[str] = []
    real = fs.remove
    fs.remove = lambda path: (gone.append(path.name), real(path))[1]  # type: ignore[method-assign]
    segment_rewrite.unlink(engine, number)
    engine.fs = LOCAL
    paths = file_names.of_segment(engine.path, number)
    assert gone == [path.name for path in paths]
    assert not any(path.exists() for path in paths)
    assert fs.done == [("directory", file_names.LOG)]


def test_by_itself_a_run_erases_nothing(store: Store) -> None:
    engine = store._engine()
    report = runner.run(engine, Committer(engine))
    assert not report.purge
    assert not report.index_rebuilt


def test_a_dropped_segment_that_was_not_unlinked_goes_and_one_that_begins_stays(
    store: Store, tmp_path: Path
) -> None:
    engine = store._engine()
    for _ in range(12):
        store.stream(b"large").add({b"pad": bytes(60_000)})
    store.drop(b"large")
    kept = shutil.copytree(engine.path / file_names.LOG, tmp_path / "kept")
    before = file_names.segments(LOCAL, engine.path)
    store.compact(threshold=0.0)
    # The last of those that went: the older checkpoint is just behind it.
    number = max(set(before) - set(file_names.segments(LOCAL, engine.path)))
    assert number > min(file_names.checkpoints(LOCAL, engine.path)) >> 33
    dropped = file_names.segment(engine.path, number)
    shutil.copy(kept / dropped.name, dropped)
    numbers = file_names.segments(LOCAL, engine.path)
    begun = file_names.segment(engine.path, max(numbers) + 1)
    head = chain.heads(LOCAL, engine.path, engine.uuid)[max(measure.rows_and_active(engine)[0])][0]
    chain.segment.create(
        LOCAL, engine.path, head._replace(number=max(numbers) + 1, role=fmt.Role.MAIN)
    ).close()
    segment_rewrite.remove_garbage(engine, store._live().committer)
    assert not dropped.exists()
    assert begun.exists()
    begun.unlink()


def test_an_erasure_leaves_open_nodes_without_what_was_deleted(tmp_path: Path) -> None:
    """One of which nothing is left goes; the stream keeps its last ID."""
    with open_plain(tmp_path / "store") as store:
        for name in (b"all", b"some", b"none"):
            for ms in range(1, 5):
                store.stream(name).add({b"n": b"%d" % ms}, f"{ms}-0")
        store.stream(b"all").delete(*(f"{ms}-0" for ms in range(1, 5)))
        store.stream(b"some").delete("1-0", "3-0")
        report = store.compact(purge=True)
        assert report.open_nodes_restated == 2
        assert report.purge
        assert report.index_rebuilt
        for name, left, last in ((b"all", [], 4), (b"some", [2, 4], 4), (b"none", [1, 2, 3, 4], 4)):
            stream = store.stream(name)
            assert [entry.id.ms for entry in stream] == left
            assert stream.last_id.ms == last
            stream.add({b"n": b"5"}, "5-0")
            assert [entry.id.ms for entry in stream] == [*left, 5]


def test_copies_go_with_an_erasure_and_nothing_else_does(store: Store) -> None:
    store.checkpoint()
    engine, committer = store._engine(), Committer(store._engine())
    suffix = file_names.segment(engine.path, 0).suffix
    stays = [
        engine.path / file_names.LOG / "notes.tmp.txt",
        engine.path / file_names.CHECKPOINTS / "notes",
        engine.path / file_names.LOG / f"x{file_names.TEMPORARY}",
    ]
    goes = [
        engine.path / file_names.LOG / f"00000000000000000077{suffix}{file_names.TEMPORARY}",
        engine.path / file_names.CHECKPOINTS / f"{77:020d}.ckpt{file_names.TEMPORARY}",
        engine.path / file_names.QUARANTINE / f"{1:020d}-{64:010d}.tail",
        pinfile.path(engine.path, pinfile.new_id()),
    ]
    half = engine.path / file_names.INDEX / f"77{file_names.TEMPORARY}"
    for each in (*stays, *goes, half / "data.mdb"):
        each.parent.mkdir(exist_ok=True)
        each.write_bytes(b"x")
    before = {each for each in engine.path.rglob("*") if each.is_file()}
    runner._erase_copies(engine, committer)
    after = {each for each in engine.path.rglob("*") if each.is_file()}
    assert before - after == {*goes, half / "data.mdb"}
    assert not half.exists()


@pytest.mark.parametrize("fits", [0, 1, 2])
def test_in_little_space_a_run_goes_as_far_as_it_can(
    fits: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One segment after the other, those in which least lives first; an error only if not even
    one could be given back."""
    engine, committer = store._engine(), Committer(store._engine())
    report = CompactionReport()
    moved: list[set[int]] = []
    sweep = runner.sweep

    def full(*given: Any) -> None:
        victims = given[3]
        if victims:
            if len(moved) == fits:
                raise DiskFullError("no space")
            moved.append(victims)
        sweep(*given)

    monkeypatch.setattr(runner, "sweep", full)
    segment_rewrite.seal(engine, committer)
    rows, _ = measure.rows_and_active(engine)
    live = {number: row.live_bytes for number, row in rows.items()}
    store.stream(b"d").add({b"n": b"1"})
    _, active = measure.rows_and_active(engine)
    victims = measure.victims(engine, 0.1)
    assert len(victims) > 2
    with maintenance_locks.alone(engine):
        if not fits:
            with pytest.raises(DiskFullError):
                runner._one_by_one(engine, committer, report, 0.1)
        else:
            runner._one_by_one(engine, committer, report, 0.1)
    assert [len(each) for each in moved] == [1] * fits
    assert set().union(*moved) <= victims | {active}
    done = [live.get(number, 0) for each in moved for number in each if number != active]
    assert done == sorted(done)
    assert report.segments_dropped >= fits
    assert len(list(store.stream(b"a"))) == 120
    assert measure.rows_and_active(engine)[1] > active  # it was sealed


def test_compaction_rests_between_commits_by_its_rate(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the bytes of each node that was written, and for nothing else."""
    engine, committer = store._engine(), Committer(store._engine())
    monkeypatch.setattr(segment_rewrite, "ITEMS_A_COMMIT", 5)
    with maintenance_locks.alone(engine):
        segment_rewrite.seal(engine, committer)
        groups = list(node_choice.groups(engine, NodeChooser(set(), 0.0)))
        paused: list[int] = []
        report = CompactionReport()
        segment_rewrite.write_and_adopt(engine, committer, groups, report, paused.append)
    written = [len(group.lp) for group in groups]
    assert len(groups) > 10
    commits = -(-len(groups) // 5)
    assert paused == written + [0] * commits
    assert report.nodes_written == len([size for size in written if size])
    assert report.nodes_read == sum(len(group.parts) for group in groups)
    assert (report.nodes_skipped, report.segments_written) == (0, 1)
    number = max(file_names.segments(LOCAL, engine.path)[:-1])
    size = file_names.segment(engine.path, number).stat().st_size
    assert report.written_bytes == size
    # A second pass counts on.
    with maintenance_locks.alone(engine):
        segment_rewrite.seal(engine, committer)
        groups = list(node_choice.groups(engine, NodeChooser({number}, 1.0)))
        segment_rewrite.write_and_adopt(engine, committer, groups, report)
    number = max(file_names.segments(LOCAL, engine.path)[:-1])
    assert report.written_bytes == size + file_names.segment(engine.path, number).stat().st_size
    assert report.segments_written == 2
    assert report.nodes_written == len([each for each in written if each]) + len(groups)


def test_sweeps_of_a_run_add_up_in_one_report(store: Store) -> None:
    engine, committer = store._engine(), Committer(store._engine())
    report = CompactionReport()
    restated = []
    with maintenance_locks.alone(engine):
        for turn in range(3):
            store.stream(b"open").add({b"n": b"%d" % turn}, f"{turn + 1}-0")
            store.stream(f"open-{turn}").add({b"n": b"1"})
            _, active = measure.rows_and_active(engine)
            segment_rewrite.seal(engine, committer)
            runner.sweep(engine, committer, report, {active}, 1.0)
            restated.append(report.open_nodes_restated)
    assert restated[0] >= 2
    assert restated[1] >= restated[0] + 2
    assert restated[2] >= restated[1] + 2
    assert report.segments_dropped >= 3
    assert store.stream(b"open").info().length == 3


def test_nothing_lives_in_an_empty_segment_that_is_not_the_active_one(store: Store) -> None:
    engine = store._engine()
    segment_rewrite.seal(engine, Committer(engine))
    rows, active = measure.rows_and_active(engine)
    found = measure.empty(engine)
    assert active not in found
    assert found == {number for number, row in rows.items() if not row.live_nodes} - {active}


def test_live_bytes_are_counted_exactly(store: Store) -> None:
    engine = store._engine()
    chooser = NodeChooser(set(), 0.3)
    staying, deleted = measure.stays(engine, chooser)
    nodes_there = snapshot.read(
        engine, lambda view: [locator for _, _, _, locator in view.index.all_nodes()]
    )
    wanted: dict[int, int] = {}
    for each in nodes_there:
        if not chooser.must(each):
            size = fmt.FRAME_HEAD_BYTES + each.payload_bytes
            wanted[fmt.segment_of(each.position)] = (
                wanted.get(fmt.segment_of(each.position), 0) + size
            )
    assert staying == wanted != {}
    assert (
        deleted == {fmt.segment_of(each.position) for each in nodes_there if each.vector} != set()
    )


SLACK = runner.INDEX_SLACK_BYTES


@pytest.mark.parametrize(
    ("size", "live", "always", "built"),
    [
        (SLACK, 0, False, True),
        (SLACK - 1, 0, False, False),
        (SLACK + 150, 100, False, True),
        (SLACK + 149, 100, False, False),
        (0, 100, True, True),
    ],
)
def test_conditions_for_building_the_index_anew(
    size: int, live: int, always: bool, built: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a third of it, and a MiB, is free; for an erasure and a full run always."""
    monkeypatch.setattr(runner, "index_bytes", lambda view: (size, live))
    with logstore.open(tmp_path / "store", background=False) as store:
        store.stream("s").add({"n": 1})
        engine = store._engine()
        before = engine.index().number
        assert runner._shrink_index(engine, Committer(engine), always=always) is built
        assert (engine.index().number > before) is built
        assert len(store.stream("s")) == 1


def test_on_a_full_disk_an_erasure_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not go on with less; a compaction does."""
    done: list[str] = []

    def full(*_: Any) -> None:
        raise DiskFullError("no space")

    monkeypatch.setattr(runner, "_pass", full)
    monkeypatch.setattr(runner, "_one_by_one", lambda *_: done.append("less"))
    with logstore.open(tmp_path / "store", background=False) as store:
        store.stream("s").add({"n": 1})
        with pytest.raises(DiskFullError):
            store.compact(purge=True)
        assert done == []
        store.compact()
        assert done == ["less"]


SEGMENT_BYTES = 24 << 20
ROWS = 40_000
PAD = b"x" * 1000  # 40 MB: two segments, which become more than one
# What the cache of nodes in Python keeps of those that compaction reads.
KEPT_BYTES = NODES_MAX_BYTES if codec_name() == "pure" else 0


def test_memory_does_not_grow_with_a_segment(tmp_path: Path) -> None:
    with logstore.open(
        tmp_path / "store", encoding=None, background=False, sync="os", segment_bytes=SEGMENT_BYTES
    ) as store:
        stream = store.stream("s")
        ids = stream.add_many(({b"pad": PAD} for _ in range(ROWS)), batch=1000)
        stream.delete(*list(ids)[::10])
        tracemalloc.start()
        try:
            report = store.compact(full=True)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert report.written_bytes > 1.4 * SEGMENT_BYTES
        assert peak_bytes < SEGMENT_BYTES / 2 + KEPT_BYTES
