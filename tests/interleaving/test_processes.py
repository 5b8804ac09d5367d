"""Prevents a stopped process, a long reader, or one with the same pid from doing harm to others."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

import logstore
from logstore.errors import SnapshotExpiredError
from logstore.recovery.check import check
from tests import figures
from tests.crash.states.model import value
from tests.interleaving import works
from tests.interleaving.actor import Actor, WorkResult
from tests.interleaving.handle import LIMITS, Answer, StoreHandle, Work
from tests.interleaving.two_actors import stopped, two_actors
from tests.scan.scanned_stores import make_plan, split_rows
from tests.support.processes import Forked

SEED = int(os.environ.get("LOGSTORE_STOPS", "5"))


def test_a_stopped_owner_is_named_and_loses_nothing(tmp_path: Path) -> None:
    """SIGSTOP in the midst of a commit: readers go on, writers are told who it is."""
    path = tmp_path / "store"
    with two_actors(path) as (owner, other):
        before = other.do("read").answer
        assert stopped(owner, "add", "commit: write the rest of segment").held
        os.kill(owner.pid, signal.SIGSTOP)
        owner.go()
        for _ in range(3):
            found = other.do("add")
            assert (found.refused, found.owner) == ("LockTimeoutError", owner.pid)
            assert other.do("read").answer == before
        os.kill(owner.pid, signal.SIGCONT)
        first, second = owner.hear().answer, other.do("add").answer
        rows = other.do("read").answer["a"]["rows"]
        assert [row[0] for row in rows[-2:]] == [first, second]


def _add(path: Path, count: int, ready: int) -> None:
    with logstore.open(path, background=False) as store:
        os.write(ready, b"x")
        for number in range(count):
            store.stream("w").add({"n": number})


def test_writers_stopped_at_random_hold_nobody_up_too_long(tmp_path: Path) -> None:
    """A writer is stopped at any moment, again and again; nobody waits for longer than he said."""
    print(f"\nLOGSTORE_STOPS={SEED}")
    rng = random.Random(SEED)
    path, count, mine = tmp_path / "store", 400 * figures.times(), 0
    owners: list[int | None] = []
    logstore.open(path, segment_bytes=64 * 1024).close()
    ready, say = os.pipe()
    with Forked(lambda: _add(path, count, say)) as child:
        os.read(ready, 1)
        with logstore.open(path, background=False, lock_timeout=0.3) as store:
            assert not len(store.stream("o"))  # opens the index here, for which it needs LOCK
            for _ in range(12 * figures.times()):
                time.sleep(rng.random() * 0.01)
                os.kill(child.pid, signal.SIGSTOP)
                try:
                    store.stream("o").add({"n": mine})
                    mine += 1
                except logstore.LockTimeoutError as exc:
                    owners.append(exc.owner_pid)
                found = [int(entry.fields[b"n"]) for entry in store.stream("w").range()]
                assert found == list(range(len(found)))
                os.kill(child.pid, signal.SIGCONT)
    with logstore.open(path) as store:
        for name, number in (("w", count), ("o", mine)):
            found = [int(entry.fields[b"n"]) for entry in store.stream(name).range()]
            assert found == list(range(number))
    assert check(path).as_dict()["clean"]
    assert set(owners) <= {child.pid}
    print(f"{mine} adds beside a stopped process, {len(owners)} refused in time")


HOLD = """
import logstore, os, sys
store = logstore.open(sys.argv[1], background=False)
assert os.getpid() == 1
def hold():
    generation = store._live().engine.index()
    txn = generation.env.begin()  # a slot of the index, with this pid
    txn.get(b"x")
    print("ready", flush=True)
    sys.stdin.readline()
store.stream("a").add({"pid": os.getpid()})
hold()
"""
ADD = """
import logstore, sys
with logstore.open(sys.argv[1], background=False) as store:
    store.stream("a").add({"again": 1})
    print(len(store.stream("a")), store.recovery["first_opener"])
"""


def test_equal_pids_in_two_namespaces(tmp_path: Path) -> None:
    """Both are pid 1: the second is refused; after the first was killed, its slot does no harm."""
    unshare = shutil.which("unshare")
    namespaced = [unshare or "unshare", "--pid", "--fork", "--kill-child"]
    if unshare is None or subprocess.run([*namespaced, "true"], check=False).returncode:
        pytest.skip("a new pid namespace is not permitted here")
    path = str(tmp_path / "store")
    command = [*namespaced, sys.executable, "-c"]

    def second() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, ADD, path], capture_output=True, text=True, check=False, timeout=60
        )

    with subprocess.Popen(
        [*command, HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        refused = second()
        assert refused.returncode
        assert "another pid namespace" in refused.stderr
        first.kill()  # and with it all of its namespace
    for count in (2, 3):
        ran = second()
        assert ran.stdout.split() == [str(count), "True"], ran.stderr
    with logstore.open(path) as store:
        readers = store._live().engine.index().env.readers()
        assert len(store.stream("a")) == 3
        assert not [line for line in readers.splitlines() if line.split()[:1] == ["1"]], readers


ENTRIES = 2000
ROUNDS = 5
KEPT = 5  # of ten entries, those from this one on are never deleted


def _churn(at: StoreHandle) -> Answer:
    """Delete some, add and trim others, and give the space back; what can be read goes on."""
    turn = at.store.stream("b").info().entries_added // 200 if "b" in at.store else 0
    gone = [f"{n}-1" for n in range(1, ENTRIES + 1) if n % 10 == turn % KEPT][turn // KEPT :: 3]
    at.store.stream("a").delete(*gone)
    at.store.stream("b").add_many([{"v": value(n, 400)} for n in range(200)])
    at.store.stream("b").trim(max_entries=20, approximate=False)
    return int(at.store.compact(threshold=0.02).segments_dropped)


BESIDE = {
    "open": works.nothing("open", lambda at: setattr(at, "store", at.open(sync="os"))),
    "churn": Work("churn", _churn, lambda model: None),
    "purge": works.PURGE,
}


def test_readers_that_stay_while_others_compact(tmp_path: Path) -> None:
    """An iterator, a plan and a read-only follower, begun before many compactions."""
    path = tmp_path / "store"
    limits = LIMITS
    rounds, dropped = ROUNDS * figures.times(), 0
    there: list[str] = []
    with logstore.open(path, background=False, sync="os", **limits) as store:
        a = store.stream("a")
        a.add_many([(f"{n}-1", {"v": value(n, 100)}) for n in range(1, ENTRIES + 1)])
        with Actor(path, BESIDE) as other, logstore.open(path, readonly=True) as follower:
            assert other.do("open") == WorkResult()
            before = [(str(entry.id), entry.pairs) for entry in a.range()]
            made = make_plan(store, b"a")
            staying, following, backwards = (
                a.range(), follower.stream("a").range(), a.range(reverse=True)
            )  # fmt: skip
            seen: list[list[logstore.Entry[bytes]]] = [[], [], []]
            for _ in range(rounds):
                for found, entries in zip(seen, (staying, following, backwards), strict=True):
                    found.extend(islice(entries, ENTRIES // 2 // rounds))
                done = other.do("churn")
                assert not done.refused, done
                assert not done.broke, done.broke
                dropped += done.answer
                there = [str(entry.id) for entry in a.range()]
                assert there == [str(entry.id) for entry in follower.stream("a").range()]
            for found, entries in zip(seen, (staying, following, backwards), strict=True):
                found.extend(entries)
            seen[2].reverse()
            for found in seen:
                _check(found)
            assert split_rows(made) == before
            assert other.do("purge") == WorkResult()
            with pytest.raises(SnapshotExpiredError):
                split_rows(made)
            assert [str(entry.id) for entry in a.range()] == there
    assert dropped > rounds
    print(f"\n{rounds} compactions dropped {dropped} segments under readers that stayed")


def _check(found: list[logstore.Entry[bytes]]) -> None:
    """Each entry once, in order, with its own value; those that nobody deleted are all there."""
    numbers = [entry.id.ms for entry in found]
    assert numbers == sorted(set(numbers))
    assert {n for n in range(1, ENTRIES + 1) if n % 10 >= KEPT} <= set(numbers)
    for entry in found:
        assert entry.fields[b"v"] == value(entry.id.ms, 100)
