"""A queue of jobs, as programs see it: its tasks, its jobs, its state.

Invariant: of workers it knows their group only, and that one can be run here.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from logstore.api import arguments, scheduling, values
from logstore.api.store import Store
from logstore.clock import SYSTEM_CLOCK
from logstore.errors import OptionError, shown
from logstore.jobs.gone import text
from logstore.jobs.task import JOB_ID_BYTES, Job, QueueStreams, Task, name_of
from logstore.options import Length, Sync

P = ParamSpec("P")
R = TypeVar("R")

RETRIES_MAX = 9_000


@dataclass(frozen=True, slots=True)
class JobsInfo:
    """How a queue stands, in jobs."""

    waiting: int  # for a worker
    running: int  # with a worker, some of them still in its hands to be begun
    retrying: int  # failed, and wait for their next time
    scheduled: int
    dead: int
    finished: int  # done or given up, since the queue was made

    @property
    def left(self) -> int:
        """Jobs that wait, run or are to be tried again; of those of workers that died, too."""
        return self.waiting + self.running + self.retrying

    def as_dict(self) -> dict[str, int]:
        """Plain values; for --json."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that a worker has."""

    id: str
    task: str
    worker: str  # host, boot, process: the name of its consumer
    since: timedelta  # since it was fetched: it may have waited for others of its batch


class TaskOptions(TypedDict, total=False):
    """Options of a task, as ``Jobs.task`` describes them."""

    name: str | None
    retries: int | None
    backoff: Length | None
    timeout: Length | None
    result: bool
    transaction: bool
    every: Length | None
    cron: str | None
    tz: str | None


class Jobs(QueueStreams):
    """A queue of jobs in a store.

    Args:
        store: an open store, or the path of one, which is opened (and made) when it is needed.
        queue: the name of the queue's stream.
        codec: how arguments and results are written: "json", "msgpack" or one's own, as of
            ``Store.stream``.
        retries: how often a job that failed is tried again, where its task does not say.
        backoff: seconds or a timedelta before the first retry; twice as long before each further.
        keep_results: how long results stay, seconds, a timedelta or "1h".
        min_idle: a job that is with a worker for so long, on another machine or in another
            container, goes to another worker. (Of workers on this machine it is seen at once that
            they are gone.)
        sync: a stronger promise than the store's, for each job.

    Raises:
        OptionError: an option is not valid.
    """

    def __init__(
        self,
        store: Store[Any] | str | os.PathLike[str],
        queue: str = "jobs",
        *,
        codec: str | values.ValueCodec = "json",
        retries: int = 0,
        backoff: Length = 1.0,
        keep_results: Length = timedelta(days=1),
        min_idle: Length = timedelta(hours=1),
        sync: Sync | None = None,
    ) -> None:
        super().__init__(store, queue, codec, keep_results, min_idle, sync)
        self._retries = _retries(retries)
        self._backoff_s = arguments.length_s(backoff, "backoff")
        self.tasks: dict[str, Task[Any, Any]] = {}

    # -- tasks ----------------------------------------------------------------------------------
    @overload
    def task(
        self,
        function: Callable[P, R],
        /,
        **options: Unpack[TaskOptions],
    ) -> Task[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        **options: Unpack[TaskOptions],
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Make a function a task: ``@jobs.task``, or ``@jobs.task(retries=3)``.

        Args:
            function: a plain or a coroutine function.
            name: what jobs call it; None: its module's name and its own. A job finds its task by
                it, so name tasks whose functions may move.
            retries: how often a job that failed is tried again; None: as the queue says.
            backoff: as of the queue; None: as the queue says.
            timeout: seconds or a timedelta that a call may take; then TimeoutError is raised in
                it. It counts where the worker runs in a main thread, as ``logstore work`` does.
            result: whether what it returns is kept.
            transaction: call it with a transaction as its first argument: what it does in that is
                one commit with the job's end, so it happens exactly once.
            every: have it called again and again, without arguments, so long from one time to the
                next (seconds, a timedelta or "1h"). Workers see to it when they start.
            cron: likewise, at the times of a cron expression of five fields.
            tz: the time zone of ``cron``, an IANA name; None: UTC.

        Returns:
            The task.

        Raises:
            OptionError: an option is not valid, or there is a task of this name; what repeats would
                never fire, or needs arguments.
        """
        arguments.check_names(options, TaskOptions, "task")
        make = partial(self._made, options=options)
        return make if function is None else make(function)

    def _made(self, function: Callable[..., Any], options: TaskOptions) -> Task[Any, Any]:
        result, transaction = options.get("result", True), options.get("transaction", False)
        retries, backoff = options.get("retries"), options.get("backoff")
        timeout, name = options.get("timeout"), options.get("name")
        arguments.check_flag(result, "result")
        arguments.check_flag(transaction, "transaction")
        if not callable(function) or not hasattr(function, "__name__"):
            raise OptionError(f"a task is made of a function, not of {shown(function)}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise OptionError(f"{shown(function)} has a yield: give a function that returns")
        if transaction and inspect.iscoroutinefunction(function):
            raise OptionError("a task with a transaction is a plain function")
        called = f"{_module(function)}.{function.__qualname__}" if name is None else name
        if not isinstance(called, str) or not called:
            raise OptionError(f"the name of a task is a text: {shown(name)}")
        if called in self.tasks:
            raise OptionError(f"there is a task {called!r} already: call one of them otherwise")
        repeat = None
        every, cron, tz = options.get("every"), options.get("cron"), options.get("tz")
        if (every, cron, tz) != (None, None, None):
            repeat = scheduling.repeat(called, SYSTEM_CLOCK, every=every, cron=cron, tz=tz)
        made = Task(
            self,
            function,
            called,
            retries=self._retries if retries is None else _retries(retries),
            backoff_s=self._backoff_s
            if backoff is None
            else arguments.length_s(backoff, "backoff"),
            timeout_s=None if timeout is None else arguments.length_s(timeout, "timeout"),
            keeps_result=result,
            in_transaction=transaction,
            repeat=repeat,
        )
        if repeat is not None:
            made.check((), {})
        self.tasks[called] = made
        return made

    def schedule_tasks(self) -> None:
        """Have the tasks that repeat scheduled, and those that do not any more no longer.

        Schedules whose tasks are not known here are left: they may be another program's.
        """
        self.ready()
        stream = self.stream
        for task in self.tasks.values():
            rule = task.repeat
            if rule is not None:
                stream.schedule(
                    {
                        "task": task.name.encode("utf-8", "backslashreplace"),
                        "args": self.encoded([[], {}], "no arguments"),
                    },
                    every=timedelta(milliseconds=rule.every_ms) if rule.every_ms else None,
                    cron=rule.cron or None,
                    tz=rule.zone or None,
                    name=rule.name,
                    sync=self.sync,
                )
            elif scheduling.is_name(task.name):
                stream.cancel(name=task.name)

    # -- jobs -----------------------------------------------------------------------------------
    def job(self, id: str) -> Job[Any]:
        """A job by its ID, of which nothing is looked up. OptionError for what is no ID."""
        ms, dash, rest = id.partition("-") if isinstance(id, str) else ("", "", "")
        if not (dash and len(rest) == 2 * JOB_ID_BYTES and _is_hex(ms + rest)):
            raise OptionError(
                "give the id of a Job (job.id, and the field 'job' of a dead letter), not "
                f"{shown(id)}"
            )
        return Job(self, id)

    def info(self) -> JobsInfo:
        """Count the queue's jobs. StreamNotFoundError before the first one."""
        # In this order, a job that goes on meanwhile is counted twice, and not left out.
        stream, group = self.stream, self.group.info()
        pending = self.group.pending()
        # What waits for its next try is pending with nobody, whose name is empty.
        running = sum(count for name, count in pending.consumers.items() if name)
        read = 0 if group.entries_read is None else group.entries_read
        dead = self.dead
        return JobsInfo(
            waiting=stream.count(f"({group.last_delivered_id}"),
            running=running,
            retrying=pending.count - running,
            scheduled=stream.info().scheduled,
            dead=len(dead),
            finished=max(0, read - pending.count),
        )

    def running(self, count: int = 100) -> list[RunningJob]:
        """Tell what runs: the jobs that workers have, those first that they have had longest.

        Args:
            count: how many at most, of the jobs that were added first.

        Returns:
            The jobs, with their tasks and workers.

        Raises:
            StreamNotFoundError: there was no job yet.
        """
        found: list[RunningJob] = []
        for each in self.group.pending_entries():
            entry = self.stream.get(each.id) if each.idle is not None else None
            if entry is not None and each.idle is not None:
                id, task = name_of(each.id, self.fields(entry))
                found.append(RunningJob(id, task, text(each.consumer or ""), each.idle))
                if len(found) == count:
                    break
        return sorted(found, key=lambda each: each.since, reverse=True)

    def work(
        self,
        *,
        batch: int = 4,
        stop: threading.Event | None = None,
        timeout: Length | None = None,
    ) -> int:
        """Do jobs, one after the other, in this thread.

        Args:
            batch: how many jobs are fetched at once, at most; one while they take long.
            stop: an event that ends it after the running job. So does SIGTERM, in a main thread.
            timeout: end when no job came for so long, seconds or a timedelta; None: never, 0: do
                what is there.

        Returns:
            How many jobs were done or given up.

        Raises:
            OptionError: an option is not valid.
        """
        from logstore.jobs.job_worker import Worker

        self.schedule_tasks()
        return Worker(self, self.tasks).run(batch=batch, stop=stop, timeout=timeout)


def _module(function: Callable[..., Any]) -> str:
    """The module's name, also of a program that is run by its path: a worker imports it."""
    name = function.__module__
    if name != "__main__":
        return name
    main = sys.modules[name]
    spec = getattr(main, "__spec__", None)
    return spec.name if spec is not None else Path(getattr(main, "__file__", name)).stem


def _is_hex(text: str) -> bool:
    return bool(text) and all(digit in "0123456789abcdef" for digit in text)


def _retries(given: int) -> int:
    arguments.check_between(given, "retries", 0, RETRIES_MAX)
    return given
