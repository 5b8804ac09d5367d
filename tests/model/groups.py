"""A model of one consumer group in plain Python, as the documentation of XREADGROUP (with CLAIM),
XCLAIM, XAUTOCLAIM, XNACK, XACK, XPENDING and XINFO tells: dictionaries and sorting, no index.

No server at hand has CLAIM and XNACK, so this stands in for one. It knows nothing of the store:
what it must know of the stream it asks of an object with ``entries``, ``added``, ``last``,
``first`` and ``max_deleted``. IDs are pairs of numbers, times unix milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

ID = tuple[int, int]
Pairs = tuple[tuple[bytes, bytes], ...]
ZERO: ID = (0, 0)
COUNT_MAX = (1 << 63) - 1
SEEN_MS = 10  # who reads in vain more often is not written down each time: the store's own


class Source(Protocol):
    """What a group must know of its stream."""

    entries: dict[ID, Pairs]
    added: int
    last: ID
    max_deleted: ID

    @property
    def first(self) -> ID:
        """The first entry there is; 0-0 for none."""
        ...


@dataclass
class Consumer:
    """When it asked last, and when it got something last (-1: never)."""

    seen: int
    active: int = -1


@dataclass
class Held:
    """A pending entry; of nobody's (owner None) the time is its place in the line."""

    owner: bytes | None
    time: int
    count: int

    def idle(self, now: int) -> int:
        """Since it was delivered; of nobody's since ever."""
        return max(0, now - self.time) if self.owner is not None else now


class Given(NamedTuple):
    """What a consumer gets; ``pairs`` None: it was deleted meanwhile."""

    id: ID
    pairs: Pairs | None
    idle: int
    count: int  # type: ignore[assignment]


class Dead(NamedTuple):
    """What goes to the dead letter stream."""

    id: ID
    pairs: Pairs
    owner: bytes
    count: int  # type: ignore[assignment]
    error: bytes


def estimate(stream: Source, at: ID) -> int:
    """How many entries were ever added up to an ID; -1: it cannot be known."""
    length = len(stream.entries)
    if not stream.added:
        return 0
    if not length and at <= stream.last:
        return stream.added
    if at != ZERO and at < stream.max_deleted:
        return -1
    if at == stream.last:
        return stream.added
    if at > stream.last:
        return -1
    if stream.max_deleted == ZERO or stream.max_deleted < stream.first:
        if at < stream.first:
            return stream.added - length
        if at == stream.first:
            return stream.added - length + 1
    return -1


def hole(stream: Source, at: ID) -> bool:
    """Whether something may be deleted from ``at`` on."""
    return bool(stream.entries) and stream.max_deleted != ZERO and at <= stream.max_deleted


@dataclass
class Group:
    """A group of one stream."""

    last: ID
    entries_read: int = -1
    consumers: dict[bytes, Consumer] = field(default_factory=dict)
    pending: dict[ID, Held] = field(default_factory=dict)
    place: int = 1
    max_deliveries: int | None = None
    dead_letter: bytes | None = None
    min_idle_ms: int | None = None
    takes_the_dead: bool = True  # whether the dead letter stream can take an entry now
    counts: dict[str, int] = field(default_factory=dict)  # for the metrics
    dead: list[Dead] = field(default_factory=list)  # to be added, in order, by whoever knows how

    def copied(self) -> Group:
        """The same without settings, as a copy of the stream has it."""
        return Group(self.last, self.entries_read, deepcopy(self.consumers),
                     deepcopy(self.pending), self.place)  # fmt: skip

    # -- what is told -------------------------------------------------------------------------
    def lag(self, stream: Source) -> int | None:
        """Entries not delivered yet; None: it cannot be known."""
        if not stream.added or not stream.entries:
            return 0
        if self.last < stream.first and stream.max_deleted < stream.first:
            return len(stream.entries)
        if self.entries_read >= 0 and not hole(stream, self.last):
            return stream.added - self.entries_read
        read = estimate(stream, self.last)
        return None if read < 0 else stream.added - read

    def of(self, consumer: bytes | None) -> list[ID]:
        """What is pending with a consumer, or with nobody, in order."""
        return sorted(id for id, held in self.pending.items() if held.owner == consumer)

    def line(self) -> list[ID]:
        """What is pending, in the order in which it is taken over: given back first."""
        return sorted(
            self.pending,
            key=lambda at: (self.pending[at].owner is not None, self.pending[at].time, at),
        )

    # -- what all have in common --------------------------------------------------------------
    def _count(self, name: str, more: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + more

    def consumer(self, name: bytes, now: int) -> Consumer:
        """A consumer, made if need be."""
        if name not in self.consumers:
            self.consumers[name] = Consumer(now)
        return self.consumers[name]

    def _seen(self, who: Consumer, now: int) -> None:
        if not 0 <= now - who.seen < SEEN_MS:
            who.seen = now

    def _got(self, name: bytes, taken: Iterable[tuple[ID, int, int]], now: int) -> None:
        who = self.consumers[name]
        who.seen = who.active = now
        for id, time, count in taken:
            self.pending[id] = Held(name, time, min(count, COUNT_MAX))

    def _dies(self, count: int) -> bool:
        return (
            self.max_deliveries is not None and self.takes_the_dead and count >= self.max_deliveries
        )

    def _bury(self, stream: Source, id: ID, held: Held, error: bytes) -> None:
        self.dead.append(Dead(id, stream.entries[id], held.owner or b"", held.count, error))
        self.pending.pop(id, None)

    def _dead_lettered(self, stream: Source, id: ID, held: Held) -> bool:
        if not self._dies(held.count):
            return False
        self._bury(stream, id, held, b"deliveries without an ack: %d" % held.count)
        return True

    # -- reading ------------------------------------------------------------------------------
    def read(
        self, stream: Source, name: bytes, now: int, *, count: int = 0, noack: bool = False,
        min_idle: int | None = None,
    ) -> list[Given]:  # fmt: skip
        """XREADGROUP with ``>``, with CLAIM or the group's own time to redeliver."""
        who = self.consumer(name, now)
        times = [min_idle, None if noack else self.min_idle_ms]
        idles = [each for each in times if each is not None]
        taken = self._claim_idle(stream, name, now, min(idles), count) if idles else []
        if taken and 0 < count <= len(taken):
            return taken
        new = [id for id in stream.entries if id > self.last]
        new = new[: count - len(taken)] if count else new
        if not new:
            self._seen(who, now)
            return taken
        self._count("deliveries", len(new))
        for id in new:
            known = self.entries_read >= 0 and self.last >= stream.first
            if known and not hole(stream, self.last):
                self.entries_read += 1
            elif stream.added:
                self.entries_read = estimate(stream, id)
            self.last = id
        who.seen = now
        if not noack:
            self._got(name, [(id, now, 1) for id in new], now)
        return taken + [Given(id, stream.entries[id], 0, 1) for id in new]

    def _claim_idle(
        self, stream: Source, name: bytes, now: int, idle: int, count: int
    ) -> list[Given]:
        taken: list[Given] = []
        clears = not (self.min_idle_ms is self.max_deliveries is None)
        for id in self.line():
            held = self.pending[id]
            if held.owner is not None and now - held.time < idle:
                continue
            if id not in stream.entries:
                if clears:
                    del self.pending[id]
                continue
            if self._dead_lettered(stream, id, held):
                continue
            again = min(held.count + 1, COUNT_MAX)
            taken.append(Given(id, stream.entries[id], held.idle(now), again))
            if count and len(taken) >= count:
                break
        if taken:
            self._got(name, [(each.id, now, each.count) for each in taken], now)
            self._count("claims", len(taken))
        return taken

    def backlog(self, stream: Source, name: bytes, now: int, after: ID, count: int) -> list[Given]:
        """XREADGROUP with an ID: what is this consumer's, once more."""
        who = self.consumer(name, now)
        found: list[Given] = []
        for id in [id for id in self.of(name) if id > after]:
            held, pairs = self.pending[id], stream.entries.get(id)
            if pairs is not None and self._dead_lettered(stream, id, held):
                continue
            idle = held.idle(now)
            if pairs is not None:
                held.count, held.time = min(held.count + 1, COUNT_MAX), now
            found.append(Given(id, pairs, idle, held.count))
            if count and len(found) >= count:
                break
        again = sum(each.pairs is not None for each in found)
        self._count("redeliveries", again)
        if again:
            who.seen = now
        else:
            self._seen(who, now)
        return found

    # -- taking over, giving back -------------------------------------------------------------
    def claim(
        self, stream: Source, name: bytes, now: int, ids: Sequence[ID], *, min_idle: int,
        idle: int | None = None, retry_count: int | None = None, force: bool = False,
        just_id: bool = False,
    ) -> list[Given]:  # fmt: skip
        """XCLAIM."""
        who = self.consumer(name, now)
        at = now if idle is None or not 0 <= now - idle <= now else now - idle
        found: list[Given] = []
        for id in ids:
            held = self.pending.get(id)
            if id not in stream.entries:
                self.pending.pop(id, None)
                continue
            if held is None and not force:
                continue
            since = now if held is None else held.idle(now)
            if held is not None and min_idle and since < min_idle:
                continue
            count = 1 if held is None else held.count
            if retry_count is not None:
                count = retry_count
            elif not just_id:
                count = min(count + 1, COUNT_MAX)
            self.pending[id] = Held(name, at, count)
            found.append(Given(id, stream.entries[id], since, count))
        self._claimed(who, name, found, now)
        return found

    def _claimed(self, who: Consumer, name: bytes, found: list[Given], now: int) -> None:
        self._count("claims", len(found))
        if found:
            self._got(name, [], now)
        else:
            self._seen(who, now)

    def autoclaim(
        self, stream: Source, name: bytes, now: int, *, min_idle: int, start: ID | None,
        count: int, just_id: bool = False,
    ) -> tuple[ID, list[Given], list[ID]]:  # fmt: skip
        """XAUTOCLAIM; without ``start`` what is idle longest."""
        who = self.consumer(name, now)
        if start is None:
            walk = [id for id in self.line() if self.pending[id].idle(now) >= min_idle]
        else:
            walk = sorted(id for id in self.pending if id >= start)
        found: list[Given] = []
        deleted: list[ID] = []
        cursor, attempts, left = ZERO, 10 * count, count
        for id in walk:
            if not left or (start is not None and not attempts):
                cursor = cursor if start is None else id
                break
            attempts -= 1
            held = self.pending[id]
            if id not in stream.entries:
                deleted.append(id)
                left -= 1
                continue
            if held.idle(now) < min_idle or (not just_id and self._dead_lettered(stream, id, held)):
                continue
            again = held.count if just_id else min(held.count + 1, COUNT_MAX)
            found.append(Given(id, stream.entries[id], held.idle(now), again))
            left -= 1
        for id in deleted:
            del self.pending[id]
        for each in found:
            self.pending[each.id] = Held(name, now, each.count)
        self._claimed(who, name, found, now)
        return cursor, found, deleted

    def nack(
        self, stream: Source, ids: Sequence[ID], *, mode: str = "fail",
        retry_count: int | None = None, force: bool = False,
    ) -> int:  # fmt: skip
        """XNACK; how many were given back. What was delivered too often dies of it."""
        given: list[tuple[ID, int]] = []
        for id in ids:
            held = self.pending.get(id)
            if held is None and not (force and id in stream.entries):
                continue
            count = held.count if held is not None else 0
            if retry_count is not None:
                count = retry_count
            elif mode == "silent":
                count = max(0, count - 1)
            elif mode == "fatal":
                count = COUNT_MAX
            given.append((id, count))
        for id, count in given:
            if not self._dies(count):
                self.pending[id] = Held(None, self.place, count)
                self.place += 1
            elif id not in stream.entries:
                self.pending.pop(id, None)
            else:
                held = self.pending.get(id) or Held(None, 0, 0)
                why = b"given back at delivery %d" % held.count
                self._bury(stream, id, held, b"given back as fatal" if mode == "fatal" else why)
        self._count("nacks", len(given))
        return len(given)

    # -- ending -------------------------------------------------------------------------------
    def ack(self, ids: Iterable[ID]) -> int:
        """XACK; how many were pending."""
        done = sum(self.pending.pop(id, None) is not None for id in ids)
        self._count("acks", done)
        return done

    def remove_consumer(self, name: bytes) -> int:
        """XGROUP DELCONSUMER; how many were pending with it."""
        gone = self.of(name)
        for id in gone:
            del self.pending[id]
        self.consumers.pop(name, None)
        return len(gone)

    def told(self, stream: Source) -> dict[str, Any]:
        """The counts of XINFO GROUPS."""
        return {
            "consumers": len(self.consumers), "pending": len(self.pending),
            "last_delivered_id": self.last,
            "entries_read": None if self.entries_read < 0 else self.entries_read,
            "lag": self.lag(stream),
        }  # fmt: skip
