"""Prevents an add that begins a node, or a stream, in compiled code that loses what the log has.

The index lags behind one that begins an open node: whoever looks at the store, in this process or
another one, in the index as it is, once it followed, or built anew, finds the same. It follows at
once if the node is sealed at once: what fails, is interrupted or is killed at each step between its
rows, the append, LMDB's commit and the publishing leaves all of it or nothing.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.engine.commit import log_tail
from logstore.engine.lane.indexed import Indexed
from logstore.engine.lane.loading import native_or_none
from tests.engine.procs import Forked
from tests.support.inside import committer_of, engine_of, follow, indexed, lane_commits, let_lag

if native_or_none is None:
    pytest.skip("the lane was not compiled", allow_module_level=True)

Store = logstore.Store[bytes]
LARGE = {"temp": "x" * 1500, "hum": "1"}  # some fill a node
ALONE = {"temp": "x" * 5000, "hum": "1"}  # each is one


@pytest.fixture(autouse=True)
def _lag(monkeypatch: pytest.MonkeyPatch) -> None:
    let_lag(monkeypatch, 64, lane=True)
    monkeypatch.setattr(log_tail, "END_LOOK_NS", 3600 * 10**9)


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
def test_it_is_a_commit_of_the_lane_which_the_index_follows_at_once(
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
    size = engine.wake.applied & 0xFFFFFFFF
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, kept[1]))
    try:
        with pytest.raises(logstore.Error):
            add(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
        signal.signal(signal.SIGXFSZ, old)
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
def test_what_fails_behind_the_append_leaves_all_of_it(
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

    pid = os.fork()
    if not pid:
        try:
            store.stream("b").add({"n": 7}, sync="os")
            breaking(monkeypatch, where, lambda: os._exit(7))
            add(store)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
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
