"""Job queues side by side: each adds jobs that do nothing, and has processes that do them.

Each is used as its documentation says for several worker processes, with what it does by default: a
durable queue, acks after the call, results kept where it keeps results. A queue is made in a
folder, and again by each worker. Beside them stand thirty lines of SQLite: a table, and no more.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.workload_sides import TAKE

OVER_S = 2.5  # without a job: then a worker ends that waits for more
LEFT_OUT = ["honker 0.5 is left out: pip has its source alone, which needs Rust and its registry"]
if sys.version_info < (3, 12):
    LEFT_OUT += ["litequeue 0.14 is left out: it needs Python 3.12; 0.9 is measured"]


class Queue:
    """One kind of queue."""

    label = ""
    processes = 4

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, count: int) -> None:
        """Add jobs, one by one."""
        raise NotImplementedError

    def work(self) -> None:
        """Do jobs until there are none, or until none came for a while."""
        raise NotImplementedError

    def close(self) -> None:
        """Give it up."""


class Ran:
    """When the last job of this process ran, by the clock that all processes share, and how many
    did."""

    last_ns = 0
    jobs = 0


def nothing(n: int) -> int:
    """What a job does: next to nothing."""
    Ran.last_ns = time.monotonic_ns()
    Ran.jobs += 1
    return n


def effect(tx: Any, n: int) -> int:
    """What a job does that is to happen once."""
    tx.stream("effects").add({"n": n})
    return n


class Ours(Queue):
    """logstore.jobs; a worker does what a process of ``logstore work`` does."""

    label = "logstore.jobs"

    def __init__(self, folder: Path) -> None:
        from logstore.jobs import Jobs

        super().__init__(folder)
        self._jobs = Jobs(folder / "ours")
        self._task = self._jobs.task(nothing)

    def add(self, count: int) -> None:
        for n in range(count):
            self._task.delay(n)

    def work(self) -> None:
        self._jobs.work(timeout=OVER_S)

    def close(self) -> None:
        self._jobs.close()


class OursOnce(Ours):
    """logstore.jobs, whose jobs add an entry each in their transaction: exactly once."""

    label = "logstore.jobs, once"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._task = self._jobs.task(effect, transaction=True)

    def work(self) -> None:
        self._jobs.work()  # until it is stopped, or killed

    def effects(self) -> list[int]:
        """What the jobs added."""
        return [int(entry[b"n"]) for entry in self._jobs.store.stream("effects")]

    def finished(self) -> int:
        """How many jobs have an end."""
        return self._jobs.info().finished


class Plain(Queue):
    """A table of jobs and one of results; no retries, and who dies keeps its job."""

    label = "SQLite, 30 lines"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._base = data.database(folder / "plain.db")
        self._base.execute("PRAGMA busy_timeout = 60000")
        for statement in (
            "TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, body TEXT, worker TEXT)",
            "TABLE IF NOT EXISTS result (id INTEGER PRIMARY KEY, body TEXT)",
            "INDEX IF NOT EXISTS free ON job (id) WHERE worker IS NULL",
        ):
            self._base.execute(f"CREATE {statement}")

    def add(self, count: int) -> None:
        for n in range(count):
            self._base.execute("INSERT INTO job (body) VALUES (?)", (json.dumps(n),))

    def work(self) -> None:
        run = self._base.execute
        while (found := run(TAKE).fetchone()) is not None:
            job, body = found
            result = nothing(json.loads(body))
            run("BEGIN IMMEDIATE")
            run("INSERT INTO result VALUES (?, ?)", (job, json.dumps(result)))
            run("DELETE FROM job WHERE id = ?", (job,))
            run("COMMIT")

    def close(self) -> None:
        self._base.close()


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

    def work(self) -> None:
        while (task := self._huey.dequeue()) is not None:
            self._huey.execute(task)


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

    def work(self) -> None:
        while (message := self._queue.pop()) is not None:
            nothing(int(message.data))
            claim = getattr(message, "claim_id", None)  # of versions above 0.9
            self._queue.done(message.message_id, **({} if claim is None else {"claim_id": claim}))


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

    def work(self) -> None:
        while True:
            try:
                n = self._queue.get(block=False)
            except self._empty:
                return
            nothing(n)
            self._queue.ack(n)


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

    def work(self) -> None:
        from rq import SimpleWorker

        SimpleWorker([self._queue], connection=self._redis).work(burst=True, logging_level="ERROR")


class Dbos(Queue):
    """DBOS on SQLite: a job is a workflow on a queue; its threads do them, once it is launched."""

    label = "DBOS, SQLite"
    name = "jobs"

    def __init__(self, folder: Path) -> None:
        from dbos import DBOS

        super().__init__(folder)
        self._dbos: Any = DBOS
        DBOS(config={
            "name": "bench", "application_version": "1", "log_level": "CRITICAL",
            "system_database_url": f"sqlite:///{folder / 'dbos.db'}",
        })  # fmt: skip
        self._task: Any = DBOS.workflow()(nothing)

    def add(self, count: int) -> None:
        self._dbos.listen_queues([])  # not in this process
        self._dbos.launch()
        self._dbos.register_queue(self.name)
        for n in range(count):
            self._dbos.enqueue_workflow(self.name, self._task, n)

    def work(self) -> None:
        self._dbos.launch()
        begun_ns = time.monotonic_ns()
        while time.monotonic_ns() - max(Ran.last_ns, begun_ns) < OVER_S * 1e9:
            time.sleep(0.1)

    def close(self) -> None:
        self._dbos.destroy()


QUEUES: dict[str, Callable[[Path], Queue]] = {
    made.label: made for made in (Ours, Plain, Huey, Lite, Persist, Rq, Dbos)
}
