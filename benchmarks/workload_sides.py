"""What people do with a log, done by each side: ours, SQLite, and RocksDB.

The methods of all sides have the same names, arguments and results. A side that lacks one is left
out of that work. SQLite is in WAL mode with synchronous=NORMAL: one table of entries with the key
(stream, ms, seq), one of jobs, and one of jobs that were taken, with indexes by time and by worker;
bodies are JSON, made and read inside the clock. It makes no IDs, and its jobs have no groups.
RocksDB has its log, keys of the same three numbers, bodies packed by msgpack.
"""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import logstore
from benchmarks import data

Fields = dict[str, Any]
KEY = struct.Struct(">IQQ")
CAPPED = 1000
TAKE = (
    "UPDATE job SET worker = 'w' WHERE id = "
    "(SELECT id FROM job WHERE worker IS NULL ORDER BY id LIMIT 1) RETURNING id, body"
)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Side:
    """One of them, in a folder of its own."""

    label = ""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, docs: list[Fields]) -> None:
        """Add one by one to one stream."""
        raise NotImplementedError

    def close(self) -> None:
        """Close it."""
        raise NotImplementedError

    def add_and_close(self, docs: list[Fields]) -> None:
        """Make another one, add one by one, and close it."""
        folder = self._folder / f"{self.label} closed"
        folder.mkdir()
        made = type(self)(folder)
        made.add("docs", docs)
        made.close()


class Ours(Side):
    """A store, its policy the default."""

    label = "logstore"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = logstore.open(folder / "ours")
        self._ids: list[logstore.StreamID] = []
        self._lent: list[logstore.StreamID] = []
        self._group: Any = None

    def load(self, rows: list[Fields], jobs: list[Fields]) -> None:
        """The history that reads look at, and jobs, twice."""
        self._ids = list(self._store.stream("history").add_many(rows))
        for name in ("jobs", "holed"):
            self._store.stream(name).add_many(jobs)

    def add(self, name: str, docs: list[Fields]) -> None:
        add = self._store.stream(name).add
        for doc in docs:
            add(doc)

    def add_over(self, names: list[str], order: Sequence[int], docs: list[Fields]) -> None:
        """Add one by one, each to the stream that the order says."""
        streams = [self._store.stream(name) for name in names]
        for at, doc in zip(order, docs, strict=True):
            streams[at].add(doc)

    def add_capped(self, docs: list[Fields]) -> None:
        """Add, and keep the newest thousand."""
        add = self._store.stream("capped").add
        for doc in docs:
            add(doc, max_entries=CAPPED)

    def add_given(self, docs: list[Fields]) -> None:
        """Add with IDs of the caller's."""
        add = self._store.stream("given").add
        for number, doc in enumerate(docs, 1):
            add(doc, id=f"{number}-0")

    def add_pairs(self, docs: list[Fields]) -> None:
        """Add to two streams, both or none."""
        for doc in docs:
            with self._store.transaction() as transaction:
                transaction.stream("left").add(doc)
                transaction.stream("right").add(doc)

    def add_tens(self, docs: list[Fields]) -> None:
        """Add ten at once."""
        add_many = self._store.stream("tens").add_many
        for first in range(0, len(docs), 10):
            add_many(docs[first : first + 10])

    def get(self, picks: Sequence[int]) -> None:
        """Read entries of the history by their IDs."""
        get, ids = self._store.stream("history").get, self._ids
        for pick in picks:
            _ = get(ids[pick]).fields["temp"]  # type: ignore[union-attr]

    def get_tens(self, picks: Sequence[int]) -> None:
        """Read ten entries of the history from each of these on."""
        history, ids = self._store.stream("history"), self._ids
        for pick in picks:
            _ = [entry.fields for entry in history.range(ids[pick], count=10)]

    def walk(self) -> None:
        """Read all of the history."""
        for entry in self._store.stream("history").range():
            _ = entry.fields

    def delete(self, picks: Sequence[int]) -> None:
        """Delete entries of the history."""
        history, ids = self._store.stream("history"), self._ids
        for pick in picks:
            history.delete(ids[pick])

    def punch(self, picks: Sequence[int]) -> None:
        """Delete jobs before somebody takes them; not measured."""
        holed, gone = self._store.stream("holed"), set(picks)
        holed.delete(*[entry.id for at, entry in enumerate(holed.range()) if at in gone])

    def take(self, name: str, group: str, count: int, timeout_s: float) -> None:
        """Take a job, and say that it is done, one by one."""
        reader = self._store.stream(name).group(group, start="0")
        for _ in range(count):
            job = reader.read("w", count=1, timeout=timeout_s)[0]
            _ = job.fields
            job.ack()

    def take_many(self, count: int, batch: int, timeout_s: float) -> None:
        """Take some jobs, and say that they are done, at once."""
        reader = self._store.stream("jobs").group("batches", start="0")
        while count > 0:
            jobs = reader.read("w", count=batch, timeout=timeout_s)
            _ = [job.fields for job in jobs]
            count -= reader.ack(*[job.id for job in jobs])

    def take_late(self, count: int) -> None:
        """Take many jobs, and say that they are done in another order."""
        jobs = self._store.stream("jobs").group("late", start="0").read("w", count=count)
        random.Random(count).shuffle(jobs)
        for job in jobs:
            job.ack()

    def take_once(self, count: int) -> None:
        """Take a job; its result and its end are one commit."""
        reader = self._store.stream("jobs").group("once", start="0")
        for _ in range(count):
            job = reader.read("w", count=1)[0]
            with self._store.transaction() as transaction:
                transaction.stream("results").add({"result": job["temp"]})
                transaction.ack(job)

    def lend(self, count: int, gone: Sequence[int]) -> None:
        """Take so many jobs, of which some are deleted then; not measured."""
        jobs = self._store.stream("holed")
        self._group = jobs.group("lent", start="0")
        while len(self._lent) < count:
            self._lent += [job.id for job in self._group.read("a", count=100)]
        jobs.delete(*[self._lent[place] for place in gone])

    def give_back(self, picks: Sequence[int]) -> None:
        """Give jobs back, one by one."""
        for pick in picks:
            self._group.nack(self._lent[pick])

    def claim(self, picks: Sequence[int]) -> None:
        """Take jobs over by their IDs, one by one, and read them."""
        for pick in picks:
            _ = [job.fields for job in self._group.claim("b", self._lent[pick], min_idle=0)]

    def claim_idle(self, count: int) -> None:
        """Take over the job that was taken first, or given back, and read it."""
        for _ in range(count):
            _ = [job.fields for job in self._group.autoclaim("c", min_idle=0, count=1).entries]

    def read_own(self, count: int) -> None:
        """Read the first ten jobs that a worker has once more; that is counted."""
        for _ in range(count):
            _ = [job.fields for job in self._group.backlog("b", count=10)]

    def close(self) -> None:
        self._store.close()


class SQLite(Side):
    """Tables of entries and of jobs."""

    label = "SQLite"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._base = base = data.database(folder / "peer.db")
        self._run = base.execute
        self._run(
            "CREATE TABLE entry (stream INT, ms INT, seq INT, body TEXT, "
            "PRIMARY KEY (stream, ms, seq)) WITHOUT ROWID"
        )
        self._run("CREATE TABLE job (id INTEGER PRIMARY KEY, body TEXT, worker TEXT)")
        self._run("CREATE INDEX free ON job (id) WHERE worker IS NULL")
        self._run(
            "CREATE TABLE lease (id INTEGER PRIMARY KEY, worker TEXT, at INT, count INT, body TEXT)"
        )
        self._run("CREATE INDEX idle ON lease (at, id)")
        self._run("CREATE INDEX own ON lease (worker, id)")
        self._numbers: dict[str, int] = {}
        self._clock_ms = 10**12

    def _put(self, stream: int, doc: Fields) -> None:
        self._clock_ms += 1
        self._run(
            "INSERT INTO entry VALUES (?, ?, 0, ?)", (stream, self._clock_ms, json.dumps(doc))
        )

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers) + 1)

    def load(self, rows: list[Fields], jobs: list[Fields]) -> None:
        self._run("BEGIN")
        bodies = [json.dumps(row) for row in rows]
        self._base.executemany("INSERT INTO entry VALUES (0, ?, 0, ?)", enumerate(bodies))
        for _ in range(2):
            self._base.executemany(
                "INSERT INTO job (body) VALUES (?)", [(json.dumps(job),) for job in jobs]
            )
        self._run("COMMIT")

    def add(self, name: str, docs: list[Fields]) -> None:
        stream = self._number(name)
        for doc in docs:
            self._put(stream, doc)

    def add_over(self, names: list[str], order: Sequence[int], docs: list[Fields]) -> None:
        streams = [self._number(name) for name in names]
        for at, doc in zip(order, docs, strict=True):
            self._put(streams[at], doc)

    def add_capped(self, docs: list[Fields]) -> None:
        stream = self._number("capped")
        for doc in docs:
            self._run("BEGIN IMMEDIATE")
            self._put(stream, doc)
            self._run(
                "DELETE FROM entry WHERE stream = ? AND ms <= ?", (stream, self._clock_ms - CAPPED)
            )
            self._run("COMMIT")

    def add_given(self, docs: list[Fields]) -> None:
        self.add("given", docs)

    def add_pairs(self, docs: list[Fields]) -> None:
        left, right = self._number("left"), self._number("right")
        for doc in docs:
            self._run("BEGIN IMMEDIATE")
            self._put(left, doc)
            self._put(right, doc)
            self._run("COMMIT")

    def add_tens(self, docs: list[Fields]) -> None:
        stream = self._number("tens")
        for first in range(0, len(docs), 10):
            self._run("BEGIN")
            for doc in docs[first : first + 10]:
                self._put(stream, doc)
            self._run("COMMIT")

    def get(self, picks: Sequence[int]) -> None:
        query = "SELECT body FROM entry WHERE stream = 0 AND ms = ? AND seq = 0"
        for pick in picks:
            _ = json.loads(self._run(query, (pick,)).fetchone()[0])["temp"]

    def get_tens(self, picks: Sequence[int]) -> None:
        query = (
            "SELECT body FROM entry WHERE stream = 0 AND (ms, seq) >= (?, 0) "
            "ORDER BY ms, seq LIMIT 10"
        )
        for pick in picks:
            _ = [json.loads(body) for (body,) in self._run(query, (pick,)).fetchall()]

    def walk(self) -> None:
        for (body,) in self._run("SELECT body FROM entry WHERE stream = 0 ORDER BY ms, seq"):
            _ = json.loads(body)

    def delete(self, picks: Sequence[int]) -> None:
        for pick in picks:
            self._run("DELETE FROM entry WHERE stream = 0 AND ms = ? AND seq = 0", (pick,))

    def punch(self, picks: Sequence[int]) -> None:
        """A table has no holes."""

    def take(self, _name: str, _group: str, count: int, _timeout_s: float) -> None:
        for _ in range(count):
            job, body = self._run(TAKE).fetchone()
            _ = json.loads(body)
            self._run("DELETE FROM job WHERE id = ?", (job,))

    def take_many(self, count: int, batch: int, _timeout_s: float) -> None:
        take = TAKE.replace("id = ", "id IN ").replace("LIMIT 1", "LIMIT ?")
        while count > 0:
            jobs = self._run(take, (batch,)).fetchall()
            _ = [json.loads(body) for _, body in jobs]
            places = ", ".join("?" * len(jobs))
            count -= self._run(
                f"DELETE FROM job WHERE id IN ({places})", [job for job, _ in jobs]
            ).rowcount

    def take_late(self, count: int) -> None:
        self._run("BEGIN")
        jobs = [self._run(TAKE).fetchone()[0] for _ in range(count)]
        self._run("COMMIT")
        random.Random(count).shuffle(jobs)
        for job in jobs:
            self._run("DELETE FROM job WHERE id = ?", (job,))

    def take_once(self, count: int) -> None:
        stream = self._number("results")
        for _ in range(count):
            job, body = self._run(TAKE).fetchone()
            self._run("BEGIN IMMEDIATE")
            self._put(stream, {"result": json.loads(body)["temp"]})
            self._run("DELETE FROM job WHERE id = ?", (job,))
            self._run("COMMIT")

    def lend(self, count: int, gone: Sequence[int]) -> None:
        self._run("BEGIN")
        self._run(
            "INSERT INTO lease SELECT id - 1, 'a', ?, 1, body FROM "
            "(SELECT row_number() OVER (ORDER BY id) AS id, body FROM job LIMIT ?)",
            (_now_ms(), count),
        )
        self._base.executemany("DELETE FROM lease WHERE id = ?", [(place,) for place in gone])
        self._run("COMMIT")

    def give_back(self, picks: Sequence[int]) -> None:
        query = "UPDATE lease SET worker = NULL, at = ? WHERE id = ?"
        for place, pick in enumerate(picks):
            self._run(query, (place, pick))

    def claim(self, picks: Sequence[int]) -> None:
        query = (
            "UPDATE lease SET worker = 'b', at = ?, count = count + 1 WHERE id = ? RETURNING body"
        )
        for pick in picks:
            _ = [json.loads(body) for (body,) in self._run(query, (_now_ms(), pick)).fetchall()]

    def claim_idle(self, count: int) -> None:
        query = (
            "UPDATE lease SET worker = 'c', at = ?, count = count + 1 WHERE id = "
            "(SELECT id FROM lease WHERE at <= ? ORDER BY at, id LIMIT 1) RETURNING body"
        )
        for _ in range(count):
            now_ms = _now_ms()
            _ = [json.loads(body) for (body,) in self._run(query, (now_ms, now_ms)).fetchall()]

    def read_own(self, count: int) -> None:
        query = (
            "UPDATE lease SET at = ?, count = count + 1 WHERE id IN "
            "(SELECT id FROM lease WHERE worker = 'b' ORDER BY id LIMIT 10) RETURNING body"
        )
        for _ in range(count):
            _ = [json.loads(body) for (body,) in self._run(query, (_now_ms(),)).fetchall()]

    def close(self) -> None:
        self._base.close()


class RocksDB(Side):
    """Keys in order; no jobs."""

    label = "RocksDB"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import msgpack
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        self._rocks: Any = rocksdict
        self._base: Any = rocksdict.Rdict(str(folder / "rocks"), options)
        self._pack, self._unpack = msgpack.packb, msgpack.unpackb
        self._numbers: dict[str, int] = {}
        self._clock_ms = 10**12

    def _key(self, name: str) -> bytes:
        self._clock_ms += 1
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        return KEY.pack(number, self._clock_ms, 0)

    def _batch(self, keyed: list[tuple[bytes, Fields]]) -> None:
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key, doc in keyed:
            batch.put(key, self._pack(doc))
        self._base.write(batch)

    def load(self, rows: list[Fields], _jobs: list[Fields]) -> None:
        self._batch([(KEY.pack(0, at, 0), row) for at, row in enumerate(rows)])

    def add(self, name: str, docs: list[Fields]) -> None:
        for doc in docs:
            self._base[self._key(name)] = self._pack(doc)

    def add_over(self, names: list[str], order: Sequence[int], docs: list[Fields]) -> None:
        for at, doc in zip(order, docs, strict=True):
            self._base[self._key(names[at])] = self._pack(doc)

    def add_given(self, docs: list[Fields]) -> None:
        self.add("given", docs)

    def add_pairs(self, docs: list[Fields]) -> None:
        for doc in docs:
            self._batch([(self._key("left"), doc), (self._key("right"), doc)])

    def add_tens(self, docs: list[Fields]) -> None:
        for first in range(0, len(docs), 10):
            self._batch([(self._key("tens"), doc) for doc in docs[first : first + 10]])

    def get(self, picks: Sequence[int]) -> None:
        for pick in picks:
            _ = self._unpack(self._base[KEY.pack(0, pick, 0)])["temp"]

    def get_tens(self, picks: Sequence[int]) -> None:
        for pick in picks:
            found = self._base.values(from_key=KEY.pack(0, pick, 0))
            _ = [self._unpack(value) for value, _ in zip(found, range(10), strict=False)]

    def walk(self) -> None:
        for key, value in self._base.items(from_key=KEY.pack(0, 0, 0)):
            if KEY.unpack(key)[0]:
                break
            _ = self._unpack(value)

    def delete(self, picks: Sequence[int]) -> None:
        for pick in picks:
            del self._base[KEY.pack(0, pick, 0)]

    def close(self) -> None:
        self._base.close()
