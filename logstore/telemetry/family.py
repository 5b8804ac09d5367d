"""A name of a metric with all its samples, as Prometheus and OpenTelemetry both know it.

Invariants: knows nothing of stores, nor of who takes the samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["gauge", "counter"]
Sample = tuple[tuple[str, ...], float]  # values of the labels, the number


@dataclass(slots=True)
class Family:
    """All samples of one name."""

    name: str  # with its unit last; a counter's without the ``_total`` that Prometheus puts there
    help: str
    labels: tuple[str, ...] = ()
    kind: Kind = "gauge"
    samples: list[Sample] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """In which the numbers are; empty: they are counts."""
        last = self.name.rpartition("_")[2]
        return last if last in {"bytes", "seconds"} else ""

    def add(self, number: float, *labels: str) -> None:
        """One more sample."""
        self.samples.append((labels, number))


def one(name: str, help_text: str, number: float, kind: Kind = "gauge") -> Family:
    """A family with a single sample."""
    return Family(name, help_text, kind=kind, samples=[((), number)])
