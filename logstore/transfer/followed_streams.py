"""What is known of a followed server's streams: whether one is still the stream that is here, how
many of its entries never came, what may be trimmed there, what was deleted there.

A stream that is dropped and made anew keeps its name only, and a server tells no identity of it.
What there is to go by: entries added never falls in one history, the entries that both sides have
are equal, and the server counts the commands it ran. Invariants: a stream that cannot be shown to
be the same is taken for another one, unless its counts go on exactly where those here ended; what
is compared was told by the server in one MULTI.

Invariants of trimming the server's stream of what is durable here: the caller has synced what it
names; before a stream is trimmed for the first time, its entries there that are not above it are
held against those here, and it is never trimmed if one is missing: it may be another stream, or
this one has lost what the server still has. Unless all may go, nothing goes that a group there has
not read, or has pending. A group that is made at an earlier ID between the look and the trim finds
less.

Invariants of deleting here what was deleted on the server: only entries between the server's first
and last one are looked at, so that what is trimmed there, by whomever, is kept here; all of them
are read for it, but only when the server's counts tell that something went. What this process has
seen the server lose is kept, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from logstore.api.store import Store
from logstore.errors import PeerError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.transfer.job import Job
from logstore.transfer.peer_server import (
    EntryRows,
    Server,
    StreamFacts,
    checked,
    count,
    listed,
    pages,
    rows,
    stream_id,
)

OVERLAP = 100  # entries that are compared
COUNTS: tuple[str, ...] = ("INFO", "server", "stats", "commandstats")
# What may put a stream of any counts in the place of another one, or change its counts.
REPLACING = (
    "rename", "renamenx", "restore", "restore-asking", "copy", "move", "migrate", "swapdb",
    "xsetid", "replicaof", "slaveof", "debug", "config|resetstat",
)  # fmt: skip
FLUSHING = ("flushall", "flushdb")
# What may remove a stream, directly or through a value of another type.
REMOVING = (
    *FLUSHING, "del", "unlink", "delex", "set", "setex", "psetex", "mset", "msetex", "getset",
    "bitop", "pfmerge", "sort", "sunionstore", "sinterstore", "sdiffstore", "zunionstore",
    "zinterstore", "zdiffstore", "zrangestore", "georadius", "georadiusbymember", "geosearchstore",
)  # fmt: skip


class ServerCounts:
    """What a server has run since it was started, by a reply of ``COUNTS``."""

    def __init__(self, reply: Any) -> None:
        text = reply if isinstance(reply, bytes) else b""
        found = dict(
            line.split(b":", 1) for line in text.splitlines() if b":" in line
        )  # a server before Redis 7.0, or one that refuses INFO, gives nothing to go by
        self._run = found.get(b"run_id")
        self._gone = (found.get(b"expired_keys"), found.get(b"evicted_keys"))
        self._commands = _number(found.get(b"total_commands_processed", b"0"))
        self._calls = {
            name.removeprefix(b"cmdstat_").decode("utf-8", "replace"): _calls(value)
            for name, value in found.items()
            if name.startswith(b"cmdstat_")
        }

    def shows_same(self, after: ServerCounts, entries_added: int) -> bool:
        """Whether no stream of so many entries can have taken another's place until ``after``."""
        if self._run is None or self._run != after._run or after._commands < self._commands:
            return False
        if self._changed(after, REPLACING):
            return False
        # A stream that is made anew takes an XADD for each entry that it counts.
        added = after._calls.get("xadd", 0) - self._calls.get("xadd", 0)
        if 0 <= added < entries_added:
            return True
        return self._gone == after._gone and not self._changed(after, REMOVING)

    def flushed(self, after: ServerCounts) -> bool:
        """Whether all keys of a database were removed until ``after``, as far as is known."""
        return self._run == after._run and self._changed(after, FLUSHING)

    def _changed(self, after: ServerCounts, names: tuple[str, ...]) -> bool:
        return any(self._calls.get(name) != after._calls.get(name) for name in names)


def _calls(value: bytes) -> int:
    return _number(value.split(b",", 1)[0].removeprefix(b"calls="))


def _number(text: bytes) -> int:
    """A number of INFO; -1, which equals none of them, for any other text."""
    return int(text) if text.isdigit() and len(text) <= 20 else -1


@dataclass(slots=True)
class Followed:
    """Where a stream stands: what was read of it, and when it was known to be the same."""

    last: StreamID  # of what is here
    added: int  # entries added there when ``last`` was added, by what is here
    exact: StreamID  # up to here ``added`` was held against the server's count
    counts: ServerCounts | None = None  # of a time at which it was not another one


@dataclass(frozen=True, slots=True)
class Observed:
    """What a server told in one MULTI of a stream, and of what it has above a place."""

    name: bytes
    facts: StreamFacts
    counts: ServerCounts
    found: EntryRows  # the next entries
    all_found: bool  # these are all there are

    def missed(self, place: Followed) -> int | None:
        """How many entries above the place are gone there; below zero: it lost some that are here,
        or is another stream; None: that cannot be told now."""
        if self.facts.entries_added is None:  # before Redis 7.0
            return None
        if self.turned_over(place):
            left = self.facts.length
        elif self.all_found:
            left = len(self.found)
        else:
            return None
        return self.facts.entries_added - left - place.added

    def turned_over(self, place: Followed) -> bool:
        """Whether the server has nothing any more of what is here."""
        first = self.facts.first_entry
        return first is None or first > place.last

    def gap(self, place: Followed) -> tuple[StreamID, StreamID]:
        """Between which IDs, exclusive, what was missed stood."""
        facts = self.facts
        above = place.exact
        first = facts.first_entry
        if first is None or first <= place.last:
            return above, _behind(facts.last)
        return above, _behind(facts.max_deleted) if facts.max_deleted > first else first


class Histories:
    """Compares the streams of one server with those here."""

    def __init__(self, store: Store[Any], server: Server) -> None:
        self._store = store
        self._server = server

    def same(self, seen: Observed, place: Followed, target: bytes) -> bool:
        """Whether the stream is the one of which there is a part here."""
        missed, facts = seen.missed(place), seen.facts
        onwards = facts.last >= place.last and (missed is None or missed >= 0)
        known = place.counts
        if onwards and known is not None:
            added = facts.entries_added
            if added is not None and known.shows_same(seen.counts, added):
                return True
        overlap = self._overlap(seen.name, place.last, target)
        if overlap is not None:
            return overlap
        if not onwards or (known is not None and known.flushed(seen.counts)):
            return False
        return not missed

    def _overlap(self, name: bytes, last: StreamID, target: bytes) -> bool | None:
        """Whether entries that the server still has are those here; None: there are none."""
        reply = self._server.attempt("XREVRANGE", name, str(last), "-", "COUNT", OVERLAP)
        if isinstance(reply, PeerError):
            return None
        with self._server.reading("XREVRANGE", name):
            there = rows(reply, OVERLAP, upto=last, falling=True)
        if not there:
            return None
        stream = self._store.stream(target)
        info = stream.info()
        oldest = info.recorded_first_entry_id if info.length else MAX_ID
        here = {entry.id: entry for entry in stream.range(there[-1][0], there[0][0])}
        compared = False
        for id, pairs in there:
            if id in here:
                if [(_raw(name), _raw(value)) for name, value in here[id].pairs] != pairs:
                    return False
                compared = True
            elif oldest <= id and info.max_deleted_entry_id < id:
                return False  # nothing was deleted or trimmed here that could have been it
        return compared or None


def _behind(id: StreamID) -> StreamID:
    return id if id == MAX_ID else id.next()


def _raw(part: bytes | str) -> bytes:
    return part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part


# -- Trimmed there, since it is here --------------------------------------------------------------
PAGE = 1000


class Trimming:
    """The streams of one server, and up to where they were trimmed."""

    def __init__(self, job: Job, server: Server, *, acked: bool) -> None:
        self._job = job
        self._server = server
        self._acked = acked
        self._known: dict[bytes, bool] = {}  # whether all that is there is here
        self._below: dict[bytes, StreamID] = {}

    def forget(self, name: bytes) -> None:
        """The server's stream is another one from now on."""
        self._known.pop(name, None)
        self._below.pop(name, None)

    def trim(self, name: bytes, durable: StreamID, added: int) -> None:
        """Trim what is not above ``durable``, which is durable here; ``added`` is how many were
        ever added there up to it."""
        if durable == MAX_ID or self._below.get(name, ZERO_ID) > durable:
            return
        # One that was made anew since it was read has other entries below that ID.
        facts = self._server.info(name)
        if facts is None or facts.last < durable or (facts.entries_added or added) < added:
            return
        if not self._all_here(name, durable):
            return
        below = durable.next()
        if self._acked:
            below = min(below, self._needed(name))
        if below <= self._below.get(name, ZERO_ID):
            return
        reply = self._server.attempt("XTRIM", name, "MINID", "=", str(below))
        with self._server.reading("XTRIM", name):
            self._job.report.trimmed += count(checked(reply))
        self._below[name] = below

    def _all_here(self, name: bytes, durable: StreamID) -> bool:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._compare(name, durable)
            if not known:
                self._job.report.note(
                    f"{name!r} is not trimmed on the server: it has entries up to {durable} that "
                    "are not here"
                )
        return known

    def _compare(self, name: bytes, durable: StreamID) -> bool:
        stream = self._job.store.stream(self._job.wanted.target(name))
        for page in pages(self._server, name, None, durable, PAGE):
            ids = [id for id, _ in page]
            here = {entry.id for entry in stream.range(ids[0], ids[-1])}
            if not here.issuperset(ids):
                return False
        return True

    def _needed(self, name: bytes) -> StreamID:
        """The smallest ID that a group there has not read, or has pending."""
        groups = self._server.groups(name, self._server.attempt("XINFO", "GROUPS", name))
        if groups is None:
            return ZERO_ID
        found = MAX_ID
        for group in groups:
            found = min(found, group.last.next() if group.last < MAX_ID else MAX_ID)
            reply = self._server.attempt("XPENDING", name, group.name)
            if isinstance(reply, PeerError):
                return ZERO_ID  # it went away between the two: next time
            with self._server.reading("XPENDING", name):
                pending = listed(reply, 4)
                if count(pending[0]):
                    found = min(found, stream_id(pending[1]))
        return found


# -- Deleted here, since it was deleted there -----------------------------------------------------
class Mirroring:
    """The streams of one server, and what was deleted there when they were last looked at."""

    def __init__(self, job: Job, server: Server) -> None:
        self._job = job
        self._server = server
        self._gone: dict[bytes, int] = {}
        self._kept: dict[bytes, list[tuple[StreamID, StreamID]]] = {}

    def protect(self, name: bytes, above: StreamID, upto: StreamID) -> None:
        """The server lost what it had above the one ID, up to the other: that is no delete."""
        self._kept.setdefault(name, []).append((above, upto))

    def forget(self, name: bytes) -> None:
        """The server's stream is another one from now on."""
        self._gone.pop(name, None)
        self._kept.pop(name, None)

    def apply(self, name: bytes, last: StreamID) -> None:
        """Delete here, up to ``last``, what was deleted there since it was last looked at."""
        facts = self._server.info(name)
        if facts is None:
            return
        gone = _gone(facts)
        if gone is not None and gone == self._gone.get(name):
            return
        first, end = facts.first_entry, facts.last_entry
        if first is None or end is None:
            return
        missing = list(self._missing(name, first, min(end, last)))
        after = self._server.info(name)
        if after is None or after.first_entry is None:
            return
        begins = after.first_entry  # what is below was trimmed while it was read
        kept = self._kept.get(name, ())
        ids = [
            id
            for id in missing
            if id > begins and not any(above < id <= upto for above, upto in kept)
        ]
        stream = self._job.store.stream(self._job.wanted.target(name))
        for at in range(0, len(ids), PAGE):
            self._job.report.deleted += stream.delete(*ids[at : at + PAGE])
        if gone is not None:
            self._gone[name] = gone

    def _missing(self, name: bytes, first: StreamID, last: StreamID) -> Iterator[StreamID]:
        """IDs that are here and not there; the memory is that of a page."""
        stream = self._job.store.stream(self._job.wanted.target(name))
        low = first
        for page in pages(self._server, name, first, last, PAGE):
            there = {id for id, _ in page}
            high = max(there)
            for entry in stream.range(low, high):
                if entry.id not in there:
                    yield entry.id
            if high >= last:
                return
            low = high.next()
        for entry in stream.range(
            low, max(low, last)
        ):  # behind the last page; it is above ``first``
            yield entry.id


def _gone(facts: StreamFacts) -> int | None:
    """How many entries are gone, by the server's counts; None before Redis 7.0."""
    return None if facts.entries_added is None else facts.entries_added - facts.length
