"""Write the golden store of format 2, and what it holds, beside this module.

It was run with the last code that wrote format 2 (commit 9cb53377), and is kept to tell what the
store went through; a later logstore writes a later format and is refused here. Run from the root
of that version, with this folder in it: ``python -m tests.golden.store_v2.generate``.

``store/`` is the store without what is derived or of one machine (index, LOCK, USERS, WAKE, BOOT,
RESERVE); ``content.txt`` is what ``tests.crash.states.store_content`` tells of it. Time and UUID
are fixed, so that a second run gives the same bytes.
"""

from __future__ import annotations

import ast
import pprint
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

import logstore
from logstore import format as fmt
from logstore.log import storefile
from tests.crash.states import store_content
from tests.golden.store_v1.generate import KEPT, UUID, seal
from tests.support.inside import FixedClock

HERE = Path(__file__).parent
STORE = HERE / "store"
CONTENT = HERE / "content.txt"


def expected() -> store_content.Content:
    """What the store holds."""
    found: store_content.Content = ast.literal_eval(CONTENT.read_text(encoding="utf-8"))
    return found


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


def main() -> None:
    """Write both."""
    if fmt.FORMAT_VERSION != 2:
        raise SystemExit("this logstore writes a later format: run it with commit 9cb53377")
    storefile.new_uuid = lambda: UUID
    with tempfile.TemporaryDirectory() as folder:
        path, clock = Path(folder) / "store", FixedClock()
        with logstore.open(
            path, clock=clock, background=False, segment_bytes=1 << 16, node_max_entries=8
        ) as store:
            fill(store, clock)
            found = store_content.content(store, clock)
        with logstore.open(path, clock=clock, background=False, readonly=True) as store:
            assert store_content.content(store, clock) == found
        shutil.rmtree(STORE, ignore_errors=True)
        STORE.mkdir()
        for name in KEPT:
            source = path / name
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, STORE / name)
    CONTENT.write_text(pprint.pformat(found, width=100, compact=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
