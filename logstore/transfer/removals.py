"""What goes on one side because of the other: trims on the server, deletes in the store.

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
from typing import Any

from logstore.api.store import Store
from logstore.errors import PeerError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.transfer.job import Report, Wanted
from logstore.transfer.replies import count, listed, stream_id
from logstore.transfer.server import Server, StreamFacts, checked, pages

# -- Trimmed there, since it is here --------------------------------------------------------------
PAGE = 1000


class Trimming:
    """The streams of one server, and up to where they were trimmed."""

    def __init__(
        self, store: Store[Any], server: Server, wanted: Wanted, report: Report, *, acked: bool
    ) -> None:
        self._store = store
        self._server = server
        self._wanted = wanted
        self._report = report
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
            self._report.trimmed += count(checked(reply))
        self._below[name] = below

    def _all_here(self, name: bytes, durable: StreamID) -> bool:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._compare(name, durable)
            if not known:
                self._report.note(
                    f"{name!r} is not trimmed on the server: it has entries up to {durable} that "
                    "are not here"
                )
        return known

    def _compare(self, name: bytes, durable: StreamID) -> bool:
        stream = self._store.stream(self._wanted.target(name))
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

    def __init__(self, store: Store[Any], server: Server, wanted: Wanted, report: Report) -> None:
        self._store = store
        self._server = server
        self._wanted = wanted
        self._report = report
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
        stream = self._store.stream(self._wanted.target(name))
        for at in range(0, len(ids), PAGE):
            self._report.deleted += stream.delete(*ids[at : at + PAGE])
        if gone is not None:
            self._gone[name] = gone

    def _missing(self, name: bytes, first: StreamID, last: StreamID) -> Iterator[StreamID]:
        """IDs that are here and not there; the memory is that of a page."""
        stream = self._store.stream(self._wanted.target(name))
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
