# What a lane holds: streams as they are where the log stands, learned from the record cache.

cdef u64 NOWHERE = ~<u64>0
cdef enum:
    HANDLES_BYTES_MAX = 32 << 20    # of memory that handles take
    CATCH_UP_BYTES_MAX = 1 << 16
    STEPS_MAX = 64          # entries of one commit

ctypedef struct Step:       # a frame on its way into the log
    Append body             # of entries
    u8 kind                 # of its frame
    u64 at                  # where that stands in the commit
    u64 size                # bytes of that


cdef class HoldingLane:
    """What is held, and how it follows the log; see native.pyx. `Lane` is all of it."""

    cdef object engine, cache, busy, queue, lock, acquire, release, is_owned
    cdef object follow, failed, port
    cdef dict lag               # where INDEX_LAG_MAX_COMMITS and INDEX_LAG_MAX_BYTES stand
    cdef Py_buffer memory
    cdef u8* wake               # NULL: closed
    cdef readonly bint locked   # a call of this has the mutex: its thread may not come in again
    cdef readonly bint has_lock # and LOCK, too
    cdef int lock_fd, file_fd
    cdef bint in_vain           # LOCK was waited for, and not had since
    cdef int passed_over, passed_over_max   # releases in a row at which somebody waited for LOCK
    cdef uint32_t seed
    cdef bint always, everysec
    cdef u64 owner[2]
    # As the record cache stood where this took over, and what this did since.
    cdef u64 base, applied, commit, last_frame, generation, next_stream
    cdef uint32_t last_crc
    cdef int64_t owed, since    # commits: owed by the cache then, and made or taken in since
    cdef int64_t looked_ns      # when the store's files were looked at last
    cdef int64_t end_looked_ns, end_look_ns     # the same of the end of the log; between two looks
    cdef object file, limits_given
    cdef Limits limits
    cdef int64_t segment_bytes, look_ns
    cdef u64 epoch              # counts how often this took over
    cdef u64 valid_from         # handles that were learned before that epoch are learned anew
    cdef dict handles, by_number
    cdef list dirty             # handles that are ahead of the cache
    cdef readonly u64 held_bytes    # that handles take
    cdef public u64 held_bytes_max
    cdef u64 turn               # counts calls that encoded entries into `rows`
    cdef Row rows[STEPS_MAX]    # entries of these calls
    cdef Step steps[STEPS_MAX]
    cdef Buf out, tail
    cdef int64_t called_ms
    cdef int offers_count       # readers who wait, and get what this commit adds
    cdef bint yields            # some were woken
    cdef int64_t commits, entries, commit_bytes, added_bytes, syncs, sync_ns, sync_ns_max
    cdef int64_t shared         # calls that were committed with another one
    cdef int64_t sync_last_ns

    def __init__(self, engine, busy, queue, owner, dict lag not None, follow, failed,
                 int64_t look_ns, int64_t end_look_ns, int passed_over_max, port):
        """A lane beside an engine's pipeline.

        `busy`: of the committer; `queue`: of the requests of all threads; `owner`: pid and start
        time of this process; `follow`: lets the index follow, LOCK is held; `failed`: what became
        of a commit that was begun and failed, see lane.py; `look_ns`: between looks at the store's
        files, which the pipeline takes, and `end_look_ns` at the end of the log; `passed_over_max`:
        a process that waits for LOCK is passed over so often at most, then the pipeline gives way;
        `port`: what is asked of the index, see lane.py.
        """
        self.engine, self.busy, self.lag = engine, busy, lag
        self.follow, self.failed = follow, failed
        self.queue, self.port = queue, port
        self.cache, self.lock, mutex = engine.cache, engine.lock, engine.mutex
        self.acquire, self.release, self.is_owned = mutex.acquire, mutex.release, mutex._is_owned
        self.seed, self.look_ns, self.end_look_ns = engine.seed, look_ns, end_look_ns
        self.passed_over, self.passed_over_max = 0, passed_over_max
        self.lock_fd = engine.lock.file.fd
        self.always = engine.options.sync == "always"
        self.everysec = engine.options.sync == "everysec"
        self.owner[0], self.owner[1] = owner
        self.handles, self.by_number, self.dirty = {}, {}, []
        self.held_bytes, self.held_bytes_max = 0, HANDLES_BYTES_MAX
        self.applied = NOWHERE
        self.epoch = self.valid_from = 1
        PyObject_GetBuffer(engine.wake.memory, &self.memory, PyBUF_WRITABLE)
        self.wake = <u8*>self.memory.buf

    def __dealloc__(self):
        if self.wake != NULL:
            PyBuffer_Release(&self.memory)
        cdef int i
        for i in range(STEPS_MAX):
            buf_free(&self.rows[i].names)
            buf_free(&self.rows[i].elements)
        buf_free(&self.out)
        buf_free(&self.tail)

    def close(self):
        """No add goes through here any more, and the control block is let go of. The mutex is held,
        or nobody else is there."""
        if self.wake != NULL:
            self.wake = NULL
            self.forget()
            self.handles.clear()
            self.held_bytes = 0
            PyBuffer_Release(&self.memory)
            self.keep_file(None, -1, None)

    cdef int keep_file(self, file, int fd, limits) except -1:
        """Write to this segment, and by these limits. What was kept is freed behind that: freeing
        it may run Python."""
        before = self.file, self.limits_given
        self.file, self.file_fd, self.limits_given = file, fd, limits
        before = None
        return 0

    # -- where the log stands ----------------------------------------------------------------------
    cdef int64_t may_lag(self) except -1:
        """How many commits the index may be behind; 0: there is no lane."""
        return self.lag["INDEX_LAG_MAX_COMMITS"]

    cdef u64 lag_bytes(self) except? 0:
        return self.lag["INDEX_LAG_MAX_BYTES"]

    cdef inline bint is_current(self, Handle h) noexcept:
        """Whether a handle is its stream where the lane stands: then it is in `by_number`."""
        return h.epoch >= self.valid_from

    cdef void forget(self) noexcept:
        """Handles do not count any more; what the index lacks of them, it follows from the log."""
        self.stand_nowhere()
        self.valid_from = self.epoch
        self.by_number.clear()

    cdef void stand_nowhere(self) noexcept:
        """What is ahead of the record cache does not count any more; nor do groups."""
        cdef Handle h
        for h in self.dirty:
            h.dirty = False
            h.owe_nothing()
        self.dirty.clear()
        self.epoch += 1
        self.applied = self.base = NOWHERE
        self.since = self.owed = 0

    cdef bint stand(self, u64 applied) except -1:
        """Stand where the log does; False: the pipeline must bring the cache there."""
        cdef bint as_it_was
        cdef int64_t there
        if self.engine.gone:
            return False
        if self.applied != NOWHERE and applied < self.applied:
            self.engine.end_looked_ns = 0   # WAKE was written over: the pipeline looks at the log
            self.forget()
            return False
        as_it_was = (ls_load(self.wake + W_GENERATION) == self.generation
                     and self.engine.active is self.file
                     and self.engine.limits is self.limits_given)
        if as_it_was and applied == self.applied:
            return True
        there = self.cache.applied
        if not as_it_was or self.applied == NOWHERE or there != <int64_t>self.base:
            if not self.take_over(there):
                return False
        return self.applied == applied or self.catch_up(applied)

    cdef bint take_over(self, int64_t applied) except -1:
        """Go on from the record cache, which stands there; -1: nowhere."""
        cdef int64_t owed
        engine, cache = self.engine, self.cache
        if not self.keep_unchanged(cache):
            self.forget()
        file, limits = engine.active, engine.limits
        meta = cache.meta
        if (applied < 0 or meta is None or meta.applied != applied or file is None
                or cache.generation != ls_load(self.wake + W_GENERATION)
                or engine.active_number != ls_load(self.wake + W_ACTIVE)
                or engine.active_number != applied >> 32):
            return False
        self.keep_file(file, file.fd, limits)
        self.limits.bytes_max = limits.node_max_bytes or ENTRY_BYTES_MAX
        self.limits.entries_max = limits.node_max_entries
        self.segment_bytes = limits.segment_bytes
        self.looked_ns = engine.looked_ns
        self.end_looked_ns = engine.end_looked_ns
        self.generation = cache.generation
        self.commit = meta.commit
        self.next_stream = meta.next_stream
        owed = cache.owed_commits
        # A finaliser in between may have read, and the cache been cleared for that; or forked.
        if self.wake == NULL or <int64_t>cache.applied != applied:
            return False
        self.owed = owed
        self.base = self.applied = applied
        cache.changed_since(applied)
        return True

    cdef bint keep_unchanged(self, cache) except -1:
        """Keep the handles that are as they were for where the cache stands now, as far as it was
        given all that is held here, and knows which streams were changed since; False: it does not.
        There may be very many: only those that changed are looked at."""
        cdef Handle h
        changed = cache.changed
        if (changed is None or self.applied == NOWHERE or self.applied != self.base
                or cache.since != self.base or cache.generation != self.generation
                or self.engine.active is not self.file
                or self.engine.limits is not self.limits_given):
            return False
        self.stand_nowhere()
        for number in changed:
            h = self.by_number.pop(number, None)
            if h is not None:
                h.epoch = 0
        return True

    cdef bint is_at_base(self, cache) except -1:
        """Whether the record cache is still what it was where this took over."""
        cdef int64_t there = cache.applied      # below 0: nowhere
        return there >= 0 and <u64>there == self.base and cache.generation == self.generation

    # -- streams -----------------------------------------------------------------------------------
    cdef Handle handle(self, bytes name):
        """The handle of a name, which may have learned nothing yet."""
        cdef Handle h
        cdef PyObject* found = PyDict_GetItemWithError(self.handles, name)
        if found != NULL:
            h = <Handle>found
            h.used = True
            return h
        if self.held_bytes > self.held_bytes_max:
            self.give_up_handles()
        h = Handle()
        h.bucket = crc32(name) & (BUCKETS - 1)
        h.used = True
        there = self.handles.setdefault(name, h)    # another thread may have been quicker
        if there is h:
            self.count(h)
        return <Handle>there

    cdef void count(self, Handle h) noexcept:
        """Count what a handle takes now."""
        cdef u64 size = h.held_bytes()
        self.held_bytes += size - h.counted
        h.counted = size

    cdef int give_up_handles(self) except -1:
        """Give up handles that were not used since this looked last, until there is room for some;
        none of which the record cache has less. What is given up is looked up in the index
        again."""
        cdef Handle h
        for name, h in list(self.handles.items()):
            if self.held_bytes <= self.held_bytes_max // 4 * 3:
                break
            if h.dirty or h.groups or self.handles.get(name) is not h:
                continue
            if h.used:
                h.used = False
                continue
            # From here on no code of Python runs that could use it.
            h.epoch = 0         # who has it still learns of it anew, and may not beside another one
            self.held_bytes -= h.counted
            h.counted = 0
            del self.handles[name]
            if self.by_number.get(h.number) is h:
                del self.by_number[h.number]
        return 0

    cdef Handle held(self, u64 number):
        """The handle of a stream that others added to; None if it is not plain."""
        cdef Handle h
        cdef PyObject* found = PyDict_GetItemWithError(self.by_number, number)
        if found != NULL:
            return <Handle>found
        record, loaded = self.cache.records.get(number), None
        if record is None:
            loaded = self.port.load(None, number)
            if not loaded:
                return None
            record = loaded[0]
        h = self.handle(record.name)
        return h if self.learn(h, record.name, number, loaded) else None

    cdef bint learn(self, Handle h, bytes name, number=None, loaded=None) except -1:
        """Take a stream over from the cache, which is what it was where this took over: nothing
        that was committed since is of a stream that has no handle here. What the cache has not is
        looked up in the index: that lacks of it nothing, as what is owed to the index stays in the
        cache, or in the handle of its name. It may be known and not usable."""
        cdef u64 epoch = self.epoch
        cache = self.cache
        h.absent = False
        if not self.is_at_base(cache):
            return False
        number = cache.numbers.get(name) if number is None else number
        record, node = cache.records.get(number), cache.opens.get(number)
        if record is None or record.name != name or (record.open_version and node is None):
            if loaded is None:
                loaded = self.port.load(name, None)
            # Of another handle of the name this one knows nothing: what the index lacks is there.
            h.absent = loaded is False and self.handles.get(name) is h
            if not loaded:
                return False
            record, node = loaded
            number = record.number
        if record.name != name or number in self.by_number:
            return False    # there is one handle of a stream
        h.learn(record, node)
        if not h.known or self.epoch != epoch or not self.is_at_base(cache):
            return False    # Python ran: what was taken is of a state that is gone
        self.hold(h, number, name)
        return True

    cdef int hold(self, Handle h, number, bytes name) except -1:
        """It is the one handle of its stream from here on, as this one is now."""
        cdef Handle other = self.handles.get(name)
        if other is not None and other is not h:
            self.held_bytes -= other.counted
            other.counted = 0
        h.epoch, h.dirty = self.epoch, False
        self.by_number[number] = self.handles[name] = h
        self.count(h)
        return 0

    cdef int put_ahead(self, Handle h) except -1:
        """It has what the record cache has not, or will have."""
        if not h.dirty:
            self.dirty.append(h)
            h.dirty = True
        return 0

    # -- others' commits ---------------------------------------------------------------------------
    cdef bint catch_up(self, u64 upto) except -1:
        """Take in what others committed since; False: it cannot, and then nothing is held any more,
        as behind an error, which may leave half of a frame."""
        cdef bint there = False
        try:
            there = self.take_in(upto)
        finally:
            if not there:
                self.forget()
        return there

    cdef bint take_in(self, u64 upto) except -1:
        """The same; False: it is not all plain, or not of what is held here."""
        cdef u64 at = 0, count, size, start, epoch = self.epoch
        cdef u8* p
        cdef Append body
        cdef Handle h
        if (self.applied == NOWHERE or upto <= self.applied or upto >> 32 != self.applied >> 32
                or upto - self.applied > CATCH_UP_BYTES_MAX or self.engine.active is not self.file
                or self.engine.limits is not self.limits_given
                or ls_load(self.wake + W_GENERATION) != self.generation):
            return False
        count = upto - self.applied
        self.tail.size = 0
        fail(buf_reserve(&self.tail, count))
        if pread(self.file_fd, self.tail.data, count, self.applied & 0xFFFFFFFF) != <ssize_t>count:
            return False
        if not self.settle_owed():
            return False
        while at < count:
            p, start = self.tail.data + at, self.applied
            h = None
            if (is_append(p, count - at, &body, &size)
                    and frame_crc(p, start, size, self.seed) == little(p, 4)):
                h = self.held(body.stream)
                if self.epoch != epoch:
                    return False
            if h is not None and h.position >= start:
                pass            # it was looked up just now, in an index that had followed
            elif h is not None and h.can_grow(size - APPEND_BODY, &body):
                self.put_ahead(h)
                h.grow(p + HEAD + APPEND_BODY, size - APPEND_BODY, &body, start)
                self.count(h)
            elif h is not None or not (self.unlearn(p, count - at, start, &size)
                                       or self.take_in_frame(p, count - at, start, &size)):
                return False
            self.commit = little(p + 8, 8)
            self.last_frame = start
            self.last_crc = <uint32_t>little(p, 4)
            self.applied = start + HEAD + size
            if ends_commit(p):
                self.since += 1
            if not self.settle_owed():
                return False
            at += HEAD + size
        return True

    cdef bint settle_owed(self) except -1:
        """If another process let the index follow, it has all that is held here, and nothing is
        owed. What the record cache has less of a stream, it asks the index for. False: amid it
        everything was forgotten."""
        cdef Handle h
        cdef u64 epoch = self.epoch
        if self.applied > ls_load(self.wake + W_INDEXED):
            return True
        self.since = self.owed = 0
        for h in self.dirty:
            h.dirty = False
            h.owe_nothing()
            self.cache.lack(h.number)
        self.dirty.clear()
        return self.epoch == epoch

    cdef bint unlearn(self, const u8* p, u64 left, u64 position, u64* size) except -1:
        """Of a frame that seals or begins a node, which the index has: its stream is looked up
        there again when it is needed. False: it is another frame, or the index has it not.

        From here on the record cache lacks the stream, too: it stands where this took over, and the
        index is beyond that. So nothing of the stream is owed.
        """
        cdef Handle h
        cdef PyObject* found
        if not (is_frame(p, left, NODE_BODY, KIND_NODE, size)
                or is_frame(p, left, NODE_BODY, KIND_OPEN, size)
                or is_frame(p, left, RECORD_BODY, KIND_RECORD, size)):
            return False
        if (frame_crc(p, position, size[0], self.seed) != little(p, 4)
                or ls_load(self.wake + W_INDEXED) < position + HEAD + size[0]):
            return False
        number = little(p + HEAD, 8)
        found = PyDict_GetItemWithError(self.by_number, number)
        if found != NULL:
            h = <Handle>found
            h.epoch = 0
            if h.dirty:
                h.dirty = False
                h.owe_nothing()
                self.dirty.remove(h)
            del self.by_number[number]
        self.deleted_in(number)
        self.cache.lack(number)
        return True

    cdef bint take_in_frame(self, const u8* p, u64 left, u64 position, u64* size) except -1:
        """Let a frame of another process count that adds nothing to a stream; False: it cannot."""
        return False

    cdef int deleted_in(self, u64 stream) except -1:
        """Entries of a stream were deleted, or may have been: forget what is kept of its sealed
        nodes."""
        return 0

    # -- the record cache, and the index -----------------------------------------------------------
    cdef bint has_followed(self, u64 applied) except -1:
        """Whether the index may lag one more commit; it follows, if it has to."""
        return self.owed + self.since < self.may_lag() or self.follow_locked(applied)

    cdef bint follow_locked(self, u64 applied) except -1:
        """Let the index follow; False: it cannot, and the pipeline says why."""
        self.lock.held = True
        try:
            self.give_back()
            self.follow()
        except Exception:
            return False
        finally:
            self.lock.held = False
        # Code of Python ran: is everything as it was?
        if self.wake == NULL or self.cache.applied != self.base or self.applied != applied:
            return False
        self.owed = self.cache.owed_commits
        return self.owed < self.may_lag() and self.stand(ls_load(self.wake + W_APPLIED))

    def give_back(self):
        """Let the record cache have what is held here, as it stands where the log does. The mutex
        and LOCK are held. What was changed stays owed to the index; the handles stay valid until
        somebody commits.

        Cut off by an interrupt, or an error, the cache stands nowhere: the index follows from the
        log then.
        """
        cdef Handle h
        cache, meta = self.cache, self.cache.meta
        if self.wake == NULL or self.applied == self.base or self.applied == NOWHERE:
            return
        if (cache.applied != self.base or meta is None or cache.generation != self.generation
                or self.generation != ls_load(self.wake + W_GENERATION)):
            return
        cache.applied = -1
        if ls_load(self.wake + W_INDEXED) >= self.base:
            cache.paid_by_another()
        if not self.give_back_rest(cache):
            return
        numbers = {h.number for h in self.dirty}
        opens = {h.number for h in self.dirty if h.usable}
        for h in self.dirty:
            record, node = cache.records.get(h.number), cache.opens.get(h.number)
            if record is None or (node is None and h.usable):
                record, node = h.whole()
                cache.records[h.number] = record
                if node is not None:
                    cache.opens[h.number] = node
            else:       # of a node that is not held here it changed nothing
                h.give_back(record, node if h.usable else None)
        cache.owe(numbers, opens, self.since)
        cache.meta = _Meta(self.applied, self.commit, self.last_frame, self.last_crc, meta[4],
                           self.next_stream, meta[6])
        for h in self.dirty:
            h.dirty = False
        self.dirty.clear()
        self.owed = cache.owed_commits
        self.since = 0
        cache.changed_since(self.applied)
        self.base = cache.applied = self.applied

    cdef bint give_back_rest(self, cache) except -1:
        """What else is held here; False: the cache cannot take it."""
        return True
