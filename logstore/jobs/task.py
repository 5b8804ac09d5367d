"""A task, which is a function that workers call, and a job, which is one such call.

Invariants: arguments are checked against the function's signature, and encoded, before anything is
stored; a job is in the store when ``delay`` returns, or when its transaction commits. A job's ID
begins with the time of its call, so that its result is looked for from there on.
"""

from __future__ import annotations

import functools
import inspect
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, TypeVar

from logstore.api import arguments
from logstore.api.entry import Entry
from logstore.api.transaction import Transaction
from logstore.errors import JobFailedError, JobNotDoneError, OptionError, shown
from logstore.features.cron import Repeat
from logstore.ids import StreamID
from logstore.jobs.queue_streams import QueueStreams

P = ParamSpec("P")
R = TypeVar("R")
JOB_ID_BYTES = 6
CLOCK_SLACK_MS = 60_000  # a result may bear an earlier time than its job by so much


class Job(Generic[R]):
    """One call of a task, which a worker does or did; ``id`` is a text that names it for good."""

    __slots__ = ("_jobs", "id")

    def __init__(self, jobs: QueueStreams, id: str) -> None:
        self._jobs = jobs
        self.id = id

    def done(self) -> bool:
        """Whether it has a result, or was given up."""
        return next(self._jobs.results.range(self._after(), where=self._where()), None) is not None

    def result(self, timeout: float | timedelta | None = None) -> R:
        """Wait for what the function returned.

        Args:
            timeout: seconds or a timedelta; None: for ever, 0: only look.

        Returns:
            It, as the queue's codec gives it back (JSON makes lists of tuples). A job that was
            given up, and requeued, fails until it is done.

        Raises:
            JobFailedError: the job was given up; ``error`` says why.
            JobNotDoneError: there is no result in time, or the task keeps none.
        """
        deadline = arguments.deadline_of(timeout)
        results, after = self._jobs.results, self._after()
        while True:
            seen = results.last_id
            found: Entry[Any] | None = None
            for found in results.range(after, where=self._where()):
                if found.get("error") is None:
                    break  # one that was given up may have been tried again since
            if found is not None:
                return self._of(found)
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if left_s == 0 or not results.read(seen, count=1, timeout=left_s):
                raise JobNotDoneError(
                    f"job {self.id} has no result yet: is a worker running ('logstore work')?"
                )
            after = f"({seen}"

    def _after(self) -> str:
        """Where results begin that may be this job's."""
        return f"{max(0, int(self.id.split('-')[0], 16) - CLOCK_SLACK_MS)}-0"

    def _where(self) -> dict[str, str]:
        return {"job": self.id}

    def _of(self, entry: Entry[Any]) -> R:
        fields = self._jobs.fields(entry)
        if b"error" in fields:
            error = fields[b"error"].decode("utf-8", "backslashreplace")
            raise JobFailedError(f"job {self.id} was given up: {error}", job=self.id, error=error)
        given: R = self._jobs.decoded(fields[b"value"])
        return given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"


class Task(Generic[P, R]):
    """A function that can be called here, as ever, or by a worker: ``delay``."""

    def __init__(
        self,
        jobs: QueueStreams,
        function: Callable[P, R],
        name: str,
        *,
        retries: int,
        backoff_s: float,
        timeout_s: float | None,
        result: bool,
        transaction: bool,
        repeat: Repeat | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._jobs = jobs
        self._function = function
        self.name = name
        self.retries = retries
        self.backoff_s = backoff_s
        self.timeout_s = timeout_s
        self.keeps_result = result
        self.in_transaction = transaction
        self.repeat = repeat
        self._signature = inspect.signature(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self._function(*args, **kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> Job[R]:
        """Have a worker call the function with these; the job. Errors as of ``submit``."""
        return self.submit(args, kwargs)

    def submit(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
        ttl: timedelta | float | None = None,
        tx: Transaction[Any] | None = None,
    ) -> Job[R]:
        """Have a worker call the function, with more to say of it.

        Args:
            args: positional arguments.
            kwargs: arguments by name.
            at: when it is to be called: an aware datetime, or unix milliseconds.
            after: how long from now, seconds or a timedelta.
            ttl: how long the job may wait and run, seconds or a timedelta; then it is dead.
            tx: a transaction of the queue's store: the job is there if that commits.

        Returns:
            The job.

        Raises:
            OptionError: the function takes no such arguments, or options contradict each other.
            EntryTypeError: the queue's codec cannot hold an argument.
        """
        if not isinstance(args, Sequence) or isinstance(args, str | bytes):
            raise OptionError(f"args are the arguments in a tuple, such as (1,), not {shown(args)}")
        jobs = self._jobs
        row, job = self._row(args, kwargs or {})
        jobs.ready()
        target: Any = jobs.stream if tx is None else tx.stream(jobs.stream.name)
        if at is None and after is None:
            target.add(row, ttl=ttl, **({} if tx is not None else {"sync": jobs.sync}))
        elif ttl is not None:
            raise OptionError("a scheduled job has no ttl: give it when the job is added")
        else:
            target.schedule(row, at=at, after=after)
        return job

    def _row(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, str | bytes], Job[R]]:
        """The fields of a job's entry, and the job. OptionError, EntryTypeError."""
        self.check(args, kwargs)
        id = f"{time.time_ns() // 1_000_000:011x}-{secrets.token_hex(JOB_ID_BYTES)}"
        given = self._jobs.encoded([list(args), dict(kwargs)], f"the arguments of {self.name}")
        return {
            "job": id,
            "task": self.name.encode("utf-8", "backslashreplace"),
            "args": given,
        }, Job(self._jobs, id)

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """OptionError if the function cannot be called so."""
        given = (None, *args) if self.in_transaction else args
        try:
            self._signature.bind(*given, **kwargs)
        except TypeError as error:
            raise OptionError(f"task {self.name} cannot be called so: {error}") from error

    @property
    def function(self) -> Callable[..., R]:
        """The function itself."""
        return self._function

    def __repr__(self) -> str:
        return f"Task({self.name!r})"


def name_of(entry: StreamID, fields: Mapping[bytes, bytes]) -> tuple[str, str]:
    """The ID of a job, and the name of its task."""
    id = fields.get(b"job")
    return (
        # One that repeats has none: its entry's ID is as good.
        f"{entry.ms:011x}-{entry.seq:012x}" if id is None else id.decode("utf-8", "replace"),
        fields.get(b"task", b"").decode("utf-8", "replace"),
    )
