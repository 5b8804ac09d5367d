"""What is drawn of a history before it begins: its kind, how it has its store, where one looks.

Invariant: all of it comes from the one source of the history, in one order.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from logstore.engine.runtime import identity
from tests.simulation.actor import Setup

KINDS = ("calm", "calm", "kills", "kills", "faults", "syncs", "cuts")
STOPS = {"syncs": ("fdatasync",), "faults": ("pwrite",), "kills": ("store",)}
POINTS = ("store", "pwrite", "unlock", "before wait", "before wake", "load indexed")
# Rare, and whoever dies there leaves the others with something to find out.
MOMENTS = (
    "store indexed", "store in progress", "store publish", "pwrite", "unlock", "before wake",
    *(f"store {word}" for word in (8, 16, 32, 56)),
)  # fmt: skip
DEADLY = ("kills", "faults", "cuts")
LOOKS_NS = (20_000, 100_000, identity.LOOK_NS)  # after a call or two, after some, as shipped


class Drawn(NamedTuple):
    """A history that has not begun."""

    kind: str
    setup: Setup
    moment: str  # where processes die more often than elsewhere; empty: nowhere
    mean: int  # points between two looks of the director
    again: float  # how often the next call is of the same hand
    ops: int  # calls


def draw(rng: random.Random, path: Path, seed: str) -> Drawn:
    """The history of a seed."""
    kind = rng.choice(KINDS)
    moment = rng.choice(MOMENTS) if kind in DEADLY and rng.random() < 0.6 else ""
    setup = Setup(
        path / "store",
        "always" if kind == "cuts" else rng.choice(("always", "everysec", "os")),
        rng.choice((3, 6, 20)),
        rng.choice((2, 5, 64)),
        rng.random() < 0.15,
        (*_stops(rng, kind), moment),
        seed,
        rng.choice(LOOKS_NS),
    )
    mean, again = rng.choice((1, 3, 10, 40)), rng.choice((0, 0.5, 0.9))
    return Drawn(kind, setup, moment, mean, again, rng.randrange(20, 100))


def _stops(rng: random.Random, kind: str) -> tuple[str, ...]:
    if rng.random() < 0.5:
        return STOPS.get(kind, ())
    return tuple(rng.sample(POINTS, rng.randrange(3)))
