"""Typed access to consumer groups inside one LMDB transaction, reading or writing.

Invariants: as of ``txn``: every value is checked against its CRC before it is used, and a cursor
never outlives its transaction. A row of the idle index is written and removed with its run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, TypeAlias

from logstore.codec import codec
from logstore.ids import StreamID
from logstore.index import group_keys as keys
from logstore.index.env import Generation
from logstore.index.group_keys import ConsumerRecord, GroupRecord, NewGroup, PendingRun
from logstore.row_seal import fetch, seal, unseal

FIRST: Final = bytes(16)
LAST: Final = b"\xff" * 16
END: Final = LAST + b"\x00"  # above every ID
DECODED_MAX_RUNS: Final = 64
# What every commit of a group writes is packed in place: a call would cost more than the work.
_prefix: Final[Any] = keys.ROW_PREFIX.pack
_idle: Final[Any] = keys.IDLE_KEY.pack
_SEAL: Final[Any] = codec().seal

# A run with the bounds of what is its: from the first ID to that of the run behind it, exclusive.
# Without a run: there is none for these.
RunPlace: TypeAlias = tuple[bytes, PendingRun | None, bytes]


# Nothing is pending: what every call that looks for a run gets.
NO_RUNS: Final[RunPlace] = (b"", None, END)


class DecodedRuns:
    """A writer's: runs as they are stored, by key, and by group the one that was used last."""

    __slots__ = ("by_key", "near")

    def __init__(self) -> None:
        self.by_key: dict[bytes, PendingRun] = {}
        self.near: dict[int, RunPlace] = {}

    def clear(self) -> None:
        """Forget them all."""
        self.by_key.clear()
        self.near.clear()


def _stored(value: bytes) -> PendingRun:
    run = PendingRun.unpack(value)
    run.stored = (run.first, run.oldest_ms)
    return run


def _part(run: PendingRun, low: bytes, upper: bytes) -> PendingRun:
    """A run of what another one has from ``low`` on, below ``upper``."""
    made = PendingRun()
    for ms, seq, consumer, time_ms, count in run.between(FIRST, LAST):
        if low <= StreamID(ms, seq).packed() < upper:
            made.put([(ms, seq, time_ms, count)], 0, consumer, END, {})
    return made


class GroupTxn:
    """The groups as one transaction sees them."""

    __slots__ = ("_cursor", "_database", "decoded", "txn")

    def __init__(self, generation: Generation, txn: Any) -> None:
        self._database = generation.groups
        self.txn = txn
        self.decoded: DecodedRuns | None = None  # a writer's
        self._cursor: Any = None

    def _put(self, key: bytes, value: bytes) -> None:
        self.txn.put(key, seal(key, value), db=self._database)

    def _delete(self, key: bytes) -> None:
        self.txn.delete(key, db=self._database)

    def _rows(self, prefix: bytes, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        with self.txn.cursor(db=self._database) as cursor:
            if cursor.set_range(prefix + after):
                for key, data in cursor:
                    if not key.startswith(prefix):
                        return
                    yield key, unseal(key, data)

    # -- groups -------------------------------------------------------------------------------
    def number(self, stream: int, name: bytes) -> int | None:
        """The number of a group by name."""
        value = fetch(self.txn, self._database, keys.name_key(stream, name))
        return None if value is None else int.from_bytes(value, "little")

    def group(self, number: int) -> GroupRecord | None:
        """A group's record."""
        value = fetch(self.txn, self._database, keys.group_key(number))
        return None if value is None else GroupRecord.unpack(number, value)

    def named(self, stream: int, name: bytes) -> GroupRecord | None:
        """A group's record by name."""
        number = self.number(stream, name)
        return None if number is None else self.group(number)

    def of_stream(self, stream: int) -> list[GroupRecord]:
        """A stream's groups, by name."""
        groups = [
            self.group(int.from_bytes(value, "little"))
            for _, value in self._rows(keys.stream_prefix(stream))
        ]
        return sorted(
            (group for group in groups if group is not None), key=lambda group: group.name
        )

    def count_of_stream(self, stream: int) -> int:
        """How many groups a stream has; their records are not read."""
        return sum(1 for _ in self._rows(keys.stream_prefix(stream)))

    def page_of_stream(
        self, stream: int, after: bytes, most: int
    ) -> tuple[list[GroupRecord], bytes | None]:
        """At most ``most`` of a stream's groups in the order of their rows, and what to give as
        ``after`` for the next ones (None: there are none); ``after`` is b"" for the first."""
        prefix = keys.stream_prefix(stream)
        groups: list[GroupRecord] = []
        for key, value in self._rows(prefix, after):
            if len(groups) >= most:
                return groups, key[len(prefix) :]
            group = self.group(int.from_bytes(value, "little"))
            if group is not None:
                groups.append(group)
        return groups, None

    def all_groups(self, after: int = 0) -> Iterator[GroupRecord]:
        """Every group with a number above ``after``."""
        while True:
            with self.txn.cursor(db=self._database) as cursor:
                if not cursor.set_range(keys.group_key(after + 1)):
                    return
                key, data = cursor.item()
                after = int.from_bytes(key[:8], "big")
                group = None
                if key[8:] == keys.group_key(0)[8:]:
                    group = GroupRecord.unpack(after, unseal(key, data))
            if group is not None:
                yield group

    def put_new(self, stream: int, numbers: list[int], groups: list[NewGroup]) -> None:
        """Store new groups of a stream with their names: by ascending numbers and digests, so that
        rows of each kind stand side by side."""
        names: list[tuple[bytes, bytes]] = []
        records: list[tuple[bytes, bytes]] = []
        for number, group in zip(numbers, groups, strict=True):
            key = keys.name_digest_key(stream, group[0])
            names.append((key, seal(key, number.to_bytes(8, "little"))))
            key = _prefix(number, keys.GROUP_ROW)
            records.append((key, seal(key, keys.new_group_value(number, stream, group))))
        with self.txn.cursor(db=self._database) as cursor:
            cursor.putmulti(names)
            at_end = not cursor.last() or cursor.key() < records[0][0]
            cursor.putmulti(records, append=at_end)

    def put_name(self, group: GroupRecord) -> None:
        """Bind a group's name."""
        self._put(keys.name_key(group.stream, group.name), group.number.to_bytes(8, "little"))

    def put_group(self, group: GroupRecord) -> None:
        """Store a group's record."""
        key = _prefix(group.number, keys.GROUP_ROW)
        self.txn.put(key, _SEAL(key, group.pack()), db=self._database)

    def delete_group(self, group: GroupRecord) -> None:
        """Remove a group with all that stands under its number."""
        if self.number(group.stream, group.name) == group.number:
            self._delete(keys.name_key(group.stream, group.name))
        if self.decoded is not None:
            self.decoded.clear()
        prefix = keys.group_prefix(group.number)
        with self.txn.cursor(db=self._database) as cursor:
            more = cursor.set_range(prefix)
            while more and cursor.key().startswith(prefix):
                more = cursor.delete()

    # -- consumers ----------------------------------------------------------------------------
    def consumer_number(self, group: int, name: bytes) -> int | None:
        """The number of a consumer by name."""
        value = fetch(self.txn, self._database, keys.consumer_name_key(group, name))
        return None if value is None else int.from_bytes(value, "little")

    def consumer(self, group: int, number: int) -> ConsumerRecord | None:
        """A consumer's record."""
        value = fetch(self.txn, self._database, keys.consumer_key(group, number))
        return None if value is None else ConsumerRecord.unpack(number, value)

    def consumers(self, group: int) -> list[ConsumerRecord]:
        """A group's consumers, by name."""
        prefix = keys.consumer_key(group, 0)[:9]
        found = [
            ConsumerRecord.unpack(int.from_bytes(key[9:], "big"), value)
            for key, value in self._rows(prefix)
        ]
        return sorted(found, key=lambda consumer: consumer.name)

    def page_of_consumers(self, group: int, after: int, most: int) -> list[ConsumerRecord]:
        """At most ``most`` of a group's consumers with numbers above ``after``, by number."""
        prefix = keys.consumer_key(group, 0)[:9]
        rows = islice(self._rows(prefix, (after + 1).to_bytes(4, "big")), most)
        return [ConsumerRecord.unpack(int.from_bytes(key[9:], "big"), value) for key, value in rows]

    def put_consumer(self, group: int, consumer: ConsumerRecord) -> None:
        """Store a consumer's record."""
        key = keys.consumer_key(group, consumer.number)
        self.txn.put(key, _SEAL(key, consumer.pack()), db=self._database)

    def put_consumer_name(self, group: int, consumer: ConsumerRecord) -> None:
        """Bind a consumer's name."""
        key = keys.consumer_name_key(group, consumer.name)
        self._put(key, consumer.number.to_bytes(4, "little"))

    def delete_consumer(self, group: int, consumer: ConsumerRecord) -> None:
        """Remove a consumer's record and name."""
        self._delete(keys.consumer_key(group, consumer.number))
        self._delete(keys.consumer_name_key(group, consumer.name))

    # -- runs of pending entries ----------------------------------------------------------------
    def run_floor(self, group: int, id: bytes) -> PendingRun | None:
        """The run with the largest first ID not above ``id``; who changes it stores it again."""
        return self.around(group, id)[1]

    def around(self, group: int, id: bytes) -> RunPlace:
        """The same with its bounds: of IDs between them nothing else need be asked."""
        decoded = self.decoded
        if decoded is not None:
            near = decoded.near.get(group)
            if near is not None and near[0] <= id < near[2]:
                return near
        cursor = self._cursor
        if cursor is None:
            cursor = self._cursor = self.txn.cursor(db=self._database)
        prefix = _prefix(group, keys.RUN_ROW)
        key = prefix + id
        upper, low, run = END, b"", None
        if cursor.set_range(key + b"\x00"):
            row_key = cursor.key()
            if row_key.startswith(prefix):
                upper = row_key[len(prefix) :]
        if cursor.prev() or cursor.last():
            row_key = cursor.key()
            if row_key <= key and row_key.startswith(prefix):
                low = row_key[len(prefix) :]
                run = self._run(row_key, cursor)
        near = (low, run, upper)
        if decoded is not None:
            self.keep_near(group, near)
        return near

    def _run(self, key: bytes, cursor: Any) -> PendingRun:
        decoded = self.decoded
        run = None if decoded is None else decoded.by_key.get(key)
        if run is None:
            run = _stored(unseal(key, cursor.value()))
            if decoded is not None:
                if len(decoded.by_key) >= DECODED_MAX_RUNS:
                    decoded.clear()
                decoded.by_key[key] = run
        return run

    def keep_near(self, group: int, near: RunPlace) -> None:
        """The run that was used last, as it is stored now."""
        if self.decoded is not None:
            if len(self.decoded.near) >= DECODED_MAX_RUNS:
                self.decoded.near.clear()
            self.decoded.near[group] = near

    def runs(self, group: int, start: bytes = FIRST) -> Iterator[PendingRun]:
        """Runs that may hold IDs from ``start`` on; do not change runs meanwhile."""
        floor = self.run_floor(group, start)
        low = floor.first if floor is not None else start
        for _, value in self._rows(keys.run_key(group, b""), low):
            yield _stored(value)

    def put_run(self, group: int, run: PendingRun) -> None:
        """Store a run, or remove one without entries, and its row of the idle index."""
        decoded, before = self.decoded, run.stored
        if decoded is not None:
            decoded.near.pop(group, None)
        prefix: bytes = _prefix(group, keys.RUN_ROW)
        now = (run.first, run.oldest_ms) if len(run) else None
        run.stored = now
        txn, database = self.txn, self._database
        if before is not None and before != now:
            first, oldest_ms = before
            if now is None or first != now[0]:
                key = prefix + first
                txn.delete(key, db=database)
                if decoded is not None:
                    decoded.by_key.pop(key, None)
            txn.delete(_idle(group, keys.IDLE_ROW, oldest_ms) + first, db=database)
        if now is None:
            return
        first, oldest_ms = now
        key = prefix + first
        txn.put(key, _SEAL(key, run.pack()), db=database)
        if decoded is not None:
            decoded.by_key[key] = run
        if before != now:
            key = _idle(group, keys.IDLE_ROW, oldest_ms) + first
            txn.put(key, _SEAL(key, b""), db=database)

    def put_between(self, group: int, low: bytes, upper: bytes, run: PendingRun | None) -> None:
        """Store a run in place of all entries from ``low`` on, below ``upper``, however runs are
        divided there: entries outside of these bounds stay."""
        parts: list[PendingRun] = []
        stored = None
        for each in self._overlapping(group, low, upper):
            if each.first < low or each.last >= upper:
                parts += [_part(each, FIRST, low), _part(each, upper, END)]
            if run is not None and len(run) and run.first == each.first:
                stored = each.stored
                continue
            self._delete(keys.run_key(group, each.first))
            self._delete(keys.idle_key(group, each.oldest_ms, each.first))
            if self.decoded is not None:
                self.decoded.by_key.pop(keys.run_key(group, each.first), None)
        for part in parts:
            self.put_run(group, part)
        if run is not None and len(run):
            run.stored = stored
            self.put_run(group, run)

    def _overlapping(self, group: int, low: bytes, upper: bytes) -> list[PendingRun]:
        """Runs with entries from ``low`` on, below ``upper``, as they are stored."""
        decoded, self.decoded = self.decoded, None
        floor = self.run_floor(group, low)
        self.decoded = decoded
        found = [] if floor is None or not floor.first < low <= floor.last else [floor]
        for _, value in self._rows(keys.run_prefix(group), low):
            each = _stored(value)
            if each.first >= upper:
                break
            found.append(each)
        return found

    def idle(self, group: int, since: tuple[int, bytes] = (0, b"")) -> Iterator[tuple[int, bytes]]:
        """Runs by their oldest delivery time, from ``since`` on: that time, and the first ID."""
        first = keys.idle_key(group, *since)
        for key, _ in self._rows(first[:9], first[9:]):
            yield keys.idle_parts(key)
