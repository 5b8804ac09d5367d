# Columns that grow in plain buffers, and how pyarrow gets them without a copy.
#
# Validity is kept as a byte a row until then, so that a node that fails can be taken back by the
# columns' sizes alone.

from cpython.buffer cimport PyBuffer_FillInfo

cdef u64 COLUMN_BYTES_MAX = 0x7FFFFFFF

cdef enum:
    FEW_FIELDS = 16     # whose names are compared one by one


ctypedef struct Column:
    Buf data
    Buf offsets         # int32, of text columns and of the map
    Buf valid           # a byte a row, of columns that may be null
    u64 data_mark
    u64 offsets_mark
    u64 valid_mark


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


cdef object take_validity(Buf* valid):
    """(the bitmap or None, number of nulls) of a byte a row."""
    cdef u64 i, nulls = 0
    cdef Buf bits
    for i in range(valid.size):
        nulls += valid.data[i] == 0
    if nulls == 0:
        valid.size = 0
        return None, 0
    memset(&bits, 0, sizeof(Buf))
    fail(buf_reserve(&bits, valid.size // 8 + 1))
    bits.size = valid.size // 8 + 1
    memset(bits.data, 0, bits.size)
    for i in range(valid.size):
        bits.data[i >> 3] |= (valid.data[i] != 0) << (i & 7)
    valid.size = 0
    return take(&bits), nulls


cdef inline bint is_ascii(const u8* text, u64 size) noexcept nogil:
    cdef u64 word, i = 0
    while i + 8 <= size:
        memcpy(&word, text + i, 8)
        if word & <u64>0x8080808080808080:
            return False
        i += 8
    while i < size:
        if text[i] & 0x80:
            return False
        i += 1
    return True


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


cdef int add_text(Column* column, const Elem* elem, bint binary) except -1:
    """Add an element's bytes to a text column; what is not UTF-8 is replaced unless binary."""
    cdef Buf* data = &column.data
    cdef u8 digits[20]
    cdef const u8* text
    cdef u64 size
    cdef bytes replaced
    cdef int32_t offset
    if elem.is_int:
        text = digits
        size = format_i64(elem.number, digits)
    else:
        text = elem.data
        size = elem.size
        if not binary and not is_utf8(text, size):
            replaced = (<bytes>text[:size]).decode("utf-8", "replace").encode()
            text = data_of(replaced)
            size = size_of(replaced)
    if data.size + size > COLUMN_BYTES_MAX or column.offsets.size // 4 > COLUMN_BYTES_MAX:
        fail(E_COLUMN)
    fail(buf_add(data, text, size))
    offset = <int32_t>data.size
    return fail(buf_add(&column.offsets, &offset, 4))


cdef int add_null(Column* column) except -1:
    """Add an empty text, which `valid` says is null."""
    cdef int32_t offset = <int32_t>column.data.size
    return fail(buf_add(&column.offsets, &offset, 4))


cdef int add_number(Column* column, u64 number, bint valid) except -1:
    cdef u8 flag = valid
    if not valid:
        number = 0
    fail(buf_add(&column.data, &number, 8))
    return fail(buf_add(&column.valid, &flag, 1))


cdef int copy_column(Column* to, const Column* source) except -1:
    """Make a text column without nulls hold what another one does."""
    to.data.size = to.offsets.size = 0
    fail(buf_add(&to.data, source.data.data, source.data.size))
    return fail(buf_add(&to.offsets, source.offsets.data, source.offsets.size))


cdef bint pick_last(const Column* texts, u64 first, Buf* picks) except -1:
    """Whether a text column has a text twice from a row on. Then picks has two int64 for each text:
    the first and the last row that has it, counted from ``first``; else it is empty.

    The time grows with the number of texts, not with its square: names may come from anybody.
    """
    cdef const int32_t* at = <const int32_t*>texts.offsets.data + first
    cdef const u8* data = texts.data.data
    cdef int64_t i, j, size, count = <int64_t>(texts.offsets.size // 4 - 1 - first)
    cdef int64_t pair[2]
    cdef dict last = {}
    cdef bint repeats = count > FEW_FIELDS
    picks.size = 0
    if count <= FEW_FIELDS:
        for i in range(1, count):
            size = at[i + 1] - at[i]
            for j in range(i):
                if at[j + 1] - at[j] == size and memcmp(data + at[j], data + at[i], size) == 0:
                    repeats = True
                    break
            if repeats:
                break
    if not repeats:
        return False
    for i in range(count):
        name = (<const char*>data + at[i])[: at[i + 1] - at[i]]
        if name in last:
            last[name][1] = i
        else:
            last[name] = [i, i]
    if len(last) == count:
        return False
    for found in last.values():
        pair[0], pair[1] = found[0], found[1]
        fail(buf_add(picks, pair, 16))
    return True


cdef object texts(Column* column, object kind):
    """A text column as a pyarrow.Array; its buffers are empty afterwards."""
    import pyarrow as pa

    cdef u64 rows = column.offsets.size // 4 - 1
    validity, nulls = take_validity(&column.valid)
    return pa.Array.from_buffers(
        kind, rows, [validity, take(&column.offsets), take(&column.data)], nulls
    )


cdef object numbers(Column* column, object kind):
    """A column of 8-byte numbers as a pyarrow.Array; its buffers are empty afterwards."""
    import pyarrow as pa

    cdef u64 rows = column.data.size // 8
    validity, nulls = take_validity(&column.valid)
    return pa.Array.from_buffers(kind, rows, [validity, take(&column.data)], nulls)
