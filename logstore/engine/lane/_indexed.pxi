# Commits of the lane that the index follows at once: a stream's first add, and one to a full node.

cdef enum:
    CREATE_BODY = 8
    KIND_CREATE = 2
    NAME_BYTES_MAX = 1 << 16

cdef inline void put_node_body(u8* p, u64 stream, u64 ms, u64 seq, u64 last_ms, u64 last_seq,
                               u64 entries) noexcept nogil:
    put_64(p, stream)
    put_64(p + 8, ms)
    put_64(p + 16, seq)
    put_64(p + 24, last_ms)
    put_64(p + 32, last_seq)
    put_32(p + 40, <uint32_t>entries)


cdef class IndexedLane(AddLane):
    """Adds that begin a node, too; see native.pyx."""

    cdef int frames             # laid out: of the stream, its full node, the new one, the record
    cdef u64 raw_bytes          # of the entry
    cdef u64 made_bytes         # of the new node

    cdef int commit_indexed(self, Asked* asked, u64 turn, u64 start, int64_t now_ns, list told,
                            Tried* tried) except -1:
        """Commit an entry that begins a node; what became of it. Rows are written in LMDB's
        transaction before the append; it forgets them with the process."""
        cdef u8* w = self.wake
        cdef Handle h = <Handle>asked.handle
        cdef int became
        cdef u64 size
        cdef bint new = not self.is_current(h)
        if self.applied != start or (new and not (h.absent and asked.create)):
            return NOT_PLAIN
        if not new and (not h.known or (h.open_version and not h.usable)):
            return NOT_PLAIN
        if (<int64_t>ls_load(w + BUCKETS_AT + h.bucket * BUCKET + GROUPS_UNTIL)
                >= now_ns // 1000000):
            return NOT_PLAIN
        if (asked.trims and not new and h.nodes and not h.knows_head
                and not self.look_at_head(h)):
            return NOT_PLAIN
        if not self.lay_out_node(asked, h, new, start):
            return NOT_PLAIN
        size = self.out.size
        if <int64_t>((start & 0xFFFFFFFF) + size) > self.segment_bytes:
            return NOT_PLAIN
        self.put_heads(self.frames, start, tried)
        commit = self.prepared(h, new, start, tried)
        if commit is None or self.wake == NULL:
            return NOT_PLAIN
        became = self.commit_steps(asked, 1, self.frames, commit, now_ns, tried)
        if became != COMMITTED:
            return became
        self.entries += 1
        self.added_bytes += self.made_bytes
        told.append(ls_id(_StreamID, asked.ms, asked.seq))
        try:
            self.stand_behind(h)
        except Exception:
            self.forget()       # the cache stands nowhere, and the index lacks nothing
        return COMMITTED

    cdef object prepared(self, Handle h, bint new, u64 start, const Tried* tried):
        """Have the rows written in LMDB's transaction; what commits that, or None: then it is
        aborted, or never began."""
        cdef u64 epoch = self.epoch
        cdef int i
        cdef list frames = []
        for i in range(self.frames):
            frames.append((self.steps[i].kind, start + self.steps[i].at, PyBytes_FromStringAndSize(
                <char*>self.out.data + self.steps[i].at + HEAD, self.steps[i].size - HEAD)))
        ends = (start + self.out.size, tried.commit, tried.last, tried.crc)
        raw_bytes = self.raw_bytes
        if h.open_version and not new:
            raw_bytes = -1      # the last node is the open one, and it is full
        self.give_back()
        if self.applied != start or self.base != start:
            return None
        commit = self.port.prepare(frames, ends, raw_bytes, self.limits.bytes_max)
        if commit is not None and (self.epoch != epoch or self.wake == NULL):
            self.port.take_back()
            return None
        return commit

    cdef int stand_behind(self, Handle h) except -1:
        """The record cache and the handles stand behind the commit that was just published."""
        cdef u64 applied = self.applied
        self.base = NOWHERE     # until all of it is through
        record, node = self.port.done()
        self.by_number.pop(record.number, None)
        h.absent = False
        h.learn(record, node)
        h.epoch = 0
        if h.known and self.applied == applied:
            self.hold(h, record.number, record.name)
        self.owed = self.since = 0
        self.base = applied
        return 0

    cdef bint lay_out_node(self, Asked* asked, Handle h, bint new, u64 start) except -1:
        """Give the ID, and write the frames but for their heads; False: it is not plain."""
        cdef u64 now_ms = <u64>(ls_now_ns(WALL) // 1000000), last_ms = 0, last_seq = 0, number
        cdef bint full = not new and h.open_version
        cdef Row* row = &self.steps[0].row
        cdef u64 first_ms, first_seq, length = 0 if new else h.length, made
        if full:
            last = self.port.last_id(PyBytes_FromStringAndSize(<char*>h.lp.data, h.lp.size),
                                     h.master_ms, h.master_seq)
            if last is None or not self.is_current(h):
                return False
            last_ms, last_seq = last
        elif not new and not length:
            return False
        number = self.port.next_stream() if new else h.number
        # From here on no code of Python runs, which might encode other entries into the row.
        self.turn += 1
        if not h.encode_split(row, <object>asked.fields, asked.ascii):
            return False
        self.raw_bytes = row.raw_bytes
        asked.ms = asked.seq = 0
        if not new:
            asked.ms, asked.seq = h.last_ms, h.last_seq
        if not next_id(asked, now_ms, &asked.ms, &asked.seq):
            return False
        if full and (at_least(h.master_ms, h.master_seq, asked.ms, asked.seq)
                     or not is_full(h.lp.size + row.raw_bytes, h.live + h.deleted, &self.limits)):
            return False
        if asked.trims and not self.stays(asked, h, new, last_ms, last_seq):
            return False
        self.frames = 0
        self.out.size = 0
        if new:
            name = <bytes>asked.name
            if size_of(name) > NAME_BYTES_MAX:
                return False
            fail(buf_reserve(&self.out, HEAD + CREATE_BODY + size_of(name)))
            put_64(self.out.data + HEAD, number)
            memcpy(self.out.data + HEAD + CREATE_BODY, data_of(name), size_of(name))
            self.framed_to(KIND_CREATE, HEAD + CREATE_BODY + size_of(name))
        if full:
            fail(buf_reserve(&self.out, HEAD + NODE_BODY + h.lp.size))
            put_node_body(self.out.data + self.out.size + HEAD, number, h.master_ms, h.master_seq,
                          last_ms, last_seq, h.live)
            memcpy(self.out.data + self.out.size + HEAD + NODE_BODY, h.lp.data, h.lp.size)
            self.framed_to(KIND_NODE, HEAD + NODE_BODY + h.lp.size)
        made = new_node_bytes(row)
        fail(buf_reserve(&self.out, HEAD + NODE_BODY + made + HEAD + RECORD_BODY))
        put_node_body(self.out.data + self.out.size + HEAD, number, asked.ms, asked.seq, asked.ms,
                      asked.seq, 1)
        put_new_node(self.out.data + self.out.size + HEAD + NODE_BODY, row, made)
        self.made_bytes = made
        if made < self.limits.bytes_max and self.limits.entries_max != 1:
            self.framed_to(KIND_OPEN, HEAD + NODE_BODY + made)
            return True
        self.framed_to(KIND_NODE, HEAD + NODE_BODY + made)
        first_ms, first_seq = asked.ms, asked.seq
        if length:
            first_ms, first_seq = h.first_ms, h.first_seq
        self.put_record(number, length + 1, 1 if new else h.added + 1, asked.ms, asked.seq, first_ms,
                        first_seq, 0 if new else h.gone_ms, 0 if new else h.gone_seq)
        return True

    cdef void put_record(self, u64 number, u64 length, u64 added, u64 last_ms, u64 last_seq,
                         u64 first_ms, u64 first_seq, u64 gone_ms, u64 gone_seq) noexcept:
        """State the record: a node that is sealed at once adds no entries by itself, and a tombstone
        takes none away."""
        cdef u8* p = self.out.data + self.out.size + HEAD
        put_64(p, number)
        put_64(p + 8, length)
        put_64(p + 16, added)
        put_64(p + 24, last_ms)
        put_64(p + 32, last_seq)
        put_64(p + 40, first_ms)
        put_64(p + 48, first_seq)
        put_64(p + 56, gone_ms)
        put_64(p + 64, gone_seq)
        self.framed_to(KIND_RECORD, HEAD + RECORD_BODY)

    cdef void framed_to(self, u8 kind, u64 size) noexcept:
        """A frame stands at the end of `out`, but for its head."""
        cdef Step* step = &self.steps[self.frames]
        step.kind, step.at, step.size = kind, self.out.size, size
        self.out.size += size
        self.frames += 1

    cdef bint stays(self, const Asked* asked, Handle h, bint new, u64 last_ms, u64 last_seq) noexcept:
        """Whether a trim behind the entry, which begins a node, takes nothing away."""
        if new:
            return nothing_goes(asked, 1, 1, asked.ms, asked.seq, asked.ms, asked.seq)
        if h.nodes:
            return h.knows_head and nothing_goes(
                asked, h.length + 1, h.head_live, h.head_ms, h.head_seq, h.first_ms, h.first_seq)
        # Its first node is the one that is sealed now.
        return nothing_goes(asked, h.length + 1, h.live, last_ms, last_seq, h.first_ms, h.first_seq)


cdef u64 new_node_bytes(const Row* row) noexcept nogil:
    """Bytes of a node of this one entry."""
    cdef u8 p[INT_BYTES_MAX]
    return (HEADER_BYTES + 2 + 2 + put_int(p, row.width) + row.names.size + 2 + 2 + 2 + 2
            + row.elements.size + put_int(p, row.width + 3) + 1)


cdef void put_new_node(u8* p, const Row* row, u64 size) noexcept nogil:
    """Write it, as `pack` of the codec does."""
    cdef u64 elements = 2 * <u64>row.width + 8
    if elements > COUNT_UNKNOWN:
        elements = COUNT_UNKNOWN
    put_32(p, <uint32_t>size)
    p[4] = <u8>elements
    p[5] = <u8>(elements >> 8)
    p += HEADER_BYTES
    p += put_int(p, 1)
    p += put_int(p, 0)
    p += put_int(p, row.width)
    memcpy(p, row.names.data, row.names.size)
    p += row.names.size
    p += put_int(p, 0)
    p += put_int(p, SAME_FIELDS)
    p += put_int(p, 0)
    p += put_int(p, 0)
    memcpy(p, row.elements.data, row.elements.size)
    p += row.elements.size
    p += put_int(p, row.width + 3)
    p[0] = END_BYTE
