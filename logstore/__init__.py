"""logstore: an embedded, durable, log-structured store of streams.

``logstore.open(path)`` gives a :class:`Store`; everything else hangs on it. Names are loaded when
they are first used: a Spark executor decodes nodes without the index, and must not need lmdb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.loading import load

__version__ = "0.1.0.dev0"

_HOME = {
    "open": ("logstore.store", "open_store"),
    "Store": ("logstore.store", "Store"),
    "Stream": ("logstore.stream", "Stream"),
    "Group": ("logstore.group", "Group"),
    "Delivery": ("logstore.delivery", "Delivery"),
    "DeletedDelivery": ("logstore.delivery", "DeletedDelivery"),
    "DeadLetter": ("logstore.deadletters", "DeadLetter"),
    "Transaction": ("logstore.transaction", "Transaction"),
    "DeleteOutcome": ("logstore.outcome", "DeleteOutcome"),
    "Entry": ("logstore.entry", "Entry"),
    "Fields": ("logstore.entry", "Fields"),
    "IDRuns": ("logstore.entry", "IDRuns"),
    "ScheduleKey": ("logstore.scheduling", "ScheduleKey"),
    "ScheduledEntry": ("logstore.scheduling", "ScheduledEntry"),
    "StreamInfo": ("logstore.info", "StreamInfo"),
    "GroupInfo": ("logstore.info", "GroupInfo"),
    "ConsumerInfo": ("logstore.info", "ConsumerInfo"),
    "PendingEntry": ("logstore.info", "PendingEntry"),
    "PendingInfo": ("logstore.info", "PendingInfo"),
    "PinInfo": ("logstore.info", "PinInfo"),
    "StoreInfo": ("logstore.info", "StoreInfo"),
    "FullStreamInfo": ("logstore.fullinfo", "FullStreamInfo"),
    "FullGroupInfo": ("logstore.fullinfo", "FullGroupInfo"),
    "FullConsumerInfo": ("logstore.fullinfo", "FullConsumerInfo"),
    "FullPendingEntry": ("logstore.fullinfo", "FullPendingEntry"),
    "StreamSettings": ("logstore.settings", "StreamSettings"),
    "GroupSettings": ("logstore.settings", "GroupSettings"),
    "StreamID": ("logstore.ids", "StreamID"),
    "Clock": ("logstore.clock", "Clock"),
    "Sync": ("logstore.options", "Sync"),
}
_ERRORS = (
    "ClosedError", "CommittedError", "CommittedInterrupt", "CorruptFrameError", "CorruptNodeError",
    "CorruptionError", "DamagedStoreError", "DiskFullError", "EntryTypeError",
    "ErasureIncompleteError", "Error", "FileSystemError", "FormatVersionError", "GroupExistsError",
    "GroupNotFoundError", "IDOrderError", "InputLineError", "InvalidEntryError", "InvalidIDError",
    "InvalidPayloadError", "LockTimeoutError", "NotAStoreError", "NotOwner", "OptionError",
    "PeerError", "ReadOnlyError", "ReentryError", "SnapshotExpired", "StoreError",
    "StoreFailedError", "StoreGoneError", "StoreInUseError", "StreamExistsError",
    "StreamNotFoundError", "TooLargeError", "UsageError",
)  # fmt: skip

if TYPE_CHECKING:
    from logstore.clock import Clock as Clock
    from logstore.deadletters import DeadLetter as DeadLetter
    from logstore.delivery import DeletedDelivery as DeletedDelivery
    from logstore.delivery import Delivery as Delivery
    from logstore.entry import Entry as Entry
    from logstore.entry import Fields as Fields
    from logstore.entry import IDRuns as IDRuns
    from logstore.errors import *  # noqa: F403
    from logstore.fullinfo import FullConsumerInfo as FullConsumerInfo
    from logstore.fullinfo import FullGroupInfo as FullGroupInfo
    from logstore.fullinfo import FullPendingEntry as FullPendingEntry
    from logstore.fullinfo import FullStreamInfo as FullStreamInfo
    from logstore.group import Group as Group
    from logstore.ids import StreamID as StreamID
    from logstore.info import ConsumerInfo as ConsumerInfo
    from logstore.info import GroupInfo as GroupInfo
    from logstore.info import PendingEntry as PendingEntry
    from logstore.info import PendingInfo as PendingInfo
    from logstore.info import PinInfo as PinInfo
    from logstore.info import StoreInfo as StoreInfo
    from logstore.info import StreamInfo as StreamInfo
    from logstore.options import Sync as Sync
    from logstore.outcome import DeleteOutcome as DeleteOutcome
    from logstore.scheduling import ScheduledEntry as ScheduledEntry
    from logstore.scheduling import ScheduleKey as ScheduleKey
    from logstore.settings import GroupSettings as GroupSettings
    from logstore.settings import StreamSettings as StreamSettings
    from logstore.store import Store as Store
    from logstore.store import open_store
    from logstore.stream import Stream as Stream
    from logstore.transaction import Transaction as Transaction

    open = open_store

__all__ = sorted([*_HOME, *_ERRORS, "__version__"])  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _ERRORS:
        return getattr(load("logstore.errors"), name)
    if name in _HOME:
        module, attribute = _HOME[name]
        found = getattr(load(module), attribute)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'logstore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
