# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
# cython: freethreading_compatible=False, auto_pickle=False
"""The handler of SIGBUS, and the regions that it looks after; words that processes share, and
sleeping on them; see the package.

Invariants: the handler calls nothing but mmap, sigaction and raise, takes no lock and no memory; it
touches a page only if that lies in a region that was given; a region is in the table before it can
be touched by who gave it, and out of it before its memory is unmapped. The table is changed with
the interpreter's lock held. Words are loaded with acquire and stored with release, whole, as the
lane does it (``ls_load`` and ``ls_store``). Who sleeps on a word, or asks for a file's times, lets
go of that lock; the memory stays mapped meanwhile, as callers hold it.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.long cimport PyLong_FromUnsignedLongLong
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

cdef extern from *:
    """
    #include <errno.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>

    #define LS_REGIONS 256

    typedef struct { uintptr_t begin, end; int prot; int lost; } ls_region;

    static ls_region ls_regions[LS_REGIONS];
    static struct sigaction ls_before;      /* who is asked about every other fault */
    static int ls_count, ls_passing;
    static uintptr_t ls_page = 4096;

    static void ls_on_bus(int sig, siginfo_t *info, void *context) {
        int saved = errno, i;
        /* Of an access (also to memory that the hardware lost), not sent by somebody. */
        uintptr_t at = info->si_code > 0 ? (uintptr_t)info->si_addr : 0;
        for (i = 0; at && i < LS_REGIONS; i++) {
            ls_region *r = &ls_regions[i];
            uintptr_t begin = __atomic_load_n(&r->begin, __ATOMIC_ACQUIRE);
            void *page = (void *)(at & ~(ls_page - 1));
            if (!begin || at < begin || at >= r->end) continue;
            if (mmap(page, ls_page, r->prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
                    != page) break;
            __atomic_store_n(&r->lost, 1, __ATOMIC_RELEASE);
            errno = saved;
            return;
        }
        /* Not ours: as if we were not there. One who passes it back to us gets the default. */
        if (!ls_passing && (ls_before.sa_flags & SA_SIGINFO)) {
            ls_passing = 1;
            ls_before.sa_sigaction(sig, info, context);
            ls_passing = 0;
        } else if (!ls_passing && ls_before.sa_handler != SIG_DFL
                   && ls_before.sa_handler != SIG_IGN) {
            ls_passing = 1;
            ls_before.sa_handler(sig);
            ls_passing = 0;
        } else if (at || ls_passing || ls_before.sa_handler == SIG_DFL) {
            struct sigaction none;
            memset(&none, 0, sizeof none);
            none.sa_handler = SIG_DFL;
            sigaction(SIGBUS, &none, NULL);
            if (!at) raise(SIGBUS);     /* an access faults again by itself */
        }
        errno = saved;
    }

    static int ls_on_top(void) {
        struct sigaction now;
        return !sigaction(SIGBUS, NULL, &now) && (now.sa_flags & SA_SIGINFO)
            && now.sa_sigaction == ls_on_bus;
    }

    /* The place of a region in the table; -1 if it is full, or there can be no handler. */
    static int ls_add(uintptr_t begin, uintptr_t end, int writable) {
        int i;
        for (i = 0; i < LS_REGIONS && ls_regions[i].begin; i++);
        if (i == LS_REGIONS || begin >= end) return -1;
        if (!ls_on_top()) {
            struct sigaction ours;
            memset(&ours, 0, sizeof ours);
            ours.sa_sigaction = ls_on_bus;
            ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
            sigemptyset(&ours.sa_mask);
            ls_page = (uintptr_t)sysconf(_SC_PAGESIZE);
            if (sigaction(SIGBUS, NULL, &ls_before) || sigaction(SIGBUS, &ours, NULL)) return -1;
        }
        ls_regions[i].end = end;
        ls_regions[i].prot = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        ls_regions[i].lost = 0;
        __atomic_store_n(&ls_regions[i].begin, begin, __ATOMIC_RELEASE);
        ls_count++;
        return i;
    }

    /* The handler goes with the last region, unless somebody put another one on top of it. */
    static void ls_remove(int i) {
        __atomic_store_n(&ls_regions[i].begin, 0, __ATOMIC_RELEASE);
        if (!--ls_count && ls_on_top()) sigaction(SIGBUS, &ls_before, NULL);
    }

    static int ls_lost(int i) { return __atomic_load_n(&ls_regions[i].lost, __ATOMIC_ACQUIRE); }

    static int ls_known(uintptr_t begin) {
        int i;
        for (i = 0; i < LS_REGIONS; i++) if (ls_regions[i].begin == begin) return 1;
        return 0;
    }

    /* Where a file is mapped as a whole, and is in no region yet; 0 if nowhere. */
    static uintptr_t ls_find(uint64_t inode, uint64_t size) {
        char line[4352];
        uintptr_t found = 0;
        FILE *maps = fopen("/proc/self/maps", "re");
        if (!maps) return 0;
        while (!found && fgets(line, sizeof line, maps)) {
            unsigned long long begin, end, offset, number;
            if (sscanf(line, "%llx-%llx %*s %llx %*s %llu", &begin, &end, &offset, &number) == 4
                    && number == inode && !offset && end - begin == size
                    && !ls_known((uintptr_t)begin))
                found = (uintptr_t)begin;
        }
        fclose(maps);
        return found;
    }
    """
    int ls_add(uintptr_t begin, uintptr_t end, int writable) nogil
    void ls_remove(int place) nogil
    int ls_lost(int place) nogil
    uintptr_t ls_find(uint64_t inode, uint64_t size) nogil

cdef extern from *:
    """
    #include <fcntl.h>
    #include <linux/futex.h>
    #include <sched.h>
    #include <sys/syscall.h>
    #include <time.h>

    /* For other processes, too: without FUTEX_PRIVATE_FLAG. */
    static void ls_sleep_on(uintptr_t word, uint32_t expected, double most_s) {
        struct timespec t;
        t.tv_sec = (time_t)most_s;
        t.tv_nsec = (long)((most_s - (double)t.tv_sec) * 1e9);
        syscall(SYS_futex, word, FUTEX_WAIT, expected, &t, NULL, 0);
    }
    static int ls_wake_word(uintptr_t word, int count) {
        return (int)syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
    }
    static int ls_statx(const char *path, unsigned mask, void *into) {
        return (int)syscall(SYS_statx, AT_FDCWD, path, 0, mask, into);
    }
    """
    void ls_sleep_on(uintptr_t word, uint32_t expected, double most_s) nogil
    int ls_wake_word(uintptr_t word, int count) nogil
    int ls_statx(const char *path, unsigned mask, void *into) nogil
    void sched_yield() nogil


cdef extern from *:
    """
    #define ls_load_word(p) __atomic_load_n((const uint64_t *)(p), __ATOMIC_ACQUIRE)
    #define ls_load_half(p) __atomic_load_n((const uint32_t *)(p), __ATOMIC_ACQUIRE)
    #define ls_store_word(p, v) __atomic_store_n((uint64_t *)(p), (v), __ATOMIC_RELEASE)
    #define ls_store_half(p, v) __atomic_store_n((uint32_t *)(p), (v), __ATOMIC_RELEASE)
    """
    uint64_t ls_load_word(const void* p) nogil
    uint32_t ls_load_half(const void* p) nogil
    void ls_store_word(void* p, uint64_t value) nogil
    void ls_store_half(void* p, uint32_t value) nogil


def numbers():
    """What must be the same in the package, by the names that it has there."""
    return {"REVISION": 1, "WORD_BYTES": sizeof(uint64_t), "HALF_BYTES": sizeof(uint32_t)}


cdef class Words:
    """Memory as words of 8 or 4 bytes, by their numbers; of ``mapped.Words``."""

    cdef Py_buffer view
    cdef bint holds
    cdef int size_bytes
    cdef Py_ssize_t count

    def __cinit__(self, memory, int size_bytes):
        if size_bytes not in (4, 8):
            raise ValueError("a word has 8 bytes, or 4")
        PyObject_GetBuffer(memory, &self.view, PyBUF_SIMPLE)
        self.holds, self.size_bytes = True, size_bytes
        if <uintptr_t>self.view.buf % <uintptr_t>size_bytes or self.view.len % size_bytes:
            raise ValueError("words stand at multiples of their size, or they are not whole")
        self.count = self.view.len // size_bytes

    def __dealloc__(self):
        self.release()

    cpdef release(self):
        """Let go of the memory, and know no word any more; safe to repeat."""
        self.count = 0
        if self.holds:
            self.holds = False
            PyBuffer_Release(&self.view)

    cdef inline char* place(self, Py_ssize_t at) except NULL:
        if not 0 <= at < self.count:
            raise IndexError("there is no such word")
        return <char*>self.view.buf + at * self.size_bytes

    def __getitem__(self, Py_ssize_t at):
        cdef const char* p = self.place(at)
        return ls_load_word(p) if self.size_bytes == 8 else ls_load_half(p)

    def __setitem__(self, Py_ssize_t at, uint64_t value):
        cdef char* p = self.place(at)
        if self.view.readonly:
            raise TypeError("this memory is read only")
        if self.size_bytes == 8:
            ls_store_word(p, value)
        elif value >> 32:
            raise OverflowError("a word of 4 bytes is less than that")
        else:
            ls_store_half(p, <uint32_t>value)

    def some(self, Py_ssize_t at, Py_ssize_t count):
        """So many words from one on, loaded in this order."""
        cdef const char* p = self.place(at)
        cdef Py_ssize_t number
        cdef tuple found
        if not 0 < count <= self.count - at:
            raise IndexError("there are not so many words")
        found = PyTuple_New(count)
        for number in range(count):
            value = PyLong_FromUnsignedLongLong(
                ls_load_word(p + number * 8) if self.size_bytes == 8
                else ls_load_half(p + number * 4))
            Py_INCREF(value)
            PyTuple_SET_ITEM(found, number, value)
        return found


cdef class Guard:
    """A region; it is looked after until this is closed or freed."""

    cdef int place
    cdef bint holds
    cdef Py_buffer view

    def __cinit__(self):
        self.place = -1

    def __dealloc__(self):
        self.close()

    @property
    def lost(self):
        """Whether a page of it was lost."""
        return self.place >= 0 and ls_lost(self.place) != 0

    cpdef close(self):
        """Look after it no more; safe to repeat."""
        cdef int place = self.place
        self.place = -1
        if place >= 0:
            ls_remove(place)
        if self.holds:
            self.holds = False
            PyBuffer_Release(&self.view)


def guard_memory(memory):
    """Look after the memory of a map, which stays mapped for as long."""
    cdef Guard made = Guard()
    cdef uintptr_t begin
    PyObject_GetBuffer(memory, &made.view, PyBUF_SIMPLE)
    made.holds = True
    begin = <uintptr_t>made.view.buf
    made.place = ls_add(begin, begin + <uintptr_t>made.view.len, not made.view.readonly)
    return made


def guard_file(uint64_t inode, uint64_t size_bytes):
    """Look after what somebody else mapped for reading: so many bytes of the file of this inode."""
    cdef Guard made = Guard()
    cdef uintptr_t begin = ls_find(inode, size_bytes)
    if begin:
        made.place = ls_add(begin, begin + size_bytes, 0)
    return made


def address_of(memory):
    """Where the memory of a map that may be written to begins."""
    cdef Py_buffer view
    PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
    begin = <uintptr_t>view.buf
    PyBuffer_Release(&view)
    return begin


def sleep_on(uintptr_t address, uint32_t expected, double timeout_s):
    """Sleep while the word is as expected, until woken, at most so long."""
    with nogil:
        ls_sleep_on(address, expected, timeout_s)


def wake(uintptr_t address, int count):
    """Wake at most so many who sleep on the word; how many."""
    return ls_wake_word(address, count)


def let_run():
    """Let those run who wait for this processor."""
    with nogil:
        sched_yield()


def statx(bytes path not None, unsigned mask):
    """What the system's call gives of a file, as it lays it out; None if it refuses."""
    cdef char[256] into
    cdef const char* name = path
    cdef int failed
    with nogil:
        failed = ls_statx(name, mask, into)
    return None if failed else into[:256]
