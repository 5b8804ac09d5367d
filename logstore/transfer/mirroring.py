"""Deleting here what was deleted on the server.

Invariants: only entries between the server's first and last one are looked at, so that what is
trimmed there, by whomever, is kept here; all of them are read for it, but only when the server's
counts tell that something went. What this process has seen the server lose is kept, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logstore.api.store import Store
from logstore.ids import StreamID
from logstore.transfer.report import Report
from logstore.transfer.selection import Wanted
from logstore.transfer.server import Server, StreamFacts, pages

PAGE = 1000


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
            id for id in missing
            if id > begins and not any(above < id <= upto for above, upto in kept)
        ]  # fmt: skip
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
