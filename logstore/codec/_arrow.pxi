# Nodes to Arrow columns: the builder. Pure twin: `ArrowBuilder` in arrow.py.
#
# Invariants: one thread at a time (`busy`); a node that fails adds no row.


cdef tuple STANDARD_NAMES = (*ARROW_COLUMNS, *EXACT_COLUMNS)


cdef int add_names(Buf* to, names) except -1:
    """Add an Elem for each name; the names outlive them."""
    cdef Elem elem
    for name in names:
        elem.is_int = False
        elem.data = data_of(name)
        elem.size = size_of(name)
        fail(buf_add(to, &elem, sizeof(Elem)))
    return 0


@cython.final
cdef class ArrowBuilder(_Entries):
    """Nodes made into one pyarrow.RecordBatch; see arrow.py."""

    cdef bint busy              # another thread is in a call
    cdef tuple names
    cdef tuple field_names
    cdef list field_keys
    cdef object guard           # the fields that may have a name that is reserved, or None
    cdef tuple guard_names      # what the Elems of the names lie in
    cdef list binary            # of each column

    def __cinit__(self, columns=ARROW_COLUMNS, field_columns=(), binary=False, guard=None):
        cdef Py_ssize_t i
        from logstore.codec.arrow_builder import binary_flags, check_columns

        check_columns(columns, field_columns)
        self.names = tuple(columns)
        self.field_names = tuple(field_columns)
        self.field_keys = [name.encode() for name in field_columns]
        self.field_count = len(self.field_names)
        self.binary = binary_flags(binary, len(self.names) + self.field_count)
        self.total = FIRST_FIELD + self.field_count
        self.columns = <Column*>calloc(self.total, sizeof(Column))
        if self.columns == NULL:
            raise MemoryError
        for i in range(STANDARD):
            self.wanted[i] = STANDARD_NAMES[i] in self.names
        self.of_pairs = self.wanted[FIELDS] or self.wanted[PAIRS]
        self.of_ids = len(self.names) > self.wanted[FIELDS] + self.wanted[PAIRS]
        for i in range(STANDARD):       # what is UTF-8 when it comes here, or is no text
            self.columns[i].binary = True
        for i, name in enumerate(self.names):
            if name == "fields":
                self.columns[MAP_ITEMS].binary = self.binary[i]
            elif name == "pairs":
                self.columns[PAIR_ITEMS].binary = self.binary[i]
        for i in range(self.field_count):
            self.columns[FIRST_FIELD + i].binary = self.binary[len(self.names) + i]
        add_names(&self.field_elems, self.field_keys)
        self.guard = guard
        if guard is not None:
            self.guard_names = tuple(guard.reserved), tuple(guard.known)
            add_names(&self.reserved_elems, self.guard_names[0])
            add_names(&self.known_elems, self.guard_names[1])
        self.clear()

    cdef int clear(self) except -1:
        cdef int32_t zero = 0
        cdef Py_ssize_t i
        self.row_count = 0
        self.own_map = (
            not self.wanted[PAIRS]
            or self.columns[MAP_ITEMS].binary != self.columns[PAIR_ITEMS].binary
        )
        for i in range(self.total):
            self.columns[i].data.size = self.columns[i].valid.size = 0
            self.columns[i].offsets.size = 0
            fail(buf_add(&self.columns[i].offsets, &zero, 4))
        return 0

    cdef int enter(self) except -1:
        """Refuse a second thread: it would write where this one does."""
        if self.busy:
            raise UsageError("an ArrowBuilder is for one thread at a time")
        self.busy = True
        return 0

    @property
    def rows(self):
        """Rows added since the last `finish`."""
        return self.row_count

    @property
    def nbytes(self):
        """Bytes of the columns so far; for a caller that bounds its batches."""
        return self.byte_count()

    cdef bytes begin(self, bytes stream_name):
        """Take the name of the stream; the object that must live while it is used."""
        if not is_utf8(data_of(stream_name), size_of(stream_name)):
            stream_name = stream_name.decode("utf-8", "replace").encode()
        self.name = data_of(stream_name)
        self.name_size = size_of(stream_name)
        return stream_name

    def add(self, bytes stream_name not None, bytes lp not None, u64 master_ms, u64 master_seq,
            bytes vector not None=b"", start=ZERO_ID, end=MAX_ID):
        """Add the live entries with start <= ID <= end; return how many."""
        cdef Range r
        cdef u64 before = self.row_count
        cdef int code
        set_range(&r, start, end)
        self.enter()
        try:
            name = self.begin(stream_name)
            code = self.add_node(data_of(lp), size_of(lp), master_ms, master_seq,
                                 data_of(vector), size_of(vector), &r)
        finally:
            self.busy = False
        if code == E_NAME:
            self.guard.refuse(stream_name, lp, master_ms, master_seq, vector, start, end)
        fail(code)
        return self.row_count - before

    def add_located(self, tuple section not None, bytes items not None, u64 at,
                    bytes data not None, u64 position, uint32_t seed, u64 rows_max, u64 bytes_max):
        """Add nodes by their locators; the place of the first that was not added."""
        cdef Range r
        cdef Stretch s
        cdef u64 end = size_of(items)
        cdef const u8* packed = data_of(items)
        cdef bytes stream_name
        stream_name, s.stream, start, last = section
        set_range(&r, start, last)
        if at > end:
            raise ValueError("items begin inside of the bytes")
        s.position, s.seed, s.rows_max, s.bytes_max = position, seed, rows_max, bytes_max
        self.enter()
        try:
            name = self.begin(stream_name)
            s.data, s.size = data_of(data), size_of(data)
            with nogil:
                at = self.add_run(packed, at, end, &s, &r)
        finally:
            self.busy = False
        return at

    cdef u64 add_run(
        self, const u8* items, u64 at, u64 end, const Stretch* s, const Range* r
    ) noexcept nogil:
        """Add nodes until one is not in the bytes, is doubtful, or has no room; where it stands."""
        cdef Located item
        cdef const u8* lp
        cdef u64 size, offset
        cdef bint counts = not (self.of_ids or self.of_pairs or self.field_count)
        while at < end and read_item(items, at, end, &item):
            if self.row_count and (
                self.row_count + item.live > s.rows_max or self.byte_count() >= s.bytes_max
            ):
                break
            if counts and is_inside(&item, r):
                self.row_count += item.live
                at = item.after
                continue
            lp, size = item.lp, item.size
            if item.position:
                # Of another segment, or of bytes before these: it is larger than any size.
                offset = item.position - s.position
                if offset > s.size or s.size - offset < FRAME_BYTES + item.size:
                    break
                if not is_its_frame(s.data + offset, &item, s.stream, s.seed):
                    break
                lp = s.data + offset + FRAME_BYTES + NODE_HEAD_BYTES
                size -= NODE_HEAD_BYTES
            if self.add_node(
                lp, size, item.ms, item.seq, item.vector, item.vector_bytes, r
            ) != OK:
                break
            at = item.after
        return at

    cdef tuple children(self, bint of_map):
        """Keys and values of `pairs`, or of the map, as arrays; their buffers are empty after."""
        import pyarrow as pa

        cdef Column* keys = self.columns + (MAP_KEYS if of_map else PAIR_KEYS)
        cdef bint binary = keys[1].binary
        return texts(keys, pa.string()), texts(keys + 1, pa.binary() if binary else pa.string())

    cdef dict nested(self):
        """The map and `pairs`, as far as they are wanted."""
        import pyarrow as pa

        from logstore.codec.arrow_builder import arrow_type

        cdef dict made = {}
        cdef u64 rows
        cdef int which
        children = None
        for which in (PAIRS, FIELDS):
            if not self.wanted[which]:
                continue
            name = STANDARD_NAMES[which]
            if children is None or self.own_map:
                children = self.children(which == FIELDS)
            kind = arrow_type(name, self.binary[self.names.index(name)])
            rows = self.columns[which].offsets.size // 4 - 1
            inner = kind.value_type if which == PAIRS else pa.struct(
                [kind.key_field, kind.item_field]
            )
            structs = pa.StructArray.from_arrays(list(children), fields=list(inner))
            offsets = take(&self.columns[which].offsets)
            made[name] = pa.Array.from_buffers(
                kind, rows, [None, offsets], 0, children=[structs]
            )
        return made

    cdef object column(self, str name):
        """The column as a pyarrow.Array; its buffers are empty afterwards."""
        cdef int which = STANDARD_NAMES.index(name)
        from logstore.codec.arrow_builder import arrow_type

        kind = arrow_type(name, False)
        if which == STREAM or which == ID or which == ID_KEY:
            return texts(&self.columns[which], kind)
        return numbers(&self.columns[which], kind)

    def finish(self):
        """The batch; the builder is empty again."""
        import pyarrow as pa

        from logstore.codec.arrow_builder import arrow_type

        cdef list arrays = []
        cdef Py_ssize_t i
        self.enter()
        try:
            if not self.names and not self.field_names:
                none = pa.Array.from_buffers(pa.struct([]), self.row_count, [None], 0)
                return pa.RecordBatch.from_struct_array(none)
            nested = self.nested()
            for name in self.names:
                arrays.append(nested[name] if name in nested else self.column(name))
            for i in range(self.field_count):
                kind = arrow_type("", self.binary[len(self.names) + i])
                arrays.append(texts(&self.columns[FIRST_FIELD + i], kind))
            return pa.RecordBatch.from_arrays(arrays, names=self.names + self.field_names)
        finally:
            self.busy = False
            self.clear()
