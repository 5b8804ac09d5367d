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
from typing import TYPE_CHECKING, Final, cast

from logstore.errors import OptionError

if TYPE_CHECKING:
    import logstore.codec.pure as _pure  # the module, and not the name in the package
else:

    class _Unloaded:
        """Stands for the pure codec, a dozen modules, where the names of the class are enough."""

        def __getattr__(self, name: str) -> None:
            """Nothing, whatever the name."""

    _pure = _Unloaded()


class Codec:
    """The codec's functions and its classes, by their names: of the types of the pure ones."""

    new_node = staticmethod(_pure.new_node)
    append = staticmethod(_pure.append)
    extend = staticmethod(_pure.extend)
    entry_element_count = staticmethod(_pure.entry_element_count)
    fits = staticmethod(_pure.fits)
    head = staticmethod(_pure.head)
    counts = staticmethod(_pure.counts)
    last_id = staticmethod(_pure.last_id)
    last_live_id = staticmethod(_pure.last_live_id)
    first_live_id = staticmethod(_pure.first_live_id)
    entries = staticmethod(_pure.entries)
    may_match = staticmethod(_pure.may_match)
    stretch_bytes = staticmethod(_pure.stretch_bytes)
    ids = staticmethod(_pure.ids)
    find = staticmethod(_pure.find)
    first_deliveries = staticmethod(_pure.first_deliveries)
    pack_ids = staticmethod(_pure.pack_ids)
    are_ids = staticmethod(_pure.are_ids)
    mark_deleted = staticmethod(_pure.mark_deleted)
    fold = staticmethod(_pure.fold)
    rewrite = staticmethod(_pure.rewrite)
    lzf_decompress = staticmethod(_pure.lzf_decompress)
    seal = staticmethod(_pure.seal)
    unseal = staticmethod(_pure.unseal)
    frame_head = staticmethod(_pure.frame_head)
    resp_requests = staticmethod(_pure.resp_requests)
    resp_request = staticmethod(_pure.resp_request)
    resp_add = staticmethod(_pure.resp_add)
    resp_adds = staticmethod(_pure.resp_adds)
    resp_entries = staticmethod(_pure.resp_entries)
    resp_deliveries = staticmethod(_pure.resp_deliveries)
    resp_value = staticmethod(_pure.resp_value)
    resp_given_ids = staticmethod(_pure.resp_given_ids)
    resp_ids = staticmethod(_pure.resp_ids)
    validate = staticmethod(_pure.validate)
    filter_hash = staticmethod(_pure.filter_hash)
    nodes_with = staticmethod(_pure.nodes_with)
    survey = staticmethod(_pure.survey)
    rows = staticmethod(_pure.rows)
    decoded_pairs = staticmethod(_pure.decoded_pairs)
    field_value = staticmethod(_pure.field_value)
    columns = staticmethod(_pure.columns)
    moment_texts = staticmethod(_pure.moment_texts)
    double_texts = staticmethod(_pure.double_texts)
    canonical_texts = staticmethod(_pure.canonical_texts)
    given_numbers = staticmethod(_pure.given_numbers)
    given = staticmethod(_pure.given)
    pack = staticmethod(_pure.pack)
    ArrowBuilder = _pure.ArrowBuilder
    DeliveryMaker = _pure.DeliveryMaker
    Encoders = _pure.Encoders
    EntryMaker = _pure.EntryMaker
    FieldsMaker = _pure.FieldsMaker
    FrameSearch = _pure.FrameSearch
    GivenIDs = _pure.GivenIDs
    NodeBatch = _pure.NodeBatch
    NodeFinder = _pure.NodeFinder
    NodeList = _pure.NodeList
    PendingRun = _pure.PendingRun
    RangeFinder = _pure.RangeFinder
    RowBatch = _pure.RowBatch
    RowWriter = _pure.RowWriter
    RunList = _pure.RunList
    Unpacking = _pure.Unpacking


if TYPE_CHECKING:
    pure: Codec


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
