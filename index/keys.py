"""Keys and values of the index, to and from bytes.

Invariants: numbers in keys are big endian, so that they sort; every value ends in a CRC32C bound
to its key, so that a flipped bit is an error and never a wrong value; a stream name of any length
has a key within LMDB's limit. Knows no transaction.
"""

from __future__ import annotations

import struct
from _blake2 import blake2b  # what hashlib gives, without loading OpenSSL
from collections.abc import Sequence

from logstore import format as fmt
from logstore import tombstones
from logstore.ids import ZERO_ID, StreamID
from logstore.row_seal import seal
from logstore.tuples import NamedTuple

NAME_KEY_BYTES = 400
NUMBER = struct.Struct(">Q")
NODE_KEY = fmt.NODE_KEY
SEGMENT_KEY = struct.Struct(">I")
# Rows of the main database; its named databases have rows there too, under keys of letters. A
# stream's record and open node stand side by side, and a new stream's stand at the very end: pages
# are filled whole, and a commit to one stream changes one leaf.
META_KEY = b"\x01"
STREAM_PREFIX = b"\xff"
IS_RECORD, IS_OPEN = 0, 1
# The runs of large open nodes but for the newest, so many a row: an add writes none of them again.
RUNS_KEY = struct.Struct(">BQI")  # its prefix, the stream, which row
RUNS_PREFIX = 0x02
RUNS_A_ROW = 128
STREAM_KEY = struct.Struct(">BQB")  # the prefix, the stream, which of the two

LOCATOR = fmt.LOCATOR  # then the vector
LOCATOR_PLACE = struct.Struct("<4xII")  # of a locator: the segment of its position, payload bytes
# length, entries added, last, first, max deleted ID, position, nodes, node bytes,
# open version, open master ID, when it expires (unix ms), position of its schema; then the name
_RECORD = struct.Struct("<QQQQQQQQQIQQQQQQ")
_pack_record = _RECORD.pack
RECORD_BYTES = _RECORD.size  # what stands before the name
FIRST_RECORD_BYTES = 108  # of format 1, and before streams expired
# applied position, commit, start of its last frame, that frame's crc, active segment,
# next stream, next segment
_META = struct.Struct("<QQQIIQI")
# role, live node bytes, live nodes, bytes (0: not sealed, or compacted), born (unix ms)
_SEGMENT = struct.Struct("<BQIIQ")
RUN = struct.Struct("<QIII")  # position of the frame, payload bytes, entries, elements
_OPEN_INLINE, _OPEN_RUNS, _OPEN_RUN_ROWS = 0, 1, 2
_INLINE = bytes([_OPEN_INLINE])
_RUNS_HEAD = struct.Struct("<BII")  # of an older index, all runs in the row itself
_RUN_ROWS_HEAD = struct.Struct("<BIII")  # kind, skeleton's bytes, vector's bytes, rows of runs

# Of a tuple that is there: 2,000 instructions less than to call the class, four times a record.
_new = tuple.__new__


def record_key(stream: int) -> bytes:
    """The key of a stream's record."""
    return STREAM_KEY.pack(0xFF, stream, IS_RECORD)


def open_key(stream: int) -> bytes:
    """The key of a stream's open node."""
    return STREAM_KEY.pack(0xFF, stream, IS_OPEN)


def name_key(name: bytes) -> bytes:
    """The key of a stream name."""
    if len(name) <= NAME_KEY_BYTES:
        return b"n" + name
    return b"h" + blake2b(name, digest_size=32).digest()


def twin_key(name: bytes) -> bytes:
    """The key of the second record that confirms a name's absence."""
    return b"t" + blake2b(name, digest_size=8).digest()


class StreamRecord:
    """All that is kept of a stream beside its nodes."""

    __slots__ = (
        "entries_added",
        "expires_ms",
        "first",
        "last",
        "length",
        "max_deleted",
        "name",
        "node_bytes",
        "nodes",
        "number",
        "open_master",
        "open_version",
        "position",
        "schema_at",
    )

    def __init__(
        self,
        number: int,
        name: bytes,
        length: int = 0,
        entries_added: int = 0,
        last: StreamID = ZERO_ID,
        first: StreamID = ZERO_ID,
        max_deleted: StreamID = ZERO_ID,
        position: int = 0,
        nodes: int = 0,
        node_bytes: int = 0,
        open_version: int = 0,
        open_master: StreamID = ZERO_ID,
        expires_ms: int = 0,
        schema_at: int = 0,
    ) -> None:
        self.number = number
        self.name = name
        self.length = length
        self.entries_added = entries_added
        self.last = last
        self.first = first
        self.max_deleted = max_deleted
        self.position = position  # of the last frame that changed this record
        self.nodes = nodes  # sealed nodes
        self.node_bytes = node_bytes  # payload bytes of the sealed nodes
        # Position of the open frame; 0: the last node is sealed, or there is none.
        self.open_version = open_version
        self.open_master = open_master
        self.expires_ms = expires_ms  # unix ms; 0: never
        self.schema_at = schema_at  # position of the frame of its schema; 0: it has none

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamRecord):
            return NotImplemented
        return self.number == other.number and self.pack() == other.pack()

    def pack(self) -> bytes:
        """The stored value, without CRC."""
        last, first, deleted, master = self.last, self.first, self.max_deleted, self.open_master
        return (
            _pack_record(
                self.length,
                self.entries_added,
                last[0],
                last[1],
                first[0],
                first[1],
                deleted[0],
                deleted[1],
                self.position,
                self.nodes,
                self.node_bytes,
                self.open_version,
                master[0],
                master[1],
                self.expires_ms,
                self.schema_at,
            )
            + self.name
        )

    @classmethod
    def unpack(cls, number: int, value: bytes, head_bytes: int = RECORD_BYTES) -> StreamRecord:
        """The record of a stored value; an older one has fewer bytes before the name."""
        if head_bytes < RECORD_BYTES:
            value = value[:head_bytes].ljust(RECORD_BYTES, b"\x00") + value[head_bytes:]
        f = _RECORD.unpack_from(value)
        return cls(
            number,
            value[_RECORD.size :],
            f[0],
            f[1],
            _new(StreamID, f[2:4]),
            _new(StreamID, f[4:6]),
            _new(StreamID, f[6:8]),
            f[8],
            f[9],
            f[10],
            f[11],
            _new(StreamID, f[12:14]),
            f[14],
            f[15],
        )


def new_record_row(
    number: int,
    name: bytes,
    at: int,
    entries: int = 0,
    first: tuple[int, int] = (0, 0),
    last: tuple[int, int] = (0, 0),
) -> tuple[bytes, bytes]:
    """Key and sealed value of a stream's record, of which ``at`` is the last frame; with
    ``entries``, that frame began its open node, and nothing happened to them since."""
    key = STREAM_KEY.pack(0xFF, number, IS_RECORD)
    value = (
        _pack_record(
            entries, entries, *last, *first, 0, 0, at, 0, 0, at if entries else 0, *first, 0, 0
        )
        + name
    )
    return key, seal(key, value)


def open_row(number: int, lp: bytes) -> tuple[bytes, bytes]:
    """Key and sealed value of a small open node."""
    key = STREAM_KEY.pack(0xFF, number, IS_OPEN)
    value = _INLINE + lp
    return key, seal(key, value)


class Locator(NamedTuple):
    """Where a sealed node lies, and what was deleted from it since.

    ``position`` is also the node's version; ``vector`` is a little-endian bitmap of ordinals.
    """

    position: int
    payload_bytes: int
    entries: int  # live ones in the listpack
    last: StreamID
    vector: bytes = b""

    @property
    def live(self) -> int:
        """Live entries now."""
        return self.entries - tombstones.count(self.vector)

    def marked(self, ordinals: Sequence[int]) -> Locator:
        """The locator after these entries were deleted."""
        return self._replace(vector=tombstones.added(self.vector, ordinals))

    def pack(self) -> bytes:
        """The stored value, without CRC."""
        head = LOCATOR.pack(self.position, self.payload_bytes, self.entries, *self.last)
        return head + self.vector

    @classmethod
    def unpack(cls, value: bytes) -> Locator:
        """The locator of a stored value."""
        at, size, entries, ms, seq = LOCATOR.unpack_from(value)
        return cls(at, size, entries, StreamID(ms, seq), value[LOCATOR.size :])


def position_of(value: bytes) -> int:
    """The position in a locator's stored value."""
    return int.from_bytes(value[:8], "little")


def marked(value: bytes, ordinals: Sequence[int]) -> bytes:
    """A locator's stored value after these entries were deleted."""
    return value[: LOCATOR.size] + tombstones.added(value[LOCATOR.size :], ordinals)


class NodeFrame(NamedTuple):
    """One frame whose bytes are part of an open node.

    Of an append frame, the entries and elements that it adds; of the first, which holds a whole
    listpack, the live entries and the tombstones in it.
    """

    position: int
    payload_bytes: int
    entries: int
    elements: int


class OpenNode:
    """The open node: its listpack; or, when large, the frames it is made of.

    With ``runs``, ``lp`` is only the skeleton (the node without entries, None if not read yet), and
    ``vector`` has the ordinals deleted since the first run. Runs are only ever put behind others.
    """

    __slots__ = ("_entries", "_payload_bytes", "_summed", "lp", "rows", "runs", "vector")

    def __init__(
        self, lp: bytes | None = None, runs: list[NodeFrame] | None = None, vector: int = 0
    ) -> None:
        self.lp = lp
        self.runs: list[NodeFrame] = [] if runs is None else runs
        self.vector = vector
        self.rows = 0  # of RUNS_A_ROW runs each, that are in the index already
        self._summed = self._entries = self._payload_bytes = 0

    def totals(self) -> tuple[int, int]:
        """Entries and payload bytes of all runs; those that were summed before are not again."""
        for place in range(self._summed, len(self.runs)):
            run = self.runs[place]
            self._entries += run.entries
            self._payload_bytes += run.payload_bytes
        self._summed = len(self.runs)
        return self._entries, self._payload_bytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OpenNode):
            return NotImplemented
        own = (self.lp or b"", self.vector, self.runs)
        return own == (other.lp or b"", other.vector, other.runs)

    def pack(self) -> bytes:
        """The stored value, without CRC; the runs of ``rows`` rows stand in those."""
        lp = self.lp or b""
        if not self.runs:
            return _INLINE + lp
        vector = self.vector.to_bytes((self.vector.bit_length() + 7) // 8, "little")
        head = _RUN_ROWS_HEAD.pack(_OPEN_RUN_ROWS, len(lp), len(vector), self.rows)
        return b"".join((head, lp, vector, self.pack_runs(self.rows * RUNS_A_ROW, len(self.runs))))

    def pack_runs(self, first: int, end: int) -> bytes:
        """Some of the runs."""
        return b"".join([RUN.pack(*run) for run in self.runs[first:end]])

    @classmethod
    def unpack(cls, value: bytes) -> OpenNode:
        """The open node of a stored value."""
        if value[0] == _OPEN_INLINE:
            return cls(lp=value[1:])
        rows, head_bytes = 0, _RUNS_HEAD.size
        if value[0] == _OPEN_RUN_ROWS:
            head_bytes = _RUN_ROWS_HEAD.size
            _, lp_bytes, vector_bytes, rows = _RUN_ROWS_HEAD.unpack_from(value)
        else:
            _, lp_bytes, vector_bytes = _RUNS_HEAD.unpack_from(value)
        vector_at = head_bytes + lp_bytes
        runs_at = vector_at + vector_bytes
        node = cls(
            value[head_bytes:vector_at] or None,
            unpack_runs(value[runs_at:]),
            int.from_bytes(value[vector_at:runs_at], "little"),
        )
        node.rows = rows
        return node


def unpack_runs(value: bytes) -> list[NodeFrame]:
    """Runs side by side."""
    return [NodeFrame(*fields) for fields in RUN.iter_unpack(value)]


class Meta(NamedTuple):
    """Where the index stands in the log, and the numbers that are never used again."""

    applied: int = 0  # position where the last applied commit ends
    commit: int = 0
    last_frame: int = 0  # position where the last frame of that commit starts
    last_crc: int = 0
    active_segment: int = 1
    next_stream: int = 1
    next_segment: int = 2

    def pack(self) -> bytes:
        """The stored value, without CRC."""
        return _META.pack(*self)

    @classmethod
    def unpack(cls, value: bytes) -> Meta:
        """The meta of a stored value."""
        return cls(*_META.unpack(value))


def applied_of(value: bytes) -> int:
    """The first of these, in a stored value."""
    return int.from_bytes(value[:8], "little")


class SegmentRow(NamedTuple):
    """What is counted of a segment."""

    role: int
    live_bytes: int
    live_nodes: int
    total_bytes: int
    born_ms: int

    def pack(self) -> bytes:
        """The stored value, without CRC."""
        return _SEGMENT.pack(*self)

    @classmethod
    def unpack(cls, value: bytes) -> SegmentRow:
        """The row of a stored value."""
        return cls(*_SEGMENT.unpack(value))
