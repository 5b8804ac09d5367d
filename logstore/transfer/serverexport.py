"""Exporting streams to a server that runs: RESTORE, or commands for those that are too large.

Invariants: a name on the server has a whole stream, or what it had before; what was carried already
is recognised: same last ID, length, entries added. Nodes, groups and pending lists go as they are
with RESTORE; else as ``pushing`` says, which is noted.
"""

from __future__ import annotations

from typing import Any

from logstore.api.dump import Peer
from logstore.api.opening import opened_of
from logstore.api.store import Store
from logstore.engine.dump import export as exports
from logstore.errors import (
    PeerError,
    StreamExistsError,
    StreamNotFoundError,
    TooLargeError,
    shown,
)
from logstore.rdb import dump
from logstore.rdb.value import StreamValue
from logstore.transfer.fileexport import expires_ms, names, spelt
from logstore.transfer.pushing import Pushing
from logstore.transfer.replies import UnexpectedReply, blob, count
from logstore.transfer.report import Progress, Report, unwatched
from logstore.transfer.selection import Wanted
from logstore.transfer.server import Server, checked
from logstore.transfer.serverimport import DUMP_MAX_BYTES


def export_server(
    store: Store[Any], server: Server, wanted: Wanted | None = None, *,
    dump_max_bytes: int = DUMP_MAX_BYTES, report: Report | None = None,
    progress: Progress = unwatched,
) -> Report:  # fmt: skip
    """Bring the streams that are wanted to a server; ``progress`` is told entries.

    Those with more than ``dump_max_bytes`` of nodes go by commands. PeerError, StreamExistsError.
    What was brought there before an error stays.
    """
    wanted = wanted or Wanted()
    report = Report() if report is None else report
    exporting = _Export(store, server, wanted, dump_max_bytes, report)
    found = names(store, wanted)
    done, total = 0, sum(len(store.stream(name)) for name in found)
    for name in found:
        length = len(store.stream(name))
        before = done
        exporting.bring(name, lambda entries, at=before: progress(min(at + entries, total), total))
        done += length
        progress(min(done, total), total)
    return report


class _Export:
    """A store's streams on their way out."""

    def __init__(
        self, store: Store[Any], server: Server, wanted: Wanted, dump_max_bytes: int,
        report: Report,
    ) -> None:  # fmt: skip
        self._store = store
        self._server = server
        self._wanted = wanted
        self._dump_max_bytes = dump_max_bytes
        self._report = report
        with server.reading("INFO"):
            told = blob(server.call("INFO", "server"))
        self._peer: Peer = "valkey" if b"valkey_version" in told else "redis"

    def bring(self, name: bytes, progress: Any) -> None:
        """Bring one stream there; nothing if it is gone by now."""
        engine = opened_of(self._store).engine()
        try:
            with exports.pinned(engine, name) as export:
                target = self._wanted.target(name)
                if not self._goes(target, export):
                    return
                expires = expires_ms(self._store, name)
                if export.node_bytes > self._dump_max_bytes:
                    self._report.note(
                        f"{name!r} went by XADD, since it has {export.node_bytes} bytes of nodes: "
                        "its nodes were made anew, its consumers were seen when they were made"
                    )
                    pushing = Pushing(self._server, self._report, progress)
                    nodes = export.nodes(engine)
                    pushing.bring(target, nodes, export.info, expires, replace=self._wanted.replace)
                else:
                    value = StreamValue(list(spelt(export.nodes(engine), self._peer)), export.info)
                    self._restore(target, value, expires)
        except StreamNotFoundError:
            return
        self._report.streams += 1
        self._report.entries += export.info.length

    def _goes(self, target: bytes, export: exports.Export) -> bool:
        """Whether it is to be brought there; StreamExistsError."""
        if self._wanted.replace:
            return True
        with self._server.reading("EXISTS", target):
            if not count(checked(self._server.attempt("EXISTS", target))):
                return True
        facts = self._server.info(target)
        info = export.info
        if facts is not None:
            added = info.entries_added if facts.entries_added is None else facts.entries_added
            if (facts.length, facts.last, added) == (info.length, info.last, info.entries_added):
                self._report.same += 1
                return False
        if self._wanted.policy == "skip":
            self._report.kept += 1
            return False
        raise StreamExistsError(
            "the server has another key of this name: skip it, replace it, or give a prefix",
            stream=target,
        )

    def _restore(self, target: bytes, value: StreamValue, expires: int | None) -> None:
        try:
            payload = dump.encode(value)
        except TooLargeError as exc:
            raise TooLargeError(exc.message, stream=target) from exc
        words: list[Any] = ["RESTORE", target, expires or 0, payload]
        if expires is not None:
            words.append("ABSTTL")
        if self._wanted.replace:
            words.append("REPLACE")
        reply = self._server.attempt(*words)
        if isinstance(reply, PeerError) and "BUSYKEY" in str(reply):
            raise StreamExistsError(
                "somebody else made the key on the server meanwhile: begin again", stream=target
            )
        with self._server.reading("RESTORE", target):
            if blob(checked(reply)) != b"OK":
                raise UnexpectedReply(shown(reply))
