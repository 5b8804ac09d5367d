# A stream's record and open node, learned from the record cache and given back to it.

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void* PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    bint PyUnicode_CheckExact(object o)
    bint PyBytes_CheckExact(object o)
    bint PyLong_CheckExact(object o)
    void Py_INCREF(PyObject* o)
    void Py_XDECREF(PyObject* o)

cdef extern from *:
    """
    static PyObject *ls_id(PyObject *type, uint64_t ms, uint64_t seq) {
        PyObject *made, *first = PyLong_FromUnsignedLongLong(ms);
        PyObject *second = PyLong_FromUnsignedLongLong(seq);
        made = first && second ? ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 2) : NULL;
        if (!made) {
            Py_XDECREF(first);
            Py_XDECREF(second);
            return NULL;
        }
        PyTuple_SET_ITEM(made, 0, first);
        PyTuple_SET_ITEM(made, 1, second);
    #if PY_VERSION_HEX >= 0x030E0000
        ((PyTupleObject *)made)->ob_hash = -1;  /* it keeps its hash: none is known yet */
    #endif
        return made;
    }
    """
    object ls_id(object type, uint64_t ms, uint64_t seq)

cdef enum:
    PLAIN_BYTES_MAX = 1 << 16   # of an open node that is kept whole: nodes.OPEN_INLINE_MAX_BYTES
    ELEMENTS_MAX = 60000        # of an open node: far above, its header cannot count them


cdef struct Limits:             # of nodes, as the codec takes them
    u64 bytes_max
    int64_t entries_max         # 0: any number


ctypedef struct Row:            # an entry that is encoded, but for what its ID makes of it
    Buf names
    Buf elements                # values; with their names, unless these are the node's
    u64 raw_bytes               # lengths of names and values together
    int64_t width
    bint same                   # the names are the node's


ctypedef struct Ahead:          # what a commit adds to the stream before the entry in question
    u64 bytes
    u64 elements
    int64_t entries


cdef int put_plain(object value, Buf* out, u64* raw_bytes) except -1:
    """Append a name or value as an element, as RowBatch does; 0: it is not plain."""
    cdef int overflow = 0
    cdef int64_t number
    cdef u64 size
    cdef const u8* text
    cdef u8 digits[20]
    if PyUnicode_CheckExact(value):
        if not PyUnicode_IS_COMPACT_ASCII(value):
            return 0
        text = <const u8*>PyUnicode_DATA(value)
        size = <u64>PyUnicode_GET_LENGTH(value)
    elif PyBytes_CheckExact(value):
        text = <const u8*>PyBytes_AS_STRING(value)
        size = <u64>PyBytes_GET_SIZE(value)
    elif PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            return 0
        raw_bytes[0] += format_i64(number, digits)
        fail(buf_int(out, number))
        return 1
    else:
        return 0
    raw_bytes[0] += size
    if raw_bytes[0] > PLAIN_BYTES_MAX:
        return 0
    fail(buf_text(out, text, size))
    return 1


cdef class Handle:
    """A stream as plain adds need it: numbers of its record, and its open node."""

    cdef readonly u64 number
    cdef readonly bint usable   # plain adds can be decided from what is here
    cdef bint known             # the numbers of the record are here
    cdef u64 length, added, last_ms, last_seq, position
    cdef u64 master_ms, master_seq
    cdef u64 first_ms, first_seq    # the first entry
    cdef u64 gone_ms, gone_seq      # the largest ID that was deleted
    cdef Buf lp                 # the open node
    cdef int64_t live, deleted, width
    cdef u64 live_bytes         # of the element that counts live entries
    cdef u64 element_count
    cdef Buf names              # elements of the node's field names, in canonical form
    cdef u64 names_raw_bytes
    cdef readonly u64 version   # counts how often the names may have become others
    # The very objects that were the names last, kept alive here; they count for one version alone.
    cdef PyObject** keys
    cdef int64_t keys_count, keys_room
    cdef u64 keys_version
    # What the lane knows of it: when it was learned, whether the record cache has less, its bucket.
    cdef u64 epoch
    cdef bint dirty
    cdef uint32_t bucket
    cdef dict groups            # by name, of this epoch or an older one

    def __cinit__(self):
        self.groups = {}

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.keys_room):
            Py_XDECREF(self.keys[i])
        free(self.keys)
        buf_free(&self.lp)
        buf_free(&self.names)

    def learn(self, record not None, node):
        """Take over a `StreamRecord` and its `OpenNode`; whether plain adds can go on from them.

        Attributes may run Python, and other threads encode entries meanwhile, by the names that are
        here. These become others in one step, with the version, in which no Python runs.
        """
        cdef bytes lp
        cdef int code
        self.usable = self.known = False
        if record.expires_ms or not record.length:
            return False
        self.number = record.number
        self.length = record.length
        self.added = record.entries_added
        self.last_ms, self.last_seq = record.last
        if record.open_version:
            self.master_ms, self.master_seq = record.open_master
        else:                   # all of it lies in sealed nodes
            self.master_ms = self.master_seq = ~<u64>0
        self.first_ms, self.first_seq = record.first
        self.gone_ms, self.gone_seq = record.max_deleted
        self.position = record.position
        self.known = True
        if not record.open_version or node is None or node.runs or node.lp is None:
            return False
        lp = node.lp
        if size_of(lp) > PLAIN_BYTES_MAX:
            return False
        self.version += 1
        self.lp.size = 0
        code = buf_add(&self.lp, data_of(lp), size_of(lp))
        if code == OK:
            code = self.read_head()
        if code == E_MEMORY:
            fail(code)
        self.usable = code == OK and self.element_count < ELEMENTS_MAX
        return self.usable

    cdef void know(self, dict fields) noexcept:
        """Keep the objects that are the node's names now. All are exact text, bytes or integers, so
        freeing those that were kept before runs no Python; without memory none is kept."""
        cdef PyObject* key
        cdef PyObject* before
        cdef PyObject** grown
        cdef Py_ssize_t at = 0
        cdef int64_t i = 0, width = PyDict_Size(fields)
        self.keys_count = 0
        if width > self.keys_room:
            grown = <PyObject**>realloc(self.keys, width * sizeof(PyObject*))
            if grown == NULL:
                return
            memset(grown + self.keys_room, 0, (width - self.keys_room) * sizeof(PyObject*))
            self.keys, self.keys_room = grown, width
        while PyDict_Next(fields, &at, &key, NULL):
            before = self.keys[i]
            Py_INCREF(key)
            self.keys[i] = key
            Py_XDECREF(before)
            i += 1
        self.keys_count, self.keys_version = i, self.version

    cdef int read_head(self) noexcept:
        """What the node's head says; names are kept in the form that RowBatch gives them."""
        cdef Master m
        cdef Elem elem
        cdef u8 digits[20]
        cdef u64 at
        cdef int64_t i
        cdef int code = read_master(self.lp.data, self.lp.size, &m)
        if code != OK:
            return code
        self.live = m.live
        self.deleted = m.deleted
        self.width = m.width
        self.live_bytes = m.deleted_at - HEADER_BYTES
        self.element_count = little(self.lp.data + 4, 2)
        self.names.size = self.names_raw_bytes = 0
        at = m.fields_at
        for i in range(m.width):
            code = lp_read(self.lp.data, at, m.end, &elem)
            if code == OK:
                code = buf_elem(&self.names, &elem)
            if code != OK:
                return code
            self.names_raw_bytes += format_i64(elem.number, digits) if elem.is_int else elem.size
            at = elem.after
        return OK

    def give_back(self, record not None, node not None):
        """Put what it holds into a `StreamRecord` and an `OpenNode`, as applying the frames would."""
        lp = PyBytes_FromStringAndSize(<char*>self.lp.data, self.lp.size)
        last = ls_id(_StreamID, self.last_ms, self.last_seq)
        record.length = self.length
        record.entries_added = self.added
        record.last = last
        record.position = self.position
        node.lp = lp

    # -- an entry, before any lock -----------------------------------------------------------------
    cdef int encode(self, Row* row, dict fields) except -1:
        """Encode a dict's names and values; 0: they are not plain.

        Where the key objects are those of the entry before, they are compared by address alone.
        That is sound as no Python runs in here, not even a collection (no object is made): what is
        compared, and the objects that are kept of it, are of one version.
        """
        cdef PyObject* key
        cdef PyObject* item
        cdef Py_ssize_t at = 0, i = 0
        row.width = PyDict_Size(fields)
        row.same = False
        if not row.width:
            return 0
        if self.keys_count == row.width and self.keys_version == self.version:
            row.elements.size = 0
            row.raw_bytes = self.names_raw_bytes
            while PyDict_Next(fields, &at, &key, &item):
                if self.keys[i] != key:
                    break
                if not put_plain(<object>item, &row.elements, &row.raw_bytes):
                    return 0
                i += 1
            else:
                row.same = True
                return 1
        row.names.size = row.elements.size = row.raw_bytes = at = 0
        while PyDict_Next(fields, &at, &key, &item):
            if not put_plain(<object>key, &row.names, &row.raw_bytes):
                return 0
            if not put_plain(<object>item, &row.elements, &row.raw_bytes):
                return 0
        row.same = (row.names.size == self.names.size and row.width == self.width
                    and not memcmp(row.names.data, self.names.data, self.names.size))
        if row.same:
            self.know(fields)
            return 1
        row.elements.size = row.raw_bytes = at = 0
        while PyDict_Next(fields, &at, &key, &item):
            put_plain(<object>key, &row.elements, &row.raw_bytes)
            put_plain(<object>item, &row.elements, &row.raw_bytes)
        return 1

    # -- its frame, and what the frame does to the stream --------------------------------------------
    cdef bint has_room(self, const Row* row, const Limits* limits, const Ahead* ahead) noexcept nogil:
        """Whether the entry goes into the open node, as `pack` of the codec decides, and that stays
        a node which is kept whole. `ahead`: what has joined the node by then."""
        cdef u8 counter[INT_BYTES_MAX]
        cdef u64 size = self.lp.size
        if ahead.entries:
            size += ahead.bytes + put_int(counter, self.live + ahead.entries) - self.live_bytes
        if size + row.raw_bytes >= limits.bytes_max:
            return False
        if 0 < limits.entries_max <= self.live + self.deleted + ahead.entries:
            return False
        return (self.element_count + ahead.elements < ELEMENTS_MAX and row.width < ELEMENTS_MAX // 2
                and size + row.elements.size + 6 * INT_BYTES_MAX <= PLAIN_BYTES_MAX)

    cdef int put_frame(self, Buf* out, const Row* row, u64 ms, u64 seq, const Ahead* ahead,
                       Append* body) noexcept nogil:
        """Append an append frame but for its head, and take the memory that `grow` will need, for
        what is ahead of it, too."""
        cdef u8* p
        cdef u64 at = out.size
        cdef int64_t elements = row.width + 3 if row.same else 2 * row.width + 4
        if (buf_reserve(out, HEAD + APPEND_BODY + row.elements.size + 5 * INT_BYTES_MAX) != OK
                or buf_reserve(&self.lp, ahead.bytes + row.elements.size
                               + (6 + ahead.entries) * INT_BYTES_MAX) != OK):
            return E_MEMORY
        p = out.data + at + HEAD + APPEND_BODY
        p += put_int(p, SAME_FIELDS if row.same else 0)
        p += put_int(p, <int64_t>(ms - self.master_ms))
        p += put_int(p, <int64_t>(seq - self.master_seq))
        if not row.same:
            p += put_int(p, row.width)
        memcpy(p, row.elements.data, row.elements.size)
        p += row.elements.size
        p += put_int(p, elements)
        out.size = p - out.data
        body.stream = self.number
        body.ms = ms
        body.seq = seq
        body.entries = 1
        body.elements = <uint32_t>elements + 1
        put_body(out.data + at + HEAD, body)
        return OK

    cdef bint can_grow(self, u64 size, const Append* body) noexcept nogil:
        """Take the memory for `size` bytes of another's append; False: this stream is not plain any
        more, or there is none."""
        return (self.usable and self.lp.size + size + INT_BYTES_MAX <= PLAIN_BYTES_MAX
                and self.element_count + body.elements < ELEMENTS_MAX
                and buf_reserve(&self.lp, size + INT_BYTES_MAX) == OK)

    cdef void grow(self, const u8* data, u64 size, const Append* body, u64 position) noexcept nogil:
        """The entries of one append frame join the open node, in place; the record follows."""
        cdef u8 counter[INT_BYTES_MAX]
        cdef u64 width
        self.live += body.entries
        width = put_int(counter, self.live)
        if width != self.live_bytes:
            memmove(self.lp.data + HEADER_BYTES + width,
                    self.lp.data + HEADER_BYTES + self.live_bytes,
                    self.lp.size - HEADER_BYTES - self.live_bytes)
            self.lp.size += width - self.live_bytes
            self.live_bytes = width
        memcpy(self.lp.data + HEADER_BYTES, counter, width)
        memcpy(self.lp.data + self.lp.size - 1, data, size)
        self.lp.size += size
        self.lp.data[self.lp.size - 1] = END_BYTE
        self.element_count += body.elements
        put_32(self.lp.data, <uint32_t>self.lp.size)
        self.lp.data[4] = <u8>self.element_count
        self.lp.data[5] = <u8>(self.element_count >> 8)
        self.length += body.entries
        self.added += body.entries
        self.last_ms = body.ms
        self.last_seq = body.seq
        self.position = position

    # -- the same in steps, as one process writes and another one applies ----------------------------
    def frame(self, dict fields not None, u64 ms, u64 seq, u64 at, u64 commit, u64 durable_upto,
              uint32_t seed, u64 bytes_max, int64_t entries_max):
        """The append frame of one entry at position `at`; None if that is not plain."""
        cdef Row row
        cdef Append body
        cdef Limits limits
        cdef Ahead nothing
        cdef Buf out
        limits.bytes_max = bytes_max
        limits.entries_max = entries_max
        memset(&row, 0, sizeof(Row))
        memset(&nothing, 0, sizeof(Ahead))
        memset(&out, 0, sizeof(Buf))
        try:
            if not self.usable or not self.encode(&row, fields):
                return None
            if not self.has_room(&row, &limits, &nothing):
                return None
            fail(self.put_frame(&out, &row, ms, seq, &nothing, &body))
            put_head(out.data, at, out.size - HEAD, commit, durable_upto, seed, 0, True, KIND_APPEND)
            return PyBytes_FromStringAndSize(<char*>out.data, out.size)
        finally:
            buf_free(&row.names)
            buf_free(&row.elements)
            buf_free(&out)

    def apply(self, bytes frame not None, u64 at, uint32_t seed):
        """Let the commit of one append frame at position `at` count; False if it is not that, or
        not of this stream, and then nothing has changed."""
        cdef const u8* p = data_of(frame)
        cdef Append body
        cdef u64 size
        if not is_append(p, size_of(frame), &body, &size) or body.stream != self.number:
            return False
        if not ends_commit(p) or little(p + 24, 4):
            return False
        if frame_crc(p, at, size, seed) != little(p, 4):
            return False
        if not self.can_grow(size - APPEND_BODY, &body):
            return False
        self.grow(p + HEAD + APPEND_BODY, size - APPEND_BODY, &body, at)
        return True
