# Rows made ready to be packed. Pure twin: `RowBatch`, `rows` and `columns` in row_batch.py.
#
# Invariants: a batch is whole before others know it, and is not changed then.
#
# A row is kept as its values, already elements, and the number of its *shape*: its field names in
# their order, which most rows of a batch share. So a row costs no Python object, and an entry with
# its node's fields is written by one copy.

from collections.abc import Iterable, Mapping

from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.mem cimport PyMem_Free
from cpython.object cimport PyObject

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void* PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    char* PyOS_double_to_string(double number, char format, int precision, int flags,
                                int* kind) except NULL
    int Py_DTSF_ADD_DOT_0
    # The same macros, of an object that somebody else holds.
    bint held_is_str "PyUnicode_CheckExact"(PyObject* value)
    bint held_is_ascii "PyUnicode_IS_COMPACT_ASCII"(PyObject* text)
    const u8* held_text "(const unsigned char *) PyUnicode_DATA"(PyObject* text)
    u64 held_text_bytes "PyUnicode_GET_LENGTH"(PyObject* text)


ctypedef struct Shape:
    u64 at              # of its elements in the batch's names
    u64 size
    u64 raw_bytes       # lengths of the field names
    int64_t width


ctypedef struct RowRef:
    u64 at              # of its values in the batch's values
    u64 raw_bytes
    u64 shape


cdef inline u64 raw_of(const Elem* elem) noexcept nogil:
    cdef u8 text[20]
    return format_i64(elem.number, text) if elem.is_int else elem.size


cdef inline bint grow_row(RowRef* ref, const Elem* elem, u64 index) except -1:
    """Count the bytes of a field or value; refuse the row before they are copied. True if it is a
    large one from here on: then `refuse_large` looks at the rest before that is copied, too."""
    cdef u64 before = ref.raw_bytes
    ref.raw_bytes += raw_of(elem)
    if ref.raw_bytes > ENTRY_BYTES_MAX:
        too_large(index)
    return before <= LARGE_ROW_BYTES < ref.raw_bytes


cdef int too_large(u64 index) except -1:
    raise TooLargeError(f"row {index}: fields and values exceed 1 GiB together; split it")


cdef enum:
    LARGE_ROW_BYTES = 1 << 20
    UTF8_PIECE = 1 << 16        # characters
    UTF8_MAX = 4                # bytes of one of them
    SHORT_TEXT = 64             # of which the length stands in the first byte


cdef u64 utf8_bytes(str text) except? 0:
    """How many bytes a text has as UTF-8, by pieces: no copy is made of all of it."""
    cdef u64 total = 0
    cdef Py_ssize_t at = 0, size = PyUnicode_GET_LENGTH(text)
    while at < size:
        total += <u64>len(text[at:at + UTF8_PIECE].encode("utf-8", "surrogatepass"))
        at += UTF8_PIECE
    return total


cdef int refuse_large(object item, u64 index) except -1:
    """Refuse a row that is too large by what can be known without a copy, and without running code
    of its own; texts are looked at once more if their lengths alone do not tell."""
    cdef u64 total = 0, most = 0, size
    cdef list wide = []
    if type(item) is not dict and type(item) is not list and type(item) is not tuple:
        return 0
    # Copies by `list`, which takes all items in one step: a collection may change the row.
    for pair in list(item.items() if type(item) is dict else item):
        if type(pair) is tuple or type(pair) is list:
            for part in list(pair):
                if type(part) is bytes or type(part) is str:
                    size = <u64>len(part)
                    total += size
                    if type(part) is str and not PyUnicode_IS_COMPACT_ASCII(part):
                        wide.append(part)
                        most += (UTF8_MAX - 1) * size
    if total <= ENTRY_BYTES_MAX < total + most:
        for part in wide:
            total += utf8_bytes(part) - <u64>len(part)
            if total > ENTRY_BYTES_MAX:
                break
    if total > ENTRY_BYTES_MAX:
        too_large(index)
    return 0


cdef inline u64 put_short(u8* out, const u8* text, u64 size) noexcept nogil:
    """As `put_text`, of less than SHORT_TEXT bytes."""
    cdef int64_t number = 0
    cdef u64 i = 0
    # What does not end with a digit is no number; most values of which it is one are short.
    if 0 < size <= 20 and text[0] <= 57 and 48 <= text[size - 1] <= 57:
        if size > 18 or text[0] < 48:       # it may be too large, or have a sign
            if parse_int(text, size, &number):
                return put_count(out, number)
        elif size == 1 or text[0] > 48:     # no number begins with 0 but that one
            while i < size and 48 <= text[i] <= 57:
                number = 10 * number + (text[i] - 48)
                i += 1
            if i == size:
                return put_count(out, number)
    out[0] = <u8>(0x80 | size)
    copy_few(out + 1, text, size)
    out[size + 1] = <u8>(size + 1)
    return size + 2


@cython.final
cdef class RowBatch:
    """Rows made ready to be packed."""

    cdef Buf values             # elements
    cdef Buf names              # elements
    cdef Buf shapes             # Shape
    cdef Buf refs               # RowRef
    cdef Buf known              # Elem of the shape that the last row had
    cdef Buf scratch            # elements of the names of the row at hand
    cdef Buf words              # Elem of a row that a client sends: see resp_adds
    cdef dict by_names          # encoded names -> number of the shape
    cdef list keys              # the objects that were the known shape's names
    cdef object held            # what the Elem at hand points into
    cdef object encode          # what makes values bytes; None: they are taken as they are
    cdef u64 known_shape

    def __cinit__(self):
        self.by_names = {}
        self.keys = []

    def __dealloc__(self):
        buf_free(&self.values)
        buf_free(&self.names)
        buf_free(&self.shapes)
        buf_free(&self.refs)
        buf_free(&self.known)
        buf_free(&self.scratch)
        buf_free(&self.words)

    def __len__(self):
        return self.refs.size // sizeof(RowRef)

    cdef const RowRef* ref(self, object index) except NULL:
        cdef Py_ssize_t at = index
        cdef Py_ssize_t size = self.refs.size // sizeof(RowRef)
        if at < 0:
            at += size
        if not 0 <= at < size:
            raise IndexError(f"row {index} of {size} does not exist")
        return <const RowRef*>self.refs.data + at

    def raw_bytes(self, index, /):
        """Sum of the lengths of the row's fields and values."""
        return self.ref(index).raw_bytes

    def flat(self, index, /):
        """The row as field, value, field, value, .."""
        cdef const RowRef* ref = self.ref(index)
        cdef const Shape* shape = <const Shape*>self.shapes.data + ref.shape
        cdef Elem elem
        cdef u64 name_at = shape.at, value_at = ref.at
        cdef int64_t i
        cdef list flat = []
        for i in range(shape.width):
            fail(lp_read(self.names.data, name_at, self.names.size, &elem))
            name_at = elem.after
            flat.append(elem_bytes(&elem))
            fail(lp_read(self.values.data, value_at, self.values.size, &elem))
            value_at = elem.after
            flat.append(elem_bytes(&elem))
        return flat

    cdef inline int grow(self, RowRef* ref, const Elem* elem, u64 index, object item) except -1:
        """Count the bytes of a field or value of a row; refuse it before they are copied. What an
        encoder makes of the others is not known yet."""
        if grow_row(ref, elem, index) and self.encode is None:
            refuse_large(item, index)
        return 0

    cdef int to_elem(self, object value, Elem* elem, u64 index, object field) except -1:
        """The bytes of a field or value; they stay valid until the next call."""
        cdef int overflow = 0
        cdef char* digits
        elem.is_int = False
        if isinstance(value, str):
            if PyUnicode_IS_COMPACT_ASCII(value):
                elem.data = <const u8*>PyUnicode_DATA(value)
                elem.size = <u64>PyUnicode_GET_LENGTH(value)
                return 0
            self.held = self.encoded(value, index, field)
        elif isinstance(value, bytes):
            elem.data = <const u8*>PyBytes_AS_STRING(value)
            elem.size = <u64>PyBytes_GET_SIZE(value)
            return 0
        elif isinstance(value, int) and not isinstance(value, bool):
            elem.number = PyLong_AsLongLongAndOverflow(value, &overflow)
            if not overflow:
                elem.is_int = True
                return 0
            self.held = self.encoded(value, index, field)
        elif isinstance(value, float):
            digits = PyOS_double_to_string(value, 114, 0, Py_DTSF_ADD_DOT_0, NULL)
            try:
                self.held = <bytes>digits
            finally:
                PyMem_Free(digits)
        else:
            raise EntryTypeError(
                f"row {index}, field {field!r}: give str, bytes, int or float, "
                f"not {type(value).__name__}; "
                "a stream with a codec takes more: store.stream(name, codec='json')"
            )
        elem.data = <const u8*>PyBytes_AS_STRING(self.held)
        elem.size = <u64>PyBytes_GET_SIZE(self.held)
        return 0

    cdef bytes encoded(self, object value, u64 index, object field):
        try:
            if isinstance(value, str):
                if UTF8_MAX * <u64>PyUnicode_GET_LENGTH(value) > ENTRY_BYTES_MAX:
                    refuse_large([(value,)], index)
                return str.encode(value, "utf-8")
            return int.__repr__(value).encode()
        except ValueError as error:
            raise InvalidEntryError(f"row {index}, field {field!r}: {error}") from error

    cdef int add(self, object item, u64 index) except -1:
        """Add one row; nothing is added if it is refused."""
        cdef RowRef ref
        cdef bint done = False
        ref.at = self.values.size
        if type(item) is dict:
            done = self.add_known(item, index, &ref)
        if not done:
            self.values.size = ref.at
            self.add_any(item, index, &ref)
        fail(buf_room(&self.refs, sizeof(RowRef)))
        (<RowRef*>(self.refs.data + self.refs.size))[0] = ref
        self.refs.size += sizeof(RowRef)
        return 0

    cdef bint add_known(self, object item, u64 index, RowRef* ref) except -1:
        """Add a dict that has the shape of the row before; False if it has not."""
        cdef PyObject* key
        cdef PyObject* value
        cdef u64 size
        cdef bint plain = self.encode is None
        cdef Py_ssize_t at = 0, i = 0
        cdef Py_ssize_t width = self.known.size // sizeof(Elem)
        cdef const Elem* known = <const Elem*>self.known.data
        cdef Elem elem
        cdef object name, given
        if width == 0 or PyDict_Size(item) != width:
            return False
        ref.shape = self.known_shape
        ref.raw_bytes = (<const Shape*>self.shapes.data + ref.shape).raw_bytes
        while i < width and PyDict_Next(item, &at, &key, &value):
            if plain and <PyObject*>PyList_GET_ITEM(self.keys, i) == key and held_is_str(value):
                if held_is_ascii(value):
                    size = held_text_bytes(value)
                    if size < SHORT_TEXT and ref.raw_bytes + size <= ENTRY_BYTES_MAX:
                        fail(buf_room(&self.values, SHORT_TEXT + FRAME_BYTES_MAX))
                        self.values.size += put_short(
                            self.values.data + self.values.size, held_text(value), size
                        )
                        ref.raw_bytes += size
                        i += 1
                        continue
            name, given = <object>key, <object>value    # an encoder may change the dict
            if <PyObject*>PyList_GET_ITEM(self.keys, i) != key:
                self.to_elem(name, &elem, index, name)
                if not same_elem(&elem, known + i):
                    return False
            i += 1
            if not plain:
                given = encoded_value(self.encode, given)
            self.to_elem(given, &elem, index, name)
            self.grow(ref, &elem, index, item)
            fail(buf_elem(&self.values, &elem))
        return i == width and (plain or PyDict_Size(item) == width)

    cdef int add_any(self, object item, u64 index, RowRef* ref) except -1:
        """Add any row: values to the batch, and its shape, which may be new."""
        cdef Elem elem
        cdef list keys = []
        cdef u64 names_bytes = 0
        cdef bint plain = type(item) is dict
        cdef object pairs = item.items() if plain or isinstance(item, Mapping) else item
        ref.raw_bytes = 0
        self.scratch.size = 0
        if not plain and (isinstance(pairs, (str, bytes)) or not isinstance(pairs, Iterable)):
            raise EntryTypeError(
                f"row {index}: give a mapping or pairs, not {type(item).__name__}"
            )
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise EntryTypeError(f"row {index}: {pair!r} is no (field, value) pair")
            field, value = pair
            self.to_elem(field, &elem, index, field)
            names_bytes += raw_of(&elem)
            self.grow(ref, &elem, index, item)
            fail(buf_elem(&self.scratch, &elem))
            if self.encode is not None:
                value = encoded_value(self.encode, value)
            self.to_elem(value, &elem, index, field)
            self.grow(ref, &elem, index, item)
            fail(buf_elem(&self.values, &elem))
            keys.append(field)
        if not keys:
            raise InvalidEntryError(f"row {index}: an entry needs at least one field")
        ref.shape = self.shape_of(keys, names_bytes)
        return 0

    cdef u64 shape_of(self, list keys, u64 names_bytes) except? 0:
        """The number of the shape whose names are in scratch; it becomes the known one."""
        cdef bytes names = PyBytes_FromStringAndSize(<char*>self.scratch.data, self.scratch.size)
        cdef Shape shape
        cdef object number = self.by_names.get(names)
        if number is None:
            shape.at = self.names.size
            shape.size = self.scratch.size
            shape.raw_bytes = names_bytes
            shape.width = len(keys)
            number = self.shapes.size // sizeof(Shape)
            fail(buf_add(&self.names, self.scratch.data, self.scratch.size))
            fail(buf_add(&self.shapes, &shape, sizeof(Shape)))
            self.by_names[names] = number
        elif self.known.size and number == self.known_shape:
            return self.known_shape
        self.known_shape = number
        self.keys = keys
        shape = (<const Shape*>self.shapes.data)[self.known_shape]
        fail(read_elems(self.names.data, shape.at, self.names.size, shape.width, &self.known))
        return self.known_shape

    cdef u64 shape_of_words(self, const Elem* words, int64_t width) except? 0:
        """The number of the shape whose names are every other of these, the first one too."""
        cdef const Elem* known = <const Elem*>self.known.data
        cdef u64 raw_bytes = 0
        cdef int64_t i
        if self.known.size == <u64>width * sizeof(Elem):
            for i in range(width):
                if not same_elem(words + 2 * i, known + i):
                    break
            else:
                return self.known_shape
        self.scratch.size = 0
        for i in range(width):
            raw_bytes += words[2 * i].size
            fail(buf_elem(&self.scratch, words + 2 * i))
        return self.shape_of([None] * width, raw_bytes)


def rows(items, encode=None):
    cdef RowBatch batch = RowBatch()
    cdef u64 index = 0
    batch.encode = encode
    for item in items:
        batch.add(item, index)
        index += 1
    batch.held = batch.encode = None
    return batch
