"""Write the golden store of format 3, and what it holds, beside this module.

It was run with the code of the commit that brought it here, and is kept to tell what the store went
through; a later logstore writes a later format and is refused here. Run from the root of that
version: ``python -m tests.golden.store_v3.generate``.

``store/`` and ``content.txt`` are as those of format 2. Time and UUID are fixed, so that a
second run gives the same bytes.
"""

from __future__ import annotations

import ast
import pprint
import shutil
import tempfile
from pathlib import Path

import logstore
from logstore import format as fmt
from logstore.log import storefile
from tests.crash.states import store_content
from tests.golden.store_v1.generate import KEPT, UUID, seal
from tests.golden.store_v2 import generate as store_v2
from tests.support.inside import FixedClock

HERE = Path(__file__).parent
STORE = HERE / "store"
CONTENT = HERE / "content.txt"


def expected() -> store_content.Content:
    """What the store holds."""
    found: store_content.Content = ast.literal_eval(CONTENT.read_text(encoding="utf-8"))
    return found


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


def main() -> None:
    """Write both."""
    if fmt.FORMAT_VERSION != 3:
        raise SystemExit("this logstore writes a later format: run it with one that writes 3")
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
