"""The codec in pure Python, under the names of `backend.Codec`: the specification that runs.

Invariants: nothing but names stands here. It may not know that a compiled codec exists.
"""

from __future__ import annotations

from logstore.codec.arrow_builder import ArrowBuilder
from logstore.codec.checksums import FrameSearch, frame_head, seal, unseal
from logstore.codec.column_ranges import RangeFinder
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
from logstore.codec.entry_objects import (
    DeliveryMaker,
    EntryMaker,
    FieldsMaker,
    NodeFinder,
    Unpacking,
    are_ids,
    decoded_pairs,
    field_value,
    first_deliveries,
    pack_ids,
)
from logstore.codec.given_ids import GivenIDs, RunList, given, given_numbers
from logstore.codec.lzf import lzf_decompress
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
from logstore.codec.node_batch import NodeBatch
from logstore.codec.node_filter import filter_hash, nodes_with
from logstore.codec.node_list import NodeList, may_match, stretch_bytes
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
from logstore.codec.row_batch import (
    Encoders,
    RowBatch,
    RowWriter,
    canonical_texts,
    columns,
    double_texts,
    moment_texts,
    pack,
    rows,
)

__all__ = [
    "ArrowBuilder",
    "DeliveryMaker",
    "Encoders",
    "EntryMaker",
    "FieldsMaker",
    "FrameSearch",
    "GivenIDs",
    "NodeBatch",
    "NodeFinder",
    "NodeList",
    "PendingRun",
    "RangeFinder",
    "RowBatch",
    "RowWriter",
    "RunList",
    "Unpacking",
    "append",
    "are_ids",
    "canonical_texts",
    "columns",
    "counts",
    "decoded_pairs",
    "double_texts",
    "entries",
    "entry_element_count",
    "extend",
    "field_value",
    "filter_hash",
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
    "moment_texts",
    "new_node",
    "nodes_with",
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
