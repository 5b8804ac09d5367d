# Nodes to Arrow columns. Pure twin: arrow.py.

from libc.stdlib cimport calloc

from logstore.codec.arrow import arrow_type, check_columns

cdef u64 TS_MS_MAX = TIMESTAMP_MS_MAX


cdef enum:
    STREAM = 0
    ID = 1
    MS = 2
    SEQ = 3
    TS = 4
    FIELDS = 5          # only offsets; its children are the two that follow
    KEYS = 6
    ITEMS = 7
    FIRST_FIELD = 8


cdef class ArrowBuilder:
    """Nodes made into one pyarrow.RecordBatch; see `interface.ArrowBuilderFactory`."""

    cdef Column* columns        # STREAM .. ITEMS, then one a field column
    cdef Py_ssize_t total       # number of them
    cdef Py_ssize_t field_count
    cdef bint wanted[8]
    cdef tuple names
    cdef tuple field_names
    cdef list field_keys
    cdef bint binary
    cdef u64 row_count
    cdef Buf field_elems        # Elem of the field columns' names
    cdef Buf master_elems       # Elem of the node's fields
    cdef Buf items              # Elem of the entry's fields and values
    cdef Buf master_pick        # int64 a field column: which of the node's fields, or -1
    cdef Column key_texts       # the node's fields as texts

    def __cinit__(self, columns=ARROW_COLUMNS, field_columns=(), binary=False):
        cdef Py_ssize_t i
        cdef Elem elem
        check_columns(columns, field_columns)
        self.names = tuple(columns)
        self.field_names = tuple(field_columns)
        self.field_keys = [name.encode() for name in field_columns]
        self.field_count = len(self.field_names)
        self.binary = binary
        self.total = FIRST_FIELD + self.field_count
        self.columns = <Column*>calloc(self.total, sizeof(Column))
        if self.columns == NULL:
            raise MemoryError
        for i in range(6):
            self.wanted[i] = ARROW_COLUMNS[i] in self.names
        for key in self.field_keys:
            elem.is_int = False
            elem.data = data_of(key)
            elem.size = size_of(key)
            fail(buf_add(&self.field_elems, &elem, sizeof(Elem)))
        self.clear()

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.total if self.columns != NULL else 0):
            buf_free(&self.columns[i].data)
            buf_free(&self.columns[i].offsets)
            buf_free(&self.columns[i].valid)
        free(self.columns)
        buf_free(&self.field_elems)
        buf_free(&self.master_elems)
        buf_free(&self.items)
        buf_free(&self.master_pick)
        buf_free(&self.key_texts.data)
        buf_free(&self.key_texts.offsets)

    cdef int clear(self) except -1:
        cdef int32_t zero = 0
        cdef Py_ssize_t i
        self.row_count = 0
        for i in range(self.total):
            self.columns[i].data.size = self.columns[i].valid.size = 0
            self.columns[i].offsets.size = 0
            fail(buf_add(&self.columns[i].offsets, &zero, 4))
        return 0

    @property
    def rows(self):
        """Rows added since the last `finish`."""
        return self.row_count

    @property
    def nbytes(self):
        """Bytes of the columns so far; for a caller that bounds its batches."""
        cdef u64 total = 0
        cdef Py_ssize_t i
        for i in range(self.total):
            total += self.columns[i].data.size + self.columns[i].offsets.size - 4
        return total

    cdef void mark(self) noexcept:
        cdef Py_ssize_t i
        for i in range(self.total):
            self.columns[i].data_mark = self.columns[i].data.size
            self.columns[i].offsets_mark = self.columns[i].offsets.size
            self.columns[i].valid_mark = self.columns[i].valid.size

    cdef void take_back(self) noexcept:
        cdef Py_ssize_t i
        for i in range(self.total):
            self.columns[i].data.size = self.columns[i].data_mark
            self.columns[i].offsets.size = self.columns[i].offsets_mark
            self.columns[i].valid.size = self.columns[i].valid_mark

    def add(self, bytes stream_name not None, bytes lp not None, u64 master_ms, u64 master_seq,
            bytes vector not None=b"", start=ZERO_ID, end=MAX_ID):
        """Add the live entries with start <= ID <= end; return how many."""
        cdef Range r
        cdef u64 added
        cdef bytes name = stream_name
        set_range(&r, start, end)
        if not is_utf8(data_of(name), size_of(name)):
            name = name.decode("utf-8", "replace").encode()
        self.mark()
        try:
            added = self.add_node(name, lp, master_ms, master_seq, vector, &r)
        except:
            self.take_back()
            raise
        self.row_count += added
        return added

    cdef u64 add_node(self, bytes name, bytes lp, u64 master_ms, u64 master_seq, bytes vector,
                      const Range* r) except? 0:
        cdef const u8* p = data_of(lp)
        cdef Master m
        cdef Entry e
        cdef u64 pos, ms, seq, added = 0
        cdef bint values = self.wanted[FIELDS] or self.field_count > 0
        cdef int64_t items
        fail(read_master(p, size_of(lp), &m))
        if values:
            self.begin_node(p, &m)
        e.ordinal = -1
        pos = m.first
        while pos < m.end:
            e.ordinal += 1
            fail(read_entry(p, pos, &m, &e))
            pos = e.after
            if not is_live(&e, data_of(vector), size_of(vector)):
                continue
            ms = master_ms + <u64>e.ms_diff
            seq = master_seq + <u64>e.seq_diff
            if below(r.end_ms, r.end_seq, ms, seq):
                break
            if below(ms, seq, r.start_ms, r.start_seq):
                continue
            self.add_id(name, ms, seq)
            if values:
                items = e.pairs if e.flags & SAME_FIELDS else 2 * e.pairs
                fail(read_elems(p, e.body, m.end, items, &self.items))
                if self.wanted[FIELDS]:
                    self.add_map(&e)
                if self.field_count:
                    self.add_fields(&e)
            added += 1
        return added

    cdef int begin_node(self, const u8* p, const Master* m) except -1:
        """Prepare what the entries with the node's fields share."""
        cdef const Elem* fields
        cdef const Elem* wanted = <const Elem*>self.field_elems.data
        cdef int64_t i, pick
        cdef Py_ssize_t column
        cdef int32_t zero = 0
        fail(read_elems(p, m.fields_at, m.end, m.width, &self.master_elems))
        fields = <const Elem*>self.master_elems.data
        self.key_texts.data.size = self.key_texts.offsets.size = 0
        if self.wanted[FIELDS]:
            fail(buf_add(&self.key_texts.offsets, &zero, 4))
            for i in range(m.width):
                add_text(&self.key_texts, fields + i, False)
        self.master_pick.size = 0
        for column in range(self.field_count):
            pick = -1
            for i in range(m.width):
                if same_elem(fields + i, wanted + column):
                    pick = i
            fail(buf_add(&self.master_pick, &pick, sizeof(int64_t)))
        return 0

    cdef int add_id(self, bytes name, u64 ms, u64 seq) except -1:
        cdef Elem elem
        cdef u8 text[41]
        cdef u64 size
        elem.is_int = False
        if self.wanted[STREAM]:
            elem.data = data_of(name)
            elem.size = size_of(name)
            add_text(&self.columns[STREAM], &elem, True)    # it was made UTF-8 once, by `add`
        if self.wanted[ID]:
            size = format_u64(ms, text)
            text[size] = 45
            elem.data = text
            elem.size = size + 1 + format_u64(seq, text + size + 1)
            add_text(&self.columns[ID], &elem, True)
        if self.wanted[MS]:
            add_number(&self.columns[MS], ms, ms >> 63 == 0)
        if self.wanted[SEQ]:
            add_number(&self.columns[SEQ], seq, seq >> 63 == 0)
        if self.wanted[TS]:
            add_number(&self.columns[TS], ms * 1000, ms <= TS_MS_MAX)
        return 0

    cdef int add_map(self, const Entry* e) except -1:
        """Add the entry's pairs to the map; its items were read."""
        cdef const Elem* items = <const Elem*>self.items.data
        cdef Column* keys = &self.columns[KEYS]
        cdef Column* values = &self.columns[ITEMS]
        cdef int64_t i
        cdef int32_t count
        if e.flags & SAME_FIELDS:
            self.add_master_keys(e.pairs)
            for i in range(e.pairs):
                add_text(values, items + i, self.binary)
        else:
            for i in range(e.pairs):
                add_text(keys, items + 2 * i, False)
                add_text(values, items + 2 * i + 1, self.binary)
        count = <int32_t>(keys.offsets.size // 4 - 1)
        return fail(buf_add(&self.columns[FIELDS].offsets, &count, 4))

    cdef int add_master_keys(self, int64_t width) except -1:
        """Add the node's fields as keys: one copy, and their offsets."""
        cdef Column* keys = &self.columns[KEYS]
        cdef const int32_t* texts = <const int32_t*>self.key_texts.offsets.data
        cdef int32_t base = <int32_t>keys.data.size
        cdef int32_t* out
        cdef int64_t i
        if keys.data.size + self.key_texts.data.size > COLUMN_BYTES_MAX:
            fail(E_COLUMN)
        if keys.offsets.size // 4 + <u64>width > COLUMN_BYTES_MAX:
            fail(E_COLUMN)
        fail(buf_add(&keys.data, self.key_texts.data.data, self.key_texts.data.size))
        fail(buf_reserve(&keys.offsets, 4 * <u64>width))
        out = <int32_t*>(keys.offsets.data + keys.offsets.size)
        for i in range(width):
            out[i] = base + texts[i + 1]
        keys.offsets.size += 4 * <u64>width
        return 0

    cdef int add_fields(self, const Entry* e) except -1:
        """Add the entry's values of the named fields; its items were read."""
        cdef const Elem* items = <const Elem*>self.items.data
        cdef const Elem* wanted = <const Elem*>self.field_elems.data
        cdef const int64_t* picks = <const int64_t*>self.master_pick.data
        cdef Column* out
        cdef Py_ssize_t column
        cdef int64_t i, pick
        cdef u8 valid
        for column in range(self.field_count):
            out = &self.columns[FIRST_FIELD + column]
            pick = -1
            if e.flags & SAME_FIELDS:
                pick = picks[column]
            else:
                for i in range(e.pairs):
                    if same_elem(items + 2 * i, wanted + column):
                        pick = 2 * i + 1
            valid = pick >= 0
            fail(buf_add(&out.valid, &valid, 1))
            if pick >= 0:
                add_text(out, items + pick, self.binary)
            else:
                add_null(out)
        return 0

    cdef object map(self, object kind):
        import pyarrow as pa

        cdef u64 rows = self.columns[FIELDS].offsets.size // 4 - 1
        pairs = pa.StructArray.from_arrays(
            [
                texts(&self.columns[KEYS], kind.key_type),
                texts(&self.columns[ITEMS], kind.item_type),
            ],
            fields=[kind.key_field, kind.item_field],
        )
        offsets = take(&self.columns[FIELDS].offsets)
        return pa.Array.from_buffers(kind, rows, [None, offsets], 0, children=[pairs])

    cdef object column(self, str name):
        """The column as a pyarrow.Array; its buffers are empty afterwards."""
        cdef int which = ARROW_COLUMNS.index(name)
        kind = arrow_type(name, self.binary)
        if which == FIELDS:
            return self.map(kind)
        if which == STREAM or which == ID:
            return texts(&self.columns[which], kind)
        return numbers(&self.columns[which], kind)

    def finish(self):
        """The batch; the builder is empty again."""
        import pyarrow as pa

        cdef list arrays = []
        cdef Py_ssize_t i
        kind = arrow_type("", self.binary)
        try:
            if not self.names and not self.field_names:
                none = pa.array([{}] * <Py_ssize_t>self.row_count, pa.struct([]))
                return pa.RecordBatch.from_struct_array(none)
            for name in self.names:
                arrays.append(self.column(name))
            for i in range(self.field_count):
                arrays.append(texts(&self.columns[FIRST_FIELD + i], kind))
            return pa.RecordBatch.from_arrays(arrays, names=self.names + self.field_names)
        finally:
            self.clear()
