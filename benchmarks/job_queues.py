"""Job queues side by side: each adds jobs that do nothing, and has processes that do them.

Each is used as its documentation says for several worker processes: a durable queue, acks after the
call, results kept where it keeps results. A queue is made in a folder, and again by each worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Queue:
    """One kind of queue."""

    label = ""
    processes = 4

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, count: int) -> None:
        """Add jobs, one by one."""
        raise NotImplementedError

    def work(self) -> int:
        """Do jobs until there are none; how many."""
        raise NotImplementedError

    def close(self) -> None:
        """Give it up."""


def nothing(n: int) -> int:
    """What a job does."""
    return n


def effect(tx: Any, n: int) -> int:
    """What a job does that is to happen once."""
    tx.stream("effects").add({"n": n})
    return n


class Ours(Queue):
    """logstore.jobs."""

    label = "logstore.jobs"

    def __init__(self, folder: Path) -> None:
        from logstore.jobs import Jobs

        super().__init__(folder)
        self._jobs = Jobs(folder / "ours")
        self._task = self._jobs.task(nothing)

    def add(self, count: int) -> None:
        for n in range(count):
            self._task.delay(n)

    def work(self) -> int:
        return self._jobs.work(batch=32, timeout=0)  # for jobs as quick as these

    def close(self) -> None:
        self._jobs.close()


class OursOnce(Ours):
    """logstore.jobs, whose jobs add an entry each in their transaction: exactly once."""

    label = "logstore.jobs, once"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._task = self._jobs.task(effect, transaction=True)

    def work(self) -> int:
        return self._jobs.work(batch=32)  # until it is stopped, or killed

    def effects(self) -> list[int]:
        """What the jobs added."""
        return [int(entry[b"n"]) for entry in self._jobs.store.stream("effects")]

    def finished(self) -> int:
        """How many jobs have an end."""
        return self._jobs.info().finished


class Huey(Queue):
    """huey on SQLite; a worker does what those of its consumer do."""

    label = "huey, SQLite"

    def __init__(self, folder: Path) -> None:
        from huey import SqliteHuey

        super().__init__(folder)
        logging.getLogger("huey").setLevel(logging.ERROR)
        self._huey: Any = SqliteHuey(filename=str(folder / "huey.db"), timeout=60)
        self._task: Any = self._huey.task()(nothing)

    def add(self, count: int) -> None:
        for n in range(count):
            self._task(n)

    def work(self) -> int:
        done = 0
        while (task := self._huey.dequeue()) is not None:
            self._huey.execute(task)
            done += 1
        return done


class Lite(Queue):
    """litequeue, which keeps no results."""

    label = "litequeue"

    def __init__(self, folder: Path) -> None:
        import litequeue

        super().__init__(folder)
        self._queue: Any = litequeue.LiteQueue(str(folder / "lite.db"), timeout=60)

    def add(self, count: int) -> None:
        for n in range(count):
            self._queue.put(str(n))

    def work(self) -> int:
        done = 0
        while (message := self._queue.pop()) is not None:
            nothing(int(message.data))
            self._queue.done(message.message_id)
            done += 1
        return done


class Persist(Queue):
    """persist-queue, whose queue with acks is for the threads of one process; without results."""

    label = "persist-queue (1 process)"
    processes = 1

    def __init__(self, folder: Path) -> None:
        import persistqueue

        super().__init__(folder)
        self._empty: Any = persistqueue.Empty
        self._queue: Any = persistqueue.SQLiteAckQueue(str(folder / "persist"), auto_commit=True)

    def add(self, count: int) -> None:
        for n in range(count):
            self._queue.put(n)

    def work(self) -> int:
        done = 0
        while True:
            try:
                n = self._queue.get(block=False)
            except self._empty:
                return done
            nothing(n)
            self._queue.ack(n)
            done += 1


class Rq(Queue):
    """rq on Redis with its log synced each second; ``folder`` has the port's number in it."""

    label = "rq, Redis"

    def __init__(self, folder: Path) -> None:
        from redis import Redis
        from rq import Queue as RedisQueue

        super().__init__(folder)
        self._redis: Any = Redis(port=int((folder / "port").read_text()))
        self._queue: Any = RedisQueue(connection=self._redis)

    def add(self, count: int) -> None:
        for n in range(count):
            self._queue.enqueue(nothing, n)

    def work(self) -> int:
        from rq import SimpleWorker

        before = self._queue.count
        SimpleWorker([self._queue], connection=self._redis).work(burst=True, logging_level="ERROR")
        return int(before)


QUEUES: dict[str, Callable[[Path], Queue]] = {
    made.label: made for made in (Ours, Huey, Lite, Persist, Rq)
}
