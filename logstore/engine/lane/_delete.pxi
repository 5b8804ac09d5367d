# Commits of deletes: one entry of a node that keeps others.

cdef enum:
    NOT_THERE = 0           # nothing to commit
    FOUND = 1
    NOT_KEPT = -4           # NOT_DONE, but for a node that the read core has not read

ctypedef struct Target:     # an entry that goes; borrowed from who deletes
    PyObject* handle        # NULL: nobody does
    bint in_open            # of the open node
    u64 node_ms             # the node
    u64 node_seq
    u64 version
    uint32_t ordinal        # the entry's place in it
    u64 ms                  # its ID
    u64 seq
    u64 first_ms            # of the stream, behind it
    u64 first_seq


cdef class DeleteLane(BeginLane):
    """Deletes, too; see native.pyx."""

    cdef Target target
    cdef bytes marked_lp        # the open node behind the delete that is decided
    cdef int64_t deletes

    def delete(self, bytes name not None, id not None, list told not None):
        """Delete an entry, as `streams.removal` does; 1, or 0 if there is none; None: it, or the
        moment, is not plain; False: the read core keeps nothing of its node yet. The number is put
        into `told`, too, once it is committed."""
        cdef Handle h
        cdef Tried tried
        cdef Asked asked
        cdef int became = NOT_PLAIN, done
        cdef bint grouped = False
        cdef u64 ms = 0, seq = 0
        if not self.may_try():
            return None
        id_of(id, &ms, &seq)
        h = self.handle(name)
        if not self.try_lock():
            return None
        ask_nothing(&asked, False)
        asked.handle = <PyObject*>h
        try:
            done = self.delete_locked(h, name, ms, seq, &asked, &tried, &became)
            if became > COMMITTED:
                self.ask(became, &tried)
        finally:
            self.target.handle = NULL
            grouped = self.unlock(&asked, 1 if became else 0)
            self.marked_lp = None
            self.release()
        if became:
            told.append(done)
        if grouped:
            self.engine.wake.waits.waiters.wake_buckets({h.bucket}, set())
        if done < 0:
            return None if done == NOT_DONE else False
        return done

    cdef int delete_locked(self, Handle h, bytes name, u64 ms, u64 seq, const Asked* asked,
                           Tried* tried, int* became) except -3:
        """Decide and commit; what `delete` gives, or NOT_DONE."""
        cdef u64 start = ls_load(self.wake + W_APPLIED), epoch
        cdef int64_t now_ns = ls_now_ns(MONOTONIC)
        cdef Target* target = &self.target
        cdef int found
        if not self.may_commit_now(start, now_ns):
            return NOT_DONE
        if not self.is_current(h):
            self.learn(h, name)
        if not self.has_followed(start):
            return NOT_DONE
        if not self.is_current(h) or not h.known or not h.length:
            return NOT_DONE
        if not (at_least(ms, seq, h.first_ms, h.first_seq)
                and at_least(h.last_ms, h.last_seq, ms, seq)):
            return NOT_THERE
        epoch = self.epoch
        target.handle, target.ms, target.seq = <PyObject*>h, ms, seq
        target.in_open = h.open_version and at_least(ms, seq, h.master_ms, h.master_seq)
        try:
            found = self.find_in_open(h) if target.in_open else self.find_sealed(h)
        except CorruptNodeError:
            return NOT_DONE     # the pipeline says what it is
        if found != FOUND:
            return found
        # Python ran: is everything as it was?
        if self.epoch != epoch or not self.is_current(h) or self.wake == NULL:
            return NOT_DONE
        self.deleted_in(h.number)
        self.lay_out_delete(h)
        if not self.fits(start, self.out.size):
            return NOT_DONE
        self.put_ahead(h)
        self.count(h)
        self.put_heads(2, start, tried)
        became[0] = self.commit_steps(asked, 1, 2, None, now_ns, tried)
        return 1

    cdef int find_in_open(self, Handle h) except -3:
        """Where the entry stands in the open node; NOT_THERE, or NOT_DONE."""
        cdef Target* target = &self.target
        cdef bytes lp
        cdef int64_t place
        if not h.usable:
            return NOT_DONE
        target.node_ms, target.node_seq, target.version = h.master_ms, h.master_seq, h.open_version
        lp = PyBytes_FromStringAndSize(<char*>h.lp.data, h.lp.size)
        place = _codec().find(lp, target.node_ms, target.node_seq, target.ms, target.seq, b"")
        if place < 0:
            return NOT_THERE
        if h.live <= 1:
            return NOT_DONE     # the node goes, too
        target.ordinal = <uint32_t>place
        self.marked_lp = _codec().mark_deleted(lp, (place,))
        return self.know_first(h, self.marked_lp, b"")

    cdef int find_sealed(self, Handle h) except -3:
        """The same of one in a sealed node, as the read core has it."""
        cdef Target* target = &self.target
        cdef int64_t place
        cdef bytes lp, vector
        reader = self.engine.reader
        found = _MISS if reader is None else reader.place(h.name, target.ms, target.seq)
        if found is _MISS:
            return NOT_DONE if reader is None else NOT_KEPT
        if found is None:
            return NOT_THERE
        node_ms, node_seq, version, live, vector, lp = found
        target.node_ms, target.node_seq, target.version = node_ms, node_seq, version
        place = _codec().find(lp, node_ms, node_seq, target.ms, target.seq, vector)
        if place < 0:
            return NOT_THERE
        if live <= 1:
            return NOT_DONE
        target.ordinal = <uint32_t>place
        return self.know_first(h, lp, vector)

    cdef int know_first(self, Handle h, bytes lp, bytes vector) except -3:
        """The first ID behind the delete. If the first entry goes, the next one is of its node,
        which keeps one; that is the first node with entries."""
        cdef Target* target = &self.target
        cdef u64 ms = h.first_ms, seq = h.first_seq
        if target.ms == ms and target.seq == seq:
            if not target.in_open:
                vector = _vector_with(vector, (target.ordinal,))
            first = _codec().first_live_id(lp, target.node_ms, target.node_seq, vector)
            if first is None:
                return NOT_DONE
            ms, seq = first
        target.first_ms, target.first_seq = ms, seq
        return FOUND

    cdef int lay_out_delete(self, Handle h) except -1:
        """Write both frames but for their heads, and take the memory that applying them needs."""
        cdef Target* target = &self.target
        cdef u64 gone_ms = h.gone_ms, gone_seq = h.gone_seq
        cdef u8* p
        if at_least(target.ms, target.seq, gone_ms, gone_seq):
            gone_ms, gone_seq = target.ms, target.seq
        if target.in_open:
            fail(buf_reserve(&h.lp, size_of(self.marked_lp) + INT_BYTES_MAX))
        else:
            fail(buf_reserve(&h.marks, MARK_BYTES))
        self.out.size = self.frames = 0
        fail(buf_reserve(&self.out, HEAD + TOMBSTONE_BODY + 4 + HEAD + RECORD_BODY))
        p = self.out.data + HEAD
        put_64(p, h.number)
        put_64(p + 8, target.node_ms)
        put_64(p + 16, target.node_seq)
        put_64(p + 24, target.version)
        put_32(p + TOMBSTONE_BODY, target.ordinal)
        self.framed_to(KIND_TOMBSTONE, HEAD + TOMBSTONE_BODY + 4)
        self.put_record(h.number, h.length - 1, h.added, h.last_ms, h.last_seq, target.first_ms,
                        target.first_seq, gone_ms, gone_seq)
        return 0

    cdef void apply_step(self, const Asked* asked, int i, u64 position) noexcept:
        cdef const u8* body = self.out.data + self.steps[i].at + HEAD
        cdef Handle h
        if self.steps[i].kind == KIND_TOMBSTONE:
            h = <Handle>self.target.handle
            if self.target.in_open:
                h.put_marked(self.marked_lp)
            else:
                h.mark(body, self.target.ordinal)
            if (h.knows_head
                    and at_least(h.head_ms, h.head_seq, self.target.node_ms, self.target.node_seq)):
                h.head_live -= 1
            self.deletes += 1
        elif self.steps[i].kind == KIND_RECORD and self.target.handle != NULL:
            (<Handle>self.target.handle).state(body, position)
        else:
            BeginLane.apply_step(self, asked, i, position)

    # -- others' deletes, and the record cache -----------------------------------------------------
    cdef bint take_in_frame(self, const u8* p, u64 left, u64 position, u64* size) except -1:
        cdef Handle h
        cdef u64 epoch = self.epoch, version, count, i
        cdef bint states = is_frame(p, left, RECORD_BODY, KIND_RECORD, size)
        if not states and not is_frame(p, left, TOMBSTONE_BODY, KIND_TOMBSTONE, size):
            return BeginLane.take_in_frame(self, p, left, position, size)
        if frame_crc(p, position, size[0], self.seed) != little(p, 4):
            return False
        if not states:          # whatever is known of the stream: it may have been looked up since
            self.deleted_in(little(p + HEAD, 8))
        h = self.held(little(p + HEAD, 8))
        if h is None or self.epoch != epoch or not self.is_current(h):
            return False
        if h.position >= position:
            return True         # it was looked up just now, in an index that had followed
        self.put_ahead(h)
        if states:
            h.state(p + HEAD, position)
            return True
        version, count = little(p + HEAD + 24, 8), (size[0] - TOMBSTONE_BODY) >> 2
        h.knows_head = False
        h.position = position
        if version != h.open_version:
            fail(buf_reserve(&h.marks, count * MARK_BYTES))
            for i in range(count):
                h.mark(p + HEAD, <uint32_t>little(p + HEAD + TOMBSTONE_BODY + 4 * i, 4))
            return True
        if not h.usable:
            return False
        places = tuple([little(p + HEAD + TOMBSTONE_BODY + 4 * i, 4) for i in range(count)])
        made = <bytes?>_codec().mark_deleted(
            PyBytes_FromStringAndSize(<char*>h.lp.data, h.lp.size), places)
        if self.epoch != epoch or not self.is_current(h):
            return False
        fail(buf_reserve(&h.lp, size_of(made) + INT_BYTES_MAX))
        h.put_marked(made)
        return True

    cdef bint give_back_rest(self, cache) except -1:
        cdef Handle h
        if not BeginLane.give_back_rest(self, cache):
            return False
        for h in self.dirty:
            if h.marks.size:
                cache.owe_tombstones(h.tombstones())
                h.marks.size = 0
        return True

    def take_counts(self):
        cdef int64_t deletes = self.deletes
        self.deletes = 0
        counts = BeginLane.take_counts(self)
        counts["deleted_entries"] = deletes
        return counts
