"""What the tests of retention share: a clock, the nodes of a stream, what must be left of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import logstore
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.ids import StreamID
from tests.support.inside import FixedClock


class Node(NamedTuple):
    """One node: its live IDs, the last ID it ever held, its bytes, whether it is the open one."""

    ids: list[StreamID]
    last: StreamID
    size_bytes: int
    open: bool


def opened(path: Path, clock: FixedClock, **options: Any) -> logstore.Store[bytes]:
    """A store with small nodes and segments, and nothing in the background unless asked for."""
    given: dict[str, Any] = {"node_max_entries": 10, "segment_bytes": 1 << 16, "sync": "os"}
    given |= {"background": False, "clock": clock} | options
    return logstore.open(path, **given)


def nodes_of(store: logstore.Store[bytes], name: bytes) -> list[Node]:
    """The nodes of a stream, oldest first."""

    def look(view: Snapshot) -> list[Node]:
        record = view.record(name)
        assert record is not None
        found = []
        for ref in nodes.refs(view, record):
            lp, vector = nodes.listpack(view, record, ref)
            ids = [StreamID(ms, seq) for _, ms, seq in nodes.codec().ids(lp, *ref.master, vector)]
            size = len(lp) if ref.locator is None else ref.locator.payload_bytes
            found.append(Node(ids, ref.last, size, ref.locator is None))
        return found

    return snapshot.read(store._engine(), look)


def kept(
    found: list[Node], now_ms: int, *, max_age_ms: int | None = None,
    max_entries: int | None = None, max_bytes: int | None = None,
) -> list[Node]:  # fmt: skip
    """What retention must leave of these nodes: the model."""
    left = list(found)
    while left:
        first, *others = left
        entries = sum(len(node.ids) for node in left)
        too_old = max_age_ms is not None and first.last < StreamID(now_ms - max_age_ms, 0)
        too_many = (
            max_entries is not None
            and entries > max_entries
            and sum(len(node.ids) for node in others) >= max_entries
        )
        size = sum(node.size_bytes for node in left)
        too_large = max_bytes is not None and size > max_bytes and bool(others)
        if not (too_old or too_many or too_large):
            break
        left = others
    return left


def ids_of(store: logstore.Store[bytes], name: bytes) -> list[StreamID]:
    """All live IDs."""
    return [entry.id for entry in store.stream(name)]
