"""Workers: the loop that reads from a consumer group, calls a handler, acks, and gives entries up.

Invariants: an entry is acked only after its handler returned. So each is handled at least once, and
exactly once in the store's streams if the handler adds and acks in one transaction. A worker takes
no entry back that another one claimed meanwhile. An entry goes to the dead letter stream and is
acked in one commit (``groups.dead_letter``). A worker that is stopped ends the running handler
first and gives the rest of its batch back. Times are seconds, ``timedelta`` or "1h".

``WorkLoop.rounds`` is a generator of steps: fetch, sleep, handle, do. A thread (``consume``) or an
event loop (``aio.worker``) performs each step and sends back its result. ``CallStore`` is one short
call of the store; nothing else in the loop takes a lock or waits.

A handler whose call would do nothing is refused: a coroutine function does nothing until its
coroutine is awaited, a generator function nothing until somebody iterates. What can be seen of a
function is refused at the call that is given it; what can be seen of its result only is refused
before the entry is acked. A coroutine that nobody awaits is closed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from logstore.api import arguments
from logstore.api.arguments import deadline_of
from logstore.api.opening import OpenStore
from logstore.engine.groups import ack, group_rows
from logstore.engine.groups.dead_letter import Limit
from logstore.engine.groups.deliver import GIVEN_BACK_ONLY
from logstore.engine.shm import process_identity
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.waiting.stream_wait import over
from logstore.errors import NotOwnerError, OptionError, UsageError, shown
from logstore.features.setting_rows import SettingRows
from logstore.ids import ZERO_ID, StreamID
from logstore.logger import Logger
from logstore.options import AMOUNT_MAX, Length
from logstore.signal_handlers import handled
from logstore.tuples import NamedTuple

R = TypeVar("R")
T = TypeVar("T", bytes, str)

# -- functions that users give ----------------------------------------------------------------
USE_AIO = "open the store with logstore.aio.open and await its consume, or give a plain function"
PLAIN = (
    "give a plain function: it is called in the thread that did the commit; "
    "asyncio.run_coroutine_threadsafe(work(letter), loop) hands work to an event loop"
)


class WorkNotDone(UsageError):  # noqa: N818
    """A function returned something that would have to be awaited or iterated, and nobody does."""


def check_callable(given: object, what: str, *, coroutines: str | None = None) -> None:
    """OptionError for what cannot be called, and for functions whose call does nothing yet.

    ``coroutines``: what to do instead of giving a coroutine function; None: one may be given.
    """
    import inspect  # which is slow to import, and needed by workers only

    if not callable(given):
        raise OptionError(f"{what} must be a function, not {shown(given)}")
    seen = inspect.unwrap(_unpacked(given))
    called = getattr(type(seen), "__call__", None)  # noqa: B004  an object with an async __call__
    for function in map(_unpacked, (given, seen, called)):
        if inspect.iscoroutinefunction(function):
            if coroutines is not None:
                raise OptionError(
                    f"{what} is a coroutine function, which nobody would await here: {coroutines}"
                )
        elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise OptionError(
                f"{what} is a generator function (it has a yield), of which a call does nothing "
                "before somebody iterates: give a function that returns"
            )


def _unpacked(given: Any) -> Any:
    """The function of a ``functools.partial``."""
    from functools import partial

    while isinstance(given, partial):
        given = given.func
    return given


def not_done(result: Any, what: str, hint: str) -> WorkNotDone | None:
    """The error of a function that returned work that nobody will do; None for any other result.

    A coroutine is closed, so that Python does not warn of it, too.
    """
    if result is None:
        return None
    kind = type(result)
    if isinstance(result, CoroutineType | GeneratorType):
        result.close()
    elif not isinstance(result, AsyncGeneratorType) and not hasattr(kind, "__await__"):
        futures: Any = sys.modules.get("concurrent.futures")  # else nobody has made one
        if futures is None or not isinstance(result, futures.Future) or result.done():
            return None
        hint = "wait for it: return future.result()"
    return WorkNotDone(f"{what} returned a {kind.__name__}, whose work is not done yet: {hint}")


class Event(Protocol):
    """A ``threading.Event``, an ``asyncio.Event``, or what is like them."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...


class EndKeeper(Protocol):
    """What acks handled entries itself, some of them in one commit."""

    def keeps(self, delivery: Any) -> bool:
        """Whether it acks this one, which was handled just now."""
        ...

    def commit(self) -> None:
        """Ack all of them."""
        ...


SLEEP_S = 0.05


# A delivery, and what is called with a dead letter: groups, which stand above, have the types.
Handed: TypeAlias = Any
OnDead: TypeAlias = Callable[[Any], object]
Handler = Callable[[Handed], object]
log = Logger("logstore.worker")

CONCURRENCY_MAX = 10_000
ROUND_S = 5.0  # how long to wait at most before looking at what is idle, and being seen
PAUSE_S, PAUSE_MAX_S = 0.05, 2.0  # after a round in which nothing but failures happened


# -- the loop ---------------------------------------------------------------------------------
class WorkedGroup(Protocol[T]):
    """The group that a worker works on."""

    _opened: OpenStore[T]
    _stream: bytes
    _name: bytes

    def _read(
        self, who: bytes, limit: int, deadline: float | None, **options: Any
    ) -> list[Handed]: ...

    def _backlog(
        self,
        who: bytes,
        after: StreamID,
        count: int,
        *,
        worker: bool = False,
        dead: Limit | None = None,
        on_dead: OnDead | None = None,
    ) -> list[Handed]: ...


class Work(NamedTuple):
    """What ``consume`` was asked for."""

    handler: Handler
    batch: int = 10
    max_deliveries: int | None = None
    dead_letter: str | bytes | None = None
    min_idle: Length | None = None
    stop: Event | None = None
    timeout: Length | None = None
    on_dead: OnDead | None = None
    concurrency: int = 1  # handlers at once
    backoff: Length | None = None
    backoff_max: Length = 3600
    ends: EndKeeper | None = None
    pace: Callable[[], int] | None = None  # how many entries to fetch next, up to ``batch``


class Fetch(NamedTuple):
    """Wait for entries until then (``time.monotonic``); the answer is a list of deliveries."""

    until: float


class Sleep(NamedTuple):
    """Sleep for so long, or until a stop is asked for."""

    length_s: float


class Handle(NamedTuple):
    """Call the handler; the answer is the Exception that it raised, or None. WorkNotDone ends the
    loop: the handler would do no other entry either."""

    delivery: Handed


class HandleAll(NamedTuple):
    """Perform the steps of ``handle`` for each of these, ``most`` of them at once; the answer is a
    list of what each gave."""

    deliveries: list[Handed]
    most: int
    handle: Callable[[Handed], Generator[Any, Any, bool]]


class CallStore(NamedTuple):
    """Call this; the answer is what it gives."""

    call: Callable[[], Any]


LoopStep = Fetch | Sleep | Handle | HandleAll | CallStore


class Stopped(Exception):  # noqa: N818
    """Waiting is over: a stop was asked for, or entries were handed to this consumer."""


class Stop:
    """Whether to stop: the caller's event, or SIGTERM. (An Event is no thing for a signal.)"""

    def __init__(self, event: Event | None) -> None:
        self._event = event
        self.terminated = False

    def __bool__(self) -> bool:
        return self.terminated or (self._event is not None and self._event.is_set())


class WorkLoop(Generic[T]):
    """One run of ``consume``."""

    def __init__(self, group: WorkedGroup[T], consumer: str | bytes, work: Work) -> None:
        """OptionError for options that contradict each other, or are not valid."""
        if work.on_dead is not None:
            check_callable(work.on_dead, "on_dead", coroutines=PLAIN)
        if work.stop is not None and not callable(getattr(work.stop, "is_set", None)):
            raise OptionError(f"stop must be an Event, with is_set(), not {shown(work.stop)}")
        self.group: WorkedGroup[T] = group
        self.consumer = arguments.consumer_name(consumer, group._opened.encoding)
        self.work = work
        self.stop = Stop(work.stop)
        self.limit = _limit(group, work)
        self.asked_idle_ms = GIVEN_BACK_ONLY
        if work.min_idle is not None:
            self.asked_idle_ms = arguments.milliseconds(work.min_idle, "min_idle")
        self.later = _later(group, work)
        self._handled = 0
        self._tally = threading.Lock()
        self._refused: WorkNotDone | None = None
        self._looked_at = -1  # position up to which a waiter knows that it has no backlog

    @property
    def batch(self) -> int:
        """How many entries to fetch next, at most."""
        work = self.work
        most = max(work.batch, work.concurrency)
        return most if work.pace is None else min(most, max(1, work.pace()))

    def rounds(self) -> Generator[LoopStep, Any, int]:
        """The steps to perform; how many entries were handled."""
        timeout = self.work.timeout
        deadline, pause = deadline_of(timeout), PAUSE_S
        while not self.stop:
            batch = yield from self._next(deadline)
            if not batch:
                if over(deadline):
                    break
                continue
            before = self._handled
            went_on = yield from self._batch(batch)
            if self.work.ends is not None:
                yield CallStore(self.work.ends.commit)
            if self._handled > before:
                pause = PAUSE_S
            elif not went_on:
                if over(deadline):
                    break  # only what fails again and again is left
                yield Sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)
                continue
            deadline = deadline_of(timeout)
        return self._handled

    def alive(self) -> None:
        """Stopped if there is something better to do than to wait on."""
        if self.stop:
            raise Stopped
        applied = self.group._opened.engine().wake.applied
        if applied != self._looked_at:  # else nobody committed anything since
            self._looked_at = applied
            if self.has_backlog():
                raise Stopped

    def has_backlog(self) -> bool:
        """Whether something is pending with this consumer."""
        group = self.group
        return group._opened.view(
            lambda view: group_rows.held(view, group._stream, group._name, self.consumer) > 0
        )

    # -- getting entries ------------------------------------------------------------------------
    def _next(self, deadline: float | None) -> Generator[LoopStep, Any, list[Handed]]:
        deliveries: list[Handed]
        if (yield CallStore(self.has_backlog)):
            deliveries = yield CallStore(self._backlog)
        else:
            until = time.monotonic() + ROUND_S
            deliveries = yield Fetch(until if deadline is None else min(until, deadline))
        return deliveries

    def _backlog(self) -> list[Handed]:
        return self.group._backlog(
            self.consumer,
            ZERO_ID,
            self.batch,
            worker=True,
            dead=self.limit,
            on_dead=self.work.on_dead,
        )

    # -- handling them --------------------------------------------------------------------------
    def _batch(self, batch: list[Handed]) -> Generator[LoopStep, Any, bool]:
        """Handle a batch; False if there were failures that will come back without end."""
        went_on = True
        if self.work.concurrency > 1:
            answers = yield HandleAll(batch, self.work.concurrency, self._one)
            went_on = all(answers)
            if self._refused is not None:
                raise self._refused
            batch = []
        for place, delivery in enumerate(batch):
            if self.stop:
                for each in batch[place:]:
                    yield CallStore(partial(self._give_back, each, each.delivery_count - 1))
                break
            if delivery.deleted:
                yield CallStore(delivery.ack)
            else:
                try:
                    went_on = (yield from self._handle(delivery)) and went_on
                except WorkNotDone:
                    for each in batch[place:]:
                        if not each.settled:
                            yield CallStore(partial(self._give_back, each, each.delivery_count - 1))
                    raise
        if went_on:
            return True
        limited: bool = yield CallStore(self._limited)
        return limited

    def _one(self, delivery: Handed) -> Generator[LoopStep, Any, bool]:
        """Handle one of those that are handled at once; the first WorkNotDone stops the others."""
        if self.stop or self._refused is not None:
            yield CallStore(partial(self._give_back, delivery, delivery.delivery_count - 1))
            return True
        if delivery.deleted:
            yield CallStore(delivery.ack)
            return True
        try:
            return (yield from self._handle(delivery))
        except WorkNotDone as refused:
            self._refused = refused
            if not delivery.settled:
                yield CallStore(partial(self._give_back, delivery, delivery.delivery_count - 1))
            return True

    def _handle(self, delivery: Handed) -> Generator[LoopStep, Any, bool]:
        failed: Exception | None = yield Handle(delivery)
        if failed is None:
            ends = self.work.ends
            if not delivery.settled and not (ends is not None and ends.keeps(delivery)):
                yield CallStore(delivery.ack)
            with self._tally:
                self._handled += 1
            return True
        if isinstance(failed, WorkNotDone):
            raise failed
        lost = isinstance(failed, NotOwnerError)
        if lost:
            log.info("entry %s: %s", delivery.id, failed)
        else:
            log.error(
                "entry %s failed at delivery %d",
                delivery.id,
                delivery.delivery_count,
                exc_info=failed,
            )
        if not delivery.settled:
            error = repr(failed)
            later = self.later
            yield CallStore(
                partial(self._give_back, delivery, delivery.delivery_count, error, later)
            )
            return lost
        return True

    def _give_back(
        self,
        delivery: Handed,
        count: int,
        error: str = "",
        later: ack.NackDelay | None = ack.AT_ONCE,
    ) -> None:
        """Give it back with this count, or dead-letter it, if it is still this worker's."""
        reason = error.encode("utf-8", "backslashreplace")
        step = partial(
            ack.fenced_nack,
            fence=delivery._fence(),
            retry_count=count,
            error=reason,
            limit=self.limit,
            later=later,
        )
        try:
            self.group._opened.commit_telling(step, frees=True, on_dead=self.work.on_dead)
        except NotOwnerError:
            log.info("entry %s is another consumer's now", delivery.id)

    def _limited(self) -> bool:
        """Whether what fails again and again ends in a dead letter stream."""
        group = self.group

        def look(view: Snapshot) -> bool:
            number = group_rows.group_number(view, group._stream, group._name)
            return number is not None and (
                SettingRows(view.index).group(number).max_deliveries is not None
            )

        return self.limit is not None or group._opened.view(look)


def _limit(group: WorkedGroup[Any], work: Work) -> Limit | None:
    """The worker's own limit; None: what is set for the group."""
    arguments.check_between(work.batch, "batch", 1, AMOUNT_MAX)
    arguments.check_between(work.concurrency, "concurrency", 1, CONCURRENCY_MAX)
    arguments.check_count(work.max_deliveries, "max_deliveries")
    if (work.max_deliveries is None) != (work.dead_letter is None):
        raise OptionError("give max_deliveries and dead_letter both, or neither")
    if work.max_deliveries is None or work.dead_letter is None:
        return None
    if work.max_deliveries < 1:
        raise OptionError(f"max_deliveries must be 1 or more: {work.max_deliveries}")
    name = arguments.stream_name(work.dead_letter, group._opened.encoding)
    if name == group._stream:
        raise OptionError("dead_letter must be another stream: its entries would come back")
    return Limit(work.max_deliveries, name)


def _later(group: WorkedGroup[Any], work: Work) -> ack.NackDelay | None:
    """How long what failed waits, by the worker's own options; None: as is set for the group."""
    most_ms = arguments.milliseconds(work.backoff_max, "backoff_max")
    if work.backoff is None:
        return None
    first_ms = arguments.milliseconds(work.backoff, "backoff")
    own_ms = None
    if work.min_idle is not None:
        own_ms = arguments.milliseconds(work.min_idle, "min_idle")

    def look(view: Snapshot) -> int | None:
        number = group_rows.group_number(view, group._stream, group._name)
        return None if number is None else SettingRows(view.index).group(number).min_idle_ms

    if first_ms and own_ms is None and group._opened.view(look) is None:
        raise OptionError(
            "backoff needs min_idle: who reads by it gets what waits; give min_idle=30 here, or "
            "set it for all with group.configure(min_idle=30)"
        )
    return ack.NackDelay(first_ms, most_ms, own_ms)


def consume(group: WorkedGroup[T], consumer: str | bytes, work: Work) -> int:
    """Hand entries to a handler, as ``Group.consume`` says; how many it handled."""
    check_callable(work.handler, "handler", coroutines=USE_AIO)
    loop = WorkLoop(group, consumer, work)

    def terminate(*_: object) -> None:
        loop.stop.terminated = True

    with handled(terminate, signal.SIGTERM):
        count: int = _driven(loop, loop.rounds())
        return count


def _driven(loop: WorkLoop[Any], steps: Generator[LoopStep, Any, Any]) -> Any:
    """Perform steps in this thread; what they return."""
    answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = _perform(loop, step)


def _together(loop: WorkLoop[Any], step: HandleAll) -> list[bool]:
    """Handle entries in threads. An interrupt of this thread ends the running handlers first; a
    second one does not wait for them."""
    rest, guard = iter(step.deliveries), threading.Lock()
    answers: list[bool] = []
    failures: list[BaseException] = []

    def work() -> None:
        while not failures:
            with guard:
                delivery = next(rest, None)
            if delivery is None:
                return
            try:
                answers.append(_driven(loop, step.handle(delivery)))
            except BaseException as error:  # noqa: BLE001  raised below, by who called consume
                failures.append(error)

    count = min(step.most, len(step.deliveries))
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        loop.stop.terminated = True  # what was not begun is given back
        for thread in threads:
            thread.join()
        raise
    if failures:
        raise failures[0]
    return answers


def _perform(loop: WorkLoop[T], step: LoopStep) -> Any:
    """Do what the loop asks for, in this thread."""
    if isinstance(step, CallStore):
        return step.call()
    if isinstance(step, Handle):
        return _handle(loop.work, step.delivery)
    if isinstance(step, Fetch):
        return _fetch(loop, step)
    if isinstance(step, HandleAll):
        return _together(loop, step)
    until = time.monotonic() + step.length_s
    while not loop.stop and (left := until - time.monotonic()) > 0:
        time.sleep(min(SLEEP_S, left))
    return None


def _handle(work: Work, delivery: Handed) -> Exception | None:
    try:
        given = work.handler(delivery)
    except Exception as error:  # noqa: BLE001  the loop decides
        return error
    return not_done(given, "handler", USE_AIO)


def _fetch(loop: WorkLoop[T], step: Fetch) -> list[Handed]:
    try:
        return loop.group._read(
            loop.consumer,
            loop.batch,
            step.until,
            asked_idle_ms=loop.asked_idle_ms,
            alive=loop.alive,
            worker=True,
            dead=loop.limit,
            on_dead=loop.work.on_dead,
        )
    except Stopped:
        return []


# -- consumers named after their process ------------------------------------------------------
def process_name() -> str:
    """A name for consumers that says their process: host, boot, namespace, pid, start time."""
    pid = os.getpid()
    parts = (
        process_identity.boot_id(),
        process_identity.pid_namespace(),
        pid,
        process_identity.start_ticks(pid),
    )
    return ":".join(map(str, (os.uname().nodename.replace(":", "-"), *parts)))


def process_ended(consumer: str) -> bool:
    """Whether the process surely ended whose name a consumer has, behind it ":" and a number.

    Never for one of another host, or of another container: ``min_idle`` is for those.
    """
    parts, ours = consumer.split(":"), process_name().split(":")
    if len(parts) != len(ours) + 1 or parts[0] != ours[0]:
        return False
    if parts[1] != ours[1]:
        return bool(parts[1])
    pid, start = parts[3], parts[4]
    if parts[2] != ours[2] or not (pid.isdigit() and start.isdigit()):
        return False
    known = int(start) > 0 or not process_identity.has_proc()  # without it no start is ever known
    return known and not process_identity.lives(int(pid), int(start))
