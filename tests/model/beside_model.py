"""A store and its model, side by side: each operation is done on both, its answers compared.

``look`` compares all that is told. What depends on how entries lie in nodes is asked of the log as
it was before the operation.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logstore
from logstore.engine.commit import pipeline
from logstore.engine.runtime import pins
from logstore.engine.snapshots import snapshot
from logstore.format import segment_of
from logstore.recovery import compare
from logstore.recovery.check import check
from logstore.scan import split_plan
from tests.model import expected_info
from tests.model.groups import ID, Given, Group, Pairs
from tests.model.retention import Lies
from tests.model.store import StoreModel
from tests.model.walk import Keeping, Log
from tests.support import processes
from tests.support.inside import FixedClock, do_due_work, roll
from tests.support.watched_files import in_place

START_MS = 4_102_444_800_000  # in 2100: for a command, with the system's clock, nothing expired yet


class StoreAndModel:
    """One store in a directory of its own, and the model of it."""

    def __init__(self, folder: Path, node_bytes: int, node_entries: int) -> None:
        self.path = folder / "store"
        self.clock = FixedClock(START_MS)
        self.files = Keeping(folder / "gone")
        self.sizes = {"node_max_bytes": node_bytes, "node_max_entries": node_entries,
                      "segment_bytes": 1 << 16}  # fmt: skip
        self.store: Any = None
        self._open(**self.sizes)
        self.log = Log(self.path, self.files.graveyard)
        self.model = StoreModel(START_MS)
        self.done: Counter[str] = Counter()  # for the metrics: what the log tells
        self.compacted = (0, 0)
        self.pinned: dict[str, set[int]] = {}
        self.compared = expected_info.Compared()
        self.what: Counter[str] = Counter()
        self.rolled = 0
        self.store_counters: set[str] = set()

    # -- opening and closing ------------------------------------------------------------------
    def _open(self, **limits: int) -> None:
        with in_place(self.files):
            self.store = logstore.open(
                self.path, sync="os", background=False, clock=self.clock, **limits
            )

    def reopen(self, *, rebuild: bool, meanwhile: Callable[[], None] | None = None) -> None:
        """Close and open; ``meanwhile`` looks at the closed store, then the index may go."""
        self.store.close()
        self.follow()
        if meanwhile is not None:
            meanwhile()
        if rebuild:
            shutil.rmtree(self.path / "index")
        self._open()
        self.done.clear()
        self.model.counts.clear()
        self.rolled = 0
        self.compacted = 0, 0  # by its documentation it is told while the store is open
        self.follow()
        self.done.clear()
        self.what["rebuild" if rebuild else "reopen"] += 1

    def close(self) -> None:
        """At the end: also the check must be content."""
        if self.store is not None:
            self.store.close()
            self.store = None

    def checked(self) -> None:
        """The closed store is sound, and its index says what its log does."""
        found = check(self.path)
        assert found.damage == [], found.damage
        assert found.index == compare.AGREES

    # -- the log ------------------------------------------------------------------------------
    def follow(self, *, adding: bool = True, full: bool = True) -> None:
        """Read what was written to the log, and count it."""
        self.log.follow()
        tally = self.log.taken()
        self.done["commits"] += tally.commits
        self.done["operations"] += tally.commits
        self.done["commit_bytes"] += tally.commit_bytes
        self.done["added_bytes"] += tally.added_bytes if adding else 0
        self.done["rolls"] += tally.seals if full else 0
        self.done["checkpoints"] += 2 * tally.notes
        self.rolled += tally.seals
        for each in ("seals", "reopened", "tombstones", "joined"):
            self.what[each] += getattr(tally, each)
        self.what["adopted"] += len(tally.adopted)
        self.what["dropped"] += len(tally.dropped)
        size = self.log.file_bytes
        self.done["compaction_bytes"] += sum(map(size, tally.adopted))
        if tally.dropped:
            self.compacted = self.clock.ms, self.compacted[1] + sum(map(size, tally.dropped))

    def lies(self, name: bytes) -> list[Lies]:
        """A stream's nodes, as they lie now."""
        if name not in self.model.streams:
            return []
        of = self.log.named(name)
        found = [
            Lies(node.last, node.live, node.size_bytes, sealed=True)
            for _, node in sorted(of.nodes.items())
        ]
        if of.open:
            found.append(Lies(of.open.last, of.open.live, of.open.size_bytes, sealed=False))
        return found

    # -- what streams are asked ---------------------------------------------------------------
    def same(self, found: Any, wanted: Any, where: str) -> None:
        """An answer, which numbers are part of."""
        self.what[where] += 1
        self.follow()
        self.compared.same(found, wanted, where)

    def add(self, name: bytes, pairs: Pairs, step: int | None, max_entries: int | None) -> None:
        """One entry; with ``step`` its ID is given, so much above the last (100: in sequence)."""
        id: Any = "*"
        if step is not None:
            of = self.model.seen(name)
            last = of.last if of is not None else (0, 0)
            id = (last[0] + step, 0) if 0 < step < 100 else (last[0], last[1] + max(1, step))
        found = self.store.stream(name).add(
            list(pairs), id=id, max_entries=max_entries, approximate=False
        )
        wanted = self.model.add(name, pairs, None if id == "*" else id)
        if max_entries is not None:
            self.model.trim(name, max_entries, None)
        self.same(found, wanted, "add")

    def killed(self, name: bytes, pairs: Pairs) -> None:
        """Another process adds an entry, and is killed behind the append: the next one ends it."""
        self.follow()

        def add_and_die() -> None:
            pipeline._keep_promise = lambda *_: processes.die()
            self.store.stream(name).add(list(pairs))

        processes.killed(add_and_die)
        self.log.follow()
        self.log.taken()  # it is in the other one's metrics
        self.model.add(name, pairs)
        self.model.counts["added_entries"] -= 1
        self.add(name, pairs, None, None)
        self.what["killed"] += 1

    def add_many(self, name: bytes, rows: list[Pairs], batch: int) -> None:
        """Entries in batches."""
        found = self.store.stream(name).add_many([list(row) for row in rows], batch=batch)
        self.same(list(found), [self.model.add(name, row) for row in rows], "add_many")

    def add_once(self, name: bytes, pairs: Pairs, producer: bytes, iid: bytes) -> None:
        """An idempotent add."""
        found = self.store.stream(name).add(list(pairs), producer=producer, idempotent_id=iid)
        self.same(found, self.model.add_once(name, pairs, producer, iid), "add_once")

    def delete(self, name: bytes, ids: list[ID], references: str, *, each: bool) -> None:
        """By ID, counted or one by one."""
        stream = self.store.stream(name)
        wanted = self.model.delete(name, ids, references)
        if each:
            self.same(stream.delete_each(*ids, references=references), wanted, "delete_each")
        else:
            found = stream.delete(*ids, references=references)
            self.same(found, wanted.count(1), f"delete {references}")

    def delete_range(self, name: bytes, low: ID, high: ID) -> None:
        """By range."""
        found = self.store.stream(name).delete_range(low, high)
        self.same(found, self.model.delete_range(name, low, high), "delete_range")

    def trim(
        self, name: bytes, max_entries: int | None, min_id: ID | None, references: str,
        limit: int | None,
    ) -> None:  # fmt: skip
        """Exactly, or with a limit whole nodes."""
        stream = self.store.stream(name)
        if limit is None:
            wanted = self.model.trim(name, max_entries, min_id, references)
            found = stream.trim(
                max_entries=max_entries, min_id=min_id, references=references, approximate=False
            )
            self.same(found, wanted, f"trim {references}")
        else:
            wanted = self.model.trim_nodes(name, max_entries, min_id, limit, self.lies(name))
            found = stream.trim(
                max_entries=max_entries, min_id=min_id, approximate=True, limit=limit
            )
            self.same(found, wanted, "trim nodes")

    def set_id(self, name: bytes, last: ID, added: int | None, deleted: ID | None) -> None:
        """XSETID."""
        self.store.stream(name).set_id(last, entries_added=added, max_deleted_id=deleted)
        self.model.set_id(name, last, added, deleted)
        self.same(None, None, "set_id")

    # -- streams as a whole -------------------------------------------------------------------
    def whole(self, operation: str, *names: bytes, **how: Any) -> None:
        """Create, drop, rename or copy."""
        found = getattr(self.store, operation)(*names, **how)
        wanted = getattr(self.model, operation)(*names, **how)
        self.follow(adding=operation != "copy")
        self.same(found, wanted, operation)

    def expire(self, name: bytes, after: int | None) -> None:
        """At so many ms from now, or never."""
        stream = self.store.stream(name)
        if after is not None:
            at = self.clock.ms + after
            self.same(stream.expire(at=at), self.model.expire(name, at), "expire")
        else:
            self.same(stream.persist(), self.model.persist(name), "persist")

    def schedule(self, name: bytes, pairs: Pairs, after: int) -> None:
        """An entry for later."""
        key = self.store.stream(name).schedule(list(pairs), at=self.clock.ms + after)
        self.model.schedule(name, pairs, self.clock.ms + after, key.number)
        self.same(key.due_ms, self.clock.ms + after, "schedule")

    def cancel(self, name: bytes, place: int) -> None:
        """One of what is scheduled."""
        of = self.model.streams[name].scheduled
        waits = of.pop(place % len(of))
        key = f"{waits.due}-{waits.number}"
        self.same(self.store.stream(name).cancel(key), True, "cancel")

    def configure(self, name: bytes, **changes: Any) -> None:
        """Settings of a stream, by the names that the model has for them."""
        given = dict(changes)
        if given.get("max_age_ms") is not None:
            given["max_age_ms"] /= 1000
        for ours, theirs in (("max_age_ms", "max_age"),
                             ("idempotent_duration_s", "idempotent_duration")):  # fmt: skip
            if ours in given:
                given[theirs] = given.pop(ours)
        self.store.stream(name).configure(**given)
        self.model.configure(name, **changes)
        self.same(None, None, "configure")

    def tick(self, ms: int) -> None:
        """Time passes; nobody is awake."""
        self.clock.ms += ms
        self.model.now += ms

    def awake(self) -> None:
        """What is due is done."""
        do_due_work(self.store)
        self.model.wake()
        self.same(None, None, "wake")

    def retain(self) -> None:
        """What is not kept goes."""
        lies = {name: self.lies(name) for name in self.model.streams}
        self.same(self.store.retain(), self.model.retain(lies), "retain")

    # -- groups -------------------------------------------------------------------------------
    def group(
        self, name: bytes, group: bytes, operation: str, call: Callable[[Any], Any],
        model: Callable[[Group, Any], Any],
    ) -> None:  # fmt: skip
        """Do it with the group, which is there, and with its model."""
        of = self.model.streams[name]
        there = of.groups[group]
        letter = there.dead_letter
        there.takes_the_dead = letter is not None and self.model.seen(letter) is not of
        found = call(self.store.stream(name).group(group))
        wanted = model(there, of)
        self.model.settle(name, group)
        self.same(self._plain(found), self._plain(wanted), operation)

    def _plain(self, answer: Any) -> Any:
        if isinstance(answer, list) and answer and hasattr(answer[0], "delivery_count"):
            return [
                (each.id, None if each.deleted else tuple(each.pairs),
                 each.idle // expected_info.span(1), each.delivery_count)
                for each in answer
            ]  # fmt: skip
        if isinstance(answer, list) and answer and isinstance(answer[0], Given):
            return [tuple(each) for each in answer]
        if hasattr(answer, "cursor"):
            return [answer.cursor, self._plain(list(answer.entries)), list(answer.deleted)]
        if isinstance(answer, tuple):
            return [answer[0], self._plain(answer[1]), answer[2]]
        return answer

    # -- care ---------------------------------------------------------------------------------
    def compact(self, threshold: float, *, purge: bool) -> None:
        """Both levels, by call."""
        self.follow()
        report = self.store.compact(threshold=threshold, purge=purge)
        if purge:
            self.pinned.clear()  # an erasure ends all scans
        self.done["compactions"] += 1
        self.follow(full=False)
        live = self.log.live()
        held = {number for number in self._pins() if not live.get(number, (1, 1))[1]}
        self.compared.same(report.segments_pinned, len(held - {self.log.number}), "segments pinned")
        self.same(None, None, "purge" if purge else "compact")

    def checkpoint(self) -> None:
        """One."""
        self.done["checkpoints"] += self.store.checkpoint() > 0
        self.same(None, None, "checkpoint")

    def roll(self) -> None:
        """The active segment is sealed."""
        roll(self.store)
        self.follow(full=False)
        self.same(None, None, "roll")

    def sync(self) -> None:
        """All is durable then."""
        self.store.sync()
        self.same(self.store.durable_upto, self.log.end, "sync")

    def pin(self, name: bytes) -> None:
        """A scan begins."""
        made = split_plan.make(self.store._engine(), [name])
        self.same(made.entries, len(self.model.streams[name].entries), "scan")
        if made.pin_id:
            self.pinned[made.pin_id] = {
                segment_of(node.position)
                for node in self.log.named(name).nodes.values()
                if node.live
            }

    def unpin(self) -> None:
        """A scan ends."""
        engine = self.store._engine()
        id, _ = self.pinned.popitem()
        pins.release(engine.fs, self.path, id)
        self.same(None, None, "scan ends")

    def _pins(self) -> set[int]:
        engine = self.store._engine()
        return pins.pinned_segments(engine.fs, self.path, self.clock.ms)

    # -- looking ------------------------------------------------------------------------------
    def look(self, count: int = 0) -> None:
        """All that is told, of everything."""
        self.follow()
        same, model, now = self.compared.same, self.model, self.clock.ms
        info = self.store.info()
        wanted = expected_info.store(
            model, self.log, self.path, now, self.compacted, len(self.pinned)
        )
        same(info, wanted, "store")
        durable = (info.durable_segment, info.durable_offset)
        assert durable <= (info.applied_segment, info.applied_offset)
        rows = snapshot.read(self.store._engine(), lambda view: view.index.segment_rows())
        same({number: tuple(row) for number, row in rows.items()}, expected_info.segments(self.log),
             "segments")  # fmt: skip
        same(self._pins(), set().union(*self.pinned.values()), "pins")
        self.what["pinned segments"] += len(self._pins())
        same(self.store.streams(), model.names(), "streams")
        for name in model.names():
            self.look_at(name, count)
        self.look_at_counters()

    def look_at(self, name: bytes, count: int) -> None:
        """One stream."""
        same, of, now = self.compared.same, self.model.streams[name], self.clock.ms
        stream = self.store.stream(name)
        same(stream.info(), expected_info.stream(self.model, self.log, name), "stream")
        wanted = expected_info.full(self.model, self.log, name, count, now)
        same(stream.info_full(count), wanted, "full")
        found = [expected_info.entry(each) for each in stream.range()]
        self.model.counts["read_entries"] += len(found)
        assert found == list(of.entries.items())
        same(len(stream), len(found), "len")
        for one, (group, there) in zip(stream.groups(), sorted(of.groups.items()), strict=True):
            same(one, expected_info.group(group, there, of), "group")
            self.look_at_group(stream.group(group), there)

    def look_at_group(self, group: Any, of: Group) -> None:
        """One group."""
        now = self.clock.ms
        consumers = [
            expected_info.consumer(name, who, of, now) for name, who in sorted(of.consumers.items())
        ]
        self.compared.same(group.consumers(), consumers, "consumers")
        self.compared.same(group.pending(), expected_info.pending(of), "pending")
        held = [expected_info.held(id, each, now) for id, each in sorted(of.pending.items())]
        self.compared.same(list(group.pending_entries()), held, "pending entries")

    def look_at_counters(self) -> None:
        """The metrics."""
        found = self.store.metrics()
        assert set(expected_info.APART_COUNTERS) <= set(found)
        assert found["sync_s"] >= found["sync_s_max"] >= 0
        assert found["syncs"] >= self.rolled
        counted = {
            name: value for name, value in found.items() if name not in expected_info.APART_COUNTERS
        }
        self.store_counters = set(counted)
        wanted = {**expected_info.counters(self.model, self.done), "pins": len(self.pinned)}
        self.compared.same(counted, wanted, "metrics")
