"""Importing the streams of a server that runs: DUMP, and then as from a file.

Invariants: a stream comes in whole, as it was at one moment; nodes, groups and pending lists come
as they are. A stream that is too large for a payload comes by pages (``paging``), which is noted.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from logstore.api.store import Store
from logstore.engine.features.expiry import EXPIRES_MAX_MS
from logstore.rdb import dump
from logstore.transfer import paging
from logstore.transfer.intake import CANNOT_TAKE, Claim, Intake
from logstore.transfer.replies import blob, integer
from logstore.transfer.report import Progress, Report, unwatched
from logstore.transfer.selection import Wanted
from logstore.transfer.server import Server, checked

DUMP_MAX_BYTES = 128 << 20  # a server makes the payload in one step, and in its memory
MISSING = -2


def import_server(
    store: Store[Any], server: Server, wanted: Wanted | None = None, *,
    dump_max_bytes: int = DUMP_MAX_BYTES, report: Report | None = None,
    progress: Progress = unwatched,
) -> Report:  # fmt: skip
    """Import the streams of a server that are wanted; ``progress`` is told entries.

    Those of which the server says that they take more than ``dump_max_bytes`` come by pages.
    PeerError, StreamExistsError, InvalidPayloadError. What was imported before an error stays.
    """
    wanted = wanted or Wanted()
    report = Report() if report is None else report
    importing = ServerImport(store, server, wanted, dump_max_bytes, report)
    names = server.streams(wanted)
    sizes = [
        size if isinstance(size, int) else 0
        for size in server.many([("XLEN", name) for name in names])
    ]
    done, total = 0, sum(sizes)
    for name, size in zip(names, sizes, strict=True):
        importing.take(name, partial(_within, progress, done, total))
        done += size
        progress(done, total)
    importing.intake.flush()
    return report


def _within(progress: Progress, before: int, total: int, entries: int) -> None:
    progress(before + entries, total)


class ServerImport:
    """One server's streams on their way in."""

    def __init__(
        self, store: Store[Any], server: Server, wanted: Wanted, dump_max_bytes: int,
        report: Report,
    ) -> None:  # fmt: skip
        self.intake = Intake(store, wanted, report)
        self._store = store
        self._server = server
        self._wanted = wanted
        self._dump_max_bytes = dump_max_bytes
        self._report = report
        self._tells_time = server.attempt("PEXPIRETIME", "") == MISSING  # Redis 7.0 on

    def take(self, name: bytes, progress: paging.Entries) -> None:
        """Bring in one stream, if it is not there already; nothing if it is gone by now. One that
        cannot be taken is left out, and told of."""
        try:
            self._take(name, progress)
        except CANNOT_TAKE as exc:
            self._report.leave_out(name, exc)

    def _take(self, name: bytes, progress: paging.Entries) -> None:
        facts = self._server.info(name)
        if facts is None:
            return
        target = self._wanted.target(name)
        if not self.intake.takes(target, Claim(facts.length, facts.last, facts.entries_added)):
            return
        size = self._server.attempt("MEMORY", "USAGE", name)
        if isinstance(size, int) and size > self._dump_max_bytes:
            self._report.note(
                f"{name!r} came by pages of XRANGE, since it takes {size} bytes there: its nodes "
                "were made anew"
            )
            paged = paging.Paging(self._store, self._server, self.intake, progress)
            paged.take(name, target, facts.length, self._expires_ms)
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
        self.intake.value(target, dump.decode(payload), expires_ms)

    def _expires_ms(self, name: bytes, told: Any = None) -> int | None:
        """When the stream expires; ``told`` is what PEXPIRETIME said, or None."""
        if told is None and self._tells_time:
            told = self._server.attempt("PEXPIRETIME", name)
        with self._server.reading("PEXPIRETIME or PTTL", name):
            if told is not None:
                at_ms = integer(checked(told))
            else:
                left = integer(checked(self._server.attempt("PTTL", name)))
                at_ms = left + self.intake.now_ms() if left >= 0 else -1
        return min(at_ms, EXPIRES_MAX_MS) if at_ms >= 0 else None
