"""Prevents those who wait again without LOCK from missing an entry, getting it twice, getting past
others, or holding slots for ever; and what is carried in a hand from being another entry.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from logstore.api import group_wait
from logstore.api.store import Store
from logstore.engine.shm.carried import CARRIED_BYTES, ENTRIES_MAX, ROOM_BYTES, Carried
from logstore.engine.shm.mailbox import GIVEN, Hand
from logstore.engine.shm.saved_waiter import BARE_MAX
from logstore.engine.shm.waiters import Slots
from logstore.engine.waiting import offers
from logstore.ids import StreamID
from tests.support.inside import engine_of
from tests.waiting.crowd import (
    BULKY,
    LONG_S,
    SOON_S,
    eventually,
    group_of,
    key_of,
    owners,
    queue,
    reader,
    takers,
    used,
)
from tests.waiting.test_handover import Reading, add, commits

pytestmark = pytest.mark.usefixtures("patient", "unhurried")


class Again(threading.Thread):
    """A thread that waits, was served once when it was made, and waits again when it is told to."""

    def __init__(self, store: Store[Any], who: str) -> None:
        super().__init__()
        self._group = group_of(store)
        self._who = who
        self.once, self.goes_on = threading.Event(), threading.Event()
        self.got: list[int] = []
        self.start()
        eventually(lambda: len(takers(store)) == 1)
        add(store, 0)
        assert self.once.wait(SOON_S)

    def run(self) -> None:
        """Read twice."""
        for _ in range(2):
            found = self._group.read(self._who, count=1, timeout=LONG_S)
            self.got += [int(each.fields[b"n"]) for each in found]
            self.once.set()
            self.goes_on.wait(SOON_S)

    def wait(self) -> list[int]:
        """What it got."""
        self.join(SOON_S)
        return self.got


def test_who_was_served_waits_again_without_lock(store: Store[Any]) -> None:
    waiting = Again(store, "c")
    key, before = key_of(store), commits(store)
    with store._live().committer.locked():  # of this process and of all others
        waiting.goes_on.set()
        eventually(lambda: len(engine_of(store).wake.waits.slots.waiting(key)) == 1)
    assert commits(store) == before
    add(store, 1)
    assert waiting.wait() == [0, 1]
    assert owners(store) == ["c", "c"]


def test_it_waits_behind_those_who_wait(store: Store[Any]) -> None:
    again = Again(store, "again")
    first = Reading(store, "first", count=1)
    again.goes_on.set()
    eventually(lambda: len(takers(store)) == 2)
    last = Reading(store, "last", count=1)
    add(store, 1)
    assert first.wait() == [1]
    add(store, 2)
    assert again.wait() == [0, 2]
    add(store, 3)
    assert last.wait() == [3]


@pytest.mark.inside
@pytest.mark.parametrize("looked", [False, True])
def test_what_is_added_while_it_joins_it_gets_once(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch, looked: bool
) -> None:
    """Before it looked, or behind that: it is handed the entry, and must not read another."""
    waiting, vain = Again(store, "c"), offers.vain

    def slow(*args: Any) -> int:
        found = vain(*args) if looked else 0
        monkeypatch.setattr(offers, "vain", vain)
        adding = threading.Thread(target=lambda: add(store, 1, 2))
        adding.start()
        adding.join()
        return found if looked else vain(*args)

    monkeypatch.setattr(offers, "vain", slow)
    waiting.goes_on.set()
    assert waiting.wait() == [0, 1]
    assert owners(store) == ["c", "c"]
    assert queue(store) == []


@pytest.mark.inside
def test_it_is_called_before_it_can_look(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between being seen to wait and looking: the call counts from before it was seen."""
    waiting, fence = Again(store, "c"), Slots.fence

    def slow(self: Slots) -> None:
        monkeypatch.setattr(Slots, "fence", fence)
        fence(self)
        adding = threading.Thread(target=lambda: add(store, 1))
        adding.start()
        adding.join()

    monkeypatch.setattr(Slots, "fence", slow)
    waiting.goes_on.set()
    eventually(lambda: waiting.got == [0, 1])
    waiting.join()


@pytest.mark.inside
def test_what_was_there_when_it_comes_it_reads(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Again(store, "c")
    add(store, 1, 2)
    before = commits(store)
    waiting.goes_on.set()
    assert waiting.wait() == [0, 1]
    assert commits(store) == before + 1


def test_one_that_was_killed_stands_in_nobodys_way(store: Store[Any]) -> None:
    group_of(store)
    child = reader(store, "dies", times=2)
    add(store, 0)
    eventually(lambda: owners(store) == ["dies"] and queue(store) == [child.pid])
    child.kill()
    waiting = Reading(store, "lives", count=1)
    add(store, 1)
    assert waiting.wait() == [1]


def test_slots_are_not_held_by_many_who_do_not_come_back(store: Store[Any]) -> None:
    group_of(store)
    for n in range(3 * BARE_MAX):
        waiting = Reading(store, f"c{n}", count=1)
        add(store, n)
        assert waiting.wait() == [n]
    assert len(used(store)) <= BARE_MAX


def test_who_closes_the_store_gives_its_slot_back(store: Store[Any]) -> None:
    group_of(store)
    child = reader(store, "c")
    add(store, 0)
    child.join()
    assert owners(store) == ["c"]
    assert used(store) == []


@pytest.mark.inside
@pytest.mark.parametrize("pad", ["", BULKY])
def test_what_is_carried_is_what_it_was_given(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch, pad: str
) -> None:
    """As of the peers' blocked clients: what was deleted since it was given is given all the same;
    what is too large for a hand is looked up, and is gone.
    """
    collect = group_wait._Stand.collect

    def late(self: Any, hand: Any) -> Any:
        monkeypatch.setattr(group_wait._Stand, "collect", collect)
        store.stream("work").delete(hand.first)
        return collect(self, hand)

    monkeypatch.setattr(group_wait._Stand, "collect", late)
    waiting = Reading(store, "c", count=1)
    add(store, 7, pad=pad)
    if pad:
        eventually(lambda: store.metrics()["handed"] == 1)
        add(store, 8)
    assert waiting.wait() == [8 if pad else 7]


def hand_of(*items: StreamID) -> Hand:
    """A hand in which these lie."""
    return Hand(GIVEN, 1, 0, *items[0], *items[-1], 5)


@pytest.mark.parametrize("size", [0, 1, 100, ROOM_BYTES - 20, ROOM_BYTES, 10_000])
@pytest.mark.parametrize("entries", [1, 2, ENTRIES_MAX, ENTRIES_MAX + 1])
def test_what_fits_is_carried_whole(size: int, entries: int) -> None:
    carried = Carried(memoryview(bytearray(3 * CARRIED_BYTES)))
    share = [(StreamID(n + 1, 2**64 - 1), [b"f", b"v" * size]) for n in range(entries)]
    hand = hand_of(*[id for id, _ in share])
    carried.put_locked(1, [(StreamID(9, 9), [b"an", b"other"])])
    carried.put_locked(1, share)
    found = carried.get(1, hand)
    assert found == (share if found else None)
    fits = entries * (size + 25) <= ROOM_BYTES and entries <= ENTRIES_MAX
    assert found is not None or not fits
    assert carried.get(1, hand_of(StreamID(9, 9))) is None
    assert carried.get(0, hand) is None
    assert carried.get(2, hand) is None


@pytest.mark.parametrize("rubbish", [b"\xff" * 508, b"\x90", b"\x91\x01", b"\x91\x93\xa1a\x01\x90"])
def test_rubbish_is_looked_up(rubbish: bytes) -> None:
    memory = bytearray(CARRIED_BYTES)
    carried = Carried(memoryview(memory))
    for size in (len(rubbish), 509, 2**32 - 1):
        memory[:4] = size.to_bytes(4, "little")
        memory[4 : 4 + len(rubbish)] = rubbish
        assert carried.get(0, hand_of(StreamID(1, 1))) is None
