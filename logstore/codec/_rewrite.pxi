# Several nodes rewritten as one. Pure twin: `rewrite` in edit.py.
#
# Invariants: live entries alone, in their order; nothing of what was deleted stays.

cdef int read_elems(const u8* p, u64 pos, u64 end, int64_t count, Buf* elems) noexcept nogil:
    """The elements from pos on, as Elem structs in elems (grown as they are read)."""
    cdef Elem elem
    cdef int64_t i
    cdef int code
    elems.size = 0
    for i in range(count):
        code = lp_read(p, pos, end, &elem)
        if code == OK:
            code = buf_add(elems, &elem, sizeof(Elem))
        if code != OK:
            return code
        pos = elem.after
    return OK


cdef bint equal_elems(const Elem* a, u64 a_step, const Elem* b, u64 b_step,
                      int64_t count) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        if not same_elem(a + i * a_step, b + i * b_step):
            return False
    return True


ctypedef struct Rewrite:
    Buf out             # the entries
    Buf fields          # Elem of the fields of the node
    Buf first_fields    # Elem of those of the first entry
    Buf part_fields     # Elem of the part's fields
    Buf items           # Elem of the entry's items
    int64_t width       # number of the node's fields
    int64_t live
    int64_t same        # entries that have them
    u64 elements
    u64 master_ms
    u64 master_seq


cdef int rewrite_entry(Rewrite* w, const Master* m, const Entry* e, u64 ms, u64 seq) noexcept nogil:
    cdef const Elem* first = <const Elem*>w.fields.data
    cdef const Elem* names = <const Elem*>w.part_fields.data
    cdef const Elem* values = <const Elem*>w.items.data
    cdef u64 name_step = 1, value_step = 1
    cdef int64_t i
    cdef int code
    cdef bint same
    if not e.flags & SAME_FIELDS:
        names = values
        values = values + 1
        name_step = value_step = 2
    same = e.pairs == w.width and equal_elems(first, 1, names, name_step, e.pairs)
    w.same += same
    code = OK
    for i in range(0 if w.live else e.pairs):
        if code == OK:
            code = buf_add(&w.first_fields, names + i * name_step, sizeof(Elem))
    if code != OK:
        return code
    code = buf_entry_head(&w.out, same, ms - w.master_ms, seq - w.master_seq, e.pairs)
    for i in range(e.pairs):
        if code == OK and not same:
            code = buf_elem(&w.out, names + i * name_step)
        if code == OK:
            code = buf_elem(&w.out, values + i * value_step)
    if code == OK:
        code = buf_entry_tail(&w.out, same, e.pairs)
    w.live += 1
    w.elements += <u64>entry_elements(same, e.pairs) + 1
    return code


cdef int rewrite_part(Rewrite* w, const u8* p, const Master* m, u64 part_ms, u64 part_seq,
                      const u8* vector, u64 vector_bytes) noexcept nogil:
    cdef Entry e
    cdef u64 pos = m.first
    cdef int64_t items
    cdef int code = read_elems(p, m.fields_at, m.end, m.width, &w.part_fields)
    e.ordinal = 0
    while code == OK and pos < m.end:
        code = read_entry(p, pos, m, &e)
        if code != OK:
            return code
        if is_live(&e, vector, vector_bytes):
            items = e.pairs if e.flags & SAME_FIELDS else 2 * e.pairs
            code = read_elems(p, e.body, m.end, items, &w.items)
            if code == OK:
                code = rewrite_entry(w, m, &e, part_ms + <u64>e.ms_diff, part_seq + <u64>e.seq_diff)
        pos = e.after
        e.ordinal += 1
    return code


cdef bytes rewrite_finish(Rewrite* w):
    cdef Buf top
    cdef int64_t i
    if w.live == 0:
        raise ValueError("no live entry is left to rewrite: drop the node instead")
    memset(&top, 0, sizeof(Buf))
    try:
        fail(buf_int(&top, w.live))
        fail(buf_master_head(&top, w.width))
        for i in range(w.width):
            fail(buf_elem(&top, <const Elem*>w.fields.data + i))
        fail(buf_master_tail(&top))
        return lp_finish(w.elements, top.data, top.size, w.out.data, w.out.size, NULL, 0)
    finally:
        buf_free(&top)


cdef int rewrite_parts(Rewrite* w, list parts) except -1:
    """All parts, with the node's fields as they are chosen."""
    cdef Master m
    cdef bytes lp, vector
    cdef u64 part_ms, part_seq
    w.out.size = w.first_fields.size = w.live = w.same = 0
    w.elements = <u64>master_elements(w.width)
    for lp, part_ms, part_seq, vector in parts:
        fail(read_master(data_of(lp), size_of(lp), &m))
        fail(rewrite_part(w, data_of(lp), &m, part_ms, part_seq, data_of(vector), size_of(vector)))
    return 0


def rewrite(parts, u64 master_ms, u64 master_seq):
    cdef Rewrite w
    cdef Master m
    cdef list kept = [tuple(part) for part in parts]    # what `w` points to stands in their nodes
    cdef bytes first
    memset(&w, 0, sizeof(Rewrite))
    w.master_ms = master_ms
    w.master_seq = master_seq
    try:
        if kept:
            first = kept[0][0]
            fail(read_master(data_of(first), size_of(first), &m))
            w.width = m.width
            fail(read_elems(data_of(first), m.fields_at, m.end, m.width, &w.fields))
            rewrite_parts(&w, kept)
            if w.live and not w.same:   # nobody has these: they are of what was deleted
                w.fields, w.first_fields = w.first_fields, w.fields
                w.width = w.fields.size // sizeof(Elem)
                rewrite_parts(&w, kept)
        return rewrite_finish(&w)
    finally:
        buf_free(&w.out)
        buf_free(&w.fields)
        buf_free(&w.first_fields)
        buf_free(&w.part_fields)
        buf_free(&w.items)
