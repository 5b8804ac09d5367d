# Commits of reads and acks of groups: deliveries of new entries, and what ends them.

cdef enum:                  # the table of those who wait for a group, see shm/waiters.py
    WAITERS_AT = 4096 + 320 * 64
    WAITER = 64             # bytes of a record; a head of as many is before the first one
    WAITERS_MAX = 1024
    WAITER_STATE = 4
    WAITER_KEY = 16
    WAITING = 2


def waiter_layout():
    """Numbers of that table, by the names that they have there, or in shm/wait_words.py."""
    return {
        "WAITERS_OFFSET": WAITERS_AT, "WAITER_BYTES": WAITER, "WAITERS_MAX": WAITERS_MAX,
        "_STATE": WAITER_STATE, "_KEY": WAITER_KEY, "WAITING": WAITING,
    }


cdef enum:
    ACKED_MAX = 512         # entries of one ack
    HELD_MAX = 1024         # of `held_max`: 5 MiB
    NONE_PENDING = 0        # nothing to commit
    KEPT_BYTES_MAX = 8388608    # of sealed nodes that groups read

ctypedef struct Decided:    # what a commit does to a group; borrowed from the lane
    PyObject* group
    PyObject* who           # to whom it is delivered
    int first               # in `found`: what is acked, or claimed
    u64 ms                  # of the entry that an ack of a transaction names
    u64 seq


cdef class KeptNode:
    """A sealed node, with what was deleted of it."""

    cdef bytes lp, vector
    cdef u64 ms, seq, last_ms, last_seq


cdef inline bint may_be_gone(Handle h, u64 ms, u64 seq) noexcept nogil:
    """Whether an entry from an ID on may have been deleted: `groups.tombstones_after`."""
    return (h.gone_ms or h.gone_seq) and not below(h.gone_ms, h.gone_seq, ms, seq)


cdef int64_t entries_up_to(Handle h, u64 ms, u64 seq) noexcept nogil:
    """How many entries were ever added up to an ID; -1: not known. As `groups.estimate`."""
    if (ms or seq) and below(ms, seq, h.gone_ms, h.gone_seq):
        return -1
    if ms == h.last_ms and seq == h.last_seq:
        return <int64_t>h.added
    if below(h.last_ms, h.last_seq, ms, seq) or may_be_gone(h, h.first_ms, h.first_seq):
        return -1
    if below(ms, seq, h.first_ms, h.first_seq):
        return <int64_t>(h.added - h.length)
    if ms == h.first_ms and seq == h.first_seq:
        return <int64_t>(h.added - h.length) + 1
    return -1


cdef int64_t entries_read(Handle h, Group g, const u8* ids, int64_t n) noexcept nogil:
    """The entries read of a group once it was given these: as `groups.delivered`."""
    cdef u64 ms = g.last_ms, seq = g.last_seq
    cdef int64_t i, read = g.read
    cdef bint known = read >= 0 and not below(ms, seq, h.first_ms, h.first_seq)
    if known and not may_be_gone(h, ms, seq):
        return read + n
    for i in range(n):
        known = read >= 0 and not below(ms, seq, h.first_ms, h.first_seq)
        known = known and not may_be_gone(h, ms, seq)
        ms, seq = big(ids + i * ID_BYTES), big(ids + i * ID_BYTES + 8)
        if known:
            read += 1
        elif h.added:
            read = entries_up_to(h, ms, seq)
    return read

cdef int put_delivery(Buf* out, u64 group, uint32_t consumer, const u8* ids, int64_t n, u64 time_ms,
                      int64_t read) noexcept nogil:
    """Append a frame that gives entries to a consumer, but for its head."""
    cdef u8* p
    if buf_reserve(out, HEAD + DELIVER_BODY + n * ID_BYTES) != OK:
        return E_MEMORY
    p = out.data + out.size + HEAD
    put_64(p, group)
    put_32(p + 8, consumer)
    put_64(p + 12, time_ms)
    put_64(p + 20, big(ids + (n - 1) * ID_BYTES))
    put_64(p + 28, big(ids + (n - 1) * ID_BYTES + 8))
    put_64(p + 36, <u64>read)
    p[44] = 0
    memcpy(p + DELIVER_BODY, ids, n * ID_BYTES)
    out.size += HEAD + DELIVER_BODY + n * ID_BYTES
    return OK


cdef class GroupLane(DeleteLane):
    """Plain adds, reads and acks of groups of one engine, each a commit."""

    cdef Decided decided[STEPS_MAX]     # by the steps of the commit
    cdef Held found[ACKED_MAX]          # what that acks, or claims
    cdef int64_t known_runs     # stretches of all groups, or more
    cdef public int64_t held_max        # above that all are let go of, and looked up anew
    cdef public int64_t lately_ms       # who was seen so lately need not be written down as seen
    cdef dict groups            # held, by number
    cdef list dirty_groups      # ahead of the cache
    # numbers of groups that others changed, and the record cache has not
    cdef set skipped
    cdef set unlearned          # numbers of groups that were held, and that the index has
    cdef dict kept_nodes        # sealed nodes that groups read last, one of a stream, by its number
    cdef u64 kept_bytes         # of them
    cdef int64_t deliveries, acks

    def __init__(self, engine, busy, queue, owner, dict lag not None, follow, failed,
                 int64_t look_ns, int64_t end_look_ns, int passed_over_max, port):
        """As of `AddLane`."""
        self.groups, self.dirty_groups, self.held_max = {}, [], HELD_MAX
        self.skipped, self.unlearned, self.kept_nodes = set(), set(), {}
        self.lately_ms = SEEN_MS
        AddLane.__init__(self, engine, busy, queue, owner, lag, follow, failed, look_ns,
                         end_look_ns, passed_over_max, port)

    # -- a read ------------------------------------------------------------------------------------
    def read(self, bytes name not None, bytes group not None, bytes who not None, int64_t count,
             tuple making not None, tuple place, int64_t idle_ms, list told not None):
        """Deliver at most `count` new entries (0: all) to a consumer, as `deliver.read_new` does
        without waiting; the deliveries, or None: the read, or the moment, is not plain.

        `making`: what makes them, as `DeliveryMaker.first` of the codec does, and its last
        argument. `place`: of one that would wait, what tells by a group's number and an owner
        whether that one kept a place in the queue, and the owner; None is given then if nothing is
        there, too. `idle_ms`: what is pending for so long is asked for, too, as CLAIM does; -1:
        nothing is. Deliveries are put into `told`, too, once they are committed, as IDs are by
        `add`.
        """
        cdef Handle h
        cdef Tried tried
        cdef int became = NOT_PLAIN
        cdef list found = None
        if count < 0 or not self.may_try():
            return None
        h = self.handle(name)
        if h is None or (place is not None and self.is_drained(h, group)) or not self.try_lock():
            return None
        try:
            found = self.read_locked(h, name, group, who, count, making, place, idle_ms, &tried,
                                     &became)
            if became > COMMITTED:
                self.ask(became, &tried)
        finally:
            self.unlock(NULL, 0)
            self.release()
        if found is not None and became:
            told += found
        return found

    cdef list read_locked(self, Handle h, bytes name, bytes group_name, bytes consumer_name,
                          int64_t count, tuple making, tuple place, int64_t idle_ms, Tried* tried,
                          int* became):
        """Decide and commit; the deliveries, or None. What became of the commit, if there was
        one."""
        cdef u64 start = ls_load(self.wake + W_APPLIED)
        cdef int64_t now_ns = ls_now_ns(MONOTONIC), n, read
        cdef u64 now_ms = <u64>(ls_now_ns(WALL) // 1000000)
        cdef Group g
        cdef Consumer who
        cdef list found, packed = []
        cdef bytes ids
        cdef u8* p
        g = self.group_locked(h, name, group_name, start, now_ns)
        if g is None:
            return None
        who = self.consumer_of(g, None, consumer_name)
        if (who is None or not self.knows_settings(g)
                or self.may_be_idle(g, idle_ms, now_ms, start)):
            return None
        if not below(g.last_ms, g.last_seq, h.last_ms, h.last_seq):
            if place is not None:
                return None
            return self.seen_locked(g, who, [], start, now_ns, now_ms, tried, became)
        if g.read < -1 or g.read > COUNT_LIMIT or h.added > <u64>COUNT_LIMIT:
            return None
        if place is not None and (self.is_awaited(h, g.number, now_ns)
                                  or place[0](g.number, place[1])):
            return None     # others are before it, or it left the queue and comes back to its place
        found = self.new_deliveries(h, g, count, now_ms, consumer_name, making, packed)
        n = 0 if found is None else len(found)
        if not n or g.epoch != self.epoch:
            return None
        ids = packed[0] if len(packed) == 1 else b"".join(packed)
        if PyBytes_GET_SIZE(ids) != n * ID_BYTES:
            raise ValueError("each delivery has one ID")
        p = <u8*>PyBytes_AS_STRING(ids)
        if self.stretch_of(g, big(p), big(p + 8), start) is None or not self.make_room(g, p, n):
            return None
        if g.epoch != self.epoch or self.wake == NULL:
            return None
        read = entries_read(h, g, p, n)
        self.out.size = 0
        fail(put_delivery(&self.out, g.number, who.number, p, n, now_ms, read))
        if not self.fits(start, self.out.size):
            return None
        self.mark_dirty(g, <PyObject*>who)
        became[0] = self.commit_one(g, who, 0, KIND_DELIVER, start, now_ns, tried)
        return found

    cdef bint is_drained(self, Handle h, bytes group_name) except -1:
        """Whether this process knows, without a lock, that the group was given all there is. Wrong
        only for a moment, as is every look without one: who is told so waits, and looks again."""
        cdef Group g
        cdef PyObject* found
        if (not self.is_current(h) or self.wake == NULL
                or ls_load(self.wake + W_APPLIED) != self.applied):
            return False
        found = PyDict_GetItemWithError(h.groups, group_name)
        if found == NULL:
            return False
        g = <Group>found
        return g.epoch == self.epoch and not below(g.last_ms, g.last_seq, h.last_ms, h.last_seq)

    cdef bint is_awaited(self, Handle h, u64 number, int64_t now_ns) noexcept nogil:
        """Whether somebody stands in the queue of a group. Who comes without LOCK looks for entries
        behind that, and so meets what this commit leaves."""
        cdef const u8* w = self.wake
        cdef const u8* waiter
        cdef u64 i, used
        if not self.is_awaited_by_groups(h.bucket, now_ns // 1000000):
            return False
        used = ls_load(w + WAITERS_AT + 8)
        for i in range(min(used, <u64>WAITERS_MAX)):
            waiter = w + WAITERS_AT + (i + 1) * WAITER
            if (ls_load_32(waiter + WAITER_STATE) == WAITING
                    and ls_load(waiter + WAITER_KEY) == number):
                return True
        return False

    cdef list new_deliveries(self, Handle h, Group g, int64_t count, u64 now_ms, bytes who,
                             tuple making, list packed):
        """Deliveries of at most `count` entries behind what the group was given, and their IDs put
        into `packed`, side by side; None: they are not at hand, or too many."""
        cdef u64 ms = g.last_ms, seq = g.last_seq, master_ms, master_seq
        cdef list found = []
        cdef bytes lp, vector
        cdef KeptNode node
        cdef bint last
        first, context = making
        while True:
            seq += 1
            if not seq:
                ms += 1
            left = count - len(found) if count else -1
            start = ls_id(_StreamID, ms, seq)
            last = not below(ms, seq, h.master_ms, h.master_seq)     # the open node
            if last:
                if not h.usable:
                    return None
                lp, vector = PyBytes_FromStringAndSize(<char*>h.lp.data, h.lp.size), b""
                master_ms, master_seq = h.master_ms, h.master_seq
            else:
                node = self.sealed_node(h, ms, seq, start)
                if node is None:
                    return None
                lp, vector = node.lp, node.vector
                master_ms, master_seq = node.ms, node.seq
                ms, seq = node.last_ms, node.last_seq
            made, ids = first(lp, master_ms, master_seq, vector, start, left, _StreamID, now_ms,
                              who, context)
            found += made
            packed.append(ids)
            if last or (count and len(found) >= count):
                return found
            if len(found) > PENDING_MAX:
                return None
            if not below(ms, seq, h.last_ms, h.last_seq):
                return found    # no node is behind it

    cdef int deleted_in(self, u64 stream) except -1:
        return self.forget_node(stream)

    cdef int forget_node(self, u64 stream) except -1:
        """Keep no sealed node of a stream."""
        cdef KeptNode node = self.kept_nodes.pop(stream, None)
        if node is not None:
            self.kept_bytes -= size_of(node.lp)
        return 0

    cdef KeptNode sealed_node(self, Handle h, u64 ms, u64 seq, start):
        """The sealed node with the first entries from an ID on; None: it is not at hand."""
        cdef KeptNode node = self.kept_nodes.get(h.number)
        cdef u64 epoch
        if (node is not None and not below(ms, seq, node.ms, node.seq)
                and not below(node.last_ms, node.last_seq, ms, seq)):
            return node
        self.forget_node(h.number)
        epoch = self.epoch
        if self.lacks_nodes(h) and not self.follow_locked(self.applied):
            return None
        found = self.port.node(h.number, start)
        if found is None or self.epoch != epoch or not self.is_current(h):
            return None
        node = KeptNode()
        (node.ms, node.seq), (node.last_ms, node.last_seq), position, node.vector, node.lp = found
        if h.marks.size:
            node.vector = h.marked_vector(position, node.vector)
        # Where IDs were lowered a node may begin below the end of the one before it.
        if not below(node.last_ms, node.last_seq, h.master_ms, h.master_seq):
            return None
        if self.kept_bytes + size_of(node.lp) > KEPT_BYTES_MAX:
            self.forget_nodes()
        self.kept_nodes[h.number] = node
        self.kept_bytes += size_of(node.lp)
        return node

    cdef void forget_nodes(self) noexcept:
        self.kept_nodes.clear()
        self.kept_bytes = 0

    cdef bint lacks_nodes(self, Handle h) except -1:
        """Whether the index has not all sealed nodes of a stream: what it says of them may be wrong
        then, as IDs may have been lowered."""
        if h.seals.size:
            return True
        for node in self.cache.owed_nodes:
            if node[0] == h.number:
                return True
        return False

    # -- an ack ------------------------------------------------------------------------------------
    def ack(self, bytes name not None, bytes group not None, tuple ids not None,
            list told not None):
        """Acknowledge entries; how many were pending, or None: the ack, or the moment, is not
        plain. The number is put into `told`, too, once it is committed."""
        cdef Handle h
        cdef Tried tried
        cdef int became = NOT_PLAIN
        cdef int64_t done
        if not 0 < len(ids) <= ACKED_MAX or not self.may_try():
            return None
        if len(ids) > 1:
            ids = ascending(ids)
            if ids is None:
                return None
        h = self.handle(name)
        if h is None or not self.try_lock():
            return None
        try:
            done = self.ack_locked(h, name, group, ids, &tried, &became)
            if became > COMMITTED:
                self.ask(became, &tried)
        finally:
            self.unlock(NULL, 0)
            self.release()
        if became:
            told.append(done)
        return done if became or done == NONE_PENDING else None

    cdef int64_t ack_locked(self, Handle h, bytes name, bytes group_name, tuple ids, Tried* tried,
                            int* became) except -1:
        """Decide and commit; how many were pending, if it was committed, or if none was."""
        cdef u64 start = ls_load(self.wake + W_APPLIED), ms = 0, seq = 0
        cdef int64_t now_ns = ls_now_ns(MONOTONIC), n = 0, i
        cdef Group g = self.group_locked(h, name, group_name, start, now_ns)
        cdef Held* one
        cdef u8* p
        if g is None:
            return NOT_DONE
        self.out.size = 0
        fail(buf_reserve(&self.out, HEAD + ACK_BODY + len(ids) * ID_BYTES))
        p = self.out.data + HEAD
        for i in range(len(ids)):
            id = ids[i]
            if type(id) is not _StreamID:
                return NOT_DONE
            id_of(id, &ms, &seq)
            one = &self.found[n]
            if not self.find_pending(g, ms, seq, start, one):
                return NOT_DONE
            if one.place < 0:
                continue
            put_big(p + ACK_BODY + n * ID_BYTES, ms)
            put_big(p + ACK_BODY + n * ID_BYTES + 8, seq)
            n += 1
        put_64(p, g.number)
        self.out.size = HEAD + ACK_BODY + n * ID_BYTES
        if g.epoch != self.epoch or self.wake == NULL:
            return NOT_DONE
        if not n:
            return NONE_PENDING
        if not self.fits(start, self.out.size):
            return NOT_DONE
        for i in range(n):
            self.mark_dirty(g, self.found[i].owner)
        became[0] = self.commit_one(g, None, 0, KIND_ACK, start, now_ns, tried)
        return n

    cdef bint find_pending(self, Group g, u64 ms, u64 seq, u64 upto, Held* found) except -1:
        """Where an entry is pending, at -1 if it is not, and with whom; False: that is not known
        here. What is found is kept alive by the group, which gives up neither while LOCK is
        held."""
        cdef Stretch stretch = self.stretch_of(g, ms, seq, upto)
        cdef Consumer who
        if stretch is None:
            return False
        found.place = stretch.find(ms, seq)
        if found.place < 0:
            return True
        found.stretch, found.owner = <PyObject*>stretch, NULL
        if not stretch.run[found.place].consumer:
            return True
        who = g.owner
        if who is None or who.number != stretch.run[found.place].consumer:
            who = g.owner = self.consumer_of(g, stretch.run[found.place].consumer, None)
        found.owner = <PyObject*>who
        return who is not None

    cdef Stretch stretch_of(self, Group g, u64 ms, u64 seq, u64 upto):
        """The stretch of an ID, from the index if it is not held. `upto`: where the log stands, as
        far as it was taken in: an index that has more is of no use."""
        cdef Stretch stretch = g.at(ms, seq)
        cdef u64 epoch = self.epoch
        if stretch is not None:
            return stretch
        near = self.port.around(g.number, pack_id(ms, seq), upto)
        if near is None or self.epoch != epoch or g.epoch != epoch:
            return None
        low, run, upper = near
        stretch = g.learned(ms, seq, low, run, upper)
        self.known_runs += 1
        return stretch if self.epoch == epoch else None

    cdef bint make_room(self, Group g, const u8* ids, int64_t n) except -1:
        """Have a place for a delivery behind all that is pending; False: there is none."""
        cdef Py_ssize_t before = len(g.stretches)
        cdef bint there = g.make_room(ids, n)
        self.known_runs += max(0, len(g.stretches) - before)
        return there

    cdef bint may_be_idle(self, Group g, int64_t idle_ms, int64_t now_ms, u64 upto) except -1:
        """Whether something is pending for so long that it is read before what is new: as long as
        is set for the group, or asked for, if that is shorter."""
        if idle_ms < 0 or 0 <= g.redeliver_ms < idle_ms:
            idle_ms = g.redeliver_ms
        if idle_ms < 0 or not g.pending:
            return False
        if not g.knows_oldest:
            if not g.is_bounded() and not self.learn_next(g, upto):
                return True
            g.learn_oldest()
        return g.has_idle(idle_ms, now_ms)

    cdef bint learn_next(self, Group g, u64 upto) except -1:
        """Hold the run of the index with what was delivered first of all that is not held, and have
        a bound for what is still beyond; False: it, or that there is none, is not known."""
        cdef u64 epoch = self.epoch, indexed = ls_load(self.wake + W_INDEXED)
        cdef int made = 0
        since = 0, b""
        if g.has_bound and g.bound_upto == indexed:     # else rows may be divided otherwise
            since = g.bound_time_ms, pack_id(g.bound_ms, g.bound_seq)
        found = self.port.idle(g.number, since, upto)
        if found is None or self.epoch != epoch or g.epoch != epoch:
            return False
        near, time_ms, id = found
        if near is not None:
            low, run, upper = near
            made = g.learn_run(low, run, upper)
        self.known_runs += max(made, 0)
        g.has_bound, g.bound_upto = True, indexed
        g.bound_time_ms = time_ms
        g.bound_ms, g.bound_seq = big(data_of(<bytes?>id)), big(data_of(<bytes>id) + 8)
        return made >= 0 and self.epoch == epoch and (g.bound_time_ms != ~<u64>0 or g.knows_all())

    # -- all of them -------------------------------------------------------------------------------
    cdef list seen_locked(self, Group g, Consumer who, list found, u64 start, int64_t now_ns,
                          u64 now_ms, Tried* tried, int* became):
        """Commit that a consumer was seen, unless it was lately; `found`, or None."""
        if 0 <= <int64_t>now_ms - who.seen_ms < self.lately_ms:
            return found
        self.out.size = self.frames = 0
        self.lay_out_seen(g, who, now_ms)
        if not self.fits(start, self.out.size):
            return None
        self.mark_dirty(g, <PyObject*>who)
        became[0] = self.commit_one(g, who, 0, KIND_CONSUMER, start, now_ns, tried)
        return found

    cdef int lay_out_seen(self, Group g, Consumer who, u64 now_ms) except -1:
        """Append a frame that says so, but for its head."""
        cdef u64 size = HEAD + CONSUMER_BODY + size_of(who.name)
        cdef u8* p
        fail(buf_reserve(&self.out, size))
        p = self.out.data + self.out.size + HEAD
        put_64(p, g.number)
        put_32(p + 8, who.number)
        put_64(p + 12, now_ms)
        put_64(p + 20, <u64>who.active_ms)
        p[28] = 1
        memcpy(p + CONSUMER_BODY, data_of(who.name), size_of(who.name))
        self.decided[self.frames].group = <PyObject*>g
        self.decided[self.frames].who = <PyObject*>who
        self.framed_to(KIND_CONSUMER, size)
        return 0

    cdef int commit_one(self, Group g, Consumer who, int first, u8 kind, u64 start, int64_t now_ns,
                        Tried* tried) except -1:
        """Commit the one frame that was laid out; what became of it."""
        self.steps[0].at, self.steps[0].size, self.steps[0].kind = 0, self.out.size, kind
        self.decided[0].group, self.decided[0].who = <PyObject*>g, <PyObject*>who
        self.decided[0].first = first
        self.put_heads(1, start, tried)
        return self.commit_steps(NULL, 0, 1, None, now_ns, tried)

    cdef void apply_step(self, const Asked* asked, int i, u64 position) noexcept:
        cdef Step* step = &self.steps[i]
        cdef const u8* p = self.out.data + step.at + HEAD
        cdef Decided* decided = &self.decided[i]
        cdef Group g
        cdef int64_t n, k
        if step.kind == KIND_DELIVER:
            n = (step.size - HEAD - DELIVER_BODY) // ID_BYTES
            (<Group>decided.group).delivered(<Consumer>decided.who, p + DELIVER_BODY, n,
                                             little(p + 12, 8), <int64_t>little(p + 36, 8),
                                             position)
            self.deliveries += n
        elif step.kind == KIND_ACK:
            n = (step.size - HEAD - ACK_BODY) // ID_BYTES
            g = <Group>decided.group
            for k in range(n - 1, -1, -1):      # from the end: the places of the others stay
                g.acked(&self.found[decided.first + k], p + ACK_BODY + k * ID_BYTES)
            g.position = position
            self.acks += n
        elif step.kind == KIND_CONSUMER:
            (<Group>decided.group).seen(<Consumer>decided.who, p, position)
        else:
            DeleteLane.apply_step(self, asked, i, position)

    cdef bint decide_acks(self, const Asked* asked, int count, u64 start) except -1:
        cdef int i, k
        cdef u64 ms = 0, seq = 0
        cdef Group g
        cdef Consumer who
        cdef Held* one
        cdef const Pending* pending
        for i in range(count):
            if not asked[i].acks:
                continue
            group_name, consumer_name, id, deliveries, time_ms = <tuple>asked[i].fields
            g = self.group_of(<Handle>asked[i].handle, <bytes?>group_name)
            if g is None or type(id) is not _StreamID:
                return False
            who = self.consumer_of(g, None, <bytes?>consumer_name)
            id_of(id, &ms, &seq)
            one = &self.found[i]
            if who is None or not self.find_pending(g, ms, seq, start, one) or one.place < 0:
                return False
            pending = &(<Stretch>one.stretch).run[one.place]
            if (one.owner != <PyObject*>who or pending.time_ms != <u64>time_ms
                    or pending.count != <u64>deliveries):
                return False    # the pipeline says whose it is
            for k in range(i):
                if (asked[k].acks and one.stretch == self.found[k].stretch
                        and one.place == self.found[k].place):
                    return False
            self.decided[i].group, self.decided[i].first = <PyObject*>g, i
            self.decided[i].ms, self.decided[i].seq = ms, seq
            self.mark_dirty(g, <PyObject*>who)
            if g.epoch != self.epoch:
                return False
        return True

    cdef int lay_out_ack(self, int i) except -1:
        cdef Step* step = &self.steps[i]
        cdef u8* p
        fail(buf_reserve(&self.out, HEAD + ACK_BODY + ID_BYTES))
        p = self.out.data + self.out.size + HEAD
        put_64(p, (<Group>self.decided[i].group).number)
        put_big(p + ACK_BODY, self.decided[i].ms)
        put_big(p + ACK_BODY + 8, self.decided[i].seq)
        step.kind, step.size = KIND_ACK, HEAD + ACK_BODY + ID_BYTES
        self.out.size += step.size
        return 0

    cdef Group group_locked(self, Handle h, bytes name, bytes group_name, u64 start,
                            int64_t now_ns):
        """The group, if a commit to it can be decided now."""
        cdef Group g
        if not self.may_commit_now(start, now_ns):
            return None
        if not self.is_current(h) and not self.learn_known(h, name):
            return None
        g = self.group_of(h, group_name)
        if g is None:
            return None
        if self.known_runs > self.held_max:
            if not self.follow_locked(start):
                return None
            self.let_go()
        elif not self.has_followed(start):
            return None
        return g if g.epoch == self.epoch and self.is_current(h) else None

    cdef Group group_of(self, Handle h, bytes group_name):
        """A group of a stream that is known; None: it is not at hand."""
        cdef Group g = None
        cdef PyObject* found = PyDict_GetItemWithError(h.groups, group_name)
        if found != NULL:
            g = <Group>found
        if g is None or g.epoch != self.epoch:
            g = self.learn_group(h.number, None, group_name)
            if g is None:
                h.groups.pop(group_name, None)
                return None
            h.groups[group_name] = g
        return g

    cdef int let_go(self) except -1:
        """Hold no stretches any more, all of which the index has."""
        cdef Group g
        self.known_runs = len(self.groups)
        for g in self.groups.values():
            g.forget_pending()
            if not g.pending:
                g.stretches.append(Stretch())
        return 0

    cdef bint learn_known(self, Handle h, bytes name) except -1:
        self.learn(h, name)
        return self.is_current(h) and h.known

    cdef Group learn_group(self, u64 stream, number, bytes name):
        """Take a group over from the cache, which asks the index for it, by its number, or its
        stream and name, as `learn` does with streams; None: it is not at hand, or there are too
        many."""
        cdef Group g
        cdef u64 epoch = self.epoch
        cache = self.cache
        if not self.is_at_base(cache) or len(self.groups) >= GROUPS_MAX:
            return None
        groups = cache.groups
        at = groups.numbers.get((stream, name)) if number is None else number
        if at is None and self.skipped:
            return None
        if at not in groups.groups and at not in self.skipped and not cache.skipped:
            self.port.learn_group(stream, number, name, self.applied)
            if self.epoch != epoch or not self.is_at_base(cache):
                return None
            at = groups.numbers.get((stream, name)) if number is None else number
            if at in self.skipped:      # the name is another group's by now
                groups.groups.pop(at, None)
                return None
        number = at
        record, settings = groups.groups.get(number), cache.settings.groups.get(number)
        if record is None:
            return None
        if name is not None and (record.stream != stream or record.name != name):
            return None
        if number in self.groups:
            return self.groups[number]
        known = groups.owed_runs.get(number)
        if known is None:
            near = groups.runs.near.get(number)
            known = () if near is None else (near,)
        g = Group(record, settings, known)
        self.known_runs += 1 + len(g.stretches)
        if self.epoch != epoch or not self.is_at_base(cache):
            return None         # Python ran: what was taken is of a state that is gone
        g.epoch = epoch
        self.groups[number] = g
        return g

    cdef Consumer consumer_of(self, Group g, number, bytes name):
        """A consumer of a group; None if it is not at hand."""
        cdef PyObject* found
        if name is not None:
            found = PyDict_GetItemWithError(g.named, name)
        else:
            found = PyDict_GetItemWithError(g.consumers, number)
        if found != NULL:
            return <Consumer>found
        cdef Consumer who
        cdef u64 epoch = self.epoch
        cache = self.cache
        if not self.is_at_base(cache):
            return None
        who = g.consumer(cache.groups, number, name)
        if who is None and g.number not in self.skipped and not cache.skipped:
            self.port.learn_consumer(g.number, number, name, self.applied)
            if self.epoch == epoch and self.is_at_base(cache):
                who = g.consumer(cache.groups, number, name)
        return who if self.epoch == epoch and self.is_at_base(cache) else None

    cdef bint knows_settings(self, Group g) except -1:
        """Whether the settings of a group are at hand, perhaps only now."""
        cdef u64 epoch = self.epoch
        if not g.knows_settings and self.is_at_base(self.cache):
            self.port.learn_settings(g.number)
            settings = self.cache.settings.groups.get(g.number)
            if settings is not None and self.epoch == epoch:
                g.learn_settings(settings)
        return g.knows_settings and self.epoch == epoch

    cdef int mark_dirty(self, Group g, PyObject* owner) except -1:
        """These are ahead of the cache, or will be: a group, and a `Consumer` unless it is NULL."""
        cdef Consumer who
        if not g.dirty:
            self.dirty_groups.append(g)
            g.dirty = True
        if owner == NULL:
            return 0
        who = <Consumer>owner
        if not who.dirty:
            g.dirty_consumers.append(who)
            who.dirty = True
        return 0

    # -- others' commits, and the record cache -----------------------------------------------------
    cdef bint take_in_frame(self, const u8* p, u64 left, u64 position, u64* size) except -1:
        cdef Group g = None
        cdef bint is_known, done = False
        cdef u64 number, epoch = self.epoch
        cdef PyObject* found
        if not (is_frame(p, left, ACK_BODY, KIND_ACK, size)
                or is_frame(p, left, DELIVER_BODY, KIND_DELIVER, size)
                or is_frame(p, left, CLAIM_BODY, KIND_CLAIM, size)
                or is_frame(p, left, CONSUMER_BODY, KIND_CONSUMER, size)):
            return DeleteLane.take_in_frame(self, p, left, position, size)
        if frame_crc(p, position, size[0], self.seed) != little(p, 4):
            return False
        number = little(p + HEAD, 8)
        found = PyDict_GetItemWithError(self.groups, number)
        is_known = (found != NULL or number in self.cache.groups.groups
                    or number in self.unlearned)
        if found != NULL:
            g = <Group>found
        elif is_known:
            g = self.learn_group(0, number, None)
        if g is not None and g.position >= position:
            return True         # it was looked up just now, in an index that had followed
        if g is not None:
            done = self.take_of_group(g, p[28], p + HEAD, size[0], position)
        if done or self.epoch != epoch or self.wake == NULL:
            return done
        if ls_load(self.wake + W_INDEXED) >= position + HEAD + size[0]:
            return self.unlearn_group(g, number)
        if not is_known:
            self.skipped.add(number)    # nothing is known of it before the index has followed
        return not is_known

    cdef bint unlearn_group(self, Group g, u64 number) except -1:
        """The index has a frame of a group that cannot be taken in here: what is held, and what the
        record cache has, counts no more; it is looked up in the index when it is needed."""
        if g is not None:
            g.epoch = 0
            self.known_runs -= 1 + len(g.stretches)
            if g.dirty:
                g.clean()
                self.dirty_groups.remove(g)
            self.groups.pop(number, None)
            self.unlearned.add(number)
        self.cache.groups.lack(number)
        return True

    cdef bint take_of_group(self, Group g, u8 kind, const u8* p, u64 size, u64 position) except -1:
        """Let a frame of a group count that is held; False: it cannot."""
        if kind == KIND_ACK:
            return self.take_ack(g, p, size, position)
        if kind == KIND_DELIVER:
            return self.take_delivery(g, p, size, position)
        return kind == KIND_CONSUMER and self.take_seen(g, p, position)

    cdef bint take_seen(self, Group g, const u8* p, u64 position) except -1:
        cdef Consumer who = self.consumer_of(g, <uint32_t>little(p + 8, 4), None)
        if who is None or not p[28]:
            return False        # it is new, or it goes
        self.mark_dirty(g, <PyObject*>who)
        g.seen(who, p, position)
        return True

    cdef bint take_delivery(self, Group g, const u8* p, u64 size, u64 position) except -1:
        cdef int64_t n = (size - DELIVER_BODY) // ID_BYTES
        cdef Consumer who = self.consumer_of(g, <uint32_t>little(p + 8, 4), None)
        if who is None or p[44] or n <= 0 or (size - DELIVER_BODY) % ID_BYTES:
            return False
        if self.stretch_of(g, big(p + DELIVER_BODY), big(p + DELIVER_BODY + 8), position) is None:
            return False
        if not self.make_room(g, p + DELIVER_BODY, n):
            return False
        self.mark_dirty(g, <PyObject*>who)
        g.delivered(who, p + DELIVER_BODY, n, little(p + 12, 8), <int64_t>little(p + 36, 8),
                    position)
        return little(p + 20, 8) == g.last_ms and little(p + 28, 8) == g.last_seq

    cdef bint take_ack(self, Group g, const u8* p, u64 size, u64 position) except -1:
        cdef int64_t n = (size - ACK_BODY) // ID_BYTES, i
        cdef Held one
        cdef u64 ms, seq
        if (size - ACK_BODY) % ID_BYTES:
            return False
        for i in range(n):
            ms = big(p + ACK_BODY + i * ID_BYTES)
            seq = big(p + ACK_BODY + i * ID_BYTES + 8)
            if not self.find_pending(g, ms, seq, position, &one) or one.place < 0:
                return False
            self.mark_dirty(g, one.owner)
            g.acked(&one, p + ACK_BODY + i * ID_BYTES)
        g.position = position
        return True

    cdef void stand_nowhere(self) noexcept:
        cdef Group g
        for g in self.dirty_groups:
            g.clean()
        self.dirty_groups.clear()
        self.groups.clear()
        self.unlearned.clear()
        self.known_runs = 0
        self.skipped.clear()
        self.forget_nodes()
        DeleteLane.stand_nowhere(self)

    cdef bint give_back_rest(self, cache) except -1:
        cdef Group g
        if not DeleteLane.give_back_rest(self, cache):
            return False
        for g in self.dirty_groups:
            if not g.give_back(cache.groups):
                return False
        if self.skipped:
            cache.skipped = True
            self.skipped.clear()
        for g in self.dirty_groups:
            g.clean()
        self.dirty_groups.clear()
        return True

    def take_counts(self):
        cdef int64_t deliveries = self.deliveries, acks = self.acks
        self.deliveries = self.acks = 0
        counts = DeleteLane.take_counts(self)
        counts["deliveries"], counts["acks"] = deliveries, acks
        return counts


cdef tuple ascending(tuple ids):
    """IDs without repetition, in order; None: one is not a `StreamID` itself."""
    cdef u64 ms = 0, seq = 0, before_ms = 0, before_seq = 0
    cdef Py_ssize_t i
    cdef bint ordered = True
    for i in range(len(ids)):
        id = ids[i]
        if type(id) is not _StreamID:
            return None
        id_of(id, &ms, &seq)
        ordered = ordered and (not i or below(before_ms, before_seq, ms, seq))
        before_ms, before_seq = ms, seq
    return ids if ordered else tuple(sorted(set(ids)))


cdef inline int id_of(object id, u64* ms, u64* seq) except -1:
    """The two numbers of an ID."""
    if not isinstance(id, tuple) or PyTuple_GET_SIZE(id) != 2:
        raise ValueError("an ID is two numbers below 2^64")
    ms[0] = <object>PyTuple_GET_ITEM(id, 0)
    seq[0] = <object>PyTuple_GET_ITEM(id, 1)
    return 0
