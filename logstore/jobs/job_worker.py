"""A worker: one consumer of a queue's group, which does jobs one after the other.

A job that returns ends in one commit, in which its result is added and it is acked; several quick
jobs end in one commit (``JobEnds``). A job that raises is given back, to be tried again later. When
its retries are over, it is given up in one commit: its error is added to the results and it moves
to the dead jobs.

Invariants: a job ends once, also if another worker did it meanwhile: the end is fenced, and the
worker that lost the job commits nothing. What a task does in its transaction is in that same
commit. The jobs of a worker whose process ended are taken over within seconds, and those of one
that lives never: a consumer's name says its process, and workers look at those now and then. A
job's end is kept while the next job of the batch runs, for ``KEPT_S`` at
most; then, or when the batch is over, all that are kept are one commit. Where one of them was lost
to another worker, the others are committed without it. A worker that is killed lost no more than
the ends that it kept: those jobs are done once more. The end of a job with a transaction of its own
is in that, and never kept.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count, starmap
from typing import Any

from logstore.api.group import Delivery
from logstore.api.store import Store
from logstore.api.worker import Work, consume, process_name
from logstore.errors import Error, NotOwnerError
from logstore.jobs import gone
from logstore.jobs.task import QueueStreams, Task, name_of
from logstore.logger import Logger
from logstore.options import Length
from logstore.signal_handlers import handled

log = Logger("logstore.jobs")
KEPT_S = 0.01
Fields = dict[str, str | bytes]


# -- ends of jobs, some in one commit ---------------------------------------------------------
class JobEnds:
    """What a worker's jobs gave, until it is committed. Its methods are for any thread."""

    def __init__(
        self,
        store: Store[Any],
        results: str,
        failed: Callable[[Delivery[Any], Exception], None],
    ) -> None:
        """``failed`` is called with a job whose end cannot be committed, and why."""
        self._store = store
        self._results = results
        self._failed = failed
        self._guard = threading.Lock()
        self._committing = threading.Lock()
        self._kept: list[tuple[Delivery[Any], Fields | None]] = []
        self._oldest = 0.0
        self._last: Delivery[Any] | None = None
        self._some = threading.Event()

    def keep(self, delivery: Delivery[Any], result: Fields | None) -> None:
        """Keep the end of a job: its result, if it has one, and its ack."""
        with self._guard:
            self._last = delivery
            self._kept.append((delivery, result))
            if len(self._kept) == 1:
                self._oldest = time.monotonic()
                self._some.set()

    def keeps(self, delivery: Delivery[Any]) -> bool:
        """Whether the end of the job that was just done is kept here, or was."""
        return delivery is self._last

    def commit(self) -> None:
        """Commit what is kept; when it returns, nothing that was kept before is."""
        with self._committing:
            with self._guard:
                kept, self._kept = self._kept, []
                self._some.clear()
            if not kept:
                return
            try:
                self._commit(kept)
            except Exception as error:  # noqa: BLE001  one by one it is seen whose it is
                if not isinstance(error, NotOwnerError):
                    log.warning("%d ends are committed one by one: %s", len(kept), error)
                for each in kept:
                    self._alone(each)

    def wait(self, timeout_s: float) -> bool:
        """Wait until something is kept; whether it is."""
        return self._some.wait(timeout_s)

    def commit_old(self) -> None:
        """Commit what is kept if it was for ``KEPT_S``, or wait for that."""
        with self._guard:
            left_s = self._oldest + KEPT_S - time.monotonic() if self._kept else 0.0
        if left_s > 0:
            time.sleep(left_s)
        else:
            self.commit()

    def _alone(self, end: tuple[Delivery[Any], Fields | None]) -> None:
        delivery = end[0]
        try:
            self._commit([end])
        except NotOwnerError as lost:
            log.info("job of entry %s is another worker's now: %s", delivery.id, lost)
        except Exception as error:  # noqa: BLE001  as if the job had raised it
            self._failed(delivery, error)

    def _commit(self, ends: list[tuple[Delivery[Any], Fields | None]]) -> None:
        with self._store.transaction() as tx:
            results = tx.stream(self._results)
            for delivery, result in ends:
                if result is not None:
                    results.add(result)
                tx.ack(delivery)


# -- the worker -------------------------------------------------------------------------------
AHEAD_S = 0.1
STOP_S = 0.1  # how late a stop may be seen
DEATHS_MAX = 3  # of workers that did a job, on top of its retries
BACKOFF_MAX_S = 3600.0
ERROR_MAX_CHARS = 2000
_numbers = count(1)


class Worker:
    """Does the jobs of a queue, in one thread."""

    def __init__(self, jobs: QueueStreams, tasks: Mapping[str, Task[Any, Any]]) -> None:
        self._jobs = jobs
        self._tasks = tasks
        self._ends = JobEnds(jobs.store, f"{jobs.queue}:results", self._not_ended)
        self.name = f"{process_name()}:{next(_numbers)}"
        self._stopped = threading.Event()
        self._loop: asyncio.Runner | None = None
        self._took_s = AHEAD_S  # a job, about

    def run(self, *, batch: int, stop: threading.Event | None, timeout: Length | None) -> int:
        """Do jobs until stopped, as ``Jobs.work``; how many."""
        jobs = self._jobs
        gone.rescue(jobs.group, self.name)
        looker = threading.Thread(target=self._look, name="logstore-jobs", daemon=True)
        looker.start()
        try:
            work = Work(
                self._timed, batch, stop=stop, timeout=timeout, ends=self._ends, pace=self._pace
            )
            return consume(self._jobs.group, self.name, work)
        finally:
            self._stopped.set()
            looker.join()
            self._ends.commit()
            self._give_back()
            self._drop_done()
            if self._loop is not None:
                self._loop.close()

    def _pace(self) -> int:
        """How many jobs to fetch: one while jobs take long."""
        return int(AHEAD_S / max(self._took_s, 1e-6))

    # -- one job --------------------------------------------------------------------------------
    def _timed(self, delivery: Delivery[Any]) -> None:
        begun = time.monotonic()
        try:
            self._handle(delivery)
        finally:  # a slow one counts at once, and is forgotten after some quick ones
            took_s = time.monotonic() - begun
            self._took_s = max(took_s, (self._took_s + took_s) / 2)

    def _handle(self, delivery: Delivery[Any]) -> None:
        fields = self._jobs.fields(delivery)
        id, name = name_of(delivery.id, fields)
        task = self._tasks.get(name)
        try:
            if task is None:
                known = ", ".join(sorted(self._tasks)) or "none"
                raise LookupError(f"this worker has no task {name!r}, but {known}")
            if delivery.delivery_count > task.retries + 1 + DEATHS_MAX:
                raise WorkersDied(f"{DEATHS_MAX} workers died of it, or gave no sign")
            self._do(task, id, delivery, fields)
        except NotOwnerError:
            raise
        except Exception as error:
            log.exception("job %s of task %s failed", id, name)
            self._failed(task, id, delivery, error)

    def _do(
        self, task: Task[Any, Any], id: str, delivery: Delivery[Any], fields: dict[bytes, bytes]
    ) -> None:
        jobs = self._jobs
        args, kwargs = jobs.decoded(fields.get(b"args", b""))
        if task.in_transaction:
            with jobs.store.transaction() as tx:
                result = self._result(task, id, self._called(task, (tx, *args), kwargs))
                if result is not None:
                    tx.stream(jobs.results.name).add(result)
                tx.ack(delivery)
        else:
            value = self._called(task, tuple(args), kwargs)
            self._ends.keep(delivery, self._result(task, id, value))

    def _result(self, task: Task[Any, Any], id: str, value: Any) -> Fields | None:
        """The fields of a result; None of a task that keeps none. EntryTypeError."""
        if not task.keeps_result:
            return None
        return {"job": id, "value": self._jobs.encoded(value, f"what {task.name} returned")}

    def _not_ended(self, delivery: Delivery[Any], error: Exception) -> None:
        """A job was done, but its end cannot be committed: as if it had failed."""
        id, name = name_of(delivery.id, self._jobs.fields(delivery))
        log.error("job %s of task %s did not end: %s", id, name, error)
        try:
            self._failed(self._tasks.get(name), id, delivery, error)
        except Error as again:  # it stays with this worker, which sees it in its backlog
            log.error("job %s of task %s is not given back: %s", id, name, again)

    def _called(self, task: Task[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given: list[Any] = []
        with _limited(task, given):
            # In one step with its return: no alarm comes between the two.
            given.extend(starmap(partial(task.function, **kwargs), [args]))
            if inspect.iscoroutine(given[0]):
                if self._loop is None:
                    self._loop = asyncio.Runner()
                self._loop.run(_awaited(given[0], given))
        return given[-1]

    def _failed(
        self, task: Task[Any, Any] | None, id: str, delivery: Delivery[Any], error: Exception
    ) -> None:
        """Give a job back, or up."""
        reason = f"{type(error).__name__}: {error}"[:ERROR_MAX_CHARS]
        reason = reason.encode("utf-8", "backslashreplace").decode()
        retries, backoff_s = (3, 10.0) if task is None else (task.retries, task.backoff_s)
        failed = delivery.delivery_count
        with self._jobs.store.transaction() as tx:
            if failed > retries or isinstance(error, WorkersDied):
                if task is None or task.keeps_result:
                    tx.stream(self._jobs.results.name).add({"job": id, "error": reason.encode()})
                tx.nack(delivery, mode="fatal", error=reason)
            else:
                delay_s = min(BACKOFF_MAX_S, backoff_s * 2 ** min(failed - 1, 32))
                tx.nack(delivery, delay=delay_s, error=reason)

    # -- workers that are gone --------------------------------------------------------------------
    def _look(self) -> None:
        next_look = time.monotonic() + gone.LOOK_S
        while not self._stopped.is_set():
            left_s = next_look - time.monotonic()
            if left_s > 0:
                if self._ends.wait(min(left_s, STOP_S)):
                    self._ends.commit_old()
                continue
            next_look = time.monotonic() + gone.LOOK_S
            try:
                gone.rescue(self._jobs.group, self.name)
                self._drop_done()
            except Error as error:
                log.warning("jobs of workers that are gone wait for the next look: %s", error)

    def _give_back(self) -> None:
        """Give back what nobody will do under this name: taken over as the worker ended, or failed
        while it could not be given back.
        """
        group = self._jobs.group
        held = [each.id for each in group.pending_entries(consumer=self.name)]
        if held:
            group.nack(*held, mode="silent")

    def _drop_done(self) -> None:
        """Drop jobs that ended from the queue's stream: those below the first that did not.

        What is above is not looked at, however much waits there.
        """
        group, stream = self._jobs.group, self._jobs.stream
        upto = group.pending().first or group.info().last_delivered_id
        first = stream.first
        if first is not None and first.id < upto:
            stream.trim(min_id=upto, approximate=True, references="acked")


class WorkersDied(Exception):  # noqa: N818
    """A job was begun more often than it failed."""


async def _awaited(coroutine: Coroutine[Any, Any, Any], given: list[Any]) -> None:
    """Put beside a coroutine what it gives, in one step with its return."""
    given.append(await coroutine)


@contextmanager
def _limited(task: Task[Any, Any], given: list[Any]) -> Iterator[None]:
    """TimeoutError in a call that takes too long, where a signal can interrupt it.

    Never in one that is over: one that raised, or of which ``given`` has at the end what it gave.
    """
    limit_s = task.timeout_s
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    raised = False

    def over(_number: int, _frame: object) -> None:
        if raised or (given and not inspect.iscoroutine(given[-1])):
            return
        raise TimeoutError(f"task {task.name} took over {limit_s} s")

    with handled(over, signal.SIGALRM):
        try:
            signal.setitimer(signal.ITIMER_REAL, limit_s)
            try:
                yield
            except BaseException:
                raised = True
                raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
