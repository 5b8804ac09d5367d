"""The newest entry of each key, as it is stored: the frame, rows, and their part of a checkpoint.

A stream may be kept compact by a field (``StreamSettings.compact_by``): its value is the key of an
entry, and of each key only the newest entry stays. A row says which that is, under a digest of the
key, so that keys may have any length; another says up to which entry the stream was gone through,
and a third, once all was forgotten, how often: its epoch. What was found out about IDs in one epoch
says nothing in another.

Invariants: a row names the newest entry of its key among those up to there, or one that was deleted
since; no ID that a row names can be given again (who lowers a last ID begins anew). A frame stands
in one commit with the deletes of what it replaces. It sets what it names, whatever was before; so
applied again, or over a later state that the frames behind it lead to, it ends in the same. Rows
end with their stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from logstore import format as fmt
from logstore.features import feature
from logstore.format import Kind
from logstore.ids import ZERO_ID, StreamID
from logstore.tuples import NamedTuple

NO_KEY = bytes(16)  # stands in the place of a digest, in the row of the epoch
_STREAM = struct.Struct(">Q")
_ID = struct.Struct(">QQ")


class Latest(NamedTuple):
    """A stream was gone through up to an entry; ``items`` are digests of keys and IDs, packed.

    With ``anew`` all that is known of it is forgotten first.
    """

    stream: int
    anew: int
    upto: tuple[int, int]
    items: bytes


def packed(newest: dict[bytes, StreamID]) -> bytes:
    """The items of a frame."""
    return b"".join(key + _ID.pack(*id) for key, id in newest.items())


def _encode(body: Latest) -> bytes:
    return fmt.LATEST_BODY.pack(body.stream, body.anew, *body.upto) + body.items


def _decode(payload: bytes) -> Latest:
    stream, anew, ms, seq = fmt.LATEST_BODY.unpack_from(payload)
    items = payload[fmt.LATEST_BODY.size :]
    if len(items) % fmt.LATEST_ITEM_BYTES or anew > 1:
        raise struct.error("not a list of keys and IDs")
    return Latest(stream, anew, (ms, seq), items)


class LatestRows(feature.FeatureRows):
    """The newest entry of each key."""

    __slots__ = ()
    DATABASE = "latest"

    def upto(self, stream: int) -> StreamID:
        """The last entry that was gone through; 0-0: none was."""
        return self._id(_STREAM.pack(stream)) or ZERO_ID

    def epoch(self, stream: int) -> int:
        """How often all that was known of the stream was forgotten."""
        found = self.get(stream, NO_KEY)
        return 0 if found is None else found.ms

    def get(self, stream: int, key: bytes) -> StreamID | None:
        """The newest entry of a key, by its digest."""
        return self._id(_STREAM.pack(stream) + key)

    def put(self, stream: int, upto: tuple[int, int], items: bytes) -> None:
        """Set what a frame names."""
        prefix, size = _STREAM.pack(stream), fmt.LATEST_ITEM_BYTES
        self.put_row(prefix, _ID.pack(*upto))
        for at in range(0, len(items), size):
            end = at + size
            self.put_row(prefix + items[at : end - _ID.size], items[end - _ID.size : end])

    def put_row(self, key: bytes, value: bytes) -> None:
        """Set one row."""
        self._put(key, value)

    def drop(self, stream: int) -> None:
        """Forget all that is known of a stream."""
        self._clear(_STREAM.pack(stream))

    def rows(self, after: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All rows behind a key."""
        return self._scan(after + b"\x00")

    def _id(self, key: bytes) -> StreamID | None:
        value = self._get(key)
        return None if value is None else StreamID(*_ID.unpack(value))


def _apply(txn: feature.Txn, at: int, body: Latest) -> None:
    if txn.advance(body.stream, at) is not None:
        rows = LatestRows(txn.index)
        if body.anew:
            rows.drop(body.stream)
        rows.put(body.stream, body.upto, body.items)


def _page(index: feature.Index, after: bytes | None) -> feature.Page[bytes]:
    return feature.page_of("latest", LatestRows(index).rows(after or b""), lambda row: row[0])


def _load(txn: feature.Txn, chunk: dict[str, Any]) -> None:
    rows = LatestRows(txn.index)
    for key, value in feature.of_present(
        txn, chunk["rows"], lambda row: _STREAM.unpack_from(row[0])[0]
    ):
        rows.put_row(key, value)


FEATURE = feature.Feature(
    database=LatestRows.DATABASE,
    frames=(feature.FrameKind(Kind.LATEST, (Latest,), _encode, _decode, _apply, of_record=True),),
    copies=(feature.Copied("latest", _page, _load),),
    compares=(
        feature.Compared("newest entries of keys differ", lambda index: LatestRows(index).rows()),
    ),
    dropped=lambda txn, stream: LatestRows(txn.index).drop(stream),
)
