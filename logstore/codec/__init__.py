"""The codec: entries to macro nodes and back, byte for byte as Redis and Valkey keep them.

`codec()` gives the module in use, compiled or pure; `backend.Codec` names what it has. Classes
that stand here are those of the codec in use, and have the types of the pure ones.

Invariants: no I/O. It may not know about streams, files or the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.codec.backend import Codec, codec, codec_name, native_or_none
from logstore.codec.node_types import (
    ARROW_COLUMNS,
    EXACT_COLUMNS,
    ID,
    MAX_ID,
    ZERO_ID,
    NodeEntry,
    NodeHead,
    NodePart,
    Packed,
    PackedNode,
    Row,
    Section,
    Value,
)

if TYPE_CHECKING:
    from logstore.codec.arrow_builder import ArrowBuilder
    from logstore.codec.backend import pure  # the module of that name, where it is asked for
    from logstore.codec.given_ids import GivenIDs, RunList
    from logstore.codec.pending_run import PendingRun
    from logstore.codec.row_batch import RowBatch
else:
    ArrowBuilder, GivenIDs, PendingRun, RowBatch, RunList = (
        getattr(codec(), name)
        for name in ("ArrowBuilder", "GivenIDs", "PendingRun", "RowBatch", "RunList")
    )

__all__ = [
    "ARROW_COLUMNS",
    "EXACT_COLUMNS",
    "ID",
    "MAX_ID",
    "ZERO_ID",
    "ArrowBuilder",
    "Codec",
    "GivenIDs",
    "NodeEntry",
    "NodeHead",
    "NodePart",
    "Packed",
    "PackedNode",
    "PendingRun",
    "Row",
    "RowBatch",
    "RunList",
    "Section",
    "Value",
    "codec",
    "codec_name",
    "native_or_none",
    "pure",
]
