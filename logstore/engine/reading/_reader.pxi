# All that is kept of one store, and how it follows the log.

cdef extern from *:
    """
    #include <sys/uio.h>
    /* Bytes of a file into a head and what stands behind it; the number that there are, or -1. */
    static ssize_t ls_read_parts(int fd, void *head, size_t head_size, void *rest, size_t rest_size,
                                 int64_t at) {
        struct iovec parts[2] = {{head, head_size}, {rest, rest_size}};
        return preadv(fd, parts, 2, at);
    }
    """
    ssize_t ls_read_parts(int fd, void* head, size_t head_size, void* rest, size_t rest_size,
                          int64_t at) noexcept nogil

cdef enum:
    W_DROPPED = 120
    FOLLOW_MAX_BYTES = 1 << 18
    KIND_TRIM = 8
    KIND_GROUP = 32         # from here to CLAIM: groups, with consumers and what is pending
    KIND_NOTE = 0x81

cdef u64 NO_POSITION = ~<u64>0
cdef Py_ssize_t STREAMS_BYTES = _STREAMS_MAX_BYTES
cdef Py_ssize_t PAGE_ROWS = _PAGE_NODES


def words_of_reading():
    """Numbers that stand in modules of Python too, by the names that they have there."""
    return {
        "_DROPPED_OFFSET": W_DROPPED, "NODE_BODY": NODE_BODY, "CREATE": KIND_CREATE,
        "OPEN": KIND_OPEN,
        "NODE": KIND_NODE, "TOMBSTONE": KIND_TOMBSTONE, "TRIM": KIND_TRIM, "RECORD": KIND_RECORD,
        "GROUP": KIND_GROUP, "CLAIM": KIND_CLAIM, "NOTE": KIND_NOTE, "NODE_KEY": KEY_BYTES,
        "LOCATOR": LOCATOR_BYTES,
    }


@cython.final
cdef class Reader:
    """The read core of one engine; see native.pyx."""

    cdef Py_buffer memory
    cdef const u8* wake     # NULL: closed
    cdef uint32_t seed
    cdef NodeCache nodes
    cdef object source, now_ms      # gives the file of a segment; the store's clock
    cdef dict streams, by_number
    # a dict of open segments, by number, of who closes those that were dropped
    cdef object files
    cdef Py_ssize_t held    # bytes of streams, about
    cdef u64 at, generation, dropped
    cdef int64_t forgets    # counts how often all was forgotten

    def __init__(self, memory, uint32_t seed, NodeCache nodes not None, files, source, now_ms):
        """A reader that keeps nothing yet.

        `memory`: the control block; `seed`: what checksums of the store's frames begin with;
        `files`: open segments by number, to which `source` adds one that it gives; `now_ms`: the
        store's clock (unix ms).
        """
        self.streams, self.by_number, self.files = {}, {}, files
        self.seed, self.nodes, self.source, self.now_ms = seed, nodes, source, now_ms
        self.at = NO_POSITION
        PyObject_GetBuffer(memory, &self.memory, PyBUF_WRITABLE)
        self.wake = <const u8*>self.memory.buf

    def __dealloc__(self):
        if self.wake != NULL:
            self.wake = NULL
            PyBuffer_Release(&self.memory)

    def close(self):
        """Forget all, and let go of the control block and of files. Safe to repeat."""
        if self.wake != NULL:
            self.wake = NULL
            self.forget()
            self.nodes.clear()
            PyBuffer_Release(&self.memory)
            before = self.files, self.source, self.now_ms     # freed behind it: that may run Python
            self.files, self.source, self.now_ms = {}, None, None
            before = None

    cdef int forget(self) except -1:
        """Keep no stream any more."""
        self.streams.clear()
        self.by_number.clear()
        self.held = 0
        self.forgets += 1
        return 0

    # -- what is kept, and whether it counts -------------------------------------------------------
    cdef Stream kept(self, bytes name):
        """A stream as it is at the published end; None: that cannot be told from what is kept."""
        cdef PyObject* found
        cdef Stream s
        if self.wake == NULL or ls_load(self.wake + W_PROGRESS):
            return None         # first: a commit that is over by then is in the other words
        if not self.stands_at(ls_load(self.wake + W_APPLIED)):
            return None
        found = PyDict_GetItemWithError(self.streams, name)
        if found == NULL:
            return None
        s = <Stream>found
        if s.stale or (s.expires_ms and s.expires_ms <= <u64>self.now_ms()):
            return None
        return s

    cdef bint stands_at(self, u64 position) except -1:
        """Let what is kept follow to a published position; False: the words speak of more than
        that."""
        if (ls_load(self.wake + W_GENERATION) != self.generation
                or ls_load(self.wake + W_DROPPED) != self.dropped):
            return False
        return self.at == position or self.follow(position)

    cdef bint follow(self, u64 upto) except -1:
        """Be as the log is at a published position that is not this one; False: it was not
        reached."""
        cdef u64 start = self.at, count
        cdef bytes data
        cdef bint there
        if (start == NO_POSITION or upto < start or upto >> 32 != start >> 32
                or upto - start > FOLLOW_MAX_BYTES):
            self.forget()
            self.at = upto
            return True
        count = upto - start
        data = self.bytes_at(start, count)
        if self.wake == NULL or self.at != start:
            return False        # closed meanwhile, or another thread followed
        # A list is made in it now and then: a collection may look, and finds that nothing is kept.
        self.at = NO_POSITION
        there = data is not None and self.take_in(data, start)
        if not there or self.at != NO_POSITION:
            self.forget()
        self.at = upto
        return True

    cdef bint take_in(self, bytes data, u64 start) except -1:
        """Change what frames change, which end with a commit; False: all is to be forgotten. No
        Python runs in it, but that of a collection."""
        cdef const u8* p = data_of(data)
        cdef u64 at = 0, size, count = size_of(data)
        while at < count:
            if count - at < HEAD or little(p + at + 30, 2) != MARK:
                return False
            size = little(p + at + 4, 4)
            if (size > count - at - HEAD
                    or frame_crc(p + at, start + at, size, self.seed) != little(p + at, 4)):
                return False
            if not self.take_in_frame(p[at + 28], p + at + HEAD, size, start + at):
                return False
            at += HEAD + size
        return True

    cdef bint take_in_frame(self, u8 kind, const u8* body, u64 size, u64 position) except -1:
        """Change what one frame changes; False: all is to be forgotten."""
        cdef PyObject* found
        cdef Stream s
        if KIND_GROUP <= kind <= KIND_CLAIM or kind == KIND_NOTE:
            return True         # they change nothing that is kept here
        if kind == KIND_CREATE:
            return size >= 8 and PyBytes_FromStringAndSize(
                <const char*>body + 8, size - 8) not in self.streams
        if kind < KIND_OPEN or kind > KIND_RECORD or size < 24:
            return False
        found = PyDict_GetItemWithError(self.by_number, little(body, 8))
        if found == NULL:
            return True
        s = <Stream>found
        if kind == KIND_APPEND:
            if size < APPEND_BODY:
                return False
            if not s.append(body, size, position):
                s.stale = True
            return True
        if kind == KIND_RECORD:
            if size < RECORD_BODY:
                return False
            if not s.state(body, position):
                s.stale = True
            return True
        if kind == KIND_TOMBSTONE:
            if size < TOMBSTONE_BODY or size & 3:
                return False
            if not s.mark(body, size, position):
                s.stale = True
            return True
        s.stale = True
        s.forget_open()
        if kind == KIND_TRIM:
            s.pages, s.pages_cost = [], 0
        else:               # an open node, or a sealed one: of this master ID
            s.forget_node(little(body + 8, 8), little(body + 16, 8))
        return True

    # -- files -------------------------------------------------------------------------------------
    cdef object file_of(self, u64 segment):
        """The open file of a segment; None: it is gone, or is not read as files are."""
        cdef PyObject* found = PyDict_GetItemWithError(self.files, segment)
        if found != NULL:
            file = <object>found
        else:
            try:
                file = self.source(segment)
            except Exception:       # the twin meets it, too, and says what it is
                return None
        return file if type(file) is _File else None

    cdef bytes bytes_at(self, u64 position, u64 count):
        """Bytes of the log; None: they are not all there, or cannot be read."""
        cdef bytes data
        cdef u8* p
        cdef ssize_t done
        cdef int fd
        cdef int64_t offset = position & 0xFFFFFFFF
        file = self.file_of(position >> 32)
        if file is None:
            return None
        fd = file.fd
        data = PyBytes_FromStringAndSize(NULL, count)
        p = <u8*>data_of(data)
        with nogil:
            done = pread(fd, p, count, offset)
        return data if done == <ssize_t>count else None

    cdef Node node_of(self, Stream s, Slot slot):
        """A sealed node, checked; None: it is to be read by the twin."""
        cdef Node n
        cdef u64 count
        cdef u8 covered[COVERED + NODE_BODY]        # what the checksum covers before the listpack
        cdef u8* head = covered + (COVERED - HEAD)
        cdef size_t head_bytes = HEAD + NODE_BODY
        cdef int64_t offset = slot.position & 0xFFFFFFFF
        cdef bytes lp
        cdef u8* p
        cdef ssize_t done
        cdef uint32_t crc, begun
        cdef int fd
        cdef int64_t clears = self.nodes.clears
        if slot.payload_bytes < NODE_BODY:
            return None
        count = slot.payload_bytes - NODE_BODY
        n = self.nodes.find(slot.position, s.number, slot.ms, slot.seq, count)
        if n is not None:
            return n
        file = self.file_of(slot.position >> 32)
        if file is None:
            return None
        fd = file.fd
        lp = PyBytes_FromStringAndSize(NULL, count)
        p = <u8*>data_of(lp)
        with nogil:
            done = ls_read_parts(fd, head, head_bytes, p, count, offset)
        if done != <ssize_t>(head_bytes + count) or not is_node(head, s.number, slot):
            return None
        crc = <uint32_t>little(head, 4)
        put_64(covered, slot.position)      # over the checksum itself, which is not covered
        begun = ls_crc32c(covered, COVERED + NODE_BODY, self.seed, HARD_CRC)
        if ls_crc32c(p, count, begun, HARD_CRC) != crc:
            return None
        # Behind a clearing, as where segments were dropped meanwhile, it is not put in.
        return self.nodes.keep(slot.position, s.number, slot.ms, slot.seq, lp, clears)

    # -- looks -------------------------------------------------------------------------------------
    def record(self, bytes name not None):
        """A stream's record at the published end; MISS."""
        cdef Stream s = self.kept(name)
        if s is None:
            return MISSED
        r = s.record
        return _StreamRecord(
            r.number, r.name, s.length, <u64>r.entries_added + s.added,
            _StreamID(s.last_ms, s.last_seq), _StreamID(s.first_ms, s.first_seq),
            _StreamID(s.gone_ms, s.gone_seq), s.position, r.nodes, r.node_bytes, r.open_version,
            r.open_master,
            r.expires_ms, r.schema_at)

    def schema_at(self, bytes name not None):
        """The position of the frame of a stream's schema, 0 if it has none; MISS."""
        cdef Stream s = self.kept(name)
        return MISSED if s is None else s.record.schema_at

    def get(self, bytes name not None, id not None, maker not None):
        """The entry with this ID, made; None if there is none; MISS."""
        cdef u64 ms = id[0], seq = id[1]
        cdef Stream s = self.kept(name)
        if s is None:
            return MISSED
        try:
            return entry_of(s, self, None, id, ms, seq, maker)
        except _CorruptionError:    # the twin meets it, too, and says what it is
            return MISSED

    def place(self, bytes name not None, u64 ms, u64 seq):
        """The sealed node into which an ID belongs, at the published end: its master ID in two
        parts, its position, how many of its entries live, which do not, its listpack. None: there
        is none, or nothing lives in it; MISS."""
        cdef Stream s = self.kept(name)
        if s is None:
            return MISSED
        return self.place_in(s, None, ms, seq)

    def place_in(self, Stream stream not None, view, u64 ms, u64 seq):
        """The same in the snapshot that gave the stream; None for that: of what is kept."""
        cdef Page page = stream.page_at(ms, seq)
        cdef Slot slot
        cdef Node n
        cdef Py_ssize_t at
        cdef bytes vector
        if page is None and view is not None:
            page = self.load(stream, view, ms, seq, False)
        at = -1 if page is None else page.floor(ms, seq)
        if at < 0:
            return MISSED
        slot = page.slots[at]
        if below(slot.last_ms, slot.last_seq, ms, seq) or not slot.live:
            return None
        vector = page.vector(at)
        n = self.node_of(stream, slot)
        return MISSED if n is None else (slot.ms, slot.seq, slot.position, slot.live, vector, n.lp)

    def get_in(self, Stream stream not None, view not None, id not None, maker not None):
        """The same in the snapshot that gave the stream."""
        try:
            return entry_of(stream, self, view, id, id[0], id[1], maker)
        except CorruptNodeError:
            return MISSED

    def batch(self, bytes name not None, start not None, end not None, Py_ssize_t limit,
              bint reverse, walked, decode not None):
        """Entries of an interval, and where to go on: None, if it was read to its end or there are
        as many as wanted, else the master ID of the first node that was not read, its last ID with
        `reverse`; MISS. `walked`: the interval of all batches, of one behind the first."""
        cdef tuple got
        cdef u64 length, deletes
        cdef Stream s = self.kept(name)
        if s is None:
            return MISSED
        length, deletes = s.length, s.deletes
        if not length:
            return [], None
        first, last = (s.first_ms, s.first_seq), (s.last_ms, s.last_seq)
        try:
            got = entries_of(s, self, None, start, end, limit, reverse, decode)
        except _CorruptionError:
            got = None
        if got is None or s.deletes != deletes:     # another thread followed: nodes of two moments
            return MISSED
        entries, stop, met = got
        # What `streams.read.confirm` doubts, or looks up in the index, it is to look at in a
        # snapshot.
        if met >= 0:
            if start <= first and last <= end:
                if met != length:
                    return MISSED
            elif walked is not None:
                if walked[0] <= first and last <= walked[1]:
                    return MISSED
            elif not met and first <= start <= last:
                return MISSED
        return entries, stop

    def batch_in(self, Stream stream not None, view not None, start not None, end not None,
                 Py_ssize_t limit, bint reverse, decode not None):
        """The same in the snapshot that gave the stream, and how many entries were met: -1, unless
        the interval was read to its end."""
        if not stream.length:
            return [], None, -1
        try:
            got = entries_of(stream, self, view, start, end, limit, reverse, decode)
        except CorruptNodeError:
            return MISSED
        return MISSED if got is None else got

    # -- loading -----------------------------------------------------------------------------------
    def of(self, view, bytes name not None):
        """What a snapshot says of a stream, to be read in and to be kept; None without a stream."""
        cdef Stream s, before = None
        cdef u64 position = view.meta.applied, generation = view.index.generation.number
        cdef PyObject* found
        self.come_to(position, generation)
        if self.wake != NULL and self.at == position and self.generation == generation:
            found = PyDict_GetItemWithError(self.streams, name)
            if found != NULL:
                before = <Stream>found
        if before is not None and not before.stale:
            s = before.copy()
            if s.expires_ms and s.expires_ms <= <u64>view.now_ms:
                return None
        else:
            record = view.record(name)
            if record is None:
                return None
            s = Stream.__new__(Stream)
            s.take(record)
            s.pages = []
            if (before is not None and before.stale and before.number == s.number
                    and self.at == position):
                s.pages, s.pages_cost = list(before.pages), before.pages_cost
        s.at, s.forgets = position, self.forgets
        if self.generation != generation:
            s.at = NO_POSITION      # it is not kept
        return s

    cdef int come_to(self, u64 position, u64 generation) except -1:
        """Stand where a snapshot stands, if that is published and not behind."""
        cdef u64 dropped
        if self.wake == NULL:
            return 0
        dropped = ls_load(self.wake + W_DROPPED)
        if self.dropped != dropped:
            # who reads has let go of files and nodes before (`notice_drops`)
            self.dropped = dropped
            self.forget()
        if self.generation != generation and ls_load(self.wake + W_GENERATION) == generation:
            self.forget()
            self.generation, self.at = generation, NO_POSITION
        if (self.generation == generation and self.at != position
                and (self.at == NO_POSITION or self.at < position)
                and position <= ls_load(self.wake + W_APPLIED)):
            self.follow(position)
        return 0

    def keep(self, Stream stream not None):
        """Keep what a snapshot said that was found sound, unless the log has gone on."""
        cdef Stream before
        cdef PyObject* found
        cdef Py_ssize_t cost
        if (self.wake == NULL or stream.at != self.at or stream.forgets != self.forgets
                or stream.stale):
            return
        cost = stream.cost()
        found = PyDict_GetItemWithError(self.streams, stream.name)
        if found != NULL:
            before = <Stream>found
            self.held -= before.counted
        if self.held + cost > STREAMS_BYTES:
            self.forget()
        if cost > STREAMS_BYTES:
            return
        stream.counted = cost
        self.streams[stream.name] = stream
        self.by_number[stream.number] = stream
        self.held += cost

    cdef Page load(self, Stream s, view, u64 ms, u64 seq, bint reverse):
        """The page of an ID, as the index has it; None: rows are not what they must be."""
        cdef Page page
        rows, at_front, at_back = view.index.neighbours(
            s.number, (ms, seq), PAGE_ROWS, reverse=reverse)
        page = page_of(s.number, rows, at_front, at_back)
        if page is None or not page.covers(ms, seq):
            return None
        s.put_page(page, ms, seq)
        return page if page.covers(ms, seq) else None   # a walk goes on from there

    cdef bytes load_open(self, Stream s, view):
        """The listpack of the open node, as the index has it; None: it is large, or not there."""
        if s.large:
            return None
        node = view.open_node(s.number)
        if node is None or node.runs or node.lp is None:
            s.large = node is not None
            return None
        s.lp, s.appended = node.lp, None
        s.finder, s.seen = None, False
        return s.lp


cdef bint is_node(const u8* p, u64 stream, Slot slot) noexcept:
    """Whether a frame is one of a node, with the length and of the master ID of its locator."""
    cdef const u8* body = p + HEAD
    if little(p + 30, 2) != MARK or little(p + 4, 4) != slot.payload_bytes:
        return False
    if p[28] != KIND_NODE and p[28] != KIND_OPEN:
        return False
    return (little(body, 8) == stream and little(body + 8, 8) == slot.ms
            and little(body + 16, 8) == slot.seq)
