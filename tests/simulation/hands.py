"""Hands and processes, as the director sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from tests.simulation.actor import GROUPED, STREAMS
from tests.simulation.judge import Call


@dataclass(eq=False)
class Hand:
    """A hand."""

    line: Connection
    process: Process
    number: int
    state: str = "idle"  # runs, wait, sleep, lock; at a point or not
    at: tuple[Any, ...] = ()  # its last report
    call: Call | None = None
    alone: bool = False  # it keeps the interpreter: no other hand of its process can run
    torn: bool = False  # a part of what it writes is written, and it is at the rest
    until_ns: int = 0
    answer: int = 0
    steps: int = 0
    given: dict[str, list[tuple[int, int]]] = field(
        default_factory=lambda: {name: [] for name in GROUPED}
    )
    seen: dict[str, tuple[int, int]] = field(
        default_factory=lambda: dict.fromkeys(STREAMS, (0, 0))
    )  # the last entry that it follows


@dataclass(eq=False)
class Process:
    """A simulated process."""

    number: int
    pid: int = 0
    hands: list[Hand] = field(default_factory=list)
    is_open: bool = False
    leaves: bool = False

    def free(self) -> list[Hand]:
        """Hands that can run now."""
        return [hand for hand in self.hands if hand.alone] or self.hands
