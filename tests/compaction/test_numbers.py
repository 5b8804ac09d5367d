"""Prevents a compacted segment and one that a writer rolls to from getting the same number."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.compaction import background, output
from logstore.engine.runtime.background import no_pause
from logstore.log import segment
from logstore.recovery.check import check
from tests.engine.procs import Forked

ROW = {"pad": "x" * 1000}


def test_a_writer_that_rolls_meanwhile_takes_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It committed last before compaction took a number, so it has not read that from the index."""
    path = tmp_path / "store"
    (told, tell), (heard, hear) = os.pipe(), os.pipe()

    def rolls() -> None:
        with logstore.open(path, background=False) as store:
            for _ in range(2):
                os.read(told, 1)
                for _ in range(100):
                    store.stream("other").add(ROW)
                os.write(hear, b"x")

    with logstore.open(path, segment_bytes=1 << 16, background=False) as store:
        ids = list(store.stream("s").add_many([ROW] * 600, batch=10))
        store.stream("s").delete(*ids[::2], *ids[1::4])
        child = Forked(rolls)
        made: list[Any] = []
        adopt = segment.create

        def create(*given: Any) -> Any:
            if not made:
                made.append(given)
                os.write(tell, b"x")
                select.select([heard], [], [], 1.0)  # it must wait for the lock, or be done
            return adopt(*given)

        os.write(tell, b"x")
        os.read(heard, 1)
        with monkeypatch.context() as patched:
            patched.setattr(output.segment, "create", create)
            patched.setattr(background, "MIN_AGE_MS", 0)
            shared = store._live()
            background.Compactor(shared.engine, shared.committer).tick(no_pause)
        child.join()
        assert made
        assert len(store.stream("other")) == sum(1 for _ in store.stream("other")) == 200
        assert [entry.id for entry in store.stream("s")] == ids[3::4]
    assert check(path).damage == []
    for end in (told, tell, heard, hear):
        os.close(end)
