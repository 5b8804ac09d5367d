"""What was explored, by protocol and step, as a table; and what must stand in it."""

from __future__ import annotations

from collections import Counter

from tests.crash.states.judge import Opened, Verdict
from tests.crash.states.steps import LOOKED_FOR, PROTOCOLS, ProtocolStep

COLUMNS = (
    "made",
    "distinct",
    "not there",
    "there",
    "index kept",
    "finished",
    "cut off",
    "made void",
)
HEAD = "cut in".ljust(56) + "".join(name.rjust(11) for name in COLUMNS)


class Table:
    """Counts, by step."""

    def __init__(self) -> None:
        self.rows: dict[ProtocolStep, Counter[str]] = {}
        self.known: dict[bytes, Opened] = {}
        self.outcomes = 0
        self.workloads: list[str] = []

    def add(self, step: ProtocolStep, verdict: Verdict, *, fresh: bool) -> None:
        """One state and what became of it; counted once if another was the same, byte for byte."""
        row = self.rows.setdefault(step, Counter())
        row["made"] += 1
        if not fresh:
            return
        row["distinct"] += 1
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

    def figures(self) -> dict[str, float | str]:
        """For the one table of all long tests."""
        return {
            "made": sum(row["made"] for row in self.rows.values()),
            "distinct": len(self.known), "stores": self.outcomes, "steps": len(self.rows),
            "acknowledged_lost": 0, "half_there": 0,  # any would have failed the test
        }  # fmt: skip

    def text(self) -> str:
        """The table: a row for each step, then one for each protocol, and a sum."""
        lines = [HEAD]
        sums: dict[str, Counter[str]] = {protocol: Counter() for protocol in PROTOCOLS}
        for protocol, its in sums.items():
            for step, row in self.rows.items():
                if step.protocol == protocol:
                    its.update(row)
                    lines.append(_line(f"{protocol}: {label(step)}", row))
        lines += ["", HEAD, *(_line(protocol, row) for protocol, row in sums.items())]
        total = sum(sums.values(), Counter())
        lines.append(_line("all", total))
        made = total["made"]
        lines.append(
            f"{len(self.known)} states, distinct by content, of {made} made; they became "
            f"{self.outcomes} different stores, opened again and checked; lost or half there: none"
        )
        return "\n".join(lines)


def label(step: ProtocolStep) -> str:
    """A step within its protocol."""
    return f"{step.part}: {step.doing}" if step.part else step.doing


def _line(name: str, row: Counter[str]) -> str:
    return name.ljust(56) + "".join(f"{row[column]:>11,}" for column in COLUMNS)
