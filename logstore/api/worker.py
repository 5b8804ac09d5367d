"""Workers: the loop that reads from a consumer group, handles, acks, and gives up on the hopeless.

Invariants: an entry is acked only after its handler returned, so each is handled at least once, and
exactly once in the store's streams if the handler adds and acks in one transaction; a worker takes
nothing back from another one that claimed an entry of its meanwhile; an entry goes to the dead
letter stream and is acked in one commit (``groups.dead_letter``); a worker that is stopped ends the
running handler first and gives the rest of its batch back. Times are seconds or ``timedelta``. What
comes next is decided in ``work_loop``.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from logstore.api.delivery import Delivery
from logstore.api.handlers import USE_AIO, check_callable, not_done
from logstore.api.work_loop import Do, Fetch, Handle, Loop, Step, Stop, Stopped, Together, Work

if TYPE_CHECKING:
    from logstore.api.group import Group

T = TypeVar("T", bytes, str)
SLEEP_S = 0.05


def consume(group: Group[T], consumer: str | bytes, work: Work) -> int:
    """Hand entries to ``handler``, one after the other, until stopped; how many it handled.

    First the consumer's own backlog, then what was given back or is pending for as long as is set
    for the group (``redeliver_after``) or asked for with ``claim_idle``, with anybody; then new
    entries, ``batch`` at a time. If the handler returns, the entry is acked (unless it was in a
    transaction of the handler's own). If it raises, that is logged and the entry given back.

    An entry that failed ``max_deliveries`` times, or was delivered so often without an outcome,
    goes to the stream ``dead_letter`` with fields ``origin_stream, origin_id, origin_group,
    origin_consumer, origin_delivery_count, origin_error`` behind its own, in one commit with its
    ack; ``on_dead`` is called with a ``DeadLetter`` after. Both are those set for the group, unless
    they are given here.

    It ends when the event ``stop`` is set; at SIGTERM, if it runs in the main thread; or when
    nothing came for ``timeout`` (None: never, 0: what is there is handled). The running handler is
    ended first, and what it had not begun is given back.

    A coroutine or generator function is refused (OptionError): nobody would await it. A handler
    that returns an awaitable ends the loop with a UsageError, and its entry is given back.
    """
    check_callable(work.handler, "handler", coroutines=USE_AIO)
    loop = Loop(group, consumer, work)
    steps, answer = loop.rounds(), None
    with _terminating(loop.stop):
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                handled: int = end.value
                return handled
            answer = _perform(loop, step)


@contextmanager
def _terminating(stop: Stop) -> Iterator[None]:
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


def _perform(loop: Loop[T], step: Step) -> Any:
    """Do what the loop asks for, in this thread."""
    if isinstance(step, Do):
        return step.call()
    if isinstance(step, Handle):
        return _handle(loop.work, step.delivery)
    if isinstance(step, Fetch):
        return _fetch(loop, step)
    assert not isinstance(step, Together)  # one thread handles one after the other
    until = time.monotonic() + step.length_s
    while not loop.stop and (left := until - time.monotonic()) > 0:
        time.sleep(min(SLEEP_S, left))
    return None


def _handle(work: Work, delivery: Delivery[Any]) -> Exception | None:
    try:
        given = work.handler(delivery)
    except Exception as error:  # noqa: BLE001  the loop decides
        return error
    return not_done(given, "handler", USE_AIO)


def _fetch(loop: Loop[T], step: Fetch) -> list[Delivery[T]]:
    try:
        return loop.group._read(
            loop.consumer, loop.batch, step.until, claim_idle_ms=loop.claim_idle_ms,
            alive=loop.alive, worker=True, dead=loop.limit, on_dead=loop.work.on_dead,
        )  # fmt: skip
    except Stopped:
        return []
