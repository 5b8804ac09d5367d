# Columns of values, and of Arrow, as rows; and the texts of whole columns of Arrow. Pure twins:
# `columns`, `moment_texts`, `double_texts` and `canonical_texts` in row_batch.py.
#
# An array of Arrow is read from its buffers: text and bytes by offsets of 32 bits, and numbers of
# 64 bits. Whoever has others makes lists of them.
#
# Invariants: the array keeps its buffers, and a `Cells` the array. An offset is looked at before
# what it points to is. Text that Arrow takes for UTF-8 is looked at, too.

from libc.math cimport signbit
from libc.stddef cimport size_t


cdef enum:
    TEXT_BYTES_MAX = 32         # of a number or a time, with room


cdef inline bint is_arrow(object column):
    return hasattr(column, "buffers")


cdef bint is_read(object column):
    """Whether values of a column become those of rows without an object each; a list is read."""
    return not is_arrow(column) or str(column.type) in {"string", "binary", "int64"}


@cython.final
cdef class Cells:
    """A column: a list of ours, or an array of Arrow with its buffers."""

    cdef list listed
    cdef object array
    cdef object buffers
    cdef Py_ssize_t count
    cdef int64_t begin          # of the array in its buffers
    cdef const u8* valid        # a bit a row; NULL: none is null
    cdef const int32_t* offsets
    cdef const int64_t* numbers
    cdef const u8* data
    cdef u64 data_bytes
    cdef bint is_text
    cdef bint is_checked        # all of it is ASCII, or bytes

    def __init__(self, column):
        cdef str kind = str(column.type) if is_arrow(column) else ""
        if kind in {"string", "binary"}:
            self.take_array(column)
            self.take_texts(kind == "string")
        elif kind == "int64" or kind == "double" or kind.startswith("timestamp"):
            self.take_array(column)
            self.numbers = <const int64_t*>self.buffer(1, 8 * <u64>(self.begin + self.count))
        else:
            self.listed = column.to_pylist() if kind else list(column)
            self.count = len(self.listed)

    cdef int take_array(self, array) except -1:
        self.array, self.buffers = array, array.buffers()
        self.count, self.begin = len(array), array.offset
        if array.null_count:
            self.valid = self.buffer(0, (<u64>(self.begin + self.count) + 7) // 8)
        return 0

    cdef const u8* buffer(self, int place, u64 least) except? NULL:
        """The bytes of a buffer that has so many at least."""
        cdef object buffer = self.buffers[place]
        cdef size_t address = 0 if buffer is None else buffer.address
        if least and self.count and (buffer is None or <u64>buffer.size < least):
            raise ValueError("the column's buffers are shorter than the column")
        return <const u8*>address

    cdef int take_texts(self, bint is_text) except -1:
        cdef u64 end
        self.offsets = <const int32_t*>self.buffer(1, 4 * <u64>(self.begin + self.count + 1))
        self.data = self.buffer(2, 0)
        self.data_bytes = 0 if self.buffers[2] is None else self.buffers[2].size
        self.is_text = is_text
        self.is_checked = not is_text
        if is_text and self.count:
            end = <u64>self.offsets[self.begin + self.count]
            self.is_checked = end <= self.data_bytes and is_ascii(self.data, end)
        return 0

    cdef inline bint is_null(self, Py_ssize_t row) noexcept:
        cdef u64 at = <u64>(self.begin + row)
        if self.listed is not None:
            return <object>PyList_GET_ITEM(self.listed, row) is None
        return self.valid != NULL and not self.valid[at >> 3] >> (at & 7) & 1

    cdef inline int text(self, Py_ssize_t row, Elem* elem) except -1:
        """The bytes of a value that is not null."""
        cdef int64_t at = self.offsets[self.begin + row], end = self.offsets[self.begin + row + 1]
        if not 0 <= at <= end or <u64>end > self.data_bytes:
            raise ValueError("the column's offsets are outside of its bytes")
        elem.is_int = False
        elem.data, elem.size = self.data + at, <u64>(end - at)
        if not self.is_checked and not is_utf8(elem.data, elem.size):
            (<const char*>elem.data)[:elem.size].decode()     # raises what a list would have
        return 0


cdef int put_cell(RowBatch batch, RowRef* ref, Cells cells, Py_ssize_t row, object field,
                  list columns) except -1:
    """Add a value that is not null."""
    cdef Elem elem
    if cells.listed is not None:
        batch.to_elem(<object>PyList_GET_ITEM(cells.listed, row), &elem, row, field)
    elif cells.offsets != NULL:
        cells.text(row, &elem)
        if elem.size < SHORT_TEXT and ref.raw_bytes + elem.size <= LARGE_ROW_BYTES:
            fail(buf_room(&batch.values, SHORT_TEXT + FRAME_BYTES_MAX))
            batch.values.size += put_short(
                batch.values.data + batch.values.size, elem.data, elem.size
            )
            ref.raw_bytes += elem.size
            return 0
    else:
        elem.is_int, elem.number = True, cells.numbers[cells.begin + row]
    if grow_row(ref, &elem, row):
        refuse_large([(value_at(each, row),) for each in columns], row)
    fail(buf_elem(&batch.values, &elem))
    return 0


cdef object value_at(Cells cells, Py_ssize_t row):
    """A value as an object; the size of one that is large is looked at."""
    return cells.listed[row] if cells.listed is not None else cells.array[row].as_py()


def columns(names, columns):
    """Rows of columns: of each row, the values that are not None, under their columns' names."""
    cdef RowBatch batch = RowBatch()
    cdef RowRef ref
    cdef Elem elem
    cdef list fields = list(names), cells = [], keys
    cdef Buf there              # the columns that the row before has, as which the next is shaped
    cdef Py_ssize_t width = len(fields), count, i, found, row, known = 0
    cdef Py_ssize_t* present
    cdef u64 names_bytes
    cdef bint same
    for column in columns:
        cells.append(Cells(column if is_read(column) else column.to_pylist()))
    count = (<Cells>cells[0]).count if cells else 0
    if width != len(cells) or any((<Cells>each).count != count for each in cells):
        raise ValueError("each name needs a column, and each column a value of every row")
    memset(&there, 0, sizeof(Buf))
    try:
        fail(buf_reserve(&there, (width + 1) * sizeof(Py_ssize_t)))
        present = <Py_ssize_t*>there.data
        for row in range(count):
            ref.at = batch.values.size
            found = 0
            same = row > 0
            # Of values first, so that the shape is looked for only where other columns are null.
            for i in range(width):
                if (<Cells>PyList_GET_ITEM(cells, i)).is_null(row):
                    continue
                same = same and found < known and present[found] == i
                present[found] = i
                found += 1
            if not same or found != known:
                if not found:
                    raise InvalidEntryError(f"row {row}: an entry needs at least one field")
                known = found
                batch.scratch.size = 0
                keys = []
                names_bytes = 0
                for i in range(known):
                    name = fields[present[i]]
                    batch.to_elem(name, &elem, row, name)
                    names_bytes += raw_of(&elem)
                    fail(buf_elem(&batch.scratch, &elem))
                    keys.append(name)
                batch.shape_of(keys, names_bytes)
            ref.shape = batch.known_shape
            ref.raw_bytes = (<const Shape*>batch.shapes.data + ref.shape).raw_bytes
            for i in range(known):
                put_cell(batch, &ref, <Cells>PyList_GET_ITEM(cells, present[i]), row,
                         <object>PyList_GET_ITEM(fields, present[i]), cells)
            fail(buf_add(&batch.refs, &ref, sizeof(RowRef)))
    finally:
        buf_free(&there)
    batch.held = None
    return batch


# -- the texts of whole columns ----------------------------------------------------------------
@cython.final
cdef class TextMaker:
    """An array of text that grows."""

    cdef Column column
    cdef u64 count

    def __cinit__(self):
        cdef int32_t zero = 0
        self.column.binary = True       # what is put into it is ASCII, or was looked at
        fail(buf_add(&self.column.offsets, &zero, 4))

    def __dealloc__(self):
        buf_free(&self.column.data)
        buf_free(&self.column.offsets)
        buf_free(&self.column.valid)

    cdef int null(self) except -1:
        fail(put_null(&self.column.valid, self.count))
        return self.end()

    cdef int put(self, const u8* text, u64 size) except -1:
        fail(buf_add(&self.column.data, text, size))
        return self.end()

    cdef int end(self) except -1:
        if self.column.valid.size and self.column.valid.size <= self.count:
            fail(fill_valid(&self.column.valid, self.count + 1))
        fail(end_text(&self.column))
        self.count += 1
        return 0

    cdef object finish(self):
        import pyarrow as pa

        validity, nulls = take_validity(&self.column.valid, self.count)
        return pa.Array.from_buffers(
            pa.string(), self.count,
            [validity, take(&self.column.offsets), take(&self.column.data)], nulls,
        )


cdef inline void put_day(char* to, int64_t days) noexcept nogil:
    """Write the day that is so many behind 1970-01-01, as in the proleptic Gregorian calendar:
    counted from a first of March, so that the leap day is the last one of its year."""
    cdef int64_t era, of_era, year, of_year, month
    days += 719468
    era = (days if days >= 0 else days - 146096) // 146097
    of_era = days - era * 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    put_three(to, <int>(year + era * 400 + (1 if month >= 10 else 0)), 4, b"-"[0],
              <int>(month + 3 if month < 10 else month - 9),
              <int>(of_year - (153 * month + 2) // 5 + 1))


def moment_texts(array, int64_t a_second, int digits, bint with_zone):
    """Timestamps of the years 1 to 9999 as text; see row_batch.py."""
    cdef Cells cells = Cells(array)
    cdef TextMaker made = TextMaker()
    cdef char text[TEXT_BYTES_MAX]
    cdef char* end
    cdef int64_t value, seconds, days, of_day, day = 0
    cdef Py_ssize_t row
    cdef bint has_day = False
    text[10] = b" "[0]
    for row in range(cells.count):
        if cells.is_null(row):
            made.null()
            continue
        value = cells.numbers[cells.begin + row]
        seconds = value // a_second - (1 if value % a_second < 0 else 0)
        days = seconds // 86400 - (1 if seconds % 86400 < 0 else 0)
        of_day = seconds - days * 86400
        if not has_day or days != day:
            put_day(text, days)
            has_day, day = True, days
        end = put_three(text + 11, <int>(of_day // 3600), 2, b":"[0],
                        <int>(of_day // 60 % 60), <int>(of_day % 60))
        if digits:
            end[0] = b"."[0]
            end = put_digits(end + 1, <int>(value - seconds * a_second), digits)
        if with_zone:
            end[0] = b"Z"[0]
            end += 1
        made.put(<const u8*>text, <u64>(end - text))
    return made.finish()


def double_texts(array):
    """Numbers of 64 bits as text; null also where only Arrow can tell it; see row_batch.py."""
    cdef Cells cells = Cells(array)
    cdef TextMaker made = TextMaker()
    cdef char text[TEXT_BYTES_MAX]
    cdef double value
    cdef u64 size
    cdef Py_ssize_t row
    for row in range(cells.count):
        if cells.is_null(row):
            made.null()
            continue
        value = (<const double*>cells.numbers)[cells.begin + row]
        size = put_short_text(text, value)
        if size:
            made.put(<const u8*>text, size)
        elif value == 0 and not signbit(value):
            made.put(<const u8*>b"0", 1)
        else:
            made.null()
    return made.finish()


cdef dict TEXT_KINDS = {
    "bool": A_BOOL, "int": AN_INT, "long": A_LONG, "double": A_DOUBLE, "date": A_DATE,
    "timestamp": A_TIMESTAMP,
}


cdef bint is_day_text(const char* data) noexcept nogil:
    """Whether the first ten bytes are a day of the years 1 to 9999."""
    cdef int year, month, last
    if not (digits_at(data, 0, 4) and data[4] == b"-"[0] and digits_at(data, 5, 2)
            and data[7] == b"-"[0] and digits_at(data, 8, 2)):
        return False
    year, month = two_digits(data) * 100 + two_digits(data + 2), two_digits(data + 5)
    if month == 2:
        last = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    else:
        last = 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31
    return year >= 1 and 1 <= month <= 12 and 1 <= two_digits(data + 8) <= last


cdef bint put_moment(TextMaker made, const char* data, Py_ssize_t size) except -1:
    """Add the one text of a moment in UTC; False: it is in another form."""
    cdef char text[27]
    cdef Py_ssize_t digits = 0, at = 16
    if size and data[size - 1] == b"Z"[0]:
        size -= 1
    if not 16 <= size <= 26 or not is_day_text(data):
        return False
    if (data[10] != b" "[0] and data[10] != b"T"[0]) or data[13] != b":"[0]:
        return False
    if not digits_at(data, 11, 2) or not digits_at(data, 14, 2):
        return False
    if two_digits(data + 11) > 23 or two_digits(data + 14) > 59:
        return False
    memcpy(text, b"0000-00-00 00:00:00.000000Z", 27)
    memcpy(text, data, 10)
    memcpy(text + 11, data + 11, 5)
    if size > 16:
        if size < 19 or data[16] != b":"[0] or not digits_at(data, 17, 2):
            return False
        if two_digits(data + 17) > 59:
            return False
        memcpy(text + 17, data + 17, 2)
    if size > 19:
        digits = size - 20
        if data[19] != b"."[0] or digits < 1 or not digits_at(data, 20, digits):
            return False
        memcpy(text + 20, data + 20, digits)
    made.put(<const u8*>text, 27)
    return True


cdef bint put_number(TextMaker made, const char* data, Py_ssize_t size) except -1:
    """Add the one text of a double; False: not all of its digits tell it."""
    cdef Py_ssize_t end = size, i
    if not is_double_text(data, size):
        for i in range(size):
            if data[i] == b"."[0]:
                while end > i and data[end - 1] == b"0"[0]:
                    end -= 1
                if end == i + 1:
                    end = i
                break
        if not is_double_text(data, end):
            return False
    made.put(<const u8*>data, <u64>end)
    return True


cdef bint put_truth(TextMaker made, const char* data, Py_ssize_t size) except -1:
    """Add the text of true or false, which come in any case."""
    cdef char text[5]
    cdef Py_ssize_t i
    if size != 4 and size != 5:
        return False
    for i in range(size):
        text[i] = data[i] | 0x20
        if not b"a"[0] <= text[i] <= b"z"[0] or data[i] < b"A"[0]:
            return False
    if memcmp(text, b"true", 4) if size == 4 else memcmp(text, b"false", 5):
        return False
    made.put(<const u8*>text, <u64>size)
    return True


def canonical_texts(array, str kind not None):
    """Texts as those of values of a type; None if that is not told for all; see row_batch.py."""
    cdef int told_kind = TEXT_KINDS.get(kind, BY_ITS_TYPE)
    cdef Cells cells
    cdef TextMaker made
    cdef Elem elem
    cdef const char* data
    cdef Py_ssize_t row, size
    cdef bint told, stands = told_kind in (AN_INT, A_LONG, A_DATE)
    if told_kind == BY_ITS_TYPE:
        return None
    cells, made = Cells(array), TextMaker()
    for row in range(cells.count):
        if cells.is_null(row):
            if not stands:
                made.null()
            continue
        cells.text(row, &elem)
        data, size = <const char*>elem.data, <Py_ssize_t>elem.size
        if told_kind == A_TIMESTAMP:
            told = put_moment(made, data, size)
        elif told_kind == A_DOUBLE:
            told = put_number(made, data, size)
        elif told_kind == A_BOOL:
            told = put_truth(made, data, size)
        elif told_kind == A_DATE:
            told = size == 10 and is_day_text(data)
        else:
            told = is_whole_text(data, size, 9 if told_kind == AN_INT else 18)
        if not told:
            return None
    return array if stands else made.finish()
