# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True, freethreading_compatible=False
"""A stream's record and open node in C, and what a plain add makes of them.

Its parts: parts of the codec (elements of a listpack, the head of a node, CRC32C), then _frame.pxi
(the bytes of an append frame) and _handle.pxi (`Handle`).

Invariants: the same fields make the same frame, byte for byte, as the codec and ``log.writer``
make, and leave the same record and open node as ``apply.streams`` does; only objects whose type is
exactly dict, str, bytes or int are read, so that no code of a caller runs; what does not fit is
said to be not plain, and nothing has changed then; memory is taken before anything changes.

It may not know LMDB, nor decide what a plain add may not decide: see ``engine.commit.write_back``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from logstore import format as _format
from logstore.errors import CorruptNodeError, TooLargeError
from logstore.ids import StreamID as _StreamID

include "../../codec/_base.pxi"
include "../../codec/_decimal.pxi"
include "../../codec/_listpack.pxi"
include "../../codec/_node.pxi"
include "../../codec/_crc32c.pxi"
include "_frame.pxi"
include "_handle.pxi"
