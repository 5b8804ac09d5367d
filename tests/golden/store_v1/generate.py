"""Write the golden store of format 1, and what it holds, beside this module.

It was run with the last code that wrote format 1 (commit 4ea9ce7), and is kept to tell what the
store went through; a later logstore writes a later format and is refused here. Run from the root
of that version, with this folder in it: ``python -m tests.golden.store_v1.generate``.

``store/`` is the store without what is derived or of one machine (index, LOCK, USERS, WAKE, BOOT,
RESERVE); ``content.json`` has its streams: entries as [ID, [[field, value] ..]], and their infos.
Texts are bytes as latin-1. Time and UUID are fixed, so that a second run gives the same bytes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import logstore
from logstore import format as fmt
from logstore.compaction import segment_rewrite
from logstore.log import storefile

HERE = Path(__file__).parent
STORE = HERE / "store"
CONTENT = HERE / "content.json"
KEPT = ("STORE", "log", "checkpoint")
UUID = bytes(range(16))


class Ticking:
    """A clock that goes on by 5 ms with each look."""

    def __init__(self) -> None:
        self._now = 1_526_919_030_000

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        self._now += 5
        return self._now


def seal(store: logstore.Store[bytes]) -> None:
    """Begin the next segment, as compaction does."""
    shared = store._live()
    segment_rewrite.seal(shared.engine, shared.committer)


def fill(store: logstore.Store[bytes]) -> None:
    """All that format 1 could hold, over several segments."""
    orders, sensors = store.stream("orders"), store.stream("sensors")
    doomed = store.stream("doomed")
    for number in range(45):
        orders.add({"order": number, "state": "new"}, id=f"{1000 + number}-0")
        sensors.add({"t": number - 10, f"extra{number % 3}": bytes([number, 0, 255])})
    doomed.add_many({"n": number} for number in range(25))
    seal(store)
    orders.add_many({"order": 100 + number, "state": "bulk"} for number in range(40))
    orders.delete("1003-0", "1004-0", "1017-0")
    sensors.trim(max_entries=38, approximate=False)
    store.drop("doomed")
    seal(store)
    store.compact(threshold=0.3)  # an adopted segment, and dropped ones
    with store.transaction() as tx:
        tx.stream("orders").add({"order": 200, "state": "with sensors"})
        tx.stream("sensors").add({"t": 200, "long": b"x" * 300})
    orders.delete("1021-0", "1022-0")
    store.stream("empty").add({"a": 1}, id="5-5")
    store.stream("empty").delete("5-5")
    store.checkpoint()
    # behind the checkpoint: replayed
    orders.delete("1030-0")
    for number in range(15):
        sensors.add({"t": 300 + number})
    store.stream("doomed").add_many({"again": number} for number in range(10))
    seal(store)
    orders.add_many({"order": 300 + number, "state": "later"} for number in range(30))
    orders.delete("1031-0", "1526919030680-0")
    sensors.trim(max_entries=30, approximate=False)
    seal(store)
    store.drop("doomed")
    sensors.delete(sensors.last.id if sensors.last is not None else "0-0")
    store.stream("late").add({"only": "entry"}, id="7-7")
    store.stream("late").set_id("9-9")
    orders.add({"order": 400, "state": "last"})


INFO = (
    "name", "length", "radix-tree-keys", "radix-tree-nodes", "last-generated-id",
    "max-deleted-entry-id", "entries-added", "recorded-first-entry-id", "groups", "node-bytes",
    "open-node-bytes",
)  # fmt: skip


def content(store: logstore.Store[bytes]) -> dict[str, Any]:
    """What a store holds, for JSON."""
    found = {}
    for name in sorted(store.streams()):
        stream = store.stream(name)
        entries = [
            [str(entry.id), [[part.decode("latin-1") for part in pair] for pair in entry.pairs]]
            for entry in stream
        ]
        told = stream.info().as_dict()
        info = {key: told[key] for key in INFO}  # later ones tell more; edges are in the entries
        found[name.decode("latin-1")] = {"info": info, "entries": entries}
    return found


def main() -> None:
    """Write both."""
    if fmt.FORMAT_VERSION != 1:
        raise SystemExit("this logstore writes a later format: run it with commit 4ea9ce7")
    storefile.new_uuid = lambda: UUID
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        with logstore.open(
            path, clock=Ticking(), background=False, segment_bytes=1 << 16, node_max_entries=8
        ) as store:
            fill(store)
            found = content(store)
        shutil.rmtree(STORE, ignore_errors=True)
        STORE.mkdir()
        for name in KEPT:
            source = path / name
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, STORE / name)
    streams = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items()]
    CONTENT.write_text("{\n" + ",\n".join(streams) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
