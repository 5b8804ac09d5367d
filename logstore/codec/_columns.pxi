# Columns that grow in plain buffers, and how pyarrow gets them without a copy.
#
# Invariants: validity is a byte a row until then, and only from the first null on, so that a node
# that fails can be taken back by the columns' sizes alone. What is called without the interpreter's
# lock returns a code of _base.pxi; where Python is needed (text that is no UTF-8, very many
# fields), it takes the lock for just that.

from cpython.buffer cimport PyBuffer_FillInfo

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define LS_FIRST_BYTES(word, size) ((word) >> (64 - 8 * (size)))
    #else
    #define LS_FIRST_BYTES(word, size) ((word) << (64 - 8 * (size)))
    #endif
    """
    # The first bytes of those that a word was copied from, 1 to 8, without the others.
    u64 first_bytes "LS_FIRST_BYTES"(u64 word, u64 size) nogil

cdef u64 COLUMN_BYTES_MAX = 0x7FFFFFFF
cdef u64 HIGH_BITS = 0x8080808080808080

cdef enum:
    FEW_FIELDS = 16     # whose names are compared one by one


ctypedef struct Column:
    Buf data
    Buf offsets         # int32, of text columns and of the map
    Buf valid           # a byte a row, of columns that may be null; rows behind its end are not
    u64 data_mark
    u64 offsets_mark
    u64 valid_mark
    bint binary         # of a text column: its bytes need not be UTF-8


cdef class _Memory:
    """A buffer's bytes, as an object that pyarrow can hold on to."""

    cdef Buf buf

    def __dealloc__(self):
        buf_free(&self.buf)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.buf.data, self.buf.size, 1, flags)


cdef object take(Buf* buf):
    """The buffer as a pyarrow.Buffer; buf is empty afterwards."""
    import pyarrow as pa

    cdef _Memory memory = _Memory()
    fail(buf_reserve(buf, 1))
    memory.buf = buf[0]
    buf.data = NULL
    buf.size = buf.room = 0
    return pa.py_buffer(memory)


cdef int fill_valid(Buf* valid, u64 rows) noexcept nogil:
    """Say of the rows up to this one that they are not null, unless that they are is said."""
    if valid.size < rows:
        if buf_reserve(valid, rows - valid.size) != OK:
            return E_MEMORY
        memset(valid.data + valid.size, 1, rows - valid.size)
        valid.size = rows
    return OK


cdef int put_null(Buf* valid, u64 row) noexcept nogil:
    """Say of a row, the last one so far, that it is null."""
    cdef u8 flag = 0
    if fill_valid(valid, row) != OK:
        return E_MEMORY
    return buf_add(valid, &flag, 1)


cdef object take_validity(Buf* valid, u64 rows):
    """(the bitmap or None, number of nulls) of a byte a row."""
    cdef u64 i, nulls = 0
    cdef Buf bits
    if valid.size == 0:
        return None, 0
    fail(fill_valid(valid, rows))
    memset(&bits, 0, sizeof(Buf))
    fail(buf_reserve(&bits, rows // 8 + 1))
    bits.size = rows // 8 + 1
    memset(bits.data, 0, bits.size)
    for i in range(rows):
        bits.data[i >> 3] |= (valid.data[i] != 0) << (i & 7)
        nulls += valid.data[i] == 0
    valid.size = 0
    return take(&bits), nulls


cdef inline bint is_ascii(const u8* text, u64 size) noexcept nogil:
    cdef u64 word, high = 0, i = 0
    while i + 8 <= size:
        memcpy(&word, text + i, 8)
        high |= word
        i += 8
    while i < size:
        high |= text[i]
        i += 1
    return high & HIGH_BITS == 0


cdef u64 rune_bytes(const u8* text, u64 left) noexcept nogil:
    """Bytes of the UTF-8 sequence that text begins with, 0 if there is none."""
    cdef u8 a = text[0], low = 0x80, high = 0xBF
    cdef u64 size, i
    if a < 0x80:
        return 1
    if a < 0xC2 or a > 0xF4:
        return 0
    size = 2 if a < 0xE0 else 3 if a < 0xF0 else 4
    if left < size:
        return 0
    if a == 0xE0:
        low = 0xA0
    elif a == 0xED:
        high = 0x9F
    elif a == 0xF0:
        low = 0x90
    elif a == 0xF4:
        high = 0x8F
    if not low <= text[1] <= high:
        return 0
    for i in range(2, size):
        if text[i] & 0xC0 != 0x80:
            return 0
    return size


cdef bint is_utf8(const u8* text, u64 size) noexcept nogil:
    cdef u64 pos = 0, step
    if is_ascii(text, size):
        return True
    while pos < size:
        step = rune_bytes(text + pos, size - pos)
        if step == 0:
            return False
        pos += step
    return True


cdef inline int end_text(Column* column) noexcept nogil:
    """The text that was put into `data` is whole."""
    cdef Buf* offsets = &column.offsets
    cdef int32_t offset = <int32_t>column.data.size
    if column.data.size > COLUMN_BYTES_MAX or offsets.size > 4 * COLUMN_BYTES_MAX:
        return E_COLUMN
    if offsets.room - offsets.size < 4 and buf_reserve(offsets, 4) != OK:
        return E_MEMORY
    memcpy(offsets.data + offsets.size, &offset, 4)
    offsets.size += 4
    return OK


cdef int add_replaced(Column* column, const u8* text, u64 size) noexcept with gil:
    """Add a text, with U+FFFD in the place of what is not UTF-8."""
    cdef bytes replaced
    try:
        replaced = (<const char*>text)[:size].decode("utf-8", "replace").encode()
    except MemoryError:
        return E_MEMORY
    if column.data.size + size_of(replaced) > COLUMN_BYTES_MAX:
        return E_COLUMN
    if buf_add(&column.data, data_of(replaced), size_of(replaced)) != OK:
        return E_MEMORY
    return end_text(column)


cdef int add_text(Column* column, const u8* text, u64 size) noexcept nogil:
    """Add a text; what is not UTF-8 is replaced, unless the column is binary."""
    if not column.binary and not is_utf8(text, size):
        return add_replaced(column, text, size)
    if column.data.size + size > COLUMN_BYTES_MAX:
        return E_COLUMN
    if buf_add(&column.data, text, size) != OK:
        return E_MEMORY
    return end_text(column)


cdef inline int add_value(
    Column* column, const u8* text, u64 size, const u8* stop
) noexcept nogil:
    """Add a text behind which bytes may be read up to ``stop``: a short one is one word."""
    cdef Buf* data = &column.data
    cdef u64 word
    if size > 8 or stop - text < 8:
        return add_text(column, text, size)
    memcpy(&word, text, 8)
    if not column.binary and size and first_bytes(word, size) & HIGH_BITS:
        return add_text(column, text, size)
    if data.room - data.size < 8 and buf_reserve(data, 8) != OK:
        return E_MEMORY
    memcpy(data.data + data.size, &word, 8)
    data.size += size
    return end_text(column)


cdef int add_elem(Column* column, const Elem* elem) noexcept nogil:
    """Add an element's bytes, as `add_text` does."""
    if not elem.is_int:
        return add_text(column, elem.data, elem.size)
    if buf_reserve(&column.data, 20) != OK:
        return E_MEMORY
    column.data.size += format_i64(elem.number, column.data.data + column.data.size)
    return end_text(column)


cdef int add_null(Column* column, u64 row) noexcept nogil:
    """Add a null to a text column."""
    cdef int code = put_null(&column.valid, row)
    return end_text(column) if code == OK else code


cdef inline int add_number(Column* column, u64 number, bint valid, u64 row) noexcept nogil:
    if not valid:
        number = 0
        if put_null(&column.valid, row) != OK:
            return E_MEMORY
    if column.data.room - column.data.size < 8 and buf_reserve(&column.data, 8) != OK:
        return E_MEMORY
    memcpy(column.data.data + column.data.size, &number, 8)
    column.data.size += 8
    return OK


cdef int copy_column(Column* to, const Column* source) noexcept nogil:
    """Make a text column without nulls hold what another one does."""
    to.data.size = to.offsets.size = 0
    if buf_add(&to.data, source.data.data, source.data.size) != OK:
        return E_MEMORY
    return buf_add(&to.offsets, source.offsets.data, source.offsets.size)


cdef int pick_last(const Column* texts, u64 first, Buf* picks) noexcept nogil:
    """Find out whether a text column has a text twice from a row on. Then picks has two int64 for
    each text: the first and the last row that has it, counted from ``first``; else it is empty.

    The time grows with the number of texts, not with its square: names may come from anybody.
    """
    cdef const int32_t* at = <const int32_t*>texts.offsets.data + first
    cdef const u8* data = texts.data.data
    cdef int64_t i, j, size, count = <int64_t>(texts.offsets.size // 4 - 1 - first)
    picks.size = 0
    if count <= FEW_FIELDS:
        for i in range(1, count):
            size = at[i + 1] - at[i]
            for j in range(i):
                if at[j + 1] - at[j] == size and memcmp(data + at[j], data + at[i], size) == 0:
                    return pick_of_many(data, at, count, picks)
        return OK
    return pick_of_many(data, at, count, picks)


cdef int pick_of_many(
    const u8* data, const int32_t* at, int64_t count, Buf* picks
) noexcept with gil:
    cdef int64_t pair[2]
    cdef int64_t i
    cdef dict last = {}
    try:
        for i in range(count):
            name = (<const char*>data + at[i])[: at[i + 1] - at[i]]
            if name in last:
                last[name][1] = i
            else:
                last[name] = [i, i]
        if len(last) < count:
            for found in last.values():
                pair[0], pair[1] = found[0], found[1]
                fail(buf_add(picks, pair, 16))
    except MemoryError:
        return E_MEMORY
    return OK


cdef object texts(Column* column, object kind):
    """A text column as a pyarrow.Array; its buffers are empty afterwards."""
    import pyarrow as pa

    cdef u64 rows = column.offsets.size // 4 - 1
    validity, nulls = take_validity(&column.valid, rows)
    return pa.Array.from_buffers(
        kind, rows, [validity, take(&column.offsets), take(&column.data)], nulls
    )


cdef object numbers(Column* column, object kind):
    """A column of 8-byte numbers as a pyarrow.Array; its buffers are empty afterwards."""
    import pyarrow as pa

    cdef u64 rows = column.data.size // 8
    validity, nulls = take_validity(&column.valid, rows)
    return pa.Array.from_buffers(kind, rows, [validity, take(&column.data)], nulls)
