"""What a compaction did, in numbers. Decides nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class CompactionReport:
    """Counts and sizes of one run."""

    purge: bool = False
    disk_bytes_before: int = 0
    disk_bytes_after: int = 0
    nodes_read: int = 0
    nodes_written: int = 0
    nodes_skipped: int = 0  # changed by others while they were copied: left for the next run
    open_nodes_restated: int = 0
    segments_written: int = 0
    segments_dropped: int = 0
    written_bytes: int = 0  # of segments that compaction wrote
    dropped_bytes: int = 0  # of segments that went
    segments_pinned: int = 0  # nothing lives in them, but a pin still names them
    pinned_bytes: int = 0  # of these segments
    pinned_by: list[str] = field(default_factory=list)  # who has the pins, and since when
    index_rebuilt: bool = False
    took_ms: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Everything by name."""
        return asdict(self)
