"""Prevents a delete beside the pipeline that some look does not see, or that the index loses.

The index lags behind such a commit: of sealed nodes it says that entries live which are gone. So
each way to ask is tried while it lags, with the read core and without, in this process and in
others, and once more when it followed, and of an index that was built anew.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.lane.lane_loading import native_or_none
from tests.scan.scanned_stores import make_plan, split_rows
from tests.support.inside import committer_of, engine_of, follow, indexed, lane_commits
from tests.support.log_limit import room_for
from tests.support.processes import Forked

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("by_lane_alone")

Store = logstore.Store[bytes]
ID = logstore.StreamID
LIMITS: dict[str, Any] = {"node_max_entries": 5, "background": False, "encoding": None}
COUNT = 33  # six full nodes, and three entries in the open one

OPERATIONS = 500


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a stream of COUNT entries; nothing is owed to the index."""
    with logstore.open(tmp_path / "store", **LIMITS) as opened:
        for n in range(1, COUNT + 1):
            opened.stream("a").add({"n": n}, id=(n, 0))
        opened.stream("a").group("g", start="0")
        follow(opened)
        for n in (1, 30):  # the read core and the lane know them from here on
            opened.stream("a").get(ID(n, 0))
        opened.stream("b").add({"n": 0}, sync="os")
        opened.stream("b").add({"n": 0})
        lane_commits(opened)
        yield opened


def delete(store: Store, *numbers: int) -> None:
    """Delete these, each in a commit of the lane."""
    for n in numbers:
        lane_commits(store)
        assert store.stream("a").delete(ID(n, 0)) == 1
        assert lane_commits(store) == 1, n


def looks(store: Store) -> Iterator[list[int]]:
    """The entries of the stream, in each way in which they can be asked for."""
    stream = store.stream("a")
    yield [entry.id.ms for entry in stream.range()]
    yield [entry.id.ms for entry in stream.range(reverse=True)][::-1]
    yield [n for n in range(COUNT + 3) if stream.get(ID(n, 0)) is not None]
    yield [entry.id.ms for n in range(COUNT + 3) for entry in stream.range(ID(n, 0), ID(n, 9))]


def is_seen(store: Store, gone: set[int]) -> None:
    """All looks, with the read core and without, tell the same; so do the counts."""
    there = [n for n in range(1, COUNT + 1) if n not in gone]
    engine = engine_of(store)
    core = engine.reader
    before = indexed(store)
    try:
        for engine.reader in (core, None):
            assert list(looks(store)) == [there] * 4
            info = store.stream("a").info()
            assert len(store.stream("a")) == info.length == len(there)
            assert info.recorded_first_entry_id == ID(there[0], 0)
            assert info.max_deleted_entry_id == ID(max(gone, default=0), 0)
    finally:
        engine.reader = core
    assert indexed(store) == before  # none of these lets it follow
    scanned = split_rows(make_plan(store, b"a"))
    assert [int(id.partition("-")[0]) for id, _ in scanned] == there


def _beside(path: Path, gone: set[int]) -> None:
    with logstore.open(path, readonly=True, encoding=None) as other:
        is_seen(other, gone)
    with logstore.open(path, background=False, encoding=None) as other:
        is_seen(other, gone)


def in_all_states(store: Store, gone: set[int]) -> None:
    """While the index lags, also for others; when it followed; when it was built anew."""
    is_seen(store, gone)
    Forked(partial(_beside, engine_of(store).path, gone)).join()
    follow(store)
    is_seen(store, gone)
    with committer_of(store).locked():
        engine_of(store).rebuild_locked()
    is_seen(store, gone)


@pytest.mark.parametrize(
    "numbers",
    [(7,), (1,), (1, 2, 3), (6, 7, 8, 9), (31,), (33, 32), (2, 30, 3, 31, 14, 1)],
    ids=str,
)
def test_every_look_sees_it_while_the_index_lags(store: Store, numbers: tuple[int, ...]) -> None:
    delete(store, *numbers)
    assert indexed(store) < engine_of(store).wake.applied
    in_all_states(store, set(numbers))


def test_deleting_missing_entries_is_no_commit(store: Store) -> None:
    delete(store, 7, 32)
    before = engine_of(store).wake.applied
    for id in (ID(7, 0), ID(32, 0), ID(8, 1), ID(31, 5), ID(0, 1), ID(COUNT, 1)):
        assert store.stream("a").delete(id) == 0
    assert store.stream("none").delete(ID(1, 0)) == 0
    assert engine_of(store).wake.applied == before


def test_the_last_entry_of_a_node_goes_with_it(store: Store) -> None:
    """That is of the pipeline, which sees what went before."""
    delete(store, 6, 7, 8, 9)
    assert store.stream("a").delete(ID(10, 0)) == 1
    assert lane_commits(store) == 0
    assert store.stream("a").info().radix_tree_keys == 6
    delete(store, 31, 32)
    assert store.stream("a").delete(ID(33, 0)) == 1
    assert lane_commits(store) == 0
    assert [e.id.ms for e in store.stream("a")] == [*range(1, 6), *range(11, 31)]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_group_is_not_given_what_is_gone(store: Store, sealed: bool) -> None:
    """Whether its node was looked at before, by the lane, or not."""
    group = store.stream("a").group("g")
    start = 0 if sealed else 30
    if not sealed:
        store.stream("a").add({"n": 34}, id=(34, 0))
        assert len(group.read("c", count=30)) == 30
    for n in (1, 2):
        assert [each.id.ms for each in group.read("c", count=1)] == [start + n]
    delete(store, start + 3)
    assert [each.id.ms for each in group.read("c", count=1)] == [start + 4]
    assert lane_commits(store) == 1


def test_a_group_is_not_given_what_is_gone_and_owed(store: Store) -> None:
    """What the lane had is the record cache's then, and the index does not know it."""
    group = store.stream("a").group("g")
    assert [each.id.ms for each in group.read("c", count=1)] == [1]
    delete(store, 2)
    with committer_of(store).locked(follow=False):
        pass
    assert indexed(store) < engine_of(store).wake.applied
    assert [each.id.ms for each in group.read("c", count=2)] == [3, 4]
    assert lane_commits(store) == 1


def test_the_pipeline_gives_no_group_what_is_gone(store: Store) -> None:
    """It remembers the node that it read last."""
    group = store.stream("a").group("g")
    assert [each.id.ms for each in group.read("c", count=1, noack=True)] == [1]
    delete(store, 2)
    assert [each.id.ms for each in group.read("c", count=1, noack=True)] == [3]
    assert lane_commits(store) == 0


@pytest.mark.parametrize("head", ["known", "looked up", "owed"])
def test_a_trim_counts_what_is_left(store: Store, head: str) -> None:
    """Whole nodes go while as many are left as asked for, also by what the index does not know."""
    stream = store.stream("a")
    if head == "known":
        stream.add({"n": 34}, id=(34, 0), max_entries=1000, approximate=True)
    lane_commits(store)
    delete(store, 1, 2, 3)  # of the first node two live
    if head == "owed":
        with committer_of(store).locked(follow=False):
            pass
    left = len(stream) - 1
    stream.add({"n": 35}, id=(35, 0), max_entries=left, approximate=True)
    assert [len(stream), stream.info().recorded_first_entry_id] == [left, ID(6, 0)]


def test_an_append_that_fails_leaves_nothing(store: Store) -> None:
    engine = engine_of(store)
    delete(store, 7)
    with room_for(engine, 40):
        for n in (8, 32):
            with pytest.raises(logstore.Error):
                store.stream("a").delete(ID(n, 0))
    assert not engine.wake.in_progress
    in_all_states(store, {7})
    assert store.stream("a").delete(ID(8, 0)) == 1
    in_all_states(store, {7, 8})


def _delete_beside(path: Path, numbers: list[int]) -> None:
    with logstore.open(path, background=False, encoding=None, sync="os") as other:
        for n in numbers:
            assert other.stream("a").delete(ID(n, 0)) == 1


def test_processes_delete_in_turn(store: Store) -> None:
    """Of the same nodes, sealed and open, between each other's."""
    rng = random.Random(1)
    numbers = [n for n in range(1, COUNT + 1) if n % 5 and n != COUNT]
    rng.shuffle(numbers)
    gone: set[int] = set()
    while numbers:
        mine, theirs = numbers[:3], numbers[3:6]
        numbers = numbers[6:]
        for n in mine:
            assert store.stream("a").delete(ID(n, 0)) == 1
        Forked(partial(_delete_beside, engine_of(store).path, theirs)).join()
        gone |= {*mine, *theirs}
        is_seen(store, gone)
    in_all_states(store, gone)


def test_random_deletes_of_the_lane_equal_the_model(tmp_path: Path) -> None:
    """Adds, deletes and reads of a group, against what should be there; a short history often."""
    for seed in range(6):
        rng = random.Random(seed)
        with logstore.open(tmp_path / str(seed), **LIMITS) as store:
            stream = store.stream("s")
            stream.group("g", start="0")
            there: dict[ID, int] = {}
            given: set[ID] = set()
            for n in range(OPERATIONS):
                what = rng.random()
                if what < 0.45 or len(there) < 4:
                    there[stream.add({"n": n})] = n
                elif what < 0.8:
                    id = rng.choice([min(there), max(there), rng.choice(list(there))])
                    assert stream.delete(id) == 1
                    del there[id]
                    assert stream.delete(id) == 0
                elif what < 0.9:
                    found = {each.id for each in stream.group("g").read("c", count=3)}
                    wanted = sorted(id for id in there if id > max(given, default=ID(0, 0)))[:3]
                    assert found == set(wanted)
                    given |= found
                else:
                    assert {entry.id: int(entry[b"n"]) for entry in stream} == there
            in_log = lane_commits(store)
            assert in_log > OPERATIONS // 2
            with committer_of(store).locked():
                engine_of(store).rebuild_locked()
            assert {entry.id: int(entry[b"n"]) for entry in stream} == there
