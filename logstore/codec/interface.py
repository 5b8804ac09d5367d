"""What a codec is: the names that the pure and the compiled codec both have, and their types.

Words: an entry's *flat* is field, value, field, value, ..; a node is its listpack (``lp``) and its
master ID; an *ordinal* counts the node's entries from 0, tombstones included; a *vector* is a
little-endian bitmap of ordinals (bit i & 7 of byte i >> 3) that are tombstones besides those that
the listpack marks itself, b"" if there are none.

Invariants: both codecs give the same bytes and refuse the same bytes. Hostile bytes give
CorruptNodeError, never a crash, a hang, or an allocation beyond the size of the input.

It may not know how either codec works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from logstore.tuples import NamedTuple

if TYPE_CHECKING:
    from logstore.codec import (
        arrow,
        checksums,
        entry_objects,
        given_ids,
        node_batch,
        node_list,
        pending_run,
        row_batch,
    )

T = TypeVar("T")
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


class Codec(Protocol):
    """The codec's functions and its classes, which have the types of the pure ones.

    What they do is said where they stand in pure Python (node, edit, row_batch, given_ids, ..).
    """

    def new_node(self, master_ms: int, master_seq: int, flat: Sequence[bytes]) -> bytes: ...

    def append(
        self, lp: bytes, master_ms: int, master_seq: int, ms: int, seq: int, flat: Sequence[bytes]
    ) -> tuple[bytes, bytes]: ...

    def extend(self, lp: bytes, added: bytes, entry_count: int, element_count: int) -> bytes: ...

    def entry_element_count(self, added: bytes) -> int: ...

    def fits(
        self, lp: bytes, raw_bytes: int, node_max_bytes: int, node_max_entries: int
    ) -> bool: ...

    def head(self, lp: bytes) -> NodeHead: ...

    def counts(self, lp: bytes) -> tuple[int, int]: ...

    def last_id(self, lp: bytes, master_ms: int, master_seq: int) -> ID: ...

    def last_live_id(
        self, lp: bytes, master_ms: int, master_seq: int, vector: bytes = b""
    ) -> ID | None: ...

    def first_live_id(
        self, lp: bytes, master_ms: int, master_seq: int, vector: bytes = b""
    ) -> ID | None: ...

    def entries(
        self,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes = b"",
        start: ID = ZERO_ID,
        end: ID = MAX_ID,
        limit: int = -1,
        reverse: bool = False,
    ) -> list[NodeEntry]: ...

    def may_match(
        self,
        items: bytes,
        at: int,
        data: bytes,
        position: int,
        stream: int,
        seed: int,
        where: list[bytes],
        found: list[int],
    ) -> int: ...

    def stretch_bytes(self, items: bytes, at: int, gap_max: int, bytes_max: int) -> int: ...

    def entries_where(
        self,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        where: list[bytes],
        vector: bytes = b"",
        start: ID = ZERO_ID,
        end: ID = MAX_ID,
        limit: int = -1,
        reverse: bool = False,
    ) -> list[NodeEntry]: ...

    def ids(
        self, lp: bytes, master_ms: int, master_seq: int, vector: bytes = b""
    ) -> list[tuple[int, int, int]]: ...

    def find(
        self, lp: bytes, master_ms: int, master_seq: int, ms: int, seq: int, vector: bytes = b""
    ) -> int: ...

    def first_deliveries(
        self,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes,
        start: ID,
        limit: int,
        row_class: type,
        id_class: type,
        time_ms: int,
    ) -> list[Any]: ...

    def pack_ids(self, ids: Sequence[ID]) -> tuple[bytes, bool]: ...

    def are_ids(self, values: Sequence[Any], id_class: type) -> bool: ...

    def mark_deleted(self, lp: bytes, ordinals: Sequence[int]) -> bytes: ...

    def fold(self, lp: bytes, vector: bytes) -> bytes: ...

    def rewrite(self, parts: Sequence[NodePart], master_ms: int, master_seq: int) -> bytes: ...

    def lzf_decompress(self, packed: bytes, size: int) -> bytes: ...

    def seal(self, key: bytes, value: bytes, /) -> bytes: ...

    def unseal(self, key: bytes, data: bytes, /) -> bytes | None: ...

    def frame_head(self, covered: bytes, payload: bytes, seed: int, /) -> tuple[int, bytes]: ...

    def resp_requests(
        self, data: bytearray, at: int, bulk_max_bytes: int
    ) -> tuple[list[list[bytes]], int]: ...

    def resp_request(self, data: bytes) -> list[bytes] | None: ...

    def resp_add(self, data: bytes) -> tuple[bytes, dict[bytes, bytes]] | None: ...

    def resp_adds(
        self, data: bytearray, at: int, bulk_max_bytes: int, most: int
    ) -> tuple[bytes, row_batch.RowBatch, int] | None: ...

    def resp_entries(
        self,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes = b"",
        start: ID = ZERO_ID,
        end: ID = MAX_ID,
        limit: int = -1,
        reverse: bool = False,
    ) -> list[tuple[bytes, int, int] | None]: ...

    def resp_deliveries(
        self, lp: bytes, master_ms: int, master_seq: int, vector: bytes, start: ID, limit: int
    ) -> tuple[list[tuple[bytes, int, int] | None], bytes]: ...

    def resp_value(self, value: object, new: bool, most: int) -> bytes | None: ...

    def resp_given_ids(self, words: list[bytes], id_type: type[T]) -> tuple[list[T], bool]: ...

    def resp_ids(self, ms: int, seq: int, count: int) -> bytes: ...

    def validate(self, lp: bytes, master_ms: int, master_seq: int) -> None: ...

    def survey(self, lp: bytes, master_ms: int, master_seq: int) -> NodeSurvey: ...

    def rows(
        self, items: Iterable[Row], encode: Callable[[Any], bytes] | None = None
    ) -> row_batch.RowBatch: ...

    def decoded_pairs(
        self, flat: Sequence[Any], decode: Callable[[Any], Any]
    ) -> list[tuple[str, Any]]: ...

    def field_value(self, flat: Sequence[Any], name: object, reading: Any, missing: Any) -> Any: ...

    def columns(
        self, names: Sequence[bytes], columns: Sequence[Sequence[object]]
    ) -> row_batch.RowBatch: ...

    def given_numbers(self, ms: Sequence[int], seq: Sequence[int] | None) -> given_ids.GivenIDs: ...

    def given(
        self, items: Sequence[Any], first_row: int
    ) -> tuple[given_ids.GivenIDs, list[Any]]: ...

    def pack(
        self,
        batch: row_batch.RowBatch,
        first: int,
        last_exclusive: int,
        ids: ID | Sequence[ID] | given_ids.GivenIDs,
        open_lp: bytes | None,
        open_ms: int,
        open_seq: int,
        node_max_bytes: int,
        node_max_entries: int,
    ) -> Packed: ...

    @property
    def ArrowBuilder(self) -> type[arrow.ArrowBuilder]: ...  # noqa: N802

    @property
    def DeliveryMaker(self) -> type[entry_objects.DeliveryMaker]: ...  # noqa: N802

    @property
    def Encoders(self) -> type[row_batch.Encoders]: ...  # noqa: N802

    @property
    def EntryMaker(self) -> type[entry_objects.EntryMaker]: ...  # noqa: N802

    @property
    def FieldsMaker(self) -> type[entry_objects.FieldsMaker]: ...  # noqa: N802

    @property
    def FrameSearch(self) -> type[checksums.FrameSearch]: ...  # noqa: N802

    @property
    def GivenIDs(self) -> type[given_ids.GivenIDs]: ...  # noqa: N802

    @property
    def NodeBatch(self) -> type[node_batch.NodeBatch]: ...  # noqa: N802

    @property
    def NodeFinder(self) -> type[entry_objects.NodeFinder]: ...  # noqa: N802

    @property
    def NodeList(self) -> type[node_list.NodeList]: ...  # noqa: N802

    @property
    def PendingRun(self) -> type[pending_run.PendingRun]: ...  # noqa: N802

    @property
    def RowBatch(self) -> type[row_batch.RowBatch]: ...  # noqa: N802

    @property
    def RunList(self) -> type[given_ids.RunList]: ...  # noqa: N802

    @property
    def Unpacking(self) -> type[entry_objects.Unpacking]: ...  # noqa: N802
