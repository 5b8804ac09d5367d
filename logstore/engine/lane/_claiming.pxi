# Commits that hand on what is pending: nacks, claims, and a consumer's own entries once more.

cdef enum:
    CHOSEN_MAX = 1024       # pending entries that one call looks at
    ATTEMPTS = 10           # of them that a scan looks at for each that is wanted
    AHEAD_MAX = 64          # entries of a node that are decoded at a time

cdef enum:                  # what becomes of a pending entry that was chosen
    GOES_ON = 1
    ENDS = 2                # the entry itself is gone

cdef int64_t DELIVERIES_MAX = <int64_t>(~<u64>0 >> 1)


def claim_layout():
    """Numbers that stand in modules of Python, too, by the names that they have there."""
    return {"COUNT_MAX": DELIVERIES_MAX, "ATTEMPTS_AN_ENTRY": ATTEMPTS}


cdef enum:                  # which pending entries a call is about
    OF_IDS = 0
    BY_IDLE = 1             # what was delivered first
    FROM_ID = 2
    OWN = 3                 # of the consumer that calls


ctypedef struct Claim:      # what a call asks for
    int which
    bint gives_back         # to nobody, as a nack
    bint fails              # what is set for what fails counts
    bint is_active          # it counts as the consumer's activity
    bint keeps_ended        # what is gone stays pending, and is told
    bint may_die            # who was delivered too often is not handed on
    bint alone              # nor is anything with it
    bint wakes              # who waits for the group is to look again
    int64_t step            # on the delivery count
    int64_t count           # that counts instead; -1: none
    int64_t min_idle_ms
    int64_t idle_ms         # the delivery counts as so long ago; -1: as now
    int64_t at_ms           # when it counts as; -1: not asked for
    int64_t most            # entries; 0: any number
    int64_t attempts
    int64_t deliveries_max  # instead of what is set for the group; -1: that
    u64 ms                  # where it begins
    u64 seq


cdef void ask_for(Claim* asked, int which) noexcept:
    """A claim of such entries, without options."""
    memset(asked, 0, sizeof(Claim))
    asked.which, asked.is_active, asked.step = which, True, 1
    asked.count = asked.idle_ms = asked.at_ms = asked.deliveries_max = -1


cdef int by_id(const void* one, const void* other) noexcept nogil:
    cdef const Chosen* a = <const Chosen*>one
    cdef const Chosen* b = <const Chosen*>other
    return -1 if below(a.ms, a.seq, b.ms, b.seq) else 1


cdef bint read_number(object value, int64_t* number) except -1:
    """A number that is not negative, -1 for None; False: it is none that fits here."""
    cdef int overflow = 0
    number[0] = -1
    if value is None:
        return True
    if not PyLong_CheckExact(value):
        return False
    number[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    return not overflow and number[0] >= 0


cdef inline u64 count_after(const Claim* asked, const Chosen* one) noexcept nogil:
    """The delivery count of an entry that is handed on, or given back."""
    if asked.count >= 0:
        return <u64>asked.count
    if asked.step < 0:
        return one.count - 1 if one.count else 0
    return min(one.count + <u64>asked.step, <u64>DELIVERIES_MAX)


cdef inline int64_t delivery_ms(const Claim* asked, int64_t now_ms) noexcept nogil:
    """When it counts as delivered; now, if what is asked for cannot be."""
    cdef int64_t at_ms = now_ms
    if asked.at_ms >= 0:
        at_ms = asked.at_ms
    elif asked.idle_ms >= 0:
        at_ms = now_ms - asked.idle_ms
    return at_ms if 0 <= at_ms <= now_ms else now_ms


cdef class ClaimLane(GroupLane):
    """Nacks, claims and reads of what is a consumer's own already, too; see native.pyx.

    What a call is about is chosen first. Then is decided what becomes of each, for which its entry
    is looked up, so that Python runs. Behind that all are found once more, and must be as they
    were. What is gone is acked by a frame, and the others are claimed by the next one.
    """

    cdef Chosen chosen[CHOSEN_MAX]
    cdef object delivered, autoclaimed      # what calls give, once there is one
    # What was decoded of a node in a call: all from an ID to another one; with 0 ahead: nothing
    # was.
    cdef dict decoded
    cdef u64 node_of_ms, node_of_seq, from_ms, from_seq, to_ms, to_seq
    cdef int ahead
    cdef bytes open_node        # a copy of this call
    cdef int64_t claims, nacks, redeliveries

    # -- calls, with the arguments of who decides in Python ----------------------------------------
    def nack(self, list told not None, list missed not None, bytes stream not None,
             bytes group not None, ids not None, *, mode, retry_count, force, later, error):
        """Give entries back, as ``ack.nack``; how many were pending. None: it, or the moment, is
        not plain. What is given is put into `told`, too, once it is committed."""
        cdef Claim asked
        ask_for(&asked, OF_IDS)
        asked.gives_back = asked.may_die = True
        asked.fails = mode == "fail" and later is None
        asked.step = -1 if mode == "silent" else 0
        if (mode not in ("silent", "fail", "fatal") or force
                or (later is not None and later.first_ms)):
            return None
        if not read_number(retry_count, &asked.count):
            return None
        if mode == "fatal" and asked.count < 0:
            asked.count = DELIVERIES_MAX
        return self.pass_on(told, missed, stream, group, None, ids, &asked)

    def claim(self, list told not None, list missed not None, bytes stream not None,
              bytes group not None, bytes consumer not None, ids not None, *, min_idle_ms, idle_ms,
              time_ms, retry_count, force, just_id, last_id):
        """Hand entries to a consumer, as ``claim.claim``; what was taken. None as of `nack`, or the
        read core has not read the nodes of entries whose IDs are put into `missed`."""
        cdef Claim asked
        ask_for(&asked, OF_IDS)
        asked.step = not just_id
        if force or last_id is not None or not read_number(min_idle_ms, &asked.min_idle_ms):
            return None
        if not (read_number(idle_ms, &asked.idle_ms) and read_number(time_ms, &asked.at_ms)
                and read_number(retry_count, &asked.count)):
            return None
        return self.pass_on(told, missed, stream, group, consumer, ids, &asked)

    def autoclaim(self, list told not None, list missed not None, bytes stream not None,
                  bytes group not None, bytes consumer not None, *, min_idle_ms, start, count,
                  just_id):
        """Hand on what is idle, as ``claim.autoclaim``. None as of `claim`."""
        cdef Claim asked
        ask_for(&asked, BY_IDLE if start is None else FROM_ID)
        asked.step, asked.may_die = not just_id, not just_id
        if not read_number(min_idle_ms, &asked.min_idle_ms) or not read_number(count, &asked.most):
            return None
        asked.attempts = asked.most * ATTEMPTS
        if not 0 < asked.most <= ACKED_MAX:
            return None
        if start is not None:
            if type(start) is not _StreamID or asked.attempts >= CHOSEN_MAX:
                return None
            id_of(start, &asked.ms, &asked.seq)
        return self.pass_on(told, missed, stream, group, consumer, (), &asked)

    def read_history(self, list told not None, list missed not None, bytes stream not None,
                     bytes group not None, bytes consumer not None, *, after, count, limit, singly):
        """Deliver a consumer's own entries once more, as ``deliver.read_history``. None as of
        `claim`."""
        cdef Claim asked
        ask_for(&asked, OWN)
        asked.keeps_ended, asked.may_die, asked.is_active, asked.alone = True, True, False, singly
        if not read_number(count, &asked.most) or type(after) is not _StreamID or after == _MAX_ID:
            return None
        if limit is not None and not read_number(limit.most, &asked.deliveries_max):
            return None
        id_of(after.next(), &asked.ms, &asked.seq)
        return self.pass_on(told, missed, stream, group, consumer, (), &asked)

    cdef object pass_on(self, list told, list missed, bytes name, bytes group, bytes consumer, ids,
                     Claim* asked):
        """Commit it; what the call gives, or None."""
        cdef Handle h
        cdef Tried tried
        cdef Asked stream
        cdef int became = NOT_PLAIN
        cdef bint grouped = False
        if not self.may_try():
            return None
        h = self.handle(name)
        if h is None or not self.try_lock():
            return None
        ask_nothing(&stream, False)
        stream.handle = <PyObject*>h
        given = None
        try:
            given = self.pass_on_locked(h, name, group, consumer, ids, asked, missed, &stream,
                                        &tried,
                                     &became)
            if became > COMMITTED:
                self.ask(became, &tried)
        finally:
            grouped = self.unlock(&stream, 1 if became and asked.wakes else 0)
            self.release()
        if became:
            told.append(given)
        if grouped:
            self.engine.wake.waits.waiters.wake_buckets({h.bucket}, set())
        return given

    cdef object pass_on_locked(self, Handle h, bytes name, bytes group_name, bytes consumer_name,
                               ids, Claim* asked, list missed, const Asked* stream, Tried* tried,
                               int* became):
        """Decide and commit; what the call gives, or None. What became of the commit, if there was
        one."""
        cdef u64 start = ls_load(self.wake + W_APPLIED)
        cdef int64_t now_ns = ls_now_ns(MONOTONIC), now_ms = ls_now_ns(WALL) // 1000000, n
        cdef Group g = self.group_locked(h, name, group_name, start, now_ns)
        cdef Consumer who = None
        cdef list rows = [], ended = []
        if g is None or not self.knows_settings(g):
            return None
        if not asked.gives_back:
            who = self.consumer_of(g, None, consumer_name)
            if who is None:
                return None
        if asked.deliveries_max < 0:
            asked.deliveries_max = g.deliveries_max
        if (asked.fails and g.puts_off) or (
                asked.alone and asked.deliveries_max >= 0 and who.pending):
            return None
        n = self.choose_pending(g, who, asked, ids, now_ms, start)
        if n < 0 or (not asked.gives_back and self.chose_put_off(n)):
            return None
        if asked.gives_back:
            given = n if self.decide_back(g, asked, n) else None
        else:
            try:
                given = self.decide(h, asked, n, now_ms, rows, ended, missed)
            finally:
                self.open_node = self.decoded = None
                self.ahead = 0
        # Python ran: is everything as it was?
        if given is None or missed or g.epoch != self.epoch or not self.is_current(h):
            return None
        if not self.commit_chosen(g, who, asked, n, start, now_ns, now_ms, stream, tried, became):
            return None
        return given

    # -- what it is about --------------------------------------------------------------------------
    cdef int64_t choose_pending(self, Group g, Consumer who, const Claim* asked, ids,
                                int64_t now_ms,
                        u64 upto) except -2:
        """Choose pending entries; how many, or -1: they are not known here, or too many."""
        cdef int64_t until_ms = delivered_until(now_ms, asked.min_idle_ms), n
        if asked.which == OF_IDS:
            return self.choose_ids(g, ids, upto)
        if asked.which == FROM_ID:
            return self.choose_from(g, asked, 0, asked.attempts + 1, upto)
        if asked.which == OWN:
            n = min(<u64>asked.most, who.pending) if asked.most else who.pending
            return -1 if n > ACKED_MAX else self.choose_from(g, asked, who.number, n, upto)
        while True:
            n = g.delivered_first(self.chosen, asked.most, until_ms)
            if g.is_bounded() and (until_ms < 0 or g.bound_time_ms > <u64>until_ms
                                   or (n == asked.most and g.is_below_bound(&self.chosen[n - 1]))):
                return n
            if self.known_runs > self.held_max or not self.learn_next(g, upto):
                return -1

    cdef bint chose_put_off(self, int64_t n) noexcept:
        """Whether one of these may have been given back for later: `pel` knows when it is due."""
        cdef int64_t i
        for i in range(n):
            if <u64>PUT_OFF_MS <= self.chosen[i].time_ms < <u64>GIVEN_BACK_MS:
                return True
        return False

    cdef int64_t choose_ids(self, Group g, ids, u64 upto) except -2:
        """Of some IDs those that are pending, in their order."""
        cdef u64 ms = 0, seq = 0
        cdef Held one
        cdef int64_t n = 0, size = len(ids)
        if size > ACKED_MAX or (size > 1 and len(set(ids)) != size):
            return -1
        for id in ids:
            if type(id) is not _StreamID:
                return -1
            id_of(id, &ms, &seq)
            if not self.find_pending(g, ms, seq, upto, &one):
                return -1
            if one.place >= 0:
                choose_row(&self.chosen[n], &(<Stretch>one.stretch).run[one.place])
                n += 1
        return n

    cdef int64_t choose_from(self, Group g, const Claim* asked, uint32_t consumer, int64_t most,
                             u64 upto) except -2:
        """Those from an ID on, at most so many; of a consumer, or with 0 of all."""
        cdef u64 ms = asked.ms, seq = asked.seq
        cdef Stretch stretch
        cdef int64_t n = 0, i
        while n < most and g.pending:
            stretch = self.stretch_of(g, ms, seq, upto)
            if stretch is None or self.known_runs > self.held_max:
                return -1
            for i in range(stretch.place(ms, seq), stretch.count):
                if n < most and (not consumer or stretch.run[i].consumer == consumer):
                    choose_row(&self.chosen[n], &stretch.run[i])
                    n += 1
            if stretch.endless:
                break
            ms, seq = stretch.upper_ms, stretch.upper_seq
        return n

    # -- what becomes of it ------------------------------------------------------------------------
    cdef bint decide_back(self, Group g, Claim* asked, int64_t n) except -1:
        """Give back what was chosen, in this order; False: one is dead then."""
        cdef Chosen* one
        cdef int64_t i
        for i in range(n):
            one = &self.chosen[i]
            one.fate, one.new_ms = GOES_ON, g.next_nack + i
            one.new_count = count_after(asked, one)
            if 0 <= asked.deliveries_max <= <int64_t>one.new_count:
                return False
        asked.wakes = True
        return True

    cdef object decide(self, Handle h, Claim* asked, int64_t n, int64_t now_ms, list rows,
                       list ended, list missed):
        """Hand on what was chosen, and is there, and idle for long enough; what the call gives, or
        None: who decides in Python is to see it."""
        cdef Chosen* one = self.chosen
        cdef int64_t i, idle_ms, left = asked.most, at_ms = delivery_ms(asked, now_ms)
        cursor = _ZERO_ID
        if self.delivered is None:      # a start loads neither
            from logstore.engine.groups.claim import Autoclaimed
            from logstore.engine.groups.deliver import Delivered
            self.autoclaimed, self.delivered = Autoclaimed, Delivered
        for i in range(n):
            id = ls_id(_StreamID, one[i].ms, one[i].seq)
            if asked.which == FROM_ID:
                if not asked.attempts or not left:
                    cursor = id
                    break
            asked.attempts -= 1
            items = self.fields_of(h, one[i].ms, one[i].seq, id, missed)
            if items is False:
                return None
            idle_ms = max(0, now_ms - <int64_t>one[i].time_ms) if one[i].consumer else now_ms
            if items is None and asked.keeps_ended:
                rows.append(self.delivered(id, None, idle_ms, one[i].count, one[i].time_ms))
            elif items is None:
                one[i].fate = ENDS
                ended.append(id)
                left -= 1
            elif idle_ms >= asked.min_idle_ms:
                if asked.may_die and 0 <= asked.deliveries_max <= <int64_t>one[i].count:
                    return None
                one[i].fate, one[i].new_ms = GOES_ON, at_ms
                one[i].new_count = count_after(asked, &one[i])
                rows.append(self.delivered(id, items, idle_ms, one[i].new_count, at_ms))
                left -= 1
                asked.wakes = at_ms < now_ms
        if asked.which == BY_IDLE or asked.which == FROM_ID:
            return self.autoclaimed(cursor, rows, ended, asked.attempts, False)
        return rows

    cdef object fields_of(self, Handle h, u64 ms, u64 seq, id, list missed):
        """Field, value, ... of an entry; None: it is gone; False: that is not known here."""
        cdef u64 node_ms = h.master_ms, node_seq = h.master_seq
        cdef bytes lp, vector = b""
        if (not h.length or below(ms, seq, h.first_ms, h.first_seq)
                or below(h.last_ms, h.last_seq, ms, seq)):
            return None
        if (self.ahead and not below(ms, seq, self.from_ms, self.from_seq)
                and not below(self.to_ms, self.to_seq, ms, seq)):
            return self.decoded.get(id)
        try:
            if h.open_version and not below(ms, seq, node_ms, node_seq):
                if not h.usable:
                    return False
                if self.open_node is None:
                    self.open_node = PyBytes_FromStringAndSize(<char*>h.lp.data, h.lp.size)
                lp = self.open_node
            else:
                reader = self.engine.reader
                found = _MISS if reader is None else reader.place(h.name, ms, seq)
                if found is _MISS:
                    missed.append(id)
                    return None     # the others are looked up, to know all that are missed
                if found is None:
                    return None
                node_ms, node_seq, _, _, vector, lp = found
            return self.look_ahead(lp, node_ms, node_seq, vector, ms, seq, id)
        except CorruptNodeError:
            return False            # the pipeline says what it is

    cdef object look_ahead(self, bytes lp, u64 node_ms, u64 node_seq, bytes vector, u64 ms,
                           u64 seq, id):
        """Field, value, ... of an entry of a node, or None. Where IDs ascend some are decoded at a
        time: each is looked for from the beginning of the node, which may have very many."""
        cdef int ahead = 1
        if (self.ahead and self.node_of_ms == node_ms and self.node_of_seq == node_seq
                and below(self.to_ms, self.to_seq, ms, seq)):
            ahead = min(2 * self.ahead, AHEAD_MAX)
        self.ahead = 0
        made = _codec().entries(lp, node_ms, node_seq, vector, id, id if ahead == 1 else _MAX_ID,
                                ahead, False)
        self.from_ms, self.from_seq, self.to_ms, self.to_seq = ms, seq, ms, seq
        if made:
            _, self.to_ms, self.to_seq, _ = made[len(made) - 1]
        self.decoded = {(each[1], each[2]): each[3] for each in made}
        self.node_of_ms, self.node_of_seq, self.ahead = node_ms, node_seq, ahead
        return self.decoded.get(id)

    # -- the commit --------------------------------------------------------------------------------
    cdef bint commit_chosen(self, Group g, Consumer who, const Claim* asked, int64_t n, u64 start,
                            int64_t now_ns, int64_t now_ms, const Asked* stream, Tried* tried,
                            int* became) except -1:
        """Commit what was decided, if it changes anything; False: it cannot."""
        cdef int64_t ended, taken, i
        cdef u8* p
        qsort(self.chosen, n, sizeof(Chosen), by_id)
        self.out.size = self.frames = 0
        ended = self.lay_out_chosen(g, None, ENDS, n, 0, start)
        if ended < 0:
            return False
        taken = self.lay_out_chosen(g, who, GOES_ON, n, ended, start)
        if taken < 0:
            return False
        if taken and who is not None:
            p = self.out.data + self.steps[self.frames - 1].at + HEAD
            put_64(p + 12, now_ms)
            put_64(p + 20, now_ms if asked.is_active else who.active_ms)
        elif who is not None and not 0 <= now_ms - who.seen_ms < self.lately_ms:
            self.lay_out_seen(g, who, now_ms)
        if not self.frames:
            return True
        if g.epoch != self.epoch or self.wake == NULL or not self.fits(start, self.out.size):
            return False
        for i in range(ended + taken):
            self.mark_dirty(g, self.found[i].owner)
        self.mark_dirty(g, <PyObject*>who if who is not None else NULL)
        self.put_heads(self.frames, start, tried)
        became[0] = self.commit_steps(stream, 1 if asked.wakes else 0, self.frames, None, now_ns,
                                      tried)
        if became[0] == COMMITTED:
            self.acks -= ended      # nobody acked what is gone
            if asked.gives_back:
                self.nacks += taken
            elif asked.which == OWN:
                self.redeliveries += taken
            else:
                self.claims += taken
        return True

    cdef int64_t lay_out_chosen(self, Group g, Consumer who, uint32_t fate, int64_t n,
                                int64_t first, u64 upto) except -2:
        """Append the frame of those that this becomes of, but for its head and when the consumer
        was seen; how many they are, or -1: they are not as they were."""
        cdef bint claims = fate == GOES_ON
        cdef int64_t body = CLAIM_BODY if claims else ACK_BODY, count = 0, i
        cdef int64_t each = CLAIM_ITEM if claims else ID_BYTES
        cdef Decided* decided = &self.decided[self.frames]
        cdef Chosen* one = self.chosen
        cdef u8* p
        fail(buf_reserve(&self.out, HEAD + body + n * each))
        for i in range(n):
            if one[i].fate != fate:
                continue
            if first + count == ACKED_MAX or not self.is_as_it_was(
                    g, &one[i], &self.found[first + count], upto):
                return -1
            p = self.out.data + self.out.size + HEAD + body + count * each
            put_big(p, one[i].ms)
            put_big(p + 8, one[i].seq)
            if claims:
                put_big(p + ID_BYTES, one[i].new_ms)
                put_big(p + ID_BYTES + 8, one[i].new_count)
            count += 1
        if not count:
            return 0
        p = self.out.data + self.out.size + HEAD
        put_64(p, g.number)
        if claims:
            memset(p + 8, 0, CLAIM_BODY - 8)
            put_32(p + 8, 0 if who is None else who.number)
        decided.group, decided.first = <PyObject*>g, <int>first
        decided.who = <PyObject*>who if who is not None else NULL
        self.framed_to(KIND_CLAIM if claims else KIND_ACK, HEAD + body + count * each)
        return count

    cdef bint is_as_it_was(self, Group g, const Chosen* one, Held* found, u64 upto) except -1:
        """Whether a pending entry is as it was when it was chosen, and where."""
        cdef const Pending* row
        if not self.find_pending(g, one.ms, one.seq, upto, found) or found.place < 0:
            return False
        row = &(<Stretch>found.stretch).run[found.place]
        return (row.time_ms == one.time_ms and row.count == one.count
                and row.consumer == one.consumer)

    cdef void apply_step(self, const Asked* asked, int i, u64 position) noexcept:
        cdef const u8* p = self.out.data + self.steps[i].at + HEAD
        cdef Decided* decided = &self.decided[i]
        cdef Group g
        cdef Consumer who = None
        cdef int64_t k
        if self.steps[i].kind != KIND_CLAIM:
            GroupLane.apply_step(self, asked, i, position)
            return
        g = <Group>decided.group
        if decided.who != NULL:
            who = <Consumer>decided.who
        for k in range(<int64_t>(self.steps[i].size - HEAD - CLAIM_BODY) // CLAIM_ITEM):
            g.claimed(&self.found[decided.first + k], p + CLAIM_BODY + k * CLAIM_ITEM, who)
        g.claims_seen(who, p, position)

    # -- others' commits ---------------------------------------------------------------------------
    cdef bint take_of_group(self, Group g, u8 kind, const u8* p, u64 size, u64 position) except -1:
        cdef Consumer who = None
        cdef Held one
        cdef const u8* item = p + CLAIM_BODY
        if kind != KIND_CLAIM:
            return GroupLane.take_of_group(self, g, kind, p, size, position)
        if (size - CLAIM_BODY) % CLAIM_ITEM:
            return False
        if little(p + 8, 4):
            who = self.consumer_of(g, <uint32_t>little(p + 8, 4), None)
            if who is None:
                return False
        while item < p + size:
            if not self.find_pending(g, big(item), big(item + 8), position, &one) or one.place < 0:
                return False    # it is pending only now
            self.mark_dirty(g, one.owner)
            g.claimed(&one, item, who)
            item += CLAIM_ITEM
        self.mark_dirty(g, <PyObject*>who if who is not None else NULL)
        g.claims_seen(who, p, position)
        return True

    def take_counts(self):
        cdef int64_t claims = self.claims, nacks = self.nacks, redeliveries = self.redeliveries
        self.claims = self.nacks = self.redeliveries = 0
        counts = GroupLane.take_counts(self)
        counts["claims"], counts["nacks"], counts["redeliveries"] = claims, nacks, redeliveries
        return counts
