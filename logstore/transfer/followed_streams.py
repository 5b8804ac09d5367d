"""What is known of the streams of a followed server, and what is trimmed or deleted because of it.

**The same stream.** A stream that is dropped and made anew keeps its name only, and servers give
streams no identity. But in one history entries added never falls, the entries that both sides have
are equal, and the server counts the commands it ran. Invariants: a stream that cannot be shown to
be the same is taken for another one, unless its counts go on exactly where those here ended. All
that is compared comes from one MULTI.

**ServerTrimming the server's stream** of entries that are durable here. Invariants: the caller has
synced these entries. Before a stream is first trimmed, its entries there up to that ID are compared
with those here. If one is missing here the stream is never trimmed: it may be another stream, or
entries were lost here that the server still has. Unless all entries may go, those stay that a group
there has not read, or has pending. A group that is made at an earlier ID between that check and the
trim finds fewer entries.

**Deleting here** what was deleted on the server. Invariants: only entries between the server's
first and last entry are compared, so entries that were trimmed there are kept here. All of these
are read, but only when the server's counts show that entries went. Entries that this process has
seen the server lose are kept, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from logstore.api.entry import stored_pairs
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
# Commands that may put a stream of any counts in the place of another one, or change its counts.
REPLACING = (
    "rename", "renamenx", "restore", "restore-asking", "copy", "move", "migrate", "swapdb",
    "xsetid", "replicaof", "slaveof", "debug", "config|resetstat",
)  # fmt: skip
FLUSHING = ("flushall", "flushdb")
# Commands that may remove a stream, directly or by a value of another type.
REMOVING = (
    *FLUSHING, "del", "unlink", "delex", "set", "setex", "psetex", "mset", "msetex", "getset",
    "bitop", "pfmerge", "sort", "sunionstore", "sinterstore", "sdiffstore", "zunionstore",
    "zinterstore", "zdiffstore", "zrangestore", "georadius", "georadiusbymember", "geosearchstore",
)  # fmt: skip


class ServerCounts:
    """The commands that a server has run since its start, by a reply of ``COUNTS``."""

    def __init__(self, reply: Any) -> None:
        text = reply if isinstance(reply, bytes) else b""
        # Empty for a server before Redis 7.0, or one that refuses INFO.
        found = dict(line.split(b":", 1) for line in text.splitlines() if b":" in line)
        self._run = found.get(b"run_id")
        self._gone = (found.get(b"expired_keys"), found.get(b"evicted_keys"))
        self._commands = _number(found.get(b"total_commands_processed", b"0"))
        self._calls = {
            name.removeprefix(b"cmdstat_").decode("utf-8", "replace"): _calls(value)
            for name, value in found.items()
            if name.startswith(b"cmdstat_")
        }

    def shows_same(self, after: ServerCounts, entries_added: int) -> bool:
        """Whether, up to ``after``, no stream of so many entries can have replaced another one."""
        if self._run is None or self._run != after._run or after._commands < self._commands:
            return False
        if self._changed(after, REPLACING):
            return False
        # A stream that is made anew needs an XADD for each entry that it counts.
        added = after._calls.get("xadd", 0) - self._calls.get("xadd", 0)
        if 0 <= added < entries_added:
            return True
        return self._gone == after._gone and not self._changed(after, REMOVING)

    def flushed(self, after: ServerCounts) -> bool:
        """Whether the keys of a database were all removed before ``after``, as far as is known."""
        return self._run == after._run and self._changed(after, FLUSHING)

    def _changed(self, after: ServerCounts, names: tuple[str, ...]) -> bool:
        return any(self._calls.get(name) != after._calls.get(name) for name in names)


def _calls(value: bytes) -> int:
    return _number(value.split(b",", 1)[0].removeprefix(b"calls="))


def _number(text: bytes) -> int:
    """A number of INFO; -1 for any other text, which equals no number there."""
    return int(text) if text.isdigit() and len(text) <= 20 else -1


@dataclass(slots=True)
class Followed:
    """How far a stream was read, and when it was last known to be the same."""

    last: StreamID  # of what is here
    added: int  # entries added there up to ``last``, as counted here
    exact: StreamID  # the ID up to which ``added`` agreed with the server's count
    counts: ServerCounts | None = None  # of a time at which it was still the same stream


@dataclass(frozen=True, slots=True)
class Observed:
    """The replies of one MULTI about a stream, and its next entries."""

    name: bytes
    facts: StreamFacts
    counts: ServerCounts
    found: EntryRows  # the next entries
    all_found: bool  # ``found`` has all next entries

    def missed(self, followed: Followed) -> int | None:
        """How many entries above ``followed.last`` are gone there. Below zero: the server lost
        entries that are here, or it is another stream. None: not known now."""
        if self.facts.entries_added is None:  # before Redis 7.0
            return None
        if self.turned_over(followed):
            left = self.facts.length
        elif self.all_found:
            left = len(self.found)
        else:
            return None
        return self.facts.entries_added - left - followed.added

    def turned_over(self, followed: Followed) -> bool:
        """Whether the server has none of the entries that are here."""
        first = self.facts.first_entry
        return first is None or first > followed.last

    def gap(self, followed: Followed) -> tuple[StreamID, StreamID]:
        """The IDs, both excluded, between which the missed entries were."""
        facts = self.facts
        above = followed.exact
        first = facts.first_entry
        if first is None or first <= followed.last:
            return above, _behind(facts.last)
        return above, _behind(facts.max_deleted) if facts.max_deleted > first else first


class SameStreams:
    """Compares the streams of a server with those here."""

    def __init__(self, store: Store[Any], server: Server) -> None:
        self._store = store
        self._server = server

    def same(self, seen: Observed, followed: Followed, target: bytes) -> bool:
        """Whether the server's stream is the one that was followed."""
        missed, facts = seen.missed(followed), seen.facts
        onwards = facts.last >= followed.last and (missed is None or missed >= 0)
        known = followed.counts
        if onwards and known is not None:
            added = facts.entries_added
            if added is not None and known.shows_same(seen.counts, added):
                return True
        overlap = self._overlap(seen.name, followed.last, target)
        if overlap is not None:
            return overlap
        if not onwards or (known is not None and known.flushed(seen.counts)):
            return False
        return not missed

    def _overlap(self, name: bytes, last: StreamID, target: bytes) -> bool | None:
        """Whether the entries that both sides have are equal; None: there are none."""
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
                if [(_raw(name), _raw(value)) for name, value in stored_pairs(here[id])] != pairs:
                    return False
                compared = True
            elif oldest <= id and info.max_deleted_entry_id < id:
                return False  # this entry was never here: it was neither deleted nor trimmed
        return compared or None


def _behind(id: StreamID) -> StreamID:
    return id if id == MAX_ID else id.next()


def _raw(part: bytes | str) -> bytes:
    return part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part


# -- trimming the server's streams --------------------------------------------------------------
PAGE = 1000


class ServerTrimming:
    """Trims the streams of a server, and keeps up to where."""

    def __init__(self, job: Job, server: Server, *, acked: bool) -> None:
        self._job = job
        self._server = server
        self._acked = acked
        self._known: dict[bytes, bool] = {}  # whether all entries that are there are here
        self._below: dict[bytes, StreamID] = {}

    def forget(self, name: bytes) -> None:
        """Forget a stream: the server's is another one from now on."""
        self._known.pop(name, None)
        self._below.pop(name, None)

    def trim(self, name: bytes, durable: StreamID, added: int) -> None:
        """Trim entries up to ``durable``, which are durable here. ``added``: how many entries were
        ever added there up to that ID."""
        if durable == MAX_ID or self._below.get(name, ZERO_ID) > durable:
            return
        # A stream that was made anew since it was read has other entries up to that ID.
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
        """The smallest ID that some group there has not read, or has pending."""
        groups = self._server.groups(name, self._server.attempt("XINFO", "GROUPS", name))
        if groups is None:
            return ZERO_ID
        found = MAX_ID
        for group in groups:
            found = min(found, group.last.next() if group.last < MAX_ID else MAX_ID)
            reply = self._server.attempt("XPENDING", name, group.name)
            if isinstance(reply, PeerError):
                return ZERO_ID  # the group was destroyed meanwhile: trim next time
            with self._server.reading("XPENDING", name):
                pending = listed(reply, 4)
                if count(pending[0]):
                    found = min(found, stream_id(pending[1]))
        return found


# -- deleting here what was deleted there ---------------------------------------------------------
class DeleteMirroring:
    """Deletes entries here that were deleted on a server."""

    def __init__(self, job: Job, server: Server) -> None:
        self._job = job
        self._server = server
        self._gone: dict[bytes, int] = {}
        self._kept: dict[bytes, list[tuple[StreamID, StreamID]]] = {}

    def protect(self, name: bytes, above: StreamID, upto: StreamID) -> None:
        """Keep the entries above one ID and up to another: the server lost them, and did not delete
        them."""
        self._kept.setdefault(name, []).append((above, upto))

    def forget(self, name: bytes) -> None:
        """Forget a stream: the server's is another one from now on."""
        self._gone.pop(name, None)
        self._kept.pop(name, None)

    def apply(self, name: bytes, last: StreamID) -> None:
        """Delete here, up to ``last``, entries that were deleted there since the last call."""
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
        begins = after.first_entry  # entries below were trimmed while they were read
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
        """The IDs that are here and not there; memory holds a page."""
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
        for entry in stream.range(low, max(low, last)):  # behind the last page
            yield entry.id


def _gone(facts: StreamFacts) -> int | None:
    """How many entries were removed, by the server's counts; None before Redis 7.0."""
    return None if facts.entries_added is None else facts.entries_added - facts.length
