"""When streams and entries expire, as it is stored: frames, rows, and a checkpoint's part.

A stream may have a time to live. The time stands in the stream's record, which every add and read
has at hand; ``ExpiryRows`` lists these streams in the order of their times. An entry may have one,
too, given with its add. ``TTLRows`` has two rows for it: one in the order of times, and one by
stream and ID, with the time.

Invariants of streams: there is a row for each stream whose record names a time, under that time and
the stream's number, and no other: whoever changes the one changes the other in the same
transaction. A row has no value but its CRC, which is checked before the row is used. Applying a
frame drops no stream, even if its time has come: a DROP frame does.

Invariants of entries: the two rows of an entry come and go together, and doing either twice changes
nothing. What is kept is a set: whatever of these frames a checkpoint has seen, replaying those
behind its position ends with the same set, so no record's position is asked. A row may outlive its
entry, which was deleted or trimmed before its time: the row goes when the time has come. No other
entry gets the ID of one that has a row, for who lowers a last ID forgets the rows above it. Rows
end with their stream. Applying a frame deletes no entry: TOMBSTONE and TRIM frames of the same
commit do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

from logstore import format as fmt
from logstore.features import feature
from logstore.format import Kind
from logstore.ids import StreamID
from logstore.row_seal import key_parts
from logstore.tuples import NamedTuple

_STREAM_DUE = struct.Struct(">QQ")  # when (unix ms), the stream's number
_DUE = struct.Struct(">BQQQQ")  # the prefix, due (unix ms), stream, ID
_ENTRY = struct.Struct(">BQQQ")  # the prefix, stream, ID
_ID = struct.Struct(">QQ")
_TIME = struct.Struct(">Q")
_BY_DUE, _BY_ENTRY = 0, 1
SET, ENDED, FORGOTTEN = 0, 1, 2  # the forms of the frame of entries
_END_MS = (1 << 64) - 1


# -- streams --------------------------------------------------------------------------------------
class Expire(NamedTuple):
    """The stream is gone from this time on (unix ms; 0: never)."""

    stream: int
    expires_ms: int


class ExpiryRows(feature.FeatureRows):
    """When streams expire."""

    __slots__ = ()
    DATABASE = "expiries"

    def put(self, record: feature.Record) -> None:
        """Keep when a stream expires, if it does."""
        if record.expires_ms:
            self._put(_STREAM_DUE.pack(record.expires_ms, record.number), b"")

    def delete(self, record: feature.Record) -> None:
        """Keep it no longer."""
        if record.expires_ms:
            self._delete(_STREAM_DUE.pack(record.expires_ms, record.number))

    def rows(self) -> Iterator[tuple[int, int]]:
        """When (unix ms), and the stream's number; soonest first. Change nothing meanwhile."""
        for key, _ in self._scan(_STREAM_DUE.pack(0, 0)):
            when_ms, stream = _STREAM_DUE.unpack(key)
            yield when_ms, stream

    def expired(self, now_ms: int) -> Iterator[int]:
        """Numbers of streams whose time has come."""
        for when_ms, stream in self.rows():
            if when_ms > now_ms:
                return
            yield stream

    def first_due(self) -> int:
        """When the next stream expires (unix ms); 0: none does."""
        return next(self.rows(), (0, 0))[0]


def _apply_expire(txn: feature.Txn, at: int, body: Expire) -> None:
    record = txn.advance(body.stream, at)
    if record is None:
        return
    rows = ExpiryRows(txn.index)
    rows.delete(record)
    record.expires_ms = body.expires_ms
    rows.put(record)
    txn.due_changed()


def _stream_loaded(txn: feature.Txn, record: feature.Record) -> None:
    if record.expires_ms:
        ExpiryRows(txn.index).put(record)


def _stream_dropped(txn: feature.Txn, stream: int) -> None:
    record = txn.record(stream)
    if record is not None and record.expires_ms:
        ExpiryRows(txn.index).delete(record)
        txn.due_changed()


# -- entries --------------------------------------------------------------------------------------
class TTL(NamedTuple):
    """Entries of one stream expire then (unix ms); the IDs are packed."""

    stream: int
    due_ms: int
    ids: bytes


class TTLEnded(NamedTuple):
    """These entries expire no longer: they are gone. The IDs are packed."""

    stream: int
    ids: bytes


class TTLForgotten(NamedTuple):
    """No entry of the stream above this ID expires any more."""

    stream: int
    above: tuple[int, int]


def pack_ids(ids: Iterator[StreamID] | list[StreamID]) -> bytes:
    """IDs as the bodies of frames have them."""
    return b"".join(_ID.pack(*id) for id in ids)


def unpack_ids(ids: bytes) -> Iterator[StreamID]:
    """The IDs of a body."""
    return map(StreamID._make, _ID.iter_unpack(ids))


def _encode(body: TTL | TTLEnded | TTLForgotten) -> bytes:
    if isinstance(body, TTL):
        return fmt.TTL_BODY.pack(body.stream, SET) + fmt.TTL_DUE.pack(body.due_ms) + body.ids
    if isinstance(body, TTLEnded):
        return fmt.TTL_BODY.pack(body.stream, ENDED) + body.ids
    return fmt.TTL_BODY.pack(body.stream, FORGOTTEN) + _ID.pack(*body.above)


def _decode(payload: bytes) -> TTL | TTLEnded | TTLForgotten:
    stream, form = fmt.TTL_BODY.unpack_from(payload)
    at = fmt.TTL_BODY.size
    if form == SET:
        (due_ms,) = fmt.TTL_DUE.unpack_from(payload, at)
        return TTL(stream, due_ms, _checked(payload[at + fmt.TTL_DUE.size :]))
    if form == ENDED:
        return TTLEnded(stream, _checked(payload[at:]))
    if form != FORGOTTEN:
        raise struct.error(f"form {form} is not known")
    return TTLForgotten(stream, _ID.unpack(payload[at:]))


def _checked(ids: bytes) -> bytes:
    if not ids or len(ids) % _ID.size:
        raise struct.error("not a list of IDs")
    return ids


class TTLRow(NamedTuple):
    """When one entry expires."""

    due_ms: int  # unix ms
    stream: int
    id: StreamID


class TTLRows(feature.FeatureRows):
    """The entries that expire."""

    __slots__ = ()
    DATABASE = "ttl"

    def put(self, row: TTLRow) -> None:
        """Keep when an entry expires."""
        self.delete(row.stream, row.id)
        self._put(_due(row), b"")
        self._put(_entry(row.stream, row.id), _TIME.pack(row.due_ms))

    def delete(self, stream: int, id: StreamID) -> None:
        """Keep it no longer; nothing if it was not kept."""
        due_ms = self.get(stream, id)
        if due_ms is not None:
            self._delete(_due(TTLRow(due_ms, stream, id)))
            self._delete(_entry(stream, id))

    def get(self, stream: int, id: StreamID) -> int | None:
        """When an entry expires (unix ms); None: it does not."""
        value = self._get(_entry(stream, id))
        return None if value is None else int(_TIME.unpack(value)[0])

    def in_order(self, row: TTLRow) -> bool:
        """Whether an entry has its row in the order of times."""
        return self._get(_due(row)) is not None

    def forget(self, stream: int, above: tuple[int, int]) -> bool:
        """Keep no row of a stream above an ID; False if there was none."""
        found = False
        while rows := list(islice(self.of_stream(stream, above), 1000)):
            for row in rows:
                self.delete(stream, row.id)
            found = True
        return found

    def due(self, until_ms: int) -> Iterator[TTLRow]:
        """Entries of all streams whose time has come by then, soonest first.

        Change nothing meanwhile.
        """
        for key, _ in self._scan(_DUE.pack(_BY_DUE, 0, 0, 0, 0), bytes([_BY_DUE])):
            _, due_ms, stream, ms, seq = key_parts(_DUE, key)
            if due_ms > until_ms:
                return
            yield TTLRow(due_ms, stream, StreamID(ms, seq))

    def first_due(self) -> int:
        """When the next entry of all expires (unix ms); 0: none does."""
        row = next(self.due(_END_MS), None)
        return 0 if row is None else max(1, row.due_ms)

    def of_stream(self, stream: int, above: tuple[int, int]) -> Iterator[TTLRow]:
        """Entries of one stream above an ID, ascending. Change nothing meanwhile."""
        for row in self.rows(stream, above):
            if row.stream != stream:
                return
            yield row

    def rows(self, stream: int = 0, above: tuple[int, int] = (0, 0)) -> Iterator[TTLRow]:
        """Entries of all streams behind a place, by stream and ID. Change nothing meanwhile."""
        for key, value in self._scan(_entry(stream, above)):
            _, found, ms, seq = key_parts(_ENTRY, key)
            if (found, ms, seq) != (stream, *above):
                yield TTLRow(_TIME.unpack(value)[0], found, StreamID(ms, seq))


def _due(row: TTLRow) -> bytes:
    return _DUE.pack(_BY_DUE, row.due_ms, row.stream, *row.id)


def _entry(stream: int, id: tuple[int, int]) -> bytes:
    return _ENTRY.pack(_BY_ENTRY, stream, *id)


def _apply_ttl(
    txn: feature.Txn,
    at: int,  # noqa: ARG001  (what is kept is a set: no record's position is asked)
    body: TTL | TTLEnded | TTLForgotten,
) -> None:
    rows = TTLRows(txn.index)
    if isinstance(body, TTLForgotten):
        rows.forget(body.stream, body.above)
    elif isinstance(body, TTLEnded):
        for id in unpack_ids(body.ids):
            rows.delete(body.stream, id)
    else:
        record = txn.record(body.stream)
        if record is None:
            return
        for id in unpack_ids(body.ids):
            rows.put(TTLRow(body.due_ms, body.stream, id))
        txn.woken.add(record.name)  # who waits sleeps no longer than until it is due
    txn.due_changed()


def _entries_dropped(txn: feature.Txn, stream: int) -> None:
    if TTLRows(txn.index).forget(stream, (0, 0)):
        txn.due_changed()


def _page(index: feature.Index, after: tuple[int, tuple[int, ...]] | None) -> feature.Page[Any]:
    """The next entries that expire: (due, stream, ms, seq) each."""
    number, (ms, seq) = after or (0, (0, 0))
    flat = ((row.due_ms, row.stream, *row.id) for row in TTLRows(index).rows(number, (ms, seq)))
    return feature.page_of("ttl", flat, lambda row: (row[1], row[2:]))


def _load(txn: feature.Txn, chunk: dict[str, Any]) -> None:
    rows = TTLRows(txn.index)
    for due_ms, stream, ms, seq in feature.of_present(txn, chunk["rows"], lambda row: row[1]):
        rows.put(TTLRow(due_ms, stream, StreamID(ms, seq)))


def _faults(index: feature.Index) -> Iterator[str]:
    rows = TTLRows(index)
    whole = all(rows.in_order(row) for row in rows.rows())
    if not whole or sum(1 for _ in rows.due(_END_MS)) != sum(1 for _ in rows.rows()):
        yield "when entries expire does not stand in both orders"


STREAM_EXPIRY = feature.Feature(
    database=ExpiryRows.DATABASE,
    frames=(
        feature.FrameKind(
            Kind.EXPIRE,
            (Expire,),
            encode=lambda body: fmt.EXPIRE_BODY.pack(*body),
            decode=lambda payload: Expire(*fmt.EXPIRE_BODY.unpack(payload)),
            apply=_apply_expire,
            of_record=True,
        ),
    ),
    compares=(
        feature.Compared("when streams expire differs", lambda index: ExpiryRows(index).rows()),
    ),
    loaded=_stream_loaded,
    dropped=_stream_dropped,
    first_due=lambda index: ExpiryRows(index).first_due(),
)
ENTRY_EXPIRY = feature.Feature(
    database=TTLRows.DATABASE,
    frames=(
        feature.FrameKind(Kind.TTL, (TTL, TTLEnded, TTLForgotten), _encode, _decode, _apply_ttl),
    ),
    copies=(feature.Copied("ttl", _page, _load),),
    compares=(
        feature.Compared("when entries expire differs", lambda index: TTLRows(index).rows()),
    ),
    faults=_faults,
    dropped=_entries_dropped,
    first_due=lambda index: TTLRows(index).first_due(),
)
