# Walking through macro nodes. Pure twin: the first half of node.py.
#
# Invariants: every offset, length and count of a node is checked before it is used.

cdef enum:
    DELETED = 1
    SAME_FIELDS = 2


ctypedef struct Master:
    int64_t live
    int64_t deleted
    int64_t width       # number of fields
    u64 deleted_at
    u64 width_at
    u64 fields_at
    u64 first
    u64 end


ctypedef struct Entry:
    int64_t ordinal
    int64_t flags
    int64_t ms_diff
    int64_t seq_diff
    int64_t pairs
    u64 at
    u64 flags_after
    u64 body
    u64 after


ctypedef struct Range:
    u64 start_ms
    u64 start_seq
    u64 end_ms
    u64 end_seq


cdef inline const u8* data_of(bytes text) noexcept:
    return <const u8*>PyBytes_AS_STRING(text)


cdef inline u64 size_of(bytes text) noexcept:
    return <u64>PyBytes_GET_SIZE(text)


cdef int read_counter(const u8* p, u64 pos, u64 end, int64_t* number, u64* after) noexcept nogil:
    cdef int code = lp_int(p, pos, end, number, after)
    if code != OK:
        return code
    return OK if number[0] >= 0 and <u64>number[0] <= end else E_COUNTER


cdef int read_counters(const u8* p, u64 total, Master* m) noexcept nogil:
    cdef int code = lp_check(p, total, &m.end)
    if code == OK:
        code = read_counter(p, HEADER_BYTES, m.end, &m.live, &m.deleted_at)
    if code == OK:
        code = read_counter(p, m.deleted_at, m.end, &m.deleted, &m.width_at)
    return code


cdef int read_master(const u8* p, u64 total, Master* m) noexcept nogil:
    cdef int64_t terminator, i
    cdef u64 pos
    cdef int code = read_counters(p, total, m)
    if code == OK:
        code = read_counter(p, m.width_at, m.end, &m.width, &m.fields_at)
    if code != OK:
        return code
    pos = m.fields_at
    for i in range(m.width):
        code = lp_skip(p, pos, m.end, &pos)
        if code != OK:
            return code
    code = lp_int(p, pos, m.end, &terminator, &m.first)
    if code != OK:
        return code
    return OK if terminator == 0 else E_MASTER


cdef inline int read_entry_head(const u8* p, u64 pos, const Master* m, Entry* e) noexcept nogil:
    """All of an entry before its fields and values."""
    cdef int code = lp_int(p, pos, m.end, &e.flags, &e.flags_after)
    e.at = pos
    if code == OK:
        code = lp_int(p, e.flags_after, m.end, &e.ms_diff, &pos)
    if code == OK:
        code = lp_int(p, pos, m.end, &e.seq_diff, &pos)
    if code != OK:
        return code
    if e.flags & SAME_FIELDS:
        e.pairs = m.width
    else:
        code = read_counter(p, pos, m.end, &e.pairs, &pos)
    e.body = pos
    return code


cdef inline int64_t entry_elements(bint same, int64_t width) noexcept nogil:
    """How many elements an entry has before the one that tells it."""
    return width + 3 if same else 2 * width + 4


cdef inline int read_entry_tail(const u8* p, u64 pos, const Master* m, Entry* e) noexcept nogil:
    """What follows an entry's fields and values."""
    cdef int64_t lp_count
    cdef int code = lp_int(p, pos, m.end, &lp_count, &e.after)
    if code != OK:
        return code
    return OK if lp_count == entry_elements(e.flags & SAME_FIELDS, e.pairs) else E_LP_COUNT


cdef inline int skip_items(const u8* p, const Master* m, const Entry* e, u64* after) noexcept nogil:
    """Walk over an entry's fields and values."""
    cdef int64_t i, items = e.pairs if e.flags & SAME_FIELDS else 2 * e.pairs
    cdef u64 pos = e.body
    cdef int code
    for i in range(items):
        code = lp_skip(p, pos, m.end, &pos)
        if code != OK:
            return code
    after[0] = pos
    return OK


cdef inline int read_entry(const u8* p, u64 pos, const Master* m, Entry* e) noexcept nogil:
    """The entry whose flags are at pos; its values are walked over. Sets all but the ordinal."""
    cdef int code = read_entry_head(p, pos, m, e)
    if code == OK:
        code = skip_items(p, m, e, &pos)
    return read_entry_tail(p, pos, m, e) if code == OK else code


cdef int read_entry_before(const u8* p, u64 pos, const Master* m, Entry* e) noexcept nogil:
    """The entry that ends at pos, which is above m.first; e.ordinal is that of the one after."""
    cdef int64_t hops
    cdef u64 start = 0, after = 0
    cdef int code
    e.ordinal -= 1
    if e.ordinal < 0:
        return E_ORDINALS
    code = lp_before(p, pos, m.end, &start)
    if code == OK:
        code = lp_int(p, start, m.end, &hops, &after)
    if code != OK:
        return code
    while hops > 0 and start > m.first:
        code = lp_before(p, start, m.end, &start)
        if code != OK:
            return code
        hops -= 1
    if hops != 0 or start < m.first:
        return E_BACKWARD
    code = read_entry(p, start, m, e)
    if code != OK:
        return code
    return OK if e.after == pos else E_BACKWARD


cdef inline bint is_live(const Entry* e, const u8* vector, u64 vector_bytes) noexcept nogil:
    cdef u64 byte = <u64>e.ordinal >> 3
    if e.flags & DELETED:
        return False
    return byte >= vector_bytes or not (vector[byte] >> (e.ordinal & 7) & 1)


cdef inline bint below(u64 ms, u64 seq, u64 other_ms, u64 other_seq) noexcept nogil:
    return ms < other_ms or (ms == other_ms and seq < other_seq)
