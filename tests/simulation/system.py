"""The system as a simulated process has it: each call of it may be the end of its turn.

A *hand* is a thread of a simulated process. It is a real thread of a real process, forked for the
history, but of all hands exactly one runs at a time: at a point (a call of the system, a word that
is stored) it may have to report to the director, and goes on when it is told to. The compiled lane
asks at its points by itself (``native.simulate``); of the Python side the calls are replaced here,
below what is under test: the methods of ``fs.File``, the futex, the clocks, the locks of threads,
and the steps of ``Wake`` that publish.

Invariants: time is a word that all processes share, a microsecond later at each look, and moved on
by the director when all sleep; what a call would wait for, the director knows; a sync is noted, not
done; a garbage collection never runs inside of a point, where the real system would not run Python.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Self

import lmdb

from logstore import fs
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.shm import commit_words, futex, writer_lock
from logstore.errors import typed
from logstore.index.env import Generation
from logstore.index.txn import IndexTxn

LOOK_NS = 1000
SPIN_NS = 3 * LOOK_NS  # on every machine, whatever processors it has
WALL_NS = 1_800_000_000 * 10**9
SHORT = -1  # what -1 - n says of a write: n bytes of it
GO_ON, STORED = 0, "store"
_get_ident = threading.get_ident
_lock, _rlock = threading.Lock, threading.RLock


def _shared_word(number: int) -> Any:
    """A word of the memory of a clock, as an attribute."""

    def read(clock: Clock) -> int:
        return clock._words[number]

    def write(clock: Clock, value: int) -> None:
        clock._words[number] = value

    return property(read, write)


class Clock:
    """Nanoseconds, and how many points there were, in memory that all processes share."""

    def __init__(self, memory: Any) -> None:
        self._words = memoryview(memory).cast("q")

    def look(self) -> int:
        """What it is, a little later than at the last look."""
        self._words[0] += LOOK_NS
        return self._words[0]

    ns = _shared_word(0)  # what it is
    points = _shared_word(1)  # of all hands


class Hand:
    """One thread of a simulated process."""

    def __init__(self, line: Connection, host: Host) -> None:
        self.line, self.host = line, host
        self.left = 0  # points until it must report
        self.alone = False  # it keeps the interpreter: no other hand of its process runs meanwhile
        self.must = False  # report at the next point, whatever is left

    def point(self, what: str, *more: object) -> int:
        """A place where another hand may come in between, or a call may fail: 0 if it may not."""
        self.left -= 1
        self.host.clock.points += 1
        if self.left >= 0 and not self.must and not self.host.stops_at(what, more):
            return GO_ON
        self.must = False
        return self.report("at", what, *more)

    def report(self, *told: object) -> int:
        """Tell the director, and wait for its word."""
        counts = gc.isenabled()
        gc.disable()
        try:
            told_on, self.host.told = self.host.told, []
            self.line.send((told, told_on, self.alone))
            self.left, answer = self.line.recv()
            return int(answer)
        finally:
            if counts:
                gc.enable()


class Host:
    """What the hands of one process share."""

    def __init__(self, clock: Clock, stops: tuple[str, ...], rng: random.Random) -> None:
        self.clock, self.stops, self.rng = clock, stops, rng
        self.hands: dict[int, Hand] = {}  # by thread
        self.told: list[tuple[object, ...]] = []  # that goes along with the next report
        self.address = 0  # where WAKE is mapped
        self.index: Generation | None = None  # the last that was opened
        self.locks = 0

    def stops_at(self, what: str, more: tuple[object, ...]) -> bool:
        """Whether the director always looks here: a call, or the storing of one of the words."""
        return what in self.stops or (what == STORED and f"{what} {more[0]}" in self.stops)

    def hand(self) -> Hand | None:
        """The hand that runs; None for a thread of nobody."""
        return self.hands.get(_get_ident())

    def point(self, what: str, *more: object) -> int:
        """As of the hand that runs."""
        hand = self.hand()
        return GO_ON if hand is None else hand.point(what, *more)

    def synced(self, fd: int) -> None:
        """What stands in a file is durable."""
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}")).removesuffix(".tmp")
        self.told.append(("synced", name, os.fstat(fd).st_size))

    def look_at_index(self, wake: commit_words.Wake, upto: int) -> None:
        """Have the director told if INDEXED is above what LMDB has."""
        index = self.index
        if index is None or index.number != wake.generation():
            return
        with suppress(lmdb.Error), index.env.begin() as txn:
            found = IndexTxn(index, txn).meta().applied
            if upto > found:
                self.told.append(("wrong", f"INDEXED is {upto:#x}, and LMDB has {found:#x}"))

    # -- what the lane asks --------------------------------------------------------------------
    def asked(self, call: str, first: int, second: int, held: int) -> int:
        """What it does at a call: as ``native.simulate`` says."""
        hand = self.hand()
        if call == "clock":
            return self.clock.look() + (0 if first else WALL_NS)
        if hand is None:
            return GO_ON
        counts, hand.alone = gc.isenabled(), bool(held)
        gc.disable()
        try:
            return self._asked(hand, call, first, second)
        finally:
            hand.alone = False
            if counts:
                gc.enable()

    def _asked(self, hand: Hand, call: str, first: int, second: int) -> int:
        if call == "wake":
            hand.point("before wake")
            hand.report("wake", first - self.address, second)
            return 1
        if call == "sleep":
            hand.report("wait", first - self.address, self.clock.ns + second)
            return GO_ON
        if call == "store":
            return hand.point(STORED, first - self.address, second)
        if call == "fdatasync":
            answer = hand.point("fdatasync")
            if not answer:
                self.synced(first)
            return answer or SHORT
        answer = hand.point(call, second)
        if call == "pwrite" and answer < 0:
            hand.must = True  # what becomes of the rest
        return answer

    # -- what Python asks ----------------------------------------------------------------------
    def wait(self, address: int, expected: int, timeout_s: float) -> None:
        """A futex that is slept on."""
        hand = self.hand()
        if hand is None or timeout_s <= 0:
            return
        hand.point("before wait")
        word = ctypes.c_uint32.from_address(address)
        if word.value == expected:
            until = self.clock.ns + max(int(timeout_s * 1e9), 1)
            hand.report("wait", address - self.address, until)

    def wake(self, address: int, count: int = futex.WAKE_ALL) -> int:
        """How many were woken."""
        hand = self.hand()
        if hand is None:
            return 0
        hand.point("before wake")
        return hand.report("wake", address - self.address, count)

    def sleep(self, seconds: float) -> None:
        """As of the module ``time``."""
        hand = self.hand()
        if hand is not None:
            hand.report("sleep", self.clock.ns + max(int(seconds * 1e9), LOOK_NS))


class Lock:
    """A lock of threads: who finds it taken tells the director, and tries again."""

    host: Host
    made: Callable[[], Any] = _lock

    def __init__(self) -> None:
        self._real = type(self).made()
        self.host.locks += 1
        self._number = self.host.locks
        self._wanted = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As of ``threading``."""
        if self._real.acquire(False):
            return True
        hand = self.host.hand()
        if not blocking or hand is None:
            return bool(self._real.acquire(blocking, timeout))
        until = 0 if timeout < 0 else self.host.clock.ns + int(timeout * 1e9)
        while True:
            self._wanted += 1
            hand.report("lock", self._number, until)
            self._wanted -= 1
            if self._real.acquire(False):
                return True
            if until and self.host.clock.ns >= until:
                return False

    def release(self) -> None:
        """As of ``threading``."""
        self._real.release()
        if self._wanted:
            self.host.told.append(("unlocked", self._number))

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def locked(self) -> bool:
        """As of ``threading``."""
        return bool(self._real.locked())


class RLock(Lock):
    """The same, for one thread several times."""

    made = _rlock

    def _is_owned(self) -> bool:
        return bool(self._real._is_owned())


def install(host: Host) -> None:
    """From here on this process has the simulated system."""
    Lock.host = host
    threading.Lock = Lock  # type: ignore[assignment,misc]
    threading.RLock = RLock  # type: ignore[assignment,misc]
    _install_time(host)
    # A store's UUID is in each checksum, and so in how well a hint packs.
    os.urandom = host.rng.randbytes
    writer_lock.SPIN_NS = SPIN_NS
    futex.wait, futex.wake = host.wait, host.wake
    futex.let_run = lambda: None
    futex.fence = lambda _address: None
    _install_files(host)
    _install_words(host)
    assert native_or_none is not None
    native_or_none.simulate(host.asked)


def _install_time(host: Host) -> None:
    look = host.clock.look
    time.monotonic_ns = time.perf_counter_ns = look
    time.time_ns = lambda: look() + WALL_NS
    time.monotonic = time.perf_counter = lambda: look() / 1e9
    time.time = lambda: (look() + WALL_NS) / 1e9
    time.sleep = host.sleep  # type: ignore[assignment]


def _install_files(host: Host) -> None:
    def pwrite(self: fs.File, data: bytes | bytearray, offset: int) -> None:
        view, hand = memoryview(data), host.hand()
        while view:
            said = host.point("pwrite", len(view))
            if said > 0:
                error = OSError(said, os.strerror(said))
                raise typed(error, self.path, "writing") from error
            size = len(view) if not said else min(SHORT - said, len(view))
            os.pwrite(self.fd, view[:size], offset)
            view, offset = view[size:], offset + size
            if said and hand is not None:
                hand.must = True

    def sync(self: fs.File) -> None:
        if said := host.point("fdatasync"):
            error = OSError(said, os.strerror(said))
            raise typed(error, self.path, "syncing") from error
        host.synced(self.fd)

    def try_lock(self: fs.File, *, exclusive: bool) -> bool:
        host.point("flock")
        return bool(lock(self, exclusive=exclusive))

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def at_a_point(*args: Any, **named: Any) -> Any:
            host.point(name)
            return call(*args, **named)

        return at_a_point

    lock: Callable[..., bool] = fs.File.try_lock
    file: Any = fs.File
    file.pwrite, file.sync, file.try_lock = pwrite, sync, try_lock
    for name in ("unlock", "truncate"):
        setattr(file, name, wrapped(name, getattr(file, name)))
    system: Any = fs.FileSystem
    system.rename = wrapped("rename", system.rename)
    system.sync_directory = wrapped("sync_directory", lambda *_: None)
    generation: Any = Generation
    generation.sync = wrapped("sync the index", lambda *_: None)


def _install_words(host: Host) -> None:
    wake: Any = commit_words.Wake
    made, begin, publish = wake.__init__, wake.begin, wake.publish

    def init(self: Any, *args: Any, **named: Any) -> None:
        made(self, *args, **named)
        host.address = self._address

    def begun(self: Any, commit: int) -> None:
        host.point(STORED, "in progress")
        begin(self, commit)

    def published(self: Any, *args: Any, **named: Any) -> None:
        host.point(STORED, "publish")
        publish(self, *args, **named)
        host.look_at_index(self, indexed.fget(self))

    def raised(self: Any, position: int) -> None:
        host.point(STORED, "indexed")
        indexed.fset(self, position)
        host.look_at_index(self, position)

    def opened(self: Any, *args: Any, **named: Any) -> None:
        open_index(self, *args, **named)
        host.index = self

    def loaded(self: Any) -> int:
        found: int = indexed.fget(self)
        host.point("load indexed")
        return found

    def ended(self: Any) -> int:
        found: int = applied.fget(self)
        host.point("load applied")
        return found

    indexed, applied = wake.indexed_upto, wake.applied
    index: Any = Generation
    open_index, index.__init__ = index.__init__, opened
    wake.__init__, wake.begin, wake.publish = init, begun, published
    wake.indexed_upto, wake.applied = property(loaded, raised), property(ended)
