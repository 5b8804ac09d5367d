"""What ``info_full`` tells: a stream with entries, groups, consumers and what is pending with them.

Plain values. Each type is that of ``info`` with more in it; ``as_dict`` has the names of XINFO
STREAM FULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from logstore.api.entry import Entry
from logstore.api.info import (
    ConsumerInfo,
    GroupInfo,
    PendingEntry,
    StreamInfo,
    plain_entry,
    plain_text,
    settings_as_dict,
)

T = TypeVar("T", bytes, str)


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
            "pending": [each.as_dict() for each in self.pending_entries],
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
            "pending": [each.as_dict() for each in self.pending_entries],
            "consumers": [each.as_dict() for each in self.consumer_infos],
            "settings": settings_as_dict(self.settings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FullStreamInfo(StreamInfo[T]):
    """A stream, its first entries, and its groups by name."""

    entries: tuple[Entry[T], ...]
    group_infos: tuple[FullGroupInfo[T], ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, IDs as text; for --json."""
        told = StreamInfo.as_dict(self)
        place = list(told).index("groups")
        full = dict(list(told.items())[:place])
        full["entries"] = [plain_entry(each) for each in self.entries]
        full["groups"] = [each.as_dict() for each in self.group_infos]
        del told["first-entry"], told["last-entry"]
        return {**full, **{name: told[name] for name in told if name not in full}}
