"""A stream of a server that is too large for a payload, read by pages.

Invariants: entries go to a stream for the time being (``dump.restore``), which gets its counts,
groups and name in one commit at the end; these, and the entries behind the last page, are read in
one MULTI, so that they belong together. What is deleted there while pages are read may be here: the
length here is what is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from logstore.api.store import Store
from logstore.engine.dump.restore import Edge
from logstore.errors import PeerError
from logstore.ids import ZERO_ID, StreamID
from logstore.rdb.value import NOBODY, ConsumerValue, GroupValue, PendingValue, StreamInfoValue
from logstore.transfer.intake import Intake
from logstore.transfer.replies import (
    Rows,
    UnexpectedReply,
    blob,
    by_name,
    count,
    digits,
    integer,
    listed,
    rows,
    stream_id,
    value,
)
from logstore.transfer.server import GroupFacts, Server, checked

PAGE = 1000
MORE_MAX = 1_000_000  # entries that may come while it is read, beside as many as it had
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

    def take(self, name: bytes, target: bytes, length: int, expiry: Expiry) -> None:
        """Bring it in, which has about ``length`` entries; PeerError."""
        with self._intake.piecewise(target) as temporary:
            groups: list[bytes] = []
            for _ in range(TRIES_MAX):
                while self._add(temporary.name, self._page(name)) == PAGE:
                    self._check_end(name, length)
                replies = self._server.many(self._last_commands(name, groups), at_once=True)
                full = self._add(temporary.name, self._rows(name, checked(replies[0]))) == PAGE
                described = self._server.groups(name, checked(replies[2])) or []
                found = [each.name for each in described]
                if not full and found == groups:
                    break
                groups = found
            else:
                raise PeerError(
                    "entries come faster than they can be read: import the stream with --follow, "
                    "or while less is written to it",
                    stream=name,
                )
            info = self._info(name, replies, described)
            self._intake.finish(temporary, self._edge, target, info, expiry(name))

    def _check_end(self, name: bytes, length: int) -> None:
        if self._edge.length > 2 * length + MORE_MAX:
            raise self._server.unexpected(
                "XRANGE", f"more than {self._edge.length} entries, where it has {length}", name
            )

    def _page(self, name: bytes) -> Rows:
        return self._rows(name, self._server.call(*self._next(name)))

    def _rows(self, name: bytes, reply: Any) -> Rows:
        with self._server.reading("XRANGE", name):
            return rows(reply, PAGE, above=StreamID(*self._edge.last))

    def _next(self, name: bytes) -> tuple[Any, ...]:
        last = self._edge.last
        start = "-" if last == ZERO_ID else f"({StreamID(*last)}"
        return ("XRANGE", name, start, "+", "COUNT", PAGE)

    def _add(self, temporary: bytes, found: Rows) -> int:
        if found:
            self._store.stream(temporary).add_many(found, batch=PAGE, create=False)
            before, last = self._edge, found[-1][0]
            first = before.first if before.length else found[0][0]
            self._edge = Edge(first, last, last, None, before.length + len(found))
            self._progress(self._edge.length)
        return len(found)

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

    def _info(self, name: bytes, replies: list[Any], groups: list[GroupFacts]) -> StreamInfoValue:
        facts = self._server.facts(name, checked(replies[1]))
        assert facts is not None
        with self._server.reading("TIME"):
            seconds, micros = map(digits, listed(checked(replies[3]), 2))
        now_ms = 1000 * seconds + micros // 1000
        length = self._edge.length
        added = None if facts.entries_added is None else max(facts.entries_added, length)
        info = StreamInfoValue(length, facts.last, None, facts.max_deleted, added)
        for place, group in enumerate(groups):
            at = 4 + 2 * place
            with self._server.reading("XINFO CONSUMERS or XPENDING", name):
                info.groups.append(
                    _group(group, checked(replies[at]), checked(replies[at + 1]), now_ms)
                )
        return info


def _group(described: GroupFacts, consumers: Any, pending: Any, now_ms: int) -> GroupValue:
    read = described.entries_read
    if read is None and described.tells_read:
        read = -1  # the server does not know either
    made = GroupValue(described.name, described.last, read)
    places: dict[bytes, int] = {}
    for each in map(by_name, listed(consumers)):
        name, idle = blob(value(each, b"name")), count(value(each, b"idle"))
        inactive = integer(each.get(b"inactive", idle))  # Redis 7.2 on; -1: never
        active_ms = -1 if inactive < 0 else now_ms - inactive
        if name in places:
            raise UnexpectedReply("two consumers of a name")
        made.consumers.append(ConsumerValue(name, now_ms - idle, active_ms))
        places[name] = len(made.consumers)
    found = PendingValue()
    for each in listed(pending):
        id, owner, idle, times = listed(each, 4)
        place = places.get(blob(owner), NOBODY)
        if place == NOBODY:
            made.nacked.append(stream_id(id).packed())
        time_ms = 0 if place == NOBODY else max(0, now_ms - count(idle))
        found.add(stream_id(id).packed(), time_ms, count(times), place)
    if not found.ascends():
        raise UnexpectedReply("pending entries that are not in order")
    made.pending = found
    return made
