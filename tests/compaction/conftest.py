"""What tests of compaction begin with: a store with holes in every segment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore

ROWS = [{b"n": b"%d" % n, b"pad": bytes(40)} for n in range(60)]
Store = logstore.Store[bytes]


def open_plain(path: Path) -> Store:
    """An open store that does nothing by itself."""
    return logstore.open(path, encoding=None, background=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Small nodes of three streams in several segments; every third entry deleted."""
    with logstore.open(
        tmp_path / "store", encoding=None, background=False, node_max_entries=5,
        segment_bytes=64 << 10,
    ) as made:  # fmt: skip
        for turn in range(3):
            for name in (b"a", b"b", b"c"):
                ids = made.stream(name).add_many(ROWS)
                made.stream(name).delete(*list(ids)[turn::3])
            made.stream(b"large").add({b"pad": bytes(40_000)})
        yield made
