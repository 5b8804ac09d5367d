# Entries as users hold them, made of a node in one call. Pure twin: entry_objects.py.
#
# Invariants: slots are set of classes that were checked; what is made of bytes and text alone is
# not tracked by the collector.

from cpython.dict cimport PyDict_SetItem
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_New, PyTuple_SET_ITEM
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
    /* A new reference to what a slot holds; NULL, and no error, if it is empty. */
    static inline PyObject *ls_get_slot(PyObject *slot, PyObject *from) {
        PyObject *found = *(PyObject **)((char *)from + ls_member(slot)->offset);
        Py_XINCREF(found);
        return found;
    }
    /* Whether objects of a subclass of tuple are laid out as tuples are, with nothing beside. */
    static inline int ls_is_bare_tuple(PyObject *made_class) {
        PyTypeObject *type = (PyTypeObject *)made_class;
        return type->tp_basicsize == PyTuple_Type.tp_basicsize
            && type->tp_itemsize == PyTuple_Type.tp_itemsize && type->tp_dictoffset == 0
            && type->tp_weaklistoffset == 0 && type->tp_alloc == PyType_GenericAlloc
            && PyType_IS_GC(type);
    }
    /* By its type, whatever its ``__class__`` says. */
    static inline int ls_is_a(PyObject *found, PyObject *type) {
        return PyObject_TypeCheck(found, (PyTypeObject *)type);
    }
    /* From Python 3.14 on a tuple keeps its hash, and memory of zeros is none that counts. */
    static inline void ls_no_hash(PyObject *made) {
    #if PY_VERSION_HEX >= 0x030E0000
        ((PyTupleObject *)made)->ob_hash = -1;
    #endif
    }
    /* Two new references become an object of such a subclass. The collector does not walk it, as
       it holds no containers. */
    static inline PyObject *ls_bare_pair(PyObject *made_class, PyObject *first, PyObject *second) {
        PyTupleObject *made = PyObject_GC_NewVar(PyTupleObject, (PyTypeObject *)made_class, 2);
        if (made == NULL) {
            Py_DECREF(first);
            Py_DECREF(second);
            return NULL;
        }
        made->ob_item[0] = first;
        made->ob_item[1] = second;
        ls_no_hash((PyObject *)made);
        return (PyObject *)made;
    }
    """
    bint ls_is_slot(object slot) noexcept
    bint ls_is_a(object found, object type) noexcept
    void ls_set_slot(object slot, object made, object value) noexcept
    PyObject* ls_get_slot(object slot, object found) noexcept
    bint ls_is_bare_tuple(object made_class) noexcept
    void ls_no_hash(object made) noexcept
    PyObject* ls_bare_pair(object made_class, PyObject* first, PyObject* second) except NULL

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


cdef inline object new_plain(object made_class, object encoding):
    """A new object whose slots are empty, and will hold no containers but such as the collector
    does not walk; so it does not walk this one either, unless a codec reads its values.

    A walk over millions of entries would have all objects of the process walked again and again.
    """
    made = PyType_GenericAlloc(<SlotType*>made_class, 0)
    if encoding is None or type(encoding) is str:
        PyObject_GC_UnTrack(made)
    return made


cdef class FieldsMaker:
    cdef object fields_class, entry_class, other
    cdef object encoding_slot, items_slot
    cdef object entry_flat_slot, entry_encoding_slot
    cdef bint in_text           # names are made text

    def __init__(self, fields_class, bint in_text=False, entry_class=None, other=None):
        self.fields_class = fields_class
        self.in_text = in_text
        self.encoding_slot = slot_of(fields_class, "_encoding")
        self.items_slot = slot_of(fields_class, "_items")
        if entry_class is not None:
            self.entry_flat_slot = slot_of(entry_class, "_flat")
            self.entry_encoding_slot = slot_of(entry_class, "_encoding")
        self.entry_class, self.other = entry_class, other

    cdef object mapping(self, flat, encoding):
        cdef dict items = {}
        cdef Py_ssize_t i, size
        cdef tuple parts = flat if type(flat) is tuple else tuple(list(flat))
        size = len(parts)
        if size & 1:
            raise ValueError("a field has no value")
        for i in range(0, size, 2):
            if self.in_text:
                items[text_of(parts[i])] = parts[i + 1]
                continue
            PyDict_SetItem(items, <object>PyTuple_GET_ITEM(parts, i),
                            <object>PyTuple_GET_ITEM(parts, i + 1))
        made = new_plain(self.fields_class, encoding)
        set_slot(self.encoding_slot, made, encoding)
        set_slot(self.items_slot, made, items)
        return made

    def make(self, flat not None, encoding):
        return self.mapping(flat, encoding)

    @cython.binding(False)
    def of(self, entry):
        if self.entry_class is None or not ls_is_a(entry, self.entry_class):
            raise TypeError("what has the fields is no entry")
        flat = slot_value(self.entry_flat_slot, entry, "_flat")
        encoding = slot_value(self.entry_encoding_slot, entry, "_encoding")
        if encoding is None or type(encoding) is str:
            return self.mapping(flat, encoding)
        return self.other(flat, encoding)


cdef inline object slot_value(object slot, object made, str name):
    """What a slot holds of an object that has it."""
    cdef PyObject* found = ls_get_slot(slot, made)
    if found == NULL:
        raise AttributeError(name)
    value = <object>found
    Py_DECREF(value)
    return value


cdef inline object new_id(object id_class, bint bare, object ms, object seq):
    """An ID: a tuple of two numbers, of a class of its own."""
    cdef object made
    cdef PyObject* pair
    Py_INCREF(ms)
    Py_INCREF(seq)
    if bare:
        pair = ls_bare_pair(id_class, <PyObject*>ms, <PyObject*>seq)
        made = <object>pair
        Py_DECREF(made)
        return made
    made = PyType_GenericAlloc(<SlotType*>id_class, 2)
    PyTuple_SET_ITEM(made, 0, ms)
    PyTuple_SET_ITEM(made, 1, seq)
    ls_no_hash(made)
    PyObject_GC_UnTrack(made)   # it holds no containers; so the collector does not walk it
    return made


cdef enum:
    PAIRS_UNSEEN = 64       # of so many, memory is taken before they were walked over


cdef class _Decoder:
    """What makes fields and values of elements, as bytes or text."""

    cdef object encoding
    cdef bytes name             # of the encoding
    cdef bint is_utf8

    cdef int set_encoding(self, encoding) except -1:
        self.encoding = encoding
        self.name = b"" if encoding is None else encoding.encode("ascii")
        self.is_utf8 = self.name.lower() in (b"utf-8", b"utf8")
        return 0

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

    cdef tuple flat(self, const u8* p, const Master* m, const Entry* e, list fields, u64* after):
        """What an entry holds: field, value, field, value, ..; and where they end.

        Only the entry's head need have been read, if it has few pairs.
        """
        cdef Elem elem
        cdef u64 pos = e.body
        cdef int64_t i, size = 2 * e.pairs
        cdef bint same = e.flags & SAME_FIELDS
        cdef tuple made
        cdef object part
        if e.pairs > PAIRS_UNSEEN:
            fail(skip_items(p, m, e, after))
        made = PyTuple_New(size)
        for i in range(size):
            if same and not i & 1:
                part = <object>PyList_GET_ITEM(fields, i >> 1)
            else:
                fail(read_short(p, pos, m.end, &elem))
                part = self.part(&elem)
                pos = elem.after
            Py_INCREF(part)
            PyTuple_SET_ITEM(made, i, part)
        PyObject_GC_UnTrack(made)   # it holds no containers; so the collector does not walk it
        after[0] = pos
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


cdef class EntryMaker(_Decoder):
    cdef object entry_class, id_class, reading
    cdef object id_slot, flat_slot, encoding_slot
    cdef bint bare              # an ID is nothing but a tuple

    def __init__(self, entry_class, id_class, encoding, reading=None):
        if not issubclass(id_class, tuple):
            raise TypeError("an ID is a tuple")
        self.entry_class = entry_class
        self.id_class = id_class
        self.bare = ls_is_bare_tuple(id_class)
        self.id_slot = slot_of(entry_class, "id")
        self.flat_slot = slot_of(entry_class, "_flat")
        self.encoding_slot = slot_of(entry_class, "_encoding")
        self.reading = encoding if reading is None else reading
        self.set_encoding(encoding)

    cdef object entry(self, object ms, object seq, tuple flat):
        made = new_plain(self.entry_class, self.reading)
        set_slot(self.id_slot, made, new_id(self.id_class, self.bare, ms, seq))
        set_slot(self.flat_slot, made, flat)
        set_slot(self.encoding_slot, made, self.reading)
        return made

    def entries(self, bytes lp not None, u64 master_ms, u64 master_seq, bytes vector not None=b"",
                start=ZERO_ID, end=MAX_ID, Py_ssize_t limit=-1, bint reverse=False):
        cdef Master m
        cdef Entry e
        cdef Range r
        cdef const u8* p = data_of(lp)
        cdef u64 pos, ms, seq, kept_ms = master_ms
        cdef list found = [], fields
        cdef tuple flat
        cdef object kept = master_ms    # most entries of a node have the milliseconds of the last
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
            else:
                e.ordinal += 1
                fail(read_entry_head(p, pos, &m, &e))
            ms = master_ms + <u64>e.ms_diff
            seq = master_seq + <u64>e.seq_diff
            low = below(ms, seq, r.start_ms, r.start_seq)
            high = below(r.end_ms, r.end_seq, ms, seq)
            flat = None
            if not is_live(&e, data_of(vector), size_of(vector)):
                low = high = False
            elif not (low or high):
                flat = self.flat(p, &m, &e, fields, &pos)
            if reverse:
                pos = e.at
            else:       # the entry is looked at to its end, whether it is wanted or not
                if flat is None:
                    fail(skip_items(p, &m, &e, &pos))
                fail(read_entry_tail(p, pos, &m, &e))
                pos = e.after
            if flat is None:
                if low if reverse else high:
                    return found
                continue
            if ms != kept_ms:
                kept, kept_ms = ms, ms
            found.append(self.entry(kept, seq, flat))
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
        cdef u64 after
        cdef Place* place = self.place_of(ms, seq)
        if place == NULL:
            return None
        e.ordinal = 0
        fail(read_entry_head(p, place.at, &self.master, &e))    # the rest was looked at before
        return maker.entry(
            ms, seq, maker.flat(p, &self.master, &e, maker.fields(p, &self.master), &after)
        )
