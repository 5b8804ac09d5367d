# All that the lane asks of the system: files, locks, wake-ups, clocks, memory, words that are
# shared.
#
# It goes to the system itself, in line. A test that plays several processes in an order of its own
# (tests/simulation) sets a simulator: then each of these asks it first, and does what it says. What
# that costs a store is one look at a pointer a call; a table of functions would take the words and
# the clocks out of line. Loads ask nobody: another process comes in between at the store before.

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from *:
    """
    #include <sys/file.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <linux/futex.h>
    #include <sched.h>
    #include <unistd.h>
    #include <stdlib.h>
    #include <time.h>
    #include <errno.h>
    static PyObject *ls_simulator = NULL;
    #define LS_SIMULATED __builtin_expect(ls_simulator != NULL, 0)
    /* What the simulator says. It may touch nothing of the engine that asks. It is told whether the
       interpreter is held: then no other thread of this process runs before this goes on. */
    __attribute__((cold, noinline))
    static int64_t ls_ask(const char *call, int64_t first, int64_t second) {
        int held = PyGILState_Check();
        PyGILState_STATE state = PyGILState_Ensure();
        PyObject *type, *value, *trace, *said;
        int64_t answer;
        PyErr_Fetch(&type, &value, &trace);
        said = PyObject_CallFunction(
            ls_simulator, "sLLi", call, (long long)first, (long long)second, held);
        answer = said ? PyLong_AsLongLong(said) : -1;
        if (PyErr_Occurred()) {
            PyErr_Print();
            abort();
        }
        Py_DECREF(said);
        PyErr_Restore(type, value, trace);
        PyGILState_Release(state);
        return answer;
    }
    static void ls_simulate(PyObject *simulator) {
        PyObject *before = ls_simulator;
        Py_INCREF(simulator);
        ls_simulator = simulator;
        if (simulator == Py_None) {
            ls_simulator = NULL;
            Py_DECREF(simulator);
        }
        Py_XDECREF(before);
    }
    static inline int64_t ls_now_ns(int clock) {
        struct timespec t;
        if (LS_SIMULATED) return ls_ask("clock", clock, 0);
        clock_gettime(clock, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    static inline int ls_flock(int fd, int op) {
        if (LS_SIMULATED && (errno = (int)ls_ask("flock", fd, op)) > 0) return -1;
        return flock(fd, op);
    }
    static inline void ls_wake(uint32_t *word, int count) {
        if (LS_SIMULATED && ls_ask("wake", (int64_t)(intptr_t)word, count)) return;
        syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
    }
    /* Sleep while the word is as expected, at most so long; -1 if a signal ended that. */
    static inline int ls_sleep(uint32_t *word, uint32_t expected, int64_t most_ns) {
        struct timespec t = {most_ns / 1000000000, most_ns % 1000000000};
        if (LS_SIMULATED) {
            ls_ask("before wait", (int64_t)(intptr_t)word, 0);
            return __atomic_load_n(word, __ATOMIC_ACQUIRE) != expected
                ? 0 : (int)ls_ask("sleep", (int64_t)(intptr_t)word, most_ns);
        }
        return syscall(SYS_futex, word, FUTEX_WAIT, expected, &t, NULL, 0) < 0 && errno == EINTR
            ? -1 : 0;
    }
    /* Words are stored and loaded whole, in the order that is written down: others read them
       without the lock. */
    static inline void ls_store(void *p, uint64_t v) {
        if (LS_SIMULATED) ls_ask("store", (int64_t)(intptr_t)p, (int64_t)v);
        __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE);
    }
    static inline void ls_store_32(void *p, uint32_t v) {
        if (LS_SIMULATED) ls_ask("store", (int64_t)(intptr_t)p, v);
        __atomic_store_n((uint32_t *)p, v, __ATOMIC_RELEASE);
    }
    #define ls_load(p) __atomic_load_n((const uint64_t *)(p), __ATOMIC_ACQUIRE)
    #define ls_load_32(p) __atomic_load_n((const uint32_t *)(p), __ATOMIC_ACQUIRE)
    /* What was stored before is seen by all before what is loaded after. */
    #define ls_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    #define ls_yield() sched_yield()
    static inline ssize_t ls_pread(int fd, void *p, size_t size, int64_t at) {
        if (LS_SIMULATED && (errno = (int)ls_ask("pread", fd, at)) > 0) return -1;
        return pread(fd, p, size, at);
    }
    /* One write: the simulator lets it be whole (0), or fail with an error (above 0), or write
       -1 - n bytes, n below 0, of what it was given. */
    static ssize_t ls_pwrite(int fd, const uint8_t *p, size_t size, int64_t at) {
        if (LS_SIMULATED) {
            int64_t said = ls_ask("pwrite", fd, (int64_t)size);
            if (said > 0) {
                errno = (int)said;
                return -1;
            }
            if (said && (size_t)(-1 - said) < size) size = (size_t)(-1 - said);
        }
        return pwrite(fd, p, size, at);
    }
    /* All of it, whatever interrupts; the error of the system, or 0. */
    static int ls_write(int fd, const uint8_t *p, size_t size, int64_t at) {
        while (size) {
            ssize_t done = ls_pwrite(fd, p, size, at);
            if (done < 0) {
                if (errno == EINTR) continue;
                return errno;
            }
            p += done; size -= done; at += done;
        }
        return 0;
    }
    /* The size of a file; -1 if it has no name any more, or the system does not tell. */
    static int64_t ls_named_bytes(int fd) {
        struct stat found;
        if (LS_SIMULATED && ls_ask("fstat", fd, 0) > 0) return -1;
        return fstat(fd, &found) < 0 || !found.st_nlink ? -1 : (int64_t)found.st_size;
    }
    /* Data and size are durable behind it; the error of the system, or 0. */
    static int ls_sync(int fd) {
        int code;
        if (LS_SIMULATED) {
            int64_t said = ls_ask("fdatasync", fd, 0);
            if (said) return said < 0 ? 0 : (int)said;
        }
        do code = fdatasync(fd); while (code < 0 && errno == EINTR);
        return code < 0 ? errno : 0;
    }
    static inline void *ls_realloc(void *p, size_t size) {
        if (LS_SIMULATED && ls_ask("realloc", (int64_t)size, 0) > 0) return NULL;
        return realloc(p, size);
    }
    """
    int flock "ls_flock"(int fd, int op) noexcept nogil
    int LOCK_EX, LOCK_NB, LOCK_UN
    ssize_t pread "ls_pread"(int fd, void* p, size_t n, int64_t at) noexcept nogil
    int ls_write(int fd, const uint8_t* p, size_t size, int64_t at) noexcept nogil
    int ls_sync(int fd) noexcept nogil
    int64_t ls_named_bytes(int fd) noexcept nogil
    int64_t ls_now_ns(int clock) noexcept nogil
    void ls_wake(uint32_t* p, int n) noexcept nogil
    void ls_store(void* p, uint64_t v) noexcept nogil
    uint64_t ls_load(const void* p) noexcept nogil
    void ls_store_32(void* p, uint32_t v) noexcept nogil
    uint32_t ls_load_32(const void* p) noexcept nogil
    int ls_sleep(uint32_t* p, uint32_t expected, int64_t most_ns) noexcept nogil
    void ls_fence() noexcept nogil
    void ls_yield() noexcept nogil
    void* realloc "ls_realloc"(void* p, size_t n) noexcept nogil
    void ls_simulate(object simulator)


def simulate(simulator):
    """Ask `simulator(call, first, second, held)` before each call of the system from here on; with
    None nobody is asked. For tests, before a store is opened. `held`: 1 if the caller keeps the
    interpreter over the call, so that in truth no other thread of the process runs meanwhile.

    Of a sleep, which it does itself, it gives 0, or -1 as behind a signal. Else it gives 0 to let
    the call be, an error of the system above 0 to let it fail, and below 0: -1 - n for a write of n
    bytes; -1 for a sync that it did itself, and for wake-ups anything but 0. Of a clock it gives
    the nanoseconds. A word is stored, whatever it gives.
    """
    ls_simulate(simulator)

