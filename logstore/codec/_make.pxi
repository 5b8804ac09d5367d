# Entries as users hold them, made of a node in one call. Pure twin: making.py.

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_Decode, PyUnicode_DecodeUTF8

from types import MemberDescriptorType as _Slot

cdef extern from *:
    """
    #include <structmember.h>
    static inline PyMemberDef *ls_member(PyObject *slot) {
        return ((PyMemberDescrObject *)slot)->d_member;
    }
    static inline int ls_is_slot(PyObject *slot) {
        return ls_member(slot)->type == T_OBJECT_EX && ls_member(slot)->flags == 0;
    }
    /* What the descriptor does, without the calls on the way. The new value is set before the one
       that was there is freed: freeing may run code. */
    static inline void ls_set_slot(PyObject *slot, PyObject *made, PyObject *value) {
        PyObject **at = (PyObject **)((char *)made + ls_member(slot)->offset);
        PyObject *before = *at;
        Py_INCREF(value);
        *at = value;
        Py_XDECREF(before);
    }
    """
    bint ls_is_slot(object slot) noexcept
    void ls_set_slot(object slot, object made, object value) noexcept

cdef extern from "Python.h":
    ctypedef struct SlotType "PyTypeObject":
        pass
    object PyType_GenericAlloc(SlotType*, Py_ssize_t)
    void PyObject_GC_UnTrack(object)


cdef inline void set_slot(object slot, object made, object value) noexcept:
    """Set an attribute of a new object of the class that gave the slot."""
    ls_set_slot(slot, made, value)


cdef object slot_of(object made_class, str name):
    """The descriptor of a slot."""
    found = getattr(made_class, name)
    if (not isinstance(found, _Slot) or not ls_is_slot(found)
            or not issubclass(made_class, found.__objclass__)):     # where it stands in the object
        raise TypeError(f"{made_class.__name__}.{name} is no slot")
    return found


cdef class FieldsMaker:
    cdef object fields_class
    cdef object encoding_slot, items_slot
    cdef bint in_text           # names are made text

    def __init__(self, fields_class, bint in_text=False):
        self.fields_class = fields_class
        self.in_text = in_text
        self.encoding_slot = slot_of(fields_class, "_encoding")
        self.items_slot = slot_of(fields_class, "_items")

    def make(self, flat not None, encoding):
        cdef dict items = {}
        cdef Py_ssize_t i, size
        cdef tuple parts = flat if type(flat) is tuple else tuple(flat)
        size = len(parts)
        if size & 1:
            raise ValueError("a field has no value")
        for i in range(0, size, 2):
            items[text_of(parts[i]) if self.in_text else parts[i]] = parts[i + 1]
        made = PyType_GenericAlloc(<SlotType*>self.fields_class, 0)
        set_slot(self.encoding_slot, made, encoding)
        set_slot(self.items_slot, made, items)
        return made


cdef class EntryMaker:
    cdef object entry_class, id_class, encoding, reading
    cdef object id_slot, flat_slot, encoding_slot
    cdef bytes name             # of the encoding
    cdef bint is_utf8

    def __init__(self, entry_class, id_class, encoding, reading=None):
        if not issubclass(id_class, tuple):
            raise TypeError("an ID is a tuple")
        self.entry_class = entry_class
        self.id_class = id_class
        self.encoding = encoding
        self.reading = encoding if reading is None else reading
        self.id_slot = slot_of(entry_class, "id")
        self.flat_slot = slot_of(entry_class, "_flat")
        self.encoding_slot = slot_of(entry_class, "_encoding")
        self.name = b"" if encoding is None else encoding.encode("ascii")
        self.is_utf8 = self.name.lower() in (b"utf-8", b"utf8")

    cdef object part(self, const Elem* elem):
        """A field or a value, as bytes or text."""
        cdef u8 digits[20]
        cdef const char* data = <const char*>elem.data
        cdef u64 size = elem.size
        if elem.is_int:
            size = format_i64(elem.number, digits)
            data = <const char*>digits
        if self.encoding is None:
            return PyBytes_FromStringAndSize(data, size)
        if self.is_utf8:
            return PyUnicode_DecodeUTF8(data, size, "surrogateescape")
        return PyUnicode_Decode(data, size, PyBytes_AS_STRING(self.name), "surrogateescape")

    cdef tuple flat(self, const u8* p, const Master* m, const Entry* e, list fields):
        """What an entry holds: field, value, field, value, .."""
        cdef Elem elem
        cdef u64 pos = e.body
        cdef int64_t i, size = 2 * e.pairs
        cdef bint same = e.flags & SAME_FIELDS
        cdef tuple made
        cdef object part
        made = PyTuple_New(size)    # so many are there: who read the entry walked over them
        for i in range(size):
            if same and not i & 1:
                part = fields[i >> 1]
            else:
                fail(lp_read(p, pos, m.end, &elem))
                part = self.part(&elem)
                pos = elem.after
            Py_INCREF(part)
            PyTuple_SET_ITEM(made, i, part)
        PyObject_GC_UnTrack(made)   # it holds no containers; so the collector does not walk it
        return made

    cdef list fields(self, const u8* p, const Master* m):
        """The node's own fields."""
        cdef Elem elem
        cdef u64 pos = m.fields_at
        cdef int64_t i
        cdef list found = []
        for i in range(m.width):
            fail(lp_read(p, pos, m.end, &elem))
            found.append(self.part(&elem))
            pos = elem.after
        return found

    cdef object entry(self, u64 ms, u64 seq, tuple flat):
        cdef object first = ms, second = seq
        cdef object id = PyType_GenericAlloc(<SlotType*>self.id_class, 2)
        Py_INCREF(first)
        PyTuple_SET_ITEM(id, 0, first)
        Py_INCREF(second)
        PyTuple_SET_ITEM(id, 1, second)
        PyObject_GC_UnTrack(id)
        made = PyType_GenericAlloc(<SlotType*>self.entry_class, 0)
        set_slot(self.id_slot, made, id)
        set_slot(self.flat_slot, made, flat)
        set_slot(self.encoding_slot, made, self.reading)
        return made

    def entries(self, bytes lp not None, u64 master_ms, u64 master_seq, bytes vector not None=b"",
                start=ZERO_ID, end=MAX_ID, Py_ssize_t limit=-1, bint reverse=False):
        cdef Master m
        cdef Entry e
        cdef Range r
        cdef const u8* p = data_of(lp)
        cdef u64 pos, ms, seq
        cdef list found = [], fields
        cdef bint low, high
        if limit == 0:
            return found
        set_range(&r, start, end)
        fail(read_master(p, size_of(lp), &m))
        fields = self.fields(p, &m)
        e.ordinal = m.live + m.deleted if reverse else -1
        pos = m.end if reverse else m.first
        while pos > m.first if reverse else pos < m.end:
            if reverse:
                fail(read_entry_before(p, pos, &m, &e))
                pos = e.at
            else:
                e.ordinal += 1
                fail(read_entry(p, pos, &m, &e))
                pos = e.after
            if not is_live(&e, data_of(vector), size_of(vector)):
                continue
            ms = master_ms + <u64>e.ms_diff
            seq = master_seq + <u64>e.seq_diff
            low = below(ms, seq, r.start_ms, r.start_seq)
            high = below(r.end_ms, r.end_seq, ms, seq)
            if low if reverse else high:
                return found
            if low or high:
                continue
            found.append(self.entry(ms, seq, self.flat(p, &m, &e, fields)))
            if len(found) == limit:
                return found
        if reverse and e.ordinal != 0:
            fail(E_ORDINALS)
        return found


ctypedef struct Place:
    u64 ms
    u64 seq
    u64 at


cdef class NodeFinder:
    """Where each live entry of a node stands, in the order of the node."""

    cdef bytes lp
    cdef Master master
    cdef Place* places
    cdef Py_ssize_t size
    cdef bint ascending

    def __cinit__(self, bytes lp not None, u64 master_ms, u64 master_seq,
                  bytes vector not None=b""):
        cdef Entry e
        cdef Place* place
        cdef const u8* p = data_of(lp)
        cdef u64 pos
        cdef Py_ssize_t room
        self.lp = lp
        fail(read_master(p, size_of(lp), &self.master))
        room = self.master.live     # not above the bytes that there are; it may not be true
        e.ordinal = -1
        self.ascending = True
        pos = self.master.first
        while pos < self.master.end:
            e.ordinal += 1
            fail(read_entry(p, pos, &self.master, &e))
            pos = e.after
            if not is_live(&e, data_of(vector), size_of(vector)):
                continue
            if self.places == NULL or self.size == room:
                room = 2 * room if self.size else room + 1
                place = <Place*>realloc(self.places, room * sizeof(Place))
                if place == NULL:
                    raise MemoryError
                self.places = place
            place = self.places + self.size
            place.ms = master_ms + <u64>e.ms_diff
            place.seq = master_seq + <u64>e.seq_diff
            place.at = e.at
            if self.size and not below((place - 1).ms, (place - 1).seq, place.ms, place.seq):
                self.ascending = False
            self.size += 1

    def __dealloc__(self):
        free(self.places)

    cdef Place* place_of(self, u64 ms, u64 seq):
        """The first of an ID; NULL if there is none."""
        cdef Place* place
        cdef Py_ssize_t low = 0, high = self.size, middle
        if self.ascending:
            while low < high:
                middle = (low + high) >> 1
                place = self.places + middle
                if below(place.ms, place.seq, ms, seq):
                    low = middle + 1
                else:
                    high = middle
            high = low + 1
        while low < high and low < self.size:
            place = self.places + low
            if place.ms == ms and place.seq == seq:
                return place
            low += 1
        return NULL

    def find(self, u64 ms, u64 seq, EntryMaker maker not None):
        cdef Entry e
        cdef const u8* p = data_of(self.lp)
        cdef Place* place = self.place_of(ms, seq)
        if place == NULL:
            return None
        e.ordinal = 0
        fail(read_entry(p, place.at, &self.master, &e))
        return maker.entry(ms, seq, maker.flat(p, &self.master, &e, maker.fields(p, &self.master)))
