"""Following a server: what is added to its streams there is added here, with the same IDs.

Invariants: following goes on from the last ID here, so nothing is kept beside the store, and no
entry comes twice, also after a kill. Entries are committed here before they are trimmed there. A
stream that is new here is imported whole first, with its groups. Afterwards its entries are
followed, and its groups are not: notes say how they differ. Entries that were gone before they were
read are counted, and reported before the count of the stream here includes them. A stream that was
made anew there is never joined to the one here, which is kept under another name
(``followed_streams``). If somebody else adds to a followed stream here that is an error, for
entries of the server would be missed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from logstore.api.store import Store
from logstore.errors import IDOrderError, OptionError, PeerError
from logstore.transfer.followed_streams import (
    COUNTS,
    DeleteMirroring,
    Followed,
    Observed,
    SameStreams,
    ServerCounts,
    ServerTrimming,
)
from logstore.transfer.job import Job, Progress, Report, Wanted, unwatched
from logstore.transfer.peer_server import (
    GroupFacts,
    PeerGone,
    Server,
    by_stream,
    checked,
    is_no_stream,
    rows,
)
from logstore.transfer.server_import import DUMP_MAX_BYTES, ServerImport

log = logging.getLogger("logstore.transfer")
BLOCK_MS = 500
COUNT = 1000
STREAMS_A_READ = 64
STREAMS_A_SEARCH = 1000
BACKOFF_S, BACKOFF_MAX_S = 0.1, 10.0
Trim: TypeAlias = Literal["none", "acked", "all"]
Deletes: TypeAlias = Literal["keep", "apply"]


@dataclass(frozen=True, slots=True)
class Follow:
    """How a server is followed.

    ``trim``: what is durable here is trimmed there: "none", "acked" (only what all its groups have
    read and acked) or "all". ``deletes``: entries that are deleted there are kept here, or deleted
    here, too ("apply"). ``look_s``: the seconds between two searches for new streams and deletes;
    ``settle_s``: the seconds between two syncs, with a trim.
    """

    trim: Trim = "none"
    deletes: Deletes = "keep"
    look_s: float = 5.0
    settle_s: float = 1.0
    dump_max_bytes: int = DUMP_MAX_BYTES

    def check(self) -> None:
        """OptionError for a value that is not allowed."""
        if self.trim not in get_args(Trim) or self.deletes not in get_args(Deletes):
            raise OptionError(f"trim is one of {get_args(Trim)}, deletes of {get_args(Deletes)}")
        if self.look_s <= 0 or self.settle_s <= 0:
            raise OptionError("look_s and settle_s are above 0")


def follow(
    store: Store[Any],
    server: Server,
    wanted: Wanted | None = None,
    options: Follow | None = None,
    *,
    stop: threading.Event | None = None,
    report: Report | None = None,
    progress: Progress = unwatched,
) -> Report:
    """Follow the streams that are wanted until ``stop`` is set; then sync, and trim, once more.

    A server that goes away is waited for. PeerError if it refuses a command; IDOrderError if
    somebody else adds to a stream that is followed here. ``progress`` gets entries.
    """
    options = options or Follow()
    options.check()
    job = Job.of(store, wanted, report, progress)
    _Following(job, server, options).run(threading.Event() if stop is None else stop)
    return job.report


class _Following:
    """The loop that follows, and how far each stream was read."""

    def __init__(self, job: Job, server: Server, options: Follow) -> None:
        # Streams that are here already are followed from there, so none is replaced.
        wanted = Wanted(job.wanted.patterns, job.wanted.prefix, "skip")
        self._job = job = job._replace(wanted=wanted)
        self._server = server
        self._options = options
        self._followed: dict[bytes, Followed] = {}  # by the name there; here it is durable or not
        self._same_streams = SameStreams(job.store, server)
        self._trimming = ServerTrimming(job, server, acked=options.trim != "all")
        self._mirroring = DeleteMirroring(job, server)
        self._left_out: set[bytes] = set()  # streams that cannot be imported
        self._search_at = self._settle_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """Follow until ``stop``; after a broken connection wait, longer each time, and go on."""
        wait_s = BACKOFF_S
        while not stop.is_set():
            try:
                self._step(stop)
                wait_s = BACKOFF_S
            except PeerGone as exc:
                self._job.report.reconnects += 1
                self._job.report.note(str(exc))
                self._search_at = 0.0
                stop.wait(wait_s)
                wait_s = min(2 * wait_s, BACKOFF_MAX_S)
        try:
            self._settle()
        except PeerGone as exc:
            self._job.report.note(f"what is durable here was not trimmed at the end: {exc}")

    def _step(self, stop: threading.Event) -> None:
        now = time.monotonic()
        if now >= self._search_at:
            # Before the read, which may ask for another search.
            self._search_at = now + self._options.look_s
            self._search()
        if not self._followed:
            stop.wait(min(self._options.look_s, BLOCK_MS / 1000))
        elif self._read():
            self._job.progress(self._job.report.entries, 0)
        if time.monotonic() >= self._settle_at:
            self._settle()
            self._settle_at = time.monotonic() + self._options.settle_s

    # -- which streams there are ----------------------------------------------------------------
    def _search(self) -> None:
        """Find the streams there; import the new ones, and examine those that changed."""
        # Before anything is read: these counts say nothing about what comes later.
        counts = ServerCounts(self._server.attempt(*COUNTS))
        found = self._server.streams(self._job.wanted)
        importing = ServerImport(self._job, self._server, self._options.dump_max_bytes)
        fresh: set[bytes] = set()
        for name in found:
            if name in self._left_out:
                continue
            if importing.intake.record(self._job.wanted.target(name)) is None:
                left_out = self._job.report.left_out
                importing.take(name, lambda _entries: None)
                fresh.add(name)
                if self._job.report.left_out > left_out:
                    self._left_out.add(name)
        importing.intake.flush()
        before, self._followed = self._followed, {}
        for name in found:
            record = importing.intake.record(self._job.wanted.target(name))
            if record is None:
                continue  # it was dropped meanwhile
            followed = before.get(name)
            if followed is None or name in fresh:
                last, known = record.last, counts if name in fresh else None
                followed = Followed(last, record.entries_added, exact=last, counts=known)
            self._followed[name] = followed
        self._examine(self._moved(counts))
        self._note_groups()
        if self._options.deletes == "apply":
            for name, followed in self._followed.items():
                self._mirroring.apply(name, followed.last)

    def _moved(self, counts: ServerCounts) -> list[bytes]:
        """The streams whose last ID or count there differs from what is known here."""
        moved: list[bytes] = []
        for names in _in_parts(self._followed, STREAMS_A_SEARCH):
            replies = self._server.many([("XINFO", "STREAM", name) for name in names])
            for name, reply in zip(names, replies, strict=True):
                facts, followed = self._server.facts(name, reply), self._followed[name]
                if facts is None:
                    self._search_at = 0.0
                    continue
                added = facts.entries_added
                if (
                    followed.counts is None
                    or facts.last != followed.last
                    or added != followed.added
                ):
                    moved.append(name)
                else:
                    followed.counts = counts
        return moved

    def _note_groups(self) -> None:
        """Note the groups that differ from those here."""
        for names in _in_parts(self._followed, STREAMS_A_SEARCH):
            replies = self._server.many([("XINFO", "GROUPS", name) for name in names])
            for name, reply in zip(names, replies, strict=True):
                groups = self._server.groups(name, reply)
                if groups is not None:
                    self._compare_groups(name, groups)

    def _compare_groups(self, name: bytes, groups: list[GroupFacts]) -> None:
        stream = self._job.store.stream(self._job.wanted.target(name))
        here = {group.name: (group.last_delivered_id, group.pending) for group in stream.groups()}
        there = {group.name: (group.last, group.pending) for group in groups}
        for group in sorted({*here, *there}):
            if group not in here:
                what = "is on the server, and not here"
            elif group not in there:
                what = "is not on the server any more, and is kept here"
            elif here[group] != there[group]:
                what = "has not read, or not acked, the same here as on the server"
            else:
                continue
            text = group.decode("utf-8", "backslashreplace")
            self._job.report.note(f"{name!r}: group {text!r} {what}: groups are not followed")

    # -- new entries ----------------------------------------------------------------------------
    def _read(self) -> bool:
        """Add new entries, or wait a moment for some; whether there were any.

        A first read waits, and only shows which streams have entries. These are then read in a
        MULTI, in which no command waits, for entries and counts must be of one moment.
        """
        names = list(self._followed)
        reply = self._server.attempt(
            "XREAD",
            "COUNT",
            1,
            "BLOCK",
            BLOCK_MS,
            "STREAMS",
            *names,
            *(str(self._followed[name].last) for name in names),
        )
        if isinstance(reply, PeerError):
            if not is_no_stream(reply):
                raise reply
            self._search_at = 0.0  # a key is no stream any more
            return False
        with self._server.reading("XREAD"):
            found = by_stream(reply, names)
            for name, entries in found.items():
                rows(entries, 1, above=self._followed[name].last)
        self._examine(list(found))
        return bool(found)

    def _examine(self, names: list[bytes]) -> None:
        """Read streams: are they the same, which entries were missed, which are new? Add these."""
        for part in _in_parts(names, STREAMS_A_READ):
            places = [str(self._followed[name].last) for name in part]
            replies = self._server.many(
                [
                    ("XREAD", "COUNT", COUNT, "STREAMS", *part, *places),
                    COUNTS,
                    *(("XINFO", "STREAM", name) for name in part),
                ],
                at_once=True,
            )
            if any(is_no_stream(reply) for reply in (replies[0], *replies[2:])):
                self._search_at = 0.0  # one is gone, or no stream any more
                continue
            counts = ServerCounts(replies[1])
            # All replies are checked before an entry is added.
            for seen in [*self._observed(part, replies, counts)]:
                self._take(seen)

    def _observed(
        self, names: list[bytes], replies: list[Any], counts: ServerCounts
    ) -> Iterator[Observed]:
        """The replies about each stream, checked; PeerError."""
        with self._server.reading("XREAD"):
            found = by_stream(checked(replies[0]), names)
        for name, reply in zip(names, replies[2:], strict=True):
            with self._server.reading("XREAD", name):
                entries = rows(found.get(name, []), COUNT, above=self._followed[name].last)
            facts = self._server.facts(name, reply)
            assert facts is not None
            yield Observed(name, facts, counts, entries, all_found=len(entries) < COUNT)

    def _take(self, seen: Observed) -> None:
        name, followed = seen.name, self._followed[seen.name]
        target = self._job.wanted.target(name)
        if not self._same_streams.same(seen, followed, target):
            self._set_aside(name, followed, seen.missed(followed))
            return
        followed.counts = seen.counts
        missed = seen.missed(followed)
        if missed is not None and missed < 0:
            followed.added += missed
            self._note_lost_end(seen, followed)
        elif missed:
            self._report_missed(seen, followed, target, missed)
        if seen.found and not self._add(name, target, seen.found):
            return
        if missed is not None:
            followed.exact = followed.last

    def _note_lost_end(self, seen: Observed, followed: Followed) -> None:
        last = seen.facts.last
        news = self._job.report.note(
            f"{seen.name!r}: the server has lost entries that are here, of those above {last} up "
            f"to {followed.last}: what it gets with IDs that are below the last one here is not "
            "followed"
        )
        if news and last < followed.last:
            self._mirroring.protect(seen.name, last, followed.last)

    def _report_missed(
        self, seen: Observed, followed: Followed, target: bytes, missed: int
    ) -> None:
        above, below = seen.gap(followed)
        # Reported first: a follower that is killed in between reports it once more.
        self._job.report.miss(seen.name, above, below, missed)
        log.warning(
            "%r: %d entries above %s and below %s were trimmed or deleted there before they were "
            "read",
            seen.name,
            missed,
            above,
            below,
        )
        followed.added += missed
        self._job.store.stream(target).set_id(followed.last, entries_added=followed.added)

    def _set_aside(self, name: bytes, followed: Followed, missed: int | None) -> None:
        """Keep the stream here under another name, and import the server's in its place."""
        target = self._job.wanted.target(name)
        kept = plain = target + f":until:{followed.last}".encode()
        again = 1
        while not self._job.store.rename(target, kept, replace=False):
            again += 1
            kept = plain + f":{again}".encode()
        self._job.report.set_aside.setdefault(name, []).append(kept)
        text = kept.decode("utf-8", "backslashreplace")
        why = "is not the one that was followed, or cannot be shown to be"
        if missed is not None and missed > 0:
            why += f" (if it is, {missed} of its entries above {followed.last} were missed)"
        self._job.report.note(
            f"{name!r}: the server's stream {why}: what is here is kept under the name {text!r}, "
            "and the server's is imported anew"
        )
        log.warning("%r: the server's stream %s; what is here is kept as %s", name, why, text)
        self._trimming.forget(name)
        self._mirroring.forget(name)
        del self._followed[name]
        self._search_at = 0.0

    def _add(self, name: bytes, target: bytes, found: list[Any]) -> bool:
        """Add entries; False if there is no such stream here any more."""
        try:
            added = self._job.store.stream(target).add_many(found, batch=COUNT, create=False)
        except IDOrderError as exc:
            raise IDOrderError(
                f"somebody else adds to {name!r} here while it is followed ({exc.message}): let "
                "one follower write to it, and nobody else"
            ) from exc
        if not len(added):
            self._search_at = 0.0  # it was dropped here: it is imported anew
            return False
        followed = self._followed[name]
        followed.last = found[-1][0]
        followed.added += len(found)
        self._job.report.entries += len(found)
        return True

    def _settle(self) -> None:
        """Make durable what was committed by now; only then trim it there."""
        committed = {
            name: (followed.last, followed.added) for name, followed in self._followed.items()
        }
        self._job.store.sync()
        if self._options.trim != "none":
            for name, (last, added) in committed.items():
                self._trimming.trim(name, last, added)


def _in_parts(names: Iterable[bytes], size: int) -> Iterable[list[bytes]]:
    every = list(names)
    return (every[at : at + size] for at in range(0, len(every), size))
