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
    (`from_start`: of all below, too), up to where the node behind it begins (`to_end`: there is none)."""

    cdef Slot* slots
    cdef Py_ssize_t size
    cdef dict vectors       # what was deleted, by the place of the node; None: nothing
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

    cdef bytes vector(self, Py_ssize_t place):
        """What was deleted of a node since it was written: a bitmap of ordinals."""
        if self.vectors is None:
            return b""
        return self.vectors.get(place, b"")


cdef inline u64 big(const u8* p) noexcept nogil:
    cdef u64 value = 0
    cdef int i
    for i in range(8):
        value = value << 8 | p[i]
    return value


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
    """The page of rows of the index, ascending; the first may be of a stream before, the last is the
    node behind the page, or of a stream behind. `at_front`, `at_back`: there is no row beyond them.

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
                or row_crc(key, data_of(value), size - CRC_BYTES) != little(data_of(value) + size - CRC_BYTES, 4)):
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
                page.vectors = {}
            page.vectors[page.size] = value[LOCATOR_BYTES:LOCATOR_BYTES + size]
            slot.live -= min(slot.live, ones(v + LOCATOR_BYTES, size))
            page.cost += size + 100
        page.size += 1
    page.cost += PAGE_COST + (count + 1) * sizeof(Slot)
    return page
