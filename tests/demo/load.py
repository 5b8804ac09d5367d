"""The first half of the demo: load, kill half-way, recover, resume, compare with the CSV.

Invariants: the kill is a SIGKILL while acknowledgements still come; what was acknowledged before
it must be there after it, once, and at the end every row of the CSV must be, with every byte.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from logstore.api.entry import Entry
from logstore.api.store import Store, open_store
from logstore.ids import StreamID
from tests.demo.data import StreamRows

# So small that a loader cannot be at its end while half of what it told is still unread.
PIPE_BYTES = 4096


class DemoError(Exception):
    """The demo did not show what it is there to show."""


@dataclass(slots=True)
class Acknowledged:
    """What a loader process told, and how long it took from its first commit to its last."""

    entries: dict[str, int] = field(default_factory=dict)  # in the stream, by its name
    last_ids: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    added: int = 0
    killed: bool = False

    def note(self, told: dict[str, Any]) -> None:
        """Take one acknowledgement."""
        name, entries = told["stream"], told["entries"]
        self.entries[name] = entries
        self.last_ids[name] = told["last_id"]
        self.added += told["added"]

    @property
    def total(self) -> int:
        """All entries of all streams that are acknowledged."""
        return sum(self.entries.values())


def run_loader(path: Path, every: int, kill_at: int | None = None) -> Acknowledged:
    """Run the loader; kill it once it has acknowledged ``kill_at`` entries."""
    module = ["-m", "tests.demo.loader"]
    found = Acknowledged()
    with subprocess.Popen(
        [sys.executable, *module, str(path), "--every", str(every)],
        stdout=subprocess.PIPE, bufsize=0, pipesize=PIPE_BYTES,
    ) as loader:  # fmt: skip
        assert loader.stdout is not None
        first = last = 0.0
        for line in loader.stdout:  # after the kill: to the end of what it still told
            if not line.endswith(b"\n"):
                break  # cut by the kill: not acknowledged
            last = time.monotonic()
            first = first or last
            found.note(json.loads(line))
            if kill_at is not None and found.total >= kill_at and not found.killed:
                loader.kill()
                found.killed = True
    found.seconds = last - first
    wanted = -signal.SIGKILL if kill_at is not None else 0
    if loader.returncode != wanted:
        raise DemoError(f"the loader ended with {loader.returncode}, not with {wanted}")
    return found


def check_after_kill(
    store: Store[str], streams: list[StreamRows], told: Acknowledged
) -> dict[str, int]:
    """The entries of each stream; DemoError unless they are the CSV's, up to some row.

    That row must not be before the last one that was acknowledged.
    """
    found: dict[str, int] = {}
    for rows in streams:
        stream = store.stream(rows.name)
        count = len(stream)
        expect(stream.range(), StreamRows(rows.name, rows.header, rows.rows[:count]))
        acknowledged = told.entries.get(rows.name, 0)
        if count < acknowledged:
            raise DemoError(f"{rows.name}: {acknowledged} were acknowledged, {count} are there")
        if acknowledged and stream.get(told.last_ids[rows.name]) is None:
            raise DemoError(
                f"{rows.name}: {told.last_ids[rows.name]} was acknowledged, and is lost"
            )
        found[rows.name] = count
    total = sum(map(len, streams))
    if not 0 < sum(found.values()) < total:
        raise DemoError("the kill was not half-way: nothing, or everything, is there")
    return found


def expect(entries: Iterator[Entry[str]], rows: StreamRows) -> int:
    """How many entries; DemoError unless they are exactly these rows, in this order."""
    found: Entry[str] | None
    row: tuple[StreamID, tuple[str, ...]] | None
    for found, row in zip_longest(entries, rows.rows):
        if row is None:
            raise DemoError(f"{rows.name}: {found} is too many")
        id, values = row
        if found is None:
            raise DemoError(f"{rows.name}: {id} is missing")
        if found.id != id or found.pairs != list(zip(rows.header, values, strict=True)):
            raise DemoError(f"{rows.name}: {found} stands where {id} {rows.fields(values)} should")
    return len(rows)


def compare(path: Path, streams: list[StreamRows]) -> int:
    """How many entries the store has; DemoError unless they are exactly these rows."""
    with open_store(path, encoding="utf-8", readonly=True, create=False) as store:
        names = {rows.name for rows in streams}
        if set(store.streams()) != names:
            raise DemoError(f"the streams are {store.streams()}, not {sorted(names)}")
        return sum(expect(store.stream(rows.name).range(), rows) for rows in streams)
