# Verified nodes by position, bounded in bytes. Pure twin: pure.py.

cdef enum:
    # of a node besides its listpack: the object, its key, its place in the ring
    NODE_COST = 208
    PLACE_BYTES = 24        # of an entry, in what finds entries of a node
    FINDER_COST = 160       # of that besides


@cython.final
@cython.no_gc
cdef class Node:
    """A sealed node that was read and checked."""

    cdef bytes lp
    cdef u64 position, stream, ms, seq      # of which stream, with which master ID
    cdef object finder      # of a node that was met again: where its entries stand
    cdef bytes vector       # what was deleted of it when that was made
    cdef bint used          # since the hand passed it
    cdef Py_ssize_t cost


@cython.final
cdef class NodeCache:
    """Nodes by their positions. Those that were asked for since the hand last passed them stay."""

    cdef dict by_position
    cdef list ring
    cdef Py_ssize_t hand, held, most
    cdef int64_t clears     # counts how often all was forgotten

    def __init__(self, Py_ssize_t most_bytes):
        self.by_position, self.ring = {}, []
        self.most = most_bytes

    @property
    def held_bytes(self):
        """What is held, with what each node costs besides its listpack."""
        return self.held

    cdef Node find(self, u64 position, u64 stream, u64 ms, u64 seq, u64 lp_bytes):
        """The node that is kept at a position, if it is this one."""
        cdef Node n
        cdef PyObject* found = PyDict_GetItemWithError(self.by_position, position)
        if found == NULL:
            return None
        n = <Node>found
        if n.stream != stream or n.ms != ms or n.seq != seq or size_of(n.lp) != lp_bytes:
            return None
        n.used = True
        return n

    cdef Node keep(self, u64 position, u64 stream, u64 ms, u64 seq, bytes lp, int64_t clears):
        """A node that was read from there and checked; kept unless it is large, or all was
        forgotten since `clears` was looked at."""
        cdef Node n = Node.__new__(Node)
        n.lp, n.position, n.stream, n.ms, n.seq = lp, position, stream, ms, seq
        n.cost = size_of(lp) + NODE_COST
        if n.cost <= self.most >> 4 and clears == self.clears:
            self.make_room(n.cost)
            if position in self.by_position:    # another thread was quicker, or it is another node
                return n
            self.by_position[position] = n
            self.ring.append(n)
            self.held += n.cost
        return n

    cdef int make_room(self, Py_ssize_t cost) except -1:
        """Forget nodes until so many bytes are free."""
        cdef Node n, last
        while self.held + cost > self.most and self.ring:
            if self.hand >= len(self.ring):
                self.hand = 0
            n = <Node>self.ring[self.hand]
            if n.used:
                n.used = False
                self.hand += 1
                continue
            last = <Node>self.ring.pop()
            if last is not n:
                self.ring[self.hand] = last
            del self.by_position[n.position]
            self.held -= n.cost
        return 0

    cdef object finder_of(self, Node n, bytes vector, uint32_t entries):
        """What finds entries of a node that was met before."""
        if n.finder is None or n.vector != vector:
            made = _codec().NodeFinder(n.lp, n.ms, n.seq, vector)
            if n.finder is None and self.is_kept(n):
                n.cost += FINDER_COST + PLACE_BYTES * entries
                self.held += FINDER_COST + PLACE_BYTES * entries
            n.finder, n.vector = made, vector
            self.make_room(0)
            return made
        return n.finder

    cdef bint is_kept(self, Node n):
        cdef PyObject* found = PyDict_GetItemWithError(self.by_position, n.position)
        return found == <PyObject*>n

    def get(self, u64 position, u64 stream, master, u64 lp_bytes):
        """The listpack of so many bytes at a position, of this node; None if it is not kept."""
        cdef u64 ms = master[0], seq = master[1]
        cdef Node n = self.find(position, stream, ms, seq, lp_bytes)
        return None if n is None else n.lp

    def put(self, u64 position, u64 stream, master, bytes lp not None):
        """Keep a listpack that was read from there and checked; others may go for it."""
        cdef u64 ms = master[0], seq = master[1]
        self.keep(position, stream, ms, seq, lp, self.clears)

    def clear(self):
        """Forget all."""
        self.by_position.clear()
        self.ring.clear()
        self.held = self.hand = 0
        self.clears += 1
