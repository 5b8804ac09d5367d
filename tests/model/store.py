"""The model of a store: streams, their entries and groups, what is scheduled and remembered.

Dictionaries and lists; each method does what the store's method of the same meaning must do, and
gives the answer that it must give. What depends on how entries lie in nodes (approximate trimming,
retention) asks the log that the test reads for itself. Each feature is a slice of it, a module of
this package; here is what concerns streams as a whole, and dead letters.

Invariants: it does not import the product; time is ``now``, set by the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from tests.model.groups import ID, Dead, Pairs
from tests.model.idempotent import REMEMBERS, Idempotent
from tests.model.lifetimes import Lifetimes
from tests.model.retention import Retention
from tests.model.streams import Stream

ORIGIN_PAIRS = 6  # behind those of a dead letter's own


class StoreModel(Retention, Idempotent, Lifetimes):
    """All that a store does."""

    def drop(self, name: bytes) -> bool:
        """Whether there was one."""
        there = self.seen(name) is not None
        if there:
            del self.streams[name]
        return there

    def rename(self, old: bytes, new: bytes, *, replace: bool) -> bool:
        """Whether it was done; the old one is there."""
        if self.seen(new) is not None and not replace:
            return False
        self.streams[new] = self.streams.pop(old)
        return True

    def copy(self, source: bytes, target: bytes, *, replace: bool) -> bool:
        """Whether it was done; the source is there."""
        if self.seen(target) is not None and not replace:
            return False
        found = self.streams[source]
        self._numbers += 1
        made = Stream(
            self._numbers, dict(found.entries), found.added, found.last, found.max_deleted,
            found.expires_ms, {name: group.copied() for name, group in found.groups.items()},
            remembered=deepcopy(found.remembered), iids_added=found.iids_added,
            iids_duplicates=found.iids_duplicates, schema=found.schema,
        )  # fmt: skip
        made.settings |= {each: found.settings[each] for each in REMEMBERS}
        self.streams[target] = made
        return True

    def settle(self, name: bytes, group: bytes) -> None:
        """After an operation of a group: dead letters are added, what it counted is counted."""
        found = self.streams[name].groups[group]
        self.counts.update(found.counts)
        found.counts.clear()
        dead, found.dead = found.dead, []
        for each in dead:
            assert found.dead_letter is not None
            self.add(found.dead_letter, each.pairs + origin(name, group, each))
        self.counts["dead_letters"] += len(dead)

    def requeue(self, name: bytes, ids: Sequence[ID]) -> None:
        """Give dead letters back to where they came from, without what says so."""
        for id in ids:
            pairs = self.streams[name].entries[id]
            (_, origin_stream), *_ = pairs[-ORIGIN_PAIRS:]
            self.add(origin_stream, pairs[:-ORIGIN_PAIRS])
        self.delete(name, ids)


def origin(stream: bytes, group: bytes, dead: Dead) -> Pairs:
    """What a dead letter says of where it came from."""
    return (
        (b"origin_stream", stream), (b"origin_id", b"%d-%d" % dead.id), (b"origin_group", group),
        (b"origin_consumer", dead.owner), (b"origin_delivery_count", b"%d" % dead.count),
        (b"origin_error", dead.error),
    )  # fmt: skip
