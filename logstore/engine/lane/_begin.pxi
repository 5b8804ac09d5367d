# Commits of the lane that begin a node: a stream's first add, and one to a full node.

cdef enum:
    NAME_BYTES_MAX = 1 << 16

cdef inline void put_node_body(u8* p, u64 stream, u64 ms, u64 seq, u64 last_ms, u64 last_seq,
                               u64 entries) noexcept nogil:
    put_64(p, stream)
    put_64(p + 8, ms)
    put_64(p + 16, seq)
    put_64(p + 24, last_ms)
    put_64(p + 32, last_seq)
    put_32(p + 40, <uint32_t>entries)


cdef class BeginLane(AddLane):
    """Adds that begin a node, too; see native.pyx."""

    cdef int frames             # laid out: of the stream, its full node, the new one, the record
    cdef bint lagging           # they are being committed, and the index lags behind
    cdef u64 raw_bytes          # of the entry
    cdef u64 made_bytes         # of the new node

    cdef int commit_begun(self, Asked* asked, u64 start, int64_t now_ns, list told,
                          Tried* tried) except -1:
        """Commit an entry that begins a node; what became of it. The index lags behind one that
        begins an open node; rows of others are written before the append."""
        cdef Handle h = <Handle>asked.handle
        cdef u64 size
        cdef bint new = not self.is_current(h), lags
        if (not new and not h.known) or (new and not (h.absent and asked.create)):
            return NOT_PLAIN
        if not new and (h.schema_at != asked.schema_at or (h.open_version and not h.usable)):
            return NOT_PLAIN
        if self.is_awaited_by_groups(h.bucket, now_ns // 1000000):
            return NOT_PLAIN
        if (asked.trims and not new and h.nodes and not h.knows_head
                and not self.look_at_head(h)):
            return NOT_PLAIN
        lags = (new or h.open_version) and self.has_followed_for(
            start, h.lp.size + self.rows[0].elements.size)
        if self.applied != start or new != (not self.is_current(h)):
            return NOT_PLAIN
        if not self.lay_out_node(asked, h, new, start):
            return NOT_PLAIN
        size = self.out.size
        if <int64_t>((start & 0xFFFFFFFF) + size) > self.segment_bytes:
            return NOT_PLAIN
        self.put_heads(self.frames, start, tried)
        lags = (lags and self.steps[self.frames - 1].kind == KIND_OPEN and self.fits(start, size)
                and h.may_begin(self.made_bytes, self.rows[0].names.size,
                                2 * self.rows[0].width + 8)
                and (new or h.may_seal()))
        if lags:
            return self.commit_lagging(asked, h, new, now_ns, tried)
        return self.commit_prepared(asked, h, new, start, now_ns, told, tried)

    cdef bint has_followed_for(self, u64 start, u64 size) except -1:
        """As `has_followed`, of a commit of about so many bytes."""
        size += 4 * HEAD + CREATE_BODY + 2 * NODE_BODY
        return self.has_followed(start) if self.fits(start, size) else self.follow_locked(start)

    cdef int commit_lagging(self, Asked* asked, Handle h, bint new, int64_t now_ns,
                            Tried* tried) except -1:
        """Commit what was laid out. The record cache, and the index, learn of it later."""
        cdef int became
        if new:
            h.name = <bytes>asked.name
            self.hold(h, self.next_stream, h.name)
        self.put_ahead(h)
        self.lagging = True
        try:
            became = self.commit_steps(asked, 1, self.frames, None, now_ns, tried)
        finally:
            self.lagging = False
        if became == COMMITTED:
            self.next_stream += new
            self.entries += 1
            self.added_bytes += self.made_bytes
            self.count(h)
        return became

    cdef void apply_step(self, const Asked* asked, int i, u64 position) noexcept:
        cdef Step* step = &self.steps[i]
        if not self.lagging:
            AddLane.apply_step(self, asked, i, position)
            return
        self.begin_step(<Handle>asked.handle, step.kind, self.out.data + step.at + HEAD,
                        step.size - HEAD, position)

    cdef void begin_step(self, Handle h, u8 kind, const u8* body, u64 size, u64 position) noexcept:
        """Let a frame of such a commit count. There is room for it."""
        if kind == KIND_CREATE:
            h.create(little(body, 8), h.name, position)
        elif kind == KIND_NODE:
            h.seal(body, size, position)
        else:
            h.begin(body, size, position)

    cdef int commit_prepared(self, Asked* asked, Handle h, bint new, u64 start, int64_t now_ns,
                             list told, Tried* tried) except -1:
        """Commit what was laid out, which the index follows at once. Rows are written in LMDB's
        transaction before the append; it forgets them with the process."""
        cdef int became
        commit = self.prepared(h, new, start, tried)
        if commit is None or self.wake == NULL:
            return NOT_PLAIN
        became = self.commit_steps(asked, 1, self.frames, commit, now_ns, tried)
        if became != COMMITTED:
            return became
        self.next_stream += new
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
        cdef Row* row = &self.rows[0]
        cdef u64 first_ms, first_seq, length = 0 if new else h.length, made, at
        if full:
            last = self.port.last_id(PyBytes_FromStringAndSize(<char*>h.lp.data, h.lp.size),
                                     h.master_ms, h.master_seq)
            if last is None or not self.is_current(h):
                return False
            last_ms, last_seq = last
        elif not new and not length:
            return False
        number = self.next_stream if new else h.number
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
                     or not is_full(h.lp.size + row.raw_bytes, h.live + h.deleted,
                                    self.limits.bytes_max, self.limits.entries_max)):
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
        fail(buf_reserve(&self.out, HEAD + NODE_BODY + new_node_room(row) + HEAD + RECORD_BODY))
        put_node_body(self.out.data + self.out.size + HEAD, number, asked.ms, asked.seq, asked.ms,
                      asked.seq, 1)
        at = self.out.size
        self.out.size += HEAD + NODE_BODY
        fail(put_new_node(&self.out, row))
        made = self.made_bytes = self.out.size - at - HEAD - NODE_BODY
        self.out.size = at
        if made < self.limits.bytes_max and self.limits.entries_max != 1:
            self.framed_to(KIND_OPEN, HEAD + NODE_BODY + made)
            return True
        self.framed_to(KIND_NODE, HEAD + NODE_BODY + made)
        first_ms, first_seq = asked.ms, asked.seq
        if length:
            first_ms, first_seq = h.first_ms, h.first_seq
        self.put_record(number, length + 1, 1 if new else h.added + 1, asked.ms, asked.seq,
                        first_ms, first_seq, 0 if new else h.gone_ms, 0 if new else h.gone_seq)
        return True

    cdef void put_record(self, u64 number, u64 length, u64 added, u64 last_ms, u64 last_seq,
                         u64 first_ms, u64 first_seq, u64 gone_ms, u64 gone_seq) noexcept:
        """State the record: a node that is sealed at once adds no entries by itself, and a
        tombstone takes none away."""
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

    # -- others' such commits, and the record cache ------------------------------------------------
    cdef bint take_in_frame(self, const u8* p, u64 left, u64 position, u64* size) except -1:
        """Of those behind which the index lags. False: it is another frame, or does not fit."""
        cdef const u8* body = p + HEAD
        cdef Handle h
        cdef u64 epoch = self.epoch, elements
        cdef bint seals = is_frame(p, left, NODE_BODY, KIND_NODE, size)
        if is_frame(p, left, CREATE_BODY, KIND_CREATE, size):
            return (frame_crc(p, position, size[0], self.seed) == little(p, 4)
                    and self.take_in_created(body, size[0], position))
        if not seals and not is_frame(p, left, NODE_BODY, KIND_OPEN, size):
            return False
        if frame_crc(p, position, size[0], self.seed) != little(p, 4):
            return False
        h = self.held(little(body, 8))
        if h is None or self.epoch != epoch or not self.is_current(h):
            return False
        if h.position >= position:
            return True         # it was looked up just now, in an index that had followed
        if seals:
            if (not h.usable or not h.may_seal()
                    or little(body + 8, 8) != h.master_ms or little(body + 16, 8) != h.master_seq):
                return False
        else:
            elements = ELEMENTS_MAX
            if size[0] > NODE_BODY + HEADER_BYTES:
                elements = little(body + NODE_BODY + 4, 2)
            if (h.open_version
                    or at_least(h.last_ms, h.last_seq, little(body + 8, 8), little(body + 16, 8))
                    or not h.may_begin(size[0] - NODE_BODY, size[0], elements)):
                return False
        self.put_ahead(h)
        self.begin_step(h, p[28], body, size[0], position)
        self.count(h)
        return seals or h.usable

    cdef bint take_in_created(self, const u8* body, u64 size, u64 position) except -1:
        """A frame that makes a stream; False: it does not fit."""
        cdef u64 number = little(body, 8)
        cdef Handle h
        cdef bytes name
        if number < self.next_stream:
            return False
        if ls_load(self.wake + W_INDEXED) >= position + HEAD + size:
            self.next_stream = number + 1
            return True         # the index has it: it is looked up there
        name = PyBytes_FromStringAndSize(<const char*>body + CREATE_BODY, size - CREATE_BODY)
        h = self.handle(name)
        if self.is_current(h) or number in self.by_number:
            return False
        self.next_stream = number + 1
        self.hold(h, number, name)
        self.put_ahead(h)
        h.create(number, name, position)
        return True

    cdef bint give_back_rest(self, cache) except -1:
        cdef Handle h
        for h in self.dirty:
            if h.created or h.seals.size:
                if not h.usable:
                    return False    # it has no room for what was taken in: the log says what it is
                cache.owe_begun({h.name: h.number} if h.created else {}, h.sealed())
                h.created = False
                h.seals.size = 0
        return True

    cdef void framed_to(self, u8 kind, u64 size) noexcept:
        """A frame stands at the end of `out`, but for its head."""
        cdef Step* step = &self.steps[self.frames]
        step.kind, step.at, step.size = kind, self.out.size, size
        self.out.size += size
        self.frames += 1

    cdef bint stays(self, const Asked* asked, Handle h, bint new, u64 last_ms,
                    u64 last_seq) noexcept:
        """Whether a trim behind the entry, which begins a node, takes nothing away."""
        if new:
            return nothing_goes(asked, 1, 1, asked.ms, asked.seq, asked.ms, asked.seq)
        if h.nodes:
            return h.knows_head and nothing_goes(
                asked, h.length + 1, h.head_live, h.head_ms, h.head_seq, h.first_ms, h.first_seq)
        # Its first node is the one that is sealed now.
        return nothing_goes(asked, h.length + 1, h.live, last_ms, last_seq, h.first_ms, h.first_seq)


cdef int put_new_node(Buf* out, const Row* row) noexcept nogil:
    """Append a node of this one entry."""
    cdef u64 at = out.size
    cdef int64_t elements = master_elements(row.width) + entry_elements(True, row.width) + 1
    cdef int code = buf_reserve(out, new_node_room(row))
    if code != OK:
        return code
    out.size += HEADER_BYTES
    buf_int(out, 1)                             # there is room: none of these fails
    buf_master_head(out, row.width)
    buf_add(out, row.names.data, row.names.size)
    buf_master_tail(out)
    buf_entry_head(out, True, 0, 0, row.width)
    buf_add(out, row.elements.data, row.elements.size)
    buf_entry_tail(out, True, row.width)
    out.data[out.size] = END_BYTE
    out.size += 1
    put_lp_head(out.data + at, out.size - at, <u64>elements)
    return OK


cdef inline u64 new_node_room(const Row* row) noexcept nogil:
    """Bytes of such a node, or more."""
    return HEADER_BYTES + row.names.size + row.elements.size + 9 * INT_BYTES_MAX + 1
