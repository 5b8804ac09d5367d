"""The machine: random operations on a store and its model."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.model.beside_model import StoreAndModel
from tests.model.commands import look_at_commands
from tests.model.groups import ID, ZERO, Group, Pairs

NAMES = (b"a", b"b", b"c", b"odd\xff")
GROUPS = (b"g", b"h")
CONSUMERS = (b"alice", b"bob")
LOOK_EVERY = 3  # steps
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # numbers need no disk

names = st.sampled_from([b"a", b"a", b"a", b"b", b"b", b"c", b"odd\xff"])
groups = st.sampled_from([b"g", b"g", b"h"])
consumers = st.sampled_from(CONSUMERS)
places = st.integers(0, 40)  # of an entry, counted from the newest
several = st.lists(places, min_size=1, max_size=8, unique=True)
references = st.sampled_from(["keep", "keep", "delete", "acked"])
sizes = st.sampled_from([1, 1, 5, 5, 30, 300, 3000, 9000])
steps = st.sampled_from([None, None, None, 0, 1, 7, 300, 70_000])
counts = st.sampled_from([0, 1, 2, 3, 10])
idles = st.sampled_from([0, 0, 20, 500])
seldom = st.integers(0, 3)


class Machine(RuleBasedStateMachine):
    """One store and its model."""

    done: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="logstore-model-", dir=MEMORY))
        self.both: Any = None
        self.steps = 0
        self.texts = 0
        self.failed = True

    @initialize(limits=st.sampled_from([(4096, 100), (4096, 5), (600, 100), (0, 3)]))
    def start(self, limits: tuple[int, int]) -> None:
        """A store with a stream and two groups."""
        self.both = both = StoreAndModel(self.folder, *limits)
        both.add_many(b"a", [self.row(5) for _ in range(8)], 3)
        for group in GROUPS:
            self.create(b"a", group, None, None, make=True)
        self.read(b"a", b"g", CONSUMERS[0], 4, noack=False, min_idle=None)
        self.failed = False

    # -- what is drawn ------------------------------------------------------------------------
    def row(self, size: int) -> Pairs:
        """An entry's pairs; each has another text, and now and then other fields."""
        self.texts += 1
        text = b"%d" % self.texts
        if self.texts % 7 == 0:
            return ((b"other", text), (b"n", b"-1"))
        return ((b"n", text), (b"v", b"x" * size))

    def id_at(self, name: bytes, place: int) -> ID:
        """An entry of a stream; one that never was, if it has none so far back."""
        of = self.both.model.seen(name)
        ids = list(of.entries) if of is not None else []
        if place < len(ids):
            return ids[-1 - place]
        pending = sorted({id for group in of.groups.values() for id in group.pending}) if of else []
        return pending[place % len(pending)] if pending else (7, 7)

    def ids_at(self, name: bytes, drawn: list[int]) -> list[ID]:
        return list(dict.fromkeys(self.id_at(name, place) for place in drawn))

    def there(self, name: bytes, group: bytes | None = None) -> bool:
        of = self.both.model.seen(name)
        return of is not None and (group is None or group in of.groups)

    def grouped(self, name: bytes, group: bytes) -> None:
        """There is such a group from now on."""
        if not self.there(name, group):
            self.create(name, group, None, None, make=True)

    # -- entries ------------------------------------------------------------------------------
    @rule(name=names, size=sizes, step=steps, max_entries=st.sampled_from([None, None, 0, 3, 12]))
    def add(self, name: bytes, size: int, step: int | None, max_entries: int | None) -> None:
        self.both.add(name, self.row(size), step, max_entries)

    @rule(name=names, count=st.integers(1, 30), size=sizes, batch=st.sampled_from([1, 4, 100]))
    def add_many(self, name: bytes, count: int, size: int, batch: int) -> None:
        self.both.add_many(name, [self.row(size) for _ in range(count)], batch)

    @rule(name=names, producer=st.sampled_from([b"p", b"q"]), iid=st.integers(0, 6))
    def add_once(self, name: bytes, producer: bytes, iid: int) -> None:
        self.both.add_once(name, self.row(5), producer, b"%d" % iid)

    @rule(name=names, drawn=several, mode=references, each=st.booleans())
    def delete(self, name: bytes, drawn: list[int], mode: str, each: bool) -> None:
        self.both.delete(name, self.ids_at(name, drawn), mode, each=each)

    @rule(name=names, one=places, other=places)
    def delete_range(self, name: bytes, one: int, other: int) -> None:
        ids = sorted((self.id_at(name, one), self.id_at(name, other)))
        self.both.delete_range(name, *ids)

    @rule(name=names, count=st.integers(1, 4), size=sizes)
    def replace_newest(self, name: bytes, count: int, size: int) -> None:
        """A node that was closed may be the last one again, and be opened again."""
        self.both.add(name, self.row(3000), None, None)
        ids = [self.id_at(name, place) for place in range(count)]
        self.both.delete_range(name, min(ids), max(ids))
        self.both.add(name, self.row(size), None, None)

    @rule(
        name=names, by_id=st.booleans(), place=st.integers(0, 25), mode=references,
        limit=st.sampled_from([None, None, 0, 8]),
    )  # fmt: skip
    def trim(self, name: bytes, by_id: bool, place: int, mode: str, limit: int | None) -> None:
        max_entries, min_id = (None, self.id_at(name, place)) if by_id else (place, None)
        self.both.trim(name, max_entries, min_id, mode, limit)

    @rule(name=names, lower=st.booleans(), step=st.integers(0, 3), more=st.none() | places,
          deleted=st.booleans())  # fmt: skip
    def set_id(self, name: bytes, lower: bool, step: int, more: int | None, deleted: bool) -> None:
        of = self.both.model.seen(name)
        if of is None:
            return
        last = max([of.max_deleted, *of.entries]) if lower else of.last
        last = (last[0], last[1] + step)
        added = None if more is None else len(of.entries) + more
        self.both.set_id(name, last, added, last if deleted and step else None)

    # -- streams ------------------------------------------------------------------------------
    @rule(name=names, other=names, sure=seldom, replace=st.booleans(),
          what=st.sampled_from(["create", "drop", "rename", "copy", "copy"]))  # fmt: skip
    def whole(self, name: bytes, other: bytes, sure: int, replace: bool, what: str) -> None:
        if what == "create":
            self.both.whole("create", name)
        elif what == "drop" and not sure:
            self.both.whole("drop", name)
        elif what in ("rename", "copy") and name != other and self.there(name):
            self.both.whole(what, name, other, replace=replace)

    @rule(name=names, after=st.sampled_from([None, None, -5, 100, 5000]), sure=seldom)
    def expire(self, name: bytes, after: int | None, sure: int) -> None:
        if not sure or after is None:
            self.both.expire(name, after)

    @rule(name=names, after=st.sampled_from([-5, 0, 50, 5000]))
    def schedule(self, name: bytes, after: int) -> None:
        self.both.schedule(name, self.row(5), after)

    @rule(name=names, place=places)
    def cancel(self, name: bytes, place: int) -> None:
        if not self.there(name) or not self.both.model.streams[name].scheduled:
            self.both.schedule(name, self.row(5), 100)
        self.both.cancel(name, place)

    @rule(name=names, what=st.sampled_from([
        {"max_entries": 12}, {"max_entries": None}, {"max_bytes": 700}, {"max_bytes": None},
        {"max_age_ms": 3000}, {"max_age_ms": None}, {"idempotent_max_ids": 2},
        {"idempotent_max_ids": 100}, {"idempotent_duration_s": 2},
    ]))  # fmt: skip
    def configure(self, name: bytes, what: dict[str, Any]) -> None:
        self.both.configure(name, **what)

    @rule(ms=st.sampled_from([10, 10, 60, 1000, 4000]))
    def tick(self, ms: int) -> None:
        self.both.tick(ms)

    @rule(what=st.sampled_from(["awake", "retain"]))
    def due(self, what: str) -> None:
        getattr(self.both, what)()

    @rule(name=names, other=names, drawn=several, group=groups, sizes=st.lists(sizes, max_size=4))
    def transaction(
        self, name: bytes, other: bytes, drawn: list[int], group: bytes, sizes: list[int]
    ) -> None:
        """Adds here and there, deletes, acks: one commit."""
        model, ids = self.both.model, self.ids_at(name, drawn)
        with self.both.store.transaction() as tx:
            for size in sizes:
                row = self.row(size)
                tx.stream(other).add(list(row))
                model.add(other, row)
            tx.stream(name).group(group).ack(*ids)
            tx.stream(name).delete(*ids[:2])
            if self.there(name, group):
                model.streams[name].groups[group].ack(ids)
                model.settle(name, group)
            model.delete(name, ids[:2])
        self.both.same(None, None, "transaction")

    # -- groups -------------------------------------------------------------------------------
    @rule(name=names, group=groups, place=st.none() | places,
          read=st.sampled_from([None, None, 0, 5, 1000]), make=st.booleans())  # fmt: skip
    def create(
        self, name: bytes, group: bytes, place: int | None, read: int | None, make: bool
    ) -> None:
        """Or set the ID of one that is there, or remove it."""
        both = self.both
        start = ZERO if place is None else self.id_at(name, place)
        handle = both.store.stream(name).group(group)
        if self.there(name, group):
            of = both.model.streams[name]
            there = of.groups[group]
            if make:
                handle.set_id(start, entries_read=read)
                there.last = start
                there.entries_read = -1 if read is None else min(read, of.added)
            elif place is not None and place > 30:
                handle.destroy()
                del of.groups[group]
        elif make:
            handle.create(start, entries_read=read)
            of = both.model.existing(name)
            made = -1 if read is None else min(read, of.added)
            of.groups[group] = Group(start, made)
        both.same(None, None, "create group")

    @rule(name=names, group=groups, consumer=consumers, sure=seldom)
    def consumer(self, name: bytes, group: bytes, consumer: bytes, sure: int) -> None:
        self.grouped(name, group)
        both, now = self.both, self.both.clock.ms
        if sure:
            fresh = consumer not in both.model.streams[name].groups[group].consumers
            both.group(name, group, "add_consumer", lambda it: it.add_consumer(consumer),
                       lambda of, _: of.consumer(consumer, now) and fresh)  # fmt: skip
        else:
            both.group(name, group, "remove_consumer", lambda it: it.remove_consumer(consumer),
                       lambda of, _: of.remove_consumer(consumer))  # fmt: skip

    @rule(name=names, group=groups, most=st.sampled_from([None, 1, 2, 4]),
          letter=st.sampled_from([b"dead", b"c", b"b"]),
          again=st.sampled_from([None, 30, 2000]))  # fmt: skip
    def configure_group(
        self, name: bytes, group: bytes, most: int | None, letter: bytes, again: int | None
    ) -> None:
        if letter == name:
            return
        self.grouped(name, group)
        there = self.both.model.streams[name].groups[group]
        there.max_deliveries, there.min_idle_ms = most, again
        there.dead_letter = None if most is None else letter
        self.both.store.stream(name).group(group).configure(
            max_deliveries=most, dead_letter=there.dead_letter,
            min_idle=None if again is None else again / 1000,
        )  # fmt: skip
        self.both.same(None, None, "configure group")

    @rule(name=names, group=groups, consumer=consumers, count=counts,
          noack=st.sampled_from([False, False, False, True]),
          min_idle=st.sampled_from([None, None, 0, 20, 500]))  # fmt: skip
    def read(
        self, name: bytes, group: bytes, consumer: bytes, count: int, noack: bool,
        min_idle: int | None,
    ) -> None:  # fmt: skip
        self.grouped(name, group)
        now = self.both.clock.ms
        idle = None if min_idle is None else min_idle / 1000
        self.both.group(
            name, group, "read",
            lambda it: it.read(consumer, count=count, noack=noack, min_idle=idle),
            lambda of, it: of.read(
                it, consumer, now, count=count, noack=noack, min_idle=min_idle
            ),
        )  # fmt: skip

    @rule(name=names, group=groups, consumer=consumers, place=places, count=counts)
    def backlog(self, name: bytes, group: bytes, consumer: bytes, place: int, count: int) -> None:
        self.grouped(name, group)
        after = ZERO if place % 2 else self.id_at(name, place)
        now = self.both.clock.ms
        self.both.group(name, group, "backlog",
                        lambda it: it.backlog(consumer, after, count=count),
                        lambda of, it: of.backlog(it, consumer, now, after, count))  # fmt: skip

    @rule(name=names, group=groups, drawn=several, mode=references, how=st.integers(0, 2))
    def ack(self, name: bytes, group: bytes, drawn: list[int], mode: str, how: int) -> None:
        self.grouped(name, group)
        ids, model = self.ids_at(name, drawn), self.both.model
        if how:
            self.both.group(name, group, "ack", lambda it: it.ack(*ids),
                            lambda of, _: of.ack(ids))  # fmt: skip
            return

        def ack_delete(of: Any, it: Any) -> list[int]:
            told: list[int] = []
            for id in ids:
                if not of.ack([id]):
                    told.append(-1)
                elif model.delete(name, [id], mode)[0] == 2:
                    told.append(2)
                else:
                    told.append(1)
            return told

        self.both.group(name, group, "ack_delete", lambda it: it.ack_delete(*ids, references=mode),
                        ack_delete)  # fmt: skip

    @rule(name=names, group=groups, drawn=several,
          mode=st.sampled_from(["fail", "silent", "fatal"]),
          retry=st.sampled_from([None, None, 0, 7]), force=st.booleans())  # fmt: skip
    def nack(
        self, name: bytes, group: bytes, drawn: list[int], mode: str, retry: int | None,
        force: bool,
    ) -> None:  # fmt: skip
        self.grouped(name, group)
        ids = self.ids_at(name, drawn)
        how: dict[str, Any] = {"mode": mode, "retry_count": retry, "force": force}
        self.both.group(name, group, "nack", lambda it: it.nack(*ids, **how),
                        lambda of, it: of.nack(it, ids, **how))  # fmt: skip

    @rule(name=names, group=groups, consumer=consumers, drawn=several, min_idle=idles,
          idle=st.sampled_from([None, None, 0, 100]), retry=st.sampled_from([None, None, 0, 3]),
          force=st.booleans(), just_id=st.booleans())  # fmt: skip
    def claim(
        self, name: bytes, group: bytes, consumer: bytes, drawn: list[int], min_idle: int,
        idle: int | None, retry: int | None, force: bool, just_id: bool,
    ) -> None:  # fmt: skip
        self.grouped(name, group)
        ids, now = self.ids_at(name, drawn), self.both.clock.ms
        how: dict[str, Any] = {"retry_count": retry, "force": force, "just_id": just_id}
        self.both.group(
            name, group, "claim",
            lambda it: it.claim(consumer, *ids, min_idle=min_idle / 1000,
                                idle=None if idle is None else idle / 1000, **how),
            lambda of, it: of.claim(it, consumer, now, ids, min_idle=min_idle, idle=idle,
                                    **how),
        )  # fmt: skip

    @rule(name=names, group=groups, consumer=consumers, min_idle=idles,
          place=st.none() | places, count=st.sampled_from([1, 2, 5, 100]),
          just_id=st.booleans())  # fmt: skip
    def autoclaim(
        self, name: bytes, group: bytes, consumer: bytes, min_idle: int, place: int | None,
        count: int, just_id: bool,
    ) -> None:  # fmt: skip
        self.grouped(name, group)
        now = self.both.clock.ms
        start = None if place is None else self.id_at(name, place)
        how: dict[str, Any] = {"start": start, "count": count, "just_id": just_id}
        self.both.group(
            name, group, "autoclaim",
            lambda it: it.autoclaim(consumer, min_idle=min_idle / 1000, **how),
            lambda of, it: of.autoclaim(it, consumer, now, min_idle=min_idle, **how),
        )  # fmt: skip

    # -- what a store goes through ------------------------------------------------------------
    @rule(
        name=names, threshold=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
        purge=st.sampled_from([False] * 4 + [True]), thin=st.booleans(),
    )  # fmt: skip
    def compact(self, name: bytes, threshold: float, purge: bool, thin: bool) -> None:
        """Also of nodes of which little is left, so that some become one."""
        both = self.both
        if thin:
            both.add_many(name, [((b"n", b"%d" % n), (b"v", b"-")) for n in range(24)], 100)
            both.roll()
            ids = list(both.model.streams[name].entries)[-24:]
            both.delete(name, [id for at, id in enumerate(ids) if at % 4], "keep", each=False)
        both.compact(threshold, purge=purge)
        both.look()

    @rule(what=st.sampled_from(["checkpoint", "roll", "roll", "sync"]))
    def care(self, what: str) -> None:
        getattr(self.both, what)()

    @rule(name=names, size=sizes)
    def killed(self, name: bytes, size: int) -> None:
        self.both.killed(name, self.row(size))

    @rule(how=st.sampled_from(["reopen", "rebuild", "checkpoint, rebuild"]))
    def restart(self, how: str) -> None:
        if "checkpoint" in how:
            self.both.checkpoint()
        commands = self.steps % 3 == 0
        look = partial(look_at_commands, self.both) if commands else None
        self.both.reopen(rebuild="rebuild" in how, meanwhile=look)
        self.both.look()

    @rule(name=names, ends=st.booleans())
    def scan(self, name: bytes, ends: bool) -> None:
        if ends and self.both.pinned:
            self.both.unpin()
        elif self.there(name):
            self.both.pin(name)

    # -- looking ------------------------------------------------------------------------------
    @precondition(lambda self: self.both is not None)
    @invariant()
    def look_now_and_then(self) -> None:
        self.steps += 1
        if self.steps % LOOK_EVERY == 0:
            self.both.look(self.steps % 5)

    def teardown(self) -> None:
        """Once more all, from an index that was built anew; then the check."""
        import sys

        try:
            if self.both is not None and not self.failed and sys.exc_info()[0] is None:
                self.both.look()
                self.both.reopen(rebuild=True)
                self.both.look()
                self.both.close()
                self.both.checked()
        finally:
            if self.both is not None:
                self.both.close()
                self.done.update(self.both.what)
                self.done["steps"] += self.steps
                self.done["numbers"] += self.both.compared.numbers
            shutil.rmtree(self.folder, ignore_errors=True)
