# The entries of nodes into columns, each looked at once. Pure twin: `ArrowBuilder.add` in arrow.py.
#
# Invariants: a node is added whole, or nothing of it.

from libc.stdlib cimport calloc

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


cdef class _Entries:
    """The columns, and what is added to them: a node whole, or nothing of it. Nothing here needs
    the interpreter's lock."""

    cdef Column* columns        # STREAM .. PAIR_ITEMS, then one a field column
    cdef Py_ssize_t total       # number of them
    cdef Py_ssize_t field_count
    cdef bint wanted[STANDARD]
    cdef bint of_ids            # any column of the ID or the stream is wanted
    cdef bint of_pairs          # the map or `pairs` is
    cdef u64 row_count
    cdef const u8* name         # of the stream, during a call
    cdef u64 name_size
    cdef u64 text_ms            # of the last ID that was made text: its ms, and that with a hyphen
    cdef u64 text_size
    cdef u8 text[24]
    cdef Buf field_elems        # Elem of the field columns' names
    cdef Buf reserved_elems     # Elem of the names of columns, without upper case; see `NameGuard`
    cdef Buf known_elems        # Elem of the fields that may have such a name
    cdef Buf items              # Elem of the entry's fields and values
    # Of the node's fields, kept while one node after the other has the same:
    cdef Buf shape              # their bytes
    cdef Buf master_elems       # Elem of each, while they are looked at
    cdef Buf slots              # int64 for each: which field column it goes to, or -1
    cdef Buf absent             # int64 of the field columns that none of them goes to
    cdef Column key_texts       # they as texts
    cdef Buf node_picks         # of repeated ones; see `pick_last`
    cdef bint misread_shape     # whether one of them would be taken for a column of another field
    cdef Buf entry_picks        # of the entry
    # Whether the map has children of its own. It shares those of `pairs`, if both are wanted, until
    # an entry repeats a field.
    cdef bint own_map
    cdef bint own_map_mark

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.total if self.columns != NULL else 0):
            buf_free(&self.columns[i].data)
            buf_free(&self.columns[i].offsets)
            buf_free(&self.columns[i].valid)
        free(self.columns)
        buf_free(&self.field_elems)
        buf_free(&self.reserved_elems)
        buf_free(&self.known_elems)
        buf_free(&self.items)
        buf_free(&self.shape)
        buf_free(&self.master_elems)
        buf_free(&self.slots)
        buf_free(&self.absent)
        buf_free(&self.key_texts.data)
        buf_free(&self.key_texts.offsets)
        buf_free(&self.node_picks)
        buf_free(&self.entry_picks)

    @cython.final
    cdef u64 byte_count(self) noexcept nogil:
        cdef u64 total = 0
        cdef Py_ssize_t i
        for i in range(self.total):
            total += self.columns[i].data.size + self.columns[i].offsets.size - 4
        return total

    @cython.final
    cdef void mark(self) noexcept nogil:
        cdef Py_ssize_t i
        self.own_map_mark = self.own_map
        for i in range(self.total):
            self.columns[i].data_mark = self.columns[i].data.size
            self.columns[i].offsets_mark = self.columns[i].offsets.size
            self.columns[i].valid_mark = self.columns[i].valid.size

    @cython.final
    cdef void take_back(self) noexcept nogil:
        cdef Py_ssize_t i
        self.own_map = self.own_map_mark
        for i in range(self.total):
            self.columns[i].data.size = self.columns[i].data_mark
            self.columns[i].offsets.size = self.columns[i].offsets_mark
            self.columns[i].valid.size = self.columns[i].valid_mark

    @cython.final
    cdef int add_node(self, const u8* p, u64 total, u64 master_ms, u64 master_seq,
                      const u8* vector, u64 vector_size, const Range* r) noexcept nogil:
        """Add what a node has in the range, or nothing and return why."""
        cdef u64 row = self.row_count
        cdef int code
        self.mark()
        code = self.add_entries(p, total, master_ms, master_seq, vector, vector_size, r, &row)
        if code == OK:
            self.row_count = row
        else:
            self.take_back()
        return code

    @cython.final
    cdef int add_entries(self, const u8* p, u64 total, u64 master_ms, u64 master_seq,
                         const u8* vector, u64 vector_size, const Range* r,
                         u64* row) noexcept nogil:
        cdef Master m
        cdef Entry e
        cdef u64 pos, ms = 0, seq = 0
        cdef bint values = self.of_pairs or self.field_count > 0, taken, beyond = False
        cdef int code = read_master(p, total, &m)
        if code == OK and values:
            code = self.begin_node(p, &m)
        if code != OK:
            return code
        e.ordinal = -1
        pos = m.first
        while pos < m.end and not beyond:
            e.ordinal += 1
            code = read_entry_head(p, pos, &m, &e)
            if code != OK:
                return code
            taken = is_live(&e, vector, vector_size)
            if taken:
                ms = master_ms + <u64>e.ms_diff
                seq = master_seq + <u64>e.seq_diff
                beyond = below(r.end_ms, r.end_seq, ms, seq)
                taken = not beyond and not below(ms, seq, r.start_ms, r.start_seq)
            if taken and values:
                code = self.add_items(p, &m, &e, row[0], &pos)
            else:
                code = skip_items(p, &m, &e, &pos)
            if code == OK:
                code = read_entry_tail(p, pos, &m, &e)
            if code == OK and taken:
                if self.of_ids:
                    code = self.add_id(ms, seq, row[0])
                row[0] += 1
            if code != OK:
                return code
            pos = e.after
        return OK

    @cython.final
    cdef int begin_node(self, const u8* p, const Master* m) noexcept nogil:
        """Prepare what the entries with the node's fields share, unless the last node's did."""
        cdef const u8* shape = p + m.width_at
        cdef u64 size = m.first - m.width_at
        cdef int code
        if self.shape.size == size and memcmp(self.shape.data, shape, size) == 0:
            return OK
        self.shape.size = 0
        code = read_elems(p, m.fields_at, m.end, m.width, &self.master_elems)
        if code == OK:
            code = self.begin_slots(m.width)
            self.misread_shape = self.misread(<const Elem*>self.master_elems.data, m.width, 1)
        if code == OK and self.of_pairs:
            code = self.begin_keys(m.width)
        if code == OK:
            code = buf_add(&self.shape, shape, size)
        return code

    @cython.final
    cdef int begin_slots(self, int64_t width) noexcept nogil:
        """Find the field column of each of the node's fields: of a repeated one, only the last
        has it."""
        cdef const Elem* fields = <const Elem*>self.master_elems.data
        cdef const Elem* wanted = <const Elem*>self.field_elems.data
        cdef int64_t* slots
        cdef int64_t i, pick, column
        self.slots.size = self.absent.size = 0
        if buf_reserve(&self.slots, <u64>width * sizeof(int64_t)) != OK:
            return E_MEMORY
        self.slots.size = <u64>width * sizeof(int64_t)
        slots = <int64_t*>self.slots.data
        for i in range(width):
            slots[i] = -1
        for column in range(self.field_count):
            pick = -1
            for i in range(width):
                if same_elem(fields + i, wanted + column):
                    pick = i
            if pick >= 0:
                slots[pick] = column
            elif buf_add(&self.absent, &column, sizeof(int64_t)) != OK:
                return E_MEMORY
        return OK

    @cython.final
    cdef bint misread(self, const Elem* fields, int64_t count, int64_t step) noexcept nogil:
        """Whether one of some fields would be taken for a column of another field."""
        cdef const Elem* reserved = <const Elem*>self.reserved_elems.data
        cdef const Elem* known = <const Elem*>self.known_elems.data
        cdef u64 names = self.reserved_elems.size // sizeof(Elem)
        cdef u64 j, k
        cdef int64_t i
        cdef bint other
        for i in range(count if names else 0):
            for j in range(names):
                if not folds_to(fields + i * step, reserved + j):
                    continue
                other = True
                for k in range(self.known_elems.size // sizeof(Elem)):
                    if same_elem(fields + i * step, known + k):
                        other = False
                if other:
                    return True
        return False

    @cython.final
    cdef int begin_keys(self, int64_t width) noexcept nogil:
        """Make the node's fields texts."""
        cdef const Elem* fields = <const Elem*>self.master_elems.data
        cdef int32_t zero = 0
        cdef int64_t i
        cdef int code
        self.key_texts.data.size = self.key_texts.offsets.size = 0
        code = buf_add(&self.key_texts.offsets, &zero, 4)
        for i in range(width):
            if code == OK:
                code = add_elem(&self.key_texts, fields + i)
        if code == OK and self.wanted[FIELDS]:
            code = pick_last(&self.key_texts, 0, &self.node_picks)
        return code

    @cython.final
    cdef int add_id(self, u64 ms, u64 seq, u64 row) noexcept nogil:
        cdef u8 text[48]
        cdef u64 size, i
        cdef int code = OK
        if self.wanted[STREAM]:
            code = add_text(&self.columns[STREAM], self.name, self.name_size)
        if code == OK and self.wanted[ID]:
            if self.text_ms != ms or self.text_size == 0:
                self.text_ms = ms
                self.text_size = format_u64(ms, self.text)
                self.text[self.text_size] = 45
                self.text_size += 1
            memcpy(text, self.text, 24)
            size = self.text_size + format_u64(seq, text + self.text_size)
            code = add_text(&self.columns[ID], text, size)
        if code == OK and self.wanted[MS]:
            code = add_number(&self.columns[MS], ms, ms >> 63 == 0, row)
        if code == OK and self.wanted[SEQ]:
            code = add_number(&self.columns[SEQ], seq, seq >> 63 == 0, row)
        if code == OK and self.wanted[TS]:
            code = add_number(&self.columns[TS], ms * 1000, ms <= TS_MS_MAX, row)
        if code == OK and self.wanted[ID_KEY]:
            for i in range(8):
                text[i] = <u8>(ms >> (56 - 8 * i))
                text[8 + i] = <u8>(seq >> (56 - 8 * i))
            code = add_text(&self.columns[ID_KEY], text, 16)
        if code == OK and self.wanted[MS_EXACT]:
            code = add_number(&self.columns[MS_EXACT], ms, True, row)
        if code == OK and self.wanted[SEQ_EXACT]:
            code = add_number(&self.columns[SEQ_EXACT], seq, True, row)
        return code

    @cython.final
    cdef int add_items(self, const u8* p, const Master* m, Entry* e, u64 row,
                       u64* after) noexcept nogil:
        """Add the fields and values of an entry; where they end."""
        cdef int64_t items
        cdef u64 pos = e.body
        cdef int code
        if e.flags & SAME_FIELDS and self.misread_shape:
            return E_NAME
        # In one step, unless a field is repeated, or the map differs from `pairs`.
        if e.flags & SAME_FIELDS and not (self.wanted[FIELDS] and (
            self.node_picks.size or self.own_map and self.wanted[PAIRS]
        )):
            return self.add_same(p, m, e, row, after)
        items = e.pairs if e.flags & SAME_FIELDS else 2 * e.pairs
        code = read_elems(p, pos, m.end, items, &self.items)
        if code == OK and not e.flags & SAME_FIELDS:
            if self.misread(<const Elem*>self.items.data, e.pairs, 2):
                return E_NAME
        if code == OK:
            if items:
                pos = (<const Elem*>self.items.data)[items - 1].after
            after[0] = pos
            if self.of_pairs:
                code = self.add_pairs(e)
        if code == OK and self.field_count:
            code = self.add_fields(e, row)
        return code

    @cython.final
    cdef int add_same(self, const u8* p, const Master* m, Entry* e, u64 row,
                      u64* after) noexcept nogil:
        """Add the values of an entry with the node's fields: each is looked at once."""
        cdef const int64_t* slots = <const int64_t*>self.slots.data
        cdef const int64_t* absent = <const int64_t*>self.absent.data
        cdef const u8* stop = p + m.end
        cdef Column* fields = self.columns + FIRST_FIELD
        cdef Column* keys = self.columns + (PAIR_KEYS if self.wanted[PAIRS] else MAP_KEYS)
        cdef Column* values = keys + 1 if self.of_pairs else NULL
        cdef u64 pos = e.body, size
        cdef Elem elem
        cdef int64_t i
        cdef int code = OK
        for i in range(m.width):
            if slots[i] < 0 and values == NULL:
                code = lp_skip(p, pos, m.end, &pos)
                if code != OK:
                    return code
                continue
            elem.is_int = True
            if pos < m.end and p[pos] & 0xC0 == 0x80:
                size = p[pos] & 0x3F
                if size + 1 < m.end - pos and p[pos + 1 + size] == size + 1:
                    elem.is_int = False
                    elem.data = p + pos + 1
                    elem.size = size
                    elem.after = pos + size + 2
            if elem.is_int:
                code = lp_read(p, pos, m.end, &elem)
                if code != OK:
                    return code
            pos = elem.after
            if values != NULL:
                code = add_value(values, elem.data, elem.size, stop) if not elem.is_int else \
                    add_elem(values, &elem)
            if slots[i] >= 0 and code == OK:
                code = add_value(fields + slots[i], elem.data, elem.size, stop) \
                    if not elem.is_int else add_elem(fields + slots[i], &elem)
            if code != OK:
                return code
        for i in range(<int64_t>(self.absent.size // sizeof(int64_t))):
            code = add_null(fields + absent[i], row)
            if code != OK:
                return code
        after[0] = pos
        if values != NULL:
            code = self.add_master_keys(keys, m.width)
            if code == OK and self.wanted[PAIRS]:
                code = self.end_row(PAIRS, keys)
            if code == OK and self.wanted[FIELDS]:
                code = self.end_row(FIELDS, keys)
        return code

    @cython.final
    cdef int add_pairs(self, const Entry* e) noexcept nogil:
        """Add the entry's pairs to `pairs` and to the map; its items were read."""
        cdef Column* keys = self.columns + (PAIR_KEYS if self.wanted[PAIRS] else MAP_KEYS)
        cdef Column* values = keys + 1
        cdef u64 before = keys.offsets.size // 4 - 1
        cdef u64 keys_mark = keys.data.size
        cdef bint repeats = False
        cdef int code = OK
        if self.wanted[FIELDS]:
            if e.flags & SAME_FIELDS:
                repeats = self.node_picks.size > 0
            else:       # by their texts, which are taken back at once
                code = self.add_keys(keys, e)
                if code == OK:
                    code = pick_last(keys, before, &self.entry_picks)
                repeats = self.entry_picks.size > 0
                keys.data.size = keys_mark
                keys.offsets.size = 4 * (before + 1)
            if code == OK and repeats and not self.own_map:
                code = self.split_map()
        if code == OK and self.wanted[PAIRS]:
            code = self.add_keys(keys, e)
            if code == OK:
                code = self.add_values(values, e)
            if code == OK:
                code = self.end_row(PAIRS, keys)
        if code == OK and self.wanted[FIELDS]:
            if self.own_map:
                keys, values = self.columns + MAP_KEYS, self.columns + MAP_ITEMS
                if repeats:
                    code = self.add_last(keys, values, e)
                else:
                    code = self.add_keys(keys, e)
                    if code == OK:
                        code = self.add_values(values, e)
            if code == OK:
                code = self.end_row(FIELDS, keys)
        return code

    @cython.final
    cdef int end_row(self, int which, Column* keys) noexcept nogil:
        cdef int32_t count = <int32_t>(keys.offsets.size // 4 - 1)
        return buf_add(&self.columns[which].offsets, &count, 4)

    @cython.final
    cdef int add_keys(self, Column* keys, const Entry* e) noexcept nogil:
        cdef const Elem* items = <const Elem*>self.items.data
        cdef int64_t i
        cdef int code = OK
        if e.flags & SAME_FIELDS:
            return self.add_master_keys(keys, e.pairs)
        for i in range(e.pairs):
            code = add_elem(keys, items + 2 * i)
            if code != OK:
                break
        return code

    @cython.final
    cdef int add_values(self, Column* values, const Entry* e) noexcept nogil:
        cdef const Elem* items = <const Elem*>self.items.data
        cdef int64_t i
        cdef int code = OK
        for i in range(e.pairs):
            code = add_elem(values, items + (i if e.flags & SAME_FIELDS else 2 * i + 1))
            if code != OK:
                break
        return code

    @cython.final
    cdef int add_last(self, Column* keys, Column* values, const Entry* e) noexcept nogil:
        """Add each name once, where it comes first, with its last value."""
        cdef bint same = e.flags & SAME_FIELDS
        cdef const Elem* items = <const Elem*>self.items.data
        cdef const int32_t* texts = <const int32_t*>self.key_texts.offsets.data
        cdef const Buf* found = &self.node_picks if same else &self.entry_picks
        cdef const int64_t* picks = <const int64_t*>found.data
        cdef int64_t first, last
        cdef u64 i
        cdef int code = OK
        for i in range(found.size // 16):
            first, last = picks[2 * i], picks[2 * i + 1]
            if same:
                code = add_text(keys, self.key_texts.data.data + texts[first],
                                <u64>(texts[first + 1] - texts[first]))
            else:
                code = add_elem(keys, items + 2 * first)
            if code == OK:
                code = add_elem(values, items + (last if same else 2 * last + 1))
            if code != OK:
                break
        return code

    @cython.final
    cdef int split_map(self) noexcept nogil:
        """Give the map children of its own, which begin as those of `pairs` stand."""
        cdef int i, code = OK
        for i in range(2):
            if code == OK:
                code = copy_column(&self.columns[MAP_KEYS + i], &self.columns[PAIR_KEYS + i])
        self.own_map = True
        return code

    @cython.final
    cdef int add_master_keys(self, Column* keys, int64_t width) noexcept nogil:
        """Add the node's fields as keys: one copy, and their offsets."""
        cdef const int32_t* texts = <const int32_t*>self.key_texts.offsets.data
        cdef int32_t base = <int32_t>keys.data.size
        cdef int32_t* out
        cdef int64_t i
        if keys.data.size + self.key_texts.data.size > COLUMN_BYTES_MAX:
            return E_COLUMN
        if keys.offsets.size // 4 + <u64>width > COLUMN_BYTES_MAX:
            return E_COLUMN
        if buf_add(&keys.data, self.key_texts.data.data, self.key_texts.data.size) != OK:
            return E_MEMORY
        if buf_reserve(&keys.offsets, 4 * <u64>width) != OK:
            return E_MEMORY
        out = <int32_t*>(keys.offsets.data + keys.offsets.size)
        for i in range(width):
            out[i] = base + texts[i + 1]
        keys.offsets.size += 4 * <u64>width
        return OK

    @cython.final
    cdef int add_fields(self, const Entry* e, u64 row) noexcept nogil:
        """Add the entry's values of the named fields; its items were read."""
        cdef const Elem* items = <const Elem*>self.items.data
        cdef const Elem* wanted = <const Elem*>self.field_elems.data
        cdef const int64_t* slots = <const int64_t*>self.slots.data
        cdef Column* out
        cdef Py_ssize_t column
        cdef int64_t i, pick
        cdef int code
        for column in range(self.field_count):
            out = &self.columns[FIRST_FIELD + column]
            pick = -1
            for i in range(e.pairs):
                if e.flags & SAME_FIELDS:
                    if slots[i] == column:
                        pick = i
                elif same_elem(items + 2 * i, wanted + column):
                    pick = 2 * i + 1
            code = add_elem(out, items + pick) if pick >= 0 else add_null(out, row)
            if code != OK:
                return code
        return OK
