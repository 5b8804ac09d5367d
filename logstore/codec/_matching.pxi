# Entries by the values of their fields. Pure twins: `entries` in node.py, `may_match` in
# node_list.py.
#
# Invariants: conditions point into a list of ours; what does not match is walked over, not decoded.

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t size, const void* text, size_t text_size)


ctypedef struct Condition:
    Elem name
    Elem value
    int64_t slot        # which of the node's fields it is, or -1


cdef void wanted_elem(Elem* elem, bytes text):
    """A text as the element that stands for it; ``data`` is that of ``text``."""
    cdef u64 size = size_of(text)
    elem.data = data_of(text)
    elem.size = size
    elem.is_int = 0 < size <= 20 and elem.data[0] <= 57 and \
        parse_int(elem.data, size, &elem.number)


cdef inline bint may_stand_in(const u8* p, u64 total, const Elem* elem) noexcept nogil:
    """False if no element of the node can be this one. A number may be stored in many ways."""
    return elem.is_int or memmem(p, total, elem.data, elem.size) != NULL


cdef int find_slots(const u8* p, const Master* m, Condition* where,
                    Py_ssize_t count) noexcept nogil:
    """Find the conditions' fields among the node's: of a repeated one the last."""
    cdef Elem elem
    cdef u64 pos = m.fields_at
    cdef int64_t i
    cdef Py_ssize_t k
    cdef int code
    for k in range(count):
        where[k].slot = -1
    for i in range(m.width):
        code = lp_read(p, pos, m.end, &elem)
        if code != OK:
            return code
        for k in range(count):
            if same_elem(&elem, &where[k].name):
                where[k].slot = i
        pos = elem.after
    return OK


cdef int match_same(const u8* p, const Master* m, const Entry* e, const Condition* where,
                    Py_ssize_t count, bint* matches) noexcept nogil:
    """Whether an entry with the node's fields matches; no more of it is read than that takes."""
    cdef Elem elem
    cdef u64 pos
    cdef int64_t i
    cdef Py_ssize_t k
    cdef int code
    matches[0] = False
    for k in range(count):
        if where[k].slot < 0:
            return OK
    for k in range(count):
        pos = e.body
        for i in range(where[k].slot):
            code = lp_skip(p, pos, m.end, &pos)
            if code != OK:
                return code
        code = lp_read(p, pos, m.end, &elem)
        if code != OK:
            return code
        if not same_elem(&elem, &where[k].value):
            return OK
    matches[0] = True
    return OK


cdef int match_own(const u8* p, const Master* m, const Entry* e, const Condition* where,
                   Py_ssize_t count, bint* matches) noexcept nogil:
    """Whether an entry with fields of its own matches."""
    cdef Elem name, value
    cdef u64 pos
    cdef int64_t i
    cdef Py_ssize_t k
    cdef bint equal
    cdef int code
    matches[0] = False
    for k in range(count):
        pos = e.body
        equal = False
        for i in range(e.pairs):
            code = lp_read(p, pos, m.end, &name)
            if code == OK:
                code = lp_read(p, name.after, m.end, &value)
            if code != OK:
                return code
            if same_elem(&name, &where[k].name):
                equal = same_elem(&value, &where[k].value)
            pos = value.after
        if not equal:
            return OK
    matches[0] = True
    return OK


cdef bint may_have(const u8* p, u64 total, Condition* where, Py_ssize_t count) noexcept nogil:
    """False if no entry of the node matches, in whatever interval. True of a damaged one: the
    read that follows says what is wrong."""
    cdef Master m
    cdef Entry e
    cdef Py_ssize_t k
    cdef u64 pos
    cdef int code
    cdef bint matches = False
    for k in range(count):
        if not may_stand_in(p, total, &where[k].name) or \
                not may_stand_in(p, total, &where[k].value):
            return False
    if read_master(p, total, &m) != OK or find_slots(p, &m, where, count) != OK:
        return True
    e.ordinal = 0
    pos = m.first
    while pos < m.end:
        if read_entry(p, pos, &m, &e) != OK:
            return True
        pos = e.after
        if e.flags & SAME_FIELDS:
            code = match_same(p, &m, &e, where, count, &matches)
        else:
            code = match_own(p, &m, &e, where, count, &matches)
        if code != OK or (matches and is_live(&e, NULL, 0)):
            return True
    return False


cdef list matching(NodeWalk* w, Condition* where, Py_ssize_t count, Py_ssize_t limit):
    """The entries of a walk that match, at most so many (-1: all)."""
    cdef list found = [], fields = None
    cdef bint matches = False
    fail(find_slots(w.p, &w.m, where, count))
    while len(found) != limit and walk_on(w):
        if w.e.flags & SAME_FIELDS:
            fail(match_same(w.p, &w.m, &w.e, where, count, &matches))
        else:
            fail(match_own(w.p, &w.m, &w.e, where, count, &matches))
        if matches:
            if fields is None:
                fields = read_fields(w.p, &w.m)
            found.append((w.e.ordinal, w.ms, w.seq, read_flat(w.p, &w.m, &w.e, fields)))
    return found


cdef Condition* conditions_of(list where) except NULL:
    """The conditions of names and values, which point into these; to be freed."""
    cdef Py_ssize_t count = len(where) // 2, k
    cdef Condition* found = <Condition*>malloc((count + 1) * sizeof(Condition))
    if found == NULL:
        raise MemoryError
    try:
        for k in range(count):
            wanted_elem(&found[k].name, <bytes?>where[2 * k])
            wanted_elem(&found[k].value, <bytes?>where[2 * k + 1])
    except:
        free(found)
        raise
    return found


cdef list entries_where(bytes lp, u64 master_ms, u64 master_seq, bytes vector, start, end,
                        Py_ssize_t limit, bint reverse, list where):
    """As of `entries`, of those that match."""
    cdef list kept = list(where)        # the conditions point into these
    cdef Py_ssize_t count = len(kept) // 2, k
    cdef Condition* conditions
    cdef Range r
    cdef NodeWalk w
    if limit == 0:
        return []
    set_range(&r, start, end)
    conditions = conditions_of(kept)
    try:
        for k in range(count):
            if not may_stand_in(data_of(lp), size_of(lp), &conditions[k].name) or \
                    not may_stand_in(data_of(lp), size_of(lp), &conditions[k].value):
                return []
        walk_node(&w, lp, master_ms, master_seq, vector, reverse)
        w.r = r
        return matching(&w, conditions, count, limit)
    finally:
        free(conditions)


def may_match(bytes items not None, u64 at, bytes data not None, u64 position, u64 stream,
              uint32_t seed, list where not None, list found not None):
    cdef list kept = list(where)        # the conditions point into these
    cdef Py_ssize_t count = len(kept) // 2
    cdef Condition* conditions
    cdef Located item
    cdef u64 size = size_of(data), from_here, end = size_of(items)
    cdef const u8* frame
    if at > end:
        raise ValueError("items begin inside of the bytes")
    conditions = conditions_of(kept)
    try:
        while read_item(data_of(items), at, end, &item):
            from_here = item.position - position
            if item.position < position or from_here > size or \
                    size - from_here < FRAME_BYTES + item.size:
                break
            frame = data_of(data) + from_here
            if not is_its_frame(frame, &item, stream, seed) or \
                    may_have(frame + FRAME_BYTES + NODE_HEAD_BYTES, item.size - NODE_HEAD_BYTES,
                             conditions, count):
                found.append(at)        # of a damaged one, the read says what is wrong
            at = item.after
        return at
    finally:
        free(conditions)
