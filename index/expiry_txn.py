"""Typed access to when streams expire, inside one LMDB transaction, reading or writing.

Invariants: there is a row for each stream whose record names a time, under that time and the
stream's number, and no other: whoever changes the one changes the other in the same transaction.
A row has no value but its CRC, which is checked before the row is used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from logstore.index.keys import StreamRecord, seal, unseal
from logstore.index.txn import IndexTxn

_KEY = struct.Struct(">QQ")  # when (unix ms), the stream's number


class ExpiryTxn:
    """When streams expire, as one transaction sees it."""

    __slots__ = ("_database", "_txn")

    def __init__(self, index: IndexTxn) -> None:
        self._database = index.generation.expiries
        self._txn = index.txn

    def put(self, record: StreamRecord) -> None:
        """Keep when a stream expires, if it does."""
        if record.expires_ms:
            key = _KEY.pack(record.expires_ms, record.number)
            self._txn.put(key, seal(key, b""), db=self._database)

    def delete(self, record: StreamRecord) -> None:
        """Keep it no longer."""
        if record.expires_ms:
            key = _KEY.pack(record.expires_ms, record.number)
            self._txn.delete(key, db=self._database)

    def rows(self) -> Iterator[tuple[int, int]]:
        """When (unix ms), and the stream's number; soonest first. Change nothing meanwhile."""
        with self._txn.cursor(db=self._database) as cursor:
            for key, data in cursor:
                unseal(key, data)
                when_ms, stream = _KEY.unpack(key)
                yield when_ms, stream

    def expired(self, now_ms: int) -> Iterator[int]:
        """Numbers of streams whose time has come."""
        for when_ms, stream in self.rows():
            if when_ms > now_ms:
                return
            yield stream

    def first(self) -> int:
        """When the next stream expires (unix ms); 0: none does."""
        return next(self.rows(), (0, 0))[0]


def first_due(index: IndexTxn) -> int:
    """When something is next to be done: an entry added that was scheduled, a stream dropped that
    expired (unix ms); 0: nothing is."""
    times = (index.schedules.first_due(), ExpiryTxn(index).first())
    return min([time_ms for time_ms in times if time_ms], default=0)
