"""What is remembered of idempotent adds, in a checkpoint: copied out, and loaded into an empty one.

Invariants: read behind the streams of the same checkpoint, in short snapshots, each later than the
checkpoint's position: the frames from there on are all applied again, and lead to the same
whatever of them the copy saw. What is of a stream that the checkpoint does not hold is left out: it
was made behind it.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.ids import StreamID

ROWS_A_CHUNK = 2000
KINDS = ("producers", "idempotent")


def chunks(engine: Engine) -> list[dict[str, Any]]:
    """The chunks of all streams: what is counted of each, then what is remembered."""
    found: list[dict[str, Any]] = []
    after = 0
    while tallies := snapshot.read(engine, partial(_tallies, after=after)):
        found.append({"kind": "producers", "rows": tallies})
        after = tallies[-1][0]
    key = b""
    while True:
        key, rows = snapshot.read(engine, partial(_rows, after=key))
        if not rows:
            return found
        found.append({"kind": "idempotent", "rows": rows})


def _tallies(view: Snapshot, after: int) -> list[tuple[int, int, int]]:
    rows = islice(view.index.producers.tallies(after), ROWS_A_CHUNK)
    return [(stream, tally.added, tally.duplicates) for stream, tally in rows]


def _rows(view: Snapshot, after: bytes) -> tuple[bytes, list[Any]]:
    """Rows behind a key, side by side by stream and producer; the key of the last."""
    found: list[Any] = []
    for key, row in islice(view.index.producers.all(after), ROWS_A_CHUNK):
        after = key
        if not found or found[-1][:2] != [row.stream, row.producer]:
            found.append([row.stream, row.producer, []])
        found[-1][2].append((*row.id, row.name))
    return after, found


def load(state: WriteTxn, chunk: dict[str, Any]) -> None:
    """Put a chunk into the index."""
    producers = state.index.producers
    for stream, *rest in chunk["rows"]:
        if state.record(stream) is None:
            continue
        if chunk["kind"] == "producers":
            producers.set_counts(stream, *rest)
        else:
            items = [(StreamID(ms, seq), name) for ms, seq, name in rest[1]]
            producers.remember(stream, rest[0], items)
