"""What benchmarks.maintenance runs in processes of their own.

``python -m benchmarks.maintained PLACE ADDERS WORK ENTRIES``: such a process opens a store, or a
database of SQLite, adds in so many threads, does a work, or both. It says when it is ready. A line
then lets it do its work, of which it prints when it began and ended, by the clock that all
processes share. The next line names windows of time; it stops, and prints what the adds took that
were under way in each. No two entries are alike.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from benchmarks import data
from logstore.api.store import Store

STREAMS = 100
LARGE = "large"  # one stream of as many entries as the history has
BATCH = 100
GONE_EVERY = 5  # entry of the history, and of the table
TEXT_CHARS, BODY_MAX_CHARS = 1 << 20, 200
SPIN_S = 1.0
FOLLOWS_S = 1.5  # behind a configure, for the background to drop what is not kept
BUSY_TIMEOUT_MS = 60_000
INSERT = "INSERT INTO docs VALUES (:n, :rider, :body)"

Document = dict[str, str]
Work = Callable[[], object]


class Took(NamedTuple):
    """What the adds took that were under way in a window."""

    adds: int
    most_ms: float
    p999_ms: float


def documents(seed: int) -> Iterator[Document]:
    """Fields of entries, of which no two are alike."""
    drawn = random.Random(seed)
    text = drawn.randbytes(TEXT_CHARS // 2).hex()
    number = 0
    while True:
        at, length = drawn.randrange(TEXT_CHARS - BODY_MAX_CHARS), drawn.randrange(BODY_MAX_CHARS)
        body = text[at : at + length]
        yield {"n": f"{seed}-{number}", "rider": data.RIDERS[number % 8], "body": body}
        number += 1


def history(place: Path, entries: int) -> None:
    """A store of so many entries, in streams that were written by turns; some were deleted."""
    rows = documents(0)
    with logstore.open(place, sync="os") as store:
        given = [
            (number, store.stream(f"s{number}").add_many([next(rows) for _ in range(BATCH)]))
            for _ in range(max(1, entries // STREAMS // BATCH))
            for number in range(STREAMS)
        ]
        for number, ids in given:
            store.stream(f"s{number}").delete(*list(ids)[::GONE_EVERY])


def fill_table(place: Path, entries: int) -> None:
    """The same as a table of SQLite."""
    rows = documents(0)
    base = data.database(place)
    base.execute("CREATE TABLE docs (n TEXT, rider TEXT, body TEXT)")
    base.execute("BEGIN")
    base.executemany(INSERT, (next(rows) for _ in range(entries)))
    base.execute("DELETE FROM docs WHERE rowid % ? = 0", (GONE_EVERY,))
    base.execute("COMMIT")
    base.close()


def opened_table(place: Path) -> sqlite3.Connection:
    """A connection that waits for others."""
    base = data.database(place)
    base.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return base


class Adder:
    """One thread that adds as fast as it can, and notes when each add began and what it took."""

    def __init__(self, seed: int, opened: Callable[[], Callable[[Document], object]]) -> None:
        self._rows = documents(seed)
        self._opened = opened
        self._began, self._took = array("q"), array("q")
        self.stop = False
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        add, rows, clock = self._opened(), self._rows, time.monotonic_ns
        began, took = self._began, self._took
        while not self.stop:
            row = next(rows)
            at = clock()
            add(row)
            took.append(clock() - at)
            began.append(at)

    def within(self, start_ns: int, end_ns: int) -> list[int]:
        """What the adds took that were under way in a window, in ns."""
        rows = zip(self._began, self._took, strict=True)
        return [took for began, took in rows if began < end_ns and began + took > start_ns]


def took_in(adders: Sequence[Adder], window: tuple[int, int]) -> Took:
    """What the adds of all threads took in a window."""
    found = sorted(took for adder in adders for took in adder.within(*window))
    if not found:
        return Took(0, 0.0, 0.0)
    return Took(len(found), found[-1] / 1e6, found[int(0.999 * (len(found) - 1))] / 1e6)


def _spin() -> None:
    """What any other busy process does to the adds: the judge of the machine."""
    end = time.monotonic() + SPIN_S
    while time.monotonic() < end:
        pass


def _large(store: Store[bytes], entries: int) -> Any:
    """A stream with as many entries as the history has."""
    stream, rows = store.stream(LARGE), documents(-1)
    stream.add_many((row for row, _ in zip(rows, range(entries), strict=False)), batch=10_000)
    return stream


def _configure(store: Store[bytes], entries: int) -> Work:
    """Retention drops most of a stream, in the background of whichever process comes first."""
    stream = _large(store, entries)

    def configure() -> None:
        stream.configure(max_entries=entries // 10)
        store.retain()
        time.sleep(FOLLOWS_S)

    return configure


def _keep_newest(store: Store[bytes], entries: int) -> Work:
    """The same by a field: of eight riders one entry each is kept."""
    stream = _large(store, entries // 10)

    def configure() -> None:
        stream.configure(compact_by="rider")
        store.retain()

    return configure


def _trim(store: Store[bytes], entries: int) -> Work:
    """Two fifths of a stream."""
    stream = _large(store, entries)
    return lambda: stream.trim(max_entries=entries - entries * 2 // 5, approximate=False)


def _copy(store: Store[bytes], entries: int) -> Work:
    _large(store, entries)
    return lambda: store.copy(LARGE, "copy")


def _drop(store: Store[bytes], entries: int) -> Work:
    _large(store, entries)
    return lambda: store.drop(LARGE)


def _backup(store: Store[bytes], _: int) -> Work:
    target = store._engine().path.with_suffix(".backup")
    return lambda: store.backup(target)


def _ship(store: Store[bytes], _: int) -> Work:
    target = store._engine().path.with_suffix(".shipped")
    return lambda: store.ship(target)


WORKS: dict[str, Callable[[Store[bytes], int], Work]] = {
    "nothing": lambda _store, _: lambda: None,
    "spin": lambda _store, _: _spin,
    "compact": lambda store, _: lambda: store.compact(full=True),
    "purge": lambda store, _: lambda: store.compact(purge=True),
    "copy": _copy,
    "configure": _configure,
    "keep-newest": _keep_newest,
    "checkpoint": lambda store, _: store.checkpoint,
    "trim": _trim,
    "drop": _drop,
    "backup": _backup,
    "ship": _ship,
}
STATEMENTS = {"vacuum": "VACUUM", "wal": "PRAGMA wal_checkpoint(TRUNCATE)"}


def prepared(
    place: Path, adders: int, work: str, entries: int, held: ExitStack
) -> tuple[list[Adder], Work]:
    """The threads that add, and what is to be done, which may be nothing."""
    if place.suffix == ".db":
        base = held.enter_context(closing(opened_table(place)))
        statement = STATEMENTS.get(work, "SELECT 1")
        made = [Adder(number + 1, partial(_inserting, place)) for number in range(adders)]
        return made, lambda: base.execute(statement)
    store = held.enter_context(logstore.open(place, create=False))
    maintain = WORKS[work](store, entries)
    return [
        Adder(number + 1, partial(_adding, store, number)) for number in range(adders)
    ], maintain


def _inserting(place: Path) -> Callable[[Document], object]:
    """Of a connection of the thread's own."""
    return partial(opened_table(place).execute, INSERT)


def _adding(store: Store[bytes], number: int) -> Callable[[Document], object]:
    return store.stream(f"added-{number}").add


def main(place: str, threads: str, work: str, entries: str) -> None:
    """Be such a process."""
    with ExitStack() as held:
        adders, maintain = prepared(Path(place), int(threads), work, int(entries), held)
        for each in adders:
            each.thread.start()
        print("ready", flush=True)
        sys.stdin.readline()
        began_ns = time.monotonic_ns()
        maintain()
        print(json.dumps([began_ns, time.monotonic_ns()]), flush=True)
        windows = json.loads(sys.stdin.readline())
        for each in adders:
            each.stop = True
        for each in adders:
            each.thread.join()
        print(json.dumps([took_in(adders, window) for window in windows]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
