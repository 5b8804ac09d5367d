"""Prevents that it matters between which two steps of one process another one does its work."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import figures
from tests.interleaving.encounter import Encounter, Players, begun
from tests.interleaving.handle import Work
from tests.interleaving.matrix import Matrix
from tests.interleaving.named import NAMED, PAIRS, named
from tests.interleaving.points import Point
from tests.interleaving.scenes import SCENES, Scene, others

SEED = "LOGSTORE_INTERLEAVINGS"  # a seed; or seed|scene|point|nth: one encounter, with all others
ANEW = 10  # the index is built anew after every tenth encounter; in torture after each
CHECKED = 3  # ``check`` is run after every third one; in torture after each
A_RUN = 2  # what others do while A is stopped; in torture: all, in a random order
BY_NAME = {scene.name: scene for scene in SCENES}


class Stage(NamedTuple):
    """Where encounters take place."""

    root: Path
    template: Path
    begin: Any
    players: Players

    def meet(self, scene: Scene, number: int) -> Encounter:
        """A fresh copy."""
        anew, checked = (figures.times() > 1 or number % each == 0 for each in (ANEW, CHECKED))
        path = self.root / f"{number}" / "store"
        return Encounter(
            scene, self.template, self.begin, path, self.players, anew=anew, checked=checked
        )


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """With its template made."""
    template = tmp_path / "template" / "store"
    players = Players()
    yield Stage(tmp_path, template, begun(template), players)
    players.leave()
    shutil.rmtree(tmp_path)


def _points(stage: Stage, scene: Scene) -> list[Point]:
    """The first and the last time of everything that A does."""
    found = stage.meet(scene, -1).points()
    shutil.rmtree(stage.root / "-1")
    last = {point.name: point for point in found}
    return [point for point in found if point.nth == 1 or point == last[point.name]]


def _mixed(seed: str, all_of: tuple[Work, ...]) -> list[Work]:
    return random.Random(seed).sample(all_of, len(all_of))


def _shuffled(seed: str, scene: Scene, point: Point) -> list[Work]:
    order = list(others(scene))
    random.Random(f"{seed}/{scene.name}/{point.name}/{point.nth}").shuffle(order)
    return order


def _plan(stage: Stage, seed: str) -> Iterator[tuple[Scene, Point, Sequence[Work]]]:
    parts = seed.split("|")
    if len(parts) == 4:
        scene, point = BY_NAME[parts[1]], Point(parts[2], int(parts[3]))
        yield scene, point, _shuffled(parts[0], scene, point)
        return
    turns = {all_of: cycle(_mixed(seed, all_of)) for all_of in map(others, SCENES)}
    for name, point in named():
        scene = BY_NAME[name]
        yield scene, point, list(islice(turns[others(scene)], A_RUN))
    for name, where, what in PAIRS:
        scene = BY_NAME[name]
        yield scene, Point(where, 1), [work for work in others(scene) if work.name == what]
    if figures.times() > 1:
        for scene in SCENES:
            for point in _points(stage, scene):
                yield scene, point, _shuffled(seed, scene, point)


@pytest.mark.timeout(900 if figures.times() == 1 else 8 * 3600)
def test_a_process_stopped_between_any_two_steps(stage: Stage) -> None:
    """One process is stopped, others go on: each answer is that of one order, or a time-out."""
    seed = os.environ.get(SEED) or (
        "1" if figures.times() == 1 else str(random.SystemRandom().randrange(10**6))
    )
    print(f"\n{SEED}={seed}")
    matrix = Matrix()
    for scene, point, meanwhile in _plan(stage, seed):
        try:
            outcome = stage.meet(scene, matrix.runs).run(point, meanwhile)
            matrix.add(scene.name, point, outcome)
        except AssertionError as exc:
            did = ", ".join(work.name for work in meanwhile)
            raise AssertionError(
                f"{SEED}='{seed}|{scene.name}|{point.name}|{point.nth}' ({did}): {exc}"
            ) from exc
        shutil.rmtree(stage.root / f"{matrix.runs - 1}")
    print(matrix.text())
    figures.record(
        "interleavings", points=matrix.points, pairs=len(matrix.pairs), runs=matrix.runs,
        refused_in_time=matrix.ended["LOCK"] + matrix.ended["care"], failures=0,
    )  # fmt: skip


def test_every_scene_has_named_points() -> None:
    """A scene without one would not be played in continuous integration."""
    assert set(NAMED) == set(BY_NAME)
