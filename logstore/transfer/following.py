"""Following a server: what is added to its streams there is added here, with the same IDs.

Invariants: the place to go on from is the last ID here, so nothing is kept beside the store, and
nothing comes twice, whoever is killed; a commit here precedes what is trimmed there. A stream that
is new here is imported whole first, with its groups; afterwards its entries are followed, not its
groups, of which it is said what differs. Entries that were gone before they were read are counted,
and told before the count of the stream here takes them in. A stream that was made anew there is
never joined to the one here, which is kept under another name (``followed_streams``). Somebody else
who adds to a followed stream here is an error: IDs would be passed over.
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
    Followed,
    Histories,
    Mirroring,
    Observed,
    ServerCounts,
    Trimming,
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
STREAMS_A_LOOK = 1000
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
    somebody else adds to a stream that is followed here. ``progress`` is told entries.
    """
    options = options or Follow()
    options.check()
    job = Job.of(store, wanted, report, progress)
    _Following(job, server, options).run(threading.Event() if stop is None else stop)
    return job.report


class _Following:
    """The loop, and where each stream stands."""

    def __init__(self, job: Job, server: Server, options: Follow) -> None:
        # What is here already is gone on with, so nothing gives way.
        wanted = Wanted(job.wanted.patterns, job.wanted.prefix, "skip")
        self._job = job = job._replace(wanted=wanted)
        self._server = server
        self._options = options
        self._places: dict[bytes, Followed] = {}  # by the name there; here it is durable or not
        self._histories = Histories(job.store, server)
        self._trimming = Trimming(job, server, acked=options.trim != "all")
        self._mirroring = Mirroring(job, server)
        self._left_out: set[bytes] = set()  # what cannot be taken, and is not asked for again
        self._look_at = self._settle_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``; a broken connection is tried again, later and later."""
        wait_s = BACKOFF_S
        while not stop.is_set():
            try:
                self._step(stop)
                wait_s = BACKOFF_S
            except PeerGone as exc:
                self._job.report.reconnects += 1
                self._job.report.note(str(exc))
                self._look_at = 0.0
                stop.wait(wait_s)
                wait_s = min(2 * wait_s, BACKOFF_MAX_S)
        try:
            self._settle()
        except PeerGone as exc:
            self._job.report.note(f"what is durable here was not trimmed at the end: {exc}")

    def _step(self, stop: threading.Event) -> None:
        now = time.monotonic()
        if now >= self._look_at:
            # First, so that a read which finds something odd can ask for another look.
            self._look_at = now + self._options.look_s
            self._look()
        if not self._places:
            stop.wait(min(self._options.look_s, BLOCK_MS / 1000))
        elif self._read():
            self._job.progress(self._job.report.entries, 0)
        if time.monotonic() >= self._settle_at:
            self._settle()
            self._settle_at = time.monotonic() + self._options.settle_s

    # -- what is there --------------------------------------------------------------------------
    def _look(self) -> None:
        """Which streams there are; those that are new here are imported, the others compared."""
        # Before anything is read: what comes after it, it does not vouch for.
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
        before, self._places = self._places, {}
        for name in found:
            record = importing.intake.record(self._job.wanted.target(name))
            if record is None:
                continue  # it went away meanwhile
            place = before.get(name)
            if place is None or name in fresh:
                last, known = record.last, counts if name in fresh else None
                place = Followed(last, record.entries_added, exact=last, counts=known)
            self._places[name] = place
        self._examine(self._moved(counts))
        self._look_at_groups()
        if self._options.deletes == "apply":
            for name, place in self._places.items():
                self._mirroring.apply(name, place.last)

    def _moved(self, counts: ServerCounts) -> list[bytes]:
        """The streams whose last ID or count there is not what is known of them."""
        moved: list[bytes] = []
        for names in _parts(self._places, STREAMS_A_LOOK):
            replies = self._server.many([("XINFO", "STREAM", name) for name in names])
            for name, reply in zip(names, replies, strict=True):
                facts, place = self._server.facts(name, reply), self._places[name]
                if facts is None:
                    self._look_at = 0.0
                    continue
                added = facts.entries_added
                if place.counts is None or facts.last != place.last or added != place.added:
                    moved.append(name)
                else:
                    place.counts = counts
        return moved

    def _look_at_groups(self) -> None:
        """Say which groups are not as they were when they were imported."""
        for names in _parts(self._places, STREAMS_A_LOOK):
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

    # -- what is new ----------------------------------------------------------------------------
    def _read(self) -> bool:
        """Add what is new, or wait a moment for it; whether there was anything.

        The first read waits and tells only which streams have something: waiting is not possible
        inside of a MULTI, and entries and counts that are not of one moment say nothing.
        """
        names = list(self._places)
        reply = self._server.attempt(
            "XREAD",
            "COUNT",
            1,
            "BLOCK",
            BLOCK_MS,
            "STREAMS",
            *names,
            *(str(self._places[name].last) for name in names),
        )
        if isinstance(reply, PeerError):
            if not is_no_stream(reply):
                raise reply
            self._look_at = 0.0  # a key is no stream any more
            return False
        with self._server.reading("XREAD"):
            found = by_stream(reply, names)
            for name, entries in found.items():
                rows(entries, 1, above=self._places[name].last)
        self._examine(list(found))
        return bool(found)

    def _examine(self, names: list[bytes]) -> None:
        """See whether streams are still the same, what was missed of them, and add what is new."""
        for part in _parts(names, STREAMS_A_READ):
            places = [str(self._places[name].last) for name in part]
            replies = self._server.many(
                [
                    ("XREAD", "COUNT", COUNT, "STREAMS", *part, *places),
                    COUNTS,
                    *(("XINFO", "STREAM", name) for name in part),
                ],
                at_once=True,
            )
            if any(is_no_stream(reply) for reply in (replies[0], *replies[2:])):
                self._look_at = 0.0  # one is gone, or no stream any more
                continue
            counts = ServerCounts(replies[1])
            # All of it is held against what it must be before any of it is added.
            for seen in [*self._looks(part, replies, counts)]:
                self._take(seen)

    def _looks(
        self, names: list[bytes], replies: list[Any], counts: ServerCounts
    ) -> Iterator[Observed]:
        """What was told of each stream; PeerError."""
        with self._server.reading("XREAD"):
            found = by_stream(checked(replies[0]), names)
        for name, told in zip(names, replies[2:], strict=True):
            with self._server.reading("XREAD", name):
                entries = rows(found.get(name, []), COUNT, above=self._places[name].last)
            facts = self._server.facts(name, told)
            assert facts is not None
            yield Observed(name, facts, counts, entries, all_found=len(entries) < COUNT)

    def _take(self, seen: Observed) -> None:
        name, place = seen.name, self._places[seen.name]
        target = self._job.wanted.target(name)
        if not self._histories.same(seen, place, target):
            self._set_aside(name, place, seen.missed(place))
            return
        place.counts = seen.counts
        missed = seen.missed(place)
        if missed is not None and missed < 0:
            place.added += missed
            self._lost_its_end(seen, place)
        elif missed:
            self._tell_missed(seen, place, target, missed)
        if seen.found and not self._add(name, target, seen.found):
            return
        if missed is not None:
            place.exact = place.last

    def _lost_its_end(self, seen: Observed, place: Followed) -> None:
        last = seen.facts.last
        news = self._job.report.note(
            f"{seen.name!r}: the server has lost entries that are here, of those above {last} up "
            f"to {place.last}: what it gets with IDs that are below the last one here is not "
            "followed"
        )
        if news and last < place.last:
            self._mirroring.protect(seen.name, last, place.last)

    def _tell_missed(self, seen: Observed, place: Followed, target: bytes, missed: int) -> None:
        above, below = seen.gap(place)
        # Told first: a follower that is killed in between tells it once more.
        self._job.report.miss(seen.name, above, below, missed)
        log.warning(
            "%r: %d entries above %s and below %s were trimmed or deleted there before they were "
            "read",
            seen.name,
            missed,
            above,
            below,
        )
        place.added += missed
        self._job.store.stream(target).set_id(place.last, entries_added=place.added)

    def _set_aside(self, name: bytes, place: Followed, missed: int | None) -> None:
        """The server's stream is another one: keep ours under another name, import that one."""
        target = self._job.wanted.target(name)
        kept = plain = target + f":until:{place.last}".encode()
        again = 1
        while not self._job.store.rename(target, kept, replace=False):
            again += 1
            kept = plain + f":{again}".encode()
        self._job.report.set_aside.setdefault(name, []).append(kept)
        text = kept.decode("utf-8", "backslashreplace")
        why = "is not the one that was followed, or cannot be shown to be"
        if missed is not None and missed > 0:
            why += f" (if it is, {missed} of its entries above {place.last} were missed)"
        self._job.report.note(
            f"{name!r}: the server's stream {why}: what is here is kept under the name {text!r}, "
            "and the server's is imported anew"
        )
        log.warning("%r: the server's stream %s; what is here is kept as %s", name, why, text)
        self._trimming.forget(name)
        self._mirroring.forget(name)
        del self._places[name]
        self._look_at = 0.0

    def _add(self, name: bytes, target: bytes, found: list[Any]) -> bool:
        """Add entries; False if the stream is gone here."""
        try:
            added = self._job.store.stream(target).add_many(found, batch=COUNT, create=False)
        except IDOrderError as exc:
            raise IDOrderError(
                f"somebody else adds to {name!r} here while it is followed ({exc.message}): let "
                "one follower write to it, and nobody else"
            ) from exc
        if not len(added):
            self._look_at = 0.0  # it was dropped here: it is imported anew
            return False
        place = self._places[name]
        place.last = found[-1][0]
        place.added += len(found)
        self._job.report.entries += len(found)
        return True

    def _settle(self) -> None:
        """What was committed by now becomes durable; only then it is trimmed there."""
        committed = {name: (place.last, place.added) for name, place in self._places.items()}
        self._job.store.sync()
        if self._options.trim != "none":
            for name, (last, added) in committed.items():
                self._trimming.trim(name, last, added)


def _parts(names: Iterable[bytes], size: int) -> Iterable[list[bytes]]:
    every = list(names)
    return (every[at : at + size] for at in range(0, len(every), size))
