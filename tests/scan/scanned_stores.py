"""What the tests of scans share: stores to read, and rows to compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import logstore
from logstore.api.store import Store
from logstore.api.stream import Stream
from logstore.clock import SYSTEM_CLOCK
from logstore.compaction import segment_rewrite
from logstore.engine.maintenance import column_statistics
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.scan import split_plan, split_reads
from logstore.scan.record_batches import Gather
from logstore.scan.split_plan import Plan

Row = tuple[str, list[tuple[bytes, bytes]]]


def make_store(path: Path, **options: Any) -> Store[bytes]:
    """A store of small nodes and segments."""
    return logstore.open(
        path,
        **{"sync": "os", "node_max_entries": 4, "segment_bytes": 65536, **options},
    )


def seal_with_statistics(store: Store[bytes]) -> None:
    """Seal the active segment, and make what is missing of statistics."""
    shared = store._live()
    segment_rewrite.seal(shared.engine, shared.committer)
    column_statistics.write_missing(shared.engine)


def rows_of(stream: Stream[bytes], start: StreamID = ZERO_ID, end: StreamID = MAX_ID) -> list[Row]:
    """The entries of a range, as the store gives them."""
    return [(str(entry.id), list(entry.pairs)) for entry in stream.range(start, end)]


def make_plan(store: Store[bytes], *names: bytes, **options: Any) -> Plan:
    """A plan of some streams."""
    return split_plan.make(store._engine(), names, **options)


def batch_rows(batches: Any) -> list[Row]:
    """ID and pairs of every row; the column `pairs` must be of bytes or text."""
    found: list[Row] = []
    for batch in batches:
        for each in batch.to_pylist():
            pairs = [(_bytes(pair["field"]), _bytes(pair["value"])) for pair in each["pairs"]]
            found.append((each["id"], pairs))
    return found


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def split_rows(made: Plan, now_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms) -> list[Row]:
    """The rows of all splits, in the order of the plan; ``now_ms`` tells when pins end."""
    return [
        row
        for split in made.splits
        for row in batch_rows(
            split_reads.batches(
                split, Gather(["id", "pairs"], batch_rows=50, binary=["pairs"]), now_ms=now_ms
            )
        )
    ]


def flip(path: Path, offset: int, mask: int = 0xFF) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= mask
    path.write_bytes(data)
