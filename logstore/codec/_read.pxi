# What is read from a node. Pure twin: the second half of node.py.
#
# Invariants: nothing of what is given is kept; objects are made of what was checked.

cdef list read_fields(const u8* p, const Master* m):
    cdef Elem elem
    cdef list fields = []
    cdef u64 pos = m.fields_at
    cdef int64_t i
    for i in range(m.width):
        fail(lp_read(p, pos, m.end, &elem))
        fields.append(elem_bytes(&elem))
        pos = elem.after
    return fields


cdef list read_flat(const u8* p, const Master* m, const Entry* e, list fields):
    cdef Elem elem
    cdef list flat = []
    cdef u64 pos = e.body
    cdef int64_t i
    if e.flags & SAME_FIELDS:
        for i in range(e.pairs):
            fail(lp_read(p, pos, m.end, &elem))
            flat.append(fields[i])
            flat.append(elem_bytes(&elem))
            pos = elem.after
    else:
        for i in range(2 * e.pairs):
            fail(lp_read(p, pos, m.end, &elem))
            flat.append(elem_bytes(&elem))
            pos = elem.after
    return flat


def head(bytes lp not None):
    cdef Master m
    cdef const u8* p = data_of(lp)
    fail(read_master(p, size_of(lp), &m))
    return NodeHead(m.live, m.deleted, read_fields(p, &m), m.first)


def counts(bytes lp not None):
    cdef Master m
    fail(read_counters(data_of(lp), size_of(lp), &m))
    return m.live, m.deleted


def last_id(bytes lp not None, u64 master_ms, u64 master_seq):
    cdef Master m
    cdef Entry e
    cdef const u8* p = data_of(lp)
    fail(read_master(p, size_of(lp), &m))
    if m.end <= m.first:
        fail(E_EMPTY)
    e.ordinal = m.live + m.deleted
    fail(read_entry_before(p, m.end, &m, &e))
    return master_ms + <u64>e.ms_diff, master_seq + <u64>e.seq_diff


ctypedef struct NodeWalk:       # along the live entries of an interval, from one to the next
    const u8* p             # the node
    const u8* vector
    u64 vector_bytes
    Master m
    Entry e                 # the entry where it stands
    u64 pos                 # where the next one begins, or ends
    u64 master_ms
    u64 master_seq
    u64 ms                  # the entry's ID
    u64 seq
    Range r
    bint reverse


cdef int walk_node(NodeWalk* w, bytes lp, u64 master_ms, u64 master_seq, bytes vector,
                   bint reverse) except -1:
    """Begin to walk along all of a node, which, as the vector, the caller keeps."""
    w.p, w.vector, w.vector_bytes = data_of(lp), data_of(vector), size_of(vector)
    w.master_ms, w.master_seq, w.reverse = master_ms, master_seq, reverse
    w.r.start_ms = w.r.start_seq = 0
    w.r.end_ms = w.r.end_seq = <u64>-1
    fail(read_master(w.p, size_of(lp), &w.m))
    w.e.ordinal = w.m.live + w.m.deleted if reverse else -1
    w.pos = w.m.end if reverse else w.m.first
    return 0


cdef bint walk_on(NodeWalk* w) except -1:
    """Go to the next entry; False: there is none. What it passes is read, and checked."""
    cdef bint low, high
    while w.pos > w.m.first if w.reverse else w.pos < w.m.end:
        if w.reverse:
            fail(read_entry_before(w.p, w.pos, &w.m, &w.e))
            w.pos = w.e.at
        else:
            w.e.ordinal += 1
            fail(read_entry(w.p, w.pos, &w.m, &w.e))
            w.pos = w.e.after
        if not is_live(&w.e, w.vector, w.vector_bytes):
            continue
        w.ms = w.master_ms + <u64>w.e.ms_diff
        w.seq = w.master_seq + <u64>w.e.seq_diff
        low = below(w.ms, w.seq, w.r.start_ms, w.r.start_seq)
        high = below(w.r.end_ms, w.r.end_seq, w.ms, w.seq)
        if low if w.reverse else high:
            return False
        if not (low or high):
            return True
    if w.reverse and w.e.ordinal != 0:
        fail(E_ORDINALS)
    return False


def last_live_id(bytes lp not None, u64 master_ms, u64 master_seq, bytes vector not None=b""):
    cdef NodeWalk w
    walk_node(&w, lp, master_ms, master_seq, vector, True)
    return (w.ms, w.seq) if walk_on(&w) else None


def first_live_id(bytes lp not None, u64 master_ms, u64 master_seq, bytes vector not None=b""):
    cdef NodeWalk w
    walk_node(&w, lp, master_ms, master_seq, vector, False)
    return (w.ms, w.seq) if walk_on(&w) else None


cdef int set_range(Range* r, object start, object end) except -1:
    r.start_ms, r.start_seq = start
    r.end_ms, r.end_seq = end
    return 0


def entries(bytes lp not None, u64 master_ms, u64 master_seq, bytes vector not None=b"",
            start=ZERO_ID, end=MAX_ID, Py_ssize_t limit=-1, bint reverse=False, list where=None):
    if where is not None:
        return entries_where(lp, master_ms, master_seq, vector, start, end, limit, reverse, where)
    return entries_in(lp, master_ms, master_seq, vector, start, end, limit, reverse, NULL)


ctypedef struct Replies:    # what is made of entries
    Buf made                # their replies, one behind the other
    Buf ids                 # theirs, packed, if these are wanted
    Buf names               # of the node's fields: a size, then a bulk string
    bint packs
    u64 ms                  # of the last one
    u64 seq


cdef list entries_in(bytes lp, u64 master_ms, u64 master_seq, bytes vector, start, end,
                     Py_ssize_t limit, bint reverse, Replies* replies):
    """As of `entries`; where `replies` is given, all go there, and the list has a None for each."""
    cdef NodeWalk w
    cdef list found = [], fields = []
    if limit == 0:
        return found
    walk_node(&w, lp, master_ms, master_seq, vector, reverse)
    set_range(&w.r, start, end)
    if replies == NULL:
        fields = read_fields(w.p, &w.m)
    else:
        fail(put_names(&replies.names, w.p, &w.m))
    while len(found) != limit and walk_on(&w):
        if replies == NULL:
            found.append((w.e.ordinal, w.ms, w.seq, read_flat(w.p, &w.m, &w.e, fields)))
        else:
            fail(put_reply(replies, w.p, &w.m, &w.e, w.ms, w.seq))
            found.append(None)
    return found


def ids(bytes lp not None, u64 master_ms, u64 master_seq, bytes vector not None=b""):
    cdef NodeWalk w
    cdef list found = []
    walk_node(&w, lp, master_ms, master_seq, vector, False)
    while walk_on(&w):
        found.append((w.e.ordinal, w.ms, w.seq))
    return found


def find(bytes lp not None, u64 master_ms, u64 master_seq, u64 ms, u64 seq,
         bytes vector not None=b""):
    cdef NodeWalk w
    walk_node(&w, lp, master_ms, master_seq, vector, False)
    w.r.start_ms, w.r.start_seq = ms, seq
    return w.e.ordinal if walk_on(&w) and w.ms == ms and w.seq == seq else -1


ctypedef struct Survey:
    int64_t live
    u64 first_ms, first_seq         # of the first live entry
    u64 last_ms, last_seq           # of the last live entry
    u64 end_ms, end_seq             # of the last entry


cdef int survey_node(
    const u8* p, u64 total, u64 master_ms, u64 master_seq, Survey* found
) noexcept nogil:
    cdef Master m
    cdef Entry e
    cdef u64 pos, ms, seq, elements, stored
    cdef int64_t live = 0, deleted = 0
    cdef int code = read_master(p, total, &m)
    if code != OK:
        return code
    elements = <u64>m.width + 4
    pos = m.first
    while pos < m.end:
        code = read_entry(p, pos, &m, &e)
        if code != OK:
            return code
        pos = e.after
        elements += <u64>(e.pairs + 4 if e.flags & SAME_FIELDS else 2 * e.pairs + 5)
        ms = master_ms + <u64>e.ms_diff
        seq = master_seq + <u64>e.seq_diff
        found.end_ms = ms
        found.end_seq = seq
        if e.flags & DELETED:
            deleted += 1
            continue
        if live == 0:
            found.first_ms = ms
            found.first_seq = seq
        elif not below(found.last_ms, found.last_seq, ms, seq):
            return E_ORDER
        found.last_ms = ms
        found.last_seq = seq
        live += 1
    found.live = live
    if live != m.live or deleted != m.deleted:
        return E_COUNTS
    if live + deleted == 0:
        return E_EMPTY
    stored = little(p + 4, 2)
    return OK if stored == COUNT_UNKNOWN or stored == elements else E_ELEMENTS


def validate(bytes lp not None, u64 master_ms, u64 master_seq):
    cdef Survey found
    fail(survey_node(data_of(lp), size_of(lp), master_ms, master_seq, &found))


def survey(bytes lp not None, u64 master_ms, u64 master_seq):
    cdef Survey found
    fail(survey_node(data_of(lp), size_of(lp), master_ms, master_seq, &found))
    cdef object first = (found.first_ms, found.first_seq) if found.live else None
    cdef object last = (found.last_ms, found.last_seq) if found.live else None
    return NodeSurvey(found.live, first, last, (found.end_ms, found.end_seq))
