"""Writers that are killed and replaced, and what must be there after each kill."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import logstore
from logstore.options import Sync
from tests.crash import steps
from tests.crash.kills import crew, names, takeover, writer
from tests.crash.kills.crew import Crew
from tests.crash.kills.expected import Expected, settle_ticks
from tests.crash.kills.journal import Reader
from tests.crash.steps import CommitStep, Task

WRITERS = 4
POLICIES: tuple[Sync, ...] = ("everysec", "os", "always", "everysec")
WAIT_S, WAIT_CARE_S, WAIT_LANE_S = 0.08, 0.25, 1.0
PLAIN = [(step, Task.NONE) for step in CommitStep if step <= CommitStep.ROLL_SEGMENT_NAMED]
CARE = [
    (step, task)
    for task in Task
    if 0 < task < Task.LANE
    for step in (
        CommitStep.BEGUN,
        CommitStep.HALF_APPENDED,
        CommitStep.APPENDED,
        CommitStep.SYNCED,
        CommitStep.PUBLISHED,
        CommitStep.RENAMED,
        CommitStep.REMOVED,
    )
]
LANE = [
    (CommitStep.LOCKED, Task.LANE),
    (CommitStep.BEGUN, Task.FOLLOWING),
    (CommitStep.INDEXED, Task.FOLLOWING),
    *(
        (step, task)
        for task in (Task.LANE_ADD, Task.LANE_READ, Task.LANE_ACK, Task.LANE_READ, Task.LANE_ACK)
        for step in (
            CommitStep.ANNOUNCED,
            CommitStep.HALF_APPENDED,
            CommitStep.APPENDED,
            CommitStep.PUBLISHED,
        )
    ),
]
LANE_SYNCED = [
    (step, task)
    for step in (CommitStep.SYNCING, CommitStep.SYNCED)
    for task in (Task.LANE_READ, Task.LANE_ACK)
]
PAUSE_S = 0.02  # on average, of who goes through the pipeline while others are in the lane
DEAD_COMMIT = (CommitStep.FINISHING_A_DEAD_COMMIT, Task.NONE)


class Writer:
    """One place in the fleet: who works there now, and what it must have left."""

    def __init__(self, folder: Path, slot: int, crew: Crew) -> None:
        self.slot, self.expected = slot, Expected(slot, crew)
        self.step, self.error = folder / f"step-{slot}", folder / f"error-{slot}"
        self.reader = Reader(folder / f"journal-{slot}")
        self.wanted: tuple[CommitStep, Task] = (CommitStep.OUTSIDE, Task.NONE)
        self.pid = 0


class Fleet:
    """All of them, and their store."""

    def __init__(self, folder: Path, rng: random.Random, lanes: int = 0) -> None:
        """``lanes``: so many of them commit in the lane what is plain."""
        self.lanes = lanes
        self.folder, self.path, self.rng = folder, folder / "store", rng
        self.crew = Crew()
        self.writers = [Writer(folder, slot, self.crew) for slot in range(WRITERS)]
        self.commits = takeover.Commits()
        self.hits: Counter[tuple[CommitStep, Task]] = Counter()
        with logstore.open(self.path, segment_bytes=64 * 1024) as store:
            names.set_up(store, WRITERS)

    def start(self, slot: int) -> None:
        """Fork a writer for a slot."""
        each, rng = self.writers[slot], self.rng
        kinds = [PLAIN, PLAIN, CARE, CARE, [DEAD_COMMIT]]
        policy, lane = POLICIES[slot % len(POLICIES)], slot < self.lanes
        if lane:
            of_lane = LANE + LANE_SYNCED if policy == "always" else LANE
            kinds = [of_lane] * 10 + [CARE, [DEAD_COMMIT]]
        each.wanted = rng.choice(rng.choice(kinds))
        pause_s = PAUSE_S if self.lanes and not lane else 0.0
        each.pid = writer.start(writer.Plan(
            self.path, self.folder / f"journal-{slot}", each.step, each.error, slot,
            each.expected.number, policy, lane, pause_s, each.wanted,
            rng.randrange(1 << 32), each.expected.state, each.expected.remembered,
            each.expected.send_again,
        ))  # fmt: skip

    def chosen(self) -> list[int]:
        """Whom to kill next; the first is waited for, and mostly has a lane if any has."""
        count = self.rng.choices(range(1, WRITERS + 1), (20, 3, 1, 2))[0]
        slots = self.rng.sample(range(WRITERS), count)
        if self.lanes and self.rng.random() < 0.8:
            slots.sort(key=lambda slot: slot >= self.lanes)
            if slots[0] >= self.lanes:
                slots[0] = self.rng.randrange(self.lanes)
        return slots

    def kill(self, slots: list[int]) -> None:
        """Kill these at one moment: at once, or when the first is seen where it lingers."""
        each = self.writers[slots[0]]
        wait_s = WAIT_CARE_S if each.wanted[1] else WAIT_S
        waits = (0.0, wait_s, wait_s)
        if each.slot < self.lanes:
            waits = (0.0, *(WAIT_LANE_S,) * 6)
        deadline = time.monotonic() + self.rng.choice(waits)
        with each.step.open("rb", buffering=0) as word:
            while time.monotonic() < deadline:
                if tuple(os.pread(word.fileno(), 2, 0)) == each.wanted:
                    break
                time.sleep(0.0001)  # who never sleeps comes last when there is something to see
        for other in self.writers:  # no other stops where it holds what they wait for, from now on
            if other.slot not in slots:
                self._hurry(other, 1)
        at_ns = time.monotonic_ns()
        for slot in slots:
            os.kill(self.writers[slot].pid, signal.SIGKILL)
        locked = False
        for slot in slots:
            dead = self.writers[slot]
            status = os.waitpid(dead.pid, 0)[1]
            dead.pid = 0
            assert os.WIFSIGNALED(status), dead.error.read_text() if dead.error.exists() else status
            hit = steps.read_both(dead.step)
            self.hits[hit] += 1
            locked = locked or steps.in_commit(hit[0])
        alive = sum(bool(other.pid) for other in self.writers)
        self.commits.killed(at_ns, slots, alive=alive, locked=locked)

    def _hurry(self, each: Writer, value: int) -> None:
        if each.step.exists():
            with each.step.open("r+b", buffering=0) as word:
                os.pwrite(word.fileno(), bytes((value,)), steps.HURRY)

    def take_in(self) -> None:
        """Follow all journals."""
        for each in self.writers:
            each.expected.follow(each.reader, self.commits)

    def check(self, store: logstore.Store[bytes], slots: list[int]) -> None:
        """What must hold while others go on, after these were killed."""
        assert not store.recovery["damage"]
        # A commit of our own finishes or cuts off what a dead writer left.
        store.stream("probe").add({"a": "1"})
        self.commits.add(time.monotonic_ns(), -1)
        for each in self.writers:
            self._hurry(each, 0)
        self.take_in()
        for slot in slots:
            self.writers[slot].expected.settle(store)
        handed, acked = self.crew.known()
        pending = list(store.stream(names.SHARED).group(names.CREW).pending_entries())
        dead_lettered = crew.dead_ids(store)
        self.take_in()
        self.crew.check(pending, dead_lettered, handed, acked)

    def check_at_rest(self, store: logstore.Store[bytes]) -> None:
        """All are dead and settled: the streams and the group that all of them share."""
        self.crew.check_at_rest(store)
        settle_ticks(store)
        tags = [tag for _, tag in names.tagged(store, names.SHARED, names.SMALL)]
        for each in self.writers:
            shared = each.expected.shared
            assert [tag for tag in tags if tag.startswith(f"{each.slot}.")] == shared
            each.expected.settle_soon(store)

    def stop(self) -> None:
        """Kill whoever is left, after a failure."""
        for each in self.writers:
            if each.pid:
                os.kill(each.pid, signal.SIGKILL)
                os.waitpid(each.pid, 0)
                each.pid = 0
