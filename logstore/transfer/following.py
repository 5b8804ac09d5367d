"""Following a server: what is added to its streams there is added here, with the same IDs.

Invariants: the place to go on from is the last ID here, so nothing is kept beside the store, and
nothing comes twice, whoever is killed; a commit here precedes what is trimmed there. A stream that
is new here is imported whole first, with its groups; afterwards its entries are followed, not its
groups. Somebody else who adds to a followed stream here is an error: IDs would be passed over.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from logstore.errors import IDOrderError, OptionError, PeerError
from logstore.ids import StreamID
from logstore.store import Store
from logstore.transfer.mirroring import Mirroring
from logstore.transfer.report import Progress, Report, unwatched
from logstore.transfer.server import PeerGone, Server, is_no_stream, rows
from logstore.transfer.serverimport import DUMP_MAX_BYTES, ServerImport
from logstore.transfer.trimming import Trimming
from logstore.transfer.wanted import Wanted

BLOCK_MS = 500
COUNT = 1000
BACKOFF_S, BACKOFF_MAX_S = 0.1, 10.0
Trim: TypeAlias = Literal["none", "acked", "all"]
Deletes: TypeAlias = Literal["keep", "apply"]


@dataclass(frozen=True, slots=True)
class Follow:
    """How a server is followed.

    ``trim``: what is durable here is trimmed there: "none", "acked" (only what all its groups have
    read and acked) or "all". ``deletes``: entries that are deleted there are kept here, or deleted
    here, too ("apply"). ``look_s``: how often new streams and deletes are looked for, in seconds;
    ``settle_s``: how often it is synced and trimmed.
    """

    trim: Trim = "none"
    deletes: Deletes = "keep"
    look_s: float = 5.0
    settle_s: float = 1.0
    dump_max_bytes: int = DUMP_MAX_BYTES

    def check(self) -> None:
        """OptionError if it cannot be."""
        if self.trim not in get_args(Trim) or self.deletes not in get_args(Deletes):
            raise OptionError(f"trim is one of {get_args(Trim)}, deletes of {get_args(Deletes)}")
        if self.look_s <= 0 or self.settle_s <= 0:
            raise OptionError("look_s and settle_s are above 0")


def follow(
    store: Store[Any], server: Server, wanted: Wanted | None = None,
    options: Follow | None = None, *, stop: threading.Event | None = None,
    report: Report | None = None, progress: Progress = unwatched,
) -> Report:  # fmt: skip
    """Follow the streams that are wanted until ``stop`` is set; then sync, and trim, once more.

    A server that goes away is waited for. PeerError if it refuses a command; IDOrderError if
    somebody else adds to a stream that is followed here. ``progress`` is told entries.
    """
    options = options or Follow()
    options.check()
    report = Report() if report is None else report
    following = _Following(store, server, wanted or Wanted(), options, report, progress)
    following.run(threading.Event() if stop is None else stop)
    return report


class _Following:
    """The loop, and where each stream stands."""

    def __init__(
        self, store: Store[Any], server: Server, wanted: Wanted, options: Follow, report: Report,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._store = store
        self._server = server
        # What is here already is gone on with, so nothing gives way.
        self._wanted = Wanted(wanted.patterns, wanted.prefix, "skip")
        self._options = options
        self._report = report
        self._progress = progress
        self._last: dict[bytes, StreamID] = {}  # by the name there; here it is durable or not
        self._trimming = Trimming(store, server, self._wanted, report, acked=options.trim != "all")
        self._mirroring = Mirroring(store, server, self._wanted, report)
        self._look_at = self._settle_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``; a broken connection is tried again, later and later."""
        wait_s = BACKOFF_S
        while not stop.is_set():
            try:
                self._step(stop)
                wait_s = BACKOFF_S
            except PeerGone as exc:
                self._report.reconnects += 1
                self._report.note(str(exc))
                self._look_at = 0.0
                stop.wait(wait_s)
                wait_s = min(2 * wait_s, BACKOFF_MAX_S)
        try:
            self._settle()
        except PeerGone as exc:
            self._report.note(f"what is durable here was not trimmed at the end: {exc}")

    def _step(self, stop: threading.Event) -> None:
        now = time.monotonic()
        if now >= self._look_at:
            self._look()
            self._look_at = now + self._options.look_s
        if not self._last:
            stop.wait(min(self._options.look_s, BLOCK_MS / 1000))
        elif self._read():
            self._progress(self._report.entries, 0)
        if time.monotonic() >= self._settle_at:
            self._settle()
            self._settle_at = time.monotonic() + self._options.settle_s

    # -- what is there --------------------------------------------------------------------------
    def _look(self) -> None:
        """Which streams there are; those that are new here are imported."""
        found = self._server.streams(self._wanted)
        importing = ServerImport(
            self._store, self._server, self._wanted, self._options.dump_max_bytes, self._report
        )
        for name in found:
            if importing.intake.record(self._wanted.target(name)) is None:
                importing.take(name, lambda _entries: None)
        importing.intake.flush()
        before, self._last = self._last, {}
        for name in found:
            record = importing.intake.record(self._wanted.target(name))
            if record is None:
                continue  # it went away meanwhile
            self._last[name] = record.last
            if name not in before:
                self._compare(name, record.last)
        if self._options.deletes == "apply":
            for name, last in self._last.items():
                self._mirroring.apply(name, last)

    def _compare(self, name: bytes, last: StreamID) -> None:
        facts = self._server.info(name)
        if facts is not None and facts.max_deleted > last:
            self._report.note(
                f"{name!r}: entries above {last}, up to {facts.max_deleted}, were deleted or "
                "trimmed there before they were read"
            )
        if facts is not None and facts.last < last:
            self._report.note(
                f"{name!r}: the server's last ID {facts.last} is below {last} here: it was made "
                "anew, or the server lost its end; what comes below that ID is not followed"
            )
            self._mirroring.protect(name, facts.last, last)

    # -- what is new ----------------------------------------------------------------------------
    def _read(self) -> bool:
        """Add what is new, or wait a moment for it; whether there was anything."""
        names = list(self._last)
        reply = self._server.attempt(
            "XREAD", "COUNT", COUNT, "BLOCK", BLOCK_MS, "STREAMS", *names,
            *(str(self._last[name]) for name in names),
        )  # fmt: skip
        if isinstance(reply, PeerError):
            if not is_no_stream(reply):
                raise reply
            self._look_at = 0.0  # a key is no stream any more
            return False
        for name, entries in reply or ():
            self._add(name, rows(entries))
        return bool(reply)

    def _add(self, name: bytes, found: list[Any]) -> None:
        stream = self._store.stream(self._wanted.target(name))
        try:
            added = stream.add_many(found, batch=COUNT, create=False)
        except IDOrderError as exc:
            raise IDOrderError(
                f"somebody else adds to {name!r} here while it is followed ({exc.message}): let "
                "one follower write to it, and nobody else"
            ) from exc
        if not len(added):
            self._look_at = 0.0  # it was dropped here: it is imported anew
            return
        self._last[name] = found[-1][0]
        self._report.entries += len(found)

    def _settle(self) -> None:
        """What was committed by now becomes durable; only then it is trimmed there."""
        committed = dict(self._last)
        self._store.sync()
        if self._options.trim != "none":
            for name, last in committed.items():
                self._trimming.trim(name, last)
