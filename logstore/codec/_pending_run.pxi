# Runs of pending entries, as rows instead of columns. Pure twin: pending_run.py.
#
# Invariants: rows ascend by their IDs; one that is put finds room for PENDING_MAX alone.

cdef struct Bound:
    u64 ms
    u64 seq
    int side                    # 0: this ID; 1: above every ID; -1: below


cdef int read_bound(bytes upper, Bound* bound) except -1:
    """What is not an ID is the empty string, below all, or longer than one, above those of 0xFF."""
    cdef u64 size = size_of(upper)
    bound.ms = bound.seq = 0
    bound.side = 0
    if size == 0:
        bound.side = -1
    elif size < ID_BYTES:
        raise ValueError("a bound is an ID, or what is above or below every ID")
    else:
        bound.ms = big(data_of(upper))
        bound.seq = big(data_of(upper) + 8)
        if size > ID_BYTES:
            if bound.ms != ~<u64>0 or bound.seq != ~<u64>0:
                raise ValueError("a bound is an ID, or what is above or below every ID")
            bound.side = 1
    return 0


cdef inline bint is_below(u64 ms, u64 seq, const Bound* bound) noexcept nogil:
    if bound.side:
        return bound.side > 0
    return ms < bound.ms or (ms == bound.ms and seq < bound.seq)


cdef int check_ids(bytes ids, Py_ssize_t at) except -1:
    if at < 0 or size_of(ids) % ID_BYTES or at % ID_BYTES:
        raise ValueError("IDs are 16 bytes each")
    return 0


cdef int change(dict changes, uint32_t consumer, Py_ssize_t by) except -1:
    if by:
        changes[consumer] = changes.get(consumer, 0) + by
    return 0


cdef class PendingRun:
    cdef Buf buf
    cdef public object stored

    def __dealloc__(self):
        buf_free(&self.buf)

    cdef inline Pending* rows(self) noexcept nogil:
        return <Pending*>self.buf.data

    cdef inline Py_ssize_t size(self) noexcept nogil:
        return <Py_ssize_t>(self.buf.size // sizeof(Pending))

    def __len__(self):
        return self.size()

    @property
    def first(self):
        return pack_id(self.rows().ms, self.rows().seq) if self.buf.size else b""

    @property
    def last(self):
        cdef const Pending* row = self.rows() + self.size() - 1
        return pack_id(row.ms, row.seq) if self.buf.size else b""

    @property
    def oldest_ms(self):
        cdef const Pending* rows = self.rows()
        cdef Py_ssize_t i
        cdef u64 least = ~<u64>0
        if not self.buf.size:
            raise ValueError("a run without entries has no oldest one")
        for i in range(self.size()):
            if rows[i].time_ms < least:
                least = rows[i].time_ms
        return least

    cdef inline Py_ssize_t place(self, u64 ms, u64 seq) noexcept nogil:
        return pending_place(self.rows(), self.size(), ms, seq)

    cdef inline bint holds(self, Py_ssize_t place, u64 ms, u64 seq) noexcept nogil:
        return is_at(self.rows(), self.size(), place, ms, seq)

    cdef int cut(self, Py_ssize_t place, Py_ssize_t count) except -1:
        cdef Pending* rows = self.rows()
        memmove(rows + place, rows + place + count,
                (self.size() - place - count) * sizeof(Pending))
        self.buf.size -= count * sizeof(Pending)
        return 0

    def find(self, bytes id not None):
        cdef Py_ssize_t place
        cdef const Pending* row
        cdef u64 ms, seq
        if size_of(id) != ID_BYTES:
            raise ValueError("IDs are 16 bytes each")
        ms, seq = big(data_of(id)), big(data_of(id) + 8)
        place = self.place(ms, seq)
        if not self.holds(place, ms, seq):
            return None
        row = self.rows() + place
        return row.consumer, row.time_ms, row.count

    def present(self, bytes ids not None, Py_ssize_t at, bytes upper not None):
        cdef Bound bound
        cdef u64 ms, seq
        cdef Py_ssize_t begin = at, size = <Py_ssize_t>size_of(ids), missing = 0, count = 0
        cdef bytes found
        cdef const u8* data = data_of(ids)
        check_ids(ids, at)
        read_bound(upper, &bound)
        found = PyBytes_FromStringAndSize(NULL, max(0, size - at))
        while at < size:
            ms, seq = big(data + at), big(data + at + 8)
            if not is_below(ms, seq, &bound):
                break
            if self.holds(self.place(ms, seq), ms, seq):
                memcpy(data_of(found) + count, data + at, ID_BYTES)
                count += ID_BYTES
            at += ID_BYTES
        if begin == 0 and count == size:
            return ids, at
        return found[:count], at

    def remove(self, bytes ids not None, Py_ssize_t at, bytes upper not None,
               dict changes not None):
        cdef Bound bound
        cdef u64 ms, seq
        cdef Py_ssize_t size = <Py_ssize_t>size_of(ids), place, count, same
        cdef const u8* data = data_of(ids)
        cdef uint32_t consumer
        check_ids(ids, at)
        read_bound(upper, &bound)
        while at < size:
            ms, seq = big(data + at), big(data + at + 8)
            if not is_below(ms, seq, &bound):
                break
            place = self.place(ms, seq)
            if not self.holds(place, ms, seq):
                at += ID_BYTES
                continue
            count = same = 0
            consumer = self.rows()[place].consumer
            while at < size:
                ms, seq = big(data + at), big(data + at + 8)
                if not is_below(ms, seq, &bound) or not self.holds(place + count, ms, seq):
                    break
                if self.rows()[place + count].consumer != consumer:
                    change(changes, consumer, -same)
                    consumer = self.rows()[place + count].consumer
                    same = 0
                same += 1
                count += 1
                at += ID_BYTES
            change(changes, consumer, -same)
            self.cut(place, count)
        return at

    def put(self, items not None, Py_ssize_t at, uint32_t consumer, bytes upper not None,
            dict changes not None):
        cdef Bound bound
        cdef Pending row
        cdef Pending* rows
        cdef Py_ssize_t place, made = 0
        read_bound(upper, &bound)
        row.consumer = consumer
        try:
            while at < len(items):
                row.ms, row.seq, row.time_ms, row.count = items[at]
                if not is_below(row.ms, row.seq, &bound):
                    break
                place = self.place(row.ms, row.seq)
                rows = self.rows()
                if self.holds(place, row.ms, row.seq):
                    if rows[place].consumer != consumer:
                        change(changes, rows[place].consumer, -1)
                        made += 1
                elif self.size() >= PENDING_MAX:
                    break
                else:
                    fail(buf_reserve(&self.buf, sizeof(Pending)))
                    rows = self.rows()
                    memmove(rows + place + 1, rows + place,
                            (self.size() - place) * sizeof(Pending))
                    self.buf.size += sizeof(Pending)
                    made += 1
                rows[place] = row
                at += 1
        finally:
            change(changes, consumer, made)
        return at

    def extend(self, bytes ids not None, uint32_t consumer, u64 time_ms, u64 count):
        cdef Pending* row
        cdef Py_ssize_t at
        cdef Py_ssize_t n = <Py_ssize_t>(size_of(ids) // ID_BYTES)
        check_ids(ids, 0)
        fail(buf_reserve(&self.buf, n * sizeof(Pending)))
        row = self.rows() + self.size()
        for at in range(n):
            row.ms = big(data_of(ids) + at * ID_BYTES)
            row.seq = big(data_of(ids) + at * ID_BYTES + 8)
            row.consumer = consumer
            row.time_ms = time_ms
            row.count = count
            row += 1
        self.buf.size += n * sizeof(Pending)

    def split(self):
        cdef PendingRun upper = PendingRun()
        cdef Py_ssize_t half = self.size() // 2
        fail(buf_add(&upper.buf, self.rows() + half, (self.size() - half) * sizeof(Pending)))
        self.buf.size = half * sizeof(Pending)
        return upper

    def between(self, bytes low not None, bytes high not None, int64_t consumer=-1):
        cdef list found = []
        cdef Py_ssize_t place
        cdef Pending row
        cdef u64 ms, seq
        if size_of(low) != ID_BYTES or size_of(high) != ID_BYTES:
            raise ValueError("IDs are 16 bytes each")
        ms, seq = big(data_of(high)), big(data_of(high) + 8)
        place = self.place(big(data_of(low)), big(data_of(low) + 8))
        while place < self.size():
            row = self.rows()[place]
            place += 1
            if row.ms > ms or (row.ms == ms and row.seq > seq):
                break
            if consumer == -1 or consumer == <int64_t>row.consumer:
                found.append((row.ms, row.seq, row.consumer, row.time_ms, row.count))
        return found

    def due(self, int64_t until_ms):
        cdef list found = []
        cdef Py_ssize_t place
        cdef Pending row
        cdef Py_ssize_t size = self.size()
        for place in range(size):
            if place >= self.size():
                break
            row = self.rows()[place]
            if until_ms >= 0 and row.time_ms <= <u64>until_ms:
                found.append((row.time_ms, row.ms, row.seq, row.consumer, row.count))
        return found

    def pack(self):
        return pack_pending(self.rows(), self.size())

    @classmethod
    def unpack(cls, bytes value not None):
        cdef u64 size = size_of(value), n = 0
        cdef PendingRun made = PendingRun()
        if size >= 4:
            n = little(data_of(value), 4)
        if size != stored_bytes(n):
            raise ValueError("a run of pending entries has a length that does not fit")
        fail(buf_reserve(&made.buf, n * sizeof(Pending)))
        read_pending(data_of(value), made.rows(), n)
        made.buf.size = n * sizeof(Pending)
        return made
