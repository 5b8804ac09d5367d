"""Prevents what a process that died left behind from staying for ever, or more from going; and a
report that counts only the last of many commits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.compaction import segments
from logstore.log import names
from tests.corruption import shop


def _store(path: Path) -> logstore.Store[bytes]:
    return logstore.open(path, encoding=None, background=False)


def test_leftovers_go_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "store"
    shop.make(path, 3)
    with _store(path) as store:
        store.checkpoint()
        engine = store._engine()
        kept = {each.name for folder in (names.LOG, names.CHECKPOINTS)
                for each in (path / folder).iterdir()}  # fmt: skip
        numbers = names.segments(engine.fs, path)
        hint, half = names.hint(path, max(numbers) + 5), names.hint(path, numbers[0])
        left = [
            hint,
            hint.with_name(hint.name + names.TEMPORARY),
            names.checkpoint(path, 77).with_name(names.checkpoint(path, 77).name + names.TEMPORARY),
        ]
        stays = [path / names.LOG / "notes.txt", path / names.LOG / f"x{half.suffix}"]
        for each in (*left, *stays):
            each.write_bytes(b"left")
        segments.remove_garbage(engine)
        assert not any(each.exists() for each in left)
        assert all(each.exists() for each in stays)
        now = {each.name for folder in (names.LOG, names.CHECKPOINTS)
               for each in (path / folder).iterdir()}  # fmt: skip
        assert now == kept | {each.name for each in stays}


def test_every_commit_of_a_compaction_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers, whether the nodes are adopted in one commit or in many."""
    told = []
    for items in (segments.ITEMS_A_COMMIT, 2):
        path = tmp_path / str(items)
        shop.make(path, 3, compacted=False)
        monkeypatch.setattr(segments, "ITEMS_A_COMMIT", items)
        with _store(path) as store:
            report = store.compact(threshold=0.1)
            assert 0 <= report.took_ms < 600_000  # not a point in time
            told.append((report.nodes_written, report.nodes_skipped, report.segments_dropped))
    assert told[0] == told[1]
    assert told[0][0] > 4
