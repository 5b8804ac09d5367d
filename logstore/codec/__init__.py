"""The codec: entries to macro nodes and back, byte for byte as Redis and Valkey keep them.

`codec()` gives the module in use, compiled or pure; `interface.Codec` names what it has.

Invariants: no I/O. It may not know about streams, files or the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.codec.backend import codec, codec_name, native_or_none
from logstore.codec.interface import (
    ARROW_COLUMNS,
    EXACT_COLUMNS,
    ID,
    MAX_ID,
    ZERO_ID,
    ArrowBuilder,
    Codec,
    GivenIDs,
    NodeEntry,
    NodeHead,
    NodePart,
    Packed,
    PackedNode,
    Row,
    RowBatch,
    RunList,
    Section,
    Value,
)

if TYPE_CHECKING:  # the module of that name, where it is asked for
    from logstore.codec.backend import pure

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
