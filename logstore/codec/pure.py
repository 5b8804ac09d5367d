"""The codec in pure Python, under the names of `interface.Codec`: the specification that runs.

Invariants: nothing but names stands here. It may not know that a compiled codec exists.
"""

from __future__ import annotations

from logstore.codec.arrow import ArrowBuilder
from logstore.codec.batch import NodeBatch
from logstore.codec.bulk import RowBatch, columns, pack, rows
from logstore.codec.bulk_ids import RunList, given, given_numbers
from logstore.codec.checksums import frame_head, seal, unseal
from logstore.codec.deliveries import DeliveryMaker, are_ids, first_deliveries, pack_ids
from logstore.codec.edit import (
    append,
    entry_element_count,
    extend,
    fits,
    fold,
    mark_deleted,
    new_node,
    rewrite,
)
from logstore.codec.located import NodeList, stretch_bytes
from logstore.codec.lzf import lzf_decompress
from logstore.codec.making import EntryMaker, FieldsMaker, NodeFinder
from logstore.codec.matching import entries_where, may_match
from logstore.codec.node import (
    counts,
    entries,
    find,
    first_live_id,
    head,
    ids,
    last_id,
    last_live_id,
    survey,
    validate,
)
from logstore.codec.pending_run import PendingRun
from logstore.codec.resp import (
    resp_add,
    resp_adds,
    resp_deliveries,
    resp_entries,
    resp_given_ids,
    resp_ids,
    resp_request,
    resp_requests,
    resp_value,
)
from logstore.codec.search import FrameSearch
from logstore.codec.valued import Encoders, Unpacking, decoded_pairs, field_value

__all__ = [
    "ArrowBuilder",
    "DeliveryMaker",
    "Encoders",
    "EntryMaker",
    "FieldsMaker",
    "FrameSearch",
    "NodeBatch",
    "NodeFinder",
    "NodeList",
    "PendingRun",
    "RowBatch",
    "RunList",
    "Unpacking",
    "append",
    "are_ids",
    "columns",
    "counts",
    "decoded_pairs",
    "entries",
    "entries_where",
    "entry_element_count",
    "extend",
    "field_value",
    "find",
    "first_deliveries",
    "first_live_id",
    "fits",
    "fold",
    "frame_head",
    "given",
    "given_numbers",
    "head",
    "ids",
    "last_id",
    "last_live_id",
    "lzf_decompress",
    "mark_deleted",
    "may_match",
    "new_node",
    "pack",
    "pack_ids",
    "resp_add",
    "resp_adds",
    "resp_deliveries",
    "resp_entries",
    "resp_given_ids",
    "resp_ids",
    "resp_request",
    "resp_requests",
    "resp_value",
    "rewrite",
    "rows",
    "seal",
    "stretch_bytes",
    "survey",
    "unseal",
    "validate",
]
