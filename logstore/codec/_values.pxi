# Values of a stream with a codec of values: encoded entry by entry, found by name. Pure twins:
# `Encoders` in row_batch.py, `Unpacking`, `decoded_pairs` and `field_value` in entry_objects.py.
#
# Invariants: what an encoder raises is raised as it is; of a repeated name the last value counts.

from cpython.dict cimport PyDict_Copy, PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from cpython.list cimport PyList_GET_ITEM
from cpython.tuple cimport PyTuple_CheckExact

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object o)
    bint PyBytes_CheckExact(object o)
    PyObject* PyDict_GetItemWithError(object found, object key) except? NULL
    int PyUnicode_Compare(object left, object right) except? -1


cdef bytes encoded_value(object encode, object value):
    """The bytes of a value. TypeError if the encoder gives no bytes; what it raises itself."""
    cdef object data = encode(value)
    if not isinstance(data, bytes):
        raise TypeError(f"the encoder gave {type(data).__name__} and not bytes")
    return data


cdef class Encoders:
    cdef object make
    cdef list free              # encoders that nobody uses now

    def __init__(self, make):
        self.make, self.free = make, []

    def fields(self, dict fields not None):
        cdef dict made = PyDict_Copy(fields)    # of ours alone: an encoder may run any code
        cdef PyObject* key
        cdef PyObject* value
        cdef Py_ssize_t at = 0
        cdef object name, encode = self.free.pop() if self.free else self.make()
        while PyDict_Next(made, &at, &key, &value):
            name = <object>key
            PyDict_SetItem(made, name, encoded_value(encode, <object>value))
        self.free.append(encode)
        return made

    def rows(self, items):
        encode = self.free.pop() if self.free else self.make()
        made = rows(items, encode)
        self.free.append(encode)
        return made


cdef enum:
    TEXTS_MAX = 4096        # names of fields that are kept as text

cdef dict TEXTS = {}        # of bytes; the entries of a stream have the same few names


cdef object text_of(object name):
    """A field's name as text."""
    cdef PyObject* known
    if not PyBytes_CheckExact(name):
        return name
    known = PyDict_GetItemWithError(TEXTS, name)
    if known != NULL:
        return <object>known
    text = PyUnicode_DecodeUTF8(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), "surrogateescape")
    if PyDict_Size(TEXTS) >= TEXTS_MAX:
        TEXTS.clear()
    TEXTS[name] = text
    return text


cdef class Unpacking:
    cdef object unpackb

    def __init__(self, unpackb):
        self.unpackb = unpackb

    def unpack(self, data):
        return self.unpackb(data, timestamp=3, strict_map_key=False)


def decoded_pairs(flat not None, decode):
    cdef tuple parts = flat if type(flat) is tuple else tuple(list(flat))
    cdef list made = []
    cdef Py_ssize_t i, size = len(parts)
    if size & 1:
        raise ValueError("a field has no value")
    for i in range(0, size, 2):
        made.append((text_of(parts[i]), decode(parts[i + 1])))
    return made


cdef object read_value(object reading, object stored):
    if reading is None or PyUnicode_CheckExact(reading):
        return stored
    return reading.decode(stored)


def field_value(flat not None, name, reading, missing):
    cdef Py_ssize_t at = len(flat) - 2
    cdef bint in_tuple = PyTuple_CheckExact(flat), text = PyUnicode_CheckExact(name)
    cdef bint ascii = text and PyUnicode_IS_COMPACT_ASCII(name)
    cdef object part
    cdef const void* data = NULL
    cdef Py_ssize_t size = 0
    if ascii:
        data = PyUnicode_DATA(name)
        size = PyUnicode_GET_LENGTH(name)
    elif PyBytes_CheckExact(name):
        data = PyBytes_AS_STRING(name)
        size = PyBytes_GET_SIZE(name)
    elif not text:
        return missing
    if not in_tuple and type(flat) is not list:
        return missing
    while at >= 0:
        if in_tuple:
            part = <object>PyTuple_GET_ITEM(flat, at)
        else:
            part = <object>PyList_GET_ITEM(flat, at)
        if part is name:
            break
        if PyBytes_CheckExact(part):
            if (data != NULL and PyBytes_GET_SIZE(part) == size
                    and not memcmp(PyBytes_AS_STRING(part), data, size)):
                break
        elif ascii and PyUnicode_CheckExact(part):
            if (PyUnicode_IS_COMPACT_ASCII(part) and PyUnicode_GET_LENGTH(part) == size
                    and not memcmp(PyUnicode_DATA(part), data, size)):
                break
        elif text and PyUnicode_CheckExact(part):
            if not PyUnicode_Compare(part, name):
                break
        at -= 2
    else:
        return missing
    if in_tuple:
        part = <object>PyTuple_GET_ITEM(flat, at + 1)
    else:
        part = <object>PyList_GET_ITEM(flat, at + 1)
    return read_value(reading, part)
