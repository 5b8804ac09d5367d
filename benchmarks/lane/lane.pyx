# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Prototype of the fast lane: a plain add of one entry is one commit, in C with typed data.

It runs on a store that this process has open, beside the store's own pipeline, and writes the same
frames and the same rows. Nothing imports it but `count.py`; README.md beside it is the design, and
lists what is left out here.

`follow_every` 1: LMDB is in every commit (design 1). More: the log and the control block carry the
newest commits, and the index follows each so many (design 2).

Parts, in order: `Handle` is a stream's record and open node in C; `Lane` commits; `Tail` is what
readers overlay; `Row`, `NodeRow` and `SealedCache` are the floors of reading; `small_commit` is the
floor of a commit for a group.

Invariants: whatever changes a `Handle` or the words of the control block runs with the mutex and
LOCK held, but for `get`, which relies on the interpreter's lock. What is published is complete in
the log. What the index lacks of the published log is plain appends to open nodes, and nothing else.
A commit that fails behind the first store to `W_PROGRESS` leaves that word set: the pipeline's tail
check then says whether it happened.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from zlib import crc32

from logstore.engine.runtime import identity
from logstore.errors import CorruptNodeError, TooLargeError
from logstore.ids import StreamID as _StreamID
from logstore.index.keys import SegmentRow
from logstore.index.txn import IndexTxn

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void* PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    bint PyUnicode_CheckExact(object o)
    bint PyBytes_CheckExact(object o)
    bint PyLong_CheckExact(object o)


cdef extern from *:
    """
    #if defined __has_include
    #if __has_include(<valgrind/callgrind.h>)
    #include <valgrind/callgrind.h>
    #define LS_COUNTS 1
    static inline void ls_count_on(void){CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS;}
    static inline void ls_count_off(const char*name){CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION;}
    #endif
    #endif
    #ifndef LS_COUNTS
    #define LS_COUNTS 0
    static inline void ls_count_on(void){}
    static inline void ls_count_off(const char*name){(void)name;}
    #endif
    #include <sys/file.h>
    #include <sys/syscall.h>
    #include <linux/futex.h>
    #include <unistd.h>
    #include <time.h>
    #include <errno.h>
    static inline int64_t ls_now_ms(int clock) {
        struct timespec t;
        clock_gettime(clock, &t);
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    }
    static inline void ls_wake(uint32_t *word, int count) {
        syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
    }
    #define ls_store(p, v) __atomic_store_n((uint64_t *)(p), (uint64_t)(v), __ATOMIC_RELEASE)
    #define ls_load(p) __atomic_load_n((uint64_t *)(p), __ATOMIC_ACQUIRE)
    static PyObject *ls_id(PyObject *type, uint64_t ms, uint64_t seq) {
        PyObject *made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 2);
        if (!made) return NULL;
        PyTuple_SET_ITEM(made, 0, PyLong_FromUnsignedLongLong(ms));
        PyTuple_SET_ITEM(made, 1, PyLong_FromUnsignedLongLong(seq));
        return made;
    }
    """
    int flock(int fd, int op) nogil
    int LOCK_EX, LOCK_NB, LOCK_UN
    ssize_t pwrite(int fd, const void* p, size_t n, int64_t at) nogil
    ssize_t pread(int fd, void* p, size_t n, int64_t at) nogil
    int fdatasync(int fd) nogil
    int64_t ls_now_ms(int clock) nogil
    void ls_wake(uint32_t* p, int n) nogil
    void ls_store(void* p, uint64_t v) nogil
    uint64_t ls_load(const void* p) nogil
    object ls_id(object type, uint64_t ms, uint64_t seq)
    int LS_COUNTS
    void ls_count_on() noexcept
    void ls_count_off(const char* name) noexcept

# The codec's own parts: the driver names their folder to Cython.
include "_base.pxi"
include "_decimal.pxi"
include "_listpack.pxi"
include "_node.pxi"
include "_crc32c.pxi"

cdef enum:  # offsets in the control block
    W_APPLIED = 8
    W_COMMIT = 16
    W_LAST = 24
    W_CRC = 32
    W_GENERATION = 48
    W_PROGRESS = 56
    W_DURABLE = 72
    W_UNSYNCED = 80
    W_FAILED = 88
    W_OWNER = 96
    W_DROPPED = 120
    W_FULL = 144
    W_WAITING = 192
    W_INDEX_COMMIT = 256    # new: the index holds all commits up to this number
    W_REWRITTEN = 264       # new: the position of the last commit that was no plain append
    W_SCRATCH = 512         # of nobody: for measuring
    BUCKETS_AT = 4096
    BUCKET = 64
    EVERY_AT = 4096 + 256 * 64
    UNTIL = 8               # in a bucket: until when somebody may sleep on its word
    GROUPS_UNTIL = 16       # until when somebody may wait for a group

cdef enum:
    WALL = 0                # CLOCK_REALTIME
    MONOTONIC = 1
    LOOK_MS = 200           # between looks at whether the directory is still the store's
    CALL_MS = 10            # between calls of those who watch all streams
    CATCH_UP_BYTES_MAX = 1 << 16
    TAIL_BYTES_MAX = 1 << 18
    ELEMENTS_MAX = 60000    # of an open node; behind that its header cannot count them

cdef enum:                  # a frame: CRC32C, bytes, commit, durable_upto, ordinal, kind, flags
    HEAD = 32
    COVERED = 36            # position, then the head without its CRC
    APPEND_BODY = 32
    NODE_BODY = 44
    SEGMENT_HEAD = 64
    LAST = 1                # a flag: the last frame of its commit
    KIND_OPEN = 4
    KIND_APPEND = 5
    KIND_NODE = 6

cdef enum:                  # a record's numbers, as `StreamRecord` packs them
    R_LENGTH = 0
    R_ADDED = 1
    R_LAST_MS = 2
    R_LAST_SEQ = 3
    R_POSITION = 8
    R_NODES = 9
    R_NODE_BYTES = 10
    R_OPEN_VERSION = 11
    R_MASTER_MS = 12
    R_MASTER_SEQ = 13
    R_EXPIRES_MS = 14
    RECORD_NUMBERS = 15
    RECORD_BYTES = 116

cdef struct Append:         # the body of an append frame: 32 bytes, no padding
    uint64_t stream
    uint64_t ms
    uint64_t seq
    uint32_t entries
    uint32_t elements

cdef struct Meta:           # the meta row
    uint64_t applied
    uint64_t commit
    uint64_t last_frame
    uint32_t last_crc
    uint32_t active
    uint64_t next_stream
    uint32_t next_segment

cdef struct Place:          # of an entry in the open node
    uint64_t ms
    uint64_t seq
    uint32_t at
    uint32_t size


cdef inline void le64(u8* p, u64 v) noexcept nogil:
    memcpy(p, &v, 8)

cdef inline void be64(u8* p, u64 v) noexcept nogil:
    cdef int i
    for i in range(8):
        p[i] = <u8>(v >> (56 - 8 * i))


cdef inline uint32_t frame_crc(const u8* p, u64 at, u64 size, uint32_t seed) noexcept nogil:
    """The checksum that a frame with `size` bytes of payload has at position `at`."""
    cdef u8 covered[COVERED]
    le64(covered, at)
    memcpy(covered + 8, p + 4, HEAD - 4)
    return ls_crc32c(p + HEAD, size, ls_crc32c(covered, COVERED, seed, HARD_CRC), HARD_CRC)


cdef inline uint32_t put_head(u8* out, u64 at, u64 size, u64 commit, u64 durable, uint32_t ordinal, u8 kind,
                              u8 flags, uint32_t seed) noexcept nogil:
    """Write the head of a frame whose payload stands behind it; its checksum."""
    cdef uint32_t crc
    (<uint32_t*>(out + 4))[0] = <uint32_t>size
    le64(out + 8, commit)
    le64(out + 16, durable)
    (<uint32_t*>(out + 24))[0] = ordinal
    out[28] = kind
    out[29] = flags
    out[30] = 0xA9
    out[31] = 0xF5
    crc = frame_crc(out, at, size, seed)
    (<uint32_t*>out)[0] = crc
    return crc


cdef inline bint is_plain_append(const u8* p, u64 left) noexcept nogil:
    """Whether the bytes of a published log begin with a commit that is one append frame."""
    cdef u64 size
    if left < HEAD + APPEND_BODY:
        return False
    size = (<const uint32_t*>(p + 4))[0]
    return (size >= APPEND_BODY and HEAD + size <= left and p[28] == KIND_APPEND and p[29] & LAST
            and not (<const uint32_t*>(p + 24))[0])


cdef Py_ssize_t place_of(const Buf* found, u64 ms, u64 seq) noexcept:
    """Which of ascending places has an ID; -1: none."""
    cdef const Place* places = <const Place*>found.data
    cdef Py_ssize_t low = 0, count = found.size // sizeof(Place), high = count, mid
    while low < high:
        mid = (low + high) >> 1
        if below(places[mid].ms, places[mid].seq, ms, seq):
            low = mid + 1
        else:
            high = mid
    return low if low < count and places[low].ms == ms and places[low].seq == seq else -1


cdef class Handle:
    """A stream as the lane holds it: its record's numbers, and its open node, in C."""
    cdef readonly bytes name
    cdef readonly u64 number
    cdef readonly bint usable   # plain adds can be decided from what is here
    cdef bint dirty             # the index lacks some of it
    cdef u64 rec[RECORD_NUMBERS]
    cdef Buf lp                 # the open node
    cdef int64_t live, deleted, width
    cdef u64 live_bytes         # of the element that counts live entries
    cdef u64 elements
    cdef list keys              # the very objects that were the field names last
    cdef Buf names              # elements of the node's field names
    cdef Buf places             # a Place for each entry
    cdef uint32_t bucket

    def __dealloc__(self):
        buf_free(&self.lp)
        buf_free(&self.names)
        buf_free(&self.places)

    cdef int load(self, u64 number, tuple numbers, bytes lp) except -1:
        """Take a stream over from the index; it is usable if it has an open node and no expiry."""
        cdef Master m
        cdef int i
        cdef Entry e
        cdef u64 at
        cdef Place place
        cdef Elem elem
        self.number = number
        self.bucket = crc32(self.name) & 255
        for i in range(RECORD_NUMBERS):
            self.rec[i] = numbers[i]
        self.usable = self.dirty = False
        self.keys = []
        if lp is None or not self.rec[R_OPEN_VERSION] or self.rec[R_EXPIRES_MS] or not self.rec[R_LENGTH]:
            return 0
        self.lp.size = self.names.size = self.places.size = 0
        fail(buf_add(&self.lp, data_of(lp), size_of(lp)))
        fail(read_master(self.lp.data, self.lp.size, &m))
        self.live = m.live
        self.deleted = m.deleted
        self.width = m.width
        self.live_bytes = m.deleted_at - HEADER_BYTES
        self.elements = self.lp.data[4] | <u64>self.lp.data[5] << 8
        at = m.fields_at
        for i in range(m.width):
            fail(lp_read(self.lp.data, at, m.end, &elem))
            at = elem.after
        fail(buf_add(&self.names, self.lp.data + m.fields_at, at - m.fields_at))
        at = m.first
        while at < m.end:
            fail(read_entry(self.lp.data, at, &m, &e))
            if not (e.flags & DELETED):
                place.ms = self.rec[R_MASTER_MS] + <u64>e.ms_diff
                place.seq = self.rec[R_MASTER_SEQ] + <u64>e.seq_diff
                place.at = <uint32_t>at
                place.size = <uint32_t>(e.after - at)
                fail(buf_add(&self.places, &place, sizeof(Place)))
            at = e.after
        self.usable = self.elements < ELEMENTS_MAX
        return 0

    cdef int grow(self, const u8* data, u64 size, const Append* body, u64 position) except -1:
        """The entry of one append frame joins the open node, in place."""
        cdef Place place
        cdef u64 width, moved, i
        cdef u8 counter[INT_BYTES_MAX]
        fail(buf_reserve(&self.lp, size + INT_BYTES_MAX))
        self.live += body.entries
        width = put_int(counter, self.live)
        if width != self.live_bytes:
            moved = width - self.live_bytes
            memmove(self.lp.data + HEADER_BYTES + width, self.lp.data + HEADER_BYTES + self.live_bytes,
                    self.lp.size - HEADER_BYTES - self.live_bytes)
            self.lp.size += moved
            for i in range(self.places.size // sizeof(Place)):
                (<Place*>self.places.data)[i].at += <uint32_t>moved
            self.live_bytes = width
        memcpy(self.lp.data + HEADER_BYTES, counter, width)
        place.ms = body.ms
        place.seq = body.seq
        place.at = <uint32_t>(self.lp.size - 1)
        place.size = <uint32_t>size
        fail(buf_add(&self.places, &place, sizeof(Place)))
        memcpy(self.lp.data + self.lp.size - 1, data, size)
        self.lp.size += size
        self.lp.data[self.lp.size - 1] = END_BYTE
        self.elements += body.elements
        (<uint32_t*>self.lp.data)[0] = <uint32_t>self.lp.size
        self.lp.data[4] = <u8>self.elements
        self.lp.data[5] = <u8>(self.elements >> 8)
        self.rec[R_LENGTH] += body.entries
        self.rec[R_ADDED] += body.entries
        self.rec[R_LAST_MS] = body.ms
        self.rec[R_LAST_SEQ] = body.seq
        self.rec[R_POSITION] = position
        self.dirty = True
        return 0


cdef class Lane:
    """The lane of one store in this process."""
    cdef object engine, mutex_acquire, mutex_release, index_begin, main, nodes_db, reload
    cdef readonly bint stale    # what others committed is not all plain appends: learn again
    cdef dict handles           # by name
    cdef dict numbers           # by number; those that `learn` found
    cdef u8* wake
    cdef int lock_fd, file_fd
    cdef uint32_t seed
    cdef u64 generation
    cdef Meta meta              # where the log stands, as far as it is applied in here
    cdef u64 owner[2]
    cdef u64 max_bytes
    cdef int64_t max_entries, segment_bytes
    cdef bint always
    cdef readonly u64 follow_every, adds, slow, followed, caught, rolled
    cdef public int64_t looked_ms, called_ms    # when time last brought work
    cdef Buf out                # frames of a commit
    cdef Buf row                # a row of the index
    cdef Buf tail               # what others appended
    cdef Buf scratch            # an entry's values, or names and values

    def __init__(self, engine, reload, follow_every=64, always=False):
        self.engine = engine
        self.reload = reload
        self.wake = <u8*><uintptr_t>engine.wake._address
        self.lock_fd = engine.lock.file.fd
        self.seed = engine.seed
        self.mutex_acquire = engine.mutex.acquire
        self.mutex_release = engine.mutex.release
        packed = engine.lock._packed_self
        self.owner[0] = int.from_bytes(packed[:8], "little")
        self.owner[1] = int.from_bytes(packed[8:16], "little")
        self.handles = {}
        self.numbers = {}
        self.follow_every = follow_every
        self.always = always
        self.max_bytes = engine.limits.node_max_bytes
        self.max_entries = engine.limits.node_max_entries
        self.segment_bytes = engine.limits.segment_bytes

    def __dealloc__(self):
        buf_free(&self.out)
        buf_free(&self.row)
        buf_free(&self.tail)
        buf_free(&self.scratch)

    def learn(self, bytes name not None):
        """Read all handles anew from the index, after a commit that was not of the lane."""
        cdef Handle handle
        if name not in self.handles:
            handle = Handle()
            handle.name = name
            self.handles[name] = handle
        meta, self.file_fd, rows = self.reload(list(self.handles))
        (self.meta.applied, self.meta.commit, self.meta.last_frame, self.meta.last_crc, self.meta.active,
         self.meta.next_stream, self.meta.next_segment) = meta
        self.generation = ls_load(self.wake + W_GENERATION)
        generation = self.engine.generation
        self.index_begin = generation.env.begin
        self.main = generation.main
        self.nodes_db = generation.nodes
        self.stale = False
        self.numbers.clear()
        for each, (number, numbers, lp) in rows.items():
            handle = self.handles[each]
            handle.usable = False
            if number is not None:
                handle.load(number, numbers, lp)
                self.numbers[number] = handle
        return self.handles[name]

    # -- encoding, before any lock: exact types only, so that no code of the caller's runs ---------
    cdef int value(self, object value, Buf* out) except -1:
        """Append a name or value as an element; 0: it is not of the lane."""
        cdef int overflow = 0
        cdef int64_t number
        if PyUnicode_CheckExact(value):
            if not PyUnicode_IS_COMPACT_ASCII(value):
                return 0
            fail(buf_text(out, <const u8*>PyUnicode_DATA(value), <u64>PyUnicode_GET_LENGTH(value)))
            return 1
        if PyBytes_CheckExact(value):
            fail(buf_text(out, <const u8*>PyBytes_AS_STRING(value), <u64>PyBytes_GET_SIZE(value)))
            return 1
        if PyLong_CheckExact(value):
            number = PyLong_AsLongLongAndOverflow(value, &overflow)
            if overflow:
                return 0
            fail(buf_int(out, number))
            return 1
        return 0

    cdef int know_keys(self, Handle h, dict fields) except -1:
        """Whether a dict's keys are the node's field names; if so, its key objects are kept."""
        self.scratch.size = 0
        for name in fields:
            if not self.value(name, &self.scratch):
                return 0
        if self.scratch.size != h.names.size or memcmp(self.scratch.data, h.names.data, h.names.size):
            return 0
        h.keys = list(fields)
        return 1

    cdef int values(self, Handle h, dict fields, bint* same) except -1:
        """Put the values, or names and values, as elements into `scratch`; 0: not of the lane.

        `same`: the names are those of the node. Where the key objects are those of the add before,
        they are compared by address alone.
        """
        cdef PyObject* key
        cdef PyObject* item
        cdef Py_ssize_t at = 0, i = 0
        same[0] = False
        if not PyDict_Size(fields):
            return 0
        if PyDict_Size(fields) == h.width and (len(h.keys) == h.width or self.know_keys(h, fields)):
            self.scratch.size = 0
            while PyDict_Next(fields, &at, &key, &item):
                if <PyObject*>PyList_GET_ITEM(h.keys, i) != key:
                    break
                if not self.value(<object>item, &self.scratch):
                    return 0
                i += 1
            if i == h.width:
                same[0] = True
                return 1
        self.scratch.size = 0
        at = 0
        while PyDict_Next(fields, &at, &key, &item):
            if not self.value(<object>key, &self.scratch) or not self.value(<object>item, &self.scratch):
                return 0
        return 1

    # -- a commit ----------------------------------------------------------------------------------
    def add(self, Handle h not None, dict fields not None):
        """The ID of the new entry; None: the add, or the moment, is not of the lane.

        Lock order as everywhere: the mutex, then LOCK. Neither is waited for: who must wait, queues
        up in the slow lane. Nothing here takes LMDB's lock but `follow` and `roll`, which are third.
        """
        cdef bint same = False
        cdef int committed = 0
        if not h.usable or not self.values(h, fields, &same):
            self.slow += 1
            return None
        if self.mutex_acquire(False) is not True:
            self.slow += 1
            return None
        try:
            if flock(self.lock_fd, LOCK_EX | LOCK_NB) == 0:
                try:
                    le64(self.wake + W_OWNER, self.owner[0])
                    le64(self.wake + W_OWNER + 8, self.owner[1])
                    committed = self.commit_one(h, fields, same)
                finally:
                    flock(self.lock_fd, LOCK_UN)
        finally:
            self.mutex_release()
        if not committed:
            self.slow += 1
            return None
        self.wake_readers(h)
        self.adds += 1
        return ls_id(_StreamID, h.rec[R_LAST_MS], h.rec[R_LAST_SEQ])

    cdef int may_commit(self, Handle h, int64_t now_ms) except -1:
        """Whether this moment is of the lane. Nothing has happened yet: a 0 costs a slow add only."""
        cdef u8* w = self.wake
        if ls_load(w + W_FAILED) or ls_load(w + W_PROGRESS) or w[W_FULL]:
            return 0            # a failed sync, a dead writer's commit, a full disk: the pipeline's work
        if ls_load(w + W_GENERATION) != self.generation:
            return 0
        if ls_load(w + W_APPLIED) != self.meta.applied and not self.catch_up():
            self.stale = True
            return 0
        if now_ms - self.looked_ms >= LOOK_MS:
            self.looked_ms = now_ms
            identity.check_active_locked(self.engine, self.meta.active)
        # Somebody may wait for a group of this stream: the pipeline hands out what is added.
        return <int64_t>ls_load(w + BUCKETS_AT + h.bucket * BUCKET + GROUPS_UNTIL) < now_ms

    cdef int next_id(self, Handle h, u64* ms, u64* seq) noexcept:
        """The ID that `*` means now; 0: there is none in this millisecond any more."""
        ms[0] = <u64>ls_now_ms(WALL)
        seq[0] = 0
        if ms[0] <= h.rec[R_LAST_MS]:
            ms[0] = h.rec[R_LAST_MS]
            seq[0] = h.rec[R_LAST_SEQ] + 1
            return seq[0] != 0
        return 1

    cdef u64 start(self) noexcept:
        """The position at which the next commit begins."""
        if self.meta.applied >> 32 == self.meta.active:
            return self.meta.applied
        return <u64>self.meta.active << 32 | SEGMENT_HEAD

    cdef int commit_one(self, Handle h, dict fields, bint same) except -1:
        """One append frame as a commit; 0: nothing has happened, the slow lane does it."""
        cdef u8* out
        cdef u8* p
        cdef u64 ms, seq, size, start, commit, elements, width = <u64>PyDict_Size(fields)
        cdef uint32_t crc
        cdef Append body
        cdef int64_t now_ms = ls_now_ms(MONOTONIC)
        if not self.may_commit(h, now_ms) or not self.next_id(h, &ms, &seq):
            return 0
        if (h.lp.size + self.scratch.size >= self.max_bytes or h.live + h.deleted >= self.max_entries
                or h.elements > ELEMENTS_MAX):
            return self.roll(h, fields, width, ms, seq, now_ms)
        # The entry is written straight into its frame.
        self.out.size = 0
        fail(buf_reserve(&self.out, HEAD + APPEND_BODY + self.scratch.size + 5 * INT_BYTES_MAX))
        out = self.out.data
        p = out + HEAD + APPEND_BODY
        p += put_int(p, SAME_FIELDS if same else 0)
        p += put_int(p, <int64_t>(ms - h.rec[R_MASTER_MS]))
        p += put_int(p, <int64_t>(seq - h.rec[R_MASTER_SEQ]))
        if not same:
            p += put_int(p, <int64_t>width)
        memcpy(p, self.scratch.data, self.scratch.size)
        p += self.scratch.size
        elements = width + 3 if same else 2 * width + 4
        p += put_int(p, <int64_t>elements)
        size = (p - out) - HEAD
        body.stream = h.number
        body.ms = ms
        body.seq = seq
        body.entries = 1
        body.elements = <uint32_t>elements + 1
        memcpy(out + HEAD, &body, APPEND_BODY)
        start = self.start()
        if <int64_t>(<uint32_t>start + HEAD + size) > self.segment_bytes:
            return 0            # the pipeline seals the segment
        commit = self.meta.commit + 1
        crc = put_head(out, start, size, commit, ls_load(self.wake + W_DURABLE), 0, KIND_APPEND, LAST, self.seed)
        # Design 1 takes LMDB's transaction here. The product also puts the rows before the append, so
        # that an index that is full refuses while nothing has happened.
        txn = self.index_begin(None, None, True) if self.follow_every == 1 else None
        try:
            self.append(out, HEAD + size, start, commit, now_ms)
            # crash: all of it is in the log, so it counts; the tail check of the next writer applies it
            h.grow(out + HEAD + APPEND_BODY, size - APPEND_BODY, &body, start)
            self.meta.applied = start + HEAD + size
            self.meta.commit = commit
            self.meta.last_frame = start
            self.meta.last_crc = crc
            if txn is not None:
                self.rows_of(txn.put, h)
                self.meta_row(txn.put)
                txn.commit()
                ls_store(self.wake + W_INDEX_COMMIT, commit)
        except BaseException:
            self.forget()
            if txn is not None:
                txn.abort()
            raise
        self.publish(h)
        # crash: published, and durable as far as its policy says; the index is behind. Whoever opens
        # or commits next finds that its applied position is not the published one, and replays.
        if self.follow_every != 1 and commit - ls_load(self.wake + W_INDEX_COMMIT) >= self.follow_every:
            self.follow()
        return 1

    cdef int append(self, const u8* data, u64 size, u64 start, u64 commit, int64_t now_ms) except -1:
        """Write the frames of a commit, and make them durable as the policy says.

        Crash order: the word of a commit in progress, then the frames in one write, then the sync.
        """
        cdef u8* w = self.wake
        cdef int failed
        ls_store(w + W_PROGRESS, commit)
        # crash: the next writer runs the tail check, and finds nothing
        if pwrite(self.file_fd, data, size, <uint32_t>start) != <ssize_t>size:
            raise OSError("the append was cut short: the tail check decides")
        # crash in the write: a torn tail, which the tail check cuts off
        if self.always:
            with nogil:
                failed = fdatasync(self.file_fd)
            if failed:
                raise OSError("the sync failed: the product marks the store as failed here")
            ls_store(w + W_DURABLE, start + size)
            ls_store(w + W_UNSYNCED, 0)
        elif not ls_load(w + W_UNSYNCED):
            ls_store(w + W_UNSYNCED, now_ms)
        return 0

    cdef void publish(self, Handle h) noexcept:
        """Tell all processes where the log stands. `W_APPLIED` is what readers load, so it comes
        behind what it depends on; the commit is over last."""
        cdef u8* w = self.wake
        cdef u8* bucket = w + BUCKETS_AT + h.bucket * BUCKET
        ls_store(w + W_COMMIT, self.meta.commit)
        ls_store(w + W_LAST, self.meta.last_frame)
        ls_store(w + W_CRC, self.meta.last_crc)
        ls_store(w + W_APPLIED, self.meta.applied)
        # crash: among these words the commit stays in progress, and the tail check publishes it
        ls_store(w + W_PROGRESS, 0)
        (<uint32_t*>bucket)[0] += 1
        (<uint32_t*>(w + EVERY_AT))[0] += 1     # last: who saw it sees the bucket's, too

    cdef void wake_readers(self, Handle h) noexcept:
        """Wake who sleeps; LOCK is free again."""
        cdef u8* w = self.wake
        cdef u8* bucket = w + BUCKETS_AT + h.bucket * BUCKET
        cdef int64_t now_ms = ls_now_ms(MONOTONIC)
        if (<uint32_t*>(w + W_WAITING))[0]:     # who waits for LOCK
            (<uint32_t*>(w + W_WAITING))[0] = 0
            ls_wake(<uint32_t*>(w + W_WAITING), 1)
        if now_ms - self.called_ms >= CALL_MS or <int64_t>ls_load(w + EVERY_AT + UNTIL) >= now_ms:
            self.called_ms = now_ms
            ls_wake(<uint32_t*>(w + EVERY_AT), 1 << 30)
        if <int64_t>ls_load(bucket + UNTIL) >= now_ms:
            ls_wake(<uint32_t*>bucket, 1 << 30)

    cdef void forget(self) noexcept:
        """A commit failed halfway: nothing that is known here counts until it is learned again."""
        cdef Handle h
        self.meta.applied = 0
        self.stale = True
        for h in self.handles.values():
            h.usable = False

    # -- the index follows -------------------------------------------------------------------------
    cdef int put_row(self, put, const u8* key, u64 key_size, object database) except -1:
        """Put `row` under a key, sealed with the checksum that binds the two."""
        cdef uint32_t crc = ls_crc32c(self.row.data, self.row.size, ls_crc32c(key, key_size, 0, HARD_CRC), HARD_CRC)
        fail(buf_add(&self.row, &crc, 4))
        put(PyBytes_FromStringAndSize(<char*>key, key_size),
            PyBytes_FromStringAndSize(<char*>self.row.data, self.row.size), True, True, False, database)
        return 0

    cdef int rows_of(self, put, Handle h) except -1:
        """The record and the open node of a stream."""
        cdef u8 key[10]
        cdef u8 in_line = 0
        cdef uint32_t nodes = <uint32_t>h.rec[R_NODES]
        key[0] = 0xFF
        be64(key + 1, h.number)
        key[9] = 0
        self.row.size = 0
        fail(buf_add(&self.row, &h.rec[0], 8 * R_NODES))
        fail(buf_add(&self.row, &nodes, 4))
        fail(buf_add(&self.row, &h.rec[R_NODE_BYTES], RECORD_BYTES - 8 * R_NODES - 4))
        fail(buf_add(&self.row, data_of(h.name), size_of(h.name)))
        self.put_row(put, key, 10, self.main)
        key[9] = 1
        self.row.size = 0
        fail(buf_add(&self.row, &in_line, 1))
        fail(buf_add(&self.row, h.lp.data, h.lp.size))
        self.put_row(put, key, 10, self.main)
        h.dirty = False
        return 0

    cdef int meta_row(self, put) except -1:
        """Where the index stands. In the transaction of the rows that it speaks of."""
        cdef u8 key[1]
        key[0] = 1
        self.row.size = 0
        fail(buf_add(&self.row, &self.meta.applied, 24))
        fail(buf_add(&self.row, &self.meta.last_crc, 4))
        fail(buf_add(&self.row, &self.meta.active, 4))
        fail(buf_add(&self.row, &self.meta.next_stream, 8))
        fail(buf_add(&self.row, &self.meta.next_segment, 4))
        return self.put_row(put, key, 1, self.main)

    cdef int follow(self) except -1:
        """Bring the index up to the published log: the streams that changed, and where it stands.

        Crash: LMDB has all of it or nothing. If the word is not raised, the next one follows early.
        """
        cdef Handle h
        txn = self.index_begin(None, None, True)
        try:
            for h in self.numbers.values():
                if h.dirty:
                    self.rows_of(txn.put, h)
            self.meta_row(txn.put)
            txn.commit()
        except BaseException:
            self.forget()       # which rows are dirty is not known any more
            txn.abort()
            raise
        ls_store(self.wake + W_INDEX_COMMIT, self.meta.commit)
        self.followed += 1
        return 0

    def settle(self):
        """Before the slow lane, a checkpoint, a close: the index follows from memory, so that nothing
        must be replayed. False: somebody else is at work, and replay does it."""
        cdef u8* w = self.wake
        if not self.meta.applied or self.mutex_acquire(False) is not True:
            return False
        try:
            if flock(self.lock_fd, LOCK_EX | LOCK_NB):
                return False
            try:
                if (ls_load(w + W_APPLIED) != self.meta.applied or ls_load(w + W_PROGRESS)
                        or ls_load(w + W_GENERATION) != self.generation):
                    return False
                if ls_load(w + W_INDEX_COMMIT) != self.meta.commit:
                    self.follow()
            finally:
                flock(self.lock_fd, LOCK_UN)
        finally:
            self.mutex_release()
        return True

    # -- a full node: sealed, and the next one opened, in one commit -----------------------------
    cdef int roll(self, Handle h, dict fields, u64 width, u64 ms, u64 seq, int64_t now_ms) except -1:
        """A node frame and an open frame as one commit. The index is in it: a node's row is none of
        what readers overlay.

        Crash order: LMDB's rows first, uncommitted (a full index refuses while nothing happened),
        then as any commit, with LMDB's commit between the sync and the publishing.
        """
        cdef u64 start, at, commit, durable, node_size = NODE_BODY + h.lp.size, open_size, size
        cdef u8* out
        cdef u8* p
        cdef Place first
        cdef Handle other
        if h.deleted or not h.places.size:
            return 0
        open_size = self.open_frame(h, fields, width, ms, seq, HEAD + node_size, &first)
        if not open_size:
            return 0
        out = self.out.data
        self.body(out + HEAD, h, h.rec[R_MASTER_MS], h.rec[R_MASTER_SEQ], h.rec[R_LAST_MS], h.rec[R_LAST_SEQ],
                  <uint32_t>h.live)
        memcpy(out + HEAD + NODE_BODY, h.lp.data, h.lp.size)
        start = self.start()
        size = 2 * HEAD + node_size + open_size
        if <int64_t>(<uint32_t>start + size) > self.segment_bytes:
            return 0
        at = start + HEAD + node_size
        commit = self.meta.commit + 1
        durable = ls_load(self.wake + W_DURABLE)
        put_head(out, start, node_size, commit, durable, 0, KIND_NODE, 0, self.seed)
        self.meta.last_crc = put_head(out + HEAD + node_size, at, open_size, commit, durable, 1, KIND_OPEN, LAST,
                                      self.seed)
        txn = self.index_begin(None, None, True)
        try:
            self.node_row(txn, h, start, node_size)
            p = out + HEAD + node_size + HEAD + NODE_BODY
            self.reopen(h, p, open_size - NODE_BODY, fields, width, &first)
            h.rec[R_NODES] += 1
            h.rec[R_NODE_BYTES] += node_size
            h.rec[R_LENGTH] += 1
            h.rec[R_ADDED] += 1
            h.rec[R_LAST_MS] = h.rec[R_MASTER_MS] = ms
            h.rec[R_LAST_SEQ] = h.rec[R_MASTER_SEQ] = seq
            h.rec[R_POSITION] = h.rec[R_OPEN_VERSION] = at
            self.meta.applied = start + size
            self.meta.commit = commit
            self.meta.last_frame = at
            for other in self.numbers.values():
                if other.dirty:
                    self.rows_of(txn.put, other)
            self.meta_row(txn.put)
            self.append(out, size, start, commit, now_ms)
            txn.commit()
        except BaseException:
            self.forget()
            txn.abort()
            raise
        ls_store(self.wake + W_INDEX_COMMIT, commit)
        ls_store(self.wake + W_REWRITTEN, self.meta.applied)
        self.publish(h)
        self.rolled += 1
        return 1

    cdef void body(self, u8* p, Handle h, u64 ms, u64 seq, u64 last_ms, u64 last_seq, uint32_t entries) noexcept:
        """What stands before the listpack in node frames and open frames."""
        le64(p, h.number)
        le64(p + 8, ms)
        le64(p + 16, seq)
        le64(p + 24, last_ms)
        le64(p + 32, last_seq)
        memcpy(p + 40, &entries, 4)

    cdef u64 open_frame(self, Handle h, dict fields, u64 width, u64 ms, u64 seq, u64 before, Place* first) except? 0:
        """Write the payload of a new node's frame into `out`, behind `before` bytes and a head; its
        bytes, 0 if a field is not of the lane. `first` is where its entry stands in its listpack."""
        cdef PyObject* key
        cdef PyObject* item
        cdef Py_ssize_t at = 0
        cdef u64 lp = before + HEAD + NODE_BODY, elements = 2 * width + 8
        cdef uint32_t total
        cdef u8 number[INT_BYTES_MAX]
        cdef Buf* out = &self.out
        out.size = 0
        fail(buf_reserve(out, lp + HEADER_BYTES))
        out.size = lp + HEADER_BYTES
        fail(buf_int(out, 1))
        fail(buf_int(out, 0))
        fail(buf_int(out, <int64_t>width))
        self.scratch.size = 0   # the names, until the commit has come about
        while PyDict_Next(fields, &at, &key, &item):
            if not self.value(<object>key, out) or not self.value(<object>key, &self.scratch):
                return 0
        fail(buf_int(out, 0))
        first.ms = ms
        first.seq = seq
        first.at = <uint32_t>(out.size - lp)
        fail(buf_int(out, SAME_FIELDS))
        fail(buf_int(out, 0))
        fail(buf_int(out, 0))
        at = 0
        while PyDict_Next(fields, &at, &key, &item):
            if not self.value(<object>item, out):
                return 0
        fail(buf_int(out, <int64_t>width + 3))
        first.size = <uint32_t>(out.size - lp) - first.at
        number[0] = END_BYTE
        fail(buf_add(out, number, 1))
        total = <uint32_t>(out.size - lp)
        memcpy(out.data + lp, &total, 4)
        out.data[lp + 4] = <u8>elements
        out.data[lp + 5] = <u8>(elements >> 8)
        self.body(out.data + before + HEAD, h, ms, seq, ms, seq, 1)
        return NODE_BODY + total

    cdef int reopen(self, Handle h, const u8* lp, u64 size, dict fields, u64 width, const Place* first) except -1:
        """The handle's open node is this one from now on."""
        h.lp.size = h.places.size = h.names.size = 0
        fail(buf_add(&h.lp, lp, size))
        fail(buf_add(&h.names, self.scratch.data, self.scratch.size))
        fail(buf_add(&h.places, first, sizeof(Place)))
        h.live = 1
        h.live_bytes = int_bytes(1)
        h.width = <int64_t>width
        h.elements = 2 * width + 8
        h.keys = list(fields)
        h.dirty = True
        return 0

    cdef int node_row(self, txn, Handle h, u64 position, u64 payload) except -1:
        """The locator of the node that is sealed, and what is counted of its segment."""
        cdef u8 key[24]
        cdef u8 row[32]
        cdef uint32_t size = <uint32_t>payload, live = <uint32_t>h.live
        be64(key, h.number)
        be64(key + 8, h.rec[R_MASTER_MS])
        be64(key + 16, h.rec[R_MASTER_SEQ])
        le64(row, position)
        memcpy(row + 8, &size, 4)
        memcpy(row + 12, &live, 4)
        le64(row + 16, h.rec[R_LAST_MS])
        le64(row + 24, h.rec[R_LAST_SEQ])
        self.row.size = 0
        fail(buf_add(&self.row, row, 32))
        self.put_row(txn.put, key, 24, self.nodes_db)
        index = IndexTxn(self.engine.generation, txn)
        number = position >> 32
        found = index.segment(number) or SegmentRow(0, 0, 0, 0, ls_now_ms(WALL))
        found = found._replace(live_bytes=found.live_bytes + payload, live_nodes=found.live_nodes + 1)
        index.put_segment(number, found)
        return 0

    # -- what others committed ---------------------------------------------------------------------
    cdef int catch_up(self) except -1:
        """Apply what others published since; 0: it is not all plain appends to streams known here."""
        cdef u64 upto = ls_load(self.wake + W_APPLIED), start, size, at = 0, count
        cdef u8* p
        cdef Append body
        cdef Handle h
        if (upto >> 32 != self.meta.active or self.meta.applied >> 32 != self.meta.active
                or upto < self.meta.applied or upto - self.meta.applied > CATCH_UP_BYTES_MAX):
            return 0
        count = upto - self.meta.applied
        fail(buf_reserve(&self.tail, count))
        if pread(self.file_fd, self.tail.data, count, <uint32_t>self.meta.applied) != <ssize_t>count:
            return 0
        while at < count:
            p = self.tail.data + at
            start = self.meta.applied
            if not is_plain_append(p, count - at):
                return 0
            size = (<uint32_t*>(p + 4))[0]
            if frame_crc(p, start, size, self.seed) != (<uint32_t*>p)[0]:
                return 0
            memcpy(&body, p + HEAD, APPEND_BODY)
            found = self.numbers.get(body.stream)
            if found is None or not (<Handle>found).usable:
                return 0        # the product makes the handle from the index here
            h = <Handle>found
            h.grow(p + HEAD + APPEND_BODY, size - APPEND_BODY, &body, start)
            memcpy(&self.meta.commit, p + 8, 8)
            self.meta.last_frame = start
            self.meta.last_crc = (<uint32_t*>p)[0]
            self.meta.applied = start + HEAD + size
            at += HEAD + size
            self.caught += 1
        return 1

    # -- a read of the open node, from memory ------------------------------------------------------
    def get(self, Handle h not None, u64 ms, u64 seq):
        """A Row; None: there is no such entry. False: it is not known here, take the slow way.

        The interpreter's lock keeps the writers of this process out meanwhile.
        """
        cdef Py_ssize_t at
        cdef const Place* places
        cdef Row row
        if not h.usable or ls_load(self.wake + W_GENERATION) != self.generation:
            return False
        if ls_load(self.wake + W_APPLIED) != self.meta.applied:
            return False        # others added: the product catches up here
        places = <const Place*>h.places.data
        if not h.places.size or below(ms, seq, places[0].ms, places[0].seq):
            return False
        at = place_of(&h.places, ms, seq)
        if at < 0:
            return None
        row = Row.__new__(Row)
        row.id = ls_id(_StreamID, ms, seq)
        row.names = PyBytes_FromStringAndSize(<char*>h.names.data, h.names.size)
        row.raw = PyBytes_FromStringAndSize(<char*>h.lp.data + places[at].at, places[at].size)
        row.width = h.width
        return row


cdef struct Seen:           # a plain append in the tail
    uint64_t start          # positions
    uint64_t end
    uint64_t stream
    uint64_t ms
    uint64_t seq
    uint32_t entries
    uint32_t elements
    uint32_t data           # offset of its listpack bytes in `bytes`
    uint32_t size


cdef class Tail:
    """The log between the index and what is published, as readers of any process overlay it.

    Bytes below the published end never change, so what was read and checked once stays. A reader
    loads the published end FIRST, then begins its snapshot: what the snapshot lacks of that are plain
    appends only, for any other commit is in the index before it is published.
    """
    cdef u8* wake
    cdef uint32_t seed
    cdef object opened          # segment number -> fd
    cdef u64 low, high          # [low, high) was read
    cdef Buf bytes, seen
    cdef readonly u64 reads

    def __init__(self, address, seed, opened):
        """`address`: of the control block; `opened`: gives the descriptor of a segment by number."""
        self.wake = <u8*><uintptr_t>address
        self.seed = seed
        self.opened = opened

    def __dealloc__(self):
        buf_free(&self.bytes)
        buf_free(&self.seen)

    def published(self):
        """Where the published log ends: loaded before the snapshot is begun."""
        return ls_load(self.wake + W_APPLIED)

    cdef int read(self, u64 low, u64 high) except -1:
        """Have all of [low, high) here, which are positions of one segment."""
        cdef u64 count, at = 0, size, begin
        cdef u8* p
        cdef Seen one
        cdef Append body
        if low >= self.low and high <= self.high and self.high >> 32 == high >> 32:
            return 0
        if (low < self.low or low > self.high or self.high >> 32 != high >> 32
                or self.bytes.size > TAIL_BYTES_MAX):
            self.bytes.size = self.seen.size = 0
            self.low = self.high = low
        count = high - self.high
        begin = self.bytes.size
        fail(buf_reserve(&self.bytes, count))
        self.reads += 1
        if pread(self.opened(high >> 32), self.bytes.data + begin, count, <uint32_t>self.high) != <ssize_t>count:
            raise CorruptNodeError("the log ends before what was published")
        while at < count:
            p = self.bytes.data + begin + at
            if not is_plain_append(p, count - at):
                raise CorruptNodeError("what the index lacks is no plain append")
            size = (<uint32_t*>(p + 4))[0]
            if frame_crc(p, self.high + at, size, self.seed) != (<uint32_t*>p)[0]:
                raise CorruptNodeError("a frame of the tail is damaged")
            memcpy(&body, p + HEAD, APPEND_BODY)
            one.start = self.high + at
            one.end = one.start + HEAD + size
            one.stream = body.stream
            one.ms = body.ms
            one.seq = body.seq
            one.entries = body.entries
            one.elements = body.elements
            one.data = <uint32_t>(begin + at + HEAD + APPEND_BODY)
            one.size = <uint32_t>(size - APPEND_BODY)
            fail(buf_add(&self.seen, &one, sizeof(Seen)))
            at += HEAD + size
        self.bytes.size = begin + count
        self.high = high
        return 0

    def of(self, u64 stream, u64 applied, u64 upto):
        """What a snapshot at `applied` lacks of a stream up to `upto`: (entries, elements, ms, seq,
        position, bytes), or None."""
        cdef const Seen* one
        cdef Py_ssize_t i, count
        cdef u64 entries = 0, elements = 0, ms = 0, seq = 0, last = 0, size = 0
        cdef bytes joined
        cdef u8* p
        if applied >= upto:
            return None
        if applied >> 32 != upto >> 32:
            applied = (upto >> 32) << 32 | SEGMENT_HEAD     # the seal before it is in the index
        self.read(applied, upto)
        one = <const Seen*>self.seen.data
        count = self.seen.size // sizeof(Seen)
        for i in range(count):
            if one[i].stream == stream and one[i].start >= applied and one[i].end <= upto:
                entries += one[i].entries
                elements += one[i].elements
                size += one[i].size
                ms = one[i].ms
                seq = one[i].seq
                last = one[i].start
        if not entries:
            return None
        joined = PyBytes_FromStringAndSize(NULL, size)
        p = <u8*>PyBytes_AS_STRING(joined)
        for i in range(count):
            if one[i].stream == stream and one[i].start >= applied and one[i].end <= upto:
                memcpy(p, self.bytes.data + one[i].data, one[i].size)
                p += one[i].size
        return entries, elements, ms, seq, last, joined


cdef class Row:
    """An entry that makes its mapping when it is asked."""
    cdef readonly object id
    cdef bytes names, raw
    cdef int64_t width

    @property
    def fields(self):
        cdef dict found = {}
        cdef u64 at = 0, name_at = 0, end = size_of(self.raw)
        cdef const u8* p = data_of(self.raw)
        cdef Elem e, n
        cdef int64_t flags, number, i
        fail(lp_int(p, at, end, &flags, &at))
        fail(lp_int(p, at, end, &number, &at))
        fail(lp_int(p, at, end, &number, &at))
        if flags & SAME_FIELDS:
            for i in range(self.width):
                fail(lp_read(data_of(self.names), name_at, size_of(self.names), &n))
                name_at = n.after
                fail(lp_read(p, at, end, &e))
                at = e.after
                found[elem_bytes(&n)] = elem_bytes(&e)
        else:
            fail(lp_int(p, at, end, &number, &at))
            for i in range(number):
                fail(lp_read(p, at, end, &n))
                fail(lp_read(p, n.after, end, &e))
                at = e.after
                found[elem_bytes(&n)] = elem_bytes(&e)
        return found


# -- ranges and sealed nodes: a node decoded in one call, entries make their mapping when asked ------

cdef class NodeRows:
    """A node's bytes, and its field names made once for all its rows."""
    cdef bytes lp
    cdef list names


cdef class NodeRow:
    """An entry: where it stands in its node; the mapping is made when it is asked for."""
    cdef NodeRows node
    cdef u64 ms, seq
    cdef uint32_t body
    cdef bint same

    @property
    def id(self):
        return ls_id(_StreamID, self.ms, self.seq)

    @property
    def fields(self):
        cdef const u8* p = data_of(self.node.lp)
        cdef u64 end = size_of(self.node.lp) - 1, at = self.body
        cdef Elem e, n
        cdef int64_t i, count
        cdef dict found = {}
        if self.same:
            for name in self.node.names:
                fail(lp_read(p, at, end, &e))
                at = e.after
                found[name] = elem_bytes(&e)
            return found
        fail(lp_int(p, at, end, &count, &at))
        for i in range(count):
            fail(lp_read(p, at, end, &n))
            fail(lp_read(p, n.after, end, &e))
            at = e.after
            found[elem_bytes(&n)] = elem_bytes(&e)
        return found


cdef NodeRows names_of(bytes lp, Master* m):
    cdef NodeRows node = NodeRows.__new__(NodeRows)
    cdef Elem elem
    cdef u64 pos = m.fields_at
    cdef int64_t i
    node.lp = lp
    node.names = []
    for i in range(m.width):
        fail(lp_read(data_of(lp), pos, m.end, &elem))
        pos = elem.after
        node.names.append(elem_bytes(&elem))
    return node


def node_rows(bytes lp not None, u64 ms, u64 seq, list out not None):
    """All live entries of a node to `out`."""
    cdef Master m
    cdef Entry e
    cdef u64 pos
    cdef NodeRow row
    cdef NodeRows node
    fail(read_master(data_of(lp), size_of(lp), &m))
    node = names_of(lp, &m)
    pos = m.first
    while pos < m.end:
        fail(read_entry(data_of(lp), pos, &m, &e))
        if not (e.flags & DELETED):
            row = NodeRow.__new__(NodeRow)
            row.node = node
            row.ms = ms + <u64>e.ms_diff
            row.seq = seq + <u64>e.seq_diff
            row.same = e.flags & SAME_FIELDS
            row.body = <uint32_t>(e.body if row.same else e.body - int_bytes(e.pairs))
            out.append(row)
        pos = e.after
    return len(out)


cdef class SealedCache:
    """One sealed node: its bytes and where its entries are, for point reads.

    Valid as long as `W_REWRITTEN`, `W_GENERATION` and `W_DROPPED` are what they were."""
    cdef u8* wake
    cdef u64 rewritten, generation, dropped
    cdef NodeRows node
    cdef Buf places

    def __dealloc__(self):
        buf_free(&self.places)

    def __init__(self, address):
        self.wake = <u8*><uintptr_t>address

    def keep(self, bytes lp not None, u64 ms, u64 seq):
        """Remember a node of this master ID: its bytes, and where its entries are."""
        cdef Master m
        cdef Entry e
        cdef u64 pos
        cdef Place place
        fail(read_master(data_of(lp), size_of(lp), &m))
        self.node = names_of(lp, &m)
        self.places.size = 0
        pos = m.first
        while pos < m.end:
            fail(read_entry(data_of(lp), pos, &m, &e))
            place.ms = ms + <u64>e.ms_diff
            place.seq = seq + <u64>e.seq_diff
            place.at = <uint32_t>(e.body if e.flags & SAME_FIELDS else e.body - int_bytes(e.pairs))
            place.size = 1 if e.flags & SAME_FIELDS else 0
            if not (e.flags & DELETED):
                fail(buf_add(&self.places, &place, sizeof(Place)))
            pos = e.after
        self.rewritten = ls_load(self.wake + W_REWRITTEN)
        self.generation = ls_load(self.wake + W_GENERATION)
        self.dropped = ls_load(self.wake + W_DROPPED)

    def get(self, u64 ms, u64 seq):
        """A NodeRow; None: there is none. False: the node may have changed, look it up anew."""
        cdef Py_ssize_t at
        cdef const Place* places = <const Place*>self.places.data
        cdef NodeRow row
        if (ls_load(self.wake + W_REWRITTEN) != self.rewritten or ls_load(self.wake + W_GENERATION) != self.generation
                or ls_load(self.wake + W_DROPPED) != self.dropped):
            return False
        at = place_of(&self.places, ms, seq)
        if at < 0:
            return None
        row = NodeRow.__new__(NodeRow)
        row.node = self.node
        row.ms = ms
        row.seq = seq
        row.body = places[at].at
        row.same = places[at].size
        return row


def small_commit(Lane lane not None, bytes payload not None, int kind, int scratch_fd, int rows, main):
    """The floor of a commit of one small frame of a group: everything but deciding.

    `rows`: so many small rows in LMDB, too. The frame goes into a scratch file, and the rows under
    keys that no store uses: only for a store that is thrown away.
    """
    cdef u64 size = size_of(payload)
    cdef u8* out
    cdef int i
    lane.out.size = 0
    fail(buf_reserve(&lane.out, HEAD + size))
    out = lane.out.data
    if lane.mutex_acquire(False) is not True or flock(lane.lock_fd, LOCK_EX | LOCK_NB):
        raise OSError("the floor is measured alone")
    memcpy(out + HEAD, data_of(payload), size)
    put_head(out, lane.meta.applied, size, lane.meta.commit, 0, 0, kind, LAST, lane.seed)
    txn = lane.index_begin(None, None, True) if rows else None
    for i in range(rows):
        txn.put(PyBytes_FromStringAndSize(<char*>data_of(payload), 9 + i),
                PyBytes_FromStringAndSize(<char*>out, HEAD + 20), True, True, False, main)
    ls_store(lane.wake + W_SCRATCH, 1)
    pwrite(scratch_fd, out, HEAD + size, SEGMENT_HEAD)
    if rows:
        txn.commit()
    ls_store(lane.wake + W_SCRATCH, 0)
    flock(lane.lock_fd, LOCK_UN)
    lane.mutex_release()


# -- counting ----------------------------------------------------------------------------------------
COUNTS = bool(LS_COUNTS)


def counted(bytes name not None, work, int count):
    """Run `work(count)`; under callgrind its instructions go to a dump that is called so."""
    ls_count_on()
    work(count)
    ls_count_off(PyBytes_AS_STRING(name))
