"""Streams and their entries in the model: added, deleted and trimmed exactly.

Invariants: entries are in the order of their IDs; a stream whose time has come is gone for
everybody (``seen``), but lies there until the store is woken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.model.groups import ID, ZERO, Group, Pairs

SETTINGS: dict[str, Any] = {
    "max_age_ms": None, "max_entries": None, "max_bytes": None, "idempotent_duration_s": 100,
    "idempotent_max_ids": 100,
}  # fmt: skip


class Waits(NamedTuple):
    """An entry that is scheduled; one that repeats has a name."""

    due: int
    number: int  # tells apart those of one moment
    pairs: Pairs
    name: str | None = None
    every_ms: int = 0
    first_ms: int = 0


@dataclass
class Stream:
    """One stream."""

    number: int
    entries: dict[ID, Pairs] = field(default_factory=dict)
    added: int = 0
    last: ID = ZERO
    max_deleted: ID = ZERO
    expires_ms: int = 0
    groups: dict[bytes, Group] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    scheduled: list[Waits] = field(default_factory=list)
    remembered: list[tuple[bytes, bytes, ID]] = field(default_factory=list)
    iids_added: int = 0
    iids_duplicates: int = 0
    schema: str | None = None

    @property
    def first(self) -> ID:
        """The first entry there is; 0-0 for none."""
        return next(iter(self.entries), ZERO)


class Streams:
    """All streams by name."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.streams: dict[bytes, Stream] = {}
        self.counts: Counter[str] = Counter()
        self._numbers = 0

    def seen(self, name: bytes) -> Stream | None:
        """A stream that is there for everybody."""
        found = self.streams.get(name)
        gone = found is not None and 0 < found.expires_ms <= self.now
        return None if gone else found

    def names(self) -> list[bytes]:
        """Of those, sorted."""
        return [name for name in sorted(self.streams) if self.seen(name) is not None]

    def existing(self, name: bytes) -> Stream:
        """A stream, made if it is not there."""
        found = self.seen(name)
        if found is None:
            self._numbers += 1
            found = self.streams[name] = Stream(self._numbers)
        return found

    def create(self, name: bytes) -> bool:
        """Whether it was made."""
        fresh = self.seen(name) is None
        self.existing(name)
        return fresh

    def add(self, name: bytes, pairs: Pairs, id: ID | None = None) -> ID:
        """Add one entry; its ID."""
        stream = self.existing(name)
        if id is None:
            id = (self.now, 0) if self.now > stream.last[0] else following(stream.last)
        stream.entries[id] = pairs
        stream.last = id
        stream.added += 1
        self.counts["added_entries"] += 1
        return id

    def _delete(self, stream: Stream, ids: Iterable[ID]) -> int:
        gone = [id for id in set(ids) if stream.entries.pop(id, None) is not None]
        stream.max_deleted = max([stream.max_deleted, *gone])
        self.counts["deleted_entries"] += len(gone)
        return len(gone)

    def delete(self, name: bytes, ids: Sequence[ID], references: str = "keep") -> list[int]:
        """For each -1 (there is none), 1 (deleted), 2 (a group needs it)."""
        stream = self.seen(name)
        if stream is None:
            return [-1] * len(ids)
        told: list[int] = []
        going: set[ID] = set()
        for id in ids:
            if references == "acked" and id not in going and needed(stream, id):
                told.append(2)
            elif id in stream.entries and id not in going:
                told.append(1)
                going.add(id)
            else:
                told.append(-1)
        if references == "delete":
            release(stream, ids)
        self._delete(stream, going)
        return told

    def delete_range(self, name: bytes, low: ID, high: ID) -> int:
        """How many."""
        stream = self.seen(name)
        if stream is None:
            return 0
        return self._delete(stream, [id for id in stream.entries if low <= id <= high])

    def trim(
        self, name: bytes, max_entries: int | None, min_id: ID | None, references: str = "keep",
    ) -> int:  # fmt: skip
        """Exactly; how many."""
        stream = self.seen(name)
        if stream is None:
            return 0
        going: list[ID] = []
        for id in stream.entries:
            if max_entries is not None and len(stream.entries) - len(going) <= max_entries:
                break
            if min_id is not None and id >= min_id:
                break
            if references != "acked" or not needed(stream, id):
                going.append(id)
        if references == "delete":
            release(stream, going)
        return self._trimmed(stream, going, "trimmed_entries")

    def _trimmed(self, stream: Stream, going: Sequence[ID], counter: str) -> int:
        for id in going:
            del stream.entries[id]
        self.counts[counter] += len(going)
        return len(going)

    def set_id(self, name: bytes, last: ID, added: int | None, deleted: ID | None) -> None:
        """Set the last ID."""
        stream = self.streams[name]
        if last < stream.last:
            stream.remembered = [row for row in stream.remembered if row[2] <= last]
        stream.last = last
        stream.added = stream.added if added is None else added
        stream.max_deleted = deleted or stream.max_deleted


def following(id: ID) -> ID:
    """The next one; sequences are small here."""
    return id[0], id[1] + 1


def needed(stream: Stream, id: ID) -> bool:
    """Whether a group has not read so far, or has it pending."""
    return any(group.last < id or id in group.pending for group in stream.groups.values())


def release(stream: Stream, ids: Iterable[ID]) -> None:
    """Take entries out of every group."""
    for group in stream.groups.values():
        for id in ids:
            group.pending.pop(id, None)
