"""Moments that are kept: all streams as they stood at once, for readers that come later.

A moment is a snapshot file that lists every node of its streams, and a pin that keeps the file and
the segments that it names. Its token is the pin's ID. A plan of the moment takes its nodes from
that file, and not from the index. So streams that were written in one transaction are never seen
apart, whatever is added, deleted, dropped or compacted between two plans.

Invariants: the pin is durable, and holds every segment, before the snapshot of the index is taken
that all nodes come from. A moment whose pin is gone is SnapshotExpiredError, never another moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgpack

from logstore.codec import Section
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.process_identity import Identity
from logstore.errors import CorruptionError, OptionError, SnapshotExpiredError, StreamNotFoundError
from logstore.fs import FileSystem
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.log import pinfile
from logstore.scan import snapshot_file
from logstore.scan.listing import OneSnapshotListing, new_list
from logstore.scan.snapshot_file import Blocks, Split, Writer
from logstore.tuples import NamedTuple

TTL_MS = pins.LEASE_MS_MAX
MOMENT = "moment"  # stands in the pin instead of the key of a plan, which is a hash
_NOBODY = Identity("", "", 0, 0)  # an owner that never ends: only the lease ends the pin


class _KeptStream(NamedTuple):
    """A stream of a moment, and the byte range of its nodes in the snapshot file."""

    name: bytes
    number: int
    offset: int
    size_bytes: int


def keep(engine: Engine, names: Sequence[bytes] | None = None, *, ttl_ms: int = TTL_MS) -> str:
    """Keep some streams, or all, as they are now; the token. StreamNotFoundError for a missing one.

    The moment is a lease: it ends ``ttl_ms`` after the last plan by it, or when its pin is
    released.
    """
    fs, home = engine.fs, engine.path
    made_ms = engine.clock.now_ms()
    with pins.planning(fs, home, made_ms, purpose=MOMENT) as pin:
        found = OneSnapshotListing(engine, names)
        writer = Writer(fs, home, engine.uuid, pin.id, made_ms)
        place = Split(
            str(home), str(home), engine.uuid, pin.id, 0, 0, ZERO_ID, MAX_ID, 0, 0, 0
        )  # fmt: skip
        cuts = [*(first for first, _ in found.sections), len(found.nodes)]

        def table(splits: Sequence[Split]) -> bytes:
            sized = {
                section[1]: (split.offset, split.size_bytes)
                for (_, section), split in zip(found.sections, splits, strict=True)
            }
            rows = [(name, number, *sized.get(number, (0, 0))) for name, number in found.streams]
            packed: bytes = msgpack.packb(rows)
            return packed

        _, table_at = snapshot_file.write_splits(writer, place, found, cuts, table)
        kept = pin._replace(plan=MOMENT, table_at=table_at, table_bytes=writer.offset - table_at)
        segments = found.nodes.segments()
        pins.narrow(fs, home, kept, segments, engine.clock.now_ms(), ttl_ms, _NOBODY)
    return pin.id


class _Listed:
    """The nodes of a range of some streams of a moment."""

    def __init__(self) -> None:
        self.nodes = new_list()
        self.sections: list[tuple[int, Section]] = []


class KeptMoment:
    """A kept moment, by its token; its lease is renewed. SnapshotExpiredError if it is over."""

    def __init__(self, fs: FileSystem, home: Path, uuid: bytes, token: str, now_ms: int) -> None:
        self._fs, self._home, self._uuid, self._token = fs, home, uuid, token
        if not pinfile.is_id(token):
            raise OptionError(f"{token!r} is no moment: make one with store.moment()")
        try:
            pin = pinfile.renew(fs, home, token, now_ms)
        except SnapshotExpiredError:
            raise SnapshotExpiredError(
                f"the moment {token} is over, or of another store than {home}: it is kept for an "
                "hour behind the last plan made by it, and ends with its pin, or an erasure. Make "
                "another one with store.moment(), and load all anew"
            ) from None
        if pin.plan != MOMENT:
            raise OptionError(f"{token!r} is a pin, but no moment: make one with store.moment()")
        self._pin = pin

    @cached_property
    def streams(self) -> dict[bytes, _KeptStream]:
        """The streams of the moment; read when they are first asked for."""
        table: list[list[Any]] = msgpack.unpackb(
            snapshot_file.read_table(self._fs, self._home, self._uuid, self._pin)
        )
        return {row.name: row for row in (_KeptStream(*each) for each in table)}

    def listed(self, names: Sequence[bytes], start: StreamID, end: StreamID) -> _Listed:
        """The nodes of a closed interval of streams; StreamNotFoundError if there was none then."""
        found = _Listed()
        with snapshot_file.opened(self._fs, self._home, self._uuid, self._token) as blocks:
            for name in names:
                row = self.streams.get(name)
                if row is None:
                    raise StreamNotFoundError(
                        "there was no such stream at this moment", stream=name
                    )
                _add(found, blocks, row, start, end)
        return found


def _add(found: _Listed, blocks: Blocks, row: _KeptStream, start: StreamID, end: StreamID) -> None:
    before, upto = len(found.nodes), end
    for (_, _, _, last), items in blocks.read(row.offset, row.size_bytes):
        if found.nodes.add_items(items, start, end) < len(items):
            raise CorruptionError("a list of nodes is cut off", stream=row.name)
        upto = min(end, StreamID(*last))
    if len(found.nodes) > before:
        found.sections.append((before, (row.name, row.number, start, upto)))
