# The least and the most of columns in a node, and filters of some nodes. Pure twin:
# column_ranges.py.
#
# Invariants: what is told of a text is what the twin tells; of one that is not surely the one text
# of a value of its column, nothing.

from libc.math cimport isinf

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, PyObject* overflow) except? -1.0

cdef enum:
    RANGE_TEXT_MAX = 64     # as column_keys.py has them
    RANGE_DIGITS_MAX = 18
    DOUBLE_TEXT_MAX = 32

cdef enum RangeOrder:
    BY_TEXT, BY_WHOLE, BY_DOUBLE

cdef enum RangeKind:
    R_BOOL, R_INT, R_LONG, R_DOUBLE, R_DECIMAL, R_STRING, R_ENUM, R_DATE, R_TIME, R_TIMESTAMP, \
        R_UUID

cdef dict RANGE_KINDS = {
    "bool": R_BOOL, "int": R_INT, "long": R_LONG, "double": R_DOUBLE, "decimal": R_DECIMAL,
    "string": R_STRING, "enum": R_ENUM, "date": R_DATE, "time": R_TIME, "timestamp": R_TIMESTAMP,
    "uuid": R_UUID,
}


ctypedef struct RangeKey:
    Elem elem
    int64_t whole
    double real
    u8 text[24]         # of an integer that is compared as a text


ctypedef struct Ranged:
    Elem name
    RangeKind kind
    RangeOrder order
    int digits
    int scale
    int64_t nulls
    bint filtered       # whether its texts are hashed
    bint sound          # and all of them were, since filters were taken
    Hashed hashed
    bint known
    bint any
    RangeKey least
    RangeKey most
    Elem here           # of the entry
    bint there


cdef bint is_double_pattern(const char* text, Py_ssize_t size) noexcept nogil:
    """Digits, and behind them a point with digits, and an exponent."""
    cdef Py_ssize_t at = 1 if size and text[0] == b"-"[0] else 0, begin = at
    while at < size and b"0"[0] <= text[at] <= b"9"[0]:
        at += 1
    if at == begin:
        return False
    if at < size and text[at] == b"."[0]:
        at += 1
        begin = at
        while at < size and b"0"[0] <= text[at] <= b"9"[0]:
            at += 1
        if at == begin:
            return False
    if at < size and (text[at] == b"e"[0] or text[at] == b"E"[0]):
        at += 1
        if at < size and (text[at] == b"+"[0] or text[at] == b"-"[0]):
            at += 1
        begin = at
        while at < size and b"0"[0] <= text[at] <= b"9"[0]:
            at += 1
        if at == begin:
            return False
    return at == size


cdef double short_double(const char* text, Py_ssize_t size) noexcept nogil:
    """The number of a text of which `is_double_text` holds: two exact numbers are divided."""
    cdef int64_t digits = 0
    cdef Py_ssize_t at = 1 if text[0] == b"-"[0] else 0, behind = 0
    cdef bint point = False
    while at < size:
        if text[at] == b"."[0]:
            point = True
        else:
            digits = digits * 10 + (text[at] - b"0"[0])
            behind += point
        at += 1
    return (-<double>digits if text[0] == b"-"[0] else <double>digits) / <double>TENS[behind]


cdef bint double_key(const Elem* elem, double* key) except -1:
    cdef char text[DOUBLE_TEXT_MAX + 1]
    cdef Py_ssize_t size = <Py_ssize_t>elem.size
    if elem.is_int:
        key[0] = <double>elem.number
        return True
    if size > DOUBLE_TEXT_MAX:
        return False
    if is_double_text(<const char*>elem.data, size):
        key[0] = short_double(<const char*>elem.data, size)
        return True
    if not is_double_pattern(<const char*>elem.data, size):
        return False
    memcpy(text, elem.data, size)
    text[size] = 0
    key[0] = PyOS_string_to_double(text, NULL, NULL)
    return not isinf(key[0])


cdef bint decimal_key(const Ranged* column, const Elem* elem, int64_t* key) noexcept nogil:
    """The number of units of the last place."""
    cdef const char* text = <const char*>elem.data
    cdef Py_ssize_t size = <Py_ssize_t>elem.size, at = 0, whole, i
    cdef int64_t units = 0
    if elem.is_int:
        key[0] = elem.number
        return not column.scale and is_below_tens(elem.number, column.digits)
    if size and text[0] == b"-"[0]:
        at = 1
    whole = size - at - (column.scale + 1 if column.scale else 0)
    if whole < 1 or whole + column.scale > RANGE_DIGITS_MAX or not digits_at(text, at, whole):
        return False
    if whole > 1 and text[at] == b"0"[0]:
        return False
    if column.scale:
        if text[at + whole] != b"."[0] or not digits_at(text, at + whole + 1, column.scale):
            return False
    for i in range(at, size):
        if text[i] != b"."[0]:
            units = units * 10 + (text[i] - b"0"[0])
    if not is_below_tens(units, column.digits) or (at and not units):
        return False
    key[0] = -units if at else units
    return True


cdef bint is_below_tens(int64_t number, int digits) noexcept nogil:
    """Whether a number has at most so many digits, and no more than DIGITS_MAX."""
    cdef int64_t most = 1
    cdef int i
    for i in range(min(digits, RANGE_DIGITS_MAX)):
        most *= 10
    return -most < number < most


cdef bint whole_key(const Elem* elem, int bits, int64_t* key) noexcept nogil:
    if elem.is_int:
        key[0] = elem.number
    elif not parse_int(elem.data, elem.size, key):
        return False
    return bits == 63 or -0x80000000 <= key[0] <= 0x7FFFFFFF


cdef bint is_uuid_text(const char* text, Py_ssize_t size) noexcept nogil:
    """The one text of a UUID, in lower case."""
    cdef Py_ssize_t at
    if size != 36:
        return False
    for at in range(36):
        if at == 8 or at == 13 or at == 18 or at == 23:
            if text[at] != b"-"[0]:
                return False
        elif not (b"0"[0] <= text[at] <= b"9"[0] or b"a"[0] <= text[at] <= b"f"[0]):
            return False
    return True


cdef bint text_key(const Ranged* column, RangeKey* key, object texts) except -1:
    """Whether the text of an element can be compared, whose bytes are its key."""
    cdef Elem* elem = &key.elem
    cdef const char* text
    cdef Py_ssize_t size
    if elem.is_int:
        if column.kind != R_STRING and column.kind != R_ENUM:
            return False
        elem.size = format_i64(elem.number, key.text)
        elem.data = key.text
        elem.is_int = False
    text, size = <const char*>elem.data, <Py_ssize_t>elem.size
    if column.kind == R_STRING:
        return size <= RANGE_TEXT_MAX and is_utf8(elem.data, elem.size)
    if column.kind == R_ENUM:
        return size <= RANGE_TEXT_MAX and PyBytes_FromStringAndSize(text, size) in texts
    if column.kind == R_TIMESTAMP:
        return is_timestamp_text(text, size)
    if column.kind == R_DATE:
        return size == 10 and is_date_at(text)
    if column.kind == R_TIME:
        return size == 15 and is_time_at(text)
    if column.kind == R_UUID:
        return is_uuid_text(text, size)
    return (size == 4 and memcmp(text, b"true", 4) == 0) or \
        (size == 5 and memcmp(text, b"false", 5) == 0)


cdef bint key_of_elem(const Ranged* column, RangeKey* key, object texts) except -1:
    if column.order == BY_TEXT:
        return text_key(column, key, texts)
    if column.order == BY_DOUBLE:
        return double_key(&key.elem, &key.real)
    if column.kind == R_DECIMAL:
        return decimal_key(column, &key.elem, &key.whole)
    return whole_key(&key.elem, 31 if column.kind == R_INT else 63, &key.whole)


cdef int compared_keys(const Ranged* column, const RangeKey* a, const RangeKey* b) noexcept nogil:
    """Below, equal or above 0, as a is to b."""
    cdef int found
    if column.order == BY_WHOLE:
        return (a.whole > b.whole) - (a.whole < b.whole)
    if column.order == BY_DOUBLE:
        return (a.real > b.real) - (a.real < b.real)
    found = memcmp(a.elem.data, b.elem.data, min(a.elem.size, b.elem.size))
    return found if found else (a.elem.size > b.elem.size) - (a.elem.size < b.elem.size)


cdef void keep_key(RangeKey* to, const RangeKey* key) noexcept nogil:
    to[0] = key[0]
    if key.elem.data == key.text:
        to.elem.data = to.text


cdef int take_text(Ranged* column, const RangeKey* key, bint has_key, u8 node) except -1:
    """Hash the text of a value; a text that is long has no key, and is hashed."""
    cdef u8 text[24]
    cdef u64 size
    if not has_key and (column.kind != R_STRING or not is_utf8(key.elem.data, key.elem.size)):
        column.sound = False
    elif key.elem.is_int:
        size = format_i64(key.elem.number, text)
        hashed_add(&column.hashed, text_hash(text, size), node)
    else:
        hashed_add(&column.hashed, text_hash(key.elem.data, key.elem.size), node)
    return 0


cdef int take_value(Ranged* column, const Elem* elem, object texts, u8 node) except -1:
    """Take the value of an entry into account."""
    cdef RangeKey key
    cdef bint has_key
    if not column.known and not column.sound:
        return 0
    key.elem = elem[0]
    has_key = key_of_elem(column, &key, texts)
    if column.sound:
        take_text(column, &key, has_key, node)
    if not has_key:
        column.known = False
    if not column.known:
        return 0
    if not column.any:
        column.any = True
        keep_key(&column.least, &key)
        keep_key(&column.most, &key)
    elif compared_keys(column, &key, &column.least) < 0:
        keep_key(&column.least, &key)
    elif compared_keys(column, &key, &column.most) > 0:
        keep_key(&column.most, &key)
    return 0


@cython.final
cdef class RangeFinder:
    cdef tuple columns          # what the names of `ranged` point into
    cdef list texts
    cdef object made            # ColumnRange
    cdef Ranged* ranged
    cdef Py_ssize_t count
    cdef bint busy
    cdef int nodes              # since filters were taken

    def __cinit__(self, columns, bint filtering=False):
        cdef Py_ssize_t i
        from logstore.codec.column_keys import COLUMNS_MAX, ColumnRange

        self.made = ColumnRange
        self.columns = tuple(columns)
        self.count = len(self.columns)
        if self.count > COLUMNS_MAX:
            raise ValueError(f"ranges are of at most {COLUMNS_MAX} columns")
        self.ranged = <Ranged*>malloc((self.count + 1) * sizeof(Ranged))
        if self.ranged == NULL:
            raise MemoryError
        memset(self.ranged, 0, (self.count + 1) * sizeof(Ranged))
        self.texts = []
        for i, (field, kind, digits, scale, texts) in enumerate(self.columns):
            wanted_elem(&self.ranged[i].name, <bytes?>field)
            self.ranged[i].kind = RANGE_KINDS[kind]
            self.ranged[i].digits, self.ranged[i].scale = digits, scale
            self.ranged[i].order = BY_WHOLE if kind in ("int", "long", "decimal") else \
                BY_DOUBLE if kind == "double" else BY_TEXT
            self.ranged[i].filtered = filtering and \
                self.ranged[i].kind in (R_INT, R_LONG, R_STRING, R_ENUM, R_UUID)
            self.ranged[i].sound = self.ranged[i].filtered
            self.texts.append(texts)

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.ranged != NULL:
            for i in range(self.count):
                hashed_free(&self.ranged[i].hashed)
        free(self.ranged)

    def of(self, bytes lp not None, /):
        if self.busy:
            raise UsageError("a RangeFinder is for one thread at a time")
        self.busy = True
        try:
            return self.found_in(lp)
        finally:
            self.nodes += 1
            self.busy = False

    def filters(self):
        cdef Py_ssize_t k
        cdef Ranged* column
        cdef list found = []
        if self.busy:
            raise UsageError("a RangeFinder is for one thread at a time")
        self.busy = True
        try:
            for k in range(self.count):
                column = &self.ranged[k]
                sound = column.sound and self.nodes <= FILTER_NODES
                found.append(filter_of(&column.hashed) if sound else None)
                column.hashed.size = 0
                column.sound = column.filtered
            self.nodes = 0
            return found
        finally:
            self.busy = False

    cdef object found_in(self, bytes lp):
        cdef Master m
        cdef Entry e
        cdef const u8* p = data_of(lp)
        cdef int64_t rows = 0
        cdef int64_t* slots
        cdef u64 pos
        cdef Py_ssize_t k
        fail(read_master(p, size_of(lp), &m))
        for k in range(self.count):
            self.ranged[k].sound = self.ranged[k].sound and self.nodes < FILTER_NODES
            self.ranged[k].nulls = 0
            self.ranged[k].known, self.ranged[k].any = True, False
        slots = <int64_t*>malloc((m.width + 1) * sizeof(int64_t))
        if slots == NULL:
            raise MemoryError
        try:
            self.begin_slots(p, &m, slots)
            e.ordinal = -1
            pos = m.first
            while pos < m.end:
                e.ordinal += 1
                fail(read_entry_head(p, pos, &m, &e))
                if e.flags & DELETED:
                    fail(skip_items(p, &m, &e, &pos))
                else:
                    rows += 1
                    self.take_entry(p, &m, &e, slots, &pos)
                fail(read_entry_tail(p, pos, &m, &e))
                pos = e.after
        finally:
            free(slots)
        return rows, [self.range_of(&self.ranged[k]) for k in range(self.count)]

    cdef int begin_slots(self, const u8* p, const Master* m, int64_t* slots) except -1:
        """Find the column of each of the node's fields, or -1: of a repeated one, the last has
        it."""
        cdef Elem elem
        cdef u64 pos = m.fields_at
        cdef int64_t i, j
        cdef Py_ssize_t k
        for i in range(m.width):
            fail(lp_read(p, pos, m.end, &elem))
            slots[i] = -1
            for k in range(self.count):
                if same_elem(&elem, &self.ranged[k].name):
                    for j in range(i):
                        if slots[j] == k:
                            slots[j] = -1
                    slots[i] = k
            pos = elem.after
        return 0

    cdef int take_entry(self, const u8* p, const Master* m, const Entry* e, const int64_t* slots,
                        u64* after) except -1:
        cdef Elem name, elem
        cdef u64 pos = e.body
        cdef int64_t i
        cdef Py_ssize_t k
        for k in range(self.count):
            self.ranged[k].there = False
        for i in range(e.pairs):
            if not e.flags & SAME_FIELDS:
                fail(lp_read(p, pos, m.end, &name))
                pos = name.after
            fail(lp_read(p, pos, m.end, &elem))
            pos = elem.after
            if e.flags & SAME_FIELDS:
                if slots[i] >= 0:
                    self.ranged[slots[i]].here, self.ranged[slots[i]].there = elem, True
                continue
            for k in range(self.count):
                if same_elem(&name, &self.ranged[k].name):
                    self.ranged[k].here, self.ranged[k].there = elem, True
        for k in range(self.count):
            if self.ranged[k].there:
                take_value(
                    &self.ranged[k], &self.ranged[k].here, self.texts[k], <u8>self.nodes
                )
            else:
                self.ranged[k].nulls += 1
        after[0] = pos
        return 0

    cdef object range_of(self, const Ranged* column):
        if not column.known:
            return None
        if not column.any:
            return self.made(column.nulls, None, None)
        return self.made(
            column.nulls, elem_bytes(&column.least.elem), elem_bytes(&column.most.elem)
        )
