"""What a streaming query reads next: offsets of streams, and plans between two of them.

An offset of a stream is the last ID that was read, and how many entries had ever been added up to
it (-1: not known). The count tells an entry that went unread from one that went after it was read:
what was added behind the offset and is not there any more is lost to the query.

Invariants: an offset names nothing that a power cut can take back: the log is synced before it is
told; a plan lies between two offsets and is pinned; the store is closed again before anything is
sent to a task.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from logstore.api.opening import OpenStore, opened_of
from logstore.api.store import Store
from logstore.engine.runtime import pins
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import OptionError, SnapshotExpired
from logstore.fs import LOCAL
from logstore.ids import MAX_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.scan import plan
from logstore.scan.snapshot import Split
from logstore.spark_io import planning
from logstore.spark_io.stream_options import StreamOptions
from logstore.tuples import NamedTuple

PIECE_NODES = 1024
OPEN_NODE_BYTES = 4096  # what an open node counts for
UNKNOWN = -1
# A pin that ends with its batch is never shared: what is asked of a plan differs by its time.
_OWN_MS = pins.LEASE_MS_MAX - 1 - int.from_bytes(os.urandom(2))


class Offset(NamedTuple):
    """How far a stream was read."""

    last: StreamID
    added: int = UNKNOWN


Offsets = dict[str, Offset]


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise OptionError(
            f"stream {name!r}: a streaming query needs names in UTF-8, for it keeps them as JSON; "
            "leave it out of the pattern"
        ) from None


def _records(opened: OpenStore[bytes], names: Sequence[bytes]) -> dict[str, StreamRecord]:
    def look(view: Snapshot) -> dict[str, StreamRecord]:
        found = {_text(name): view.record(name) for name in names}
        return {name: record for name, record in found.items() if record is not None}

    return opened.view(look)


def ends(options: StreamOptions) -> Offsets:
    """Where the streams end now."""
    with planning.open_for(options.source) as store:
        records = _records(opened_of(store), planning.stream_names(options.source, store))
        store.sync()
        return {name: Offset(each.last, each.entries_added) for name, each in records.items()}


def latest(
    options: StreamOptions, start: Offsets, upto: Offsets | None, rows: int, size: int
) -> Offsets:
    """Offsets behind ``start`` by at most so many rows and bytes (0: no limit) of all streams.

    ``upto`` bounds them, too. SnapshotExpired if unread entries went, unless that is allowed.
    """
    with planning.open_for(options.source) as store:
        opened = opened_of(store)
        records = _records(opened, planning.stream_names(options.source, store))
        found = dict(start)
        behind: list[str] = []
        for name, record in records.items():
            offset = start.get(name, Offset(options.after))
            if upto is not None and name not in upto:
                continue
            _check_loss(options, store, name, record, offset)
            if record.last > offset.last:
                behind.append(name)
        for place, name in enumerate(behind):
            left = len(behind) - place
            offset = start.get(name, Offset(options.after))
            end = _end(records[name], upto, name)
            if rows or size:
                share = max(1, rows // left) if rows else 0, max(1, size // left) if size else 0
                end, taken = _cut(store, name, offset.last, end, *share)
                rows = max(1, rows - taken[0]) if rows else 0
                size = max(1, size - taken[1]) if size else 0
            found[name] = end
        store.sync()
    return found


def _end(record: StreamRecord, upto: Offsets | None, name: str) -> Offset:
    end = Offset(record.last, record.entries_added)
    return end if upto is None else min(end, upto[name], key=lambda each: each.last)


def _check_loss(
    options: StreamOptions, store: Store[bytes], name: str, record: StreamRecord, offset: Offset
) -> None:
    """Whether what was added behind the offset is still there; most times two IDs tell."""
    if not options.fail_on_loss or offset.added == UNKNOWN:
        return
    if record.last < offset.last:
        raise SnapshotExpired(
            f"stream {name!r} ends at {record.last}, before what the query read, {offset.last}: it "
            "was dropped, and made anew. Begin anew with another checkpoint, or give "
            "failOnDataLoss=false",
            stream=record.name,
        )
    if record.length and record.first <= offset.last and record.max_deleted <= offset.last:
        return
    wanted = record.entries_added - offset.added
    there = store.stream(name).count(offset.last.next(), record.last) if record.length else 0
    if record.last > offset.last and there < wanted:
        raise SnapshotExpired(
            f"{wanted - there} entries of stream {name!r} behind {offset.last} were trimmed or "
            "deleted before the query read them: keep entries for longer, or give "
            "failOnDataLoss=false and go on with those that are left",
            stream=record.name,
        )


# -- limits -----------------------------------------------------------------------------------
def _cut(
    store: Store[bytes], name: str, after: StreamID, end: Offset, rows: int, size: int
) -> tuple[Offset, tuple[int, int]]:
    """The offset so many rows or bytes behind ``after``, and what lies between: whole nodes, but
    for the first one, of which so many rows are taken as are allowed."""
    opened = opened_of(store)
    at: StreamID | None = after.next()
    last, taken, used = after, 0, 0
    while at is not None:
        found, at = opened.view(partial(_piece, name=name.encode(), start=at, end=end.last))
        for live, node_bytes, node_last in found:
            over = (rows and taken + live > rows) or (size and used + node_bytes > size)
            if over and last == after:
                few = store.stream(name).range(after.next(), end.last, count=rows or live)
                ids = [entry.id for entry in few]
                last, taken, used = (ids[-1] if ids else end.last), len(ids), node_bytes
            if over:
                return Offset(last), (taken, used)
            last, taken, used = min(node_last, end.last), taken + live, used + node_bytes
    return end, (taken, used)


def _piece(
    view: Snapshot, name: bytes, start: StreamID, end: StreamID
) -> tuple[list[tuple[int, int, StreamID]], StreamID | None]:
    """Live entries, bytes and last ID of the next nodes, and where to go on."""
    record = view.record(name)
    found: list[tuple[int, int, StreamID]] = []
    if record is None:
        return found, None
    for ref in nodes.refs(view, record, start, end):
        if len(found) == PIECE_NODES:
            return found, found[-1][2].next()
        if ref.live and ref.last >= start:
            size = OPEN_NODE_BYTES if ref.locator is None else ref.locator.payload_bytes
            found.append((ref.live, size, ref.last))
    return found, None


# -- plans ------------------------------------------------------------------------------------
def splits(
    options: StreamOptions, start: Offsets, end: Offsets, cores: int
) -> tuple[list[Split], list[str]]:
    """The splits between two offsets, and the pins that hold what they name."""
    found: list[Split] = []
    held: list[str] = []
    with planning.open_for(options.source) as store:
        engine = opened_of(store).engine()
        for name, upto in end.items():
            after = start.get(name, Offset(options.after)).last
            if after >= upto.last or name not in store:
                continue
            made = plan.make(
                engine,
                [name.encode()],
                after.next() if after < MAX_ID else after,
                upto.last,
                min_partitions=options.source.min_partitions,
                cores=cores,
                ttl_ms=_OWN_MS,
                owner=planning.driver(),
                purpose="a streaming query",
            )
            found += made.splits
            held += [made.pin_id] if made.pin_id else []
    return found, held


def release(path: str, held: Sequence[str]) -> None:
    """Give pins back."""
    for pin in held:
        pins.release(LOCAL, Path(path), pin)
