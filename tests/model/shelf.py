"""The model of a store: streams, their entries and groups, what is scheduled and remembered.

Dictionaries and lists; each method does what the store's method of the same meaning must do, and
gives the answer that it must give. What depends on how entries lie in nodes (approximate trimming,
retention) asks the log that the test reads for itself.

Invariants: time is ``now``, set by the test; a stream whose time has come is gone for everybody
(``seen``), but lies there until the store is woken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.groups.model import ID, ZERO, Dead, Group, Pairs

SETTINGS: dict[str, Any] = {
    "max_age_ms": None, "max_entries": None, "max_bytes": None, "idempotent_duration_s": 100,
    "idempotent_max_ids": 100,
}  # fmt: skip
ORIGIN_PAIRS = 6  # behind those of a dead letter's own
REMEMBERS = ("idempotent_duration_s", "idempotent_max_ids")


class Lies(NamedTuple):
    """A node, as the log has it."""

    last: ID
    live: int
    size_bytes: int
    sealed: bool


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

    @property
    def first(self) -> ID:
        """The first entry there is; 0-0 for none."""
        return next(iter(self.entries), ZERO)


class Shelf:
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

    # -- adding -------------------------------------------------------------------------------
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

    def add_once(self, name: bytes, pairs: Pairs, producer: bytes, iid: bytes) -> ID:
        """Add one entry if this producer did not add it before."""
        stream = self.existing(name)
        expired = self.now - stream.settings["idempotent_duration_s"] * 1000
        mine = [row for row in stream.remembered if row[0] == producer]
        known = next((row[2] for row in mine if row[1] == iid), None)
        fresh = known is None or known[0] <= expired or known not in stream.entries
        if fresh:
            mine = sorted((row for row in mine if row[1] != iid), key=lambda row: row[2])
            most = stream.settings["idempotent_max_ids"]
            # The oldest go; what the new one takes the place of is no longer counted.
            kept = mine[max(0, len(mine) + 1 - most) :]
            others = [row for row in stream.remembered if row[0] != producer]
            stream.remembered = [*others, *kept]
        stream.remembered = [row for row in stream.remembered if row[2][0] > expired]
        if not fresh:
            assert known is not None
            stream.iids_duplicates += 1
            self.counts["duplicate_adds"] += 1
            return known
        id = self.add(name, pairs)
        stream.remembered.append((producer, iid, id))
        stream.iids_added += 1
        return id

    # -- deleting -----------------------------------------------------------------------------
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
        self, name: bytes, maxlen: int | None, minid: ID | None, references: str = "keep",
    ) -> int:  # fmt: skip
        """Exactly; how many."""
        stream = self.seen(name)
        if stream is None:
            return 0
        going: list[ID] = []
        for id in stream.entries:
            if maxlen is not None and len(stream.entries) - len(going) <= maxlen:
                break
            if minid is not None and id >= minid:
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

    def trim_nodes(
        self, name: bytes, maxlen: int | None, minid: ID | None, limit: int, nodes: list[Lies]
    ) -> int:
        """Whole nodes; how many entries."""
        stream = self.seen(name)
        if stream is None:
            return 0
        going = 0
        left = len(stream.entries)
        for node in nodes:
            if maxlen is not None and left <= maxlen:
                break
            if limit and going + node.live > limit:
                break
            goes = left - node.live >= maxlen if maxlen is not None else node.last < (minid or ZERO)
            if not goes:
                break
            going += node.live
            left -= node.live
        return self._trimmed(stream, list(stream.entries)[:going], "trimmed_entries")

    def retain(self, lies: dict[bytes, list[Lies]]) -> int:
        """Drop what no stream keeps; how many entries."""
        return sum(self._retain(stream, lies[name]) for name, stream in self.streams.items())

    def _retain(self, stream: Stream, nodes: list[Lies]) -> int:
        age, most, size = (stream.settings[each] for each in ("max_age_ms", "max_entries",
                                                                "max_bytes"))  # fmt: skip
        held = sum(node.size_bytes for node in nodes)
        length, going = len(stream.entries), 0
        oldest = ZERO if age is None else (max(0, self.now - age), 0)
        if not (
            (most is not None and length > most)
            or (size is not None and held > size)
            or stream.first < oldest
        ):
            return 0
        for place, node in enumerate(nodes, 1):
            goes = node.last < oldest
            if most is not None:
                goes = goes or length > most <= length - node.live
            if size is not None:
                goes = goes or (held > size and place < len(nodes))
            if not goes:
                break
            length -= node.live
            going += node.live
            held -= node.size_bytes if node.sealed else 0
            self.counts["retained_bytes"] += node.size_bytes if node.sealed else 0
        return self._trimmed(stream, list(stream.entries)[:going], "retained_entries")

    def set_id(self, name: bytes, last: ID, added: int | None, deleted: ID | None) -> None:
        """Set the last ID."""
        stream = self.streams[name]
        if last < stream.last:
            stream.remembered = [row for row in stream.remembered if row[2] <= last]
        stream.last = last
        stream.added = stream.added if added is None else added
        stream.max_deleted = deleted or stream.max_deleted

    # -- streams as a whole -------------------------------------------------------------------
    def drop(self, name: bytes) -> bool:
        """Whether there was one."""
        there = self.seen(name) is not None
        if there:
            del self.streams[name]
        return there

    def rename(self, old: bytes, new: bytes, *, replace: bool) -> bool:
        """Whether it was done; the old one is there."""
        if self.seen(new) is not None and not replace:
            return False
        self.streams[new] = self.streams.pop(old)
        return True

    def copy(self, source: bytes, target: bytes, *, replace: bool) -> bool:
        """Whether it was done; the source is there."""
        if self.seen(target) is not None and not replace:
            return False
        found = self.streams[source]
        self._numbers += 1
        made = Stream(
            self._numbers, dict(found.entries), found.added, found.last, found.max_deleted,
            found.expires_ms, {name: group.copied() for name, group in found.groups.items()},
            remembered=deepcopy(found.remembered), iids_added=found.iids_added,
            iids_duplicates=found.iids_duplicates,
        )  # fmt: skip
        made.settings |= {each: found.settings[each] for each in REMEMBERS}
        self.streams[target] = made
        return True

    def expire(self, name: bytes, at: int) -> bool:
        """Whether it was set; a time that has come drops it."""
        stream = self.seen(name)
        if stream is None:
            return False
        stream.expires_ms = at
        if at <= self.now:
            del self.streams[name]
        return True

    def configure(self, name: bytes, **changes: Any) -> None:
        """Change settings; other limits of what is remembered forget all of it."""
        stream = self.existing(name)
        if any(changes.get(each, stream.settings[each]) != stream.settings[each]
               for each in REMEMBERS):  # fmt: skip
            stream.remembered = []
        stream.settings |= changes

    # -- what comes by itself -----------------------------------------------------------------
    def schedule(self, name: bytes, pairs: Pairs, due: int, number: int) -> None:
        """Keep an entry until its time."""
        self.existing(name).scheduled.append(Waits(due, number, pairs))

    def repeat(self, name: bytes, pairs: Pairs, every_ms: int, called: str) -> None:
        """Keep an entry that comes again and again, in the place of the one of this name.

        The same length keeps the time of the next one.
        """
        stream = self.existing(name)
        due = first = self.now + every_ms
        for before in [each for each in stream.scheduled if each.name == called]:
            stream.scheduled.remove(before)
            if before.every_ms == every_ms:
                due, first = before.due, before.first_ms
        stream.scheduled.append(Waits(due, 0, pairs, called, every_ms, first))

    def wake(self) -> None:
        """What whoever is awake does."""
        for name in [name for name in self.streams if self.seen(name) is None]:
            del self.streams[name]
            self.counts["expired_streams"] += 1
        for name, stream in self.streams.items():
            due = sorted(each for each in stream.scheduled if each.due <= self.now)
            for each in due:
                stream.scheduled.remove(each)
                self.add(name, each.pairs)
                if each.every_ms:  # what was missed is one; the next one is in step with the first
                    missed = (self.now - each.first_ms) // each.every_ms
                    following_ms = each.first_ms + (missed + 1) * each.every_ms
                    stream.scheduled.append(each._replace(due=following_ms))
            self.counts["scheduled_added"] += len(due)

    def settle(self, name: bytes, group: bytes) -> None:
        """After an operation of a group: dead letters are added, what it counted is counted."""
        found = self.streams[name].groups[group]
        self.counts.update(found.counts)
        found.counts.clear()
        dead, found.dead = found.dead, []
        for each in dead:
            assert found.dead_letter is not None
            self.add(found.dead_letter, each.pairs + origin(name, group, each))
        self.counts["dead_letters"] += len(dead)

    def requeue(self, name: bytes, ids: Sequence[ID]) -> None:
        """Give dead letters back to where they came from, without what says so."""
        for id in ids:
            pairs = self.streams[name].entries[id]
            (_, origin_stream), *_ = pairs[-ORIGIN_PAIRS:]
            self.add(origin_stream, pairs[:-ORIGIN_PAIRS])
        self.delete(name, ids)


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


def origin(stream: bytes, group: bytes, dead: Dead) -> Pairs:
    """What a dead letter says of where it came from."""
    return (
        (b"origin_stream", stream), (b"origin_id", b"%d-%d" % dead.id), (b"origin_group", group),
        (b"origin_consumer", dead.owner), (b"origin_delivery_count", b"%d" % dead.count),
        (b"origin_error", dead.error),
    )  # fmt: skip
