# Where the nodes of a stream lie: pages of neighbouring locators, as the index has them.

cdef enum:
    KEY_BYTES = 24          # of a locator's row: stream, master ID, big endian
    LOCATOR_BYTES = 32      # position, payload bytes, live entries, last ID; then the vector, a CRC
    CRC_BYTES = 4
    PAGE_COST = 160

ctypedef struct Slot:
    u64 ms, seq             # the master ID
    u64 last_ms, last_seq
    u64 position
    uint32_t payload_bytes
    uint32_t live           # entries that live


@cython.final
@cython.no_gc
cdef class Page:
    """Neighbouring sealed nodes. It knows what the index has of IDs from the first master ID on
    (`from_start`: of all below, too), up to where the node behind it begins (`to_end`: there is
    none)."""

    cdef Slot* slots
    cdef Py_ssize_t size
    cdef list vectors       # what was deleted, by the place of the node: a bitmap, or None
    cdef u64 high_ms, high_seq
    cdef bint from_start, to_end
    cdef Py_ssize_t cost

    def __dealloc__(self):
        free(self.slots)

    cdef bint covers(self, u64 ms, u64 seq) noexcept:
        """Whether it knows the node into which an ID belongs, or that there is none."""
        if not self.to_end and not below(ms, seq, self.high_ms, self.high_seq):
            return False
        return self.from_start or (
            self.size > 0 and not below(ms, seq, self.slots[0].ms, self.slots[0].seq)
        )

    cdef Py_ssize_t floor(self, u64 ms, u64 seq) noexcept:
        """The place of the last node whose master ID is not above an ID; -1 if there is none."""
        cdef Py_ssize_t low = 0, high = self.size, middle
        while low < high:
            middle = (low + high) >> 1
            if below(ms, seq, self.slots[middle].ms, self.slots[middle].seq):
                high = middle
            else:
                low = middle + 1
        return low - 1

    # Before it is known to others:
    cdef int cut_below(self, u64 ms, u64 seq) except -1:
        """Know nothing of nodes below this one, if it is among them."""
        cdef Py_ssize_t place = self.floor(ms, seq)
        if place <= 0 or self.slots[place].ms != ms or self.slots[place].seq != seq:
            return 0
        self.size -= place
        memmove(self.slots, self.slots + place, self.size * sizeof(Slot))
        self.from_start = False
        if self.vectors is not None:
            del self.vectors[:place]
        return 0

    cdef int cut_from(self, u64 ms, u64 seq) except -1:
        """Know nothing of this node and those behind it, if it is among them."""
        cdef Py_ssize_t place = self.floor(ms, seq)
        if place <= 0 or self.slots[place].ms != ms or self.slots[place].seq != seq:
            return 0
        self.size = place
        self.high_ms, self.high_seq, self.to_end = ms, seq, False
        return 0

    cdef Page marked(self, Py_ssize_t place, const u8* ordinals, u64 count):
        """Another page like it, with these entries of a node deleted. An ordinal: 4 bytes."""
        cdef Page made = Page.__new__(Page)
        cdef bytes before = self.vector(place), vector
        cdef u64 size = size_of(before), i, ordinal
        cdef u8* p
        for i in range(count):
            size = max(size, (little(ordinals + 4 * i, 4) >> 3) + 1)
        vector = PyBytes_FromStringAndSize(NULL, size)
        p = <u8*>data_of(vector)
        memset(p, 0, size)
        memcpy(p, data_of(before), size_of(before))
        for i in range(count):
            ordinal = little(ordinals + 4 * i, 4)
            p[ordinal >> 3] |= <u8>(1 << (ordinal & 7))
        made.slots = <Slot*>malloc((self.size + 1) * sizeof(Slot))
        if made.slots == NULL:
            raise MemoryError
        memcpy(made.slots, self.slots, self.size * sizeof(Slot))
        made.slots[place].live -= min(self.slots[place].live,
                                      ones(p, size) - ones(data_of(before), size_of(before)))
        made.size, made.high_ms, made.high_seq = self.size, self.high_ms, self.high_seq
        made.from_start, made.to_end = self.from_start, self.to_end
        made.vectors = [None] * self.size if self.vectors is None else list(self.vectors)
        made.vectors[place] = vector
        made.cost = self.cost + size - size_of(before) + (0 if before else 100)
        return made

    cdef bytes vector(self, Py_ssize_t place):
        """What was deleted of a node since it was written: a bitmap of ordinals."""
        vector = None if self.vectors is None else self.vectors[place]
        return b"" if vector is None else <bytes>vector


cdef uint32_t ones(const u8* p, u64 size) noexcept nogil:
    cdef uint32_t count = 0
    cdef u64 i
    cdef u8 byte
    for i in range(size):
        byte = p[i]
        while byte:
            byte &= byte - 1
            count += 1
    return count


cdef Page page_of(u64 stream, list rows, bint at_front, bint at_back):
    """The page of rows of the index, ascending; the first may be of a stream before, the last is
    the node behind the page, or of a stream behind. `at_front`, `at_back`: there is no row beyond
    them.

    None if a row is not what it must be.
    """
    cdef Page page = Page.__new__(Page)
    cdef Slot* slot
    cdef const u8* k
    cdef const u8* v
    cdef bytes key, value
    cdef u64 number, size
    cdef Py_ssize_t i, count = len(rows)
    page.from_start, page.to_end = at_front, at_back
    page.slots = <Slot*>malloc((count + 1) * sizeof(Slot))
    if page.slots == NULL:
        raise MemoryError
    for i in range(count):
        row = rows[i]
        key, value = row[0], row[1]
        size = size_of(value)
        if (size_of(key) != KEY_BYTES or size < LOCATOR_BYTES + CRC_BYTES
                or row_crc(key, data_of(value), size - CRC_BYTES)
                != little(data_of(value) + size - CRC_BYTES, 4)):
            return None
        k, v = data_of(key), data_of(value)
        number = big(k)
        if number < stream:
            if page.size:
                return None
            page.from_start = True
            continue
        if number > stream:
            page.to_end = True
            break
        slot = page.slots + page.size
        slot.ms, slot.seq = big(k + 8), big(k + 16)
        if page.size and not below((slot - 1).ms, (slot - 1).seq, slot.ms, slot.seq):
            return None
        if i == count - 1 and not at_back:
            page.high_ms, page.high_seq = slot.ms, slot.seq
            break
        slot.position = little(v, 8)
        slot.payload_bytes = <uint32_t>little(v + 8, 4)
        slot.live = <uint32_t>little(v + 12, 4)
        slot.last_ms, slot.last_seq = little(v + 16, 8), little(v + 24, 8)
        size -= LOCATOR_BYTES + CRC_BYTES
        if size:
            if page.vectors is None:
                page.vectors = [None] * count
            page.vectors[page.size] = value[LOCATOR_BYTES:LOCATOR_BYTES + size]
            slot.live -= min(slot.live, ones(v + LOCATOR_BYTES, size))
            page.cost += size + 100
        page.size += 1
    page.cost += PAGE_COST + (count + 1) * sizeof(Slot)
    return page
