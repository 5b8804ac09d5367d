"""Prevents readers from missing, or seeing twice, what was published and is not in the index."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import lmdb
import pytest

import logstore
from logstore.api.store import Store
from logstore.engine.commit import log_tail
from logstore.engine.lane.lane_loading import native_or_none
from logstore.engine.runtime.overlaid_rows import DatabaseRows, OverlaidRows
from logstore.engine.snapshots import snapshot
from logstore.ids import StreamID
from tests import seeds
from tests.scan.scanned_stores import make_plan, split_rows
from tests.store.whole_store import everything
from tests.support import inside
from tests.support.lagging import Lagging, commits_behind
from tests.support.processes import Forked

STREAMS = (b"a", b"b", b"c")
NOW_MS = time.time_ns() // 1_000_000  # tasks of a plan ask the system's clock
CLOCK = inside.FixedClock(NOW_MS)


def open_at(path: Path, **options: Any) -> Store[bytes]:
    return logstore.open(path, encoding=None, background=False, clock=CLOCK, sync="os", **options)


def row(number: int) -> dict[bytes, bytes]:
    """Fields like those of the node's master entry, and now and then others."""
    if number % 3:
        return {b"n": b"%d" % number}
    return {b"n": b"%d" % number, b"other": b"x" * (number % 50)}


def fill(store: Store[bytes]) -> None:
    """Streams with sealed nodes, deleted entries, groups; each has an open node."""
    for name in STREAMS:
        stream = store.stream(name)
        stream.add_many([row(number) for number in range(230)])
        stream.delete(*[entry.id for entry in stream.range(count=20)][::2])
        group = stream.group(b"g", start="0")
        group.ack(*[entry.id for entry in group.read(b"one", count=5)][:2])


def lag(store: Store[bytes], commits: int, begun: bool = False) -> None:
    """So many plain adds, in turn to two of the streams; with ``begun`` also such that begin a
    stream, or a node."""
    writer = Lagging(store, plain=not begun)
    for number in range(commits):
        name, fields = STREAMS[number % 2], row(number)
        if begun and number % 5 == 1:
            name = b"new %d" % (number % 4)
        elif begun and number % 3 == 0:
            fields = {b"n": b"x" * 1500}
        writer.add(name, fields, at=StreamID(NOW_MS + 1 + number, 0))
    assert commits_behind(store) == commits


def of_the_log(path: Path, to: Path) -> Path:
    """A copy of the store, with nothing but what the log says."""
    left_out = shutil.ignore_patterns("index", "WAKE", "LOCK", "USERS")
    shutil.copytree(path, to, ignore=left_out)
    return to


def read_all(store: Store[bytes]) -> dict[Any, Any]:
    """What every public read tells."""
    found: dict[Any, Any] = {"all": everything(store)}
    first = {name: store.stream(name).range(count=1).__next__().id for name in STREAMS}
    read = store.read(first, max_count=400)
    found["read"] = {name: [each.id for each in entries] for name, entries in read.items()}
    for name in STREAMS:
        stream, told = store.stream(name), {}
        ids = [entry.id for entry in stream]
        told["get"] = [stream.get(id) for id in ids]
        told["none"] = stream.get(ids[-1].next()), stream.get(ids[0].previous())
        told["ends"] = stream.first, stream.last, stream.last_id, len(stream)
        told["some"] = [each.id for each in stream.range(ids[-3], ids[-2])]
        told["after"] = stream.read(ids[-4]), stream.read("+"), stream.read("$")
        told["follow"] = list(stream.follow(ids[-4], timeout=0))
        told["info"] = stream.info(), stream.info_full(0), stream.groups()
        told["dump"] = stream.dump()
        told["scan"] = stream.scan().read_all().to_pylist()
        told["plan"] = split_rows(make_plan(store, name, min_partitions=3))
        group = stream.group(b"g")
        told["group"] = group.info(), group.consumers(), group.pending()
        found |= {(name, what): each for what, each in told.items()}
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store[bytes]]:
    with open_at(tmp_path / "store") as opened:
        fill(opened)
        yield opened


BEHIND = pytest.mark.parametrize("commits", [0, 1, 2, 63])
BEGUN = pytest.mark.parametrize("begun", [False, True])


@BEGUN
@BEHIND
def test_every_read_sees_it(store: Store[bytes], tmp_path: Path, commits: int, begun: bool) -> None:
    lag(store, commits, begun)
    found = read_all(store)
    assert commits_behind(store) == commits
    with open_at(of_the_log(tmp_path / "store", tmp_path / "copy")) as judge:
        assert found == read_all(judge)
    assert read_all(store) == found


@BEGUN
@BEHIND
def test_another_process_sees_it(
    store: Store[bytes], tmp_path: Path, commits: int, begun: bool
) -> None:
    before = read_all(store)
    with beside(tmp_path / "store", lambda other: lag(other, commits, begun)):
        pass
    found = read_all(store)
    assert (found == before) == (not commits)
    assert commits_behind(store) == commits
    with open_at(of_the_log(tmp_path / "store", tmp_path / "copy")) as judge:
        assert found == read_all(judge)


def test_reads_go_on_while_another_process_adds(store: Store[bytes], tmp_path: Path) -> None:
    """Each look sees all that was published before it, and no entry ever goes again."""

    def work(other: Store[bytes]) -> None:
        writer = Lagging(other)
        for number in range(400):
            writer.add_anyhow(b"a", row(number), StreamID(NOW_MS + 1000 + number, 0))
            if number % 90 == 89:
                other.stream(b"b").add(row(number))  # the index follows

    engine, seen = inside.engine_of(store), 0
    with beside(tmp_path / "store", work) as child:
        ended = False
        while not ended:
            ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            published = engine.wake.applied
            entries = [entry.id for entry in store.stream(b"a").range(reverse=True)]
            assert entries == sorted(set(entries), reverse=True)
            assert seen <= len(entries)
            assert snapshot.read(engine, applied) >= published
            seen = len(entries)
    assert entries[0] == StreamID(NOW_MS + 1000 + 399, 0)
    assert commits_behind(store)


def applied(view: snapshot.Snapshot) -> int:
    return view.meta.applied


@contextmanager
def beside(path: Path, work: Callable[[Store[bytes]], object]) -> Iterator[Forked]:
    """Another process that has the store open does this, and ends without closing it."""

    def opened() -> None:
        KEPT_OPEN.append(open_at(path))
        work(KEPT_OPEN[0])

    with Forked(opened) as child:
        yield child


KEPT_OPEN: list[Store[bytes]] = []


def rows_of(view: snapshot.Snapshot) -> dict[str, list[tuple[bytes, bytes]]]:
    """Every row of every database, without those that LMDB keeps about databases."""
    index, found = view.index, {}
    databases = index.generation.databases
    for name, handle in databases.items():
        with index.txn.cursor(db=handle) as cursor:
            found[name] = [row for row in cursor if row[0].decode("latin-1") not in databases]
    return found


@pytest.mark.skipif(native_or_none is None, reason="the lane was not compiled")
@pytest.mark.parametrize("looks", [1, 7, 60])
def test_the_rows_are_those_of_an_index_that_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Byte for byte, after adds, also such that begin a stream or a node, deletes, deliveries and
    acks; however often they are looked at in between, so that more is laid over what was laid
    before; and whether the index follows from the log or from memory."""
    inside.let_lag(monkeypatch, 64, lane=True)
    rng = random.Random(f"{seeds.seed()}-{looks}")
    with logstore.open(tmp_path / "s", encoding=None, background=False, sync="os") as writer:
        fill(writer)
        engine, laid = inside.engine_of(writer), set()
        for number in count():
            if number >= 200 and laid >= {"main", "names", "nodes", "segments", "groups"}:
                break  # in most draws at once
            assert number < 5000, laid
            busy(writer, rng, number)
            if number % looks == 0:
                snapshot.read(engine, rows_of)
            if number % 17 == 16:
                before = snapshot.read(engine, rows_of)
                if engine.wake.indexed_upto < engine.wake.applied and engine.overlay:
                    laid |= engine.overlay.rows.keys()
                rng.choice([follow_the_log, inside.follow])(writer)
                assert engine.wake.indexed_upto == engine.wake.applied
                after = snapshot.read(engine, rows_of)
                assert [name for name, rows in after.items() if rows != before[name]] == []


def follow_the_log(store: Store[bytes]) -> None:
    """The index takes in what it lacks, and nothing that is held in memory."""
    engine = inside.engine_of(store)
    with engine.mutex:
        engine.lock.acquire(engine.wake, 10)
        try:
            words = engine.wake.log()
            log_tail.follow_locked(engine, words)
        finally:
            engine.lock.release(engine.wake)
    assert engine.wake.indexed_upto == words.applied


def busy(store: Store[bytes], rng: random.Random, number: int) -> None:
    """One commit that the index may lack."""
    stream = store.stream(rng.choice(STREAMS))
    group, what = stream.group(b"g"), rng.random()
    if what < 0.1:
        store.stream(b"new %d" % rng.randrange(number + 1)).add(row(number))
    elif what < 0.2:
        stream.add({b"large": b"x" * 1300})  # some fill a node
    elif what < 0.5:
        stream.add(row(number))
    elif what < 0.7:
        group.read(b"one", count=rng.randrange(1, 4))
    elif what < 0.85:
        group.ack(*[each.id for each in group.pending_entries(count=2)])
    else:
        stream.delete(rng.choice([each.id for each in stream.range(count=200)]))


KEYS = [bytes([first, second]) for first in range(1, 8) for second in range(4)]
LAID, BELOW = "laid", "below"


@contextmanager
def both(path: Path, rng: random.Random) -> Iterator[tuple[Any, Any, Any]]:
    """A transaction with rows over it, one to which they were written, and the database."""
    env = lmdb.open(str(path), max_dbs=1, map_size=1 << 20)
    try:
        db = env.open_db(b"rows")
        with env.begin(write=True) as txn:
            for key in rng.sample(KEYS, rng.randrange(len(KEYS))):
                txn.put(key, BELOW.encode(), db=db)
        with env.begin(write=True) as written, env.begin() as read:
            over = OverlaidRows(read, {db: "rows"}, {"rows": DatabaseRows({}, [])})
            for key in rng.sample(KEYS, rng.randrange(len(KEYS))):
                if rng.random() < 0.4:
                    over.delete(key, db=db)
                    written.delete(key, db=db)
                else:
                    over.put(key, LAID.encode(), db=db)
                    written.put(key, LAID.encode(), db=db)
            yield over, written, db
            written.abort()
    finally:
        env.close()


def moves(rng: random.Random) -> tuple[str, Callable[[Any], Any]]:
    """One move of a cursor, with what it tells."""
    key = rng.choice((*KEYS, b"\x03\x01\x01", b"\x09", b"\x01"))
    what = rng.choice(("first", "last", "next", "prev", "set_range", "set_key", "items"))
    if what in ("set_range", "set_key"):
        return f"{what} {key!r}", lambda cursor: getattr(cursor, what)(key)
    if what == "items":
        back, values = rng.random() < 0.5, rng.random() < 0.5
        ends = cursor_to_end(back=back)

        def items(cursor: Any) -> list[Any]:
            ends(cursor)
            rows = cursor.iterprev if back else cursor.iternext
            return list(islice(rows(values=values), rng_count))

        rng_count = rng.randrange(1, 40)
        return f"{rng_count} rows, back: {back}, values: {values}", items
    return what, lambda cursor: getattr(cursor, what)()


def cursor_to_end(*, back: bool) -> Callable[[Any], None]:
    """From nowhere LMDB begins at an end, as far as it did not come there by itself."""

    def go(cursor: Any) -> None:
        if not cursor.key():
            (cursor.last if back else cursor.first)()

    return go


@pytest.mark.parametrize("case", range(60))
def test_a_cursor_goes_as_that_of_lmdb(tmp_path: Path, case: int) -> None:
    rng = random.Random(f"{seeds.seed()}-{case}")
    with both(tmp_path / "env", rng) as (over, written, db):
        for key in KEYS:
            assert over.get(key, db=db) == written.get(key, db=db)
        ours, theirs = over.cursor(db=db), written.cursor(db=db)
        done = []
        for _ in range(60):
            name, move = moves(rng)
            done.append(name)
            if name in ("next", "prev") and not ours.key():
                continue  # LMDB goes on from where it fell off, which nobody relies on
            assert move(ours) == move(theirs), done
            if "rows" not in name:
                assert ours.item() == theirs.item(), done
                continue
            place = rng.choice(KEYS)  # where an iteration leaves a cursor, nobody relies on either
            assert ours.set_range(place) == theirs.set_range(place), done
            assert ours.item() == theirs.item(), done


def test_without_an_overlay_the_cursor_is_that_of_lmdb(tmp_path: Path) -> None:
    env = lmdb.open(str(tmp_path / "env"), max_dbs=1, map_size=1 << 20)
    try:
        db = env.open_db(b"rows")
        with env.begin() as txn:
            assert isinstance(OverlaidRows(txn, {db: "rows"}, {}).cursor(db=db), lmdb.Cursor)
    finally:
        env.close()
