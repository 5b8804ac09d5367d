"""The groups that a transaction sees and changes, and what deliveries and acks do to them.

The one place for these two frames: a commit, the replay of the log, and a reader that lays the
newest frames over its snapshot all come here, so that they cannot disagree. ``PendingSet`` changes
the pending entries list (PEL) of one group: runs are rewritten, cut, and joined to. ``txn.pel``
finds entries in it.

Invariants: records of groups and consumers are held decoded and written back once, at ``flush``;
what is cached survives to the next commit only while nobody else committed in between
(``RecordCache``). Runs of pending entries are written through. A run has at most
``RUN_MAX_ENTRIES``, and no two overlap; a change rewrites the row of a run once for neighbouring
IDs, and takes IDs in ascending order, packed. A frame counts only if it stands behind the group's
own position; counts follow from what really changed. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.codec.pending_run import Item
from logstore.engine.runtime.record_cache import GroupCache
from logstore.ids import StreamID
from logstore.index.group_keys import (
    ID_BYTES,
    NO_ONE,
    RUN_MAX_ENTRIES,
    ConsumerRecord,
    GroupRecord,
    PendingRun,
)
from logstore.index.group_txn import END, FIRST, LAST, NO_RUNS, GroupTxn
from logstore.log import frame as frames


class PendingSet:
    """An editor of a group's runs; ``changes`` counts by consumer what came and went."""

    def __init__(self, txn: GroupTxn, group: int) -> None:
        self._txn = txn
        self._group = group
        self._run: PendingRun | None = None
        self._upper = LAST  # IDs below this belong to the run at hand
        self._dirty = False
        self.changes: dict[int, int] = {}

    def _seek(self, id: bytes) -> PendingRun | None:
        """Go to the run that holds an ID, or would; None if there is none below it."""
        run = self._run
        if run is not None and len(run) and run.first <= id < self._upper:
            return run
        self.flush()
        _, self._run, self._upper = self._txn.around(self._group, id)
        return self._run

    def flush(self) -> None:
        """Write the run at hand back."""
        run = self._run
        if self._dirty and run is not None:
            self._txn.put_run(self._group, run)
            if len(run):
                self._txn.keep_near(self._group, (run.first, run, self._upper))
        self._run, self._dirty = None, False

    def _start(self, run: PendingRun, upper: bytes) -> None:
        """Write the run at hand back and go on with a new one behind it."""
        self._upper = b""  # the one at hand ends where the new one will begin
        self.flush()
        self._run, self._dirty, self._upper = run, True, upper

    def put(self, items: Sequence[Item], consumer: int) -> None:
        """Set entries as pending with a consumer."""
        at = 0
        while at < len(items):
            run = self._room(StreamID(*items[at][:2]).packed())
            at = run.put(items, at, consumer, self._upper, self.changes)
            self._dirty = True

    def _room(self, id: bytes) -> PendingRun:
        """The run for an ID, with room for one more."""
        run = self._seek(id)
        if run is None:
            self._start(PendingRun(), self._upper)
        elif len(run) >= RUN_MAX_ENTRIES:
            if id > run.last:
                self._start(PendingRun(), self._upper)
            elif run.find(id) is None:
                cut = run.split()
                self._dirty = True
                if id < cut.first:
                    self._upper = cut.first
                    self._txn.put_run(self._group, cut)
                else:
                    self._start(cut, self._upper)
        assert self._run is not None
        return self._run

    def extend(self, ids: bytes, consumer: int, time_ms: int, count: int) -> None:
        """Set the entries of one delivery as pending; those behind all others go in at once."""
        at, end = 0, len(ids)
        while at < end:
            first = ids[at : at + ID_BYTES]
            run = self._seek(first)
            behind = self._upper > LAST and (run is None or first > run.last)
            if not behind:
                ms, seq = StreamID.unpacked(first)
                self.put([(ms, seq, time_ms, count)], consumer)
                at += ID_BYTES
                continue
            if run is None or len(run) >= RUN_MAX_ENTRIES:
                run = PendingRun()
                self._start(run, END)
            taken = min(end - at, (RUN_MAX_ENTRIES - len(run)) * ID_BYTES)
            run.extend(ids[at : at + taken], consumer, time_ms, count)
            self._dirty = True
            self.changes[consumer] = self.changes.get(consumer, 0) + taken // ID_BYTES
            at += taken

    def remove(self, ids: bytes) -> None:
        """Entries are no longer pending; what was not is passed over."""
        at = 0
        while at < len(ids):
            run = self._seek(ids[at : at + ID_BYTES])
            if run is None:
                at += ID_BYTES
                continue
            size = len(run)
            at = run.remove(ids, at, self._upper, self.changes)
            if len(run) != size:
                self._dirty = True

    def remove_of(self, consumer: int) -> None:
        """Nothing is pending with this consumer any more."""
        self.remove(
            b"".join(
                [
                    StreamID(ms, seq).packed()
                    for run in self._txn.runs(self._group)
                    for ms, seq, *_ in run.between(FIRST, LAST, consumer)
                ]
            )
        )


class GroupState:
    """One write transaction's view of the groups."""

    __slots__ = ("_dirty", "_dirty_consumers", "cache", "index")

    def __init__(self, index: GroupTxn, cache: GroupCache) -> None:
        self.index = index
        self.cache = cache
        index.decoded = cache.runs
        self._dirty: set[int] = set()
        self._dirty_consumers: set[tuple[int, int]] = set()

    # -- groups -------------------------------------------------------------------------------
    def by_number(self, number: int) -> GroupRecord | None:
        """A group's record; changes to it count once ``touch`` was called."""
        group = self.cache.groups.get(number)
        if group is None:
            group = self.index.group(number)
            if group is not None:
                self.cache.groups[number] = group
        return group

    def named(self, stream: int, name: bytes) -> GroupRecord | None:
        """A stream's group by name."""
        number = self.cache.numbers.get((stream, name))
        group = None if number is None else self.by_number(number)
        if group is None or (group.stream, group.name) != (stream, name):
            number = self.index.number(stream, name)
            if number is None:
                return None
            self.cache.numbers[stream, name] = number
            group = self.by_number(number)
        return group

    def of_stream(self, stream: int) -> list[GroupRecord]:
        """A stream's groups, by name."""
        self.flush()
        groups = [self.by_number(group.number) for group in self.index.of_stream(stream)]
        return [group for group in groups if group is not None]

    def touch(self, group: GroupRecord) -> None:
        """The record was changed: it is written back at ``flush``."""
        self._dirty.add(group.number)

    def advance(self, number: int, at: int) -> GroupRecord | None:
        """The group, if a frame at position ``at`` counts for it; its position is moved there."""
        group = self.by_number(number)
        if group is None or group.position >= at:
            return None
        group.position = at
        self.touch(group)
        return group

    def create(self, group: GroupRecord) -> None:
        """Add a new group."""
        self.bind(group)
        self.index.put_group(group)
        self.cache.groups[group.number] = group

    def bind(self, group: GroupRecord) -> None:
        """The name in the record is this group's."""
        self.index.put_name(group)
        self.cache.numbers[group.stream, group.name] = group.number

    def remove(self, group: GroupRecord) -> None:
        """Take a group away with all that is its."""
        number = group.number
        self.index.delete_group(group)
        cache = self.cache
        cache.runs.clear()
        cache.groups.pop(number, None)
        if cache.numbers.get((group.stream, group.name)) == number:
            del cache.numbers[group.stream, group.name]
        for pair in [key for key in cache.consumers if key[0] == number]:
            del cache.consumers[pair]
        for named in [key for key in cache.consumer_numbers if key[0] == number]:
            del cache.consumer_numbers[named]
        self._dirty.discard(number)
        self._dirty_consumers = {key for key in self._dirty_consumers if key[0] != number}

    # -- consumers ----------------------------------------------------------------------------
    def consumer(self, group: int, number: int) -> ConsumerRecord | None:
        """A consumer's record; changes to it count once ``touch_consumer`` was called."""
        record = self.cache.consumers.get((group, number))
        if record is None:
            record = self.index.consumer(group, number)
            if record is not None:
                self.cache.consumers[group, number] = record
        return record

    def consumer_named(self, group: int, name: bytes) -> ConsumerRecord | None:
        """A consumer's record by name."""
        number = self.cache.consumer_numbers.get((group, name))
        record = None if number is None else self.consumer(group, number)
        if record is None or record.name != name:
            number = self.index.consumer_number(group, name)
            if number is None:
                return None
            self.cache.consumer_numbers[group, name] = number
            record = self.consumer(group, number)
        return record

    def touch_consumer(self, group: int, consumer: ConsumerRecord) -> None:
        """The record was changed: it is written back at ``flush``."""
        self._dirty_consumers.add((group, consumer.number))

    def add_consumer(self, group: GroupRecord, consumer: ConsumerRecord) -> None:
        """Bind a new consumer's name."""
        self.index.put_consumer_name(group.number, consumer)
        self.cache.consumers[group.number, consumer.number] = consumer
        self.cache.consumer_numbers[group.number, consumer.name] = consumer.number
        group.consumers += 1
        group.next_consumer = max(group.next_consumer, consumer.number + 1)
        self.touch(group)
        self.touch_consumer(group.number, consumer)

    def remove_consumer(self, group: GroupRecord, consumer: ConsumerRecord) -> None:
        """Take a consumer away; nothing is pending with it any more."""
        self.index.delete_consumer(group.number, consumer)
        self.cache.consumers.pop((group.number, consumer.number), None)
        self.cache.consumer_numbers.pop((group.number, consumer.name), None)
        self._dirty_consumers.discard((group.number, consumer.number))
        group.consumers -= 1
        self.touch(group)

    def flush(self) -> None:
        """Write back what changed."""
        for number in self._dirty:
            self.index.put_group(self.cache.groups[number])
        for group, number in self._dirty_consumers:
            self.index.put_consumer(group, self.cache.consumers[group, number])
        self._dirty.clear()
        self._dirty_consumers.clear()


def deliver(groups: GroupState, at: int, body: frames.Deliver) -> None:
    """Apply a delivery at position ``at``."""
    group = groups.advance(body.group, at)
    if group is None:
        return
    group.last = StreamID(body.last_ms, body.last_seq)
    group.entries_read = body.entries_read
    record = groups.consumer(group.number, body.consumer)
    if record is not None:
        record.seen_ms = body.time_ms
        if not body.noack:  # as the peers: a read that owes no answer does not count as activity
            record.active_ms = body.time_ms
        groups.touch_consumer(group.number, record)
    if not body.noack:
        pending = PendingSet(groups.index, group.number)
        pending.extend(body.ids, body.consumer, body.time_ms, 1)
        count(groups, group, pending)


def ack(groups: GroupState, at: int, body: frames.Ack) -> None:
    """What an ack at position ``at`` changes."""
    group = groups.advance(body.group, at)
    if group is not None:
        pending = PendingSet(groups.index, group.number)
        pending.remove(body.ids)
        count(groups, group, pending)


def count(groups: GroupState, group: GroupRecord, pending: PendingSet) -> None:
    """Write runs back and bring the counts up to what changed."""
    pending.flush()
    for consumer, by in pending.changes.items():
        if not by:
            continue
        group.pending += by
        if consumer != NO_ONE:
            record = groups.consumer(group.number, consumer)
            if record is not None:
                record.pending += by
                groups.touch_consumer(group.number, record)
    if not group.pending:
        groups.index.keep_near(group.number, NO_RUNS)
