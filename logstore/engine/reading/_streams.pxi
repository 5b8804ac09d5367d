# What is kept of a stream: its record, its open node, pages of its sealed ones.

cdef enum:
    STREAM_COST = 700       # of a stream, with its record
    OPEN_MAX_BYTES = 1 << 18
    ADDED_MAX = 1000        # append frames that wait to be put behind an open node


@cython.final
@cython.no_gc
cdef class Stream:
    """A stream as it is at a position."""

    cdef bytes name
    cdef u64 number, at
    cdef int64_t forgets    # of the reader, when it was loaded
    # as it was loaded: entries that were added since are in what stands below
    cdef object record
    cdef u64 length, added, position, expires_ms
    cdef u64 first_ms, first_seq, last_ms, last_seq
    cdef u64 gone_ms, gone_seq  # the largest ID that was ever deleted
    cdef bint is_open       # it has an open node, of this version, which begins with this ID
    cdef u64 open_version, open_ms, open_seq
    cdef bytes lp           # of the open node; None: it was not loaded, or is large
    cdef bint large
    # listpack bytes that belong behind it, and how many entries and elements
    cdef list appended
    cdef int64_t entries, elements
    cdef u64 appended_bytes
    cdef list gone          # places of entries that are to be marked as deleted in it, with these
    cdef u64 deletes        # counts frames that took something away
    cdef object finder      # of an open node that was looked into before
    cdef bint seen
    cdef Py_ssize_t counted     # what it was counted with when it was kept
    cdef Py_ssize_t pages_cost
    cdef list pages         # by the IDs that they cover, which do not overlap
    cdef bint stale         # frames came that change more than its end: only its pages are true

    cdef int take(self, record) except -1:
        """Be the stream of this record."""
        self.record = record
        self.name, self.number = record.name, record.number
        self.length, self.position, self.added = record.length, record.position, 0
        self.expires_ms = record.expires_ms
        self.first_ms, self.first_seq = record.first
        self.last_ms, self.last_seq = record.last
        self.gone_ms, self.gone_seq = record.max_deleted
        self.open_version = record.open_version
        self.is_open = self.open_version != 0
        self.open_ms, self.open_seq = record.open_master
        return 0

    cdef Stream copy(self):
        """Another one with the same, which may be changed."""
        cdef Stream made = Stream.__new__(Stream)
        made.name, made.number, made.at, made.record = self.name, self.number, self.at, self.record
        made.length, made.added, made.position = self.length, self.added, self.position
        made.expires_ms = self.expires_ms
        made.first_ms, made.first_seq = self.first_ms, self.first_seq
        made.last_ms, made.last_seq = self.last_ms, self.last_seq
        made.gone_ms, made.gone_seq, made.deletes = self.gone_ms, self.gone_seq, self.deletes
        made.is_open, made.open_ms, made.open_seq = self.is_open, self.open_ms, self.open_seq
        made.open_version = self.open_version
        made.gone = None if self.gone is None else list(self.gone)
        made.lp, made.large, made.finder, made.seen = self.lp, self.large, self.finder, self.seen
        made.appended = None if self.appended is None else list(self.appended)
        made.entries, made.elements = self.entries, self.elements
        made.appended_bytes, made.pages_cost = self.appended_bytes, self.pages_cost
        made.pages = list(self.pages)
        return made

    cdef Py_ssize_t cost(self):
        """Bytes that it takes, about."""
        cdef Py_ssize_t total = STREAM_COST + 2 * len(self.name) + self.pages_cost
        if self.lp is not None:
            total += 2 * size_of(self.lp)
        return total

    # -- its end -----------------------------------------------------------------------------------
    cdef bint append(self, const u8* body, u64 size, u64 position) except -1:
        """Be as an append frame leaves it; False: it cannot follow, and is to be loaded anew."""
        cdef uint32_t entries = <uint32_t>little(body + 24, 4)
        if not self.is_open or position < self.position:
            return False
        self.length += entries
        self.added += entries
        self.position = position
        self.last_ms, self.last_seq = little(body + 8, 8), little(body + 16, 8)
        if self.lp is None:
            return True
        if self.appended is None:
            self.appended, self.entries, self.elements, self.appended_bytes = [], 0, 0, 0
        self.appended_bytes += size
        if size_of(self.lp) + self.appended_bytes > OPEN_MAX_BYTES:
            self.forget_open()
            self.large = True
            return True
        if len(self.appended) >= ADDED_MAX:     # nobody looks into it
            self.forget_open()
            return True
        self.appended.append(PyBytes_FromStringAndSize(<const char*>body + APPEND_BODY,
                                                       size - APPEND_BODY))
        self.entries += entries
        self.elements += <int64_t>little(body + 28, 4)
        return True

    cdef int forget_open(self) except -1:
        """Keep nothing of the open node."""
        self.lp = self.finder = self.appended = self.gone = None
        return 0

    cdef bytes open_listpack(self):
        """The listpack of the open node, if it is kept."""
        cdef bytes lp = self.lp
        cdef list appended = self.appended, gone = self.gone
        cdef Py_ssize_t count = 0, gone_count = 0
        if lp is None or (appended is None and gone is None):
            return lp
        made = lp
        if gone is not None:
            gone_count = len(gone)
        if appended is not None:
            count = len(appended)
            made = _codec().extend(lp, b"".join(appended), self.entries, self.elements)
        if gone_count:      # behind the others: places do not change
            made = _codec().mark_deleted(made, tuple(gone[:gone_count]))
        # What is kept may have followed the log meanwhile: then this is of a moment that was.
        if (self.lp is lp and self.appended is appended and self.gone is gone
                and (appended is None or len(appended) == count)
                and (gone is None or len(gone) == gone_count)):
            self.lp = made
            self.appended = self.gone = self.finder = None
            self.seen = False
        return made

    # -- deletes -----------------------------------------------------------------------------------
    cdef bint state(self, const u8* body, u64 position) except -1:
        """Be as a frame says that states the record; False: it is to be loaded anew."""
        if position < self.position:
            return False
        self.length = little(body + 8, 8)
        self.added = little(body + 16, 8) - <u64>self.record.entries_added
        self.last_ms, self.last_seq = little(body + 24, 8), little(body + 32, 8)
        self.first_ms, self.first_seq = little(body + 40, 8), little(body + 48, 8)
        self.gone_ms, self.gone_seq = little(body + 56, 8), little(body + 64, 8)
        self.position = position
        self.deletes += 1
        return True

    cdef bint mark(self, const u8* body, u64 size, u64 position) except -1:
        """Be as a frame of tombstones leaves it; False: it is to be loaded anew."""
        cdef u64 ms = little(body + 8, 8), seq = little(body + 16, 8)
        cdef u64 version = little(body + 24, 8)
        cdef u64 count = (size - TOMBSTONE_BODY) >> 2, i
        cdef Py_ssize_t at, place
        cdef Page page
        if position < self.position:
            return False
        self.position = position
        self.deletes += 1
        if self.is_open and version == self.open_version:
            if self.lp is not None:
                if self.gone is None:
                    self.gone = []
                if len(self.gone) + count > ADDED_MAX:
                    self.forget_open()
                    return True
                for i in range(count):
                    self.gone.append(<uint32_t>little(body + TOMBSTONE_BODY + 4 * i, 4))
                self.finder = None
            return True
        at = self.pages_upto(ms, seq) - 1
        if at < 0:
            return True
        page = <Page>self.pages[at]
        place = page.floor(ms, seq) if page.covers(ms, seq) else -1
        if place < 0:
            return True
        if (page.slots[place].position != version or page.slots[place].ms != ms
                or page.slots[place].seq != seq):
            self.forget_page(at)
            return True
        self.pages_cost -= page.cost
        self.pages[at] = page.marked(place, body + TOMBSTONE_BODY, count)
        self.pages_cost += (<Page>self.pages[at]).cost
        return True

    # -- its sealed nodes --------------------------------------------------------------------------
    cdef Py_ssize_t pages_upto(self, u64 ms, u64 seq) noexcept:
        """How many pages begin at an ID or below."""
        cdef Py_ssize_t low = 0, high = PyList_GET_SIZE(self.pages), middle
        cdef Page page
        while low < high:
            middle = (low + high) >> 1
            page = <Page><object>PyList_GET_ITEM(self.pages, middle)
            if page.from_start or (
                    page.size and not below(ms, seq, page.slots[0].ms, page.slots[0].seq)):
                low = middle + 1
            else:
                high = middle
        return low

    cdef Page page_at(self, u64 ms, u64 seq):
        """The page that knows the node into which an ID belongs."""
        cdef Py_ssize_t count = self.pages_upto(ms, seq)
        cdef Page page
        if not count:
            return None
        page = <Page>self.pages[count - 1]
        return page if page.covers(ms, seq) else None

    cdef int put_page(self, Page page, u64 ms, u64 seq) except -1:
        """Know one more page, which was looked up for an ID that no other one covers: what they do
        not know of the nodes around that. Where that cannot be told, it stands instead of those
        that overlap it. It covers the ID behind it, too."""
        cdef Py_ssize_t at = self.pages_upto(ms, seq), behind
        cdef Page other
        if at:              # the last one below the ID: the page may reach over several
            other = <Page>self.pages[at - 1]
            if not other.to_end:
                page.cut_below(other.high_ms, other.high_seq)
        if at < len(self.pages):
            other = <Page>self.pages[at]
            if other.size and not other.from_start:
                page.cut_from(other.slots[0].ms, other.slots[0].seq)
        while at and not self.ends_below(<Page>self.pages[at - 1], page):
            at -= 1
        behind = at
        while behind < len(self.pages) and not self.ends_below(page, <Page>self.pages[behind]):
            self.pages_cost -= (<Page>self.pages[behind]).cost
            behind += 1
        self.pages[at:behind] = [page]
        self.pages_cost += page.cost
        return 0

    cdef int forget_node(self, u64 ms, u64 seq) except -1:
        """Forget what is known of where a master ID is, or would be."""
        cdef Py_ssize_t at = self.pages_upto(ms, seq) - 1
        if at >= 0 and (<Page>self.pages[at]).covers(ms, seq):
            self.forget_page(at)
        return 0

    cdef int forget_page(self, Py_ssize_t at) except -1:
        self.pages_cost -= (<Page>self.pages[at]).cost
        del self.pages[at]
        return 0

    cdef bint ends_below(self, Page page, Page other) noexcept:
        """Whether all IDs that a page covers are below those of another one."""
        if page.to_end or other.from_start or not other.size:
            return False
        return not below(other.slots[0].ms, other.slots[0].seq, page.high_ms, page.high_seq)
