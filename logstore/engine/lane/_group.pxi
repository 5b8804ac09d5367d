# A group as its reads, acks and claims beside the pipeline need it, learned from the record cache
# and given back.

cdef enum:
    GROUPS_MAX = 1000       # held at once, of some kilobytes each
    SEEN_MS = 10            # a consumer that was seen so lately need not be written down once more

cdef int64_t GIVEN_BACK_MS = <int64_t>1 << 40   # places of what was given back are below
cdef int64_t PUT_OFF_MS = <int64_t>1 << 39      # from here up: of what joins their line later
cdef int64_t COUNT_LIMIT = <int64_t>1 << 62
cdef int64_t ANY_TIME_MS = 0x7fffffffffffffff   # no delivery is later
cdef bytes NO_BOUND = b"\xff" * 16 + b"\x00"    # above every ID


cdef inline int64_t delivered_until(int64_t now_ms, int64_t min_idle_ms) noexcept:
    """What was delivered then or before is idle for so long, as `pel.delivered_until_ms` says."""
    return now_ms - min_idle_ms if min_idle_ms > 0 else ANY_TIME_MS


def group_layout():
    """Numbers that stand in modules of Python, too, by the names that they have there."""
    return {
        "RUN_MAX_ENTRIES": PENDING_MAX, "ID_BYTES": ID_BYTES, "SEEN_MS": SEEN_MS,
        "GIVEN_BACK_MS": GIVEN_BACK_MS, "PUT_OFF_MS": PUT_OFF_MS, "END": NO_BOUND,
    }


cdef class Stretch:
    """What is pending in a group from the ID `low` on, below `upper`: one run."""

    cdef u64 low_ms, low_seq, upper_ms, upper_seq
    cdef bint endless           # there is no upper end
    cdef bint dirty             # the record cache has it otherwise, or not at all
    cdef bint knows_least
    cdef u64 least_ms           # the earliest delivery in it
    cdef int64_t count
    cdef Pending run[PENDING_MAX]

    def __cinit__(self):
        self.endless = True

    cdef bint learn(self, bytes low, run, bytes upper) except -1:
        """Take over a run, as `GroupTxn.around` gives it; False: it is none of those that fit."""
        cdef bytes packed = b"" if run is None else run.pack()
        cdef const u8* p = data_of(packed)
        cdef u64 n = 0 if run is None else len(run)
        self.knows_least = False
        if n > PENDING_MAX or (n and size_of(packed) != stored_bytes(n)):
            return False
        if size_of(low) not in (0, ID_BYTES) or size_of(upper) < ID_BYTES:
            return False
        read_pending(p, &self.run[0], n)
        self.count = n
        self.low_ms = self.low_seq = 0
        if size_of(low):
            self.low_ms, self.low_seq = big(data_of(low)), big(data_of(low) + 8)
        self.upper_ms, self.upper_seq = big(data_of(upper)), big(data_of(upper) + 8)
        self.endless = size_of(upper) > ID_BYTES
        return True

    cdef void cut_below(self, u64 ms, u64 seq) noexcept nogil:
        """Nothing before this ID is of it."""
        cdef int64_t gone = self.place(ms, seq)
        self.knows_least = False
        if below(self.low_ms, self.low_seq, ms, seq):
            self.low_ms, self.low_seq = ms, seq
            self.count -= gone
            memmove(&self.run[0], &self.run[gone], self.count * sizeof(Pending))

    cdef void cut_from(self, u64 ms, u64 seq) noexcept nogil:
        """Nothing from this ID on is of it."""
        if self.endless or below(ms, seq, self.upper_ms, self.upper_seq):
            self.knows_least = False
            self.endless, self.upper_ms, self.upper_seq = False, ms, seq
            self.count = self.place(ms, seq)

    cdef int64_t place(self, u64 ms, u64 seq) noexcept nogil:
        """Where an ID stands in the run, or would stand."""
        return pending_place(&self.run[0], self.count, ms, seq)

    cdef int64_t find(self, u64 ms, u64 seq) noexcept nogil:
        """The place of an ID in the run; -1: it is not there."""
        cdef int64_t at = self.place(ms, seq)
        return at if is_at(&self.run[0], self.count, at, ms, seq) else -1

    cdef bint reaches(self, u64 ms, u64 seq) noexcept nogil:
        """Whether an ID is below its upper end."""
        return self.endless or below(ms, seq, self.upper_ms, self.upper_seq)

    cdef bint meets(self, Stretch behind) noexcept:
        """Whether nothing is between it and another one behind it."""
        return (not self.endless and self.upper_ms == behind.low_ms
                and self.upper_seq == behind.low_seq)

    cdef u64 least(self) noexcept nogil:
        """The earliest delivery in it; above all others if there is none."""
        cdef int64_t i
        if not self.knows_least:
            self.least_ms, self.knows_least = ~<u64>0, True
            for i in range(self.count):
                self.least_ms = min(self.least_ms, self.run[i].time_ms)
        return self.least_ms

    cdef void changes(self) noexcept nogil:
        """Its entries are changed."""
        self.dirty, self.knows_least = True, False

    cdef tuple told(self):
        """As `GroupTxn.around` gives it."""
        run = _PendingRun.unpack(pack_pending(&self.run[0], self.count)) if self.count else None
        upper = NO_BOUND if self.endless else pack_id(self.upper_ms, self.upper_seq)
        return pack_id(self.low_ms, self.low_seq), run, upper


ctypedef struct Held:       # a pending entry that a commit changes; borrowed from its group
    PyObject* stretch
    PyObject* owner             # NULL: it was given back
    int64_t place


ctypedef struct Chosen:     # a pending entry, as it is
    u64 ms
    u64 seq
    u64 time_ms
    u64 count
    uint32_t consumer
    uint32_t fate               # what becomes of it; 0: it stays as it is
    u64 new_ms
    u64 new_count


cdef inline void choose_row(Chosen* to, const Pending* row) noexcept nogil:
    to.ms, to.seq, to.consumer = row.ms, row.seq, row.consumer
    to.time_ms, to.count, to.fate = row.time_ms, row.count, 0


cdef int64_t choose_by_time(Chosen* found, int64_t n, int64_t most,
                            const Pending* row) noexcept nogil:
    """Put a row among those that were delivered first, at most so many; how many they are. Rows
    come in the order of their IDs, in which those of one time stay."""
    cdef int64_t at = n
    if n == most:
        if row.time_ms >= found[n - 1].time_ms:
            return n
        at = n - 1
    while at and found[at - 1].time_ms > row.time_ms:
        found[at] = found[at - 1]
        at -= 1
    choose_row(&found[at], row)
    return min(n + 1, most)


cdef class Consumer:
    """A consumer of a group: its record."""

    cdef uint32_t number
    cdef bytes name
    cdef int64_t seen_ms, active_ms
    cdef u64 pending
    cdef bint dirty

    def __init__(self, record):
        self.number, self.name = record.number, record.name
        self.seen_ms, self.active_ms = record.seen_ms, record.active_ms
        self.pending = record.pending


cdef class Group:
    """A group: its record, its consumers as they are met, and what is pending, as far as it is
    known.

    `stretches` ascend and do not overlap. Of what is between them nothing is known here: the index
    has it as it is, for nothing of that was changed since.
    """

    cdef u64 number, stream
    cdef bytes name
    cdef u64 last_ms, last_seq, pending, position
    cdef u64 next_nack          # the place of what is given back next
    cdef int64_t read           # entries read; -1: not known
    cdef int64_t redeliver_ms   # what is pending for so long is read first; -1: nothing is
    cdef int64_t deliveries_max # what was delivered so often is dead; -1: nothing is
    cdef bint puts_off          # what fails waits
    cdef bint knows_settings
    cdef list stretches
    cdef bint knows_oldest
    cdef u64 oldest_ms          # nothing that is pending was delivered before
    # Of what is not known here, nothing stands before this delivery time and ID, if there is such a
    # bound; and how far the index had followed, whose idle runs were looked at up to there.
    cdef bint has_bound
    cdef u64 bound_time_ms, bound_ms, bound_seq, bound_upto
    cdef dict consumers         # by number
    cdef dict named             # by name
    cdef Consumer owner         # who was found last with an entry: often that of the next one, too
    cdef list dirty_consumers
    cdef bint dirty
    cdef u64 epoch

    def __init__(self, record, settings, known):
        """Of a `GroupRecord`, its settings or None, and runs as `GroupTxn.around` gives them."""
        cdef Stretch stretch
        self.number, self.stream, self.name = record.number, record.stream, record.name
        self.last_ms, self.last_seq = record.last
        self.pending, self.position = record.pending, record.position
        self.read = record.entries_read
        self.next_nack = record.next_nack
        self.redeliver_ms = self.deliveries_max = -1
        if settings is not None:
            self.learn_settings(settings)
        self.consumers, self.named, self.dirty_consumers = {}, {}, []
        self.stretches = []
        for low, run, upper in known if self.pending else ((b"", None, NO_BOUND),):
            stretch = Stretch()
            if stretch.learn(low, run, upper):
                self.stretches.append(stretch)

    cdef int learn_settings(self, settings) except -1:
        after_ms = settings.min_idle_ms
        self.redeliver_ms = -1 if after_ms is None else after_ms
        most, first_ms = settings.max_deliveries, settings.backoff_ms
        self.deliveries_max = -1 if most is None else most
        self.puts_off = first_ms is not None and first_ms != 0
        self.knows_settings = True
        return 0

    cdef Consumer consumer(self, cache, number, bytes name):
        """A consumer by its number, or else by its name; None if the record cache has it not."""
        cdef Consumer c
        cdef PyObject* found
        if number is None:
            found = PyDict_GetItemWithError(self.named, name)
            if found != NULL:
                return <Consumer>found
            number = cache.consumer_numbers.get((self.number, name))
        found = PyDict_GetItemWithError(self.consumers, number)
        if found != NULL:
            return <Consumer>found
        record = cache.consumers.get((self.number, number))
        if record is None or (name is not None and record.name != name):
            return None
        c = self.consumers[number] = Consumer(record)
        self.named[c.name] = c
        return c

    # -- what is pending ---------------------------------------------------------------------------
    cdef Py_ssize_t above(self, u64 ms, u64 seq) noexcept:
        """The place of the first stretch that begins above an ID."""
        cdef Py_ssize_t low = 0, high = PyList_GET_SIZE(self.stretches), middle
        cdef Stretch stretch
        while low < high:
            middle = (low + high) >> 1
            stretch = <Stretch>PyList_GET_ITEM(self.stretches, middle)
            if below(ms, seq, stretch.low_ms, stretch.low_seq):
                high = middle
            else:
                low = middle + 1
        return low

    cdef Stretch at(self, u64 ms, u64 seq):
        """The stretch in which an ID stands, or would stand; None: it is not known here."""
        cdef Py_ssize_t place = self.above(ms, seq)
        cdef Stretch stretch
        if not place:
            return None
        stretch = <Stretch>PyList_GET_ITEM(self.stretches, place - 1)
        return stretch if stretch.reaches(ms, seq) else None

    cdef Stretch learned(self, u64 ms, u64 seq, bytes low, run, bytes upper):
        """The stretch of an ID that was not known, by what the index says; None if that is no such
        run. What is known already stays: the index may have it as it was, or divided otherwise."""
        cdef Stretch stretch = Stretch(), other
        cdef Py_ssize_t place
        if not stretch.learn(low, run, upper):
            return None
        place = self.above(ms, seq)
        if place:
            other = self.stretches[place - 1]
            if other.reaches(ms, seq):
                return None
            stretch.cut_below(other.upper_ms, other.upper_seq)
        if place < PyList_GET_SIZE(self.stretches):
            other = self.stretches[place]
            stretch.cut_from(other.low_ms, other.low_seq)
        if below(ms, seq, stretch.low_ms, stretch.low_seq) or not stretch.reaches(ms, seq):
            return None
        self.stretches.insert(place, stretch)
        return stretch

    cdef int learn_run(self, bytes low, run, bytes upper) except -1:
        """All that was not known of a run that the index has; how many stretches that is, or -2: it
        is no such run."""
        cdef u64 ms, seq
        cdef Stretch stretch
        cdef int made = 0
        if size_of(low) != ID_BYTES or size_of(upper) < ID_BYTES:
            return -2
        ms, seq = big(data_of(low)), big(data_of(low) + 8)
        while True:
            stretch = self.at(ms, seq)
            if stretch is None:
                stretch = self.learned(ms, seq, low, run, upper)
                if stretch is None:
                    return -2
                made += 1
            if stretch.endless or (size_of(upper) == ID_BYTES and not below(
                    stretch.upper_ms, stretch.upper_seq,
                    big(data_of(upper)), big(data_of(upper) + 8))):
                return made
            ms, seq = stretch.upper_ms, stretch.upper_seq

    cdef Stretch joined_last(self):
        """The last stretch that is known; with the one before it, if it is empty: as the index has
        no run without entries."""
        cdef Py_ssize_t n = PyList_GET_SIZE(self.stretches)
        cdef Stretch last, before
        if not n:
            return None
        last = self.stretches[n - 1]
        while n > 1 and not last.count:
            before = self.stretches[n - 2]
            if not before.meets(last):
                break
            before.endless, before.dirty = last.endless, True
            before.upper_ms, before.upper_seq = last.upper_ms, last.upper_seq
            self.stretches.pop()
            last, n = before, n - 1
        return last

    cdef int join_empty(self) except -1:
        """Stretches without entries become parts of those before them."""
        cdef list kept = []
        cdef Stretch each, before = None
        for each in self.stretches:
            if before is not None and not each.count and before.meets(each):
                before.endless, before.dirty = each.endless, True
                before.upper_ms, before.upper_seq = each.upper_ms, each.upper_seq
                continue
            kept.append(each)
            before = each
        self.stretches = kept
        return 0

    cdef bint make_room(self, const u8* ids, int64_t n) except -1:
        """Have a place for so many entries behind all that is pending, and behind these; False:
        there is none, or it is not known. Also if nothing comes of it, what is here stays true."""
        cdef Stretch last = self.joined_last(), more
        cdef u64 ms = big(ids), seq = big(ids + 8)
        if last is None or not last.endless or below(ms, seq, last.low_ms, last.low_seq):
            return False
        if last.count and not below(last.run[last.count - 1].ms, last.run[last.count - 1].seq, ms,
                                    seq):
            return False
        if last.count + n > PENDING_MAX:
            self.join_empty()
        while last.count + n > PENDING_MAX:
            ids += (PENDING_MAX - last.count) * ID_BYTES
            n -= PENDING_MAX - last.count
            more = Stretch()
            more.low_ms, more.low_seq = big(ids), big(ids + 8)
            last.endless, last.dirty = False, True
            last.upper_ms, last.upper_seq = more.low_ms, more.low_seq
            self.stretches.append(more)
            last = more
        return True

    cdef bint knows_all(self) noexcept:
        """Whether all that is pending is known here."""
        cdef u64 known = 0
        cdef Py_ssize_t i
        for i in range(PyList_GET_SIZE(self.stretches)):
            known += (<Stretch>PyList_GET_ITEM(self.stretches, i)).count
        return known == self.pending

    cdef bint is_bounded(self) noexcept:
        """Whether there is a bound, perhaps only now: all is known, so nothing is beyond it."""
        if not self.has_bound and self.knows_all():
            self.has_bound = True
            self.bound_time_ms = self.bound_ms = self.bound_seq = ~<u64>0
        return self.has_bound

    cdef void learn_oldest(self) noexcept:
        """The earliest delivery of all. `is_bounded`."""
        cdef Py_ssize_t i
        self.oldest_ms, self.knows_oldest = self.bound_time_ms, True
        for i in range(PyList_GET_SIZE(self.stretches)):
            self.oldest_ms = min(self.oldest_ms,
                                 (<Stretch>PyList_GET_ITEM(self.stretches, i)).least())

    cdef void forget_pending(self) noexcept:
        """Know nothing any more of what is pending: the index has all of it."""
        self.has_bound = self.knows_oldest = False
        self.stretches = []

    cdef int64_t delivered_first(self, Chosen* found, int64_t most, int64_t until_ms) noexcept:
        """Of what is known, what was delivered first, at `until_ms` or before, at most so many; how
        many they are."""
        cdef Stretch stretch
        cdef Py_ssize_t at
        cdef int64_t n = 0, i
        for at in range(PyList_GET_SIZE(self.stretches) if until_ms >= 0 else 0):
            stretch = <Stretch>PyList_GET_ITEM(self.stretches, at)
            if stretch.least() > <u64>until_ms or (
                    n == most and stretch.least() >= found[n - 1].time_ms):
                continue
            for i in range(stretch.count):
                if stretch.run[i].time_ms <= <u64>until_ms:
                    n = choose_by_time(found, n, most, &stretch.run[i])
        return n

    cdef bint is_below_bound(self, const Chosen* one) noexcept nogil:
        """Whether nothing that is not known here was delivered before this one."""
        return self.has_bound and (one.time_ms < self.bound_time_ms or (
            one.time_ms == self.bound_time_ms
            and below(one.ms, one.seq, self.bound_ms, self.bound_seq)))

    cdef bint has_idle(self, int64_t idle_ms, int64_t now_ms) noexcept:
        """Whether an entry may be pending for so long, or was given back. `knows_oldest`."""
        cdef int64_t until_ms = delivered_until(now_ms, idle_ms)
        if now_ms >= GIVEN_BACK_MS and until_ms < GIVEN_BACK_MS - 1:
            until_ms = GIVEN_BACK_MS - 1
        if not self.pending or until_ms < 0:
            return self.pending != 0
        if self.oldest_ms <= <u64>until_ms and self.is_bounded():
            self.learn_oldest()
        return self.oldest_ms <= <u64>until_ms

    # -- what frames do to it: no object is made, and nothing can fail -----------------------------
    cdef void delivered(self, Consumer who, const u8* ids, int64_t n, u64 time_ms, int64_t read,
                        u64 position) noexcept:
        """These are this consumer's, delivered for the first time; `make_room` was asked."""
        cdef Pending* row
        cdef Py_ssize_t at = self.above(big(ids), big(ids + 8)) - 1
        cdef Stretch stretch = <Stretch>PyList_GET_ITEM(self.stretches, at)
        cdef int64_t i
        for i in range(n):
            if stretch.count == PENDING_MAX:
                at += 1
                stretch = <Stretch>PyList_GET_ITEM(self.stretches, at)
            stretch.changes()
            row = &stretch.run[stretch.count]
            row.ms, row.seq = big(ids + i * ID_BYTES), big(ids + i * ID_BYTES + 8)
            row.time_ms, row.count, row.consumer = time_ms, 1, who.number
            stretch.count += 1
        self.oldest_ms = min(self.oldest_ms, time_ms) if self.pending else time_ms
        self.knows_oldest = self.knows_oldest or not self.pending
        self.pending += n
        who.pending += n
        who.seen_ms = who.active_ms = time_ms
        ids += (n - 1) * ID_BYTES
        self.last_ms, self.last_seq = big(ids), big(ids + 8)
        self.read = read
        self.position = position

    cdef int64_t place_of(self, const Held* found, const u8* id) noexcept:
        """Where an entry that was found stands now: entries before it may have gone."""
        cdef Stretch stretch = <Stretch>found.stretch
        cdef int64_t place = found.place
        if (place >= stretch.count or stretch.run[place].ms != big(id)
                or stretch.run[place].seq != big(id + 8)):
            place = stretch.find(big(id), big(id + 8))
        return place

    cdef void seen(self, Consumer who, const u8* body, u64 position) noexcept:
        """A consumer was seen, as the body of a frame says."""
        who.seen_ms, who.active_ms = <int64_t>little(body + 12, 8), <int64_t>little(body + 20, 8)
        self.position = position

    cdef void claims_seen(self, Consumer who, const u8* body, u64 position) noexcept:
        """The consumer of a claim was seen, if there is one, as of `seen`."""
        if who is not None:
            self.seen(who, body, position)
        self.position = position

    cdef void acked(self, const Held* found, const u8* id) noexcept:
        """An entry that was found is not pending any more."""
        cdef Stretch stretch = <Stretch>found.stretch
        cdef int64_t place = self.place_of(found, id)
        stretch.count -= 1
        memmove(&stretch.run[place], &stretch.run[place + 1],
                (stretch.count - place) * sizeof(Pending))
        stretch.changes()
        self.pending -= 1
        if found.owner != NULL:
            (<Consumer>found.owner).pending -= 1

    cdef void claimed(self, const Held* found, const u8* item, Consumer who) noexcept:
        """An entry that was found is this consumer's, as the item of a frame says; with None it is
        given back."""
        cdef Stretch stretch = <Stretch>found.stretch
        cdef Pending* row = &stretch.run[self.place_of(found, item)]
        row.time_ms, row.count = big(item + ID_BYTES), big(item + ID_BYTES + 8)
        stretch.changes()
        self.oldest_ms = min(self.oldest_ms, row.time_ms)
        if found.owner != NULL:
            (<Consumer>found.owner).pending -= 1
        if who is None:
            row.consumer = 0
            self.next_nack = max(self.next_nack, row.time_ms + 1)
            return
        row.consumer = who.number
        who.pending += 1

    # -- back to the record cache ------------------------------------------------------------------
    cdef bint give_back(self, cache) except -1:
        """Put what changed into a `GroupCache`, as applying the frames would; False: it has not all
        of these records any more."""
        cdef Consumer c
        cdef Stretch stretch
        record = cache.groups.get(self.number)
        if record is None:
            return False
        for c in self.dirty_consumers:
            if (self.number, c.number) not in cache.consumers:
                return False
        record.last = ls_id(_StreamID, self.last_ms, self.last_seq)
        record.entries_read, record.pending = self.read, self.pending
        record.position = self.position
        record.next_nack = self.next_nack
        for c in self.dirty_consumers:
            known = cache.consumers[self.number, c.number]
            known.seen_ms, known.active_ms, known.pending = c.seen_ms, c.active_ms, c.pending
        self.joined_last()
        runs = [stretch.told() for stretch in self.stretches if stretch.dirty]
        cache.owe(self.number, [c.number for c in self.dirty_consumers], runs)
        return True

    cdef void clean(self) noexcept:
        """The record cache has all of it."""
        cdef Consumer c
        cdef Stretch stretch
        for c in self.dirty_consumers:
            c.dirty = False
        for stretch in self.stretches:
            stretch.dirty = False
        self.dirty_consumers.clear()
        self.dirty = False
