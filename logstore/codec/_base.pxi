# What all parts use: the codes of errors, and the growing buffer that writers write to.
#
# Invariants: a C function returns 0 or one of these codes and never raises; `fail` turns a code
# into its error, under the interpreter's lock.

ctypedef uint8_t u8
ctypedef uint64_t u64

cdef enum:
    HEADER_BYTES = 6
    END_BYTE = 0xFF
    COUNT_UNKNOWN = 0xFFFF
    INT_BYTES_MAX = 10      # an integer element, with its backlen
    FRAME_BYTES_MAX = 10    # what a string element has besides its data
    ID_BYTES = 16           # of an ID in a key

cdef enum:
    OK = 0
    E_MEMORY = -1
    E_LARGE = -2
    E_SHORT = -3
    E_TOTAL = -4
    E_END = -5
    E_OVERRUN = -6
    E_ENCODING = -7
    E_BACKLEN = -8
    E_NOT_INT = -9
    E_COUNTER = -10
    E_MASTER = -11
    E_LP_COUNT = -12
    E_BACKWARD = -13
    E_ORDINALS = -14
    E_EMPTY = -15
    E_ORDER = -16
    E_COUNTS = -17
    E_ELEMENTS = -18
    E_NO_ENTRY = -19
    E_COLUMN = -20
    E_NAME = -21        # of columns alone, which say it by themselves

cdef u64 TOTAL_MAX = 0xFFFFFFFF
cdef u64 ENTRY_BYTES_MAX = 1 << 30

cdef dict _MESSAGES = {
    E_SHORT: "the listpack is too short to be one",
    E_TOTAL: "the listpack's header tells a wrong number of bytes",
    E_END: "the listpack does not end with 0xFF",
    E_OVERRUN: "an element runs past the end of the listpack",
    E_ENCODING: "no element begins so",
    E_BACKLEN: "an element has a wrong back length",
    E_NOT_INT: "an element must be an integer and is not",
    E_COUNTER: "the node cannot hold as many as one of its counters says",
    E_MASTER: "the node's master fields do not end with 0",
    E_LP_COUNT: "an entry says a wrong number of elements",
    E_BACKWARD: "no element or entry ends where one should",
    E_ORDINALS: "the node has not as many entries as its counters say",
    E_EMPTY: "the node has no entry",
    E_ORDER: "an entry of the node is not above the one before",
    E_COUNTS: "the node's counters are not those of its entries",
    E_ELEMENTS: "the listpack's header tells a wrong number of elements",
    E_NO_ENTRY: "the node has no such entry that could be deleted",
}


cdef int fail(int code) except -1:
    """Raise the error of a code; 0 passes."""
    if code == OK:
        return 0
    if code == E_MEMORY:
        raise MemoryError
    if code == E_LARGE:
        raise TooLargeError("a node, entry or value is larger than a listpack can be; split it")
    if code == E_COLUMN:
        raise TooLargeError("a column would pass 2 GiB; finish the batch before this node")
    raise CorruptNodeError(_MESSAGES[code])


ctypedef struct Buf:
    u8* data
    u64 size
    u64 room


cdef inline void put_64(u8* p, u64 value) noexcept nogil:
    cdef int i
    for i in range(8):
        p[i] = <u8>(value >> (8 * i))


cdef inline void put_32(u8* p, u64 value) noexcept nogil:
    cdef int i
    for i in range(4):
        p[i] = <u8>(value >> (8 * i))


cdef inline void put_big(u8* p, u64 value) noexcept nogil:
    cdef int i
    for i in range(8):
        p[7 - i] = <u8>(value >> (8 * i))


cdef inline u64 big(const u8* p) noexcept nogil:
    return (<u64>p[0] << 56 | <u64>p[1] << 48 | <u64>p[2] << 40 | <u64>p[3] << 32
            | <u64>p[4] << 24 | <u64>p[5] << 16 | <u64>p[6] << 8 | <u64>p[7])


cdef int buf_reserve(Buf* buf, u64 more) noexcept nogil:
    cdef u64 room
    cdef u8* data
    if buf.room - buf.size >= more:
        return OK
    room = buf.room + (buf.room >> 1)
    if room < buf.size + more:
        room = buf.size + more
    if room < 256:
        room = 256
    data = <u8*>realloc(buf.data, room)
    if data == NULL:
        return E_MEMORY
    buf.data = data
    buf.room = room
    return OK


cdef inline int buf_room(Buf* buf, u64 more) noexcept nogil:
    """As `buf_reserve`; without a call where there is room."""
    return OK if buf.room - buf.size >= more else buf_reserve(buf, more)


cdef inline void copy_few(u8* out, const u8* data, u64 size) noexcept nogil:
    """As `memcpy`, of what does not overlap; few bytes without a call, each perhaps twice."""
    if size > 16:
        memcpy(out, data, size)
    elif size >= 8:
        memcpy(out, data, 8)
        memcpy(out + size - 8, data + size - 8, 8)
    elif size >= 4:
        memcpy(out, data, 4)
        memcpy(out + size - 4, data + size - 4, 4)
    elif size:
        out[0] = data[0]
        out[size >> 1] = data[size >> 1]
        out[size - 1] = data[size - 1]


cdef int buf_add(Buf* buf, const void* data, u64 size) noexcept nogil:
    if buf_reserve(buf, size) != OK:
        return E_MEMORY
    if size:
        memcpy(buf.data + buf.size, data, size)
    buf.size += size
    return OK


cdef void buf_free(Buf* buf) noexcept nogil:
    free(buf.data)
    buf.data = NULL
    buf.size = buf.room = 0
