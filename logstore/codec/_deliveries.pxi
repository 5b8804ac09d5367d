# Deliveries of a group in one call for many. Pure twin: `DeliveryMaker` in entry_objects.py.
#
# Invariants: slots are set of classes that were checked; the collector sees whole objects.

from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

cdef tuple DELIVERY_SLOTS = (
    "id", "_flat", "_encoding", "group", "deleted", "delivery_count", "idle", "_consumer",
    "_delivered_ms", "_settled",
)


cdef inline void fill(object made, Py_ssize_t at, object value):
    Py_INCREF(value)
    PyTuple_SET_ITEM(made, at, value)


def first_deliveries(bytes lp not None, u64 master_ms, u64 master_seq, bytes vector not None,
                     start, Py_ssize_t limit, row_class, id_class, time_ms):
    cdef NodeWalk w
    cdef u64 kept_ms = master_ms
    cdef list found = [], fields
    cdef object id, row, zero = 0, one = 1, kept = master_ms
    cdef bint bare
    if not issubclass(row_class, tuple) or not issubclass(id_class, tuple):
        raise TypeError("an ID is a tuple, and so is a row")
    bare = ls_is_bare_tuple(id_class)
    if limit == 0:
        return found
    walk_node(&w, lp, master_ms, master_seq, vector, False)
    w.r.start_ms, w.r.start_seq = start
    fields = read_fields(w.p, &w.m)
    while len(found) != limit and walk_on(&w):
        if w.ms != kept_ms:
            kept, kept_ms = w.ms, w.ms
        id = new_id(id_class, bare, kept, w.seq)
        row = PyType_GenericAlloc(<SlotType*>row_class, 5)
        ls_no_hash(row)
        fill(row, 0, id)
        fill(row, 1, read_flat(w.p, &w.m, &w.e, fields))
        fill(row, 2, zero)
        fill(row, 3, one)
        fill(row, 4, time_ms)
        found.append(row)
    return found


cdef inline int id_parts(object id, u64* ms, u64* seq) except -1:
    if not isinstance(id, tuple) or PyTuple_GET_SIZE(id) != 2:
        raise ValueError("an ID is two numbers below 2^64")
    ms[0] = <object>PyTuple_GET_ITEM(id, 0)
    seq[0] = <object>PyTuple_GET_ITEM(id, 1)
    return 0


def pack_ids(ids not None):
    cdef Py_ssize_t i = 0, size = len(ids)
    cdef u64 ms = 0, seq = 0, before_ms = 0, before_seq = 0
    cdef bint ascending = True
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size * ID_BYTES)
    cdef u8* at = data_of(made)
    cdef object id
    try:
        for id in ids:
            if i == size:
                break
            id_parts(id, &ms, &seq)
            if i and not below(before_ms, before_seq, ms, seq):
                ascending = False
            put_big(at, ms)
            put_big(at + 8, seq)
            at += ID_BYTES
            before_ms, before_seq = ms, seq
            i += 1
    except OverflowError:
        raise ValueError("an ID is two numbers below 2^64") from None
    if i != size:   # bytes that nobody set
        raise ValueError("the IDs are fewer than they say")
    return made, ascending


def are_ids(values not None, id_class):
    cdef object value, number
    cdef u64 taken
    cdef int i
    if not issubclass(id_class, tuple):
        return len(values) == 0
    for value in values:
        if type(value) is not id_class or PyTuple_GET_SIZE(value) != 2:
            return False
        for i in range(2):
            number = <object>PyTuple_GET_ITEM(value, i)
            if type(number) is not int:
                return False
            try:
                taken = number
            except OverflowError:
                return False
    return True


cdef class DeliveryMaker(_Decoder):
    cdef object delivery_class
    cdef list slots

    def __init__(self, delivery_class, encoding):
        self.delivery_class = delivery_class
        self.slots = [slot_of(delivery_class, name) for name in DELIVERY_SLOTS]
        self.set_encoding(encoding)

    cdef list texts(self, list flat):
        cdef list made = []
        cdef bytes part
        for part in flat:
            made.append(PyUnicode_Decode(PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part),
                                         PyBytes_AS_STRING(self.name), "surrogateescape"))
        return made

    cdef object delivery(self, id, flat, reading, group, count, at_once, consumer, time_ms):
        cdef list slots = self.slots
        made = PyType_GenericAlloc(<SlotType*>self.delivery_class, 0)
        set_slot(slots[0], made, id)
        set_slot(slots[1], made, flat)
        set_slot(slots[2], made, reading)
        set_slot(slots[3], made, group)
        set_slot(slots[4], made, False)
        set_slot(slots[5], made, count)
        set_slot(slots[6], made, at_once)
        set_slot(slots[7], made, consumer)
        set_slot(slots[8], made, time_ms)
        set_slot(slots[9], made, False)
        return made

    def made(self, list rows not None, group, bytes consumer not None, reading, at_once, other):
        cdef list found = []
        cdef object row, flat, idle
        for row in rows:
            if not isinstance(row, tuple) or PyTuple_GET_SIZE(row) != 5:
                raise ValueError("a row has five parts")
            flat = <object>PyTuple_GET_ITEM(row, 1)
            if flat is None:
                found.append(other(group, consumer, row))
                continue
            if self.encoding is not None:
                flat = self.texts(flat)
            idle = <object>PyTuple_GET_ITEM(row, 2)
            found.append(self.delivery(
                <object>PyTuple_GET_ITEM(row, 0), flat, reading, group,
                <object>PyTuple_GET_ITEM(row, 3), _timedelta(0, 0, 0, idle) if idle else at_once,
                consumer, <object>PyTuple_GET_ITEM(row, 4),
            ))
        return found

    def first(self, bytes lp not None, u64 master_ms, u64 master_seq, bytes vector not None,
              start, Py_ssize_t limit, id_class, time_ms, bytes consumer not None,
              tuple context not None):
        cdef Master m
        cdef Entry e
        cdef Range r
        cdef const u8* p = data_of(lp)
        cdef u64 pos, ms, seq, kept_ms = master_ms
        cdef u8 packed[16 * ID_BYTES]   # of the last IDs; those before are in `ids`
        cdef u64 last = 0
        cdef Buf ids
        cdef list found = [], fields
        cdef tuple flat
        cdef object one = 1, kept = master_ms
        cdef bint bare
        if not issubclass(id_class, tuple):
            raise TypeError("an ID is a tuple")
        group, reading, at_once = context
        if limit == 0:
            return found, b""
        bare = ls_is_bare_tuple(id_class)
        set_range(&r, start, MAX_ID)
        fail(read_master(p, size_of(lp), &m))
        fields = self.fields(p, &m)
        memset(&ids, 0, sizeof(Buf))
        try:
            e.ordinal = -1
            pos = m.first
            while pos < m.end:
                e.ordinal += 1
                fail(read_entry_head(p, pos, &m, &e))
                ms = master_ms + <u64>e.ms_diff
                seq = master_seq + <u64>e.seq_diff
                flat = None
                if (is_live(&e, data_of(vector), size_of(vector))
                        and not below(ms, seq, r.start_ms, r.start_seq)):
                    flat = self.flat(p, &m, &e, fields, &pos)
                else:
                    fail(skip_items(p, &m, &e, &pos))
                fail(read_entry_tail(p, pos, &m, &e))
                pos = e.after
                if flat is None:
                    continue
                if ms != kept_ms:
                    kept, kept_ms = ms, ms
                if last == sizeof(packed):
                    fail(buf_add(&ids, packed, last))
                    last = 0
                put_big(packed + last, ms)
                put_big(packed + last + 8, seq)
                last += ID_BYTES
                found.append(self.delivery(new_id(id_class, bare, kept, seq), flat, reading, group,
                                           one, at_once, consumer, time_ms))
                if len(found) == limit:
                    break
            if not ids.size:
                return found, PyBytes_FromStringAndSize(<char*>packed, last)
            fail(buf_add(&ids, packed, last))
            return found, PyBytes_FromStringAndSize(<char*>ids.data, ids.size)
        finally:
            buf_free(&ids)
