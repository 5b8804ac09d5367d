"""Prevents a stopped process, or one with the same pid elsewhere, from doing harm to others."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import logstore
from logstore.recovery.check import check
from tests import figures
from tests.engine.procs import Forked
from tests.interleaving.actor import Actor, Got
from tests.interleaving.found import WORKS, stopped
from tests.interleaving.handle import begin

SEED = int(os.environ.get("LOGSTORE_STOPS", "5"))


def test_a_stopped_owner_is_named_and_loses_nothing(tmp_path: Path) -> None:
    """SIGSTOP in the midst of a commit: readers go on, writers are told who it is."""
    path = tmp_path / "store"
    begin(path)
    with Actor(path, WORKS) as owner, Actor(path, WORKS) as other:
        assert owner.do("open") == other.do("open") == Got()
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


def test_stopped_anywhere(tmp_path: Path) -> None:
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
