"""What became of the mutants, as kept in a file and as printed.

Invariants: one line of JSON a mutant, the last of a key counts, so that a run can be cut off and
taken up. A survivor is explained if docs/mutation.md has a row with its module, what stood there,
and what stands there now; a row explains nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "mutation.md"
ROW = re.compile(r"^\| `+ ?(.+?) ?`+ \| `+ ?(.+?) ?`+ \| `+ ?(.+?) ?`+ \| (.+) \|$", re.MULTILINE)
KILLED = ("failed", "timeout")


class Outcome(NamedTuple):
    """One mutant, and what the tests said."""

    room: str
    module: str
    line: int
    how: str
    before: str
    after: str
    key: str
    result: str  # "failed" and "timeout": killed; "passed" and "unreached": survived
    by: str

    @property
    def killed(self) -> bool:
        """Whether the tests noticed."""
        return self.result in KILLED


def read(path: Path) -> dict[str, Outcome]:
    """What is known already, by key."""
    if not path.exists():
        return {}
    lines = path.read_text().splitlines()
    return {one.key: one for one in (Outcome(*json.loads(line)) for line in lines)}


def keep(path: Path, outcome: Outcome) -> None:
    """Add one."""
    with path.open("a") as file:
        file.write(json.dumps(outcome) + "\n")


def explained(page: Path = PAGE) -> set[tuple[str, str, str]]:
    """Module, before and after of every row of the page."""
    if not page.exists():
        return set()
    rows = ROW.findall(page.read_text().replace("\\|", "|"))
    return {(module, before, after) for module, before, after, _ in rows}


def is_explained(outcome: Outcome) -> bool:
    """Whether the page says why no test has to notice it."""
    return (outcome.module, outcome.before, outcome.after) in explained()


def text(outcomes: Iterable[Outcome], mutants: dict[str, int]) -> str:
    """The table: a line for each module, and the sums of each room and of all."""
    known = explained()
    found = list(outcomes)
    lines = [
        "| module | mutants | tried | killed | timed out | survived | explained | killed % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for room in (*dict.fromkeys(one.room for one in found), ""):
        inside = [one for one in found if not room or one.room == room]
        if room:
            for module in sorted({one.module for one in inside}):
                mine = [one for one in inside if one.module == module]
                lines.append(_line(f"`{module}`", mutants.get(module, 0), mine, known))
        names = {one.module for one in inside}
        count = sum(mutants.get(module, 0) for module in names)
        lines.append(_line(f"**{room or 'all'}**", count, inside, known))
    return "\n".join(lines)


def _line(name: str, mutants: int, some: list[Outcome], known: set[tuple[str, str, str]]) -> str:
    killed = sum(one.killed for one in some)
    late = sum(one.result == "timeout" for one in some)
    left = [one for one in some if not one.killed]
    told = sum((one.module, one.before, one.after) in known for one in left)
    share = 100 * killed / len(some) if some else 0.0
    cells = (name, mutants, len(some), killed, late, len(left), told, f"{share:.1f}")
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def survivors(outcomes: Iterable[Outcome]) -> list[str]:
    """Those that the page does not explain, as lines."""
    known = explained()
    return [
        f"{one.module}:{one.line} ({one.how}, {one.result})\n    - {one.before}\n    + {one.after}"
        for one in outcomes
        if not one.killed and (one.module, one.before, one.after) not in known
    ]
