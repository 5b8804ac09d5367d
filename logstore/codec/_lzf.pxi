# LZF, decompression only. Pure twin: lzf.py.
#
# Invariants: the output never grows past the size that was announced.

cdef enum:
    LZF_RATIO_MAX = 88


cdef bint unpack_lzf(const u8* p, Py_ssize_t n, u8* out, Py_ssize_t size) noexcept nogil:
    """Fill ``out``, which has room for ``size`` bytes; whether exactly those came out."""
    cdef Py_ssize_t at = 0, filled = 0, count, back, i
    cdef u8 control
    while at < n:
        control = p[at]
        at += 1
        if control < 32:
            count = control + 1
            if count > n - at or count > size - filled:
                return False
            memcpy(out + filled, p + at, count)
            at += count
        else:
            count = (control >> 5) + 2
            if count == 9:
                if at >= n:
                    return False
                count += p[at]
                at += 1
            if at >= n:
                return False
            back = ((control & 31) << 8 | p[at]) + 1
            at += 1
            if back > filled or count > size - filled:
                return False
            if back >= count:
                memcpy(out + filled, out + filled - back, count)
            else:
                for i in range(count):  # it copies what it has just written
                    out[filled + i] = out[filled + i - back]
        filled += count
    return filled == size


def lzf_decompress(bytes packed not None, Py_ssize_t size):
    """The ``size`` bytes that were compressed."""
    cdef Py_ssize_t n = PyBytes_GET_SIZE(packed)
    if size < 0 or size > n * LZF_RATIO_MAX:
        raise CorruptNodeError("a compressed string is damaged")
    cdef bytes found = PyBytes_FromStringAndSize(NULL, size)
    cdef bint whole = unpack_lzf(
        <const u8*>PyBytes_AS_STRING(packed), n, <u8*>PyBytes_AS_STRING(found), size
    )
    if not whole:
        raise CorruptNodeError("a compressed string is damaged")
    return found
