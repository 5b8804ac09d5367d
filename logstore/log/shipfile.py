"""SHIPPED: how far the store was published by a ship, for retention that waits for it and `info`.

Invariants: it is written after the manifest that it tells of, so it may say less than was shipped,
never more; without it, or where it is not whole, nothing counts as shipped.
"""

from __future__ import annotations

from pathlib import Path

import msgpack

from logstore import format as fmt
from logstore.errors import CorruptionError
from logstore.fs import FileSystem
from logstore.log import names, versioned
from logstore.tuples import NamedTuple

_MAX_BYTES = 1 << 20
_NAMES = ("position", "shipped_ms", "compacted", "uri")


class ShipRecord(NamedTuple):
    """The last ship: all that was committed up to ``position``; ``uri`` without its secrets."""

    position: int = 0
    shipped_ms: int = 0
    compacted: tuple[int, ...] = ()  # segments above that of the position which were there, too
    uri: str = ""

    def covers(self, position: int) -> bool:
        """Whether what stands at a position was shipped."""
        return 0 < position < self.position or fmt.segment_of(position) in self.compacted


NEVER = ShipRecord()


def read(fs: FileSystem, store: Path) -> ShipRecord:
    """The last ship; ``NEVER`` if nothing tells of one."""
    try:
        body = versioned.unsealed(fs.read(store / names.SHIPPED, _MAX_BYTES))
        if body is None:
            return NEVER
        found = versioned.unpack_map(body, names.SHIPPED, _NAMES)
        return ShipRecord(
            int(found["position"]),
            int(found["shipped_ms"]),
            tuple(map(int, found["compacted"])),
            str(found["uri"]),
        )
    except (FileNotFoundError, CorruptionError, OverflowError, TypeError, ValueError):
        return NEVER


def write(fs: FileSystem, store: Path, record: ShipRecord) -> None:
    """Replace it, durably."""
    data = versioned.sealed(msgpack.packb(record._asdict()))
    fs.write_atomic(store / names.SHIPPED, data)
