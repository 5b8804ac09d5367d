"""Exporting streams to a running server: RESTORE, or commands for those that are too large.

Invariants: a name on the server has a whole stream, or what it had before. A stream that was
carried already is recognised by its last ID, length and entries added. RESTORE carries nodes,
groups and pending lists as they are. A stream that goes by commands is made under a temporary name,
and renamed when it is whole; what a killed export left there is removed first. Notes say what no
command can set: the shape of the nodes, when consumers were seen and active, pending entries that
were deleted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.codec import codec
from logstore.engine.dump import export as exports
from logstore.engine.dump.payloads import TYPES_OF, Peer
from logstore.errors import PeerError, StreamExistsError, StreamNotFoundError, TooLargeError, shown
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.options import IMPORTING
from logstore.rdb import dump_payload
from logstore.rdb.rdb_writer import kind_of
from logstore.rdb.value import NOBODY, GroupValue, Idempotence, Node, StreamInfoValue, StreamValue
from logstore.transfer.job import Job, Progress, Report, StreamIdentity, Wanted, unwatched
from logstore.transfer.peer_server import Command, Server, UnexpectedReply, blob, checked, count
from logstore.transfer.rdb_files import expires_ms, spelt, wanted_streams
from logstore.transfer.server_import import DUMP_MAX_BYTES


def export_server(
    store: Store[Any],
    server: Server,
    wanted: Wanted | None = None,
    *,
    dump_max_bytes: int = DUMP_MAX_BYTES,
    report: Report | None = None,
    progress: Progress = unwatched,
) -> Report:
    """Bring the streams that are wanted to a server; ``progress`` gets entries.

    Those with more than ``dump_max_bytes`` of nodes go by commands. PeerError, StreamExistsError.
    What was brought there before an error stays.
    """
    job = Job.of(store, wanted, report, progress)
    exporting = _Export(job, server, dump_max_bytes)
    found = [record.name for record in wanted_streams(store, job.wanted)]
    done, total = 0, sum(len(store.stream(name)) for name in found)
    for name in found:
        length = len(store.stream(name))
        exporting.bring(name, job.progress_behind(done, total))
        done += length
        progress(min(done, total), total)
    return job.report


_VERSION = re.compile(rb"^redis_version:(\d+)\.(\d+)", re.MULTILINE)


def peer_of(info: bytes) -> Peer:
    """The kind of a server, by its INFO."""
    if b"valkey_version" in info:
        return "valkey"
    found = _VERSION.search(info)
    version: tuple[int, ...] = () if found is None else tuple(map(int, found.groups()))
    return "redis-8.8" if version >= (8, 8) else "redis-8.6" if version >= (8, 6) else "redis"


class _Export:
    """An export to one server."""

    def __init__(self, job: Job, server: Server, dump_max_bytes: int) -> None:
        self._job = job
        self._server = server
        self._dump_max_bytes = dump_max_bytes
        with server.reading("INFO"):
            info = blob(server.call("INFO", "server"))
        self._peer: Peer = peer_of(info)

    def bring(self, name: bytes, progress: Any) -> None:
        """Bring one stream there; nothing if it was dropped."""
        engine = opened_of(self._job.store).engine()
        try:
            with exports.pinned(engine, name) as export:
                target = self._job.wanted.target(name)
                if not self._goes(target, export):
                    return
                expires = expires_ms(self._job.store, name)
                if export.node_bytes > self._dump_max_bytes:
                    self._job.report.note(
                        f"{name!r} went by XADD, since it has {export.node_bytes} bytes of nodes: "
                        "its nodes were made anew, its consumers were seen when they were made"
                    )
                    commands = _Commands(self._server, self._peer, self._job.report, progress)
                    nodes = export.nodes(engine)
                    commands.bring(
                        target, nodes, export.info, expires, replace=self._job.wanted.replace
                    )
                else:
                    value = StreamValue(list(spelt(export.nodes(engine), self._peer)), export.info)
                    self._restore(target, value, expires)
        except StreamNotFoundError:
            return
        self._job.report.streams += 1
        self._job.report.entries += export.info.length

    def _goes(self, target: bytes, export: exports.Export) -> bool:
        """Whether a stream is to be brought there; StreamExistsError."""
        if self._job.wanted.replace:
            return True
        with self._server.reading("EXISTS", target):
            if not count(checked(self._server.attempt("EXISTS", target))):
                return True
        facts = self._server.info(target)
        there = None if facts is None else StreamIdentity.of(facts)
        if self._job.keeps(there, StreamIdentity.of(export.info)):
            return False
        raise StreamExistsError(
            "the server has another key of this name: skip it, replace it, or give a prefix",
            stream=target,
        )

    def _restore(self, target: bytes, value: StreamValue, expires: int | None) -> None:
        try:
            payload = dump_payload.encode(value, kind_of(value.info, TYPES_OF[self._peer]))
        except TooLargeError as exc:
            raise TooLargeError(exc.message, stream=target) from exc
        words: list[Any] = ["RESTORE", target, expires or 0, payload]
        if expires is not None:
            words.append("ABSTTL")
        if self._job.wanted.replace:
            words.append("REPLACE")
        reply = self._server.attempt(*words)
        if isinstance(reply, PeerError) and "BUSYKEY" in str(reply):
            raise StreamExistsError(
                "somebody else made the key on the server meanwhile: begin again", stream=target
            )
        with self._server.reading("RESTORE", target):
            if blob(checked(reply)) != b"OK":
                raise UnexpectedReply(shown(reply))


# -- a stream that is too large for RESTORE -------------------------------------------------------
BATCH = 1000  # commands, or IDs of one command
BATCH_BYTES = 8 << 20


class _Commands:
    """The export of one stream by commands."""

    def __init__(
        self, server: Server, peer: Peer, report: Report, progress: Callable[[int], None]
    ) -> None:
        self._server = server
        self._peer = peer
        self._report = report
        self._progress = progress

    def bring(
        self,
        target: bytes,
        nodes: Iterable[Node],
        info: StreamInfoValue,
        expires_ms: int | None,
        *,
        replace: bool,
    ) -> None:
        """Make the stream on the server; StreamExistsError, PeerError."""
        server, name = self._server, IMPORTING + target
        server.call("DEL", name)
        self._entries(name, nodes)
        if not info.length:  # a stream without entries: add one, and trim it
            self._send([("XADD", name, "1-1", "x", "x"), ("XTRIM", name, "MAXLEN", 0)])
        last: list[Any] = ["XSETID", name, str(info.last)]
        if info.entries_added is not None:
            last += ["ENTRIESADDED", info.entries_added, "MAXDELETEDID", str(info.max_deleted)]
        self._send([tuple(last)])
        if info.idempotence is not None:
            self._idempotence(name, target, info.idempotence)
        for group in info.groups:
            self._group(name, group, info.read_by(group))
        if expires_ms is not None:
            server.call("PEXPIREAT", name, expires_ms)
        if replace:
            server.call("RENAME", name, target)
        elif not server.call("RENAMENX", name, target):
            server.call("DEL", name)
            raise StreamExistsError(
                "somebody else made the key on the server meanwhile: begin again", stream=target
            )

    def _entries(self, name: bytes, nodes: Iterable[Node]) -> None:
        waiting: list[Command] = []
        size = count = 0
        for key, lp in nodes:
            master = StreamID.unpacked(key)
            for _, ms, seq, flat in codec().entries(lp, *master, b"", ZERO_ID, MAX_ID):
                waiting.append(("XADD", name, f"{ms}-{seq}", *flat))
            size += len(lp)
            if len(waiting) >= BATCH or size >= BATCH_BYTES:
                count += len(waiting)
                self._send(waiting)
                self._progress(count)
                waiting, size = [], 0
        if waiting:
            self._send(waiting)

    def _idempotence(self, name: bytes, target: bytes, kept: Idempotence) -> None:
        """Carry what is known of idempotent adds, as far as the server takes it."""
        limits = "IDMP-DURATION", kept.duration_s, "IDMP-MAXSIZE", kept.max_ids
        commands: list[Command] = [("XCFGSET", name, *limits)]  # first, for it forgets all IDs
        commands += [
            ("XIDMPRECORD", name, producer, given, str(id))
            for producer, items in kept.producers
            for given, id in items
        ]
        refused = 0
        for at in range(0, len(commands), BATCH):
            replies = self._server.many(commands[at : at + BATCH])
            refused += sum(isinstance(reply, PeerError) for reply in replies)
        if refused and len(commands) > 1:
            self._report.note(
                f"idempotent IDs of {target!r} were not all carried: the server refused "
                f"{refused} of {len(commands)} commands"
            )

    def _group(self, name: bytes, group: GroupValue, read: int | None) -> None:
        made: list[Any] = ["XGROUP", "CREATE", name, group.name, str(group.last)]
        if read is not None and read >= 0:
            made += ["ENTRIESREAD", read]
        commands: list[Command] = [tuple(made)]
        commands += [
            ("XGROUP", "CREATECONSUMER", name, group.name, each.name) for each in group.consumers
        ]
        pending = group.pending
        alike: defaultdict[tuple[int, int, int], list[str]] = defaultdict(list)
        for place, owner in enumerate(pending.owners):
            id = str(StreamID.unpacked(pending.id_at(place)))
            alike[owner, pending.times[place], pending.counts[place]].append(id)
        unowned: list[Command] = []
        for (owner, time_ms, times), ids in alike.items():
            who = b"" if owner == NOBODY else group.consumers[owner - 1].name
            for at in range(0, len(ids), BATCH):
                some = ids[at : at + BATCH]
                count = "RETRYCOUNT", times, "FORCE"
                if owner == NOBODY and self._peer == "redis-8.8":
                    given_back = "FAIL", "IDS", len(some), *some
                    unowned.append(("XNACK", name, group.name, *given_back, *count))
                else:
                    taken = who, 0, *some, "TIME", time_ms
                    commands.append(("XCLAIM", name, group.name, *taken, *count, "JUSTID"))
        claimed = sum(len(reply) for reply in self._send(commands) if isinstance(reply, list))
        claimed += sum(self._send(unowned))
        if claimed < len(pending):
            self._report.note(
                f"{len(pending) - claimed} pending entries of group {group.name!r} of {name!r} "
                "are of entries that are gone: they were not carried"
            )

    def _send(self, commands: list[Command]) -> list[Any]:
        found: list[Any] = []
        for at in range(0, len(commands), BATCH):
            found += map(checked, self._server.many(commands[at : at + BATCH]))
        return found
