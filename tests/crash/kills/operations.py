"""What a writer of the kill test does: one operation after the other, as they were chosen.

A step is plain JSON, so that it can be journaled before it is done; so is what it returns. Random
choices are made when a step is chosen (``choosing``), never while it is done.
"""

from __future__ import annotations

from typing import Any

import logstore
from logstore.api.group import Delivery
from logstore.compaction import closing
from logstore.options import Sync
from tests.crash.kills import names, own_streams
from tests.crash.kills.own_streams import Result, State, Step
from tests.crash.steps import Task, Watch
from tests.support import inside

FAR_MS = 5_000_000_000_000
CARE = ("compact", "purge", "full", "checkpoint", "reopen", "tidy", "sync")
GROUPS = ("fetch", "put off", "read", "claim", "ack", "nack", "take", "done", "give")
TIMED = ("soon", "later", "cancel")
ADDS = ("add", "add_many", "job", "idem", "shared", "expect", "keep", "brief")
# What cannot go by without a commit: the first one after a kill tells when somebody took over.
COMMITS = {
    "add", "add_many", "tx", "shared", "job", "soon", "later", "delete", "idem", "again", "cancel",
    "requeue", "expect", "keep", "brief",
}  # fmt: skip


class Work:
    """One life of a writer: the store as it has it open, and what it has in hand."""

    def __init__(
        self, path: Any, slot: int, policy: Sync, state: State, watch: Watch, *,
        background: bool = True, lane: bool = False,
    ) -> None:  # fmt: skip
        self.background, self.lane, self.tidied = background, lane, 0
        self.path, self.slot, self.policy, self.watch = path, slot, policy, watch
        self.state = state
        self.remembered: list[tuple[str, str]] = []  # tag and ID of idempotent adds
        self.held: dict[str, Delivery[bytes]] = {}  # of the shared group
        self.mine: dict[tuple[str, int], Delivery[bytes]] = {}  # of the own one, by ID and count
        self.open()

    def open(self) -> None:
        """Open the store; in most tests with all of its background work."""
        self.store = logstore.open(
            self.path, sync=self.policy, lock_timeout=30, background=self.background
        )

    def of_lane(self) -> tuple[int, ...]:
        """Entries that the lane added, delivered and acked since the last call."""
        lane = self.store._live().lane
        if lane is None or not self.lane:
            return ()
        told = lane.take_counts()
        return told["added_entries"], told["deliveries"], told["acks"]

    def do(self, step: Step) -> Result:
        """Do it; what it returned."""
        kind = step["op"]
        if kind in CARE:
            return self._care(kind)
        if kind in GROUPS:
            return self._group(step)
        if kind in TIMED:
            return self._schedule(step)
        return self._add(step) if kind in ADDS else self._change(step)

    def _add(self, step: Step) -> Result:
        kind, mine = step["op"], self.store.stream(names.own(self.slot))
        if kind == "add":
            return {"ids": [str(mine.add(names.fields(step["tags"][0])))]}
        if kind == "add_many":
            rows = [names.fields(tag) for tag in step["tags"]]
            return {"ids": [str(each) for each in mine.add_many(rows, batch=step["batch"])]}
        if kind == "job":
            rows = [names.fields(tag, names.SMALL) for tag in step["tags"]]
            added = self.store.stream(names.jobs(self.slot)).add_many(rows)
            return {"job_ids": [str(each) for each in added]}
        if kind == "idem":
            return {"ids": [self._idempotent(step["tags"][0])]}
        if kind == "expect":
            return {"ids": [self._expecting(step["tags"][0])]}
        if kind == "keep":
            row = names.fields(step["tag"], names.SMALL) | {"k": step["key"].encode()}
            self.store.stream(names.kept(self.slot)).add(row)
            return {}
        if kind == "brief":
            with self.store.transaction() as tx:
                stream = tx.stream(names.brief(self.slot))
                stream.add(names.fields(step["tag"] + "s", names.SMALL), ttl=step["ttl"])
                stream.add(names.fields(step["tag"] + "l", names.SMALL), ttl=3600)
            return {}
        self.store.stream(names.SHARED).add(names.fields(step["shared"], names.SMALL))
        return {}

    def _change(self, step: Step) -> Result:
        kind, mine = step["op"], self.store.stream(names.own(self.slot))
        if kind == "tx":
            return self._transaction(step)
        if kind == "delete":
            assert mine.delete(*step["delete"]) == len(step["delete"])
        elif kind == "trim":
            mine.trim(max_entries=step["max_entries"], approximate=False)
        elif kind == "requeue":
            return self._requeue(step)
        elif kind == "settings":
            mine.configure(max_entries=step["max_entries"])
        elif kind == "group settings":
            self._jobs().configure(max_deliveries=step["max_deliveries"])
        elif not step["id"]:
            return {"refused": True}
        else:
            assert self._idempotent(step["tag"]) == step["id"], "added twice, or under another ID"
        return {}

    def _requeue(self, step: Step) -> Result:
        """A dead letter of the own group goes back to its stream."""
        if not step["origin"]:
            return {"refused": True}
        dead = self.store.stream(names.dead(self.slot))
        (id,) = [each.id for each in dead if names.origin_of(each) == step["origin"]]
        return {"job_ids": [str(each) for each in self.store.requeue(dead.name, id)]}

    def _idempotent(self, tag: str) -> str:
        own_stream = self.store.stream(names.own(self.slot))
        who = f"producer-{self.slot}"
        return str(own_stream.add(names.fields(tag), producer=who, idempotent_id=tag))

    def _expecting(self, tag: str) -> str:
        """An add that must find the last ID where it was, and one before it that does not."""
        mine = self.store.stream(names.own(self.slot))
        last = mine.last_id
        try:
            mine.add(names.fields("no"), expected_last_id=last.next())
        except logstore.LastIDConflictError:
            return str(mine.add(names.fields(tag), expected_last_id=last))
        raise AssertionError("an add that expected another last ID was not refused")

    def _jobs(self) -> logstore.Group[bytes]:
        return self.store.stream(names.jobs(self.slot)).group("g")

    def _patient(self) -> logstore.Group[bytes]:
        return self.store.stream(names.jobs(self.slot)).group("patient")

    def _schedule(self, step: Step) -> Result:
        if step["op"] == "cancel":
            if not step["key"]:
                return {"refused": True}
            assert self.store.stream(names.later(self.slot)).cancel(step["key"])
            return {}
        row = names.fields(step["tag"], names.SMALL)
        if step["op"] == "soon":
            self.store.stream(names.soon(self.slot)).schedule(row, after=step["after"])
            return {}
        at_ms = FAR_MS + step["n"]
        return {"key": str(self.store.stream(names.later(self.slot)).schedule(row, at=at_ms))}

    def _transaction(self, step: Step) -> Result:
        acked = [self.mine[id, self.state["pending"][id][1]] for id in step["ack"]]
        done = [self.held[id] for id in step["done"]]
        for id in step["done"]:
            del self.held[id]
        try:
            with self.store.transaction() as tx:
                mine = tx.stream(names.own(self.slot))
                added = [mine.add(names.fields(tag)) for tag in step["tags"]]
                if step["delete"]:
                    mine.delete(*step["delete"])
                tx.stream(names.SHARED).add(names.fields(step["shared"], names.SMALL))
                tx.ack(*acked, *done)
        except logstore.NotOwnerError:
            assert done, "nobody else takes what is pending in a group of one's own"
            return {"refused": True}
        return {"ids": [str(each.id) for each in added]}

    def _group(self, step: Step) -> Result:
        kind, crew = step["op"], self.store.stream(names.SHARED).group(names.CREW)
        if kind == "fetch":
            self._patient().read(step["by"], count=step["count"])
        elif kind == "put off":
            self._patient().nack(*step["ids"], delay=3600)
        elif kind == "read":
            got = self._jobs().read(step["by"], count=step["count"])
            self.mine |= {(str(each.id), each.delivery_count): each for each in got}
        elif kind == "claim":
            taken = self._jobs().autoclaim(step["by"], min_idle=0, start="0-0", count=step["count"])
            self.mine |= {(str(each.id), each.delivery_count): each for each in taken.entries}
        elif kind == "ack":
            self._jobs().ack(*self._ids(step))
        elif kind == "nack":
            self._jobs().nack(*step["ids"])
        elif kind == "take":
            found = crew.read(f"w{self.slot}", count=step["count"], min_idle=step["idle"])
            self.held |= {str(each.id): each for each in found}
            return {"took": [(str(each.id), each.delivery_count) for each in found]}
        elif kind == "done":
            crew.ack(*self._ids(step))
        elif kind == "give":
            crew.nack(*step["ids"])
        for id in step.get("ids", ()):
            self.held.pop(id, None)
        return {}

    def _ids(self, step: Step) -> list[Any]:
        """What is to be acked, as the lane takes it, or as text."""
        if not self.lane:
            return list(step["ids"])
        return sorted(logstore.StreamID(*names.number(id)) for id in step["ids"])

    def _care(self, kind: str) -> Result:
        """What changes nothing that can be read."""
        if kind == "checkpoint":
            self.store.checkpoint()
        elif kind == "sync":
            self.store.sync()
        elif kind in {"reopen", "tidy"}:
            if kind == "tidy":
                self._tidy()
            self.watch.within(Task.CLOSING)()
            self.store.close()
            self.watch.opening = True
            self.watch.within(Task.NONE)()
            self.open()
            self.watch.opening = False
            self.held.clear()
            self.mine.clear()
        else:
            try:
                self.store.compact(purge=kind == "purge", full=kind == "full")
            except logstore.ErasureIncompleteError:
                return {"refused": True}  # others delete all the while
        return {}

    def _tidy(self) -> None:
        """What the last one to close does, in a store as small as this; what fails is raised."""
        engine, committer = inside.engine_of(self.store), inside.committer_of(self.store)
        with inside.close_gives_back():
            try:
                self.tidied += closing.run(engine, committer) is not None
            except OSError as exc:  # no close fails of that: ``opening`` lets nothing through
                if isinstance(exc, logstore.Error):
                    raise


def after(work: Work, step: Step, result: Result) -> None:
    """Keep the model of the own streams up to date."""
    own_streams.change(work.state, step, result)
    if step["op"] == "idem":
        work.remembered = [*work.remembered, (step["tags"][0], result["ids"][0])][-5:]
