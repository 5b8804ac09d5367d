"""One trial: a script with one fault in it, and all that must be true at the fault and behind it.

Invariants that are asserted: what is raised is of the one tree, and says what to do; a step that
raised did not happen, or its error says that it did; what was acknowledged stays; the same handle
goes on with the same step, and all that follow, as soon as the fault is over, or says that it does
not (a failed sync) and reads on; opened again, it is whole, and ``check`` finds nothing.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import logstore
from logstore.errors import ClosedError, CommittedError, StoreFailedError
from logstore.log import file_names
from logstore.recovery.check import check
from tests.crash.states.store_content import Content
from tests.crash.states.workload import Do, Session, Workload
from tests.faults.layer import Faults

ADVICE = (
    "make room", "permission", "readonly=True", "ulimit", "system's log", "open it again",
    "give a directory", "try again", "run 'logstore", "logstore recover", "do not repeat",
    "opened again",
)  # fmt: skip


def _open(session: Session) -> None:
    session.open()


def _close(session: Session) -> None:
    session.store.close()


OPEN, CLOSE = Do("open", _open), Do("close", _close)


class Beginning:
    """What a workload begins with, made once and copied for each trial."""

    def __init__(self, workload: Workload, scratch: Path) -> None:
        self.workload = workload
        self.path: Path | None = None
        if workload.begin is not None:
            self.path = scratch / "begin" / "new" / "store"
            self.path.parent.mkdir(parents=True)
            workload.begin(self.path)

    def copied(self, target: Path) -> None:
        """Lay it out."""
        if self.path is not None:
            shutil.copytree(self.path, target)


@dataclass
class Clean:
    """A run without a fault: what may fail, and what the store held after each step."""

    beginning: Beginning
    steps: list[Do] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    contents: list[Content] = field(default_factory=list)  # one more than steps


def clean(beginning: Beginning, scratch: Path, faults: Faults) -> Clean:
    """Do it once."""
    workload = beginning.workload
    found = Clean(beginning, [OPEN, *workload.steps, CLOSE])
    path = scratch / "clean"
    beginning.copied(path)
    session = Session(path, workload.sync)
    faults.met.clear()
    for step in found.steps:
        faults.counting = True
        step.do(session)
        faults.counting = False
        if step is CLOSE:
            session.open()
        found.contents.append(session.content())
    session.store.close()
    found.contents.insert(0, found.contents[0])  # what it began with: opening changes nothing
    found.met = list(faults.met)
    shutil.rmtree(path)
    return found


@dataclass
class Outcome:
    """What became of trials, by what was raised."""

    injected: int = 0
    missed: int = 0  # the run was over before the call came
    broken: int = 0
    raised: Counter[str] = field(default_factory=Counter)
    survived: int = 0  # nothing was raised: it was done otherwise, or could wait
    failed: int = 0  # the store said that it is failed
    again: int = 0  # the same handle did the step again
    by_call: Counter[str] = field(default_factory=Counter)
    by_kind: Counter[str] = field(default_factory=Counter)

    @property
    def typed(self) -> int:
        """How many errors were raised, all of them typed."""
        return self.raised.total()

    def table(self) -> str:
        """In words."""
        parts = [
            f"{self.injected} faults injected, {self.broken} promises broken",
            f"  {self.missed} calls did not come again",
            f"  {self.typed} errors raised, all typed; {self.survived} faults raised none",
            f"  {self.again} steps done again by the same handle; {self.failed} failed stores",
        ]
        for what, counts in (
            ("raised", self.raised), ("failed call", self.by_call), ("way", self.by_kind)
        ):  # fmt: skip
            parts += [f"  {what}: {name:<28} {counts[name]:>6,}" for name in sorted(counts)]
        return "\n".join(parts)


class Trial:
    """A script with one fault."""

    def __init__(
        self, run: Clean, faults: Faults, at: int, nth: int | None, outcome: Outcome
    ) -> None:
        """``nth`` None: from then on the disk is full, until a step has raised."""
        self._run, self._faults, self.outcome = run, faults, outcome
        self.name = f"{run.beginning.workload.name}/{at}/{'full' if nth is None else nth}"
        faults.met.clear()
        faults.hits.clear()
        faults.at, faults.nth, faults.full = at, nth or 0, nth is None
        self._place = 0  # steps that happened
        self._session: Session

    def judge(self, path: Path) -> None:
        """AssertionError if anything is not as promised."""
        run = self._run
        run.beginning.copied(path)
        self._session = Session(path, run.beginning.workload.sync)
        before = self.outcome.raised.total()
        for step in run.steps:
            error = self._do(step)
            if error is not None or (self._faults.hits and _in_background(step)):
                self._after(step, error)
            self._place += 1
        self._faults.at = 0
        self._reopened(path)
        if not self._faults.hits:
            self.outcome.missed += 1
            return
        hit = self._faults.hits[0]
        self.outcome.injected += 1
        self.outcome.survived += before == self.outcome.raised.total()
        self.outcome.by_call[hit.call] += 1
        self.outcome.by_kind[hit.kind] += 1

    def _do(self, step: Do) -> logstore.Error | None:
        self._faults.counting = True
        try:
            step.do(self._session)
        except logstore.Error as exc:
            if not self._faults.hits:
                raise  # before anything failed
            self.outcome.raised[type(exc).__name__] += 1
            _says_what_to_do(exc)
            return exc
        finally:
            self._faults.counting = False
        if self._faults.hits and not self._faults.full:
            self._faults.at = 0
        return None

    def _after(self, step: Do, error: logstore.Error | None) -> None:
        """The fault is over: what happened, and does it go on? None: nobody was there to tell."""
        self._faults.at = 0
        before, after = self._run.contents[self._place], self._run.contents[self._place + 1]
        if step is OPEN or self._is_closed():
            self._session.open()
        found = self._session.content()
        told = error is None or isinstance(error, CommittedError)
        assert found == before or (told and found == after), (
            f"half of it after {error!r}: {_differing(found, before)} instead of what was there, "
            f"{_differing(found, after)} instead of what was to be"
        )
        adder = self._session.store._engine().due_work
        if adder is not None:
            adder._retry_at = 0.0  # do not wait for it
        try:
            self._session.store.stream("no such stream").delete("1-1")  # changes nothing
        except StoreFailedError as failed:
            _says_what_to_do(failed)
            assert self._session.content() == found
            self.outcome.failed += 1
            self._session.store.close()
            self._session.open()
            assert self._session.store.recovery["restated_segments"]
            found = self._session.content()
            assert found == before or (told and found == after), (
                f"half of it after {error!r}: it has {_differing(found, before)} that was not "
                f"there, or {_differing(found, after)} that was not to be"
            )
        else:
            found = self._session.content()
            if isinstance(error, CommittedError):
                assert found == after, f"it was told to count: {error!r}"
            else:
                assert found == before or error is None, f"half of it after {error!r}"
        if step is not OPEN and not (told and found == after):
            self.outcome.again += 1
            step.do(self._session)
            if step is not CLOSE:
                assert self._session.content() == after, "done again it did something else"

    def _is_closed(self) -> bool:
        try:
            list(self._session.store.streams())
        except ClosedError:
            return True
        return False

    def _reopened(self, path: Path) -> None:
        last = self._run.contents[-1]
        with suppress(ClosedError):
            self._session.store.close()
        for again in range(2):
            self._session.open()
            assert self._session.content() == last, "opened again it held something else"
            if again:
                assert self._session.store.recovery["index_trusted"]
            self._session.store.close()
        checked = check(path)
        assert checked.as_dict()["clean"], checked.damage
        shutil.rmtree(path / file_names.INDEX)
        self._session.open()
        assert self._session.content() == last, "rebuilt it held something else"
        self._session.store.close()
        shutil.rmtree(path)


def _in_background(step: Do) -> bool:
    """Nobody asked for it: what fails is logged, and tried again."""
    return step.name == "what is due" or step.name.endswith(" expired")


def _differing(found: Content, expected: Content) -> Content:
    """The parts of a content that are not as they are to be."""
    names = found.keys() | expected.keys()
    return {name: found.get(name) for name in names if found.get(name) != expected.get(name)}


def _says_what_to_do(error: logstore.Error) -> None:
    assert any(part in str(error) for part in ADVICE), f"says not what to do: {error!r}"
