# Requests of the Redis protocol, and replies. Pure twin: resp.py.
#
# Invariants: only what is complete and plain is taken; nothing is read behind the bytes there are.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef enum:
    RESP_MAX_WORDS = 1048576
    RESP_MAX_DIGITS = 9
    ADD_MIN_WORDS = 5
    ID_TEXT_MAX = 41
    ID_DIGITS_MAX = 19
    RESP_DEPTH_MAX = 8

cdef extern from "Python.h":
    int64_t PyLong_AsLongLongAndOverflow(object, int*) except? -1

cdef const char* CRLF = b"\r\n"
cdef const char* ENTRY_HEAD = b"*2\r\n"


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


cdef bint is_xadd(const u8* word, Py_ssize_t size) noexcept nogil:
    """XADD, in capitals or not."""
    return (size == 4 and word[0] | 32 == 120 and word[1] | 32 == 97 and word[2] | 32 == 100
            and word[3] | 32 == 100)


def resp_requests(bytearray data not None, Py_ssize_t at, Py_ssize_t bulk_max_bytes):
    """Requests from byte ``at`` on, and the byte behind the last of them that is taken.

    It stops where no more is whole, and before two or more adds to one stream, which are for
    ``resp_adds``, unless the first of them comes first: it is taken then, and no more.
    """
    cdef Py_buffer view
    if at < 0:
        raise ValueError("before the beginning")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)   # so that nobody can move the bytes meanwhile
    try:
        return requests_of(<const u8*> view.buf, view.len, at, bulk_max_bytes)
    finally:
        PyBuffer_Release(&view)


cdef tuple requests_of(const u8* p, Py_ssize_t n, Py_ssize_t at, Py_ssize_t bulk_max_bytes):
    cdef Py_ssize_t begin, count, size, i, before = at
    cdef list found = [], words
    cdef bytes key = None       # of the request before, if it is an add
    cdef bint add
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
        add = count >= ADD_MIN_WORDS and words[2] == b"*" and is_xadd(
            <const u8*> PyBytes_AS_STRING(words[0]), PyBytes_GET_SIZE(words[0])
        )
        if add and key is not None and key == words[1]:
            if len(found) > 1:
                return found[:-1], before
            return found, at
        key = words[1] if add else None
        found.append(words)
        before, at = at, begin


def resp_request(bytes data not None):
    """The words of one request, if the bytes are one that is whole and plain, and nothing else."""
    cdef const u8* p = <const u8*> PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), at = 0, i
    cdef Py_ssize_t count = resp_number(p, n, &at, 42)
    cdef Elem elem
    cdef list words = []
    if not 0 < count <= RESP_MAX_WORDS:
        return None
    for i in range(count):
        if resp_bulk(p, n, &at, n, &elem) < 0:
            return None
        words.append(PyBytes_FromStringAndSize(<const char*> elem.data, elem.size))
    return words if at == n else None


cdef Py_ssize_t resp_bulk(
    const u8* p, Py_ssize_t n, Py_ssize_t* at, Py_ssize_t bulk_max_bytes, Elem* elem
) noexcept nogil:
    """A whole bulk string; -1 if there is none. Moves behind it."""
    cdef Py_ssize_t begin = at[0]
    cdef Py_ssize_t size = resp_number(p, n, &begin, 36)
    if not 0 <= size <= bulk_max_bytes or n - begin < size + 2:
        return -1
    if p[begin + size] != 13 or p[begin + size + 1] != 10:
        return -1
    elem.is_int = False
    elem.data = p + begin
    elem.size = <u64> size
    at[0] = begin + size + 2
    return size


cdef Py_ssize_t resp_row(
    RowBatch batch, const u8* p, Py_ssize_t n, Py_ssize_t at, Py_ssize_t bulk_max_bytes, Elem* key
) except -2:
    """Take one add as a row, of this key unless that is empty; the byte behind it, -1: no add."""
    cdef Py_ssize_t count = resp_number(p, n, &at, 42), i, width
    cdef Elem elem, stream
    cdef RowRef ref
    cdef u64 total = 0
    cdef Buf* words = &batch.words
    if not ADD_MIN_WORDS <= count <= RESP_MAX_WORDS or not count & 1:
        return -1
    if resp_bulk(p, n, &at, bulk_max_bytes, &elem) < 0 or not is_xadd(elem.data, elem.size):
        return -1
    if resp_bulk(p, n, &at, bulk_max_bytes, &stream) < 0:
        return -1
    if key.data != NULL and not (
        key.size == stream.size and memcmp(key.data, stream.data, key.size) == 0
    ):
        return -1
    if resp_bulk(p, n, &at, bulk_max_bytes, &elem) != 1 or elem.data[0] != 42:
        return -1
    words.size = 0
    for i in range(count - 3):
        if resp_bulk(p, n, &at, bulk_max_bytes, &elem) < 0:
            return -1
        total += elem.size
        fail(buf_add(words, &elem, sizeof(Elem)))
    if total > ENTRY_BYTES_MAX:
        return -1
    width = (count - 3) // 2
    ref.at = batch.values.size
    ref.raw_bytes = total
    ref.shape = batch.shape_of_words(<const Elem*> words.data, width)
    for i in range(width):
        fail(buf_elem(&batch.values, <const Elem*> words.data + 2 * i + 1))
    fail(buf_add(&batch.refs, &ref, sizeof(RowRef)))
    key[0] = stream
    return at


def resp_add(bytes data not None):
    """The key and the fields of one add, if the bytes are one, and nothing else; or None."""
    cdef const u8* p = <const u8*> PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), at = 0
    cdef Py_ssize_t count = resp_number(p, n, &at, 42), i, width
    cdef Elem elem, key, name
    cdef dict fields
    if not ADD_MIN_WORDS <= count <= RESP_MAX_WORDS or not count & 1:
        return None
    if resp_bulk(p, n, &at, n, &elem) < 0 or not is_xadd(elem.data, elem.size):
        return None
    if resp_bulk(p, n, &at, n, &key) < 0:
        return None
    if resp_bulk(p, n, &at, n, &elem) != 1 or elem.data[0] != 42:
        return None
    fields = {}
    width = (count - 3) // 2
    for i in range(width):
        if resp_bulk(p, n, &at, n, &name) < 0 or resp_bulk(p, n, &at, n, &elem) < 0:
            return None
        fields[PyBytes_FromStringAndSize(<const char*> name.data, name.size)] = (
            PyBytes_FromStringAndSize(<const char*> elem.data, elem.size)
        )
    if at != n or len(fields) != width:
        return None
    return PyBytes_FromStringAndSize(<const char*> key.data, key.size), fields


def resp_adds(
    bytearray data not None, Py_ssize_t at, Py_ssize_t bulk_max_bytes, Py_ssize_t most
):
    """Adds to one stream that follow each other: its key, the rows, the byte behind; or None."""
    cdef Py_buffer view
    if at < 0:
        raise ValueError("before the beginning")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)   # as in `resp_requests`
    try:
        return adds_of(<const u8*> view.buf, view.len, at, bulk_max_bytes, most)
    finally:
        PyBuffer_Release(&view)


cdef tuple adds_of(
    const u8* p, Py_ssize_t n, Py_ssize_t at, Py_ssize_t bulk_max_bytes, Py_ssize_t most
):
    cdef RowBatch batch = RowBatch()
    cdef Py_ssize_t behind, count = 0
    cdef Elem key
    key.data = NULL
    key.size = 0
    while count < most:
        behind = resp_row(batch, p, n, at, bulk_max_bytes, &key)
        if behind < 0:
            break
        at = behind
        count += 1
    if not count:
        return None
    return PyBytes_FromStringAndSize(<const char*> key.data, key.size), batch, at


def resp_ids(u64 ms, u64 seq, Py_ssize_t count):
    """Consecutive IDs as replies, each a bulk string."""
    cdef u8 text[ID_TEXT_MAX]
    cdef u64 size, i
    cdef Buf out
    memset(&out, 0, sizeof(Buf))
    try:
        for i in range(<u64> max(0, count)):
            size = format_u64(ms, text)
            text[size] = 45
            size += 1 + format_u64(seq, text + size + 1)
            fail(buf_reserve(&out, size + 8))
            out.data[out.size] = 36
            out.size += 1
            out.size += format_u64(size, out.data + out.size)
            memcpy(out.data + out.size, CRLF, 2)
            memcpy(out.data + out.size + 2, text, size)
            memcpy(out.data + out.size + 2 + size, CRLF, 2)
            out.size += size + 4
            seq += 1
            if seq == 0:
                ms += 1
        return PyBytes_FromStringAndSize(<const char*> out.data, out.size)
    finally:
        buf_free(&out)


cdef inline int buf_bulk(Buf* out, const u8* data, u64 size) noexcept nogil:
    """A bulk string."""
    cdef int code = buf_room(out, size + 32)
    if code != OK:
        return code
    out.data[out.size] = 36
    out.size += 1
    if size < 10:
        out.data[out.size] = <u8> (48 + size)
        out.size += 1
    else:
        out.size += format_u64(size, out.data + out.size)
    memcpy(out.data + out.size, CRLF, 2)
    copy_few(out.data + out.size + 2, data, size)
    memcpy(out.data + out.size + 2 + size, CRLF, 2)
    out.size += size + 4
    return OK


cdef int put_value(Buf* out, object value, bint new, u64 most, int depth) except -1:
    """Append a value as a reply; 0, and perhaps a part of it, if it is not plain, or too long."""
    cdef int64_t number
    cdef int overflow = 0
    cdef u64 size
    kind = type(value)
    if kind is bytes:
        size = <u64> PyBytes_GET_SIZE(value)
        if size > most:
            return 0
        fail(buf_bulk(out, <const u8*> PyBytes_AS_STRING(value), size))
    elif kind is int:
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            return 0
        fail(buf_reserve(out, 32))
        out.data[out.size] = 58
        out.size += 1 + format_i64(number, out.data + out.size + 1)
        memcpy(out.data + out.size, CRLF, 2)
        out.size += 2
    elif value is None:
        fail(buf_add(out, <const u8*> (b"_\r\n" if new else b"$-1\r\n"), 3 if new else 5))
    elif (kind is list or kind is tuple) and depth:
        fail(buf_reserve(out, 32))
        out.data[out.size] = 42
        out.size += 1 + format_u64(<u64> len(value), out.data + out.size + 1)
        memcpy(out.data + out.size, CRLF, 2)
        out.size += 2
        for item in value:
            if not put_value(out, item, new, most, depth - 1):
                return 0
    else:
        return 0
    return out.size <= most


def resp_value(value, bint new, u64 most):
    """The reply of a value that is plain: bytes, a number of 64 bits, nothing, or a list or tuple
    of such, a few levels deep; None if it is not, or has more bytes than so many."""
    cdef Buf out
    memset(&out, 0, sizeof(Buf))
    try:
        if not put_value(&out, value, new, most, RESP_DEPTH_MAX):
            return None
        return PyBytes_FromStringAndSize(<const char*> out.data, out.size)
    finally:
        buf_free(&out)


cdef int buf_item(Buf* out, const u8* p, u64* pos, u64 end) noexcept nogil:
    """The element at pos as a bulk string; moves behind it."""
    cdef u8 digits[24]
    cdef Elem elem
    cdef int code = lp_read(p, pos[0], end, &elem)
    if code != OK:
        return code
    pos[0] = elem.after
    if elem.is_int:
        return buf_bulk(out, digits, format_i64(elem.number, digits))
    return buf_bulk(out, elem.data, elem.size)


cdef int put_names(Buf* names, const u8* p, const Master* m) noexcept nogil:
    """The names of a node's fields as bulk strings, each behind its size: most entries tell
    them."""
    cdef u64 pos = m.fields_at, at, size
    cdef int64_t i
    cdef int code = OK
    for i in range(m.width):
        at = names.size
        code = buf_reserve(names, 8)
        if code == OK:
            names.size += 8
            code = buf_item(names, p, &pos, m.end)
        if code != OK:
            break
        size = names.size - at - 8
        memcpy(names.data + at, &size, 8)
    return code


cdef int put_name(Buf* out, const Buf* names, u64* at) noexcept nogil:
    """Append the name at `at`; moves behind it."""
    cdef u64 size
    cdef int code
    if at[0] == names.size:     # an entry has as many as its node
        return E_COUNTER
    memcpy(&size, names.data + at[0], 8)
    code = buf_room(out, size)
    if code == OK:
        copy_few(out.data + out.size, names.data + at[0] + 8, size)
        out.size += size
        at[0] += 8 + size
    return code


cdef int buf_flat(
    Buf* out, const Buf* names, const u8* p, const Master* m, const Entry* e
) noexcept nogil:
    """The fields and values of an entry as an array."""
    cdef u64 pos = e.body, name = 0
    cdef int64_t i
    cdef int code = buf_reserve(out, 32)
    if code != OK:
        return code
    out.data[out.size] = 42
    out.size += 1
    out.size += format_u64(2 * <u64> e.pairs, out.data + out.size)
    memcpy(out.data + out.size, CRLF, 2)
    out.size += 2
    for i in range(e.pairs):
        code = (put_name(out, names, &name) if e.flags & SAME_FIELDS
                else buf_item(out, p, &pos, m.end))
        if code == OK:
            code = buf_item(out, p, &pos, m.end)
        if code != OK:
            return code
    return OK


cdef int put_reply(
    Replies* replies, const u8* p, const Master* m, const Entry* e, u64 ms, u64 seq
) noexcept nogil:
    """An entry as its reply, behind those of the others."""
    cdef u8 text[ID_TEXT_MAX]
    cdef u64 size = format_u64(ms, text)
    cdef Buf* out = &replies.made
    cdef int code
    text[size] = 45
    size += 1 + format_u64(seq, text + size + 1)
    code = buf_add(out, <const u8*> ENTRY_HEAD, 4)
    if code == OK:
        code = buf_bulk(out, text, size)
    if code == OK and replies.packs:
        code = buf_reserve(&replies.ids, ID_BYTES)
        if code == OK:
            put_big(replies.ids.data + replies.ids.size, ms)
            put_big(replies.ids.data + replies.ids.size + 8, seq)
            replies.ids.size += ID_BYTES
    replies.ms, replies.seq = ms, seq
    return buf_flat(out, &replies.names, p, m, e) if code == OK else code


cdef list told_of(list found, Replies* replies):
    """What `resp_entries` gives of entries that were found: the last one has the bytes of all."""
    if found:
        found[len(found) - 1] = (
            PyBytes_FromStringAndSize(<char*> replies.made.data, replies.made.size),
            replies.ms, replies.seq,
        )
    return found


def resp_entries(
    bytes lp not None, u64 master_ms, u64 master_seq, bytes vector not None=b"",
    start=ZERO_ID, end=MAX_ID, Py_ssize_t limit=-1, bint reverse=False,
):
    """Live entries of an interval, for each None; but the last is the replies of all, one behind
    the other, and the two numbers of its ID."""
    cdef Replies replies
    memset(&replies, 0, sizeof(Replies))
    try:
        found = entries_in(lp, master_ms, master_seq, vector, start, end, limit, reverse, &replies)
        return told_of(found, &replies)
    finally:
        buf_free(&replies.made)
        buf_free(&replies.names)


def resp_deliveries(
    bytes lp not None, u64 master_ms, u64 master_seq, bytes vector not None, start,
    Py_ssize_t limit,
):
    """The first live entries from an ID on, as `resp_entries` gives them, and their IDs, packed."""
    cdef Replies replies
    memset(&replies, 0, sizeof(Replies))
    replies.packs = True
    try:
        found = entries_in(
            lp, master_ms, master_seq, vector, start, MAX_ID, limit, False, &replies
        )
        packed = PyBytes_FromStringAndSize(<char*> replies.ids.data, replies.ids.size)
        return told_of(found, &replies), packed
    finally:
        buf_free(&replies.made)
        buf_free(&replies.names)
        buf_free(&replies.ids)


cdef bint read_number(const u8* p, Py_ssize_t n, Py_ssize_t* at, u64* value) noexcept nogil:
    """A number of so few digits that it has 64 bits; False if there is none. Moves behind it."""
    cdef Py_ssize_t begin = at[0]
    value[0] = 0
    while at[0] < n and at[0] - begin < ID_DIGITS_MAX and 48 <= p[at[0]] <= 57:
        value[0] = value[0] * 10 + (p[at[0]] - 48)
        at[0] += 1
    return at[0] > begin


def resp_given_ids(list words not None, id_type):
    """The IDs that words begin with, in digits alone, and whether each is above the one before. It
    stops at the first word that is written in another way."""
    cdef list found = []
    cdef bytes word
    cdef const u8* p
    cdef Py_ssize_t n, at
    cdef u64 ms = 0, seq = 0, before_ms = 0, before_seq = 0
    cdef bint ascending = True, bare
    cdef object kept = 0
    if not issubclass(id_type, tuple):
        raise TypeError("an ID is a tuple")
    bare = ls_is_bare_tuple(id_type)
    for word in words:
        p = <const u8*> PyBytes_AS_STRING(word)
        n, at = PyBytes_GET_SIZE(word), 0
        if not read_number(p, n, &at, &ms) or at == n or p[at] != 45:
            break
        at += 1
        if not read_number(p, n, &at, &seq) or at != n:
            break
        if found and not below(before_ms, before_seq, ms, seq):
            ascending = False
        if not found or ms != before_ms:
            kept = ms
        found.append(new_id(id_type, bare, kept, seq))
        before_ms, before_seq = ms, seq
    return found, ascending
