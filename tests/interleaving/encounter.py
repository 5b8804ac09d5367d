"""One encounter: A is stopped at a point, others do their work, A goes on; was all of it right?

What each of them answered and what can be read in the end must be what the model says of one order:
A before all that the others did, or behind it. Those who need a lock that A holds must be refused
in time, with an error that names A. Then everybody reads, adds and closes; ``check`` must find
nothing, and an index that is built anew (``anew``) must hold the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logstore.log import file_names
from logstore.recovery.check import check
from tests.crash.states import store_content
from tests.crash.states.model import begun as model_of
from tests.crash.states.model import model_content
from tests.interleaving import works
from tests.interleaving.actor import LOCK_S, Actor, Stopped, WorkResult
from tests.interleaving.handle import StoreHandle, Work, begin
from tests.interleaving.points import Point
from tests.interleaving.scenes import DEAD, ROLLED, ROLLING, SCENES, Scene, others
from tests.model.store import StoreModel

PATIENT_S = 120.0
OPENING = "opening or recovering"
MAKING = ("recovery: ", "create: ")
UNPUBLISHED = ": publish in WAKE"  # open handles see what LMDB has, read-only ones what WAKE tells
CARE = "compaction, checkpoint or backup"  # which lock was not free
BEFORE = works.add("a", 800)
LATER = works.add("a", 810)
OPEN = works.nothing("open", lambda at: setattr(at, "store", at.open()))
FOLLOWING = works.nothing("open read-only", works.FOLLOW.do)
READ_NEWLY = works.opened(works.READ, "read newly")
Step = tuple[Work, WorkResult]


class Outcome(NamedTuple):
    """How an encounter ended."""

    stopped: Stopped
    cells: dict[str, str]  # by the work of others: "before", "after", "LOCK", "care", "none"


def _book(scene: Scene) -> dict[str, Work]:
    """All that may have to be done in a scene."""
    found = {work.name: work for work in (*others(scene), OPEN, works.READ)}
    return found | {
        "A": scene.work, "before": BEFORE, "later": LATER, "open read-only": FOLLOWING,
        "dead": ROLLED if scene.killed == ROLLING else DEAD, "read newly": READ_NEWLY,
        "close": works.closing(),
    }  # fmt: skip


class Players:
    """A, B and C, from one encounter to the next: what they have loaded stays."""

    def __init__(self) -> None:
        self._books = {scene.name: _book(scene) for scene in SCENES}
        self._actors: list[Actor | None] = [None, None, None]

    def turn_to(self, path: Path, scene: str) -> list[Actor]:
        """All three, for a scene at ``path``. Who has something open still is replaced."""
        found: list[Actor] = []
        for place, timeout_s in enumerate((PATIENT_S, LOCK_S, LOCK_S)):
            actor = self._actors[place]
            if actor is None or not actor.turn_to(path, scene):
                if actor is not None:
                    actor.kill()
                actor = Actor(path, self._books[scene], timeout_s=timeout_s, books=self._books)
                self._actors[place] = actor
            found.append(actor)
        return found

    def leave(self) -> None:
        """End them."""
        for actor in self._actors:
            if actor is not None:
                actor.kill()
        self._actors = [None, None, None]


class Encounter:
    """A scene on a copy of a store."""

    def __init__(
        self, scene: Scene, template: Path, begin: Any, path: Path, players: Players, *,
        anew: bool = True, checked: bool = True,
    ) -> None:  # fmt: skip
        self.scene, self.path, self._players = scene, path, players
        self._anew, self._checked = anew, checked
        self._begin = begin
        if not scene.empty:
            shutil.copytree(template, path)
        else:
            path.parent.mkdir(exist_ok=True)
        self._works = _book(scene)
        self._named = True

    def _cast(self) -> None:
        """Everybody in their places."""
        scene = self.scene
        self.a, self.b, self.c = self._players.turn_to(self.path, scene.name)
        if scene.killed is not None and not scene.b_open:
            self._kill()
        for actor, is_open in ((self.b, scene.b_open), (self.a, scene.a_open)):
            if is_open:
                _fine(actor.do("open"))
                _fine(actor.do("read"))
        if scene.before:
            _fine(self.a.do("open read-only"))
            _fine(self.b.do("before"))
        if scene.killed is not None and scene.b_open:
            self._kill()

    def _kill(self) -> None:
        with Actor(self.path, self._works, timeout_s=PATIENT_S) as victim:
            _fine(victim.do("open"))
            victim.tell("dead", self.scene.killed)
            found = victim.hear()
            assert isinstance(found, Stopped), found
            victim.kill()

    def points(self) -> list[Point]:
        """All points that A passes, alone."""
        self._cast()
        _fine(self.a.do("A"))
        return self.a.points()

    def run(self, point: Point, meanwhile: Sequence[Work]) -> Outcome:
        """Stop A at a point; ``meanwhile`` others do these, one after the other."""
        self._cast()
        self.a.tell("A", point)
        stopped = self.a.hear()
        assert isinstance(stopped, Stopped), f"{point} was not met: {stopped}"
        there = (self.path / file_names.STORE).exists()
        self._named = (self.path / file_names.WAKE).exists()  # which tells who has LOCK
        did: list[Step] = []
        lost = self.scene.switches
        for work in meanwhile:
            got = (self.c if work.fresh else self.b).do(work.name)
            assert not got.broke, f"{work.name}: {got.broke}"
            if got.refused:
                self._excuse(work, got, stopped, there=there, lost=lost)
            else:
                need = (work.locks and stopped.held) or (work.cares and stopped.cared)
                assert not need, f"{work.name} took a lock that A holds"
            lost = lost or work.name in (works.LOSE.name, works.FORK.name)  # to be opened anew
            late = stopped.name.endswith(UNPUBLISHED) and work.name in ("read-only", "follow")
            if not late or got.refused:
                did.append((work, got))
        self.a.go()
        answer = self.a.hear()
        assert not answer.broke, f"A: {answer.broke}"
        order = self._judge(did, answer)
        return Outcome(stopped, {work.name: _cell(got, stopped, order) for work, got in did})

    def _excuse(
        self, work: Work, got: WorkResult, stopped: Stopped, *, there: bool, lost: bool
    ) -> None:
        what = f"{work.name} was refused while A held {stopped}: {got.refused}: {got.message}"
        if got.refused == "NotAStoreError" and not there:
            return
        assert got.refused == "LockTimeoutError", what
        if work.cares and stopped.cared and CARE in got.message:
            assert got.owner == self.a.pid, what
            return
        assert stopped.held, what
        assert work.locks is not False or lost, what
        # A first opener makes WAKE anew, and names itself in it a moment later.
        if self._named and not (OPENING in got.message and stopped.name.startswith(MAKING)):
            assert got.owner == self.a.pid, what

    # -- was it right? ------------------------------------------------------------------------
    def _judge(self, did: list[Step], answer: WorkResult) -> str:
        """Which order fits: A ``before`` the others, or ``after`` them."""
        scene = self.scene
        final = None
        wrong: list[str] = []
        purged = any(work.name.endswith("purge") and not got.refused for work, got in did)
        if answer.refused:
            expired = answer.refused == "SnapshotExpiredError" and purged
            assert expired, f"A was refused: {answer.refused}: {answer.message}"
        final = self.c.do("read newly")
        _fine(final)
        for order, steps in _orders(scene, did, answer, self._works["dead"]):
            model = self._model()
            bad = _differs(model, steps)
            if not bad and final.answer != model_content(model):
                bad = f"in the end: {_difference(final.answer, model_content(model))}"
            if not bad:
                self._afterwards(model)
                return order
            wrong.append(f"{order}: {bad}")
        raise AssertionError("no order fits:\n" + "\n".join(wrong))

    def _model(self) -> StoreModel:
        model = model_of({} if self.scene.empty else self._begin)
        if self.scene.before:
            BEFORE.model(model)
        return model

    def _afterwards(self, model: StoreModel) -> None:
        """Everybody reads, adds, and reads what others added; and what is left is sound."""
        here = []
        if self.scene.b_open:
            here.append(self.b)
        if self.scene.a_open and self.scene.work.name != "close":
            here.append(self.a)
        if self._checked:
            for actor in here:
                _agrees(actor.do("read"), model, "in its own handle")
        for actor in here:
            _agrees_to(actor.do("later"), LATER.model(model))
        for actor in here:
            _agrees(actor.do("read"), model, "after an add")
        for actor in here:
            _fine(actor.do("close"))
        if self._checked:
            report = check(self.path)
            assert report.as_dict()["clean"], (report.damage, report.tail_bytes)
        if not self._anew:
            return
        _agrees(self.c.do("read newly"), model, "after all were closed")
        shutil.rmtree(self.path / file_names.INDEX)
        _agrees(self.c.do("read newly"), model, "with an index built anew")
        report = check(self.path)
        assert report.as_dict()["clean"], report.damage
        assert report.index.startswith("agrees") or not report.commits, report.index


def _orders(
    scene: Scene, did: list[Step], answer: WorkResult, dead: Work
) -> Iterator[tuple[str, list[Step]]]:
    """A before the others and behind them; the commit of one who was killed anywhere before A."""
    a: list[Step] = [] if answer.refused else [(scene.work, answer)]
    if not scene.counts:
        yield "after", [*did, *a]
        yield "before", [*a, *did]
        return
    ended: Step = (dead._replace(name="dead"), WorkResult())
    for place in range(len(did) + 1):
        yield "after", [*did[:place], ended, *did[place:], *a]
    yield "before", [ended, *a, *did]


def _differs(model: StoreModel, steps: list[Step]) -> str:
    """Where the answers part from the model's; empty if they do not."""
    for work, got in steps:
        if got.refused:
            continue
        expected = work.model(model)
        if work.name != "dead" and got.answer != expected:
            return f"{work.name}: {_difference(got.answer, expected)}"
    return ""


def _difference(found: Any, expected: Any) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        for name in sorted({*found, *expected}):
            left, right = found.get(name), expected.get(name)
            if left != right:
                return f"{name}: {_difference(left, right)}"
    if isinstance(found, list) and isinstance(expected, list):
        more = [row for row in found if row not in expected]
        less = [row for row in expected if row not in found]
        return f"too much {more[:5]} ({len(more)}), missing {less[:5]} ({len(less)})"
    return f"{found} and not {expected}"


def _fine(got: WorkResult) -> None:
    assert not got.broke, got.broke
    assert not got.refused, f"{got.refused}: {got.message}"


def _agrees_to(got: WorkResult, expected: Any, when: str = "") -> None:
    _fine(got)
    assert got.answer == expected, f"{when}: {_difference(got.answer, expected)}"


def _agrees(got: WorkResult, model: StoreModel, when: str) -> None:
    _agrees_to(got, model_content(model), when)


def _cell(got: WorkResult, stopped: Stopped, order: str) -> str:
    if got.refused == "NotAStoreError":
        return "none"
    if got.refused:
        return "care" if CARE in got.message else "LOCK"
    return order


def begun(path: Path) -> Any:
    """Make the template; what it holds."""
    begin(path)
    at = StoreHandle(path, PATIENT_S)
    with at.open() as at.store:
        return store_content.plain(store_content.content(at.store, at.clock))
