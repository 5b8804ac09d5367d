"""Write the golden store of format 3, and what it holds, beside this module.

It was run with the code of the commit that brought it here, and is kept to tell what the store went
through; a later logstore writes a later format and is refused here. Run from the root of that
version: ``python -m tests.golden.store_v3.generate``.
"""

from __future__ import annotations

from pathlib import Path

import logstore
from tests.golden.store_v1.generate import seal
from tests.golden.store_v2 import generate as store_v2
from tests.support.golden_store import GoldenStore
from tests.support.inside import FixedClock

GOLDEN = GoldenStore(3, Path(__file__).parent, "one that writes 3")
STORE, expected = GOLDEN.store, GOLDEN.expected


def fill(store: logstore.Store[bytes], clock: FixedClock) -> None:
    """Schemas, before and behind a checkpoint, a segment that compaction wrote, and all that format
    2 could hold."""
    typed = _typed(store, "typed", "at timestamp, room string, temp double?, *")
    rows = [
        {"at": "2026-01-31T12:00:00Z", "room": f"r{number % 3}", "temp": number / 4}
        for number in range(30)
    ]
    typed.add_many(rows)
    _typed(store, "changed", "n long").add({"n": 1})
    seal(store)
    typed.delete(*[entry.id for entry in list(typed.range())[:25]])
    store.compact(threshold=0.3)  # an adopted segment, and dropped ones
    store_v2.fill(store, clock)
    # behind its checkpoint: replayed
    store.stream("changed").configure(schema="n double, note string?")
    store.stream("changed").add({"n": 1.5, "note": "wider"})
    _typed(store, "later", "tags json, *").add({"tags": {"a": [1, None]}, "more": "text"})
    _typed(store, "no more", "n long").add({"n": 2})
    store.stream("no more").configure(schema=None)


def _typed(store: logstore.Store[bytes], name: str, schema: str) -> logstore.Stream[bytes]:
    stream = store.stream(name)
    stream.configure(schema=schema)
    return stream


if __name__ == "__main__":
    GOLDEN.write(fill)
