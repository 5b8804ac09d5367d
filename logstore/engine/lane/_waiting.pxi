# Readers of a group that wait, and those that were served: without LOCK, and without a commit.

cdef enum:                  # what became of a wait
    NOT_OURS = 0            # the record was given back: there is none any more
    JOINED = 1              # it stands in the queue, and there may be something to read
    WAITS = 2               # the same, and there was nothing: it is its owner's turn to look again
    TAKEN = 3               # it has what was handed to it


def outcomes():
    """What may become of a wait, by the names that they have in Python."""
    return {"NOT_OURS": NOT_OURS, "JOINED": JOINED, "WAITS": WAITS, "TAKEN": TAKEN}


cdef class Lane(HandoverLane):
    """All that is committed beside the pipeline, and waits; see native.pyx.

    A wait is the first turn of a session (engine/waiting/session.py) of a reader that was served
    before and kept its record: it joins the end of the queue, looks, sleeps, and takes what it was
    handed. In the order that protects an entry: who takes what, the ticket, `WAITING`; a fence; a
    look for entries that came before that; the word, loaded before all of it, to sleep on. It
    leaves the queue with an entry alone: in all else the session goes on at the same place.
    """

    cdef int64_t waits, wakeups, handed

    def wait(self, bytes name not None, u64 group, bytes who not None, u64 most,
             tuple making not None,
             dict mine not None, u64 waiter, before not None, u64 consumer, int64_t most_ns):
        """Wait in the queue of a group, for new entries alone, at most so long.

        `making`: as of `read`. `mine`: the tickets of the waiter records of this process, by their
        numbers; of `waiter` it is `before`. `consumer`: to whom at most `most` entries (0: any
        number) may be handed. What became of it; the word of the record as it was before; the
        deliveries, or None; and of when they are. Also behind an error `mine` has its ticket as it
        is by then.
        """
        cdef u64 ticket
        cdef uint32_t seen
        cdef int became
        cdef list found = None
        cdef u64 time_ms = 0
        cdef Handle h = self.handle(name)
        cdef int64_t announced_ms = self.pace.announced_ms
        if self.wake == NULL or waiter >= WAITERS_MAX or mine.get(waiter) != before:
            return NOT_OURS, 0, None, 0
        seen = ls_load_32(self.record_at(waiter))
        ticket = self.join(h, group, waiter, before, consumer, most, mine, announced_ms)
        became = self.sleep_on(name, group, who, waiter, seen, mine, ticket, consumer, most_ns)
        if became == WAITS and ls_load(self.mailbox_at(waiter)) == GIVEN:
            time_ms = ls_load(self.mailbox_at(waiter) + 56)
            found = self.take(name, group, who, making, waiter, time_ms)
        if self.wake == NULL or mine.get(waiter) != ticket:
            became = NOT_OURS
        elif found is not None:
            ls_store_32(self.record_at(waiter) + WAITER_STATE, IDLE)
            ls_store(self.mailbox_at(waiter), NOTHING)
            became = TAKEN
            self.handed += 1
        return became, seen, found, time_ms

    cdef inline u8* record_at(self, u64 waiter) noexcept nogil:
        return self.wake + WAITERS_AT + (waiter + 1) * WAITER

    cdef inline u8* mailbox_at(self, u64 waiter) noexcept nogil:
        return self.wake + MAILBOXES_AT + waiter * MAILBOX

    cdef u64 join(self, Handle h, u64 group, u64 waiter, u64 before, u64 consumer, u64 most,
                  dict mine, int64_t announced_ms) except? 0:
        """Stand at the end of the queue, to be handed at most so many entries; the ticket."""
        cdef u8* p = self.record_at(waiter)
        cdef u8* mailbox = self.mailbox_at(waiter)
        cdef int64_t now_ns = ls_now_ns(MONOTONIC)
        cdef u64 ticket = max(<u64>(now_ns // 1000) * WAITERS_MAX + waiter, before + WAITERS_MAX)
        mine[waiter] = ticket
        ls_store(self.wake + BUCKETS_AT + h.bucket * BUCKET + GROUPS_UNTIL,
                 <u64>(now_ns // 1000000 + announced_ms))
        ls_store(mailbox + 8, 0)
        ls_store(mailbox + 16, most)
        ls_store(mailbox + 8, consumer)
        ls_store(p + WAITER_TICKET, ticket)
        ls_store(p + WAITER_KEY, group)
        ls_store(p + WAITER_BEAT, <u64>(now_ns // 1000000))
        ls_store(p + WAITER_MIN_IDLE, NEW_ONLY)
        ls_store_32(p + WAITER_BUCKET, h.bucket)
        ls_store_32(p + WAITER_STATE, WAITING)      # last: what is read before is not a waiter
        ls_fence()
        return ticket

    cdef int sleep_on(self, bytes name, u64 group, bytes who, u64 waiter, uint32_t seen, dict mine,
                      ticket, u64 consumer, int64_t most_ns) except -1:
        """Sleep until it is called, if there was nothing when it had joined; what became of it."""
        cdef int64_t joined_ns = ls_now_ns(MONOTONIC), left_ns, fresh_ms = self.pace.fresh_ms
        cdef uint32_t* word
        cdef u64 found = self.drained(name, group, who)
        left_ns = joined_ns + most_ns - ls_now_ns(MONOTONIC)
        # Stopped for longer, it may be forgotten by now: it looks once more.
        if found != consumer or most_ns - left_ns > fresh_ms * 1000000:
            return JOINED
        self.waits += 1
        while left_ns > 0:
            if self.wake == NULL:
                return NOT_OURS
            word = <uint32_t*>self.record_at(waiter)
            with nogil:
                ls_sleep(word, seen, left_ns)
            PyErr_CheckSignals()
            # The store may have been closed meanwhile, or this be the child of a fork.
            if self.wake == NULL or mine.get(waiter) != ticket:
                return NOT_OURS
            if ls_load_32(self.record_at(waiter)) != seen:
                self.wakeups += 1
                break
            left_ns = joined_ns + most_ns - ls_now_ns(MONOTONIC)
        return WAITS

    cdef list take(self, bytes name, u64 group, bytes who, tuple making, u64 waiter, u64 time_ms):
        """The delivery of the one entry that it was handed; None: the session looks for it."""
        cdef const u8* mailbox = self.mailbox_at(waiter)
        cdef u64 ms = ls_load(mailbox + 24), seq = ls_load(mailbox + 32)
        cdef bint alone = ms == ls_load(mailbox + 40) and seq == ls_load(mailbox + 48)
        first = ls_id(_StreamID, ms, seq)
        held = self.given(name, group, first) if alone else None
        if held is None:
            return None
        master, lp = held
        maker, context = making
        made, ids = maker(lp, master[0], master[1], b"", first, 1, _StreamID, time_ms, who, context)
        return made if ids == pack_id(ms, seq) else None  # it may have been deleted since

    def take_counts(self):
        cdef int64_t waits = self.waits, wakeups = self.wakeups, handed = self.handed
        self.waits = self.wakeups = self.handed = 0
        counts = HandoverLane.take_counts(self)
        counts["waits"], counts["wakeups"] = waits, wakeups
        counts["handed"] = counts["read_entries"] = handed
        return counts

    def given(self, bytes name not None, u64 group, first not None):
        """The open node of a stream for one that was handed entries of it, by the number of the
        group and the first ID: master ID and listpack; None: they are not at hand."""
        cdef Handle h
        cdef u64 ms = 0, seq = 0
        id_of(first, &ms, &seq)
        h = self.enter(name)
        if h is None:
            return None
        try:
            if (not self.is_of(h, group) or not h.usable
                    or below(ms, seq, h.master_ms, h.master_seq)):
                return None
            lp = PyBytes_FromStringAndSize(<char*>h.lp.data, h.lp.size)
            return ls_id(_StreamID, h.master_ms, h.master_seq), lp
        finally:
            self.leave()

    def drained(self, bytes name not None, u64 group, bytes who not None):
        """The number of a consumer that reads new entries only, if its group was given all there
        is, and it was seen so lately that a read would write nothing; 0: no, or that is not
        known."""
        cdef Handle h = self.enter(name)
        cdef Group g
        cdef Consumer c
        if h is None:
            return 0
        try:
            if not self.is_of(h, group):
                return 0
            g = <Group>self.groups[group]
            if not self.knows_settings(g) or g.redeliver_ms >= 0:
                return 0
            if below(g.last_ms, g.last_seq, h.last_ms, h.last_seq):
                return 0
            c = self.consumer_of(g, None, who)
            if c is None or not 0 <= ls_now_ns(WALL) // 1000000 - c.seen_ms < self.lately_ms:
                return 0
            return c.number
        finally:
            self.leave()

    cdef Handle enter(self, bytes name):
        """The mutex is taken, and what is held here stands where the log does; the stream. None:
        that cannot be had at once. `leave` gives the mutex back, and whatever is raised here did.

        LOCK is not needed: what is published does not change, and the mutex keeps this process's
        own commits away. Nothing is written but what is held here.
        """
        cdef Handle h = None
        if self.wake == NULL or not self.may_lag() or self.busy.now or self.locked:
            return None
        if self.is_owned() is True or self.acquire(False) is not True:
            return None
        self.locked = True
        try:
            if self.wake != NULL and not ls_load(self.wake + W_FAILED):
                h = self.current(name)
        except MemoryError:
            h = None            # others look in another way, which may need less
        finally:
            if h is None:
                self.leave()
        return h

    cdef Handle current(self, bytes name):
        """A stream as the log has it; None: that is not known here."""
        cdef Handle h = self.handle(name)
        if h is None or not self.stand(ls_load(self.wake + W_APPLIED)):
            return None
        if not self.is_current(h):
            self.learn(h, name)
        return h if self.is_current(h) and h.known else None

    cdef int leave(self) except -1:
        self.locked = False
        self.release()
        return 0

    cdef bint is_of(self, Handle h, u64 group) except -1:
        """Whether a group is held, and of this stream."""
        cdef Group g = self.group_by_number(h, group)
        return (g is not None and g.stream == h.number and g.epoch == self.epoch
                and self.is_current(h))
