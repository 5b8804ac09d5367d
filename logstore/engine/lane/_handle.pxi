# A stream's record and open node, learned from the record cache and given back to it.

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void* PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    bint PyUnicode_CheckExact(object o)
    bint PyBytes_CheckExact(object o)
    bint PyLong_CheckExact(object o)
    bint PyFloat_CheckExact(object o)
    double PyFloat_AS_DOUBLE(object o)
    # As float.__repr__ has it; makes no object.
    char* PyOS_double_to_string(double number, char format, int precision, int flags,
                                int* kind) except NULL
    int Py_DTSF_ADD_DOT_0
    void PyMem_Free(void* p)
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

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030C0000
    #define ls_is_ready(text) PyUnicode_IS_READY(text)
    #else
    #define ls_is_ready(text) 1
    #endif
    /* Bytes of a text as UTF-8; -1: a part of a pair, which has none. Of Python's own ways to it
       some keep a copy in the text, and all make an object. */
    static int64_t ls_utf8_bytes(PyObject *text) {
        Py_ssize_t i, length;
        int64_t size = 0;
        int kind;
        const void *data;
        if (!ls_is_ready(text)) return -1;
        kind = PyUnicode_KIND(text);
        data = PyUnicode_DATA(text);
        length = PyUnicode_GET_LENGTH(text);
        for (i = 0; i < length; i++) {
            Py_UCS4 c = PyUnicode_READ(kind, data, i);
            if (c >= 0xD800 && c <= 0xDFFF) return -1;
            size += 1 + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
        }
        return size;
    }
    /* Write it there. */
    static void ls_put_utf8(PyObject *text, uint8_t *p) {
        Py_ssize_t i, length = PyUnicode_GET_LENGTH(text);
        int kind = PyUnicode_KIND(text);
        const void *data = PyUnicode_DATA(text);
        for (i = 0; i < length; i++) {
            Py_UCS4 c = PyUnicode_READ(kind, data, i);
            if (c < 0x80) {
                *p++ = (uint8_t)c;
                continue;
            }
            if (c < 0x800) {
                *p++ = (uint8_t)(0xC0 | c >> 6);
            } else {
                if (c < 0x10000) {
                    *p++ = (uint8_t)(0xE0 | c >> 12);
                } else {
                    *p++ = (uint8_t)(0xF0 | c >> 18);
                    *p++ = (uint8_t)(0x80 | (c >> 12 & 0x3F));
                }
                *p++ = (uint8_t)(0x80 | (c >> 6 & 0x3F));
            }
            *p++ = (uint8_t)(0x80 | (c & 0x3F));
        }
    }
    """
    int64_t ls_utf8_bytes(object text) noexcept
    void ls_put_utf8(object text, uint8_t* p) noexcept

cdef enum:
    HANDLE_BYTES = 1024         # of memory that a handle takes beside its node, about
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


cdef int put_utf8(object text, Buf* out, u64* raw_bytes) except -1:
    """As `put_plain`, of text beyond ASCII."""
    cdef int64_t size = ls_utf8_bytes(text)
    cdef u8* there
    if size < 0:
        return 0
    raw_bytes[0] += size
    if raw_bytes[0] > PLAIN_BYTES_MAX:
        return 0
    fail(buf_reserve(out, 2 * size + FRAME_BYTES_MAX))
    there = out.data + out.size + size + FRAME_BYTES_MAX    # behind where its element ends
    ls_put_utf8(text, there)
    out.size += put_text(out.data + out.size, there, size)
    return 1


cdef int put_bytes(object value, Buf* out, u64* raw_bytes) except -1:
    """As `put_plain`, of what is to be bytes."""
    return put_plain(value, out, raw_bytes, True) if PyBytes_CheckExact(value) else 0


cdef int put_float(double number, Buf* out, u64* raw_bytes) except -1:
    """As `put_plain`, of a float."""
    cdef char* digits = PyOS_double_to_string(number, 114, 0, Py_DTSF_ADD_DOT_0, NULL)
    cdef u64 size = strlen(digits)
    cdef int code = buf_text(out, <const u8*>digits, size)
    PyMem_Free(digits)
    fail(code)
    raw_bytes[0] += size
    return 1


cdef int put_plain(object value, Buf* out, u64* raw_bytes, bint ascii) except -1:
    """Append a name or value as an element, as RowBatch does; 0: it is not plain. `ascii`: text
    beyond it is stored otherwise than as UTF-8."""
    cdef int overflow = 0
    cdef int64_t number
    cdef u64 size
    cdef const u8* text
    cdef u8 digits[20]
    if PyUnicode_CheckExact(value):
        if not PyUnicode_IS_COMPACT_ASCII(value):
            return 0 if ascii else put_utf8(value, out, raw_bytes)
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
    elif PyFloat_CheckExact(value):
        return put_float(PyFloat_AS_DOUBLE(value), out, raw_bytes)
    else:
        return 0
    raw_bytes[0] += size
    if raw_bytes[0] > PLAIN_BYTES_MAX:
        return 0
    fail(buf_text(out, text, size))
    return 1


cdef int put_all(object fields, Buf* names, Buf* values, u64* raw_bytes, bint ascii) except -1:
    """Append names and values of a dict, or of a tuple of bytes by turns, each to its own end,
    which may be the same for both; 0: there are none, or one is not plain. `ascii`: as
    `put_plain`."""
    cdef PyObject* key
    cdef PyObject* item
    cdef Py_ssize_t i, at = 0
    if PyTuple_CheckExact(fields):
        if not PyTuple_GET_SIZE(fields) or PyTuple_GET_SIZE(fields) & 1:
            return 0
        for i in range(PyTuple_GET_SIZE(fields)):
            if not put_bytes(<object>PyTuple_GET_ITEM(fields, i), values if i & 1 else names,
                             raw_bytes):
                return 0
        return 1
    while PyDict_Next(fields, &at, &key, &item):
        if not put_plain(<object>key, names, raw_bytes, ascii):
            return 0
        if not put_plain(<object>item, values, raw_bytes, ascii):
            return 0
    return at > 0




cdef class Handle:
    """A stream as plain adds need it: numbers of its record, and its open node."""

    cdef readonly u64 number
    cdef readonly bint usable   # plain adds can be decided from what is here
    cdef bint known             # the numbers of the record are here
    cdef u64 length, added, last_ms, last_seq, position
    cdef u64 master_ms, master_seq  # of the open node; above all others without one
    cdef u64 began_ms, began_seq    # of the last one that there was
    cdef u64 first_ms, first_seq    # the first entry
    cdef u64 gone_ms, gone_seq      # the largest ID that was deleted
    cdef u64 nodes, node_bytes      # sealed ones
    cdef u64 open_version
    cdef u64 schema_at          # position of the frame of its schema; 0: it has none
    cdef bytes name
    cdef bint absent            # when it was asked last there was no stream of the name
    cdef bint knows_head            # the first of them was looked up:
    cdef int64_t head_live          # its live entries
    cdef u64 head_ms, head_seq      # and its last ID
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
    # What the lane knows of it: when it was learned (0: it is not so any more), whether the record
    # cache has less, its bucket.
    cdef u64 epoch
    cdef bint dirty
    cdef bint used              # since it was asked last whether it may be given up
    cdef u64 counted            # bytes, in what the lane holds
    cdef uint32_t bucket
    cdef dict groups            # by name, of this epoch or an older one
    # What the record cache has not:
    cdef bint created           # the stream itself
    cdef Buf seals              # nodes that were sealed
    cdef Buf marks              # tombstones of sealed nodes

    def __cinit__(self):
        self.groups = {}

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.keys_room):
            Py_XDECREF(self.keys[i])
        free(self.keys)
        buf_free(&self.lp)
        buf_free(&self.names)
        buf_free(&self.seals)
        buf_free(&self.marks)

    def learn(self, record not None, node):
        """Take over a `StreamRecord` and its `OpenNode`; whether plain adds can go on from them.

        Attributes may run Python, and other threads encode entries meanwhile, by the names that are
        here. These become others in one step, with the version, in which no Python runs.
        """
        cdef bytes lp
        cdef int code
        self.usable = self.known = False
        self.owe_nothing()
        if record.expires_ms or not record.length:
            return False
        self.number = record.number
        self.length = record.length
        self.added = record.entries_added
        self.last_ms, self.last_seq = record.last
        self.drop_open()
        self.began_ms, self.began_seq = record.open_master
        if record.open_version:
            self.master_ms, self.master_seq = self.began_ms, self.began_seq
        self.first_ms, self.first_seq = record.first
        self.gone_ms, self.gone_seq = record.max_deleted
        self.position = record.position
        self.nodes, self.node_bytes = record.nodes, record.node_bytes
        self.open_version = record.open_version
        self.schema_at = record.schema_at
        self.name = record.name
        self.knows_head = False
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

    cdef int read_head(self) noexcept nogil:
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

    cdef u64 held_bytes(self) noexcept nogil:
        """Memory that it takes, about."""
        return (HANDLE_BYTES + self.lp.room + self.names.room + self.seals.room + self.marks.room
                + self.keys_room * sizeof(PyObject*))

    cdef tuple whole(self):
        """A `StreamRecord` and an `OpenNode` of what it holds; None for a node that it does not
        hold."""
        record = _StreamRecord(self.number, self.name)
        node = _OpenNode(b"") if self.usable else None
        record.nodes, record.node_bytes = self.nodes, self.node_bytes
        record.schema_at = self.schema_at
        record.open_master = ls_id(_StreamID, self.began_ms, self.began_seq)
        self.give_back(record, node)
        return record, node

    def give_back(self, record not None, node):
        """Put what it holds into a `StreamRecord` and an `OpenNode`, as applying the frames
        would."""
        cdef u64 length = self.length, added = self.added, position = self.position
        cdef u64 nodes = self.nodes, node_bytes = self.node_bytes, version = self.open_version
        lp = None if node is None else PyBytes_FromStringAndSize(<char*>self.lp.data, self.lp.size)
        first = ls_id(_StreamID, self.first_ms, self.first_seq)
        gone = ls_id(_StreamID, self.gone_ms, self.gone_seq)
        last = ls_id(_StreamID, self.last_ms, self.last_seq)
        if version:     # or no node can have begun
            record.open_master = ls_id(_StreamID, self.master_ms, self.master_seq)
            record.nodes, record.node_bytes, record.open_version = nodes, node_bytes, version
        record.length, record.entries_added, record.position = length, added, position
        record.first, record.max_deleted, record.last = first, gone, last
        if node is not None:
            node.lp = lp

    cdef void owe_nothing(self) noexcept nogil:
        """Others have it as it is here."""
        self.created = False
        self.seals.size = self.marks.size = 0

    # -- a node that begins ------------------------------------------------------------------------
    cdef void create(self, u64 number, bytes name, u64 position) noexcept:
        """Be the stream that a frame makes, without an entry."""
        self.number, self.name, self.position, self.schema_at = number, name, position, 0
        self.length = self.added = self.last_ms = self.last_seq = self.first_ms = self.first_seq = 0
        self.gone_ms = self.gone_seq = self.nodes = self.node_bytes = 0
        self.began_ms = self.began_seq = 0
        self.knows_head = self.absent = False
        self.drop_open()
        self.owe_nothing()
        self.known = self.created = True

    cdef void drop_open(self) noexcept nogil:
        """All of it lies in sealed nodes."""
        self.usable = False
        self.open_version = 0
        self.master_ms = self.master_seq = ~<u64>0

    cdef bint may_seal(self) noexcept nogil:
        """Take the memory to seal the open node; False: there is none."""
        return buf_reserve(&self.seals, SEAL_BYTES) == OK

    cdef void seal(self, const u8* body, u64 size, u64 position) noexcept nogil:
        """Be as the frame of a sealed node leaves it, which was the open one."""
        cdef u8* p = self.seals.data + self.seals.size
        memcpy(p, body + 8, 36)         # both IDs, and how many entries live
        put_64(p + 36, position)
        put_64(p + 44, size)
        self.seals.size += SEAL_BYTES
        if not self.nodes:
            self.knows_head, self.head_live = True, self.live
            self.head_ms, self.head_seq = little(body + 24, 8), little(body + 32, 8)
        self.nodes += 1
        self.node_bytes += size
        self.position = position
        self.drop_open()

    cdef bint may_begin(self, u64 size, u64 names_bytes, u64 elements) noexcept nogil:
        """Take the memory for an open node of so many bytes; False: it is not held here, or there
        is none."""
        return (size <= PLAIN_BYTES_MAX and elements < ELEMENTS_MAX
                and buf_reserve(&self.lp, size + INT_BYTES_MAX) == OK
                and buf_reserve(&self.names, names_bytes + FRAME_BYTES_MAX) == OK)

    cdef void begin(self, const u8* body, u64 size, u64 position) noexcept nogil:
        """Be as the frame of a new open node leaves it."""
        cdef u64 entries = little(body + 40, 4)
        self.began_ms, self.began_seq = little(body + 8, 8), little(body + 16, 8)
        self.master_ms, self.master_seq = self.began_ms, self.began_seq
        if not self.length:
            self.first_ms, self.first_seq = self.master_ms, self.master_seq
        self.length += entries
        self.added += entries
        self.last_ms, self.last_seq = little(body + 24, 8), little(body + 32, 8)
        self.open_version = self.position = position
        self.version += 1
        self.lp.size = size - NODE_BODY
        memcpy(self.lp.data, body + NODE_BODY, self.lp.size)
        self.usable = self.read_head() == OK

    cdef list sealed(self):
        """The nodes that were sealed."""
        cdef u64 at = 0
        cdef const u8* p
        cdef list made = []
        while at < self.seals.size:
            p = self.seals.data + at
            made.append(_SealedNode(
                self.number, _StreamID(little(p, 8), little(p + 8, 8)),
                _Locator(little(p + 36, 8), little(p + 44, 8), little(p + 32, 4),
                         _StreamID(little(p + 16, 8), little(p + 24, 8)))))
            at += SEAL_BYTES
        return made

    # -- deletes -----------------------------------------------------------------------------------
    cdef void state(self, const u8* body, u64 position) noexcept nogil:
        """Be as a frame says that states the record."""
        self.length, self.added = little(body + 8, 8), little(body + 16, 8)
        self.last_ms, self.last_seq = little(body + 24, 8), little(body + 32, 8)
        self.first_ms, self.first_seq = little(body + 40, 8), little(body + 48, 8)
        self.gone_ms, self.gone_seq = little(body + 56, 8), little(body + 64, 8)
        self.position = position

    cdef void mark(self, const u8* body, uint32_t ordinal) noexcept nogil:
        """An entry of the sealed node that a frame names is deleted. There is room for it."""
        memcpy(self.marks.data + self.marks.size, body + 8, 24)
        put_32(self.marks.data + self.marks.size + 24, ordinal)
        self.marks.size += MARK_BYTES

    cdef void put_marked(self, bytes lp) noexcept:
        """The open node is this one now, in which entries are marked as deleted. There is room."""
        cdef Master m
        memcpy(self.lp.data, data_of(lp), size_of(lp))
        self.lp.size = size_of(lp)
        if read_master(self.lp.data, self.lp.size, &m) == OK:   # as it was before
            self.live, self.deleted = m.live, m.deleted
            self.live_bytes = m.deleted_at - HEADER_BYTES

    cdef int64_t marks_of(self, u64 version) noexcept nogil:
        """How many tombstones it keeps of a version of a sealed node."""
        cdef u64 at = 0
        cdef int64_t count = 0
        while at < self.marks.size:
            count += little(self.marks.data + at + 16, 8) == version
            at += MARK_BYTES
        return count

    cdef bytes marked_vector(self, u64 version, bytes vector):
        """What is deleted of a version of a sealed node, with what the record cache does not
        know."""
        cdef u64 at = 0
        cdef list ordinals = []
        while at < self.marks.size:
            if little(self.marks.data + at + 16, 8) == version:
                ordinals.append(little(self.marks.data + at + 24, 4))
            at += MARK_BYTES
        return _vector_with(vector, ordinals)

    cdef list tombstones(self):
        """These tombstones, as frames have them."""
        cdef u64 at = 0
        cdef const u8* p
        cdef list made = []
        while at < self.marks.size:
            p = self.marks.data + at
            made.append(_Tombstone(self.number, little(p, 8), little(p + 8, 8), little(p + 16, 8),
                                   (little(p + 24, 4),)))
            at += MARK_BYTES
        return made

    # -- an entry, before any lock -----------------------------------------------------------------
    cdef int encode(self, Row* row, object fields, bint ascii) except -1:
        """Encode names and values: of a dict, or of a tuple of bytes by turns; 0: they are not
        plain. `ascii`: as `put_plain` has it.

        Where the key objects are those of the entry before, they are compared by address alone.
        That is sound as no Python runs in here, not even a collection (no object is made): what is
        compared, and the objects that are kept of it, are of one version.
        """
        cdef PyObject* key
        cdef PyObject* item
        cdef Py_ssize_t at = 0, i = 0
        cdef bint flat = PyTuple_CheckExact(fields)
        if not flat:
            row.width = PyDict_Size(fields)
        if not flat and self.keys_count == row.width and self.keys_version == self.version:
            row.elements.size = 0
            row.raw_bytes = self.names_raw_bytes
            while PyDict_Next(fields, &at, &key, &item):
                if self.keys[i] != key:
                    break
                if not put_plain(<object>item, &row.elements, &row.raw_bytes, ascii):
                    return 0
                i += 1
            else:
                row.same = True
                return row.width > 0
        if not self.encode_split(row, fields, ascii):
            return 0
        row.same = (row.names.size == self.names.size and row.width == self.width
                    and not memcmp(row.names.data, self.names.data, self.names.size))
        if not row.same:
            row.elements.size = row.raw_bytes = 0
            return put_all(fields, &row.elements, &row.elements, &row.raw_bytes, ascii)
        if not flat:
            self.know(<dict>fields)
        return 1

    cdef int encode_split(self, Row* row, object fields, bint ascii) except -1:
        """As `encode`, with names and values apart: so they stand where a node begins."""
        row.names.size = row.elements.size = row.raw_bytes = 0
        row.same = False
        row.width = (PyTuple_GET_SIZE(fields) // 2 if PyTuple_CheckExact(fields)
                     else PyDict_Size(fields))
        return put_all(fields, &row.names, &row.elements, &row.raw_bytes, ascii)

    # -- its frame, and what the frame does to the stream ------------------------------------------
    cdef bint has_room(self, const Row* row, const Limits* limits,
                       const Ahead* ahead) noexcept nogil:
        """Whether the entry goes into the open node, as `pack` of the codec decides, and that stays
        a node which is kept whole. `ahead`: what has joined the node by then."""
        cdef u8 counter[INT_BYTES_MAX]
        cdef u64 size = self.lp.size
        if ahead.entries:
            size += ahead.bytes + put_int(counter, self.live + ahead.entries) - self.live_bytes
        if is_full(size + row.raw_bytes, self.live + self.deleted + ahead.entries,
                   limits.bytes_max, limits.entries_max):
            return False
        return (self.element_count + ahead.elements < ELEMENTS_MAX and row.width < ELEMENTS_MAX // 2
                and size + row.elements.size + 6 * INT_BYTES_MAX <= PLAIN_BYTES_MAX)

    cdef int put_entry(self, Buf* out, u64 at, const Row* row, u64 ms, u64 seq, const Ahead* ahead,
                       Append* body) noexcept nogil:
        """Put an entry at the end of the append frame that begins at `at`, which has no head yet,
        and take the memory that `grow` will need, for what is ahead of the entry, too."""
        cdef u8* p
        if (buf_reserve(out, HEAD + APPEND_BODY + row.elements.size + 5 * INT_BYTES_MAX) != OK
                or buf_reserve(&self.lp, ahead.bytes + row.elements.size
                               + (6 + ahead.entries) * INT_BYTES_MAX) != OK):
            return E_MEMORY
        if out.size == at:
            body.stream, body.entries, body.elements = self.number, 0, 0
            out.size += HEAD + APPEND_BODY
        p = out.data + out.size
        p += put_entry_head(p, row.same, ms - self.master_ms, seq - self.master_seq, row.width)
        memcpy(p, row.elements.data, row.elements.size)
        p += row.elements.size
        p += put_entry_tail(p, row.same, row.width)
        out.size = p - out.data
        body.ms = ms
        body.seq = seq
        body.entries += 1
        body.elements += <uint32_t>entry_elements(row.same, row.width) + 1
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

    # -- the same in steps, as one process writes and another one applies --------------------------
    def frame(self, fields not None, u64 ms, u64 seq, u64 at, u64 commit, u64 durable_upto,
              uint32_t seed, u64 bytes_max, int64_t entries_max):
        """The append frame of one entry at position `at`; None if that is not plain."""
        if type(fields) is not dict and type(fields) is not tuple:
            raise TypeError("the fields of an entry are a dict, or a tuple of bytes")
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
            if not self.usable or not self.encode(&row, fields, False):
                return None
            if not self.has_room(&row, &limits, &nothing):
                return None
            fail(self.put_entry(&out, 0, &row, ms, seq, &nothing, &body))
            put_head(out.data, at, out.size - HEAD, commit, durable_upto, seed, 0, True,
                     KIND_APPEND)
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
