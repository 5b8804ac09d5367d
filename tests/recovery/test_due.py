"""Prevents a time that was set from being forgotten by a reopen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logstore.engine.snapshots import snapshot
from tests.schedules.due import START_MS, SetClock, opened
from tests.support.inside import do_due_work


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_stream_that_expires_is_dropped_after_a_reopen_too(tmp_path: Path, rebuilt: bool) -> None:
    """Nothing else is due and nothing is committed: the word that says when comes from the open."""
    clock, path = SetClock(), tmp_path / "s"
    with opened(path, clock) as store:
        store.stream("a").add({"n": 1})
        store.stream("a").expire(after=5)
        store.stream("b").schedule({"n": 2}, after=9)
    if rebuilt:
        shutil.rmtree(path / "index")
    with opened(path, clock) as store:
        engine = store._engine()
        assert store.recovery["index_trusted"] is not rebuilt
        assert engine.wake.next_due_ms == START_MS + 5_000
        clock.ms += 5_000
        do_due_work(store)
        assert engine.wake.next_due_ms == START_MS + 9_000
        assert [each.name for each in snapshot.read(engine, lambda v: list(v.index.records()))] == [
            b"b"
        ]
