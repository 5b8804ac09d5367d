# Nodes by their locators, checked in place. Pure twin: node_list.py.
#
# Invariants: nothing of an item is read behind the bytes that there are, nothing of a frame is used
# before its checksum fits.

cdef enum:
    ITEM_BYTES = 52             # format.SNAPSHOT_ITEM
    FRAME_BYTES = 32            # format.FRAME_HEAD
    FRAME_KIND_AT = 28
    FRAME_MARK_AT = 30
    FRAME_MARK_WORD = 0xF5A9
    OPEN_KIND = 4
    NODE_KIND = 6


ctypedef struct Located:
    u64 position        # of the frame; 0: the listpack is in the item
    u64 size            # of the frame's payload, or of the listpack
    u64 live
    u64 ms, seq         # master ID
    u64 last_ms, last_seq
    u64 vector_bytes
    const u8* vector
    const u8* lp        # of an item that has its listpack
    u64 after           # where the next item begins


cdef bint read_item(const u8* items, u64 at, u64 end, Located* item) noexcept nogil:
    """The item at an offset; whether it is whole."""
    cdef const u8* p = items + at
    if at > end or end - at < ITEM_BYTES:
        return False
    item.position = little(p, 8)
    item.size = little(p + 8, 4)
    item.live = little(p + 12, 4)
    item.ms = little(p + 16, 8)
    item.seq = little(p + 24, 8)
    item.last_ms = little(p + 32, 8)
    item.last_seq = little(p + 40, 8)
    item.vector_bytes = little(p + 48, 4)
    item.after = at + ITEM_BYTES
    if item.vector_bytes > end - item.after:
        return False
    item.vector = items + item.after
    item.after += item.vector_bytes
    item.lp = items + item.after
    if item.position == 0:
        if item.size > end - item.after:
            return False
        item.after += item.size
    return True


cdef bint is_its_frame(
    const u8* frame, const Located* item, u64 stream, uint32_t seed
) noexcept nogil:
    """Whether the frame there is the one that the locator means, and sound."""
    cdef u8 place[8]
    cdef const u8* body = frame + FRAME_BYTES
    if item.size < NODE_HEAD_BYTES or little(frame + 4, 4) != item.size:
        return False
    if little(frame + FRAME_MARK_AT, 2) != FRAME_MARK_WORD:
        return False
    if frame[FRAME_KIND_AT] != NODE_KIND and frame[FRAME_KIND_AT] != OPEN_KIND:
        return False
    if little(body, 8) != stream or little(body + 8, 8) != item.ms:
        return False
    if little(body + 16, 8) != item.seq:
        return False
    put_64(place, item.position)
    seed = ls_crc32c(place, 8, seed, HARD_CRC)
    return ls_crc32c(frame + 4, FRAME_BYTES - 4 + item.size, seed, HARD_CRC) == little(frame, 4)


def stretch_bytes(bytes items not None, u64 at, u64 gap_max, u64 bytes_max):
    cdef Located item
    cdef u64 begin = 0, end = 0, upto
    if at > size_of(items):
        raise ValueError("items begin inside of the bytes")
    while read_item(data_of(items), at, size_of(items), &item):
        at = item.after
        if item.position:
            upto = item.position + FRAME_BYTES + item.size
            if begin == 0:
                begin = item.position
            elif item.position < end or item.position - end > gap_max or upto - begin > bytes_max:
                break
            end = upto
    return end - begin


cdef bint is_inside(const Located* item, const Range* r) noexcept nogil:
    return not below(item.ms, item.seq, r.start_ms, r.start_seq) and not below(
        r.end_ms, r.end_seq, item.last_ms, item.last_seq
    )


ctypedef struct Stretch:
    const u8* data      # bytes of a segment ...
    u64 size
    u64 position        # ... from this one on
    u64 stream
    uint32_t seed
    u64 rows_max
    u64 bytes_max


cdef class NodeList:
    cdef Buf data
    cdef u64 count
    cdef readonly u64 live
    cdef readonly u64 size_bytes
    cdef u64 last_ms, last_seq

    def __dealloc__(self):
        buf_free(&self.data)

    def __len__(self):
        return self.count

    @property
    def nbytes(self):
        return self.data.size

    cdef int put(
        self, const u8* head, u64 live, u64 size, const u8* vector, u64 vector_bytes,
        const u8* lp, u64 lp_bytes,
    ) except -1:
        fail(buf_reserve(&self.data, ITEM_BYTES + vector_bytes + lp_bytes))
        buf_add(&self.data, head, ITEM_BYTES)
        buf_add(&self.data, vector, vector_bytes)
        buf_add(&self.data, lp, lp_bytes)
        self.count += 1
        self.live += live
        self.size_bytes += size
        self.last_ms = little(head + 32, 8)
        self.last_seq = little(head + 40, 8)
        return 0

    def add(self, u64 position, uint32_t size_bytes, uint32_t live, master, last,
            bytes vector not None, bytes lp not None=b""):
        cdef u8 head[ITEM_BYTES]
        cdef u64 ms, seq, last_ms, last_seq
        ms, seq = master
        last_ms, last_seq = last
        put_64(head, position)
        put_32(head + 8, size_bytes)
        put_32(head + 12, live)
        put_64(head + 16, ms)
        put_64(head + 24, seq)
        put_64(head + 32, last_ms)
        put_64(head + 40, last_seq)
        put_32(head + 48, size_of(vector))
        self.put(head, live, size_bytes, data_of(vector), size_of(vector), data_of(lp), size_of(lp))

    def add_rows(self, list rows not None, Py_ssize_t at, u64 stream, start, end,
                 u64 nodes_max):
        cdef Range r
        cdef u8 head[ITEM_BYTES]
        cdef u64 before = self.count, size, live, i
        cdef const u8* k
        cdef const u8* v
        cdef bytes key, data
        set_range(&r, start, end)
        if at < 0:
            raise ValueError("rows have places from 0 on")
        while at < len(rows) and self.count - before < nodes_max:
            key, data = rows[at]
            size = size_of(data)
            if size_of(key) != INDEX_KEY_BYTES or size < LOCATOR_BYTES + 4:
                break
            k, v, size = data_of(key), data_of(data), size - 4
            if big(k) != stream:
                break
            if below(r.end_ms, r.end_seq, big(k + 8), big(k + 16)):
                break
            if ls_crc32c(
                v, size, ls_crc32c(k, INDEX_KEY_BYTES, 0, HARD_CRC), HARD_CRC
            ) != little(v + size, 4):
                break
            live = little(v + 12, 4)
            for i in range(LOCATOR_BYTES, size):
                live -= bit_count(v[i])
            if <int64_t>live > 0 and not below(
                little(v + 16, 8), little(v + 24, 8), r.start_ms, r.start_seq
            ):
                memcpy(head, v, 12)
                put_32(head + 12, live)
                put_64(head + 16, big(k + 8))
                put_64(head + 24, big(k + 16))
                memcpy(head + 32, v + 16, 16)
                put_32(head + 48, size - LOCATOR_BYTES)
                self.put(head, live, little(v + 8, 4), v + LOCATOR_BYTES, size - LOCATOR_BYTES,
                         NULL, 0)
            at += 1
        return at

    def add_items(self, bytes items not None, start, end):
        cdef Range r
        cdef Located item
        cdef u64 at = 0, lp_bytes
        cdef const u8* data = data_of(items)
        set_range(&r, start, end)
        while read_item(data, at, size_of(items), &item):
            if not below(item.last_ms, item.last_seq, r.start_ms, r.start_seq) and not below(
                r.end_ms, r.end_seq, item.ms, item.seq
            ):
                lp_bytes = item.size if item.position == 0 else 0
                self.put(data + at, item.live, item.size, item.vector, item.vector_bytes, item.lp,
                         lp_bytes)
            at = item.after
        return at

    def mark(self):
        return self.data.size, self.count, self.live, self.size_bytes, self.last()

    def cut(self, mark):
        cdef u64 size
        size, self.count, self.live, self.size_bytes, (self.last_ms, self.last_seq) = mark
        if size > self.data.size:
            raise ValueError("a list is cut to what it was before")
        self.data.size = size

    def items(self, u64 start=0, int64_t end=-1):
        cdef u64 stop = self.data.size if end < 0 or <u64>end > self.data.size else <u64>end
        if start > stop:
            start = stop
        return PyBytes_FromStringAndSize(<char*>self.data.data + start, stop - start)

    def last(self):
        return self.last_ms, self.last_seq

    def segments(self):
        cdef Located item
        cdef u64 at = 0, newest = 0
        cdef set found = set()
        while read_item(self.data.data, at, self.data.size, &item):
            at = item.after
            if item.position and item.position >> 32 != newest:
                newest = item.position >> 32
                found.add(newest)
        return found

    def positions(self):
        cdef Located item
        cdef u64 at = 0
        cdef list found = []
        while read_item(self.data.data, at, self.data.size, &item):
            found.append(item.position)
            at = item.after
        return found

    def lives(self):
        cdef Located item
        cdef u64 at = 0
        cdef list found = []
        while read_item(self.data.data, at, self.data.size, &item):
            found.append(item.live)
            at = item.after
        return found

    def picked(self, list wanted not None):
        cdef Located item
        cdef Buf out
        cdef u64 at = 0, number = 0, next_wanted
        memset(&out, 0, sizeof(Buf))
        try:
            for next_wanted in wanted:
                while read_item(self.data.data, at, self.data.size, &item):
                    if number == next_wanted:
                        fail(buf_add(&out, self.data.data + at, item.after - at))
                    at = item.after
                    number += 1
                    if number > next_wanted:
                        break
            return PyBytes_FromStringAndSize(<char*>out.data, out.size)
        finally:
            buf_free(&out)

    def places(self, sums):
        cdef Located item
        cdef u64 at = 0, total = 0, count = 0, size = 0, wanted
        cdef list found = []
        for wanted in sums:
            while total < wanted and read_item(self.data.data, at, self.data.size, &item):
                at, size = item.after, item.size
                total += size
                count += 1
            found.append((count, total, size))
        return found

    def pieces(self, ends, u64 bytes_max):
        from logstore.codec.node_list import Piece

        cdef Located item
        cdef u64 at = 0, begin = 0, count = 0, live = 0, size = 0, number = 0
        cdef u64 ms = 0, seq = 0, last_ms = 0, last_seq = 0
        cdef int64_t stop
        cdef list found = []
        stops = iter(ends)
        stop = next(stops, -1)
        while read_item(self.data.data, at, self.data.size, &item):
            while 0 <= stop < <int64_t>number:
                stop = next(stops, -1)
            if count and (stop == <int64_t>number or item.after - begin > bytes_max):
                found.append(Piece(count, at, live, size, (ms, seq), (last_ms, last_seq)))
                begin, count, live, size = at, 0, 0, 0
            if not count:
                ms, seq = item.ms, item.seq
            last_ms, last_seq = item.last_ms, item.last_seq
            count += 1
            live += item.live
            size += item.size
            at = item.after
            number += 1
        if count:
            found.append(Piece(count, at, live, size, (ms, seq), (last_ms, last_seq)))
        return found


cdef u64 bit_count(u8 byte) noexcept nogil:
    cdef u64 found = 0
    while byte:
        found += byte & 1
        byte >>= 1
    return found
