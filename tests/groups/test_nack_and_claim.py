"""Prevents XNACK, and reads with CLAIM, that answer otherwise than their documentation says. No
server at hand has the two, so random operations are held against a model in plain Python; also
after reopening, and after the index was built anew.

LOGSTORE_TORTURE=n gives n times as many runs, others each time; the seed is printed.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import logstore
from tests import figures
from tests.groups.shop import shop
from tests.model.groups import COUNT_MAX, ID, ZERO, Given, Group
from tests.model.store import StoreModel
from tests.model.streams import release
from tests.support.inside import FixedClock

START_MS = 1_700_000_000_000
SEED = int(os.environ.get("LOGSTORE_SEED") or 0) or (
    random.getrandbits(32) if figures.times() > 1 else 20261121
)
RUNS, STEPS = 12, 120
WHO = (b"alice", b"bob", b"carol")


class GroupBesideModel:
    """A store with one stream and one group, and the model of them."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path, self.chance = path, chance
        self.clock = FixedClock(START_MS)
        self.store_model = StoreModel(START_MS)
        self.model = Group(ZERO)
        self.done: Counter[str] = Counter()
        self.store: Any = None
        self.open(node_max_entries=chance.choice((2, 5, 100)))
        self.group = self.store.stream("s").group("g", start="0")
        self.store_model.create(b"s")

    def open(self, **limits: int) -> None:
        """The store."""
        self.store = logstore.open(
            self.path, sync="os", background=False, clock=self.clock, **limits
        )
        self.group = self.store.stream("s").group("g")

    @property
    def stream(self) -> Any:
        """The model of the stream."""
        return self.store_model.streams[b"s"]

    def ids(self) -> list[ID]:
        """Some entries, pending ones mostly, and some that are not there."""
        known = sorted({*self.model.pending, *list(self.stream.entries)[-5:], (9, 9)})
        return self.chance.sample(known, min(len(known), self.chance.randrange(1, 6)))

    def step(self) -> None:
        """One operation on both; the answers are the same."""
        what = self.chance.choices(
            ("nack", "claim_read", "read", "add", "ack", "delete", "tick", "claim", "autoclaim",
             "backlog", "forget", "restart"),
            (10, 12, 6, 8, 3, 6, 8, 3, 5, 2, 1, 1),
        )[0]  # fmt: skip
        self.done[what] += 1
        found, wanted = getattr(self, what)()
        assert plain(found) == plain(wanted), what
        self.look()

    # -- operations ---------------------------------------------------------------------------
    def add(self) -> tuple[Any, Any]:
        count = self.chance.randrange(1, 8)
        rows = [((b"n", b"%d" % number),) for number in range(count)]
        found = self.store.stream("s").add_many([list(row) for row in rows])
        return list(found), [self.store_model.add(b"s", row) for row in rows]

    def tick(self) -> tuple[Any, Any]:
        more = self.chance.choice((10, 40, 1000))
        self.clock.ms += more
        self.store_model.now += more
        return None, None

    def nack(self) -> tuple[Any, Any]:
        ids, chance = self.ids(), self.chance
        how: dict[str, Any] = {
            "mode": chance.choice(("fail", "silent", "fatal")),
            "retry_count": chance.choice((None, None, 0, 9, COUNT_MAX)),
            "force": chance.random() < 0.3,
        }
        return self.group.nack(*ids, **how), self.model.nack(self.stream, ids, **how)

    def claim_read(self) -> tuple[Any, Any]:
        return self._read(self.chance.choice((0, 30, 1000)))

    def read(self) -> tuple[Any, Any]:
        return self._read(None)

    def _read(self, idle_ms: int | None) -> tuple[Any, Any]:
        who, count = self.chance.choice(WHO), self.chance.choice((0, 1, 2, 5))
        noack = self.chance.random() < 0.2
        seconds = None if idle_ms is None else idle_ms / 1000
        found = self.group.read(who, count=count, noack=noack, min_idle=seconds)
        return found, self.model.read(
            self.stream, who, self.clock.ms, count=count, noack=noack, min_idle=idle_ms
        )

    def backlog(self) -> tuple[Any, Any]:
        who, count = self.chance.choice(WHO), self.chance.choice((0, 2))
        found = self.group.backlog(who, count=count)
        return found, self.model.backlog(self.stream, who, self.clock.ms, ZERO, count)

    def ack(self) -> tuple[Any, Any]:
        ids = self.ids()
        return self.group.ack(*ids), self.model.ack(ids)

    def delete(self) -> tuple[Any, Any]:
        """In the middle of what is pending; sometimes taken out of the group, too."""
        ids, mode = self.ids(), self.chance.choice(("keep", "keep", "keep", "delete"))
        found = self.store.stream("s").delete(*ids, references=mode)
        if mode == "delete":
            release(self.stream, ids)
            for id in ids:
                self.model.pending.pop(id, None)
        return found, self.store_model.delete(b"s", ids).count(1)

    def claim(self) -> tuple[Any, Any]:
        ids, who, force = self.ids(), self.chance.choice(WHO), self.chance.random() < 0.5
        found = self.group.claim(who, *ids, min_idle=0.03, force=force)
        now = self.clock.ms
        return found, self.model.claim(self.stream, who, now, ids, min_idle=30, force=force)

    def autoclaim(self) -> tuple[Any, Any]:
        who, start = self.chance.choice(WHO), self.chance.choice((None, ZERO))
        found = self.group.autoclaim(who, min_idle=0.03, start=start, count=3)
        wanted = self.model.autoclaim(
            self.stream, who, self.clock.ms, min_idle=30, start=start, count=3
        )
        return [found.cursor, plain(found.entries), found.deleted], [
            wanted[0], plain(wanted[1]), wanted[2],
        ]  # fmt: skip

    def forget(self) -> tuple[Any, Any]:
        who = self.chance.choice(WHO)
        return self.group.remove_consumer(who), self.model.remove_consumer(who)

    def restart(self) -> tuple[Any, Any]:
        if self.chance.random() < 0.5:
            self.store.checkpoint()
        self.store.close()
        if self.chance.random() < 0.7:
            shutil.rmtree(self.path / "index")
        self.open()
        return None, None

    # -- looking ------------------------------------------------------------------------------
    def look(self) -> None:
        """Who has what, since when, how often; and what is nobody's."""
        info, full = self.group.info(), self.store.stream("s").info_full(0).group_infos[0]
        told = self.model.told(self.stream)
        assert {name: getattr(info, name) for name in told} == told
        assert full.nacked == len(self.model.of(None))
        held = {id: (each.owner, each.time * (each.owner is not None), each.count)
                for id, each in sorted(self.model.pending.items())}  # fmt: skip
        assert {
            each.id: (each.consumer, each.delivered_ms or 0, each.delivery_count)
            for each in full.pending_entries
        } == held
        assert {
            each.name: (each.seen_ms, -1 if each.active_ms is None else each.active_ms)
            for each in full.consumer_infos
        } == {name: (who.seen, who.active) for name, who in self.model.consumers.items()}


def plain(answer: Any) -> Any:
    """Deliveries as values."""
    if not isinstance(answer, list):
        return answer
    return [
        (each.id, tuple(each.pairs) if not each.deleted else None,
         round(each.idle.total_seconds() * 1000), each.delivery_count)
        if isinstance(each, logstore.Entry) else tuple(each) if isinstance(each, Given) else each
        for each in answer
    ]  # fmt: skip


@pytest.mark.parametrize("part", range(3))
def test_random_operations(tmp_path: Path, part: int) -> None:
    print(f"seed {SEED}: LOGSTORE_SEED={SEED} plays the same")
    done: Counter[str] = Counter()
    for number in range(part, RUNS * figures.times(), 3):
        run = GroupBesideModel(tmp_path / str(number), random.Random(f"{SEED} {number}"))
        try:
            for _ in range(STEPS):
                run.step()
        finally:
            run.store.close()
        shutil.rmtree(run.path)
        done.update(run.done)
    print(dict(done))
    assert done["nack"] > 20 * figures.times()
    assert done["claim_read"] > 20 * figures.times()


def test_an_ack_of_what_another_one_claimed_leaves_it_to_him(tmp_path: Path) -> None:
    with shop(tmp_path, 3) as (_, group, clock):
        first, second, third = group.read("alice")
        clock.ms += 60_000
        (claimed,) = group.claim("bob", first.id, min_idle=30)
        assert not first.ack()
        assert not first.nack()
        assert [each.consumer for each in group.pending_entries()] == ["bob", "alice", "alice"]
        assert claimed.ack()
        assert not claimed.ack()
        (again,) = group.claim("alice", second.id, min_idle=30)  # she got it once more
        assert again.delivery_count == 2
        assert second.ack()
        assert third.nack(error="no")
        assert not third.ack()  # it is nobody's
        assert group.ack(third.id) == 1  # as XACK: whoever has it
        assert group.pending().count == 0


def test_an_ack_of_a_group_that_is_gone_is_false(tmp_path: Path) -> None:
    with shop(tmp_path, 2) as (store, group, _):
        first, second = group.read("alice")
        group.destroy()
        assert not first.ack()
        assert not second.nack()
        store.drop("work")
        assert not first.ack()
