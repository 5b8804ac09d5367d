"""What tests of statistics share: what is told of segments, and the nodes that scans leave out."""

from __future__ import annotations

from typing import Any

from logstore.log import file_names, statsfile
from logstore.scan.node_skipping import NodeSkipping, statistics


def told(store: Any) -> dict[int, statsfile.SegmentStatistics]:
    """What the statistics tell that are there, by segment."""
    engine = store._engine()
    numbers = file_names.segments(engine.fs, engine.path)
    found = {number: statistics(engine, number) for number in numbers}
    return {number: each for number, each in found.items() if each is not None}


def read_by_scan(
    store: Any, stream: Any, where: str | None, pushed: Any = None
) -> tuple[int, int, int]:
    """How many rows a scan finds, of how many nodes it asks, and how many it leaves out; of a
    condition, or of an expression that is handed down."""
    names = ["id"] if pushed is None else [each.name for each in stream.schema.columns]
    query = stream.scan(columns=names, where=where)._query
    asked: list[NodeSkipping] = []
    condition = query._condition

    class Counted(NodeSkipping):
        def __init__(self, engine: Any, conditions: Any) -> None:
            super().__init__(engine, conditions)
            asked.append(self)

    from logstore.scan import query as module

    before, module.NodeSkipping = module.NodeSkipping, Counted
    try:
        rows = query.reader(filter=pushed).read_all().num_rows
    finally:
        module.NodeSkipping = before
    assert condition is not None or pushed is not None
    return rows, asked[0].looked_at, asked[0].skipped
