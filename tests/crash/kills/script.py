"""A short workload of every kind of operation in one process, for calls that kill it or fail.

The steps are chosen alike in every run. An operation that raises must raise a typed error; it is
looked at then, by the same rules as after a kill, and the workload goes on.
"""

from __future__ import annotations

import importlib
import os
import pickle
import random
import sys
from collections import Counter
from pathlib import Path

import logstore
from logstore.options import Sync
from logstore.recovery.check import check
from tests.crash import steps
from tests.crash.kills import choosing, names, own_streams, takeover
from tests.crash.kills.crew import Crew
from tests.crash.kills.expected import Expected
from tests.crash.kills.journal import Journal, Reader
from tests.crash.kills.operations import CARE, Work
from tests.crash.kills.own_streams import Step

KINDS = (
    "add", "add_many", "job", "read", "ack", "shared", "take", "done", "tx", "delete", "idem",
    "again", "later", "checkpoint", "cancel", "nack", "claim", "settings", "add_many", "trim",
    "group settings", "compact", "soon", "take", "give", "reopen", "add", "job", "read", "tx",
    "purge", "add_many", "sync", "expect", "keep", "brief", "fetch", "put off", "keep", "requeue",
)  # fmt: skip
# Groups by the lane, a close that gives back, and a compaction as far as it can go.
ENDS = (
    "add", "shared", "shared", "job", "take", "read", *("shared", "take", "done", "done") * 4,
    "read", "ack", "read", "ack", "add_many", "add_many", "delete", "tidy", "shared", "take",
    "shared", "take", "done", "full", "shared", "take", "done",
)  # fmt: skip
SEVERAL_COMMITS = {"add_many", *CARE}
SEED = 5


def prepare(folder: Path) -> None:
    """A store that was closed, with the groups that are there from the start."""
    with logstore.open(folder / "store", segment_bytes=64 * 1024, background=False) as store:
        names.set_up(store, 1)


class Script:
    """One run of it, in a process of its own."""

    def __init__(self, folder: Path, sync: Sync, kinds: tuple[str, ...] = KINDS) -> None:
        self.folder, self.sync, self.kinds = folder, sync, kinds
        self.expected = Expected(0, Crew())
        self.errors: list[str] = []
        self.of_lane: Counter[str] = Counter()
        self._watch = steps.Watch(
            folder / "step", 0, steps.CommitStep.OUTSIDE
        )  # it watches nothing
        self._journal: Journal
        self._expected_fd = -1

    def ready(self) -> None:
        """Open the test's own files, before calls are counted: they are not to fail."""
        self._journal = Journal(self.folder / "journal")
        self._expected_fd = os.open(self.folder / "expected", os.O_WRONLY | os.O_CREAT, 0o600)

    def run(self) -> None:
        """All steps; then leave what is expected to whoever looks next."""
        journal, rng = self._journal, random.Random(SEED)
        work = self._opened()
        for number, kind in enumerate(self.kinds, 1):
            work.state, work.remembered = self.expected.state, self.expected.remembered
            step = choosing.choose(work, rng, number, kind)
            self.expected.begun(step)
            journal.begin(step)
            try:
                result = work.do(step)
            except (logstore.Error, MemoryError) as exc:
                work = self._after_an_error(work, step, exc)
            else:
                self.expected.ended(number, result)
                journal.done(number, result)
                self.of_lane.update(
                    dict(zip(("adds", "reads", "acks"), work.of_lane(), strict=False))
                )
        try:
            work.store.close()
        except logstore.Error as exc:
            self.errors.append(f"close: {exc!r}")
        self.of_lane["tidied"] = work.tidied
        modules = [name for name in sys.modules if name.startswith("logstore.")]
        data = pickle.dumps((self.expected, self.errors, self.of_lane, modules))
        assert os.write(self._expected_fd, data) == len(data)

    def _opened(self) -> Work:
        """Open it; at the second try, if the first one met the error."""
        for _ in range(2):
            try:
                return Work(
                    self.folder / "store", 0, self.sync, self.expected.state, self._watch,
                    background=False, lane=self.kinds is ENDS,
                )  # fmt: skip
            except (logstore.Error, MemoryError) as exc:
                self.errors.append(f"open: {exc!r}")
        raise AssertionError(f"it cannot be opened again: {self.errors}")

    def _after_an_error(self, work: Work, step: Step, exc: Exception) -> Work:
        """It happened whole or not at all; and only a CommittedError may say that it did."""
        self.errors.append(f"{step['op']}: {exc!r}")
        certain = isinstance(exc, logstore.Error) and not isinstance(exc, logstore.CommittedError)
        lost = isinstance(exc, logstore.CommittedError | logstore.StoreFailedError)
        if lost or step["op"] in {"reopen", "tidy"}:
            try:
                work.store.close()
            except logstore.Error as second:
                self.errors.append(f"close: {second!r}")
            work = self._opened()
        there = self.expected.settle(work.store)
        assert not there or not certain or step["op"] in SEVERAL_COMMITS, f"it happened: {exc!r}"
        work.held.clear()
        work.mine.clear()
        return work


def learned(folder: Path) -> Counter[str]:
    """Import what a run that was left alone came to need, so that no import is hit in the others;
    what of it was done by the lane."""
    _, _, of_lane, modules = pickle.loads((folder / "expected").read_bytes())
    for name in modules:
        importlib.import_module(name)
    found: Counter[str] = of_lane
    return found


def settled(folder: Path, killed: bool) -> list[str]:
    """Look at what is left, from another process; the errors that were raised."""
    expected, errors = Expected(0, Crew()), list[str]()
    if killed:
        expected.follow(Reader(folder / "journal"), takeover.Commits())
    else:
        expected, errors, *_ = pickle.loads((folder / "expected").read_bytes())
    with logstore.open(folder / "store", background=False) as store:
        assert not store.recovery["damage"]
        expected.settle(store)
        expected.crew.check_at_rest(store)
        tags = [tag for _, tag in names.tagged(store, names.SHARED, names.SMALL)]
        assert tags == expected.shared
        expected.settle_soon(store)
        store.stream("probe").add({"a": "1"})
        before = own_streams.read_own(store, 0)
    checked = check(folder / "store")
    assert checked.as_dict()["clean"], checked.as_dict()
    return errors if before == expected.state else [*errors, "another add changed it"]
