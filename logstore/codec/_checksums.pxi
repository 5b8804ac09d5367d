# Values with their checksums. Pure twin: checksums.py, whose search stands in _frame_search.pxi.
#
# Invariants: the checksum of a row is bound to its key, that of a frame to its store by the seed.

def seal(bytes key not None, bytes value not None):
    cdef u64 size = size_of(value)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size + 4)
    cdef u8* out = <u8*>PyBytes_AS_STRING(made)
    memcpy(out, data_of(value), size)
    put_32(out + size, row_crc(key, data_of(value), size))
    return made


def unseal(bytes key not None, bytes data not None):
    cdef const u8* p = data_of(data)
    cdef u64 size = size_of(data)
    if size < 4 or row_crc(key, p, size - 4) != little(p + size - 4, 4):
        return None
    return PyBytes_FromStringAndSize(<const char*>p, size - 4)


def frame_head(bytes covered not None, bytes payload not None, uint32_t seed):
    cdef u64 size = size_of(covered)
    cdef uint32_t crc
    cdef bytes made
    cdef u8* out
    if size < 8:
        raise ValueError("the head of a frame is cut off")
    crc = ls_crc32c(data_of(covered), size, seed, HARD_CRC)
    crc = ls_crc32c(data_of(payload), size_of(payload), crc, HARD_CRC)
    made = PyBytes_FromStringAndSize(NULL, size - 4)
    out = <u8*>PyBytes_AS_STRING(made)
    put_32(out, crc)
    memcpy(out + 4, data_of(covered) + 8, size - 8)
    return crc, made
