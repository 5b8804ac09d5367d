"""The store as a side: the engine's decisions, called as the faces call them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import logstore
from logstore.api import arguments
from logstore.api.store import Store
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import ack, admin, claim, deliver, group_rows
from logstore.engine.groups.deliver import Delivered
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.streams import add, lifecycle, removal
from logstore.engine.streams import removal as trims
from logstore.errors import (
    GroupExistsError,
    GroupNotFoundError,
    StreamNotFoundError,
    UsageError,
)
from logstore.ids import StreamID, parse_id
from tests.crash import steps
from tests.crash.steps import CommitStep
from tests.groups.answers import Answer, Group, Ms, Refused, Trim
from tests.groups.side import Claim
from tests.store.whole_store import stream_nodes
from tests.support.inside import delete_index, engine_of
from tests.support.processes import Forked

REFUSALS = (UsageError, StreamNotFoundError, GroupNotFoundError, GroupExistsError)
DEATHS = (
    CommitStep.HALF_APPENDED,
    CommitStep.APPENDED,
    CommitStep.INDEXING,
    CommitStep.INDEXED,
    CommitStep.PUBLISHED,
)
NOT_KILLED = 7
FULL_NAMES = {
    "length", "radix-tree-keys", "radix-tree-nodes", "last-generated-id", "max-deleted-entry-id",
    "entries-added", "recorded-first-entry-id", "entries", "groups",
}  # fmt: skip


def _entries(found: Sequence[Delivered]) -> Answer:
    return tuple(
        (each.id, None if each.items is None else tuple(map(bytes, each.items))) for each in found
    )


def _ids(found: Sequence[Delivered]) -> Answer:
    return tuple(each.id for each in found)


def _rule(trim: Trim) -> trims.TrimRule:
    rule = trims.TrimRule(trim.max_entries, trim.min_id, trim.approximate)
    if trim.references != "keep":
        return rule._replace(references=trim.references)
    return rule


def _full_group(group: logstore.FullGroupInfo[bytes]) -> Answer:
    row = group.as_dict()
    assert row.pop("nacked-count") == group.nacked == 0
    del row["settings"]
    row["name"], row["last-delivered-id"] = group.name, group.last_delivered_id
    row["pending"] = tuple(
        (each.id, each.consumer, Ms(each.delivered_ms or 0), each.delivery_count)
        for each in group.pending_entries
    )
    row["consumers"] = tuple(map(_full_consumer, group.consumer_infos))
    return row


def _full_consumer(consumer: logstore.FullConsumerInfo[bytes]) -> Answer:
    row = consumer.as_dict()
    row["name"], row["seen-time"] = consumer.name, Ms(consumer.seen_ms)
    row["active-time"] = None if consumer.active_ms is None else Ms(consumer.active_ms)
    row["pending"] = tuple(
        (each.id, Ms(each.delivered_ms or 0), each.delivery_count)
        for each in consumer.pending_entries
    )
    return row


class Ours:
    """One store, opened and closed and opened again."""

    def __init__(self, path: Path, node_bytes: int, node_entries: int) -> None:
        self.path = path
        self.store: Store[bytes] = logstore.open(
            path, sync="os", background=False, node_max_bytes=node_bytes,
            node_max_entries=node_entries,
        )  # fmt: skip

    def _open(self) -> None:
        self.store = logstore.open(self.path, sync="os", background=False)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    @staticmethod
    def _guarded(call: Callable[[], Answer]) -> Answer:
        try:
            return call()
        except REFUSALS as error:
            return Refused(error.message)

    def _commit(
        self, op: Callable[[WriteTxn], Any], turn: Callable[[Any], Answer] | None = None
    ) -> Answer:
        def call() -> Answer:
            found = self.store._opened.commit(op, None)
            return found if turn is None else turn(found)

        return self._guarded(call)

    def _look(self, batch: Callable[[Snapshot], Answer]) -> Answer:
        return self._guarded(lambda: snapshot.read(engine_of(self.store), batch))

    def _now_ms(self) -> int:
        return engine_of(self.store).clock.now_ms()

    # -- streams ------------------------------------------------------------------------------
    def add(self, stream: bytes, id: StreamID, flat: Sequence[bytes], trim: Trim | None) -> Answer:
        """As XADD."""
        rule = None if trim is None else _rule(trim)
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        request = add.Add(stream, arguments.rows([pairs], None), 0, 1, id, True, rule)
        return self._commit(lambda state: add.add(state, request), lambda added: added.first)

    def delete(self, stream: bytes, ids: Sequence[StreamID]) -> Answer:
        """As XDEL."""
        return self._commit(lambda state: removal.delete(state, stream, ids))

    def delete_ids(self, stream: bytes, ids: Sequence[StreamID], references_: str) -> Answer:
        """As XDELEX."""
        return self._commit(
            lambda state: removal.delete_ids(state, stream, ids, references_), tuple
        )

    def trim(self, stream: bytes, rule: Trim) -> Answer:
        """As XTRIM."""
        return self._commit(lambda state: trims.trim_named(state, stream, _rule(rule)))

    def set_stream_id(
        self, stream: bytes, last: StreamID, added: int | None, deleted: StreamID | None
    ) -> Answer:
        """As XSETID."""
        return self._commit(
            lambda state: lifecycle.set_id(state, stream, last, added, deleted), lambda _: b"OK"
        )

    def drop(self, stream: bytes) -> Answer:
        """As DEL."""
        return self._commit(lambda state: lifecycle.drop(state, stream), int)

    # -- groups and consumers -----------------------------------------------------------------
    def create(
        self, stream: bytes, group: bytes, start: StreamID | None, entries_read: int | None,
        make_stream: bool,
    ) -> Answer:  # fmt: skip
        """As XGROUP CREATE."""
        return self._commit(
            lambda state: admin.create(
                state, stream, group, start, entries_read=entries_read, make_stream=make_stream
            ),
            lambda _: b"OK",
        )

    def set_id(
        self, stream: bytes, group: bytes, start: StreamID | None, entries_read: int | None
    ) -> Answer:
        """As XGROUP SETID."""
        return self._commit(
            lambda state: admin.set_id(state, stream, group, start, entries_read), lambda _: b"OK"
        )

    def destroy(self, stream: bytes, group: bytes) -> Answer:
        """As XGROUP DESTROY."""
        return self._commit(lambda state: admin.destroy(state, stream, group), int)

    def create_consumer(self, stream: bytes, group: bytes, consumer: bytes) -> Answer:
        """As XGROUP CREATECONSUMER."""
        return self._commit(
            lambda state: admin.create_consumer(state, stream, group, consumer), int
        )

    def delete_consumer(self, stream: bytes, group: bytes, consumer: bytes) -> Answer:
        """As XGROUP DELCONSUMER."""
        return self._commit(lambda state: admin.delete_consumer(state, stream, group, consumer))

    # -- deliveries ---------------------------------------------------------------------------
    def read_new(
        self, stream: bytes, group: bytes, consumer: bytes, count: int, noack: bool
    ) -> Answer:
        """As XREADGROUP of ``>``."""
        return self._commit(
            lambda state: deliver.read_new(
                state, stream, group, consumer, count=count, noack=noack
            ),
            _entries,
        )

    def read_history(
        self, stream: bytes, group: bytes, consumer: bytes, after: StreamID, count: int
    ) -> Answer:
        """As XREADGROUP of an ID."""
        return self._commit(
            lambda state: deliver.read_history(state, stream, group, consumer, after, count=count),
            _entries,
        )

    def ack(self, stream: bytes, group: bytes, ids: Sequence[StreamID]) -> Answer:
        """As XACK."""
        return self._commit(lambda state: ack.ack(state, stream, group, ids))

    def ack_delete(
        self, stream: bytes, group: bytes, ids: Sequence[StreamID], references_: str
    ) -> Answer:
        """As XACKDEL."""
        return self._commit(
            lambda state: ack.ack_delete(state, stream, group, ids, references_), tuple
        )

    def claim(
        self, stream: bytes, group: bytes, consumer: bytes, ids: Sequence[StreamID], how: Claim
    ) -> Answer:
        """As XCLAIM."""
        return self._commit(
            lambda state: claim.claim(
                state, stream, group, consumer, ids, min_idle_ms=how.min_idle_ms,
                idle_ms=how.idle_ms, time_ms=how.time_ms, retry_count=how.retry_count,
                force=how.force, just_id=how.just_id, last_id=how.last_id,
            ),
            _ids if how.just_id else _entries,
        )  # fmt: skip

    def autoclaim(
        self, stream: bytes, group: bytes, consumer: bytes, min_idle_ms: int, start: StreamID,
        count: int, just_id: bool,
    ) -> Answer:  # fmt: skip
        """As XAUTOCLAIM."""

        def turn(found: claim.Autoclaimed) -> Answer:
            entries = _ids(found.entries) if just_id else _entries(found.entries)
            return found.cursor, entries, tuple(found.deleted)

        return self._commit(
            lambda state: claim.autoclaim(
                state, stream, group, consumer, min_idle_ms=min_idle_ms, start=start, count=count,
                just_id=just_id,
            ),
            turn,
        )  # fmt: skip

    # -- looking ------------------------------------------------------------------------------
    def summary(self, stream: bytes, group: bytes) -> Answer:
        """As XPENDING."""

        def batch(view: Snapshot) -> Answer:
            found = group_rows.summary(view, stream, group)
            return found.count, found.first, found.last, tuple(found.consumers)

        return self._look(batch)

    def detail(
        self, stream: bytes, group: bytes, start: StreamID, end: StreamID, count: int,
        consumer: bytes | None, min_idle_ms: int,
    ) -> Answer:  # fmt: skip
        """As XPENDING of a range."""

        def batch(view: Snapshot) -> Answer:
            asked = group_rows.PendingRange(
                start, end, count, self._now_ms(), consumer, min_idle_ms
            )
            rows = group_rows.detail(view, stream, group, asked)
            return tuple((row.id, row.consumer, Ms(row.idle_ms), row.count) for row in rows)

        return self._look(batch)

    def groups(self, stream: bytes) -> Answer:
        """As XINFO GROUPS."""

        def batch(view: Snapshot) -> Answer:
            return tuple(Group(*row[:6]) for row in group_rows.group_rows(view, stream))

        return self._look(batch)

    def consumers(self, stream: bytes, group: bytes) -> Answer:
        """As XINFO CONSUMERS; what the store adds, the moments, must fit to the durations."""

        def batch(view: Snapshot) -> Answer:
            now_ms = self._now_ms()
            rows = group_rows.consumer_rows(view, stream, group, now_ms)
            for row in rows:
                assert row.idle_ms == max(0, now_ms - row.seen_ms)
                assert row.inactive_ms == (max(0, now_ms - row.active_ms) if row.active_ms >= 0
                                           else -1)  # fmt: skip
            return tuple(
                (row.name, row.pending, Ms(row.idle_ms),
                 None if row.inactive_ms < 0 else Ms(row.inactive_ms))
                for row in rows
            )  # fmt: skip

        return self._look(batch)

    def info(self, stream: bytes) -> Answer:
        """As XINFO STREAM."""

        def call() -> Answer:
            info = self.store.stream(stream).info()
            ends = [
                None if entry is None
                else (entry.id, tuple(part for pair in entry.pairs for part in pair))
                for entry in (info.first_entry, info.last_entry)
            ]  # fmt: skip
            return {
                "length": info.length,
                "radix-tree-keys": info.radix_tree_keys,
                "radix-tree-nodes": info.radix_tree_nodes,
                "last-generated-id": info.last_generated_id,
                "max-deleted-entry-id": info.max_deleted_entry_id,
                "entries-added": info.entries_added,
                "recorded-first-entry-id": info.recorded_first_entry_id,
                "groups": info.groups,
                "first-entry": ends[0],
                "last-entry": ends[1],
            }

        return self._guarded(call)

    def full(self, stream: bytes, count: int) -> Answer:
        """As XINFO STREAM FULL, by its names; what only the store tells is left out."""

        def call() -> Answer:
            found = self.store.stream(stream).info_full(count)
            told = found.as_dict()
            row = {name: told[name] for name in told if name in FULL_NAMES}
            for name in ("last-generated-id", "max-deleted-entry-id", "recorded-first-entry-id"):
                row[name] = parse_id(row[name])
            row["entries"] = tuple(
                (entry.id, tuple(part for pair in entry.pairs for part in pair))
                for entry in found.entries
            )
            row["groups"] = tuple(map(_full_group, found.group_infos))
            return row

        return self._guarded(call)

    def nodes(self, stream: bytes) -> Answer:
        """Nodes as a server would hold them, and the metadata."""
        if stream not in self.store:
            return None
        info = self.store.stream(stream).info()
        metadata = (
            info.length, tuple(info.last_generated_id), tuple(info.recorded_first_entry_id),
            tuple(info.max_deleted_entry_id), info.entries_added,
        )  # fmt: skip
        return tuple(stream_nodes(self.store, stream)), metadata

    # -- what a store goes through ------------------------------------------------------------
    def restart(self, how: str) -> None:
        """Close and open; with a checkpoint before, with the index deleted between."""
        if "checkpoint" in how:
            self.store.checkpoint()
        self.store.close()
        if "rebuild" in how:
            delete_index(self.path)
        self._open()

    def die(self, step: int, living: bool, operation: str, words: tuple[object, ...]) -> bool:
        """The operation in another process; ``living``: while this one has the store open."""
        target = DEATHS[step]
        if not living:
            self.store.close()
        code = Forked(lambda: self._die_at(target, operation, words)).exit_code()
        if not living:
            self._open()
        # Readers wait for a writer to finish it.
        self.store._opened.commit(lambda state: None, None)
        if code < 0:
            assert code == -signal.SIGKILL
            return target != CommitStep.HALF_APPENDED
        assert code == NOT_KILLED, f"{operation} failed in another process"
        return False

    def _die_at(self, target: CommitStep, operation: str, words: tuple[object, ...]) -> None:
        watch = steps.watch(self.path.with_name("step"), 0, CommitStep.OUTSIDE)
        self._open()
        watch.die_at(target)
        getattr(self, operation)(*words)
        os._exit(NOT_KILLED)
