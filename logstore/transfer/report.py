"""What a transfer did, in numbers and notes; how far it is.

Invariants: it only counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Progress: TypeAlias = Callable[[int, int], None]  # done, in all; 0 in all: not known
NOTES_MAX = 100


def unwatched(_done: int, _total: int) -> None:
    """Progress that nobody watches."""


@dataclass(slots=True)
class Report:
    """Counts of streams but for ``entries``, ``trimmed`` and ``deleted``."""

    streams: int = 0  # carried
    entries: int = 0  # in these
    same: int = 0  # were there already: same last ID, length, entries added
    kept: int = 0  # another one had the name, and was kept
    expired: int = 0  # had expired
    other_databases: int = 0  # of a file, in databases that were not asked for
    trimmed: int = 0  # entries that the server no longer has, since they are durable here
    deleted: int = 0  # entries that were deleted there, so here
    reconnects: int = 0
    other_keys: Counter[str] = field(default_factory=Counter)  # no streams, by what they are
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Something that the user should know; told once."""
        if text not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(text)

    def as_dict(self) -> dict[str, Any]:
        """Plain values: streams and entries, and of the rest what is not nothing."""
        found: dict[str, Any] = {"streams": self.streams, "entries": self.entries}
        for name in (
            "same", "kept", "expired", "other_databases", "trimmed", "deleted", "reconnects",
        ):  # fmt: skip
            if getattr(self, name):
                found[name] = getattr(self, name)
        if self.other_keys:
            found["other_keys"] = dict(self.other_keys)
        if self.notes:
            found["notes"] = list(self.notes)
        return found
