"""Prevents what a process that died left behind from staying for ever, or more from going; and a
report that counts only the last of many commits.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import logstore
from logstore.compaction import measure, segment_rewrite
from logstore.engine.runtime.engine import Engine
from logstore.format import Role
from logstore.fs import LOCAL
from logstore.index.keys import SegmentRow
from logstore.index.txn import IndexTxn
from logstore.log import file_names
from logstore.recovery.check import check
from tests.corruption import shop
from tests.support.processes import run_program


def _store(path: Path) -> logstore.Store[bytes]:
    return logstore.open(path, encoding=None, background=False)


def test_leftovers_go_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "store"
    shop.make(path, 3)
    with _store(path) as store:
        store.checkpoint()
        engine = store._engine()
        kept = {each.name for folder in (file_names.LOG, file_names.CHECKPOINTS)
                for each in (path / folder).iterdir()}  # fmt: skip
        numbers = file_names.segments(engine.fs, path)
        hint, half = file_names.hint(path, max(numbers) + 5), file_names.hint(path, numbers[0])
        left = [
            hint,
            hint.with_name(hint.name + file_names.TEMPORARY),
            file_names.checkpoint(path, 77).with_name(
                file_names.checkpoint(path, 77).name + file_names.TEMPORARY
            ),
        ]
        stays = [path / file_names.LOG / "notes.txt", path / file_names.LOG / f"x{half.suffix}"]
        for each in (*left, *stays):
            each.write_bytes(b"left")
        segment_rewrite.remove_garbage(engine, store._live().committer)
        assert not any(each.exists() for each in left)
        assert all(each.exists() for each in stays)
        now = {each.name for folder in (file_names.LOG, file_names.CHECKPOINTS)
               for each in (path / folder).iterdir()}  # fmt: skip
        assert now == kept | {each.name for each in stays}


KILLED_AT_ADOPT = """
import os, signal, sys
import logstore
from logstore.compaction import segment_rewrite as segments
from logstore.engine.commit import pipeline

adopt = segments.adopt

def dies(*args, **kwargs):
    # Behind the append, before LMDB's commit: it counts, and no index knows of it.
    pipeline._keep_promise = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    return adopt(*args, **kwargs)

segments.adopt = dies
with logstore.open(sys.argv[1], background=False) as store:
    store.compact(threshold=0.1)
"""


def test_segments_adopted_by_a_killed_compaction_are_kept(tmp_path: Path) -> None:
    """Its last commit is finished by the next writer, so the next compaction asks only then."""
    path = tmp_path / "store"
    shop.make(path, 3, compacted=False)
    with _store(path) as store:
        before = {name: [entry.pairs for entry in store.stream(name)] for name in store.streams()}
        run_program(KILLED_AT_ADOPT, path, exits=-signal.SIGKILL)
        store.compact(threshold=0.1)
        after = {name: [entry.pairs for entry in store.stream(name)] for name in store.streams()}
        assert after == before
    assert not check(path).damage


def test_every_commit_of_a_compaction_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers, whether the nodes are adopted in one commit or in many."""
    told = []
    for items in (segment_rewrite.ITEMS_A_COMMIT, 2):
        path = tmp_path / str(items)
        shop.make(path, 3, compacted=False)
        monkeypatch.setattr(segment_rewrite, "ITEMS_A_COMMIT", items)
        with _store(path) as store:
            report = store.compact(threshold=0.1)
            assert 0 <= report.took_ms < 600_000  # not a point in time
            told.append((report.nodes_written, report.nodes_skipped, report.segments_dropped))
    assert told[0] == told[1]
    assert told[0][0] > 4


def test_an_index_rebuilt_between_a_drop_and_its_unlink_does_not_count_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rebuild sees the file, which goes right behind it; later runs do not look for it."""
    path = tmp_path / "store"
    shop.make(path, 3, compacted=False)
    unlink = segment_rewrite.unlink
    rebuilt: list[int] = []
    with _store(path) as store:
        before = {name: [entry.pairs for entry in store.stream(name)] for name in store.streams()}
        committer = store._live().committer

        def late(engine: Engine, number: int) -> None:
            if not rebuilt:
                with committer.locked():
                    engine.rebuild_locked()
            rebuilt.append(number)
            unlink(engine, number)

        monkeypatch.setattr(segment_rewrite, "unlink", late)
        store.compact(threshold=0.1)
        monkeypatch.undo()
        assert rebuilt
        rows, active = measure.rows_and_active(store._engine())
        assert set(rows) - {active} <= set(file_names.segments(LOCAL, path))
        store.compact(threshold=0.1)
        after = {name: [entry.pairs for entry in store.stream(name)] for name in store.streams()}
        assert after == before
    assert not check(path).damage


def test_a_row_of_a_segment_that_is_gone_goes_with_the_next_run(tmp_path: Path) -> None:
    """As versions before left one, where an index was rebuilt at that moment."""
    path = tmp_path / "store"
    shop.make(path, 3, compacted=False)
    with _store(path) as store:
        engine = store._engine()
        store.compact(threshold=0.1)
        gone = min(measure.rows_and_active(engine)[0]) - 1
        assert gone > 0
        with store._live().committer.locked(), engine.index().env.begin(write=True) as txn:
            IndexTxn(engine.index(), txn).put_segment(gone, SegmentRow(Role.MAIN, 0, 0, 0, 0))
        report = store.compact(threshold=0.1)
        assert report.segments_dropped >= 1
        assert gone not in measure.rows_and_active(engine)[0]
    assert not check(path).damage
