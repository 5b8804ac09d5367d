"""Which tests to ask about which lines: made once for each test file, kept beside the copy.

Invariant: a test file is measured again when its bytes, or those of a module that is broken, have
changed. Times are seconds with nothing broken.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from pathlib import Path, PurePath

from tests.mutation import scope
from tests.mutation.asking import Asker
from tests.mutation.mutants import Mutant

LEAST_S, TIMES = 5.0, 6


class Atlas:
    """The tests by line, and what each of them takes."""

    def __init__(self, kept: Path) -> None:
        self.kept = kept
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.kills: dict[str, Counter[str]] = defaultdict(Counter)

    def survey(self, asker: Asker) -> None:
        """Run every test file once that was not yet."""
        self.kept.mkdir(parents=True, exist_ok=True)
        tree = asker.tree
        product = b"".join((tree / name).read_bytes() for name in scope.modules(tree))
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in asker.tests:
            by_file[test.partition("::")[0]].append(test)
        for name, tests in by_file.items():
            digest = hashlib.sha256(product + (tree / name).read_bytes()).hexdigest()[:16]
            kept = self.kept / f"{name.replace('/', '.')}.{digest}.json"
            if not kept.exists():
                print(f"which lines do the tests of {name} reach?", flush=True)
                asker.survey(tests, kept)
            self._add(json.loads(kept.read_text()))

    def _add(self, measured: dict[str, dict[str, dict[str, list[str]]]]) -> None:
        for test, took in measured["seconds"].items():
            self.seconds[test] = float(took)  # type: ignore[arg-type]
        for module, lines in measured["lines"].items():
            for line, tests in lines.items():
                self.lines[module][int(line)].update(tests)

    def choose(self, module: str, mutant: Mutant, seconds: float) -> list[str]:
        """The tests to ask, those likely to notice first; together they take so many seconds."""
        reached = self.lines[module]
        lines = range(mutant.first, mutant.last + 1) if mutant.first else list(reached)
        tests = set[str]().union(*(reached[line] for line in lines if line in reached))
        kills = self.kills[module]
        by_function: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for test in tests:
            cost = self.seconds[test] / (1 + 9 * kills[test])
            by_function[test.partition("[")[0]].append((cost, test))
        # Those of the module's own room first. Of each function the quickest, then the second: with
        # other parameters it sees much the same.
        room = f"tests/{PurePath(module).parent.name}/"
        turns = [
            (not name.startswith(room), rank, cost, test)
            for name, some in by_function.items()
            for rank, (cost, test) in enumerate(sorted(some))
        ]
        chosen: list[str] = []
        for *_, test in sorted(turns):
            if self.seconds[test] <= seconds or not chosen:
                seconds -= self.seconds[test]
                chosen.append(test)
        return chosen

    def limits(self, tests: list[str]) -> dict[str, float]:
        """How long each may take before it counts as one without end."""
        return {test: LEAST_S + TIMES * self.seconds[test] for test in tests}
