"""Prevents an entry that is in two places, or in none: whatever a group with settings is asked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import logstore
from tests.groups.shop import NOW_MS, numbers
from tests.support.inside import FixedClock, delete_index

STEPS, MOST = 120, 3
NAMES = ("a", "b", "c")


class RandomCalls:
    """Random calls, and what must be so after each."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.chance = random.Random(seed)
        self.clock = FixedClock(NOW_MS)
        self.added = 0
        self.acked: set[int] = set()  # or gone from what is pending because it was deleted
        self.deleted: set[int] = set()
        self.claimed: set[int] = set()  # by ID: its count may pass the limit
        self.told: list[int] = []
        self.store: Any = None
        self.open()
        self.group.configure(max_deliveries=MOST, dead_letter="dead", min_idle=10)

    def open(self) -> None:
        """Open the store, with a new callback."""
        self.store = logstore.open(
            self.path, sync="os", background=False, clock=self.clock, encoding="utf-8"
        )
        self.store.on_dead_letter(lambda dead: self.told.append(dead.id.ms))
        self.work = self.store.stream("work")
        self.group = self.work.group("g", start="0")

    def step(self) -> None:
        """One call."""
        what = self.chance.randrange(14)
        some = f"{self.chance.randrange(1, self.added + 2)}-0"
        if what < 3:
            self.added += 1
            self.work.add({"n": str(self.added)}, id=f"{self.added}-0")
        elif what < 9:
            self._take(what, some)
        elif what < 12:
            self._settle(what, some)
        elif what == 12:
            self.clock.ms += 11_000
        elif self.chance.random() < 0.3:
            self._reopen()

    def _take(self, what: int, some: str) -> None:
        chance, group, who = self.chance, self.group, self.chance.choice(NAMES)
        if what < 6:
            idle = chance.choice([None, 0, 5, 30])
            group.read(who, count=chance.choice([None, 1, 3]), min_idle=idle)
        elif what == 6:
            group.backlog(who, count=chance.choice([None, 2]))
        elif what == 7:
            start = chance.choice([None, "-"])
            found = group.autoclaim(who, min_idle=chance.choice([0, 12]), count=2, start=start)
            self.acked |= {each.ms for each in found.deleted}
        else:
            self.claimed |= set(numbers(group.claim(who, some, min_idle=0)))

    def _settle(self, what: int, some: str) -> None:
        chance, group = self.chance, self.group
        if what == 9:
            group.nack(some, mode=chance.choice(["fail", "fail", "silent", "fatal"]))
        elif what == 10:
            pending = numbers(group.pending_entries())
            group.ack(some)
            self.acked |= set(pending) - set(numbers(group.pending_entries()))
        elif chance.random() < 0.3:
            self.work.delete(some)
            self.deleted.add(int(some[:-2]))

    def _reopen(self) -> None:
        if self.chance.random() < 0.5:
            self.store.checkpoint()
        self.store.close()
        if self.chance.random() < 0.5:
            delete_index(self.path)
        self.open()

    def check(self) -> None:
        """Each entry that was delivered is in one place; the counts agree."""
        info = self.group.info()
        rows = list(self.group.pending_entries())
        pending = set(numbers(rows))
        dead = self.store.stream("dead") if "dead" in self.store else []
        dead_lettered = [int(each.fields["origin_id"][:-2]) for each in dead]
        assert info.pending == len(rows) == self.group.pending().count
        assert len(dead_lettered) == len(set(dead_lettered))
        assert sorted(dead_lettered) == sorted(self.told)
        assert not pending & set(dead_lettered)
        assert not self.acked & (pending | set(dead_lettered))
        handed = {n for n in range(1, self.added + 1) if n <= info.last_delivered_id.ms}
        assert pending | set(dead_lettered) | self.acked | self.deleted >= handed
        for row in rows:
            assert row.delivery_count <= MOST or row.id.ms in self.claimed
        for each in dead:
            assert each.fields["n"] == each.fields["origin_id"][:-2]
            assert int(each.fields["origin_delivery_count"]) >= 1


@pytest.mark.parametrize("seed", range(12))
def test_each_entry_is_in_one_place(tmp_path: Path, seed: int) -> None:
    run = RandomCalls(tmp_path / "store", seed)
    for _ in range(STEPS):
        run.step()
        run.check()
    assert run.told
    run.store.close()
