"""Settings in a checkpoint: copied out of the index, and loaded into an empty one.

Invariants: read behind the streams and groups of the same checkpoint, so that settings are never
older than the position of the record they belong to; replay passes over or repeats the rest.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.index.setting_txn import OF_GROUP, OF_STREAM

ROWS_A_CHUNK = 2000


def chunks(engine: Engine) -> list[dict[str, Any]]:
    """The chunks of all settings."""
    found: list[dict[str, Any]] = []
    for which in (OF_STREAM, OF_GROUP):
        after = 0
        while rows := snapshot.read(engine, partial(_rows, which=which, after=after)):
            found.append({"kind": "settings", "which": which, "rows": rows})
            after = rows[-1][0]
    return found


def _rows(view: Snapshot, which: int, after: int) -> list[tuple[int, dict[str, Any]]]:
    rows: list[tuple[int, dict[str, Any]]] = []
    for row in view.index.settings.rows(which, after):
        rows.append(row)
        if len(rows) == ROWS_A_CHUNK:
            break
    return rows


def load(state: WriteTxn, chunk: dict[str, Any]) -> None:
    """Put a chunk of settings into the index."""
    for number, kept in chunk["rows"]:
        state.index.settings.put_plain(chunk["which"], number, kept)
