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
    FIELDS = 5          # only offsets; its children are MAP_KEYS and MAP_ITEMS, or those of PAIRS
    ID_KEY = 6
    PAIRS = 7           # only offsets; its children are PAIR_KEYS and PAIR_ITEMS
    MS_EXACT = 8
    SEQ_EXACT = 9
    STANDARD = 10       # number of them
    MAP_KEYS = 10
    MAP_ITEMS = 11
    PAIR_KEYS = 12
    PAIR_ITEMS = 13
    FIRST_FIELD = 14

cdef tuple STANDARD_NAMES = (*ARROW_COLUMNS, *EXACT_COLUMNS)


cdef class ArrowBuilder:
    """Nodes made into one pyarrow.RecordBatch; see `interface.ArrowBuilderFactory`."""

    cdef Column* columns        # STREAM .. PAIR_ITEMS, then one a field column
    cdef Py_ssize_t total       # number of them
    cdef Py_ssize_t field_count
    cdef bint wanted[STANDARD]
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
    cdef Buf node_picks         # of repeated fields of the node; see `pick_last`
    cdef Buf entry_picks        # of the entry
    # Whether the map has children of its own. It shares those of `pairs`, if both are wanted, until
    # an entry repeats a field.
    cdef bint own_map
    cdef bint own_map_mark

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
        for i in range(STANDARD):
            self.wanted[i] = STANDARD_NAMES[i] in self.names
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
        buf_free(&self.node_picks)
        buf_free(&self.entry_picks)

    cdef int clear(self) except -1:
        cdef int32_t zero = 0
        cdef Py_ssize_t i
        self.row_count = 0
        self.own_map = not self.wanted[PAIRS]
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
        self.own_map_mark = self.own_map
        for i in range(self.total):
            self.columns[i].data_mark = self.columns[i].data.size
            self.columns[i].offsets_mark = self.columns[i].offsets.size
            self.columns[i].valid_mark = self.columns[i].valid.size

    cdef void take_back(self) noexcept:
        cdef Py_ssize_t i
        self.own_map = self.own_map_mark
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
        cdef bint pairs = self.wanted[FIELDS] or self.wanted[PAIRS]
        cdef bint values = pairs or self.field_count > 0
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
                if pairs:
                    self.add_pairs(&e)
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
        if self.wanted[FIELDS] or self.wanted[PAIRS]:
            fail(buf_add(&self.key_texts.offsets, &zero, 4))
            for i in range(m.width):
                add_text(&self.key_texts, fields + i, False)
            if self.wanted[FIELDS]:
                pick_last(&self.key_texts, 0, &self.node_picks)
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
        cdef u64 size, i
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
        if self.wanted[ID_KEY]:
            for i in range(8):
                text[i] = <u8>(ms >> (56 - 8 * i))
                text[8 + i] = <u8>(seq >> (56 - 8 * i))
            elem.data = text
            elem.size = 16
            add_text(&self.columns[ID_KEY], &elem, True)
        if self.wanted[MS_EXACT]:
            add_number(&self.columns[MS_EXACT], ms, True)
        if self.wanted[SEQ_EXACT]:
            add_number(&self.columns[SEQ_EXACT], seq, True)
        return 0

    cdef int add_pairs(self, const Entry* e) except -1:
        """Add the entry's pairs to `pairs` and to the map; its items were read."""
        cdef Column* keys = &self.columns[PAIR_KEYS if self.wanted[PAIRS] else MAP_KEYS]
        cdef Column* values = &self.columns[PAIR_ITEMS if self.wanted[PAIRS] else MAP_ITEMS]
        cdef u64 before = keys.offsets.size // 4 - 1
        cdef u64 keys_mark = keys.data.size
        cdef bint repeats = False
        if self.wanted[FIELDS]:
            if e.flags & SAME_FIELDS:
                repeats = self.node_picks.size > 0
            else:       # by their texts, which are taken back at once
                self.add_keys(keys, e)
                repeats = pick_last(keys, before, &self.entry_picks)
                keys.data.size = keys_mark
                keys.offsets.size = 4 * (before + 1)
            if repeats and not self.own_map:
                self.split_map()
        if self.wanted[PAIRS]:
            self.add_keys(keys, e)
            self.add_values(values, e)
            self.end_row(PAIRS, keys)
        if self.wanted[FIELDS]:
            if self.own_map:
                keys, values = &self.columns[MAP_KEYS], &self.columns[MAP_ITEMS]
                if repeats:
                    self.add_last(keys, values, e)
                else:
                    self.add_keys(keys, e)
                    self.add_values(values, e)
            self.end_row(FIELDS, keys)
        return 0

    cdef int end_row(self, int which, Column* keys) except -1:
        cdef int32_t count = <int32_t>(keys.offsets.size // 4 - 1)
        return fail(buf_add(&self.columns[which].offsets, &count, 4))

    cdef int add_keys(self, Column* keys, const Entry* e) except -1:
        cdef const Elem* items = <const Elem*>self.items.data
        cdef int64_t i
        if e.flags & SAME_FIELDS:
            return self.add_master_keys(keys, e.pairs)
        for i in range(e.pairs):
            add_text(keys, items + 2 * i, False)
        return 0

    cdef int add_values(self, Column* values, const Entry* e) except -1:
        cdef const Elem* items = <const Elem*>self.items.data
        cdef int64_t i
        for i in range(e.pairs):
            add_text(values, items + (i if e.flags & SAME_FIELDS else 2 * i + 1), self.binary)
        return 0

    cdef int add_last(self, Column* keys, Column* values, const Entry* e) except -1:
        """Add each name once, where it comes first, with its last value."""
        cdef bint same = e.flags & SAME_FIELDS
        cdef const Elem* names = <const Elem*>(self.master_elems.data if same else self.items.data)
        cdef const Elem* items = <const Elem*>self.items.data
        cdef const int64_t* picks
        cdef u64 i, count
        if same:
            picks, count = <const int64_t*>self.node_picks.data, self.node_picks.size // 16
        else:
            picks, count = <const int64_t*>self.entry_picks.data, self.entry_picks.size // 16
        for i in range(count):
            add_text(keys, names + (picks[2 * i] if same else 2 * picks[2 * i]), False)
            add_text(values, items + (picks[2 * i + 1] if same else 2 * picks[2 * i + 1] + 1),
                     self.binary)
        return 0

    cdef int split_map(self) except -1:
        """Give the map children of its own, which begin as those of `pairs` stand."""
        cdef int i
        for i in range(2):
            copy_column(&self.columns[MAP_KEYS + i], &self.columns[PAIR_KEYS + i])
        self.own_map = True
        return 0

    cdef int add_master_keys(self, Column* keys, int64_t width) except -1:
        """Add the node's fields as keys: one copy, and their offsets."""
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

    cdef tuple children(self, bint of_map, object binary):
        """Keys and values of `pairs`, or of the map, as arrays; their buffers are empty after."""
        import pyarrow as pa

        cdef int at = MAP_KEYS if of_map else PAIR_KEYS
        return texts(&self.columns[at], pa.string()), texts(&self.columns[at + 1], binary)

    cdef dict nested(self):
        """The map and `pairs`, as far as they are wanted."""
        import pyarrow as pa

        cdef dict made = {}
        cdef u64 rows
        cdef int which
        children = None
        values = arrow_type("", self.binary)
        for which in (PAIRS, FIELDS):
            if not self.wanted[which]:
                continue
            if children is None or self.own_map:
                children = self.children(which == FIELDS, values)
            kind = arrow_type(STANDARD_NAMES[which], self.binary)
            rows = self.columns[which].offsets.size // 4 - 1
            inner = kind.value_type if which == PAIRS else pa.struct(
                [kind.key_field, kind.item_field]
            )
            structs = pa.StructArray.from_arrays(list(children), fields=list(inner))
            offsets = take(&self.columns[which].offsets)
            made[STANDARD_NAMES[which]] = pa.Array.from_buffers(
                kind, rows, [None, offsets], 0, children=[structs]
            )
        return made

    cdef object column(self, str name):
        """The column as a pyarrow.Array; its buffers are empty afterwards."""
        cdef int which = STANDARD_NAMES.index(name)
        kind = arrow_type(name, self.binary)
        if which == STREAM or which == ID or which == ID_KEY:
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
            nested = self.nested()
            for name in self.names:
                arrays.append(nested[name] if name in nested else self.column(name))
            for i in range(self.field_count):
                arrays.append(texts(&self.columns[FIRST_FIELD + i], kind))
            return pa.RecordBatch.from_arrays(arrays, names=self.names + self.field_names)
        finally:
            self.clear()
