"""Prevents a trim or a drop of a long stream with all nodes in memory, or that leaves some."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore.recovery.check import check

NODES = 12_345
KEPT = 3
PEAK_MAX_BYTES = 3 << 20  # a locator in memory takes 350 bytes, a reference to a node as many


def trimmed(store: logstore.Store[str]) -> int:
    return store.stream("s").trim(maxlen=KEPT, approximate=False)


def trimmed_by_id(store: logstore.Store[str]) -> int:
    return store.stream("s").trim(minid=f"{NODES - KEPT + 1}-0", approximate=False)


def dropped(store: logstore.Store[str]) -> int:
    store.drop("s")
    return NODES - KEPT


@pytest.mark.parametrize("without", [trimmed, trimmed_by_id, dropped])
def test_all_nodes_go_and_few_are_in_memory(
    tmp_path: Path, without: Callable[[logstore.Store[str]], int]
) -> None:
    path = tmp_path / "store"
    with logstore.open(
        path, encoding="utf-8", background=False, sync="os", node_max_entries=1
    ) as store:
        rows = ((f"{number}-0", {"n": str(number)}) for number in range(1, NODES + 1))
        store.stream("s").add_many(rows, batch=10_000)
        store.stream("t").add_many([{"n": "1"}, {"n": "2"}])
        assert store.info().nodes == NODES + 2  # an entry each
        tracemalloc.start()
        try:
            assert without(store) == NODES - KEPT
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak_bytes < PEAK_MAX_BYTES
        left = [] if without is dropped else [str(number) for number in range(NODES - 2, NODES + 1)]
        assert [entry["n"] for entry in store.stream("s")] == left
        assert store.info().nodes == len(left) + 2
        assert len(store.stream("t")) == 2
    assert check(path).damage == []
    shutil.rmtree(path / "index")
    with logstore.open(path, encoding="utf-8", background=False) as store:
        assert [entry["n"] for entry in store.stream("s")] == left
        assert store.info().nodes == len(left) + 2
