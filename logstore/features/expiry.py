"""When streams expire, as it is stored: the frame, and a row for each stream that does.

The time itself stands in the stream's record, which the core has at hand for every add and read;
the rows here are in the order of the times.

Invariants: there is a row for each stream whose record names a time, under that time and the
stream's number, and no other: whoever changes the one changes the other in the same transaction. A
row has no value but its CRC, which is checked before the row is used. Applying a frame drops no
stream, even if its time has come: a DROP frame does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from logstore import format as fmt
from logstore.features.feature import Compared, Feature, FrameKind, Index, Record, Txn
from logstore.format import Kind
from logstore.row_seal import seal, unseal
from logstore.tuples import NamedTuple

DATABASE = "expiries"
_KEY = struct.Struct(">QQ")  # when (unix ms), the stream's number


class Expire(NamedTuple):
    """The stream is gone from this time on (unix ms; 0: never)."""

    stream: int
    expires_ms: int


class ExpiryRows:
    """When streams expire, as one transaction sees it."""

    __slots__ = ("_database", "_txn")

    def __init__(self, index: Index) -> None:
        self._database = index.generation.databases[DATABASE]
        self._txn = index.txn

    def put(self, record: Record) -> None:
        """Keep when a stream expires, if it does."""
        if record.expires_ms:
            key = _KEY.pack(record.expires_ms, record.number)
            self._txn.put(key, seal(key, b""), db=self._database)

    def delete(self, record: Record) -> None:
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


def _apply(txn: Txn, at: int, body: Expire) -> None:
    record = txn.advance(body.stream, at)
    if record is None:
        return
    rows = ExpiryRows(txn.index)
    rows.delete(record)
    record.expires_ms = body.expires_ms
    rows.put(record)
    txn.due_changed()


def _loaded(txn: Txn, record: Record) -> None:
    if record.expires_ms:
        ExpiryRows(txn.index).put(record)


def _dropped(txn: Txn, stream: int) -> None:
    record = txn.record(stream)
    if record is not None and record.expires_ms:
        ExpiryRows(txn.index).delete(record)
        txn.due_changed()


FEATURE = Feature(
    database=DATABASE,
    frames=(
        FrameKind(
            kind=Kind.EXPIRE,
            bodies=(Expire,),
            encode=lambda body: fmt.EXPIRE_BODY.pack(*body),
            decode=lambda payload: Expire(*fmt.EXPIRE_BODY.unpack(payload)),
            apply=_apply,
            of_record=True,
        ),
    ),
    compares=(Compared("when streams expire differs", lambda index: ExpiryRows(index).rows()),),
    loaded=_loaded,
    dropped=_dropped,
    first_due=lambda index: ExpiryRows(index).first(),
)
