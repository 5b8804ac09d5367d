"""Points by what others did meanwhile, as a table."""

from __future__ import annotations

from collections import Counter

from tests.interleaving.encounter import Outcome
from tests.interleaving.points import Point
from tests.interleaving.scenes import SCENES, others

SIGNS = {"before": "A", "after": "B", "LOCK": "L", "care": "c", "none": "-"}
LEGEND = (
    "A: it saw, and stood behind, what A did; B: A came after it, or changes nothing; "
    "L: refused in time, A has LOCK; c: refused in time, A has the maintenance lock; "
    "-: no store yet"
)


class Matrix:
    """What became of each pair of a point and a piece of work."""

    def __init__(self) -> None:
        self.columns = list(dict.fromkeys(
            work.name.removeprefix("open, ") for scene in SCENES for work in others(scene)
        ))  # fmt: skip
        self._cells: dict[tuple[str, str], dict[str, str]] = {}
        self.pairs: set[tuple[str, Point, str]] = set()
        self.runs = 0
        self.ended: Counter[str] = Counter()

    def add(self, scene: str, point: Point, outcome: Outcome) -> None:
        """One encounter."""
        self.runs += 1
        row = self._cells.setdefault((scene, point.name), {})
        for name, how in outcome.cells.items():
            column = name.removeprefix("open, ")
            sign = SIGNS[how]
            row[column] = row.get(column, "").replace(sign, "") + sign
            self.pairs.add((scene, point, name))
            self.ended[how] += 1

    @property
    def points(self) -> int:
        """How many points A was stopped at."""
        return len({(scene, point) for scene, point, _ in self.pairs})

    def text(self) -> str:
        """The table: a row for each point of a scene; a dot: not tried in this run."""
        lines = [f"{place:>2} {name}" for place, name in enumerate(self.columns, 1)]
        head = "".join(f"{place:>3}" for place in range(1, len(self.columns) + 1))
        lines += [LEGEND, "", "A was stopped in".ljust(72) + head]
        for (scene, name), row in self._cells.items():
            cells = "".join(f"{row.get(column, '.'):>3}" for column in self.columns)
            lines.append(f"{scene}: {name}".ljust(72) + cells)
        lines.append(
            f"{self.points} points, {len(self.pairs)} pairs of a point and what others did, in "
            f"{self.runs} runs; A came first {self.ended['before']} times, last "
            f"{self.ended['after']}, others were refused in time "
            f"{self.ended['LOCK'] + self.ended['care']}; failures: 0"
        )
        return "\n".join(lines)
