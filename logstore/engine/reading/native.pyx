# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, auto_pickle=False
# cython: initializedcheck=False, embedsignature=True, freethreading_compatible=False
"""The read core: entries by ID from what is kept of streams and nodes, in C with typed data.

Its parts: _nodes.pxi (`NodeCache`: verified nodes by position), _pages.pxi (`Page`: where
neighbouring nodes lie), _streams.pxi (`Stream`: record, open node and pages of one stream),
_reader.pxi (`Reader`: all that is kept of one store, and how it follows the log) and _walk.pxi
(an entry, and the entries of an interval).

What is kept stands at `at`, a position of the log in a generation of the index. A look:

1. loads PROGRESS, then APPLIED and GENERATION. A commit in progress, another generation, or a
   segment that was dropped: it is a miss. LMDB shows a commit before it is published, and what
   somebody has seen must not go again;
2. lets what is kept follow to APPLIED: one pread of the log, each frame checked. Append frames,
   tombstones and records change record and nodes of their stream; others make what they name be
   forgotten; a kind that is not known here makes all be forgotten;
3. finds the node by the kept places, and the entry in it. What is not kept is a miss.

A miss is read in a snapshot (`of`, `get_in`, `batch_in`), whose position says whether what is kept
counts there, too; what it loads is kept only behind the snapshot's end, when that was found sound,
and only if `at` is its position still.

Invariants: a `Page` never changes once it is made; what changes in a `Stream` that is kept changes
while no Python runs (`Reader.follow`: but in a collection, which finds that nothing is kept), and
whoever reads it takes what he needs before he calls anything. What a snapshot loads stands in a
copy that nobody else has. Bytes at a position of the log never change, and no position is used
again, so nodes stay true in any generation. Whatever is odd (a length, a checksum, an order, a file
that is gone) makes a miss, and no error: the twin meets it, too, and says what it is. Nothing is
kept mapped: files are read with pread.

It may not know LMDB, nor how entries are made: the codec's makers are called.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memmove, memset

from logstore.codec import codec as _codec
from logstore.engine.reading.reader_interface import PAGE_NODES as _PAGE_NODES
from logstore.engine.reading.reader_interface import STREAMS_MAX_BYTES as _STREAMS_MAX_BYTES
from logstore.errors import CorruptionError as _CorruptionError
from logstore.errors import CorruptNodeError, TooLargeError
from logstore.fs import File as _File
from logstore.ids import StreamID as _StreamID
from logstore.index.keys import StreamRecord as _StreamRecord

MISS = object()
cdef object MISSED = MISS

include "../lane/_system.pxi"
include "../../codec/_base.pxi"
include "../../codec/_decimal.pxi"
include "../../codec/_listpack.pxi"
include "../../codec/_node.pxi"
include "../../codec/_crc32c.pxi"
include "../lane/_frame.pxi"
include "../lane/_words.pxi"
include "_nodes.pxi"
include "_pages.pxi"
include "_streams.pxi"
include "_reader.pxi"
include "_walk.pxi"
