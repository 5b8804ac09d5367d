# Nodes that come from elsewhere, many at a time. Pure twin: node_batch.py.
#
# Invariants: the bytes that nodes lie in are kept, and only what was checked is in the list of
# them.

ctypedef struct Stored:
    u64 offset, size                # of the listpack
    u64 ms, seq                     # the master ID
    u64 end_ms, end_seq             # of the last entry
    int64_t live

cdef enum:
    KEY_BYTES = 17                  # of a master ID, with its length
    INDEX_KEY_BYTES = 24            # format.NODE_KEY
    LOCATOR_BYTES = 32              # format.LOCATOR
    NODE_HEAD_BYTES = 44            # what stands before the listpack in a frame


cdef int plain_string(const u8* p, u64 room, u64* head, u64* size) noexcept nogil:
    """Length of a string that is stored as it is, whole in ``room`` bytes; 0 if it is not."""
    cdef u64 i
    if room < 1:
        return 0
    if p[0] < 0x40:
        head[0] = 1
        size[0] = p[0]
    elif p[0] < 0x80:
        if room < 2:
            return 0
        head[0] = 2
        size[0] = <u64>(p[0] & 0x3F) << 8 | p[1]
    elif p[0] == 0x80:
        if room < 5:
            return 0
        head[0] = 5
        size[0] = <u64>p[1] << 24 | <u64>p[2] << 16 | <u64>p[3] << 8 | p[4]
    else:
        return 0
    return room - head[0] >= size[0]


cdef class NodeBatch:
    cdef bytes data
    cdef Stored* rows_at
    cdef readonly Py_ssize_t end
    cdef readonly u64 nbytes
    cdef readonly u64 live
    cdef Py_ssize_t count
    cdef u64 first_ms, first_seq, top_ms, top_seq, last_ms, last_seq

    def __cinit__(self):
        self.rows_at = NULL
        self.count = 0

    def __dealloc__(self):
        free(self.rows_at)

    def __init__(self, bytes data not None, Py_ssize_t at, Py_ssize_t most, master, top):
        cdef u64 before_ms = 0, before_seq = 0, size = size_of(data), room
        cdef bint any_before = master is not None
        cdef const u8* p = data_of(data)
        if at < 0 or <u64>at > size or most < 0:
            raise ValueError("nodes begin inside of the bytes")
        if any_before:
            before_ms, before_seq = master
        self.top_ms, self.top_seq = top
        self.data = data
        self.end = at
        # No node has fewer bytes than a key, a length and a header.
        room = (size - <u64>at) // (KEY_BYTES + HEADER_BYTES) + 1
        if <u64>most < room:
            room = <u64>most
        free(self.rows_at)
        self.rows_at = <Stored*>malloc(room * sizeof(Stored) + 1)
        if self.rows_at == NULL:
            raise MemoryError
        with nogil:
            self.take(p, size, room, any_before, before_ms, before_seq)

    cdef void take(
        self, const u8* p, u64 size, u64 most, bint any_before, u64 before_ms, u64 before_seq
    ) noexcept nogil:
        cdef u64 at = <u64>self.end, head = 0, length = 0
        cdef Survey found
        cdef Stored* row
        self.count = 0
        self.live = self.nbytes = self.last_ms = self.last_seq = 0
        while <u64>self.count < most:
            if size - at <= KEY_BYTES or p[at] != ID_BYTES:
                return
            row = self.rows_at + self.count
            row.ms = big(p + at + 1)
            row.seq = big(p + at + 9)
            if any_before and not below(before_ms, before_seq, row.ms, row.seq):
                return
            at += KEY_BYTES
            if not plain_string(p + at, size - at, &head, &length):
                return
            if survey_node(p + at + head, length, row.ms, row.seq, &found) != OK:
                return
            if found.live:
                if not below(self.top_ms, self.top_seq, found.first_ms, found.first_seq):
                    return
                if below(found.first_ms, found.first_seq, row.ms, row.seq):
                    return
                if not self.live:
                    self.first_ms = found.first_ms
                    self.first_seq = found.first_seq
                self.top_ms = found.last_ms
                self.top_seq = found.last_seq
            if below(self.last_ms, self.last_seq, found.end_ms, found.end_seq):
                self.last_ms = found.end_ms
                self.last_seq = found.end_seq
            row.offset = at + head
            row.size = length
            row.live = found.live
            row.end_ms = found.end_ms
            row.end_seq = found.end_seq
            self.live += <u64>found.live
            self.nbytes += length
            self.count += 1
            any_before = True
            before_ms = row.ms
            before_seq = row.seq
            at += head + length
            self.end = <Py_ssize_t>at

    @staticmethod
    def of(list nodes not None):
        cdef NodeBatch batch = NodeBatch.__new__(NodeBatch)
        cdef list parts = []
        cdef bytes lp
        cdef Stored* row
        cdef u64 at = 0
        cdef list kept = list(nodes)        # as many as there is room for, whatever runs meanwhile
        batch.rows_at = <Stored*>malloc(len(kept) * sizeof(Stored) + 1)
        if batch.rows_at == NULL:
            raise MemoryError
        for node in kept:
            row = batch.rows_at + batch.count
            row.ms, row.seq, row.end_ms, row.end_seq, row.live, lp = node
            if lp is None:
                raise TypeError("a node has bytes")
            row.offset = at
            row.size = size_of(lp)
            at += row.size
            if not batch.count:
                batch.first_ms, batch.first_seq = row.ms, row.seq
            batch.top_ms, batch.top_seq = row.end_ms, row.end_seq
            batch.live += <u64>row.live
            batch.count += 1
            parts.append(lp)
        batch.last_ms, batch.last_seq = batch.top_ms, batch.top_seq
        batch.data = b"".join(parts)
        batch.nbytes = at
        batch.end = <Py_ssize_t>at
        return batch

    def __len__(self):
        return self.count

    @property
    def first(self):
        return (self.first_ms, self.first_seq) if self.live else None

    @property
    def top(self):
        return (self.top_ms, self.top_seq)

    @property
    def last(self):
        return (self.last_ms, self.last_seq)

    @property
    def master(self):
        if not self.count:
            return None
        return (self.rows_at[self.count - 1].ms, self.rows_at[self.count - 1].seq)

    def payloads(self, u64 stream):
        cdef list made = []
        cdef Py_ssize_t i
        cdef Stored* row
        cdef bytes one
        for i in range(self.count):
            row = self.rows_at + i
            one = PyBytes_FromStringAndSize(NULL, NODE_HEAD_BYTES + row.size)
            put_node(<u8*>PyBytes_AS_STRING(one), stream, row, data_of(self.data))
            made.append(one)
        return made

    def payload_at(self, u64 stream, u64 offset, u64 head_bytes):
        cdef Py_ssize_t i
        cdef u64 at = 0
        cdef bytes one
        for i in range(self.count):
            if at >= offset:
                break
            at += head_bytes + NODE_HEAD_BYTES + self.rows_at[i].size
        else:
            return None
        if at != offset:
            return None
        one = PyBytes_FromStringAndSize(NULL, NODE_HEAD_BYTES + self.rows_at[i].size)
        put_node(<u8*>PyBytes_AS_STRING(one), stream, self.rows_at + i, data_of(self.data))
        return one

    cdef tuple place(self, Py_ssize_t i, u64 position):
        cdef Stored* row = self.rows_at + i
        return (
            position, (row.ms, row.seq), NODE_HEAD_BYTES + row.size, row.live,
            (row.end_ms, row.end_seq),
        )

    def places(self, u64 position, u64 head_bytes):
        cdef list made = []
        cdef Py_ssize_t i
        for i in range(self.count):
            made.append(self.place(i, position))
            position += head_bytes + NODE_HEAD_BYTES + self.rows_at[i].size
        return made

    def rows(self, u64 stream, u64 position, u64 head_bytes):
        cdef list made = []
        cdef Py_ssize_t i
        cdef Stored* row
        cdef u8 key[INDEX_KEY_BYTES]
        cdef u8 value[LOCATOR_BYTES + 4]
        cdef u64 size = 0
        cdef uint32_t crc
        if not self.count:
            raise IndexError("there is no node")
        put_big(key, stream)
        for i in range(self.count):
            row = self.rows_at + i
            position += size
            put_big(key + 8, row.ms)
            put_big(key + 16, row.seq)
            put_64(value, position)
            put_32(value + 8, NODE_HEAD_BYTES + row.size)
            put_32(value + 12, <u64>row.live)
            put_64(value + 16, row.end_ms)
            put_64(value + 24, row.end_seq)
            crc = ls_crc32c(key, INDEX_KEY_BYTES, 0, HARD_CRC)
            put_32(value + LOCATOR_BYTES, ls_crc32c(value, LOCATOR_BYTES, crc, HARD_CRC))
            made.append((
                PyBytes_FromStringAndSize(<char*>key, INDEX_KEY_BYTES),
                PyBytes_FromStringAndSize(<char*>value, LOCATOR_BYTES + 4),
            ))
            size = head_bytes + NODE_HEAD_BYTES + row.size
        return made, self.place(self.count - 1, position)

    def frames(self, u64 stream, bytes covered not None, uint32_t seed):
        cdef Py_ssize_t i
        cdef u64 position, ordinal, size = 0
        cdef bytes made
        cdef u8* out
        cdef u8 head[COVERED]
        cdef const u8* data = data_of(self.data)
        if size_of(covered) != COVERED:
            raise ValueError("the head of a frame has another size")
        memcpy(head, data_of(covered), COVERED)
        position = little(head, 8)
        ordinal = little(head + ORDINAL_AT, 4)
        made = PyBytes_FromStringAndSize(
            NULL, self.nbytes + self.count * (HEAD + NODE_HEAD_BYTES)
        )
        out = <u8*>PyBytes_AS_STRING(made)
        with nogil:
            for i in range(self.count):
                size = put_frame(
                    out, head, stream, position, ordinal + <u64>i, self.rows_at + i, data, seed
                )
                out += size
                position += size
        return made


cdef enum:
    SIZE_AT = 8                     # in what the CRC covers: the payload's size, and
    ORDINAL_AT = 28                 # its place in the commit


cdef u64 put_frame(
    u8* out, const u8* head, u64 stream, u64 position, u64 ordinal, const Stored* row,
    const u8* data,
    uint32_t seed,
) noexcept nogil:
    """Write one node frame; its bytes."""
    cdef u64 size = NODE_HEAD_BYTES + row.size
    memcpy(out + 4, head + 8, HEAD - 4)
    put_32(out + SIZE_AT - 4, size)
    put_32(out + ORDINAL_AT - 4, ordinal)
    put_node(out + HEAD, stream, row, data)
    put_32(out, frame_crc(out, position, size, seed))
    return HEAD + size


cdef void put_node(u8* out, u64 stream, const Stored* row, const u8* data) noexcept nogil:
    put_64(out, stream)
    put_64(out + 8, row.ms)
    put_64(out + 16, row.seq)
    put_64(out + 24, row.end_ms)
    put_64(out + 32, row.end_seq)
    put_32(out + 40, <u64>row.live)
    memcpy(out + NODE_HEAD_BYTES, data + row.offset, row.size)
