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
    import pyarrow as pa

    from logstore.codec.arrow import NameGuard

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


class RowBatch(Protocol):
    """Rows made ready to be packed."""

    def __len__(self) -> int: ...

    def raw_bytes(self, index: int, /) -> int:
        """Sum of the lengths of the row's fields and values."""
        ...

    def flat(self, index: int, /) -> list[bytes]:
        """The row as field, value, field, value, .."""
        ...


class GivenIDs(Protocol):
    """The IDs of the rows of one batch, in their order."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> ID: ...

    def settle(self, last_ms: int, last_seq: int, /) -> int:
        """Give a sequence to each ID that leaves it open (``ms-*``), as an add after the last ID.

        -1 if all ascend above it, else the place of the first that is not above the one before.
        """
        ...

    def since(self, place: int, /) -> GivenIDs:
        """The IDs from this one on; all must be settled."""
        ...


class RunList(Protocol):
    """IDs in the order in which they were put, as runs of consecutive ones, in blocks."""

    def __len__(self) -> int: ...

    def put(self, ms: int, seq: int, count: int, /) -> None:
        """``count`` IDs, at least 1, from this one on; the sequence carries into ms."""
        ...

    def put_given(self, ids: GivenIDs, /) -> None:
        """All of these IDs."""
        ...

    @property
    def block_count(self) -> int:
        """How many blocks there are."""
        ...

    def before(self, block: int, /) -> int:
        """How many IDs stand before those of a block."""
        ...

    def block(self, block: int, /) -> list[tuple[int, int, int]]:
        """The runs of a block: ms, seq, count."""
        ...

    @property
    def nbytes(self) -> int:
        """The bytes that all of it takes."""
        ...


class ArrowBuilder(Protocol):
    """Nodes made into one pyarrow.RecordBatch. One thread at a time."""

    def add(
        self,
        stream_name: bytes,
        lp: bytes,
        master_ms: int,
        master_seq: int,
        vector: bytes = b"",
        start: ID = ZERO_ID,
        end: ID = MAX_ID,
    ) -> int:
        """Add the live entries with start <= ID <= end; return how many.

        CorruptNodeError, TooLargeError (a column would pass 2 GiB: finish first), and OptionError
        of a `NameGuard` add nothing.
        """
        ...

    def add_located(
        self, section: Section, items: bytes, at: int, data: bytes, position: int, seed: int,
        rows_max: int, bytes_max: int,
    ) -> int:  # fmt: skip
        """Add nodes by their locators, without holding the interpreter's lock.

        ``items``: a list of nodes (`located`), from ``at`` on; ``data``: bytes of a segment from
        ``position`` on; ``seed``: of the checksums of the store. Without columns, a node that lies
        wholly in the interval is counted and not read.

        Returns:
            The offset in ``items`` of the first node that was not added: because its frame is not
            in ``data``, or it would make more rows than ``rows_max`` or there are ``bytes_max``
            already (but a builder without rows takes any node), or its bytes are not sound. It
            never raises for what stands in a node: whoever reads looks at that one by itself.
        """
        ...

    @property
    def rows(self) -> int:
        """Rows added since the last `finish`."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of the columns so far; for a caller that bounds its batches."""
        ...

    def finish(self) -> pa.RecordBatch:
        """The batch; the builder is empty again."""
        ...


class ArrowBuilderFactory(Protocol):
    """Makes an `ArrowBuilder`.

    ``columns`` is any selection of ARROW_COLUMNS and EXACT_COLUMNS; ``field_columns`` name fields
    that become columns of their own, behind these (null where the field is absent). Types: stream
    and id string, ms and seq int64 (null past 2**63-1), ts timestamp[us, tz=UTC] (null past the
    year 9999), fields map<string, string>, id_key binary (16 bytes, big endian: sorts as the ID
    does), pairs list<struct<field: string, value: string>>, ms_exact and seq_exact uint64, field
    columns string. Of a repeated field the last value counts, in the map (at the place of the
    first) and in field columns; names are the same if their text is; pairs has all of them.
    ``binary`` makes the values of map and pairs and the field columns binary: of all, or of those
    of the columns, field columns behind the others, for which it is true. ``guard`` refuses entries
    with a field that would be taken for a column (OptionError). What is not UTF-8 has
    U+FFFD in its place in a string column, as ``bytes.decode(errors="replace")`` puts it.
    """

    def __call__(
        self,
        columns: Sequence[str] = ARROW_COLUMNS,
        field_columns: Sequence[str] = (),
        binary: bool | Sequence[bool] = False,
        guard: NameGuard | None = None,
    ) -> ArrowBuilder: ...


class Codec(Protocol):
    """The codec's functions; docstrings stand with the pure ones (node, edit, bulk, given, ..)."""

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
    ) -> tuple[bytes, RowBatch, int] | None: ...

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
    ) -> RowBatch: ...

    def decoded_pairs(
        self, flat: Sequence[Any], decode: Callable[[Any], Any]
    ) -> list[tuple[str, Any]]: ...

    def field_value(self, flat: Sequence[Any], name: object, reading: Any, missing: Any) -> Any: ...

    def columns(self, names: Sequence[bytes], columns: Sequence[Sequence[object]]) -> RowBatch: ...

    def given_numbers(self, ms: Sequence[int], seq: Sequence[int] | None) -> GivenIDs: ...

    def given(self, items: Sequence[Any], first_row: int) -> tuple[GivenIDs, list[Any]]: ...

    def pack(
        self,
        batch: RowBatch,
        first: int,
        last_exclusive: int,
        ids: ID | Sequence[ID] | GivenIDs,
        open_lp: bytes | None,
        open_ms: int,
        open_seq: int,
        node_max_bytes: int,
        node_max_entries: int,
    ) -> Packed: ...

    @property
    def ArrowBuilder(self) -> ArrowBuilderFactory: ...  # noqa: N802  (a class stands there)

    @property
    def RunList(self) -> Any: ...  # noqa: N802  (a class, typed as the pure one of given.py is)

    @property
    def PendingRun(self) -> Any: ...  # noqa: N802  (a class, typed as the pure one of run.py is)

    @property
    def EntryMaker(self) -> Any: ...  # noqa: N802  (a class, typed as the pure one of making.py)

    @property
    def DeliveryMaker(self) -> Any: ...  # noqa: N802  (a class, typed as that of deliveries.py)

    @property
    def FieldsMaker(self) -> Any: ...  # noqa: N802  (a class, typed as the pure one of making.py)

    @property
    def Encoders(self) -> Any: ...  # noqa: N802  (a class, typed as the pure one of valued.py)

    @property
    def Unpacking(self) -> Any: ...  # noqa: N802  (a class, typed as the pure one of valued.py)

    @property
    def NodeFinder(self) -> Any: ...  # noqa: N802  (a class, typed as the pure one of making.py)

    @property
    def NodeBatch(self) -> Any: ...  # noqa: N802  (a class, typed as the pure one of batch.py is)

    @property
    def NodeList(self) -> Any: ...  # noqa: N802  (a class, typed as the pure one of located.py)

    @property
    def FrameSearch(self) -> Any: ...  # noqa: N802  (a class, typed as the pure one of search.py)
