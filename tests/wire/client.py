"""redis-py as a side of the machine: the operations as methods of a client object.

Any client will do, so that one that is embedded and one that talks to a server are asked alike, and
what redis-py makes of the replies is compared. Calls go alone, in a pipeline, or in a transaction,
in turn. Answers are as the client gives them, but IDs are parsed and times are marked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis

from logstore.ids import MAX_ID, StreamID
from tests.groups.answers import Answer, Group, Ms, Refused, Trim, entry_id
from tests.groups.side import Claim, ServerSide
from tests.groups.theirs import REFERENCES
from tests.peers.dump import parse_dump

TIMES = ("idle", "inactive", "seen-time", "active-time", "time_since_delivered")
Call = Callable[[Any], Any]


def _id(id: StreamID | None) -> bytes | None:
    return None if id is None else bytes(id)


def _policy(references: str) -> Any:
    return REFERENCES[references]


def _trim(rule: Trim) -> dict[str, Any]:
    words: dict[str, Any] = {"maxlen": rule.max_entries, "minid": _id(rule.min_id)}
    words["approximate"] = rule.approximate
    words["ref_policy"] = None if rule.references == "keep" else _policy(rule.references)
    return words


def plain(found: Any) -> Answer:
    """What a client gave, in a form that can be compared."""
    if isinstance(found, redis.RedisError):
        return Refused(str(found))
    if isinstance(found, dict):
        named = {key if isinstance(key, str) else key.decode(): plain(each)
                 for key, each in found.items()}  # fmt: skip
        for key in TIMES:
            if isinstance(named.get(key), int) and named[key] >= 0:
                named[key] = Ms(named[key])
        return named
    if isinstance(found, list | tuple):
        return tuple(map(plain, found))
    return found


def _moments(rows: Answer, place: int) -> Answer:
    """Rows of a PEL in XINFO STREAM FULL with their times marked."""
    return tuple((*row[:place], Ms(row[place]), *row[place + 1 :]) for row in rows)


class Client(ServerSide):
    """One client object."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._turn = 0

    def _ask(self, call: Call, *, alone: bool = False) -> Answer:
        """Ask alone, or between two others in a pipeline, or in a transaction."""
        self._turn += 1
        turn = 0 if alone else self._turn % 3
        try:
            if not turn:
                return plain(call(self.client))
            with self.client.pipeline(transaction=turn == 2) as pipe:
                pipe.ping()
                call(pipe)
                pipe.exists("s")
                return plain(pipe.execute(raise_on_error=False))[1]
        except redis.RedisError as error:
            return Refused(str(error))

    # -- streams ------------------------------------------------------------------------------
    def add(self, stream: bytes, id: StreamID, flat: Sequence[bytes], trim: Trim | None) -> Answer:
        """As XADD."""
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        how = {} if trim is None else _trim(trim)
        found = self._ask(lambda on: on.xadd(stream, fields, id=bytes(id), **how))
        return entry_id(found) if isinstance(found, bytes) else found

    def delete(self, stream: bytes, ids: Sequence[StreamID]) -> Answer:
        """As XDEL."""
        return self._ask(lambda on: on.xdel(stream, *map(bytes, ids)))

    def delete_ids(self, stream: bytes, ids: Sequence[StreamID], references: str) -> Answer:
        """As XDELEX."""
        policy = _policy(references)
        return self._ask(lambda on: on.xdelex(stream, *map(bytes, ids), ref_policy=policy))

    def trim(self, stream: bytes, rule: Trim) -> Answer:
        """As XTRIM."""
        return self._ask(lambda on: on.xtrim(stream, **_trim(rule)))

    def set_stream_id(
        self, stream: bytes, last: StreamID, added: int | None, deleted: StreamID | None
    ) -> Answer:
        """As XSETID, which redis-py has no method for."""
        words: list[Any] = [] if added is None else ["ENTRIESADDED", added]
        words += [] if deleted is None else ["MAXDELETEDID", bytes(deleted)]
        return self._ask(lambda on: on.execute_command("XSETID", stream, bytes(last), *words))

    def drop(self, stream: bytes) -> Answer:
        """As DEL."""
        return self._ask(lambda on: on.delete(stream))

    # -- groups and consumers -----------------------------------------------------------------
    def create(
        self, stream: bytes, group: bytes, start: StreamID | None, entries_read: int | None,
        make_stream: bool,
    ) -> Answer:  # fmt: skip
        """As XGROUP CREATE."""
        return self._ask(lambda on: on.xgroup_create(
            stream, group, _id(start) or "$", mkstream=make_stream, entries_read=entries_read
        ))  # fmt: skip

    def set_id(
        self, stream: bytes, group: bytes, start: StreamID | None, entries_read: int | None
    ) -> Answer:
        """As XGROUP SETID."""
        return self._ask(lambda on: on.xgroup_setid(
            stream, group, _id(start) or "$", entries_read=entries_read
        ))  # fmt: skip

    def destroy(self, stream: bytes, group: bytes) -> Answer:
        """As XGROUP DESTROY."""
        return self._ask(lambda on: on.xgroup_destroy(stream, group))

    def create_consumer(self, stream: bytes, group: bytes, consumer: bytes) -> Answer:
        """As XGROUP CREATECONSUMER."""
        return self._ask(lambda on: on.xgroup_createconsumer(stream, group, consumer))

    def delete_consumer(self, stream: bytes, group: bytes, consumer: bytes) -> Answer:
        """As XGROUP DELCONSUMER."""
        return self._ask(lambda on: on.xgroup_delconsumer(stream, group, consumer))

    # -- deliveries ---------------------------------------------------------------------------
    def read_new(
        self, stream: bytes, group: bytes, consumer: bytes, count: int, noack: bool
    ) -> Answer:
        """As XREADGROUP of ``>``; those of one entry block, for a moment."""
        return self._ask(lambda on: on.xreadgroup(
            group, consumer, {stream: ">"}, count=count or None, noack=noack,
            block=1 if count == 1 else None,
        ))  # fmt: skip

    def read_history(
        self, stream: bytes, group: bytes, consumer: bytes, after: StreamID, count: int
    ) -> Answer:
        """As XREADGROUP of an ID."""
        return self._ask(lambda on: on.xreadgroup(
            group, consumer, {stream: bytes(after)}, count=count or None
        ))  # fmt: skip

    def ack(self, stream: bytes, group: bytes, ids: Sequence[StreamID]) -> Answer:
        """As XACK."""
        return self._ask(lambda on: on.xack(stream, group, *map(bytes, ids)))

    def ack_delete(
        self, stream: bytes, group: bytes, ids: Sequence[StreamID], references: str
    ) -> Answer:
        """As XACKDEL."""
        policy = _policy(references)
        return self._ask(lambda on: on.xackdel(stream, group, *map(bytes, ids), ref_policy=policy))

    def claim(
        self, stream: bytes, group: bytes, consumer: bytes, ids: Sequence[StreamID], how: Claim
    ) -> Answer:
        """As XCLAIM; redis-py does not know LASTID, so that is asked for by words."""
        if how.last_id is not None:
            words = ["FORCE"] * how.force + ["JUSTID"] * how.just_id
            return self._ask(lambda on: on.execute_command(
                "XCLAIM", stream, group, consumer, how.min_idle_ms, *map(bytes, ids), *words,
                "LASTID", _id(how.last_id), parse_justid=how.just_id,
            ))  # fmt: skip
        return self._ask(lambda on: on.xclaim(
            stream, group, consumer, how.min_idle_ms, list(map(bytes, ids)), idle=how.idle_ms,
            time=how.time_ms, retrycount=how.retry_count, force=how.force, justid=how.just_id,
        ))  # fmt: skip

    def autoclaim(
        self, stream: bytes, group: bytes, consumer: bytes, min_idle_ms: int, start: StreamID,
        count: int, just_id: bool,
    ) -> Answer:  # fmt: skip
        """As XAUTOCLAIM."""
        return self._ask(lambda on: on.xautoclaim(
            stream, group, consumer, min_idle_ms, bytes(start), count=count, justid=just_id
        ))  # fmt: skip

    # -- looking ------------------------------------------------------------------------------
    def summary(self, stream: bytes, group: bytes) -> Answer:
        """As XPENDING."""
        return self._ask(lambda on: on.xpending(stream, group))

    def detail(
        self, stream: bytes, group: bytes, start: StreamID, end: StreamID, count: int,
        consumer: bytes | None, min_idle_ms: int,
    ) -> Answer:  # fmt: skip
        """As XPENDING of a range."""
        high = b"+" if end == MAX_ID else bytes(end)
        return self._ask(lambda on: on.xpending_range(
            stream, group, bytes(start), high, count, consumername=consumer,
            idle=min_idle_ms or None,
        ))  # fmt: skip

    def groups(self, stream: bytes) -> Answer:
        """As XINFO GROUPS."""
        found = self._ask(lambda on: on.xinfo_groups(stream))
        if isinstance(found, Refused):
            return found
        rows = [list(row.values()) for row in found]
        return tuple(Group(*row[:3], entry_id(row[3]), *row[4:]) for row in rows)

    def consumers(self, stream: bytes, group: bytes) -> Answer:
        """As XINFO CONSUMERS."""
        return self._ask(lambda on: on.xinfo_consumers(stream, group))

    def info(self, stream: bytes) -> Answer:
        """As XINFO STREAM."""
        found = self._ask(lambda on: on.xinfo_stream(stream))
        return found if isinstance(found, Refused) else _with_ids(found)

    def full(self, stream: bytes, count: int) -> Answer:
        """As XINFO STREAM FULL; redis-py does not know its COUNT."""
        found = self._ask(lambda on: on.xinfo_stream(stream, full=True))
        if isinstance(found, Refused):
            return found
        for group in found["groups"]:
            group["pending"] = _moments(group["pending"], 2)
            for consumer in group["consumers"]:
                consumer["pending"] = _moments(consumer["pending"], 1)
        return _with_ids(found)

    def nodes(self, stream: bytes) -> Answer:
        """As DUMP."""
        found = self._ask(lambda on: on.dump(stream), alone=True)
        if found is None:
            return None
        nodes, metadata = parse_dump(found)
        return tuple(nodes), tuple(metadata[:5])


def _with_ids(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("last-generated-id", "max-deleted-entry-id", "recorded-first-entry-id"):
        row[name] = entry_id(row[name])
    return row
