"""SHIPPED: how far the store was published by a ship, for retention that waits for it and `info`;
and which line of ships is its own.

A *line* is a random name, which every manifest of the store has. No backup and no ship takes it
along, so that a copy that goes on by itself is another line, although it has the same UUID.

Invariants: it is written after the manifest that it speaks of, so it may say less than was shipped,
never more; its line is written before the first manifest; without it, or where it is not whole,
nothing counts as shipped, and no line is its own. Erasures are counted in it before they end, so
that a ship knows which of the states at its URI are older than one. It is changed under LOCK.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgpack

from logstore import format as fmt
from logstore.errors import CorruptionError
from logstore.fs import FileSystem
from logstore.log import file_names, versioned
from logstore.tuples import NamedTuple

_MAX_BYTES = 1 << 20
_NAMES = ("position", "shipped_ms", "compacted", "uri")


class ShipRecord(NamedTuple):
    """The last ship: all that was committed up to ``position``; ``uri`` without its secrets."""

    position: int = 0
    shipped_ms: int = 0
    compacted: tuple[int, ...] = ()  # segments above that of the position which were there, too
    uri: str = ""
    line: str = ""  # empty: never shipped, or by a logstore that had no lines
    erasures: int = 0  # that ended since the first ship

    def covers(self, position: int) -> bool:
        """Whether what stands at a position was shipped."""
        return 0 < position < self.position or fmt.segment_of(position) in self.compacted


NEVER = ShipRecord()


def new_line() -> str:
    """A name for the ships of a store that has none."""
    return os.urandom(16).hex()


def read(fs: FileSystem, store: Path) -> ShipRecord:
    """The last ship; ``NEVER`` if none is known."""
    try:
        body = versioned.unsealed(fs.read(store / file_names.SHIPPED, _MAX_BYTES))
        if body is None:
            return NEVER
        found = versioned.unpack_map(body, file_names.SHIPPED, _NAMES)
        return ShipRecord(
            int(found["position"]),
            int(found["shipped_ms"]),
            tuple(map(int, found["compacted"])),
            str(found["uri"]),
            str(found.get("line", "")),
            int(found.get("erasures", 0)),
        )
    except (FileNotFoundError, CorruptionError, OverflowError, TypeError, ValueError):
        return NEVER


def count_erasure(fs: FileSystem, store: Path) -> None:
    """An erasure ends, durably: what is kept somewhere of states before it is to go."""
    record = read(fs, store)
    if record != NEVER:
        write(fs, store, record._replace(erasures=record.erasures + 1))


def write(fs: FileSystem, store: Path, record: ShipRecord) -> None:
    """Replace it, durably."""
    data = versioned.sealed(msgpack.packb(record._asdict()))
    fs.write_atomic(store / file_names.SHIPPED, data)
