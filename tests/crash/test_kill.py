"""Prevents a kill -9 of any writer, at any moment, from losing, doubling or halving a commit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
import traceback
from collections import Counter
from pathlib import Path

import pytest

import logstore
from logstore.options import Sync
from tests.crash import steps, writer
from tests.crash.steps import Step
from tests.crash.writer import SHARED, Model, Plan

ROUNDS = 7
KILLS_A_ROUND = 44
WRITERS = 3
POLICIES: tuple[Sync, ...] = ("everysec", "os", "always")
INSIDE = 0.3
WAIT_S = 0.08
SEED = int(os.environ.get("LOGSTORE_SEED") or 0) or random.SystemRandom().randrange(1 << 32)


class Fleet:
    """Writers that are killed and replaced."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder = folder
        self.rng = rng
        self.models = [Model(slot) for slot in range(WRITERS)]
        self.pids: dict[int, int] = {}
        self.wanted: dict[int, Step] = {}
        self.hits: Counter[Step] = Counter()

    def start(self, slot: int) -> None:
        """Fork a writer for a slot."""
        model = self.models[slot]
        self.wanted[slot] = self.rng.choice([*Step, *[Step.FINISHING_A_DEAD_COMMIT] * 3])
        plan = Plan(
            self.folder / "store", self.folder / f"journal-{slot}", self.folder / f"step-{slot}",
            slot, model.number, POLICIES[slot % len(POLICIES)], self.wanted[slot],
            self.rng.randrange(1 << 32),
        )  # fmt: skip
        plan.step.write_bytes(bytes(8))
        pid = os.fork()
        if not pid:
            try:
                writer.run(plan)
            except BaseException:  # noqa: BLE001  a child must not return into pytest
                (self.folder / f"error-{slot}").write_text(traceback.format_exc())
            finally:
                os._exit(3)
        self.pids[slot] = pid

    def kill(self, slot: int) -> None:
        """Kill it: at once, or when it is seen at the step at which it lingers."""
        step = self.folder / f"step-{slot}"
        wait_s = self.rng.choice((0.0, WAIT_S, WAIT_S))
        deadline = time.monotonic() + wait_s
        with step.open("rb", buffering=0) as word:
            while time.monotonic() < deadline:
                if os.pread(word.fileno(), 1, 0)[0] == self.wanted[slot]:
                    break
        pid = self.pids.pop(slot)
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        error = self.folder / f"error-{slot}"
        assert os.WIFSIGNALED(status), error.read_text() if error.exists() else status
        self.hits[steps.read(step)] += 1
        self.models[slot].take_in(self.folder / f"journal-{slot}")

    def check(self, store: logstore.Store[bytes], slots: list[int]) -> None:
        """After a commit of our own, which finishes or cuts off what a dead writer left."""
        store.stream("probe").add({"a": "1"})
        for slot in slots:
            self.models[slot].settle(store)

    def check_shared(self, store: logstore.Store[bytes]) -> None:
        """The shared stream: each writer's entries once, in its order."""
        tags = [tag for _, tag in writer.read_tagged(store, SHARED)]
        for model in self.models:
            mine = [tag for tag in tags if tag.startswith(f"{model.slot}.")]
            assert mine == model.shared

    def print_histogram(self) -> None:
        """How many kills hit which step."""
        kills = sum(self.hits.values())
        inside = sum(count for step, count in self.hits.items() if step >= Step.LOCKED)
        acknowledged = sum(model.acknowledged for model in self.models)
        print(f"\n{kills} kills, {inside} ({inside / kills:.0%}) inside a commit; "
              f"{acknowledged} operations acknowledged; seed {SEED}")  # fmt: skip
        for step in Step:
            print(f"  {step.name:<24}{self.hits[step]:>5}  {'#' * self.hits[step]}")


def one_round(fleet: Fleet, number: int) -> None:
    """Kill writers one by one while others go on, then all at once; check after each."""
    path = fleet.folder / "store"
    for slot in range(WRITERS):
        fleet.start(slot)
    observer = logstore.open(path) if number % 2 else None
    for _ in range(KILLS_A_ROUND - WRITERS):
        time.sleep(fleet.rng.random() * 0.05)
        killed = [fleet.rng.randrange(WRITERS)]
        fleet.kill(killed[0])
        # And at once whoever lingers while it finishes what that one left.
        for slot, wanted in list(fleet.wanted.items()):
            if slot not in killed and wanted == Step.FINISHING_A_DEAD_COMMIT:
                fleet.kill(slot)
                killed.append(slot)
        if observer is not None:
            fleet.check(observer, killed)
        else:
            with logstore.open(path) as store:
                fleet.check(store, killed)
        for slot in killed:
            fleet.start(slot)
    if observer is not None:
        observer.close()
    for slot in range(WRITERS):
        fleet.kill(slot)
    if number % 3 == 2:  # nobody has it open: the first opener builds the index anew
        shutil.rmtree(path / "index")
    with logstore.open(path) as store:
        fleet.check(store, list(range(WRITERS)))
        fleet.check_shared(store)


@pytest.mark.slow
def test_writers_killed_at_any_moment_lose_double_and_halve_nothing(tmp_path: Path) -> None:
    """Acknowledged operations are there once, others wholly or not at all, in each one's order."""
    print(f"seed {SEED}")
    fleet = Fleet(tmp_path, random.Random(SEED))
    logstore.open(tmp_path / "store", segment_bytes=64 * 1024).close()
    try:
        for number in range(ROUNDS):
            one_round(fleet, number)
    finally:
        for pid in fleet.pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        fleet.print_histogram()
    inside = sum(count for step, count in fleet.hits.items() if step >= Step.LOCKED)
    assert sum(fleet.hits.values()) >= 300
    assert inside >= INSIDE * sum(fleet.hits.values())
    # The index that lived through all of it says what one that is built from the log says.
    before = {name: writer_rows(tmp_path / "store", name) for name in (b"own-0", b"own-1", SHARED)}
    shutil.rmtree(tmp_path / "store" / "index")
    for name, rows in before.items():
        assert writer_rows(tmp_path / "store", name) == rows


def writer_rows(path: Path, name: bytes) -> list[writer.Tagged]:
    """A stream's entries, from a store opened for it."""
    with logstore.open(path) as store:
        return writer.read_tagged(store, name)
