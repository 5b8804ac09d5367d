# Which of some neighbouring nodes may have a value. Pure twin: node_filter.py.
#
# Invariants: what is made and told is what the twin makes and tells, also of bytes that are no
# filter; nothing is read behind them.

cdef extern from *:
    """
    static inline int ls_ones(uint64_t word) { return __builtin_popcountll(word); }
    """
    int ls_ones(u64 word) noexcept nogil

cdef enum:
    FILTER_HEAD = 8         # as node_filter.py has them
    FILTER_NODES = 64
    FILTER_NODE_BITS = 6
    BUCKETS_MIN = 64
    BUCKETS_SPARSE = 1024

cdef u64 ALL_NODES = <u64>-1


ctypedef struct Hashed:     # the texts of a column in some nodes
    uint32_t* hashes
    u8* nodes
    Py_ssize_t size
    Py_ssize_t room


cdef inline uint32_t text_hash(const u8* text, u64 size) noexcept nogil:
    cdef uint32_t mixed = ls_crc32c(text, size, 0, HARD_CRC)
    mixed = (mixed ^ mixed >> 16) * <uint32_t>0x7FEB352D
    mixed = (mixed ^ mixed >> 15) * <uint32_t>0x846CA68B
    return mixed ^ mixed >> 16


cdef int hashed_add(Hashed* to, uint32_t hash, u8 node) except -1:
    cdef Py_ssize_t room
    cdef void* grown
    if to.size == to.room:
        room = to.room * 2 if to.room else 1024
        grown = realloc(to.hashes, room * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError
        to.hashes = <uint32_t*>grown
        grown = realloc(to.nodes, room)
        if grown == NULL:
            raise MemoryError
        to.nodes = <u8*>grown
        to.room = room
    to.hashes[to.size] = hash
    to.nodes[to.size] = node
    to.size += 1
    return 0


cdef void hashed_free(Hashed* of) noexcept nogil:
    free(of.hashes)
    free(of.nodes)
    memset(of, 0, sizeof(Hashed))


cdef inline u64 bucket_of(uint32_t hash, u64 buckets) noexcept nogil:
    return (<u64>hash * buckets) >> 32


cdef u64 count_pairs(const Hashed* of, u64 buckets, uint32_t* counts, u8* last) noexcept nogil:
    """How many nodes each bucket names; of all of them."""
    cdef u64 pairs = 0, bucket
    cdef Py_ssize_t i
    memset(counts, 0, buckets * sizeof(uint32_t))
    for i in range(of.size):
        bucket = bucket_of(of.hashes[i], buckets)
        if not counts[bucket] or last[bucket] != of.nodes[i]:
            last[bucket] = of.nodes[i]
            counts[bucket] += 1
            pairs += 1
    return pairs


cdef inline void put_bits(u8* data, u64 at, u64 value) noexcept nogil:
    """Put at most 8 bits over zeros."""
    cdef u64 shifted = value << (at & 7)
    data[at >> 3] |= <u8>shifted
    if shifted >> 8:
        data[(at >> 3) + 1] |= <u8>(shifted >> 8)


cdef bytes filter_of(const Hashed* of):
    cdef u64 buckets = max(of.size, BUCKETS_MIN) if of.size else 0
    cdef u64 pairs, at = 0, place, bucket, size, start = 0
    cdef uint32_t* counts = <uint32_t*>malloc((buckets + 1) * sizeof(uint32_t))
    cdef uint32_t* starts = <uint32_t*>malloc((buckets + 1) * sizeof(uint32_t))
    cdef u8* last = <u8*>malloc(buckets + 1)
    cdef u8* data
    cdef bytes made
    cdef Py_ssize_t i
    cdef uint32_t k
    try:
        if counts == NULL or starts == NULL or last == NULL:
            raise MemoryError
        pairs = count_pairs(of, buckets, counts, last)
        if pairs * 2 < buckets:
            buckets = max(pairs, min(buckets, BUCKETS_SPARSE))
            pairs = count_pairs(of, buckets, counts, last)
        size = (pairs + buckets + pairs * FILTER_NODE_BITS + 7) >> 3
        made = PyBytes_FromStringAndSize(NULL, FILTER_HEAD + size)
        data = data_of(made)
        put_32(data, <uint32_t>buckets)
        put_32(data + 4, <uint32_t>pairs)
        data += FILTER_HEAD
        memset(data, 0, size)
        for bucket in range(buckets):
            for k in range(counts[bucket]):
                put_bits(data, at, 1)
                at += 1
            at += 1
            starts[bucket] = <uint32_t>start
            start += counts[bucket]
            counts[bucket] = 0
        for i in range(of.size):
            bucket = bucket_of(of.hashes[i], buckets)
            if counts[bucket] and last[bucket] == of.nodes[i]:
                continue
            place = starts[bucket] + counts[bucket]
            put_bits(data, at + place * FILTER_NODE_BITS, of.nodes[i])
            last[bucket] = of.nodes[i]
            counts[bucket] += 1
        return made
    finally:
        free(counts)
        free(starts)
        free(last)


cdef inline u64 bits_at(const u8* data, u64 size, u64 at) noexcept nogil:
    """The bits of a byte and of the next, from a bit on."""
    cdef u64 found = data[at >> 3]
    if (at >> 3) + 1 < size:
        found |= <u64>data[(at >> 3) + 1] << 8
    return found >> (at & 7)


cdef u64 ones_before(const u8* data, u64 size, u64 end) noexcept nogil:
    """How many of the bits before one are ones."""
    cdef u64 at = 0, found = 0, word
    while at + 64 <= end:
        memcpy(&word, data + (at >> 3), 8)
        found += ls_ones(word)
        at += 64
    while at < end:
        found += bits_at(data, size, at) & 1
        at += 1
    return found


cdef u64 nodes_named(const u8* data, u64 size, uint32_t hash) noexcept nogil:
    cdef u64 buckets, pairs, nodes_at, at = 0, before = 0, skip, word, found = 0
    cdef u64 zeros
    if size < FILTER_HEAD:
        return ALL_NODES
    buckets, pairs = little(data, 4), little(data + 4, 4)
    data += FILTER_HEAD
    size -= FILTER_HEAD
    nodes_at = pairs + buckets
    if (nodes_at + pairs * FILTER_NODE_BITS + 7) >> 3 != size:
        return ALL_NODES
    if ones_before(data, size, nodes_at) != pairs:
        return ALL_NODES
    if not nodes_at:
        return 0
    if bits_at(data, size, nodes_at - 1) & 1:
        return ALL_NODES
    skip = bucket_of(hash, buckets)     # zeros that end the buckets before: there are more of them
    while at + 64 <= nodes_at:
        memcpy(&word, data + (at >> 3), 8)
        zeros = 64 - ls_ones(word)
        if zeros >= skip:
            break
        skip -= zeros
        before += 64 - zeros
        at += 64
    while skip:
        if bits_at(data, size, at) & 1:
            before += 1
        else:
            skip -= 1
        at += 1
    while bits_at(data, size, at) & 1:  # a zero is behind them
        found |= <u64>1 << (bits_at(data, size, nodes_at + before * FILTER_NODE_BITS) & 63)
        at += 1
        before += 1
    return found


def nodes_with(bytes filter not None, uint32_t hashed, /):
    return nodes_named(data_of(filter), size_of(filter), hashed)


def filter_hash(bytes text not None, /):
    return text_hash(data_of(text), size_of(text))
