# An entry by its ID, and the entries of an interval.

cdef enum:
    NODES_MAX = 64          # of a batch, as `streams.read` has them
    BYTES_MAX = 1 << 20

cdef enum:                  # what a step came to
    NO_NODE = 0             # the walk is over
    SEALED = 1
    MISSING = 2


def limits_of_reading():
    """Bounds of a batch, by the names that they have in ``streams.read``."""
    return {"NODES_MAX": NODES_MAX, "BYTES_MAX": BYTES_MAX}


cdef object entry_of(Stream s, Reader r, view, id, u64 ms, u64 seq, maker):
    """The entry with an ID, made; None if there is none; MISS. `view`: a snapshot; None: what is
    kept."""
    cdef Page page
    cdef Slot slot
    cdef Node n
    cdef bytes lp, vector
    cdef Py_ssize_t place
    if (not s.length or below(ms, seq, s.first_ms, s.first_seq)
            or below(s.last_ms, s.last_seq, ms, seq)):
        return None
    if s.is_open and not below(ms, seq, s.open_ms, s.open_seq):
        return open_entry(s, r, view, id, ms, seq, maker)
    page = s.page_at(ms, seq)
    if page is None:
        page = None if view is None else r.load(s, view, ms, seq, False)
        if page is None:
            return MISSED
    place = page.floor(ms, seq)
    if place < 0:           # the first entry is not above this one, so there is a node for it
        return MISSED
    slot = page.slots[place]
    if below(slot.last_ms, slot.last_seq, ms, seq) or not slot.live:
        return None
    vector = page.vector(place)
    n = r.node_of(s, slot)
    if n is None:
        return MISSED
    if n.used:
        return r.nodes.finder_of(n, vector, slot.live).find(ms, seq, maker)
    found = maker.entries(n.lp, slot.ms, slot.seq, vector, id, id, 1, False)
    return found[0] if found else None


cdef object open_entry(Stream s, Reader r, view, id, u64 ms, u64 seq, maker):
    """The same of one that stands in the open node, or nowhere."""
    cdef u64 master_ms = s.open_ms, master_seq = s.open_seq
    cdef bytes lp = s.open_listpack()
    if lp is None and view is not None:
        lp = r.load_open(s, view)
    if lp is None:
        return MISSED
    finder = s.finder
    if finder is None or s.lp is not lp:
        if not s.seen or s.lp is not lp:
            if s.lp is lp:
                s.seen = True
            found = maker.entries(lp, master_ms, master_seq, b"", id, id, 1, False)
            return found[0] if found else None
        finder = _codec().NodeFinder(lp, master_ms, master_seq)
        if s.lp is lp:
            s.finder = finder
    return finder.find(ms, seq, maker)


@cython.final
@cython.no_gc
cdef class Walk:
    """The sealed nodes of an interval, in order."""

    cdef Stream s
    cdef Reader r
    cdef object view
    cdef u64 low_ms, low_seq, high_ms, high_seq     # both ends are included
    cdef u64 at_ms, at_seq  # the ID by which the next page is looked up
    cdef bint reverse
    cdef bint over          # no node behind this one may hold one
    cdef Page page          # where the walk is; None: to be looked up
    cdef Py_ssize_t place   # in the page

    cdef int next(self) except -1:
        """Go on to the next node that may hold IDs of the interval."""
        cdef Slot* slot
        while not self.over:
            if self.page is not None:
                self.place += -1 if self.reverse else 1
            elif not self.turn_to_page():
                return MISSING
            if not 0 <= self.place < self.page.size:
                if not self.leave_page():
                    return NO_NODE
                continue
            slot = self.page.slots + self.place
            if self.reverse:    # one that begins at the low end, or below, is the first of all
                self.over = not below(self.low_ms, self.low_seq, slot.ms, slot.seq)
            elif below(self.high_ms, self.high_seq, slot.ms, slot.seq):
                return NO_NODE
            if not below(slot.last_ms, slot.last_seq, self.low_ms, self.low_seq):
                return SEALED
        return NO_NODE

    cdef bint turn_to_page(self) except -1:
        """Look up the page of the next node; False: it is not kept, or is odd."""
        page = self.s.page_at(self.at_ms, self.at_seq)
        if page is None and self.view is not None:
            page = self.r.load(self.s, self.view, self.at_ms, self.at_seq, self.reverse)
        if page is None:
            return False
        self.page = page
        self.place = self.page.floor(self.at_ms, self.at_seq)
        if self.place < 0 and not self.reverse:
            self.place = 0
        return True

    cdef bint leave_page(self) noexcept:
        """Go on beyond the page; False: there is nothing of the interval."""
        cdef Page page = self.page
        if self.reverse:
            if page.from_start or not page.size:
                return False
            self.at_ms, self.at_seq = page.slots[0].ms, page.slots[0].seq
            if not self.at_seq:
                if not self.at_ms:
                    return False
                self.at_ms -= 1
            self.at_seq -= 1
        else:
            if page.to_end or below(self.high_ms, self.high_seq, page.high_ms, page.high_seq):
                return False
            self.at_ms, self.at_seq = page.high_ms, page.high_seq
        self.page = None
        return True


cdef tuple entries_of(Stream s, Reader r, view, start, end, Py_ssize_t limit, bint reverse, decode):
    """Entries of an interval, where to go on, and how many were met; None: it is a miss."""
    cdef Walk w = Walk.__new__(Walk)
    cdef Slot slot
    cdef Node n
    cdef list entries = []
    cdef bytes lp, open_lp = None, vector
    cdef int64_t live = 0, open_live = 0
    cdef u64 open_ms = s.open_ms, open_seq = s.open_seq
    cdef int found
    cdef Py_ssize_t count = 0, size = 0
    w.s, w.r, w.view, w.reverse = s, r, view, reverse
    w.low_ms, w.low_seq = start
    w.high_ms, w.high_seq = end
    w.at_ms, w.at_seq = (w.high_ms, w.high_seq) if reverse else (w.low_ms, w.low_seq)
    if s.is_open and not below(w.high_ms, w.high_seq, open_ms, open_seq):
        open_lp = s.open_listpack()
        if open_lp is None and view is not None:
            open_lp = r.load_open(s, view)
        if open_lp is None:
            return None
        open_live = _codec().counts(open_lp)[0]
    cdef bint at_open = open_lp is not None and reverse     # the last node is the first in reverse
    while True:
        if at_open:
            slot.ms, slot.seq, slot.live = open_ms, open_seq, <uint32_t>open_live
        else:
            found = w.next()
            if found == MISSING:
                return None
            if found == SEALED:
                slot = w.page.slots[w.place]
            elif reverse or open_lp is None:
                return entries, None, live
            else:
                at_open = True
                continue
        if slot.live:
            # in reverse the open node is not behind others
            if count >= NODES_MAX or size >= BYTES_MAX:
                if reverse:
                    return entries, _StreamID(slot.last_ms, slot.last_seq), -1
                return entries, _StreamID(slot.ms, slot.seq), -1
            lp, vector = open_lp, b""
            if not at_open:
                n = r.node_of(s, slot)
                if n is None:
                    return None
                lp, vector = n.lp, w.page.vector(w.place)
            made = decode(lp, slot.ms, slot.seq, vector, start, end,
                          -1 if limit < 0 else limit - len(entries), reverse)
            if entries:
                entries += made     # of this call alone
            else:
                entries = made
            if 0 <= limit <= len(entries):
                return entries, None, -1
            live += slot.live
            count += 1
            size += size_of(lp)
        if at_open:
            if not reverse:
                return entries, None, live
            at_open = False
