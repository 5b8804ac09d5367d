# Edits of macro nodes. Pure twin: edit.py.
#
# Invariants: a node is never changed in place; an added entry leaves all bytes but the header and
# the live counter as they are.

from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_ITEM, PySequence_Fast_GET_SIZE

cdef u64 NODE_BYTES_MAX = 1 << 30


cdef object check_flat(object flat, u64* raw_bytes):
    """The flat as a list or tuple, its items checked; raw_bytes is the sum of their lengths."""
    cdef object items = PySequence_Fast(flat, "an entry is a sequence of fields and values")
    cdef Py_ssize_t size = PySequence_Fast_GET_SIZE(items), i
    cdef object item
    if size == 0 or size % 2:
        raise ValueError(f"an entry is one or more field/value pairs, not {size} items")
    raw_bytes[0] = 0
    for i in range(size):
        item = <object>PySequence_Fast_GET_ITEM(items, i)
        if not isinstance(item, bytes):
            raise TypeError(f"fields and values are bytes here, not {type(item).__name__}")
        raw_bytes[0] += <u64>PyBytes_GET_SIZE(item)
    if raw_bytes[0] > ENTRY_BYTES_MAX:
        raise TooLargeError("an entry's fields and values exceed 1 GiB together; split it")
    return items


cdef inline void item_elem(object items, Py_ssize_t i, Elem* elem) noexcept:
    cdef object item = <object>PySequence_Fast_GET_ITEM(items, i)
    elem.is_int = False
    elem.data = <const u8*>PyBytes_AS_STRING(item)
    elem.size = <u64>PyBytes_GET_SIZE(item)


cdef int put_entry(Buf* out, u64 ms_diff, u64 seq_diff, object items, bint same) except -1:
    cdef Py_ssize_t size = PySequence_Fast_GET_SIZE(items), i
    cdef Elem elem
    fail(buf_entry_head(out, same, ms_diff, seq_diff, size // 2))
    for i in range(1 if same else 0, size, 2 if same else 1):
        item_elem(items, i, &elem)
        fail(buf_elem(out, &elem))
    fail(buf_entry_tail(out, same, size // 2))
    return 0


cdef bint has_fields(const u8* p, const Master* m, object items) except -1:
    """True if the items' fields are the master's."""
    cdef Elem stored, given
    cdef u64 pos = m.fields_at
    cdef int64_t i
    if m.width * 2 != PySequence_Fast_GET_SIZE(items):
        return False
    for i in range(m.width):
        fail(lp_read(p, pos, m.end, &stored))
        item_elem(items, 2 * i, &given)
        if not same_elem(&stored, &given):
            return False
        pos = stored.after
    return True


cdef bytes join_node(bytes lp, const Master* m, const u8* added, u64 added_bytes,
                     int64_t entry_count, int64_t element_count):
    """lp with bytes added behind its entries, and the live counter raised."""
    cdef const u8* p = data_of(lp)
    cdef u8 counter[10]
    cdef u64 width = put_int(counter, m.live + entry_count)
    return lp_finish(little(p + 4, 2) + <u64>element_count, counter, width,
                     p + m.deleted_at, m.end - m.deleted_at, added, added_bytes)


def entry_element_count(bytes added not None):
    cdef const u8* p = data_of(added)
    cdef bytes framed = lp_finish(0, p, size_of(added), NULL, 0, NULL, 0)
    cdef u64 end = size_of(framed) - 1, start = 0, after = 0
    cdef int64_t lp_count
    p = data_of(framed)
    fail(lp_before(p, end, end, &start))
    fail(lp_int(p, start, end, &lp_count, &after))
    return lp_count + 1


def new_node(u64 master_ms, u64 master_seq, flat):
    cdef u64 raw_bytes
    cdef object items = check_flat(flat, &raw_bytes)
    cdef Py_ssize_t width = PySequence_Fast_GET_SIZE(items) // 2, i
    cdef Buf out
    cdef Elem elem
    memset(&out, 0, sizeof(Buf))
    try:
        fail(buf_reserve(&out, raw_bytes + 64))
        fail(buf_int(&out, 1))
        fail(buf_master_head(&out, width))
        for i in range(width):
            item_elem(items, 2 * i, &elem)
            fail(buf_elem(&out, &elem))
        fail(buf_master_tail(&out))
        put_entry(&out, 0, 0, items, True)
        return lp_finish(master_elements(width) + entry_elements(True, width) + 1,
                         out.data, out.size, NULL, 0, NULL, 0)
    finally:
        buf_free(&out)


def append(bytes lp not None, u64 master_ms, u64 master_seq, u64 ms, u64 seq, flat):
    cdef Master m
    cdef u64 raw_bytes
    cdef object items = check_flat(flat, &raw_bytes)
    cdef Py_ssize_t size = PySequence_Fast_GET_SIZE(items)
    cdef const u8* p = data_of(lp)
    cdef Buf out
    cdef bint same
    cdef bytes added
    memset(&out, 0, sizeof(Buf))
    fail(read_master(p, size_of(lp), &m))
    same = has_fields(p, &m, items)
    try:
        put_entry(&out, ms - master_ms, seq - master_seq, items, same)
        added = PyBytes_FromStringAndSize(<char*>out.data, out.size)
        joined = join_node(lp, &m, out.data, out.size, 1, entry_elements(same, size // 2) + 1)
        return joined, added
    finally:
        buf_free(&out)


def extend(bytes lp not None, bytes added not None, int64_t entry_count, int64_t element_count):
    cdef Master m
    fail(read_counters(data_of(lp), size_of(lp), &m))
    return join_node(lp, &m, data_of(added), size_of(added), entry_count, element_count)


cdef inline u64 limit_bytes(object node_max_bytes) except? 0:
    return node_max_bytes if 0 < node_max_bytes <= NODE_BYTES_MAX else NODE_BYTES_MAX


cdef inline int64_t limit_entries(object node_max_entries) except? 0:
    return max(0, min(node_max_entries, 1 << 62))


def fits(bytes lp not None, u64 raw_bytes, node_max_bytes, node_max_entries):
    cdef Master m
    fail(read_counters(data_of(lp), size_of(lp), &m))
    return not is_full(size_of(lp) + raw_bytes, m.live + m.deleted, limit_bytes(node_max_bytes),
                       limit_entries(node_max_entries))


cdef bytes set_tombstones(bytes lp, const u8* wanted, u64 left):
    """lp with the left ordinals set in the bitmap made tombstones; the bitmap covers all bytes."""
    cdef Master m
    cdef Entry e
    cdef Buf out
    cdef const u8* p = data_of(lp)
    cdef u64 pos, copied
    cdef int64_t changed = 0
    cdef u8 counters[20]
    cdef u64 width
    fail(read_master(p, size_of(lp), &m))
    memset(&out, 0, sizeof(Buf))
    e.ordinal = 0
    pos = m.first
    copied = m.width_at
    try:
        while pos < m.end and left:
            fail(read_entry(p, pos, &m, &e))
            if wanted[e.ordinal >> 3] >> (e.ordinal & 7) & 1:
                left -= 1
                if not e.flags & DELETED:
                    fail(buf_add(&out, p + copied, e.at - copied))
                    fail(buf_int(&out, e.flags | DELETED))
                    copied = e.flags_after
                    changed += 1
            pos = e.after
            e.ordinal += 1
        if left:
            fail(E_NO_ENTRY)
        if changed > m.live:
            fail(E_COUNTS)
        if changed == 0:
            return lp
        width = put_int(counters, m.live - changed)
        width += put_int(counters + width, m.deleted + changed)
        return lp_finish(little(p + 4, 2), counters, width, out.data, out.size,
                         p + copied, m.end - copied)
    finally:
        buf_free(&out)


def mark_deleted(bytes lp not None, ordinals):
    cdef u64 size = size_of(lp) // 8 + 1, left = 0
    cdef u8* wanted = <u8*>malloc(size)
    cdef u64 ordinal
    if wanted == NULL:
        raise MemoryError
    memset(wanted, 0, size)
    try:
        for number in ordinals:
            if not 0 <= number < size * 8:
                fail(E_NO_ENTRY)
            ordinal = number
            if ordinal >= size * 8:     # what `number` says when it is asked once more
                fail(E_NO_ENTRY)
            if not wanted[ordinal >> 3] >> (ordinal & 7) & 1:
                wanted[ordinal >> 3] |= 1 << (ordinal & 7)
                left += 1
        return set_tombstones(lp, wanted, left)
    finally:
        free(wanted)


def fold(bytes lp not None, bytes vector not None):
    return mark_deleted(lp, [
        8 * i + bit for i, byte in enumerate(vector) for bit in range(8) if byte >> bit & 1
    ]) if any(vector) else lp
