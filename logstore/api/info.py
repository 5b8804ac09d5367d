"""What ``info`` tells: typed values of a stream, of its groups and of a store. Plain values.

The types of ``info_full`` are those of ``info`` with more in them; their ``as_dict`` has the names
of XINFO STREAM FULL.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logstore.api.entry import Entry
from logstore.ids import StreamID
from logstore.options import GroupSettings, StreamSettings

if TYPE_CHECKING:
    from logstore.schema.stream_schema import Schema

T = TypeVar("T", bytes, str)


@dataclass(frozen=True, slots=True)
class StreamInfo(Generic[T]):
    """All fields of XINFO STREAM, and what only a store on disk has."""

    name: T
    length: int
    radix_tree_keys: int  # macro nodes
    radix_tree_nodes: int
    last_generated_id: StreamID
    max_deleted_entry_id: StreamID
    entries_added: int
    recorded_first_entry_id: StreamID
    groups: int
    first_entry: Entry[T] | None
    last_entry: Entry[T] | None
    node_bytes: int
    open_node_bytes: int
    settings: StreamSettings = StreamSettings()
    scheduled: int = 0  # entries that wait for their time
    next_due: datetime | None = None  # the time of the first of them
    pids_tracked: int = 0  # producers of which idempotent IDs are remembered
    iids_tracked: int = 0  # idempotent IDs; what expired goes a little later, in the background
    iids_added: int = 0  # entries added idempotently, in the stream's whole life
    iids_duplicates: int = 0  # adds that added nothing, in the stream's whole life
    expires_at: datetime | None = None  # None: never
    schema: Schema | None = None  # the columns of its entries; None: it has none

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        return {
            "name": plain_text(self.name),
            "length": self.length,
            "radix-tree-keys": self.radix_tree_keys,
            "radix-tree-nodes": self.radix_tree_nodes,
            "last-generated-id": str(self.last_generated_id),
            "max-deleted-entry-id": str(self.max_deleted_entry_id),
            "entries-added": self.entries_added,
            "recorded-first-entry-id": str(self.recorded_first_entry_id),
            "idmp-duration": self.settings.idempotent_duration_s,
            "idmp-maxsize": self.settings.idempotent_max_ids,
            "pids-tracked": self.pids_tracked,
            "iids-tracked": self.iids_tracked,
            "iids-added": self.iids_added,
            "iids-duplicates": self.iids_duplicates,
            "groups": self.groups,
            "first-entry": plain_entry(self.first_entry),
            "last-entry": plain_entry(self.last_entry),
            "node-bytes": self.node_bytes,
            "open-node-bytes": self.open_node_bytes,
            "settings": settings_as_dict(self.settings),
            "scheduled": self.scheduled,
            "next-due": None if self.next_due is None else self.next_due.isoformat(),
            "expires-at": None if self.expires_at is None else self.expires_at.isoformat(),
            "schema": None if self.schema is None else self.schema.text,
        }


def plain_entry(entry: Entry[Any] | None) -> dict[str, Any] | None:
    """An entry as plain values: its ID, and pairs of texts."""
    if entry is None:
        return None
    pairs = [[plain_text(name), plain_text(value)] for name, value in entry.pairs]
    return {"id": str(entry.id), "pairs": pairs}


def settings_as_dict(settings: StreamSettings | GroupSettings[Any]) -> dict[str, Any]:
    """Settings by name, as plain values; what is not set is None."""
    return {
        name.replace("_", "-"): plain_text(value) if isinstance(value, bytes) else value
        for name, value in settings._asdict().items()
    }


def plain_text(part: bytes | str) -> str:
    """Bytes as text, with backslash escapes for those that are not UTF-8."""
    return part if isinstance(part, str) else part.decode("utf-8", "backslashreplace")


def plain_ms(length: timedelta | None) -> int:
    """Milliseconds; -1 for none."""
    return -1 if length is None else length // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class GroupInfo(Generic[T]):
    """All fields of XINFO GROUPS. None: not known, as after a delete in what was not yet read."""

    name: T
    consumers: int
    pending: int
    last_delivered_id: StreamID
    entries_read: int | None
    lag: int | None  # how many entries were not delivered yet
    settings: GroupSettings[T] = GroupSettings()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        return {
            "name": plain_text(self.name),
            "consumers": self.consumers,
            "pending": self.pending,
            "last-delivered-id": str(self.last_delivered_id),
            "entries-read": self.entries_read,
            "lag": self.lag,
            "settings": settings_as_dict(self.settings),
        }


@dataclass(frozen=True, slots=True)
class ConsumerInfo(Generic[T]):
    """All fields of XINFO CONSUMERS."""

    name: T
    pending: int
    idle: timedelta  # since it last asked for entries
    inactive: timedelta | None  # since it last got some; None: it never did

    def as_dict(self) -> dict[str, Any]:
        """Plain values, lengths of time in milliseconds (-1: never); for --json."""
        return {
            "name": plain_text(self.name),
            "pending": self.pending,
            "idle": plain_ms(self.idle),
            "inactive": plain_ms(self.inactive),
        }


@dataclass(frozen=True, slots=True)
class PendingInfo(Generic[T]):
    """What is pending in a group, in sum, as XPENDING tells it."""

    count: int
    first: StreamID | None
    last: StreamID | None
    consumers: dict[T, int]  # those that have pending entries; what was given back is nobody's

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        return {
            "count": self.count,
            "first": None if self.first is None else str(self.first),
            "last": None if self.last is None else str(self.last),
            "consumers": {plain_text(name): count for name, count in self.consumers.items()},
        }


@dataclass(frozen=True, slots=True)
class PendingEntry(Generic[T]):
    """One pending entry, as XPENDING with a range tells it."""

    id: StreamID
    consumer: T | None  # None: it was given back and is nobody's
    idle: timedelta | None  # since its last delivery; None: it was given back
    delivery_count: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, the ID as text, milliseconds; for --json."""
        return {
            "id": str(self.id),
            "consumer": None if self.consumer is None else plain_text(self.consumer),
            "idle": plain_ms(self.idle),
            "delivery-count": self.delivery_count,
        }


@dataclass(frozen=True, slots=True)
class PinInfo:
    """A pin: what keeps segments from being dropped while somebody reads what they hold."""

    id: str
    purpose: str  # "spark", "dump"; empty: an older version made it
    host: str  # of the process that it is for
    pid: int
    since: datetime | None
    until: datetime  # unless somebody reads until then
    segments: int | None  # how many it names; None: all, for a moment
    segment_bytes: int
    snapshot_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, times in ISO 8601; for --json."""
        since = None if self.since is None else self.since.isoformat()
        return {**asdict(self), "since": since, "until": self.until.isoformat()}


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store holds and where it stands."""

    path: str
    uuid: str
    format_version: int
    streams: int
    scheduled: int  # entries that wait for their time
    nodes: int
    segments: int
    log_bytes: int
    live_node_bytes: int
    index_bytes: int
    index_generation: int
    disk_bytes: int
    deleted_bytes: int  # an estimate: of deleted entries, what is still in the log
    oldest_deleted_segment_ms: int  # unix ms of the oldest segment that has such bytes; 0: none
    applied_segment: int
    applied_offset: int
    durable_segment: int  # durable up to here at least; 0, 0: nothing tells, as in a copy
    durable_offset: int
    codec: str  # "native" or "pure"
    core: str  # of plain commits and reads by ID: "native", or "pure" without compiled code
    compacted_ms: int = 0  # unix ms when compaction last dropped segments, while the store is open
    compacted_bytes: int = 0  # of all segments that it dropped, while some process has it open
    reclaimable_bytes: int = 0  # an estimate: by how much ``compact()`` would make the log smaller
    pins: int = 0  # what keeps segments: see ``Store.pins``
    pinned_bytes: int = 0  # of the segments and snapshot files that these keep
    oldest_pin_ms: int = 0  # unix ms when the oldest was made; 0: there is none, or it is not known
    shipped_ms: int = 0  # unix ms when it was last shipped; 0: never
    shipped_to: str = ""  # where, without user, password and query
    unshipped_bytes: int = 0  # of the log, behind what was shipped

    def as_dict(self) -> dict[str, Any]:
        """Plain values; for --json."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullPendingEntry(PendingEntry[T]):
    """One pending entry, and when it was delivered last."""

    delivered_ms: int | None  # unix ms; None: it was given back

    def as_dict(self) -> dict[str, Any]:
        """Plain values, the ID as text, unix milliseconds (0: it was given back); for --json."""
        return {
            "id": str(self.id),
            "consumer": None if self.consumer is None else plain_text(self.consumer),
            "delivery-time": self.delivered_ms or 0,
            "delivery-count": self.delivery_count,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FullConsumerInfo(ConsumerInfo[T]):
    """A consumer, and what is pending with it, the smallest IDs of it."""

    seen_ms: int  # unix ms: when it last asked for entries
    active_ms: int | None  # when it last got some; None: it never did
    pending_entries: tuple[FullPendingEntry[T], ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, times as unix milliseconds (-1: never); for --json."""
        return {
            "name": plain_text(self.name),
            "seen-time": self.seen_ms,
            "active-time": -1 if self.active_ms is None else self.active_ms,
            "pel-count": self.pending,
            "pending": [row.as_dict() for row in self.pending_entries],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FullGroupInfo(GroupInfo[T]):
    """A group, its consumers by name, and what is pending, the smallest IDs of it."""

    nacked: int  # of what is pending: given back and nobody's
    pending_entries: tuple[FullPendingEntry[T], ...]
    consumer_infos: tuple[FullConsumerInfo[T], ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        return {
            "name": plain_text(self.name),
            "last-delivered-id": str(self.last_delivered_id),
            "entries-read": self.entries_read,
            "lag": self.lag,
            "pel-count": self.pending,
            "nacked-count": self.nacked,
            "pending": [row.as_dict() for row in self.pending_entries],
            "consumers": [row.as_dict() for row in self.consumer_infos],
            "settings": settings_as_dict(self.settings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FullStreamInfo(StreamInfo[T]):
    """A stream, its first entries, and its groups by name."""

    entries: tuple[Entry[T], ...]
    group_infos: tuple[FullGroupInfo[T], ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        plain = StreamInfo.as_dict(self)
        place = list(plain).index("groups")
        full = dict(list(plain.items())[:place])
        full["entries"] = [plain_entry(row) for row in self.entries]
        full["groups"] = [row.as_dict() for row in self.group_infos]
        del plain["first-entry"], plain["last-entry"]
        return {**full, **{name: plain[name] for name in plain if name not in full}}
