# The bytes of frames of the lane, as log/segment_writer.py and log/frame.py make them.

# a frame: CRC32C, bytes, commit, durable_upto, ordinal, kind, flags, mark
cdef enum:
    CREATE_BODY = 8         # then the name
    APPEND_BODY = 32
    CONSUMER_BODY = 29      # then the name
    DELIVER_BODY = 45
    ACK_BODY = 8
    CLAIM_BODY = 28
    CLAIM_ITEM = 32         # ID, time, count: big endian, as IDs are
    NODE_BODY = 44          # of open frames, too
    RECORD_BODY = 72
    TOMBSTONE_BODY = 32     # then 4 bytes for each ordinal
    MARK_BYTES = 28         # of one that a `Handle` keeps: master ID, version, ordinal
    SEAL_BYTES = 52         # of a sealed node that it keeps: both IDs, entries, position, bytes
    LAST = 1                # a flag: the last frame of its commit
    KIND_CREATE = 2
    KIND_OPEN = 4
    KIND_APPEND = 5
    KIND_NODE = 6
    KIND_TOMBSTONE = 7
    KIND_RECORD = 9
    KIND_CONSUMER = 34
    KIND_DELIVER = 35
    KIND_ACK = 36
    KIND_CLAIM = 37
    MARK = 0xF5A9

cdef struct Append:         # the body of an append frame: 32 bytes, no padding
    uint64_t stream
    uint64_t ms
    uint64_t seq
    uint32_t entries
    uint32_t elements


def layout():
    """Numbers that stand in logstore/format.py too, by the names that they have there."""
    return {
        "FRAME_HEAD_BYTES": HEAD, "FRAME_HEAD_AFTER_CRC": COVERED, "APPEND_BODY": APPEND_BODY,
        "FRAME_FLAG_LAST": LAST, "CREATE": KIND_CREATE, "CREATE_BODY": CREATE_BODY,
        "OPEN": KIND_OPEN, "OPEN_BODY": NODE_BODY, "NODE": KIND_NODE, "NODE_BODY": NODE_BODY,
        "APPEND": KIND_APPEND, "FRAME_MARK": MARK, "TOMBSTONE_BODY": TOMBSTONE_BODY,
        "RECORD_BODY": RECORD_BODY, "DELIVER": KIND_DELIVER, "DELIVER_BODY": DELIVER_BODY,
        "ACK": KIND_ACK, "ACK_BODY": ACK_BODY,
        "CONSUMER": KIND_CONSUMER, "CONSUMER_BODY": CONSUMER_BODY, "CLAIM": KIND_CLAIM,
        "CLAIM_BODY": CLAIM_BODY, "CLAIM_ITEM": CLAIM_ITEM,
    }


cdef inline uint32_t put_head(
    u8* out, u64 at, u64 size, u64 commit, u64 durable, uint32_t seed, uint32_t ordinal, bint last,
    u8 kind
) noexcept nogil:
    """Write the head of a frame of a `kind` whose payload stands behind it; its CRC. `ordinal`: its
    place in its commit, which the `last` one ends."""
    cdef uint32_t crc
    put_32(out + 4, <uint32_t>size)
    put_64(out + 8, commit)
    put_64(out + 16, durable)
    put_32(out + 24, ordinal)
    out[28] = kind
    out[29] = LAST if last else 0
    out[30] = MARK & 0xFF
    out[31] = MARK >> 8
    crc = frame_crc(out, at, size, seed)
    put_32(out, crc)
    return crc


cdef inline void put_body(u8* p, const Append* body) noexcept nogil:
    put_64(p, body.stream)
    put_64(p + 8, body.ms)
    put_64(p + 16, body.seq)
    put_32(p + 24, body.entries)
    put_32(p + 28, body.elements)


cdef inline bint ends_commit(const u8* p) noexcept nogil:
    """Whether a frame is the last of its commit."""
    return p[29] & LAST


cdef inline bint is_frame(const u8* p, u64 left, u64 body_bytes, u8 kind, u64* size) noexcept nogil:
    """Whether bytes of a published log begin with a frame of a `kind`, and a payload of at least so
    many bytes; the bytes of its payload."""
    if left < HEAD + body_bytes or p[28] != kind:
        return False
    size[0] = little(p + 4, 4)
    return size[0] >= body_bytes and size[0] <= left - HEAD


cdef inline bint is_append(const u8* p, u64 left, Append* body, u64* size) noexcept nogil:
    """Whether bytes of a published log begin with an append frame; its body, and the bytes of its
    payload."""
    if not is_frame(p, left, APPEND_BODY, KIND_APPEND, size):
        return False
    body.stream = little(p + HEAD, 8)
    body.ms = little(p + HEAD + 8, 8)
    body.seq = little(p + HEAD + 16, 8)
    body.entries = <uint32_t>little(p + HEAD + 24, 4)
    body.elements = <uint32_t>little(p + HEAD + 28, 4)
    return True
