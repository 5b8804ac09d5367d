"""What ``info`` tells of a store, of a stream and of its groups: plain values, and their gathering.

The types of ``info_full`` are those of ``info`` with more in them; their ``as_dict`` has the names
of XINFO STREAM FULL.

Invariants: a description is of one moment; of the entries only the first and the last are decoded;
the numbers are those that XINFO of the servers gives for the same history. ``info_full`` gathers in
steps, so that no snapshot is held for more than one batch of entries and ``ROWS_A_STEP`` pending
ones. What fits into one step is of one moment; else each step is of a moment of its own, and an
entry stands in the lists as it was then. A group's pending entries are walked once for all its
lists, which share their items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore.api import scheduling
from logstore.api.configuring import group_with_text, schema_in, stream_with_text
from logstore.api.entry import Entry, make_entry, stored_pairs
from logstore.api.opening import OpenStore
from logstore.api.showing import readable
from logstore.codec import codec, codec_name
from logstore.codec.pending_run import Pending
from logstore.compaction import erasure, usage
from logstore.engine.groups import group_rows as pel
from logstore.engine.groups.group_rows import ConsumerRow, GroupRow
from logstore.engine.lane import lane_loading as lane
from logstore.engine.reading import reader_loading as reading
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.commit_words import Wake
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import read
from logstore.engine.txn import nodes
from logstore.engine.txn.pel import due_of
from logstore.errors import OptionError, ReadOnlyError, StreamNotFoundError
from logstore.features.idempotent_ids import ProducerRows
from logstore.features.schedule_rows import ScheduleRows
from logstore.features.setting_rows import SettingRows
from logstore.features.ttl_rows import ExpiryRows
from logstore.format import position_parts
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.group_keys import NO_ONE, NOBODY, ConsumerRecord, PendingRun
from logstore.index.group_txn import LAST
from logstore.index.keys import SegmentRow, StreamRecord
from logstore.log import file_names as names
from logstore.log import segment, shipfile, storefile
from logstore.log.pinfile import Pin
from logstore.log.shipfile import ShipRecord
from logstore.options import GroupSettings, StreamSettings, elapsed
from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.schema.stream_schema import Schema

T = TypeVar("T", bytes, str)

_CORE = "pure" if None in (lane.native_or_none, reading.native_or_none) else "native"


class Sizes(NamedTuple):
    """What files a store takes up; it takes a millisecond or two, however much it holds."""

    log_bytes: int
    disk_bytes: int


def sizes(engine: Engine) -> Sizes:
    """How large a store is, for monitors that ask every second."""
    segments = snapshot.read(engine, lambda view: [*view.index.segment_rows()])
    log_bytes = sum(_segment_bytes(engine, segments).values())
    return Sizes(log_bytes, engine.fs.tree_bytes(engine.path))


def stream_count(engine: Engine) -> int:
    """How many streams there are that have not expired; as quick."""

    def count(view: Snapshot) -> int:
        streams: int = view.index.generation.entries()["streams"]
        return streams - sum(1 for _ in ExpiryRows(view.index).expired(view.now_ms))

    return snapshot.read(engine, count)


def _segment_bytes(engine: Engine, numbers: Iterable[int]) -> dict[int, int]:
    return {number: engine.fs.size_bytes(names.segment(engine.path, number)) for number in numbers}


def store_info(engine: Engine) -> StoreInfo:
    """Counts and sizes of a store: seconds, of a long log in which something was deleted."""

    def collect(view: Snapshot) -> tuple[Any, ...]:
        rows = view.index.segment_rows()
        schedules = ScheduleRows(view.index)
        expired = list(ExpiryRows(view.index).expired(view.now_ms))  # they are gone for everybody
        scheduled = schedules.count() - sum(map(schedules.count, expired))
        generation = view.index.generation  # here alone no close or fork takes it away
        index = (generation.number, generation.used_bytes())
        return generation.entries(), rows, view.meta, scheduled, len(expired), index

    entries, rows, meta, scheduled, expired, index = snapshot.read(engine, collect)
    used = usage.log_use(engine)
    gone = erasure.deleted_bytes(engine)
    oldest = min(gone, default=0)
    applied, durable = position_parts(meta.applied), position_parts(durable_upto(engine))
    compacted_ms, compacted_bytes = Wake.last_compaction(engine.fs, engine.path / names.WAKE)
    shipped = shipfile.read(engine.fs, engine.path)
    return StoreInfo(
        path=str(engine.path),
        uuid=engine.uuid.hex(),
        format_version=storefile.read(engine.fs, engine.path).version,
        streams=entries["streams"] - expired,
        scheduled=scheduled,
        nodes=entries["nodes"],
        segments=len(used.sizes),
        log_bytes=used.log_bytes,
        live_bytes=used.live_bytes,
        tombstoned_bytes=used.tombstoned_bytes,
        dead_bytes=used.dead_bytes,
        index_bytes=index[1],
        index_generation=index[0],
        disk_bytes=engine.fs.tree_bytes(engine.path),
        deleted_bytes=sum(gone.values()),
        oldest_deleted_segment_ms=(_born_ms(engine, oldest, rows.get(oldest)) if oldest else 0),
        applied_segment=applied[0],
        applied_offset=applied[1],
        durable_segment=durable[0],
        durable_offset=durable[1],
        codec=codec_name(),
        core=_CORE,
        compacted_ms=compacted_ms,
        compacted_bytes=compacted_bytes,
        reclaimable_bytes=used.reclaimable_bytes,
        **pin_counts(engine),
        shipped_ms=shipped.shipped_ms,
        shipped_to=shipped.uri,
        unshipped_bytes=_unshipped_bytes(shipped, used.sizes, meta.applied),
    )


def _unshipped_bytes(shipped: ShipRecord, sizes: dict[int, int], applied: int) -> int:
    """Bytes of the log that were written after what was shipped ended, if anything ever was."""
    number, offset = position_parts(shipped.position)
    if not shipped.shipped_ms or shipped.position == applied:
        return 0
    later = [each for each in sizes if each > number and each not in shipped.compacted]
    return max(0, sizes.get(number, offset) - offset) + sum(sizes[each] for each in later)


def durable_upto(engine: Engine) -> int:
    """The position up to which the log is durable; a lower bound, 0 if nothing tells."""
    if engine.options.readonly:
        from logstore.recovery import readonly

        return readonly.durable_upto(engine)
    return engine.wake.durable_upto


def unsynced_for_ms(engine: Engine) -> int:
    """How long the oldest commit that is not durable waits for that; 0: there is none, or nothing
    tells."""
    if engine.options.readonly:
        from logstore.recovery import readonly

        return readonly.unsynced_for_ms(engine)
    return Wake.unsynced_for_ms(engine.fs, engine.path / names.WAKE)


def _born_ms(engine: Engine, number: int, row: SegmentRow | None) -> int:
    """When a segment was made, as its file says; its row has the time of the commit that names
    it, which is a little off, and another one after a rebuild."""
    try:
        file = engine.fs.open(names.segment(engine.path, number))
    except FileNotFoundError:
        return 0 if row is None else row.born_ms  # it was dropped since
    try:
        return segment.read_head(file, number, engine.uuid).created_ms
    finally:
        file.close()


# -- pins -------------------------------------------------------------------------------------
def living_pins(engine: Engine) -> list[Pin]:
    """The pins that hold; what is left of others goes, if this handle may write."""
    now_ms, clean = engine.clock.now_ms(), not engine.options.readonly
    return pins.living(engine.fs, engine.path, now_ms, clean=clean)


def pin_counts(engine: Engine) -> dict[str, int]:
    """How many pins there are, what they keep, when the oldest was made (unix ms)."""
    held = living_pins(engine)
    return {
        "pins": len(held),
        "pinned_bytes": pins.held_bytes(engine.fs, engine.path, held),
        "oldest_pin_ms": min((pin.made_ms for pin in held), default=0),
    }


def pin_infos(engine: Engine) -> list[PinInfo]:
    """The pins that hold, the oldest first."""
    fs, path = engine.fs, engine.path
    infos = []
    for pin in living_pins(engine):
        both = pins.held_bytes(fs, path, [pin])
        alone = pins.held_bytes(fs, path, [pin._replace(segments=frozenset())])
        since = datetime.fromtimestamp(pin.made_ms / 1000, UTC) if pin.made_ms else None
        until = datetime.fromtimestamp(pin.expires_ms / 1000, UTC)
        segments = None if pin.segments is None else len(pin.segments)
        infos.append(
            PinInfo(
                pin.id, pin.purpose, pin.host, pin.pid, since, until, segments, both - alone, alone
            )
        )
    return infos


def moment(engine: Engine, names: Sequence[bytes]) -> str:
    """Keep how some streams, or all, are now; the token."""
    from logstore.scan import moment as moments

    if engine.options.readonly:
        raise ReadOnlyError("a moment cannot be kept through a store opened with readonly=True")
    return moments.keep(engine, names or None)


def release_pins(engine: Engine, ids: Sequence[str]) -> int:
    """Give pins back, all of them if none is named; how many. OptionError if one is not there."""
    if engine.options.readonly:
        raise ReadOnlyError("pins cannot be given back through a store opened with readonly=True")
    held = {pin.id for pin in living_pins(engine)}
    for pin_id in ids:
        if pin_id not in held:
            raise OptionError(f"there is no pin {pin_id!r}; see store.pins()")
    for pin_id in ids or held:
        pins.release(engine.fs, engine.path, pin_id)
    return len(ids or held)


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """A stream with all of its groups, as the doctor examines it."""

    name: bytes
    length: int
    size_bytes: int  # of its nodes, those with deleted entries in them included
    first_id: StreamID
    last_id: StreamID  # the last one given, also if that entry was deleted
    groups: list[GroupInfo[bytes]]
    settings: StreamSettings

    @property
    def lag(self) -> int | None:
        """The lag of the group that is furthest behind, of those that are known; None: of no group
        it is known."""
        known = [group.lag for group in self.groups if group.lag is not None]
        return max(known, default=None if self.groups else 0)


def summaries(opened: OpenStore[Any], names: Iterable[bytes]) -> Iterator[StreamSummary]:
    """These streams with their groups and settings, in their order; those that are gone are left
    out."""
    for name in names:
        found = opened.view(partial(_summary, name=name))
        if found is not None:
            yield found


def dead_letter_streams(found: Iterable[StreamSummary]) -> dict[bytes, list[str]]:
    """The streams that groups name for dead letters, each with its groups as stream/group."""
    senders: dict[bytes, list[str]] = {}
    for each in found:
        for group in each.groups:
            if group.settings.dead_letter is not None:
                name = f"{readable(each.name)}/{readable(group.name)}"
                senders.setdefault(group.settings.dead_letter, []).append(name)
    return senders


def _summary(view: Snapshot, name: bytes) -> StreamSummary | None:
    record = view.record(name)
    if record is None:
        return None
    return StreamSummary(
        name,
        record.length,
        record.node_bytes + nodes.open_node_bytes(view, record),
        record.first,
        record.last,
        [group_info(row, bytes) for row in pel.group_rows(view, name)],
        SettingRows(view.index).stream(record.number),
    )


def stream_info(view: Snapshot, name: bytes, encoding: str | None) -> StreamInfo[Any]:
    """All fields of XINFO STREAM; StreamNotFoundError if there is no stream."""
    record = view.record(name)
    if record is None:
        raise StreamNotFoundError("no such key: the stream does not exist", stream=name)
    open_bytes = nodes.open_node_bytes(view, record)
    count, tree_nodes = radix_tree(_keys(view, record))
    schedules = ScheduleRows(view.index)
    due_ms = schedules.next_of(record.number)

    def text(stored: bytes) -> Any:
        return stored if encoding is None else stored.decode(encoding, "surrogateescape")

    return StreamInfo(
        text(name),
        record.length,
        count,
        tree_nodes,
        record.last,
        record.max_deleted,
        record.entries_added,
        record.first,
        view.index.groups.count_of_stream(record.number),
        _edge(view, record, encoding, reverse=False),
        _edge(view, record, encoding, reverse=True),
        record.node_bytes,
        open_bytes,
        stream_with_text(SettingRows(view.index).stream(record.number), text),
        schedules.count(record.number),
        None if due_ms is None else scheduling.moment(due_ms),
        *ProducerRows(view.index).tally(record.number),
        scheduling.expires_at(record.expires_ms),
        schema_in(view, record),
    )


def _keys(view: Snapshot, record: StreamRecord) -> Iterator[bytes]:
    """The keys of a stream's nodes, packed."""
    for master, _ in view.index.nodes(record.number):
        yield master.packed()
    if record.open_version:
        yield record.open_master.packed()


def _edge(
    view: Snapshot, record: StreamRecord, encoding: str | None, *, reverse: bool
) -> Entry[Any] | None:
    walk = nodes.refs_reverse if reverse else nodes.refs
    for ref in walk(view, record):
        if ref.live:
            lp, vector = nodes.listpack(view, record, ref)
            entries = codec().entries(lp, *ref.master, vector, ZERO_ID, MAX_ID, 1, reverse)
            if entries:
                return make_entry(entries[0], encoding)
    return None


def group_info(row: GroupRow, text: Callable[[bytes], T]) -> GroupInfo[T]:
    """A row of XINFO GROUPS, typed."""
    return GroupInfo(
        text(row.name),
        row.consumers,
        row.pending,
        row.last_delivered_id,
        row.entries_read,
        row.lag,
        group_with_text(row.settings, text),
    )


def group_infos(opened: OpenStore[T], stream: bytes) -> list[GroupInfo[T]]:
    """All groups of a stream; StreamNotFoundError."""
    rows = opened.view(partial(pel.group_rows, stream=stream))
    return [group_info(row, opened.text) for row in rows]


def some_groups(
    opened: OpenStore[T], stream: bytes, after: bytes
) -> tuple[list[GroupInfo[T]], bytes | None]:
    """Some of the groups of a stream, sorted by name, and what to give as ``after`` for others, of
    any names (None: there are none); it is b"" for the first. StreamNotFoundError."""
    rows, following = opened.view(partial(pel.group_page, stream=stream, after=after))
    found = [group_info(row, opened.text) for row, _ in rows]
    return sorted(found, key=lambda group: group.name), following


def some_consumers(
    opened: OpenStore[T], stream: bytes, group: bytes, most: int
) -> list[ConsumerInfo[T]]:
    """At most so many consumers of a group, those that were made first, sorted by name.
    GroupNotFoundError."""
    now_ms = opened.engine().clock.now_ms()
    asked = partial(pel.consumer_page, stream=stream, group=group, after=0, now_ms=now_ms)
    rows, _ = opened.view(partial(asked, most=most))
    return sorted((consumer_info(row, opened.text) for row in rows), key=lambda each: each.name)


def consumer_info(row: ConsumerRow, text: Callable[[bytes], T]) -> ConsumerInfo[T]:
    """A row of XINFO CONSUMERS, typed."""
    never = row.inactive_ms < 0
    return ConsumerInfo(
        text(row.name),
        row.pending,
        elapsed(row.idle_ms),
        None if never else elapsed(row.inactive_ms),
    )


KEY_BYTES = 16


def radix_tree(keys: Iterable[bytes]) -> tuple[int, int]:
    """How many of these sorted keys of 16 bytes there are, and how many nodes the peers' radix tree
    has for them.

    One for the empty tree; else a leaf for each key, a node for each branching point, and one for
    each stretch of more than no bytes between them, and none for the root if it branches itself.
    """
    total = count = 0
    depths: list[int] = []  # of the branching points on the path to the key before
    previous, width = b"", KEY_BYTES
    # (depth of the branching point or leaf above, counted when the path is left)
    for count, key in enumerate(keys, 1):
        total += 1
        if count == 1:
            previous = key
            continue
        common = _common(previous, key)
        below = width
        while depths and depths[-1] > common:
            depth = depths.pop()
            total += 1 if below - depth - 1 > 0 else 0
            below = depth
        if not depths or depths[-1] < common:
            depths.append(common)
            total += 1
        total += 1 if below - common - 1 > 0 else 0
        previous = key
    if not count:
        return 0, 1
    below = width
    while depths:
        depth = depths.pop()
        total += 1 if below - depth - 1 > 0 else 0
        below = depth
    return count, total + (1 if below > 0 else 0)


def _common(left: bytes, right: bytes) -> int:
    for place, (a, b) in enumerate(zip(left, right, strict=True)):
        if a != b:
            return place
    return len(left)


ROWS_A_STEP = 10_000
# Of memory as values, beside names.
GROUP_HELD_BYTES, CONSUMER_HELD_BYTES, PENDING_HELD_BYTES = 1500, 1000, 400


def full_info(opened: OpenStore[T], name: bytes, count: int) -> FullStreamInfo[T]:
    """A stream with at most ``count`` of each list (0: all); StreamNotFoundError."""
    entries: list[Entry[T]] = []
    gather = Gathering(opened, name, count, bool, entries.extend)
    gather.all_of(partial(snapshot.read, opened.engine()))
    return FullStreamInfo(
        **_values(gather.head()),
        entries=tuple(entries),
        group_infos=tuple(group.result() for group in gather.groups),
    )


class Gathering(Generic[T]):
    """A stream on the way. A step may be cut off by a segment that went, and goes on then.

    ``count``: at most so many of each list (0: all). ``given`` takes entries as they are read;
    ``weigh`` gets the bytes of memory of all else, before it is kept, and may refuse by raising.
    """

    def __init__(
        self,
        opened: OpenStore[T],
        name: bytes,
        count: int,
        weigh: Callable[[int], object],
        given: Callable[[list[Entry[T]]], object],
    ) -> None:
        self._opened: OpenStore[T] = opened
        self._name = name
        self._count = count
        self._weigh = weigh
        self._given: Callable[[list[Entry[T]]], object] = given
        self._number = 0
        self._now_ms = 0
        self._head: StreamInfo[T] | None = None
        self._entries: list[Entry[T]] = []  # of this step
        self._taken = 0  # entries of all steps
        self._rest: tuple[StreamID, StreamID] | None = (ZERO_ID, MAX_ID)
        self._following: bytes | None = b""  # where the groups go on
        self.groups: list[GatheringGroup[T]] = []

    def all_of(self, once: Callable[[Callable[[Snapshot], bool]], bool]) -> None:
        """Look at all of it on what ``once`` reads: fresh snapshots, or the state inside a commit.

        StreamNotFoundError.
        """
        while not once(self.step):
            self._pass_on()
        self._pass_on()

    def head(self) -> StreamInfo[T]:
        """What the plain form tells of the stream, once it was looked at."""
        assert self._head is not None
        return self._head

    def step(self, view: Snapshot) -> bool:
        """Look on; True when all was seen."""
        if self._head is None:
            self._begin(view)
        record = view.record(self._name)
        if record is None or record.number != self._number:
            return True  # it went meanwhile
        if self._rest is not None:
            self._read(view, *self._rest)
        left = ROWS_A_STEP
        while self._following is not None and left > 0:
            left -= self._page(view, self._following)
        for group in self.groups:
            if left <= 0:
                return False
            left -= group.step(view, left, self._weigh)
        return self._rest is None and left > 0

    def _pass_on(self) -> None:
        """Hand on the entries of a step that was whole."""
        if self._entries:
            self._given(self._entries)
            self._entries = []

    def _begin(self, view: Snapshot) -> None:
        head = stream_info(view, self._name, self._opened.encoding)
        record = view.record(self._name)
        assert record is not None
        self._now_ms = self._opened.engine().clock.now_ms()
        self._number, self._head = record.number, head

    def _page(self, view: Snapshot, after: bytes) -> int:
        """Look at some of the groups, and order them once all are there; how many there were."""
        rows, following = pel.group_page(view, self._name, after)
        self._weigh(sum(GROUP_HELD_BYTES + len(row.name) for row, _ in rows))
        self.groups += [
            GatheringGroup(
                self._opened,
                row.name,
                group_info(row, self._as_text),
                number,
                self._count,
                self._now_ms,
            )
            for row, number in rows
        ]
        if following is None:
            self.groups.sort(key=lambda group: group.name)
        self._following = following
        return len(rows)

    def _read(self, view: Snapshot, low: StreamID, high: StreamID) -> None:
        left = self._count - self._taken if self._count else -1
        asked = read.RangeRead(low, high, left)
        batch_read = read.read_on(lambda batch: batch(view), self._name, asked)
        encoding = self._opened.encoding
        self._entries += [make_entry(row, encoding) for row in batch_read.entries]
        self._taken += len(batch_read.entries)
        over = bool(self._count) and self._taken >= self._count
        self._rest = None if over else batch_read.rest

    def _as_text(self, name: bytes) -> T:
        return self._opened.text(name)


class GatheringGroup(Generic[T]):
    """A group on the way."""

    def __init__(
        self,
        opened: OpenStore[T],
        name: bytes,
        info: GroupInfo[T],
        number: int,
        count: int,
        now_ms: int,
    ) -> None:
        self.name = name  # what groups are ordered by
        self._opened: OpenStore[T] = opened
        self._info: GroupInfo[T] = info
        self._number = number
        self._count = count
        self._now_ms = now_ms
        self._consumers: list[ConsumerRecord] = []
        self._last_consumer: int | None = 0  # behind which the others come; None: there are none
        self._names: dict[int, T] = {}
        self._lists: dict[int, list[FullPendingEntry[T]]] = {}
        self._all: list[FullPendingEntry[T]] = []
        self._most = count or info.pending
        self._wanted = min(self._most, info.pending)
        self._wants: dict[int, int] = {}  # how many are still to be found of a consumer's
        self._after = ZERO_ID.packed()

    def step(self, view: Snapshot, most: int, weigh: Callable[[int], object]) -> int:
        """Look on: at consumers, then at pending entries; at how many, ``most`` or more if some
        are left."""
        looked = 0
        while self._last_consumer is not None:
            if looked >= most:
                return looked
            looked += self._page(view, self._last_consumer, weigh)
        if not (self._wanted or self._wants):
            return looked
        for run in view.index.groups.runs(self._number, self._after):
            if looked >= most:
                return looked
            looked += len(run)
            weigh(self._take(run))
            if not (self._wanted or self._wants):
                return looked
        self._wanted, self._wants = 0, {}  # of what was counted, some went meanwhile
        return looked

    def _page(self, view: Snapshot, after: int, weigh: Callable[[int], object]) -> int:
        page = view.index.groups.page_of_consumers(self._number, after, pel.PAGE_ROWS)
        weigh(sum(CONSUMER_HELD_BYTES + len(consumer.name) for consumer in page))
        self._consumers += page
        for consumer in page:
            self._names[consumer.number] = self._opened.text(consumer.name)
            self._lists[consumer.number] = []
            if consumer.pending:
                self._wants[consumer.number] = min(self._most, consumer.pending)
        full = len(page) == pel.PAGE_ROWS
        self._last_consumer = page[-1].number if full else None
        if not full:
            self._consumers.sort(key=lambda consumer: consumer.name)
        return len(page)

    def _take(self, run: PendingRun) -> int:
        """Put a run's entries into the lists that want them; the bytes of memory they take."""
        size = 0
        for pending in run.between(self._after, LAST):
            if self._wanted or pending[2] in self._wants:
                self._put(pending)
                size += PENDING_HELD_BYTES + len(self._names.get(pending[2], b""))
        last = StreamID.unpacked(run.last)
        self._after = last.next().packed() if last < MAX_ID else run.last
        if last == MAX_ID:
            self._wanted, self._wants = 0, {}
        return size

    def _put(self, pending: Pending) -> None:
        who, given = pending[2], self._entry(pending)
        if self._wanted:
            self._all.append(given)
            self._wanted -= 1
        if who in self._wants:
            self._lists[who].append(given)
            self._wants[who] -= 1
            if not self._wants[who]:
                del self._wants[who]

    def _entry(self, pending: Pending) -> FullPendingEntry[T]:
        ms, seq, who, time_ms, count = pending
        id = StreamID(ms, seq)
        if who == NO_ONE:  # its time is its place in the line
            return FullPendingEntry(id, None, None, count, delivered_ms=None)
        if self._names.get(who) == self._opened.text(NOBODY) and due_of(time_ms) >= 0:
            time_ms = due_of(time_ms)
        idle = elapsed(self._now_ms - time_ms)
        return FullPendingEntry(id, self._names.get(who), idle, count, delivered_ms=time_ms)

    def result(self) -> FullGroupInfo[T]:
        """What was seen."""
        nacked = self._info.pending - sum(consumer.pending for consumer in self._consumers)
        return FullGroupInfo(
            **_values(self._info),
            nacked=max(0, nacked),
            pending_entries=tuple(self._all),
            consumer_infos=tuple(map(self._consumer, self._consumers)),
        )

    def _consumer(self, record: ConsumerRecord) -> FullConsumerInfo[T]:
        now_ms, active_ms = self._now_ms, record.active_ms
        never = active_ms < 0
        return FullConsumerInfo(
            self._names[record.number],
            record.pending,
            elapsed(now_ms - record.seen_ms),
            None if never else elapsed(now_ms - active_ms),
            seen_ms=record.seen_ms,
            active_ms=None if never else active_ms,
            pending_entries=tuple(self._lists[record.number]),
        )


def _values(info: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as they are."""
    return {field.name: getattr(info, field.name) for field in fields(info)}


@dataclass(frozen=True, slots=True)
class StreamInfo(Generic[T]):
    """All fields of XINFO STREAM, and what only a store on disk has."""

    name: T
    length: int
    radix_tree_keys: int  # macro nodes
    radix_tree_nodes: int
    last_generated_id: StreamID
    max_deleted_entry_id: StreamID
    entries_added: int
    recorded_first_entry_id: StreamID
    groups: int
    first_entry: Entry[T] | None
    last_entry: Entry[T] | None
    node_bytes: int
    open_node_bytes: int
    settings: StreamSettings = StreamSettings()
    scheduled: int = 0  # entries that wait for their time
    next_due: datetime | None = None  # the time of the first of them
    pids_tracked: int = 0  # producers of which idempotent IDs are remembered
    iids_tracked: int = 0  # idempotent IDs; what expired goes a little later, in the background
    iids_added: int = 0  # entries added idempotently, in the stream's whole life
    iids_duplicates: int = 0  # adds that added nothing, in the stream's whole life
    expires_at: datetime | None = None  # None: never
    schema: Schema | None = None  # the columns of its entries; None: it has none

    def __str__(self) -> str:
        """What there is to tell, a line for each fact, for people."""
        from logstore.api import showing

        return showing.lines_of(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        return {
            "name": plain_text(self.name),
            "length": self.length,
            "radix-tree-keys": self.radix_tree_keys,
            "radix-tree-nodes": self.radix_tree_nodes,
            "last-generated-id": str(self.last_generated_id),
            "max-deleted-entry-id": str(self.max_deleted_entry_id),
            "entries-added": self.entries_added,
            "recorded-first-entry-id": str(self.recorded_first_entry_id),
            "idmp-duration": self.settings.idempotent_duration_s,
            "idmp-maxsize": self.settings.idempotent_max_ids,
            "pids-tracked": self.pids_tracked,
            "iids-tracked": self.iids_tracked,
            "iids-added": self.iids_added,
            "iids-duplicates": self.iids_duplicates,
            "groups": self.groups,
            "first-entry": plain_entry(self.first_entry),
            "last-entry": plain_entry(self.last_entry),
            "node-bytes": self.node_bytes,
            "open-node-bytes": self.open_node_bytes,
            "settings": settings_as_dict(self.settings),
            "scheduled": self.scheduled,
            "next-due": None if self.next_due is None else self.next_due.isoformat(),
            "expires-at": None if self.expires_at is None else self.expires_at.isoformat(),
            "schema": None if self.schema is None else self.schema.text,
        }


def plain_entry(entry: Entry[Any] | None) -> dict[str, Any] | None:
    """An entry as plain values: its ID, and pairs of texts as they are stored."""
    if entry is None:
        return None
    pairs = [[plain_text(name), plain_text(value)] for name, value in stored_pairs(entry)]
    return {"id": str(entry.id), "pairs": pairs}


def settings_as_dict(settings: StreamSettings | GroupSettings[Any]) -> dict[str, Any]:
    """Settings by name, as plain values; what is not set is None."""
    return {
        name.replace("_", "-"): plain_text(value) if isinstance(value, bytes) else value
        for name, value in settings._asdict().items()
    }


def plain_text(part: bytes | str) -> str:
    """Bytes as text, with backslash escapes for those that are not UTF-8."""
    return part if isinstance(part, str) else part.decode("utf-8", "backslashreplace")


def plain_ms(length: timedelta | None) -> int:
    """Milliseconds; -1 for none."""
    return -1 if length is None else length // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class GroupInfo(Generic[T]):
    """All fields of XINFO GROUPS. None: not known, as after a delete in what was not yet read."""

    name: T
    consumers: int
    pending: int
    last_delivered_id: StreamID
    entries_read: int | None
    lag: int | None  # how many entries were not delivered yet
    settings: GroupSettings[T] = GroupSettings()

    def __str__(self) -> str:
        """What there is to tell, a line for each fact, for people."""
        from logstore.api import showing

        return showing.lines_of(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        return {
            "name": plain_text(self.name),
            "consumers": self.consumers,
            "pending": self.pending,
            "last-delivered-id": str(self.last_delivered_id),
            "entries-read": self.entries_read,
            "lag": self.lag,
            "settings": settings_as_dict(self.settings),
        }


@dataclass(frozen=True, slots=True)
class ConsumerInfo(Generic[T]):
    """All fields of XINFO CONSUMERS."""

    name: T
    pending: int
    idle: timedelta  # since it last asked for entries
    inactive: timedelta | None  # since it last got some; None: it never did

    def __str__(self) -> str:
        """What there is to tell, a line for each fact, for people."""
        from logstore.api import showing

        return showing.lines_of(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, lengths of time in milliseconds (-1: never); for --json."""
        return {
            "name": plain_text(self.name),
            "pending": self.pending,
            "idle": plain_ms(self.idle),
            "inactive": plain_ms(self.inactive),
        }


@dataclass(frozen=True, slots=True)
class PendingInfo(Generic[T]):
    """What is pending in a group, in sum, as XPENDING tells it."""

    count: int
    first: StreamID | None
    last: StreamID | None
    consumers: dict[T, int]  # those that have pending entries; what was given back is nobody's

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        return {
            "count": self.count,
            "first": None if self.first is None else str(self.first),
            "last": None if self.last is None else str(self.last),
            "consumers": {plain_text(name): count for name, count in self.consumers.items()},
        }


@dataclass(frozen=True, slots=True)
class PendingEntry(Generic[T]):
    """One pending entry, as XPENDING with a range tells it."""

    id: StreamID
    consumer: T | None  # None: it was given back and is nobody's
    idle: timedelta | None  # since its last delivery; None: it was given back
    delivery_count: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, the ID as text, milliseconds; for --json."""
        return {
            "id": str(self.id),
            "consumer": None if self.consumer is None else plain_text(self.consumer),
            "idle": plain_ms(self.idle),
            "delivery-count": self.delivery_count,
        }


@dataclass(frozen=True, slots=True)
class PinInfo:
    """A pin: what keeps segments from being dropped while somebody reads what they hold."""

    id: str
    purpose: str  # "spark", "dump"; empty: an older version made it
    host: str  # of the process that it is for
    pid: int
    since: datetime | None
    until: datetime  # unless somebody reads until then
    segments: int | None  # how many it names; None: all, for a moment
    segment_bytes: int
    snapshot_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, times in ISO 8601; for --json."""
        since = None if self.since is None else self.since.isoformat()
        return {**asdict(self), "since": since, "until": self.until.isoformat()}


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store holds and where it stands."""

    path: str
    uuid: str
    format_version: int
    streams: int
    scheduled: int  # entries that wait for their time
    nodes: int
    segments: int
    log_bytes: int
    live_bytes: int  # of the log: entries that are there, of sealed nodes and of open ones
    tombstoned_bytes: int  # of the log: deleted entries in nodes that live
    dead_bytes: int  # of the log: all else
    index_bytes: int
    index_generation: int
    disk_bytes: int
    deleted_bytes: int  # an estimate: of deleted entries, what is still in the log
    oldest_deleted_segment_ms: int  # unix ms of the oldest segment that has such bytes; 0: none
    applied_segment: int
    applied_offset: int
    durable_segment: int  # durable up to here at least; 0, 0: nothing tells, as in a copy
    durable_offset: int
    codec: str  # "native" or "pure"
    core: str  # of plain commits and reads by ID: "native", or "pure" without compiled code
    compacted_ms: int = 0  # unix ms when compaction last dropped segments, while the store is open
    compacted_bytes: int = 0  # of all segments that it dropped, while some process has it open
    reclaimable_bytes: int = 0  # an estimate: by how much ``compact()`` would make the log smaller
    pins: int = 0  # what keeps segments: see ``Store.pins``
    pinned_bytes: int = 0  # of the segments and snapshot files that these keep
    oldest_pin_ms: int = 0  # unix ms when the oldest was made; 0: there is none, or it is not known
    shipped_ms: int = 0  # unix ms when it was last shipped; 0: never
    shipped_to: str = ""  # where, without user, password and query
    unshipped_bytes: int = 0  # of the log, behind what was shipped

    def __str__(self) -> str:
        """What there is to tell, a line for each fact, for people."""
        from logstore.api import showing

        return showing.lines_of(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain values; for --json."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullPendingEntry(PendingEntry[T]):
    """One pending entry, and when it was delivered last."""

    delivered_ms: int | None  # unix ms; None: it was given back

    def as_dict(self) -> dict[str, Any]:
        """Plain values, the ID as text, unix milliseconds (0: it was given back); for --json."""
        return {
            "id": str(self.id),
            "consumer": None if self.consumer is None else plain_text(self.consumer),
            "delivery-time": self.delivered_ms or 0,
            "delivery-count": self.delivery_count,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FullConsumerInfo(ConsumerInfo[T]):
    """A consumer, and what is pending with it, the smallest IDs of it."""

    seen_ms: int  # unix ms: when it last asked for entries
    active_ms: int | None  # when it last got some; None: it never did
    pending_entries: tuple[FullPendingEntry[T], ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, times as unix milliseconds (-1: never); for --json."""
        return {
            "name": plain_text(self.name),
            "seen-time": self.seen_ms,
            "active-time": -1 if self.active_ms is None else self.active_ms,
            "pel-count": self.pending,
            "pending": [row.as_dict() for row in self.pending_entries],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FullGroupInfo(GroupInfo[T]):
    """A group, its consumers by name, and what is pending, the smallest IDs of it."""

    nacked: int  # of what is pending: given back and nobody's
    pending_entries: tuple[FullPendingEntry[T], ...]
    consumer_infos: tuple[FullConsumerInfo[T], ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        return {
            "name": plain_text(self.name),
            "last-delivered-id": str(self.last_delivered_id),
            "entries-read": self.entries_read,
            "lag": self.lag,
            "pel-count": self.pending,
            "nacked-count": self.nacked,
            "pending": [row.as_dict() for row in self.pending_entries],
            "consumers": [row.as_dict() for row in self.consumer_infos],
            "settings": settings_as_dict(self.settings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FullStreamInfo(StreamInfo[T]):
    """A stream, its first entries, and its groups by name."""

    entries: tuple[Entry[T], ...]
    group_infos: tuple[FullGroupInfo[T], ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        plain = StreamInfo.as_dict(self)
        place = list(plain).index("groups")
        full = dict(list(plain.items())[:place])
        full["entries"] = [plain_entry(row) for row in self.entries]
        full["groups"] = [row.as_dict() for row in self.group_infos]
        del plain["first-entry"], plain["last-entry"]
        return {**full, **{name: plain[name] for name in plain if name not in full}}
