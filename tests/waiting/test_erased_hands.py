"""Prevents an erased value from staying in WAKE, where waiters are handed small entries."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import logstore
from logstore.api import group_wait
from logstore.api.store import Store
from logstore.engine.shm.carried import CARRIED_BYTES, Carried
from logstore.engine.shm.mailbox import GIVEN, Hand
from logstore.ids import StreamID
from tests.compaction.dumps import everywhere
from tests.engine.procs import Forked
from tests.waiting.crowd import LONG_S, eventually, group_of, queued, takers
from tests.waiting.test_handover import Reading, add

pytestmark = pytest.mark.usefixtures("patient", "unhurried")

SECRET = os.urandom(24)
Ways = dict[str, Callable[[Store[Any], list[StreamID]], object]]
WAYS: Ways = {
    "delete": lambda store, ids: store.stream("work").delete(*ids, purge=True),
    "delete, compact": lambda store, ids: (
        store.stream("work").delete(*ids),
        store.compact(purge=True),
    ),
    "delete a range": lambda store, ids: store.stream("work").delete_range(
        ids[0], ids[-1], purge=True
    ),
    "trim, compact": lambda store, _: (
        store.stream("work").trim(maxlen=0, approximate=False),
        store.compact(purge=True),
    ),
    "drop, compact": lambda store, _: (store.drop("work"), store.compact(purge=True)),
}


def secret_reader(store: Store[Any], who: str) -> Forked:
    """Another process that takes one secret."""

    def work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            found = group_of(theirs).read(who, count=1, timeout=LONG_S)
            assert found[0].fields[b"secret"].startswith(SECRET)

    return queued(store, work)


class Secret(Reading):
    """A thread that takes one secret."""

    def run(self) -> None:
        """Read."""
        found = self._group.read(self._who, **self._options)
        self.got = [each.fields[b"secret"].startswith(SECRET) for each in found]


class Dropped(Reading):
    """A thread that reads once, of a group that may go."""

    def run(self) -> None:
        """Read."""
        try:
            super().run()
        except logstore.GroupNotFoundError:
            self.got = []


@pytest.mark.parametrize("way", WAYS)
def test_what_waiters_were_handed_is_erased(store: Store[Any], way: str) -> None:
    """In every file of the store, while others wait, and when all have closed it."""
    group_of(store)
    here, there = Secret(store, "here", count=1), secret_reader(store, "there")
    eventually(lambda: len(takers(store)) == 2)
    ids = list(store.stream("work").add_many({"secret": SECRET + bytes([n])} for n in range(2)))
    assert here.wait() == [True]
    there.join()
    assert "WAKE" in everywhere(store.path, SECRET)  # else this tests nothing
    waiting = Dropped(store, "waiting", count=1)
    WAYS[way](store, ids)
    assert everywhere(store.path, SECRET) == []
    if not way.startswith("drop"):
        add(store, 7)
    assert waiting.wait() == ([] if way.startswith("drop") else [7])
    store.close()
    assert everywhere(store.path, SECRET) == []


def test_what_a_killed_waiter_was_handed_is_erased(store: Store[Any]) -> None:
    """Nobody gives its place back."""
    group_of(store)

    def work() -> None:
        with logstore.open(store.path, sync="os", background=False) as theirs:
            group_of(theirs).read("there", count=1, timeout=LONG_S)
            os.kill(os.getpid(), signal.SIGKILL)

    there = queued(store, work)
    eventually(lambda: len(takers(store)) == 1)
    id = store.stream("work").add({"secret": SECRET})
    os.waitpid(there.pid, 0)
    assert "WAKE" in everywhere(store.path, SECRET)
    store.stream("work").delete(id, purge=True)
    assert everywhere(store.path, SECRET) == []


@pytest.mark.inside
def test_what_is_erased_between_hand_and_waiter_is_looked_up(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    collect = group_wait._Stand.collect

    def late(self: Any, hand: Any) -> Any:
        monkeypatch.setattr(group_wait._Stand, "collect", collect)
        store.stream("work").delete(hand.first, purge=True)
        return collect(self, hand)

    monkeypatch.setattr(group_wait._Stand, "collect", late)
    waiting = Reading(store, "c", count=1)
    add(store, 7)
    eventually(lambda: store.metrics()["handed"] == 1)
    add(store, 8)
    assert waiting.wait() == [8]


def test_what_is_erased_while_it_is_read_is_not_half_read() -> None:
    """The bytes of a value could be empty and its ID still there."""
    memory = memoryview(bytearray(3 * CARRIED_BYTES))
    hand = Hand(GIVEN, 1, 0, *StreamID(1, 1), *StreamID(1, 1), 5)
    carried = Carried(memory)
    carried.put_locked(1, [(StreamID(1, 1), [b"f", SECRET])])
    assert carried.get(1, hand) == [(StreamID(1, 1), [b"f", SECRET])]
    slow = Carried(memory, carried.erase_locked)
    assert slow.get(1, hand) is None
    assert bytes(memory) == bytes(len(memory))
