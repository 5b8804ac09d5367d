"""A stream that is too large for RESTORE, made on a server by commands.

Invariants: it is made under a name for the time being, and is renamed when all of it is there; what
a killed export left is taken away first. What no command can set is not carried: the shape of the
nodes, when consumers were seen and active, what is pending of entries that are gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from logstore.codec import codec
from logstore.errors import StreamExistsError
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.options import IMPORTING
from logstore.rdb.value import NOBODY, GroupValue, Node, StreamInfoValue
from logstore.transfer.report import Report
from logstore.transfer.server import Command, Server, checked

BATCH = 1000  # commands, or IDs of one command
BATCH_BYTES = 8 << 20


class Pushing:
    """One stream on its way out."""

    def __init__(self, server: Server, report: Report, progress: Callable[[int], None]) -> None:
        self._server = server
        self._report = report
        self._progress = progress

    def bring(
        self, target: bytes, nodes: Iterable[Node], info: StreamInfoValue,
        expires_ms: int | None, *, replace: bool,
    ) -> None:  # fmt: skip
        """Make it; StreamExistsError, PeerError."""
        server, name = self._server, IMPORTING + target
        server.call("DEL", name)
        self._entries(name, nodes)
        if not info.length:  # a stream without entries is made by one that goes again
            self._send([("XADD", name, "1-1", "x", "x"), ("XTRIM", name, "MAXLEN", 0)])
        last: list[Any] = ["XSETID", name, str(info.last)]
        if info.entries_added is not None:
            last += ["ENTRIESADDED", info.entries_added, "MAXDELETEDID", str(info.max_deleted)]
        self._send([tuple(last)])
        for group in info.groups:
            self._group(name, group)
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

    def _group(self, name: bytes, group: GroupValue) -> None:
        read = -1 if group.entries_read is None else group.entries_read
        made: list[Any] = ["XGROUP", "CREATE", name, group.name, str(group.last)]
        if read >= 0:
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
        for (owner, time_ms, count), ids in alike.items():
            who = b"" if owner == NOBODY else group.consumers[owner - 1].name
            for at in range(0, len(ids), BATCH):
                commands.append((
                    "XCLAIM", name, group.name, who, 0, *ids[at : at + BATCH], "TIME", time_ms,
                    "RETRYCOUNT", count, "FORCE", "JUSTID",
                ))  # fmt: skip
        claimed = sum(len(reply) for reply in self._send(commands) if isinstance(reply, list))
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
