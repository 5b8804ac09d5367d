"""Prevents every process from looking at every node for tombstones at the same time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import logstore
from logstore.compaction import background, deleted_bytes
from logstore.compaction.background import Compactor
from logstore.engine.runtime.background import no_pause
from tests.engine.procs import Waiting
from tests.support.inside import engine_of

PROCESSES = 4
NODES = 2_500


def test_one_process_counts_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    told, tell = os.pipe()
    count = deleted_bytes.tombstoned_bytes

    def counted(*rest: object) -> dict[int, int]:
        os.write(tell, b"x")
        return count(*rest)  # type: ignore[arg-type]

    monkeypatch.setattr(background.deleted_bytes, "tombstoned_bytes", counted)

    def work() -> None:
        with logstore.open(path, background=False) as theirs:
            compactor = Compactor(engine_of(theirs), theirs._live().committer)
            for _ in range(3):  # the first is that of who has it open for a moment
                compactor._next_s = 0.0
                compactor.tick(no_pause)

    with logstore.open(path, background=False) as store:
        children = [Waiting(work) for _ in range(PROCESSES)]
        ids = list(store.stream("s").add_many({"n": n} for n in range(500)))
        store.stream("s").delete(*ids[:50])
        for child in children:
            child.go()
        assert os.read(told, 100) == b"x"
        engine_of(store).wake.next_count_ms = 0  # later
        work()
        assert os.read(told, 100) == b"x"


def test_it_is_counted_in_slices(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", background=False, node_max_entries=1) as store:
        stream = store.stream("s")
        stream.add_many({"n": n} for n in range(NODES))
        rests: list[int] = []
        deleted_bytes.tombstoned_bytes(engine_of(store), rests.append)
        assert len(rests) >= NODES // deleted_bytes.NODES_A_SNAPSHOT
        assert deleted_bytes.NODES_A_SNAPSHOT <= 1000
