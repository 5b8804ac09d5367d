"""Prevents an index that is built beside those who commit from lacking what they did meanwhile, and
one whose builder died from standing in the way of anybody."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import pytest

import logstore
from logstore import format as fmt
from logstore.compaction import runner
from logstore.engine.runtime import engine as engine_module
from logstore.engine.runtime import maintenance_locks, reopen
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.fs import FileSystem
from logstore.index import env
from logstore.index.env import Generation
from logstore.log import chain, file_names
from logstore.recovery import next_index
from logstore.recovery.check import check
from logstore.recovery.next_index import NextIndex
from tests.compaction.conftest import ROWS, Store
from tests.compaction.dumps import Dump, dump
from tests.support.inside import committer_of, engine_of
from tests.support.processes import Program, run_program

Commit = Callable[[Store], object]


def ack_one(store: Store) -> None:
    group = store.stream(b"a").group(b"g", start="0")
    first, *_ = group.read(b"c", count=3)
    first.ack()


def drop_and_make(store: Store) -> None:
    store.drop(b"c")
    store.stream(b"c").add({b"n": b"again"})


def fill_segments(store: Store) -> None:
    for turn in range(3):
        store.stream(b"large").add({b"pad": bytes(40_000), b"turn": b"%d" % turn})


def delete_some(store: Store) -> None:
    store.stream(b"a").delete(*[entry.id for entry in store.stream(b"a").range(count=7)])


# What others commit while an index is built, each alone and all of them.
COMMITS: dict[str, Commit] = {
    "nothing": lambda _: None,
    "adds": lambda store: [store.stream(b"a").add(row) for row in ROWS],
    "a new stream": lambda store: store.stream(b"new").add_many(ROWS),
    "deletes": delete_some,
    "a trim": lambda store: store.stream(b"b").trim(max_entries=9, approximate=False),
    "a drop": lambda store: store.drop(b"c"),
    "a new name": lambda store: store.rename(b"b", b"called"),
    "a drop, and its name again": drop_and_make,
    "a group": ack_one,
    "settings": lambda store: store.stream(b"a").configure(max_entries=5),
    "new segments": fill_segments,
    "a copy": lambda store: store.copy(b"a", b"copy"),
}  # fmt: skip


def generations(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "index").iterdir())


def dump_and_groups(store: Store) -> tuple[Dump, list[str]]:
    return dump(store), [repr(store.stream(name).groups()) for name in sorted(store.streams())]


@pytest.mark.parametrize("commits", [*([each] for each in COMMITS), list(COMMITS)], ids="+".join)
@pytest.mark.parametrize("caught_up", [False, True], ids=["taken in under LOCK", "caught up"])
def test_commits_during_the_copy_are_in_the_next_index(
    store: Store,
    commits: list[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    caught_up: bool,
) -> None:
    """Also what they commit behind its last look at the log."""
    engine, before = engine_of(store), engine_of(store).index().number
    where, step = (next_index, "_copy") if caught_up else (NextIndex, "build")
    real, expected = getattr(where, step), []

    def step_and_commits(*args: Any) -> None:
        real(*args)
        for each in commits:
            COMMITS[each](store)
        expected.append(dump_and_groups(store))

    monkeypatch.setattr(next_index, "LEFT_BYTES", 0)
    monkeypatch.setattr(env, "PIECE_BYTES", 1000)
    monkeypatch.setattr(next_index, "PIECES_A_COMMIT", 3)
    monkeypatch.setattr(where, step, step_and_commits)
    with maintenance_locks.alone(engine):
        assert runner.renew_index(engine, committer_of(store))
    assert engine.index().number == before + 1
    assert generations(engine.path) == [str(before + 1)]
    assert dump_and_groups(store) == expected[0]
    store.stream(b"a").add({b"n": b"goes on"})
    found = store.stream(b"a").last
    assert found is not None
    assert found.fields == {b"n": b"goes on"}
    store.compact()
    checked = check(engine.path)
    assert checked.as_dict()["clean"], checked.as_dict()


@pytest.mark.parametrize("segment_bytes", [64 << 10, 1 << 20])
def test_the_rest_is_taken_in_by_slices_and_others_commit_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    """Also where a slice ends with its segment, and where a commit is larger than a slice."""
    with logstore.open(
        tmp_path / "store", encoding=None, background=False, segment_bytes=segment_bytes
    ) as store:
        store.stream(b"a").add({b"n": b"0"})
        engine, real = engine_of(store), next_index._copy
        breaks, behind = list[int](), list[int]()

        def copy_and_add(*args: Any) -> None:
            real(*args)
            for number in range(40):
                store.stream(b"a").add_many([{b"n": b"%d" % number, b"v": b"x" * 2000}] * 3)

        def committing(_: float) -> None:
            breaks.append(len(breaks))
            if len(breaks) < 20:
                store.stream(b"b").add({b"n": b"1"})

        follow = NextIndex.follow_locked

        def noted(self: NextIndex, applied: int) -> bool:
            behind.append(self._left_bytes(applied))
            return follow(self, applied)

        monkeypatch.setattr(next_index, "LEFT_BYTES", 1 << 40)
        monkeypatch.setattr(next_index, "SLICE_BYTES", 4096)
        monkeypatch.setattr(next_index, "SLICE_S", 1e-9)  # each is as small as it gets
        monkeypatch.setattr(next_index, "_copy", copy_and_add)
        monkeypatch.setattr(NextIndex, "follow_locked", noted)
        monkeypatch.setattr(runner, "time", SimpleNamespace(sleep=committing))
        with maintenance_locks.alone(engine):
            assert runner.renew_index(engine, committer_of(store))
        assert len(breaks) > 20
        assert behind[0] > 200_000
        assert (len(store.stream(b"a")), len(store.stream(b"b"))) == (121, 19)
        checked = check(engine.path)
        assert checked.as_dict()["clean"], checked.as_dict()


def test_a_log_shorter_than_wake_says_keeps_the_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes to an end, and the index there is stays."""
    engine, before, real = engine_of(store), engine_of(store).index().number, next_index._copy
    slices = list[int]()

    def copy_and_add(*args: Any) -> None:
        real(*args)
        store.stream(b"a").add({b"n": b"more"})

    def lacking(_: NextIndex, bound: int) -> None:
        slices.append(bound)

    monkeypatch.setattr(next_index, "_copy", copy_and_add)
    monkeypatch.setattr(NextIndex, "_take_in", lacking)
    with maintenance_locks.alone(engine):
        assert not runner.renew_index(engine, committer_of(store))
    assert len(slices) == runner.TRIES
    assert generations(engine.path) == [str(before)]


def test_an_index_that_another_built_meanwhile_is_not_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed since to that one would be taken back for who has it open."""
    engine, committer = engine_of(store), committer_of(store)
    expected, switched, built = dump_and_groups(store), [], [True, True, False]
    real_build, real_switch = NextIndex.build, NextIndex.switch_locked

    def build(self: NextIndex) -> None:
        real_build(self)
        if built.pop(0):
            with committer.locked():
                engine.rebuild_locked()

    def switch(self: NextIndex, applied: int) -> bool:
        switched.append(real_switch(self, applied))
        return switched[-1]

    monkeypatch.setattr(NextIndex, "build", build)
    monkeypatch.setattr(NextIndex, "switch_locked", switch)
    with maintenance_locks.alone(engine):
        assert runner.renew_index(engine, committer)
    assert switched == [False, False, True]
    assert generations(engine.path) == [str(engine.index().number)]
    assert not list(engine.path.glob(f"*{file_names.TEMPORARY}"))
    assert dump_and_groups(store) == expected


def test_after_lost_races_the_index_is_built_under_lock(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(store)
    before, expected = engine.index().number, dump(store).entries
    monkeypatch.setattr(NextIndex, "switch_locked", lambda *_: False)
    assert store.compact(full=True).index_rebuilt
    assert generations(engine.path) == [str(before + 1)]
    assert dump(store).entries == expected


# Where LMDB writes: what is left of the log for LOCK tells where it is taken in.
FULL_AT: dict[str, tuple[object, str, int]] = {
    "copied": (env, "put_piece", -1),
    "taken in": (next_index, "take_in", -1),
    "taken in under LOCK": (next_index, "take_in", 1 << 40),
}


@pytest.mark.parametrize("what", FULL_AT)
def test_on_a_full_disk_nothing_of_it_is_left(
    store: Store, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, real = engine_of(store), next_index._copy
    where, name, left_bytes = FULL_AT[what]
    expected = dump(store).entries

    def full(*_: object) -> None:
        raise lmdb.DiskError(f"mdb_txn_commit: {os.strerror(errno.ENOSPC)}")

    def copy_and_add(*args: Any) -> None:
        real(*args)
        store.stream(b"a").add({b"n": b"more"})

    monkeypatch.setattr(next_index, "LEFT_BYTES", left_bytes)
    monkeypatch.setattr(next_index, "_copy", copy_and_add)
    monkeypatch.setattr(where, name, full)
    with maintenance_locks.alone(engine), pytest.raises(logstore.DiskFullError):
        runner.renew_index(engine, committer_of(store))
    assert generations(engine.path) == [str(engine.index().number)]
    assert not list(engine.path.glob(f"*{file_names.TEMPORARY}"))
    found = dump(store).entries
    assert found[b"a"][: len(expected[b"a"])] == expected[b"a"]
    assert len(found[b"a"]) == len(expected[b"a"]) + (what != "copied")


def test_a_reader_during_the_switch_opens_no_old_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that looks between two steps of the switch finds another index here than WAKE says,
    and waits for LOCK. The one that WAKE said is left when it has that."""
    engine, waits = engine_of(store), threading.Event()
    opened, found = list[int](), list[int]()
    real_settle, real_open = Engine.settle_generation, engine_module.open_generation
    real_locked = Engine._locked

    def locked(self: Engine) -> Any:
        waits.set()
        return real_locked(self)

    def settle(self: Engine, made: Generation) -> None:
        reader.start()
        assert waits.wait(30)
        reader.join(0.1)
        real_settle(self, made)

    def open_generation(fs: FileSystem, path: Path, number: int) -> Generation:
        opened.append(number)
        return real_open(fs, path, number)

    reader = threading.Thread(target=lambda: found.append(engine.index().number))
    monkeypatch.setattr(Engine, "_locked", locked)
    monkeypatch.setattr(Engine, "settle_generation", settle)
    monkeypatch.setattr(engine_module, "open_generation", open_generation)
    with maintenance_locks.alone(engine):
        assert runner.renew_index(engine, committer_of(store))
    reader.join(30)
    assert found == [engine.wake.generation()]
    assert opened == []


def test_the_index_before_has_no_name_when_lock_is_given_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, found = engine_of(store), list[list[int]]()
    real = NextIndex.leave

    def leave(self: NextIndex) -> None:
        found.append(file_names.generations(engine.fs, engine.path))
        real(self)

    monkeypatch.setattr(NextIndex, "leave", leave)
    assert store.compact(full=True).index_rebuilt
    assert found == [[engine.index().number]]


def refused(store: Store) -> None:
    """A commit that is taken back when it has written to the index."""
    with pytest.raises(logstore.IDOrderError), store.transaction() as tx:  # noqa: PT012
        tx.drop(b"c")
        tx.stream(b"a").add({b"n": b"1"}, id="1-1")


def reopened(store: Store) -> None:
    engine = engine_of(store)
    assert reopen.reopen(engine, engine.index())


@pytest.mark.parametrize(("call", "tries"), [(refused, 1), (reopened, 2)])
def test_a_close_during_the_copy_waits_for_a_part_of_it(
    store: Store, call: Commit, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between some rows and the next ones no reader is inside; an index that is closed then is
    copied again."""
    engine, left, pieces, begun = engine_of(store), [call], list[int](), list[int]()
    expected, real_inside, real_build = dump_and_groups(store), snapshot.inside, NextIndex.build

    def inside(engine: Engine, work: Callable[..., Any], *args: Any) -> Any:
        done = real_inside(engine, work, *args)
        if work is next_index._next:
            assert not engine.gate.inside
            pieces.append(1)
            if len(pieces) == 3:
                left.pop()(store)
        return done

    def build(self: NextIndex) -> None:
        begun.append(1)
        real_build(self)

    monkeypatch.setattr(env, "PIECE_BYTES", 300)
    monkeypatch.setattr(snapshot, "inside", inside)
    monkeypatch.setattr(NextIndex, "build", build)
    with maintenance_locks.alone(engine):
        assert runner.renew_index(engine, committer_of(store))
    assert not left
    assert len(begun) == tries
    assert dump_and_groups(store) == expected


def test_segments_in_between_are_left_to_take_in(store: Store) -> None:
    """Else LOCK would be held for all of them, where the last one has just begun."""
    engine = engine_of(store)
    following, size = NextIndex(engine), engine.limits.segment_bytes
    following._applied = fmt.position(2, size - 1000)
    assert following._left_bytes(fmt.position(2, size - 10)) == 990
    assert following._left_bytes(fmt.position(3, 500)) == 1500
    assert following._left_bytes(fmt.position(9, 500)) == 1500 + 6 * size


def test_a_slice_at_the_end_of_a_segment_goes_into_the_next_one(store: Store) -> None:
    """Else nothing would be taken in while LOCK is held, again and again."""
    engine = engine_of(store)
    fill_segments(store)
    following, published = NextIndex(engine), engine.wake.applied
    links = chain.main_links(engine.fs, engine.path, engine.uuid)
    assert len(links) > 3
    for link, behind in pairwise(links):
        following._applied = fmt.position(link.number, link.end_offset)
        end = following._slice_end(published)
        assert end > fmt.position(behind.number, behind.start_offset)
        following._applied = fmt.position(link.number, link.end_offset - 10)
        assert fmt.segment_of(following._slice_end(published)) == link.number
    following._applied = published - 10
    assert following._slice_end(published) == published


def test_beside_adders_that_are_as_fast_the_rest_is_left_for_lock(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the index would never be built."""
    engine, real, rounds = engine_of(store), NextIndex._take_in, list[int]()

    def take_in_and_add(self: NextIndex, bound: int) -> None:
        real(self, bound)
        assert len(rounds) < 100, "it goes on and on"
        rounds.append(self._left_bytes(engine.wake.applied))
        store.stream(b"a").add_many([{b"n": b"%d" % n, b"pad": os.urandom(500)} for n in range(40)])

    def build(self: NextIndex) -> None:
        real_build(self)
        monkeypatch.setattr(NextIndex, "_take_in", real)

    real_build, real_copy = NextIndex.build, next_index._copy

    def copy_and_add(*args: Any) -> None:
        real_copy(*args)
        store.stream(b"a").add_many([{b"pad": os.urandom(500)}] * 40)

    monkeypatch.setattr(next_index, "LEFT_BYTES", 1000)
    monkeypatch.setattr(next_index, "_copy", copy_and_add)
    monkeypatch.setattr(NextIndex, "_take_in", take_in_and_add)
    monkeypatch.setattr(NextIndex, "build", build)
    length = len(store.stream(b"a"))
    with maintenance_locks.alone(engine):
        assert runner.renew_index(engine, committer_of(store))
    assert rounds
    assert len(store.stream(b"a")) == length + 40 * (1 + len(rounds))
    checked = check(engine.path)
    assert checked.as_dict()["clean"], checked.as_dict()


def test_a_copy_that_fails_leaves_no_reader_in_the_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages would not be used again for as long as the store is open."""
    engine = engine_of(store)

    def full(*_: object) -> None:
        raise lmdb.DiskError(f"mdb_txn_commit: {os.strerror(errno.ENOSPC)}")

    monkeypatch.setattr(env, "put_piece", full)
    with maintenance_locks.alone(engine), pytest.raises(logstore.DiskFullError) as caught:
        runner.renew_index(engine, committer_of(store))
    readers = engine.index().env.readers()
    assert caught.value  # with all that its frames hold
    ours = [line.split() for line in readers.splitlines() if line.split()[0] == str(os.getpid())]
    assert [line[2] for line in ours if line[2] != "-"] == [], readers


# A builder that is killed at a step, beside another process that has the store open.
BUILDER = """
import os, signal, sys
import logstore
from logstore.compaction import runner
from logstore.engine.runtime import maintenance_locks
from logstore.engine.runtime.engine import Engine
from logstore.fs import FileSystem
from logstore.recovery.next_index import NextIndex
from tests.support.inside import committer_of, engine_of

path, step, mode = sys.argv[1:]
renamed = []

def killed(cls, name, *, behind, at=lambda *_: True):
    real = getattr(cls, name)
    def call(*args):
        found = real(*args) if behind else None
        if at(*args):
            os.kill(os.getpid(), signal.SIGKILL)
        return found if behind else real(*args)
    setattr(cls, name, call)

def of_index(self, source, target, *_):
    return target.parent.name == "index"

def of_boot(self, source, target, *_):
    return target.name == "BOOT"

with logstore.open(path, background=False, encoding=None) as store:
    {
        "before it is caught up": lambda: killed(NextIndex, "_name", behind=True),
        "built": lambda: killed(NextIndex, "build", behind=True),
        "before its name": lambda: killed(FileSystem, "rename", behind=False, at=of_index),
        "behind its name": lambda: killed(FileSystem, "rename", behind=True, at=of_index),
        "behind BOOT": lambda: killed(FileSystem, "rename", behind=True, at=of_boot),
        "before WAKE": lambda: killed(Engine, "settle_generation", behind=False),
        "behind WAKE": lambda: killed(Engine, "settle_generation", behind=True),
        "switched": lambda: killed(NextIndex, "leave", behind=False),
        "left": lambda: killed(NextIndex, "leave", behind=True),
    }[step]()
    if mode == "index":  # nothing but the index is made anew
        with maintenance_locks.alone(engine_of(store)):
            runner.renew_index(engine_of(store), committer_of(store))
    store.compact(purge=mode == "purge", full=mode == "full")
"""
STEPS = (
    "before it is caught up", "built", "before its name", "behind its name", "behind BOOT",
    "before WAKE", "behind WAKE", "switched", "left",
)  # fmt: skip
# It adds before and behind that, and is then killed, or closes the store.
OTHER = """
import os, signal, sys
import logstore

store = logstore.open(sys.argv[1], background=False, encoding=None)
stream = store.stream(b"a")
for turn in range(2):
    for n in range(70):
        stream.add({b"turn": b"%d" % turn, b"n": b"%d" % n})
    store.stream(b"b").delete(list(store.stream(b"b").range(count=1))[0].id)
    print(len(stream), flush=True)
    sys.stdin.readline()
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
store.close()
"""


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("other", ["killed", "closes"])
@pytest.mark.parametrize("mode", ["full", "purge"])
def test_a_builder_that_is_killed_stands_in_nobodys_way(
    store: Store, step: str, other: str, mode: str
) -> None:
    """Others go on with the index that WAKE names, whichever BOOT does; nothing is lost, also when
    they are killed, too; and the next run leaves one index."""
    path, before = engine_of(store).path, dump(store)
    path = Path(str(path))
    store.close()
    beside = Program(OTHER, path, other)
    beside.answer()
    run_program(BUILDER, path, step, mode, exits=-signal.SIGKILL)
    assert int(beside.ask()) == len(before.entries[b"a"]) + 140
    beside.end("\n")
    with logstore.open(path, background=False, encoding=None) as again:
        found = dump(again)
        assert len(found.entries[b"a"]) == len(before.entries[b"a"]) + 140
        assert found.entries[b"b"] == before.entries[b"b"][2:]
        assert found.entries[b"c"] == before.entries[b"c"]
        again.compact(full=True)
        assert dump(again).entries == found.entries
        assert len(generations(path)) == 1
    checked = check(path)
    assert checked.as_dict()["clean"], checked.as_dict()
    shutil.rmtree(path / "index")
    with logstore.open(path, background=False, encoding=None) as again:
        assert dump(again).entries == found.entries


# It goes on with the index of WAKE until a segment in the midst of the log has gone.
DROPPER = """
import os, signal, sys
import logstore

store = logstore.open(sys.argv[1], background=False, encoding=None)
print("open", flush=True)
sys.stdin.readline()
for _ in range(6):
    store.stream(b"goes").add({b"pad": os.urandom(40_000)})
store.drop(b"goes")
store.stream(b"stays").add({b"n": b"1"})
store.compact()
store.stream(b"stays").add({b"n": b"2"})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_unused_index_is_left_when_segments_behind_it_went(tmp_path: Path) -> None:
    """BOOT names it, its last commit is there, and what follows that commit is not: it is no damage
    of the log, and the index is built anew."""
    path = tmp_path / "other"
    with logstore.open(path, background=False, encoding=None, segment_bytes=64 << 10) as made:
        rows = [{b"pad": os.urandom(400)} for _ in range(140)]
        made.stream(b"stays").add_many(rows)
    beside = Program(DROPPER, path)
    beside.answer()
    run_program(BUILDER, path, "behind BOOT", "index", exits=-signal.SIGKILL)
    beside.end("\n")
    kept = file_names.segments(FileSystem(), path)
    assert kept[0] == 1
    assert kept[1] > 2, "no segment in the midst was dropped"
    with logstore.open(path, background=False, encoding=None) as again:
        assert len(again.stream(b"stays")) == 142
    assert check(path).as_dict()["clean"]
