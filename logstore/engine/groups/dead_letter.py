"""Deciding dead letters: an entry that was delivered too often moves to a stream, and back again.

The entry's own pairs go to the dead letter stream, and behind them where it came from:
``origin_stream, origin_id, origin_group, origin_consumer, origin_delivery_count, origin_error``. It
is not pending any more, and stays in its stream, as any acked entry does. On its way back its own
pairs are added to the stream that it came from, as a new entry, and it is deleted from the dead
letter stream.

Invariants of the way there: the add and the ack are in one commit, the add first, as in a
transaction; a scan of pending entries hands over what it finds, and ``close`` emits all of it at
the end. An entry that is too large together with its origin moves without its own pairs; nothing
moves to a dead letter stream that cannot take another ID or whose last node is damaged, and the
group delivers on: one entry never stops a group. Nor does anything move to the stream where it is
pending, which a renaming may have made of the two: it would come back for ever.

Invariants of the way back: the add and the delete are in one commit, the add first; whether an
entry is still there is decided under LOCK, so that of two who ask for the same one gets it;
everything is checked before the first frame, so that a refused call changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.codec import codec
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.runtime.engine import log
from logstore.engine.streams import add, removal
from logstore.engine.txn.nodes import Lookup
from logstore.engine.txn.pel import PendingEntry
from logstore.errors import CorruptionError, EntryNotFoundError, OptionError
from logstore.ids import U64_MAX, StreamID
from logstore.index.group_keys import GroupRecord
from logstore.index.keys import StreamRecord
from logstore.options import ENTRY_MAX_BYTES, GroupSettings
from logstore.tuples import NamedTuple

MOST_ENTRIES, MOST_BYTES = 1000, 8 << 20  # that one operation moves; the next one goes on
ERROR_MAX_BYTES = 500
# What stands behind an entry's own pairs, in this order.
ORIGIN_FIELDS = (
    b"origin_stream",
    b"origin_id",
    b"origin_group",
    b"origin_consumer",
    b"origin_delivery_count",
    b"origin_error",
)
ROW_MAX_BYTES = ENTRY_MAX_BYTES


class Limit(NamedTuple):
    """After how many deliveries an entry is dead, and where it goes."""

    most: int
    stream: bytes


class DeadLettered(NamedTuple):
    """An entry that was moved to a dead letter stream."""

    origin: bytes  # the stream where it was pending
    group: bytes
    id: StreamID
    items: list[bytes]  # field, value, ...
    consumer: bytes  # the last that had it; empty: it was given back
    count: int  # type: ignore[assignment]  # deliveries
    error: bytes
    stream: bytes  # the dead letter stream
    dead_id: StreamID  # there


def clears(settings: GroupSettings[bytes]) -> bool:
    """Whether reads take away what is pending of entries that are gone; the peers' pass it over."""
    return not (settings.min_idle_ms is settings.max_deliveries is None)


def limit_of(txn: WriteTxn, group: GroupRecord) -> Limit | None:
    """The limit that is set for a group; None if its entries never die."""
    settings = txn.settings.group(group.number)
    if settings.max_deliveries is None or settings.dead_letter is None:
        return None
    return Limit(settings.max_deliveries, settings.dead_letter)


def _damaged(txn: WriteTxn, name: bytes) -> bool:
    """Whether a stream's last node is sealed and cannot be read: nothing can be added then."""
    record = txn.record_by_name(name)
    tail = None if record is None else txn.index.last_node(record.number)
    if record is None or tail is None or record.open_version:
        return False
    try:
        txn.read_node(record.number, *tail)
    except CorruptionError as exc:
        log.warning("nothing is moved to the dead letter stream %r: %s", name, exc)
        return True
    return False


class DeadLettering:
    """What one operation moves from a group to its dead letter stream, or clears away."""

    def __init__(
        self, txn: WriteTxn, record: StreamRecord, group: GroupRecord, limit: Limit | None = None
    ) -> None:
        """``limit`` is a worker's own, instead of what is set for the group."""
        self._state = txn
        self._origin = record.name
        self._group = group
        self.limit = limit_of(txn, group) if limit is None else limit
        self.clears = clears(txn.settings.group(group.number))
        self._dead: list[tuple[PendingEntry, list[bytes], bytes]] = []
        self._gone: list[StreamID] = []
        self._bytes = 0
        self._looked = False  # at the dead letter stream's last node
        if self.limit is not None:
            there = txn.record_by_name(self.limit.stream)
            own = there is not None and there.number == record.number
            if own or (there is not None and there.last.ms == U64_MAX):
                self.limit = None

    @property
    def full(self) -> bool:
        """Whether one commit should hold no more."""
        return len(self._dead) + len(self._gone) >= MOST_ENTRIES or self._bytes >= MOST_BYTES

    def reached(self, count: int) -> bool:
        """Whether an entry that was delivered so often is dead."""
        if self.limit is None or count < self.limit.most:
            return False
        if not self._looked:
            self.limit = None if _damaged(self._state, self.limit.stream) else self.limit
            self._looked = True
        return self.limit is not None

    def takes(self, pending: PendingEntry, items: list[bytes]) -> bool:
        """Take an entry that is to be delivered again, if it was delivered often enough."""
        if not self.reached(pending.count):
            return False
        self.put(pending, items, b"deliveries without an ack: %d" % pending.count)
        return True

    def put(self, pending: PendingEntry, items: list[bytes], error: bytes) -> None:
        """Take this entry."""
        self._dead.append((pending, items, error[:ERROR_MAX_BYTES]))
        self._bytes += sum(map(len, items))

    def clear(self, id: StreamID) -> None:
        """The entry is gone: it is not pending any more either, in a group that has settings."""
        if self.clears:
            self.end(id)

    def end(self, id: StreamID) -> None:
        """The entry is gone: it is not pending any more either."""
        self._gone.append(id)

    def close(self) -> None:
        """Move what was taken: add, then ack."""
        txn, group = self._state, self._group
        if self._dead:
            assert self.limit is not None
            dead_lettered = [
                DeadLettered(
                    self._origin,
                    group.name,
                    pending.id,
                    items,
                    self._name(pending.consumer),
                    pending.count,
                    error,
                    self.limit.stream,
                    pending.id,
                )
                for pending, items, error in self._dead
            ]
            batch = codec().rows([self._row(dead) for dead in dead_lettered])
            end = len(dead_lettered)
            request = add.Add(self.limit.stream, batch, 0, end, add.AUTO, schema_at=add.AS_STORED)
            added = add.add(txn, request)
            assert added is not None
            at = added.first
            for dead in dead_lettered:
                txn.dead_lettered.append(dead._replace(dead_id=at))
                at = at.next()
            txn.counts["dead_letters"] += len(dead_lettered)
        ended = [pending.id for pending, _, _ in self._dead] + self._gone
        if ended:
            removal.removed(txn, group, ended)

    def _name(self, consumer: int) -> bytes:
        who = self._state.groups.consumer(self._group.number, consumer) if consumer else None
        return b"" if who is None else who.name

    def _row(self, dead: DeadLettered) -> list[tuple[bytes, bytes]]:
        items, error = dead.items, dead.error
        origin = [
            (b"origin_stream", self._origin),
            (b"origin_id", bytes(dead.id)),
            (b"origin_group", self._group.name),
            (b"origin_consumer", dead.consumer),
            (b"origin_delivery_count", b"%d" % dead.count),
        ]
        room = ROW_MAX_BYTES - sum(len(name) + len(value) for name, value in origin)
        if sum(map(len, items)) + len(b"origin_error") + ERROR_MAX_BYTES > room:
            items, error = [], b"too large together with its origin; " + error
        pairs = list(zip(items[::2], items[1::2], strict=True))
        return [*pairs, *origin, (b"origin_error", error)]


_FLAT = 2 * len(ORIGIN_FIELDS)


def requeue(
    txn: WriteTxn, name: bytes, ids: Sequence[StreamID], to: bytes | None, *, strict: bool = True
) -> list[StreamID]:
    """Give dead letters back, in the order of ``ids``, each of which stands there once.

    Args:
        txn: what the commit changes.
        name: the dead letter stream.
        ids: of its entries.
        to: where they go; None: to the stream that each came from.
        strict: False: those that are gone are passed over.

    Returns:
        Their new IDs.

    Raises:
        StreamNotFoundError: there is no stream ``name``.
        EntryNotFoundError: an entry is gone.
        OptionError: an entry does not tell where it came from.
    """
    record = add.existing(txn, name)
    lookup = Lookup(txn, record)
    rows: list[tuple[bytes, list[tuple[bytes, bytes]]]] = []
    going: list[StreamID] = []
    for id in ids:
        flat = lookup.fields(id)
        if flat is None:
            if strict:
                raise EntryNotFoundError(
                    f"the dead letter {id} is gone: it was given back or dropped meanwhile",
                    stream=name,
                )
            continue
        own, origin = _parted(flat)
        target = origin if to is None else to
        if target is None:
            raise OptionError(
                f"entry {id} does not tell which stream it came from, so it is no dead letter: "
                "give the stream that dead letters are moved to, or to= a stream for this entry",
                stream=name,
            )
        rows.append((target, own))
        going.append(id)
    added = _add(txn, rows)
    removal.delete(txn, name, going)
    return added


def _parted(flat: list[bytes]) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """An entry's own pairs, and the stream that it came from, if it is a dead letter."""
    origin = None
    if tuple(flat[-_FLAT::2]) == ORIGIN_FIELDS:
        origin = flat[1 - _FLAT]
        flat = flat[:-_FLAT]
    return list(zip(flat[::2], flat[1::2], strict=True)), origin


def _add(txn: WriteTxn, rows: list[tuple[bytes, list[tuple[bytes, bytes]]]]) -> list[StreamID]:
    """Add rows, neighbours of one stream together."""
    added: list[StreamID] = []
    at = 0
    while at < len(rows):
        name, end = rows[at][0], at + 1
        while end < len(rows) and rows[end][0] == name:
            end += 1
        batch = codec().rows([pairs for _, pairs in rows[at:end]])
        done = add.add(txn, add.Add(name, batch, 0, end - at, add.AUTO))
        assert done is not None
        id = done.first
        for _ in range(done.count):
            added.append(id)
            id = id.next()
        at = end
    return added
