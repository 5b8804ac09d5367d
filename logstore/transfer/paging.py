"""A stream of a server that is too large for a payload, read by pages.

Invariants: entries go to a stream for the time being (``engine.pieces``), which gets its counts,
groups and name in one commit at the end; these, and the entries behind the last page, are read in
one MULTI, so that they belong together. What is deleted there while pages are read may be here: the
length here is what is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from logstore.engine.installs import Edge
from logstore.errors import PeerError
from logstore.ids import ZERO_ID, StreamID
from logstore.rdb.value import NOBODY, ConsumerValue, GroupValue, PendingValue, StreamInfoValue
from logstore.store import Store
from logstore.transfer.intake import Intake
from logstore.transfer.server import Server, StreamFacts, by_name, checked, rows, stream_id

PAGE = 1000
PENDING_MAX = 1 << 40  # of one group, all at once: they belong to one moment
TRIES_MAX = 20
Entries: TypeAlias = Callable[[int], None]  # how many there are so far
Expiry: TypeAlias = Callable[[bytes], int | None]


class Paging:
    """One stream on its way in."""

    def __init__(
        self, store: Store[Any], server: Server, intake: Intake, progress: Entries
    ) -> None:
        self._store = store
        self._server = server
        self._intake = intake
        self._progress = progress
        self._edge = Edge()

    def take(self, name: bytes, target: bytes, expiry: Expiry) -> None:
        """Bring it in; PeerError."""
        with self._intake.piecewise(target) as temporary:
            groups: list[bytes] = []
            for _ in range(TRIES_MAX):
                while self._add(temporary.name, self._page(name)) == PAGE:
                    pass
                replies = self._server.many(self._last_commands(name, groups), at_once=True)
                full = self._add(temporary.name, checked(replies[0])) == PAGE
                found = [by_name(each)[b"name"] for each in checked(replies[2])]
                if not full and found == groups:
                    break
                groups = found
            else:
                raise PeerError(
                    "entries come faster than they can be read: import the stream with --follow, "
                    "or while less is written to it",
                    stream=name,
                )
            info = self._info(replies, groups)
            self._intake.finish(temporary, self._edge, target, info, expiry(name))

    def _page(self, name: bytes) -> list[Any]:
        page: list[Any] = self._server.call(*self._next(name))
        return page

    def _next(self, name: bytes) -> tuple[Any, ...]:
        last = self._edge.last
        start = "-" if last == ZERO_ID else f"({StreamID(*last)}"
        return ("XRANGE", name, start, "+", "COUNT", PAGE)

    def _add(self, temporary: bytes, page: list[Any]) -> int:
        found = rows(page)
        if found:
            self._store.stream(temporary).add_many(found, batch=PAGE, create=False)
            before, last = self._edge, found[-1][0]
            first = before.first if before.length else found[0][0]
            self._edge = Edge(first, last, last, None, before.length + len(found))
            self._progress(self._edge.length)
        return len(page)

    # -- all but the entries --------------------------------------------------------------------
    def _last_commands(self, name: bytes, groups: list[bytes]) -> list[tuple[Any, ...]]:
        commands: list[tuple[Any, ...]] = [
            self._next(name), ("XINFO", "STREAM", name), ("XINFO", "GROUPS", name), ("TIME",),
        ]  # fmt: skip
        for group in groups:
            commands += [
                ("XINFO", "CONSUMERS", name, group),
                ("XPENDING", name, group, "-", "+", PENDING_MAX),
            ]
        return commands

    def _info(self, replies: list[Any], groups: list[bytes]) -> StreamInfoValue:
        facts = StreamFacts(checked(replies[1]))
        seconds, micros = map(int, checked(replies[3]))
        now_ms = 1000 * seconds + micros // 1000
        length = self._edge.length
        added = None if facts.entries_added is None else max(facts.entries_added, length)
        info = StreamInfoValue(length, facts.last, None, facts.max_deleted, added)
        for place, described in enumerate(checked(replies[2])):
            at = 4 + 2 * place
            consumers, pending = checked(replies[at]), checked(replies[at + 1])
            info.groups.append(_group(by_name(described), consumers, pending, now_ms))
        assert [group.name for group in info.groups] == groups
        return info


def _group(
    described: dict[bytes, Any], consumers: list[Any], pending: list[Any], now_ms: int
) -> GroupValue:
    read = described.get(b"entries-read")
    if read is None and b"entries-read" in described:
        read = -1  # the server does not know either
    made = GroupValue(described[b"name"], stream_id(described[b"last-delivered-id"]), read)
    places: dict[bytes, int] = {}
    for each in map(by_name, consumers):
        seen_ms = now_ms - each[b"idle"]
        inactive = each.get(b"inactive", each[b"idle"])  # Redis 7.2 on; -1: never
        active_ms = -1 if inactive < 0 else now_ms - inactive
        made.consumers.append(ConsumerValue(each[b"name"], seen_ms, active_ms))
        places[each[b"name"]] = len(made.consumers)
    found = PendingValue()
    for id, owner, idle, count in pending:
        place = places.get(owner, NOBODY)
        if place == NOBODY:
            made.nacked.append(stream_id(id).packed())
        time_ms = 0 if place == NOBODY else max(0, now_ms - idle)
        found.add(stream_id(id).packed(), time_ms, count, place)
    made.pending = found
    return made
