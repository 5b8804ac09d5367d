# Rows of pending entries, as runs store them: for _pending_run.pxi, and for what the lane holds.
#
# Invariants: a stored run is laid out as pending_run.py says, a column after the other.

cdef enum:
    PENDING_MAX = 128       # entries of a run
    PENDING_BYTES = 36      # of one, as a run is stored


ctypedef struct Pending:
    u64 ms
    u64 seq
    u64 time_ms
    u64 count
    uint32_t consumer


cdef Py_ssize_t pending_place(const Pending* rows, Py_ssize_t count, u64 ms,
                              u64 seq) noexcept nogil:
    """Where an ID stands among rows that ascend, or would stand."""
    cdef Py_ssize_t low = 0, high = count, middle
    if high and below(rows[high - 1].ms, rows[high - 1].seq, ms, seq):
        return high
    while low < high:
        middle = (low + high) >> 1
        if below(rows[middle].ms, rows[middle].seq, ms, seq):
            low = middle + 1
        else:
            high = middle
    return low


cdef inline bint is_at(const Pending* rows, Py_ssize_t count, Py_ssize_t place, u64 ms,
                       u64 seq) noexcept nogil:
    """Whether the ID stands in this place."""
    return place < count and rows[place].ms == ms and rows[place].seq == seq


cdef u64 stored_bytes(u64 count) noexcept nogil:
    """Bytes of a run of so many entries."""
    return 4 + count * PENDING_BYTES


cdef bytes pack_pending(const Pending* rows, u64 count):
    """A run as it is stored: the number of its entries, then IDs, consumers, times and counts."""
    cdef bytes made = PyBytes_FromStringAndSize(NULL, stored_bytes(count))
    cdef u8* ids = <u8*>PyBytes_AS_STRING(made) + 4
    cdef u8* consumers = ids + count * ID_BYTES
    cdef u8* times = consumers + count * 4
    cdef u8* counts = times + count * 8
    cdef u64 i
    put_32(ids - 4, count)
    for i in range(count):
        put_big(ids + i * ID_BYTES, rows[i].ms)
        put_big(ids + i * ID_BYTES + 8, rows[i].seq)
        put_32(consumers + i * 4, rows[i].consumer)
        put_64(times + i * 8, rows[i].time_ms)
        put_64(counts + i * 8, rows[i].count)
    return made


cdef void read_pending(const u8* stored, Pending* rows, u64 count) noexcept nogil:
    """Read the rows of a run that is stored, of which there are so many."""
    cdef const u8* ids = stored + 4
    cdef u64 i
    for i in range(count):
        rows[i].ms, rows[i].seq = big(ids + i * ID_BYTES), big(ids + i * ID_BYTES + 8)
        rows[i].consumer = <uint32_t>little(ids + count * ID_BYTES + i * 4, 4)
        rows[i].time_ms = little(ids + count * (ID_BYTES + 4) + i * 8, 8)
        rows[i].count = little(ids + count * (ID_BYTES + 12) + i * 8, 8)


cdef bytes pack_id(u64 ms, u64 seq):
    """An ID as it stands in a key."""
    cdef bytes made = PyBytes_FromStringAndSize(NULL, ID_BYTES)
    put_big(<u8*>PyBytes_AS_STRING(made), ms)
    put_big(<u8*>PyBytes_AS_STRING(made) + 8, seq)
    return made
