"""Prevents a reader that stays long from losing what it reads to compactions of other processes."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

import logstore
from logstore.errors import SnapshotExpiredError
from tests import figures
from tests.crash.states.model import value
from tests.interleaving import works
from tests.interleaving.actor import Actor, Got
from tests.interleaving.handle import LIMITS, Answer, StoreHandle, Work
from tests.scan.look import make_plan, split_rows

ENTRIES = 2000
ROUNDS = 5
KEPT = 5  # of ten entries, those from this one on are never deleted


def _churn(at: StoreHandle) -> Answer:
    """Delete some, add and trim others, and give the space back; what can be read goes on."""
    turn = at.store.stream("b").info().entries_added // 200 if "b" in at.store else 0
    gone = [f"{n}-1" for n in range(1, ENTRIES + 1) if n % 10 == turn % KEPT][turn // KEPT :: 3]
    at.store.stream("a").delete(*gone)
    at.store.stream("b").add_many([{"v": value(n, 400)} for n in range(200)])
    at.store.stream("b").trim(maxlen=20)
    return int(at.store.compact(threshold=0.02).segments_dropped)


WORKS = {
    "open": works.nothing("open", lambda at: setattr(at, "store", at.open(sync="os"))),
    "churn": Work("churn", _churn, lambda model: None),
    "purge": works.PURGE,
}


def test_readers_that_stay_while_others_compact(tmp_path: Path) -> None:
    """An iterator, a plan and a read-only follower, begun before many compactions."""
    path = tmp_path / "store"
    limits = LIMITS
    rounds, dropped = ROUNDS * figures.times(), 0
    there: list[str] = []
    with logstore.open(path, background=False, sync="os", **limits) as store:
        a = store.stream("a")
        a.add_many([(f"{n}-1", {"v": value(n, 100)}) for n in range(1, ENTRIES + 1)])
        with Actor(path, WORKS) as other, logstore.open(path, readonly=True) as follower:
            assert other.do("open") == Got()
            before = [(str(entry.id), entry.pairs) for entry in a.range()]
            made = make_plan(store, b"a")
            staying, following, backwards = (
                a.range(), follower.stream("a").range(), a.range(reverse=True)
            )  # fmt: skip
            seen: list[list[logstore.Entry[bytes]]] = [[], [], []]
            for _ in range(rounds):
                for found, entries in zip(seen, (staying, following, backwards), strict=True):
                    found.extend(islice(entries, ENTRIES // 2 // rounds))
                done = other.do("churn")
                assert not done.refused, done
                assert not done.broke, done.broke
                dropped += done.answer
                there = [str(entry.id) for entry in a.range()]
                assert there == [str(entry.id) for entry in follower.stream("a").range()]
            for found, entries in zip(seen, (staying, following, backwards), strict=True):
                found.extend(entries)
            seen[2].reverse()
            for found in seen:
                _check(found)
            assert split_rows(made) == before
            assert other.do("purge") == Got()
            with pytest.raises(SnapshotExpiredError):
                split_rows(made)
            assert [str(entry.id) for entry in a.range()] == there
    assert dropped > rounds
    print(f"\n{rounds} compactions dropped {dropped} segments under readers that stayed")


def _check(found: list[logstore.Entry[bytes]]) -> None:
    """Each entry once, in order, with its own value; those that nobody deleted are all there."""
    numbers = [entry.id.ms for entry in found]
    assert numbers == sorted(set(numbers))
    assert {n for n in range(1, ENTRIES + 1) if n % 10 >= KEPT} <= set(numbers)
    for entry in found:
        assert entry.fields[b"v"] == value(entry.id.ms, 100)
