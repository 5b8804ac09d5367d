# Commits of plain adds.

cdef u64 NOWHERE = ~<u64>0
cdef enum:
    HANDLES_BYTES_MAX = 32 << 20    # of memory that handles take
    CATCH_UP_BYTES_MAX = 1 << 16
    STEPS_MAX = 16          # entries of one commit
    LOCK_SPIN_NS = 3000     # a commit takes four thousand
    LOCK_WAIT_NS = 5000000  # then the pipeline waits: it knows deadlines and interrupts

cdef enum:                  # what became of a try
    NOT_PLAIN = 0           # nothing has happened, the pipeline does it
    COMMITTED = 1
    APPEND_FAILED = 2
    SYNC_FAILED = 3
    INDEX_FAILED = 4        # behind the append, which counts

cdef enum:                  # what a decision gives instead of a number
    NOT_DONE = -2           # the pipeline does it

ctypedef struct Tried:      # a commit that was begun, for who asks the log what became of it
    u64 start
    u64 last                # where its last frame starts
    u64 commit
    uint32_t crc            # of that
    int error               # of the system

ctypedef struct Step:       # the same on its way into the log
    Row row
    Append body
    u8 kind                 # of its frame
    u64 at                  # where that stands in the commit
    u64 size                # bytes of that


cdef class AddLane:
    """Adds of one engine, each a commit; see native.pyx. `Lane` does groups, too."""

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
    cdef u64 turn               # counts calls that encoded entries into rows of `steps`
    cdef Step steps[STEPS_MAX]
    cdef Buf out, tail
    cdef int64_t called_ms
    cdef int offers_count       # readers who wait, and get what this commit adds
    cdef bint yields            # some were woken
    cdef int64_t commits, entries, commit_bytes, added_bytes, syncs, sync_ns, sync_ns_max

    def __init__(self, engine, busy, queue, owner, dict lag not None, follow, failed, int64_t look_ns,
                 int64_t end_look_ns, int passed_over_max, port):
        """A lane beside an engine's pipeline.

        `busy`: of the committer; `queue`: of the requests of all threads; `owner`: pid and start
        time of this process; `follow`: lets the index follow, LOCK is held; `failed`: what became
        of a commit that was begun and failed, see lane.py; `look_ns`: between looks at the store's
        files, which the pipeline takes, and `end_look_ns` at the end of the log; `passed_over_max`: a process that waits for LOCK is passed
        over so often at most, then the pipeline gives way; `port`: what is asked of the index, see
        lane.py.
        """
        self.engine, self.busy, self.lag, self.follow, self.failed = engine, busy, lag, follow, failed
        self.queue, self.port = queue, port
        self.cache, self.lock, mutex = engine.cache, engine.lock, engine.mutex
        self.acquire, self.release, self.is_owned = mutex.acquire, mutex.release, mutex._is_owned
        self.seed, self.look_ns, self.end_look_ns = engine.seed, look_ns, end_look_ns
        self.passed_over, self.passed_over_max = 0, passed_over_max
        self.lock_fd = engine.lock.file.fd
        self.always, self.everysec = engine.options.sync == "always", engine.options.sync == "everysec"
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
            buf_free(&self.steps[i].row.names)
            buf_free(&self.steps[i].row.elements)
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
        """Write to this segment, and by these limits. What was kept is freed behind that: freeing it
        may run Python."""
        before = self.file, self.limits_given
        self.file, self.file_fd, self.limits_given = file, fd, limits
        before = None
        return 0

    # -- one add -----------------------------------------------------------------------------------
    def add(self, bytes name not None, fields not None, list told not None, bint ascii=False,
            tuple options=None):
        """Commit an entry; its ID, or None: the moment is not plain; False: the entry is not, or its
        options are not.

        `fields`: a dict, or a tuple of bytes, field and value by turns; `ascii`: text beyond it is
        not stored as UTF-8; `options`: ID, maxlen, minid, approximate, limit, create; None: `*`, and
        none. The ID is put into `told`, too: whatever is raised then, an interrupt behind the end of
        this call as well, the commit counts. Lock order as everywhere: the mutex, then LOCK. The
        first is not waited for, the other one for some milliseconds. MemoryError, and nothing
        happened; what `failed` raises.
        """
        cdef Handle h
        cdef u64 turn
        cdef Asked asked
        if not self.may_try():
            return None
        h = self.handle(name)
        self.turn += 1
        turn = self.turn
        ask_nothing(&asked, ascii)
        if options is not None and not self.take_options(&asked, options):
            return False
        asked.handle, asked.name, asked.fields = <PyObject*>h, <PyObject*>name, <PyObject*>fields
        asked.version = h.version
        if not h.encode(&self.steps[0].row, fields, ascii):
            return False
        return told[0] if self.commit_asked(&asked, 1, turn, told) else None

    cdef bint take_options(self, Asked* asked, tuple options) except -1:
        """Take what is asked for beside the entry; False: it is not plain."""
        id, maxlen, minid, approximate, limit, create = options
        return read_asked(asked, id, maxlen, minid, approximate, limit, create)

    def add_all(self, list entries not None, list told not None):
        """Commit entries as one, each a tuple of the stream's name, fields and options, as `add` has
        them; whether that is done. IDs are put into `told`."""
        cdef Handle h
        cdef u64 turn
        cdef Asked asked[STEPS_MAX]
        cdef Asked* one
        cdef Py_ssize_t i, count
        # `asked` has no references of its own: what it points to is kept alive in these.
        cdef list handles = [], kept = list(entries)
        count = PyList_GET_SIZE(kept)
        if not 0 < count <= STEPS_MAX or not self.may_try():
            return False
        self.turn += 1
        turn = self.turn
        for i in range(count):
            name, fields, options = <tuple?>kept[i]
            h = self.handle(<bytes?>name)
            handles.append(h)
            one = &asked[i]
            ask_nothing(one, False)
            if options is not None and not self.take_options(one, options):
                return False
            one.handle, one.name, one.fields = <PyObject*>h, <PyObject*>name, <PyObject*>fields
            one.version, one.acks = h.version, type(fields) is tuple
            if not one.acks and not h.encode(&self.steps[i].row, fields, False):
                return False
        return self.commit_asked(asked, count, turn, told)

    def plain(self, fields not None, bint ascii=False, tuple options=None):
        """A copy of an entry for `add_all`; None if it is not plain, or its options are not."""
        cdef Row* row = &self.steps[0].row
        cdef Asked asked
        if options is not None and not self.take_options(&asked, options):
            return None
        if type(fields) is not dict:
            return None
        self.turn += 1          # what stands in the row is of nobody then
        row.elements.size = row.raw_bytes = 0
        if not put_all(fields, &row.elements, &row.elements, &row.raw_bytes, ascii):
            return None
        return PyDict_Copy(fields)

    cdef bint may_try(self) except -1:
        """Whether the lane is open, and it is its turn."""
        if self.wake == NULL or not self.may_lag() or self.busy.now:
            return False        # who is inside a call already is told so by the committer
        if self.always and self.queue.expected > 1:
            return False        # threads share a sync there; one beside them would only delay it
        if self.passed_over >= self.passed_over_max:
            self.passed_over = 0
            self.lock.passed_over = self.passed_over_max
            return False
        return True

    cdef bint commit_asked(self, Asked* asked, int count, u64 turn, list told) except -1:
        """Commit entries that were encoded; False: nothing has happened. IDs go into `told`."""
        cdef Tried tried
        cdef int i, became = NOT_PLAIN
        cdef bint grouped = False
        if not self.try_lock():
            return False
        try:
            became = self.commit_locked(asked, count, turn, told, &tried)
            if became > COMMITTED:
                self.ask(became, &tried)
        finally:
            grouped = self.unlock(asked, count)
            self.forget_offers()
            self.release()
        if not became:
            return False
        for i in range(<int>PyList_GET_SIZE(told), count):      # or it was told already
            told.append(1 if asked[i].acks else ls_id(_StreamID, asked[i].ms, asked[i].seq))
        if grouped:
            buckets = {(<Handle>asked[i].handle).bucket for i in range(count) if not asked[i].acks}
            self.engine.wake.waits.waiters.wake_buckets(buckets, set())
        if self.yields:         # or they would wait until this thread's slice is over
            with nogil:
                ls_yield()
        return True

    cdef bint try_lock(self) except -1:
        """Take the mutex, if it is free at once, then LOCK, which is waited for a moment; but not
        once more by who waited in vain, as it is held for something long then, and this may be the
        thread of an event loop. `unlock` and `release` give them back, in this order."""
        if self.is_owned() is True or self.acquire(False) is not True:
            return False
        if self.wake != NULL and (not flock(self.lock_fd, LOCK_EX | LOCK_NB)
                                  or (not self.in_vain and self.waited_for_lock())):
            self.locked = self.has_lock = True
            self.in_vain = False
            return True
        self.release()
        return False

    cdef bint waited_for_lock(self) noexcept:
        """Take LOCK, which another process has: most commits are shorter than it takes to sleep.
        False: not within `LOCK_WAIT_NS`, or a signal came; the pipeline waits then.

        The mutex is held, and the interpreter let go of: a thread of this process that wants to
        commit goes to the pipeline, and waits for the mutex there.
        """
        cdef int64_t until_ns = ls_now_ns(MONOTONIC) + LOCK_WAIT_NS
        cdef int64_t spin_until_ns = until_ns - LOCK_WAIT_NS + LOCK_SPIN_NS, now_ns
        cdef uint32_t* word = <uint32_t*>(self.wake + W_WAITING)
        cdef int fd = self.lock_fd
        cdef bint taken = False
        with nogil:
            while not taken and ls_now_ns(MONOTONIC) < spin_until_ns:
                taken = not flock(fd, LOCK_EX | LOCK_NB)
            while not taken:
                ls_store_32(word, 1)
                # Once more behind the announcement: a release in between would have woken nobody.
                taken = not flock(fd, LOCK_EX | LOCK_NB)
                now_ns = ls_now_ns(MONOTONIC)
                if taken or now_ns >= until_ns or ls_sleep(word, 1, until_ns - now_ns) < 0:
                    break
        self.passed_over = 0
        self.in_vain = not taken
        if taken and self.wake == NULL:     # closed meanwhile, or in a child of a fork
            flock(fd, LOCK_UN)
            return False
        return taken

    cdef int tell_held(self, bint held) except -1:
        """Tell those who wait in the queue for a commit's sync that LOCK is held, or not any more."""
        if self.always:
            self.lock.held = held
        return 0

    cdef int64_t may_lag(self) except -1:
        """How many commits the index may be behind; 0: there is no lane."""
        return self.lag["INDEX_LAG_MAX_COMMITS"]

    cdef int commit_begun(self, Asked* asked, u64 start, int64_t now_ns, list told,
                          Tried* tried) except -1:
        """Commit an entry that begins a node."""
        return NOT_PLAIN

    cdef int commit_locked(self, Asked* asked, int count, u64 turn, list told,
                           Tried* tried) except -1:
        """Decide and commit; what became of it."""
        cdef u64 start = ls_load(self.wake + W_APPLIED)
        cdef int64_t now_ns = ls_now_ns(MONOTONIC)
        cdef int frames
        if not self.may_commit_now(start, now_ns):
            return NOT_PLAIN
        if not self.are_plain(asked, count, turn, start, now_ns) or not self.lay_out(asked, count):
            if count != 1 or asked[0].acks or self.wake == NULL:
                return NOT_PLAIN
            became = NOT_PLAIN
            self.forget_offers()
            try:
                became = self.commit_begun(asked, start, now_ns, told, tried)
            except BaseException:
                self.port.take_back()
                self.forget()
                raise
            finally:
                self.tell_held(False)
            return became
        frames = count
        if self.offers_count:
            if not self.lay_out_offers(<Handle>asked[0].handle, asked[0].ms, asked[0].seq):
                return NOT_PLAIN
            frames += self.offers_count
        if not self.fits(start, self.out.size):
            return NOT_PLAIN
        if self.offers_count and not self.offer(asked[0].ms, asked[0].seq):
            return NOT_PLAIN
        # crash: what was offered is taken back by who waits, behind a look at the index
        self.put_heads(frames, start, tried)
        return self.commit_steps(asked, count, frames, None, now_ns, tried)

    cdef void put_heads(self, int frames, u64 start, Tried* tried) noexcept:
        """Write the heads of frames that were laid out as `steps`, side by side."""
        cdef Step* step
        cdef int i
        tried.start, tried.commit = start, self.commit + 1
        for i in range(frames):
            step = &self.steps[i]
            tried.last = start + step.at
            tried.crc = put_head(self.out.data + step.at, tried.last, step.size - HEAD, tried.commit,
                                 ls_load(self.wake + W_DURABLE), self.seed, i, i == frames - 1,
                                 step.kind)

    cdef int commit_steps(self, const Asked* asked, int count, int frames, index, int64_t now_ns,
                          Tried* tried) except -1:
        """Append so many frames, of which the first `count` were asked for, and publish them; what
        became of it. `index`: LMDB's commit of their rows; None: it lags one more commit.

        Crash order, as the pipeline has it: the word of a commit in progress; all frames in one
        append; what the policy promises; LMDB's commit; the state in memory; where the log stands,
        `applied` behind what it depends on; the commit is over. From the first of these on no code
        of Python runs, but that LMDB's commit is called, and no memory is taken.
        """
        cdef u8* w = self.wake
        cdef u64 start = tried.start, size = self.out.size
        cdef int i, became
        self.tell_held(True)
        # -- from here on it may have happened
        ls_store(w + W_PROGRESS, tried.commit)
        # crash: the next writer runs the tail check, and finds nothing
        became = self.append(size, start, now_ns, tried)
        if became == COMMITTED and index is not None:
            try:
                index()         # it makes no object
            except BaseException:
                tried.error, became = 0, INDEX_FAILED
            else:               # crash: the tail check finds that the index is there
                ls_store(w + W_INDEXED, start + size)
        if became == COMMITTED:
            for i in range(frames):
                self.apply_step(asked, i, start + self.steps[i].at)
            self.publish(tried, size, asked, count)
        # -- to here
        self.tell_held(False)
        return became

    cdef void apply_step(self, const Asked* asked, int i, u64 position) noexcept:
        """Let a frame count that is in the log now. What begins a node is learned anew."""
        cdef Step* step = &self.steps[i]
        if step.kind != KIND_APPEND:
            return
        (<Handle>asked[i].handle).grow(
            self.out.data + step.at + HEAD + APPEND_BODY, step.size - HEAD - APPEND_BODY,
            &step.body, position)
        self.entries += 1
        self.added_bytes += step.size - HEAD - APPEND_BODY

    cdef bint decide_acks(self, const Asked* asked, int count, u64 start) except -1:
        """Know what is acked; False: it is not plain, or not pending as it must be."""
        return False

    cdef int lay_out_ack(self, int i) except -1:
        """Write the frame of an ack that was decided, but for its head."""
        return 0

    cdef bint may_commit_now(self, u64 start, int64_t now_ns) except -1:
        """Whether commits beside the pipeline may be decided now; LOCK was just taken."""
        cdef u8* w = self.wake
        ls_store(w + W_OWNER, self.owner[0])
        ls_store(w + W_OWNER + 8, self.owner[1])
        if ls_load(w + W_FAILED) or ls_load(w + W_PROGRESS) or w[W_FULL]:
            return False        # a failed sync, a dead writer's commit, a full disk
        if not self.stand(start) or now_ns - self.looked_ns >= self.look_ns:
            return False
        return now_ns - self.end_looked_ns < self.end_look_ns or self.ends_at(start, now_ns)

    cdef bint ends_at(self, u64 applied, int64_t now_ns) except -1:
        """Whether the log ends where WAKE says, in a file that still has its name; else the pipeline
        looks."""
        if ls_named_bytes(self.file_fd) != <int64_t>(applied & 0xFFFFFFFF):
            self.engine.end_looked_ns = 0
            return False
        self.end_looked_ns = now_ns
        return True

    cdef bint fits(self, u64 start, u64 size) except -1:
        """Whether a commit of so many bytes has room in the segment, and before the index must
        follow; else the pipeline sees to it."""
        return (<int64_t>((start & 0xFFFFFFFF) + size) <= self.segment_bytes
                and start + size - ls_load(self.wake + W_INDEXED) <= self.lag_bytes())

    cdef bint are_plain(self, Asked* asked, int count, u64 turn, u64 start, int64_t now_ns) except -1:
        """Know the streams, and have the entries encoded as these are now; False: one is not
        plain."""
        cdef Handle h
        cdef int i
        cdef bint encoded, acks = False
        for i in range(count):
            h = <Handle>asked[i].handle
            if not self.is_current(h):
                self.learn(h, <bytes>asked[i].name)
            if asked[i].acks and self.is_current(h) and h.known:
                acks = True
                continue
            if not self.is_current(h) or not h.usable:
                return False
            if self.is_awaited_by_groups(h.bucket, now_ns // 1000000) and not self.serves(h, count,
                                                                                        now_ns):
                return False    # the pipeline hands out
            if asked[i].trims and h.nodes and not h.knows_head and not self.look_at_head(h):
                return False
        if self.owed + self.since >= self.may_lag() and not self.follow_locked(start):
            return False
        if acks and not self.decide_acks(asked, count, start):
            return False
        # From here on no code of Python runs.
        encoded = turn == self.turn     # or other entries stand there
        for i in range(count):
            h = <Handle>asked[i].handle
            if not self.is_current(h):
                return False
            if not asked[i].acks:
                encoded = encoded and asked[i].version == h.version     # or its names are others
        if encoded:
            return True
        self.turn += 1
        for i in range(count):
            h = <Handle>asked[i].handle
            if asked[i].acks:
                continue
            if not h.encode(&self.steps[i].row, <object>asked[i].fields, asked[i].ascii):
                return False
        return True

    cdef bint look_at_head(self, Handle h) except -1:
        """Look up the first sealed node, for a trim; False: that cannot be."""
        cdef u64 epoch = self.epoch
        found = self.port.first_node(h.number)
        if found is None or self.epoch != epoch or not self.is_current(h):
            return False
        live, ms, seq, position = found
        live -= h.marks_of(position)
        h.head_live, h.head_ms, h.head_seq, h.knows_head = live, ms, seq, True
        return True

    cdef bint is_awaited_by_groups(self, uint32_t bucket, int64_t now_ms) noexcept nogil:
        """Whether somebody may wait for a group of a stream with this bucket."""
        return <int64_t>ls_load(self.wake + BUCKETS_AT + bucket * BUCKET + GROUPS_UNTIL) >= now_ms

    # What `Lane` does for readers of groups that wait, in the order in which it happens.
    cdef bint serves(self, Handle h, int count, int64_t now_ns) except -1:
        """Choose who is handed what is added; False: the pipeline must do it."""
        return False

    cdef bint lay_out_offers(self, Handle h, u64 ms, u64 seq) except -1:
        """Write the frames of deliveries behind that of the entry; False: they are not plain."""
        return True

    cdef bint offer(self, u64 ms, u64 seq) noexcept:
        """Tell those who wait what will be theirs; False: one does not wait any more."""
        return True

    cdef void give(self) noexcept:
        """What was offered is theirs: the commit is published."""
        pass

    cdef bint call_served(self) noexcept:
        """Wake them, behind LOCK; whether there is one."""
        return False

    cdef void forget_offers(self) noexcept:
        """The call is over, and none of them counts any more."""
        pass

    cdef bint is_called(self, uint32_t bucket) noexcept:
        """Whether others wait for groups of a bucket's streams, who are to be woken."""
        return True

    cdef bint lay_out(self, Asked* asked, int count) except -1:
        """Give IDs, and write the frames but for their heads; False: one has no room."""
        cdef u64 now_ms = <u64>(ls_now_ns(WALL) // 1000000)
        cdef Ahead ahead
        cdef Step* step
        cdef Handle h
        cdef int i, before
        self.out.size = 0
        for i in range(count):
            h, step = <Handle>asked[i].handle, &self.steps[i]
            step.at = self.out.size
            if asked[i].acks:
                self.lay_out_ack(i)
                continue
            memset(&ahead, 0, sizeof(Ahead))
            asked[i].ms, asked[i].seq = h.last_ms, h.last_seq
            for before in range(i):
                if asked[before].handle == asked[i].handle and not asked[before].acks:
                    ahead.bytes += self.steps[before].size - HEAD - APPEND_BODY
                    ahead.elements += self.steps[before].body.elements
                    ahead.entries += 1
                    asked[i].ms, asked[i].seq = asked[before].ms, asked[before].seq
            if not next_id(&asked[i], now_ms, &asked[i].ms, &asked[i].seq):
                return False
            if asked[i].trims and not stays_whole(&asked[i], h, ahead.entries):
                return False
            if not h.has_room(&step.row, &self.limits, &ahead):
                return False
            self.is_ahead(h)
            step.kind = KIND_APPEND
            fail(h.put_frame(&self.out, &step.row, asked[i].ms, asked[i].seq, &ahead, &step.body))
            step.size = self.out.size - step.at
            self.count(h)
        return True

    cdef int append(self, u64 size, u64 start, int64_t now_ns, Tried* tried) noexcept:
        """Write the frames, and make them durable as the policy says. Others of this process run
        meanwhile, and find the mutex taken."""
        cdef u8* w = self.wake
        cdef const u8* data = self.out.data
        cdef int64_t offset = start & 0xFFFFFFFF, began_ns, took_ns
        cdef int fd = self.file_fd
        with nogil:
            tried.error = ls_write(fd, data, size, offset)
        if tried.error:
            return APPEND_FAILED
        # crash in the write: a torn tail, which the tail check cuts off; behind it: the commit is
        # complete in the log, so it counts, and the tail check publishes it
        if self.always:
            if ls_load(w + W_FAILED):
                tried.error = 0
                return SYNC_FAILED      # one that succeeds behind it is not to be believed
            with nogil:
                began_ns = ls_now_ns(MONOTONIC)
                tried.error = ls_sync(fd)
                took_ns = ls_now_ns(MONOTONIC) - began_ns
            if tried.error:
                ls_store(w + W_FAILED, ls_load(w + W_DURABLE) or start or 1)
                return SYNC_FAILED
            self.syncs += 1
            self.sync_ns += took_ns
            self.sync_ns_max = max(self.sync_ns_max, took_ns)
            if start + size > ls_load(w + W_DURABLE):
                ls_store(w + W_DURABLE, start + size)
            ls_store(w + W_UNSYNCED, 0)
        elif self.everysec and not ls_load(w + W_UNSYNCED):
            ls_store(w + W_UNSYNCED, now_ns // 1000000)
        return COMMITTED

    cdef void publish(self, const Tried* tried, u64 size, const Asked* asked, int count) noexcept:
        """Tell all processes where the log stands; the index lags one more commit behind."""
        cdef u8* w = self.wake
        cdef u8* bucket
        cdef int i
        self.applied = tried.start + size
        self.commit = tried.commit
        self.last_frame = tried.last
        self.last_crc = tried.crc
        self.since += 1
        self.commits += 1
        self.commit_bytes += size
        ls_store(w + W_COMMIT, self.commit)
        ls_store(w + W_LAST_FRAME, self.last_frame)
        ls_store(w + W_LAST_CRC, self.last_crc)
        ls_store(w + W_APPLIED, self.applied)
        # crash: the commit is still in progress, and the tail check publishes it once more
        ls_store(w + W_PROGRESS, 0)
        # crash: published; sleepers look again by themselves
        self.give()
        for i in range(count):
            if asked[i].acks:
                continue
            bucket = w + BUCKETS_AT + (<Handle>asked[i].handle).bucket * BUCKET
            ls_store_32(bucket, ls_load_32(bucket) + 1)
        ls_store_32(w + EVERY_AT, ls_load_32(w + EVERY_AT) + 1)  # last: who saw it sees the other

    def take_counts(self):
        """What was counted since this was asked last, as `Metrics` names it."""
        cdef int64_t commits = self.commits, entries = self.entries
        cdef int64_t size = self.commit_bytes, added = self.added_bytes
        cdef int64_t syncs = self.syncs, ns = self.sync_ns, longest = self.sync_ns_max
        # Before an object is made: then another thread may count.
        self.commits = self.entries = self.commit_bytes = self.added_bytes = 0
        self.syncs = self.sync_ns = self.sync_ns_max = 0
        return {
            "commits": commits, "operations": commits, "added_entries": entries,
            "commit_bytes": size, "added_bytes": added,
            "syncs": syncs, "sync_ns": ns, "sync_ns_max": longest,
        }

    # -- the ends of a try -------------------------------------------------------------------------
    cdef bint unlock(self, const Asked* asked, int count) noexcept:
        """Give LOCK back, then wake who waits for it, or for what was added; True if readers of
        groups are to be woken, too."""
        cdef u8* w = self.wake
        cdef u8* bucket
        cdef int64_t now_ms
        cdef bint grouped = False
        cdef int i
        self.locked = self.has_lock = self.yields = False
        if w == NULL:           # in a child of a fork, which may not unlock what the parent holds
            return False
        flock(self.lock_fd, LOCK_UN)
        if ls_load_32(w + W_WAITING):
            self.passed_over += 1
            ls_store_32(w + W_WAITING, 0)
            ls_wake(<uint32_t*>(w + W_WAITING), 1)
        else:
            self.passed_over = 0
        self.yields = self.call_served()
        now_ms = ls_now_ns(MONOTONIC) // 1000000
        if now_ms - self.called_ms >= CALL_MS or <int64_t>ls_load(w + EVERY_AT + UNTIL) >= now_ms:
            self.called_ms = now_ms
            ls_wake(<uint32_t*>(w + EVERY_AT), EVERYBODY)
        for i in range(count):
            if asked[i].acks:
                continue
            bucket = w + BUCKETS_AT + (<Handle>asked[i].handle).bucket * BUCKET
            if <int64_t>ls_load(bucket + UNTIL) >= now_ms:
                ls_wake(<uint32_t*>bucket, EVERYBODY)
            # Somebody may wait for a group, who came behind our look at it.
            if <int64_t>ls_load(bucket + GROUPS_UNTIL) >= now_ms and self.is_called(
                    (<Handle>asked[i].handle).bucket):
                grouped = True
        return grouped

    cdef int ask(self, int became, const Tried* tried) except -1:
        """Something failed: the log says whether the commit counts. Raises if it does not, or if it
        is not known. Everything that is held here is forgotten."""
        self.forget()
        self.lock.held = True
        try:
            for left in reversed(range(3)):
                try:
                    self.failed(became != APPEND_FAILED, tried.error, tried.start, tried.last,
                                tried.commit, tried.crc)
                    return 0
                except KeyboardInterrupt:
                    if not left:
                        raise
        finally:
            self.lock.held = False
        return 0

    # -- the record cache, and others' commits -----------------------------------------------------
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
                     and self.engine.active is self.file and self.engine.limits is self.limits_given)
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
        none of which the record cache has less. What is given up is looked up in the index again."""
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
        """Take a stream over from the cache, which is what it was where this took over: nothing that
        was committed since is of a stream that has no handle here. What the cache has not is looked
        up in the index: that lacks of it nothing, as what is owed to the index stays in the cache,
        or in a handle. It may be known and not usable."""
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
            h.absent = loaded is False
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

    cdef int is_ahead(self, Handle h) except -1:
        """It has what the record cache has not, or will have."""
        if not h.dirty:
            self.dirty.append(h)
            h.dirty = True
        return 0

    cdef bint is_at_base(self, cache) except -1:
        """Whether the record cache is still what it was where this took over."""
        cdef int64_t there = cache.applied      # below 0: nowhere
        return there >= 0 and <u64>there == self.base and cache.generation == self.generation

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
                self.is_ahead(h)
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
            if self.applied <= ls_load(self.wake + W_INDEXED):
                self.since = self.owed = 0      # the other one let the index follow
            at += HEAD + size
        return True

    cdef bint unlearn(self, const u8* p, u64 left, u64 position, u64* size) except -1:
        """Of a frame that seals or begins a node: its stream is looked up again when it is needed,
        in the index, which had followed before such a commit was published. False: it is another
        frame, or that is not so.

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

    cdef bint give_back_rest(self, cache) except -1:
        """What else is held here; False: the cache cannot take it."""
        return True

    cdef int deleted_in(self, u64 stream) except -1:
        """Entries of a stream were deleted, or may have been: forget what is kept of its sealed
        nodes."""
        return 0

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
