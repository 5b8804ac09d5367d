"""Idempotent IDs, as they are stored: the frame, rows, and their part of a checkpoint.

A frame says which IDs of a producer gave which entries, and what is forgotten; it is in the commit
of the entries that it names. A stream's producers have names, an idempotent ID of a producer has
the entry that it gave. Beside that row stand two that sort by the entry's ID: one among all of the
stream, for what expires, and one among those of its producer, for what is evicted.

Invariants: what is forgotten is named by intervals of entry IDs, and the counts are those after the
frame, so that no record's position is asked: applying a frame again, or over a later state that the
frames behind it lead to anyway, ends in the same. So a checkpoint may be copied in short snapshots,
behind the streams of the same checkpoint; what is of a stream that it does not hold is left out,
for the stream was made behind it. The three rows of an ID come and go together, and how many a
producer and a stream have follows from them; a producer without IDs has no row; names of any length
stand for themselves by a digest in keys, and whole in values. What is remembered ends with the
stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

from logstore import format as fmt
from logstore.features import feature
from logstore.format import Kind
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.row_seal import LostRowsError, digest
from logstore.tuples import NamedTuple

ID: TypeAlias = tuple[int, int]
NOTHING: tuple[ID, ID] = (MAX_ID, ZERO_ID)  # the empty interval
_STREAM_ROW, _PRODUCER_ROW, _ID_ROW, _BY_AGE, _BY_PRODUCER = b"spiao"
_KEY = struct.Struct(">BQ")  # what the row is, the stream; then digests and IDs
_HEAD, _DIGEST = _KEY.size, 16
_TALLY = struct.Struct("<QQQQ")
_COUNT = struct.Struct("<I")
_ID = struct.Struct(">QQ")
_PRODUCER_END = _HEAD + _DIGEST
_BY_AGE_ID_END = _HEAD + _ID.size


class Idempotent(NamedTuple):
    """What is remembered of a stream's producers changes, in this order:

    of all producers, what gave entries from ``first`` to ``last`` is forgotten; of ``producer``,
    what gave entries up to ``upto`` (0-0: nothing); each of ``items``, (entry ID, idempotent ID),
    is remembered, in the place of an older entry of the same ID.
    """

    stream: int
    added: int  # idempotent adds of the stream's whole life, after this
    duplicates: int  # of those that added nothing
    first: ID
    last: ID
    upto: ID = ZERO_ID
    producer: bytes = b""
    items: tuple[tuple[ID, bytes], ...] = ()


def _encode(body: Idempotent) -> bytes:
    parts = [
        fmt.IDEMPOTENT_BODY.pack(
            body.stream,
            body.added,
            body.duplicates,
            *body.first,
            *body.last,
            *body.upto,
            len(body.producer),
        ),
        body.producer,
    ]
    for id, name in body.items:
        parts += (fmt.IDEMPOTENT_ITEM.pack(*id, len(name)), name)
    return b"".join(parts)


def _decode(payload: bytes) -> Idempotent:
    stream, added, duplicates, *ids, size = fmt.IDEMPOTENT_BODY.unpack_from(payload)
    at = fmt.IDEMPOTENT_BODY.size + size
    producer = payload[at - size : at]
    items: list[tuple[ID, bytes]] = []
    while at < len(payload):
        ms, seq, size = fmt.IDEMPOTENT_ITEM.unpack_from(payload, at)
        at += fmt.IDEMPOTENT_ITEM.size + size
        items.append(((ms, seq), payload[at - size : at]))
    if at > len(payload):
        raise struct.error("an ID is longer than what is left")
    first, last, upto = zip(ids[::2], ids[1::2], strict=True)
    return Idempotent(stream, added, duplicates, first, last, upto, producer, tuple(items))


class Tally(NamedTuple):
    """What is counted of a stream."""

    producers: int = 0  # that have IDs remembered
    ids: int = 0  # remembered now
    added: int = 0  # entries, in the stream's whole life
    duplicates: int = 0  # adds that added nothing, in the stream's whole life


class Remembered(NamedTuple):
    """One idempotent ID of one producer, and the entry that it gave."""

    stream: int
    producer: bytes
    name: bytes
    id: StreamID


class ProducerRows(feature.FeatureRows):
    """The producers of all streams, and their idempotent IDs."""

    __slots__ = ("_generation",)
    DATABASE = "producers"

    def __init__(self, index: feature.Index) -> None:
        super().__init__(index)
        self._generation = index.generation.number

    # -- looking ------------------------------------------------------------------------------
    def tally(self, stream: int) -> Tally:
        """The counts of a stream."""
        value = self._get(_KEY.pack(_STREAM_ROW, stream))
        return Tally() if value is None else Tally._make(_TALLY.unpack(value))

    def count(self, stream: int, producer: bytes) -> int:
        """How many IDs of a producer are remembered."""
        value = self._get(_KEY.pack(_PRODUCER_ROW, stream) + digest(producer))
        return 0 if value is None else int(_COUNT.unpack_from(value)[0])

    def find(self, stream: int, producer: bytes, name: bytes) -> StreamID | None:
        """The entry that an idempotent ID gave."""
        value = self._get(_KEY.pack(_ID_ROW, stream) + digest(producer) + digest(name))
        return None if value is None else StreamID(*_ID.unpack_from(value))

    def gave(self, stream: int, id: StreamID) -> bool:
        """Whether an entry is remembered as given by an idempotent ID, of whichever producer."""
        prefix = _KEY.pack(_BY_AGE, stream) + _ID.pack(*id)
        return any(True for _ in self._scan(prefix, prefix))

    def by_age(self, stream: int) -> Iterator[StreamID]:
        """The entries of all producers, oldest first; do not change them meanwhile."""
        prefix = _KEY.pack(_BY_AGE, stream)
        for key, _ in self._scan(prefix, prefix):
            yield StreamID(*_ID.unpack_from(key, _HEAD))

    def of_producer(self, stream: int, producer: bytes) -> Iterator[tuple[StreamID, bytes]]:
        """Entries of a producer and digests of their names, oldest first; the same holds."""
        prefix = _KEY.pack(_BY_PRODUCER, stream) + digest(producer)
        for key, _ in self._scan(prefix, prefix):
            yield StreamID(*_ID.unpack_from(key, _PRODUCER_END)), key[-_DIGEST:]

    def tallies(self, after: int = 0) -> Iterator[tuple[int, Tally]]:
        """Streams with a number above ``after``, and what is counted of each."""
        for key, value in self._scan(_KEY.pack(_STREAM_ROW, after + 1), bytes([_STREAM_ROW])):
            yield _KEY.unpack(key)[1], Tally._make(_TALLY.unpack(value))

    def all(self, after: bytes = b"") -> Iterator[tuple[bytes, Remembered]]:
        """All that is remembered behind a key, each with its own key."""
        producer: tuple[bytes, bytes] = (b"", b"")
        start = after + b"\x00" if after else bytes([_ID_ROW])
        for key, value in self._scan(start, bytes([_ID_ROW])):
            owner = bytes([_PRODUCER_ROW]) + key[1:_PRODUCER_END]
            if owner != producer[0]:
                row = self._get(owner)
                if row is None:
                    raise LostRowsError("the index lost a producer", self._generation)
                producer = (owner, row[_COUNT.size :])
            stream = _KEY.unpack_from(key)[1]
            id = StreamID(*_ID.unpack_from(value))
            yield key, Remembered(stream, producer[1], value[_ID.size :], id)

    def of_stream(self, stream: int) -> Iterator[Remembered]:
        """All that is remembered of a stream, a producer's IDs side by side."""
        count = 0
        for _, found in self.all(_KEY.pack(_ID_ROW, stream)):
            if found.stream != stream:
                break
            count += 1
            yield found
        if count != self.tally(stream).ids:
            raise LostRowsError("the index lost idempotent IDs", self._generation)

    # -- changing -----------------------------------------------------------------------------
    def remember(self, stream: int, producer: bytes, items: list[tuple[StreamID, bytes]]) -> None:
        """Put idempotent IDs of a producer, with the entries that they gave."""
        if not items:
            return
        owner, fresh = digest(producer), 0
        for id, name in items:
            mine = digest(name)
            key = _KEY.pack(_ID_ROW, stream) + owner + mine
            before = self._get(key)
            if before is None:
                fresh += 1
            else:
                self._delete_ordered(stream, before[: _ID.size], owner, mine)
            packed = _ID.pack(*id)
            self._put(key, packed + name)
            self._put(_KEY.pack(_BY_AGE, stream) + packed + owner + mine, b"")
            self._put(_KEY.pack(_BY_PRODUCER, stream) + owner + packed + mine, b"")
        self._count(stream, owner, fresh, producer)

    def forget(self, stream: int, first: StreamID, last: StreamID) -> None:
        """Forget what gave entries of a closed interval, of all producers."""
        prefix = _KEY.pack(_BY_AGE, stream)
        low, high = prefix + _ID.pack(*first), prefix + _ID.pack(*last)
        gone: dict[bytes, int] = {}
        with self._txn.cursor(db=self._database) as cursor:
            found = cursor.set_range(low)
            while found and (key := cursor.key())[:_BY_AGE_ID_END] <= high:
                owner = key[_BY_AGE_ID_END:-_DIGEST]
                self._delete_id(stream, key[_HEAD:_BY_AGE_ID_END], owner, key[-_DIGEST:])
                gone[owner] = gone.get(owner, 0) + 1
                found = cursor.set_range(low)
        for owner, count in gone.items():
            self._count(stream, owner, -count)

    def evict(self, stream: int, producer: bytes, upto: StreamID) -> None:
        """Forget what gave entries of one producer, up to an ID."""
        owner, gone = digest(producer), 0
        prefix = _KEY.pack(_BY_PRODUCER, stream) + owner
        high = prefix + _ID.pack(*upto)
        with self._txn.cursor(db=self._database) as cursor:
            found = cursor.set_range(prefix)
            while found and prefix <= (key := cursor.key())[: len(high)] <= high:
                packed = key[_PRODUCER_END : _PRODUCER_END + _ID.size]
                self._delete_id(stream, packed, owner, key[-_DIGEST:])
                gone += 1
                found = cursor.set_range(prefix)
        self._count(stream, owner, -gone)

    def set_counts(self, stream: int, added: int, duplicates: int) -> None:
        """Set what is counted of the stream's whole life."""
        tally = self.tally(stream)._replace(added=added, duplicates=duplicates)
        self._put(_KEY.pack(_STREAM_ROW, stream), _TALLY.pack(*tally))

    def drop(self, stream: int) -> None:
        """The stream went, and all that is its."""
        if self._get(_KEY.pack(_STREAM_ROW, stream)) is None:
            return
        for kind in (_STREAM_ROW, _PRODUCER_ROW, _ID_ROW, _BY_AGE, _BY_PRODUCER):
            self._clear(_KEY.pack(kind, stream))

    # -- inside -------------------------------------------------------------------------------
    def _count(self, stream: int, owner: bytes, by: int, name: bytes = b"") -> None:
        """A producer has so many IDs more; with its first one its row comes, with its last goes."""
        if not by:
            return
        key = _KEY.pack(_PRODUCER_ROW, stream) + owner
        value = self._get(key)
        before = 0 if value is None else int(_COUNT.unpack_from(value)[0])
        after = before + by
        if after < 0:
            raise LostRowsError("the index lost a producer", self._generation)
        if after:
            whole = name if value is None else value[_COUNT.size :]
            self._put(key, _COUNT.pack(after) + whole)
        else:
            self._delete(key)
        tally = self.tally(stream)
        tally = tally._replace(
            ids=tally.ids + by, producers=tally.producers + (not before) - (not after)
        )
        self._put(_KEY.pack(_STREAM_ROW, stream), _TALLY.pack(*tally))

    def _delete_id(self, stream: int, packed: bytes, owner: bytes, mine: bytes) -> None:
        self._delete(_KEY.pack(_ID_ROW, stream) + owner + mine)
        self._delete_ordered(stream, packed, owner, mine)

    def _delete_ordered(self, stream: int, packed: bytes, owner: bytes, mine: bytes) -> None:
        self._delete(_KEY.pack(_BY_AGE, stream) + packed + owner + mine)
        self._delete(_KEY.pack(_BY_PRODUCER, stream) + owner + packed + mine)


def _apply(txn: feature.Txn, _at: int, body: Idempotent) -> None:
    if txn.record(body.stream) is None:
        return
    rows = ProducerRows(txn.index)
    if body.first <= body.last:
        rows.forget(body.stream, StreamID(*body.first), StreamID(*body.last))
    if body.upto > ZERO_ID:
        rows.evict(body.stream, body.producer, StreamID(*body.upto))
    items = [(StreamID(*id), name) for id, name in body.items]
    rows.remember(body.stream, body.producer, items)
    rows.set_counts(body.stream, body.added, body.duplicates)


def _page_of_counts(index: feature.Index, after: int | None) -> feature.Page[int]:
    tallies = ProducerRows(index).tallies(after or 0)
    rows = ((stream, tally.added, tally.duplicates) for stream, tally in tallies)
    return feature.page_of("producers", rows, lambda row: row[0])


def _page_of_ids(index: feature.Index, after: bytes | None) -> feature.Page[bytes]:
    """The next idempotent IDs, side by side by stream and producer."""
    last, rows = b"", list[Any]()
    for key, row in feature.rows_of_chunk(ProducerRows(index).all(after or b"")):
        last = key
        if not rows or rows[-1][:2] != [row.stream, row.producer]:
            rows.append([row.stream, row.producer, []])
        rows[-1][2].append((*row.id, row.name))
    return ([{"kind": "idempotent", "rows": rows}], last) if rows else None


def _load_counts(txn: feature.Txn, chunk: dict[str, Any]) -> None:
    rows = ProducerRows(txn.index)
    for stream, added, duplicates in feature.of_present(txn, chunk["rows"], lambda row: row[0]):
        rows.set_counts(stream, added, duplicates)


def _load_ids(txn: feature.Txn, chunk: dict[str, Any]) -> None:
    rows = ProducerRows(txn.index)
    for stream, producer, items in feature.of_present(txn, chunk["rows"], lambda row: row[0]):
        rows.remember(stream, producer, [(StreamID(ms, seq), name) for ms, seq, name in items])


FEATURE = feature.Feature(
    database=ProducerRows.DATABASE,
    frames=(feature.FrameKind(Kind.IDEMPOTENT, (Idempotent,), _encode, _decode, _apply),),
    copies=(
        feature.Copied("producers", _page_of_counts, _load_counts),
        feature.Copied("idempotent", _page_of_ids, _load_ids),
    ),
    compares=(
        feature.Compared(
            "counts of idempotent adds differ", lambda index: ProducerRows(index).tallies()
        ),
        feature.Compared(
            "what is remembered of idempotent adds differs", lambda index: ProducerRows(index).all()
        ),
    ),
    dropped=lambda txn, stream: ProducerRows(txn.index).drop(stream),
)
