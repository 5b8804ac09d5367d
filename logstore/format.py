"""Every magic, layout and type code that is on disk, with size asserts.

The writer, the reader, recovery and the tools take them from here and from nowhere else. What the
fields mean, with pictures and a worked example, is in docs/format.md. All numbers are little
endian but for IDs inside index keys, which are big endian so that they sort. Imports nothing.

Invariants: kind 0 is never valid; a kind with ``SKIPPABLE`` set may be passed over by a reader
that does not know it, any other unknown kind must be refused by name.
"""

from __future__ import annotations

import struct
from enum import IntEnum

FORMAT_VERSION = 3  # written; 2: consumer groups, 3: schemas
OLDEST_VERSION = 1  # read; a store of it becomes one of FORMAT_VERSION when opened for writing

# -- STORE: magic, version, length of the msgpack body, CRC32C of the body ------------------------
STORE_MAGIC = b"LOGSTORE"
STORE_HEAD = struct.Struct("<8sHHII")  # magic, format version, reserved, body bytes, crc
assert STORE_HEAD.size == 20
STORE_BODY_MAX_BYTES = 64 * 1024

# -- segment header -------------------------------------------------------------------------------
SEGMENT_MAGIC = b"LGSTSEG\x00"
# magic, format version, role, reserved, number, store uuid, end of the segment before (position),
# its last commit number, created (unix ms), reserved, crc of the 60 bytes before
SEGMENT_HEAD = struct.Struct("<8sHBBI16sQQQII")
SEGMENT_HEAD_BYTES = 64
assert SEGMENT_HEAD.size == SEGMENT_HEAD_BYTES


class Role(IntEnum):
    """What a segment is for."""

    MAIN = 0  # holds commits, in the order in which they happened
    COMPACTED = 1  # holds node frames only; counts once an adopt frame names it


# -- frame header ---------------------------------------------------------------------------------
# crc, payload bytes, commit number, durable_upto (position), ordinal in the commit, kind, flags,
# mark. The CRC covers the frame's position (8 bytes, not stored), then all after the CRC field,
# then the payload; its start value is the CRC32C of the store's UUID.
FRAME_HEAD = struct.Struct("<IIQQIBBH")
FRAME_HEAD_BYTES = 32
assert FRAME_HEAD.size == FRAME_HEAD_BYTES
FRAME_HEAD_AFTER_CRC = struct.Struct("<QIQQIBBH")  # the position in front: what the CRC covers
FRAME_MARK = 0xF5A9  # constant, so that a reader can look for the next frame after damage
FRAME_MARK_OFFSET = 30
FRAME_FLAG_LAST = 1  # the last frame of its commit

# Of the index, for what makes many of them: the key of a sealed node (stream, master ID), and its
# locator before the vector: position, payload bytes, live entries in the listpack, last ID.
NODE_KEY: struct.Struct = struct.Struct(">QQQ")
LOCATOR: struct.Struct = struct.Struct("<QIIQQ")

SKIPPABLE = 0x80


class Kind(IntEnum):
    """Frame kinds. Those that are not in ``KINDS_IN_USE`` are reserved: their numbers are taken."""

    INVALID = 0
    SEAL = 1
    CREATE = 2
    DROP = 3
    OPEN = 4
    APPEND = 5
    NODE = 6
    TOMBSTONE = 7
    TRIM = 8
    RECORD = 9
    ADOPT = 10
    DROP_SEGMENT = 11
    GROUP = 32
    GROUP_DROP = 33
    CONSUMER = 34
    DELIVER = 35
    ACK = 36
    CLAIM = 37
    IDEMPOTENT = 39
    SETTING = 40
    SCHEDULE = 41
    EXPIRE = 42
    RENAME = 43
    LATEST = 45
    TTL = 46
    SCHEMA = 47
    # reserved for what is to come
    NACK = 38
    COPY = 44
    NOTE = 0x80 | 1  # a remark for people and tools; may be skipped


KINDS_IN_USE = frozenset(range(Kind.SEAL, Kind.DROP_SEGMENT + 1)) | frozenset(
    [
        *range(Kind.GROUP, Kind.CLAIM + 1),
        *range(Kind.IDEMPOTENT, Kind.RENAME + 1),
        Kind.LATEST,
        Kind.TTL,
        Kind.SCHEMA,
    ]
)

# -- payloads of the hot kinds, before their variable part ----------------------------------------
SEAL_BODY = struct.Struct("<I")  # number of the segment that follows
CREATE_BODY = struct.Struct("<Q")  # stream; then the name
DROP_BODY = struct.Struct("<Q")  # stream
# stream, master ID, last ID of the stream after, entries added; then the listpack
OPEN_BODY = struct.Struct("<QQQQQI")
# stream, last ID of the stream after, entries added, listpack elements added; then their bytes
APPEND_BODY = struct.Struct("<QQQII")
NODE_BODY = struct.Struct("<QQQQQI")  # stream, master ID, last ID in it, live entries; listpack
# stream, master ID, version (position) of the node; then the ordinals, u32 each
TOMBSTONE_BODY = struct.Struct("<QQQQ")
TRIM_BODY = struct.Struct("<QQQQQ")  # stream, first and last master ID of the nodes dropped
# stream, length, entries added, last ID, first ID, max deleted ID
RECORD_BODY = struct.Struct("<QQQQQQQQQ")
ADOPT_BODY = struct.Struct("<II")  # segment, number of items
# stream, master ID, last ID, offset, payload bytes, live entries, number of replaced masters;
# then the replaced masters, 16 bytes each
ADOPT_ITEM = struct.Struct("<QQQQQIIII")
MASTER = struct.Struct("<QQ")
ORDINAL = struct.Struct("<I")
DROP_SEGMENT_BODY = struct.Struct("<I")
# stream, group (0: a new one, its number is this frame's position), last delivered ID, entries read
# (-1: not known); then the group's name
GROUP_BODY = struct.Struct("<QQQQq")
GROUP_DROP_BODY = struct.Struct("<QQ")  # stream, group
# group, consumer, seen, active (unix ms, -1: never), 1: it is there, 0: it went; then its name
CONSUMER_BODY = struct.Struct("<QIqqB")
# group, consumer, delivery time (unix ms), last delivered ID after, entries read after,
# 1: not to be acknowledged; then the IDs, 16 bytes each, big endian
DELIVER_BODY = struct.Struct("<QIQQQqB")
ACK_BODY = struct.Struct("<Q")  # group; then the IDs, 16 bytes each, big endian
# group, consumer (0: nobody's, given back), seen, active (unix ms); then items
CLAIM_BODY = struct.Struct("<QIqq")
CLAIM_ITEM = struct.Struct(">QQQQ")  # ID, delivery time (or place in the line), delivery count
SETTING_BODY = struct.Struct("<QQ")  # stream, group (0: the stream's own); then a msgpack map
# stream, idempotent adds and duplicates counted so far, first and last entry ID of what is
# forgotten of all producers, last one of what is forgotten of this producer, bytes of its ID; then
# its ID, then items: entry ID, bytes of the idempotent ID, and that
IDEMPOTENT_BODY = struct.Struct("<QQQQQQQQQH")
IDEMPOTENT_ITEM = struct.Struct("<QQH")
# stream, form; then of form 0 (it is kept) when it is due and its fields and values, each behind
# its length; of forms 1 (added) and 2 (cancelled) the keys
SCHEDULE_BODY = struct.Struct("<QB")
SCHEDULE_DUE = struct.Struct("<Q")  # unix ms
SCHEDULE_PART = struct.Struct("<I")
SCHEDULE_RULE = (1 << 32) - 1  # in the place of the first length: a rule stands before the fields
SCHEDULE_KEY = struct.Struct("<QQ")  # due (unix ms), number: the position of the frame of form 0
EXPIRE_BODY = struct.Struct("<QQ")  # stream, when it expires (unix ms; 0: never)
# stream, 1: what is known is forgotten first, last entry gone through; then items: the digest of a
# key, 16 bytes, and the ID of its newest entry, big endian
LATEST_BODY = struct.Struct("<QBQQ")
LATEST_ITEM_BYTES = 32
TTL_BODY = struct.Struct("<QB")  # stream, form; then, in form 0, TTL_DUE; then IDs, big endian
TTL_DUE = struct.Struct("<Q")  # unix ms
SCHEMA_BODY = struct.Struct("<Q")  # stream; then the text of its schema, empty: none
RENAME_BODY = struct.Struct("<Q")  # stream; then its name from now on
assert GROUP_BODY.size == 40
assert CONSUMER_BODY.size == 29
assert DELIVER_BODY.size == 45
assert CLAIM_BODY.size == 28
assert IDEMPOTENT_BODY.size == 74
assert IDEMPOTENT_ITEM.size == 18
assert OPEN_BODY.size == 44
assert APPEND_BODY.size == 32
assert NODE_BODY.size == 44
assert RECORD_BODY.size == 72
assert ADOPT_ITEM.size == 56

# -- hints: head, then one item a frame (and for all but node data, its payload) -------------------
# Of the second form, appends of a node that is sealed in the same segment may be one item. Of the
# third too, and its items are compressed (zlib). An older logstore takes either for no hint. The
# first form has an item for each frame.
HINT_MAGIC = b"LGSTHNT\x02"
HINT_MAGIC_PLAIN = b"LGSTHNT\x01"
HINT_MAGIC_WHOLE = b"LGSTHNT\x00"
# magic, format version, reserved, segment, role, segment bytes, items, body bytes, store uuid,
# crc of the body bound to all before
HINT_HEAD = struct.Struct("<8sHHIIIII16sI")
assert HINT_HEAD.size == 52
# offset, payload bytes of the frame, commit number, ordinal, crc of the frame, bytes kept here,
# kind, flags
HINT_ITEM = struct.Struct("<IIQIIIBB")
assert HINT_ITEM.size == 30

# -- statistics: head, then msgpack, compressed (zlib) ---------------------------------------------
STATISTICS_MAGIC = b"LGSTSTA\x01"
# magic, format version, reserved, segment, segment bytes, bytes and compressed bytes of the body,
# store uuid, crc of the body bound to all before
STATISTICS_HEAD = struct.Struct("<8sHHIIII16sI")
assert STATISTICS_HEAD.size == 48

# -- checkpoints: head, then chunks ---------------------------------------------------------------
CHECKPOINT_MAGIC = b"LGSTCKP\x00"
# magic, format version, reserved, store uuid, position, commit number, offset of the last frame,
# its crc, chunks, crc of the head
CHECKPOINT_HEAD = struct.Struct("<8sHH16sQQIIII")
assert CHECKPOINT_HEAD.size == 60
CHUNK_HEAD = struct.Struct("<II")  # bytes, crc bound to the head and the chunk's number

# -- pins: head, then msgpack ----------------------------------------------------------------------
PIN_MAGIC = b"LGSTPIN\x00"
PIN_HEAD = struct.Struct("<8sHI")  # magic, format version, crc of the body
assert PIN_HEAD.size == 14

# -- snapshot files beside pins: head, then blocks of items ---------------------------------------
SNAPSHOT_MAGIC = b"LGSTSNP\x00"
# magic, format version, reserved, store uuid, pin, made (unix ms), crc of all before
SNAPSHOT_HEAD = struct.Struct("<8sHI16s16sQI")
assert SNAPSHOT_HEAD.size == 58
# crc, body bytes, name bytes, items, stream, first and last ID that are asked for; the body: the
# stream's name, then the items. The CRC covers what follows it in the head, then the body; its
# start value is that of the block's offset (8 bytes) and the CRC of the file's head.
SNAPSHOT_BLOCK = struct.Struct("<IIIIQQQQQ")
assert SNAPSHOT_BLOCK.size == 56
# position of the node frame (0: the listpack is here), payload or listpack bytes, live entries,
# master ID, last ID, vector bytes; then the vector, then the listpack if it is here
SNAPSHOT_ITEM = struct.Struct("<QIIQQQQI")
assert SNAPSHOT_ITEM.size == 52

# -- positions ------------------------------------------------------------------------------------
POSITION_SEGMENT_BITS = 32
OFFSET_MAX = (1 << 32) - 1


def position(segment: int, offset: int) -> int:
    """Segment and offset as one ordered 64-bit number."""
    return segment << POSITION_SEGMENT_BITS | offset


def segment_of(at: int) -> int:
    """The segment that a position names."""
    return at >> POSITION_SEGMENT_BITS


def offset_of(at: int) -> int:
    """The offset in its segment that a position names."""
    return at & OFFSET_MAX


def start_of_next(applied: int, active_segment: int) -> int:
    """The position where the next commit begins, if the last one ended at ``applied``."""
    if applied >> POSITION_SEGMENT_BITS == active_segment:
        return applied
    return active_segment << POSITION_SEGMENT_BITS | SEGMENT_HEAD_BYTES


def position_parts(at: int) -> tuple[int, int]:
    """The segment and the offset of a position."""
    return at >> POSITION_SEGMENT_BITS, at & OFFSET_MAX
