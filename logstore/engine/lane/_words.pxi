# Words of the control block (shm/control_block.py, shm/wait_words.py), and calls of the system.

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from *:
    """
    #include <sys/file.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <linux/futex.h>
    #include <sched.h>
    #include <unistd.h>
    #include <time.h>
    #include <errno.h>
    static inline int64_t ls_now_ns(int clock) {
        struct timespec t;
        clock_gettime(clock, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    static inline void ls_wake(uint32_t *word, int count) {
        syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
    }
    /* Sleep while the word is as expected, at most so long; -1 if a signal ended that. */
    static inline int ls_sleep(uint32_t *word, uint32_t expected, int64_t most_ns) {
        struct timespec t = {most_ns / 1000000000, most_ns % 1000000000};
        return syscall(SYS_futex, word, FUTEX_WAIT, expected, &t, NULL, 0) < 0 && errno == EINTR
            ? -1 : 0;
    }
    /* Words are stored and loaded whole, in the order that is written down: others read them
       without the lock. */
    #define ls_store(p, v) __atomic_store_n((uint64_t *)(p), (uint64_t)(v), __ATOMIC_RELEASE)
    #define ls_load(p) __atomic_load_n((const uint64_t *)(p), __ATOMIC_ACQUIRE)
    #define ls_store_32(p, v) __atomic_store_n((uint32_t *)(p), (uint32_t)(v), __ATOMIC_RELEASE)
    #define ls_load_32(p) __atomic_load_n((const uint32_t *)(p), __ATOMIC_ACQUIRE)
    /* What was stored before is seen by all before what is loaded after. */
    #define ls_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    #define ls_yield() sched_yield()
    /* All of it, whatever interrupts; the error of the system, or 0. */
    static int ls_write(int fd, const uint8_t *p, size_t size, int64_t at) {
        while (size) {
            ssize_t done = pwrite(fd, p, size, at);
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
        return fstat(fd, &found) < 0 || !found.st_nlink ? -1 : (int64_t)found.st_size;
    }
    static int ls_sync(int fd) {
        int code;
        do code = fdatasync(fd); while (code < 0 && errno == EINTR);
        return code < 0 ? errno : 0;
    }
    """
    int flock(int fd, int op) noexcept nogil
    int LOCK_EX, LOCK_NB, LOCK_UN
    ssize_t pread(int fd, void* p, size_t n, int64_t at) noexcept nogil
    int ls_write(int fd, const uint8_t* p, size_t size, int64_t at) noexcept nogil
    int ls_sync(int fd) noexcept nogil
    int64_t ls_named_bytes(int fd) noexcept nogil
    int64_t ls_now_ns(int clock) noexcept nogil
    void ls_wake(uint32_t* p, int n) noexcept nogil
    int ls_sleep(uint32_t* p, uint32_t expected, int64_t most_ns) noexcept nogil
    void ls_store(void* p, uint64_t v) noexcept nogil
    uint64_t ls_load(const void* p) noexcept nogil
    void ls_store_32(void* p, uint32_t v) noexcept nogil
    uint32_t ls_load_32(const void* p) noexcept nogil
    void ls_fence() noexcept nogil
    void ls_yield() noexcept nogil

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object found, object key) except? NULL

cdef enum:                  # offsets of words
    W_APPLIED = 8
    W_COMMIT = 16
    W_LAST_FRAME = 24
    W_LAST_CRC = 32
    W_ACTIVE = 40
    W_GENERATION = 48
    W_PROGRESS = 56
    W_INDEXED = 64
    W_DURABLE = 72
    W_UNSYNCED = 80
    W_FAILED = 88
    W_OWNER = 96
    W_FULL = 144
    W_WAITING = 192
    BUCKETS_AT = 4096
    BUCKET = 64
    BUCKETS = 256
    EVERY_AT = 4096 + 256 * 64
    UNTIL = 8               # in a bucket: until when somebody may sleep on its word
    GROUPS_UNTIL = 16       # until when somebody may wait for a group

cdef enum:
    WALL = 0                # CLOCK_REALTIME
    MONOTONIC = 1           # CLOCK_MONOTONIC
    CALL_MS = 10            # between calls of those who watch all streams
    EVERYBODY = 0x7FFFFFFF


def words():
    """Offsets in the control block, by the names that they have in the modules of Python."""
    return {
        "_LOG_OFFSET": W_APPLIED, "_PROGRESS_OFFSET": W_PROGRESS, "_GENERATION_OFFSET": W_GENERATION,
        "_INDEXED_OFFSET": W_INDEXED, "_DURABLE_OFFSET": W_DURABLE, "_UNSYNCED_OFFSET": W_UNSYNCED,
        "_FAILED_OFFSET": W_FAILED, "_OWNER_OFFSET": W_OWNER, "_FULL_OFFSET": W_FULL,
        "_WAITING_OFFSET": W_WAITING, "BUCKETS_OFFSET": BUCKETS_AT, "BUCKET_BYTES": BUCKET,
        "BUCKETS": BUCKETS, "every_offset": EVERY_AT, "_UNTIL": UNTIL,
        "_GROUPS_UNTIL": GROUPS_UNTIL, "CALL_MS": CALL_MS,
    }


def log_words():
    """Offsets of the first words of `LogWords`, in the order that they have there."""
    return W_APPLIED, W_COMMIT, W_LAST_FRAME, W_LAST_CRC, W_ACTIVE, W_GENERATION, W_PROGRESS
