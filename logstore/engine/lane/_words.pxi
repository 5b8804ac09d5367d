# Words of the control block (shm/commit_words.py, shm/wait_words.py).

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
        "_LOG_OFFSET": W_APPLIED, "_PROGRESS_OFFSET": W_PROGRESS,
        "_GENERATION_OFFSET": W_GENERATION,
        "_INDEXED_OFFSET": W_INDEXED, "_DURABLE_OFFSET": W_DURABLE, "_UNSYNCED_OFFSET": W_UNSYNCED,
        "_FAILED_OFFSET": W_FAILED, "_OWNER_OFFSET": W_OWNER, "_FULL_OFFSET": W_FULL,
        "_WAITING_OFFSET": W_WAITING, "BUCKETS_OFFSET": BUCKETS_AT, "BUCKET_BYTES": BUCKET,
        "BUCKETS": BUCKETS, "every_offset": EVERY_AT, "_UNTIL": UNTIL,
        "_GROUPS_UNTIL": GROUPS_UNTIL, "CALL_MS": CALL_MS,
    }


def log_words():
    """Offsets of the first words of `LogWords`, in the order that they have there."""
    return W_APPLIED, W_COMMIT, W_LAST_FRAME, W_LAST_CRC, W_ACTIVE, W_GENERATION, W_PROGRESS
