"""Tasks, jobs, and the streams of a queue in which they stand.

A task is a function that workers call, a job one such call. A job is an entry of the queue's
stream: its ID (a text of its own, so that a job that was given back or is scheduled keeps it), the
task's name and the arguments. What became of it is an entry of the stream ``<queue>:results``; jobs
that were given up are in ``<queue>:dead``.

Invariants: arguments are checked against the function's signature, and encoded, before anything is
stored; a job is in the store when ``delay`` returns, or when its transaction commits. A job's ID
begins with the time of its call, so that its result is looked for from there on. The store is
opened when it is needed first, so that a module with tasks can be imported by whoever wants.
"""

from __future__ import annotations

import functools
import inspect
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, Self, TypeVar

from logstore.api import arguments, values
from logstore.api.entry import Entry, stored_pairs
from logstore.api.group import Group
from logstore.api.scheduling import RepeatRule
from logstore.api.store import Store, open_store
from logstore.api.stream import Stream
from logstore.api.transaction import Transaction
from logstore.errors import (
    EntryTypeError,
    JobFailedError,
    JobNotDoneError,
    OptionError,
    UsageError,
    shown,
)
from logstore.ids import StreamID
from logstore.options import Length, Sync

P = ParamSpec("P")
R = TypeVar("R")

GROUP = "workers"
# What the group gives up by itself, if no worker does: more than any task's retries and deaths.
DELIVERIES_MAX = 10_000


# -- the streams of a queue -------------------------------------------------------------------
class QueueStreams:
    """The streams of one queue in a store."""

    def __init__(
        self,
        store: Store[Any] | str | os.PathLike[str],
        queue: str,
        codec: str | values.ValueCodec,
        keep_results: Length,
        min_idle: Length,
        sync: Sync | None,
    ) -> None:
        if not isinstance(store, Store | str | os.PathLike):
            raise OptionError(f"give an open store or a path, not {shown(store)}")
        self._given = store
        self._store: Store[Any] | None = store if isinstance(store, Store) else None
        self._lock = threading.Lock()
        self._codec = values.value_codec(codec)
        self._keep_results = timedelta(seconds=arguments.length_s(keep_results, "keep_results"))
        self._min_idle = timedelta(seconds=arguments.length_s(min_idle, "min_idle"))
        self._ready = False
        self.queue = queue
        self.sync: Sync | None = sync

    @property
    def store(self) -> Store[Any]:
        """The store, opened now if it was not."""
        with self._lock:
            if self._store is None:
                assert not isinstance(self._given, Store)
                self._store = open_store(self._given, encoding="utf-8")
            return self._store

    @property
    def stream(self) -> Stream[Any]:
        """The queue's stream."""
        return self.store.stream(self.queue)

    @property
    def results(self) -> Stream[Any]:
        """The stream of results."""
        return self.store.stream(f"{self.queue}:results")

    @property
    def dead(self) -> Stream[Any]:
        """The stream of jobs that were given up; ``store.requeue`` gives them back."""
        return self.store.stream(f"{self.queue}:dead")

    @property
    def group(self) -> Group[Any]:
        """The group of the workers."""
        return self.stream.group(GROUP)

    def ready(self) -> None:
        """Have the group made and the streams configured."""
        if self._ready:
            return
        self.stream.group(GROUP, start="0").configure(
            max_deliveries=DELIVERIES_MAX,
            dead_letter=f"{self.queue}:dead",
            min_idle=self._min_idle,
        )
        self.store.create(self.results.name)
        self.results.configure(max_age=self._keep_results)
        self._ready = True

    def close(self) -> None:
        """Close the store, if this opened it."""
        with self._lock:
            opened, self._ready = self._store, False
            if opened is not None and opened is not self._given:
                self._store = None
                opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how jobs are written --------------------------------------------------------------------
    def encoded(self, value: Any, what: str) -> bytes:
        """A value as the codec writes it. EntryTypeError."""
        try:
            return self._codec.encode(value)
        except Exception as error:
            raise EntryTypeError(
                f"the codec {self._codec.name!r} cannot hold {what}: {error}; give what it holds, "
                "or another codec"
            ) from error

    def decoded(self, data: bytes) -> Any:
        """The value of what stands in a field. UsageError if the codec cannot read it."""
        try:
            return self._codec.decode(data)
        except Exception as error:
            raise UsageError(
                f"the codec {self._codec.name!r} cannot read what is stored: {error}; was the "
                "queue used with another codec?"
            ) from error

    def fields(self, entry: Entry[Any]) -> dict[bytes, bytes]:
        """The fields of an entry as bytes, whatever the store's encoding and the queue's schema."""
        encoding = self.store.encoding
        if encoding is None:
            return dict(stored_pairs(entry))
        return {
            name.encode(encoding, "surrogateescape"): value.encode(encoding, "surrogateescape")
            for name, value in stored_pairs(entry)
        }


# -- jobs and tasks ---------------------------------------------------------------------------
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

    def result(self, timeout: Length | None = None) -> R:
        """Wait for what the function returned.

        Args:
            timeout: seconds, a timedelta or "1h"; None: for ever, 0: only look.

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


@dataclass(eq=False, repr=False)
class Task(Generic[P, R]):
    """A function that can be called here, as ever, or by a worker: ``delay``."""

    _jobs: QueueStreams
    function: Callable[P, R]
    name: str
    retries: int
    backoff_s: float
    timeout_s: float | None
    keeps_result: bool
    in_transaction: bool
    repeat: RepeatRule | None

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function)
        self._signature = inspect.signature(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> Job[R]:
        """Have a worker call the function with these; the job. Errors as of ``submit``."""
        return self.submit(args, kwargs)

    def submit(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        at: datetime | int | str | None = None,
        after: Length | None = None,
        ttl: Length | None = None,
        tx: Transaction[Any] | None = None,
    ) -> Job[R]:
        """Have a worker call the function, with more to say of it.

        Args:
            args: positional arguments.
            kwargs: arguments by name.
            at: when it is to be called: an aware datetime, or unix milliseconds.
            after: how long from now, seconds, a timedelta or "1h".
            ttl: how long the job may wait and run, seconds, a timedelta or "1h"; then it is dead.
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
