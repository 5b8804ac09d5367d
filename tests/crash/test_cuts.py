"""Prevents a power cut between any two operations from losing what was acknowledged."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from logstore.options import Sync
from tests.crash import script
from tests.crash.script import SCRIPT, State
from tests.crash.twins import CrashFileSystem, Cut, in_place

SEED = int(os.environ.get("LOGSTORE_SEED") or 0) or random.SystemRandom().randrange(1 << 32)
CLONES = 1  # with random blocks, beside the one that has lost all that was not synced
EXPECTED = script.states()


def run_until_cut(path: Path, sync: Sync, at: int, part: float) -> tuple[CrashFileSystem, int, int]:
    """The script, cut off at an operation; how many steps were acknowledged, and were durable."""
    path.mkdir()
    twin = CrashFileSystem(path, at, part)
    acknowledged = durable = 0
    with in_place(twin):
        try:
            store = script.open_store(path, sync)
        except Cut:
            return twin, 0, 0
        try:
            for number, step in enumerate(SCRIPT):
                step.do(store)
                acknowledged += 1
                if sync == "always":
                    durable = acknowledged
                elif number % 7 == 6:
                    store.sync()
                    durable = acknowledged
            store.close()
            durable = acknowledged
        except Cut:
            pass
        finally:
            with suppress(Cut):
                store.close()
    return twin, acknowledged, durable


def check_clone(clone: Path, sync: Sync, allowed: list[State]) -> None:
    """It opens, holds a state that is allowed, and opening it again changes nothing."""
    with script.open_store(clone, sync) as store:
        found = script.dump(store)
        assert found in allowed, f"{found.keys()} is none of {len(allowed)} states"
    before = script.files(clone)
    with script.open_store(clone, sync) as store:
        assert script.dump(store) == found
        assert not store.recovery["torn_bytes"]
    assert script.files(clone) == before
    with script.open_store(clone, sync) as store:  # and it goes on working
        store.stream("after").add({"v": b"x"}, id="1-1")
        assert script.dump(store) == {**found, b"after": [("1-1", b"x")]}


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["always", "everysec"])
def test_a_power_cut_at_every_operation(tmp_path: Path, sync: Sync) -> None:
    """Everything durable is there, nothing is half there, no commit follows a hole."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    at = cuts = 0
    while True:
        at += 1
        path = tmp_path / f"cut-{at}"
        twin, acknowledged, durable = run_until_cut(path, sync, at, rng.random())
        allowed = EXPECTED[durable : acknowledged + 2]
        for number in range(CLONES + 1):
            clone = tmp_path / f"clone-{at}-{number}"
            twin.clone(clone, rng if number else None)
            try:
                check_clone(clone, sync, allowed)
            except BaseException:
                print(f"cut {at} part, clone {number}, {acknowledged} acknowledged: {clone}")
                raise
            cuts += 1
        twin.close()
        if not twin.over:
            break
    print(f"{at - 1} operations, {cuts} crash states")
    assert at > 50
