"""Trimming a server's stream of what is durable here.

Invariants: the caller has synced what it names; before a stream is trimmed for the first time, its
entries there that are not above it are held against those here, and it is never trimmed if one is
missing: it may be another stream, or this one has lost what the server still has. Unless all may
go, nothing goes that a group there has not read, or has pending. A group that is made at an earlier
ID between the look and the trim finds less.
"""

from __future__ import annotations

from typing import Any

from logstore.api.store import Store
from logstore.errors import PeerError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.transfer.replies import count, listed, stream_id
from logstore.transfer.report import Report
from logstore.transfer.selection import Wanted
from logstore.transfer.server import Server, checked, pages

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
