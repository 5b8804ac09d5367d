# A group as reads and acks beside the pipeline need it, learned from the record cache and given back.

cdef enum:
    RUN_MAX = 128           # entries of a run
    PENDING_BYTES = 36      # of one, as a run is stored
    GROUPS_MAX = 1000       # held at once, of some kilobytes each
    SEEN_MS = 10            # a consumer that was seen so lately need not be written down once more

cdef int64_t GIVEN_BACK_MS = <int64_t>1 << 40   # places of what was given back are below
cdef int64_t COUNT_LIMIT = <int64_t>1 << 62
cdef bytes NO_BOUND = b"\xff" * 16 + b"\x00"    # above every ID


ctypedef struct Pending:    # one pending entry
    u64 ms
    u64 seq
    u64 time_ms
    u64 count
    uint32_t consumer


def group_layout():
    """Numbers that stand in modules of Python, too, by the names that they have there."""
    return {
        "RUN_MAX_ENTRIES": RUN_MAX, "ID_BYTES": ID_BYTES, "SEEN_MS": SEEN_MS,
        "GIVEN_BACK_MS": GIVEN_BACK_MS, "END": NO_BOUND,
    }


cdef inline void put_big(u8* p, u64 value) noexcept nogil:
    cdef int i
    for i in range(8):
        p[7 - i] = <u8>(value >> (8 * i))


cdef inline u64 big(const u8* p) noexcept nogil:
    cdef u64 value = 0
    cdef int i
    for i in range(8):
        value = value << 8 | p[i]
    return value


cdef inline bint is_below(u64 ms, u64 seq, u64 than_ms, u64 than_seq) noexcept nogil:
    return ms < than_ms or (ms == than_ms and seq < than_seq)


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
    """A group: its record, its consumers as they are met, and one run of pending entries.

    The run is all that is pending from `low` on, below `upper`. Nothing is known of the others.
    """

    cdef u64 number, stream
    cdef bytes name
    cdef u64 last_ms, last_seq, pending, position
    cdef int64_t read           # entries read; -1: not known
    cdef int64_t redeliver_ms   # what is pending for so long is read first; -1: nothing is
    cdef bint knows_settings
    cdef bint knows_run
    cdef bytes low, upper
    cdef u64 low_ms, low_seq, upper_ms, upper_seq
    cdef bint endless           # the run is the last one
    cdef int64_t count
    cdef Pending run[RUN_MAX]
    cdef dict consumers         # by number
    cdef dict named             # by name
    cdef list dirty_consumers
    cdef bint dirty, run_dirty
    cdef u64 epoch

    def __init__(self, record, settings, near):
        """Of a `GroupRecord`, its settings, and a run as `DecodedRuns.near` has it; these or None."""
        self.number, self.stream, self.name = record.number, record.stream, record.name
        self.last_ms, self.last_seq = record.last
        self.pending, self.position, self.read = record.pending, record.position, record.entries_read
        self.redeliver_ms = -1
        if settings is not None:
            self.learn_settings(settings)
        self.consumers, self.named, self.dirty_consumers = {}, {}, []
        if not self.pending:
            near = (b"", None, NO_BOUND)
        if near is not None:
            self.learn_run(near[0], near[1], near[2])

    cdef int learn_settings(self, settings) except -1:
        after_ms = settings.redeliver_after_ms
        self.redeliver_ms = -1 if after_ms is None else after_ms
        self.knows_settings = True
        return 0

    cdef int learn_run(self, bytes low, run, bytes upper) except -1:
        cdef bytes packed = b"" if run is None else run.pack()
        cdef const u8* p = data_of(packed)
        cdef u64 n = 0 if run is None else len(run), i
        if n > RUN_MAX or (n and size_of(packed) != 4 + n * PENDING_BYTES):
            return 0
        if size_of(low) not in (0, ID_BYTES) or size_of(upper) < ID_BYTES:
            return 0
        for i in range(n):
            self.run[i].ms = big(p + 4 + i * ID_BYTES)
            self.run[i].seq = big(p + 4 + i * ID_BYTES + 8)
            self.run[i].consumer = <uint32_t>little(p + 4 + n * ID_BYTES + 4 * i, 4)
            self.run[i].time_ms = little(p + 4 + n * (ID_BYTES + 4) + 8 * i, 8)
            self.run[i].count = little(p + 4 + n * (ID_BYTES + 12) + 8 * i, 8)
        self.count = n
        self.low, self.upper = low, upper
        self.low_ms = self.low_seq = 0
        if size_of(low):
            self.low_ms, self.low_seq = big(data_of(low)), big(data_of(low) + 8)
        self.upper_ms, self.upper_seq = big(data_of(upper)), big(data_of(upper) + 8)
        self.endless = size_of(upper) > ID_BYTES
        self.knows_run = True
        return 1

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

    cdef bint has_idle(self, int64_t idle_ms, int64_t now_ms) noexcept nogil:
        """Whether an entry may be pending for so long, or was given back."""
        cdef int64_t i, until_ms = now_ms - idle_ms
        if now_ms >= GIVEN_BACK_MS and until_ms < GIVEN_BACK_MS - 1:
            until_ms = GIVEN_BACK_MS - 1
        if not self.pending:
            return False
        if not self.knows_run or <u64>self.count != self.pending or until_ms < 0:
            return True
        for i in range(self.count):
            if self.run[i].time_ms <= <u64>until_ms:
                return True
        return False

    cdef bint has_room(self, u64 ms, u64 seq, int64_t n) noexcept nogil:
        """Whether so many entries, the first with this ID, can go behind all that is pending."""
        cdef const Pending* last
        if not self.knows_run or not self.endless or self.count + n > RUN_MAX:
            return False
        if is_below(ms, seq, self.low_ms, self.low_seq):
            return False
        if not self.count:
            return True
        last = &self.run[self.count - 1]
        return is_below(last.ms, last.seq, ms, seq)

    cdef bint covers(self, u64 ms, u64 seq) noexcept nogil:
        """Whether an ID would stand in the run."""
        return (self.knows_run and not is_below(ms, seq, self.low_ms, self.low_seq)
                and (self.endless or is_below(ms, seq, self.upper_ms, self.upper_seq)))

    cdef int64_t find(self, u64 ms, u64 seq, int64_t low) noexcept nogil:
        """The place of an ID in the run, from the place `low` on; -1: it is not there."""
        cdef int64_t high = self.count, middle
        if low < high and self.run[low].ms == ms and self.run[low].seq == seq:
            return low
        while low < high:
            middle = (low + high) >> 1
            if is_below(self.run[middle].ms, self.run[middle].seq, ms, seq):
                low = middle + 1
            else:
                high = middle
        if low < self.count and self.run[low].ms == ms and self.run[low].seq == seq:
            return low
        return -1

    # -- what frames do to it: no object is made, and nothing can fail -------------------------------
    cdef void delivered(self, Consumer who, const u8* ids, int64_t n, u64 time_ms, int64_t read,
                        u64 position) noexcept:
        """These are this consumer's, delivered for the first time."""
        cdef Pending* row
        cdef int64_t i
        for i in range(n):
            row = &self.run[self.count + i]
            row.ms, row.seq = big(ids + i * ID_BYTES), big(ids + i * ID_BYTES + 8)
            row.time_ms, row.count, row.consumer = time_ms, 1, who.number
        self.count += n
        self.pending += n
        who.pending += n
        who.seen_ms = who.active_ms = time_ms
        self.last_ms, self.last_seq = self.run[self.count - 1].ms, self.run[self.count - 1].seq
        self.read = read
        self.position = position
        self.run_dirty = True

    cdef void acked(self, Consumer who, int64_t place) noexcept:
        """The entry at a place in the run is not pending any more; it was this consumer's."""
        self.count -= 1
        memmove(&self.run[place], &self.run[place + 1], (self.count - place) * sizeof(Pending))
        self.pending -= 1
        who.pending -= 1
        self.run_dirty = True

    # -- back to the record cache -------------------------------------------------------------------
    cdef bytes packed_run(self):
        """The run as it is stored."""
        cdef u64 n = self.count, i
        cdef bytes made = PyBytes_FromStringAndSize(NULL, 4 + n * PENDING_BYTES)
        cdef u8* p = <u8*>PyBytes_AS_STRING(made)
        put_32(p, <uint32_t>n)
        for i in range(n):
            put_big(p + 4 + i * ID_BYTES, self.run[i].ms)
            put_big(p + 4 + i * ID_BYTES + 8, self.run[i].seq)
            put_32(p + 4 + n * ID_BYTES + 4 * i, self.run[i].consumer)
            put_64(p + 4 + n * (ID_BYTES + 4) + 8 * i, self.run[i].time_ms)
            put_64(p + 4 + n * (ID_BYTES + 12) + 8 * i, self.run[i].count)
        return made

    cdef bint give_back(self, cache) except -1:
        """Put what changed into a `GroupCache`, as applying the frames would; False: it has not all
        of these records any more."""
        cdef Consumer c
        record = cache.groups.get(self.number)
        if record is None:
            return False
        for c in self.dirty_consumers:
            if (self.number, c.number) not in cache.consumers:
                return False
        record.last = ls_id(_StreamID, self.last_ms, self.last_seq)
        record.entries_read, record.pending, record.position = self.read, self.pending, self.position
        for c in self.dirty_consumers:
            known = cache.consumers[self.number, c.number]
            known.seen_ms, known.active_ms, known.pending = c.seen_ms, c.active_ms, c.pending
        if self.run_dirty:
            run = _PendingRun.unpack(self.packed_run()) if self.count else None
            cache.runs.near[self.number] = (self.low, run, self.upper)
        cache.owe({self.number}, {(self.number, c.number) for c in self.dirty_consumers},
                  {self.number} if self.run_dirty else set())
        return True

    cdef void clean(self) noexcept:
        """The record cache has all of it."""
        cdef Consumer c
        for c in self.dirty_consumers:
            c.dirty = False
        self.dirty_consumers.clear()
        self.dirty = self.run_dirty = False
