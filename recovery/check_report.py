"""What ``check`` verified and found, in numbers and words. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logstore.recovery.report import Damage


@dataclass(slots=True)
class CheckReport:
    """What was verified and what was found."""

    segments: int = 0
    frames: int = 0
    commits: int = 0
    nodes: int = 0
    log_bytes: int = 0
    streams: int = 0
    entries: int = 0
    checkpoints: int = 0
    hints: int = 0
    index: str = "not compared"
    tail_segment: int = 0
    tail_offset: int = 0
    tail_bytes: int = 0
    damage: list[Damage] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Everything by name."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        found["damage"] = [damage._asdict() for damage in self.damage]
        found["clean"] = not self.damage and not self.tail_bytes
        return found
