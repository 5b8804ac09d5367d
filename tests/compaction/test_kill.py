"""Prevents a compaction that is killed at any moment from leaving an unsound store."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import logstore
from logstore.recovery.check import check
from tests import figures, seeds
from tests.compaction.dumps import Dump, dump, everywhere
from tests.compaction.filling import delete_at_random, filled, logical
from tests.support.inside import log_bytes
from tests.support.processes import Program

KILLS = 8 * figures.times()  # tests/crash kills at every step, and writers that compact
ENDS = 4 * figures.times()  # of what gives back all that it can
RUN = """
import sys, logstore
with logstore.open(sys.argv[1]) as store:
    print("open", flush=True)
    sys.stdin.readline()
    store.compact(purge=sys.argv[2] == "purge", full=sys.argv[2] == "full")
    print("done", flush=True)
"""
# The last one to close compacts if much was written: all that it says has happened before.
CLOSE = """
import sys, logstore
store = logstore.open(sys.argv[1], sync="os")
stream = store.stream("more")
group = stream.group("g", start="0")
for n in range(4000):
    stream.add({"n": n, "pad": "x" * 100})
for n in range(1000):
    for entry in group.read("c", count=1):
        if n % 10:
            entry.ack()
print("open", flush=True)
input()
store.close()
print("done", flush=True)
"""
MORE, PENDING = list(range(4000)), list(range(0, 1000, 10))


class Worked(NamedTuple):
    """A copy of a store in which a child worked, until its end or until it was killed."""

    path: Path
    ended: bool
    before_bytes: int  # of the log, when the work began


def worked(base: Path, kills: int, script: str, mode: Callable[[int], str]) -> Iterator[Worked]:
    """One copy in which a child came to its end, then some whose child was killed at a random
    moment of the time that this took. ``mode``: what the child of each is to do, the first is -1.
    """
    seed = seeds.seed()
    print(f"LOGSTORE_SEED={seed}")
    chance = random.Random(seed)
    most_s = 0.0
    for turn in range(-1, kills):
        path = base.with_name(f"store{turn}")
        shutil.copytree(base, path, ignore=shutil.ignore_patterns("lock.mdb"))
        child = Program(script, path, mode(turn))
        assert child.answer() == "open"
        before_bytes = log_bytes(path)
        began = time.monotonic()
        child.send()
        if turn < 0:
            assert child.answer() == "done"
            most_s, ended = time.monotonic() - began, True
            child.end()
        else:
            time.sleep(chance.random() * most_s)
            ended = "done" in child.kill()
            if ended:  # the machine is less busy than it was
                most_s *= 0.7
        yield Worked(path, ended, before_bytes)
        shutil.rmtree(path)


def test_kills_of_compaction_at_random_lose_nothing(tmp_path: Path) -> None:
    base = tmp_path / "base"
    with filled(base, entries=8000) as store:
        delete_at_random(store, 0.8)
        expected = logical(dump(store))
    killed = 0
    modes = ("plain", "plain", "purge")
    for path, ended, _ in worked(base, KILLS, RUN, lambda turn: modes[turn % 3]):
        killed += not ended
        with logstore.open(path) as store:
            assert logical(dump(store)) == expected
        shutil.rmtree(path / "index")
        with logstore.open(path) as store:
            assert logical(dump(store)) == expected
            store.compact()
            assert logical(dump(store)) == expected
        assert check(path).damage == []
    print(f"{killed} of {KILLS} compactions were killed before their end")
    assert killed >= KILLS // 4


@pytest.mark.parametrize("mode", ["full", "close"])
def test_kills_during_full_compaction_and_the_last_close(tmp_path: Path, mode: str) -> None:
    """``compact(full=True)``, and the close of the last process, at any moment of them."""
    base = tmp_path / "base"
    with filled(base, entries=4000) as store:
        delete_at_random(store, 0.5)
        expected = logical(dump(store))
    killed = 0
    script = CLOSE if mode == "close" else RUN
    for place, (path, ended, before_bytes) in enumerate(worked(base, ENDS, script, lambda _: mode)):
        killed += not ended
        assert place or log_bytes(path) < before_bytes, "nothing was given back"
        for again in range(2):
            with logstore.open(path) as store:
                told_of_more(store, there=mode == "close")
                assert logical(without_more(dump(store))) == expected
            if not again:
                shutil.rmtree(path / "index")
        checked = check(path)
        assert checked.as_dict()["clean"], checked.as_dict()
    print(f"{killed} of {ENDS} were killed before their end")
    figures.record(
        f"kills_in_{'a_close' if mode == 'close' else 'full_compaction'}",
        kills=killed,
        acknowledged_lost=0,
    )
    assert killed >= ENDS // 4


def told_of_more(store: logstore.Store[bytes], *, there: bool) -> None:
    """What was added, read and acked singly is there."""
    if not there:
        return
    stream = store.stream("more")
    assert [int(entry["n"]) for entry in stream] == MORE
    group = stream.group("g")
    pending = [int(stream[each.id]["n"]) for each in group.pending_entries()]
    assert pending == PENDING
    assert group.info().entries_read == 1000


def without_more(found: Dump) -> Dump:
    """All but the stream that was added to before it was killed."""
    for part in (found.entries, found.infos):
        part.pop(b"more", None)  # type: ignore[attr-defined]
    return found


def test_an_erasure_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "store"
    secret = os.urandom(32)
    with filled(path, entries=3000) as store:
        at = store.stream("s0").add({"secret": secret})
        assert at is not None
        store.stream("s0").add_many({"n": n} for n in range(2000))
        store.stream("s0").delete(at)
    child = Program(RUN, path, "purge", stdin=subprocess.DEVNULL)
    child.answer()
    time.sleep(0.03)
    child.kill()
    with logstore.open(path) as store:
        store.compact(purge=True)
    assert everywhere(path, secret) == []
