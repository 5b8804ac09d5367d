# Rows of a stream with a schema, value by value. Pure twin: `RowWriter` in row_batch.py, which asks
# the schema for each row.
#
# Invariants: a row that is written here is the one that the schema writes. What is not sure to be
# that (a text in another spelling, a value that is refused) is asked of the schema.

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromString
from cpython.datetime cimport (
    PyDate_CheckExact, PyDateTime_CheckExact, PyTime_CheckExact, date_day, date_month, date_year,
    datetime_day, datetime_hour, datetime_microsecond, datetime_minute, datetime_month,
    datetime_second, datetime_tzinfo, datetime_year, import_datetime, time_hour, time_microsecond,
    time_minute, time_second, time_tzinfo,
)
from cpython.dict cimport PyDict_DelItem
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_Free
from libc.math cimport fabs, llrint
from libc.string cimport strchr

from datetime import timezone as _timezone

cdef extern from "Python.h":
    char* PyOS_double_to_string(double value, char form, int precision, int flags,
                                int* kind) except NULL

import_datetime()

cdef object UTC_ZONE = _timezone.utc

cdef int64_t[16] TENS
TENS[0] = 1
for _power in range(1, 16):
    TENS[_power] = 10 * TENS[_power - 1]

cdef enum ColumnKind:
    BY_ITS_TYPE = 0         # the type's own function writes it
    A_BOOL, AN_INT, A_LONG, A_DOUBLE, A_STRING, AN_ENUM, A_DATE, A_TIMESTAMP, A_TIME

cdef enum:
    COLUMNS_AT_ONCE = 256   # of a schema with more, rows are asked of the schema

cdef dict KINDS = {
    "bool": A_BOOL, "int": AN_INT, "long": A_LONG, "double": A_DOUBLE, "string": A_STRING,
    "enum": AN_ENUM, "date": A_DATE, "timestamp": A_TIMESTAMP, "time": A_TIME,
}


@cython.final
cdef class WrittenColumn:
    """A column as rows are written by it."""

    cdef int kind
    cdef int at
    cdef bint nullable
    cdef bytes field, default
    cdef object write
    cdef object texts           # of an enum, as bytes


cdef bint digits_at(const char* data, Py_ssize_t at, Py_ssize_t count) noexcept nogil:
    """Whether there are so many digits."""
    cdef Py_ssize_t i
    for i in range(at, at + count):
        if not b"0"[0] <= data[i] <= b"9"[0]:
            return False
    return True


cdef bint is_whole_text(const char* data, Py_ssize_t size, Py_ssize_t digits_max) noexcept nogil:
    """Whether this is the one text of a whole number with no more digits."""
    cdef Py_ssize_t at = 1 if size and data[0] == b"-"[0] else 0
    if not at < size <= at + digits_max or not digits_at(data, at, size - at):
        return False
    return data[at] != b"0"[0] or size == 1


cdef bint is_double_text(const char* data, Py_ssize_t size) noexcept nogil:
    """Whether this is the shortest text of a double, as far as that is told by its digits: there
    are at most fifteen, few of them before the point, and the last one behind it is not zero."""
    cdef Py_ssize_t at = 1 if size and data[0] == b"-"[0] else 0, point = at
    while point < size and data[point] != b"."[0]:
        point += 1
    if not 1 <= point - at <= 9 or not digits_at(data, at, point - at):
        return False
    if data[at] == b"0"[0] and point - at > 1:
        return False
    if point == size:
        return data[at] != b"0"[0] or at == 0
    if not 1 <= size - point - 1 <= 6 or not digits_at(data, point + 1, size - point - 1):
        return False
    if data[size - 1] == b"0"[0]:
        return False
    # what begins with four zeros behind the point has an exponent, or is near to that
    return data[at] != b"0"[0] or data[point + 1] != b"0"[0] or data[point + 2] != b"0"[0]


cdef inline int two_digits(const char* data) noexcept nogil:
    return (data[0] - b"0"[0]) * 10 + data[1] - b"0"[0]


cdef bint has_shape(const char* data, const char* shape) noexcept nogil:
    """Whether a text is like the shape, in which ``d`` is any digit."""
    cdef Py_ssize_t i = 0
    while shape[i]:
        if shape[i] == b"d"[0]:
            if not b"0"[0] <= data[i] <= b"9"[0]:
                return False
        elif data[i] != shape[i]:
            return False
        i += 1
    return True


cdef bint is_date_at(const char* data) noexcept nogil:
    """Whether the next ten characters are a day."""
    cdef int year, month, day, last = 31
    if not has_shape(data, b"dddd-dd-dd"):
        return False
    year = two_digits(data) * 100 + two_digits(data + 2)
    month, day = two_digits(data + 5), two_digits(data + 8)
    if month == 4 or month == 6 or month == 9 or month == 11:
        last = 30
    elif month == 2:
        last = 29 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 28
    return year > 0 and 1 <= month <= 12 and 1 <= day <= last


cdef bint is_time_at(const char* data) noexcept nogil:
    """Whether the next fifteen characters are a time of day, with all of its digits."""
    return (
        has_shape(data, b"dd:dd:dd.dddddd") and two_digits(data) < 24
        and two_digits(data + 3) < 60 and two_digits(data + 6) < 60
    )


cdef bint is_timestamp_text(const char* data, Py_ssize_t size) noexcept nogil:
    """Whether this is the one text of a moment."""
    return (
        size == 27 and is_date_at(data) and data[10] == b" "[0] and is_time_at(data + 11)
        and data[26] == b"Z"[0]
    )


cdef inline char* put_digits(char* to, int value, int count) noexcept nogil:
    """Write a number with leading zeros; behind its end."""
    cdef int i
    for i in range(count - 1, -1, -1):
        to[i] = <char>(b"0"[0] + value % 10)
        value //= 10
    return to + count


cdef inline char* put_three(char* to, int first, int first_digits, char between, int second,
                            int third) noexcept nogil:
    """Write three numbers, the last two with two digits."""
    to = put_digits(to, first, first_digits)
    to[0] = between
    to = put_digits(to + 1, second, 2)
    to[0] = between
    return put_digits(to + 1, third, 2)


cdef bytes timestamp_text(object value):
    cdef char text[27]
    cdef char* to = put_three(text, datetime_year(value), 4, b"-"[0], datetime_month(value),
                              datetime_day(value))
    to[0] = b" "[0]
    to = put_three(to + 1, datetime_hour(value), 2, b":"[0], datetime_minute(value),
                   datetime_second(value))
    to[0] = b"."[0]
    to = put_digits(to + 1, datetime_microsecond(value), 6)
    to[0] = b"Z"[0]
    return PyBytes_FromStringAndSize(text, 27)


cdef bytes date_text(object value):
    cdef char text[10]
    put_three(text, date_year(value), 4, b"-"[0], date_month(value), date_day(value))
    return PyBytes_FromStringAndSize(text, 10)


cdef bytes time_text(object value):
    cdef char text[15]
    cdef char* to = put_three(text, time_hour(value), 2, b":"[0], time_minute(value),
                              time_second(value))
    to[0] = b"."[0]
    put_digits(to + 1, time_microsecond(value), 6)
    return PyBytes_FromStringAndSize(text, 15)


cdef u64 put_short_text(char* text, double value) noexcept nogil:
    """Write the shortest text of a number with at most six digits behind the point and fifteen in
    all; how many bytes, and 0 for another one. No two texts of fifteen digits are the same number,
    so it is the one."""
    cdef char* to = text
    cdef int64_t millionths
    cdef int count = 6, whole = 1
    if not 1e-4 <= fabs(value) < 1e9:
        return 0
    millionths = llrint(fabs(value) * 1e6)
    if <double>millionths / 1e6 != fabs(value):
        return 0
    if value < 0:
        to[0] = b"-"[0]
        to += 1
    while whole < 9 and millionths >= TENS[whole + 6]:
        whole += 1
    put_digits(to, <int>(millionths // 1000000), whole)
    to += whole
    millionths %= 1000000
    while count and not millionths % 10:
        millionths //= 10
        count -= 1
    if count:
        to[0] = b"."[0]
        to = put_digits(to + 1, <int>millionths, count)
    return <u64>(to - text)


cdef object double_text(double value):
    """The shortest text of a number that has no exponent; None of another one."""
    cdef char* text
    cdef char short[24]
    cdef u64 size = put_short_text(short, value)
    if size:
        return PyBytes_FromStringAndSize(short, <Py_ssize_t>size)
    if not -1e10 < value < 1e10:
        return None
    text = PyOS_double_to_string(value, b"r"[0], 0, 0, NULL)
    try:
        return None if strchr(text, b"e"[0]) != NULL else PyBytes_FromString(text)
    finally:
        PyMem_Free(text)


cdef object quick_text(WrittenColumn column, object value):
    """A value that an add stores as the column's text; None if only the type can tell it."""
    cdef const char* data
    cdef Py_ssize_t size
    cdef int kind = column.kind, overflow = 0
    cdef int64_t number
    if PyUnicode_CheckExact(value):
        if not PyUnicode_IS_COMPACT_ASCII(value):
            return None
        data, size = <const char*>PyUnicode_DATA(value), PyUnicode_GET_LENGTH(value)
        if kind == AN_ENUM:
            value = PyBytes_FromStringAndSize(data, size)
        return value if is_text_of(column, value, data, size) else None
    if PyBytes_CheckExact(value):
        data, size = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
        return value if is_text_of(column, value, data, size) else None
    if kind == AN_INT or kind == A_LONG:
        if PyLong_CheckExact(value):
            number = PyLong_AsLongLongAndOverflow(value, &overflow)
            if not overflow and (kind == A_LONG or -0x80000000 <= number <= 0x7FFFFFFF):
                return value
    elif kind == A_DOUBLE:
        if PyFloat_CheckExact(value):
            return double_text(PyFloat_AS_DOUBLE(value))
        if PyLong_CheckExact(value):
            number = PyLong_AsLongLongAndOverflow(value, &overflow)
            if not overflow and -10_000_000_000 < number < 10_000_000_000:
                return value
    elif kind == A_BOOL:
        if value is True:
            return b"true"
        if value is False:
            return b"false"
    elif kind == A_TIMESTAMP:
        if PyDateTime_CheckExact(value) and datetime_tzinfo(value) is UTC_ZONE:
            return timestamp_text(value)
    elif kind == A_DATE:
        if PyDate_CheckExact(value):
            return date_text(value)
    elif kind == A_TIME:
        if PyTime_CheckExact(value) and time_tzinfo(value) is None:
            return time_text(value)
    return None


cdef bint is_text_of(WrittenColumn column, object text, const char* data, Py_ssize_t size):
    """Whether this is surely the one text of a value of the column. `text` has the same bytes."""
    cdef int kind = column.kind
    if kind == AN_INT:
        return is_whole_text(data, size, 9)
    if kind == A_LONG:
        return is_whole_text(data, size, 18)
    if kind == A_DOUBLE:
        return is_double_text(data, size)
    if kind == A_STRING:
        return is_utf8(<const u8*>data, <u64>size)
    if kind == AN_ENUM:
        return text in column.texts
    if kind == A_DATE:
        return size == 10 and is_date_at(data)
    if kind == A_TIME:
        return size == 15 and is_time_at(data)
    return kind == A_TIMESTAMP and is_timestamp_text(data, size)


@cython.final
cdef class RowWriter:
    cdef object row             # of the schema
    cdef bint is_open
    cdef dict by_name           # columns, by their names as str and as bytes
    cdef list columns

    def __init__(self, columns, is_open, row):
        cdef WrittenColumn made
        self.row, self.is_open = row, is_open
        self.by_name, self.columns = {}, []
        for name, field, kind, write, nullable, default, texts in columns:
            made = WrittenColumn.__new__(WrittenColumn)
            made.kind, made.at = KINDS.get(kind, BY_ITS_TYPE), len(self.columns)
            made.field, made.write = field, write
            made.nullable, made.default, made.texts = nullable, default, texts
            self.columns.append(made)
            self.by_name[name] = self.by_name[field] = made

    def fields(self, dict fields not None):
        cdef object made = None
        if len(self.columns) <= COLUMNS_AT_ONCE:
            try:
                made = self.quick_fields(PyDict_Copy(fields))
            except (ValueError, TypeError):     # the schema says whose value it is
                pass
        return self.row(fields.items()) if made is None else made

    cdef object quick_fields(self, dict made):
        """The row as it is stored, made of a copy that nobody else has; None: ask the schema."""
        cdef u8 there[COLUMNS_AT_ONCE]
        cdef PyObject* key
        cdef PyObject* item
        cdef PyObject* known
        cdef Py_ssize_t at = 0
        cdef bint as_bytes = False, as_text = False, wide = False
        cdef WrittenColumn column
        cdef object name, value, text
        cdef list nulls = None
        memset(there, 0, COLUMNS_AT_ONCE)
        while PyDict_Next(made, &at, &key, &item):
            name, value = <object>key, <object>item
            if PyUnicode_CheckExact(name):
                as_text = True
                wide = wide or not PyUnicode_IS_COMPACT_ASCII(name)
            elif PyBytes_CheckExact(name):
                as_bytes = True
            else:
                return None
            known = PyDict_GetItemWithError(self.by_name, name)
            if known == NULL:
                if not self.is_open or not is_plain_value(name) or not is_plain_value(value):
                    return None
                continue
            column = <WrittenColumn>known
            there[column.at] = 1
            if value is None:
                if not column.nullable:
                    return None
                nulls = [] if nulls is None else nulls
                nulls.append(name)
                continue
            text = quick_text(column, value)
            if text is None:
                text = column.write(value)
            if text is not value:
                PyDict_SetItem(made, name, text)
        if as_bytes and as_text:    # two names may be one
            return None
        if nulls is not None:
            for name in nulls:
                PyDict_DelItem(made, name)
        if wide:
            made = {
                (<WrittenColumn>self.by_name[name]).field if name in self.by_name else name: value
                for name, value in made.items()
            }
        return made if self.fill(made, there) else None

    cdef bint fill(self, dict made, const u8* there) except -1:
        """Add the defaults of columns that are not there; False: one has none, and is missing."""
        cdef WrittenColumn column
        for column in self.columns:
            if not there[column.at]:
                if column.default is not None:
                    made[column.field] = column.default
                elif not column.nullable:
                    return False
        return True

    def rewritten(self, list flat not None):
        if len(self.columns) <= COLUMNS_AT_ONCE and self.stands(flat):
            return None
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        row = self.row(pairs)
        return None if row == pairs else row

    cdef bint stands(self, list flat) except -1:
        """Whether a row of bytes is surely stored as it is."""
        cdef u8 there[COLUMNS_AT_ONCE]
        cdef PyObject* known
        cdef Py_ssize_t i, size = len(flat)
        cdef WrittenColumn column
        cdef object value
        memset(there, 0, COLUMNS_AT_ONCE)
        if size & 1:
            return False
        for i in range(0, size, 2):
            known = PyDict_GetItemWithError(self.by_name, flat[i])
            if known == NULL:
                if not self.is_open:
                    return False
                continue
            column, value = <WrittenColumn>known, flat[i + 1]
            there[column.at] = 1
            if not PyBytes_CheckExact(value) or quick_text(column, value) is None:
                return False
        for column in self.columns:
            if not there[column.at] and (column.default is not None or not column.nullable):
                return False
        return True


cdef bint is_plain_value(object value):
    """Whether any store's encoding gives the same bytes of it as UTF-8."""
    if PyUnicode_CheckExact(value):
        return PyUnicode_IS_COMPACT_ASCII(value)
    return PyBytes_CheckExact(value) or PyLong_CheckExact(value) or PyFloat_CheckExact(value)
