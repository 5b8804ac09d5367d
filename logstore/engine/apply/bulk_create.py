"""New streams of a log that is replayed, from their frames to rows of the index in one step.

Many streams hold one node that was never sealed. Of such a stream the log says two things: a CREATE
frame with a number above all others, and the OPEN frame of its first node. Applied one by one, both
make objects that are packed again at the end; here they are held back as they were read, and
become the stream's record and its open node once the log is read to its end.

Invariants: held back is only a stream of which the log has said nothing else so far. Before any
other frame that could mean it is applied, it is handed over: its frames are applied as all others
are (``apply.streams``), in their order, and this module is done with it then. So the rows
that are made here are those that ``apply`` leads to, and nothing reads a stream's record while it
is held back. Its name is bound at once, where its CREATE frame stands: the last one of a name has
it.
"""

from __future__ import annotations

from typing import Any

from logstore.engine.apply.streams import apply
from logstore.engine.runtime.segments import SegmentGone, Segments
from logstore.engine.txn.nodes import OPEN_INLINE_MAX_BYTES
from logstore.engine.txn.view import TxnView
from logstore.errors import CorruptFrameError
from logstore.format import CREATE_BODY, OPEN_BODY, Kind, segment_of
from logstore.index import keys
from logstore.index.keys import StreamRecord
from logstore.log import frame as frames
from logstore.log.log_reader import listpack

_CREATE, _OPEN = int(Kind.CREATE), int(Kind.OPEN)
_CREATE_BYTES, _OPEN_BYTES = CREATE_BODY.size, OPEN_BODY.size
# Frames that change the one stream whose number they begin with, but neither its name nor what
# hangs on it; and those that mean no stream.
_OF_ONE = frozenset(
    {
        _OPEN,
        int(Kind.APPEND),
        int(Kind.NODE),
        int(Kind.TOMBSTONE),
        int(Kind.TRIM),
        int(Kind.RECORD),
    }
)
_OF_NONE = frozenset({int(Kind.SEAL), int(Kind.NOTE)})


class BulkCreate:
    """The streams that are held back in one rebuild."""

    __slots__ = ("_made", "_next", "_opened", "_state")

    def __init__(self, txn: TxnView) -> None:
        self._state = txn
        self._next = 0  # above the numbers of all that were held back
        self._made: dict[int, tuple[int, bytes]] = {}  # by stream: position of CREATE, name
        # By stream: the OPEN frame's position, payload bytes and fixed part.
        self._opened: dict[int, tuple[int, int, bytes]] = {}

    def take(self, at: int, payload_bytes: int, kind: int, payload: bytes) -> bool:
        """Hold back the frame at ``at``, if it is one of these kinds. Else hand over the streams
        that it may touch; the caller applies it."""
        made = self._made
        if kind == _OPEN:
            number = int.from_bytes(payload[:8], "little")
            if (
                number in made
                and number not in self._opened
                and payload_bytes <= OPEN_INLINE_MAX_BYTES
                and len(payload) == _OPEN_BYTES
                and payload[-4:] != b"\x00\x00\x00\x00"  # it adds entries
            ):
                self._opened[number] = (at, payload_bytes, payload)
                return True
        elif kind == _CREATE and len(payload) >= _CREATE_BYTES:
            number = int.from_bytes(payload[:8], "little")
            if number >= self._next and number >= self._state.meta.next_stream:
                name = payload[_CREATE_BYTES:]
                self._next = number + 1
                made[number] = (at, name)
                self._state.index.put_name(name, number)
                return True
        if not made or kind in _OF_NONE:
            return False
        if kind not in _OF_ONE:
            self.hand_over()
            return False
        number = int.from_bytes(payload[:8], "little")
        if number in made:
            self._hand_over_one(number)
        return False

    def hand_over(self) -> None:
        """Apply what was held back; nothing is any more."""
        for number in list(self._made):
            self._hand_over_one(number)
        self._count_numbers()

    def _hand_over_one(self, number: int) -> None:
        self._count_numbers()
        at, name = self._made.pop(number)
        self._state.create_bound(StreamRecord(number, name, position=at))
        opened = self._opened.pop(number, None)
        if opened is not None:
            at, payload_bytes, payload = opened
            body: Any = frames.decode(_OPEN, payload)
            apply(self._state, at, payload_bytes, body)

    def _count_numbers(self) -> None:
        """No number is given twice."""
        meta = self._state.meta
        if meta.next_stream < self._next:
            self._state.meta = meta._replace(next_stream=self._next)

    def settle(self, segments: Segments) -> list[tuple[bytes, bytes]]:
        """The rows of all that is held back, by ascending keys; it stays held back. A stream whose
        node cannot be read is handed over to the caller."""
        rows: list[tuple[bytes, bytes]] = []
        self._count_numbers()
        source: Any = None
        segment = 0  # of the source: asking for it each time would cost as much as reading
        for number in sorted(self._made):
            at, name = self._made[number]
            opened = self._opened.get(number)
            if opened is None:
                rows.append(keys.new_record_row(number, name, at))
                continue
            at, payload_bytes, payload = opened
            _, ms, seq, last_ms, last_seq, entries = OPEN_BODY.unpack(payload)
            try:
                if segment != segment_of(at):
                    segment = segment_of(at)
                    source = segments.source(segment)
                segments.body_reads += 1
                lp = listpack(source, segments.seed, at, payload_bytes, number, (ms, seq))
            except (CorruptFrameError, SegmentGone):
                self._hand_over_one(number)
                segment = 0
                continue
            rows.append(
                keys.new_record_row(number, name, at, entries, (ms, seq), (last_ms, last_seq))
            )
            rows.append(keys.open_row(number, lp))
        return rows
