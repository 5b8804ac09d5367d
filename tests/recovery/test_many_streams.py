"""Prevents a rebuild of many small streams from writing each of their rows many times."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import logstore
from logstore.engine.commit import log_tail
from logstore.engine.commit.committer import Committer
from logstore.engine.snapshots import snapshot
from logstore.index import bulk, keys
from logstore.index import txn as index_txn
from logstore.recovery.check import check
from tests.compaction.dumps import dump

STREAMS = 3000


def _made(path: Path, *, dropped: bool) -> None:
    rng = random.Random(1)
    with logstore.open(path, background=False, encoding=None, sync="os") as store:
        for first in range(0, STREAMS, 500):
            with store.transaction() as tx:
                for number in range(first, first + 500):
                    tx.stream(b"stream-%d" % number).add({b"n": b"%d" % number})
        if dropped:  # names that are given again, and away
            for number in rng.sample(range(STREAMS), 20):
                store.drop(b"stream-%d" % number)
                store.stream(b"stream-%d" % number).add({b"again": b"1"})
            for number in range(5):
                store.rename(b"stream-%d" % number, b"renamed-%d" % number)
                store.stream(b"stream-%d" % number).add({b"of the same name": b"1"})
            store.checkpoint()
            for number in rng.sample(range(STREAMS), 20):
                store.drop(b"stream-%d" % number)
        with Committer(store._engine()).locked() as words:
            log_tail.roll_locked(store._engine(), words)


def test_what_is_rebuilt_is_what_was(tmp_path: Path) -> None:
    path = tmp_path / "store"
    _made(path, dropped=True)
    with logstore.open(path, background=False, encoding=None) as store:
        before = dump(store)
    for without in ("", "checkpoint"):
        shutil.rmtree(path / "index")
        if without:
            shutil.rmtree(path / without)
        with logstore.open(path, background=False, encoding=None) as store:
            assert store.recovery["rebuilt"]
            assert dump(store) == before
    assert check(path).damage == []


def test_each_row_is_written_once(tmp_path: Path) -> None:
    """Records, open nodes and names go into the index in their order, each once."""
    path = tmp_path / "store"
    _made(path, dropped=False)
    shutil.rmtree(path / "index")
    sealed: list[bytes] = []
    seal = index_txn._seal

    def counted(key: bytes, value: bytes) -> bytes:
        sealed.append(key)
        return seal(key, value)

    index_txn._seal = keys.seal = bulk.seal = counted
    try:
        with logstore.open(path, background=False, encoding=None) as store:
            assert store.recovery["rebuilt"]
            names = snapshot.read(store._engine(), lambda view: list(view.index.records()))
    finally:
        index_txn._seal = keys.seal = bulk.seal = seal
    assert len(names) == STREAMS
    assert 4 * STREAMS <= len(sealed) <= 4 * STREAMS + 100
