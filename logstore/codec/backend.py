"""What a codec is, and which one is in use: the compiled one if it was built, else the pure one.

The environment variable LOGSTORE_CODEC decides: ``pure``, or ``native`` (its absence is an
ImportError then). It is read once, at import.

Invariants: both codecs give the same bytes and refuse the same bytes. Hostile bytes give
CorruptNodeError, never a crash, a hang, or an allocation beyond the size of the input. The choice
never changes while the process lives.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from logstore.codec.node_types import (
    ID,
    MAX_ID,
    ZERO_ID,
    NodeEntry,
    NodeHead,
    NodePart,
    NodeSurvey,
    Packed,
    Row,
)
from logstore.errors import OptionError

if TYPE_CHECKING:
    from logstore.codec import (
        arrow_builder,
        checksums,
        entry_objects,
        given_ids,
        node_batch,
        node_list,
        pending_run,
        row_batch,
    )
    from logstore.codec import pure as _pure

T = TypeVar("T")


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
    def ArrowBuilder(self) -> type[arrow_builder.ArrowBuilder]: ...  # noqa: N802

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


if TYPE_CHECKING:
    pure: Final[Codec] = _pure


def _load_pure() -> Codec:
    """The pure codec; loaded where it is used, for it is a dozen modules."""
    return cast(Codec, importlib.import_module("logstore.codec.pure"))


def _load_native() -> tuple[Codec | None, ImportError | None]:
    try:
        module = importlib.import_module("logstore.codec.native")
    except ImportError as error:
        return None, error
    wanted = sorted(name for name in vars(Codec) if name[0] != "_")
    missing = [name for name in wanted if not hasattr(module, name)]
    if missing:
        return None, ImportError(
            f"the compiled codec is older than the pure one, it has no {missing[0]}: build it again"
        )
    return cast(Codec, module), None


native_or_none, why_not_native = _load_native()


def _choose(wish: str) -> Codec:
    if wish not in ("", "pure", "native"):
        raise OptionError(f"LOGSTORE_CODEC is {wish!r}; it can be 'pure' or 'native'")
    if wish == "pure":
        return _load_pure()
    if native_or_none is not None:
        return native_or_none
    if wish == "native":
        raise ImportError("LOGSTORE_CODEC=native, but it was not built") from why_not_native
    return _load_pure()


_in_use: Final = _choose(os.environ.get("LOGSTORE_CODEC", ""))


def codec() -> Codec:
    """The codec in use."""
    return _in_use


def codec_name() -> str:
    """``native`` or ``pure``, for `info` and for error reports."""
    return "native" if _in_use is native_or_none else "pure"
