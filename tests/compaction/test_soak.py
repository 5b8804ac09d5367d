"""Prevents long random runs, with others at work between the steps, from ending anywhere but in
what a plain model says: after compaction, erasure, a checkpoint, a rebuild, a kill, a backup."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

import logstore
from logstore.compaction import compactor, node_choice, runner, segment_rewrite
from logstore.engine.maintenance import checkpoint
from logstore.engine.runtime.background import no_pause
from logstore.recovery.check import check
from tests import seeds
from tests.compaction.soak import Between, Soak

SECONDS = 1.5
KINDS = ("compact", "background", "purge", "take", "rebuild", "read", "backup")
TOKEN = re.compile(rb"T~[0-9a-f]{16}~")


def killed_now(soak: Soak, copy: Path) -> None:
    """What a kill at this moment leaves, opened with its index or without it."""
    shutil.copytree(soak.path, copy, ignore=shutil.ignore_patterns("lock.mdb"))
    if soak.chance.random() < 0.5:
        shutil.rmtree(copy / "index")
        kept = sorted((copy / "checkpoint").glob("*.ckpt"))
        if len(kept) > 1 and soak.chance.random() < 0.5:
            kept[-1].unlink()
    with soak.open(copy) as store:
        soak.compare(store)
    assert check(copy).damage == []
    shutil.rmtree(copy)


def rebuilt(soak: Soak) -> None:
    before = soak.compare(soak.store)
    soak.store.close()
    shutil.rmtree(soak.path / "index")
    kept = sorted((soak.path / "checkpoint").glob("*.ckpt"))
    if len(kept) > 1 and soak.chance.random() < 0.5:
        kept[-1].unlink()
    soak.store = soak.open()
    assert soak.compare(soak.store) == before


def erased(soak: Soak) -> None:
    soak.store.compact(purge=True)
    pairs = [pairs for model in soak.model.streams.values() for pairs in model.entries.values()]
    living = {value for each in pairs for _, value in each}
    for file in soak.path.rglob("*"):
        if file.is_file():
            assert set(TOKEN.findall(file.read_bytes())) <= living, file


def one_round(soak: Soak, other: Path) -> str:
    """Some operations, then one of what must change nothing; its name."""
    for _ in range(soak.chance.choice((1, 5, 20))):
        soak.step()
    kind = soak.chance.choice(KINDS)
    rate = soak.chance.choice((0.0, 0.3, 0.9))

    def others() -> None:
        if soak.chance.random() < rate:
            soak.step()
        if soak.chance.random() < 0.02:
            killed_now(soak, other)

    shared = soak.store._live()
    committer = Between(shared.committer, others)
    if kind == "compact":
        runner.run(shared.engine, committer, threshold=soak.chance.choice((0.1, 0.5, 0.9)))
    elif kind == "background":
        compactor.Compactor(shared.engine, committer).tick(no_pause)
    elif kind == "purge":
        with suppress(logstore.ErasureIncompleteError):  # others may be at it in every pass
            runner.run(shared.engine, committer, purge=True)
        erased(soak)
    elif kind == "take":
        checkpoint.take(shared.engine, committer)
    elif kind == "rebuild":
        rebuilt(soak)
    elif kind == "read":
        with logstore.open(soak.path, readonly=True, background=False) as reader:
            soak.compare(reader)
            soak.step()
            soak.store.compact()
            soak.step()
            soak.compare(reader)
    else:
        soak.store.backup(other)
        with soak.open(other) as store:
            soak.compare(store)
        shutil.rmtree(other)
    soak.compare(soak.store)
    return kind


@pytest.mark.parametrize("turn", range(4))
def test_random_runs_end_in_what_a_model_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    seed = seeds.seed() + turn
    print(f"LOGSTORE_SEED={seed - turn} turn {turn}")
    monkeypatch.setattr(checkpoint, "STREAMS_A_CHUNK", 2)
    monkeypatch.setattr(checkpoint, "NODES_A_CHUNK", 7)
    monkeypatch.setattr(node_choice, "NODES_A_BATCH", 9)
    monkeypatch.setattr(compactor, "MIN_AGE_MS", 0)
    monkeypatch.setattr(compactor, "INDEX_MIN_BYTES", 1 << 14)
    monkeypatch.setattr(segment_rewrite, "OPENS_A_COMMIT", 2)
    monkeypatch.setattr(segment_rewrite, "ITEMS_A_COMMIT", 3)
    soak = Soak(tmp_path / "store", random.Random(seed))
    rounds: list[str] = []
    try:
        end = time.monotonic() + float(os.environ.get("SOAK_SECONDS", SECONDS))
        while time.monotonic() < end:
            rounds.append(one_round(soak, tmp_path / "other"))
    finally:
        soak.store.close()
    print(f"{soak.steps} operations, {len(rounds)} rounds: {rounds}")
    assert check(soak.path).damage == []
