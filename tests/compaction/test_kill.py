"""Prevents a compaction that is killed at any moment from leaving an unsound store."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import logstore
from logstore.recovery.check import check
from tests import figures
from tests.compaction.dumps import dump, everywhere
from tests.compaction.test_compaction import delete_at_random, filled, logical

KILLS = 8 * figures.times()  # tests/crash kills at every step, and writers that compact
RUN = """
import sys, logstore
with logstore.open(sys.argv[1]) as store:
    print("open", flush=True)
    store.compact(purge=sys.argv[2] == "purge")
    print("done", flush=True)
"""


def test_killed_at_random_moments_nothing_is_lost(tmp_path: Path) -> None:
    base = tmp_path / "base"
    with filled(base, entries=8000) as store:
        delete_at_random(store, 0.8)
        expected = logical(dump(store))
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    chance = random.Random(seed)
    killed, most_s = 0, 0.0
    for turn in range(-1, KILLS):  # the first is left alone, to see how long it takes
        path = tmp_path / f"store{turn}"
        shutil.copytree(base, path, ignore=shutil.ignore_patterns("lock.mdb"))
        mode = "purge" if turn % 3 == 2 else "plain"
        child = subprocess.Popen(
            [sys.executable, "-c", RUN, str(path), mode], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        began = time.monotonic()
        if turn < 0:
            assert child.stdout.readline() == "done\n"
            most_s = time.monotonic() - began
        else:
            time.sleep(chance.random() * most_s)
            child.send_signal(signal.SIGKILL)
            late = "done" in child.stdout.read()
            killed += not late
            if late:  # the machine is less busy than it was
                most_s *= 0.7
        child.wait()
        with logstore.open(path) as store:
            assert logical(dump(store)) == expected
        shutil.rmtree(path / "index")
        with logstore.open(path) as store:
            assert logical(dump(store)) == expected
            store.compact()
            assert logical(dump(store)) == expected
        assert check(path).damage == []
        shutil.rmtree(path)
    print(f"{killed} of {KILLS} compactions were killed before their end")
    assert killed >= KILLS // 4


def test_an_erasure_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "store"
    secret = os.urandom(32)
    with filled(path, entries=3000) as store:
        at = store.stream("s0").add({"secret": secret})
        assert at is not None
        store.stream("s0").add_many({"n": n} for n in range(2000))
        store.stream("s0").delete(at)
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, str(path), "purge"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(0.03)
    child.kill()
    child.wait()
    with logstore.open(path) as store:
        store.compact(purge=True)
    assert everywhere(path, secret) == []
