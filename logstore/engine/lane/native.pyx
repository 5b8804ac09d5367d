# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, auto_pickle=False
# cython: initializedcheck=False, embedsignature=True, freethreading_compatible=False
"""The lane: commits of adds, of deletes, or of what a group does, in C with typed data.

Its parts: _system.pxi (the system, through one interface), parts of the codec (elements of a
listpack, the head of a node, CRC32C), then _frame.pxi (the bytes of an append frame), _handle.pxi
(`Handle`: a stream's record and open node in C), _words.pxi (the control block), _asked.pxi (IDs
and options of adds); then classes, each on top of the one before: _holding.pxi (`HoldingLane`: what
is held, and how it follows the log and the record cache), _commit.pxi (`CommitLane`: the order of a
commit), _sharing.pxi (`SharingLane`: threads that share a sync), _add.pxi (`AddLane`: adds),
_begin.pxi (`BeginLane`: adds that begin a node or a stream), _delete.pxi (`DeleteLane`: deletes),
_group.pxi (`Group`: a group's record, consumers and runs of pending entries in C), _group_lane.pxi
(`GroupLane`: reads and acks), _claiming.pxi (`ClaimLane`: nacks, claims, reads of a backlog),
_handover.pxi (`HandoverLane`: adds that are handed to who waits) and _waiting.pxi (`Lane`: who
waits).

A *plain add* adds one entry to one stream with an ID above the last one, and no trim that takes
anything away; its names and values are bytes, text, integers or floats; the stream has an open node
with room, and does not expire; who waits for a group of it, if anybody, can be handed the entry, or
is woken. Some plain adds, to one stream or many, may be one commit (`add_all`), a frame each, and
acks of deliveries beside them. One that begins a node, as the last one is full, or a stream, is a
commit by itself; the index follows at once if the node is sealed at once. A *plain delete* takes
one entry of a node that keeps others. The moment is plain if the mutex is free, LOCK is too within
some milliseconds, no commit is in progress, the index may lag one more commit, and the segment has
room. Everything else, and what is rare (a look at the store's files, a full disk), goes through the
pipeline, which is asked behind this.

Invariants of `Lane`: what it holds is changed with the mutex held; only what is published may be
taken in without LOCK, too. It stands where the
record cache stood when it took over (`base`), plus the plain adds committed since, its own and
others' (`applied`): handles count while that is where the log stands. The record cache has one
owner: whoever enters the pipeline lets it have what is held here first (`give_back`), and handles
are learned from it again behind a commit that was not of the lane. Where that cannot be, the cache
stands elsewhere, and the index follows from the log. From the word of a commit in progress until it
is published no code of Python runs and nothing can fail but the append and its sync.

Interpreters without a global lock: the module asks for one (`freethreading_compatible`), as the
codec does.

Handles take at most HANDLES_BYTES_MAX, beside those that are ahead of the record cache: what was
not used for long is given up, and learned again from the record cache, or the index.

Invariants of `Handle`: the same fields make the same frame, byte for byte, as the codec and
``log.writer`` make, and leave the same record and open node as ``apply.streams`` does; only objects
whose type is exactly dict, str, bytes, int or float are read, so that no code of a caller runs;
what does not fit is said to be not plain, and nothing has changed then; memory is taken before
anything changes.

Invariants of `Group`: it is what the record cache has of a group, with the frames since; a
delivery, an ack or a claim leaves the same group, consumer and pending entries as ``apply.groups``
does. A read is plain if what it gives is at hand: new entries alone, for a consumer that is known,
and nobody waits in the queue before one that would wait itself. Of pending entries it knows
intervals of IDs, and what it does not know the index has as it is. Frames of groups that the cache
has not are passed over, and it is told so (`skipped`).

It may not know LMDB, nor how the index follows: see ``engine.commit.write_back``, and for commits
whose rows are written at once ``engine.lane.indexed``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.dict cimport PyDict_Copy, PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp, memcpy, memmove, memset, strlen

from zlib import crc32

from logstore.codec import codec as _codec
from logstore.codec import PendingRun as _PendingRun
from logstore.engine.reading.reader_loading import MISS as _MISS
from logstore.engine.runtime.record_cache import SealedNode as _SealedNode
from logstore.errors import CommittedError, CorruptNodeError, TooLargeError
from logstore.ids import MAX_ID as _MAX_ID
from logstore.ids import ZERO_ID as _ZERO_ID
from logstore.ids import StreamID as _StreamID
from logstore.index.keys import Locator as _Locator
from logstore.index.keys import Meta as _Meta
from logstore.index.keys import OpenNode as _OpenNode
from logstore.index.keys import StreamRecord as _StreamRecord
from logstore.log.frame import Tombstone as _Tombstone
from logstore.tombstones import added as _vector_with

include "_system.pxi"
include "../../codec/_base.pxi"
include "../../codec/_decimal.pxi"
include "../../codec/_listpack.pxi"
include "../../codec/_node.pxi"
include "../../codec/_layout.pxi"
include "../../codec/_crc32c.pxi"
include "../../codec/_pending_rows.pxi"
include "_frame.pxi"
include "_handle.pxi"
include "_words.pxi"
include "_asked.pxi"
include "_holding.pxi"
include "_commit.pxi"
include "_sharing.pxi"
include "_add.pxi"
include "_begin.pxi"
include "_delete.pxi"
include "_group.pxi"
include "_group_lane.pxi"
include "_claiming.pxi"
include "_handover.pxi"
include "_waiting.pxi"
