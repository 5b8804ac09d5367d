"""Scheduled entries in a checkpoint: copied out of the index, and loaded into an empty one.

Invariants: each row is read at or behind the checkpoint's position, however long the copy takes.
What was scheduled later comes by its own frame; what was added, cancelled or dropped with its
stream later is taken out by the frame that says so; what went before its row was read is not among
the rows. So none is lost, and none comes twice.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.index.schedule_txn import FIRST, Key, ScheduleRow

ROWS_A_CHUNK = 2000
CHUNK_BYTES = 1 << 20


def chunks(engine: Engine) -> list[dict[str, Any]]:
    """The chunks of all scheduled entries."""
    found: list[dict[str, Any]] = []
    after = FIRST
    while rows := snapshot.read(engine, partial(_rows, after=after)):
        found.append({"kind": "scheduled", "rows": rows})
        after = rows[-1][1:3]
    return found


def _rows(view: Snapshot, after: Key) -> list[ScheduleRow]:
    rows: list[ScheduleRow] = []
    left_bytes = CHUNK_BYTES
    for row in view.index.schedules.due(after=after):
        rows.append(row)
        left_bytes -= len(row.fields)
        if left_bytes <= 0 or len(rows) == ROWS_A_CHUNK:
            break
    return rows


def load(state: WriteTxn, chunk: dict[str, Any]) -> None:
    """Put a chunk of scheduled entries into the index."""
    for row in chunk["rows"]:
        state.index.schedules.put(ScheduleRow._make(row))
