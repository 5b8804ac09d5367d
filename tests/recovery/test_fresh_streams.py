"""Prevents rows that are made from a log's new streams at once from being others than those that
the frames lead to when they are applied one by one.

A replay holds back the streams of which the log says no more than how they were made. The same logs
are replayed with that and without: all rows of the index are the same, byte for byte.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore.engine.apply.bulk_create import BulkCreate
from logstore.engine.commit import log_tail
from logstore.engine.commit.committer import Committer
from logstore.index.env import DATABASES
from logstore.recovery.check import check

STREAMS = 300
Store = logstore.Store[bytes]
Rows = dict[str, list[tuple[bytes, bytes]]]


def _roll(store: Store) -> None:
    with Committer(store._engine()).locked() as words:
        log_tail.roll_locked(store._engine(), words)


def _many(store: Store, mark: bytes, first: int = 0) -> None:
    with store.transaction() as tx:
        for number in range(first, first + STREAMS):
            tx.stream(b"%s-%d" % (mark, number)).add({b"n": b"%d" % number})


def only_new(store: Store) -> None:
    """Each stream has one entry, and a hint tells of all."""
    _many(store, b"s")
    _roll(store)


def without_a_hint(store: Store) -> None:
    """The segment is the active one."""
    _many(store, b"s")


def some_go_on(store: Store) -> None:
    """Further entries, deletes, trims, groups, settings, times to live, in all orders."""
    rng = random.Random(3)
    for turn in range(4):
        _many(store, b"s", turn * 100)
        for _ in range(200):
            stream = store.stream(b"s-%d" % rng.randrange(turn * 100 + STREAMS))
            what = rng.randrange(10)
            if what < 3:
                stream.add({b"more": b"1"})
            elif what == 3:
                stream.add_many({b"row": b"%d" % row} for row in range(40))
            elif what == 4 and (first := stream.first) is not None:
                stream.delete(first.id)
            elif what == 5:
                stream.trim(maxlen=1, approximate=False)
            elif what == 6:
                stream.configure(max_entries=900)
            elif what == 7:
                stream.expire(after=9e6)
            elif what == 8:
                stream.schedule({b"later": b"1"}, after=9e6)
            else:
                stream.add({b"once": b"1"}, producer=b"p", idempotent_id=b"i")
        store.stream(b"s-%d" % turn).group(b"g", start="0").read(consumer=b"c")
        if turn % 2:
            _roll(store)


def names_change_hands(store: Store) -> None:
    """Dropped, made again under the same name, renamed onto each other, copied."""
    _many(store, b"s")
    for number in range(20):
        store.drop(b"s-%d" % number)
        store.stream(b"s-%d" % number).add({b"again": b"1"})
        store.rename(b"s-%d" % (number + 20), b"other-%d" % number)
        store.stream(b"s-%d" % (number + 20)).add({b"in its place": b"1"})
        store.copy(b"s-%d" % (number + 40), b"copy-%d" % number)
    _many(store, b"t")
    store.rename(b"t-1", b"s-1")
    _roll(store)


def behind_a_checkpoint(store: Store) -> None:
    """What the checkpoint knows is not new."""
    _many(store, b"s")
    store.checkpoint()
    _many(store, b"t")
    store.stream(b"s-3").add({b"more": b"1"})
    _roll(store)


def without_entries(store: Store) -> None:
    """Made by a group, and never added to; and first nodes too large to stand in the index."""
    for number in range(50):
        store.stream(b"empty-%d" % number).group(b"g", start="0")
        store.stream(b"large-%d" % number).add({b"v": bytes(1500 * number)})
    _roll(store)


LOGS = [
    only_new, without_a_hint, some_go_on, names_change_hands, behind_a_checkpoint, without_entries,
]  # fmt: skip


def _rebuilt(path: Path) -> Rows:
    shutil.rmtree(path / "index")
    with logstore.open(path, background=False, encoding=None) as store:
        assert store.recovery["rebuilt"]
        generation = store._engine().index()
        rows: Rows = {}
        with generation.env.begin() as txn:
            for name in DATABASES:
                with txn.cursor(db=generation.databases[name]) as cursor:
                    rows[name] = list(cursor)
            with txn.cursor(db=generation.main) as cursor:
                rows["main"] = [row for row in cursor if row[0] not in map(str.encode, DATABASES)]
    return rows


@pytest.mark.parametrize("made", LOGS, ids=lambda made: made.__name__)
def test_rows_are_those_of_the_frames_one_by_one(
    tmp_path: Path, made: Callable[[Store], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with logstore.open(
        path, background=False, encoding=None, sync="os", node_max_entries=10
    ) as store:
        made(store)
    at_once = _rebuilt(path)
    assert at_once["names"]
    monkeypatch.setattr(BulkCreate, "take", lambda *_: False)
    one_by_one = _rebuilt(path)
    for name, rows in one_by_one.items():
        assert at_once[name] == rows, name


@pytest.mark.parametrize("made", LOGS, ids=lambda made: made.__name__)
def test_the_rebuilt_index_agrees_with_the_log(
    tmp_path: Path, made: Callable[[Store], None]
) -> None:
    path = tmp_path / "store"
    with logstore.open(
        path, background=False, encoding=None, sync="os", node_max_entries=10
    ) as store:
        made(store)
    assert check(path).damage == []  # the live index, against one that is replayed
    shutil.rmtree(path / "index")
    logstore.open(path, background=False, encoding=None).close()
    assert check(path).damage == []
