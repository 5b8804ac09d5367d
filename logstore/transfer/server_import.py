"""Importing the streams of a running server: by DUMP, or page by page.

Invariants: a stream comes in whole, as it was at one moment; nodes, groups and pending lists come
as they are. A stream that is too large for a payload comes by pages of XRANGE, and a note says so.
Its entries go to a stream under a temporary name (``engine.dump.restore``), which gets its counts,
groups and name in one commit at the end. These, and the entries behind the last page, are read in
one MULTI, so that they belong together. Entries that are deleted there while pages are read may be
here, and the length is that of the entries here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from logstore.api.store import Store
from logstore.engine.dump.restore import VerifiedNodes
from logstore.engine.features.expiry import EXPIRES_MAX_MS
from logstore.errors import PeerError
from logstore.ids import ZERO_ID, StreamID
from logstore.rdb import dump_payload
from logstore.rdb.value import NOBODY, ConsumerValue, GroupValue, PendingValue, StreamInfoValue
from logstore.transfer.job import Job, Progress, Report, StreamIdentity, Wanted, unwatched
from logstore.transfer.peer_server import (
    EntryRows,
    GroupFacts,
    Server,
    UnexpectedReply,
    blob,
    by_name,
    checked,
    count,
    digits,
    integer,
    listed,
    rows,
    stream_id,
    value,
)
from logstore.transfer.stream_intake import CANNOT_TAKE, Intake

DUMP_MAX_BYTES = 128 << 20  # a server makes the payload in one step, and in its memory
MISSING = -2


def import_server(
    store: Store[Any],
    server: Server,
    wanted: Wanted | None = None,
    *,
    dump_max_bytes: int = DUMP_MAX_BYTES,
    report: Report | None = None,
    progress: Progress = unwatched,
) -> Report:
    """Import the streams of a server that are wanted; ``progress`` gets entries.

    Those that take more than ``dump_max_bytes``, as the server says, come by pages.
    PeerError, StreamExistsError, InvalidPayloadError. What was imported before an error stays.
    """
    job = Job.of(store, wanted, report, progress)
    importing = ServerImport(job, server, dump_max_bytes)
    names = server.streams(job.wanted)
    sizes = [
        size if isinstance(size, int) else 0
        for size in server.many([("XLEN", name) for name in names])
    ]
    done, total = 0, sum(sizes)
    for name, size in zip(names, sizes, strict=True):
        importing.take(name, job.progress_behind(done, total))
        done += size
        progress(done, total)
    importing.intake.flush()
    return job.report


class ServerImport:
    """An import from one server."""

    def __init__(self, job: Job, server: Server, dump_max_bytes: int) -> None:
        self.intake = Intake(job)
        self._job = job
        self._server = server
        self._dump_max_bytes = dump_max_bytes
        self._tells_time = server.attempt("PEXPIRETIME", "") == MISSING  # Redis 7.0 on

    def take(self, name: bytes, progress: Entries) -> None:
        """Bring in one stream, if it is not there already, or was dropped. One that cannot be
        imported is left out, and reported."""
        try:
            self._take(name, progress)
        except CANNOT_TAKE as exc:
            self._job.report.leave_out(name, exc)

    def _take(self, name: bytes, progress: Entries) -> None:
        facts = self._server.info(name)
        if facts is None:
            return
        target = self._job.wanted.target(name)
        if not self.intake.takes(target, StreamIdentity.of(facts)):
            return
        size = self._server.attempt("MEMORY", "USAGE", name)
        if isinstance(size, int) and size > self._dump_max_bytes:
            self._job.report.note(
                f"{name!r} came by pages of XRANGE, since it takes {size} bytes there: its nodes "
                "were made anew"
            )
            paged = _Paging(name, self._job.store, self._server, self.intake, progress)
            paged.take(target, facts.length, self._expires_ms)
        else:
            self._dumped(name, target)

    def _dumped(self, name: bytes, target: bytes) -> None:
        commands: list[tuple[Any, ...]] = [("DUMP", name)]
        if self._tells_time:
            commands.append(("PEXPIRETIME", name))
        replies = self._server.many(commands, at_once=True)
        if checked(replies[0]) is None:
            return
        with self._server.reading("DUMP", name):
            payload = blob(replies[0])
        expires_ms = self._expires_ms(name, replies[1] if self._tells_time else None)
        self.intake.value(target, dump_payload.decode(payload), expires_ms)

    def _expires_ms(self, name: bytes, reply: Any = None) -> int | None:
        """When the stream expires; ``reply``: that of PEXPIRETIME, or None."""
        if reply is None and self._tells_time:
            reply = self._server.attempt("PEXPIRETIME", name)
        with self._server.reading("PEXPIRETIME or PTTL", name):
            if reply is not None:
                at_ms = integer(checked(reply))
            else:
                left = integer(checked(self._server.attempt("PTTL", name)))
                at_ms = left + self.intake.now_ms() if left >= 0 else -1
        return min(at_ms, EXPIRES_MAX_MS) if at_ms >= 0 else None


# -- a stream that is too large for a payload -----------------------------------------------------
PAGE = 1000
MORE_MAX = 1_000_000  # entries that may be added while it is read, beside as many as it had
PENDING_MAX = 1 << 40  # of one group, all at once: they belong to one moment
TRIES_MAX = 20
Entries: TypeAlias = Callable[[int], None]  # how many there are so far
Expiry: TypeAlias = Callable[[bytes], int | None]


class _Paging:
    """The import of one stream by pages."""

    def __init__(
        self, name: bytes, store: Store[Any], server: Server, intake: Intake, progress: Entries
    ) -> None:
        self._name = name
        self._store = store
        self._server = server
        self._intake = intake
        self._progress = progress
        self._edge = VerifiedNodes()

    def take(self, target: bytes, length: int, expiry: Expiry) -> None:
        """Bring the stream in, which has about ``length`` entries; PeerError."""
        with self._intake.piecewise(target) as temporary:
            groups: list[bytes] = []
            for _ in range(TRIES_MAX):
                while self._add(temporary.name, self._page()) == PAGE:
                    self._check_end(length)
                replies = self._server.many(self._last_commands(groups), at_once=True)
                full = self._add(temporary.name, self._rows(checked(replies[0]))) == PAGE
                described = self._server.groups(self._name, checked(replies[2])) or []
                found = [each.name for each in described]
                if not full and found == groups:
                    break
                groups = found
            else:
                raise PeerError(
                    "entries come faster than they can be read: import the stream with --follow, "
                    "or while less is written to it",
                    stream=self._name,
                )
            info = self._info(replies, described)
            self._intake.finish(temporary, self._edge, target, info, expiry(self._name))

    def _check_end(self, length: int) -> None:
        if self._edge.length > 2 * length + MORE_MAX:
            why = f"more than {self._edge.length} entries, where it has {length}"
            raise self._server.unexpected("XRANGE", why, self._name)

    def _page(self) -> EntryRows:
        return self._rows(self._server.call(*self._next()))

    def _rows(self, reply: Any) -> EntryRows:
        with self._server.reading("XRANGE", self._name):
            return rows(reply, PAGE, above=StreamID(*self._edge.last))

    def _next(self) -> tuple[Any, ...]:
        last = self._edge.last
        start = "-" if last == ZERO_ID else f"({StreamID(*last)}"
        return ("XRANGE", self._name, start, "+", "COUNT", PAGE)

    def _add(self, temporary: bytes, found: EntryRows) -> int:
        if found:
            self._store.stream(temporary).add_many(found, batch=PAGE, create=False)
            before, last = self._edge, found[-1][0]
            first = before.first if before.length else found[0][0]
            self._edge = VerifiedNodes(first, last, last, None, before.length + len(found))
            self._progress(self._edge.length)
        return len(found)

    # -- all but the entries --------------------------------------------------------------------
    def _last_commands(self, groups: list[bytes]) -> list[tuple[Any, ...]]:
        name = self._name
        commands: list[tuple[Any, ...]] = [self._next(), ("XINFO", "STREAM", name)]
        commands += [("XINFO", "GROUPS", name), ("TIME",)]
        for group in groups:
            commands.append(("XINFO", "CONSUMERS", name, group))
            commands.append(("XPENDING", name, group, "-", "+", PENDING_MAX))
        return commands

    def _info(self, replies: list[Any], groups: list[GroupFacts]) -> StreamInfoValue:
        facts = self._server.facts(self._name, checked(replies[1]))
        assert facts is not None
        with self._server.reading("TIME"):
            seconds, micros = map(digits, listed(checked(replies[3]), 2))
        now_ms = 1000 * seconds + micros // 1000
        length = self._edge.length
        added = None if facts.entries_added is None else max(facts.entries_added, length)
        info = StreamInfoValue(length, facts.last, None, facts.max_deleted, added)
        for place, group in enumerate(groups):
            at = 4 + 2 * place
            with self._server.reading("XINFO CONSUMERS or XPENDING", self._name):
                consumers, pending = checked(replies[at]), checked(replies[at + 1])
                info.groups.append(_group(group, consumers, pending, now_ms))
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
