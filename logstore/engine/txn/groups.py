"""The groups that an operation sees and changes, and how far a group is behind its stream.

Invariants: records of groups and consumers are held decoded and written back once, at ``flush``;
what is cached survives to the next commit only while nobody else committed in between
(``RecordCache``). Runs of pending entries are written through. Entries read and lag are reckoned
from the two records alone, as Redis 8.2 does in streamEstimateDistanceFromFirstEverEntry and
streamReplyWithCGLag; None is "cannot be known", as the peers' null. Decides nothing.
"""

from __future__ import annotations

from logstore.engine.runtime.record_cache import GroupCache
from logstore.ids import ZERO_ID, StreamID
from logstore.index.group_keys import ConsumerRecord, GroupRecord
from logstore.index.group_txn import GroupTxn
from logstore.index.keys import StreamRecord


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


UNKNOWN = -1
_HALF = 1 << 63


def signed(count: int) -> int:
    """A count of entries as servers keep and tell it, in 64 bits with a sign: behind 2^63-1 comes
    -2^63. Only a count that was set, with XSETID or RESTORE, ever gets there."""
    return count if -_HALF <= count < _HALF else (count + _HALF) % (2 * _HALF) - _HALF


def tombstones_after(record: StreamRecord, at: StreamID) -> bool:
    """Whether an entry from ``at`` on may have been deleted."""
    return bool(record.length) and record.max_deleted != ZERO_ID and at <= record.max_deleted


def estimate(record: StreamRecord, at: StreamID) -> int:
    """How many entries were ever added up to an ID; -1 if that cannot be known."""
    if record.entries_added == 0:
        return 0
    if not record.length and at <= record.last:
        return signed(record.entries_added)
    if at != ZERO_ID and at < record.max_deleted:
        return UNKNOWN
    if at == record.last:
        return signed(record.entries_added)
    if at > record.last:
        return UNKNOWN
    if record.max_deleted == ZERO_ID or record.max_deleted < record.first:
        if at < record.first:
            return signed(record.entries_added - record.length)
        if at == record.first:
            return signed(record.entries_added - record.length + 1)
    return UNKNOWN


def lag(record: StreamRecord, group: GroupRecord) -> int | None:
    """Entries that were not delivered yet; None if that cannot be known."""
    if record.entries_added == 0 or record.length == 0:
        return 0
    if group.last < record.first and record.max_deleted < record.first:
        return record.length
    if group.entries_read != UNKNOWN and not tombstones_after(record, group.last):
        return signed(record.entries_added - group.entries_read)
    read = estimate(record, group.last)
    return None if read == UNKNOWN else signed(record.entries_added - read)


def delivered(
    record: StreamRecord, group: GroupRecord, ids: list[StreamID]
) -> tuple[StreamID, int]:
    """Last delivered ID and entries read after these were handed out, in order."""
    last, read = group.last, group.entries_read
    count = len(ids)
    if read != UNKNOWN and last >= record.first and not tombstones_after(record, last):
        return ids[-1], signed(read + count)
    for at in ids:
        known = read != UNKNOWN and last >= record.first
        if known and not tombstones_after(record, last):
            read = signed(read + 1)
        elif record.entries_added:
            read = estimate(record, at)
        last = at
    return last, read
