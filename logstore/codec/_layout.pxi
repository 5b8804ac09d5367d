# How a node and its entries are laid out, for whoever writes them; readers are in _node.pxi.
#
# Invariants: who calls has made room for what is written.

cdef inline bint is_full(u64 size, int64_t entries, u64 bytes_max,
                         int64_t entries_max) noexcept nogil:
    """Whether a node has no room for an entry: with its fields and values the node has so many
    bytes, as servers count them, and so many entries without it. No `entries_max`: 0."""
    return size >= bytes_max or 0 < entries_max <= entries


cdef inline u64 put_entry_head(u8* out, bint same, u64 ms_diff, u64 seq_diff,
                               int64_t width) noexcept nogil:
    """Write what stands before the values of an entry, at most 4 integers; how many bytes.
    `same`: its fields are the node's."""
    cdef u64 size = put_count(out, SAME_FIELDS if same else 0)
    size += put_count(out + size, <int64_t>ms_diff)
    size += put_count(out + size, <int64_t>seq_diff)
    return size if same else size + put_count(out + size, width)


cdef inline u64 put_entry_tail(u8* out, bint same, int64_t width) noexcept nogil:
    """Write what stands behind them, one integer; how many bytes."""
    return put_count(out, entry_elements(same, width))


cdef int buf_entry_head(Buf* out, bint same, u64 ms_diff, u64 seq_diff,
                        int64_t width) noexcept nogil:
    if buf_room(out, 4 * INT_BYTES_MAX) != OK:
        return E_MEMORY
    out.size += put_entry_head(out.data + out.size, same, ms_diff, seq_diff, width)
    return OK


cdef int buf_entry_tail(Buf* out, bint same, int64_t width) noexcept nogil:
    return buf_int(out, entry_elements(same, width))


cdef int buf_master_head(Buf* out, int64_t width) noexcept nogil:
    """Append what stands in a new node between its live counter and the names of its fields."""
    cdef int code = buf_int(out, 0)
    return buf_int(out, width) if code == OK else code


cdef int buf_master_tail(Buf* out) noexcept nogil:
    """Append what stands behind the names."""
    return buf_int(out, 0)


cdef inline int64_t master_elements(int64_t width) noexcept nogil:
    """How many elements a node has besides its entries."""
    return width + 4
