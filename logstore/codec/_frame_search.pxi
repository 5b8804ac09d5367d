# The next valid frame behind damage. Pure twin: `FrameSearch` in checksums.py.
#
# Invariants: each byte is checksummed once; at most `room` heads wait for their ends at a time.

cdef extern from *:
    """
    /* x^(8n) modulo the polynomial of CRC-32C, bits reflected, by the bytes of n. */
    static uint32_t ls_powers[4][256];

    static uint32_t ls_multiply(uint32_t a, uint32_t b) {
        uint32_t product = 0;
        for (int bit = 31; bit >= 0; bit--) {
            product ^= b & (0u - (a >> bit & 1u));
            b = b >> 1 ^ (0x82F63B78u & (0u - (b & 1u)));
        }
        return product;
    }

    static void ls_powers_init(void) {
        uint32_t step = 0x00800000u;  /* x^8 */
        for (int digit = 0; digit < 4; digit++) {
            ls_powers[digit][0] = 0x80000000u;
            for (int i = 1; i < 256; i++)
                ls_powers[digit][i] = ls_multiply(ls_powers[digit][i - 1], step);
            step = ls_multiply(ls_powers[digit][255], step);
        }
    }

    static uint32_t ls_moved(uint32_t crc, uint32_t bytes) {
        for (int digit = 0; bytes; digit++, bytes >>= 8)
            if (bytes & 0xFF) crc = ls_multiply(ls_powers[digit][bytes & 0xFF], crc);
        return crc;
    }
    """
    void ls_powers_init() noexcept nogil
    uint32_t ls_moved(uint32_t crc, uint32_t bytes) noexcept nogil

from libc.string cimport memchr

ls_powers_init()

ctypedef struct Awaited:
    uint32_t end, begin, crc        # the frame, and the prefix's CRC at its end if it is one

cdef enum:
    FRAME_HEAD = 32                 # format.FRAME_HEAD_BYTES
    MARK_AT = 30                    # format.FRAME_MARK_OFFSET
    MARK_FIRST = 0xA9               # format.FRAME_MARK
    MARK_SECOND = 0xF5


cdef inline uint32_t little32(const u8* p) noexcept nogil:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef inline u64 little64(const u8* p) noexcept nogil:
    return little32(p) | <u64>little32(p + 4) << 32


cdef class FrameSearch:
    cdef readonly u64 resume
    cdef readonly bint full
    cdef u64 segment, start, end, least, slack, read_upto, crc_at, room
    cdef uint32_t seed, crc
    cdef bytes rest
    cdef Awaited* heap
    cdef u64 count, capacity

    def __cinit__(self):
        self.heap = NULL

    def __dealloc__(self):
        free(self.heap)

    def __init__(
        self, uint32_t seed, u64 segment, u64 start, u64 end, u64 least_commit, u64 slack, u64 room
    ):
        if start > end or end > 0xFFFFFFFF or room < 1:
            raise ValueError("a search lies within a segment")
        self.seed, self.segment, self.start, self.end = seed, segment, start, end
        self.least, self.slack, self.room = least_commit, slack, room
        self.resume = self.read_upto = self.crc_at = start
        self.crc = 0
        self.rest = b""
        self.count = 0
        self.full = False

    @property
    def awaited(self):
        return self.count

    def feed(self, bytes data not None):
        cdef bytes all_of_it = self.rest + data
        cdef const u8* p = data_of(all_of_it)
        cdef u64 size = size_of(all_of_it), base = self.read_upto - size_of(self.rest)
        cdef u64 begin = 0, end = 0
        cdef int found
        with nogil:
            found = self.look(p, size, base, &begin, &end)
        if found < 0:
            raise MemoryError
        if found:
            return begin, end
        self.read_upto = base + size
        self.rest = all_of_it[size - min(size, <u64>FRAME_HEAD - 1):]
        return None

    cdef int look(
        self, const u8* p, u64 size, u64 base, u64* begin, u64* end
    ) noexcept nogil:
        """1: found; 0: all of it was looked at; below 0: no memory."""
        cdef u64 at = MARK_AT
        cdef const void* next_mark
        while at < size:
            next_mark = memchr(p + at, MARK_FIRST, size - at)
            if next_mark == NULL:
                break
            at = <u64>(<const u8*>next_mark - p)
            if at + 1 >= size:
                break
            if p[at + 1] == MARK_SECOND and self.plausible(p + at - MARK_AT, base + at - MARK_AT):
                if self.upto(p, base, base + at + 2, begin, end):
                    return 1
                if not self.wait_for(p + at - MARK_AT, base + at - MARK_AT):
                    return -1
            at += 1
        return self.upto(p, base, base + size, begin, end)

    cdef bint plausible(self, const u8* head, u64 begin) noexcept nogil:
        cdef u64 number = little64(head + 8), behind
        if self.full or begin < self.resume or head[28] == 0 or head[29] > 1:
            return False
        if begin + FRAME_HEAD + little32(head + 4) > self.end:
            return False
        if number < self.least or little64(head + 16) > (self.segment << 32 | self.end):
            return False
        behind = (begin - self.start) // FRAME_HEAD
        return number - self.least <= self.slack + behind and \
            little32(head + 24) <= begin // FRAME_HEAD

    cdef void advance(self, const u8* p, u64 base, u64 offset) noexcept nogil:
        if offset > self.crc_at:
            self.crc = ls_crc32c(
                p + (self.crc_at - base), offset - self.crc_at, self.crc, HARD_CRC
            )
            self.crc_at = offset

    cdef bint upto(
        self, const u8* p, u64 base, u64 offset, u64* begin, u64* end
    ) noexcept nogil:
        """Judge all that ends at or before ``offset``; whether one of them is a frame."""
        while self.count and self.heap[0].end <= offset:
            self.advance(p, base, self.heap[0].end)
            if self.crc == self.heap[0].crc:
                begin[0], end[0] = self.heap[0].begin, self.heap[0].end
                return True
            self.pop()
        self.advance(p, base, offset)
        return False

    cdef bint wait_for(self, const u8* head, u64 begin) noexcept nogil:
        cdef u8 place[8]
        cdef u64 position = self.segment << 32 | begin, capacity, child, parent
        cdef uint32_t size = little32(head + 4), state
        cdef Awaited new
        cdef void* grown
        cdef int i
        self.full = self.count == self.room
        if self.full:
            return True  # another round begins here
        self.resume = begin + 1
        for i in range(8):
            place[i] = <u8>(position >> 8 * i & 0xFF)
        state = ls_crc32c(place, 8, self.seed, HARD_CRC)
        state = ls_crc32c(head + 4, FRAME_HEAD - 4, state, HARD_CRC)
        new.begin, new.end = <uint32_t>begin, <uint32_t>(begin + FRAME_HEAD + size)
        new.crc = little32(head) ^ ls_moved(state ^ self.crc, size)
        if self.count == self.capacity:
            capacity = min(max(self.capacity * 2, <u64>1024), self.room)
            grown = realloc(self.heap, capacity * sizeof(Awaited))
            if grown == NULL:
                return False
            self.heap, self.capacity = <Awaited*>grown, capacity
        child = self.count
        self.count += 1
        while child:
            parent = (child - 1) // 2
            if self.heap[parent].end <= new.end:
                break
            self.heap[child] = self.heap[parent]
            child = parent
        self.heap[child] = new
        return True

    cdef void pop(self) noexcept nogil:
        cdef u64 at = 0, child
        cdef Awaited last
        self.count -= 1
        last = self.heap[self.count]
        while True:
            child = 2 * at + 1
            if child >= self.count:
                break
            if child + 1 < self.count and self.heap[child + 1].end < self.heap[child].end:
                child += 1
            if last.end <= self.heap[child].end:
                break
            self.heap[at] = self.heap[child]
            at = child
        self.heap[at] = last
