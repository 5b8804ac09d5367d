# Integers as decimal text, both ways. Pure twin: `parse_int` in listpack.py.
#
# Invariants: only the canonical text of an int64 is a number; what is written has at most 20 bytes.

cdef bint parse_int(const u8* text, u64 size, int64_t* number) noexcept nogil:
    cdef u64 value = 0, i = 0
    cdef bint negative
    if size == 0 or size > 20:
        return False
    if size == 1 and text[0] == 48:
        number[0] = 0
        return True
    negative = text[0] == 45
    i = 1 if negative else 0
    if i == size or size - i > 19 or text[i] < 49 or text[i] > 57:
        return False
    while i < size:
        if text[i] < 48 or text[i] > 57:
            return False
        value = value * 10 + (text[i] - 48)
        i += 1
    if negative:
        if value > <u64>1 << 63:
            return False
        number[0] = <int64_t>(0 - value)
        return True
    if value >= <u64>1 << 63:
        return False
    number[0] = <int64_t>value
    return True


cdef u64 format_u64(u64 value, u8* text) noexcept nogil:
    """Decimal digits of value (at most 20) to text; how many."""
    cdef u8 digits[20]
    cdef int at = 20
    while True:
        at -= 1
        digits[at] = <u8>(48 + value % 10)
        value = value // 10
        if value == 0:
            break
    memcpy(text, digits + at, 20 - at)
    return 20 - at


cdef u64 format_i64(int64_t number, u8* text) noexcept nogil:
    if number >= 0:
        return format_u64(<u64>number, text)
    text[0] = 45
    return 1 + format_u64(0 - <u64>number, text + 1)
