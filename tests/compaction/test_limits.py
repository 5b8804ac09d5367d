"""Prevents an index from being built anew for nothing, an erasure from ending early in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.compaction import runner
from logstore.engine.commit.committer import Committer
from logstore.errors import DiskFullError

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
def test_when_an_index_is_built_anew(
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
