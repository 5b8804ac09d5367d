"""Rounds of load, power cut, recovery and judgement, on one disk; and their table."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import logstore
from logstore import format as fmt
from logstore.options import Sync
from logstore.recovery.check import check
from tests.power import load, tails
from tests.power.disks import KEEPS_METADATA, LOSES_ALL, Disk, Kind
from tests.power.intents import KINDS, OF_LANE, ORDER, Owned
from tests.power.judge import BrokenError, Round, Store, settle

WRITERS = 3
POLICIES: dict[str, tuple[Sync, ...]] = {
    "always": ("always",) * WRITERS,
    "everysec": ("everysec",) * WRITERS,
    "os": ("os",) * WRITERS,
    "mixed": ("always", "everysec", "os"),
}
SEGMENT_BYTES = (128 << 10, 1 << 20, 16 << 20, 16 << 20)
SYNC_RATES = (0.0, 0.0, 0.0, 0.01)
CUTS_A_STORE = 6
CUTS_A_FILE_SYSTEM = 24


@dataclass
class Table:
    """What was counted, by policy of the round; and over all."""

    cuts: Counter[str] = field(default_factory=Counter)
    in_recovery: int = 0
    acknowledged: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    lost_entries: Counter[str] = field(default_factory=Counter)
    window_s: float = 0.0
    longest_sync_s: float = 0.0
    longest_stall_s: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    tails: int = 0
    voided: int = 0
    ended: Counter[str] = field(default_factory=Counter)  # how writers met the end of the disk
    open_s: list[float] = field(default_factory=list)
    of_lane: Counter[str] = field(
        default_factory=Counter
    )  # entries that commits of it acknowledged
    rebuild_ms: list[int] = field(default_factory=list)

    def text(self) -> str:
        """As it is printed."""
        lines = ["", f"{'policy':<10}{'cuts':>7}{'acknowledged':>14}{'lost':>8}{'entries':>9}"]
        for policy in POLICIES:
            row = (self.cuts[policy], self.acknowledged[policy], self.lost[policy])
            lines.append(
                f"{policy:<10}{row[0]:>7}{row[1]:>14,}{row[2]:>8,}{self.lost_entries[policy]:>9,}"
            )
        total = self.cuts.total() + self.in_recovery
        lines.append(f"{total} cuts, {self.in_recovery} of them while the store was recovered")
        lines.append("(a round's policy counts cuts, a writer's the rest; lost under 'mixed' is "
                     "counted under its writer's)")  # fmt: skip
        lines.append(
            f"oldest loss under everysec {self.window_s:.3f} s before the cut; longest sync "
            f"{self.longest_sync_s:.3f} s, longest stall of a writer {self.longest_stall_s:.3f} s"
        )
        told = ", ".join(f"{kind} {self.kinds[kind]:,}" for kind in tails.KINDS)
        lines.append(f"{self.tails} tails set aside, {self.voided} made void; bytes: {told}")
        lines.append(f"entries added, delivered and acked by the lane: {dict(self.of_lane)}")
        lines.append(f"writers ended by: {dict(self.ended)}")
        if self.open_s:
            lines.append(
                f"opened in {statistics.median(self.open_s) * 1000:.0f} ms (median), "
                f"{max(self.open_s) * 1000:.0f} ms (longest)"
            )
        return "\n".join(lines)

    def figures(self) -> dict[str, float | str]:
        """For the one table of all long tests."""
        found: dict[str, float | str] = {
            "cuts": self.cuts.total() + self.in_recovery, "cuts_in_recovery": self.in_recovery,
            "everysec_window_s": round(self.window_s, 3),
            "longest_sync_s": round(self.longest_sync_s, 3), "tails": self.tails,
            "made_void": self.voided,
        }  # fmt: skip
        for what in ("adds", "reads", "acks"):
            found[f"lane_{what}"] = self.of_lane[what]
        for policy in ("always", "everysec", "os"):
            found[f"acknowledged_{policy}"] = self.acknowledged[policy]
            found[f"acknowledged_lost_{policy}"] = self.lost[policy]
        found |= {f"dropped_{kind}_bytes": self.kinds[kind] for kind in tails.KINDS}
        if self.open_s:
            found["open_median_ms"] = round(statistics.median(self.open_s) * 1000)
            found["open_max_ms"] = round(max(self.open_s) * 1000)
        return found


class Rig:
    """One disk, the store on it, and what that must hold."""

    def __init__(self, folder: Path, kind: Kind, rng: random.Random, table: Table) -> None:
        self.disk = Disk(folder, kind)
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.rng = rng
        self.table = table
        self.life = 0
        self.numbers = 0
        self.made = 0
        self.left = 0
        self.segment_bytes = 0
        self.known = Store()
        self.pids: dict[str, int] = {}

    def close(self) -> None:
        """Leave no process and no mount behind."""
        try:
            self._kill()
        finally:
            self.disk.close()

    def one(self, name: str) -> None:
        """Load under a policy, cut, perhaps cut the recovery as well, compare."""
        if not self.left:
            self._new_store()
        self.left -= 1
        rng, policies = self.rng, POLICIES[name]
        kinds = rng.choice((KINDS, OF_LANE))
        plans = [self._plan(slot, policy, kinds) for slot, policy in enumerate(policies)]
        for plan in plans:
            self._spawn(f"writer-{plan.slot}", partial(load.write, plan))
        self._spawn("writeback", partial(load.write_back, plans[0].store, rng.randrange(1 << 32)))
        if rng.random() < 0.8:
            self._await_load(plans)
        cut_at = self._cut_after(self._delay(name))
        self.table.cuts[name] += 1
        rounds = {plan.slot: Round.read(plan.journal, plan.policy) for plan in plans}
        spent = [load.Words.read(plan.words, cut_at) for plan in plans]
        while rng.random() < 0.25:
            self._spawn("opener", partial(_open, plans[0].store, self.segment_bytes))
            self._cut_after(rng.random() * 0.08)
            self.table.in_recovery += 1
        found = self._look(plans[0].store, begun=any(its.done for its in rounds.values()))
        for its in rounds.values():
            if its.failed and its.failed_at < cut_at:
                raise BrokenError(f"failed before the power was cut: {its.failed}")
            self.table.ended[its.failed or "kill"] += 1
            self.table.of_lane += its.of_lane
        stall, sync = max(stall for stall, _ in spent), max(sync for _, sync in spent)
        outcome = settle(self.known, found, rounds, cut_at, slack_s=sync + 2 * stall)
        table = self.table
        table.acknowledged += outcome.acknowledged
        table.lost += outcome.lost
        table.lost_entries += outcome.lost_entries
        table.window_s = max(table.window_s, outcome.window_s)
        table.longest_sync_s = max(table.longest_sync_s, sync)
        table.longest_stall_s = max(table.longest_stall_s, stall)

    def _await_load(self, plans: list[load.Plan]) -> None:
        """Else most cuts hit the opening, which takes longer than most delays."""
        end = time.monotonic() + load.PATIENCE_S
        while time.monotonic() < end:
            if all(plan.journal.exists() for plan in plans):
                return
            time.sleep(0.005)
        stuck = load.stacks(self.outside, self.pids)
        raise BrokenError(f"writers did not begin within {load.PATIENCE_S} s\n{stuck}")

    def _delay(self, name: str) -> float:
        rng = self.rng
        if name in {"everysec", "mixed"} and rng.random() < 0.6:
            return rng.uniform(0.8, 2.6)  # longer than the interval, or nothing could be too old
        return rng.choice((rng.random() * 0.1, rng.random() * 0.8))

    def _new_store(self) -> None:
        """A new life: another store, now and then on another file system over the same bytes."""
        disk = self.disk
        self.life += 1
        self.left = CUTS_A_STORE
        self.segment_bytes = self.rng.choice(SEGMENT_BYTES)
        self.known = Store()
        if disk.mounted:
            for path in disk.at.glob("store-*"):
                shutil.rmtree(path)
            if self.made < CUTS_A_FILE_SYSTEM:
                self.made += CUTS_A_STORE
                return
            disk.unmount()
        disk.make()
        disk.mount()
        self.made = CUTS_A_STORE

    def _plan(self, slot: int, policy: Sync, kinds: tuple[str, ...]) -> load.Plan:
        self.numbers += 1
        plan = load.Plan(
            self.disk.at / f"store-{self.life}", self.outside, slot,
            f"L{self.life}.{slot}.{self.numbers}", policy, self.segment_bytes,
            self.rng.choice(SYNC_RATES), self.rng.randrange(1 << 32), kinds,
        )  # fmt: skip
        plan.journal.unlink(missing_ok=True)
        plan.words.unlink(missing_ok=True)
        return plan

    def _spawn(self, name: str, work: Any) -> None:
        self.pids[name] = load.spawn(self.outside, name, work)

    def _cut_after(self, delay_s: float) -> float:
        """Cut the power, end everybody, mount again; when it was."""
        time.sleep(delay_s)
        how = self.rng.choice((LOSES_ALL, LOSES_ALL, KEEPS_METADATA))
        cut_at = time.monotonic()
        self.disk.cut(how)
        self._kill()
        self.disk.unmount()
        self.disk.mount()
        return cut_at

    def _kill(self) -> None:
        pids, self.pids = self.pids, {}  # a number is another's once its process is waited for
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        for pid in pids.values():
            os.waitpid(pid, 0)
        for name in pids:
            self._complain(name)

    def _complain(self, name: str) -> None:
        error = self.outside / f"error-{name}"
        if error.exists():
            raise BrokenError(error.read_text())

    def _look(self, path: Path, *, begun: bool) -> Store:
        """What the store says of itself, in a process of its own: a torn index may end that."""
        result = self.outside / "found"
        work = partial(
            _open_after_cut,
            path,
            result,
            self.life,
            self.segment_bytes,
            deep=self.rng.random() < 0.2,
        )
        pid = load.spawn(self.outside, "judge", work)
        status = os.waitpid(pid, 0)[1]
        self._complain("judge")
        if status:
            raise BrokenError(f"the process that opened the store ended with {status}")
        said = json.loads(result.read_text())
        table = self.table
        table.open_s.append(said["open_s"])
        recovery = said["recovery"]
        # Opened after a clean close, the mark of that is removed before anything is written.
        if recovery["index_trusted"] and begun:
            raise BrokenError(f"the index of before the cut was trusted: {recovery}")
        if recovery["torn_bytes"]:
            table.tails += 1
            table.voided += said["voided"]
            table.kinds += Counter(said["kinds"])
        return Store(
            [((id[0], id[1]), tag) for id, tag in said["order"]],
            {int(slot): Owned.from_json(each) for slot, each in said["owned"].items()},
        )


def _open(path: Path, segment_bytes: int) -> None:
    """Recover it, and stay until killed; the disk may go while it does.

    It makes the store if the power was cut before a writer had: with the limits that all give.
    """
    try:
        store = logstore.open(path, segment_bytes=segment_bytes)
        time.sleep(60)
        store.close()
    except logstore.Error:
        return


def _open_after_cut(path: Path, result: Path, life: int, segment_bytes: int, *, deep: bool) -> None:
    """Open it after a cut, and write down all that can be read."""
    began = time.perf_counter()
    store = logstore.open(path, segment_bytes=segment_bytes, background=False)
    said: dict[str, Any] = {"open_s": time.perf_counter() - began, "recovery": store.recovery}
    torn = store.recovery["torn_at"]
    if torn:
        log = path / "log"
        segments = sorted(int(each.stem) for each in log.glob("*.log"))
        at = fmt.position(torn["segment"], torn["offset"])
        said["voided"] = any(tails.previous_end(path, each) == at for each in segments)
        said["kinds"] = tails.kinds_of(path, Path(store.recovery["saved_to"]), life)
    said["order"] = load.read_tagged(store, ORDER)
    said["owned"] = {slot: load.read_own_stream(store, slot).as_json() for slot in range(WRITERS)}
    store.close()
    if deep:
        damage = check(path).damage
        assert not damage, damage
    result.write_text(json.dumps(said))
