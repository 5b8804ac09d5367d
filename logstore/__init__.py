"""logstore: an embedded, durable, log-structured store of streams.

``logstore.open(path)`` gives a :class:`Store`; everything else hangs on it. Names are loaded when
they are first used: a Spark executor decodes nodes without the index, and must not need lmdb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.loading import load

__version__ = "1.0.0.dev0"  # the one place; docs/releasing.md

_HOME = {
    "open": ("logstore.api.store", "open_store"),
    "Store": ("logstore.api.store", "Store"),
    "Stream": ("logstore.api.stream", "Stream"),
    "Group": ("logstore.api.group", "Group"),
    "Delivery": ("logstore.api.group", "Delivery"),
    "DeletedDelivery": ("logstore.api.group", "DeletedDelivery"),
    "DeadLetter": ("logstore.api.group", "DeadLetter"),
    "Transaction": ("logstore.api.transaction", "Transaction"),
    "DeleteOutcome": ("logstore.api.entry", "DeleteOutcome"),
    "Entry": ("logstore.api.entry", "Entry"),
    "Fields": ("logstore.api.entry", "Fields"),
    "IDRuns": ("logstore.api.entry", "IDRuns"),
    "ScheduleKey": ("logstore.api.scheduling", "ScheduleKey"),
    "ScheduledEntry": ("logstore.api.scheduling", "ScheduledEntry"),
    "StreamInfo": ("logstore.api.info", "StreamInfo"),
    "GroupInfo": ("logstore.api.info", "GroupInfo"),
    "ConsumerInfo": ("logstore.api.info", "ConsumerInfo"),
    "PendingEntry": ("logstore.api.info", "PendingEntry"),
    "PendingInfo": ("logstore.api.info", "PendingInfo"),
    "PinInfo": ("logstore.api.info", "PinInfo"),
    "ColumnDescription": ("logstore.api.describing", "ColumnDescription"),
    "StreamDescription": ("logstore.api.describing", "StreamDescription"),
    "StoreInfo": ("logstore.api.info", "StoreInfo"),
    "FullStreamInfo": ("logstore.api.info", "FullStreamInfo"),
    "FullGroupInfo": ("logstore.api.info", "FullGroupInfo"),
    "FullConsumerInfo": ("logstore.api.info", "FullConsumerInfo"),
    "FullPendingEntry": ("logstore.api.info", "FullPendingEntry"),
    "Schema": ("logstore.schema.stream_schema", "Schema"),
    "Scan": ("logstore.api.scan", "Scan"),
    "Shipped": ("logstore.recovery.shipping", "Shipped"),
    "StreamSettings": ("logstore.options", "StreamSettings"),
    "GroupSettings": ("logstore.options", "GroupSettings"),
    "StreamID": ("logstore.ids", "StreamID"),
    "Clock": ("logstore.clock", "Clock"),
    "Sync": ("logstore.options", "Sync"),
}
_ERRORS = (
    "ClosedError",
    "CommittedError",
    "CommittedInterrupt",
    "CorruptFrameError",
    "CorruptNodeError",
    "CorruptionError",
    "DamagedStoreError",
    "DiskFullError",
    "EntryNotFoundError",
    "EntryTypeError",
    "ErasureIncompleteError",
    "Error",
    "FileSystemError",
    "FormatVersionError",
    "GroupExistsError",
    "GroupNotFoundError",
    "IDOrderError",
    "InputLineError",
    "InvalidEntryError",
    "InvalidIDError",
    "InvalidPayloadError",
    "JobFailedError",
    "JobNotDoneError",
    "LastIDConflictError",
    "LockTimeoutError",
    "NotAStoreError",
    "NotOwnerError",
    "OptionError",
    "PeerError",
    "ReadOnlyError",
    "ReentryError",
    "SchemaError",
    "SnapshotExpiredError",
    "StoreError",
    "StoreFailedError",
    "StoreGoneError",
    "StoreInUseError",
    "StreamExistsError",
    "StreamNotFoundError",
    "TooLargeError",
    "UnreadableError",
    "UsageError",
)

if TYPE_CHECKING:
    from logstore.api.describing import ColumnDescription as ColumnDescription
    from logstore.api.describing import StreamDescription as StreamDescription
    from logstore.api.entry import DeleteOutcome as DeleteOutcome
    from logstore.api.entry import Entry as Entry
    from logstore.api.entry import Fields as Fields
    from logstore.api.entry import IDRuns as IDRuns
    from logstore.api.group import DeadLetter as DeadLetter
    from logstore.api.group import DeletedDelivery as DeletedDelivery
    from logstore.api.group import Delivery as Delivery
    from logstore.api.group import Group as Group
    from logstore.api.info import ConsumerInfo as ConsumerInfo
    from logstore.api.info import FullConsumerInfo as FullConsumerInfo
    from logstore.api.info import FullGroupInfo as FullGroupInfo
    from logstore.api.info import FullPendingEntry as FullPendingEntry
    from logstore.api.info import FullStreamInfo as FullStreamInfo
    from logstore.api.info import GroupInfo as GroupInfo
    from logstore.api.info import PendingEntry as PendingEntry
    from logstore.api.info import PendingInfo as PendingInfo
    from logstore.api.info import PinInfo as PinInfo
    from logstore.api.info import StoreInfo as StoreInfo
    from logstore.api.info import StreamInfo as StreamInfo
    from logstore.api.scan import Scan as Scan
    from logstore.api.scheduling import ScheduledEntry as ScheduledEntry
    from logstore.api.scheduling import ScheduleKey as ScheduleKey
    from logstore.api.store import Store as Store
    from logstore.api.store import open_store
    from logstore.api.stream import Stream as Stream
    from logstore.api.transaction import Transaction as Transaction
    from logstore.clock import Clock as Clock
    from logstore.errors import *  # noqa: F403
    from logstore.ids import StreamID as StreamID
    from logstore.options import GroupSettings as GroupSettings
    from logstore.options import StreamSettings as StreamSettings
    from logstore.options import Sync as Sync
    from logstore.recovery.shipping import Shipped as Shipped
    from logstore.schema.stream_schema import Schema as Schema

    open = open_store

# Without ``open``: ``import *`` would take Python's own away.
__all__ = sorted([*(set(_HOME) - {"open"}), *_ERRORS, "__version__"])  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _ERRORS:
        return getattr(load("logstore.errors"), name)
    if name in _HOME:
        module, attribute = _HOME[name]
        found = getattr(load(module), attribute)
        globals()[name] = found
        return found
    if name[:1].isupper() and (today := load("logstore.deprecation").renamed(name)):
        return __getattr__(today)
    raise AttributeError(f"module 'logstore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "open"])
