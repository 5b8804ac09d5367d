"""What was explored, by protocol and step, as a table; and what must stand in it."""

from __future__ import annotations

from collections import Counter

from tests.crash.states.judge import Opened, Verdict
from tests.crash.states.steps import LOOKED_FOR, PROTOCOLS, Step

COLUMNS = ("states", "not there", "there", "index kept", "finished", "cut off", "made void")


class Table:
    """Counts, by step."""

    def __init__(self) -> None:
        self.rows: dict[Step, Counter[str]] = {}
        self.known: dict[bytes, Opened] = {}
        self.outcomes = 0
        self.made = 0
        self.workloads: list[str] = []

    def add(self, step: Step, verdict: Verdict) -> None:
        """One state and what became of it."""
        row = self.rows.setdefault(step, Counter())
        row["states"] += 1
        if verdict.happened is not None:
            row["there" if verdict.happened else "not there"] += 1
        row["index kept"] += verdict.trusted
        row["finished"] += verdict.finished > 0
        row["cut off"] += verdict.torn_bytes > 0
        row["made void"] += verdict.voided

    def missing(self) -> list[str]:
        """Named steps that were not met."""
        found = {(step.protocol, label(step)) for step in self.rows}
        wanted = [(protocol, step) for protocol, steps in LOOKED_FOR.items() for step in steps]
        return [f"{protocol}: {step}" for protocol, step in wanted if (protocol, step) not in found]

    def text(self) -> str:
        """The table: a row for each step, and a sum."""
        lines = ["".join(["cut in".ljust(62), *(name.rjust(11) for name in COLUMNS)])]
        total: Counter[str] = Counter()
        for protocol in PROTOCOLS:
            rows = {
                label(step): row for step, row in self.rows.items() if step.protocol == protocol
            }
            for name, row in rows.items():
                total.update(row)
                lines.append(_line(f"{protocol}: {name}", row))
        lines.append(_line("all", total))
        lines.append(
            f"{len(self.known)} states, distinct by content, of {self.made} made; they became "
            f"{self.outcomes} different stores, opened again and checked; lost or half there: none"
        )
        return "\n".join(lines)


def label(step: Step) -> str:
    """A step within its protocol."""
    return f"{step.part}: {step.doing}" if step.part else step.doing


def _line(name: str, row: Counter[str]) -> str:
    return name.ljust(62) + "".join(f"{row[column]:>11,}" for column in COLUMNS)
