# IDs that callers give, and IDs that a bulk load returns. Pure twin: given_ids.py.
#
# Invariants: IDs are 16 bytes each; a run is kept as its differences to the one before, a few
# bytes.

from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_CheckExact
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from logstore.ids import StreamID as _StreamID

cdef enum:
    PLAIN_DIGITS_MAX = 19       # any number of so many digits has room in 64 bits
    RUNS_A_BLOCK = 256


ctypedef struct Pair:
    u64 ms
    u64 seq


cdef bint plain_number(const u8* p, Py_ssize_t size, u64* number) noexcept nogil:
    cdef Py_ssize_t i
    if not 0 < size <= PLAIN_DIGITS_MAX:
        return False
    number[0] = 0
    for i in range(size):
        if not 48 <= p[i] <= 57:
            return False
        number[0] = number[0] * 10 + (p[i] - 48)
    return True


cdef bint plain_text(const u8* p, Py_ssize_t size, Pair* pair, bint* is_open) noexcept nogil:
    """An ID's text if it is written as most are; all others, bad ones too, are parsed in Python."""
    cdef Py_ssize_t dash = 0
    while dash < size and p[dash] != 45:
        dash += 1
    if not plain_number(p, dash, &pair.ms):
        return False
    pair.seq = 0
    if dash == size:
        return True
    if size - dash == 2 and p[dash + 1] == 42:
        is_open[0] = True
        return True
    return plain_number(p + dash + 1, size - dash - 1, &pair.seq)


cdef bint plain_int(object value, u64* number) except -1:
    if not PyLong_CheckExact(value):
        return False
    try:
        number[0] = PyLong_AsUnsignedLongLong(value)
    except OverflowError:
        return False
    return True


cdef bint plain_id(object id, Pair* pair, bint* is_open) except -1:
    """An ID as most are given; False: look at it in Python."""
    cdef type kind = type(id)
    if kind is str:
        if not PyUnicode_IS_COMPACT_ASCII(id):
            return False
        return plain_text(<const u8*>PyUnicode_DATA(id), PyUnicode_GET_LENGTH(id), pair, is_open)
    if kind is bytes:
        return plain_text(<const u8*>PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id), pair, is_open)
    return ((kind is _StreamID or kind is tuple)
            and PyTuple_GET_SIZE(id) == 2
            and plain_int(<object>PyTuple_GET_ITEM(id, 0), &pair.ms)
            and plain_int(<object>PyTuple_GET_ITEM(id, 1), &pair.seq))


cdef class GivenIDs:
    """The IDs of the rows of one batch, in their order."""

    cdef Buf pairs              # Pair
    cdef Buf opens              # u64: places of IDs whose sequence is left open

    def __dealloc__(self):
        buf_free(&self.pairs)
        buf_free(&self.opens)

    cdef inline Py_ssize_t count(self) noexcept:
        return self.pairs.size // sizeof(Pair)

    def __len__(self):
        return self.count()

    def __getitem__(self, Py_ssize_t index, /):
        cdef const Pair* pair
        if not 0 <= index < self.count():
            raise IndexError(index)
        pair = <const Pair*>self.pairs.data + index
        return pair.ms, pair.seq

    cdef int put(self, const Pair* pair, bint is_open) except -1:
        cdef u64 place = self.count()
        if is_open:
            fail(buf_add(&self.opens, &place, sizeof(u64)))
        fail(buf_add(&self.pairs, pair, sizeof(Pair)))
        return 0

    def settle(self, u64 last_ms, u64 last_seq, /):
        """Give a sequence to each ID that leaves it open; -1 if all ascend above the last ID."""
        cdef Pair* pairs = <Pair*>self.pairs.data
        cdef const u64* opens = <const u64*>self.opens.data
        cdef u64 left = self.opens.size // sizeof(u64)
        cdef u64 ms = last_ms, seq = last_seq
        cdef Py_ssize_t i
        for i in range(self.count()):
            if left and opens[0] == <u64>i:
                opens += 1
                left -= 1
                if pairs[i].ms == ms and seq == ~<u64>0:
                    return i
                pairs[i].seq = seq + 1 if pairs[i].ms == ms else 0
            if pairs[i].ms < ms or (pairs[i].ms == ms and pairs[i].seq <= seq):
                return i
            ms = pairs[i].ms
            seq = pairs[i].seq
        return -1

    def since(self, Py_ssize_t place, /):
        """The IDs from this one on; all must be settled."""
        cdef GivenIDs rest = GivenIDs()
        if not 0 <= place <= self.count():
            raise IndexError(place)
        fail(buf_add(&rest.pairs, <const Pair*>self.pairs.data + place,
                     (self.count() - place) * sizeof(Pair)))
        return rest


def given(items, first_row):
    """Rows (ID, fields), split: their IDs, and their fields, which are not looked at."""
    cdef GivenIDs ids = GivenIDs()
    cdef list fields = []
    cdef object place = first_row, values, parse_given = None
    cdef Pair pair
    cdef bint is_open, known
    for row in items:
        is_open = known = False
        if type(row) is tuple and PyTuple_GET_SIZE(row) == 2:
            values = <object>PyTuple_GET_ITEM(row, 1)
            if type(values) is dict or type(values) is list:
                known = plain_id(<object>PyTuple_GET_ITEM(row, 0), &pair, &is_open)
        if not known:
            if parse_given is None:  # the pure codec, which most processes do without
                from logstore.codec.given_ids import parse_given
            pair.ms, pair.seq, is_open = parse_given(row, place)
            values = row[1]     # a tuple of two, or it was refused
        ids.put(&pair, is_open)
        fields.append(values)
        place += 1
    return ids, fields


def given_numbers(ms, seq):
    """IDs of their numbers; without a list of sequences all of them are left open."""
    cdef GivenIDs ids = GivenIDs()
    cdef list firsts = list(ms), seconds = [] if seq is None else list(seq)
    cdef Py_ssize_t i, count = len(firsts)
    cdef Pair pair
    if seq is not None and len(seconds) != count:
        raise ValueError("each ID has two numbers")
    pair.seq = 0
    for i in range(count):
        pair.ms = PyLong_AsUnsignedLongLong(<object>PyList_GET_ITEM(firsts, i))
        if seq is not None:
            pair.seq = PyLong_AsUnsignedLongLong(<object>PyList_GET_ITEM(seconds, i))
        ids.put(&pair, seq is None)
    return ids


cdef inline u64 zigzag(u64 diff) noexcept nogil:
    """A difference of two 64-bit numbers, small ones first: 0, -1, 1, -2, .."""
    return diff << 1 ^ (~<u64>0 if diff >> 63 else 0)


cdef inline u64 unzigzag(u64 number) noexcept nogil:
    return number >> 1 ^ (~<u64>0 if number & 1 else 0)


cdef inline u8* put_varint(u8* out, u64 number) noexcept nogil:
    while number > 0x7F:
        out[0] = <u8>(number & 0x7F | 0x80)
        out += 1
        number >>= 7
    out[0] = <u8>number
    return out + 1


cdef inline const u8* get_varint(const u8* p, u64* number) noexcept nogil:
    """A number that we wrote ourselves."""
    cdef u64 shift = 0
    number[0] = 0
    while p[0] & 0x80:
        number[0] |= <u64>(p[0] & 0x7F) << shift
        shift += 7
        p += 1
    number[0] |= <u64>p[0] << shift
    return p + 1


cdef class RunList:
    """IDs in the order in which they were put, as runs of consecutive ones."""

    cdef Buf data
    cdef Buf marks              # Pair: of each block, its first byte, and how many IDs are before
    cdef u64 runs               # that are in data
    cdef Pair before_run
    cdef Pair last              # of the run that still grows
    cdef u64 last_count         # 0: there is none
    cdef u64 total

    def __dealloc__(self):
        buf_free(&self.data)
        buf_free(&self.marks)

    def __len__(self):
        return self.total

    cdef int keep(self) except -1:
        """Put the run that grew to the others."""
        cdef Pair mark
        cdef u8* out
        if self.runs % RUNS_A_BLOCK == 0:
            mark.ms = self.data.size
            mark.seq = self.total - self.last_count
            fail(buf_add(&self.marks, &mark, sizeof(Pair)))
            self.before_run.ms = self.before_run.seq = 0
        fail(buf_reserve(&self.data, 30))
        out = self.data.data + self.data.size
        out = put_varint(out, zigzag(self.last.ms - self.before_run.ms))
        out = put_varint(out, self.last.seq if self.last.ms != self.before_run.ms
                         else zigzag(self.last.seq - self.before_run.seq))
        out = put_varint(out, self.last_count)
        self.data.size = out - self.data.data
        self.before_run = self.last
        self.runs += 1
        return 0

    cdef int add(self, u64 ms, u64 seq, u64 count) except -1:
        if (self.last_count and self.last.ms == ms and seq > self.last.seq
                and seq - self.last.seq == self.last_count):
            self.last_count += count
        else:
            if self.last_count:
                self.keep()
            self.last.ms = ms
            self.last.seq = seq
            self.last_count = count
        self.total += count
        return 0

    def put(self, u64 ms, u64 seq, u64 count, /):
        """``count`` IDs from this one on."""
        self.add(ms, seq, count)

    def put_given(self, GivenIDs ids not None, /):
        """All of these IDs."""
        cdef const Pair* pairs = <const Pair*>ids.pairs.data
        cdef Py_ssize_t i
        for i in range(ids.count()):
            self.add(pairs[i].ms, pairs[i].seq, 1)

    cdef Py_ssize_t blocks(self) noexcept nogil:
        return (self.runs + (self.last_count != 0) + RUNS_A_BLOCK - 1) // RUNS_A_BLOCK

    @property
    def block_count(self):
        """How many blocks there are; the run that still grows is in the last one."""
        return self.blocks()

    def before(self, Py_ssize_t block, /):
        """How many IDs stand before those of a block."""
        if not 0 <= block < self.blocks():
            raise IndexError(block)
        if <u64>block < self.marks.size // sizeof(Pair):
            return (<const Pair*>self.marks.data)[block].seq
        return self.total - self.last_count

    def block(self, Py_ssize_t block, /):
        """The runs of a block: ms, seq, count."""
        cdef Pair runs[RUNS_A_BLOCK + 1]
        cdef u64 counts[RUNS_A_BLOCK + 1]
        cdef int i, size
        if not 0 <= block < self.blocks():
            raise IndexError(block)
        # Read in one step: where tuples are made, another thread may put IDs.
        size = self.read_block(block, runs, counts)
        return [(runs[i].ms, runs[i].seq, counts[i]) for i in range(size)]

    cdef int read_block(self, Py_ssize_t block, Pair* runs, u64* counts) noexcept nogil:
        """The runs of a block, and how many these are."""
        cdef const u8* p
        cdef u64 ms = 0, seq = 0, ms_told = 0, seq_told = 0, run = <u64>block * RUNS_A_BLOCK
        cdef u64 end = min(run + RUNS_A_BLOCK, self.runs)
        cdef int size = 0
        if run < end:
            p = self.data.data + (<const Pair*>self.marks.data)[block].ms
            while run < end:
                p = get_varint(p, &ms_told)
                p = get_varint(p, &seq_told)
                p = get_varint(p, counts + size)
                seq = seq_told if ms_told else seq + unzigzag(seq_told)
                ms += unzigzag(ms_told)
                runs[size].ms, runs[size].seq = ms, seq
                size += 1
                run += 1
        if block == self.blocks() - 1 and self.last_count:
            runs[size], counts[size] = self.last, self.last_count
            size += 1
        return size

    @property
    def nbytes(self):
        """The bytes that all of it takes."""
        return self.data.size + self.marks.size
