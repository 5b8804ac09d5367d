"""Deciding idempotent adds: what a producer added before, and not long ago, is not added again.

An idempotent ID is known while the entry that it gave exists, is not older than the stream's
setting says, and is among the newest of its producer. A known one gives that entry's ID. Unlike the
peers', one whose entry was deleted or trimmed since is not known: it is added anew. How
what is remembered travels with a stream is in ``engine.dump.dumped_ids``.

Invariants: every refusal comes before the first frame; what is remembered is in the commit of the
entries themselves; a batch gives what one add after another would. A duplicate makes a frame, too:
so every process counts it, also after a crash, and a caller that asks for ``always`` gets no ID of
an entry that is not durable yet. What expired is given back by frames that name it, a bounded part
a commit: by the next idempotent add to the stream, and in the background.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams.add import EXHAUSTED, Add, check_expected, existing
from logstore.engine.streams.add import add as add_rows
from logstore.engine.streams.removal import Removed
from logstore.engine.txn.nodes import Lookup
from logstore.errors import IDOrderError, UsageError
from logstore.features.idempotent_ids import NOTHING, Idempotent, ProducerRows
from logstore.ids import MAX_ID, U64_MAX, ZERO_ID, StreamID
from logstore.index.keys import StreamRecord
from logstore.row_seal import digest
from logstore.settings import (
    StreamSettings,
)
from logstore.tuples import NamedTuple

EXPIRED_A_COMMIT = 500
_ADDED = -1  # of a row in a plan: it is new


class ProducerRequest(NamedTuple):
    """The producer that adds, and the idempotent ID of each row."""

    producer: bytes
    names: Sequence[bytes]


class _Plan(NamedTuple):
    """What becomes of each row: its recorded ID, the place of the row it repeats, or ``_ADDED``."""

    rows: list[StreamID | int]
    remembered: dict[bytes, int]  # names to be remembered, and the rows that they stand in
    upto: StreamID  # what gave entries up to here is forgotten of this producer


def add(txn: WriteTxn, request: Add, asked: ProducerRequest) -> list[StreamID] | None:
    """Add the rows that are not known; the ID of each row.

    None if there is no stream and it must not be created. What is known is no conflict with an
    expected last ID: it is what a repeated add finds.
    """
    record = txn.record_by_name(request.name)
    if record is None and not request.create:
        if request.expected is not None:
            check_expected(request.name, request.expected, ZERO_ID)
        return None
    plan = _Planner(txn, record, asked).plan()
    fresh = [place for place, what in enumerate(plan.rows) if what == _ADDED]
    if fresh and request.expected is not None:
        check_expected(request.name, request.expected, ZERO_ID if record is None else record.last)
    if record is not None and len(fresh) > _room(record):
        raise IDOrderError(EXHAUSTED)
    given = _add(txn, request, fresh)
    record = existing(txn, request.name)
    duplicates = len(plan.rows) - len(fresh)
    tally = ProducerRows(txn.index).tally(record.number)
    txn.emit(
        Idempotent(
            record.number,
            tally.added + len(fresh),
            tally.duplicates + duplicates,
            *_expired(txn, record.number, EXPIRED_A_COMMIT),
            plan.upto,
            asked.producer,
            tuple((given[at], name) for name, at in plan.remembered.items()),
        )
    )
    txn.counts["duplicate_adds"] += duplicates
    ids: list[StreamID] = []
    for place, what in enumerate(plan.rows):
        if isinstance(what, StreamID):
            ids.append(what)
        else:
            ids.append(given[place if what == _ADDED else what])
    return ids


def record(txn: WriteTxn, name: bytes, producer: bytes, own: bytes, id: StreamID) -> None:
    """As XIDMPRECORD: this idempotent ID gave an entry that is there; that is not counted.

    StreamNotFoundError; UsageError if the entry is not there, or one of the two has another.
    """
    stream_record = existing(txn, name)
    if id not in Lookup(txn, stream_record):
        raise UsageError("No such message in stream")
    planner = _Planner(txn, stream_record, ProducerRequest(producer, [own]))
    known = planner.known(own)
    if known == id:
        return
    if known is not None:
        raise UsageError("IID already exists for this producer with a different stream ID")
    producers = ProducerRows(txn.index)
    if (
        producers.gave(stream_record.number, id)
        and producers.find(stream_record.number, producer, own) != id
    ):
        raise UsageError(f"another idempotent ID gave entry {id}")
    planner.keep(own, 0)
    if id <= planner.upto:  # older than all that are remembered of a producer that has its most
        return
    tally = producers.tally(stream_record.number)
    txn.emit(
        Idempotent(
            stream_record.number,
            tally.added,
            tally.duplicates,
            *_expired(txn, stream_record.number, EXPIRED_A_COMMIT),
            planner.upto,
            producer,
            ((id, own),),
        )
    )


def _room(record: StreamRecord) -> float:
    """How many IDs are left, where that can be few."""
    return U64_MAX - record.last.seq if record.last.ms == U64_MAX else math.inf


def _add(txn: WriteTxn, request: Add, fresh: list[int]) -> dict[int, StreamID]:
    """Add these rows; the ID of each. They are added in runs of neighbours, trimmed in the end."""
    given: dict[int, StreamID] = {}
    at = 0
    while at < len(fresh):
        end = at + 1
        while end < len(fresh) and fresh[end] == fresh[at] + end - at:
            end += 1
        first = request.first + fresh[at]
        rule = request.rule if end == len(fresh) else None
        run = request._replace(first=first, end=first + end - at, rule=rule, expected=None)
        added = add_rows(txn, run)
        assert added is not None
        id = added.first
        for place in fresh[at:end]:
            given[place] = id
            id = id.next() if id < MAX_ID else id
        at = end
    return given


class _Planner:
    """Decides what is known, row by row; it changes nothing."""

    def __init__(self, txn: WriteTxn, record: StreamRecord | None, asked: ProducerRequest) -> None:
        self._asked = asked
        self._number = number = 0 if record is None else record.number
        self._producers = ProducerRows(txn.index)
        settings = StreamSettings() if record is None else txn.settings.stream(number)
        self._max_ids = settings.idempotent_max_ids
        self._expired_ms = txn.now_ms - settings.idempotent_duration_s * 1000
        self._lookup = None if record is None else Lookup(txn, record)
        self._old: Iterator[tuple[StreamID, bytes]] | None = None  # oldest first, to be evicted
        self._count = self._producers.count(number, asked.producer)
        self._replaced: set[bytes] = set()  # digests of old names that get a new entry
        self._remembered: dict[bytes, int] = {}
        self.upto = ZERO_ID

    def plan(self) -> _Plan:
        """The plan of all rows."""
        rows: list[StreamID | int] = []
        for place, name in enumerate(self._asked.names):
            what: StreamID | int | None = self._remembered.get(name)
            if what is None:
                what = self.known(name)
            if what is None:
                what = _ADDED
                self.keep(name, place)
            rows.append(what)
        return _Plan(rows, self._remembered, self.upto)

    def known(self, name: bytes) -> StreamID | None:
        """The entry that an idempotent ID gave, unless that does not count any more."""
        id = self._producers.find(self._number, self._asked.producer, name)
        if id is None or id <= self.upto:
            return None
        if id.ms > self._expired_ms and self._lookup is not None and id in self._lookup:
            return id
        own = digest(name)
        if own not in self._replaced:  # evicted from this batch, else: it does not count any more
            self._replaced.add(own)
            self._count -= 1
        return None

    def keep(self, name: bytes, place: int) -> None:
        """Remember a new one, and evict the producer's oldest where that is one too many."""
        self._remembered[name] = place
        while self._count + len(self._remembered) > self._max_ids:
            if self._count <= 0:  # none of the old ones is left, so that their rows can go, too
                del self._remembered[next(iter(self._remembered))]
                self.upto = MAX_ID
                continue
            if self._old is None:
                self._old = self._producers.of_producer(self._number, self._asked.producer)
            self.upto, evicted = next(self._old)
            if evicted not in self._replaced:
                self._count -= 1


def _expired(txn: WriteTxn, stream: int, most: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The interval of entry IDs whose idempotent IDs are over their time: the oldest ``most`` of
    them."""
    settings = txn.settings.stream(stream)
    last = _last_expired(ProducerRows(txn.index), stream, settings, txn.now_ms, most)
    return NOTHING if last is None else (ZERO_ID, last)


def _last_expired(
    producers: ProducerRows, stream: int, settings: StreamSettings, now_ms: int, most: int
) -> StreamID | None:
    before_ms = now_ms - settings.idempotent_duration_s * 1000
    last: StreamID | None = None
    for count, id in enumerate(producers.by_age(stream)):
        if id.ms > before_ms or count == most:
            break
        last = id
    return last


def has_expired(
    producers: ProducerRows, stream: int, settings: StreamSettings, now_ms: int
) -> bool:
    """Whether a stream remembers something that is over its time."""
    return _last_expired(producers, stream, settings, now_ms, 1) is not None


def forget_expired(txn: WriteTxn, stream: int) -> Removed:
    """Give back some of what is over its time."""
    if txn.record(stream) is None:
        return Removed(0, more=False)
    producers = ProducerRows(txn.index)
    before = producers.tally(stream).ids
    _forget(txn, stream, *_expired(txn, stream, EXPIRED_A_COMMIT))
    more = has_expired(producers, stream, txn.settings.stream(stream), txn.now_ms)
    return Removed(before - producers.tally(stream).ids, more)


def forget_all(txn: WriteTxn, stream: int) -> None:
    """Nothing is known any more; what was counted stays."""
    if ProducerRows(txn.index).tally(stream).ids:
        _forget(txn, stream, ZERO_ID, MAX_ID)


def forget_above(txn: WriteTxn, stream: int, last: StreamID) -> None:
    """The last ID was lowered: what is above may be given to other entries."""
    if last < MAX_ID and ProducerRows(txn.index).tally(stream).ids:
        _forget(txn, stream, last.next(), MAX_ID)


def _forget(txn: WriteTxn, stream: int, first: tuple[int, int], last: tuple[int, int]) -> None:
    if first <= last:
        tally = ProducerRows(txn.index).tally(stream)
        txn.emit(Idempotent(stream, tally.added, tally.duplicates, first, last))
