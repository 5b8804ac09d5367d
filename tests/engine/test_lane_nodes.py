"""Prevents an add that begins a node, or a stream, in compiled code that loses what the log has.

The index lags behind one that begins an open node: whoever looks at the store, in this process or
another one, in the index as it is, once it followed, or built anew, finds the same. It follows at
once if the node is sealed at once: what fails, is interrupted or is killed at each step between its
rows, the append, LMDB's commit and the publishing leaves all of it or nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.lane.indexed import Indexed
from logstore.engine.lane.lane_loading import native_or_none
from logstore.recovery import compare
from logstore.recovery.check import check
from tests import seeds
from tests.support.inside import committer_of, engine_of, follow, indexed, lane_commits
from tests.support.log_limit import room_for
from tests.support.processes import Forked

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("by_lane_alone")

Store = logstore.Store[bytes]
LARGE = {"temp": "x" * 1500, "hum": "1"}  # some fill a node
ALONE = {"temp": "x" * 5000, "hum": "1"}  # each is one


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a stream whose node is full, and what the index has not followed yet."""
    with logstore.open(tmp_path / "store", background=False) as opened:
        opened.stream("a").add({"n": 0}, sync="os")
        opened.stream("b").add({"n": 0}, sync="os")
        for _ in range(2):
            opened.stream("a").add(LARGE)
        opened.stream("b").add({"n": 1})
        lane_commits(opened)
        yield opened


def first(store: Store) -> logstore.StreamID:
    """A stream's first add."""
    return store.stream("new").add({"n": 1})


def full(store: Store) -> logstore.StreamID:
    """An add to a full node."""
    return store.stream("a").add(LARGE)


def alone(store: Store) -> logstore.StreamID:
    """An add that is a node by itself."""
    return store.stream("a").add(ALONE)


def new_alone(store: Store) -> logstore.StreamID:
    """A stream's first add, likewise."""
    return store.stream("new").add(ALONE)


LAGGING = pytest.mark.parametrize("add", [first, full])
AT_ONCE = pytest.mark.parametrize("add", [alone, new_alone])
ADDS = pytest.mark.parametrize("add", [first, full, alone, new_alone])


def ids_of(store: Store) -> dict[str, list[Any]]:
    """IDs of all streams, as a reader finds them and as the index has them."""
    there = {name: [e.id for e in store.stream(name).range()] for name in ("a", "b", "new")}
    follow(store)
    assert {name: [e.id for e in store.stream(name).range()] for name in there} == there
    return there


def is_sound(store: Store, before: dict[str, list[Any]], added: list[Any]) -> None:
    """The store has what was there and what was added, goes on, and so does a rebuilt index."""
    then = ids_of(store)
    assert sorted(id for ids in then.values() for id in ids) == sorted(
        [*(id for ids in before.values() for id in ids), *added]
    )
    more = [add(store) for add in (full, first, alone, full)]
    assert sorted(id for ids in ids_of(store).values() for id in ids) == sorted(
        [*(id for ids in then.values() for id in ids), *more]
    )
    then = ids_of(store)
    infos = [store.stream(name).info() for name in then]
    with committer_of(store).locked():
        engine_of(store).rebuild_locked()
    assert ids_of(store) == then
    assert [store.stream(name).info() for name in then] == infos


@LAGGING
def test_the_index_lags_behind_it(store: Store, add: Callable[[Store], Any]) -> None:
    engine, before = engine_of(store), indexed(store)
    lane_commits(store)
    there = {name: [e.id for e in store.stream(name).range()] for name in ("a", "b", "new")}
    added = [add(store), add(store)]
    assert lane_commits(store) == 2
    assert indexed(store) == before < engine.wake.applied
    is_sound(store, there, added)


@AT_ONCE
def test_the_index_follows_a_new_node_of_the_lane_at_once(
    store: Store, add: Callable[[Store], Any]
) -> None:
    engine, before = engine_of(store), indexed(store)
    assert before < engine.wake.applied  # it lags
    add(store)
    assert lane_commits(store) == 1
    assert engine.wake.indexed_upto == engine.wake.applied == indexed(store)
    add(store)
    store.stream("b").add({"n": 2})
    assert lane_commits(store) == 2
    assert engine.wake.indexed_upto < engine.wake.applied


@ADDS
def test_an_append_that_fails_leaves_nothing(store: Store, add: Callable[[Store], Any]) -> None:
    before, engine = ids_of(store), engine_of(store)
    store.stream("b").add({"n": 2})
    before = {name: [e.id for e in store.stream(name).range()] for name in before}
    with room_for(engine, 40), pytest.raises(logstore.Error):
        add(store)
    assert not engine.wake.in_progress
    is_sound(store, before, [])


class BrokenError(Exception):
    """What a test breaks."""


def breaking(monkeypatch: pytest.MonkeyPatch, where: str, what: Callable[[], object]) -> None:
    """Have something happen at a step of the next such commit: before its rows are written, behind
    that, before or behind LMDB's commit, or behind the publishing."""
    prepare, done = Indexed.prepare, Indexed.done

    def prepared(self: Indexed, *args: Any) -> Any:
        monkeypatch.setattr(Indexed, "prepare", prepare)
        if where == "decided":
            what()
        commit = prepare(self, *args)
        assert commit is not None
        if where == "written":
            self.take_back()
            what()

        def committed() -> None:
            if where == "appended":
                what()
            commit()
            if where == "committed":
                what()

        return committed

    def is_done(self: Indexed) -> Any:
        monkeypatch.setattr(Indexed, "done", done)
        if where == "published":
            what()
        return done(self)

    monkeypatch.setattr(Indexed, "prepare", prepared)
    monkeypatch.setattr(Indexed, "done", is_done)


def broken() -> None:
    """An error that nobody expects."""
    raise BrokenError


def interrupted() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


@AT_ONCE
@pytest.mark.parametrize("where", ["appended", "committed", "published"])
def test_a_failure_behind_the_append_keeps_the_commit(
    store: Store, add: Callable[[Store], Any], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: [e.id for e in store.stream(name).range()] for name in ("a", "b", "new")}
    breaking(monkeypatch, where, broken)
    is_sound(store, before, [add(store)])


@AT_ONCE
@pytest.mark.parametrize("where", ["decided", "written"])
def test_an_interrupt_before_the_append_leaves_nothing(
    store: Store, add: Callable[[Store], Any], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: [e.id for e in store.stream(name).range()] for name in ("a", "b", "new")}
    breaking(monkeypatch, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        add(store)
    is_sound(store, before, [])


@AT_ONCE
def test_an_interrupt_behind_it_says_that_it_counts(
    store: Store, add: Callable[[Store], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: [e.id for e in store.stream(name).range()] for name in ("a", "b", "new")}
    breaking(monkeypatch, "published", interrupted)
    with pytest.raises(logstore.CommittedInterrupt):
        add(store)
    there = {name: [e.id for e in store.stream(name).range()] for name in before}
    new = [id for name in there for id in there[name] if id not in before[name]]
    assert len(new) == 1
    is_sound(store, before, new)


@AT_ONCE
@pytest.mark.parametrize("where", ["decided", "appended", "committed", "published"])
def test_a_writer_is_killed(
    store: Store, add: Callable[[Store], Any], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it appended counts, whatever it came to behind that."""
    before = {name: [e.id for e in store.stream(name).range()] for name in ("a", "b", "new")}

    def add_and_die() -> None:
        store.stream("b").add({"n": 7}, sync="os")
        breaking(monkeypatch, where, lambda: os._exit(7))
        add(store)

    assert Forked(add_and_die).exit_code() == 7
    there = {name: [e.id for e in store.stream(name).range()] for name in before}
    new = [id for name in there for id in there[name] if id not in before[name]]
    assert len(new) >= 1  # the add to "b"; the other one may have to be found yet
    store.stream("b").add({"n": 8})  # whoever commits next finds it
    there = {name: [e.id for e in store.stream(name).range()] for name in before}
    new = [id for name in there for id in there[name] if id not in before[name]]
    assert len(new) == (2 if where == "decided" else 3)
    is_sound(store, before, new)


def test_a_name_that_another_process_takes_first(store: Store) -> None:
    theirs = Forked(lambda: store.stream("new").add({"n": "theirs"}) and None)
    theirs.join()
    ids = [first(store), first(store)]
    assert len(ids_of(store)["new"]) == 3
    assert ids_of(store)["new"][1:] == ids


def test_a_stream_that_is_not_to_be_made_is_not(store: Store) -> None:
    assert store.stream("new").add({"n": 1}, create=False) is None
    assert list(store.streams()) == [b"a", b"b"]
    assert store.stream("y" * 65536).add({"n": 1})
    with pytest.raises(logstore.TooLargeError):
        store.stream("x" * 65537)


# -- what the index has not, among what it has -----------------------------------------------------
def test_a_group_reads_nodes_that_were_sealed_just_now(store: Store) -> None:
    stream = store.stream("a")
    group = stream.group("g", start="$")
    group.read("one")
    added, given, read = [], [], 0
    for n in range(40):
        added.append(stream.add(LARGE if n % 7 else {"temp": "1", "hum": "2"}))
        if n % 10 == 9:  # some nodes later
            lane_commits(store)
            given += [entry.id for entry in group.read("one", count=10)]
            read += lane_commits(store)
    assert given == added
    assert read >= 2  # a moment in which the index is to follow is the pipeline's


def test_a_trim_and_a_delete_behind_it(store: Store) -> None:
    """The pipeline lets the index follow before it decides."""
    stream = store.stream("new")
    ids = [stream.add(LARGE | {"n": n}) for n in range(12)]
    assert stream.delete(*ids[1:4]) == 3
    ids = [ids[0], *ids[4:], *[stream.add(LARGE) for _ in range(6)]]
    assert stream.trim(max_entries=5, approximate=False) == len(ids) - 5
    assert ids_of(store)["new"] == ids[-5:]


def test_a_deleted_entry_of_a_node_that_was_sealed_just_now(store: Store) -> None:
    stream = store.stream("new")
    ids = [stream.add(LARGE) for _ in range(9)]
    lane_commits(store)
    assert [stream.delete(ids[1]), stream.delete(ids[0])] == [1, 1]
    assert lane_commits(store) == 1  # the node goes with its last entry
    is_sound(store, {"a": ids_of(store)["a"], "b": ids_of(store)["b"], "new": ids[2:]}, [])


def test_a_name_is_free_again(store: Store) -> None:
    """Of a stream that was dropped or renamed while the index lagged."""
    ids: dict[str, list[Any]] = {}
    for round_ in range(6):
        name = f"s{round_ % 2}"
        ids.setdefault(name, []).extend(store.stream(name).add({"n": round_}) for _ in range(2))
        if round_ % 3 == 0:
            store.drop(name)
            del ids[name]
        elif round_ % 3 == 1:
            store.rename(name, f"was {round_}")
            ids[f"was {round_}"] = ids.pop(name)
    for _ in range(2):
        assert {name: [e.id for e in store.stream(name)] for name in ids} == ids
        assert {name.decode() for name in store.streams()} == {"a", "b", *ids}
        follow(store)


def test_streams_that_are_forgotten_are_made_once(store: Store) -> None:
    """Handles are given up when they take too much, but not of what the index has not."""
    lane = store._live().lane
    assert lane is not None
    lane.held_bytes_max = 20_000
    names = [f"s{n}" for n in range(300)]
    for _ in range(3):
        for name in names:
            store.stream(name).add({"name": name})
    assert len(list(store.streams())) == 302
    assert all(len(store.stream(name)) == 3 for name in names)


class OtherProcess:
    """Another process, which adds to the same store when it is told to, through its lane."""

    def __init__(self, path: Path) -> None:
        self._line, theirs = multiprocessing.Pipe()
        self._child = Forked(lambda: self._serve(path, theirs))
        theirs.close()

    def _serve(self, path: Path, line: Any) -> None:
        self._line.close()
        with logstore.open(path, encoding=None, background=False) as store:
            for name, fields in iter(line.recv, None):
                line.send(store.stream(name).add(fields))
            line.send(lane_commits(store))

    def add(self, name: str, fields: dict[str, Any]) -> logstore.StreamID:
        """An add."""
        self._line.send((name, fields))
        added: logstore.StreamID = self._line.recv()
        return added

    def end(self) -> int:
        """How many adds were commits of the lane."""
        self._line.send(None)
        commits: int = self._line.recv()
        self._child.join()
        return commits


def test_processes_begin_nodes_and_streams_in_turn(store: Store) -> None:
    """Each takes in what the other one began, and the index follows only when it has to."""
    rng = random.Random(f"{seeds.seed()}")
    other, there = OtherProcess(engine_of(store).path), ids_of(store)
    lane_commits(store)
    mine = theirs = 0
    for n in range(400):
        name = rng.choice(["a", "b", "new", f"new {rng.randrange(n + 1)}"])
        fields = {"n": n, "v": "x" * rng.choice((1, 1, 1, 900, 1500))}
        if rng.random() < 0.5:
            there.setdefault(name, []).append(store.stream(name).add(fields))
            mine += 1
        else:
            there.setdefault(name, []).append(other.add(name, fields))
            theirs += 1
    assert lane_commits(store) >= mine * 0.8
    assert other.end() >= theirs * 0.8
    for _ in range(2):
        assert {name: [e.id for e in store.stream(name)] for name in there} == there
        assert len(list(store.streams())) == len(there)
        with committer_of(store).locked():
            engine_of(store).rebuild_locked()


def test_a_name_that_others_took_while_handles_are_given_up(store: Store) -> None:
    """A call has the handle of a name that is given up, and made anew, before it decides."""
    other = OtherProcess(engine_of(store).path)
    other.add("a", {"n": 3})
    store.stream("a").add({"n": 4})
    lane = engine_of(store).lane
    assert lane is not None
    lane.held_bytes_max = 0
    theirs = [other.add(name, {"by": "another"}) for name in ("n1", "n2", "new")]
    mine = store.stream("new").add({"by": "this"})
    for _ in range(2):
        assert ids_of(store)["new"] == [theirs[-1], mine]
        assert {name.decode() for name in store.streams()} == {"a", "b", "n1", "n2", "new"}
        with committer_of(store).locked():
            engine_of(store).rebuild_locked()
    other.end()


@pytest.mark.parametrize("lags", [False, True])
def test_a_group_reads_a_node_below_the_end_of_the_one_before_it(store: Store, lags: bool) -> None:
    """As is where IDs were lowered: the index alone may not say which node is the next one."""
    stream = store.stream("s")
    group = stream.group("g", start="0")
    for id, fields in (
        ("10-0", LARGE),
        ("20-0", LARGE),
        ("100-0", {"temp": "x" * 900, "hum": "1"}),
    ):
        stream.add(fields, id=id)
    assert [str(entry.id) for entry in group.read("one", count=2)] == ["10-0", "20-0"]
    stream.delete("100-0")
    stream.set_id("100-0", max_deleted_id="1-0")
    stream.set_id("50-0")
    assert not group.read("one")
    stream.add(LARGE, id="51-0")  # behind the node from 10 to 100
    follow(store)
    lane_commits(store)
    for id in ("101-0", "102-0"):
        stream.add(LARGE, id=id)  # behind the one from 51 to 101, in the end
    assert lane_commits(store) == 2
    if not lags:
        follow(store)
    read = [str(entry.id) for _ in range(4) for entry in group.read("one", count=1)]
    assert read == ["51-0", "101-0", "102-0"]


def test_names_are_not_kept_for_ever(store: Store) -> None:
    for n in range(6000):
        store.stream(f"s{n}").add({"n": n})
    assert lane_commits(store) > 5000
    assert len(engine_of(store).cache.numbers) < 3000
    assert len(engine_of(store).cache.records) < 3000


@pytest.mark.parametrize("pace", [1, 10])
def test_a_process_that_waits_keeps_little_of_what_others_begin(store: Store, pace: int) -> None:
    other = OtherProcess(engine_of(store).path)
    other.add("a", {"n": 3})
    store.stream("a").add({"n": 4})
    lane = engine_of(store).lane
    assert lane is not None
    lane.held_bytes_max = 100_000
    for n in range(1000):
        other.add(f"s{n}", {"n": n})
        if n % pace == pace - 1:
            lane.drained(b"a", 1, b"c")  # without LOCK
    assert lane.held_bytes < 400_000
    other.end()
    assert len(list(store.streams())) == 1002


def test_a_stream_without_an_open_node_is_as_the_log_says(store: Store) -> None:
    """Its record, also where an open node began before the last one, is that of a rebuilt index."""
    path = engine_of(store).path
    other = OtherProcess(path)
    store.stream("s").add(LARGE)
    ids = [store.stream("s").add({"temp": "1", "hum": "2"}) for _ in range(3)]
    other.add("s", ALONE)
    lane_commits(store)
    store.stream("b").add({"n": 2})
    assert store.stream("s").delete(ids[1]) == 1
    follow(store)
    other.end()
    store.close()
    found = check(path)
    assert found.index == compare.AGREES, found
