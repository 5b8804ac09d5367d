"""The findings of the doctor, and what its rules examine.

Invariant: a finding says in plain words what is wrong and what follows from it, and names a command
that can be typed as it is, if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from logstore.api.showing import quoted, readable

if TYPE_CHECKING:
    from logstore.api.info import StoreInfo, StreamSummary
    from logstore.api.store import Store
    from logstore.compaction.usage import SpaceUsage


# It fails now; it costs more than it must; it will fail.
WRONG, SLOW, SOON = "wrong", "slow", "soon"
LEVELS = (WRONG, SLOW, SOON)
CANNOT_OPEN = "cannot-open"
LEVEL_OF = {
    CANNOT_OPEN: WRONG, "damage": WRONG, "failed-sync": WRONG, "full": WRONG, "space": SOON,
    "dead-share": SLOW, "pin": SLOW, "index": SLOW, "codec": SLOW, "scheduled": WRONG,
    "dead-letters": WRONG, "no-retention": SOON, "retention": SOON, "unread": WRONG,
    "left-behind": WRONG, "redelivered": WRONG, "lag-grows": SLOW,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits above which something is a finding."""

    idle: timedelta = timedelta(minutes=10)  # since a consumer asked for entries
    large_bytes: int = 16 << 20  # of space, and of a stream
    back_share: float = 0.3  # the part of the log that compaction would give back
    deliveries: int = 5  # of one entry


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong or slow, or will be."""

    check: str  # which rule found it, for programs
    level: str
    about: str  # a stream, a group; empty: the store
    what: str
    command: str = ""  # that mends it; empty: none can

    @property
    def names(self) -> tuple[str, str]:
        """What it is ignored by: its check, or that about what it is about."""
        return self.check, f"{self.check}:{self.about}"

    @property
    def rank(self) -> tuple[int, str]:
        """Its place in a list: the worst first."""
        return LEVELS.index(self.level), self.about


@dataclass(frozen=True, slots=True)
class Examined:
    """A store, with what was read of it once for all rules."""

    store: Store[bytes]
    path: Path
    info: StoreInfo
    usage: SpaceUsage
    streams: list[StreamSummary]
    limits: Limits

    @property
    def lagging(self) -> list[StreamSummary]:
        """The streams with a group that lags."""
        return [each for each in self.streams if each.lag]

    def command(self, name: str, *arguments: str | bytes) -> str:
        """A command about this store, as a shell takes it."""
        return typed(name, str(self.path), *arguments)


def typed(name: str, *arguments: str | bytes) -> str:
    """A command as a shell takes it."""
    texts = [one if isinstance(one, str) else readable(one) for one in arguments]
    verb, *noun = name.split()
    return " ".join(["logstore", verb, *noun, *map(quoted, texts)])
