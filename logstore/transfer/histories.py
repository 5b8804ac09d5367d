"""Whether a server's stream is still the one that is here, and how many of its entries never came.

A stream that is dropped and made anew keeps its name only, and a server tells no identity of it.
What there is to go by: entries added never falls in one history, the entries that both sides have
are equal, and the server counts the commands it ran. Invariants: a stream that cannot be shown to
be the same is taken for another one, unless its counts go on exactly where those here ended; what
is compared was told by the server in one MULTI.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logstore.api.store import Store
from logstore.errors import PeerError
from logstore.ids import MAX_ID, StreamID
from logstore.transfer.replies import Rows, rows
from logstore.transfer.server import Server, StreamFacts

OVERLAP = 100  # entries that are compared
COUNTS: tuple[str, ...] = ("INFO", "server", "stats", "commandstats")
# What may put a stream of any counts in the place of another one, or change its counts.
REPLACING = (
    "rename",
    "renamenx",
    "restore",
    "restore-asking",
    "copy",
    "move",
    "migrate",
    "swapdb",
    "xsetid",
    "replicaof",
    "slaveof",
    "debug",
    "config|resetstat",
)
FLUSHING = ("flushall", "flushdb")
# What may remove a stream, directly or through a value of another type.
REMOVING = (
    *FLUSHING,
    "del",
    "unlink",
    "delex",
    "set",
    "setex",
    "psetex",
    "mset",
    "msetex",
    "getset",
    "bitop",
    "pfmerge",
    "sort",
    "sunionstore",
    "sinterstore",
    "sdiffstore",
    "zunionstore",
    "zinterstore",
    "zdiffstore",
    "zrangestore",
    "georadius",
    "georadiusbymember",
    "geosearchstore",
)


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
class Place:
    """Where a stream stands: what was read of it, and when it was known to be the same."""

    last: StreamID  # of what is here
    added: int  # entries added there when ``last`` was added, by what is here
    exact: StreamID  # up to here ``added`` was held against the server's count
    counts: ServerCounts | None = None  # of a time at which it was not another one


@dataclass(frozen=True, slots=True)
class Look:
    """What a server told in one MULTI of a stream, and of what it has above a place."""

    name: bytes
    facts: StreamFacts
    counts: ServerCounts
    found: Rows  # the next entries
    all_found: bool  # these are all there are

    def missed(self, place: Place) -> int | None:
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

    def turned_over(self, place: Place) -> bool:
        """Whether the server has nothing any more of what is here."""
        first = self.facts.first_entry
        return first is None or first > place.last

    def gap(self, place: Place) -> tuple[StreamID, StreamID]:
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

    def same(self, look: Look, place: Place, target: bytes) -> bool:
        """Whether the stream is the one of which there is a part here."""
        missed, facts = look.missed(place), look.facts
        onwards = facts.last >= place.last and (missed is None or missed >= 0)
        known = place.counts
        if onwards and known is not None:
            added = facts.entries_added
            if added is not None and known.shows_same(look.counts, added):
                return True
        overlap = self._overlap(look.name, place.last, target)
        if overlap is not None:
            return overlap
        if not onwards or (known is not None and known.flushed(look.counts)):
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
