"""A simulated process: it opens the store, and does what the director asks for, call by call.

What is asked is a tuple, what is told of it another one, so that both can be kept and judged.
Invariants: nothing is done that was not asked for; an entry is made from its number alone, so that
who judges knows its fields; what a call raises is told by its name, and whether it may count.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from logstore.engine.commit import write_back
from logstore.engine.runtime import identity
from tests.collections import sealed
from tests.collections.collector import Collector
from tests.simulation.system import Clock, Hand, Host, install
from tests.support import inside

GROUP = "g"
GROUPED = ("a", "b")  # made in the beginning, with a group each
LATER = tuple(f"n{number}" for number in range(8))  # each begins with an add
STREAMS = GROUPED + LATER
HANG_S = 120
PR_SET_PDEATHSIG = 1
Op = tuple[Any, ...]


class Setup(NamedTuple):
    """How a history has its store."""

    path: Path
    sync: str
    node_max_entries: int
    lag_commits: int
    collects: bool  # a garbage collection at every object that is made
    stops: tuple[str, ...]  # calls at which the director always looks
    seed: str  # of what the system draws at random, with the process's number
    look_ns: int  # between two looks at the store's files, which commits beside the pipeline leave


def row(number: int) -> dict[Any, Any]:
    """The entry of this number; half of them have the names that others have, the very objects."""
    rng = random.Random(number)
    names = rng.choice(sealed.SHAPES)
    values = [str(number), *[rng.randrange(1 << 40) for _ in names[1:]]]
    return sealed.entry(names, values, fresh=rng.random() < 0.3)


def live(
    lines: list[Connection], clock: Clock, setup: Setup, number: int, plant: Callable[[], None]
) -> None:
    """Be the process of this number with so many hands, until it is killed."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    write_back.INDEX_LAG_MAX_COMMITS = setup.lag_commits
    identity.LOOK_NS = setup.look_ns
    actor, host = Actor(setup), Host(clock, setup.stops, random.Random(f"{setup.seed}-{number}"))
    hands = [Hand(line, host) for line in lines]
    threads = [threading.Thread(target=actor.serve, args=(hand,), daemon=True) for hand in hands]
    for hand, thread in zip(hands, threads, strict=True):
        thread.start()
        assert thread.ident is not None
        host.hands[thread.ident] = hand
    wait = threads[0].join
    install(host)
    plant()
    if setup.collects:
        actor.collect()
    for hand in hands:
        hand.line.send((("ready",), [], False))
    wait()


class Actor:
    """The store of a process."""

    store: logstore.Store[bytes]

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.given: dict[tuple[str, tuple[int, int]], logstore.Delivery[bytes]] = {}
        self.collector: Collector | None = None

    def serve(self, hand: Hand) -> None:
        """Do what a hand is told to, for ever."""
        left, op = hand.line.recv()
        while True:
            hand.left = left
            try:
                told: tuple[Any, ...] = ("done", getattr(self, op[0])(*op[1:]))
            except logstore.CommittedError as exc:
                told = ("raised", type(exc).__name__, True, str(exc))
            except (logstore.Error, MemoryError) as exc:
                told = ("raised", type(exc).__name__, False, str(exc))
            except BaseException as exc:  # noqa: BLE001  a test that fails, and where
                told = ("broke", repr(exc), traceback.format_exc())
            told_on, hand.host.told = hand.host.told, []
            hand.line.send((told, told_on, False))
            left, op = hand.line.recv()

    def collect(self) -> None:
        """Collect at every object from here on, and let a finaliser look into the store."""
        self.collector = Collector(self._intrude)
        self.collector.__enter__()

    def _intrude(self) -> None:
        try:
            for entry in self.store.stream(STREAMS[0]).range(count=3):
                sealed.check(entry.fields)
        except logstore.ReentryError:
            pass

    # -- what may be asked for -------------------------------------------------------------------
    def open(self) -> None:
        setup = self.setup
        limits = {} if (setup.path / "STORE").exists() else {
            "node_max_entries": setup.node_max_entries
        }  # fmt: skip
        self.store = logstore.open(
            setup.path, sync=setup.sync, background=False, lock_timeout=30.0, **limits
        )

    def prepare(self) -> None:
        for name in GROUPED:
            self.store.stream(name).group(GROUP, start="0")

    def close(self) -> None:
        self.store.close()

    def add(self, name: str, number: int) -> tuple[int, int]:
        if self.collector is not None:
            self.collector.after(number % 40)
        return tuple(self.store.stream(name).add(row(number)))  # type: ignore[return-value]

    def together(self, rows: list[tuple[str, int]]) -> list[tuple[int, int]]:
        with self.store.transaction() as tx:
            made = [tx.stream(name).add(row(number)) for name, number in rows]
        return [tuple(one.id) for one in made]  # type: ignore[misc]

    def many(self, name: str, numbers: list[int]) -> list[tuple[int, int]]:
        ids = self.store.stream(name).add_many([row(number) for number in numbers])
        return [tuple(id) for id in ids]  # type: ignore[misc]

    def delete(self, name: str, id: tuple[int, int]) -> int:
        return self.store.stream(name).delete(logstore.StreamID(*id))

    def read(self, name: str, who: str, count: int, timeout: float) -> list[Any]:
        found = self.store.stream(name).group(GROUP).read(who, count=count, timeout=timeout)
        return self._told(name, found)

    def claim(self, name: str, who: str, ids: list[tuple[int, int]]) -> list[Any]:
        wanted = [logstore.StreamID(*id) for id in ids]
        return self._told(
            name, self.store.stream(name).group(GROUP).claim(who, *wanted, min_idle=0)
        )

    def back(self, name: str, ids: list[tuple[int, int]]) -> int:
        return self.store.stream(name).group(GROUP).nack(*[logstore.StreamID(*id) for id in ids])

    def again(self, name: str, who: str) -> list[Any]:
        return self._told(name, self.store.stream(name).group(GROUP).backlog(who))

    def _told(self, name: str, found: list[logstore.Delivery[bytes]]) -> list[Any]:
        self.given |= {(name, tuple(one.id)): one for one in found}  # type: ignore[misc]
        return [(tuple(one.id), one.delivery_count, list(one.pairs)) for one in found]

    def follow(self, name: str, after: tuple[int, int], timeout: float) -> list[Any]:
        start = logstore.StreamID(*after)
        found = self.store.read({name: start}, timeout=timeout)
        return [(tuple(one.id), list(one.pairs)) for entries in found.values() for one in entries]

    def ack(self, name: str, ids: list[tuple[int, int]]) -> int:
        return self.store.stream(name).group(GROUP).ack(*[logstore.StreamID(*id) for id in ids])

    def settle(
        self, name: str, ids: list[tuple[int, int]], rows: list[tuple[str, int]]
    ) -> list[tuple[int, int]]:
        with self.store.transaction() as tx:
            tx.ack(*[self.given[name, id] for id in ids])
            made = [tx.stream(to).add(row(number)) for to, number in rows]
        return [tuple(one.id) for one in made]  # type: ignore[misc]

    def range(self, name: str) -> list[Any]:
        return [(tuple(one.id), list(one.pairs)) for one in self.store.stream(name).range()]

    def sync(self) -> None:
        self.store.sync()

    def roll(self) -> None:
        inside.roll(self.store)

    def look(self) -> dict[str, Any]:
        found = {}
        for name in STREAMS:
            stream = self.store.stream(name)
            pending = stream.group(GROUP).pending_entries() if name in GROUPED else ()
            found[name] = {
                "rows": self.range(name),
                "length": len(stream),
                "pending": sorted((tuple(one.id), one.consumer or b"") for one in pending),
            }
        return found

    def forget_index(self) -> None:
        inside.delete_index(self.setup.path)

    def check(self) -> list[str]:
        from logstore.recovery.check import check

        report = check(self.setup.path)
        return [str(one) for one in report.damage]


def start(
    lines: list[tuple[Connection, Connection]], clock: Clock, setup: Setup, number: int,
    plant: Callable[[], None], others: list[Connection],
) -> int:  # fmt: skip
    """Fork a process; its pid."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for ours, _ in lines:
            ours.close()
        for other in others:
            other.close()
        live([theirs for _, theirs in lines], clock, setup, number, plant)
    except BaseException:  # noqa: BLE001  nothing may go on here as if it were the parent
        traceback.print_exc()
    finally:
        os._exit(70)
