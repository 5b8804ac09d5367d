"""The operations that ``instructions`` counts: ours, and SQLite's beside them.

Each is made ready in a folder, and then called some times. What a call does is drawn at random,
other rows and IDs in each call. A call adds as many as a node holds, so that it has one full node.
"""

from __future__ import annotations

import atexit
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

TIMES = 3  # counts of which the mean is taken
CALLS = TIMES * 2 + 1  # of what is counted: one before, and one before each count
NODE = 100  # entries of a full node: so many adds are counted at once
FEW = 20
MANY = 1_000  # rows of an add_many: one commit
STREAMS = 5_000
AWAITED = "add, a waiting group"  # told, not committed: another process has a part in it
WAITS_S = 1.0
PAUSE_S = 0.03
NEVER_NS = 1 << 60
VALGRIND_MAP_BYTES = 1 << 31  # of LMDB: valgrind has no room for the usual one
ROW = {"temp": "12.5", "hum": "51"}
Row = dict[str, Any]
INSERT = "insert into s(temp, hum) values(?, ?)"
# A reader in a process of its own, which waits again once it has acked what it was handed.
WAITER = f"""
import sys, logstore
from logstore.index import env
env.MAP_BYTES = {VALGRIND_MAP_BYTES}
group = logstore.open(sys.argv[1], create=False).stream('t').group('g')
print(flush=True)
while found := group.read('w', timeout=600):
    group.ack(*[each.id for each in found])
"""

Work = Callable[[], object]


class Operation(NamedTuple):
    """What is counted, and how many times it does in one call what one figure stands for."""

    ours: Callable[[Path], Work]
    peer: Callable[[Path], Work] | None
    times: int
    unit: str


# -- ours -----------------------------------------------------------------------------------------
def _store(folder: Path) -> Any:
    import logstore
    from logstore.engine.runtime import identity
    from logstore.index import env

    env.MAP_BYTES = VALGRIND_MAP_BYTES
    identity.LOOK_NS = NEVER_NS
    return logstore.open(folder / "store", background=False)


def _rows(count: int, seed: int = 1) -> list[Row]:
    """Rows drawn at random."""
    drawn = random.Random(seed)
    return [{"temp": f"{drawn.uniform(-20, 40):.1f}", "hum": str(drawn.randrange(100))}
            for _ in range(count)]  # fmt: skip


def _filled(folder: Path, entries: int) -> tuple[Any, list[Any]]:
    stream = _store(folder).stream("t")
    return stream, list(stream.add_many(_rows(entries)))


def _each(call: Callable[[Any], object], given: Iterator[Any], count: int) -> Work:
    """The call with the next of these, so many times."""

    def work() -> None:
        for _ in range(count):
            call(next(given))

    return work


def _adds(folder: Path, made: Callable[[int], Row] | None = None) -> Work:
    """Rows, or what is made of a number, to one stream."""
    stream, _ = _filled(folder, 10)
    count = CALLS * NODE
    rows = _rows(count) if made is None else [made(at) for at in range(count)]
    return _each(stream.add, iter(rows), NODE)


def _add_given(folder: Path) -> Work:
    stream = _store(folder).stream("t")
    rows = enumerate(_rows(CALLS * NODE), 1)
    return _each(lambda row: stream.add(row[1], id=f"{row[0]}-0"), rows, NODE)


def _add_over(folder: Path) -> Work:
    """To streams at random, each of which has an entry."""
    store, drawn = _store(folder), random.Random(1)
    streams = [store.stream(f"s{at}") for at in range(STREAMS)]
    for stream, row in zip(streams, _rows(STREAMS), strict=True):
        stream.add(row)
    rows = ((drawn.choice(streams), row) for row in _rows(CALLS * NODE))
    return _each(lambda row: row[0].add(row[1]), rows, NODE)


def _add_bounded(folder: Path) -> Work:
    stream, _ = _filled(folder, 2_000)
    stream.configure(max_entries=1_000)
    return _each(stream.add, iter(_rows(CALLS * NODE)), NODE)


def _add_awaited(folder: Path) -> Work:
    """Of a stream whose group has a reader that waits, in another process."""
    stream, _ = _filled(folder, 10)
    stream.group("g", start="$")
    command = [sys.executable, "-c", WAITER, str(folder / "store")]
    waiter = subprocess.Popen(command, stdout=subprocess.PIPE)
    atexit.register(waiter.kill)
    assert waiter.stdout is not None
    waiter.stdout.readline()

    def add(row: Row) -> None:
        stream.add(row)
        time.sleep(PAUSE_S)  # until it waits again

    return _each(add, iter(_rows(CALLS * FEW)), FEW)


def _add_beside(folder: Path) -> Work:
    """As ``_adds``, in a store whose other streams use what a plain add does not."""
    store = _store(folder)
    stream = store.stream("t")
    stream.add_many(_rows(10))
    store.stream("values", codec="json").add({"n": None})
    store.stream("brief").add(ROW, ttl=3600)
    keyed = store.stream("keyed")
    keyed.configure(compact_by="temp", max_age=3600)
    keyed.add(ROW)
    keyed.latest("12.5")
    keyed.schedule(ROW, every=3600, name="hourly")
    keyed.group("g", start="0").configure(max_deliveries=3, dead_letter="dead", min_idle=30)
    return _each(stream.add, iter(_rows(CALLS * NODE)), NODE)


def _add_many(folder: Path) -> Work:
    stream, _ = _filled(folder, 10)
    rows = iter(_rows(CALLS * MANY))
    return lambda: stream.add_many(next(rows) for _ in range(MANY))


def _get(folder: Path) -> Work:
    stream, ids = _filled(folder, 10_000)
    picked = iter(random.Random(1).choices(ids, k=CALLS * NODE))
    return _each(lambda each: stream.get(each).fields, picked, NODE)


def _range(folder: Path) -> Work:
    stream, _ = _filled(folder, 3000)

    def work() -> None:
        for entry in stream.range(count=2000):
            entry.fields  # noqa: B018

    return work


def _range_of_ten(folder: Path) -> Work:
    stream, ids = _filled(folder, 10_000)
    picked = iter(random.Random(1).choices(ids[:-10], k=CALLS * FEW))
    return _each(
        lambda each: [entry.fields for entry in stream.range(each, count=10)], picked, FEW
    )  # fmt: skip


def _delete(folder: Path) -> Work:
    stream, ids = _filled(folder, 10_000)
    return _each(stream.delete, iter(random.Random(1).sample(ids, CALLS * NODE)), NODE)


def _pair(folder: Path, *, gone: int = 0, timeout_s: float = 0.0) -> Work:
    """Of a stream of which some entries were deleted."""
    stream, ids = _filled(folder, 2_000)
    group = stream.group("g", start="0")
    if gone:
        stream.delete(*random.Random(1).sample(ids, gone))

    def work() -> None:
        for _ in range(FEW):
            group.read("c", count=1, timeout=timeout_s)[0].ack()

    return work


def _hundreds(folder: Path) -> Work:
    stream, _ = _filled(folder, 10_000)
    group = stream.group("g", start="0")

    def work() -> None:
        for _ in range(2):
            group.ack(*[delivery.id for delivery in group.read("c", count=100)])

    return work


def _transaction(folder: Path) -> Work:
    store = _store(folder)

    def two(row: Row) -> None:
        with store.transaction() as transaction:
            transaction.stream("t").add(row)
            transaction.stream("o").add(row)

    return _each(two, iter(_rows(CALLS * NODE)), NODE)


def _scan(folder: Path) -> Work:
    stream, _ = _filled(folder, 50_000)
    return lambda: sum(batch.num_rows for batch in stream.scan())


# -- SQLite's -------------------------------------------------------------------------------------
def _database(folder: Path, rows: int) -> sqlite3.Connection:
    found = sqlite3.connect(folder / "peer.db", isolation_level=None)
    found.execute("pragma journal_mode = wal")
    found.execute("pragma synchronous = normal")
    found.execute("create table s(id integer primary key, temp text, hum text)")
    found.execute("begin")
    found.executemany(INSERT, _tuples(rows))
    found.execute("commit")
    return found


def _tuples(count: int) -> list[tuple[str, ...]]:
    return [tuple(row.values()) for row in _rows(count)]


def _insert(folder: Path) -> Work:
    database = _database(folder, 10)
    rows = iter(_tuples(CALLS * NODE))
    return _each(lambda row: database.execute(INSERT, row), rows, NODE)


def _insert_many(folder: Path) -> Work:
    database = _database(folder, 10)
    rows = iter(_tuples(CALLS * MANY))

    def work() -> None:
        database.execute("begin")
        database.executemany(INSERT, (next(rows) for _ in range(MANY)))
        database.execute("commit")

    return work


def _select(folder: Path) -> Work:
    database = _database(folder, 10_000)
    query = "select temp, hum from s where id = ?"
    picked = iter(random.Random(1).choices(range(1, 10_001), k=CALLS * NODE))
    return _each(lambda at: database.execute(query, (at,)).fetchone(), picked, NODE)


def _select_range(folder: Path) -> Work:
    database = _database(folder, 3000)

    def work() -> None:
        for _, temp, hum in database.execute("select * from s limit 2000"):
            {"temp": temp, "hum": hum}  # noqa: B018

    return work


def _select_ten(folder: Path) -> Work:
    database = _database(folder, 10_000)
    query = "select id, temp, hum from s where id >= ? order by id limit 10"
    picked = iter(random.Random(1).choices(range(1, 9_990), k=CALLS * FEW))
    return _each(lambda at: database.execute(query, (at,)).fetchall(), picked, FEW)


def _delete_row(folder: Path) -> Work:
    database = _database(folder, 10_000)
    picked = iter(random.Random(1).sample(range(1, 10_001), CALLS * NODE))
    return _each(lambda at: database.execute("delete from s where id = ?", (at,)), picked, NODE)


def _two_inserts(folder: Path) -> Work:
    database = _database(folder, 10)

    def two(row: tuple[str, ...]) -> None:
        database.execute("begin")
        database.execute(INSERT, row)
        database.execute(INSERT, row)
        database.execute("commit")

    return _each(two, iter(_tuples(CALLS * NODE)), NODE)


BEYOND_ASCII = partial(_adds, made=lambda at: {"who": f"José {at}", "place": "Zürich"})
A_FLOAT = partial(_adds, made=lambda at: {"temp": at / 7, "hum": str(at % 89)})
AFTER_DELETES = partial(_pair, gone=30)
READ_AND_ACK = "a read of one and its ack"
OPERATIONS = {
    "add": Operation(_adds, _insert, NODE, "an add"),
    "add, beyond ASCII": Operation(BEYOND_ASCII, None, NODE, "an add"),
    "add, a float": Operation(A_FLOAT, None, NODE, "an add"),
    "add, an ID given": Operation(_add_given, None, NODE, "an add"),
    f"add, {STREAMS:,} streams": Operation(_add_over, None, NODE, "an add"),
    "add, max_entries": Operation(_add_bounded, None, NODE, "an add"),
    AWAITED: Operation(_add_awaited, None, FEW, "an add and a pause"),
    "add beside features": Operation(_add_beside, None, NODE, "an add"),
    "add_many": Operation(_add_many, _insert_many, MANY, "a row"),
    "get": Operation(_get, _select, NODE, "a get, at random"),
    "range": Operation(_range, _select_range, 2000, "an entry"),
    "range of ten": Operation(_range_of_ten, _select_ten, FEW, "a range, at random"),
    "delete": Operation(_delete, _delete_row, NODE, "a delete, at random"),
    "group read and ack": Operation(_pair, None, FEW, READ_AND_ACK),
    "the same, after deletes": Operation(AFTER_DELETES, None, FEW, READ_AND_ACK),
    "the same, a timeout": Operation(partial(_pair, timeout_s=WAITS_S), None, FEW, READ_AND_ACK),
    "group in hundreds": Operation(_hundreds, None, 200, "an entry"),
    "transaction": Operation(_transaction, _two_inserts, NODE, "a transaction of two adds"),
    "scan": Operation(_scan, None, 50_000, "a row to Arrow"),
}
