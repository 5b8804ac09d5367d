"""Prevents compaction in the background from working when it is not due, twice at once, or without
end on what it cannot drop; and an index from being copied for little.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.compaction import compactor as background
from logstore.compaction.compactor import Compactor, Victim
from logstore.engine.commit.committer import Committer
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.background import no_pause
from logstore.log import file_names, pinfile
from logstore.log.pinfile import Pin

SIZE = 1 << 20


@pytest.fixture
def compactor(tmp_path: Path) -> Any:
    """Of a store in which nothing is due."""
    with logstore.open(tmp_path / "store", background=False) as store:
        engine = store._engine()
        yield Compactor(engine, Committer(engine))


def test_an_index_is_copied_if_most_of_it_is_free_and_the_rest_is_small(
    compactor: Compactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = compactor._engine
    least, most = background.INDEX_MIN_BYTES, background.INDEX_MAX_BYTES

    def copied(used: int, live: int) -> bool:
        before = engine.index().number
        monkeypatch.setattr(background.runner, "index_bytes", lambda view: (used, live))
        compactor._shrink_next_s = 0.0
        compactor._shrink_index()
        assert 0 < compactor._shrink_next_s - time.monotonic() <= background.TOMBSTONES_S
        return engine.index().number > before

    assert copied(least, least // 4)
    assert not copied(least - 1, 0)
    assert not copied(least, least // 4 + 1)
    assert copied(8 * most, most)
    assert not copied(8 * most, most + 1)
    monkeypatch.setattr(background.runner, "index_bytes", lambda view: (least, 0))
    before = engine.index().number
    compactor._shrink_next_s = time.monotonic() + 100
    compactor._shrink_index()
    assert engine.index().number == before
    compactor._shrink_next_s = 0.0
    with maintenance_locks.alone(engine):
        compactor._shrink_index()  # somebody else is at it
    assert engine.index().number == before
    engine.renewing = None
    compactor._shrink_next_s = 0.0
    compactor._shrink_index()
    assert engine.index().number == before


def test_a_round_empties_what_is_due_and_then_looks_less_often(
    compactor: Compactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round at a time; who cannot have the maintenance lock tries again later."""
    engine = compactor._engine
    rounds: list[int] = []
    monkeypatch.setattr(compactor, "_round", lambda pause: rounds.append(1))
    monkeypatch.setattr(compactor, "_victims", lambda: [Victim(1, 0, SIZE)])
    compactor.tick(no_pause)
    assert rounds == [1]
    assert 0 < compactor._next_s - time.monotonic() <= background.LOOK_S
    compactor.tick(no_pause)
    assert rounds == [1]
    compactor._next_s = 0.0
    with maintenance_locks.alone(engine):
        compactor.tick(no_pause)
    assert rounds == [1]
    assert compactor._next_s > time.monotonic()
    compactor._next_s = 0.0
    monkeypatch.setattr(compactor, "_victims", list)
    compactor.tick(no_pause)
    assert rounds == [1]
    assert compactor._next_s > time.monotonic()


def test_a_round_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments that are mostly dead go; one that a scan names is left alone for a while."""
    with logstore.open(tmp_path / "store", background=False, segment_bytes=64 << 10) as store:
        engine = store._engine()
        made = Compactor(engine, Committer(engine))
        for _ in range(4):
            ids = list(store.stream("s").add_many([{"v": b"x" * 500}] * 200))
            store.stream("s").delete(*ids[:190])
        store.stream("t").add_many([{"v": b"x" * 500}] * 200)
        monkeypatch.setattr(background, "MIN_AGE_MS", 0)
        made._count_tombstones(no_pause)
        victims = {each.number for each in made._victims()}
        assert victims
        left = file_names.hint(engine.path, 999)
        left.write_bytes(b"left")
        entries = list(store.stream("s"))
        made._round(no_pause)
        assert not left.exists()
        assert made._tidy
        assert not victims & set(file_names.segments(engine.fs, engine.path))
        assert made._left == {}
        assert list(store.stream("s")) == entries
        assert len(entries) == 40
        assert engine.metrics.as_dict()["compactions"] == 1
        everything = Pin(pinfile.new_id(), frozenset(range(1000)), 2**62, 1, os.getpid())
        monkeypatch.setattr(background.measure, "pins_held", lambda engine: [everything])
        ids = list(store.stream("t"))
        store.stream("t").delete(*(each.id for each in ids[5:]))
        store.stream("t").add_many([{"v": b"x" * 500}] * 200)
        engine.wake.next_count_ms = 0
        made._count_tombstones(no_pause)
        victims = {each.number for each in made._victims()}
        assert victims
        made._round(no_pause)
        assert set(made._left) == victims
        assert all(0 < at - time.monotonic() <= background.AGAIN_S for at in made._left.values())
        assert not {each.number for each in made._victims()} & victims
