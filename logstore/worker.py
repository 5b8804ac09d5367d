"""Workers: the loop that reads from a consumer group, handles, acks, and gives up on the hopeless.

Invariants: an entry is acked only after its handler returned, so each is handled at least once, and
exactly once in the store's streams if the handler adds and acks in one transaction; a worker takes
nothing back from another one that claimed an entry of its meanwhile; an entry goes to the dead
letter stream and is acked in one commit; a worker that is stopped ends the running handler first
and gives the rest of its batch back. Times are seconds or ``timedelta``.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from logstore import arguments, describe
from logstore.delivery import Delivery
from logstore.engine import acks
from logstore.engine.state import State
from logstore.errors import NotOwner, OptionError
from logstore.reading import deadline_of

if TYPE_CHECKING:
    from logstore.group import Group

T = TypeVar("T", bytes, str)
Handler = Callable[[Delivery[Any]], object]
log = logging.getLogger("logstore.worker")

ROUND_S = 5.0  # how long to wait at most before looking at what is idle, and being seen
PAUSE_S, PAUSE_MAX_S = 0.05, 2.0  # after a round in which nothing but failures happened
SLEEP_S = 0.05
NOBODYS_MS = 1 << 32  # places in the line of what was given back are below, times of now above
ERROR_TEXT_MAX = 500


class Work(NamedTuple):
    """What ``consume`` was asked for."""

    handler: Handler
    batch: int = 10
    max_deliveries: int | None = None
    dead_letter: str | bytes | None = None
    claim_idle: timedelta | float | None = None
    stop: threading.Event | None = None
    timeout: timedelta | float | None = None
    on_dead: Handler | None = None


class _Stopped(Exception):  # noqa: N818
    """Waiting is over: a stop was asked for, or entries were handed to this consumer."""


class _Stop:
    """Whether to stop: the caller's event, or SIGTERM. (An Event is no thing for a signal.)"""

    def __init__(self, event: threading.Event | None) -> None:
        self._event = event
        self.terminated = False

    def __bool__(self) -> bool:
        return self.terminated or (self._event is not None and self._event.is_set())


def consume(group: Group[T], consumer: str | bytes, work: Work) -> int:
    """Hand entries to ``handler``, one after the other, until stopped; how many it handled.

    First the consumer's own backlog, then what was given back or, with ``claim_idle``, is pending
    for that long with anybody; then new entries, ``batch`` at a time. If the handler returns, the
    entry is acked (unless it was in a transaction of the handler's own). If it raises, that is
    logged and the entry given back. An entry that failed ``max_deliveries`` times goes to the
    stream ``dead_letter``, with fields ``origin_stream, origin_id, origin_group, origin_consumer,
    origin_delivery_count, origin_error`` behind its own, in one commit with its ack; ``on_dead``
    is called after. So does an entry that was delivered more often than that without an outcome:
    one that kills its workers.

    It ends when the event ``stop`` is set; at SIGTERM, if it runs in the main thread; or when
    nothing came for ``timeout`` (None: never, 0: what is there is handled). The running handler is
    ended first, and what it had not begun is given back.
    """
    stop = _Stop(work.stop)
    worker = _Worker(group, arguments.consumer_name(consumer, group._store.encoding), work, stop)
    with _terminating(stop):
        return worker.run()


@contextmanager
def _terminating(stop: _Stop) -> Iterator[None]:
    """SIGTERM asks for a stop, in the main thread; the handler before is restored after."""
    inside = threading.current_thread() is threading.main_thread()
    previous = signal.getsignal(signal.SIGTERM) if inside else None
    if previous is None:  # another thread, or a handler that Python cannot put back
        yield
        return

    def terminate(_number: int, _frame: object) -> None:
        stop.terminated = True

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


class _Worker(Generic[T]):
    """One run of ``consume``."""

    def __init__(self, group: Group[T], consumer: bytes, work: Work, stop: _Stop) -> None:
        self._group: Group[T] = group
        self._consumer = consumer
        self._work = work
        self._stop = stop
        self._handled = 0
        self._limit = _checked(group, work)
        self._idle_ms = (
            None
            if work.claim_idle is None
            else arguments.milliseconds(work.claim_idle, "claim_idle")
        )

    def run(self) -> int:
        """The loop."""
        deadline = deadline_of(self._work.timeout)
        pause = PAUSE_S
        while not self._stop:
            batch = self._next(deadline)
            if not batch:
                if deadline is not None and time.monotonic() >= deadline:
                    break
                continue
            before = self._handled
            went_on = self._batch(batch)
            if self._handled > before:
                pause = PAUSE_S
            elif not went_on:
                if deadline is not None and time.monotonic() >= deadline:
                    break  # only what fails again and again is left
                self._sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)
                continue
            deadline = deadline_of(self._work.timeout)
        return self._handled

    def _sleep(self, length_s: float) -> None:
        until = time.monotonic() + length_s
        while not self._stop and (left := until - time.monotonic()) > 0:
            time.sleep(min(SLEEP_S, left))

    # -- getting entries ------------------------------------------------------------------------
    def _next(self, deadline: float | None) -> list[Delivery[T]]:
        group, count = self._group, self._work.batch
        if self._has_backlog():
            return group.backlog(self._consumer, count=count)
        now_ms = group._now_ms()
        idle_ms = self._idle_ms
        if idle_ms is None:
            idle_ms = now_ms - NOBODYS_MS if now_ms > 2 * NOBODYS_MS else now_ms
        until = time.monotonic() + ROUND_S
        try:
            return group._read(
                self._consumer, count, until if deadline is None else min(until, deadline),
                claim_idle_ms=idle_ms, alive=self._alive,
            )  # fmt: skip
        except _Stopped:
            return []

    def _alive(self) -> None:
        if self._stop or self._has_backlog():
            raise _Stopped
        self._group._store._engine()

    def _has_backlog(self) -> bool:
        group = self._group
        return group._view(
            lambda view: describe.held(view, group._stream, group._name, self._consumer) > 0
        )

    # -- handling them --------------------------------------------------------------------------
    def _batch(self, batch: list[Delivery[T]]) -> bool:
        """Handle a batch; False if there were failures that will come back without end."""
        went_on = True
        for place, delivery in enumerate(batch):
            if self._stop:
                for each in batch[place:]:
                    self._give_back(each, each.delivery_count - 1)
                break
            if delivery.deleted:
                delivery.ack()
            elif self._limit is not None and delivery.delivery_count > self._limit:
                self._bury(delivery, "its workers ended without an outcome")
            else:
                went_on = self._handle(delivery) and went_on
        return went_on or self._limit is not None

    def _handle(self, delivery: Delivery[T]) -> bool:
        try:
            self._work.handler(delivery)
        except NotOwner as error:
            log.info("entry %s: %s", delivery.id, error)
            if not delivery.settled:
                self._give_back(delivery, delivery.delivery_count)
            return True
        except Exception as error:
            log.exception(
                "entry %s failed at delivery %d", delivery.id, delivery.delivery_count
            )  # fmt: skip
            if delivery.settled:
                return True
            if self._limit is not None and delivery.delivery_count >= self._limit:
                self._bury(delivery, repr(error))
            else:
                self._give_back(delivery, delivery.delivery_count)
            return False
        if not delivery.settled:
            delivery.ack()
        self._handled += 1
        return True

    def _give_back(self, delivery: Delivery[T], count: int) -> None:
        """Give it back with this delivery count, if it is still this worker's."""
        group = self._group

        def step(state: State) -> None:
            acks.fenced_ack(state, *delivery._fence())
            ids = [delivery.id]
            acks.nack(state, group._stream, group._name, ids, retry_count=count, force=True)

        try:
            group._store._free(step, None)
        except NotOwner:
            log.info("entry %s is another consumer's now", delivery.id)

    def _bury(self, delivery: Delivery[T], error: str) -> None:
        """To the dead letter stream, in one commit with its ack."""
        group, work = self._group, self._work
        assert work.dead_letter is not None
        origin: list[tuple[str, bytes | int]] = [
            ("origin_stream", group._stream),
            ("origin_id", bytes(delivery.id)),
            ("origin_group", group._name),
            ("origin_consumer", delivery._consumer),
            ("origin_delivery_count", delivery.delivery_count),
            ("origin_error", error[:ERROR_TEXT_MAX].encode("utf-8", "backslashreplace")),
        ]
        try:
            with group._store.transaction() as tx:
                tx.stream(work.dead_letter).add([*delivery.pairs, *origin])
                tx.ack(delivery)
        except NotOwner:
            log.info("entry %s is another consumer's now", delivery.id)
            return
        log.warning(
            "entry %s of %r moved to %r after %d deliveries: %s",
            delivery.id, group._stream, work.dead_letter, delivery.delivery_count, error,
        )  # fmt: skip
        if work.on_dead is not None:
            work.on_dead(delivery)


def _checked(group: Group[Any], work: Work) -> int | None:
    """The most deliveries of an entry; OptionError for options that contradict each other."""
    arguments.check_count(work.batch, "batch")
    arguments.check_count(work.max_deliveries, "max_deliveries")
    if work.batch < 1:
        raise OptionError(f"batch must be 1 or more: {work.batch}")
    if (work.max_deliveries is None) != (work.dead_letter is None):
        raise OptionError("give max_deliveries and dead_letter both, or neither")
    if work.max_deliveries is None or work.dead_letter is None:
        return None
    if work.max_deliveries < 1:
        raise OptionError(f"max_deliveries must be 1 or more: {work.max_deliveries}")
    if arguments.stream_name(work.dead_letter, group._store.encoding) == group._stream:
        raise OptionError("dead_letter must be another stream: its entries would come back")
    return work.max_deliveries
