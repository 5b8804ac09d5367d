# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, auto_pickle=False
# cython: initializedcheck=False, embedsignature=True, freethreading_compatible=False
"""The codec compiled: the same names, bytes and refusals as the pure one.

Its parts, whose first lines name their pure twins: _base.pxi (error codes, buffers), _decimal.pxi
and _listpack.pxi (elements), _node.pxi and _read.pxi (reading nodes), _entry_objects.pxi (entries
as users hold them), _edit.pxi and _rewrite.pxi (changing nodes), _values.pxi (values of a stream
with a codec of values), _row_writer.pxi (of one with a schema), _rows.pxi, _given_ids.pxi and
_pack.pxi (bulk loading), _pending_rows.pxi and _pending_run.pxi (runs of pending entries),
_deliveries.pxi (what a group hands out),
_node_batch.pxi with _crc32c.pxi (nodes that come from elsewhere), _checksums.pxi (rows, heads of
frames), _node_list.pxi (nodes by their locators), _matching.pxi (entries by their values),
_column_ranges.pxi (the least and the most of columns), _columns.pxi, _cells.pxi, _entries.pxi and
_arrow.pxi (Arrow), _frame_search.pxi (frames behind damage), _lzf.pxi (what servers compress),
_resp.pxi (requests of clients, and replies).

Invariants: every offset, length and count that comes from a node is checked against the bytes
that are there before it is used; memory grows only with what was really read. C functions return
0 or one of the codes of _base.pxi and never raise; `fail` turns a code into its error.

It may not know more than the pure codec knows.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from datetime import timedelta as _timedelta

from logstore.codec.node_types import (
    ARROW_COLUMNS, EXACT_COLUMNS, MAX_ID, TIMESTAMP_MS_MAX, ZERO_ID, NodeHead, NodeSurvey, Packed,
    PackedNode,
)
from logstore.errors import (
    CorruptNodeError, EntryTypeError, InvalidEntryError, TooLargeError, UsageError,
)

include "_base.pxi"
include "_decimal.pxi"
include "_listpack.pxi"
include "_node.pxi"
include "_layout.pxi"
include "_read.pxi"
include "_values.pxi"
include "_entry_objects.pxi"
include "_edit.pxi"
include "_rewrite.pxi"
include "_rows.pxi"
include "_row_writer.pxi"
include "_given_ids.pxi"
include "_pack.pxi"
include "_columns.pxi"
include "_cells.pxi"
include "_pending_rows.pxi"
include "_pending_run.pxi"
include "_deliveries.pxi"
include "_lzf.pxi"
include "_crc32c.pxi"
include "_checksums.pxi"
include "_node_batch.pxi"
include "_node_list.pxi"
include "_matching.pxi"
include "_node_filter.pxi"
include "_column_ranges.pxi"
include "_entries.pxi"
include "_arrow.pxi"
include "_frame_search.pxi"
include "_resp.pxi"
