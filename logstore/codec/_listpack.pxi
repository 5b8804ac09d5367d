# Elements of a listpack. Pure twin: listpack.py.
#
# Invariants: every read checks its bounds and the backlen before it gives an element.

ctypedef struct Elem:
    const u8* data      # a string's
    u64 size            # a string's
    int64_t number      # an integer's
    bint is_int
    u64 after           # offset behind the element


cdef inline u64 backlen_bytes(u64 size) noexcept nogil:
    if size <= 127:
        return 1
    if size < 16383:
        return 2
    if size < 2097151:
        return 3
    return 4 if size < 268435455 else 5


cdef inline u64 put_backlen(u8* out, u64 size) noexcept nogil:
    cdef u64 width, i
    if size <= 127:
        out[0] = <u8>size
        return 1
    width = backlen_bytes(size)
    i = width - 1
    while i > 0:
        out[i] = <u8>(size & 127 | 128)
        size >>= 7
        i -= 1
    out[0] = <u8>size
    return width


cdef u64 short_backlen(u8* out, u64 size) noexcept nogil:
    """Valkey's backlen of a size that has none of its 7-bit groups' bits clear; 0 for others."""
    cdef u64 width, i
    if size == 16383:
        width = 2
    elif size == 2097151:
        width = 3
    elif size == 268435455:
        width = 4
    else:
        return 0
    for i in range(width):
        out[i] = 0xFF
    out[0] = 0x7F
    return width


cdef u64 put_int(u8* out, int64_t number) noexcept nogil:
    """Write an integer element, at most INT_BYTES_MAX bytes; how many."""
    cdef u64 raw = <u64>number, width, i
    if 0 <= number <= 127:
        out[0] = <u8>number
        out[1] = 1
        return 2
    if -4096 <= number <= 4095:
        out[0] = <u8>(0xC0 | (raw >> 8 & 0x1F))
        out[1] = <u8>(raw & 0xFF)
        out[2] = 2
        return 3
    if -32768 <= number <= 32767:
        out[0] = 0xF1
        width = 2
    elif -8388608 <= number <= 8388607:
        out[0] = 0xF2
        width = 3
    elif -2147483648 <= number <= 2147483647:
        out[0] = 0xF3
        width = 4
    else:
        out[0] = 0xF4
        width = 8
    for i in range(width):
        out[1 + i] = <u8>(raw >> (8 * i) & 0xFF)
    out[1 + width] = <u8>(width + 1)
    return width + 2


cdef inline u64 put_count(u8* out, int64_t number) noexcept nogil:
    """As `put_int`; small ones without a call."""
    if 0 <= number <= 127:
        out[0] = <u8>number
        out[1] = 1
        return 2
    return put_int(out, number)


cdef inline u64 int_bytes(int64_t number) noexcept nogil:
    cdef u8 out[10]
    if -4096 <= number <= 4095:
        return 2 if 0 <= number <= 127 else 3
    return put_int(out, number)


cdef u64 put_text(u8* out, const u8* text, u64 size) noexcept nogil:
    """Write the element of a field or value, at most size + FRAME_BYTES_MAX bytes; how many."""
    cdef int64_t number
    cdef u64 head
    if 0 < size <= 20 and text[0] <= 57 and parse_int(text, size, &number):
        return put_int(out, number)
    if size < 64:
        out[0] = <u8>(0x80 | size)
        head = 1
    elif size < 4096:
        out[0] = <u8>(0xE0 | size >> 8)
        out[1] = <u8>(size & 0xFF)
        head = 2
    else:
        out[0] = 0xF0
        out[1] = <u8>(size & 0xFF)
        out[2] = <u8>(size >> 8 & 0xFF)
        out[3] = <u8>(size >> 16 & 0xFF)
        out[4] = <u8>(size >> 24 & 0xFF)
        head = 5
    memcpy(out + head, text, size)
    return head + size + put_backlen(out + head + size, head + size)


cdef int buf_int(Buf* buf, int64_t number) noexcept nogil:
    if buf_reserve(buf, INT_BYTES_MAX) != OK:
        return E_MEMORY
    buf.size += put_int(buf.data + buf.size, number)
    return OK


cdef int buf_text(Buf* buf, const u8* text, u64 size) noexcept nogil:
    if size > TOTAL_MAX:
        return E_LARGE
    if buf_reserve(buf, size + FRAME_BYTES_MAX) != OK:
        return E_MEMORY
    buf.size += put_text(buf.data + buf.size, text, size)
    return OK


cdef int buf_elem(Buf* buf, const Elem* elem) noexcept nogil:
    """Write an element again, in canonical form."""
    if elem.is_int:
        return buf_int(buf, elem.number)
    return buf_text(buf, elem.data, elem.size)


cdef bint same_elem(const Elem* a, const Elem* b) noexcept nogil:
    """True if both stand for the same bytes, however they are stored."""
    cdef int64_t number
    if a.is_int and b.is_int:
        return a.number == b.number
    if a.is_int:
        return parse_int(b.data, b.size, &number) and number == a.number
    if b.is_int:
        return parse_int(a.data, a.size, &number) and number == b.number
    return a.size == b.size and memcmp(a.data, b.data, a.size) == 0


cdef bint folds_to(const Elem* a, const Elem* folded) noexcept nogil:
    """True if both are the same text without upper case; the second one has none."""
    cdef u64 i
    cdef u8 c
    if a.is_int or a.size != folded.size:
        return False
    for i in range(a.size):
        c = a.data[i]
        if 65 <= c <= 90:
            c += 32
        if c != folded.data[i]:
            return False
    return True


cdef inline u64 little(const u8* p, u64 width) noexcept nogil:
    cdef u64 value = 0, i
    for i in range(width):
        value |= <u64>p[i] << (8 * i)
    return value


cdef int lp_check(const u8* p, u64 total, u64* end) noexcept nogil:
    if total <= HEADER_BYTES:
        return E_SHORT
    if little(p, 4) != total:
        return E_TOTAL
    if p[total - 1] != END_BYTE:
        return E_END
    end[0] = total - 1
    return OK


cdef int lp_read(const u8* p, u64 pos, u64 end, Elem* elem) noexcept nogil:
    """The element at pos. p[end] must be readable: it is the end byte."""
    cdef u64 head = 0, size, value, width, i
    cdef u8 tail[5]
    cdef u8 code
    if pos >= end:
        return E_OVERRUN
    code = p[pos]
    elem.is_int = True
    if code < 0x80:
        size = 1
        elem.number = code
    elif code < 0xC0:
        head = 1
        size = 1 + (code & 0x3F)
    elif code < 0xE0:
        size = 2
        value = <u64>(code & 0x1F) << 8 | p[pos + 1]
        elem.number = <int64_t>value - 8192 if value > 4095 else <int64_t>value
    elif code < 0xF0:
        head = 2
        size = 2 + (<u64>(code & 0x0F) << 8 | p[pos + 1])
    elif code == 0xF0:
        if end - pos <= 5:
            return E_OVERRUN
        head = 5
        size = 5 + little(p + pos + 1, 4)
    elif code <= 0xF4:
        width = 8 if code == 0xF4 else code - 0xF1 + 2
        size = 1 + width
    else:
        return E_ENCODING
    if size >= end - pos:
        return E_OVERRUN
    if size <= 127:
        if p[pos + size] != size:
            return E_BACKLEN
        elem.after = pos + size + 1
    else:
        width = put_backlen(tail, size)
        if width > end - pos - size or memcmp(p + pos + size, tail, width) != 0:
            width = short_backlen(tail, size)
            if not 0 < width <= end - pos - size or memcmp(p + pos + size, tail, width) != 0:
                return E_BACKLEN
        elem.after = pos + size + width
    if head:
        elem.is_int = False
        elem.data = p + pos + head
        elem.size = size - head
    elif size > 2:
        width = size - 1
        value = little(p + pos + 1, width)
        if width < 8 and value >> (8 * width - 1):
            value |= ~<u64>0 << (8 * width)
        elem.number = <int64_t>value
    return OK


cdef inline int read_short(const u8* p, u64 pos, u64 end, Elem* elem) noexcept nogil:
    """As `lp_read`; short strings and small numbers without a call."""
    cdef u64 size
    if pos < end:
        if p[pos] < 0x80:
            if end - pos > 1 and p[pos + 1] == 1:
                elem.is_int = True
                elem.number = p[pos]
                elem.after = pos + 2
                return OK
        elif p[pos] < 0xC0:
            size = 1 + <u64>(p[pos] & 0x3F)
            if size < end - pos and p[pos + size] == size:
                elem.is_int = False
                elem.data = p + pos + 1
                elem.size = size - 1
                elem.after = pos + size + 1
                return OK
    return lp_read(p, pos, end, elem)


cdef inline int lp_int(
    const u8* p, u64 pos, u64 end, int64_t* number, u64* after
) noexcept nogil:
    """The element at pos, which must be an integer, also if it is stored as a string."""
    cdef u64 value
    if pos < end:
        if p[pos] < 0x80:
            if end - pos > 1 and p[pos + 1] == 1:
                number[0] = p[pos]
                after[0] = pos + 2
                return OK
        elif p[pos] & 0xE0 == 0xC0 and end - pos > 2 and p[pos + 2] == 2:
            value = <u64>(p[pos] & 0x1F) << 8 | p[pos + 1]
            number[0] = <int64_t>value - 8192 if value > 4095 else <int64_t>value
            after[0] = pos + 3
            return OK
    return lp_any_int(p, pos, end, number, after)


cdef inline int lp_skip(const u8* p, u64 pos, u64 end, u64* after) noexcept nogil:
    """Check the element at pos, whatever it is."""
    cdef Elem elem
    cdef int code
    cdef u64 size
    if pos < end and p[pos] < 0xC0:
        size = 1 if p[pos] < 0x80 else 1 + (p[pos] & 0x3F)
        if size < end - pos and p[pos + size] == size:
            after[0] = pos + size + 1
            return OK
    code = lp_read(p, pos, end, &elem)
    after[0] = elem.after
    return code


cdef int lp_any_int(
    const u8* p, u64 pos, u64 end, int64_t* number, u64* after
) noexcept nogil:
    cdef Elem elem
    cdef int code = lp_read(p, pos, end, &elem)
    if code != OK:
        return code
    after[0] = elem.after
    if elem.is_int:
        number[0] = elem.number
        return OK
    return OK if parse_int(elem.data, elem.size, number) else E_NOT_INT


cdef int lp_before(const u8* p, u64 pos, u64 end, u64* start) noexcept nogil:
    """Offset of the element that ends at pos."""
    cdef u64 length = 0, at = pos
    cdef int shift = 0
    cdef Elem elem
    while True:
        at -= 1
        if at < HEADER_BYTES or shift > 28:
            return E_BACKWARD
        length |= <u64>(p[at] & 127) << shift
        shift += 7
        if p[at] < 128:
            break
    if length > at - HEADER_BYTES:
        return E_BACKWARD
    start[0] = at - length
    if lp_read(p, start[0], end, &elem) != OK or elem.after != pos:
        return E_BACKWARD
    return OK


cdef bytes elem_bytes(const Elem* elem):
    cdef u8 text[20]
    cdef u64 size
    if elem.is_int:
        size = format_i64(elem.number, text)
        return PyBytes_FromStringAndSize(<char*>text, size)
    return PyBytes_FromStringAndSize(<const char*>elem.data, elem.size)


cdef void put_lp_head(u8* out, u64 total, u64 elements) noexcept nogil:
    """Write the header of a listpack of `total` bytes."""
    if elements > COUNT_UNKNOWN:
        elements = COUNT_UNKNOWN
    put_32(out, total)
    out[4] = <u8>(elements & 0xFF)
    out[5] = <u8>(elements >> 8)


cdef bytes lp_finish(u64 elements, const u8* head, u64 head_size, const u8* middle,
                     u64 middle_size, const u8* tail, u64 tail_size):
    """A listpack of the joined three pieces."""
    cdef u64 total = HEADER_BYTES + head_size + middle_size + tail_size + 1
    cdef bytes lp
    cdef u8* out
    if total > TOTAL_MAX:
        fail(E_LARGE)
    lp = PyBytes_FromStringAndSize(NULL, total)
    out = <u8*>PyBytes_AS_STRING(lp)
    put_lp_head(out, total, elements)
    memcpy(out + HEADER_BYTES, head, head_size)
    if middle_size:
        memcpy(out + HEADER_BYTES + head_size, middle, middle_size)
    if tail_size:
        memcpy(out + HEADER_BYTES + head_size + middle_size, tail, tail_size)
    out[total - 1] = END_BYTE
    return lp
