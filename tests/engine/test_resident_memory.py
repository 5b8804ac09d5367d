"""Prevents a walk over a long stream from having all of it in the process's memory in the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore

ROWS, PAD_BYTES = 90_000, 4000
MOST_MIB = 100  # of 343 that are read


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "store"
    with logstore.open(path, background=False, sync="os", segment_bytes=16 << 20) as store:
        pad = "x" * PAD_BYTES
        rows = ({"n": str(n % 7), "pad": pad} for n in range(ROWS))
        store.stream("s").add_many(rows, batch=1000)
    return path


def resident_mib() -> int:
    """What is in this process's memory, maps of files included."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


def ranged(stream: logstore.Stream[str]) -> int:
    return sum(1 for _ in stream.range())


def scanned(stream: logstore.Stream[str]) -> int:
    pytest.importorskip("pyarrow", reason="a scan needs the extra arrow")
    return sum(batch.num_rows for batch in stream.scan())


def searched(stream: logstore.Stream[str]) -> int:
    return sum(7 for _ in stream.range(where={"n": "3"}))


@pytest.mark.parametrize("walk", [ranged, scanned, searched])
def test_a_walk_leaves_little_in_memory(
    path: Path, walk: Callable[[logstore.Stream[str]], int]
) -> None:
    with logstore.open(path, background=False) as store:
        before = resident_mib()
        assert abs(walk(store.stream("s")) - ROWS) < 7
        assert resident_mib() - before < MOST_MIB
