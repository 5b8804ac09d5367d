# The order of a commit: LOCK, the append, the sync, what others are told, and who is woken.

cdef enum:
    LOCK_SPIN_NS = 3000     # a commit takes four thousand
    LOCK_WAIT_NS = 5000000  # then the pipeline waits: it knows deadlines and interrupts

MUTEX_WAIT_S = 0.005        # a commit takes some microseconds, but for a slow disk

cdef enum:                  # what became of a try
    NOT_PLAIN = 0           # nothing has happened, the pipeline does it
    COMMITTED = 1
    APPEND_FAILED = 2
    SYNC_FAILED = 3
    INDEX_FAILED = 4        # behind the append, which counts

ctypedef struct Tried:      # a commit that was begun, for who asks the log what became of it
    u64 start
    u64 last                # where its last frame starts
    u64 commit
    uint32_t crc            # of that
    int error               # of the system


cdef class CommitLane(HoldingLane):
    """Commits what was decided and laid out as `steps`, under LOCK; see native.pyx."""

    # -- LOCK --------------------------------------------------------------------------------------
    cdef bint may_try(self) except -1:
        """Whether the lane is open, and it is its turn."""
        if self.wake == NULL or not self.may_lag() or self.busy.now:
            return False        # who is inside a call already is told so by the committer
        if self.passed_over >= self.passed_over_max:
            self.passed_over = 0
            self.lock.passed_over = self.passed_over_max
            return False
        return True

    cdef bint try_lock(self, bint waits=False) except -1:
        """Take the mutex, if it is free at once, or another thread commits beside the pipeline, or
        whoever has it, if this `waits`; then LOCK, which is waited for a moment; but not once more
        by who waited in vain, as it is held for something long then, and this may be the thread of
        an event loop. `unlock` and `release` give them back, in this order."""
        if self.is_owned() is True:
            return False
        if self.acquire(False) is not True and (
                not (waits or self.locked) or self.acquire(True, MUTEX_WAIT_S) is not True):
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
        """Tell those who wait in the queue for a commit's sync that LOCK is held, or not any
        more."""
        if self.always:
            self.lock.held = held
        return 0

    cdef bint may_commit_now(self, u64 start, int64_t now_ns) except -1:
        """Whether commits beside the pipeline may be decided now; LOCK was just taken."""
        cdef u8* w = self.wake
        ls_store(w + W_OWNER, self.owner[0])
        ls_store(w + W_OWNER + 8, self.owner[1])
        if ls_load(w + W_FAILED) or ls_load(w + W_PROGRESS) or ls_load(w + W_FULL):
            return False        # a failed sync, a dead writer's commit, a full disk
        if not self.stand(start) or now_ns - self.looked_ns >= self.look_ns:
            return False
        return now_ns - self.end_looked_ns < self.end_look_ns or self.ends_at(start, now_ns)

    cdef bint ends_at(self, u64 applied, int64_t now_ns) except -1:
        """Whether the log ends where WAKE says, in a file that still has its name; else the
        pipeline looks."""
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

    # -- in this order -----------------------------------------------------------------------------
    cdef void put_heads(self, int frames, u64 start, Tried* tried) noexcept:
        """Write the heads of frames that were laid out as `steps`, side by side."""
        cdef Step* step
        cdef int i
        tried.start, tried.commit = start, self.commit + 1
        for i in range(frames):
            step = &self.steps[i]
            tried.last = start + step.at
            tried.crc = put_head(self.out.data + step.at, tried.last, step.size - HEAD,
                                 tried.commit,
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
            self.sync_last_ns = took_ns
            self.sync_ns_max = max(self.sync_ns_max, took_ns)
            if start + size > ls_load(w + W_DURABLE):
                ls_store(w + W_DURABLE, start + size)
            ls_store(w + W_UNSYNCED, 0)
        elif self.everysec and not ls_load(w + W_UNSYNCED):
            ls_store(w + W_UNSYNCED, now_ns // 1000000)
        return COMMITTED

    cdef void apply_step(self, const Asked* asked, int i, u64 position) noexcept:
        """Let a frame count that is in the log now."""
        cdef Step* step = &self.steps[i]
        if step.kind != KIND_APPEND:
            return
        (<Handle>asked[i].handle).grow(
            self.out.data + step.at + HEAD + APPEND_BODY, step.size - HEAD - APPEND_BODY,
            &step.body, position)
        self.entries += step.body.entries
        self.added_bytes += step.size - HEAD - APPEND_BODY

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

    # -- what `Lane` does for readers of groups that wait ------------------------------------------
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

    def take_counts(self):
        """What was counted since this was asked last, as `Metrics` names it."""
        cdef int64_t commits = self.commits, entries = self.entries
        cdef int64_t calls = self.commits + self.shared
        cdef int64_t size = self.commit_bytes, added = self.added_bytes
        cdef int64_t syncs = self.syncs, ns = self.sync_ns, longest = self.sync_ns_max
        # Before an object is made: then another thread may count.
        self.shared = self.commits = self.entries = self.commit_bytes = self.added_bytes = 0
        self.syncs = self.sync_ns = self.sync_ns_max = 0
        return {
            "commits": commits, "operations": calls, "added_entries": entries,
            "commit_bytes": size, "added_bytes": added,
            "syncs": syncs, "sync_ns": ns, "sync_ns_max": longest,
        }
