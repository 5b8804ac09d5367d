"""Write the golden store of format 2, and what it holds, beside this module.

It was run with the last code that wrote format 2 (commit 9cb53377), and is kept to tell what the
store went through; a later logstore writes a later format and is refused here. Run from the root
of that version, with tests/golden in it: ``python -m tests.golden.store_v2.generate``.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import logstore
from tests.golden.store_v1.generate import seal
from tests.support.golden_store import GoldenStore
from tests.support.inside import FixedClock

GOLDEN = GoldenStore(2, Path(__file__).parent, "commit 9cb53377")
STORE, expected = GOLDEN.store, GOLDEN.expected


def fill(store: logstore.Store[bytes], clock: FixedClock) -> None:
    """All that format 2 could hold beyond format 1, before a checkpoint and behind it."""
    orders, settings = store.stream("orders"), store.stream("settings")
    orders.add_many({"order": number, "state": "new"} for number in range(40))
    orders.configure(max_entries=1000, idempotent_duration=300)
    group = orders.group("billing", "0")
    group.configure(min_idle=60, max_deliveries=3, dead_letter="dead")
    first = group.read("alice", count=12)
    group.read("bob", count=5)
    group.ack(*[each.id for each in first[:4]])
    orders.add({"order": 40}, producer="till", idempotent_id="40")
    orders.add({"order": 40}, producer="till", idempotent_id="40")
    settings.configure(compact_by="key")
    settings.add_many({"key": f"k{number % 3}", "value": number} for number in range(9))
    later = orders.schedule({"order": "later"}, after=3600)
    orders.schedule({"order": "nightly"}, every=86_400, name="nightly")
    orders.schedule({"order": "once"}, after=7200)
    seal(store)
    store.stream("session").add({"user": 1})
    store.stream("session").expire(after=timedelta(days=1000))
    store.stream("old name").add({"a": 1})
    store.rename("old name", "new name")
    orders.add({"short": "lived"}, ttl=7200)
    with_values = store.stream("values", codec="json")
    with_values.add({"tags": ["a", {"b": None}], "number": 1.5})
    clock.ms += 1000
    store.checkpoint()
    # behind the checkpoint: replayed
    group.claim("bob", first[5].id, min_idle=0)
    group.read("alice", count=3)
    orders.delete(first[7].id)
    store.stream("dropped").group("g", "0")
    store.drop("dropped")
    orders.add({"order": 41}, producer="till", idempotent_id="41")
    orders.cancel(later)
    orders.group("audit", "$").configure(backoff=1, min_idle=5)
    seal(store)
    orders.add_many({"order": 100 + number, "state": "late"} for number in range(20))
    group.read("carol", count=4)


if __name__ == "__main__":
    GOLDEN.write(fill)
