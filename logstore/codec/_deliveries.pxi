# Deliveries of a group in one call for many. Pure twin: deliveries.py.

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
    cdef Master m
    cdef Entry e
    cdef Range r
    cdef const u8* p = data_of(lp)
    cdef u64 pos, ms, seq
    cdef list found = [], fields
    cdef object first, second, id, row, zero = 0, one = 1
    if not issubclass(row_class, tuple) or not issubclass(id_class, tuple):
        raise TypeError("an ID is a tuple, and so is a row")
    if limit == 0:
        return found
    set_range(&r, start, MAX_ID)
    fail(read_master(p, size_of(lp), &m))
    fields = read_fields(p, &m)
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
        if below(ms, seq, r.start_ms, r.start_seq):
            continue
        first, second = ms, seq
        id = PyType_GenericAlloc(<SlotType*>id_class, 2)
        fill(id, 0, first)
        fill(id, 1, second)
        PyObject_GC_UnTrack(id)
        row = PyType_GenericAlloc(<SlotType*>row_class, 5)
        fill(row, 0, id)
        fill(row, 1, read_flat(p, &m, &e, fields))
        fill(row, 2, zero)
        fill(row, 3, one)
        fill(row, 4, time_ms)
        found.append(row)
        if len(found) == limit:
            break
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
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size * PENDING_ID_BYTES)
    cdef u8* at = data_of(made)
    cdef object id
    try:
        for id in ids:
            if i == size:
                break
            id_parts(id, &ms, &seq)
            if i and not below(before_ms, before_seq, ms, seq):
                ascending = False
            put_big_u64(at, ms)
            put_big_u64(at + 8, seq)
            at += PENDING_ID_BYTES
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


cdef class DeliveryMaker:
    cdef object delivery_class
    cdef list slots
    cdef bytes name             # of the encoding; None: values are bytes

    def __init__(self, delivery_class, encoding):
        self.delivery_class = delivery_class
        self.slots = [slot_of(delivery_class, name) for name in DELIVERY_SLOTS]
        self.name = None if encoding is None else encoding.encode("ascii")

    cdef list texts(self, list flat):
        cdef list made = []
        cdef bytes part
        for part in flat:
            made.append(PyUnicode_Decode(PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part),
                                         PyBytes_AS_STRING(self.name), "surrogateescape"))
        return made

    def made(self, list rows not None, group, bytes consumer not None, reading, at_once, other):
        cdef list found = [], slots = self.slots
        cdef object row, made, flat
        for row in rows:
            if not isinstance(row, tuple) or PyTuple_GET_SIZE(row) != 5:
                raise ValueError("a row has five parts")
            flat = <object>PyTuple_GET_ITEM(row, 1)
            if flat is None or <object>PyTuple_GET_ITEM(row, 2):
                found.append(other(group, consumer, row))
                continue
            if self.name is not None:
                flat = self.texts(flat)
            made = PyType_GenericAlloc(<SlotType*>self.delivery_class, 0)
            set_slot(slots[0], made, <object>PyTuple_GET_ITEM(row, 0))
            set_slot(slots[1], made, flat)
            set_slot(slots[2], made, reading)
            set_slot(slots[3], made, group)
            set_slot(slots[4], made, False)
            set_slot(slots[5], made, <object>PyTuple_GET_ITEM(row, 3))
            set_slot(slots[6], made, at_once)
            set_slot(slots[7], made, consumer)
            set_slot(slots[8], made, <object>PyTuple_GET_ITEM(row, 4))
            set_slot(slots[9], made, False)
            found.append(made)
        return found
