"""The face that both sides have: the store through its engine, a server through its commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from logstore.ids import StreamID
from tests.groups.answers import Answer, Trim


@dataclass(frozen=True)
class Claim:
    """The options of XCLAIM."""

    min_idle_ms: int = 0
    idle_ms: int | None = None
    time_ms: int | None = None
    retry_count: int | None = None
    force: bool = False
    just_id: bool = False
    last_id: StreamID | None = None


class Side(Protocol):
    """Operations on streams, groups and consumers; a refusal is returned, not raised."""

    # -- streams
    def add(self, stream: bytes, id: StreamID, flat: Sequence[bytes], trim: Trim | None) -> Answer:
        """XADD with an explicit ID."""

    def delete(self, stream: bytes, ids: Sequence[StreamID]) -> Answer:
        """XDEL: how many."""

    def delete_ids(self, stream: bytes, ids: Sequence[StreamID], references: str) -> Answer:
        """XDELEX: an outcome each."""

    def trim(self, stream: bytes, rule: Trim) -> Answer:
        """XTRIM: how many."""

    def set_stream_id(
        self, stream: bytes, last: StreamID, added: int | None, deleted: StreamID | None
    ) -> Answer:
        """XSETID."""

    def drop(self, stream: bytes) -> Answer:
        """DEL: 1 or 0."""

    # -- groups and consumers
    def create(
        self, stream: bytes, group: bytes, start: StreamID | None, entries_read: int | None,
        make_stream: bool,
    ) -> Answer:  # fmt: skip
        """XGROUP CREATE; None for ``$``."""

    def set_id(
        self, stream: bytes, group: bytes, start: StreamID | None, entries_read: int | None
    ) -> Answer:
        """XGROUP SETID."""

    def destroy(self, stream: bytes, group: bytes) -> Answer:
        """XGROUP DESTROY: 1 or 0."""

    def create_consumer(self, stream: bytes, group: bytes, consumer: bytes) -> Answer:
        """XGROUP CREATECONSUMER: 1 or 0."""

    def delete_consumer(self, stream: bytes, group: bytes, consumer: bytes) -> Answer:
        """XGROUP DELCONSUMER: how many pending entries it had."""

    # -- deliveries
    def read_new(
        self, stream: bytes, group: bytes, consumer: bytes, count: int, noack: bool
    ) -> Answer:
        """XREADGROUP ``>``: entries."""

    def read_history(
        self, stream: bytes, group: bytes, consumer: bytes, after: StreamID, count: int
    ) -> Answer:
        """XREADGROUP of an ID: entries, without fields where they were deleted."""

    def ack(self, stream: bytes, group: bytes, ids: Sequence[StreamID]) -> Answer:
        """XACK: how many."""

    def ack_delete(
        self, stream: bytes, group: bytes, ids: Sequence[StreamID], references: str
    ) -> Answer:
        """XACKDEL: an outcome each."""

    def claim(
        self, stream: bytes, group: bytes, consumer: bytes, ids: Sequence[StreamID], how: Claim
    ) -> Answer:
        """XCLAIM: entries, or IDs with JUSTID."""

    def autoclaim(
        self, stream: bytes, group: bytes, consumer: bytes, min_idle_ms: int, start: StreamID,
        count: int, just_id: bool,
    ) -> Answer:  # fmt: skip
        """XAUTOCLAIM: cursor, entries or IDs, deleted IDs."""

    # -- looking
    def summary(self, stream: bytes, group: bytes) -> Answer:
        """XPENDING: count, first, last, rows of consumer and count."""

    def detail(
        self, stream: bytes, group: bytes, start: StreamID, end: StreamID, count: int,
        consumer: bytes | None, min_idle_ms: int,
    ) -> Answer:  # fmt: skip
        """XPENDING of a range: rows of ID, consumer, idle, count."""

    def groups(self, stream: bytes) -> Answer:
        """XINFO GROUPS."""

    def consumers(self, stream: bytes, group: bytes) -> Answer:
        """XINFO CONSUMERS: rows of name, pending, idle, inactive (None: never active)."""

    def info(self, stream: bytes) -> Answer:
        """XINFO STREAM, by name."""

    def full(self, stream: bytes, count: int) -> Answer:
        """XINFO STREAM FULL: head, entries, groups as dicts."""

    def nodes(self, stream: bytes) -> Answer:
        """The bytes of all nodes, and the stream's metadata; None if there is no stream."""

    # -- what only a store goes through; nothing on a server
    def restart(self, how: str) -> None:
        """Close and open, with what ``how`` says before and between."""

    def die(self, step: int, living: bool, operation: str, words: tuple[object, ...]) -> bool:
        """Do the operation in a process killed at the step; whether it happened nevertheless."""


class ServerSide:
    """What a server goes through where a store is closed, killed, and opened again."""

    def restart(self, how: str) -> None:
        """Nothing: servers stay."""

    def die(self, step: int, living: bool, operation: str, words: tuple[object, ...]) -> bool:
        """Nothing happened: the operation is still to be done."""
        return False
