# Adds that hand their entry to a reader who waits, in the same commit; see
# engine/waiting/handoff.py.

cdef enum:                  # records of the table of waiters, and their mailboxes in shm/mailbox.py
    WAITER_TICKET = 8
    WAITER_PID = 24
    WAITER_START = 32
    WAITER_BEAT = 40
    WAITER_BUCKET = 48
    WAITER_MIN_IDLE = 56
    SERVED = 3
    FREE = 0
    IDLE = 1                # between two calls
    MAILBOXES_AT = WAITERS_AT + WAITER + WAITERS_MAX * WAITER
    MAILBOX = 64
    NOTHING = 0
    OFFERED = 1
    GIVEN = 2
    OFFERS_MAX = 8          # groups of one stream that somebody waits for
    QUEUE_MAX = 64          # readers that are looked at

cdef u64 NEW_ONLY = ~<u64>0


ctypedef struct Waiter:     # a record, as it was read
    u64 number
    u64 ticket
    u64 key
    u64 pid
    u64 start
    int64_t beat_ms
    u64 min_idle_ms
    u64 consumer            # what its mailbox says: to whom how many may be handed
    u64 most


def handover_layout():
    """Numbers of a waiter record and of a mailbox, by the names that they have in their modules."""
    return {
        "_TICKET": WAITER_TICKET, "_PID": WAITER_PID, "_START": WAITER_START, "_BEAT": WAITER_BEAT,
        "_BUCKET": WAITER_BUCKET, "_MIN_IDLE": WAITER_MIN_IDLE, "SERVED": SERVED,
        "FREE": FREE, "IDLE": IDLE,
        "MAILBOXES_OFFSET": MAILBOXES_AT, "MAILBOX_BYTES": MAILBOX, "NOTHING": NOTHING,
        "OFFERED": OFFERED, "GIVEN": GIVEN, "NEW_ONLY": NEW_ONLY,
    }


cdef inline bint is_before(const Waiter* one, const Waiter* other) noexcept nogil:
    """Of two that wait: by their groups, and by their places in the queue."""
    return one.key < other.key or (one.key == other.key and one.ticket < other.ticket)


cdef class HandoverLane(ClaimLane):
    """Adds that are handed to who waits, too; see native.pyx.

    One add is handed to the reader who waits longest for a group that had got all before it, as
    ``handoff.hand_out`` does. Who must come itself, or whose offer is to be settled, is left to the
    pipeline, or woken. Crash order: the offer, a fence, a look whether the reader still waits; the
    commit; `GIVEN`, before the word of all streams; the wake-up, behind LOCK. Who finds an offer
    that nobody commits asks the index.
    """

    cdef object state_of        # of a process: gone, runs, stopped
    cdef object pace            # of those who wait
    cdef int64_t runs, stopped
    cdef Waiter queue[QUEUE_MAX]
    cdef Waiter offers[OFFERS_MAX]          # to whom something is handed
    cdef list offered_groups, offered_to    # a `Group` and a `Consumer` for each offer
    cdef u64 served[OFFERS_MAX]             # groups of the commit that was just published
    cdef u64 woken[OFFERS_MAX]              # numbers of those to be woken behind LOCK
    cdef int served_count

    def __init__(self, engine, busy, queue, owner, dict lag not None, follow, failed,
                 int64_t look_ns,
                 int64_t end_look_ns, int passed_over_max, port, state_of, states, pace):
        """As of `GroupLane`; `state_of(pid, start)`: of a process, one of `states`: that it runs,
        that it is stopped, or something else if it is gone; `pace`: who did not stir for its
        `stale_ms` is gone, too."""
        self.state_of, self.pace = state_of, pace
        self.runs, self.stopped = states
        self.offered_groups, self.offered_to = [], []
        ClaimLane.__init__(self, engine, busy, queue, owner, lag, follow, failed, look_ns,
                           end_look_ns, passed_over_max, port)

    # -- who is to get it: before anything is decided, so Python may run --------------------------
    cdef bint serves(self, Handle h, int count, int64_t now_ns) except -1:
        """Choose who is handed what; False: the pipeline must do it."""
        cdef u64 epoch = self.epoch
        cdef int64_t stale_ms = self.pace.stale_ms
        cdef int n, i = 0
        if self.wake == NULL:
            return False
        n = self.look_at_queue(h.bucket, now_ns // 1000000 - stale_ms)
        if n < 0 or (n and count != 1):
            return False
        del self.offered_groups[:]
        del self.offered_to[:]
        while i < n:
            if self.offers_count == OFFERS_MAX or not self.choose(h, i, n):
                return False
            i += 1
            while i < n and self.queue[i].key == self.queue[i - 1].key:
                i += 1
        return self.epoch == epoch and self.wake != NULL

    cdef int look_at_queue(self, uint32_t bucket, int64_t since_ms) noexcept nogil:
        """Read the records of those who wait for groups of a bucket's streams, in order; how many,
        -1 if there are too many. Who did not stir since then is passed over."""
        cdef const u8* p
        cdef const u8* mailbox
        cdef Waiter one
        cdef u64 number, used = ls_load(self.wake + WAITERS_AT + 8)
        cdef int n = 0, at
        for number in range(min(used, <u64>WAITERS_MAX)):
            p = self.wake + WAITERS_AT + (number + 1) * WAITER
            if (ls_load_32(p + WAITER_STATE) != WAITING
                    or ls_load_32(p + WAITER_BUCKET) != bucket):
                continue
            one.beat_ms = <int64_t>ls_load(p + WAITER_BEAT)
            if one.beat_ms < since_ms:
                continue
            if n == QUEUE_MAX:
                return -1
            mailbox = self.wake + MAILBOXES_AT + number * MAILBOX
            one.number, one.ticket = number, ls_load(p + WAITER_TICKET)
            one.key, one.min_idle_ms = ls_load(p + WAITER_KEY), ls_load(p + WAITER_MIN_IDLE)
            one.pid, one.start = ls_load(p + WAITER_PID), ls_load(p + WAITER_START)
            one.consumer, one.most = ls_load(mailbox + 8), ls_load(mailbox + 16)
            at = n
            while at and is_before(&one, &self.queue[at - 1]):
                self.queue[at] = self.queue[at - 1]
                at -= 1
            self.queue[at] = one
            n += 1
        return n

    cdef bint choose(self, Handle h, int first, int n) except -1:
        """Offer the entry to the first of a group's queue that lives, which begins at a place; not
        at all if that one must come itself. False: that is not known here."""
        cdef u64 key = self.queue[first].key
        cdef Group g = self.group_by_number(h, key)
        cdef Consumer who
        cdef Waiter one
        cdef int i
        if g is None or not self.knows_settings(g):
            return False
        if g.stream != h.number or g.redeliver_ms >= 0:
            return True             # of another stream; or each comes itself, and is woken
        if below(g.last_ms, g.last_seq, h.last_ms, h.last_seq):
            return True             # it left something that is to be read first
        for i in range(first, n):
            if self.queue[i].key != key:
                break
            one = self.queue[i]
            state = self.runs if one.pid == self.owner[0] else self.state_of(one.pid, one.start)
            if state == self.stopped or (state == self.runs and (
                    one.min_idle_ms != NEW_ONLY or not one.consumer)):
                return True
            if state != self.runs:
                continue
            who = self.consumer_of(g, one.consumer, None)
            if who is None or ls_load(self.wake + MAILBOXES_AT + one.number * MAILBOX) != NOTHING:
                return False
            # The last run, for the entry is behind all that is pending.
            if self.stretch_of(g, ~<u64>0, ~<u64>0, self.applied) is None:
                return False
            self.offers[self.offers_count] = one
            self.offered_groups.append(g)
            self.offered_to.append(who)
            self.offers_count += 1
            return True
        return True

    cdef Group group_by_number(self, Handle h, u64 key):
        """A group by its number, if the record cache has it."""
        cdef PyObject* found = PyDict_GetItemWithError(self.groups, key)
        if found != NULL:
            return <Group>found
        return self.learn_group(h.number, key, None)

    # -- the commit ------------------------------------------------------------------------------
    cdef bint lay_out_offers(self, Handle h, u64 ms, u64 seq) except -1:
        """Write frames of deliveries of the entry with this ID behind its own, but for their heads;
        False: one is not plain. `h`: its stream, before it joins."""
        cdef u64 now_ms = <u64>(ls_now_ns(WALL) // 1000000)
        cdef Step* step
        cdef Group g
        cdef Consumer who
        cdef u8 id[ID_BYTES]
        cdef int i
        put_big(id, ms)
        put_big(id + 8, seq)
        for i in range(self.offers_count):
            step = &self.steps[1 + i]
            g, who = <Group>self.offered_groups[i], <Consumer>self.offered_to[i]
            if g.epoch != self.epoch or g.read < 0 or g.read > COUNT_LIMIT:
                return False
            # How many were read is known to go up by one: as `groups.delivered`.
            if below(g.last_ms, g.last_seq, h.first_ms, h.first_seq) or may_be_gone(
                    h, g.last_ms, g.last_seq):
                return False
            if not self.make_room(g, id, 1):
                return False
            self.mark_dirty(g, <PyObject*>who)
            step.at, step.kind = self.out.size, KIND_DELIVER
            fail(put_delivery(&self.out, g.number, who.number, id, 1, now_ms, g.read + 1))
            step.size = self.out.size - step.at
            self.decided[1 + i].group, self.decided[1 + i].who = <PyObject*>g, <PyObject*>who
        return True

    cdef bint offer(self, u64 ms, u64 seq) noexcept:
        """Write the mailboxes; False: one waits no more, and nothing is offered."""
        cdef const u8* delivery
        cdef u8* mailbox
        cdef Waiter* to
        cdef int i
        for i in range(self.offers_count):
            delivery = self.out.data + self.steps[1 + i].at + HEAD
            mailbox = self.wake + MAILBOXES_AT + self.offers[i].number * MAILBOX
            ls_store(mailbox + 24, ms)
            ls_store(mailbox + 32, seq)
            ls_store(mailbox + 40, ms)
            ls_store(mailbox + 48, seq)
            ls_store(mailbox + 56, little(delivery + 12, 8))
            ls_store(mailbox, OFFERED)      # last: the rest is whole when this is seen
        ls_fence()
        for i in range(self.offers_count):
            to = &self.offers[i]
            mailbox = self.wake + MAILBOXES_AT + to.number * MAILBOX
            if not self.still_waits(to) or ls_load(mailbox + 8) != to.consumer or (
                    ls_load(mailbox + 16) != to.most):
                self.withdraw()
                return False
        return True

    cdef bint still_waits(self, const Waiter* one) noexcept nogil:
        cdef const u8* p = self.wake + WAITERS_AT + (one.number + 1) * WAITER
        return ls_load_32(p + WAITER_STATE) == WAITING and ls_load(p + WAITER_TICKET) == one.ticket

    cdef void withdraw(self) noexcept:
        cdef int i
        for i in range(self.offers_count):
            ls_store(self.wake + MAILBOXES_AT + self.offers[i].number * MAILBOX, NOTHING)
        self.offers_count = 0

    cdef void give(self) noexcept:
        """The commit is published: what was offered is theirs. Their state first: who sees that it
        was given may leave, and its record be another's."""
        cdef u8* p
        cdef u8* mailbox
        cdef int i
        self.served_count = self.offers_count
        for i in range(self.offers_count):
            p = self.wake + WAITERS_AT + (self.offers[i].number + 1) * WAITER
            mailbox = self.wake + MAILBOXES_AT + self.offers[i].number * MAILBOX
            if ls_load_32(p + WAITER_STATE) != FREE:
                ls_store_32(p + WAITER_STATE, SERVED)
            ls_store(mailbox, GIVEN)
            ls_store_32(p, ls_load_32(p) + 1)
            self.served[i] = self.offers[i].key
            self.woken[i] = self.offers[i].number
        self.offers_count = 0

    cdef bint call_served(self) noexcept:
        """Wake who was handed something; LOCK is free again. Whether there is one."""
        cdef int i
        for i in range(self.served_count):
            ls_wake(<uint32_t*>(self.wake + WAITERS_AT + (self.woken[i] + 1) * WAITER), EVERYBODY)
        return self.served_count > 0

    cdef void forget_offers(self) noexcept:
        self.offers_count = self.served_count = 0

    cdef bint is_called(self, uint32_t bucket) noexcept:
        """Whether somebody waits for a group of a bucket's streams who was not served, nor those
        before it: it may have come behind our look, and not see the commit."""
        cdef const u8* p
        cdef u64 number, key, used = ls_load(self.wake + WAITERS_AT + 8)
        cdef bint served
        cdef int i
        for number in range(min(used, <u64>WAITERS_MAX)):
            p = self.wake + WAITERS_AT + (number + 1) * WAITER
            if (ls_load_32(p + WAITER_STATE) != WAITING
                    or ls_load_32(p + WAITER_BUCKET) != bucket):
                continue
            key, served = ls_load(p + WAITER_KEY), False
            for i in range(self.served_count):
                served = served or self.served[i] == key
            if not served or ls_load(p + WAITER_MIN_IDLE) != NEW_ONLY:
                return True
        return False
