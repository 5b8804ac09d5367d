# What a call asks for beside the entry: an ID, and what is to be trimmed behind it.

cdef enum:                  # which ID
    AUTO = 0                # "*"
    OF_MS = 1               # "<ms>-*"
    GIVEN_ID = 2

cdef enum:                  # what is to go
    NO_TRIM = 0
    ABOVE_COUNT = 1         # max_entries
    BELOW_ID = 2            # min_id

ctypedef struct Asked:      # entries, or an ack, of a call; the objects are kept by who calls
    PyObject* handle
    PyObject* name
    PyObject* fields        # of an ack a tuple, see `add_all`; of some entries a list
    bint acks
    int first               # of its rows, in what the lane encodes
    int rows                # entries that one frame has
    u64 version             # of the handle, when the entry was encoded
    bint ascii              # as `put_plain` has it
    bint create             # the stream, if there is none
    u64 schema_at           # of the schema by which the values were written; 0: of none
    int which               # ID
    u64 given_ms
    u64 given_seq
    int trims
    bint exact              # entries go, and not whole nodes alone
    int64_t most            # entries
    u64 least_ms            # the smallest ID that stays
    u64 least_seq
    u64 ms                  # the ID of its last row, once it is committed
    u64 seq


cdef inline bint read_u64(const u8* text, Py_ssize_t* at, Py_ssize_t size,
                          u64* number) noexcept nogil:
    """Decimal digits from a place on, which is moved behind them; False: none, or too many."""
    cdef Py_ssize_t first = at[0]
    cdef u64 digit
    number[0] = 0
    while at[0] < size and 48 <= text[at[0]] <= 57:
        digit = text[at[0]] - 48
        if number[0] > (~<u64>0 - digit) // 10:
            return False
        number[0] = number[0] * 10 + digit
        at[0] += 1
    return 0 < at[0] - first <= 20


cdef int read_id(object id, u64* ms, u64* seq) except -1:
    """An ID as it is given: GIVEN_ID, OF_MS, or AUTO; -2: it is to be looked at by `arguments`."""
    cdef const u8* text
    cdef Py_ssize_t size, at = 0
    cdef int overflow = 0
    cdef int64_t first, second
    if PyUnicode_CheckExact(id):
        if not PyUnicode_IS_COMPACT_ASCII(id):
            return -2
        text = <const u8*>PyUnicode_DATA(id)
        size = PyUnicode_GET_LENGTH(id)
    elif PyBytes_CheckExact(id):
        text = <const u8*>PyBytes_AS_STRING(id)
        size = PyBytes_GET_SIZE(id)
    elif type(id) is _StreamID or type(id) is tuple:
        if PyTuple_GET_SIZE(id) != 2:
            return -2
        if not (PyLong_CheckExact(<object>PyTuple_GET_ITEM(id, 0))
                and PyLong_CheckExact(<object>PyTuple_GET_ITEM(id, 1))):
            return -2
        first = PyLong_AsLongLongAndOverflow(<object>PyTuple_GET_ITEM(id, 0), &overflow)
        if overflow or first < 0:
            return -2
        second = PyLong_AsLongLongAndOverflow(<object>PyTuple_GET_ITEM(id, 1), &overflow)
        if overflow or second < 0:
            return -2
        ms[0], seq[0] = first, second
        return GIVEN_ID
    else:
        return -2
    if size == 1 and text[0] == 42:
        return AUTO
    seq[0] = 0
    if not read_u64(text, &at, size, ms):
        return -2
    if at == size:
        return GIVEN_ID
    if text[at] != 45:
        return -2
    at += 1
    if at == size - 1 and text[at] == 42:
        return OF_MS
    return GIVEN_ID if read_u64(text, &at, size, seq) and at == size else -2


cdef bint read_asked(Asked* asked, object id, object max_entries, object min_id, object approximate,
                     object limit, object create) except -1:
    """Options of an add, of exact types; False: they are not valid, or `arguments` looks at
    them."""
    cdef int overflow = 0, which
    asked.which = read_id(id, &asked.given_ms, &asked.given_seq)
    if asked.which < 0 or (asked.which == GIVEN_ID and not asked.given_ms and not asked.given_seq):
        return False
    asked.trims = NO_TRIM
    asked.create = create is True
    if approximate is not True and approximate is not False:
        return False
    asked.exact = approximate is False
    if max_entries is not None:
        if min_id is not None or not PyLong_CheckExact(max_entries):
            return False
        asked.trims = ABOVE_COUNT
        asked.most = PyLong_AsLongLongAndOverflow(max_entries, &overflow)
        if overflow or asked.most < 0:
            return False
    elif min_id is not None:
        asked.trims = BELOW_ID
        which = read_id(min_id, &asked.least_ms, &asked.least_seq)
        if which != GIVEN_ID:
            return False
    if limit is None:
        return True
    # It bounds what goes: what nothing goes of needs no bound.
    if asked.trims == NO_TRIM or asked.exact or not PyLong_CheckExact(limit):
        return False
    return PyLong_AsLongLongAndOverflow(limit, &overflow) >= 0 and not overflow


cdef inline void ask_nothing(Asked* asked, bint ascii) noexcept nogil:
    """An entry with the ID `*` and no option."""
    asked.acks = False
    asked.first, asked.rows = 0, 1
    asked.ascii = ascii
    asked.create = True
    asked.schema_at = 0
    asked.which = AUTO
    asked.trims = NO_TRIM


cdef inline bint at_least(u64 ms, u64 seq, u64 other_ms, u64 other_seq) noexcept nogil:
    """Whether an ID is not below another one."""
    return ms > other_ms or (ms == other_ms and seq >= other_seq)


cdef inline bint next_id(const Asked* asked, u64 now_ms, u64* ms, u64* seq) noexcept nogil:
    """The ID that is asked for, behind this one; False: it is refused, or there is none."""
    if asked.which == GIVEN_ID:
        if at_least(ms[0], seq[0], asked.given_ms, asked.given_seq):
            return False
        ms[0], seq[0] = asked.given_ms, asked.given_seq
        return True
    if asked.which == OF_MS:
        if asked.given_ms < ms[0]:
            return False
        now_ms = asked.given_ms
    if now_ms > ms[0]:
        ms[0] = now_ms
        seq[0] = 0
        return True
    seq[0] += 1
    return seq[0] != 0


cdef bint nothing_goes(const Asked* asked, u64 length, int64_t head_live, u64 head_ms, u64 head_seq,
                       u64 first_ms, u64 first_seq) noexcept nogil:
    """Whether a trim behind an entry takes nothing away from a stream that has so many with it. The
    head is its first node: live entries, and its last ID; then the ID of its first entry."""
    if asked.trims == ABOVE_COUNT:
        return length <= <u64>asked.most or (
            not asked.exact and <int64_t>length - head_live < asked.most)
    if not at_least(head_ms, head_seq, asked.least_ms, asked.least_seq):
        return False
    return not asked.exact or at_least(first_ms, first_seq, asked.least_ms, asked.least_seq)


cdef bint stays_whole(const Asked* asked, Handle h, int64_t ahead) noexcept:
    """The same of an entry for the open node, behind so many before it. Who calls has had the first
    sealed node looked up, if there is one."""
    cdef u64 length = h.length + ahead + 1
    if h.nodes:
        return nothing_goes(asked, length, h.head_live, h.head_ms, h.head_seq, h.first_ms,
                            h.first_seq)
    return nothing_goes(asked, length, h.live + ahead + 1, asked.ms, asked.seq, h.first_ms,
                        h.first_seq)
