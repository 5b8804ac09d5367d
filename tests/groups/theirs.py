"""A server as a side: the operations as its commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from logstore.ids import MAX_ID, StreamID
from tests.groups.answers import Answer, Group, Ms, Refused, Trim, entry_id
from tests.groups.side import Claim, ServerSide
from tests.peers.dump import parse_dump
from tests.peers.servers import Peer

REFERENCES = {"keep": "KEEPREF", "delete": "DELREF", "acked": "ACKED"}


def _entries(reply: Any) -> Answer:
    return tuple((entry_id(id), None if flat is None else tuple(flat)) for id, flat in reply)


def _ids(reply: Any) -> Answer:
    return tuple(map(entry_id, reply))


def _start(start: StreamID | None) -> Any:
    return "$" if start is None else bytes(start)


def _trim(rule: Trim) -> list[Any]:
    how = "~" if rule.approximate else "="
    words: list[Any] = (
        ["MAXLEN", how, rule.max_entries]
        if rule.min_id is None
        else ["MINID", how, bytes(rule.min_id)]
    )
    return words if rule.references == "keep" else [*words, REFERENCES[rule.references]]


def _row(reply: list[Any]) -> dict[bytes, Any]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _named(reply: list[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in _row(reply).items()}


def _full_group(reply: list[Any]) -> dict[str, Any]:
    row = _named(reply)
    row["last-delivered-id"] = entry_id(row["last-delivered-id"])
    row["pending"] = tuple(
        (entry_id(id), name, Ms(time), count) for id, name, time, count in row["pending"]
    )
    row["consumers"] = tuple(map(_full_consumer, row["consumers"]))
    return row


def _full_consumer(reply: list[Any]) -> dict[str, Any]:
    row = _named(reply)
    for name in ("seen-time", "active-time"):
        row[name] = None if row[name] < 0 else Ms(row[name])
    row["pending"] = tuple((entry_id(id), Ms(time), count) for id, time, count in row["pending"])
    return row


class Theirs(ServerSide):
    """One server."""

    def __init__(self, peer: Peer, node_bytes: int, node_entries: int) -> None:
        self.peer = peer
        peer.command("FLUSHALL")
        peer.command("CONFIG", "SET", "stream-node-max-bytes", node_bytes)
        peer.command("CONFIG", "SET", "stream-node-max-entries", node_entries)

    def _ask(self, *command: Any) -> Any:
        try:
            return self.peer.command(*command)
        except redis.ResponseError as error:
            return Refused(str(error))

    def add(self, stream: bytes, id: StreamID, flat: Sequence[bytes], trim: Trim | None) -> Answer:
        """XADD."""
        how: list[Any] = [] if trim is None else _trim(trim)
        if trim is not None and trim.references != "keep":  # the mode stands before the rule
            how = [how[-1], *how[:-1]]
        found = self._ask("XADD", stream, *how, bytes(id), *flat)
        return entry_id(found) if isinstance(found, bytes) else found

    def delete(self, stream: bytes, ids: Sequence[StreamID]) -> Answer:
        """XDEL."""
        return self._ask("XDEL", stream, *map(bytes, ids))

    def delete_ids(self, stream: bytes, ids: Sequence[StreamID], references: str) -> Answer:
        """XDELEX."""
        mode = REFERENCES[references]
        found = self._ask("XDELEX", stream, mode, "IDS", len(ids), *map(bytes, ids))
        return tuple(found) if isinstance(found, list) else found

    def trim(self, stream: bytes, rule: Trim) -> Answer:
        """XTRIM."""
        return self._ask("XTRIM", stream, *_trim(rule))

    def set_stream_id(
        self, stream: bytes, last: StreamID, added: int | None, deleted: StreamID | None
    ) -> Answer:
        """XSETID."""
        words: list[Any] = [] if added is None else ["ENTRIESADDED", added]
        words += [] if deleted is None else ["MAXDELETEDID", bytes(deleted)]
        return self._ask("XSETID", stream, bytes(last), *words)

    def drop(self, stream: bytes) -> Answer:
        """DEL."""
        return self._ask("DEL", stream)

    def create(
        self, stream: bytes, group: bytes, start: StreamID | None, entries_read: int | None,
        make_stream: bool,
    ) -> Answer:  # fmt: skip
        """XGROUP CREATE."""
        words: list[Any] = ["MKSTREAM"] if make_stream else []
        words += [] if entries_read is None else ["ENTRIESREAD", entries_read]
        return self._ask("XGROUP", "CREATE", stream, group, _start(start), *words)

    def set_id(
        self, stream: bytes, group: bytes, start: StreamID | None, entries_read: int | None
    ) -> Answer:
        """XGROUP SETID."""
        words = () if entries_read is None else ("ENTRIESREAD", entries_read)
        return self._ask("XGROUP", "SETID", stream, group, _start(start), *words)

    def destroy(self, stream: bytes, group: bytes) -> Answer:
        """XGROUP DESTROY."""
        return self._ask("XGROUP", "DESTROY", stream, group)

    def create_consumer(self, stream: bytes, group: bytes, consumer: bytes) -> Answer:
        """XGROUP CREATECONSUMER."""
        return self._ask("XGROUP", "CREATECONSUMER", stream, group, consumer)

    def delete_consumer(self, stream: bytes, group: bytes, consumer: bytes) -> Answer:
        """XGROUP DELCONSUMER."""
        return self._ask("XGROUP", "DELCONSUMER", stream, group, consumer)

    def _read(
        self, stream: bytes, group: bytes, consumer: bytes, count: int, how: tuple[str, ...],
        after: str | bytes,
    ) -> Answer:  # fmt: skip
        limit = ("COUNT", count) if count else ()
        found = self._ask(
            "XREADGROUP", "GROUP", group, consumer, *limit, *how, "STREAMS", stream, after
        )
        if isinstance(found, Refused):
            return found
        return _entries(found[0][1]) if found else ()

    def read_new(
        self, stream: bytes, group: bytes, consumer: bytes, count: int, noack: bool
    ) -> Answer:
        """XREADGROUP."""
        return self._read(stream, group, consumer, count, ("NOACK",) if noack else (), ">")

    def read_history(
        self, stream: bytes, group: bytes, consumer: bytes, after: StreamID, count: int
    ) -> Answer:
        """XREADGROUP."""
        return self._read(stream, group, consumer, count, (), bytes(after))

    def ack(self, stream: bytes, group: bytes, ids: Sequence[StreamID]) -> Answer:
        """XACK."""
        return self._ask("XACK", stream, group, *map(bytes, ids))

    def ack_delete(
        self, stream: bytes, group: bytes, ids: Sequence[StreamID], references: str
    ) -> Answer:
        """XACKDEL."""
        mode = REFERENCES[references]
        found = self._ask("XACKDEL", stream, group, mode, "IDS", len(ids), *map(bytes, ids))
        return tuple(found) if isinstance(found, list) else found

    def claim(
        self, stream: bytes, group: bytes, consumer: bytes, ids: Sequence[StreamID], how: Claim
    ) -> Answer:
        """XCLAIM."""
        words: list[Any] = []
        for name, value in (
            ("IDLE", how.idle_ms), ("TIME", how.time_ms), ("RETRYCOUNT", how.retry_count),
            ("LASTID", None if how.last_id is None else bytes(how.last_id)),
        ):  # fmt: skip
            words += [] if value is None else [name, value]
        words += ["FORCE"] * how.force + ["JUSTID"] * how.just_id
        found = self._ask(
            "XCLAIM", stream, group, consumer, how.min_idle_ms, *map(bytes, ids), *words
        )
        if isinstance(found, Refused):
            return found
        return _ids(found) if how.just_id else _entries(found)

    def autoclaim(
        self, stream: bytes, group: bytes, consumer: bytes, min_idle_ms: int, start: StreamID,
        count: int, just_id: bool,
    ) -> Answer:  # fmt: skip
        """XAUTOCLAIM."""
        found = self._ask(
            "XAUTOCLAIM", stream, group, consumer, min_idle_ms, bytes(start), "COUNT", count,
            *["JUSTID"] * just_id,
        )  # fmt: skip
        if isinstance(found, Refused):
            return found
        cursor, entries, deleted = found
        return entry_id(cursor), _ids(entries) if just_id else _entries(entries), _ids(deleted)

    def summary(self, stream: bytes, group: bytes) -> Answer:
        """XPENDING."""
        found = self._ask("XPENDING", stream, group)
        if isinstance(found, Refused):
            return found
        count, first, last, rows = found
        ends = [None if id is None else entry_id(id) for id in (first, last)]
        return count, *ends, tuple((name, int(each)) for name, each in rows or ())

    def detail(
        self, stream: bytes, group: bytes, start: StreamID, end: StreamID, count: int,
        consumer: bytes | None, min_idle_ms: int,
    ) -> Answer:  # fmt: skip
        """XPENDING."""
        idle = ("IDLE", min_idle_ms) if min_idle_ms else ()
        of = () if consumer is None else (consumer,)
        high = b"+" if end == MAX_ID else bytes(end)
        found = self._ask("XPENDING", stream, group, *idle, bytes(start), high, count, *of)
        if isinstance(found, Refused):
            return found
        return tuple((entry_id(id), name, Ms(idle), times) for id, name, idle, times in found)

    def groups(self, stream: bytes) -> Answer:
        """XINFO GROUPS."""
        found = self._ask("XINFO", "GROUPS", stream)
        if isinstance(found, Refused):
            return found
        rows = [list(_row(row).values()) for row in found]
        return tuple(
            Group(row[0], row[1], row[2], entry_id(row[3]), row[4], row[5]) for row in rows
        )

    def consumers(self, stream: bytes, group: bytes) -> Answer:
        """XINFO CONSUMERS."""
        found = self._ask("XINFO", "CONSUMERS", stream, group)
        if isinstance(found, Refused):
            return found
        rows = [list(_row(row).values()) for row in found]
        return tuple(
            (name, pending, Ms(idle), None if inactive < 0 else Ms(inactive))
            for name, pending, idle, inactive in rows
        )

    def info(self, stream: bytes) -> Answer:
        """XINFO STREAM."""
        found = self._ask("XINFO", "STREAM", stream)
        if isinstance(found, Refused):
            return found
        row = {name.decode(): value for name, value in _row(found).items()}
        for name in ("last-generated-id", "max-deleted-entry-id", "recorded-first-entry-id"):
            row[name] = entry_id(row[name])
        for name in ("first-entry", "last-entry"):
            row[name] = None if row[name] is None else _entries([row[name]])[0]
        return row

    def full(self, stream: bytes, count: int) -> Answer:
        """XINFO STREAM FULL."""
        found = self._ask("XINFO", "STREAM", stream, "FULL", "COUNT", count)
        if isinstance(found, Refused):
            return found
        row = _named(found)
        for name in ("last-generated-id", "max-deleted-entry-id", "recorded-first-entry-id"):
            row[name] = entry_id(row[name])
        row["entries"] = _entries(row["entries"])
        row["groups"] = tuple(map(_full_group, row["groups"]))
        return row

    def nodes(self, stream: bytes) -> Answer:
        """DUMP."""
        found = self._ask("DUMP", stream)
        if found is None:
            return None
        nodes, metadata = parse_dump(found)
        return tuple(nodes), tuple(metadata[:5])
