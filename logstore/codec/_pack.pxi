# Rows to nodes. Pure twin: `pack` in row_batch.py.
#
# Invariants: the nodes are those that one add after another would leave.

@cython.final
cdef class _Growing:
    """The node that rows are being added to: the open one, or a new one."""

    cdef Buf out            # new node: all behind its live counter; open node: what is added
    cdef u64 master_ms
    cdef u64 master_seq
    cdef u64 last_ms
    cdef u64 last_seq
    cdef u64 other_bytes    # the node's bytes but for its live counter's
    cdef u64 counter_bytes
    cdef int64_t live
    cdef int64_t deleted
    cdef int64_t added
    cdef u64 elements       # of what was added, in a new node of its master too
    cdef u64 own_shape      # a new node's
    cdef u64 shape          # shape looked at last ..
    cdef bint same          # .. and whether it is the node's fields

    def __dealloc__(self):
        buf_free(&self.out)

    cdef bint has_room(self, u64 raw_bytes, u64 max_bytes, int64_t max_entries) noexcept:
        return not is_full(self.counter_bytes + self.other_bytes + raw_bytes,
                           self.live + self.deleted, max_bytes, max_entries)

    cdef int begin(self, u64 ms, u64 seq, RowBatch batch, const RowRef* ref) except -1:
        """Make this a new node without an entry, for the row's shape."""
        cdef const Shape* shape = <const Shape*>batch.shapes.data + ref.shape
        self.out.size = 0
        fail(buf_master_head(&self.out, shape.width))
        fail(buf_add(&self.out, batch.names.data + shape.at, shape.size))
        fail(buf_master_tail(&self.out))
        self.master_ms = ms
        self.master_seq = seq
        self.other_bytes = HEADER_BYTES + 1 + self.out.size
        self.counter_bytes = 2
        self.live = self.deleted = self.added = 0
        self.elements = <u64>master_elements(shape.width)
        self.own_shape = self.shape = ref.shape
        self.same = True
        return 0

    cdef int add(self, u64 ms, u64 seq, RowBatch batch, const RowRef* ref,
                 u64 values_bytes) except -1:
        """Add one row; self.same and self.shape are set for it."""
        cdef const Shape* shape = <const Shape*>batch.shapes.data + ref.shape
        cdef u64 before = self.out.size
        fail(buf_room(&self.out, values_bytes + shape.size + 5 * INT_BYTES_MAX))
        cdef u8* out = self.out.data + before
        out += put_entry_head(out, self.same, ms - self.master_ms, seq - self.master_seq,
                              shape.width)
        if self.same:
            copy_few(out, batch.values.data + ref.at, values_bytes)
            out += values_bytes
        else:
            out += interleave(out, batch.names.data + shape.at, batch.values.data + ref.at,
                              shape.width)
        out += put_entry_tail(out, self.same, shape.width)
        self.elements += <u64>entry_elements(self.same, shape.width) + 1
        self.out.size = out - self.out.data
        self.other_bytes += self.out.size - before
        self.live += 1
        self.added += 1
        self.counter_bytes = int_bytes(self.live)
        self.last_ms = ms
        self.last_seq = seq
        return 0

    cdef object finish(self):
        """The new node."""
        cdef u8 counter[10]
        cdef u64 width = put_int(counter, self.live)
        cdef bytes lp = lp_finish(self.elements, counter, width, self.out.data, self.out.size,
                                  NULL, 0)
        return PackedNode(self.master_ms, self.master_seq, self.last_ms, self.last_seq,
                          self.live, lp)


cdef inline u64 element_bytes(const u8* p) noexcept nogil:
    """Bytes of an element that we wrote ourselves, with its backlen."""
    cdef u64 size
    if p[0] < 0x80:
        return 2
    if p[0] < 0xC0:
        size = 1 + (p[0] & 0x3F)
    elif p[0] < 0xE0:
        return 3
    elif p[0] < 0xF0:
        size = 2 + (<u64>(p[0] & 0x0F) << 8 | p[1])
    elif p[0] == 0xF0:
        size = 5 + little(p + 1, 4)
    else:
        size = 9 if p[0] == 0xF4 else p[0] - 0xF1 + 3
    return size + backlen_bytes(size)


cdef u64 interleave(u8* out, const u8* names, const u8* values, int64_t width) noexcept nogil:
    """Write name, value, name, value, ..; how many bytes."""
    cdef u64 written = 0, size
    cdef int64_t i
    for i in range(width):
        size = element_bytes(names)
        memcpy(out + written, names, size)
        written += size
        names += size
        size = element_bytes(values)
        memcpy(out + written, values, size)
        written += size
        values += size
    return written


cdef bint shape_is(RowBatch batch, u64 number, const Buf* fields) except -1:
    """True if the shape's names are these fields (Elem structs)."""
    cdef const Shape* shape = <const Shape*>batch.shapes.data + number
    cdef u64 pos = shape.at
    cdef Elem elem
    cdef int64_t i
    if <u64>shape.width * sizeof(Elem) != fields.size:
        return False
    for i in range(shape.width):
        fail(lp_read(batch.names.data, pos, batch.names.size, &elem))
        if not same_elem(&elem, <const Elem*>fields.data + i):
            return False
        pos = elem.after
    return True


@cython.final
cdef class _Ids:
    """The IDs of the rows, one after the other: consecutive ones, or as listed."""

    cdef list listed            # of ours: the caller's list may become shorter
    cdef GivenIDs given
    cdef u64 ms
    cdef u64 seq

    def __cinit__(self, ids, Py_ssize_t count):
        if isinstance(ids, GivenIDs) and len(ids) == count:
            self.given = ids
        elif len(ids) and isinstance(ids[0], int):
            self.ms, self.seq = ids
        else:
            self.listed = list(ids)
            if len(self.listed) != count:
                raise ValueError(f"{count} rows need as many IDs, not {len(self.listed)}")

    cdef inline int at(self, Py_ssize_t i) except -1:
        """Make ms and seq those of row i, the one behind the last."""
        if self.given is None and self.listed is None and i and self.seq != ~<u64>0:
            self.seq += 1
            return 0
        return self.any_at(i)

    cdef int any_at(self, Py_ssize_t i) except -1:
        cdef const Pair* pair
        if self.given is not None:
            pair = <const Pair*>self.given.pairs.data + i
            self.ms = pair.ms
            self.seq = pair.seq
        elif self.listed is not None:
            self.ms, self.seq = self.listed[i]
        elif i:
            self.seq += 1
            if self.seq == 0:
                self.ms += 1
                if self.ms == 0:
                    raise ValueError(
                        "no ID is left above 18446744073709551615-18446744073709551615"
                    )
        return 0


cdef class _Packing:
    """One call of `pack`."""

    cdef RowBatch batch
    cdef _Growing opened
    cdef _Growing new
    cdef Buf open_fields    # Elem
    cdef list nodes

    def __dealloc__(self):
        buf_free(&self.open_fields)

    cdef int open(self, bytes lp, u64 ms, u64 seq) except -1:
        """Begin with this open node."""
        cdef Master m
        fail(read_master(data_of(lp), size_of(lp), &m))
        fail(read_elems(data_of(lp), m.fields_at, m.end, m.width, &self.open_fields))
        self.opened = _Growing()
        self.opened.master_ms = ms
        self.opened.master_seq = seq
        self.opened.counter_bytes = m.deleted_at - HEADER_BYTES
        self.opened.other_bytes = size_of(lp) - self.opened.counter_bytes
        self.opened.live = m.live
        self.opened.deleted = m.deleted
        self.opened.shape = ~<u64>0
        return 0

    cdef int run(self, Py_ssize_t first, Py_ssize_t last, _Ids ids, u64 max_bytes,
                 int64_t max_entries) except -1:
        cdef _Growing growing = self.opened
        cdef RowBatch batch = self.batch
        cdef const RowRef* refs = <const RowRef*>batch.refs.data
        cdef u64 count = batch.refs.size // sizeof(RowRef), values_end
        cdef Py_ssize_t i
        for i in range(first, last):
            ids.at(i - first)
            values_end = refs[i + 1].at if <u64>i + 1 < count else batch.values.size
            if growing is None or not growing.has_room(refs[i].raw_bytes, max_bytes, max_entries):
                if self.new is None:
                    self.new = _Growing()
                else:
                    self.nodes.append(self.new.finish())
                growing = self.new
                growing.begin(ids.ms, ids.seq, batch, refs + i)
            elif refs[i].shape != growing.shape:
                growing.shape = refs[i].shape
                if growing is self.opened:
                    growing.same = shape_is(batch, growing.shape, &self.open_fields)
                else:
                    growing.same = growing.shape == growing.own_shape
            growing.add(ids.ms, ids.seq, batch, refs + i, values_end - refs[i].at)
        if self.new is not None:
            self.nodes.append(self.new.finish())
        return 0


def pack(RowBatch batch not None, Py_ssize_t first, Py_ssize_t last_exclusive, ids,
         bytes open_lp, u64 open_ms, u64 open_seq, node_max_bytes, node_max_entries):
    cdef _Packing packing = _Packing()
    cdef _Growing opened
    cdef Master m
    if not 0 <= first <= last_exclusive <= len(batch):
        raise ValueError(f"rows {first} to {last_exclusive} of {len(batch)} do not exist")
    packing.batch = batch
    packing.nodes = []
    if open_lp is not None:
        packing.open(open_lp, open_ms, open_seq)
    packing.run(first, last_exclusive, _Ids(ids, last_exclusive - first),
                limit_bytes(node_max_bytes), limit_entries(node_max_entries))
    opened = packing.opened
    if opened is None or opened.added == 0:
        return Packed(b"", 0, 0, open_lp, None, packing.nodes)
    fail(read_counters(data_of(open_lp), size_of(open_lp), &m))
    return Packed(
        PyBytes_FromStringAndSize(<char*>opened.out.data, opened.out.size),
        opened.added,
        opened.elements,
        join_node(open_lp, &m, opened.out.data, opened.out.size, opened.added, opened.elements),
        (opened.last_ms, opened.last_seq),
        packing.nodes,
    )
