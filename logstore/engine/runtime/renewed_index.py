"""The next generation of the index, as who asks for it sees it; who builds it is handed in.

Work that wants another index of an open store (smaller, or without bytes of what was deleted) has
it built beside those who commit, and switches all processes over to it under LOCK. So LOCK is held
for some of what was committed last at a time, and never for all that a store has.

Invariants: the maintenance lock is held, so no segment goes meanwhile; whoever needs an index at
once, because the one there is lost, builds it under LOCK (``Engine.rebuild_locked``), and then this
one is not switched to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias


class NextIndex(Protocol):
    """One that is being built. ``leave`` must follow, whatever became of it."""

    def build(self) -> None:
        """Build it, up to what is published, or a little before that. No lock is held.

        CorruptionError where the one that there is cannot be copied.
        """
        ...

    def follow_locked(self, applied: int) -> bool:
        """Take in some of what was committed since; whether that was the last of it. The mutex and
        LOCK are held, and ``applied`` says where the log ends."""
        ...

    def switch_locked(self, applied: int) -> bool:
        """All processes use it from now on, and the one before has no name that any of them opens.
        The mutex and LOCK are held, and ``applied`` says where the log ends. False, and nothing
        happened, if it has not all of that, or somebody else built one meanwhile."""
        ...

    def leave(self) -> None:
        """Remove the one that is not used any more, or this one. The mutex and LOCK are free."""
        ...


Renewing: TypeAlias = Callable[[Any], NextIndex]  # of an engine, which has it
