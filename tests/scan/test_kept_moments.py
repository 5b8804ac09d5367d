"""Prevents two reads of one moment that see two: what a transaction wrote, in one of them only."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.api.store import Store
from logstore.engine.runtime import pins
from logstore.errors import OptionError, ReadOnlyError, SnapshotExpiredError, StreamNotFoundError
from logstore.ids import StreamID
from tests import seeds
from tests.scan.scanned_stores import make_plan, make_store, rows_of, split_rows

TRIES = 1000 if os.environ.get("LOGSTORE_TORTURE") else 12
SEED = seeds.seed()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store[bytes]]:
    with make_store(tmp_path / "store") as store:
        yield store


def write(path: Path, going: threading.Event, rng: random.Random) -> None:
    """Transactions that write to two streams, or take what they wrote away again."""
    with make_store(path) as store:
        number = 0
        kept: list[int] = []
        while going.is_set():
            number += 1
            with store.transaction() as txn:
                for name in ("a", "b"):
                    txn.stream(name).add({"n": str(number)}, id=(number, 0))
                kept.append(number)
                if len(kept) > 40:
                    gone = kept.pop(rng.randrange(len(kept)))
                    for name in ("a", "b"):
                        txn.stream(name).delete((gone, 0))


def test_streams_of_one_transaction_are_never_torn(tmp_path: Path) -> None:
    """LOGSTORE_SEED=<seed>; with LOGSTORE_TORTURE a thousand tries."""
    path = tmp_path / "store"
    going = threading.Event()
    going.set()
    with make_store(path) as store:
        for name in ("a", "b", "c"):
            store.create(name)
        args = (path, going, random.Random(SEED))
        writer = threading.Thread(target=write, args=args)
        writer.start()
        try:
            for tried in range(TRIES):
                token = store.moment("a", "b") if tried % 2 else store.moment()
                a = split_rows(make_plan(store, b"a", moment=token))
                if tried % 5 == 0:
                    store.compact(threshold=0.1)
                b = split_rows(make_plan(store, b"b", moment=token, cores=2))
                assert a == b, f"seed {SEED}, try {tried}"
                store.release_pins()
        finally:
            going.clear()
            writer.join()
    assert a


def test_a_moment_outlives_what_becomes_of_the_streams(store: Store[bytes]) -> None:
    store["x"].add_many(({"n": n} for n in range(50)), batch=7)
    store["y"].add({"n": "1"}, id="1-0")
    store.create("empty")
    first = rows_of(store["x"])
    middle = StreamID(*map(int, first[25][0].split("-")))
    token = store.moment()
    store["x"].trim(max_entries=3, approximate=False)
    store["x"].add({"n": "late"})
    store.drop("y")
    store["y"].add({"n": "2"}, id="2-0")
    store["z"].add({"n": "new"})
    store.compact(threshold=0.01)
    assert split_rows(make_plan(store, b"x", moment=token)) == first
    assert split_rows(make_plan(store, b"x", start=middle, moment=token)) == first[25:]
    assert split_rows(make_plan(store, b"x", end=middle, moment=token)) == first[:26]
    assert [row[0] for row in split_rows(make_plan(store, b"y", moment=token))] == ["1-0"]
    assert make_plan(store, b"empty", moment=token).splits == []
    both = make_plan(store, b"y", b"x", moment=token, min_partitions=3)
    assert both.entries == 51
    shared = make_plan(store, b"y", b"x", moment=token, min_partitions=3)
    assert shared.pin_id == both.pin_id
    with pytest.raises(StreamNotFoundError, match="at this moment"):
        make_plan(store, b"z", moment=token)
    assert {pin.purpose for pin in store.pins()} >= {"moment"}
    with pytest.raises(StreamNotFoundError):
        store.moment("x", "nothing")
    assert sum(pin.purpose == "moment" for pin in store.pins()) == 1


def test_a_moment_that_is_over_is_said(store: Store[bytes], tmp_path: Path) -> None:
    """And never another one."""
    store["x"].add_many({"n": n} for n in range(9))
    token = store.moment("x")
    plan = make_plan(store, b"x", moment=token)
    store.release_pins(token)
    with pytest.raises(SnapshotExpiredError, match=r"Make another one with store\.moment"):
        make_plan(store, b"x", moment=token)
    assert len(split_rows(plan)) == 9  # by its own pin
    with pytest.raises(OptionError, match="but no moment"):
        make_plan(store, b"x", moment=plan.pin_id)
    with pytest.raises(OptionError, match="is no moment"):
        make_plan(store, b"x", moment="yesterday")
    token = store.moment("x")
    store.compact(purge=True)
    with pytest.raises(SnapshotExpiredError):
        make_plan(store, b"x", moment=token)
    with make_store(tmp_path / "store", readonly=True) as other, pytest.raises(ReadOnlyError):
        other.moment()
    assert not pins.living(store._engine().fs, tmp_path / "store", 0)
