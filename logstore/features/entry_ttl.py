"""When entries expire, as it is stored: the frame, rows, and their part of a checkpoint.

An entry may have a time to live, given with its add: once that is over it is deleted. There are
two kinds of rows, of which each entry with a time to live has one: all in the order of their
times, and by stream and ID, with the time.

Invariants: the two rows of an entry come and go together, and doing either twice changes nothing.
What is kept is a set: whatever of these frames a checkpoint has seen, replaying those behind its
position ends with the same set, so no record's position is asked. A row may be there longer than
its entry, which was deleted or trimmed before its time: it goes when the time has come. No other
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
from logstore.features.feature import Compared, Copied, Feature, FrameKind, Index, Txn
from logstore.format import Kind
from logstore.ids import StreamID
from logstore.row_seal import fetch, key_parts, seal, unseal
from logstore.tuples import NamedTuple

DATABASE = "ttl"
_DUE = struct.Struct(">BQQQQ")  # the prefix, due (unix ms), stream, ID
_ENTRY = struct.Struct(">BQQQ")  # the prefix, stream, ID
_ID = struct.Struct(">QQ")
_TIME = struct.Struct(">Q")
_BY_DUE, _BY_ENTRY = 0, 1
SET, ENDED, FORGOTTEN = 0, 1, 2  # the forms of the frame
ROWS_A_CHUNK = 2000
_END_MS = (1 << 64) - 1


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


def packed(ids: Iterator[StreamID] | list[StreamID]) -> bytes:
    """IDs as the bodies of frames have them."""
    return b"".join(_ID.pack(*id) for id in ids)


def unpacked(ids: bytes) -> Iterator[StreamID]:
    """And back."""
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


class TTLRows:
    """The entries that expire, as one transaction sees them."""

    __slots__ = ("_database", "_txn")

    def __init__(self, index: Index) -> None:
        self._database = index.generation.databases[DATABASE]
        self._txn = index.txn

    def put(self, row: TTLRow) -> None:
        """Keep when an entry expires."""
        self.delete(row.stream, row.id)
        by_due, by_entry = _DUE.pack(_BY_DUE, *row[:2], *row.id), _entry(row.stream, row.id)
        self._txn.put(by_due, seal(by_due, b""), db=self._database)
        self._txn.put(by_entry, seal(by_entry, _TIME.pack(row.due_ms)), db=self._database)

    def delete(self, stream: int, id: tuple[int, int]) -> None:
        """Keep it no longer; nothing if it was not kept."""
        due_ms = self.get(stream, id)
        if due_ms is not None:
            self._txn.delete(_DUE.pack(_BY_DUE, due_ms, stream, *id), db=self._database)
            self._txn.delete(_entry(stream, id), db=self._database)

    def get(self, stream: int, id: tuple[int, int]) -> int | None:
        """When an entry expires (unix ms); None: it does not."""
        value = fetch(self._txn, self._database, _entry(stream, id))
        return None if value is None else int(_TIME.unpack(value)[0])

    def in_order(self, row: TTLRow) -> bool:
        """Whether an entry has its row in the order of times."""
        key = _DUE.pack(_BY_DUE, row.due_ms, row.stream, *row.id)
        return fetch(self._txn, self._database, key) is not None

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
        with self._txn.cursor(db=self._database) as cursor:
            if cursor.set_range(_DUE.pack(_BY_DUE, 0, 0, 0, 0)):
                for key, data in cursor:
                    if key[0] != _BY_DUE:
                        return
                    unseal(key, data)
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
        with self._txn.cursor(db=self._database) as cursor:
            if cursor.set_range(_entry(stream, above)):
                for key, data in cursor:
                    _, found, ms, seq = key_parts(_ENTRY, key)
                    if (found, ms, seq) != (stream, *above):
                        (due_ms,) = _TIME.unpack(unseal(key, data))
                        yield TTLRow(due_ms, found, StreamID(ms, seq))


def _entry(stream: int, id: tuple[int, int]) -> bytes:
    return _ENTRY.pack(_BY_ENTRY, stream, *id)


def _apply(
    txn: Txn,
    at: int,  # noqa: ARG001  (what is kept is a set: no record's position is asked)
    body: TTL | TTLEnded | TTLForgotten,
) -> None:
    rows = TTLRows(txn.index)
    if isinstance(body, TTLForgotten):
        rows.forget(body.stream, body.above)
    elif isinstance(body, TTLEnded):
        for id in unpacked(body.ids):
            rows.delete(body.stream, id)
    else:
        record = txn.record(body.stream)
        if record is None:
            return
        for id in unpacked(body.ids):
            rows.put(TTLRow(body.due_ms, body.stream, id))
        txn.woken.add(record.name)  # who waits sleeps no longer than until it is due
    txn.due_changed()


def _dropped(txn: Txn, stream: int) -> None:
    if TTLRows(txn.index).forget(stream, (0, 0)):
        txn.due_changed()


def _page(
    index: Index, after: tuple[int, StreamID] | None
) -> tuple[list[dict[str, Any]], tuple[int, StreamID]] | None:
    """The next entries that expire, for a checkpoint."""
    rows = list(islice(TTLRows(index).rows(*(after or (0, (0, 0)))), ROWS_A_CHUNK))
    if not rows:
        return None
    flat = [(row.due_ms, row.stream, *row.id) for row in rows]
    return [{"kind": "ttl", "rows": flat}], (rows[-1].stream, rows[-1].id)


def _load(txn: Txn, chunk: dict[str, Any]) -> None:
    rows, number, there = TTLRows(txn.index), -1, False
    for due_ms, stream, ms, seq in chunk["rows"]:
        if stream != number:
            number, there = stream, txn.record(stream) is not None
        if there:
            rows.put(TTLRow(due_ms, stream, StreamID(ms, seq)))


def _faults(index: Index) -> Iterator[str]:
    rows = TTLRows(index)
    whole = all(rows.in_order(row) for row in rows.rows())
    if not whole or sum(1 for _ in rows.due(_END_MS)) != sum(1 for _ in rows.rows()):
        yield "when entries expire does not stand in both orders"


FEATURE = Feature(
    database=DATABASE,
    frames=(
        FrameKind(
            kind=Kind.TTL,
            bodies=(TTL, TTLEnded, TTLForgotten),
            encode=_encode,
            decode=_decode,
            apply=_apply,
        ),
    ),
    copies=(Copied("ttl", _page, _load),),
    compares=(Compared("when entries expire differs", lambda index: TTLRows(index).rows()),),
    faults=_faults,
    dropped=_dropped,
    first_due=lambda index: TTLRows(index).first_due(),
)
