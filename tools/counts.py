"""What became of the rows of an import, told at its end and with its errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logstore.ids import StreamID


@dataclass(slots=True)
class Counts:
    """What became of the rows so far."""

    imported: int = 0
    bad: int = 0
    resumed_over: int = 0
    last_id: StreamID | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values; for --json."""
        last_id = None if self.last_id is None else str(self.last_id)
        return {
            "imported": self.imported,
            "bad": self.bad,
            "resumed_over": self.resumed_over,
            "last_id": last_id,
        }
