"""What a streaming query reads next: offsets of streams, and plans between two of them.

An offset of a stream is the last ID that was read, how many entries had ever been added up to it
(-1: not known), and the stream's number (0: not known). The count tells an entry that went unread
from one that went after it was read: what was added behind the offset and is not there any more is
lost to the query. The number tells a stream from a later one of its name.

Invariants: an offset names nothing that a power cut can take back: the log is synced before it is
told; a plan lies between two offsets and is pinned; what was lost is looked for behind the plan, so
that nothing goes unseen between the two, and each loss is an error, or a line of the log with its
count where the query may go on; the store is closed again before anything is sent to a
task.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from logstore.api.opening import OpenStore, opened_of
from logstore.api.store import Store
from logstore.engine.runtime import pins
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptionError, OptionError, SnapshotExpiredError, StreamNotFoundError
from logstore.fs import LOCAL
from logstore.ids import MAX_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.scan import split_plan
from logstore.scan.snapshot_file import Split
from logstore.spark_io import planning, stores
from logstore.spark_io.stream_options import StreamOptions
from logstore.spark_io.telling import log
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
    number: int = 0


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
    with stores.local(options.source, options.source.path) as store:
        records = _records(opened_of(store), planning.stream_names(options.source, store))
        store.sync()
        return {name: _end(each) for name, each in records.items()}


def latest(
    options: StreamOptions, start: Offsets, upto: Offsets | None, rows: int, size: int
) -> tuple[Offsets, Offsets]:
    """Offsets behind ``start`` by at most so many rows and bytes (0: no limit) of all streams; and
    where the streams begin that ``start`` does not know, or not so well.

    ``upto`` bounds them, too. SnapshotExpiredError if unread entries went, unless that is allowed.
    """
    with stores.local(options.source, options.source.path) as store:
        opened = opened_of(store)
        records = _records(opened, planning.stream_names(options.source, store))
        found = {
            name: each
            for name, each in start.items()
            if name in records or not _gone(options, store, name)
        }
        begun: Offsets = {}
        behind: list[tuple[str, Offset]] = []
        for name, record in records.items():
            if upto is not None and name not in upto:
                continue
            offset = _begin(options, store, name, record, start.get(name))
            offset = _of_what_is_left(options, store, name, record, offset)
            if record.last > offset.last:
                behind.append((name, offset))
                if offset != start.get(name):
                    begun[name] = offset
            elif name in start:
                found[name] = offset  # else a stream made anew would be told again and again
        for place, (name, offset) in enumerate(behind):
            left = len(behind) - place
            end = _end(records[name])
            if upto is not None and upto[name].number == end.number:
                end = min(end, upto[name], key=lambda each: each.last)
            if rows or size:
                share = max(1, rows // left) if rows else 0, max(1, size // left) if size else 0
                end, taken = _cut(store, name, offset, end, *share)
                rows = max(1, rows - taken[0]) if rows else 0
                size = max(1, size - taken[1]) if size else 0
            found[name] = end
        store.sync()
    return found, begun


def _end(record: StreamRecord) -> Offset:
    return Offset(record.last, record.entries_added, record.number)


# -- losses -----------------------------------------------------------------------------------
def _gone(options: StreamOptions, store: Store[bytes], name: str) -> bool:
    """Whether a stream was dropped; SnapshotExpiredError, unless that is allowed."""
    if name in store:
        return False
    _tell_dropped(options, name, "")
    return True


def _tell_dropped(options: StreamOptions, name: str, more: str) -> None:
    """SnapshotExpiredError, or a line of the log; how much was unread nobody can tell."""
    what = (
        f"stream {name!r} was dropped{more}, and what the query had not read of it is not there "
        "any more"
    )
    if options.fail_on_loss:
        raise SnapshotExpiredError(
            f"{what}. Begin anew with another checkpoint, or give failOnDataLoss=false and go on "
            "with what is left",
            stream=name.encode(),
        )
    log.warning("a streaming query goes on without it: of %s %s", options.source.path, what)


def _begin(
    options: StreamOptions,
    store: Store[bytes],
    name: str,
    record: StreamRecord,
    offset: Offset | None,
) -> Offset:
    """What a stream is read from: its offset, or as a stream that the query has not seen.

    Of such a one what is there now is counted: what went before is no loss.
    """
    if offset is not None and _another(offset, record):
        _tell_dropped(options, name, ", and made anew")
        offset = None
    if offset is None:
        offset = Offset(options.after)
    if offset.added != UNKNOWN or record.last <= offset.last:
        return offset
    there = _count(options, store, name, offset.last, record.last)
    if there is None:
        return offset
    return Offset(offset.last, record.entries_added - there, record.number)


def _another(offset: Offset, record: StreamRecord) -> bool:
    """Whether a stream of this name was read that is not this one."""
    if offset.number:
        return offset.number != record.number
    return offset.added != UNKNOWN and record.last < offset.last


def _of_what_is_left(
    options: StreamOptions,
    store: Store[bytes],
    name: str,
    record: StreamRecord,
    offset: Offset,
    upto: Offset | None = None,
) -> Offset:
    """The offset to read on from: the given one, if all that was added behind it is still there.

    Entries are missing if they were deleted before they were read. Then SnapshotExpiredError; or,
    where the options allow for losses, a warning in the log and a later offset, behind which
    nothing is missing, so that no later batch warns of the same entries. Most times the IDs at both
    ends suffice to tell.
    """
    end = _end(record) if upto is None else upto
    if UNKNOWN in (offset.added, end.added) or end.last <= offset.last:
        return offset
    if record.length and record.first <= offset.last and record.max_deleted <= offset.last:
        return offset
    there = _count(options, store, name, offset.last, end.last)
    lost = 0 if there is None else end.added - offset.added - there
    if lost <= 0:
        return offset
    what = (
        f"{lost} entries of stream {name!r} behind {offset.last} were trimmed or deleted before "
        "the query read them"
    )
    if options.fail_on_loss:
        raise SnapshotExpiredError(
            f"{what}: keep entries for longer, or give failOnDataLoss=false and go on with those "
            "that are left",
            stream=record.name,
        )
    log.warning("a streaming query goes on without them: of %s %s", options.source.path, what)
    return Offset(offset.last, offset.added + lost, offset.number)


def _count(
    options: StreamOptions, store: Store[bytes], name: str, after: StreamID, last: StreamID
) -> int | None:
    """How many entries there are behind an ID; None where it is in a node that is damaged and may
    be passed over: then the plan, or who reads by it, tells what is lost."""
    try:
        return store.stream(name).count(_behind(after), last)
    except CorruptionError:
        if options.fail_on_loss:
            raise
        return None


def _behind(last: StreamID) -> StreamID:
    return last.next() if last < MAX_ID else last


# -- limits -----------------------------------------------------------------------------------
def _cut(
    store: Store[bytes], name: str, start: Offset, end: Offset, rows: int, size: int
) -> tuple[Offset, tuple[int, int]]:
    """The offset so many rows or bytes behind ``start``, and what lies between: whole nodes, but
    for the first one, of which so many rows are taken as are allowed. What is damaged is taken as
    a whole: the plan, or who reads by it, tells what is lost."""
    opened, after = opened_of(store), start.last
    at: StreamID | None = after.next()
    last, taken, used = after, 0, 0
    while at is not None:
        try:
            found, at = opened.view(partial(_piece, name=name.encode(), start=at, end=end.last))
        except CorruptionError:  # of the open node, which is the last one
            return end, (taken, used)
        for live, node_bytes, node_last in found:
            over = (rows and taken + live > rows) or (size and used + node_bytes > size)
            if over and last == after:
                last, taken, used = min(node_last, end.last), live, node_bytes
                with suppress(CorruptionError):
                    last, taken = _few(store, name, after.next(), end.last, rows or live)
            if over:
                # All that was added behind the start is there, or its count is not known.
                added = UNKNOWN if start.added == UNKNOWN else start.added + taken
                return Offset(last, added, end.number), (taken, used)
            last, taken, used = min(node_last, end.last), taken + live, used + node_bytes
    return end, (taken, used)


def _few(
    store: Store[bytes], name: str, start: StreamID, end: StreamID, rows: int
) -> tuple[StreamID, int]:
    """The last ID of so many entries, and how many there are."""
    ids = [entry.id for entry in store.stream(name).range(start, end, count=rows)]
    return ids[-1] if ids else end, len(ids)


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
    with stores.local(options.source, options.source.path) as store:
        try:
            for name, upto in end.items():
                offset = start.get(name, Offset(options.after))
                if offset.last >= upto.last:
                    continue
                made = _plan(options, store, name, offset.last, upto.last, cores)
                held += [made.pin_id] if made.pin_id else []
                stores.check_segments(options.source, store, made)
                if _is_whole(options, store, name, offset, upto):
                    found += made.splits
        except BaseException:
            release(options.source.path, held)
            raise
    return found, held


def _plan(
    options: StreamOptions,
    store: Store[bytes],
    name: str,
    after: StreamID,
    last: StreamID,
    cores: int,
) -> split_plan.Plan:
    """The plan of what lies behind an ID, up to another one; of nothing if there is no stream."""
    try:
        return split_plan.make(
            opened_of(store).engine(),
            [name.encode()],
            _behind(after),
            last,
            min_partitions=options.source.min_partitions,
            cores=cores,
            ttl_ms=_OWN_MS,
            owner=stores.driver(),
            purpose="a streaming query",
            lossy=not options.fail_on_loss,
        )
    except StreamNotFoundError:
        return split_plan.Plan("", [], 0, 0)


def _is_whole(
    options: StreamOptions, store: Store[bytes], name: str, offset: Offset, upto: Offset
) -> bool:
    """Whether the plan was made of the stream that the offsets are of, and of all of it.

    SnapshotExpiredError if not, unless losses are allowed. A stream's number is never given again,
    so an equal number is the same stream.
    """
    record = _records(opened_of(store), [name.encode()]).get(name)
    if record is not None and not _another(upto, record):
        _of_what_is_left(options, store, name, record, offset, upto)
        return True
    _tell_dropped(options, name, " before it was read")
    return False


def release(path: str, held: Sequence[str]) -> None:
    """Give pins back."""
    for pin in held:
        pins.release(LOCAL, Path(path), pin)
