"""Prevents a compaction that holds in memory what it has already written."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import logstore
from logstore.codec import codec_name
from logstore.engine.reading.interface import NODES_MAX_BYTES

SEGMENT_BYTES = 24 << 20
ROWS = 40_000
PAD = b"x" * 1000  # 40 MB: two segments, which become more than one
# What the cache of nodes in Python keeps of those that compaction reads.
KEPT_BYTES = NODES_MAX_BYTES if codec_name() == "pure" else 0


def test_memory_does_not_grow_with_a_segment(tmp_path: Path) -> None:
    with logstore.open(
        tmp_path / "store", encoding=None, background=False, sync="os", segment_bytes=SEGMENT_BYTES
    ) as store:
        stream = store.stream("s")
        ids = stream.add_many(({b"pad": PAD} for _ in range(ROWS)), batch=1000)
        stream.delete(*list(ids)[::10])
        tracemalloc.start()
        try:
            report = store.compact(full=True)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert report.written_bytes > 1.4 * SEGMENT_BYTES
        assert peak_bytes < SEGMENT_BYTES / 2 + KEPT_BYTES
