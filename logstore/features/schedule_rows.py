"""Scheduled entries, as they are stored: frames, rows, and their part of a checkpoint.

A frame says that an entry is kept until its time, or that some are kept no longer. A schedule's
number is the position of the frame that made it, so it is never used again; together with its time
it is its key. There are four kinds of rows: all keys in the order of their times, each with its
stream; the fields, by stream and key; how many there are, of each stream and (under stream 0)
of all; and the keys of those that repeat, by stream and name.

Invariants: the rows of one key come and go together, and doing either twice changes nothing, so
that the counts stay right. What is kept is a set: whatever of a schedule's few frames a checkpoint
has seen, replaying those behind its position ends with the same set, so no record's position is
asked. A row that a checkpoint holds was read at or behind its position, however long the copy
takes: what was scheduled later comes by its own frame, what was added, cancelled or dropped with
its stream later is taken out by the frame that says so, and what went before its row was read is
not among the rows. So none is lost, and none comes twice. Of one name a checkpoint may hold two
keys, one read before and one after a change: the row of the name has the higher number, which is
the later one, and the frames take the other away.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from logstore import format as fmt
from logstore.errors import CorruptionError
from logstore.features import cron, feature
from logstore.format import Kind
from logstore.row_seal import key_parts, seal
from logstore.tuples import NamedTuple

_DUE = struct.Struct(">BQQ")  # the prefix, due (unix ms), number
_FIELDS = struct.Struct(">BQQQ")  # the prefix, stream, due, number
_COUNT = struct.Struct(">BQ")  # the prefix, stream
_NAME = struct.Struct(">BQ")  # the prefix, stream; then the name
_KEY_OF_NAME = struct.Struct(">QQ")  # due (unix ms), number
_BY_DUE, _BY_STREAM, _COUNTS, _BY_NAME = 0, 1, 2, 3
ALL = 0  # in the place of a stream: no stream has this number
_NUMBER = struct.Struct(">Q")
Key = tuple[int, int]  # due (unix ms), number
FIRST: Key = (0, 0)
CHUNK_BYTES = 1 << 20
KEPT, ADDED, CANCELLED = 0, 1, 2  # the forms of the frame


class Scheduled(NamedTuple):
    """An entry that is added to the stream when its time has come."""

    stream: int
    due_ms: int
    fields: bytes  # as ``packed`` gives them; of one that repeats, its rule in front


class Unscheduled(NamedTuple):
    """Entries of one stream that are scheduled no longer: they were added, or cancelled."""

    stream: int
    added: bool
    keys: tuple[tuple[int, int], ...]  # of each: due (unix ms), number


def packed(flat: Sequence[bytes]) -> bytes:
    """Field, value, field, value, ... as bytes."""
    size = fmt.SCHEDULE_PART.pack
    return b"".join(part for each in flat for part in (size(len(each)), each))


def unpacked(data: bytes) -> list[bytes]:
    """Field, value, field, value, ...; struct.error for bytes that hold no such thing.

    A rule in front of them is passed over.
    """
    flat: list[bytes] = []
    data = cron.split(data)[1]
    at, end = 0, len(data)
    while at < end:
        (size,) = fmt.SCHEDULE_PART.unpack_from(data, at)
        at += fmt.SCHEDULE_PART.size
        if size > end - at:
            raise struct.error("a field or value is longer than the frame")
        flat.append(data[at : at + size])
        at += size
    if not flat or len(flat) % 2:
        raise struct.error("no fields with their values")
    return flat


def _encode(body: Scheduled | Unscheduled) -> bytes:
    if isinstance(body, Scheduled):
        head = fmt.SCHEDULE_BODY.pack(body.stream, KEPT)
        return head + fmt.SCHEDULE_DUE.pack(body.due_ms) + body.fields
    head = fmt.SCHEDULE_BODY.pack(body.stream, ADDED if body.added else CANCELLED)
    return head + b"".join(fmt.SCHEDULE_KEY.pack(*key) for key in body.keys)


def _decode(payload: bytes) -> Scheduled | Unscheduled:
    stream, form = fmt.SCHEDULE_BODY.unpack_from(payload)
    at = fmt.SCHEDULE_BODY.size
    if form == KEPT:
        (due_ms,) = fmt.SCHEDULE_DUE.unpack_from(payload, at)
        fields = payload[at + fmt.SCHEDULE_DUE.size :]
        unpacked(fields)
        cron.of(fields)
        return Scheduled(stream, due_ms, fields)
    if form not in (ADDED, CANCELLED):
        raise struct.error(f"form {form} is not known")
    keys = tuple((due, number) for due, number in fmt.SCHEDULE_KEY.iter_unpack(payload[at:]))
    return Unscheduled(stream, form == ADDED, keys)


class ScheduleRow(NamedTuple):
    """One scheduled entry."""

    stream: int
    due_ms: int
    number: int
    fields: bytes

    @property
    def key(self) -> Key:
        """The key by which it is cancelled."""
        return self.due_ms, self.number


class ScheduleRows(feature.FeatureRows):
    """The scheduled entries."""

    __slots__ = ()
    DATABASE = "schedule"

    def put(self, row: ScheduleRow) -> None:
        """Keep an entry; nothing if it is kept already."""
        key = _DUE.pack(_BY_DUE, row.due_ms, row.number)
        sealed = seal(key, _NUMBER.pack(row.stream))
        if not self._txn.put(key, sealed, db=self._database, overwrite=False):
            return
        self._put(_FIELDS.pack(_BY_STREAM, *row[:3]), row.fields)
        self._count(row.stream, 1)
        rule = cron.of(row.fields)
        if rule is not None:
            kept = self.named(row.stream, rule.name)
            if kept is None or kept[1] < row.number:
                self._put(_name(row.stream, rule.name), _KEY_OF_NAME.pack(row.due_ms, row.number))

    def delete(self, stream: int, key: Key) -> bool:
        """Keep an entry no longer; False if it was not kept."""
        fields = self.fields(stream, key)
        if fields is None:
            return False
        self._delete(_FIELDS.pack(_BY_STREAM, stream, *key))
        rule = cron.of(fields)
        if rule is not None and self.named(stream, rule.name) == key:
            self._delete(_name(stream, rule.name))
        self._delete(_DUE.pack(_BY_DUE, *key))
        self._count(stream, -1)
        return True

    def drop(self, stream: int) -> bool:
        """Keep no entry of a stream; False if there was none."""
        found = False
        while rows := list(islice(self.of_stream(stream), 1000)):
            for row in rows:
                found = self.delete(stream, row.key) or found
        return found

    def fields(self, stream: int, key: Key) -> bytes | None:
        """The packed fields of an entry of a stream."""
        return self._get(_FIELDS.pack(_BY_STREAM, stream, *key))

    def named(self, stream: int, name: str) -> Key | None:
        """The key of the entry of this name that a stream adds again and again."""
        value = self._get(_name(stream, name))
        return None if value is None else _KEY_OF_NAME.unpack(value)

    def has(self, stream: int, key: Key) -> bool:
        """Whether an entry of a stream is kept."""
        return self.fields(stream, key) is not None

    def count(self, stream: int = ALL) -> int:
        """How many entries are kept, of one stream or of all."""
        value = self._get(_COUNT.pack(_COUNTS, stream))
        return 0 if value is None else _NUMBER.unpack(value)[0]

    def first_due(self) -> int:
        """When the next entry of all is due (unix ms); 0: none is scheduled."""
        key = next(self._keys(), None)
        return 0 if key is None else max(1, key[0])

    def next_of(self, stream: int) -> int | None:
        """When the next entry of a stream is due (unix ms)."""
        row = next(self.of_stream(stream), None)
        return None if row is None else row.due_ms

    def due(self, until_ms: int = (1 << 64) - 1, after: Key = FIRST) -> Iterator[ScheduleRow]:
        """Entries of all streams that are due by then, with keys above ``after``, in their order.

        Change nothing meanwhile.
        """
        for due_ms, number in self._keys(after):
            if due_ms > until_ms:
                return
            packed = self._get(_DUE.pack(_BY_DUE, due_ms, number))  # damage: may be gone for this
            stream = 0 if packed is None else int(_NUMBER.unpack(packed)[0])
            fields = self.fields(stream, (due_ms, number)) if stream else None
            if fields is None:
                raise CorruptionError(
                    f"the index lost the fields of the scheduled entry {due_ms}-{number}: close "
                    "the store, delete its index directory, and open it again"
                )
            yield ScheduleRow(stream, due_ms, number, fields)

    def of_stream(self, stream: int, after: Key = FIRST) -> Iterator[ScheduleRow]:
        """Entries of one stream with keys above ``after``, in the order of their times."""
        start = _FIELDS.pack(_BY_STREAM, stream, *after)
        for key, fields in self._scan(start, start[: _COUNT.size]):
            _, _, due_ms, number = key_parts(_FIELDS, key)
            if (due_ms, number) != after:
                yield ScheduleRow(stream, due_ms, number, fields)

    def counts(self) -> Iterator[tuple[int, int]]:
        """How many entries are kept, by stream; of all first, under stream 0."""
        for key, value in self._scan(_COUNT.pack(_COUNTS, ALL), bytes([_COUNTS])):
            yield key_parts(_COUNT, key)[1], _NUMBER.unpack(value)[0]

    def names(self) -> Iterator[tuple[bytes, bytes]]:
        """The rows of names, as they are."""
        return self._scan(bytes([_BY_NAME]))

    def _keys(self, after: Key = FIRST) -> Iterator[Key]:
        with self._txn.cursor(db=self._database) as cursor:
            if cursor.set_range(_DUE.pack(_BY_DUE, *after)):
                for key in cursor.iternext(values=False):
                    if key[0] != _BY_DUE:
                        return
                    _, due_ms, number = key_parts(_DUE, key)
                    if (due_ms, number) != after:
                        yield due_ms, number

    def _count(self, stream: int, by: int) -> None:
        for each in (stream, ALL):
            key, left = _COUNT.pack(_COUNTS, each), self.count(each) + by
            if left > 0:
                self._put(key, _NUMBER.pack(left))
            else:
                self._delete(key)


def _name(stream: int, name: str) -> bytes:
    return _NAME.pack(_BY_NAME, stream) + name.encode()


def _apply(txn: feature.Txn, at: int, body: Scheduled | Unscheduled) -> None:
    rows = ScheduleRows(txn.index)
    if isinstance(body, Unscheduled):
        for key in body.keys:
            rows.delete(body.stream, key)
    else:
        record = txn.record(body.stream)
        if record is None:
            return
        rows.put(ScheduleRow(body.stream, body.due_ms, at, body.fields))
        txn.woken.add(record.name)  # who waits sleeps no longer than until it is due
    txn.due_changed()


def _dropped(txn: feature.Txn, stream: int) -> None:
    if ScheduleRows(txn.index).drop(stream):
        txn.due_changed()


def batch(rows: Iterator[ScheduleRow], max_bytes: int) -> Iterator[ScheduleRow]:
    """The next rows, until their fields take so many bytes."""
    for row in rows:
        yield row
        max_bytes -= len(row.fields)
        if max_bytes <= 0:
            return


def _page(index: feature.Index, after: Key | None) -> feature.Page[Key]:
    rows = batch(ScheduleRows(index).due(after=after or FIRST), CHUNK_BYTES)
    return feature.page_of("scheduled", rows, lambda row: row.key)


def _load(txn: feature.Txn, chunk: dict[str, Any]) -> None:
    rows = ScheduleRows(txn.index)
    for row in chunk["rows"]:
        rows.put(ScheduleRow._make(row))


def _faults(index: feature.Index) -> Iterator[str]:
    rows = ScheduleRows(index)
    if sum(1 for _ in rows.due()) != rows.count():
        yield "scheduled entries are missing"


def _every_row(index: feature.Index) -> Iterator[Any]:
    rows = ScheduleRows(index)
    yield from rows.due()
    yield from rows.counts()
    yield from rows.names()


FEATURE = feature.Feature(
    database=ScheduleRows.DATABASE,
    frames=(feature.FrameKind(Kind.SCHEDULE, (Scheduled, Unscheduled), _encode, _decode, _apply),),
    copies=(feature.Copied("scheduled", _page, _load),),
    compares=(feature.Compared("scheduled entries differ", _every_row),),
    faults=_faults,
    dropped=_dropped,
    first_due=lambda index: ScheduleRows(index).first_due(),
)
