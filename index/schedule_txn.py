"""Typed access to scheduled entries inside one LMDB transaction, reading or writing.

Three kinds of rows: all keys in the order of their times, each with its stream; the fields, by
stream and key; and how many there are, of each stream and (under stream 0) of all.

Invariants: as of ``txn``: every value is checked against its CRC before it is used. The rows of one
key come and go together, and doing either twice changes nothing, so that the counts stay right.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from logstore.errors import CorruptionError
from logstore.index.env import Generation
from logstore.index.keys import NUMBER, key_parts, seal, unseal
from logstore.tuples import NamedTuple

_DUE = struct.Struct(">BQQ")  # the prefix, due (unix ms), number
_FIELDS = struct.Struct(">BQQQ")  # the prefix, stream, due, number
_COUNT = struct.Struct(">BQ")  # the prefix, stream
_BY_DUE, _BY_STREAM, _COUNTS = 0, 1, 2
ALL = 0  # in the place of a stream: no stream has this number
Key = tuple[int, int]  # due (unix ms), number
FIRST: Key = (0, 0)


class ScheduleRow(NamedTuple):
    """One scheduled entry."""

    stream: int
    due_ms: int
    number: int
    fields: bytes


class ScheduleTxn:
    """The scheduled entries as one transaction sees them."""

    __slots__ = ("_database", "_txn")

    def __init__(self, generation: Generation, txn: Any) -> None:
        self._database = generation.schedule
        self._txn = txn

    def put(self, row: ScheduleRow) -> None:
        """Keep an entry; nothing if it is kept already."""
        key = _DUE.pack(_BY_DUE, row.due_ms, row.number)
        if not self._put(key, NUMBER.pack(row.stream), overwrite=False):
            return
        self._put(_FIELDS.pack(_BY_STREAM, *row[:3]), row.fields)
        self._count(row.stream, 1)

    def delete(self, stream: int, key: Key) -> bool:
        """Keep an entry no longer; False if it was not kept."""
        if not self._txn.delete(_FIELDS.pack(_BY_STREAM, stream, *key), db=self._database):
            return False
        self._txn.delete(_DUE.pack(_BY_DUE, *key), db=self._database)
        self._count(stream, -1)
        return True

    def drop(self, stream: int) -> bool:
        """Keep no entry of a stream; False if there was none."""
        found = False
        while keys := [row[1:3] for row, _ in zip(self.of_stream(stream), range(1000))]:  # noqa: B905
            for key in keys:
                found = self.delete(stream, key) or found
        return found

    def fields(self, stream: int, key: Key) -> bytes | None:
        """The packed fields of an entry of a stream."""
        return self._get(_FIELDS.pack(_BY_STREAM, stream, *key))

    def has(self, stream: int, key: Key) -> bool:
        """Whether an entry of a stream is kept."""
        return self.fields(stream, key) is not None

    def count(self, stream: int = ALL) -> int:
        """How many entries are kept, of one stream or of all."""
        value = self._get(_COUNT.pack(_COUNTS, stream))
        return 0 if value is None else NUMBER.unpack(value)[0]

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
            stream = 0 if packed is None else int(NUMBER.unpack(packed)[0])
            fields = self.fields(stream, (due_ms, number)) if stream else None
            if fields is None:
                raise CorruptionError(
                    f"the index lost the fields of the scheduled entry {due_ms}-{number}: close "
                    "the store, delete its index directory, and open it again"
                )
            yield ScheduleRow(stream, due_ms, number, fields)

    def of_stream(self, stream: int, after: Key = FIRST) -> Iterator[ScheduleRow]:
        """Entries of one stream with keys above ``after``, in the order of their times."""
        with self._txn.cursor(db=self._database) as cursor:
            if cursor.set_range(_FIELDS.pack(_BY_STREAM, stream, *after)):
                for key, data in cursor:
                    if key[0] != _BY_STREAM:
                        return
                    _, found, due_ms, number = key_parts(_FIELDS, key)
                    if found != stream:
                        return
                    if (due_ms, number) != after:
                        yield ScheduleRow(stream, due_ms, number, unseal(key, data))

    def counts(self) -> Iterator[tuple[int, int]]:
        """How many entries are kept, by stream; of all first, under stream 0."""
        with self._txn.cursor(db=self._database) as cursor:
            if cursor.set_range(_COUNT.pack(_COUNTS, 0)):
                for key, data in cursor:
                    yield key_parts(_COUNT, key)[1], NUMBER.unpack(unseal(key, data))[0]

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
                self._put(key, NUMBER.pack(left))
            else:
                self._txn.delete(key, db=self._database)

    def _put(self, key: bytes, value: bytes, *, overwrite: bool = True) -> bool:
        sealed = seal(key, value)
        return bool(self._txn.put(key, sealed, db=self._database, overwrite=overwrite))

    def _get(self, key: bytes) -> bytes | None:
        data = self._txn.get(key, db=self._database)
        return None if data is None else unseal(key, data)
