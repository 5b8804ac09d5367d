"""What codecs take and give: the types of nodes, entries and IDs.

Words: an entry's *flat* is field, value, field, value, ..; a node is its listpack (``lp``) and its
master ID; an *ordinal* counts the node's entries from 0, tombstones included; a *vector* is a
little-endian bitmap of ordinals (bit i & 7 of byte i >> 3) that are tombstones besides those that
the listpack marks itself, b"" if there are none.

It may not know how a codec works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from logstore.tuples import NamedTuple

ID: TypeAlias = tuple[int, int]
NodeEntry: TypeAlias = tuple[int, int, int, list[bytes]]  # ordinal, ms, seq, flat
NodePart: TypeAlias = tuple[bytes, int, int, bytes]  # lp, master ms, master seq, vector
# What is read of a stream: its name, its number, and the closed interval of IDs.
Section: TypeAlias = tuple[bytes, int, ID, ID]
Value: TypeAlias = str | bytes | int | float
Row: TypeAlias = Mapping[Any, Any] | Sequence[tuple[Any, Any]]  # of Value to Value

ZERO_ID: Final[ID] = (0, 0)
MAX_ID: Final[ID] = (2**64 - 1, 2**64 - 1)

ARROW_COLUMNS: Final = ("stream", "id", "ms", "seq", "ts", "fields", "id_key", "pairs")
# IDs as unsigned numbers, never null; not among the columns that there are without asking
EXACT_COLUMNS: Final = ("ms_exact", "seq_exact")
# 9999-12-31T23:59:59.999 UTC, the last moment that timestamps of Python and of SQL can hold
TIMESTAMP_MS_MAX: Final = 253402300799999


class NodeHead(NamedTuple):
    """A node's counters (live entries, tombstones), its master fields, where its entries begin."""

    count: int  # type: ignore[assignment]
    deleted: int
    fields: list[bytes]
    first_entry_offset: int


class NodeSurvey(NamedTuple):
    """A node's live entries, their first and last ID (None without any), its last ID."""

    live: int
    first_live: ID | None
    last_live: ID | None
    last: ID


class PackedNode(NamedTuple):
    """A new node: its IDs (of the first and of the last entry), its live entries, its listpack."""

    master_ms: int
    master_seq: int
    last_ms: int
    last_seq: int
    count: int  # type: ignore[assignment]
    lp: bytes


class Packed(NamedTuple):
    """What `pack` made: what goes into the open node, and the nodes after it.

    ``added``: the bytes that are put behind the open node's, of ``added_entries`` entries in
    ``added_elements`` elements, the last of them ``last_of_added`` (None if nothing is added);
    ``open_lp``: the open node afterwards (None if there was none).
    """

    added: bytes
    added_entries: int
    added_elements: int
    open_lp: bytes | None
    last_of_added: ID | None
    nodes: list[PackedNode]
