# Requests of the Redis protocol: the twin of resp.py.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE

cdef enum:
    RESP_MAX_WORDS = 1048576
    RESP_MAX_DIGITS = 9


cdef Py_ssize_t resp_number(
    const u8* p, Py_ssize_t n, Py_ssize_t* at, u8 mark
) noexcept nogil:
    """The number behind a mark; -1 if there is none like it. Moves behind its line."""
    cdef Py_ssize_t i = at[0], value = 0, digits = 0
    if i >= n or p[i] != mark:
        return -1
    i += 1
    while i < n and 48 <= p[i] <= 57:
        value = value * 10 + (p[i] - 48)
        digits += 1
        i += 1
        if digits > RESP_MAX_DIGITS:
            return -1
    if not digits or (digits > 1 and p[i - digits] == 48):
        return -1
    if i + 1 >= n or p[i] != 13 or p[i + 1] != 10:
        return -1
    at[0] = i + 2
    return value


def resp_requests(bytearray data not None, Py_ssize_t at, Py_ssize_t bulk_max_bytes):
    """Requests from byte ``at`` on, and the byte behind the last of them that is whole."""
    cdef const u8* p = <const u8*> PyByteArray_AS_STRING(data)
    cdef Py_ssize_t n = PyByteArray_GET_SIZE(data)
    cdef Py_ssize_t begin, count, size, i
    cdef list found = [], words
    if at < 0:
        raise ValueError("before the beginning")
    while True:
        begin = at
        count = resp_number(p, n, &begin, 42)
        if not 0 < count <= RESP_MAX_WORDS:
            return found, at
        words = []
        for i in range(count):
            size = resp_number(p, n, &begin, 36)
            if not 0 <= size <= bulk_max_bytes or n - begin < size + 2:
                return found, at
            if p[begin + size] != 13 or p[begin + size + 1] != 10:
                return found, at
            words.append(PyBytes_FromStringAndSize(<const char*> p + begin, size))
            begin += size + 2
        found.append(words)
        at = begin
