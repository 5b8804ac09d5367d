"""What a streaming query reads next: offsets of streams, plans between two of them, and its
progress.

The offset of a stream has three parts: the last ID that was read, how many entries had ever been
added up to it (-1: not known), and the stream's number (0: not known). The count tells entries that
were lost from entries that were removed after they were read: an entry that was added behind the
offset and is gone was lost to the query. The number tells a stream from a later one of its name.

Progress is published as a consumer group of each stream: whoever watches groups (XINFO GROUPS,
``logstore groups``, metrics) sees the lag of the query. The group delivers nothing, and the query
never reads it, for its offsets are in its checkpoint.

Invariants: the log is synced before Spark gets an offset, so a power cut takes back nothing that an
offset names. A plan lies between two offsets and is pinned. Losses are looked for after the plan
was made, so none happens unseen between the two; each is an error, or a warning in the log with its
count where the query may go on. The store is closed again before anything is sent to a task. A
group is set to an offset after Spark has noted that the batch up to there is done, so it may only
be behind. A group with consumers belongs to somebody else, and is not changed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from logstore.api.opening import OpenStore, opened_of
from logstore.api.store import Store
from logstore.engine.runtime import pins
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import (
    CorruptionError,
    GroupExistsError,
    GroupNotFoundError,
    OptionError,
    SnapshotExpiredError,
    StreamNotFoundError,
)
from logstore.fs import LOCAL
from logstore.ids import StreamID
from logstore.index.keys import StreamRecord
from logstore.scan import split_plan
from logstore.scan.snapshot_file import Split
from logstore.spark_io import planning
from logstore.spark_io.spark_log import log
from logstore.spark_io.spark_options import StreamOptions, check_offsets
from logstore.tuples import NamedTuple

PIECE_NODES = 1024
OPEN_NODE_BYTES = 4096  # counted for an open node
UNKNOWN = -1
# A pin ends with its batch, so no plan is shared: this lease time makes the key of a plan unique.
_OWN_MS = pins.LEASE_MS_MAX - 1 - int.from_bytes(os.urandom(2))


class Offset(NamedTuple):
    """How far a stream was read."""

    last: StreamID
    added: int = UNKNOWN
    number: int = 0


Offsets = dict[str, Offset]


def _json_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise OptionError(
            f"stream {name!r}: a streaming query needs names in UTF-8, for it keeps them as JSON; "
            "leave it out of the pattern"
        ) from None


def _records(opened: OpenStore[bytes], names: Sequence[bytes]) -> dict[str, StreamRecord]:
    def look(view: Snapshot) -> dict[str, StreamRecord]:
        found = {_json_name(name): view.record(name) for name in names}
        return {name: record for name, record in found.items() if record is not None}

    return opened.view(look)


def begin(options: StreamOptions) -> Offsets:
    """The offsets of the streams of which a new query reads what is added from now on; OptionError
    for an offset of a stream that is not there."""
    found = ends(options)
    check_offsets("startingOffsets", options.starts, [name.encode() for name in found])
    return {name: each for name, each in found.items() if options.begins_at_end(name)}


def ends(options: StreamOptions, *, gone: Collection[str] = ()) -> Offsets:
    """The offsets at which the streams end now; StreamNotFoundError for one that is named and not
    there, unless it may be ``gone``."""
    with planning.open_local(options.source, options.source.path) as store:
        names = planning.stream_names(options.source, store, gone=gone)
        records = _records(opened_of(store), names)
        store.sync()
        return {name: _end(each) for name, each in records.items()}


def latest(
    options: StreamOptions,
    start: Offsets,
    upto: Offsets | None,
    rows: int,
    size: int,
    *,
    new: bool,
    warn: bool,
) -> tuple[Offsets, Offsets, Offsets]:
    """The offsets at which a batch ends; those at which streams begin where ``start`` has no
    offset, or one with less in it; and those at which the streams end now.

    The batch begins at ``start`` and has at most ``rows`` and ``size`` bytes of all streams (0: no
    limit); it ends at ``upto`` at the latest. SnapshotExpiredError if entries were removed before
    they were read, unless the options allow that. A stream that is named must be there when the
    query is ``new``; later on one that is not was dropped. ``warn`` of patterns that find none.
    """
    gone = start if new or options.fail_on_loss else options.source.streams
    with planning.open_local(options.source, options.source.path) as store:
        opened = opened_of(store)
        names = planning.stream_names(options.source, store, gone=gone, warn=warn)
        records = _records(opened, names)
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
            offset = _behind_losses(options, store, name, record, offset)
            if record.last > offset.last:
                behind.append((name, offset))
                if offset != start.get(name):
                    begun[name] = offset
            elif name in start:
                found[name] = offset  # else each batch would warn of a stream that was made anew
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
    return found, begun, {name: _end(record) for name, record in records.items()}


def _end(record: StreamRecord) -> Offset:
    return Offset(record.last, record.entries_added, record.number)


# -- losses -----------------------------------------------------------------------------------
def _gone(options: StreamOptions, store: Store[bytes], name: str) -> bool:
    """Whether a stream was dropped. SnapshotExpiredError if it was, unless losses are allowed."""
    if name in store:
        return False
    _lose_stream(options, name, "")
    return True


def _lose_stream(options: StreamOptions, name: str, more: str) -> None:
    """SnapshotExpiredError, or a warning in the log. How many entries were lost is not known."""
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
    """The offset at which reading a stream begins: the given one, or that of a new stream.

    A new stream begins with the entries that it has now: what was removed before is no loss.
    """
    if offset is not None and _is_other_stream(offset, record):
        _lose_stream(options, name, ", and made anew")
        offset = None
    if offset is None:
        offset = Offset(options.after(name))
    if offset.added != UNKNOWN or record.last <= offset.last:
        return offset
    there = _count(options, store, name, offset.last, record.last)
    if there is None:
        return offset
    return Offset(offset.last, record.entries_added - there, record.number)


def _is_other_stream(offset: Offset, record: StreamRecord) -> bool:
    """Whether the offset is that of another stream, which had this name before."""
    if offset.number:
        return offset.number != record.number
    return offset.added != UNKNOWN and record.last < offset.last


def _behind_losses(
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
    nothing is missing, so that no later batch warns of the same entries. Mostly the IDs at both
    ends show that nothing is missing, and nothing is counted.
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
    """How many entries there are behind an ID. None: a node is damaged, and losses are allowed; the
    plan, or the tasks that read it, report that."""
    try:
        return store.stream(name).count(planning.next_id(after), last)
    except CorruptionError:
        if options.fail_on_loss:
            raise
        return None


# -- limits -----------------------------------------------------------------------------------
def _cut(
    store: Store[bytes], name: str, start: Offset, end: Offset, rows: int, size: int
) -> tuple[Offset, tuple[int, int]]:
    """The offset at most ``rows`` and ``size`` bytes behind ``start``, and the rows and bytes up to
    it. It lies at the end of a node; if the first node is too large, within that node. A damaged
    node is taken whole: the plan, or the tasks that read it, report the loss."""
    opened, after = opened_of(store), start.last
    at: StreamID | None = after.next()
    last, taken, used = after, 0, 0
    while at is not None:
        try:
            found, at = opened.view(
                partial(_list_sizes, name=name.encode(), start=at, end=end.last)
            )
        except CorruptionError:  # the open node, which is the last, is damaged
            return end, (taken, used)
        for live, node_bytes, node_last in found:
            over = (rows and taken + live > rows) or (size and used + node_bytes > size)
            if over and last == after:
                last, taken, used = min(node_last, end.last), live, node_bytes
                with suppress(CorruptionError):
                    last, taken = _first_entries(store, name, after.next(), end.last, rows or live)
            if over:
                # Nothing that was added behind the start is missing, or the count is not known.
                added = UNKNOWN if start.added == UNKNOWN else start.added + taken
                return Offset(last, added, end.number), (taken, used)
            last, taken, used = min(node_last, end.last), taken + live, used + node_bytes
    return end, (taken, used)


def _first_entries(
    store: Store[bytes], name: str, start: StreamID, end: StreamID, rows: int
) -> tuple[StreamID, int]:
    """The last ID of the first ``rows`` entries, and how many these are."""
    ids = [entry.id for entry in store.stream(name).range(start, end, count=rows)]
    return ids[-1] if ids else end, len(ids)


def _list_sizes(
    view: Snapshot, name: bytes, start: StreamID, end: StreamID
) -> tuple[list[tuple[int, int, StreamID]], StreamID | None]:
    """Live entries, bytes and last ID of each of the next nodes; and where to go on."""
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
    with planning.open_local(options.source, options.source.path) as store:
        try:
            for name, upto in end.items():
                offset = start.get(name, Offset(options.after(name)))
                if offset.last >= upto.last:
                    continue
                made = _plan(options, store, name, offset.last, upto.last, cores)
                held += [made.pin_id] if made.pin_id else []
                planning.check_segments(options.source, store, made)
                if _check_plan(options, store, name, offset, upto):
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
    """Plan the entries behind an ID up to another one; an empty plan if there is no stream."""
    try:
        return split_plan.make(
            opened_of(store).engine(),
            [name.encode()],
            planning.next_id(after),
            last,
            min_partitions=options.source.min_partitions,
            cores=cores,
            ttl_ms=_OWN_MS,
            owner=planning.driver(),
            purpose="a streaming query",
            lossy=not options.fail_on_loss,
        )
    except StreamNotFoundError:
        return split_plan.Plan("", [], 0, 0)


def _check_plan(
    options: StreamOptions, store: Store[bytes], name: str, offset: Offset, upto: Offset
) -> bool:
    """Whether the plan is of the stream that the offsets are of. Losses of that stream are
    SnapshotExpiredError, or a warning where they are allowed; so is another stream of its name.

    A stream's number is never given again, so an equal number is the same stream.
    """
    record = _records(opened_of(store), [name.encode()]).get(name)
    if record is not None and not _is_other_stream(upto, record):
        _behind_losses(options, store, name, record, offset, upto)
        return True
    _lose_stream(options, name, " before it was read")
    return False


def release(path: str, held: Sequence[str]) -> None:
    """Release pins."""
    for pin in held:
        pins.release(LOCAL, Path(path), pin)


def publish_progress(options: StreamOptions, offsets: Offsets) -> None:
    """Set the group to these offsets; OptionError if it has consumers."""
    with planning.open_local(options.source, options.source.path) as store:
        for name, offset in offsets.items():
            # The stream may be dropped, or the group made or destroyed, at this moment: the next
            # batch does it again.
            with suppress(StreamNotFoundError, GroupExistsError, GroupNotFoundError):
                _set_group(store, name, options.progress_group, offset)


def _set_group(store: Store[bytes], name: str, group_name: str, offset: Offset) -> None:
    group = store.stream(name).group(group_name)
    read = None if offset.added == UNKNOWN else offset.added
    try:
        info = group.info()
    except GroupNotFoundError:
        group.create(offset.last, entries_read=read, make_stream=False)
        return
    if info.consumers:
        raise OptionError(
            f"option 'progressGroup': the group {group_name!r} of stream {name!r} has consumers, "
            "who would miss entries: give the query a group of its own"
        )
    if (info.last_delivered_id, info.entries_read) != (offset.last, read):
        group.set_id(offset.last, entries_read=read)
